"""Every trace format: found by content, read, checked.

`read_trace` gives a table or raises one clear TraceError; nothing else is touched. To add a format,
write its entry beside its reader and name it in FORMATS; one more CSV is a line in `requests`.
"""

from __future__ import annotations

from pathlib import Path

from twin.lab.traces import requests, servegen, sessions
from twin.lab.traces.formats import Format, Head, Reading, head_of
from twin.lab.traces.source import Limits, TraceError, open_source
from twin.lab.traces.table import MOST_BLOCK_TOKENS, Cut, build_table
from twin.workload.requests import TraceTable

MOST_PROMPT_TOKENS = 131_072  # the context of the models served: longer sessions are left out

# The first one that fits is taken, so the most telling stand first.
FORMATS: dict[str, Format] = {
    entry.name: entry for entry in (servegen.FORMAT, *sessions.FORMATS, *requests.FORMATS)
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
    first = next(pieces, None)
    if first is None:
        raise TraceError(f"{label} holds no file")
    entry = recognise(label, head_of(label, first))
    cut = Cut(begin_s, end_s, limit)
    columns = entry.read(
        Reading(
            label, first, pieces, entry.name, block_tokens, max_prompt_tokens, cut, seed,
            limits.rows,
        )
    )  # fmt: skip
    columns.name = label
    return build_table(columns, cut, limits.rows)


def recognise(label: str, head: Head) -> Format:
    """The format that a file is in; raises TraceError when it is in none."""
    for entry in FORMATS.values():
        if entry.fits(head):
            return entry
    if head.parquet:
        raise TraceError(
            f"{label} is a parquet file of other columns: {', '.join(sessions.PARQUET_COLUMNS)} "
            "must be there"
        )
    raise TraceError(f"{label} is in no format known here: {known()} are read")


def known() -> str:
    """The formats in one line, those of one shape together."""
    shapes: dict[str, list[str]] = {}
    for entry in FORMATS.values():
        shapes.setdefault(entry.shape, []).append(entry.title)
    return "; ".join(f"{', '.join(titles)} ({shape})" for shape, titles in shapes.items())
