"""Clients, tenants: sessions, goodput, fairness. A retry counts from the first attempt."""

from typing import Any

import numpy as np

from twin.metrics.latency import ratio
from twin.metrics.observed import Observed


def fair_shares(total: float, offered: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Max-min fair division of `total`: amounts f8[n] in proportion to weight f8[n], none above its
    offered f8[n].

    >>> fair_shares(10.0, np.array([1.0, 9.0, 9.0]), np.array([1.0, 1.0, 2.0])).tolist()
    [1.0, 3.0, 6.0]"""
    granted = np.zeros_like(offered)
    wants_more = offered > 0.0
    while wants_more.any() and total > 1e-9 * offered.sum():
        share_by_weight = (total / weight[wants_more].sum()) * weight
        is_satisfied = wants_more & (offered - granted <= share_by_weight)
        if not is_satisfied.any():
            return granted + np.where(wants_more, share_by_weight, 0.0)
        missing_amount = np.where(is_satisfied, offered - granted, 0.0)
        granted += missing_amount
        total -= float(missing_amount.sum())
        wants_more &= ~is_satisfied
    return granted


def jain_index(values: np.ndarray) -> float | None:
    """Jain's index: 1 if all values are equal, 1/n if only one is not 0; None if all are 0.

    >>> jain_index(np.array([1.0, 1.0])), jain_index(np.array([1.0, 0.0]))
    (1.0, 0.5)"""
    square_sum = float((values * values).sum())
    return float(values.sum()) ** 2 / (values.size * square_sum) if square_sum > 0.0 else None


def fairness(o: Observed) -> float | None:
    """Jain's index of tenants' served tokens divided by fair shares; None without tenants."""
    if len(o.scenario.tenants) < 2:
        return None
    served_ratios = _fair_share_ratios(o)
    return jain_index(served_ratios[np.isfinite(served_ratios)])


def _fair_share_ratios(o: Observed) -> np.ndarray:
    """Tokens served to each tenant divided by its fair share, f8[tenants]; NaN without demand."""
    served_tokens = _tokens_of_tenants(o, o.is_finished)
    offered_tokens = _tokens_of_tenants(o, _is_first_attempt(o))
    weights = np.array([tenant.weight for tenant in o.scenario.tenants])
    demand_tokens = np.maximum(offered_tokens, served_tokens)
    return ratio(served_tokens, fair_shares(float(served_tokens.sum()), demand_tokens, weights))


def _is_first_attempt(o: Observed) -> np.ndarray:
    """Mask bool[requests]: arrived in the steady state, and not as a retry."""
    is_first: np.ndarray = o.requests["arrival_s"].to_numpy() >= o.scenario.warmup_s
    is_first[: o.at_start] = False  # they arrived before the run
    if "attempt" in o.requests.columns:
        is_first = is_first & (o.requests["attempt"].to_numpy() == 0)
    return is_first


def _tokens_of_tenants(o: Observed, is_counted: np.ndarray) -> np.ndarray:
    """Prompt and answer tokens of the requests in mask `is_counted`, f8[tenants]."""
    tokens = o.requests["input_tokens"].to_numpy() + o.requests["output_tokens"].to_numpy()
    tenant_index = o.requests["tenant"].to_physical().to_numpy()[is_counted]
    return np.bincount(tenant_index, tokens[is_counted], len(o.scenario.tenants))


def tenant_rows(o: Observed) -> list[dict[str, Any]]:
    """One row of figures per tenant in the steady state: rates, SLO attainment, latencies, hits."""
    rows, requests = [], o.requests
    tenant_index = requests["tenant"].to_physical().to_numpy()
    status = requests["status"].cast(str).to_numpy()
    is_first_attempt, served_tokens = _is_first_attempt(o), _tokens_of_tenants(o, o.is_finished)
    fair_share_ratios = _fair_share_ratios(o)
    for tenant_number, tenant in enumerate(o.scenario.tenants):
        is_of_tenant = tenant_index == tenant_number
        has_first = is_of_tenant & o.has_first_token
        ttft_s, hit_tokens = o.ttft[has_first], requests["hit_tokens"].to_numpy()[has_first]
        prompt_tokens = int(requests["input_tokens"].to_numpy()[has_first].sum())
        tpot_s = o.tpot[is_of_tenant[o.is_finished]]
        rows.append({
            "tenant": tenant.name,
            "asked_req_per_s": float((is_of_tenant & is_first_attempt).sum()) / o.steady_s,
            "goodput_req_per_s": o.count_met(is_of_tenant) / o.steady_s,
            "slo_attainment": o.attainment_of(is_of_tenant),
            "refused": int((is_of_tenant & (status == "rejected")).sum()),
            "cancelled": int((is_of_tenant & (status == "cancelled")).sum()),
            "tokens_per_s": served_tokens[tenant_number] / o.steady_s,
            "fair_share_ratio": float(fair_share_ratios[tenant_number]),
            "ttft_s_p50": float(np.median(ttft_s)) if ttft_s.size else None,
            "ttft_s_p99": float(np.percentile(ttft_s, 99)) if ttft_s.size else None,
            "tpot_s_mean": float(np.nanmean(tpot_s)) if (~np.isnan(tpot_s)).any() else None,
            "hit_token_ratio": float(hit_tokens.sum() / prompt_tokens) if prompt_tokens else None,
        })  # fmt: skip
    return rows
