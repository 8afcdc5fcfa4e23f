"""What goes on around the work in a trace: faults and rebalances, queues and loads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from twin.lab.perfetto.tracks import RUN, Event, Instance, Track, ns
from twin.metrics.resilience import instance_name

Tables = Mapping[str, pl.DataFrame]

LASTING = ("fault", "instance_down")  # kinds of events that go on until somebody ends them
# Counters: name, and the columns that are its series.
WINDOW_COUNTERS = {
    "waiting": ("front_end_queue", "router_queue", "prefill_queue"),
    "running": ("prefill_running", "transfer_running", "decode_running"),
    "plane utilisation": ("ub_utilisation", "rdma_utilisation", "vpc_utilisation"),
    "tokens per s": ("input_tokens_per_s", "output_tokens_per_s"),
    "memory": ("kv_used_fraction", "pool_used_fraction"),
}
INSTANCE_COUNTERS = {
    "requests": ("queue", "running"),
    "busy": ("busy",),
    "hottest die over mean": ("hot_factor",),
    "exchange slowed by others": ("contention",),
    "dies in service": ("dies",),
}


def happenings(
    tables: Tables, instances: Iterable[Instance], begin_s: float, end_s: float
) -> Iterator[list[Event]]:
    """Faults, rebalances and what followed: instants, and bars for what lasts."""
    events = tables.get("events")
    if events is None:
        return
    pids = {(one.role, one.index): one.pid for one in instances}
    for number, row in enumerate(events.sort("t_s", maintain_order=True).iter_rows(named=True)):
        at_s, until_s = row["t_s"], row["end_s"]
        if until_s is None:  # what broke stays broken; all else is a moment
            until_s = end_s if row["kind"] in LASTING else at_s
        if at_s >= end_s or until_s < begin_s:
            continue
        what = row["element"] or instance_name(row["role"], row["instance"])
        name = f"{row['kind'].replace('_', ' ')} {what}".strip()
        args = {k: row[k] for k in ("detail", "bytes", "requests") if row[k]}
        group = []
        if at_s >= begin_s:
            more: Event = {"s": "g", "cat": row["kind"], "args": args}
            group.append(Track(RUN).event("i", name, ns(at_s), **more))
        if until_s > at_s:
            track = Track(pids.get((row["role"], row["instance"]), RUN))
            shown = ns(max(at_s, begin_s)), ns(min(until_s, end_s))
            known = args | {"from_s": at_s, "to_s": row["end_s"]}
            group += track.bar(name, *shown, row["kind"], number, known)
        yield group


def counters(
    tables: Tables, instances: Sequence[Instance], begin_s: float, end_s: float, most: int
) -> Iterator[list[Event]]:
    """Means of the windows that touch the span, of the run and of every instance.

    Where that would be more than `most` events, every so-many-th window only.
    """
    most = max(1, most // (len(WINDOW_COUNTERS) + len(INSTANCE_COUNTERS) * len(instances)))
    for name, columns in WINDOW_COUNTERS.items():
        yield _counted(Track(RUN), name, tables["windows"], columns, (begin_s, end_s), most)
    table = tables.get("instances")
    if table is None:
        return
    for one in instances:
        this = (pl.col("role") == one.role) & (pl.col("instance") == one.index)
        rows = table.filter(this).sort("t_s")
        for name, columns in INSTANCE_COUNTERS.items():
            yield _counted(Track(one.pid), name, rows, columns, (begin_s, end_s), most)


def _counted(
    track: Track,
    name: str,
    rows: pl.DataFrame,
    columns: Iterable[str],
    span_s: tuple[float, float],
    most: int,
) -> list[Event]:
    """One counter with a series per column; a window in which nothing is known is left out."""
    begin_s, end_s = span_s
    present = [c for c in columns if c in rows.columns]
    touching = rows.filter((pl.col("t_s") < end_s) & (pl.col("t_s") + pl.col("window_s") > begin_s))
    events = []
    for row in touching.gather_every(-(-max(touching.height, 1) // most)).iter_rows(named=True):
        args = {c: float(row[c]) for c in present if row[c] is not None and np.isfinite(row[c])}
        if args:
            events.append(track.event("C", name, ns(max(row["t_s"], begin_s)), args=args))
    return events
