"""Places and events of a trace, in the words of the trace-event format.

Times are whole nanoseconds until they are written, so that a child never outlives its parent by a
rounding. This module knows nothing about runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twin.engine.window import Pass

RUN, REQUESTS, FIRST_INSTANCE = 1, 2, 10  # process ids
ITERATIONS, KV_IN, FIRST_STREAM = 1, 2, 3  # tracks of an instance
LANES = 10  # thread ids of a process: pid * LANES + track, unique in the trace

Event = dict[str, Any]
Point = tuple[int, int, int]  # pid, lane, ns


def ns(time_s: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(time_s * 1e9)


@dataclass(frozen=True, slots=True)
class Track:
    """A place in the trace: a process and one of its tracks."""

    pid: int
    lane: int = 0

    def event(self, phase: str, name: str, at_ns: int, **more: Any) -> Event:
        """An event of a phase ('X', 'i', 'b' ...) at a moment."""
        where = {"pid": self.pid, "tid": self.pid * LANES + self.lane}
        return {"ph": phase, "name": name, "ts": at_ns / 1000, **where, **more}

    def slice(self, name: str, begin_ns: int, end_ns: int, **args: Any) -> Event:
        """A slice: work from begin to end."""
        more: Event = {"dur": (end_ns - begin_ns) / 1000, "cat": "work"}
        if args:
            more["args"] = args
        return self.event("X", name, begin_ns, **more)

    def bar(
        self, name: str, begin_ns: int, end_ns: int, cat: str, number: int, args: Event
    ) -> list[Event]:
        """Something that lasts and may overlap others: a pair of async events."""
        known = {"cat": cat, "id": number}
        return [
            self.event("b", name, begin_ns, **known, args=args),
            self.event("e", name, end_ns, **known),
        ]


def named(pid: int, name: str, tracks: Mapping[int, str]) -> list[Event]:
    """What a process and its tracks are called, and in what order they stand."""

    def meta(kind: str, lane: int, args: Event) -> Event:
        return {"ph": "M", "name": kind, "ts": 0, "pid": pid, "tid": pid * LANES + lane,
                "args": args}  # fmt: skip

    events = [
        meta("process_name", 0, {"name": name}),
        meta("process_sort_index", 0, {"sort_index": pid}),
    ]
    for lane, track in tracks.items():
        events.append(meta("thread_name", lane, {"name": track}))
        events.append(meta("thread_sort_index", lane, {"sort_index": lane}))
    return events


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance in the trace, and what it did."""

    role: str
    index: int
    pid: int
    passes: list[Pass] = field(default_factory=list)

    @property
    def name(self) -> str:
        """For people: 'decode 0'."""
        return f"{self.role} {self.index}"

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Begins and ends of the passes, ns; a rounding never lets two of them overlap."""
        begins = np.array([ns(p.begin_s) for p in self.passes], np.int64)
        ends = np.array([ns(p.end_s) for p in self.passes], np.int64)
        begins[1:] = np.maximum(begins[1:], ends[:-1])
        return begins, ends
