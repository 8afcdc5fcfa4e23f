"""Latencies: arrays of seconds in, mean and percentiles out. Goodput: requests that met the SLO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl

    from twin.scenario import Scenario

PERCENTILES = (50, 90, 95, 99)

# Stamps of a request in the order in which it meets them.
STAMPS = ("arrival_s", "frontend_s", "routed_s", "prefill_start_s", "prefill_end_s",
          "first_token_s", "finish_s")  # fmt: skip
# Parts of TTFT: name, from stamp, to stamp.
TTFT_PARTS = tuple(
    zip(("front_end", "router", "prefill_queue", "prefill", "kv_transfer"), STAMPS, STAMPS[1:],
        strict=False)
)  # fmt: skip


def mean_and_percentiles(values: np.ndarray, prefix: str) -> dict[str, float | None]:
    """Mean and percentiles of values by name, `prefix` + "_mean", "_p50" to "_p99"; None if empty.

    >>> mean_and_percentiles(np.array([1.0, 3.0]), "ttft_s")["ttft_s_p50"]
    2.0"""
    figure_names = [f"{prefix}_mean", *(f"{prefix}_p{percent}" for percent in PERCENTILES)]
    if values.size == 0:
        return dict.fromkeys(figure_names)
    quantiles = np.percentile(values, PERCENTILES)
    return dict(zip(figure_names, [float(values.mean()), *map(float, quantiles)], strict=True))


def span_s(requests: pl.DataFrame, begin: str, end: str) -> np.ndarray:
    """Seconds between two stamps of every request, f8[n]; NaN where either is missing."""
    return np.asarray(requests[end].to_numpy() - requests[begin].to_numpy())


def tpot_s(requests: pl.DataFrame) -> np.ndarray:
    """Seconds per output token of each request, from the first to the last; NaN for one token."""
    tokens = requests["output_tokens"].to_numpy()
    return per_token_s(span_s(requests, "first_token_s", "finish_s"), tokens)


def per_token_s(emitting_s: np.ndarray, output_tokens: np.ndarray) -> np.ndarray:
    """Seconds per token after the first, f8[n]; NaN for answers of one token. emitting_s f8[n]:
    seconds from the first to the last token."""
    gap_count = output_tokens.astype(np.float64) - 1.0
    gap_count[gap_count == 0.0] = np.nan
    return emitting_s / gap_count


def histogram_quantile(edges: np.ndarray, weights: np.ndarray, share: float) -> float | None:
    """Upper edge of the bin in which the quantile `share` (0..1) lies; None if all weights are 0.
    edges: f8[bins + 1]; weights: f8[bins]."""
    total_weight = float(weights.sum())
    if total_weight <= 0:
        return None
    return float(edges[1 + int(np.searchsorted(np.cumsum(weights), share * total_weight))])


def itl_spread(edges: np.ndarray, weights: np.ndarray, tokens: float) -> dict[str, float | None]:
    """Mean and percentiles (s) of the inter-token latency. An iteration of t seconds is one gap of
    t; further tokens of MTP have a gap of 0.
    edges f8[bins + 1]: seconds; weights f8[bins]: iterations of each length, counted once for each
    request in them; tokens: number of tokens emitted in them."""
    total_weight = float(weights.sum())
    if total_weight <= 0:
        return mean_and_percentiles(np.zeros(0), "itl_s")
    zero_gap_count = max(tokens - total_weight, 0.0)
    gap_s = 0.5 * (edges[1:] + edges[:-1])
    mean_s = float((gap_s * weights).sum()) / (total_weight + zero_gap_count)
    latencies_s: dict[str, float | None] = {"itl_s_mean": mean_s}
    all_weights = np.concatenate(([zero_gap_count], weights))
    all_edges = np.concatenate(([0.0, 0.0], edges[1:]))
    for percent in PERCENTILES:
        latencies_s[f"itl_s_p{percent}"] = histogram_quantile(all_edges, all_weights, percent / 100)
    return latencies_s


def ttft_parts(summary: Mapping[str, object]) -> list[tuple[str, float]]:
    """(part, mean seconds) of TTFT in pipeline order, for the parts that a summary has."""
    part_means = [(name, summary.get(f"ttft_{name}_s_mean")) for name, *_ in TTFT_PARTS]
    return [(name, float(mean_s)) for name, mean_s in part_means if isinstance(mean_s, int | float)]


def met_slo(
    ttft_s: np.ndarray, tpot_s: np.ndarray, ttft_limit_s: float | np.ndarray,
    tpot_limit_s: float | np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Whether each finished request met both limits; an answer of one token has no TPOT to miss.

    >>> met_slo(np.array([0.5, 2.0]), np.array([0.04, 0.04]), 1.0, 0.05).tolist()
    [True, False]
    """
    ttft_met = ttft_s <= ttft_limit_s
    tpot_met = np.isnan(tpot_s) | (tpot_s <= tpot_limit_s)
    return np.asarray(ttft_met & tpot_met)


def per_second(amount: float, seconds: float, npus: float = 1) -> float | None:
    """Amount per second and NPU; None without NPUs or time."""
    return amount / seconds / npus if seconds > 0 and npus > 0 else None


def quotient(numerator: float, denominator: float) -> float | None:
    """numerator / denominator; None if the denominator is not positive."""
    return numerator / denominator if denominator > 0 else None


def ratio(amounts: np.ndarray, bases: np.ndarray) -> np.ndarray:
    """amounts / bases, f8[n]; NaN where the base is not positive."""
    return np.divide(amounts, bases, out=np.full(len(amounts), np.nan), where=bases > 0)


def slo_limits_s(scenario: Scenario, requests: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """(TTFT SLO, TPOT SLO) in s of each request's tenant, f8[n]; two scalars without tenants."""
    tenants, default_slo = scenario.tenants, scenario.slo
    if not tenants:
        return np.array(default_slo.ttft_s), np.array(default_slo.tpot_ms * 1e-3)
    tenant_index = requests["tenant"].to_physical().to_numpy()
    ttft_s = np.array([tenant.ttft_s or default_slo.ttft_s for tenant in tenants])
    tpot_s = np.array([tenant.tpot_ms or default_slo.tpot_ms for tenant in tenants]) * 1e-3
    return ttft_s[tenant_index], tpot_s[tenant_index]
