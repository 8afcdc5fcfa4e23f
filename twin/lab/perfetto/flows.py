"""Requests in a trace: arrows from arrival to finish, and bars of where each one was.

An arrow needs a slice at each of its points, so arrivals and hand-offs are slices of a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from twin.lab.perfetto.tracks import (
    ITERATIONS,
    KV_IN,
    REQUESTS,
    Event,
    Instance,
    Point,
    Track,
    ns,
)

Tables = Mapping[str, pl.DataFrame]

MARK_NS = 1_000  # a moment needs some length to be seen and to hold an arrow,
LEAST_NS = 10  # less where many fall together
# Phases of a request: name, stamp it begins with, stamp it ends with.
PHASES = (
    ("front end", "arrival_s", "frontend_s"),
    ("waits for a place", "frontend_s", "routed_s"),
    ("waits for prefill", "routed_s", "prefill_start_s"),
    ("prefill", "prefill_start_s", "prefill_end_s"),
    ("KV hand-off", "prefill_end_s", "transfer_end_s"),
    ("decode", "transfer_end_s", "finish_s"),
)
STAMPS = ("arrival_s", "frontend_s", "routed_s", "prefill_start_s", "prefill_end_s",
          "transfer_end_s", "finish_s")  # fmt: skip


def moving(tables: Tables, begin_s: float, end_s: float) -> pl.DataFrame:
    """Requests that moved on within a span."""
    return tables["requests"].filter(
        pl.any_horizontal(
            pl.col(c).is_between(begin_s, end_s, closed="left").fill_null(False) for c in STAMPS
        )
    )


def lives(tables: Tables, begin_s: float, end_s: float) -> Iterator[list[Event]]:
    """The phases of each request that moved on within the span, as bars cut to the span."""
    track = Track(REQUESTS)
    for row in moving(tables, begin_s, end_s).iter_rows(named=True):
        group: list[Event] = []
        number = row["request_id"]
        for name, start, stop in PHASES:
            low, high = row[start], row[stop]
            if low is None or low >= end_s or (high is not None and high <= max(low, begin_s)):
                continue
            if high is None and str(row["status"]) in ("rejected", "lost"):
                continue  # it left, and no stamp says when
            shown = ns(max(low, begin_s)), ns(end_s if high is None else min(high, end_s))
            args = {"request": number, "from_s": low, "to_s": high}
            group += track.bar(name, *shown, "request", number, args)
        if group:
            yield group


def flows(
    tables: Tables, instances: Sequence[Instance], begin_s: float, end_s: float
) -> Iterator[list[Event]]:
    """Arrows of requests: arrival, prefill, KV in place, decode, finish, as far as in the span."""
    work = {(one.role, one.index): Finder(one) for one in instances}
    rows = moving(tables, begin_s, end_s)
    arrivals = _marks(rows["arrival_s"].to_list(), begin_s, end_s)
    handed: dict[int, list[tuple[int, int] | None]] = {}
    decoders, ends = rows["decode_instance"].to_list(), rows["transfer_end_s"].to_list()
    for instance in sorted({d for d in decoders if d is not None}):
        arrived = [t if d == instance else None for t, d in zip(ends, decoders, strict=True)]
        handed[instance] = _marks(arrived, begin_s, end_s)
    for k, row in enumerate(rows.iter_rows(named=True)):
        marks = handed.get(row["decode_instance"])
        yield _journey(row, work, arrivals[k], marks[k] if marks else None)


def _journey(
    row: Event, work: Mapping[tuple[str, int], Finder], arrival: tuple[int, int] | None,
    handed: tuple[int, int] | None,
) -> list[Event]:  # fmt: skip
    """One request's marks and its arrow through them and the slices that served it."""
    group: list[Event] = []
    points: list[Point | None] = []
    number = row["request_id"]

    def mark(track: Track, edges: tuple[int, int], name: str, at_s: float) -> None:
        group.append(track.slice(name, *edges, request=number, at_s=at_s))
        points.append((track.pid, track.lane, edges[0] + 1))

    if arrival is not None:
        mark(Track(REQUESTS), arrival, f"request {number} arrives", row["arrival_s"])
    for role in ("prefill", "colocated"):
        one = work.get((role, row["prefill_instance"]))
        if one is not None:
            points += [one.begins(row["prefill_start_s"]), one.ends(row["prefill_end_s"])]
    for role in ("decode", "colocated"):
        one = work.get((role, row["decode_instance"]))
        if one is None:
            continue
        if handed is not None and role == "decode":
            name = f"KV of request {number} in place"
            mark(Track(one.pid, KV_IN), handed, name, row["transfer_end_s"])
        points += [one.next(row["transfer_end_s"]), one.ends(row["finish_s"])]
    return group + _arrow(number, [p for p in points if p is not None])


def _arrow(request: int, points: Sequence[Point]) -> list[Event]:
    """A flow through points in order of time; fewer than two are no flow."""
    ordered = sorted(set(points), key=lambda p: p[2])
    events: list[Event] = []
    for k, (pid, lane, at_ns) in enumerate(ordered if len(ordered) > 1 else []):
        phase = "s" if k == 0 else "f" if k == len(ordered) - 1 else "t"
        more: Event = {"cat": "request", "id": request}
        if phase == "f":
            more["bp"] = "e"  # the slice around it, not the next one
        events.append(Track(pid, lane).event(phase, "request", at_ns, **more))
    return events


def _marks(
    times_s: Sequence[float | None], begin_s: float, end_s: float
) -> list[tuple[int, int] | None]:
    """Moments as slices in ns that never overlap; None outside the span.

    Those that fall together are drawn LEAST_NS apart, so that each is a slice of its own.
    """
    marks: list[tuple[int, int] | None] = [None] * len(times_s)
    inside = sorted(
        (ns(t), k) for k, t in enumerate(times_s) if t is not None and begin_s <= t < end_s
    )
    begins: list[int] = []
    for at_ns, _ in inside:
        begins.append(max(at_ns, begins[-1] + LEAST_NS) if begins else at_ns)
    for j, (_, k) in enumerate(inside):
        gap = begins[j + 1] - begins[j] if j + 1 < len(begins) else MARK_NS
        marks[k] = (begins[j], begins[j] + min(MARK_NS, gap))
    return marks


class Finder:
    """Which slice of an instance a stamp belongs to; a nanosecond inside it."""

    def __init__(self, one: Instance):
        self.pid = one.pid
        self._begin, self._end = one.edges()

    def _point(self, k: int, *, last: bool = False) -> Point | None:
        begin, end = int(self._begin[k]), int(self._end[k])
        return None if end - begin < 3 else (self.pid, ITERATIONS, end - 1 if last else begin + 1)

    def begins(self, at_s: float | None) -> Point | None:
        """In the slice that begins at a stamp; None when none does."""
        k = self._at(self._begin, at_s)
        return None if k is None else self._point(k)

    def ends(self, at_s: float | None) -> Point | None:
        """In the slice that ends at a stamp, at its end; None when none does."""
        k = self._at(self._end, at_s)
        return None if k is None else self._point(k, last=True)

    def next(self, at_s: float | None) -> Point | None:
        """In the first slice that begins at or after a moment within the span."""
        if at_s is None or not self._begin.size or ns(at_s) < self._begin[0]:
            return None
        k = int(np.searchsorted(self._begin, ns(at_s), "left"))
        return self._point(k) if k < self._begin.size else None

    @staticmethod
    def _at(edges: np.ndarray, at_s: float | None) -> int | None:
        if at_s is None:
            return None
        k = int(np.searchsorted(edges, ns(at_s), "left"))
        return k if k < edges.size and edges[k] == ns(at_s) else None
