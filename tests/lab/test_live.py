"""Live runs: answered by a process of their own, superseded ones stopped."""

import json
import time

import pytest

from tests.draws import FACTOR
from tests.lab.plan.small import small
from twin.engine.simulate import simulate
from twin.lab.library import load_facts, preset
from twin.lab.runs import live
from twin.lab.runs.live import Live, shortened_draft
from twin.lab.runs.process import start_process
from twin.scenario import with_overrides


@pytest.fixture(scope="module")
def one_for_all():
    """Its process takes two seconds to start. The suite's ends a search when another begins."""
    with pytest.MonkeyPatch.context() as patch:
        if FACTOR == 1:
            patch.setattr(live, "start_process", lambda _: start_process("tests.lab.searching"))
        made = Live()
        yield made
        made.close()


@pytest.fixture
def running(one_for_all):
    yield one_for_all
    for run in [*one_for_all._runs]:  # else the search of its capacity goes on
        one_for_all.drop(run)


def quick(**fields):
    short = {"horizon_s": 20.0, "warmup_s": 2.0, "workload.output_tokens": 64}
    return with_overrides(preset("quickstart"), short | fields)


def test_an_edit_supersedes_a_run_and_the_answer_is_that_of_the_engine(running):
    first = running.begin(quick(**{"horizon_s": 3600.0}))
    second = running.begin(quick(), superseded=first)
    seen = running.status(second, 120.0)
    assert seen.ended
    assert running.status(first) is None
    run = simulate(quick(), load_facts())
    assert seen.summary == json.loads(json.dumps(run.summary))
    assert seen.tables["traffic"].equals(run.tables["traffic"])
    third = running.begin(quick(seed=2), superseded=second)
    assert running.status(second) is None
    running.drop(third)


def test_a_run_tells_how_far_it_is_and_one_that_cannot_be_is_gone(running):
    run = running.begin(quick(**{"horizon_s": 3600.0}))
    told = set()
    while (seen := running.status(run, 0.01)) is not None and not told & {p for p in told if p > 0}:
        told.add(seen.progress)
    assert max(told) > 0.0
    impossible = {"deployment.decode.npus_per_instance": 2, "deployment.decode.instances": 1}
    refused = running.begin(quick(**impossible), superseded=run)
    assert running.status(refused, 120.0) is None


def test_runs_whose_visitors_left_are_forgotten(running, monkeypatch):
    monkeypatch.setattr(live, "RUNS_MOST", 1)
    first, second = (running.begin(quick(seed=seed)) for seed in (1, 2))
    assert running.status(first) is None
    assert running.status(second, 120.0).ended


def test_a_process_that_died_is_replaced_by_the_next_question(running):
    lost = running.begin(quick(**{"horizon_s": 3600.0}))
    running._process.kill()
    assert running.status(lost, 60.0) is None
    running._process.wait()
    assert running.status(running.begin(quick()), 120.0).ended


def test_a_question_is_cut_to_a_horizon_that_is_simulated_at_once():
    facts = load_facts()
    assert shortened_draft(preset("quickstart"), facts) == preset("quickstart")
    hour = with_overrides(preset("quickstart"), {"horizon_s": 3600.0, "warmup_s": 360.0})
    cut = shortened_draft(hour, facts)
    assert live.SHORTEST_S <= cut.horizon_s < 600
    assert cut.warmup_s == pytest.approx(0.1 * cut.horizon_s, rel=0.01)
    traced = {"workload.arrivals": "trace", "workload.trace.digest": "0" * 64}
    assert shortened_draft(with_overrides(preset("quickstart"), traced), facts) is None
    own = {"elastic.controller": "own", "elastic.own.digest": "0" * 64}
    assert shortened_draft(with_overrides(preset("quickstart"), own), facts) is None


def test_the_capacity_follows_the_answer_and_a_question_comes_before_it(running):
    first = running.begin(small())
    assert running.status(first, 120.0).searching
    other = running.begin(small(seed=2))
    assert running.status(other, 120.0).ended
    running.drop(other)
    capacity = found(running, first)
    assert capacity["load"] > 0.0
    # One that was found comes with the answer at any load.
    rate = 1.5 * small().workload.rate_req_per_s
    busier = running.begin(small(workload__rate_req_per_s=rate))
    seen = running.status(busier, 120.0)
    assert not seen.searching
    assert seen.capacity == capacity
    fault = {"at_s": 5.0, "element": "die 1.1.0"}
    failing = running.begin(small(faults=[fault]))
    assert not running.status(failing, 120.0).searching


def found(running, run):
    """The capacity of a run, once its search has ended."""
    for _ in range(600):
        if not (seen := running.status(run)).searching:
            return seen.capacity
        time.sleep(0.2)
    raise AssertionError("the search never ended")
