"""Recorded agent sessions: WEKA / kv-cache-tester JSON, and the same as one parquet table.

A session is a list of requests with seconds since its own start, hashes of whole blocks that mean
the same within the session only, and the user's think time. There is no common clock: starts are
drawn evenly over a day from a seed. Sessions with a prompt beyond `max_prompt_tokens` are left
out, because a model with a shorter context never saw them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from twin.lab.traces.formats import Format, Reading
from twin.lab.traces.jsonl import MOST_TICKS, Row, decode, hash_array, text_of
from twin.lab.traces.source import Piece, TraceError
from twin.lab.traces.table import MOST_BLOCK_TOKENS, MOST_TOKENS, Columns
from twin.rng import stream_key, uniform

DAY_S = 86_400.0
MOST_DEPTH = 8  # of agents that call agents
PARQUET_COLUMNS = (
    "trace", "subagent", "t", "input_length", "output_length", "think_time", "hash_ids",
)  # fmt: skip
PARQUET_BLOCK_TOKENS = 64
_TOKENS = f"a whole number of tokens from 0 to {MOST_TOKENS:,}"
PARQUET_LIMITS = {  # the largest value of a column of numbers, and what it must be
    "subagent": (1e9, "a whole number, 0 for the session itself"),
    "t": (MOST_TICKS, "a time from 0 on"),
    "input_length": (MOST_TOKENS, _TOKENS),
    "output_length": (MOST_TOKENS, _TOKENS),
    "think_time": (MOST_TICKS, "a time from 0 on, or nothing"),
}
SMALL_INTEGERS = (
    pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Null,
)  # fmt: skip
LIMIT_REASON = "dropped: sessions with a prompt beyond {most:,} tokens (requests)"
NO_CLOCK = (
    "sessions carry no common clock: their starts are drawn evenly over 24 hours, and the times "
    "within a session include the recorded server's latency"
)


@dataclass(slots=True)
class _Found:
    """Columns of all sessions read so far."""

    t: list[float] = field(default_factory=list)
    input: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    think: list[float] = field(default_factory=list)
    hashes: list[list[int]] = field(default_factory=list)
    session: list[int] = field(default_factory=list)
    scope: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    left_out: int = 0
    sessions: int = 0


def read_weka(reading: Reading) -> Columns:
    """Sessions of one or more JSON files, each one object or one object a line."""
    found = _Found()
    block_tokens, most = reading.block_tokens, reading.max_prompt_tokens
    size = block_tokens or 0
    for piece in reading.every():
        for where, body in _objects(piece):
            own = body.get("block_size")
            if type(own) is not int or not 1 <= own <= MOST_BLOCK_TOKENS:
                raise TraceError(f"{where} has no block_size: it must be a number of tokens")
            if size not in {0, own} and block_tokens is None:
                raise TraceError(f"{where} has blocks of {own} tokens where others have {size}")
            size = block_tokens or own
            _read_session(where, body, most, found)
    offset, hashes = hash_array(found.hashes, lambda i: f"{reading.label} request {i + 1}")
    columns = Columns(
        name=reading.label,
        format=reading.kind,
        ticks=_clock(np.array(found.t), np.array(found.session, np.int64), reading.seed),
        ticks_per_s=1.0,
        input_tokens=np.array(found.input, np.int64),
        output_tokens=np.array(found.output, np.int64),
        source_row=np.array(found.row, np.int64),
        session=np.array(found.session, np.int64),
        hash_offset=offset,
        hashes=hashes,
        scope=np.array(found.scope, np.int64),
        block_tokens=size,
        think_s=np.array(found.think),
        in_order=False,
    )
    return _finished(columns, found.left_out, found.sessions, most)


def _finished(columns: Columns, left_out: int, sessions: int, most: int | None) -> Columns:
    if left_out and most is not None:
        columns.counts[LIMIT_REASON.format(most=most)] = left_out
    if sessions > 1:
        columns.warnings.append(NO_CLOCK)
    return columns


def _objects(piece: Piece) -> Iterator[tuple[str, dict[str, Any]]]:
    text = text_of(piece)
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    by_line = len(lines) > 1 and lines[0][1].rstrip().endswith("}")
    for number, line in lines if by_line else [(0, text)]:
        where = f"{piece.name} line {number}" if by_line else piece.name
        body = decode(line, where, "a session object {...}")
        if type(body) is not dict or type(body.get("requests")) is not list:
            raise TraceError(f"{where} is not a session: an object with requests must stand there")
        yield where, body


def _read_session(where: str, body: dict[str, Any], most: int | None, found: _Found) -> None:
    rows = list(_requests(where, body["requests"], 0.0, 0))
    sizes = [row.tokens("in") for _, row in rows]
    if most is not None and sizes and max(sizes) > most:
        found.left_out += len(rows)
        return
    scope = -1 if body.get("hash_id_scope") == "global" else found.sessions
    for size, (t, row) in zip(sizes, rows, strict=True):
        found.t.append(t)
        found.input.append(size)
        found.output.append(row.tokens("out"))
        found.think.append(row.time("think_time") if "think_time" in row.body else np.nan)
        found.hashes.append(row.hashes("hash_ids"))
        found.session.append(found.sessions)
        found.scope.append(scope)
        found.row.append(len(found.row) + 1)
    found.sessions += 1


def _requests(
    where: str, requests: list[Any], start_s: float, depth: int
) -> Iterator[tuple[float, Row]]:
    """(seconds since the session's start, request), those of called agents included."""
    for i, body in enumerate(requests, 1):
        place = f"{where} request {i}"
        if type(body) is not dict:
            raise TraceError(f"{place} is not an object")
        row = Row(body, place)
        t = start_s + row.time("t")
        if type(body.get("requests")) is list:
            if depth >= MOST_DEPTH:
                raise TraceError(f"{place} is nested more than {MOST_DEPTH} agents deep")
            yield from _requests(place, body["requests"], t, depth + 1)
        else:
            yield t, row


def _clock(t: np.ndarray, session: np.ndarray, seed: int) -> np.ndarray:
    """Seconds f8[n] on one clock: a single session starts at 0, several within a day."""
    count = int(session.max()) + 1 if session.size else 0
    key = stream_key(seed, "session starts")
    starts = np.array([DAY_S * uniform(key, i) if count > 1 else 0.0 for i in range(count)])
    return starts[session] + t if count else t


def read_session_table(reading: Reading) -> Columns:
    """The parquet of kv-cache-tester requests: one row a request, hashes as lists.

    Times of a called agent's requests count from its own start, which the table does not hold: it
    is taken to be that of the session's last own request before it. Read from disk only: what a
    parquet file unpacks to cannot be known before. Raises TraceError, with the row of a value that
    cannot be.
    """
    piece, most = reading.first, reading.max_prompt_tokens
    if piece.path is None:
        raise TraceError(f"{piece.name}: parquet is read from disk only, not from an upload")
    try:
        kept, hash_lists, rows = _session_rows(piece.name, piece.path, most, reading.most_rows)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        raise TraceError(f"{piece.name} is not a sound parquet file: copy it again") from None
    session = kept["trace"].rank("dense").cast(pl.Int64).to_numpy() - 1
    offset = np.zeros(kept.height + 1, np.int64)
    np.cumsum(hash_lists.list.len().cast(pl.Int64).to_numpy(), out=offset[1:])
    hashes = hash_lists.explode().drop_nulls()  # of an empty list a null comes out
    if hashes.len() != offset[-1]:
        raise TraceError(f"{piece.name}: hash_ids must hold whole numbers, and some are missing")
    unsigned = hashes.dtype == pl.UInt64
    hashes = hashes.reinterpret(signed=True) if unsigned else hashes.cast(pl.Int64)
    columns = Columns(
        name=piece.name,
        format=reading.kind,
        ticks=_clock(kept["t"].to_numpy(), session, reading.seed),
        ticks_per_s=1.0,
        input_tokens=kept["input_length"].cast(pl.Int64).to_numpy(),
        output_tokens=kept["output_length"].cast(pl.Int64).to_numpy(),
        source_row=kept["row"].cast(pl.Int64).to_numpy(),
        session=session,
        hash_offset=offset,
        hashes=np.array(hashes, np.int64),  # a copy that may be overwritten
        scope=session,
        block_tokens=PARQUET_BLOCK_TOKENS,
        think_s=kept["think_time"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        in_order=False,
    )
    return _finished(columns, rows - kept.height, int(session.max(initial=-1)) + 1, most)


def _session_rows(
    name: str, path: Path, most: int | None, most_rows: int
) -> tuple[pl.DataFrame, pl.Series, int]:
    """(checked rows of the sessions to keep, their lists of hashes, rows of the whole file)."""
    scan = pl.scan_parquet(path)
    rows = scan.select(pl.len()).collect().item()
    if rows > most_rows:
        raise TraceError(f"{name} holds {rows:,} requests, more than {most_rows:,}")
    _check_types(name, scan.collect_schema())
    # Hashes are a hundred times the rest, so they are read last and only of what is kept.
    plain = scan.select(PARQUET_COLUMNS[:-1]).with_row_index("row", 1).collect()
    if plain["trace"].null_count():
        raise TraceError(f"{name}: every row must name its trace")
    _check_values(name, plain)
    own_t = pl.when(pl.col("subagent") == 0).then(pl.col("t"))
    called_t = own_t.forward_fill().over("trace").fill_null(0.0) + pl.col("t")
    kept = plain.with_columns(t=pl.when(pl.col("subagent") == 0).then("t").otherwise(called_t))
    if most is not None:
        kept = kept.filter(pl.col("input_length").max().over("trace") <= most)
    wanted_rows = pl.col("trace").is_in(kept["trace"].unique().to_list())
    lists = scan.filter(wanted_rows).select("hash_ids").collect()["hash_ids"]
    if lists.null_count():
        raise TraceError(f"{name}: every row must have a list of hash_ids, if an empty one")
    return kept, lists, rows


def _check_types(name: str, schema: pl.Schema) -> None:
    """Raise TraceError for a column of other things than it must hold."""
    hashes = schema["hash_ids"]
    listed = isinstance(hashes, pl.List) and hashes.inner in SMALL_INTEGERS
    if not listed:
        raise TraceError(f"{name}: hash_ids is of type {hashes}, it must be lists of integers")
    if schema["trace"] != pl.String and not schema["trace"].is_integer():
        raise TraceError(f"{name}: trace is of type {schema['trace']}, it must be names or numbers")
    for column in PARQUET_LIMITS:
        if not schema[column].is_numeric() and schema[column] != pl.Null:
            raise TraceError(f"{name}: {column} is of type {schema[column]}, it must be numbers")


def _check_values(name: str, plain: pl.DataFrame) -> None:
    """Raise TraceError with the first row of a number that cannot be."""
    for column, (highest, wanted) in PARQUET_LIMITS.items():
        values = plain[column].cast(pl.Float64)
        bad = ~values.is_between(0.0, highest)
        if wanted.startswith("a whole"):
            bad |= values != values.floor()
        unknown = column == "think_time"
        bad = (bad & ~(unknown & values.is_nan())).fill_null(not unknown)
        if bad.any():
            row = plain.row(int(bad.arg_max() or 0), named=True)
            raise TraceError(f"{name} row {row['row']}: {column} = {row[column]} must be {wanted}")


FORMATS = (
    Format("weka", "WEKA / kv-cache-tester", "JSON",
           "sessions with think times, hashes of blocks, called agents",
           lambda head: '"requests":[' in head.keys, read_weka),
    Format("kv-cache-tester parquet", "kv-cache-tester", "parquet",
           "the same as one table, read from disk only",
           lambda head: set(PARQUET_COLUMNS) <= head.parquet, read_session_table),
)  # fmt: skip
