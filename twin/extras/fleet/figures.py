"""Figures of a fleet, merged from its runs as if all requests stood in one table: a run of several
supernodes counts as often."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from twin.metrics.latency import PERCENTILES, per_second, quotient, spread_of
from twin.metrics.observed import Observed
from twin.scenario import Scenario

COUNTS = ("requests", "finished", "rejected", "lost", "cancelled", "running", "requests_steady",
          "npu_hours", "energy_kwh")  # fmt: skip


@dataclass(frozen=True)
class Served:
    """A run of a supernode. summary, requests: of its result."""

    scenario: Scenario
    summary: Mapping[str, Any]
    requests: pl.DataFrame
    digest: str

    @cached_property
    def observed(self) -> Observed:
        """Input for formulas of metrics; requests in progress at its start are not judged."""
        stamps = self.requests.select(pl.col("arrival_s", "prefill_end_s") == 0.0)
        at_start = int(stamps.select(pl.all_horizontal(pl.all())).to_series().sum())
        return Observed(self.scenario, self.requests, {"at_start": float(at_start)})

    @cached_property
    def ttft_s(self) -> np.ndarray:
        """TTFT of requests whose first token fell in the steady state, f8[n]."""
        return self.observed.ttft[self.observed.started]

    @cached_property
    def tpot_s(self) -> np.ndarray:
        """TPOT of requests that finished in the steady state and have one, f8[n]."""
        return self.observed.tpot[~np.isnan(self.observed.tpot)]

    def hours(self, begin_s: float, hour_s: float, hours: int) -> dict[str, np.ndarray]:
        """Sums by hour of the fleet, f8[hours] each, for a run that begins at `begin_s` of the
        fleet's time: arrivals; finished requests, and those of them that met the SLO; TPOT, and
        answers that have one. Warm-up included."""
        o = Observed(
            self.scenario.model_copy(update={"warmup_s": 0.0}), self.requests,
            self.observed.totals,
        )  # fmt: skip
        counted = ~np.isnan(o.tpot) & o.whole
        ends = self.requests["finish_s"].to_numpy()[o.finished]
        arrived = self.requests["arrival_s"].to_numpy()[o.at_start :]
        of_each = {
            "requests": (arrived, None), "finished": (ends[o.whole], None),
            "met": (ends[o.whole], o.within_slo[o.whole]), "answers": (ends[counted], None),
            "tpot_s": (ends[counted], o.tpot[counted]),
        }  # fmt: skip
        return {
            name: np.bincount(
                np.minimum((begin_s + at_s) / hour_s, hours - 1).astype(np.int64), weights,
                minlength=hours,
            ).astype(np.float64)
            for name, (at_s, weights) in of_each.items()
        }  # fmt: skip


def merged(runs: Sequence[tuple[int, Served]], steady_s: float) -> dict[str, Any]:
    """Figures of runs, each of some supernodes, over a fleet's steady state, by summary keys."""
    total = {key: _sum([(n, run.summary.get(key)) for n, run in runs]) for key in COUNTS}
    met = sum(count * run.observed.met for count, run in runs)
    rate, npus, cost, cost_steady = 0.0, 0.0, 0.0, 0.0
    for count, run in runs:
        part = count * (run.observed.steady_s / steady_s)
        rate += part * (run.summary.get("output_tokens_per_s") or 0.0)
        npus += part * (run.summary.get("npus") or 0.0)
        hours = run.summary.get("npu_hours") or 0.0
        cost_part = count * run.observed.price_per_npu_hour * hours
        cost += cost_part
        cost_steady += cost_part * run.observed.steady_s / run.scenario.horizon_s
    tokens = rate * steady_s
    energy = total["energy_kwh"]
    return {
        **total,
        "throughput_req_per_s": per_second(float(total["requests_steady"] or 0.0), steady_s),
        "goodput_req_per_s": per_second(met, steady_s),
        "slo_attainment": quotient(met, float(total["requests_steady"] or 0.0)),
        "output_tokens_per_s": rate,
        "tokens_per_s_per_npu": quotient(rate, npus),
        **spread_merged([(count, run.ttft_s) for count, run in runs], "ttft_s"),
        **spread_merged([(count, run.tpot_s) for count, run in runs], "tpot_s"),
        "joules_per_token": quotient(3.6e6 * energy, tokens) if energy is not None else None,
        "cost": cost or None,
        "cost_per_million_tokens": quotient(1e6 * cost_steady, tokens) if cost else None,
    }


def _sum(parts: Sequence[tuple[int, float | None]]) -> float | None:
    """Sum of a figure over all supernodes; None if one of them has none."""
    if any(value is None for _, value in parts):
        return None
    return sum(count * value for count, value in parts if value is not None)


def spread_merged(parts: Sequence[tuple[int, np.ndarray]], prefix: str) -> dict[str, float | None]:
    """Mean and percentiles of samples f8[n], each counted so many times, as `spread_of` has them
    of the samples repeated and put together.

    >>> spread_merged([(2, np.array([1.0])), (1, np.array([4.0]))], "ttft_s")["ttft_s_p50"]
    1.0"""
    values = np.concatenate([sample for _, sample in parts] or [np.zeros(0)])
    if values.size == 0:
        return spread_of(values, prefix)
    counts = np.concatenate([np.full(sample.size, count) for count, sample in parts])
    order = np.argsort(values, kind="stable")
    values, upto = values[order], np.cumsum(counts[order])
    place = (upto[-1] - 1) * (np.array(PERCENTILES) / 100)
    below = np.floor(place)
    low, high = (
        values[np.searchsorted(upto, np.minimum(level, upto[-1] - 1), "right")]
        for level in (below, below + 1)
    )
    part, gap = place - below, high - low
    at_places = np.where(part < 0.5, low + gap * part, high - gap * (1.0 - part))
    mean = sum(count * float(sample.sum()) for count, sample in parts) / int(upto[-1])
    names = [f"{prefix}_mean", *(f"{prefix}_p{p}" for p in PERCENTILES)]
    return dict(zip(names, [mean, *map(float, at_places)], strict=True))
