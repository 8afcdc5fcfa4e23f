"""Recorded agent sessions, WEKA / kv-cache-tester JSON or parquet. Seconds and hashes count within
a session; starts are drawn evenly over a day from a seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from twin.kernels.rng import stream_key, uniform
from twin.lab.library import load_facts
from twin.lab.traces import requests as c
from twin.lab.traces.formats import MOST_BLOCK_TOKENS, SEED, Columns, Format, Reading
from twin.lab.traces.source import Limits, Piece, TraceError

DAY_S = 86_400.0
MOST_DEPTH = 8  # of agents that call agents
PARQUET_COLUMNS = (
    "trace", "subagent", "t", "input_length", "output_length", "think_time", "hash_ids",
)  # fmt: skip
PARQUET_BLOCK_TOKENS = 64
CHECKS = {  # of the parquet's columns of numbers
    "t": c.Cells.times,
    "input_length": c.Cells.tokens,
    "output_length": c.Cells.tokens,
    "think_time": c.Cells.times_if_known,
}
SMALL_INTEGERS = (
    pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Null,
)  # fmt: skip
NO_CLOCK = (
    "sessions carry no common clock: their starts are drawn evenly over 24 hours, and the times "
    "within a session include the recorded server's latency"
)


Request = tuple[float, dict[str, Any], str]  # s since its session's start, body, place in the file


@dataclass(slots=True)
class _Sessions:
    """Sessions read so far, with their requests in one list."""

    requests: list[Request] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # requests of each session
    scopes: list[int] = field(default_factory=list)  # of its hashes; -1: of all sessions alike
    left_out: int = 0  # requests


def read_weka(reading: Reading) -> Columns:
    """Columns of requests in JSON files with a session each, or one a line. Raises TraceError."""
    sessions = _Sessions()
    block_tokens, most_tokens = reading.block_tokens or 0, _most_tokens(reading.limits)
    for piece in reading.pieces():
        for location, session in _session_objects(piece):
            block_size = session.get("block_size")
            if type(block_size) is not int or not 1 <= block_size <= MOST_BLOCK_TOKENS:
                raise TraceError(f"{location} has no block_size: it must be a number of tokens")
            if block_tokens not in {0, block_size} and reading.block_tokens is None:
                raise TraceError(
                    f"{location} has blocks of {block_size} tokens where others have {block_tokens}"
                )
            block_tokens = reading.block_tokens or block_size
            requests = list(_session_requests(location, session["requests"], 0.0, 0))
            is_accepted = _cells(requests).tokens("in") <= most_tokens
            accepted_requests = [requests[i] for i in np.flatnonzero(is_accepted)]
            sessions.left_out += len(requests) - len(accepted_requests)
            if accepted_requests:
                is_global = session.get("hash_id_scope") == "global"
                sessions.scopes.append(-1 if is_global else len(sessions.scopes))
                sessions.lengths.append(len(accepted_requests))
                sessions.requests += accepted_requests
    cells = _cells(sessions.requests)
    session_of = np.repeat(np.arange(len(sessions.lengths)), sessions.lengths)
    hash_offsets, hashes = c.hash_arrays(cells)
    columns = Columns(
        ticks=_common_clock_s(np.array([time_s for time_s, _, _ in sessions.requests]), session_of),
        ticks_per_s=1.0, in_order=False,
        input_tokens=cells.tokens("in"), output_tokens=cells.tokens("out"),
        source_row=np.arange(1, session_of.size + 1), session=session_of,
        hash_offset=hash_offsets, hashes=hashes,
        scope=np.array(sessions.scopes, np.int64)[session_of],
        block_tokens=block_tokens, think_s=cells.times_if_known("think_time"),
    )  # fmt: skip
    return _with_remarks(columns, sessions.left_out, len(sessions.lengths), most_tokens)


def _most_tokens(limits: Limits) -> int:
    """Tokens of the longest accepted prompt: by `limits`, else the longest context of a model."""
    if limits.prompt_tokens:
        return limits.prompt_tokens
    facts = load_facts()
    return max(int(facts.si(f"models.{model}.max_context")) for model in facts.names("models"))


def _with_remarks(columns: Columns, left_out: int, sessions: int, most_tokens: int) -> Columns:
    """The columns, to which it adds the number of requests left out (prompts above `most_tokens`)
    and, for several sessions, the warning on clocks."""
    if left_out:
        columns.counts[f"dropped: prompts beyond {most_tokens:,} tokens"] = left_out
    if sessions > 1:
        columns.warnings.append(NO_CLOCK)
    return columns


def _session_objects(piece: Piece) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place in the file, JSON object) of each session of a file. Raises TraceError."""
    file_text = c.text_of(piece)
    lines = [(number, line) for number, line in enumerate(file_text.split("\n"), 1) if line.strip()]
    is_by_line = len(lines) > 1 and lines[0][1].rstrip().endswith("}")
    for line_number, line in lines if is_by_line else [(0, file_text)]:
        place = f"{piece.name} line {line_number}" if is_by_line else piece.name
        session = c.decode_json(line, place, "a session object {...}")
        if type(session) is not dict or type(session.get("requests")) is not list:
            raise TraceError(f"{place} is not a session: an object with requests must stand there")
        yield place, session


def _cells(rows: Sequence[Request]) -> c.Cells:
    """The fields of requests (bodies) as a table whose cells are checked when they are read."""
    return c.cells_of_rows([request for _, request, _ in rows], lambda i: rows[i][2])


def _session_requests(
    where: str, requests: list[Any], start_s: float, depth: int
) -> Iterator[Request]:
    """Yield the requests of a session, or of an agent that it calls, in the order of the file.
    where: place in the file; start_s: its begin, from that of the session; depth: number
    of agents above it. Raises TraceError."""
    for number, request in enumerate(requests, 1):
        location = f"{where} request {number}"
        if type(request) is not dict:
            raise TraceError(f"{location} is not an object")
        time_s = start_s + float(_cells([(0.0, request, location)]).times("t")[0])
        if type(request.get("requests")) is list:
            if depth >= MOST_DEPTH:
                raise TraceError(f"{location} is nested more than {MOST_DEPTH} agents deep")
            yield from _session_requests(location, request["requests"], time_s, depth + 1)
        else:
            yield time_s, request, location


def _common_clock_s(since_start_s: np.ndarray, session_of: np.ndarray) -> np.ndarray:
    """Times f8[n] (s) on one clock of requests at `since_start_s` f8[n] of their session, i8[n];
    one session starts at 0, several at random within a day."""
    session_count = int(session_of.max()) + 1 if session_of.size else 0
    start_key = stream_key(SEED, "session starts")
    starts_s = np.array(
        [DAY_S * uniform(start_key, i) if session_count > 1 else 0.0 for i in range(session_count)]
    )
    return starts_s[session_of] + since_start_s if session_count else since_start_s


def read_session_table(reading: Reading) -> Columns:
    """Columns of the requests in kv-cache-tester's parquet, one a row, read from disk only; times
    of a called agent count from its session's last request. Raises TraceError with the row."""
    piece, most_tokens = reading.first, _most_tokens(reading.limits)
    if piece.path is None:
        raise TraceError(f"{piece.name}: parquet is read from disk only, not from an upload")
    try:
        accepted, hash_lists, row_count = _session_rows(
            piece.name, piece.path, reading.limits, most_tokens
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        raise TraceError(f"{piece.name} is not a sound parquet file: copy it again") from None
    session_of = accepted["trace"].rank("dense").cast(pl.Int64).to_numpy() - 1
    hash_offsets = np.zeros(accepted.height + 1, np.int64)
    np.cumsum(hash_lists.list.len().cast(pl.Int64).to_numpy(), out=hash_offsets[1:])
    hashes = hash_lists.explode().drop_nulls()  # of an empty list a null comes out
    if hashes.len() != hash_offsets[-1]:
        raise TraceError(f"{piece.name}: hash_ids must hold whole numbers, and some are missing")
    hashes = hashes.reinterpret(signed=True) if hashes.dtype == pl.UInt64 else hashes.cast(pl.Int64)
    lengths = accepted.select(pl.col("input_length", "output_length", "row").cast(pl.Int64))
    columns = Columns(
        ticks=_common_clock_s(accepted["t"].to_numpy(), session_of),
        ticks_per_s=1.0, in_order=False,
        input_tokens=lengths["input_length"].to_numpy(),
        output_tokens=lengths["output_length"].to_numpy(), source_row=lengths["row"].to_numpy(),
        session=session_of, hash_offset=hash_offsets, scope=session_of,
        block_tokens=PARQUET_BLOCK_TOKENS,
        hashes=np.array(hashes, np.int64),  # a copy that may be overwritten
        think_s=accepted["think_time"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
    )  # fmt: skip
    return _with_remarks(
        columns, row_count - accepted.height, int(session_of.max(initial=-1)) + 1, most_tokens
    )


def _session_rows(
    name: str, path: Path, limits: Limits, most_tokens: int
) -> tuple[pl.DataFrame, pl.Series, int]:
    """(checked rows of prompts up to `most_tokens`, their block hashes, number of all rows) of a
    parquet file; name: for messages. Raises TraceError."""
    lazy_table = pl.scan_parquet(path)
    row_count = lazy_table.select(pl.len()).collect().item()
    if row_count > limits.rows:
        raise TraceError(f"{name} holds {row_count:,} requests, more than {limits.rows:,}")
    schema = lazy_table.collect_schema()
    hash_type = schema["hash_ids"]
    if not (isinstance(hash_type, pl.List) and hash_type.inner in SMALL_INTEGERS):
        raise TraceError(f"{name}: hash_ids is of type {hash_type}, it must be lists of integers")
    if schema["trace"] != pl.String and not schema["trace"].is_integer():
        raise TraceError(f"{name}: trace is of type {schema['trace']}, it must be names or numbers")
    for column in ("subagent", *CHECKS):
        if not schema[column].is_numeric() and schema[column] != pl.Null:
            raise TraceError(f"{name}: {column} is of type {schema[column]}, it must be numbers")
    # Hashes are a hundred times the rest, so they are read last and only of the chosen rows.
    frame = lazy_table.select(PARQUET_COLUMNS[:-1]).with_row_index("row", 1).collect()
    if frame["trace"].null_count():
        raise TraceError(f"{name}: every row must name its trace")
    cells = c.cells_of_frame(frame, lambda i: f"{name} row {i + 1}")
    cells.numbers("subagent", "a whole number, 0 for the session itself", 1e9, whole=True)
    for column, check in CHECKS.items():
        check(cells, column)
    session_s = pl.when(pl.col("subagent") == 0).then(pl.col("t"))
    agent_s = session_s.forward_fill().over("trace").fill_null(0.0) + pl.col("t")
    timed_rows = frame.with_columns(t=pl.when(pl.col("subagent") == 0).then("t").otherwise(agent_s))
    is_accepted = pl.col("input_length") <= most_tokens
    timed_rows = timed_rows.filter(is_accepted)
    hash_lists = lazy_table.filter(is_accepted).select("hash_ids").collect()["hash_ids"]
    if hash_lists.null_count():
        raise TraceError(f"{name}: every row must have a list of hash_ids, if an empty one")
    return timed_rows, hash_lists, row_count


WEKA = Format(
    "weka", "WEKA / kv-cache-tester", "JSON",
    "sessions with think times, hashes of blocks, called agents",
    lambda head: '"requests":[' in head.keys, read_weka,
)  # fmt: skip
PARQUET = Format(
    "kv-cache-tester parquet", "kv-cache-tester", "parquet",
    f"the same as one table, read from disk only: {', '.join(PARQUET_COLUMNS)}",
    lambda head: set(PARQUET_COLUMNS) <= head.parquet, read_session_table,
)  # fmt: skip
