"""The clock: steps, windows of the record, and the steady-state span.

Times are seconds from the start of the run. Step k spans [k, k + 1) * step_s, computed from k so
that no error adds up. Windows cut the horizon into equal parts for the record; one more row, the
last, collects what falls between the end of the warm-up and the horizon."""

from __future__ import annotations

import math

import numpy as np

from twin.kernels.compiled import kernel

WINDOWS = 240

# Bins of iteration times, 1 % wide, from 0.1 ms to about 100 s.
FIRST_EDGE_S, EDGE_RATIO, EDGES = 1e-4, 1.01, 1390
ITERATION_EDGES_S = np.array([FIRST_EDGE_S * EDGE_RATIO**k for k in range(EDGES)])


def steps_in(horizon_s: float, step_s: float) -> int:
    """Number of steps that cover the horizon; the last may reach past it by less than a step."""
    return max(1, math.ceil(horizon_s / step_s - 1e-9))


@kernel
def window_of(time_s: float, horizon_s: float, windows: int) -> int:
    """Index of the window (of `windows` up to the horizon) that holds time_s; at most the last."""
    return min(int(time_s / horizon_s * windows), windows - 1)


@kernel
def bin_of(time_s: float) -> int:
    """Index of the bin of ITERATION_EDGES_S that holds an iteration time."""
    bin_index = int(math.log(max(time_s, FIRST_EDGE_S) / FIRST_EDGE_S) / math.log(EDGE_RATIO))
    return min(bin_index, EDGES - 2)


@kernel
def overlap(begin_s: float, end_s: float, low_s: float, high_s: float) -> float:
    """Length (s) of the part of [begin_s, end_s] that lies within [low_s, high_s]."""
    return max(0.0, min(end_s, high_s) - max(begin_s, low_s))
