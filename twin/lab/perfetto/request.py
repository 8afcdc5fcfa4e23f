"""One request's way through the machine: its stages by its stamps, and what ran while it was there.

The stages are those that a trace of the request draws, under the same names. What ran inside them
comes from the same exact re-run of its span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from twin.engine.window import Pass
from twin.lab.perfetto.source import Source
from twin.lab.perfetto.tracks import PHASES
from twin.lab.perfetto.writer import span_of_request
from twin.metrics.measures import seconds

MOST_PASSES = 200_000
DECODE = PHASES[-1][0]


@dataclass(frozen=True, slots=True)
class Inside:
    """What the instances that served a request did while they had it."""

    prefill: tuple[tuple[str, float], ...]  # seconds by operator of its batches; '' is what waits
    decode_wait_s: float  # from its KV in place to the next iteration
    iterations: int  # that it sat through
    iteration_s: float  # mean
    hot_reads: tuple[
        tuple[int, float], ...
    ] = ()  # nodes whose memory servers held it back, seconds


def stages(row: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of a request by stage, in their order; only stages that it left."""
    return {
        name: row[end] - row[begin]
        for name, begin, end in PHASES
        if row[begin] is not None and row[end] is not None
    }


def told(run: Source, request: int) -> str:
    """The stages of a request that is in the run, as a sentence."""
    row = run.tables["requests"].row(by_predicate=pl.col("request_id") == request, named=True)
    parts = ", ".join(f"{name} {seconds(took)}" for name, took in stages(row).items())
    return f"Request {request}: {parts or 'still at the front end'}."


def inside(run: Source, row: Mapping[str, Any]) -> Inside:
    """The same run again up to the request's end, watched. Raises what `simulate` raises."""
    window = run.window(*span_of_request(run, row["request_id"]), MOST_PASSES)

    def passes(role: str, begin: str, end: str) -> list[Pass]:
        low, high = row[begin], row[end]
        if low is None:
            return []
        number = row[f"{role}_instance"]
        own = window.passes.get((role, number)) or window.passes.get(("colocated", number), [])
        return [p for p in own if p.begin_s >= low and (high is None or p.end_s <= high)]

    batches = passes("prefill", "prefill_start_s", "prefill_end_s")
    spent: dict[str, float] = {}
    for known in batches:
        for name, took_s in known.operators:
            spent[name] = spent.get(name, 0.0) + took_s
    if batches:  # reads of the memory pool, and batches between its own
        rest = row["prefill_end_s"] - row["prefill_start_s"] if row["prefill_end_s"] else 0.0
        spent[""] = max(0.0, rest - sum(spent.values()))
    decoded = passes("decode", "transfer_end_s", "finish_s")
    wait_s = decoded[0].begin_s - row["transfer_end_s"] if decoded else 0.0
    mean_s = sum(p.end_s - p.begin_s for p in decoded) / max(1, len(decoded))
    held_s: dict[int, float] = {}
    for known in batches:
        if known.held_s > 0.0:
            held_s[known.hot_node] = held_s.get(known.hot_node, 0.0) + known.held_s
    return Inside(tuple(spent.items()), wait_s, len(decoded), mean_s, tuple(held_s.items()))
