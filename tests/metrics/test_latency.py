"""Latencies: by hand on small tables."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.metrics.latency import (
    TTFT_PARTS,
    histogram_quantile,
    itl_spread,
    mean_and_percentiles,
    met_slo,
    span_s,
    tpot_s,
)


def table(**columns):
    return pl.DataFrame(columns)


def test_percentiles_of_a_hundred_and_one_values():
    found = mean_and_percentiles(np.arange(101.0), "ttft_s")
    assert found == {"ttft_s_mean": 50, "ttft_s_p50": 50, "ttft_s_p90": 90, "ttft_s_p95": 95,
                     "ttft_s_p99": 99}  # fmt: skip


def test_nothing_measured_is_nothing_not_zero():
    assert set(mean_and_percentiles(np.array([]), "tpot_s").values()) == {None}


def test_tpot_counts_gaps_and_answers_of_one_token_have_none():
    requests = table(
        first_token_s=[1.0, 1.0, 1.0], finish_s=[3.0, 1.0, None], output_tokens=[5, 1, 5]
    )
    assert tpot_s(requests)[0] == pytest.approx(0.5)
    assert np.isnan(tpot_s(requests)[1:]).all()


def test_parts_of_ttft_are_a_chain_of_stamps():
    stamps = ["arrival_s", "frontend_s", "routed_s", "prefill_start_s", "prefill_end_s"]
    assert [begin for _, begin, _ in TTFT_PARTS] == stamps
    assert [end for _, _, end in TTFT_PARTS] == [*stamps[1:], "first_token_s"]
    row = {s: [2.0**k] for k, s in enumerate([*stamps, "first_token_s"])}
    parts = [span_s(table(**row), begin, end)[0] for _, begin, end in TTFT_PARTS]
    assert sum(parts) == span_s(table(**row), "arrival_s", "first_token_s")[0]


def test_histogram_quantiles_name_the_bin_that_holds_them():
    edges, weights = np.array([0.0, 1.0, 2.0, 3.0]), np.array([5.0, 4.0, 1.0])
    assert histogram_quantile(edges, weights, 0.49) == 1.0
    assert histogram_quantile(edges, weights, 0.89) == 2.0
    assert histogram_quantile(edges, weights, 0.99) == 3.0
    assert histogram_quantile(edges, 0 * weights, 0.5) is None


def test_gaps_weigh_iterations_by_requests_and_extra_tokens_come_free():
    edges = np.array([1.0, 2.0, 3.0])
    spread = itl_spread(edges, np.array([30.0, 10.0]), tokens=60.0)
    # 40 gaps of 1.5 (30) and 2.5 (10), and 20 tokens that a draft gave without a wait.
    assert spread["itl_s_mean"] == pytest.approx((30 * 1.5 + 10 * 2.5) / 60)
    assert (spread["itl_s_p50"], spread["itl_s_p90"]) == (2.0, 3.0)
    assert set(itl_spread(edges, np.zeros(2), 0.0).values()) == {None}


times = st.lists(st.floats(0, 10) | st.just(float("nan")), min_size=1, max_size=20)


def test_both_limits_count_and_a_limit_itself_is_kept():
    ttft, tpot = np.array([1.0, 1.1, 1.0, 0.2]), np.array([0.05, 0.01, 0.06, np.nan])
    assert met_slo(ttft, tpot, 1.0, 0.05).tolist() == [True, False, False, True]


@draws(60)
@given(times, st.floats(0, 10), st.floats(0, 10))
def test_softer_promises_are_kept_at_least_as_often(values, low, more):
    t = np.array(values)
    strict, soft = met_slo(t, t[::-1], low, low), met_slo(t, t[::-1], low + more, low + more)
    assert (soft | ~strict).all()
    assert not met_slo(np.array([np.nan]), np.array([0.0]), 1e9, 1e9).any()
