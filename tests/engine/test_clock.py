"""The clock: steps cover the horizon, and what is booked is booked once."""

from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.jit import compiled
from twin.engine import clock
from twin.engine.clock import (
    ITERATION_EDGES_S,
    add_at,
    bin_of,
    overlap,
    spread,
    steps_in,
    window_of,
)

HORIZON, WARMUP, WINDOWS = 10.0, 4.0, 8
RUN = namedtuple("Run", "horizon_s warmup_s")(HORIZON, WARMUP)
Scratch = namedtuple("Scratch", "fields amounts")
times = st.floats(0, 15, allow_subnormal=False)


def book():
    return np.zeros((WINDOWS + 1, 3))


@pytest.mark.parametrize(
    ("horizon", "step", "steps"), [(10, 0.1, 100), (0.3, 0.1, 3), (1, 0.3, 4), (0.1, 0.1, 1)]
)
def test_steps_cover_the_horizon(horizon, step, steps):
    assert steps_in(horizon, step) == steps
    assert steps * step >= horizon - 1e-9 > (steps - 1) * step - 1e-6


@draws(200)
@given(times, st.just(0.0) | st.floats(1e-6, 15), st.floats(0, 1e12))
def test_what_accrues_before_the_horizon_is_booked_once(begin, length, amount):
    end = begin + length
    length = end - begin
    record, what = book(), Scratch(np.array([2, 0]), np.array([amount, 7.0]))
    spread(record, begin, end, what, 2, RUN)
    share = overlap(begin, end, 0, HORIZON) / length if length > 0 else 0.0
    steady = overlap(begin, end, WARMUP, HORIZON) / length if length > 0 else 0.0
    assert record[:-1, 2].sum() == pytest.approx(share * amount, rel=1e-9)
    assert record[-1, 2] == pytest.approx(steady * amount)
    assert record[:-1, 0].sum() == pytest.approx(share * 7.0) and not record[:, 1].any()
    plain = book()
    compiled(spread)(plain, begin, end, what, 2, RUN)
    assert np.array_equal(plain, record)


def test_amounts_lie_in_the_windows_they_happen_in():
    record = book()  # windows of 1.25 s
    spread(record, 1.0, 3.5, Scratch(np.array([0]), np.array([10.0])), 1, RUN)
    assert record[:, 0].tolist() == pytest.approx([1.0, 5.0, 4.0, 0, 0, 0, 0, 0, 0])


@draws(100)
@given(times)
def test_a_moment_is_booked_in_one_window(at):
    record = book()
    add_at(record, at, 1, 5.0, RUN)
    assert record[:-1].sum() == (5.0 if at <= HORIZON else 0.0)
    assert record[-1].sum() == (5.0 if WARMUP <= at <= HORIZON else 0.0)
    if at <= HORIZON:
        w = window_of(at, HORIZON, WINDOWS)
        assert record[w, 1] == 5.0 and w == compiled(window_of)(at, HORIZON, WINDOWS)


@draws(100)
@given(st.floats(1e-4, 100))
def test_a_bin_holds_its_times(seconds):
    k = bin_of(seconds)
    assert ITERATION_EDGES_S[k] <= seconds * (1 + 1e-9)
    assert seconds <= ITERATION_EDGES_S[k + 1] * (1 + 1e-9)
    assert k == compiled(bin_of)(seconds)


def test_times_beyond_all_bins_fall_in_the_last():
    assert bin_of(0.0) == 0 and bin_of(1e9) == clock.EDGES - 2
