"""A process that is spoken to in lines of JSON, and what it answers."""

import subprocess
import sys
from queue import SimpleQueue

from tests.conftest import ROOT
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


def test_values_go_in_and_messages_come_out_until_the_input_ends():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    heard = SimpleQueue()
    process = Piped(subprocess.Popen([sys.executable, "-c", DOUBLES], cwd=ROOT, **pipes), heard.put)
    for value in (21, 4):
        process.say(value)
        head, tables = heard.get(timeout=PATIENCE_S)
        assert head == {"double": 2 * value}
        assert tables["of"]["value"].to_list() == [value]
    process.close_input()
    assert heard.get(timeout=PATIENCE_S) is None
    assert process.wait() == 0
    process.say(1)  # nothing hears it
    process.silent_s(5.0)
    assert process.silent_s(5.0) == 5.0
    assert process.silent_s(1.0) == 6.0
