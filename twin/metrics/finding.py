"""What a reason is, and what every rule that looks for reasons reads from a run.

A finding is one sentence of what was seen and one of what would change it. This module knows no
rule; `explain` has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from twin.metrics.latency import TTFT_PARTS
from twin.scenario import Scenario, SpecError, field_info, with_overrides

Summary = Mapping[str, float | int | str | None]
Tables = Mapping[str, pl.DataFrame]
Wish = tuple[str, str, Any]  # sentence, dotted scenario path, value


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason, and what to do about it."""

    topic: str  # one word for the rule that found it: slo, ttft, decode, slots ...
    weight: float  # 0..1, how much of the answer it explains; findings are sorted by it
    what: str  # what was seen, with numbers and units
    fix: str = ""  # what would change it; '' when nothing needs to
    settings: Mapping[str, Any] = field(default_factory=dict)  # dotted scenario path -> value


Rule = Callable[[Scenario, Summary, Tables], list[Finding]]


def first_open(scenario: Scenario, wishes: Sequence[Wish]) -> tuple[str, dict[str, Any]]:
    """The first wish that this scenario has not and may have: its sentence and its settings."""
    for sentence, path, value in wishes:
        if field_info(path) is None or read(scenario, path) == value:
            continue
        if possible(scenario, {path: value}):
            return sentence, {path: value}
    return "", {}


def possible(scenario: Scenario, settings: Mapping[str, Any]) -> bool:
    """Whether the scenario may have these settings (a full machine takes no more instances)."""
    try:
        with_overrides(scenario, dict(settings))
    except SpecError:
        return False
    return True


def read(scenario: Scenario, path: str) -> Any:
    """A field of the scenario by dotted path."""
    value: Any = scenario
    for part in path.split("."):
        value = getattr(value, part)
    return value


def number(summary: Summary, key: str) -> float | None:
    """A figure of the summary as a float; None when it is absent, empty or a word."""
    value = summary.get(key)
    if value is None or isinstance(value, str):
        return None
    return float(value)


def ttft_parts(summary: Summary) -> list[tuple[str, float]]:
    """(part, mean seconds) in pipeline order, only the parts the summary holds."""
    parts = [(name, number(summary, f"ttft_{name}_s_mean")) for name, *_ in TTFT_PARTS]
    return [(name, value) for name, value in parts if value is not None]


def steady_mean(s: Summary, tables: Tables, column: str) -> float | None:
    """Mean of a column of the windows table after the warm-up; None when it is not there."""
    windows = tables.get("windows")
    if windows is None or column not in windows.columns:
        return None
    value = windows.filter(pl.col("t_s") >= (number(s, "warmup_s") or 0.0))[column].mean()
    return float(value) if isinstance(value, int | float) else None


def weighted(s: Summary, tables: Tables, role: str, column: str) -> tuple[float, float] | None:
    """(mean, highest) of a column of the instances table for a role, after the warm-up.

    The mean weighs each window by the time its instance was busy; None where nothing is known.
    """
    instances = tables.get("instances")
    if instances is None or column not in instances.columns:
        return None
    rows = instances.filter(
        (pl.col("role") == role)
        & (pl.col("t_s") >= (number(s, "warmup_s") or 0.0))
        & pl.col(column).is_not_null()
        & (pl.col("busy") > 0)
    )
    if not rows.height:
        return None
    values = rows[column].cast(pl.Float64).to_numpy()
    weights = (rows["busy"] * rows["window_s"]).to_numpy()
    return float((values * weights).sum() / weights.sum()), float(values.max())


def operator_shares(tables: Tables, phase: str) -> dict[str, float]:
    """Each operator's share of a phase's time, 0..1; empty when the phase did not run."""
    operators = tables.get("operators")
    if operators is None:
        return {}
    rows = operators.filter(pl.col("phase") == phase).to_dicts()
    total = sum(row["total_s"] for row in rows)
    return {row["operator"]: row["total_s"] / total for row in rows} if total > 0 else {}


def recent_rate(windows: pl.DataFrame, column: str) -> float:
    """Events per second of a count in the second half of the windows table."""
    half = windows.slice(windows.height // 2)
    length = float(half["window_s"].sum()) if "window_s" in half.columns else 0.0
    return float(half[column].sum()) / length if length > 0 else 0.0


def front_end_busy(scenario: Scenario, tables: Tables) -> float:
    """Share of time the API servers serve, 0..1, from what arrives in the second half."""
    windows, front = tables.get("windows"), scenario.front_end
    if windows is None or not windows.height:
        return 0.0
    offered = recent_rate(windows, "arrived") * 1e-3 * front.service_ms / front.api_servers
    return min(offered, 1.0)
