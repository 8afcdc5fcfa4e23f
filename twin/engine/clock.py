"""The clock: steps, windows of the record, and the steady-state span.

Times are seconds from the start of the run. Step k spans [k, k + 1) * step_s, computed from k so
that no error adds up. Windows cut the horizon into equal parts for the record; one more row, the
last, collects what falls between the end of the warm-up and the horizon."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from twin.kernels.compiled import kernel

if TYPE_CHECKING:
    from twin.engine.columns import Record
    from twin.engine.settings import Settings

WINDOWS = 240

# Bins of iteration times, 1 % wide, from 0.1 ms to about 100 s.
FIRST_EDGE_S, EDGE_RATIO, EDGES = 1e-4, 1.01, 1390
ITERATION_EDGES_S = np.array([FIRST_EDGE_S * EDGE_RATIO**k for k in range(EDGES)])


def steps_in(horizon_s: float, step_s: float) -> int:
    """Steps that cover the horizon; the last may reach past it by less than a step."""
    return max(1, math.ceil(horizon_s / step_s - 1e-9))


@kernel
def window_of(time_s: float, horizon_s: float, windows: int) -> int:
    """Index of the window that holds a time; times at or past the horizon fall in the last."""
    return min(int(time_s / horizon_s * windows), windows - 1)


@kernel
def bin_of(time_s: float) -> int:
    """Index of the bin of ITERATION_EDGES_S that holds an iteration time."""
    k = int(math.log(max(time_s, FIRST_EDGE_S) / FIRST_EDGE_S) / math.log(EDGE_RATIO))
    return min(k, EDGES - 2)


@kernel
def add_at(book: np.ndarray, time_s: float, field: int, amount: float, settings: Settings) -> None:
    """Book an amount that happens at one moment; book f8[windows + 1, fields]."""
    windows = book.shape[0] - 1
    if time_s > settings.horizon_s:
        return
    book[window_of(time_s, settings.horizon_s, windows), field] += amount
    if time_s >= settings.warmup_s:
        book[windows, field] += amount


@kernel
def overlap(begin_s: float, end_s: float, low_s: float, high_s: float) -> float:
    """Seconds of [begin, end] within [low, high]."""
    return max(0.0, min(end_s, high_s) - max(begin_s, low_s))


@kernel
def spread(
    book: np.ndarray, begin_s: float, end_s: float, record: Record, count: int, settings: Settings
) -> None:
    """Book amounts that accrue evenly over [begin, end]: amounts[k] of the record's scratch into
    fields[k], k < count. The part after the horizon is not booked."""
    fields, amounts, windows = record.fields, record.amounts, book.shape[0] - 1
    horizon_s, warmup_s = settings.horizon_s, settings.warmup_s
    length_s = end_s - begin_s
    if length_s <= 0.0 or begin_s >= horizon_s:
        return
    first_window = window_of(begin_s, horizon_s, windows)
    last_window = window_of(min(end_s, horizon_s), horizon_s, windows)
    # Most spans, at little cost.
    if first_window == last_window and warmup_s <= begin_s and end_s <= horizon_s:
        for k in range(count):
            book[first_window, fields[k]] += amounts[k]
            book[windows, fields[k]] += amounts[k]
        return
    width_s = horizon_s / windows
    for window in range(first_window, last_window + 1):
        share = overlap(begin_s, end_s, window * width_s, (window + 1) * width_s) / length_s
        for k in range(count):
            book[window, fields[k]] += amounts[k] * share
    steady_share = overlap(begin_s, end_s, warmup_s, horizon_s) / length_s
    if steady_share > 0.0:
        for k in range(count):
            book[windows, fields[k]] += amounts[k] * steady_share
