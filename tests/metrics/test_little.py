"""Little's law: the two ways of counting, by hand and at random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.metrics.little import gap, samples_of_stays, stays_s

stays = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), min_size=1, max_size=40)


def test_stays_end_at_the_horizon():
    assert stays_s(np.array([0.0, 1.0, 2.0]), np.array([3.0, np.nan, 9.0]), 5.0) == 3 + 4 + 3


def test_the_gap_is_relative_and_signed():
    assert gap(110.0, 100.0) == pytest.approx(0.1) and gap(90.0, 100.0) == pytest.approx(-0.1)
    assert gap(0.0, 0.0) == 0.0


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
