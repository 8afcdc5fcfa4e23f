"""Background runs: watched, stopped, survived, reused; the same in this process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.lab import fake_engine
from tests.lab.fake_engine import answer
from tests.lab.test_store import trace
from twin.lab import job
from twin.lab.executor import Runner
from twin.lab.job import execute, load_engine
from twin.lab.library import load_facts
from twin.lab.runner import add_run, find_run, run_now
from twin.lab.store import Owner, StoreError
from twin.lab.store.owner import _started, this_host
from twin.scenario import Scenario, SpecError

ENGINE = "tests.lab.fake_engine"
ROOT = Path(__file__).resolve().parents[2]
QUICK = Scenario(name="quick", horizon_s=31.0)
LONG = Scenario(name="long", horizon_s=6000.0)


def wait(condition, seconds=120.0):
    """Until a condition holds: tests never sleep for longer than they must.

    Long, because the machine may be busy: what is asked here is that it happens at all.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found, "waited in vain"
    return found


@pytest.fixture
def runner(store):
    runner = Runner(store, processes=1, engine=ENGINE).start()
    yield runner
    runner.close(kill=True)


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
    again = runner.submit(QUICK, again=True)
    assert again != first
    assert runs.queue_position(again) == 0

    # Progress moves, and carries live numbers.
    seen = wait(lambda: runs.get(long).progress)
    wait(lambda: runs.get(long).progress > seen)
    assert 0 < runs.get(long).live["t_s"] < LONG.horizon_s

    # A request to stop is obeyed, and the next in the queue begins.
    runner.cancel(long)
    wait(lambda: state(long) == "cancelled")
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


def test_an_engine_that_cannot_start_is_said_not_tried_for_ever(store):
    runner = Runner(store, processes=1, engine="tests.lab.no_such_engine").start()
    wait(lambda: runner.trouble)
    assert "log says why" in runner.trouble
    assert runner.pids == []
    runner.close(kill=True)


def test_a_process_that_is_large_from_the_start_still_carries_out_a_run(store, monkeypatch):
    """Else a server short of memory would start processes for ever, and no run would begin."""
    monkeypatch.setattr(job, "PEAK_BYTES_MAX", 0)
    runs = [add_run(store, QUICK.model_copy(update={"seed": s}), engine=ENGINE) for s in (1, 2)]
    parent = SimpleNamespace(gone=False, wait=lambda timeout_s: None)
    job.serve(store, Owner.here("large"), load_engine(ENGINE), parent, idle_s=60.0)
    assert [store.runs.get(run).state for run in runs] == ["done", "queued"]


def test_a_run_in_this_process_is_stored_like_any_other(store):
    seen = []
    finished = run_now(
        store, QUICK, watch=lambda fraction, live: seen.append(fraction), engine=ENGINE
    )
    row = store.runs.get(finished.id)
    assert (row.state, row.result_digest) == ("done", answer(QUICK).digest)
    assert seen == sorted(seen) and seen
    assert find_run(store, QUICK, engine=ENGINE) == finished.id
    assert find_run(store, LONG, engine=ENGINE) is None


def test_an_interrupt_from_the_keyboard_leaves_a_cancelled_run(store):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_now(store, LONG, watch=interrupt, engine=ENGINE)
    assert [row.state for row in store.runs.search().rows] == ["cancelled"]


def test_a_failing_run_is_stored_and_raised(store):
    with pytest.raises(ValueError, match="this cannot be"):
        run_now(store, Scenario(question="impossible"), engine=ENGINE)
    (row,) = store.runs.search().rows
    assert row.state == "failed"


def test_a_refusal_of_the_twin_itself_is_its_own_sentence(store, monkeypatch):
    def refuse(*_args, **_options):
        raise SpecError("this does not fit")

    monkeypatch.setattr(fake_engine, "simulate", refuse)
    with pytest.raises(SpecError):
        run_now(store, QUICK, engine=ENGINE)
    assert store.runs.search().rows[0].message == "this does not fit"


def test_a_run_asked_of_another_engine_is_not_answered_by_this_one(store, monkeypatch):
    run = add_run(store, QUICK, engine=ENGINE)
    row = store.runs.claim(Owner.here("me"))
    monkeypatch.setattr(fake_engine, "ENGINE_VERSION", "fake-2")
    with pytest.raises(StoreError, match="fake-1, and here is fake-2"):
        execute(store, row, row.owner, load_engine(ENGINE))
    assert store.runs.get(run).state == "failed"


def test_a_run_uses_the_facts_it_was_asked_with(store, monkeypatch):
    facts = load_facts()
    name = next(iter(facts))
    asked = facts.replaced({name: 1})
    used = []

    def simulate(scenario, facts, trace=None, progress=None):
        used.append(facts)
        return answer(scenario)

    monkeypatch.setattr(fake_engine, "simulate", simulate)
    finished = run_now(store, QUICK, facts=asked, engine=ENGINE)
    assert used == [asked]
    assert store.runs.get(finished.id).facts_digest == asked.digest


def test_a_scenario_whose_trace_is_not_here_is_refused_before_it_is_queued(store):
    workload = {"arrivals": "trace", "trace": {"digest": "a" * 64, "name": "x.jsonl"}}
    with pytest.raises(StoreError, match="x.jsonl is not stored here"):
        add_run(store, Scenario.model_validate({"workload": workload}), engine=ENGINE)
    assert store.runs.search().total == 0


def test_the_code_of_a_job_never_imports_the_screen():
    code = "import sys, twin.lab.job, twin.lab.runner; print('streamlit' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    assert said.stdout.strip() == b"False"


def test_a_live_process_of_another_server_keeps_its_run(store):
    """Another server's process is a process all the same: here, one that sleeps."""
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner("other", this_host(), other.pid, _started(other.pid))
    run = add_run(store, LONG, owner=owner, engine=ENGINE)
    Runner(store, processes=1, engine=ENGINE)._store.runs.recover()
    assert store.runs.get(run).state == "running"
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert store.runs.recover() == [run]


def other_trace(scenario):
    wanted = scenario.workload.trace.model_copy(update={"digest": "b" * 64})
    return scenario.workload.model_copy(update={"trace": wanted})


def test_a_scenario_with_a_trace_runs_again_from_the_store_alone(store):
    table = trace()
    workload = {"arrivals": "trace", "trace": {"digest": table.digest}}
    scenario = Scenario.model_validate({"workload": workload, "horizon_s": 31.0})
    first = run_now(store, scenario, trace=table, engine=ENGINE)
    second = run_now(store, scenario, engine=ENGINE)
    assert first.result.summary["requests"] == second.result.summary["requests"] == len(table)
    with pytest.raises(StoreError, match="not stored here"):
        other = scenario.model_copy(update={"workload": other_trace(scenario)})
        run_now(store, other, trace=table, engine=ENGINE)
    assert store.traces.search().total == 1
