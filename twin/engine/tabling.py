"""Tables of many pieces, made at once: a polars frame costs more than what a piece holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

# Types of columns by name; all others are figures.
TYPES: dict[str, Any] = dict.fromkeys(
    ("role", "state", "plane", "traffic", "direction", "moment"), pl.String
) | dict.fromkeys(
    ("instance", "node", "sub_plane", "first_die", "dies", "npus", "first_npu", "layer", "die",
     "replicas", "rank", "npu"), pl.Int32,
)  # fmt: skip
PART = 1 << 15  # rows that are looked at together: their columns stay in the processor's cache


def window_of(times_s: np.ndarray, horizon_s: float, windows: int) -> np.ndarray:
    """Window of each time up to the horizon, i8[n]."""
    return np.minimum((times_s / horizon_s * windows).astype(np.int64), windows - 1)


def parts(rows: int) -> Iterator[slice]:
    """Parts of columns, in order."""
    return (slice(first, min(first + PART, rows)) for first in range(0, rows, PART))


def schema(columns: str) -> dict[str, Any]:
    """Types of a table's columns, which one string names in order, separated by commas."""
    return {name: TYPES.get(name, pl.Float64) for name in columns.split(",")}


def stacked(schema: Mapping[str, Any], pieces: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """One table of all pieces, in order: each piece has an array or one value for every column.
    Arrays of a piece have one length; a single value is repeated, None means nulls."""
    lengths = [next(v.size for v in p.values() if isinstance(v, np.ndarray)) for p in pieces]
    columns, single = {}, []
    for name, kind in schema.items():
        values = [piece[name] for piece in pieces]
        if values and isinstance(values[0], np.ndarray):
            columns[name] = pl.Series(name, np.concatenate(values)).cast(kind)
        else:
            single.append(pl.Series(name, values, kind))
    spread = pl.DataFrame(single)[np.repeat(np.arange(len(pieces)), lengths)]
    columns |= {column.name: column for column in spread}
    return pl.DataFrame([columns[name] for name in schema])
