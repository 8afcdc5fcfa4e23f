"""Comma-separated tables: rows with their lines, and wall-clock times. Knows nothing about formats.

Columns are found by name, so extra ones and another order do no harm.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import polars as pl

from twin.lab.traces.cells import Cells, cells_of_frame
from twin.lab.traces.formats import header_of
from twin.lab.traces.jsonl import portions
from twin.lab.traces.source import Piece, TraceError

MOST_LINE_BYTES = 64 << 10
MOST_COLUMNS = 64
BLANK = " \t\r"
CLOCK = (
    r"^\s*(?<day>\d{4}-\d\d-\d\d)[ T](?<time>\d\d:\d\d:\d\d)(?:\.(?<fraction>\d{1,9}))?"
    r"\s*(?<zone>Z|[+-]\d\d:?\d\d)?\s*$"
)


def csv_cells(piece: Piece) -> Iterator[tuple[Cells, np.ndarray]]:
    """Every row after the header, and its line i8[n], by portions; blank lines are skipped."""
    header: list[str] = []
    rows = 0
    for first, lines in portions(piece):
        longest = max(range(len(lines)), key=lambda i: len(lines[i]))
        if len(lines[longest]) > MOST_LINE_BYTES:
            raise TraceError(
                f"{piece.name} line {first + longest} is longer than {MOST_LINE_BYTES >> 10} KB: "
                "no row of a trace is"
            )
        filled = [i for i, line in enumerate(lines) if line.strip(BLANK)]
        if filled and not header:
            header = _header(piece, lines[filled.pop(0)])
        for i in filled:
            if (values := lines[i].count(",") + 1) != len(header):
                raise TraceError(
                    f"{piece.name} line {first + i} has {values} values where the header names "
                    f"{len(header)} columns"
                )
        if filled:
            numbers = np.array(filled) + first
            rows += numbers.size
            yield _cells(piece, header, [lines[i] for i in filled], numbers), numbers
    if not rows:
        raise TraceError(f"{piece.name} holds a header and no request")


def _header(piece: Piece, line: str) -> list[str]:
    header = header_of(line)
    if len(header) > MOST_COLUMNS:
        raise TraceError(f"{piece.name} has {len(header)} columns: at most {MOST_COLUMNS} are read")
    if len(set(header)) < len(header):
        raise TraceError(f"{piece.name} names a column twice: {', '.join(header)}")
    return header


def _cells(piece: Piece, header: list[str], body: list[str], numbers: np.ndarray) -> Cells:
    frame = pl.read_csv(
        io.BytesIO("\n".join(body).encode()),
        has_header=False,
        new_columns=header,
        infer_schema=False,
        quote_char=None,
        eol_char="\n",
    )
    frame = frame.with_columns(pl.all().str.strip_chars(BLANK + '"'))
    return cells_of_frame(frame, lambda row: f"{piece.name} line {numbers[row]}")


def clock_ns(cells: Cells, column: str) -> np.ndarray:
    """i8[n] nanoseconds since 1970 of dates and times; without a zone they are UTC."""
    text = cells.texts(column)
    if text is None:
        raise TraceError(f"{cells.where(0)} has no {column}: it must be a time")
    part = text.str.extract_groups(CLOCK).struct.unnest()
    seconds = (
        (part["day"] + " " + part["time"])
        .str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
        .dt.epoch("s")
    )
    bad = seconds.is_null().to_numpy()
    cells.refuse(column, bad, "a time like 2023-11-16 18:15:46.6805900")
    fraction = part["fraction"].fill_null("0").str.pad_end(9, "0").cast(pl.Int64)
    zone = part["zone"].fill_null("Z").str.replace("Z", "+0000").str.replace(":", "")
    sign = 1 - 2 * zone.str.starts_with("-").cast(pl.Int64)
    hours, minutes = zone.str.slice(1, 2).cast(pl.Int64), zone.str.slice(3, 2).cast(pl.Int64)
    since = seconds - sign * (hours * 3600 + minutes * 60)
    return (since * 1_000_000_000 + fraction).to_numpy()
