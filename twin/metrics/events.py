"""The log of a run: what broke, what was moved, who was out of service, and for how long."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import polars as pl

SCHEMA = {
    "t_s": pl.Float64, "end_s": pl.Float64, "kind": pl.String, "element": pl.String,
    "role": pl.String, "instance": pl.Int32, "detail": pl.String, "bytes": pl.Float64,
    "requests": pl.Int32,
}  # fmt: skip


class Kind(StrEnum):
    """Kinds of events."""

    FAULT = "fault"
    DETECTED = "detected"
    INSTANCE_DOWN = "instance_down"
    SHRUNK = "shrunk"
    SPARE = "spare"
    REJOINED = "rejoined"
    REBALANCE = "rebalance"
    SHIFT = "shift"
    POOL_LOST = "pool_lost"


@dataclass(slots=True)
class Event:
    """One entry: a moment, or a span once `end_s` is known. Seconds and bytes."""

    t_s: float
    kind: Kind
    detail: str = ""
    element: str = ""
    role: str = ""
    instance: int | None = None
    end_s: float | None = None
    bytes: float = 0.0
    requests: int = 0


def events_table(events: list[Event], horizon_s: float) -> pl.DataFrame:
    """One row per event within the horizon, in order of time; `end_s` is null for an open
    end and for one after the horizon."""
    events = sorted(events, key=lambda event: event.t_s)
    events_in_run = [event for event in events if event.t_s <= horizon_s]
    columns: dict[str, list[Any]] = {
        name: [getattr(event, name) for event in events_in_run] for name in SCHEMA
    }
    columns["end_s"] = [
        end_s if end_s is not None and end_s <= horizon_s else None for end_s in columns["end_s"]
    ]
    return pl.DataFrame(columns, schema=SCHEMA)
