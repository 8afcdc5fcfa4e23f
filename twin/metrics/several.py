"""Figures of several models on one machine: what each has left, taken together.

Latencies and SLOs are of all requests, each judged by its own model's; amounts and NPUs add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twin.metrics.observed import Observed

PLANES = ("ub", "rdma", "vpc")  # of the whole machine: the same for each model


@dataclass(frozen=True)
class Several(Observed):
    """All models of a run; `parts` has each alone. Masks and times are in the order of parts."""

    parts: tuple[Observed, ...] = ()

    def _joined(self, name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in self.parts])

    def _sum(self, name: str) -> Any:
        return sum(getattr(part, name) for part in self.parts)

    @property
    def at_start(self) -> int:
        """Number of requests in progress at time zero."""
        return int(self._sum("at_start"))

    @cached_property
    def started(self) -> np.ndarray:
        """Mask of the requests whose first token fell in the steady state."""
        return self._joined("started")

    @cached_property
    def finished(self) -> np.ndarray:
        """Mask of the requests that finished in the steady state."""
        return self._joined("finished")

    @cached_property
    def whole(self) -> np.ndarray:
        """Mask, over the finished requests, of those whose whole stay lies within the run."""
        return self._joined("whole")

    @cached_property
    def ttft(self) -> np.ndarray:
        """Arrival to first token of every request, seconds; NaN without a first token."""
        return self._joined("ttft")

    @cached_property
    def tpot(self) -> np.ndarray:
        """TPOT of finished requests; NaN for answers of one token."""
        return self._joined("tpot")

    @cached_property
    def within_slo(self) -> np.ndarray:
        """Mask of the finished that met the whole SLO of their model."""
        return self._joined("within_slo")

    def _span(self, begin: str, end: str) -> np.ndarray:
        return np.concatenate([part._span(begin, end) for part in self.parts])

    @cached_property
    def session_times(self) -> np.ndarray:
        """First question to last answer of steady sessions."""
        return self._joined("session_times")

    @property
    def met(self) -> float:
        """Requests that finished and met the whole SLO of their model."""
        return float(self._sum("met"))

    @property
    def output_tokens(self) -> float:
        """Tokens emitted."""
        return float(self._sum("output_tokens"))

    @property
    def tokens_served(self) -> float:
        """Output tokens; of a model that decodes nothing, input tokens."""
        return float(self._sum("tokens_served"))

    @property
    def ssd_tokens(self) -> float:
        """Tokens that the SSD tier had."""
        return float(self._sum("ssd_tokens"))

    @property
    def npus_held(self) -> float:
        """NPUs that belong to an instance, each counted once."""
        return float(self._sum("npus_held"))

    @property
    def idle_npu_s(self) -> float:
        """NPU-seconds of the steady state in which nothing is computed."""
        return float(self._sum("idle_npu_s"))

    @cached_property
    def power_w(self) -> float | None:
        """Mean watts of all NPUs that serve; None where a chip states none."""
        each = [part.power_w for part in self.parts]
        return None if None in each else float(sum(each))  # type: ignore[arg-type]

    def clock(self, role: str) -> float | None:
        """None: a cap on power is of one model."""
        return None


def totals_of(parts: Sequence[Observed], pool_share: Sequence[float]) -> dict[str, float]:
    """Amounts and counts of all models: sums, but for what is of the machine or a share of it.
    pool_share: part of the memory pool that each model has."""
    each = [part.totals for part in parts]
    names = dict.fromkeys(name for totals in each for name in totals)
    found = {name: sum(totals.get(name, 0.0) for totals in each) for name in names}
    for name in ("samples", *(f"{plane}_capacity" for plane in PLANES)):
        found[name] = each[0][name]
    found["little_error"] = max(totals["little_error"] for totals in each)
    used = zip(each, pool_share, strict=True)
    found["pool_used"] = sum(totals["pool_used"] * share for totals, share in used)
    return found


def npus_of(parts: Sequence[Observed]) -> Mapping[str, float]:
    """NPUs by role."""
    roles = dict.fromkeys(role for part in parts for role in part.npus)
    return {role: sum(part.npus.get(role, 0) for part in parts) for role in roles}
