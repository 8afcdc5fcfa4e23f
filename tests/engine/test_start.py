"""Where a run begins: with the steady state's population, or with none."""

import pytest

from tests.engine.small import end_of, small
from twin.engine.simulate import simulate
from twin.engine.start import begins_steady
from twin.lab.library import load_facts
from twin.metrics.clients import tenant_rows
from twin.metrics.observed import Observed

STEADY = {"start": "steady"}
FACTS = load_facts()


@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "decode_only"])
@pytest.mark.parametrize("arrivals", ["poisson", "closed_loop"])
def test_laws_hold_and_the_population_is_there_from_the_start(mode, arrivals):
    asked = {"deployment.mode": mode, "workload.arrivals": arrivals, "workload.concurrency": 60}
    asked |= {"workload.output_tokens": 300}
    run, empty = (simulate(small(asked | start), FACTS) for start in (STEADY, {}))
    assert run.valid
    first, later = (float(run.tables["windows"]["decode_running"][k]) for k in (2, -1))
    assert first > 0.5 * later
    if arrivals == "poisson":
        assert first > float(empty.tables["windows"]["decode_running"][2])


def test_a_closed_loop_has_no_more_requests_inside_than_clients():
    asked = {"workload.arrivals": "closed_loop", "workload.concurrency": 60}
    windows = simulate(small(STEADY | asked), FACTS).tables["windows"]
    names = ("prefill_queue", "prefill_running", "transfer_running", "decode_running")
    assert windows.select(names).sum_horizontal().max() <= 60 + 1e-9


def test_those_who_were_there_count_for_tpot_and_not_for_ttft():
    asked = STEADY | {"warmup_s": 0.0, "workload.output_tokens": 400}
    run = simulate(small(asked), FACTS)
    setup, _ = end_of(small(asked))
    assert setup.at_start > 0
    assert run.summary["ttft_s_p50"] > 1e-3  # else zeros of those who had theirs before
    arrived = int(run.tables["windows"]["arrived"].sum())
    assert arrived == run.tables["requests"].height - setup.at_start


@pytest.mark.parametrize(
    "changing",
    [
        {"start": "empty"},
        {"workload.profile.shape": "ramp"},
        {"deployment.mode": "prefill_only"},
        {"workload.arrivals": "closed_loop", "workload.ramp_s": 1.0},
        {"workload.prompts": 10},
        {"admission.in_flight": 5},
    ],
)
def test_what_has_no_steady_state_begins_empty(changing):
    s = small(STEADY | changing)
    assert not begins_steady(s)
    assert end_of(s)[0].at_start == 0


def test_the_same_question_begins_with_the_same_population():
    first, again = (simulate(small(STEADY), FACTS).digest for _ in range(2))
    assert first == again != simulate(small(STEADY | {"seed": 2}), FACTS).digest


@pytest.mark.parametrize(
    "asked",
    [
        {"workload.prefix": "sessions", "workload.turns": "wait", "workload.turn_gap_s": 0.3},
        {"clients.timeout_s": 0.5, "clients.retries": 2},
        {"tenants": [{"name": "a"}, {"name": "b"}], "admission.order": "fair"},
        {"workload.arrivals": "closed_loop", "clients.timeout_s": 0.5, "clients.retries": 1},
    ],
    ids=[
        "turns that wait",
        "clients that ask again",
        "fair queues",
        "a closed loop that asks again",
    ],
)
def test_laws_hold_where_rows_are_made_as_clients_come(asked):
    run = simulate(small(STEADY | {"workload.output_tokens": 200} | asked), FACTS)
    assert run.valid, [check for check in run.checks if not check["ok"]]
    assert float(run.tables["windows"]["decode_running"][2]) > 0


@pytest.mark.parametrize("output_tokens", [40, 2000])
def test_tenants_meet_the_slo_as_the_whole_run_does(output_tokens):
    """Also where answers are so long that none began and ended within the run."""
    asked = {"tenants": [{"name": "a"}, {"name": "b"}], "workload.output_tokens": output_tokens}
    run = simulate(small(STEADY | asked | {"slo.ttft_s": 10.0, "slo.tpot_ms": 1000.0}), FACTS)
    assert run.summary["requests_steady"] and run.summary["slo_attainment"] > 0.5
    seen = Observed.by_requests(run.scenario, run.tables["requests"])
    shares = [tenant["slo_attainment"] for tenant in tenant_rows(seen)]
    assert shares == pytest.approx([run.summary["slo_attainment"]] * 2, abs=0.02)
