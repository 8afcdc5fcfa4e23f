"""Goodput: both promises must be kept."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.metrics.goodput import met_slo

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
