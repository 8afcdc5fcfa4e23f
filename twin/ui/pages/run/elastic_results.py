"""Instances of a finished run that came, went and changed role, and the decisions behind it."""

from __future__ import annotations

import polars as pl
import streamlit as st

from twin.lab.store import RunRow
from twin.metrics.registry import METRICS, shown
from twin.scenario import Scenario, is_elastic
from twin.ui import record, session, words
from twin.ui.charts import elastic as charts
from twin.ui.fields import choice_label
from twin.ui.show import plot

FIGURES = ("goodput_per_npu_hour", "npu_hours", "npu_hours_idle", "role_changes", "starts")
# The column of what a controller goes by, of both pools.
GOES_BY = {"queue": "in_hand", "slo": "latency", "kv": "busy", "rebalance": "busy", "own": "busy"}
ROLES = ("prefill", "decode")


def applies(row: RunRow, scenario: Scenario) -> bool:
    """Whether instances could come and go, and the run wrote it down."""
    return is_elastic(scenario) and "lives" in session.store().runs.tables(row.id)


def section(row: RunRow, scenario: Scenario) -> None:
    """Lives of the instances, NPUs by pool, and every decision with the metrics that it saw."""
    lives, windows = record.table(row.id, "lives"), record.table(row.id, "windows")
    told = [f"{METRICS[k].label}: **{shown(k, row.summary.get(k))}**" for k in FIGURES]
    st.markdown(" · ".join(told))
    st.subheader("Lives of the instances", anchor=False)
    plot(charts.lives(lives, scenario.horizon_s, scenario.warmup_s), "lives")
    st.caption(
        "One row an instance, sorted by its first NPU: rows that never overlap share NPUs, and "
        "pass them from pool to pool."
    )
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("NPUs by pool", anchor=False)
        plot(charts.npus(windows, scenario.warmup_s), "npus-by-pool")
    if "decisions" not in session.store().runs.tables(row.id):
        return
    decisions, rule = record.table(row.id, "decisions"), scenario.elastic
    with right:
        st.subheader("What the controller saw", anchor=False)
        column = GOES_BY[rule.controller]
        plot(charts.pressures(decisions, column, rule.high, rule.low), "pressures")
    st.subheader("Decisions", anchor=False)
    begun = pl.col("started") + pl.col("stopped") + pl.col("changed_role")
    changes = decisions.filter((begun > 0) | (pl.col("held_back") != ""))
    number = st.column_config.NumberColumn(format="%.2f")
    st.dataframe(
        [_told(d) for d in changes.head(500).iter_rows(named=True)], hide_index=True,
        placeholder="–",
        column_config={f"{role.capitalize()}: {name}": number for role in ROLES
                       for name in ("in hand", "busy", "latency / SLO")},
    )  # fmt: skip
    st.caption(
        f"{choice_label('elastic.controller', rule.controller)}: {decisions.height} decisions, "
        f"each on metrics {rule.metrics_age_s:g} s old; shown are those that moved something or "
        "were held back."
    )


def _told(d: dict[str, object]) -> dict[str, object]:
    """One decision as a row: when, what it saw, what it wanted and what came of it."""
    row: dict[str, object] = {"At": words.duration(float(d["t_s"]))}  # type: ignore[arg-type]
    for role in ROLES:
        name = role.capitalize()
        row |= {
            f"{name}: serving": d[f"{role}_serving"], f"{name}: in hand": d[f"{role}_in_hand"],
            f"{name}: busy": d[f"{role}_busy"], f"{name}: latency / SLO": d[f"{role}_latency"],
            f"{name}: wanted": d[f"{role}_wanted"],
        }  # fmt: skip
    return row | {
        "Started": d["started"], "Stopped": d["stopped"], "Changed role": d["changed_role"],
        "Held back by": d["held_back"],
    }  # fmt: skip
