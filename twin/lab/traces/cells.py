"""Columns of JSON lines or CSV (by name), checked alike in every format; a fault has its place,
value and what would be right."""

import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from twin.lab.traces.formats import header_of
from twin.lab.traces.source import Piece, TraceError

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
        """The error for a missing or invalid cell."""
        value = self.value(column, row)
        if value is MISSING:
            return TraceError(f"{self.where(row)} has no {column}: it must be {wanted}")
        text = repr(value)
        text = text if len(text) <= 40 else text[:37] + "..."
        return TraceError(f"{self.where(row)}: {column} = {text} must be {wanted}")

    def refuse(self, column: str, bad: np.ndarray, wanted: str) -> None:
        """Raise for the first row of bad b[n], if there is one."""
        if bad.any():
            raise self.wrong(column, int(np.argmax(bad)), wanted)

    def numbers(self, column: str, wanted: str, most: float, *, whole: bool = False) -> np.ndarray:
        """f8[n] from 0 to `most`."""
        values = self.floats(column)
        is_invalid = ~((values >= 0) & (values <= most))
        if whole:
            is_invalid |= values != np.floor(values)
        self.refuse(column, is_invalid, wanted)
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
    """Cells of JSON objects; numbers as text are invalid."""

    def texts(key: str) -> pl.Series | None:
        if not all(key in row for row in rows):
            return None
        return pl.Series([str(row[key]) for row in rows], dtype=pl.String)

    return Cells(
        len(rows),
        lambda key: np.array([_float(row.get(key, MISSING)) for row in rows], np.float64),
        lambda key, i: rows[i].get(key, MISSING), texts, where,
    )  # fmt: skip


def cells_of_frame(frame: pl.DataFrame, where: Callable[[int], str]) -> Cells:
    """Cells of a table; text is parsed as a number."""
    return Cells(
        frame.height, lambda key: numbers_in(frame[key]), lambda key, i: frame[key][i],
        lambda key: frame[key] if key in frame.columns else None, where,
    )  # fmt: skip


def numbers_in(column: pl.Series) -> np.ndarray:
    """f8[n] of numbers, or of text parsed as numbers; NaN where there is none."""
    return column.cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()


def _float(value: Any) -> float:
    """A JSON number as a float: NaN if missing, -1 if it is no number, infinite if too large."""
    if type(value) not in (int, float):
        return math.nan if value is MISSING else -1.0
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


MOST_LINE_BYTES = 4 << 20  # a million tokens in blocks of 16 are 62,500 hashes: 1.3 MB
PORTION_BYTES = 8 << 20  # of lines that are held as text at a time


def refuse_constant(word: str) -> float:
    """Raise for NaN and Infinity, which JSON does not have; called by the decoder."""
    raise ValueError(f"{word} is not a number")


DECODER = json.JSONDecoder(parse_constant=refuse_constant)


def text_of(piece: Piece, first: int = 1) -> str:
    """The piece as text; first: its first line's number. Raises TraceError if not UTF-8."""
    try:
        return piece.data.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = piece.data.count(b"\n", 0, error.start) + first
        raise TraceError(f"{piece.name} line {line} is not UTF-8 text") from None


def portions(piece: Piece) -> Iterator[tuple[int, list[str]]]:
    """All lines in portions of some megabytes, with the number of each portion's first line."""
    begin, first = 0, 1
    while begin <= len(piece.data):
        end = piece.data.find(b"\n", begin + PORTION_BYTES)
        end = len(piece.data) if end < 0 else end
        lines = text_of(Piece(piece.name, piece.data[begin:end]), first).split("\n")
        yield first, lines
        begin, first = end + 1, first + len(lines)


def decode(text: str, where: str, wanted: str = "one request {...}") -> Any:
    """One JSON value; raises TraceError that begins with `where`."""
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        line = f" line {error.lineno}" if " line " not in where else ""
        raise TraceError(
            f"{where}{line} is not JSON: {error.msg} at column {error.colno}; {wanted} must "
            "stand there"
        ) from None
    except RecursionError:
        raise TraceError(f"{where} is nested too deeply to be read") from None
    except ValueError as error:
        raise TraceError(f"{where} holds a figure that cannot be read: {error}") from None


def json_cells(piece: Piece) -> Iterator[tuple[Cells, np.ndarray]]:
    """Each portion's cells, one JSON object a line, blank ones left out, and line numbers i8[n]."""
    for first, lines in portions(piece):
        bodies, numbers = [], []
        for number, line in enumerate(lines, first):
            if not line or line.isspace():
                continue
            place = f"{piece.name} line {number}"
            if len(line) > MOST_LINE_BYTES:
                most = f"{MOST_LINE_BYTES >> 20} MB"
                raise TraceError(f"{place} is longer than {most}: no request is")
            body = decode(line, place)
            if type(body) is not dict:
                raise TraceError(f"{place} is not an object: one request {{...}} must stand there")
            bodies.append(body)
            numbers.append(number)
        # The numbers are those of this portion, also when a refusal asks for them later.
        cells = cells_of_rows(bodies, lambda i, n=numbers: f"{piece.name} line {n[i]}")  # type: ignore[misc]
        yield cells, np.array(numbers, np.int64)


def hash_lists(cells: Cells) -> list[list[int]]:
    """A list of hashes per row; the numbers are checked when all are joined."""
    lists = [cells.value("hash_ids", i) for i in range(cells.size)]
    for i, ids in enumerate(lists):
        if type(ids) is not list:
            raise cells.wrong("hash_ids", i, "a list of block hashes")
    return lists


def hash_array(
    lists: list[list[int]], where: Callable[[int], str]
) -> tuple[np.ndarray, np.ndarray]:
    """(offset i8[n + 1], hashes i8[refs]) of lists; TraceError names an invalid list by `where`."""
    offset = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(ids) for ids in lists], out=offset[1:])
    flat = [*chain.from_iterable(lists)]
    if not flat:
        return offset, np.zeros(0, np.int64)
    try:
        flat_hashes = np.array(flat)
    except ValueError:  # a list within the list
        flat_hashes = np.array(["nested"])
    if flat_hashes.dtype.kind not in "iu":
        for i, ids in enumerate(lists):
            if not all(type(x) is int and -(2**63) <= x < 2**64 for x in ids):
                raise TraceError(f"{where(i)}: hash_ids must hold whole numbers of 64 bits")
        flat_hashes = np.array([x & (2**64 - 1) for x in flat], np.uint64)
    return offset, flat_hashes.astype(np.int64, copy=False)


MOST_ROW_BYTES = 64 << 10
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
        if max(map(len, lines)) > MOST_ROW_BYTES:
            longest = first + max(range(len(lines)), key=lambda i: len(lines[i]))
            most = f"{MOST_ROW_BYTES >> 10} KB: no row of a table is"
            raise TraceError(f"{piece.name} line {longest} is longer than {most}")
        filled_lines = [i for i, line in enumerate(lines) if line and line.strip(BLANK)]
        if filled_lines and not header:
            header = header_of(lines[filled_lines.pop(0)])
            if len(header) > MOST_COLUMNS:
                has = f"{piece.name} has {len(header)} columns"
                raise TraceError(f"{has}: at most {MOST_COLUMNS} are read")
            if len(set(header)) < len(header):
                raise TraceError(f"{piece.name} names a column twice: {', '.join(header)}")
        for i in filled_lines:
            if (values := lines[i].count(",") + 1) != len(header):
                raise TraceError(
                    f"{piece.name} line {first + i} has {values} values where the header names "
                    f"{len(header)} columns"
                )
        if filled_lines:
            numbers = np.array(filled_lines) + first
            rows += numbers.size
            yield _cells(piece, header, [lines[i] for i in filled_lines], numbers), numbers
    if not rows:
        raise TraceError(f"{piece.name} holds a header and no row")


def _cells(piece: Piece, header: list[str], body: list[str], numbers: np.ndarray) -> Cells:
    frame = pl.read_csv(
        io.BytesIO("\n".join(body).encode()), has_header=False, new_columns=header,
        infer_schema=False, quote_char=None, eol_char="\n",
    )  # fmt: skip
    frame = frame.with_columns(pl.all().str.strip_chars(BLANK + '"'))
    return cells_of_frame(frame, lambda row: f"{piece.name} line {numbers[row]}")


def clock_ns(cells: Cells, column: str) -> np.ndarray:
    """i8[n] nanoseconds since 1970 of dates and times; without a zone they are UTC."""
    text = cells.texts(column)
    if text is None:
        raise TraceError(f"{cells.where(0)} has no {column}: it must be a time")
    part = text.str.extract_groups(CLOCK).struct.unnest()
    zone = part["zone"].fill_null("Z").str.replace("Z", "+0000").str.replace(":", "")
    stamps = part["day"] + " " + part["time"] + "." + part["fraction"].fill_null("0") + zone
    times = stamps.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%z", time_unit="ns", strict=False)
    cells.refuse(column, times.is_null().to_numpy(), "a time like 2023-11-16 18:15:46.6805900")
    return times.to_physical().to_numpy()
