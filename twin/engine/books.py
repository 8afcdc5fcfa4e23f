"""Amounts of a moment or of a span are added to the windows of the record."""

import numpy as np

from twin.engine import codes as w
from twin.engine.clock import overlap, window_of
from twin.engine.columns import Record, World
from twin.engine.settings import Settings
from twin.kernels.compiled import kernel


@kernel
def add_at(sums: np.ndarray, time_s: float, field: int, amount: float, settings: Settings) -> None:
    """Add an amount that falls at time_s to column `field` of sums f8[windows + 1, fields]: in the
    row of its window and, after the warm-up, in the last row."""
    window_count = sums.shape[0] - 1
    if time_s > settings.horizon_s:
        return
    sums[window_of(time_s, settings.horizon_s, window_count), field] += amount
    if time_s >= settings.warmup_s:
        sums[window_count, field] += amount


@kernel
def add_evenly(
    sums: np.ndarray, begin_s: float, end_s: float, record: Record, count: int, settings: Settings
) -> None:
    """Add amounts that accrue evenly over [begin, end] to the windows of sums f8[windows + 1,
    fields]: the record's amounts[k] to column fields[k], k < count; none after the horizon."""
    fields, amounts, window_count = record.fields, record.amounts, sums.shape[0] - 1
    horizon_s, warmup_s = settings.horizon_s, settings.warmup_s
    span_s = end_s - begin_s
    if span_s <= 0.0 or begin_s >= horizon_s:
        return
    first_window = window_of(begin_s, horizon_s, window_count)
    last_window = window_of(min(end_s, horizon_s), horizon_s, window_count)
    # Most spans, at little cost.
    if first_window == last_window and warmup_s <= begin_s and end_s <= horizon_s:
        for k in range(count):
            sums[first_window, fields[k]] += amounts[k]
            sums[window_count, fields[k]] += amounts[k]
        return
    width_s = horizon_s / window_count
    for window in range(first_window, last_window + 1):
        window_share = overlap(begin_s, end_s, window * width_s, (window + 1) * width_s) / span_s
        for k in range(count):
            sums[window, fields[k]] += amounts[k] * window_share
    steady_share = overlap(begin_s, end_s, warmup_s, horizon_s) / span_s
    if steady_share > 0.0:
        for k in range(count):
            sums[window_count, fields[k]] += amounts[k] * steady_share


@kernel
def record_traffic(
    world: World, kind: int, plane: int, column: int, begin_s: float, end_s: float, amount: float
) -> None:
    """Record `amount` bytes that instance `column` moves over a span. kind: code of the class of
    traffic; plane: code of the plane."""
    if amount <= 0.0:
        return
    field = (kind * 3 + plane) * world.instance.running.size + column
    record_amount(world, world.record.traffic, begin_s, max(end_s, begin_s + 1e-12), field, amount)


@kernel
def record_amount(
    world: World, sums: np.ndarray, begin_s: float, end_s: float, field: int, amount: float
) -> None:
    """Add an amount, even over a span, to column `field` of sums f8[windows + 1, fields]."""
    record = world.record
    record.fields[0], record.amounts[0] = field, amount
    add_evenly(sums, begin_s, end_s, record, 1, world.settings)


@kernel
def log_pass(
    world: World, column: int, begin_s: float, end_s: float, requests: int, tokens: float,
    operators: np.ndarray,
) -> None:  # fmt: skip
    """Log a pass of instance `column` (`requests` requests, 0: prefill; `tokens` tokens) if it
    overlaps the watched span. operators f8[operators]: seconds of each operator in the pass."""
    log = world.log
    if begin_s >= log.span_s[1] or end_s <= log.span_s[0]:
        return
    log_row = log.count[0]
    log.count[0] += 1
    if log_row >= log.instance.size:
        return
    log.instance[log_row], log.requests[log_row], log.tokens[log_row] = column, requests, tokens
    log.begin_s[log_row], log.end_s[log_row], log.hot[log_row] = begin_s, end_s, w.NONE
    if requests == 0 or world.settings.colocated:  # it may have read of the memory pool
        reader_row, streams = column % world.settings.prefills, world.streams
        log.hot[log_row], log.held_s[log_row] = streams.hot[reader_row], streams.held_s[reader_row]
    for operator in range(operators.size):
        log.operators[log_row, operator] = operators[operator]


def record_busy(world: World, column: int, begin_s: float, end_s: float, sign: float) -> None:
    """Add (sign 1) or subtract (-1) a span, up to the horizon, to instance `column`'s busy time."""
    settings, record = world.settings, world.record
    if end_s <= begin_s:
        return
    world.instance.busy_s[column] += sign * max(0.0, min(end_s, settings.horizon_s) - begin_s)
    machine_field = w.PREFILL_BUSY_S if column < settings.prefills else w.DECODE_BUSY_S
    instance_field = column * w.AT_FIELDS + w.AT_BUSY_S
    for sums, busy_field in ((record.windows, machine_field), (record.instances, instance_field)):
        record_amount(world, sums, begin_s, end_s, busy_field, sign * (end_s - begin_s))
        np.maximum(sums[:, busy_field], 0.0, out=sums[:, busy_field])  # what rounding leaves
