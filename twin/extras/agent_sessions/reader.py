"""Recorded agent sessions, WEKA / kv-cache-tester JSON or parquet. Seconds and hashes count within
a session; starts are drawn evenly over a day from a seed."""

import math
from collections.abc import Iterator, Sequence
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


NO_ROWS = pl.DataFrame(schema={
    "t": pl.Float64, "session": pl.Int64, "scope": pl.Int64, "input_tokens": pl.Int64,
    "output_tokens": pl.Int64, "think_s": pl.Float64, "hash_ids": pl.List(pl.Int64),
})  # fmt: skip
Request = tuple[float, dict[str, Any], str]  # s since its session's start, body, place in the file


def read_weka(reading: Reading) -> Columns:
    """Columns of the sessions of JSON files, each one object, or one a line. Raises TraceError."""
    sessions = [NO_ROWS]
    left_out, most_tokens = 0, _most_tokens(reading.limits)
    block_tokens = reading.block_tokens or 0
    for piece in reading.pieces():
        for where, body in _session_objects(piece):
            block_size = body.get("block_size")
            if type(block_size) is not int or not 1 <= block_size <= MOST_BLOCK_TOKENS:
                raise TraceError(f"{where} has no block_size: it must be a number of tokens")
            if block_tokens not in {0, block_size} and reading.block_tokens is None:
                raise TraceError(
                    f"{where} has blocks of {block_size} tokens where others have {block_tokens}"
                )
            block_tokens = reading.block_tokens or block_size
            rows = list(_session_requests(where, body["requests"], 0.0, 0))
            short_rows = [rows[i] for i in np.flatnonzero(_cells(rows).tokens("in") <= most_tokens)]
            left_out += len(rows) - len(short_rows)
            if short_rows:
                cells, number = _cells(short_rows), len(sessions) - 1
                sessions.append(pl.DataFrame({
                    "t": [time_s for time_s, _, _ in short_rows], "session": number,
                    "scope": -1 if body.get("hash_id_scope") == "global" else number,
                    "input_tokens": cells.tokens("in"), "output_tokens": cells.tokens("out"),
                    "think_s": cells.times_if_known("think_time"), "hash_ids": c.hash_lists(cells),
                }))  # fmt: skip
    all_rows = pl.concat(sessions, how="vertical_relaxed").with_row_index("source_row", 1)
    return _on_one_clock(all_rows, left_out, most_tokens, block_tokens)


def _most_tokens(limits: Limits) -> int:
    """Tokens of the longest accepted prompt: the limit's, else the longest context of any model."""
    if limits.prompt_tokens:
        return limits.prompt_tokens
    facts = load_facts()
    return max(int(facts.si(f"models.{name}.max_context")) for name in facts.names("models"))


def _on_one_clock(rows: pl.DataFrame, left_out: int, most: int, block_tokens: int) -> Columns:
    """Columns of sessions (numbers from 0 on) whose times `t` (s) begin with each: a single one
    starts at 0, several within a day. left_out: number of prompts above `most` tokens."""
    sessions = int(rows["session"].max() or 0) + 1  # type: ignore[arg-type]
    key = stream_key(SEED, "session starts")
    starts = [DAY_S * uniform(key, i) if sessions > 1 else 0.0 for i in range(sessions)]
    starts_s = np.array(starts)[rows["session"].to_numpy()]
    return Columns(
        rows.with_columns(ticks=pl.Series(starts_s) + pl.col("t")), ticks_per_s=1.0,
        in_order=False, block_tokens=block_tokens,
        counts={f"dropped: prompts beyond {most:,} tokens": left_out} if left_out else {},
        warnings=[NO_CLOCK] if sessions > 1 else [],
    )  # fmt: skip


def _session_objects(piece: Piece) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place in the file, JSON object) of each session of a file. Raises TraceError."""
    text = c.text_of(piece)
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    is_by_line = len(lines) > 1 and lines[0][1].rstrip().endswith("}")
    for number, line in lines if is_by_line else [(0, text)]:
        where = f"{piece.name} line {number}" if is_by_line else piece.name
        body = c.decode_json(line, where, "a session object {...}")
        if type(body) is not dict or type(body.get("requests")) is not list:
            raise TraceError(f"{where} is not a session: an object with requests must stand there")
        yield where, body


def _cells(rows: Sequence[Request]) -> c.Cells:
    """The bodies of requests as a table whose cells are checked when they are read."""
    return c.cells_of_rows([body for _, body, _ in rows], lambda i: rows[i][2])


def _session_requests(
    where: str, requests: list[Any], start_s: float, depth: int
) -> Iterator[Request]:
    """Yield the requests of a session, or of an agent that it calls, in the order of the file.
    where: its place in the file; start_s: its start; depth: agents above it. Raises TraceError."""
    for i, body in enumerate(requests, 1):
        location = f"{where} request {i}"
        if type(body) is not dict:
            raise TraceError(f"{location} is not an object")
        time_s = start_s + float(_cells([(0.0, body, location)]).times("t")[0])
        if type(body.get("requests")) is list:
            if depth >= MOST_DEPTH:
                raise TraceError(f"{location} is nested more than {MOST_DEPTH} agents deep")
            yield from _session_requests(location, body["requests"], time_s, depth + 1)
        else:
            yield time_s, body, location


def read_session_table(reading: Reading) -> Columns:
    """Columns of the parquet of kv-cache-tester, on disk only, one request a row; a called agent's
    times count from its session's last request. Raises TraceError with the row."""
    piece, most = reading.first, _most_tokens(reading.limits)
    if piece.path is None:
        raise TraceError(f"{piece.name}: parquet is read from disk only, not from an upload")
    try:
        rows, row_count = _session_rows(piece.name, piece.path, reading.limits, most)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        raise TraceError(f"{piece.name} is not a sound parquet file: copy it again") from None
    return _on_one_clock(rows, row_count - rows.height, most, PARQUET_BLOCK_TOKENS)


def _session_rows(name: str, path: Path, limits: Limits, most: int) -> tuple[pl.DataFrame, int]:
    """(checked rows of prompts of at most `most` tokens, rows in the file)."""
    scan = pl.scan_parquet(path)
    row_count = scan.select(pl.len()).collect().item()
    if row_count > limits.rows:
        raise TraceError(f"{name} holds {row_count:,} requests, more than {limits.rows:,}")
    schema = scan.collect_schema()
    hashes = schema["hash_ids"]
    if not (isinstance(hashes, pl.List) and hashes.inner in SMALL_INTEGERS):
        raise TraceError(f"{name}: hash_ids is of type {hashes}, it must be lists of integers")
    if schema["trace"] != pl.String and not schema["trace"].is_integer():
        raise TraceError(f"{name}: trace is of type {schema['trace']}, it must be names or numbers")
    for column in ("subagent", *CHECKS):
        if not schema[column].is_numeric() and schema[column] != pl.Null:
            raise TraceError(f"{name}: {column} is of type {schema[column]}, it must be numbers")
    # Hashes are a hundred times the rest, so they are read last and only of the chosen rows.
    frame = scan.select(PARQUET_COLUMNS[:-1]).with_row_index("row", 1).collect()
    if frame["trace"].null_count():
        raise TraceError(f"{name}: every row must name its trace")
    cells = c.cells_of_frame(frame, lambda i: f"{name} row {i + 1}")
    cells.numbers("subagent", "a whole number, 0 for the session itself", 1e9, whole=True)
    for column, check in CHECKS.items():
        check(cells, column)
    session_t = pl.when(pl.col("subagent") == 0).then(pl.col("t"))
    agent_t = session_t.forward_fill().over("trace").fill_null(0.0) + pl.col("t")
    timed_rows = frame.with_columns(t=pl.when(pl.col("subagent") == 0).then("t").otherwise(agent_t))
    timed_rows = timed_rows.filter(pl.col("input_length") <= most)
    lists = scan.filter(pl.col("input_length") <= most).select("hash_ids").collect()["hash_ids"]
    if lists.null_count():
        raise TraceError(f"{name}: every row must have a list of hash_ids, if an empty one")
    if lists.list.eval(pl.element().is_null().any()).list.first().any():
        raise TraceError(f"{name}: hash_ids must hold whole numbers, and some are missing")
    if hashes.inner == pl.UInt64:
        lists = lists.list.eval(pl.element().reinterpret(signed=True))
    session = pl.col("trace").rank("dense").cast(pl.Int64) - 1
    rows = timed_rows.select(
        pl.col("t").cast(pl.Float64), session=session, scope=session,
        input_tokens=pl.col("input_length").cast(pl.Int64),
        output_tokens=pl.col("output_length").cast(pl.Int64), source_row="row",
        think_s=pl.col("think_time").cast(pl.Float64).fill_null(math.nan),
        hash_ids=lists.cast(pl.List(pl.Int64)),
    )  # fmt: skip
    return rows, row_count


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
