"""What a trace holds, in figures for people: shown before it is used.

Percentiles are numpy's linear ones. Knows nothing about files.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twin.lab.traces.bound import lru_bound
from twin.workload.replay import timestamp_quantum
from twin.workload.requests import TraceTable

LEVELS = (5, 25, 50, 75, 95, 99)


def preview(table: TraceTable) -> dict[str, Any]:
    """Plain values only: format, rows, rates, lengths, sharing, units, counts, warnings.

    A ratio that the trace cannot tell is None.
    """
    n = len(table)
    duration_s = table.duration_s
    inputs = table.input_tokens.astype(np.int64)
    outputs = table.output_tokens.astype(np.int64)
    quantum_s = timestamp_quantum(table.arrival_s) if table.has_time else 0.0
    rate = n / duration_s if table.has_time and duration_s > 0 else None
    return {
        "name": table.name,
        "format": table.format,
        "digest": table.digest,
        "rows": n,
        "sessions": int(np.unique(table.session).size),
        "duration_s": duration_s if table.has_time else None,
        "rate_req_per_s": rate,
        "interarrival_cv": _variation(table.arrival_s) if table.has_time else None,
        "time_unit": table.time_unit,
        "timestamp_step_s": quantum_s or None,
        "input_tokens": _spread(inputs),
        "output_tokens": _spread(outputs),
        "prefill_decode_ratio": float(inputs.sum() / outputs.sum()),
        "block_tokens": table.block_tokens or None,
        "blocks": table.blocks,
        "ideal_hit_token_ratio": lru_bound(table) if table.has_prefix else None,
        "think_s_p50": _median(table.think_s),
        "counts": dict(table.counts),
        "warnings": list(table.warnings) + _warnings(table, quantum_s),
    }


def _spread(values: np.ndarray) -> dict[str, float]:
    percentiles = {f"p{level}": float(np.percentile(values, level)) for level in LEVELS}
    return {**percentiles, "max": float(values.max()), "mean": float(values.sum() / values.size)}


def _variation(arrival_s: np.ndarray) -> float | None:
    gaps = np.diff(arrival_s)
    return float(gaps.std() / gaps.mean()) if gaps.size > 1 and gaps.mean() > 0 else None


def _median(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else None


def _warnings(table: TraceTable, quantum_s: float) -> list[str]:
    warnings = []
    if not table.has_time:
        warnings.append("no times in the file: requests arrive as Poisson at the workload's rate")
    if not table.has_prefix:
        warnings.append("no prefix information: no prompt shares a block")
    if quantum_s:
        warnings.append(
            f"timestamps are rounded to {quantum_s:.4g} s: spread the requests over that step"
        )
    return warnings
