"""Events of a trace in whole ns: slices, bars, and arrows, which need a slice at each end."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from twin.engine.window import Pass
from twin.lab.runs.watched import PHASES
from twin.metrics.events import Kind
from twin.metrics.latency import STAMPS
from twin.metrics.resilience import instance_name

RUN, REQUESTS, FIRST_INSTANCE = 1, 2, 10  # process ids
ITERATIONS, KV_IN, FIRST_STREAM = 1, 2, 3  # tracks of an instance
BEGIN, END = 0, 1  # sides of a slice
LANES = 10  # thread ids of a process: pid * LANES + track, unique in the trace

Event = dict[str, Any]
Point = tuple[int, int, int]  # pid, lane, ns


def ns(time_s: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(time_s * 1e9)


@dataclass(frozen=True, slots=True)
class Track:
    """A track of the trace: a process and a thread in it."""

    pid: int
    lane: int = 0

    def event(self, phase: str, name: str, at_ns: int, **fields: Any) -> Event:
        """An event on this track; phase: its type in the trace-event format ('X', 'i', 'b' ...)."""
        track_ids = {"pid": self.pid, "tid": self.pid * LANES + self.lane}
        return {"ph": phase, "name": name, "ts": at_ns / 1000, **track_ids, **fields}

    def slice(self, name: str, begin_ns: int, end_ns: int, **args: Any) -> Event:
        """An event that viewers draw as a slice from begin to end; args: details they show."""
        fields: Event = {"args": args} if args else {}
        return self.event("X", name, begin_ns, dur=(end_ns - begin_ns) / 1000, cat="work", **fields)

    def bar(
        self, name: str, begin_ns: int, end_ns: int, cat: str, number: int, args: Event
    ) -> list[Event]:
        """Two async events, id `number` in category `cat`: a bar that may overlap others."""
        begin_event = self.event("b", name, begin_ns, cat=cat, id=number, args=args)
        return [begin_event, self.event("e", name, end_ns, cat=cat, id=number)]


def naming_events(pid: int, name: str, tracks: Mapping[int, str]) -> list[Event]:
    """Events that name and order the process `pid` and its tracks; tracks: names by lane."""
    events: list[tuple[str, int, Event]] = [
        ("process_name", 0, {"name": name}), ("process_sort_index", 0, {"sort_index": pid}),
    ]  # fmt: skip
    for lane, track_name in tracks.items():
        events += [("thread_name", lane, {"name": track_name}),
                 ("thread_sort_index", lane, {"sort_index": lane})]  # fmt: skip
    return [{"ph": "M", "name": meta_name, "ts": 0, "pid": pid, "tid": pid * LANES + lane,
             "args": args} for meta_name, lane, args in events]  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """An instance in the trace, with its passes; finds the slice that belongs to a stamp."""

    role: str
    index: int
    pid: int
    passes: list[Pass] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name for people: 'decode 0'."""
        return f"{self.role} {self.index}"

    @cached_property
    def edges_ns(self) -> tuple[np.ndarray, np.ndarray]:
        """Begins and ends of the passes in ns, i8[passes] each, rounded without overlaps."""
        begins_ns = np.array([ns(one_pass.begin_s) for one_pass in self.passes], np.int64)
        ends_ns = np.array([ns(one_pass.end_s) for one_pass in self.passes], np.int64)
        begins_ns[1:] = np.maximum(begins_ns[1:], ends_ns[:-1])
        return begins_ns, ends_ns

    def point(self, side: int, at_s: float | None, *, exact: bool = True) -> Point | None:
        """End of an arrow just inside the slice that begins (side BEGIN) or ends (END) at `at_s`
        or, if not `exact`, next after it; None without such a slice."""
        edges_ns = self.edges_ns[side]
        if at_s is None or not edges_ns.size or ns(at_s) < edges_ns[0]:
            return None
        pass_index = int(np.searchsorted(edges_ns, ns(at_s), "left"))
        if pass_index == edges_ns.size or (exact and edges_ns[pass_index] != ns(at_s)):
            return None
        if self.edges_ns[1][pass_index] - self.edges_ns[0][pass_index] < 3:
            return None
        return self.pid, ITERATIONS, int(edges_ns[pass_index]) + (-1 if side else 1)


Tables = Mapping[str, pl.DataFrame]

MARK_NS = 1_000  # a moment needs some length to be seen and to hold an arrow,
LEAST_NS = 10  # less where many fall together


def moving_requests(tables: Tables, begin_s: float, end_s: float) -> pl.DataFrame:
    """Rows of requests with a stamp from `begin_s` to `end_s`; tables: the run's, by name."""
    is_inside = pl.col(STAMPS).is_between(begin_s, end_s, closed="left").fill_null(False)
    return tables["requests"].filter(pl.any_horizontal(is_inside))


def request_bars(tables: Tables, begin_s: float, end_s: float) -> Iterator[list[Event]]:
    """Yield for each request with a stamp in the span its stages as bars, cut to the span."""
    track = Track(REQUESTS)
    for row in moving_requests(tables, begin_s, end_s).iter_rows(named=True):
        events: list[Event] = []
        request = row["request_id"]
        for stage, from_column, to_column in PHASES:
            from_s, to_s = row[from_column], row[to_column]
            if from_s is None or (to_s is None and str(row["status"]) in ("rejected", "lost")):
                continue  # not begun; or it left, and no stamp says when
            bar_from_s, bar_to_s = max(from_s, begin_s), end_s if to_s is None else min(to_s, end_s)
            if bar_from_s < bar_to_s:
                args = {"request": request, "from_s": from_s, "to_s": to_s}
                events += track.bar(stage, ns(bar_from_s), ns(bar_to_s), "request", request, args)
        if events:
            yield events


def request_arrows(
    tables: Tables, instances: Sequence[Instance], begin_s: float, end_s: float
) -> Iterator[list[Event]]:
    """Yield arrows of requests: arrival, prefill, KV in place, decode, finish, within the span."""
    instance_of = {(instance.role, instance.index): instance for instance in instances}
    rows = moving_requests(tables, begin_s, end_s)
    arrival_marks = _mark_ns(rows["arrival_s"].to_list(), begin_s, end_s)
    kv_marks: dict[int, list[tuple[int, int] | None]] = {}
    for instance_index in rows["decode_instance"].unique().drop_nulls().to_list():
        transfer_end = pl.when(pl.col("decode_instance") == instance_index).then("transfer_end_s")
        kv_marks[instance_index] = _mark_ns(
            rows.select(transfer_end).to_series().to_list(), begin_s, end_s
        )
    for k, row in enumerate(rows.iter_rows(named=True)):
        events: list[Event] = []
        points: list[Point | None] = []
        request, kv_marks_ns = row["request_id"], kv_marks.get(row["decode_instance"])
        if (mark_ns := arrival_marks[k]) is not None:
            args = {"request": request, "at_s": row["arrival_s"]}
            events.append(Track(REQUESTS).slice(f"request {request} arrives", *mark_ns, **args))
            points.append((REQUESTS, 0, mark_ns[0] + 1))
        for role in ("prefill", "colocated"):
            if (instance := instance_of.get((role, row["prefill_instance"]))) is not None:
                points += [instance.point(BEGIN, row["prefill_start_s"]),
                           instance.point(END, row["prefill_end_s"])]  # fmt: skip
        for role in ("decode", "colocated"):
            if (instance := instance_of.get((role, row["decode_instance"]))) is None:
                continue
            if kv_marks_ns and role == "decode" and (mark_ns := kv_marks_ns[k]) is not None:
                args = {"request": request, "at_s": row["transfer_end_s"]}
                kv_name = f"KV of request {request} in place"
                events.append(Track(instance.pid, KV_IN).slice(kv_name, *mark_ns, **args))
                points.append((instance.pid, KV_IN, mark_ns[0] + 1))
            points += [instance.point(BEGIN, row["transfer_end_s"], exact=False),
                       instance.point(END, row["finish_s"])]  # fmt: skip
        yield events + _arrow(request, [point for point in points if point is not None])


def _arrow(request: int, points: Sequence[Point]) -> list[Event]:
    """Events of the arrow of a request through points, by time; none for fewer than two points."""
    points_in_order = sorted(set(points), key=lambda point: point[2])
    events: list[Event] = []
    for k, (pid, lane, at_ns) in enumerate(points_in_order if len(points_in_order) > 1 else []):
        event_phase = "s" if k == 0 else "f" if k == len(points_in_order) - 1 else "t"
        fields: Event = {"cat": "request", "id": request}
        if event_phase == "f":
            fields["bp"] = "e"  # the slice around it, not the next one
        events.append(Track(pid, lane).event(event_phase, "request", at_ns, **fields))
    return events


def _mark_ns(
    times_s: Sequence[float | None], begin_s: float, end_s: float
) -> list[tuple[int, int] | None]:
    """(begin, end) in ns of a short slice at each time, LEAST_NS apart; None outside the span."""
    marks: list[tuple[int, int] | None] = [None] * len(times_s)
    times_inside = sorted(
        (ns(at_s), time_index) for time_index, at_s in enumerate(times_s)
        if at_s is not None and begin_s <= at_s < end_s
    )  # fmt: skip
    begins_ns: list[int] = []
    for at_ns, _ in times_inside:
        begins_ns.append(max(at_ns, begins_ns[-1] + LEAST_NS) if begins_ns else at_ns)
    for j, (_, time_index) in enumerate(times_inside):
        gap_ns = begins_ns[j + 1] - begins_ns[j] if j + 1 < len(begins_ns) else MARK_NS
        marks[time_index] = (begins_ns[j], begins_ns[j] + min(MARK_NS, gap_ns))
    return marks


LASTING = (Kind.FAULT, Kind.INSTANCE_DOWN)  # kinds of events that go on until somebody ends them
# Counters: name, and the columns that are its series.
WINDOW_COUNTERS = {
    "waiting": ("front_end_queue", "router_queue", "prefill_queue"),
    "running": ("prefill_running", "transfer_running", "decode_running"),
    "plane utilisation": ("ub_utilisation", "rdma_utilisation", "vpc_utilisation"),
    "tokens per s": ("input_tokens_per_s", "output_tokens_per_s"),
    "memory": ("kv_used_fraction", "pool_used_fraction"),
}
INSTANCE_COUNTERS = {
    "requests": ("queue", "running"), "busy": ("busy",), "hottest die over mean": ("hot_factor",),
    "exchange slowed by others": ("contention",), "dies in service": ("dies",),
}  # fmt: skip


def event_marks(
    tables: Tables, instances: Iterable[Instance], begin_s: float, end_s: float
) -> Iterator[list[Event]]:
    """Yield events of the run (faults, rebalances ...): an instant each, and a bar if it lasts."""
    events = tables.get("events")
    if events is None:
        return
    pid_of = {(instance.role, instance.index): instance.pid for instance in instances}
    for number, row in enumerate(events.sort("t_s", maintain_order=True).iter_rows(named=True)):
        at_s, until_s = row["t_s"], row["end_s"]
        if until_s is None:  # what broke stays broken; all else is a moment
            until_s = end_s if row["kind"] in LASTING else at_s
        if at_s >= end_s or until_s < begin_s:
            continue
        subject = row["element"] or instance_name(row["role"], row["instance"])
        title = f"{row['kind'].replace('_', ' ')} {subject}".strip()
        args = {column: row[column] for column in ("detail", "bytes", "requests") if row[column]}
        trace_events = []
        if at_s >= begin_s:
            moment = Track(RUN).event("i", title, ns(at_s), s="g", cat=row["kind"], args=args)
            trace_events.append(moment)
        if until_s > at_s:
            track = Track(pid_of.get((row["role"], row["instance"]), RUN))
            span_ns = ns(max(at_s, begin_s)), ns(min(until_s, end_s))
            span_args = args | {"from_s": at_s, "to_s": row["end_s"]}
            trace_events += track.bar(title, *span_ns, row["kind"], number, span_args)
        yield trace_events


def counter_events(
    tables: Tables, instances: Sequence[Instance], begin_s: float, end_s: float, most_events: int
) -> Iterator[list[Event]]:
    """Yield the events of counters (means of windows) of the run and of each instance; most_events:
    largest number of them, for which only every n-th window is taken."""
    counter_count = len(WINDOW_COUNTERS) + len(INSTANCE_COUNTERS) * len(instances)
    most_windows = max(1, most_events // counter_count)
    for counter, columns in WINDOW_COUNTERS.items():
        windows = tables["windows"]
        yield _counter_series(Track(RUN), counter, windows, columns, (begin_s, end_s), most_windows)
    all_windows = tables.get("instances")
    if all_windows is None:
        return
    for instance in instances:
        is_instance = (pl.col("role") == instance.role) & (pl.col("instance") == instance.index)
        rows = all_windows.filter(is_instance).sort("t_s")
        for counter, columns in INSTANCE_COUNTERS.items():
            track = Track(instance.pid)
            yield _counter_series(track, counter, rows, columns, (begin_s, end_s), most_windows)


def _counter_series(
    track: Track, name: str, rows: pl.DataFrame, columns: Iterable[str],
    span_s: tuple[float, float], most_windows: int,
) -> list[Event]:  # fmt: skip
    """Events of one counter from rows of windows, with a series per column that has values; span_s:
    its begin and end; most_windows: most events."""
    begin_s, end_s = span_s
    series = [c for c in columns if c in rows.columns]
    windows = rows.filter((pl.col("t_s") < end_s) & (pl.col("t_s") + pl.col("window_s") > begin_s))
    events = []
    window_interval = -(-max(windows.height, 1) // most_windows)
    for row in windows.gather_every(window_interval).iter_rows(named=True):
        values_of = {c: float(row[c]) for c in series if row[c] is not None and np.isfinite(row[c])}
        if values_of:
            events.append(track.event("C", name, ns(max(row["t_s"], begin_s)), args=values_of))
    return events
