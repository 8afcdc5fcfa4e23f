"""Recorded agent sessions: WEKA / kv-cache-tester JSON, and the same as one parquet table.

A session is a list of requests with seconds since its own start, hashes of whole blocks that mean
the same within the session only, and the user's think time. There is no common clock: starts are
drawn evenly over a day from a seed. Sessions with a prompt beyond `max_prompt_tokens` are left
out, because a model with a shorter context never saw them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from twin.lab.traces.jsonl import Row, decode, hash_array, text_of
from twin.lab.traces.source import Piece, TraceError
from twin.lab.traces.table import Columns
from twin.serving.rng import stream_key, uniform

DAY_S = 86_400.0
MOST_DEPTH = 8  # of agents that call agents
PARQUET_COLUMNS = (
    "trace", "subagent", "t", "input_length", "output_length", "think_time", "hash_ids",
)  # fmt: skip
PARQUET_BLOCK_TOKENS = 64
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


def read_weka(
    name: str, pieces: Iterable[Piece], block_tokens: int | None, most: int | None, seed: int
) -> Columns:
    """Sessions of one or more JSON files, each one object or one object a line."""
    found = _Found()
    size = block_tokens or 0
    for piece in pieces:
        for where, body in _objects(piece):
            own = body.get("block_size")
            if type(own) is not int or not 1 <= own <= 65_536:
                raise TraceError(f"{where} has no block_size: it must be a number of tokens")
            if size not in {0, own} and block_tokens is None:
                raise TraceError(f"{where} has blocks of {own} tokens where others have {size}")
            size = block_tokens or own
            _read_session(where, body, most, found)
    offset, hashes = hash_array(found.hashes, lambda i: f"{name} request {i + 1}")
    columns = Columns(
        name=name,
        format="weka",
        ticks=_clock(np.array(found.t), np.array(found.session, np.int64), seed),
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


def read_session_table(piece: Piece, most: int | None, seed: int, most_rows: int) -> Columns:
    """The parquet of kv-cache-tester requests: one row a request, hashes as lists.

    Times of a called agent's requests count from its own start, which the table does not hold: it
    is taken to be that of the session's last own request before it. Read from disk only: what a
    parquet file unpacks to cannot be known before.
    """
    if piece.path is None:
        raise TraceError(f"{piece.name}: parquet is read from disk only, not from an upload")
    scan = pl.scan_parquet(piece.path)
    rows = scan.select(pl.len()).collect().item()
    if rows > most_rows:
        raise TraceError(f"{piece.name} holds {rows:,} requests, more than {most_rows:,}")
    own_t = pl.when(pl.col("subagent") == 0).then(pl.col("t"))
    called_t = own_t.forward_fill().over("trace").fill_null(0.0) + pl.col("t")
    # Hashes are a hundred times the rest, so they are read last and only of what is kept.
    kept = (
        scan.select(PARQUET_COLUMNS[:-1])
        .with_row_index("row", 1)
        .with_columns(t=pl.when(pl.col("subagent") == 0).then("t").otherwise(called_t))
        .collect()
    )
    if most is not None:
        kept = kept.filter(pl.col("input_length").max().over("trace") <= most)
    wanted = pl.col("trace").is_in(kept["trace"].unique().to_list())
    hash_lists = scan.filter(wanted).select("hash_ids").collect()["hash_ids"]
    session = kept["trace"].rank("dense").cast(pl.Int64).to_numpy() - 1
    lengths = hash_lists.list.len().cast(pl.Int64).to_numpy()
    offset = np.zeros(kept.height + 1, np.int64)
    np.cumsum(lengths, out=offset[1:])
    hashes = hash_lists.explode().drop_nulls().cast(pl.Int64).to_numpy()
    columns = Columns(
        name=piece.name,
        format="kv-cache-tester parquet",
        ticks=_clock(kept["t"].to_numpy(), session, seed),
        ticks_per_s=1.0,
        input_tokens=kept["input_length"].cast(pl.Int64).to_numpy(),
        output_tokens=kept["output_length"].cast(pl.Int64).to_numpy(),
        source_row=kept["row"].cast(pl.Int64).to_numpy(),
        session=session,
        hash_offset=offset,
        hashes=np.array(hashes),  # a copy that may be overwritten
        scope=session,
        block_tokens=PARQUET_BLOCK_TOKENS,
        think_s=kept["think_time"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        in_order=False,
    )
    return _finished(columns, rows - kept.height, int(session.max(initial=-1)) + 1, most)
