"""Background runs: watched, stopped, survived, reused."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.lab.fake_engine import answer
from twin.lab.runs import executor, process
from twin.lab.runs.executor import Runner
from twin.lab.runs.process import start_process
from twin.lab.runs.runner import add_run
from twin.lab.store import Owner, UnknownId
from twin.lab.store.owner import _start_time, this_host
from twin.scenario import Scenario

ENGINE = "tests.lab.fake_engine"
QUICK = Scenario(name="quick", horizon_s=31.0)
LONG = Scenario(name="long", horizon_s=60_000.0)  # ten minutes


def wait(condition, seconds=120.0):
    """Until a condition holds: tests never sleep for longer than they must.

    Long, because the machine may be busy: what is asked here is that it happens at all.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)  # a look at the store takes milliseconds
    assert found, "waited in vain"
    return found


@pytest.fixture
def runner(store):
    runner = Runner(store, processes=1, engine=ENGINE).start()
    yield runner
    runner.close(kill=True)


def test_asking_for_a_run_reads_no_row_of_those_that_wait(store, monkeypatch):
    runner = Runner(store, engine=ENGINE)  # not started: all of them wait
    opened = []
    monkeypatch.setattr(store.runs, "get", opened.append)
    for seed in range(5):
        runner.submit(Scenario(seed=seed))
    assert len(store.runs.queued_ids()) == 5
    assert opened == [""] * 5  # the explanation that is on its way: none


def test_the_life_of_runs_in_the_background(store, runner):
    """One story, because starting a process is what takes time here."""
    runs = store.runs

    def state(run):
        return runs.get(run).state

    # It runs elsewhere, tells how far it is, and leaves the same answer as this process.
    first = runner.submit(QUICK)
    long = runner.submit(LONG)
    wait(lambda: state(first) == "done")
    assert runs.get(first).owner.pid != os.getpid()
    assert runs.get(first).summary == answer(QUICK).summary

    # The same question is answered by the same run, done or still running.
    assert runner.submit(QUICK) == first
    assert runner.submit(LONG) == long
    again = add_run(store, QUICK, engine=ENGINE)
    assert again != first
    assert runs.queue_position(again) == 0

    # Progress moves, and carries live numbers; there is no result yet.
    seen = wait(lambda: runs.get(long).progress)
    wait(lambda: runs.get(long).progress > seen)
    assert 0 < runs.get(long).live["t_s"] < LONG.horizon_s
    assert runner.wait_for(long, timeout_s=0.05) is None

    # A request to stop is obeyed, and the next in the queue begins.
    runner.cancel(long)
    assert runner.wait_for(long, timeout_s=120.0).state == "cancelled"
    wait(lambda: state(again) == "done")
    assert runs.get(again).result_digest == runs.get(first).result_digest

    # One that does not hear is killed; the queue goes on with another process.
    deaf = runner.submit(Scenario(question="deaf"))
    wait(lambda: state(deaf) == "running")
    runner.cancel(deaf)
    wait(lambda: state(deaf) == "cancelled")

    # A process that dies leaves an interrupted run and a sentence; a failure is told.
    killed = runner.submit(Scenario(question="killed"))
    impossible = runner.submit(Scenario(question="impossible"))
    wait(lambda: state(killed) == "interrupted")
    assert "SIGKILL" in runs.get(killed).message
    wait(lambda: state(impossible) == "failed")
    assert "this cannot be" in runs.get(impossible).message
    assert runner.trouble == ""


def test_a_process_that_hangs_is_killed_and_its_run_is_run_once_more_then_failed(
    store, monkeypatch
):
    for module in (process, executor):
        monkeypatch.setattr(module, "HUNG_S", 2.0)
    runner = Runner(store, processes=1, engine=ENGINE).start()
    once = runner.submit(Scenario(horizon_s=200.0))
    twice = runner.submit(Scenario(horizon_s=200.0, seed=2))
    after = runner.submit(QUICK)

    def hang(run, but=()):
        """Stop the process that runs it, as one that hangs, once it is another than those."""
        row = wait(lambda: (row := store.runs.get(run)).owner.pid not in (0, *but) and row)
        wait(lambda: store.runs.get(run).live)
        os.kill(row.owner.pid, signal.SIGSTOP)
        return row.owner.pid

    hang(once)
    wait(lambda: store.runs.get(once).state == "done")  # by another process
    hang(twice, but=[hang(twice)])
    row = wait(lambda: (row := store.runs.get(twice)).ended and row)
    assert row.state == "failed"
    assert row.message == "the run hung twice (no sign of life for 2 s) and was ended"
    wait(lambda: store.runs.get(after).state == "done")
    # One that hangs while it has nothing to do does not let the next run wait either.
    os.kill(store.runs.get(after).owner.pid, signal.SIGSTOP)
    last = runner.submit(Scenario(seed=3, horizon_s=31.0))
    wait(lambda: store.runs.get(last).state == "done")
    runner.close(kill=True)


def test_a_run_that_takes_far_too_much_memory_is_ended_and_its_neighbour_lives(store):
    runner = Runner(store, processes=2, engine=ENGINE).start()
    neighbour = runner.submit(LONG)
    greedy = runner.submit(Scenario(question="greedy"))
    row = wait(lambda: (row := store.runs.get(greedy)).ended and row)
    assert row.state == "failed"
    assert re.fullmatch(r"the run took [\d.]+ GB of memory, and 2 GB are allowed .*", row.message)
    assert store.runs.get(neighbour).state == "running"
    runner.close(kill=True)


def test_an_engine_that_cannot_start_is_said_and_tried_again_later(store, monkeypatch):
    monkeypatch.setattr(executor, "REST_S", 1.0)
    monkeypatch.setattr(executor, "STILLBORN_MAX", 2)  # each takes a second to find that out
    runner = Runner(store, processes=1, engine="tests.lab.no_such_engine").start()
    wait(lambda: runner.trouble)
    assert "log says why" in runner.trouble
    assert not runner._processes
    monkeypatch.setattr(runner, "_engine", ENGINE)
    run = add_run(store, QUICK, engine=ENGINE)  # by somebody else: nobody asks this runner again
    wait(lambda: store.runs.get(run).state == "done")
    wait(lambda: runner.trouble == "")  # the runner sees it at its next look
    runner.close(kill=True)


def test_a_process_without_work_ends_in_order_while_its_input_is_open(store):
    words = ("--owner=one", f"--engine={ENGINE}", "--idle-s=0")
    with start_process("twin.lab.runs.job", *words, **store.environment) as process:
        assert process.wait(120.0) == 0


def test_without_standby_a_process_starts_for_a_run_alone(store):
    runner = Runner(store, processes=2, engine=ENGINE, standby=0)
    assert not runner._tick() and not runner._processes
    runner.submit(QUICK)
    assert runner._tick() and len(runner._processes) == 1
    runner.close(kill=True)


def test_a_live_process_of_another_server_keeps_its_run(store):
    """Another server's process is a process all the same: here, one that sleeps."""
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner("other", this_host(), other.pid, _start_time(other.pid))
    run = add_run(store, LONG, owner=owner, engine=ENGINE)
    Runner(store, processes=1, engine=ENGINE)._store.runs.recover()
    assert store.runs.get(run).state == "running"
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert store.runs.recover() == [run]


def test_an_unknown_run_is_said(store):
    with pytest.raises(UnknownId):
        Runner(store, engine=ENGINE).row("nobody")


def test_processes_are_as_many_as_cores_and_memory_allow(monkeypatch):
    monkeypatch.setattr(executor, "cores", lambda: 9)
    for available, processes in ((float("inf"), 8), (7e9, 3), (1e9, 1)):
        monkeypatch.setattr(executor, "available_bytes", lambda a=available: a)
        assert executor._process_count() == processes
