"""A trace format is found by content, never by name; columns of all are checked and sorted here."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import polars as pl

from twin.lab.traces.source import PARQUET_MAGIC, Limits, Piece, TraceError
from twin.workload.chains import chain_ids, runs_of
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
    text = piece.data[:HEAD_BYTES].decode("utf-8-sig", "replace").lstrip(BLANK)
    if not text:
        raise TraceError(f"{label} is empty")
    if text.startswith("{"):
        return Head(piece.name, keys="".join(text.split()))
    return Head(piece.name, header=frozenset(column_names(text.split("\n", 1)[0])))


def column_names(line: str) -> list[str]:
    """Column names of the header line of a CSV file."""
    return [cell.strip(BLANK + '"') for cell in line.split(",")]


MOST_BLOCK_TOKENS = 65_536
SEED = 0  # of what a format leaves to chance: starts of sessions, samples of ServeGen
BLOCK_SIZES = (512, 16, 32, 64, 128, 256, 1024)


@dataclass(slots=True)
class Columns:
    """Requests of a trace in the order of the file, a row each, and what is said of them all."""

    # Columns: `ticks` (int or f8: when, in units of 1 / ticks_per_s seconds), `input_tokens`,
    # `output_tokens`, `source_row`; and, where the format has them, `session` (null: of its own),
    # `hash_ids` (lists of i8), `scope` (hashes mean the same within one only) and `think_s` (f8).
    rows: pl.DataFrame
    ticks_per_s: float
    block_tokens: int = 0  # 0: found out from the counts of hashes
    has_time: bool = True
    in_order: bool = True  # whether rows should come in order of time
    time_unit: str = "s"
    counts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    name: str = ""  # of the source and of its format, which the reader knows
    format: str = ""


def build_table(c: Columns, most_rows: int) -> TraceTable:
    """The table of a reader's columns, sorted by time, without requests of no input or output
    tokens; raises TraceError for no rows or too many."""
    if c.rows.height > most_rows:
        row_text = f"{c.rows.height:,} requests, more than {most_rows:,}"
        raise TraceError(f"{c.name} holds {row_text}: cut it")
    counts, rows = Counter(c.counts), c.rows.with_row_index("place")
    for kind in ("input", "output"):
        has_none = pl.col(f"{kind}_tokens") < 1
        counts[f"dropped: no {kind} tokens"] += rows.filter(has_none).height
        rows = rows.filter(~has_none)
    rows = rows.sort("ticks", maintain_order=True)
    if c.in_order and not rows["place"].is_sorted():
        c.warnings.append("rows were not in order of time and have been sorted")
    if not rows.height:
        reasons = "".join(f"; {count:,} {reason}" for reason, count in (+counts).items())
        raise TraceError(f"{c.name} holds no request to keep{reasons}")
    ticks, no_value = rows["ticks"].to_numpy(), np.full(rows.height, np.nan)
    segment_offset, first_blocks, blocks, id_count, block_tokens = _chains(c, rows, counts)
    return TraceTable(
        arrival_s=((ticks - ticks[0]) / c.ticks_per_s).astype(np.float64),
        input_tokens=rows["input_tokens"].to_numpy().astype(np.int32),
        output_tokens=rows["output_tokens"].to_numpy().astype(np.int32),
        session=_numbers(rows, "session").astype(np.int32), segment_offset=segment_offset,
        segment_first=first_blocks, segment_blocks=blocks, blocks=id_count,
        block_tokens=block_tokens, has_prefix="hash_ids" in rows.columns, has_time=c.has_time,
        source_row=rows["source_row"].to_numpy().astype(np.int64),
        think_s=rows["think_s"].to_numpy() if "think_s" in rows.columns else no_value,
        counts=dict(+counts), name=c.name, format=c.format, time_unit=c.time_unit,
        warnings=tuple(c.warnings),
    )  # fmt: skip


def _chains(
    c: Columns, rows: pl.DataFrame, counts: Counter[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
    """Chains of KV blocks of the rows: segment_offset i8[n + 1], segment_first i8[segments],
    segment_blocks i4[segments], number of distinct blocks, tokens of a block (0: no hashes)."""
    if "hash_ids" not in rows.columns:
        no_ids = np.zeros(0, np.int64)
        return np.zeros(rows.height + 1, np.int64), no_ids, no_ids.astype(np.int32), 0, 0
    hash_counts = rows["hash_ids"].list.len().cast(pl.Int64).to_numpy()
    hashes = rows["hash_ids"].explode().drop_nulls()  # of an empty list a null comes out
    hash_array = np.array(hashes, np.int64)  # a copy that is overwritten
    prompt_tokens = rows["input_tokens"].to_numpy()
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
    counts["clipped: hashes beyond the prompt"] += int((hash_counts > most_hashes).sum())
    too_few_count = int((hash_counts < prompt_tokens // block_tokens).sum())
    counts["kept: prompts with fewer hashes than whole blocks"] += too_few_count
    ends = np.cumsum(hash_counts)
    begins = ends - hash_counts
    ends = begins + np.minimum(hash_counts, most_hashes)
    scope = _numbers(rows, "scope") if "scope" in rows.columns else np.zeros(rows.height, np.int64)
    id_count = chain_ids(begins, ends, scope, hash_array)
    return (*runs_of(begins, ends, hash_array), id_count, block_tokens)


def _numbers(rows: pl.DataFrame, column: str) -> np.ndarray:
    """Numbers i8[n] from 0 on, equal for equal values of a column, in order of first appearance;
    rows without a value, or a table without the column, have numbers of their own."""
    index = pl.col("index")
    if column in rows.columns:
        is_missing, first_index = pl.col(column).is_null(), index.min().over(column)
        index = pl.when(is_missing).then(index).otherwise(first_index)
    numbers = rows.with_row_index("index").select(index.rank("dense").cast(pl.Int64) - 1)
    return numbers.to_series().to_numpy()
