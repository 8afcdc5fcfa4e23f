"""Where nothing fits: what a limit has to be relaxed to, and that it then is enough."""

from contextlib import suppress

import pytest

from tests.draws import some
from tests.lab.plan.small import VARY, facts, plan, small
from tests.lab.plan.test_search import driven
from twin.lab.explain.capacity import Capacity
from twin.lab.plan.answer import interim_answer, limit_name, stage_text, status_of
from twin.lab.plan.candidates import space_of
from twin.lab.plan.finish import Finish, first_missed_limit, most_missed_limit
from twin.lab.plan.search import Search
from twin.lab.plan.trial import STORED
from twin.scenario import with_overrides

TIGHT = [
    {"workload__rate_req_per_s": 60.0, "slo__tpot_ms": 2.5, "supernode__nodes": 2},
    {"workload__rate_req_per_s": 40.0, "workload__input_tokens": 2048, "slo__ttft_s": 0.03,
     "slo__tpot_ms": 20.0, "supernode__nodes": 2},
    {"workload__rate_req_per_s": 25.0, "workload__lengths": "sharegpt", "slo__tpot_ms": 2.8,
     "supernode__nodes": 2},
]  # fmt: skip

ONE_SIZE = ("instances", "decode_batch")  # in a made-up machine: each size is priced anew


def finished(scenario) -> Finish:
    """A plan of the scenario, carried out."""
    search = Search(space_of(plan(scenario, simulations=40), facts()), facts())
    driven(search.steps())
    finish = Finish(search, facts())
    driven(finish.steps())
    return finish


ENOUGH = {"slo.share": 0.985, "slo.ttft_s": 1.2, "load_req_per_s": 120.0}  # each alone


def suffices(limit, value):
    """Whether a value of a limit is enough in a made-up machine."""
    return value >= ENOUGH[limit] if limit == "slo.ttft_s" else value <= ENOUGH[limit]


def made_up(s):
    """Figures of a run: nearly enough, and enough where one limit is relaxed."""
    values = {"slo.share": s.slo.share, "slo.ttft_s": s.slo.ttft_s,
              "load_req_per_s": s.workload.rate_req_per_s}  # fmt: skip
    met = [limit for limit, value in values.items() if suffices(limit, value)]
    return dict.fromkeys(STORED) | {
        "share": 1.0 if {*met} - {"slo.share"} else 0.985, "holds": bool(met),
        "share_error": 0.01, "steady_state": "steady", "needs_ttft_s": 1.2, "needs_tpot_s": None,
    }  # fmt: skip


def relaxations(over=lambda: False, figures=made_up, vary=ONE_SIZE, **changes):
    """Those of a plan for which nothing fits, by figures that are made up."""
    search = Search(space_of(plan(small(**changes), vary=vary), facts()), facts(), over)
    finish = Finish(search, facts())
    for steps in (search.steps(), finish.steps()):
        with suppress(StopIteration):
            scenarios = next(steps)
            while True:
                scenarios = steps.send([figures(s) for s in scenarios])
    assert not finish.finalists
    return finish.relaxations


def test_a_plan_without_time_relaxes_by_what_the_nearest_deployment_needs():
    rows = {row["limit"]: row["to"] for row in relaxations(lambda: True)}
    assert rows == {limit: ENOUGH[limit] for limit in ("slo.share", "slo.ttft_s")}


def test_relaxations_are_reported_as_they_are_found_with_the_share_of_limits_that_are_done():
    search = Search(space_of(plan(), facts()), facts())
    finish, seen = Finish(search, facts()), {}
    for steps in (search.steps(), finish.steps()):
        with suppress(StopIteration):
            scenarios = next(steps)
            while True:
                if finish.relax is not None:
                    rows = interim_answer(finish)["relaxations"]
                    seen[finish.relax.limit] = finish.relax.share_done(), len(rows)
                    assert limit_name(finish.relax.limit) in stage_text(finish)
                scenarios = steps.send([made_up(s) for s in scenarios])
    assert seen == {
        "slo.tpot_ms": (0.0, 0), "slo.ttft_s": (0.25, 0), "slo.share": (0.5, 1),
        "load_req_per_s": (0.75, 2),
    }  # fmt: skip


def test_with_a_relaxation_a_search_finds_a_deployment_and_with_95_per_cent_of_it_none():
    rows = relaxations()
    assert all(row["run_s"] > 0.0 for row in rows)
    assert {row["limit"] for row in rows} == {*ENOUGH}
    for row in rows:
        assert suffices(row["limit"], row["to"])
        assert not suffices(row["limit"], row["from"] + 0.95 * (row["to"] - row["from"]))


def test_tpot_is_relaxed_also_where_runs_end_before_a_request_of_such_a_tpot():
    """In a made-up machine that needs a TPOT of 50 ms, which only runs of 25 s can tell."""

    def figures(s):
        is_met, is_long = s.slo.tpot_ms >= 50.0, s.horizon_s - s.warmup_s >= 25.0
        return dict.fromkeys(STORED) | {
            "share": float(is_met), "holds": is_met, "share_error": 0.01, "steady_state": "steady",
            "needs_tpot_s": 0.05 if is_long else None, "needs_ttft_s": None,
        }  # fmt: skip

    rows = relaxations(figures=figures, vary=VARY, slo__tpot_ms=3.0, workload__output_tokens=1000)
    assert {row["limit"]: row["to"] for row in rows} == {"slo.tpot_ms": 50.0}


def test_no_relaxation_is_tried_beyond_what_a_scenario_can_have():
    """In a made-up machine in which no TPOT helps, although runs need 60 ms."""

    def figures(s):
        return made_up(s) | {"share": 0.0, "holds": False, "needs_tpot_s": 0.06}

    assert relaxations(figures=figures, slo__tpot_ms=3.0) == []


def test_no_longer_tpot_is_tried_than_a_scenario_can_have():
    assert relaxations(lambda: True, slo__tpot_ms=9_000.0)


def carrying(short_of):
    """Finish of a plan all of whose runs hold; longer ones show which deployments carry less."""
    search = Search(space_of(plan(small(start="empty")), facts()), facts())
    finish = Finish(search, facts())

    def find_loads(finalists):
        """A generator that simulates nothing."""
        for finalist in finalists:
            load = finalist.rate * (0.996 if finalist.candidate.npus in short_of else 1.05)
            finalist.capacity = Capacity("workload.rate_req_per_s", load, load, load, 1, load)
        yield from ()

    finish._find_loads = find_loads
    figures = dict.fromkeys(STORED, 0.02) | {
        "share": 1.0, "holds": True, "share_error": 0.0, "steady_state": "steady",
    }  # fmt: skip
    for steps in (search.steps(), finish.steps()):
        with suppress(StopIteration):
            scenarios = next(steps)
            while True:
                scenarios = steps.send([figures for _ in scenarios])
    return finish


def test_what_longer_runs_show_to_carry_less_than_its_load_makes_way_for_more_npus():
    smallest = carrying(())
    least_npus = smallest.finalists[0].candidate.npus
    finish = carrying((least_npus,))
    assert finish.finalists and all(f.capacity.load > f.rate for f in finish.finalists)
    assert finish.finalists[0].candidate.npus > least_npus
    status, reason = status_of(finish.search, smallest.finalists[0].candidate)
    assert (status, "only in short runs" in reason) == ("infeasible", True)


def test_where_nothing_else_carries_the_load_what_nearly_does_is_named():
    finish = carrying(range(10_000))
    assert finish.finalists and not finish.relaxations
    assert all(f.capacity.load < f.rate for f in finish.finalists)


def test_what_breaks_first_is_farthest_beyond_its_limit():
    slo = small().slo
    figures = {"ttft_s_p99": 1.2 * slo.ttft_s, "tpot_s_p99": 1.1e-3 * slo.tpot_ms,
               "ttft_s_mean": 0.5 * slo.ttft_s, "tpot_s_mean": None}  # fmt: skip
    assert first_missed_limit(figures, plan()) == "TTFT"
    assert first_missed_limit(figures | {"tpot_s_p99": 1.3e-3 * slo.tpot_ms}, plan()) == "TPOT"
    assert first_missed_limit(figures, plan(by="mean")) == "TTFT"
    alone = {"needs_ttft_s": None, "needs_tpot_s": 0.04}  # with a longer TPOT alone it is enough
    assert first_missed_limit(figures | alone, plan()) == "TPOT"


@pytest.mark.parametrize("tight", some([], *range(len(TIGHT))))
def test_relaxed_by_what_a_plan_says_something_fits(tight):
    scenario = small(**TIGHT[tight])
    finish = finished(scenario)
    assert not finish.finalists and finish.relaxations
    for row in finish.relaxations:
        if row["limit"].startswith("slo."):
            assert finished(with_overrides(scenario, {row["limit"]: row["to"]})).finalists


def test_of_several_runs_most_decide_what_breaks_first():
    ttft, tpot = ({"needs_ttft_s": a, "needs_tpot_s": b} for a, b in ((2.0, None), (None, 0.1)))
    runs = [ttft | {"share": 0.8}, tpot | {"share": 0.7}]
    assert most_missed_limit(runs, plan()) == "TPOT"
    assert most_missed_limit([*runs, ttft | {"share": 0.9}], plan()) == "TTFT"
