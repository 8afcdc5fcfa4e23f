"""A trace format is found by content, never by name; columns of all are checked and sorted here."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import polars as pl

from twin.lab.traces.source import PARQUET_MAGIC, Limits, Piece, TraceError
from twin.workload.chains import number_chains, runs_of
from twin.workload.requests import TraceTable

HEAD_BYTES = 1 << 16
BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Head:
    """Contents of the first file's beginning; parts of other kinds are empty."""

    name: str
    keys: str = ""  # the first 64 KB of a JSON file without blanks
    header: frozenset[str] = frozenset()  # columns of a CSV file
    parquet: frozenset[str] = frozenset()  # columns of a parquet file


@dataclass(frozen=True, slots=True)
class Reading:
    """A source to be read, with the options for reading."""

    label: str
    first: Piece
    rest: Iterator[Piece]
    kind: str  # name of the format that it was recognised as
    block_tokens: int | None  # tokens of a hashed block; None: as the file says
    limits: Limits

    def pieces(self) -> Iterator[Piece]:
        """All files of the source."""
        return chain([self.first], self.rest)

    def only_piece(self) -> Piece:
        """The one file of the source; raises TraceError when there are more."""
        if next(self.rest, None) is not None:
            subject = f"{self.label} holds several files of format {self.kind}"
            raise TraceError(f"{subject}: give one of them")
        return self.first


@dataclass(frozen=True, slots=True)
class Format:
    """One trace format."""

    name: str
    title: str  # as its publisher calls it
    shape: str  # JSON lines, CSV, ...
    tells: str  # what it holds besides the lengths of prompts and answers
    fits: Callable[[Head], bool]
    read: "Callable[[Reading], Columns]"


def head_of(label: str, piece: Piece) -> Head:
    """The head of a file, which shows its format; raises TraceError if empty or parquet upload."""
    if piece.data.startswith(PARQUET_MAGIC):
        if piece.path is None:
            raise TraceError(f"{label}: parquet is read from disk only, not from an upload")
        try:
            return Head(piece.name, parquet=frozenset(pl.read_parquet_schema(piece.path)))
        except pl.exceptions.PolarsError:
            raise TraceError(f"{label} is not a sound parquet file") from None
    head_text = piece.data[:HEAD_BYTES].decode("utf-8-sig", "replace").lstrip(BLANK)
    if not head_text:
        raise TraceError(f"{label} is empty")
    if head_text.startswith("{"):
        return Head(piece.name, keys="".join(head_text.split()))
    return Head(piece.name, header=frozenset(column_names(head_text.split("\n", 1)[0])))


def column_names(line: str) -> list[str]:
    """Column names of the header line of a CSV file."""
    return [cell.strip(BLANK + '"') for cell in line.split(",")]


MOST_BLOCK_TOKENS = 65_536
SEED = 0  # of what a format leaves to chance: starts of sessions, samples of ServeGen
BLOCK_SIZES = (512, 16, 32, 64, 128, 256, 1024)


@dataclass(slots=True)
class Columns:
    """Columns of a trace, one row per request, in the order of the file."""

    ticks: np.ndarray  # i8[n] or f8[n]: when, in units of 1 / ticks_per_s seconds
    ticks_per_s: float
    input_tokens: np.ndarray  # i8[n]
    output_tokens: np.ndarray  # i8[n]
    source_row: np.ndarray  # i8[n]
    session: np.ndarray | None = None  # i8[n], any numbers
    hash_offset: np.ndarray | None = None  # i8[n + 1]
    hashes: np.ndarray | None = None  # i8[refs]: consumed, overwritten
    scope: np.ndarray | None = None  # i8[n]: hashes mean the same within one scope only
    block_tokens: int = 0  # 0: found out from the counts of hashes
    think_s: np.ndarray | None = None  # f8[n]
    has_time: bool = True
    in_order: bool = True  # whether rows should come in order of time
    time_unit: str = "s"
    counts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    name: str = ""  # of the source and of its format, which the reader knows
    format: str = ""


def build_table(c: Columns, most_rows: int) -> TraceTable:
    """The table of a reader's columns `c`, sorted by time, without requests of no input or output
    tokens; raises TraceError for no rows or too many."""
    row_count = c.input_tokens.size
    if row_count > most_rows:
        raise TraceError(f"{c.name} holds {row_count:,} requests, more than {most_rows:,}: cut it")
    count_by_reason = Counter(c.counts)
    has_no_input = c.input_tokens < 1
    has_no_output = ~has_no_input & (c.output_tokens < 1)
    count_by_reason["dropped: no input tokens"] += int(has_no_input.sum())
    count_by_reason["dropped: no output tokens"] += int(has_no_output.sum())
    valid_rows = np.flatnonzero(~(has_no_input | has_no_output))
    valid_rows = valid_rows[np.argsort(c.ticks[valid_rows], kind="stable")]
    if c.in_order and (np.diff(valid_rows) < 0).any():
        c.warnings.append("rows were not in order of time and have been sorted")
    if valid_rows.size == 0:
        reasons = "".join(f"; {count:,} {reason}" for reason, count in (+count_by_reason).items())
        raise TraceError(f"{c.name} holds no request to keep{reasons}")
    arrival_s = (c.ticks[valid_rows] - c.ticks[valid_rows[0]]) / c.ticks_per_s
    segment_offset, segment_first, segment_blocks, block_count, block_tokens = _block_chains(
        c, valid_rows, count_by_reason
    )
    sessions = (
        np.arange(valid_rows.size) if c.session is None else _dense_numbers(c.session[valid_rows])
    )
    return TraceTable(
        arrival_s=arrival_s.astype(np.float64),
        input_tokens=c.input_tokens[valid_rows].astype(np.int32),
        output_tokens=c.output_tokens[valid_rows].astype(np.int32),
        session=sessions.astype(np.int32), segment_offset=segment_offset,
        segment_first=segment_first, segment_blocks=segment_blocks, blocks=block_count,
        block_tokens=block_tokens, has_prefix=c.hashes is not None, has_time=c.has_time,
        source_row=c.source_row[valid_rows].astype(np.int64),
        think_s=np.full(valid_rows.size, np.nan) if c.think_s is None else c.think_s[valid_rows],
        counts=dict(+count_by_reason), name=c.name, format=c.format, time_unit=c.time_unit,
        warnings=tuple(c.warnings),
    )  # fmt: skip


def _block_chains(
    c: Columns, rows: np.ndarray, count_by_reason: Counter[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
    """Chains of KV blocks of the columns' rows (i8[n], indices): segment_offset i8[n + 1],
    segment_first i8[segments], segment_blocks i4[segments], number of distinct blocks, tokens of a
    block (0: no hashes). Adds to the counts of clipped and short chains by reason."""
    if c.hashes is None or c.hash_offset is None:
        no_hashes = np.zeros(0, np.int64)
        return np.zeros(rows.size + 1, np.int64), no_hashes, no_hashes.astype(np.int32), 0, 0
    hash_counts = np.diff(c.hash_offset)[rows]
    prompt_tokens = c.input_tokens[rows]
    # Else the size whose whole or started blocks count the hashes of most prompts.
    block_tokens = c.block_tokens or max(
        BLOCK_SIZES,
        key=lambda size: (
            (hash_counts == -(-prompt_tokens // size)) | (hash_counts == prompt_tokens // size)
        ).mean(),
    )
    most_hashes = -(-prompt_tokens // block_tokens)
    if (hash_counts > most_hashes).mean() > 0.5:
        raise TraceError(
            f"{c.name}: most prompts have more hashes than blocks of {block_tokens} tokens: the "
            "block size must be smaller"
        )
    count_by_reason["clipped: hashes beyond the prompt"] += int((hash_counts > most_hashes).sum())
    too_few_count = int((hash_counts < prompt_tokens // block_tokens).sum())
    count_by_reason["kept: prompts with fewer hashes than whole blocks"] += too_few_count
    hash_begins = c.hash_offset[:-1][rows]
    hash_ends = hash_begins + np.minimum(hash_counts, most_hashes)
    scopes = np.zeros(rows.size, np.int64) if c.scope is None else _dense_numbers(c.scope[rows])
    block_count = number_chains(hash_begins, hash_ends, scopes, c.hashes)
    return (*runs_of(hash_begins, hash_ends, c.hashes), block_count, block_tokens)


def _dense_numbers(values: np.ndarray) -> np.ndarray:
    """Numbers i8[n] of values, from 0 on by first appearance, equal for equal values."""
    _, first_indices, value_index = np.unique(values, return_index=True, return_inverse=True)
    number_by_value = np.empty(first_indices.size, np.int64)
    number_by_value[np.argsort(first_indices, kind="stable")] = np.arange(first_indices.size)
    return number_by_value[value_index]
