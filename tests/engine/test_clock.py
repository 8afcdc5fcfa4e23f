"""The clock: steps cover the horizon, and a bin holds its times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.jit import compiled
from twin.engine import clock
from twin.engine.clock import (
    ITERATION_EDGES_S,
    bin_of,
    steps_in,
)


@pytest.mark.parametrize(
    ("horizon", "step", "steps"), [(10, 0.1, 100), (0.3, 0.1, 3), (1, 0.3, 4), (0.1, 0.1, 1)]
)
def test_steps_cover_the_horizon(horizon, step, steps):
    assert steps_in(horizon, step) == steps
    assert steps * step >= horizon - 1e-9 > (steps - 1) * step - 1e-6


@draws(100)
@given(st.floats(1e-4, 100))
def test_a_bin_holds_its_times(seconds):
    k = bin_of(seconds)
    assert ITERATION_EDGES_S[k] <= seconds * (1 + 1e-9)
    assert seconds <= ITERATION_EDGES_S[k + 1] * (1 + 1e-9)
    assert k == compiled(bin_of)(seconds)


def test_times_beyond_all_bins_fall_in_the_last():
    assert bin_of(0.0) == 0 and bin_of(1e9) == clock.EDGES - 2
