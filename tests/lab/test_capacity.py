"""Capacity: what the search finds of loads whose answers are known, and what Live tells of it."""

import math
import random

import pytest

from tests.lab.plan.small import small
from twin.lab.explain.capacity import (
    CLOSE,
    FEWER,
    MANY,
    OTHERS,
    SEEDS,
    capacity,
    with_load,
    with_longer_times,
    with_span,
)
from twin.lab.explain.view import load_of, slo_met
from twin.lab.library import load_facts
from twin.scenario import with_overrides

QUICK = small()


def known(most, noise=0.0, requests=10_000):
    """Answers of a deployment that meets the SLO for 99 % of the requests at `most`; noise:
    standard deviation of the share between seeds."""

    def simulated(s):
        load = load_of(s)[1]
        missed = 0.01 * math.exp(30.0 * (load / most - 1.0))
        missed += random.Random(s.seed).gauss(0.0, noise)
        share = min(max(1.0 - missed, 0.0), 1.0)
        return {"slo_attainment": share, "requests": requests, "requests_steady": requests}

    return simulated


@pytest.mark.parametrize("factor", [0.4, 0.97, 1.0, 1.2, 3.0])
def test_the_capacity_is_found_wherever_the_formula_begins(factor):
    from twin.lab.explain.capacity import load_by_formula

    most = factor * load_by_formula(QUICK, load_facts())
    found = capacity(QUICK, load_facts(), known(most))
    assert found.load == pytest.approx(most, rel=0.01)
    assert found.low <= most <= found.high
    assert found.unit == "req/s"


@pytest.mark.parametrize("case", range(2))
def test_the_interval_holds_it_where_seeds_differ(case):
    rng = random.Random(case)
    most, noise = rng.uniform(60, 250), rng.uniform(0.002, 0.006)
    found = capacity(QUICK, load_facts(), known(most, noise))
    assert found.low <= most * 1.02 and most * 0.98 <= found.high
    assert found.load == pytest.approx(most, rel=0.06)


def test_both_ends_of_what_is_answered_are_judged_by_longer_runs():
    runs = {}
    short = with_span(QUICK, load_facts(), 100.0)

    def simulated(s):
        load, longer = load_of(s)[1], s.horizon_s > 4.0 * short.horizon_s
        runs.setdefault((load, longer), []).append(s.seed)
        # Beyond 100 a queue grows that a short run does not see, up to 120.
        share = 0.3 if load > (100.0 if longer else 120.0) else 1.0
        return {"slo_attainment": share, "requests": 10_000, "requests_steady": 10_000}

    found = capacity(QUICK, load_facts(), simulated)
    held = float(f"{found.held:.4g}")
    above = min(load for load, longer in runs if longer and load > held)
    assert 98.0 <= held <= 100.0 < above <= held * CLOSE
    for end in (held, above):
        assert len(set(runs[end, True])) == FEWER
    assert found.runs == sum(map(len, runs.values()))


def test_seeds_are_added_where_some_fall_behind_for_good_and_others_do_not():
    runs = {}

    def simulated(s):
        load, longer = load_of(s)[1], s.horizon_s > 400.0
        runs.setdefault((load, longer), []).append(s.seed)
        # Beyond 104 every second run that is long enough falls behind, from 100 none of the first.
        falls = load > (104.0 if s.seed < OTHERS + FEWER else 100.0) and s.seed % 2 == 0
        share = 0.5 if load > 110.0 or longer and falls else 1.0
        return {"slo_attainment": share, "requests": 10_000, "requests_steady": 10_000}

    found = capacity(QUICK, load_facts(), simulated, thorough=True)
    assert 100.0 / CLOSE <= found.load <= 100.0 * CLOSE
    assert FEWER < max(len(set(seeds)) for seeds in runs.values()) <= MANY
    assert found.runs == sum(map(len, runs.values()))


def test_the_range_of_a_thorough_search_holds_the_load_where_runs_fall_behind_for_good():
    most, holds_it, draws = 100.0, 0, 20
    longest_s = with_longer_times(with_span(QUICK, load_facts(), most)).horizon_s
    for seed in range(draws):
        rng = random.Random(seed)

        def simulated(s, rng=rng):
            # At a time of its own, on average after 50 runs at `most`, in half of that at 1 % more.
            runs = 50.0 * 2.0 ** min(100.0 - 100.0 * load_of(s)[1] / most, 500.0)
            share = min(1.0, rng.expovariate(1.0) * runs * longest_s / s.horizon_s)
            return {"slo_attainment": share, "requests": 10_000, "requests_steady": 10_000}

        found = capacity(with_load(QUICK, most), load_facts(), simulated, thorough=True)
        assert found.low <= found.load <= found.high
        holds_it += found.low <= most <= found.high
    assert holds_it >= 0.8 * draws


def test_a_search_whose_runs_have_their_own_times_judges_by_more_seeds():
    fault = {"at_s": 9.0, "element": "die 1.1.0"}
    failing, runs = with_overrides(QUICK, {"faults": [fault]}), {}

    def simulated(s):
        assert (s.horizon_s, s.warmup_s) == (failing.horizon_s, failing.warmup_s)
        load = load_of(s)[1]
        runs.setdefault(load, []).append(s.seed)
        share = 0.3 if load > 100.0 else 1.0
        return {"slo_attainment": share, "requests": 10_000, "requests_steady": 10_000}

    found = capacity(failing, load_facts(), simulated)
    assert max(map(len, runs.values())) == SEEDS
    assert found.runs == sum(map(len, runs.values()))


def test_there_may_be_none_or_no_end():
    never = {"slo_attainment": 0.5, "requests": 100, "requests_steady": 100}
    assert capacity(QUICK, load_facts(), lambda _: never).load == 0.0
    assert capacity(QUICK, load_facts(), lambda _: None).load == 0.0
    always = never | {"slo_attainment": 1.0}
    assert capacity(QUICK, load_facts(), lambda _: always).high == math.inf


def test_callers_and_haste_are_loads_too():
    closed = with_overrides(
        QUICK, {"workload.arrivals": "closed_loop", "workload.concurrency": 500}
    )
    found = capacity(closed, load_facts(), known(333.0))
    assert found.unit == "clients" and 331 <= found.load <= 334
    assert with_load(closed, 12.4).workload.concurrency == 12


def test_an_overloaded_run_keeps_no_slo_and_tenants_count_their_own():
    kept = {"slo_attainment": 1.0, "requests": 100}
    assert slo_met(kept, QUICK)
    assert not slo_met(kept | {"steady_state": "overloaded"}, QUICK)
    assert not slo_met(kept | {"lost": 2}, QUICK)
    looser = with_overrides(QUICK, {"slo.share": 0.9})
    late = {"slo_attainment": 0.95, "requests": 100}
    assert slo_met(late, looser) and not slo_met(late, QUICK)


def test_a_search_is_long_enough_for_a_life_unless_something_is_to_happen():
    judged = with_span(QUICK, load_facts(), 100.0)
    assert judged.warmup_s >= 20.0 and judged.horizon_s > judged.warmup_s
    fault = {"at_s": 60.0, "element": "die 1.1.0"}
    failing = with_overrides(QUICK, {"faults": [fault]})
    assert with_span(failing, load_facts(), 100.0) is failing
