"""Columns of a file as they stand in it, and what they must hold: one check for every format.

What does not fit is refused with its place, its value and what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from twin.lab.traces.source import TraceError

MOST_TOKENS = 10_000_000  # of one prompt or answer: beyond it a figure is not a length
MOST_TICKS = 1e15  # milliseconds of 30,000 years
MISSING = object()
TOKENS = f"a whole number of tokens from 0 to {MOST_TOKENS:,}"
TIME = "a time from 0 on"


@dataclass(frozen=True, slots=True)
class Cells:
    """Values by column and row."""

    size: int  # rows
    floats: Callable[[str], np.ndarray]  # f8[n]; NaN: nothing stands there, -1: no number does
    value: Callable[[str, int], Any]  # one cell as it stands, MISSING where there is none
    texts: Callable[[str], pl.Series | None]  # a column as text, None where a row has none
    where: Callable[[int], str]  # a row for people: 'x.csv line 3'

    def wrong(self, column: str, row: int, wanted: str) -> TraceError:
        """The error for a cell that is missing or unfit."""
        value = self.value(column, row)
        if value is MISSING:
            return TraceError(f"{self.where(row)} has no {column}: it must be {wanted}")
        shown = repr(value)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        return TraceError(f"{self.where(row)}: {column} = {shown} must be {wanted}")

    def refuse(self, column: str, bad: np.ndarray, wanted: str) -> None:
        """Raise for the first row of bad b[n], if there is one."""
        if bad.any():
            raise self.wrong(column, int(np.argmax(bad)), wanted)

    def numbers(self, column: str, wanted: str, most: float, *, whole: bool = False) -> np.ndarray:
        """f8[n] from 0 to `most`."""
        values = self.floats(column)
        bad = ~((values >= 0) & (values <= most))
        if whole:
            bad |= values != np.floor(values)
        self.refuse(column, bad, wanted)
        return values

    def tokens(self, column: str) -> np.ndarray:
        """i8[n] counts of tokens."""
        return self.numbers(column, TOKENS, MOST_TOKENS, whole=True).astype(np.int64)

    def times(self, column: str) -> np.ndarray:
        """f8[n] timestamps in the file's unit."""
        return self.numbers(column, TIME, MOST_TICKS)

    def times_if_known(self, column: str) -> np.ndarray:
        """f8[n] times, NaN in rows that have none."""
        values = self.floats(column)
        self.refuse(column, (values < 0) | (values > MOST_TICKS), TIME)
        return values


def cells_of_rows(rows: Sequence[dict[str, Any]], where: Callable[[int], str]) -> Cells:
    """Cells of JSON objects: a number is one, text that reads like one is not."""

    def texts(key: str) -> pl.Series | None:
        if not all(key in row for row in rows):
            return None
        return pl.Series([str(row[key]) for row in rows], dtype=pl.String)

    return Cells(
        len(rows),
        lambda key: np.array([_float(row.get(key, MISSING)) for row in rows], np.float64),
        lambda key, i: rows[i].get(key, MISSING),
        texts,
        where,
    )


def cells_of_frame(frame: pl.DataFrame, where: Callable[[int], str]) -> Cells:
    """Cells of a table: text is read as the number it spells."""
    return Cells(
        frame.height,
        lambda key: numbers_in(frame[key]),
        lambda key, i: frame[key][i],
        lambda key: frame[key] if key in frame.columns else None,
        where,
    )


def numbers_in(column: pl.Series) -> np.ndarray:
    """f8[n] of numbers, or of text that spells them; NaN where there is none."""
    return column.cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()


def _float(value: Any) -> float:
    if type(value) not in (int, float):
        return math.nan if value is MISSING else -1.0
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf
