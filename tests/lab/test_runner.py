"""Runs that are asked for, and carried out in this process."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.lab import fake_engine
from tests.lab.fake_engine import answer
from tests.lab.test_store import trace
from twin.lab.library import load_facts
from twin.lab.runs import job, runner
from twin.lab.runs.job import execute_run, load_engine
from twin.lab.runs.runner import add_run, find_run, run_now
from twin.lab.store import Owner, StoreError
from twin.scenario import Scenario, SpecError

ENGINE = "tests.lab.fake_engine"
ROOT = Path(__file__).resolve().parents[2]
QUICK = Scenario(name="quick", horizon_s=31.0)
LONG = Scenario(name="long", horizon_s=6000.0)


def test_a_process_that_is_large_from_the_start_still_carries_out_a_run(store, monkeypatch):
    """Else a server short of memory would start processes for ever, and no run would begin."""
    monkeypatch.setattr(job, "PEAK_BYTES_MAX", 0)
    monkeypatch.setattr(job, "resident_bytes", lambda: 0)  # not those of all tests before
    runs = [add_run(store, QUICK.model_copy(update={"seed": s}), engine=ENGINE) for s in (1, 2)]
    parent = SimpleNamespace(gone=False, wait=lambda timeout_s: None)
    job.serve(store, Owner.current("large"), load_engine(ENGINE), parent, idle_s=60.0)
    assert [store.runs.get(run).state for run in runs] == ["done", "queued"]


def test_a_run_in_this_process_is_stored_like_any_other(store):
    seen = []
    finished, _ = run_now(
        store, QUICK, watch=lambda fraction, live: seen.append(fraction) is None, engine=ENGINE
    )
    row = store.runs.get(finished)
    assert (row.state, row.result_digest) == ("done", answer(QUICK).digest)
    assert seen == sorted(seen) and seen
    assert find_run(store, QUICK, engine=ENGINE).id == finished
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
    row = store.runs.claim(Owner.current("me"))
    monkeypatch.setattr(fake_engine, "ENGINE_VERSION", "fake-2")
    with pytest.raises(StoreError, match="fake-1, and here is fake-2"):
        execute_run(store, row, row.owner, load_engine(ENGINE))
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
    with monkeypatch.context() as earlier:
        earlier.setattr(runner, "load_facts", lambda: asked)
        run = add_run(store, QUICK, engine=ENGINE)
    row = store.runs.claim(Owner.current("me"))
    execute_run(store, row, row.owner, load_engine(ENGINE))
    assert used == [asked]
    assert store.runs.get(run).facts_digest == asked.digest


def test_a_scenario_whose_trace_is_not_here_is_refused_before_it_is_queued(store):
    workload = {"arrivals": "trace", "trace": {"digest": "a" * 64, "name": "x.jsonl"}}
    with pytest.raises(StoreError, match="x.jsonl is not stored here"):
        add_run(store, Scenario.model_validate({"workload": workload}), engine=ENGINE)
    assert store.runs.search().total == 0


def other_trace(scenario):
    wanted = scenario.workload.trace.model_copy(update={"digest": "b" * 64})
    return scenario.workload.model_copy(update={"trace": wanted})


def test_a_scenario_with_a_trace_runs_from_the_store_alone(store):
    table = trace()
    workload = {"arrivals": "trace", "trace": {"digest": table.digest}}
    scenario = Scenario.model_validate({"workload": workload, "horizon_s": 31.0})
    store.traces.save(table)
    assert run_now(store, scenario, engine=ENGINE)[1].summary["requests"] == len(table)
    with pytest.raises(StoreError, match="not stored here"):
        other = scenario.model_copy(update={"workload": other_trace(scenario)})
        run_now(store, other, engine=ENGINE)
