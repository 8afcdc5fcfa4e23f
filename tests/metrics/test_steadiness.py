"""Steady, still filling or overloaded: on made series, and on runs of which it is known."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.engine.simulate import simulate
from twin.lab.library import load_facts, preset
from twin.metrics.steadiness import (
    relative_gap,
    samples_of_stays,
    slope_and_error,
    stays_s,
    steadiness,
)
from twin.scenario import Scenario, with_overrides

QUICK = preset("quickstart")
OPEN = with_overrides(Scenario(), {"warmup_s": 0.0, "horizon_s": 100.0})
RAMP = np.arange(100.0)


def windows(queued, running, n=100):
    """Windows of a second, with so many who wait and who run in each."""
    columns = dict.fromkeys(
        ("front_end_queue", "router_queue", "prefill_running", "transfer_running"), np.zeros(n)
    )
    columns |= {"t_s": RAMP[:n], "window_s": np.ones(n), "arrived": np.full(n, 50.0)}
    return pl.DataFrame(columns | {"prefill_queue": queued, "decode_running": running})


def noise(seed, n=100, alike=0.8):
    """A first-order autoregression of deviation about 1."""
    draws, values = np.random.default_rng(seed).normal(size=n), np.zeros(n)
    for k in range(1, n):
        values[k] = alike * values[k - 1] + (1 - alike**2) ** 0.5 * draws[k]
    return values


def test_a_level_with_noise_is_steady():
    found = [steadiness(OPEN, windows(5 + noise(k), 200 + 6 * noise(50 + k))) for k in range(40)]
    assert found.count("steady") >= 38


def test_poisson_arrivals_that_stay_long_are_steady_but_for_a_few_runs():
    """Two stays fit into the run, so its population wanders without a trend."""
    found = []
    for seed in range(100):
        arrival_s = np.cumsum(np.random.default_rng(seed).exponential(1 / 50, 9_000)) - 51.0
        inside = np.searchsorted(arrival_s, RAMP) - np.searchsorted(arrival_s + 50.0, RAMP)
        found.append(steadiness(OPEN, windows(np.zeros(100), inside.astype(float))))
    assert found.count("steady") >= 97


def test_a_growing_queue_is_an_overload_and_a_growing_batch_still_fills():
    assert steadiness(OPEN, windows(2 * RAMP + noise(1), np.full(100, 200.0))) == "overloaded"
    assert steadiness(OPEN, windows(5 + noise(1), 200 + 0.5 * RAMP + noise(2))) == "filling"
    assert steadiness(OPEN, windows(5 + noise(1), 200 - 0.5 * RAMP + noise(2))) == "filling"


def test_a_queue_that_grows_by_less_than_a_share_of_the_arrivals_is_no_overload():
    assert steadiness(OPEN, windows(0.3 * RAMP + noise(1), np.full(100, 200.0))) == "steady"


@pytest.mark.parametrize(
    "changing",
    [
        {"workload.profile.shape": "ramp"},
        {"faults": [{"kind": "fail", "element": "node 1", "at_s": 5.0}]},
        {"elastic.controller": "queue"},
    ],
)
def test_what_changes_by_itself_is_not_judged(changing):
    s = with_overrides(OPEN, changing)
    assert steadiness(s, windows(np.zeros(100), np.full(100, 200.0))) is None


def test_the_error_of_a_slope_counts_what_neighbours_share():
    """Of series without a slope about 1 in 20 are beyond two of its errors."""
    beyond = 0
    for seed in range(200):
        fitted, error = slope_and_error(RAMP, noise(seed))
        beyond += abs(fitted) > 2 * error
    assert beyond <= 30


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({"workload.rate_req_per_s": 100.0}, "steady"),
        ({"workload.rate_req_per_s": 175.0}, "overloaded"),
        ({"workload.rate_req_per_s": 140.0, "start": "empty", "warmup_s": 30.0}, "filling"),
    ],
)
def test_the_quick_start_is_judged_rightly_at_its_loads(settings, state):
    times = {"horizon_s": 180.0, "warmup_s": 60.0}
    run = simulate(with_overrides(QUICK, times | settings), load_facts())
    assert run.summary["steady_state"] == state


stays = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), min_size=1, max_size=40)


def test_stays_end_at_the_horizon():
    assert stays_s(np.array([0.0, 1.0, 2.0]), np.array([3.0, np.nan, 9.0]), 5.0) == 3 + 4 + 3


def test_the_gap_is_relative_and_signed():
    assert relative_gap(110.0, 100.0) == pytest.approx(0.1) and relative_gap(
        90.0, 100.0
    ) == pytest.approx(-0.1)
    assert relative_gap(0.0, 0.0) == 0.0


@draws(100)
@given(stays)
def test_samples_are_what_a_walk_through_time_counts(pairs):
    begin = np.array([b for b, _ in pairs], float)
    end = begin + [n for _, n in pairs]
    at = np.arange(0.5, 100)  # no stay ends at a sample
    fewest, most = samples_of_stays(begin, end, at)
    assert fewest == most == sum(int(((begin <= t) & (t < end)).sum()) for t in at)


@draws(100)
@given(stays)
def test_ends_at_a_sample_are_the_only_doubt(pairs):
    begin = np.array([b for b, _ in pairs], float)
    end = begin + [n + 1 for _, n in pairs]
    fewest, most = samples_of_stays(begin, end, np.arange(100.0))
    assert most - fewest == len(pairs)
    assert fewest == (end - begin).sum()
