"""Figures of several models on one machine: what each has left, taken together.

Latencies and SLOs are of all requests, each judged by its own model's; amounts and NPUs add up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twin.metrics.observed import Observed

PLANES = ("ub", "rdma", "vpc")  # of the whole machine: the same for each model


def _joined(name: str) -> Any:
    """Array of all requests, model by model."""
    return cached_property(lambda run: np.concatenate([getattr(part, name) for part in run.parts]))


def _sum(name: str, number: type[float] = float) -> Any:
    return cached_property(lambda run: number(sum(getattr(part, name) for part in run.parts)))


@dataclass(frozen=True)
class Several(Observed):
    """All models of a run; `parts` has each alone. Masks and times are in the order of parts; an
    SLO is that of the request's model."""

    parts: tuple[Observed, ...] = ()

    at_start = _sum("at_start", int)
    started = _joined("started")
    finished = _joined("finished")
    whole = _joined("whole")
    ttft = _joined("ttft")
    tpot = _joined("tpot")
    within_slo = _joined("within_slo")
    session_times = _joined("session_times")
    met = _sum("met")
    output_tokens = _sum("output_tokens")
    tokens_served = _sum("tokens_served")
    ssd_tokens = _sum("ssd_tokens")
    npus_held = _sum("npus_held")
    npu_s_held = _sum("npu_s_held")
    idle_npu_s = _sum("idle_npu_s")

    def _span(self, begin: str, end: str) -> np.ndarray:
        return np.concatenate([part._span(begin, end) for part in self.parts])

    @cached_property
    def power_w(self) -> float | None:
        """Mean watts of all NPUs that serve; None where a chip states none."""
        each = [part.power_w for part in self.parts]
        return None if None in each else float(sum(each))  # type: ignore[arg-type]

    @property
    def price_per_npu_hour(self) -> float:
        """Price of an hour of a mean NPU that belongs to an instance."""
        prices = {part.price_per_npu_hour for part in self.parts}
        if len(prices) == 1:
            return prices.pop()
        hourly = sum(part.price_per_npu_hour * part.npus_held for part in self.parts)
        return hourly / max(self.npus_held, 1.0)

    def clock(self, role: str) -> float | None:
        """None: under a cap on power each model has a clock of its own."""
        return None


def totals_of(parts: Sequence[Observed], pool_share: Sequence[float]) -> dict[str, float]:
    """Sums of all models, but for figures of the machine. pool_share: of the memory pool, each."""
    each = [part.totals for part in parts]
    names = dict.fromkeys(name for totals in each for name in totals)
    sums = {name: sum(totals.get(name, 0.0) for totals in each) for name in names}
    for name in ("samples", *(f"{plane}_capacity" for plane in PLANES)):
        sums[name] = each[0][name]
    sums["little_error"] = max(totals["little_error"] for totals in each)
    used = zip(each, pool_share, strict=True)
    sums["pool_used"] = sum(totals["pool_used"] * share for totals, share in used)
    return sums


def npus_of(parts: Sequence[Observed]) -> Mapping[str, float]:
    """NPUs by role."""
    roles = dict.fromkeys(role for part in parts for role in part.npus)
    return {role: sum(part.npus.get(role, 0) for part in parts) for role in roles}
