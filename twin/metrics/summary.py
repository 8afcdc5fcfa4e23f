"""The summary: one flat dictionary of a run's headline figures, units last in every name.

Figures are of the steady state, from the end of the warm-up to the horizon: TTFT of requests whose
first token fell in it, TPOT and E2E of those that finished in it. Counts are of the whole run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from twin.metrics.goodput import met_slo
from twin.metrics.latency import TTFT_PARTS, histogram_quantile, span, spread_of, tpot_s
from twin.metrics.resilience import incidents
from twin.metrics.throughput import per_second, quotient
from twin.scenario import Scenario

Summary = dict[str, float | int | str | None]


def summarise(
    s: Scenario,
    requests: pl.DataFrame,
    totals: Mapping[str, float],
    npus: Mapping[str, int],
    events: pl.DataFrame | None = None,
) -> Summary:
    """Headline figures of a run.

    totals: amounts of the steady state and counts of the run, by name; npus: NPUs by role;
    events: what broke or was moved while it ran, None where nothing could.
    """
    steady_s = s.horizon_s - s.warmup_s
    happened = incidents(requests, events, s.horizon_s)
    ended = int(totals["finished"]) + int(totals["rejected"]) + int(happened["lost"] or 0)
    summary: Summary = {
        "requests": requests.height,
        "finished": int(totals["finished"]),
        "rejected": int(totals["rejected"]),
        "running": requests.height - ended,
    }
    summary |= happened
    summary |= latencies(s, requests, steady_s)
    summary |= rates(s, totals, npus, steady_s)
    summary |= {
        "warmup_s": s.warmup_s,
        "horizon_s": s.horizon_s,
        "npus": sum(npus.values()),
        **{f"npus_{role}": npus.get(role, 0) for role in ("prefill", "decode", "colocated")},
    }
    return summary


def latencies(s: Scenario, requests: pl.DataFrame, steady_s: float) -> Summary:
    """TTFT and its parts, TPOT, E2E, and goodput under the SLO."""
    # Masks instead of filtered frames: a frame of millions of requests is not copied.
    started = requests["first_token_s"].to_numpy() >= s.warmup_s
    ended = requests["finish_s"].to_numpy() >= s.warmup_s
    found: Summary = {}
    found |= spread_of(span(requests, "arrival_s", "first_token_s")[started], "ttft_s")
    for name, begin, end in TTFT_PARTS:
        found[f"ttft_{name}_s_mean"] = _mean(span(requests, begin, end)[started])
    per_token = tpot_s(requests)[ended]
    if s.deployment.mode == "prefill_only":  # no token follows the first
        per_token = np.full(per_token.size, np.nan)
    found |= spread_of(per_token[~np.isnan(per_token)], "tpot_s")
    found |= spread_of(span(requests, "arrival_s", "finish_s")[ended], "e2e_s")
    ttft = span(requests, "arrival_s", "first_token_s")[ended]
    kept = float(met_slo(ttft, per_token, s.slo.ttft_s, s.slo.tpot_ms * 1e-3).sum())
    finished = int(ended.sum())
    found["goodput_req_per_s"] = per_second(kept, steady_s)
    found["slo_attainment"] = quotient(kept, float(finished))
    found["throughput_req_per_s"] = per_second(float(finished), steady_s)
    found["requests_steady"] = finished
    return found


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def rates(
    s: Scenario, totals: Mapping[str, float], npus: Mapping[str, int], steady_s: float
) -> Summary:
    """Tokens per second and NPU, hit ratio, utilisations, queues."""
    colocated = npus.get("colocated", 0)
    first_tokens = totals["first_tokens"] if s.deployment.mode != "decode_only" else 0.0
    output = totals["decode_tokens"] + first_tokens
    found: Summary = {
        "prefill_tokens_per_s_per_npu": per_second(
            totals["prefill_tokens"], steady_s, npus.get("prefill", 0) + colocated
        ),
        "prompt_tokens_per_s_per_npu": per_second(
            totals["prefill_tokens"] + totals["hit_tokens"],
            steady_s,
            npus.get("prefill", 0) + colocated,
        ),
        "decode_tokens_per_s_per_npu": per_second(
            totals["decode_tokens"], steady_s, npus.get("decode", 0) + colocated
        ),
        "tokens_per_s_per_npu": per_second(output, steady_s, sum(npus.values())),
        "output_tokens_per_s": per_second(output, steady_s),
        "hit_token_ratio": quotient(totals["hit_tokens"], totals["prompt_tokens"]),
        "decode_iteration_s_mean": quotient(totals["iteration_s"], totals["iterations"]),
        "prefill_batch_s_mean": quotient(totals["prefill_busy_s"], totals["prefill_batches"]),
        "preemptions": int(totals["preemptions"]),
        "concurrency_mean": quotient(totals["inside"], totals["samples"]),
        "pool_used_fraction": quotient(totals["pool_used"], totals["samples"]),
    }
    for name in ("prefill", "decode"):
        instances = totals[f"{name}_instances"]
        found[f"{name}_utilisation"] = per_second(
            totals[f"{name}_busy_s"], steady_s, int(instances)
        )
    found["kv_used_fraction_mean"] = per_second(
        totals["kv_used_s"], steady_s, int(totals["decode_instances"])
    )
    for name in ("ub", "rdma", "vpc", "hbm", "cube"):
        found[f"{name}_utilisation"] = quotient(
            totals[f"{name}_amount"], totals[f"{name}_capacity"] * steady_s
        )
    found["little_error"] = totals["little_error"]
    return found


def gaps(edges: np.ndarray, weights: np.ndarray, tokens: float) -> Summary:
    """Inter-token latency from the iterations each request sat through.

    An iteration of t seconds gives one gap of t; tokens that MTP adds come with no gap at all.
    edges f8[bins + 1] seconds; weights f8[bins] request-iterations; tokens emitted in them.
    """
    waits = float(weights.sum())
    if waits <= 0:
        return dict.fromkeys(("itl_s_mean", "itl_s_p50", "itl_s_p90", "itl_s_p95", "itl_s_p99"))
    free = max(tokens - waits, 0.0)
    middle = 0.5 * (edges[1:] + edges[:-1])
    found: Summary = {"itl_s_mean": float((middle * weights).sum()) / (waits + free)}
    with_free = np.concatenate(([free], weights))
    with_zero = np.concatenate(([0.0, 0.0], edges[1:]))
    for p in (50, 90, 95, 99):
        found[f"itl_s_p{p}"] = histogram_quantile(with_zero, with_free, p / 100)
    return found
