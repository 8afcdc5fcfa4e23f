"""Formats of a request a line: columns and units. Mooncake (FAST'25) hashes 512 tokens with a
partial last block, Bailian (Qwen) 16; RAGPulse's hashes are not chained and so not used. Columns
(by name) are checked alike in every format; a fault has its place, value and what is right."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from twin.lab.traces.formats import Columns, Format, Reading, column_names
from twin.lab.traces.source import Piece, TraceError

MOST_TOKENS = 10_000_000  # of one prompt or answer: beyond it a figure is not a length
MOST_TICKS = 1e15  # milliseconds of 30,000 years
MISSING = object()
TOKENS = f"a whole number of tokens from 0 to {MOST_TOKENS:,}"
TIME = "a time from 0 on"


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of a table by column and row, with the place of each row for errors."""

    size: int  # rows
    floats: Callable[[str], np.ndarray]  # f8[n]; NaN: nothing stands there, -1: no number does
    value: Callable[[str, int], Any]  # one cell as it stands, MISSING where there is none
    texts: Callable[[str], pl.Series | None]  # a column as text, null where a row has none
    where: Callable[[int], str]  # a row for people: 'x.csv line 3'

    def error_at(self, column: str, row: int, rule: str) -> TraceError:
        """The error for a missing or invalid cell; rule: what a cell must be, in words."""
        cell_value = self.value(column, row)
        if cell_value is MISSING:
            return TraceError(f"{self.where(row)} has no {column}: it must be {rule}")
        if cell_value is None:
            return TraceError(f"{self.where(row)}: {column} is empty: it must be {rule}")
        value_text = repr(cell_value)
        value_text = value_text if len(value_text) <= 40 else value_text[:37] + "..."
        return TraceError(f"{self.where(row)}: {column} = {value_text} must be {rule}")

    def refuse(self, column: str, invalid: np.ndarray, rule: str) -> None:
        """Raise TraceError for the first `invalid` row, bool[n], if any; rule: as `error_at`."""
        if invalid.any():
            raise self.error_at(column, int(np.argmax(invalid)), rule)

    def numbers(self, column: str, rule: str, high: float, *, whole: bool = False) -> np.ndarray:
        """Values f8[n] of a column. Raises TraceError if one is not within 0..`high` or, if
        `whole`, no integer; rule: what a value must be, in words."""
        column_values = self.floats(column)
        is_invalid = ~((column_values >= 0) & (column_values <= high))
        if whole:
            is_invalid |= column_values != np.floor(column_values)
        self.refuse(column, is_invalid, rule)
        return column_values

    def tokens(self, column: str) -> np.ndarray:
        """Counts of tokens in a column, i8[n]. Raises TraceError."""
        return self.numbers(column, TOKENS, MOST_TOKENS, whole=True).astype(np.int64)

    def times(self, column: str) -> np.ndarray:
        """Times in a column, f8[n], in the file's unit. Raises TraceError."""
        return self.numbers(column, TIME, MOST_TICKS)

    def times_if_known(self, column: str) -> np.ndarray:
        """Times in a column, f8[n], in the file's unit; NaN without one. Raises TraceError."""
        time_values = self.floats(column)
        self.refuse(column, (time_values < 0) | (time_values > MOST_TICKS), TIME)
        return time_values


def cells_of_rows(rows: Sequence[dict[str, Any]], where: Callable[[int], str]) -> Cells:
    """Cells of JSON objects; a number as text is invalid. where: names a row for people."""

    def texts(key: str) -> pl.Series | None:
        """The texts of a column, null in rows without; None if all rows lack it."""
        cells = [row.get(key) for row in rows]
        if all(cell is None for cell in cells):
            return None
        return pl.Series([None if cell is None else str(cell) for cell in cells], dtype=pl.String)

    return Cells(
        len(rows),
        lambda key: np.array([_json_float(row.get(key, MISSING)) for row in rows], np.float64),
        lambda key, i: rows[i].get(key, MISSING), texts, where,
    )  # fmt: skip


def cells_of_frame(frame: pl.DataFrame, where: Callable[[int], str]) -> Cells:
    """Cells of a table; text is parsed as a number. where: names a row for people."""
    return Cells(
        frame.height, lambda column: numbers_in(frame[column]), lambda column, i: frame[column][i],
        lambda column: frame[column] if column in frame.columns else None, where,
    )  # fmt: skip


def numbers_in(column: pl.Series) -> np.ndarray:
    """A column of numbers, or of text parsed as numbers, as f8[n]; NaN where there is none."""
    return column.cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()


def _json_float(value: Any) -> float:
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


def text_of(piece: Piece, first_line: int = 1) -> str:
    """The text of a piece; first_line: its first line's number. Raises TraceError if not UTF-8."""
    try:
        return piece.data.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line_number = piece.data.count(b"\n", 0, error.start) + first_line
        raise TraceError(f"{piece.name} line {line_number} is not UTF-8 text") from None


def line_portions(piece: Piece) -> Iterator[tuple[int, list[str]]]:
    """Lines of a piece in portions of some megabytes, each with the number of its first line."""
    begin_byte, first_line = 0, 1
    while begin_byte <= len(piece.data):
        end_byte = piece.data.find(b"\n", begin_byte + PORTION_BYTES)
        end_byte = len(piece.data) if end_byte < 0 else end_byte
        lines = text_of(Piece(piece.name, piece.data[begin_byte:end_byte]), first_line).split("\n")
        yield first_line, lines
        begin_byte, first_line = end_byte + 1, first_line + len(lines)


def decode_json(text: str, where: str, rule: str = "one request {...}") -> Any:
    """The value of a JSON text; a TraceError names the place (`where`) and what must be there."""
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        line_text = f" line {error.lineno}" if " line " not in where else ""
        raise TraceError(
            f"{where}{line_text} is not JSON: {error.msg} at column {error.colno}; {rule} must "
            "stand there"
        ) from None
    except RecursionError:
        raise TraceError(f"{where} is nested too deeply to be read") from None
    except ValueError as error:
        raise TraceError(f"{where} holds a figure that cannot be read: {error}") from None


def json_cells(piece: Piece) -> Iterator[tuple[Cells, np.ndarray]]:
    """Cells of a piece's JSON objects, one a line, and their line numbers i8[n], by portions."""
    for first_line, lines in line_portions(piece):
        request_objects, line_nos = [], []
        for line_number, line in enumerate(lines, first_line):
            if not line or line.isspace():
                continue
            place = f"{piece.name} line {line_number}"
            if len(line) > MOST_LINE_BYTES:
                limit_text = f"{MOST_LINE_BYTES >> 20} MB"
                raise TraceError(f"{place} is longer than {limit_text}: no request is")
            request_object = decode_json(line, place)
            if type(request_object) is not dict:
                raise TraceError(f"{place} is not an object: one request {{...}} must stand there")
            request_objects.append(request_object)
            line_nos.append(line_number)
        # The numbers are those of this portion, also when a refusal asks for them later.
        cells = cells_of_rows(request_objects, lambda i, n=line_nos: f"{piece.name} line {n[i]}")  # type: ignore[misc]
        yield cells, np.array(line_nos, np.int64)


def hash_arrays(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Offsets i8[n + 1] and hashes i8[offset[n]] of the rows' block hashes. Raises TraceError."""
    hash_lists: list[list[int]] = [cells.value("hash_ids", row) for row in range(cells.size)]
    for row, hashes in enumerate(hash_lists):
        if type(hashes) is not list:
            raise cells.error_at("hash_ids", row, "a list of block hashes")
    hash_offset = np.zeros(len(hash_lists) + 1, np.int64)
    np.cumsum([len(hashes) for hashes in hash_lists], out=hash_offset[1:])
    all_hashes = [*chain.from_iterable(hash_lists)]
    if not all_hashes:
        return hash_offset, np.zeros(0, np.int64)
    try:
        flat_hashes = np.array(all_hashes)
    except ValueError:  # a list within the list
        flat_hashes = np.array(["nested"])
    if flat_hashes.dtype.kind not in "iu":
        for row, hashes in enumerate(hash_lists):
            if not all(
                type(hash_value) is int and -(2**63) <= hash_value < 2**64 for hash_value in hashes
            ):
                raise TraceError(f"{cells.where(row)}: hash_ids must hold whole numbers of 64 bits")
        flat_hashes = np.array([hash_value & (2**64 - 1) for hash_value in all_hashes], np.uint64)
    return hash_offset, flat_hashes.astype(np.int64, copy=False)


MOST_ROW_BYTES = 64 << 10
MOST_COLUMNS = 64
BLANK = " \t\r"
COMMA = "\u201a"  # in place of one that is part of a text
STAMP = (
    r"^\s*(?<day>\d{4}-\d\d-\d\d)[ T](?<time>\d\d:\d\d:\d\d)(?:\.(?<fraction>\d{1,9}))?"
    r"\s*(?<zone>Z|[+-]\d\d:?\d\d)?\s*$"
)


def csv_cells(piece: Piece) -> Iterator[tuple[Cells, np.ndarray]]:
    """Cells of a CSV file's rows and their line numbers i8[n], by portions."""
    header: list[str] = []
    row_count = 0
    for first_line, lines in line_portions(piece):
        if max(map(len, lines)) > MOST_ROW_BYTES:
            longest_line_number = first_line + max(range(len(lines)), key=lambda i: len(lines[i]))
            limit_text = f"{MOST_ROW_BYTES >> 10} KB: no row of a table is"
            raise TraceError(f"{piece.name} line {longest_line_number} is longer than {limit_text}")
        filled_indices = [i for i, line in enumerate(lines) if line and line.strip(BLANK)]
        if filled_indices and not header:
            header = column_names(lines[filled_indices.pop(0)])
            if len(header) > MOST_COLUMNS:
                subject = f"{piece.name} has {len(header)} columns"
                raise TraceError(f"{subject}: at most {MOST_COLUMNS} are read")
            if len(set(header)) < len(header):
                raise TraceError(f"{piece.name} names a column twice: {', '.join(header)}")
        for i in filled_indices:
            if (cell_count := lines[i].count(",") + 1) != len(header) and '"' in lines[i]:
                lines[i] = without_quotes(lines[i])
                cell_count = lines[i].count(",") + 1
            if cell_count != len(header):
                raise TraceError(
                    f"{piece.name} line {first_line + i} has {cell_count} values where the header "
                    f"names {len(header)} columns"
                )
        if filled_indices:
            line_nos = np.array(filled_indices) + first_line
            row_count += line_nos.size
            yield _line_cells(piece, header, [lines[i] for i in filled_indices], line_nos), line_nos
    if not row_count:
        raise TraceError(f"{piece.name} holds a header and no row")


def without_quotes(line: str) -> str:
    """A line of a CSV file without its quotes, with COMMA in place of commas within them."""
    return ",".join(cell.replace(",", COMMA) for cell in next(csv.reader([line])))


def _line_cells(piece: Piece, header: list[str], lines: list[str], line_nos: np.ndarray) -> Cells:
    """Cells of some lines of a CSV file; line_nos: of these lines in the file, i8[n]."""
    frame = pl.read_csv(
        io.BytesIO("\n".join(lines).encode()), has_header=False, new_columns=header,
        infer_schema=False, quote_char=None, eol_char="\n",
    )  # fmt: skip
    frame = frame.with_columns(pl.all().str.strip_chars(BLANK + '"'))
    return cells_of_frame(frame, lambda row: f"{piece.name} line {line_nos[row]}")


def clock_ns(cells: Cells, column: str) -> np.ndarray:
    """i8[n] nanoseconds since 1970 of dates and times; without a zone they are UTC."""
    time_texts = cells.texts(column)
    if time_texts is None:
        raise TraceError(f"{cells.where(0)} has no {column}: it must be a time")
    fields = time_texts.str.extract_groups(STAMP).struct.unnest()
    zones = fields["zone"].fill_null("Z").str.replace("Z", "+0000").str.replace(":", "")
    stamps = fields["day"] + " " + fields["time"] + "." + fields["fraction"].fill_null("0") + zones
    utc_times = stamps.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%z", time_unit="ns", strict=False)
    cells.refuse(column, utc_times.is_null().to_numpy(), "a time like 2023-11-16 18:15:46.6805900")
    return utc_times.to_physical().to_numpy()


CLOCK = "wall clock"  # the unit of times that are dates and times of day
TICKS_PER_S = {"": 1.0, "s": 1.0, "ms": 1e3, CLOCK: 1e9}
SINCE_1970_S = 1e9  # in 2001
# By the unit of a format the one that its times may be in, that unit's ticks of a second, result.
OTHER_UNITS = {"s": ("ms", 1e3, "slowly"), "ms": ("s", 1.0, "fast")}

# Checked cells and the line of each row, a portion of the file at a time.
Opener = Callable[[Piece], Iterator[tuple[Cells, np.ndarray]]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a format."""

    time: str  # "": there is none
    input: str
    output: str
    unit: str = "s"  # of the time
    session: str = ""  # a column that may be there and names it
    parents: bool = False  # sessions are chats that continue their parent
    text_time: bool = False  # times are text that reads like a number
    block_tokens: int | None = None  # of a hashed block; 0: found out; None: no chains of hashes
    warning: str = ""
    opened: Opener = csv_cells

    @property
    def columns(self) -> frozenset[str]:
        """Columns by which the format is recognised."""
        return frozenset({self.time, self.input, self.output} - {""})

    def read(self, reading: Reading) -> Columns:
        """The request columns of a file; raises TraceError with the line of the first bad value."""
        root_by_chat: dict[str, str] = {}  # chats that others continue, and theirs
        portions_read: list[tuple[Any, ...]] = []
        hash_portions: list[tuple[np.ndarray, np.ndarray]] = []  # lengths and hashes
        missing_hashes_error: TraceError | None = None  # a portion none of whose rows has hashes
        for cells, lines in self.opened(reading.only_piece()):
            number_columns = self._ticks(cells), cells.tokens(self.input), cells.tokens(self.output)
            chats = _root_chats(cells, root_by_chat) if self.parents else cells.texts(self.session)
            if chats is None:
                chats = pl.Series([None] * cells.size, dtype=pl.String)
            portions_read.append((*number_columns, lines, chats))
            if self.block_tokens is None:
                continue
            if any(cells.value("hash_ids", row) is not MISSING for row in range(cells.size)):
                hash_offset, portion_hashes = hash_arrays(cells)
                hash_portions.append((np.diff(hash_offset), portion_hashes))
            elif cells.size and missing_hashes_error is None:
                missing_hashes_error = cells.error_at("hash_ids", 0, "a list of block hashes")
            if hash_portions and missing_hashes_error is not None:
                raise missing_hashes_error
        *portion_columns, sessions = zip(*portions_read, strict=True)
        ticks, input_tokens, output_tokens, line_numbers = map(np.concatenate, portion_columns)
        columns_read = Columns(
            ticks, TICKS_PER_S[self.unit], input_tokens, output_tokens, line_numbers,
            _name_numbers(sessions), has_time=bool(self.time), time_unit=self.unit,
            warnings=[self.warning] if self.warning else [],
        )  # fmt: skip
        other_unit, other_ticks_per_s, speed_word = OTHER_UNITS.get(self.unit, ("", 1.0, ""))
        if other_unit and 1.0 <= ticks.min() / (other_ticks_per_s * SINCE_1970_S) < 4.0:
            columns_read.warnings.append(
                f"times look like {other_unit} since 1970, but this format has {self.unit}: the "
                f"trace is replayed 1,000 times too {speed_word}"
            )
        if hash_portions:
            hash_counts, columns_read.hashes = map(np.concatenate, zip(*hash_portions, strict=True))
            columns_read.hash_offset = np.append(0, np.cumsum(hash_counts))
            columns_read.block_tokens = reading.block_tokens or self.block_tokens or 0
        return columns_read

    def _ticks(self, cells: Cells) -> np.ndarray:
        """Times in the file's unit (ns of a wall clock), f8[n] or i8[n]; 0 without times."""
        if not self.time:
            return np.zeros(cells.size)
        if self.unit == CLOCK:
            return clock_ns(cells, self.time)
        if self.text_time and (time_texts := cells.texts(self.time)) is not None:
            cells = replace(cells, floats=lambda _: numbers_in(time_texts))
        return cells.times(self.time)


def _name_numbers(names: Sequence[pl.Series]) -> np.ndarray | None:
    """Numbers i8[n] of names: equal for equal names, unique for missing ones; None without any."""
    all_names = pl.concat(names)
    if all_names.null_count() == len(all_names):
        return None
    name_codes = all_names.cast(pl.Categorical).to_physical().cast(pl.Int64)
    return name_codes.fill_null(-1 - pl.int_range(len(name_codes), eager=True)).to_numpy()


def _root_chats(cells: Cells, roots: dict[str, str]) -> pl.Series:
    """Root chat of each request: its session. Adds each chat's root to `roots`. Raises
    TraceError."""
    root_chats = []
    for row in range(cells.size):
        chat, parent = cells.value("chat_id", row), cells.value("parent_chat_id", row)
        parent = -1 if parent is MISSING else parent
        for column, chat_name in (("chat_id", chat), ("parent_chat_id", parent)):
            if type(chat_name) not in {int, str}:
                raise cells.error_at(column, row, "a number or a name (-1: no parent)")
        root_chats.append(
            str(chat) if parent in {-1, "-1"} else roots.get(str(parent), str(parent))
        )
        roots[str(chat)] = root_chats[-1]
    return pl.Series(root_chats, dtype=pl.String)


def _json_format(name: str, title: str, tells: str, key: str, **layout: Any) -> Format:
    """A format of JSON lines that is recognised by `key` in its text; tells: what such a file
    holds besides lengths; layout: options of `Layout`."""
    column_names = ("timestamp", "input_length", "output_length")
    reader = Layout(*column_names, **layout, opened=json_cells).read
    return Format(name, title, "JSON lines", tells, lambda head: key in head.keys, reader)


def _csv_format(name: str, title: str, layout: Layout) -> Format:
    """A format of CSV that is recognised by its columns."""
    times_text = {"": "no times", CLOCK: "wall-clock times"}.get(
        layout.unit, f"times in {layout.unit}"
    )
    times_text += ", sessions at times" if layout.session else ""
    return Format(name, title, "CSV", times_text, lambda h: layout.columns <= h.header, layout.read)


FORMATS = (
    _json_format("bailian", "Bailian", "times in s, chats by parent, hashes of 16-token blocks",
          '"chat_id":', parents=True, block_tokens=16),
    _json_format("ragpulse", "RAGPulse", "times in s, sessions", '"hash_ids":{',
          session="session_id", text_time=True,
          warning="the hashes name prompt components without their lengths, not chains of "
          "blocks: they are not used, and no prompt shares a block"),
    _json_format("mooncake", "Mooncake", key='"input_length":', unit="ms", session="session_id",
          tells="times in ms, hashes of 512-token blocks, sessions at times", block_tokens=0),
    _csv_format("azure", "Azure LLM inference",
         Layout("TIMESTAMP", "ContextTokens", "GeneratedTokens", CLOCK)),
    _csv_format("burstgpt", "BurstGPT",
         Layout("Timestamp", "Request tokens", "Response tokens", session="Session ID")),
    _csv_format("vidur", "vidur", Layout("arrived_at", "num_prefill_tokens", "num_decode_tokens")),
    _csv_format("splitwise", "splitwise", Layout("arrival_timestamp", "prompt_size", "token_size")),
    _csv_format("guidellm", "GuideLLM", Layout("timestamp", "input_length", "output_length")),
    _csv_format("vidur lengths", "vidur lengths",
         Layout("", "num_prefill_tokens", "num_decode_tokens", "")),
    _csv_format("lengths", "bare lengths", Layout("", "input", "output", "")),
)  # fmt: skip
