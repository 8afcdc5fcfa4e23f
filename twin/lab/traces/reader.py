"""Every trace format; one more CSV or JSON lines is an entry of `requests`, others are extras."""

from pathlib import Path
from typing import Any

import numpy as np

from twin.hooks import TraceFormat, hooks_of
from twin.lab.traces import requests
from twin.lab.traces.formats import MOST_BLOCK_TOKENS, Format, Reading, build_table, head_of
from twin.lab.traces.source import Limits, TraceError, open_source
from twin.workload.replay import timestamp_quantum
from twin.workload.requests import TraceTable
from twin.workload.reuse_curve import reuse_curve

# The first one that fits is taken, so the most telling stand first.
FORMATS: dict[str, Format] = {name: hook.load() for name, hook in hooks_of(TraceFormat).items()}
FORMATS |= {entry.name: entry for entry in requests.FORMATS}

OWN = "A CSV of your own needs columns arrived_at (s), num_prefill_tokens and num_decode_tokens"


def read_trace(
    source: str | Path | bytes, name: str | None = None, *, block_tokens: int | None = None,
    limits: Limits | None = None,
) -> TraceTable:  # fmt: skip
    """The table of a trace (file, folder or upload); name: its label; block_tokens: tokens of a
    hashed block, None: as the file says; limits: None: defaults. Raises TraceError."""
    if block_tokens is not None and not 1 <= block_tokens <= MOST_BLOCK_TOKENS:
        range_text = f"it must be from 1 to {MOST_BLOCK_TOKENS:,}"
        raise TraceError(f"a block of {block_tokens} tokens is none: {range_text}")
    label, limits, pieces = open_source(source, name, limits)
    first_piece = next(pieces, None)
    if first_piece is None:
        raise TraceError(f"{label} holds no file")
    file_head = head_of(label, first_piece)
    trace_format = next((entry for entry in FORMATS.values() if entry.fits(file_head)), None)
    if trace_format is None:
        format_titles = ", ".join(dict.fromkeys(entry.title for entry in FORMATS.values()))
        raise TraceError(f"{label} is in no format that is read ({format_titles}). {OWN}")
    file_reading = Reading(label, first_piece, pieces, trace_format.name, block_tokens, limits)
    columns = trace_format.read(file_reading)
    columns.name, columns.format = label, trace_format.name
    return build_table(columns, limits.rows)


def formats_text() -> str:
    """Titles of the known formats in one line, grouped by shape (CSV, JSON lines, ...)."""
    titles_by_shape: dict[str, list[str]] = {}
    for file_format in FORMATS.values():
        titles_by_shape.setdefault(file_format.shape, []).append(file_format.title)
    return "; ".join(f"{', '.join(titles)} ({shape})" for shape, titles in titles_by_shape.items())


EVERY = 2**62  # touches: no sample
LEVELS = (5, 25, 50, 75, 95, 99)


def trace_figures(table: TraceTable) -> dict[str, Any]:
    """Figures of a trace by name, for people and JSON; None where the trace has no data for one."""
    request_count = len(table)
    duration_s = table.duration_s
    input_tokens = table.input_tokens.astype(np.int64)
    output_tokens = table.output_tokens.astype(np.int64)
    timestamp_step_s = timestamp_quantum(table.arrival_s) if table.has_time else 0.0
    requests_per_s = request_count / duration_s if table.has_time and duration_s > 0 else None
    arrival_gaps_s, think_s = np.diff(table.arrival_s), table.think_s[~np.isnan(table.think_s)]
    has_gaps = table.has_time and arrival_gaps_s.size > 1 and arrival_gaps_s.mean() > 0
    gap_variation = float(arrival_gaps_s.std() / arrival_gaps_s.mean()) if has_gaps else None
    ideal_hit_ratio = reuse_curve(table, EVERY).ideal_hit_ratio if table.has_prefix else None
    warnings = list(table.warnings)
    if not table.has_time:
        warnings.append("no times in the file: requests arrive as Poisson at the workload's rate")
    if not table.has_prefix:
        warnings.append("no prefix information: no prompt shares a block")
    if timestamp_step_s:
        rounding_text = f"timestamps are rounded to {timestamp_step_s:.4g} s"
        warnings.append(f"{rounding_text}: spread the requests over that step")
    return {
        "name": table.name, "format": table.format, "digest": table.digest, "rows": request_count,
        "sessions": int(np.unique(table.session).size),
        "duration_s": duration_s if table.has_time else None, "rate_req_per_s": requests_per_s,
        "interarrival_cv": gap_variation, "time_unit": table.time_unit,
        "timestamp_step_s": timestamp_step_s or None, "input_tokens": _percentiles(input_tokens),
        "output_tokens": _percentiles(output_tokens),
        "prefill_decode_ratio": float(input_tokens.sum() / output_tokens.sum()),
        "block_tokens": table.block_tokens or None, "blocks": table.blocks,
        "ideal_hit_token_ratio": ideal_hit_ratio,
        "think_s_p50": float(np.median(think_s)) if think_s.size else None,
        "counts": dict(table.counts), "warnings": warnings,
    }  # fmt: skip


def _percentiles(values: np.ndarray) -> dict[str, float]:
    """Percentiles (LEVELS) as 'p5', 'p25' ..., 'max' and 'mean' of an array of values."""
    value_by_level = {f"p{level}": float(np.percentile(values, level)) for level in LEVELS}
    return {**value_by_level, "max": float(values.max()), "mean": float(values.sum() / values.size)}
