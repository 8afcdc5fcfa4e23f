"""A run as the causes see it: its figures against the SLO, and what the machine has left."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from twin.facts import Facts
from twin.hardware.imported import npus_of
from twin.metrics.latency import TTFT_PARTS
from twin.model.predict import Prediction
from twin.model.shape import load_shape
from twin.scenario import Scenario, npus_used, pools
from twin.workload.requests import TraceTable

Summary = Mapping[str, float | int | str | None]
Settings = dict[str, Any]
UNSERVED = 20.0  # times the SLO, at least: what counts where no request was served
SERVED = 10.0  # of a score: all requests within the SLO instead of none, before any time counts
BEHIND = 0.8  # of what arrives: whoever finishes less falls behind
CLEARLY = 1.2  # times as many served: less is chance in a short run that falls behind


@dataclass(frozen=True)
class View:
    """A scenario with its run, and formula answers for its pools."""

    scenario: Scenario
    facts: Facts
    summary: Summary
    full: Prediction | None  # every slot always taken; None where the formula has no answer
    operators: Mapping[str, float]  # share of a decode iteration, by operator
    trace: TraceTable | None = None
    counts: np.ndarray | None = None
    uneven: float = 0.0  # score of the re-run with even experts
    waiting: Mapping[str, float] = field(default_factory=dict)  # s so far at the end, by part
    refused: Mapping[str, float] = field(default_factory=dict)  # share of the requests, by reason

    def figure(self, key: str) -> float:
        """A figure of the run's summary in SI by its key; 0 if it is missing."""
        figure = self.summary.get(key)
        return float(figure) if isinstance(figure, int | float) else 0.0

    @property
    def has_experts(self) -> bool:
        """Whether the model has routed experts."""
        return "experts" in load_shape(self.facts, self.scenario.deployment.model).stages

    @cached_property
    def ttft_shares(self) -> dict[str, float]:
        """Share of the mean TTFT by stage, in order; without first tokens, of the time waited."""
        stage_s = {stage: self.figure(f"ttft_{stage}_s_mean") for stage, *_ in TTFT_PARTS}
        if not any(stage_s.values()):
            stage_s |= self.waiting
        total_s = sum(stage_s.values())
        return {stage: time_s / total_s if total_s else 0.0 for stage, time_s in stage_s.items()}

    def gain_of(self, share: float, *stages: str) -> float:
        """Score that the run would gain if a share of the time of these TTFT stages went away."""
        time_share_left = 1.0 - share * sum(self.ttft_shares[stage] for stage in stages)
        slo_ratios_left = self.ttft_ratio * time_share_left + self.tpot_ratio + 1e-3
        return math.log((self.ttft_ratio + self.tpot_ratio + 1e-3) / slo_ratios_left)

    @property
    def free_npus(self) -> int:
        """NPUs of the machine that no instance uses."""
        scenario = self.scenario
        return max(npus_of(scenario.supernode) - npus_used(scenario), 0)

    @property
    def arrived_per_s(self) -> float:
        """Requests that arrived per second of the run."""
        return self.figure("requests") / self.scenario.horizon_s

    @property
    def ttft_ratio(self) -> float:
        """TTFT p99 divided by the limit of TTFT."""
        return ttft_ratio(self.summary, self.scenario)

    @property
    def tpot_ratio(self) -> float:
        """TPOT p99 divided by the limit of TPOT."""
        return tpot_ratio(self.summary, self.scenario)

    @property
    def meets_slo(self) -> bool:
        """Whether the run meets its SLO."""
        return slo_met(self.summary, self.scenario)

    @property
    def role_npus(self) -> dict[str, tuple[int, int]]:
        """(number of instances, NPUs of each) by role of the pool."""
        return {role: (instances, npus) for role, instances, npus in pools(self.scenario)}

    @property
    def sustained_per_s(self) -> dict[str, float]:
        """Requests/s that the front end and each pool sustain by formula; may be empty."""
        if self.full is None:
            return {}
        rates_per_s = {"front end": self.full.front_end_requests_per_s}
        for role in ("prefill", "decode"):
            if (prediction := getattr(self.full, role)) is not None:
                rates_per_s[role] = prediction.requests_per_s
        return rates_per_s


def waiting_s(requests: pl.DataFrame, horizon_s: float) -> dict[str, float]:
    """Seconds, by stage of the TTFT, that requests have waited in the stage in which they are at
    the end of the run, summed."""
    waited_s = {}
    for stage, *columns in TTFT_PARTS:
        stamps_s = [requests[column].cast(pl.Float64).to_numpy() for column in columns]
        has_begun, has_ended = (np.isfinite(stage_stamps_s) for stage_stamps_s in stamps_s)
        waited_s[stage] = float((horizon_s - stamps_s[0][has_begun & ~has_ended]).sum())
    return waited_s


def ttft_ratio(summary: Summary, s: Scenario) -> float:
    """TTFT p99 divided by the limit of TTFT; without a first token the horizon divided by the
    limit, at least UNSERVED; 0 without prefill."""
    if s.deployment.mode == "decode_only":
        return 0.0
    p99_s = summary.get("ttft_s_p99")
    if p99_s is None:
        return max(UNSERVED, s.horizon_s / s.slo.ttft_s)
    return float(p99_s) / s.slo.ttft_s


def tpot_ratio(summary: Summary, s: Scenario) -> float:
    """TPOT p99 divided by its SLO; UNSERVED (20) if no request finished; 0 without decode."""
    if s.deployment.mode == "prefill_only":
        return 0.0
    p99_s = summary.get("tpot_s_p99")
    if p99_s is None:  # answers of one token have no TPOT
        return 0.0 if summary.get("requests_steady") else UNSERVED
    return float(p99_s) / (1e-3 * s.slo.tpot_ms)


def attained_share(summary: Summary) -> float:
    """Share of finished requests that met the SLO; 0 if none finished."""
    return float(summary.get("slo_attainment") or 0.0)


def share_met(summary: Summary) -> float:
    """Share of all requests that met the SLO; those rejected or lost count as missed."""
    return attained_share(summary) * (1.0 - given_up_share(summary))


def finished_share(summary: Summary, s: Scenario) -> float:
    """Requests finished per second divided by those arrived per second, 0 to 1; 1 without any."""
    arrived_per_s = float(summary.get("requests") or 0) / s.horizon_s
    finished_per_s = float(summary.get("throughput_req_per_s") or 0.0)
    return min(1.0, finished_per_s / arrived_per_s) if arrived_per_s else 1.0


def catches_up(before: Summary, after: Summary, s: Scenario) -> bool:
    """Whether a change makes an overloaded run finish clearly more of its requests."""
    finished_before = finished_share(before, s)
    return finished_before < BEHIND and finished_share(after, s) > CLEARLY * finished_before


def given_up_share(summary: Summary) -> float:
    """Share of the requests that were rejected or lost, from a run's summary."""
    given_up_count = float(summary.get("rejected") or 0) + float(summary.get("lost") or 0)
    return given_up_count / max(1.0, float(summary.get("requests") or 0))


def has_one_slo(scenario: Scenario) -> bool:
    """Whether all requests have the scenario's SLO: no tenant and no other model has its own."""
    tenant_limits = (tenant.ttft_s or tenant.tpot_ms for tenant in scenario.tenants)
    return not scenario.models and not any(tenant_limits)


def slo_met(summary: Summary, s: Scenario) -> bool:
    """Whether a run meets its SLO: not overloaded, and `slo.share` of requests met TTFT and TPOT (a
    tenant's own if it has one); requests given up count as missed."""
    return summary.get("steady_state") != "overloaded" and share_met(summary) >= s.slo.share


def load_of(s: Scenario) -> tuple[str, float]:
    """Path and value of the field that sets the load: clients, a trace's speed or requests/s."""
    workload = s.workload
    if workload.arrivals == "closed_loop":
        return "workload.concurrency", float(workload.concurrency)
    if workload.arrivals == "trace":
        return "workload.trace.rate_multiplier", workload.trace.rate_multiplier
    return "workload.rate_req_per_s", workload.rate_req_per_s
