"""Booking: what accrues over a span or happens at a moment is booked once."""

from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.jit import compiled
from twin.engine.books import add_at, add_evenly
from twin.engine.clock import overlap, window_of

HORIZON, WARMUP, WINDOWS = 10.0, 4.0, 8
RUN = namedtuple("Run", "horizon_s warmup_s")(HORIZON, WARMUP)
Scratch = namedtuple("Scratch", "fields amounts")
times = st.floats(0, 15, allow_subnormal=False)


def book():
    return np.zeros((WINDOWS + 1, 3))


@draws(200)
@given(times, st.just(0.0) | st.floats(1e-6, 15), st.floats(0, 1e12))
def test_what_accrues_before_the_horizon_is_booked_once(begin, length, amount):
    end = begin + length
    length = end - begin
    record, what = book(), Scratch(np.array([2, 0]), np.array([amount, 7.0]))
    add_evenly(record, begin, end, what, 2, RUN)
    share = overlap(begin, end, 0, HORIZON) / length if length > 0 else 0.0
    steady = overlap(begin, end, WARMUP, HORIZON) / length if length > 0 else 0.0
    assert record[:-1, 2].sum() == pytest.approx(share * amount, rel=1e-9)
    assert record[-1, 2] == pytest.approx(steady * amount)
    assert record[:-1, 0].sum() == pytest.approx(share * 7.0) and not record[:, 1].any()
    plain = book()
    compiled(add_evenly)(plain, begin, end, what, 2, RUN)
    assert np.array_equal(plain, record)


def test_amounts_lie_in_the_windows_they_happen_in():
    record = book()  # windows of 1.25 s
    add_evenly(record, 1.0, 3.5, Scratch(np.array([0]), np.array([10.0])), 1, RUN)
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
