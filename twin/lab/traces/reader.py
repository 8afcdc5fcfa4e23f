"""Every trace format: found by content, read, previewed.

`read_trace` gives a table or raises one clear TraceError; nothing else is touched. Which format a
file has is decided by what stands in it, never by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import polars as pl

from twin.lab.traces import jsonl, servegen, sessions, tabular
from twin.lab.traces.source import PARQUET_MAGIC, Limits, Piece, TraceError, open_source
from twin.lab.traces.table import MOST_BLOCK_TOKENS, Cut, build_table
from twin.workload.requests import TraceTable

HEAD_BYTES = 1 << 16
BLANK = " \t\r\n"
MOST_PROMPT_TOKENS = 131_072  # the context of the models served: longer sessions are left out
KNOWN = (
    "Mooncake JSONL, Bailian JSONL, RAGPulse JSONL, WEKA / kv-cache-tester JSON, Azure, BurstGPT, "
    "vidur, splitwise or GuideLLM CSV, a ServeGen folder or tar, kv-cache-tester parquet"
)
ONE_FILE = {
    "mooncake": jsonl.read_mooncake,
    "bailian": jsonl.read_bailian,
    "ragpulse": jsonl.read_ragpulse,
}


def read_trace(
    source: str | Path | bytes,
    name: str | None = None,
    *,
    block_tokens: int | None = None,
    limit: int | None = None,
    begin_s: float = 0.0,
    end_s: float | None = None,
    max_prompt_tokens: int | None = MOST_PROMPT_TOKENS,
    seed: int = 0,
    limits: Limits | None = None,
) -> TraceTable:
    """A trace file, folder or upload as a table; raises TraceError with file and line.

    name: what to call it. block_tokens: tokens of a hashed block where the file does not say or is
    wrong. limit: only the first requests. begin_s, end_s: only this part of the trace's own clock.
    max_prompt_tokens: leave out recorded sessions that go beyond it (None keeps them). seed: of
    what the format leaves to chance (starts of sessions, ServeGen's samples). limits: of size;
    None is wide for a path and narrow for an upload.
    """
    if block_tokens is not None and not 1 <= block_tokens <= MOST_BLOCK_TOKENS:
        raise TraceError(
            f"a block of {block_tokens} tokens is none: it must be from 1 to {MOST_BLOCK_TOKENS:,}"
        )
    label, limits, pieces = open_source(source, name, limits)
    first = _first(label, pieces)
    kind = _format(label, first)
    cut = Cut(begin_s, end_s, limit)
    everything = chain([first], pieces)
    if kind == "servegen":
        found = servegen.read_servegen(label, everything, cut, seed, limits.rows)
    elif kind == "weka":
        found = sessions.read_weka(label, everything, block_tokens, max_prompt_tokens, seed)
    elif kind == "kv-cache-tester parquet":
        found = sessions.read_session_table(first, max_prompt_tokens, seed, limits.rows)
    else:
        if next(pieces, None) is not None:
            raise TraceError(f"{label} holds several files of format {kind}: give one of them")
        if kind in ONE_FILE:
            found = ONE_FILE[kind](first, block_tokens)
        else:
            found = tabular.read_tabular(first, kind)
    found.name = label
    return build_table(found, cut, limits.rows)


def _first(label: str, pieces: Iterator[Piece]) -> Piece:
    first = next(pieces, None)
    if first is None:
        raise TraceError(f"{label} holds no file")
    return first


def _format(label: str, piece: Piece) -> str:
    if servegen.PIECE_NAME.search(piece.name):
        return "servegen"
    if piece.data.startswith(PARQUET_MAGIC):
        return _parquet_format(label, piece)
    head = piece.data[:HEAD_BYTES].decode("utf-8-sig", "replace").lstrip(BLANK)
    if not head:
        raise TraceError(f"{label} is empty")
    if head.startswith("{"):
        found = _json_format(head)
    else:
        found = tabular.layout_of(tabular.header_of(head.split("\n", 1)[0]))
    if found is None:
        raise TraceError(f"{label} is in no format known here: {KNOWN} are read")
    return found


def _json_format(head: str) -> str | None:
    """By the keys in the first 64 KB; the most telling key first."""
    packed = "".join(head.split())
    for key, found in (
        ('"requests":[', "weka"),
        ('"chat_id":', "bailian"),
        ('"hash_ids":{', "ragpulse"),
        ('"input_length":', "mooncake"),
    ):
        if key in packed:
            return found
    return None


def _parquet_format(label: str, piece: Piece) -> str:
    if piece.path is None:
        raise TraceError(f"{label}: parquet is read from disk only, not from an upload")
    try:
        columns = set(pl.read_parquet_schema(piece.path))
    except pl.exceptions.PolarsError:
        raise TraceError(f"{label} is not a sound parquet file") from None
    if set(sessions.PARQUET_COLUMNS) <= columns:
        return "kv-cache-tester parquet"
    raise TraceError(
        f"{label} is a parquet file of other columns: {', '.join(sessions.PARQUET_COLUMNS)} "
        "must be there"
    )
