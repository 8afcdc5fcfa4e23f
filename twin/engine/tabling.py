"""Tables of many pieces, made at once and without queries: a polars frame costs more than what a
piece holds, and a query (`select`, `filter`, a method that is an expression) wakes all threads."""

from collections.abc import Mapping, Sequence
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


def sums_by_window(
    times_s: np.ndarray, horizon_s: float, windows: int, values: np.ndarray | None = None
) -> np.ndarray:
    """Sum of values f8[n], or number without them, of the times in each of `windows` equal windows
    up to the horizon; times_s f8[n]: none is beyond it."""
    window_of_time = np.minimum((times_s / horizon_s * windows).astype(np.int64), windows - 1)
    return np.bincount(window_of_time, values, windows)


def schema(columns: str) -> dict[str, Any]:
    """Types of a table's columns, by name; `columns` names them in order, separated by commas."""
    return {name: TYPES.get(name, pl.Float64) for name in columns.split(",")}


def stack_pieces(
    schema: Mapping[str, Any], pieces: Sequence[Mapping[str, Any]], gaps: bool = False
) -> pl.DataFrame:
    """One table of all pieces, in order. A piece has an array or one value for every column: arrays
    of a piece have one length, one value is repeated, None gives nulls. gaps: NaN means null."""
    piece_lengths = [next(v.size for v in p.values() if isinstance(v, np.ndarray)) for p in pieces]
    piece_of_row = pl.Series(np.repeat(np.arange(len(pieces), dtype=np.uint32), piece_lengths))
    columns = []
    for name, dtype in schema.items():
        column_values = [piece[name] for piece in pieces]
        if column_values and isinstance(column_values[0], np.ndarray):
            column = pl.Series(name, np.concatenate(column_values), nan_to_null=gaps).cast(dtype)
        else:
            column = pl.Series(name, column_values, dtype)[piece_of_row]
        columns.append(column)
    return pl.DataFrame(columns)
