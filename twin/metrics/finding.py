"""What a finding is, and what the rules that make findings read of a run.

A finding is one sentence of what was seen and one of what would change it. A rule is a function of
`Seen` under `@finding(topic)`; that entry is all there is to adding one. This module knows no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from twin.metrics.latency import TTFT_PARTS
from twin.scenario import Scenario, SpecError, field_info, with_overrides

Summary = Mapping[str, float | int | str | None]
Tables = Mapping[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason for what a run did, and what to do about it."""

    weight: float  # 0..1, how much of the answer it explains; findings are sorted by it
    what: str  # what was seen, with numbers and units
    fix: str = ""  # what would change it; '' when nothing needs to
    settings: Mapping[str, Any] = field(default_factory=dict)  # dotted scenario path -> value
    topic: str = ""  # of its rule: slo, ttft, decode, slots ...


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of one field that would help."""

    sentence: str
    path: str
    value: Any


Findings = Finding | list[Finding] | None
Rule = Callable[["Seen"], Findings]
RULES: dict[str, Rule] = {}


def finding(topic: str) -> Callable[[Rule], Rule]:
    """Register a rule under its topic."""

    def register(rule: Rule) -> Rule:
        RULES[topic] = rule
        return rule

    return register


@dataclass(frozen=True, slots=True)
class Seen:
    """A run as the rules see it."""

    scenario: Scenario
    summary: Summary
    tables: Tables

    @property
    def slo_tpot_s(self) -> float:
        """The SLO's TPOT."""
        return 1e-3 * self.scenario.slo.tpot_ms

    def findings(self, topic: str) -> list[Finding]:
        """What the rule of a topic finds."""
        made = RULES[topic](self)
        rows = made if isinstance(made, list) else [] if made is None else [made]
        return [replace(row, topic=topic) for row in rows]

    def number(self, key: str) -> float | None:
        """A figure of the summary as a float; None when it is absent, empty or a word."""
        value = self.summary.get(key)
        return None if value is None or isinstance(value, str) else float(value)

    def known(self, key: str) -> float:
        """A figure of the summary, 0 where there is none."""
        return self.number(key) or 0.0

    def remedied(self, weight: float, what: str, remedies: Sequence[Remedy]) -> Finding:
        """A finding with the first remedy that this scenario has not and may have."""
        for remedy in remedies:
            if field_info(remedy.path) is None or self._set(remedy.path) == remedy.value:
                continue
            settings = {remedy.path: remedy.value}
            if self._possible(settings):
                return Finding(weight, what, remedy.sentence, settings)
        return Finding(weight, what)

    def _set(self, path: str) -> Any:
        """What a field of the scenario is set to, by dotted path."""
        value: Any = self.scenario
        for part in path.split("."):
            value = getattr(value, part)
        return value

    def _possible(self, settings: Mapping[str, Any]) -> bool:
        """Whether the scenario may have these settings (a full machine takes no more instances)."""
        try:
            with_overrides(self.scenario, dict(settings))
        except SpecError:
            return False
        return True

    def steady_mean(self, column: str) -> float | None:
        """Mean of a column of the windows table after the warm-up; None when it is not there."""
        windows = self.tables.get("windows")
        if windows is None or column not in windows.columns:
            return None
        value = windows.filter(pl.col("t_s") >= self.known("warmup_s"))[column].mean()
        return float(value) if isinstance(value, int | float) else None

    def busy_mean(self, role: str, column: str) -> tuple[float, float] | None:
        """(mean, highest) of a column of the instances table for a role, after the warm-up.

        The mean weighs each window by the time its instance was busy; None where nothing is known.
        """
        instances = self.tables.get("instances")
        if instances is None or column not in instances.columns:
            return None
        rows = instances.filter(
            (pl.col("role") == role)
            & (pl.col("t_s") >= self.known("warmup_s"))
            & pl.col(column).is_not_null()
            & (pl.col("busy") > 0)
        )
        if not rows.height:
            return None
        values = rows[column].cast(pl.Float64).to_numpy()
        weights = (rows["busy"] * rows["window_s"]).to_numpy()
        return float((values * weights).sum() / weights.sum()), float(values.max())

    def operator_shares(self, phase: str) -> dict[str, float]:
        """Each operator's share of a phase's time, 0..1; empty when the phase did not run."""
        operators = self.tables.get("operators")
        if operators is None:
            return {}
        rows = operators.filter(pl.col("phase") == phase).to_dicts()
        total = sum(row["total_s"] for row in rows)
        return {row["operator"]: row["total_s"] / total for row in rows} if total > 0 else {}

    def recent_rate(self, column: str) -> float:
        """Events per second of a count in the second half of the windows table."""
        windows = self.tables["windows"]
        half = windows.slice(windows.height // 2)
        length = float(half["window_s"].sum()) if "window_s" in half.columns else 0.0
        return float(half[column].sum()) / length if length > 0 else 0.0

    def front_end_busy(self) -> float:
        """Share of time the API servers serve, 0..1, from what arrives in the second half."""
        windows, front = self.tables.get("windows"), self.scenario.front_end
        if windows is None or not windows.height:
            return 0.0
        offered = self.recent_rate("arrived") * 1e-3 * front.service_ms / front.api_servers
        return min(offered, 1.0)


def ttft_parts(summary: Summary) -> list[tuple[str, float]]:
    """(part, mean seconds) in pipeline order, only the parts the summary holds."""
    parts = [(name, summary.get(f"ttft_{name}_s_mean")) for name, *_ in TTFT_PARTS]
    return [(name, float(value)) for name, value in parts if isinstance(value, int | float)]
