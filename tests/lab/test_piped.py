"""A process that is spoken to in lines of JSON, and what it answers."""

import os
import signal
import subprocess
import sys
from queue import SimpleQueue

from tests.conftest import ROOT
from twin.lab.runs import process
from twin.lab.runs.process import Piped

DOUBLES = """
from queue import SimpleQueue
import polars as pl
from twin.lab.runs.process import listen
values = SimpleQueue()
say = listen(values.put)
while True:
    value = values.get()
    print("what a library prints is no message")
    say({"double": 2 * value}, {"of": pl.DataFrame({"value": [value]})})
"""
PATIENCE_S = 240.0


def started(heard):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return Piped(subprocess.Popen([sys.executable, "-c", DOUBLES], cwd=ROOT, **pipes), heard.put)


def test_values_go_in_and_messages_come_out_until_the_input_ends():
    heard = SimpleQueue()
    running = started(heard)
    for value in (21, 4):
        running.say(value)
        head, tables = heard.get(timeout=PATIENCE_S)
        assert head == {"double": 2 * value}
        assert tables["of"]["value"].to_list() == [value]
    running.close_input()
    assert heard.get(timeout=PATIENCE_S) is None
    assert running.wait() == 0
    running.say(1)  # nothing hears it


def test_a_process_that_hangs_is_killed(monkeypatch):
    monkeypatch.setattr(process, "HUNG_S", 2.0)
    heard = SimpleQueue()
    hanging = started(heard)
    hanging.say(1)
    assert heard.get(timeout=PATIENCE_S)[0] == {"double": 2}
    assert not hanging.hung
    os.kill(hanging.pid, signal.SIGSTOP)
    assert heard.get(timeout=PATIENCE_S) is None
    assert hanging.wait() == -signal.SIGKILL and hanging.hung
