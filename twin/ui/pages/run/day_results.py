"""A day at a glance: instances, NPU-hours, energy and hit ratio of a finished run by hour."""

from __future__ import annotations

import polars as pl
import streamlit as st

from twin.lab.store import RunRow
from twin.metrics.hours import DAILY, by_hour, hour_s
from twin.metrics.measures import amount
from twin.scenario import Scenario
from twin.ui import record, words
from twin.ui.charts import day as charts
from twin.ui.show import plot

PANELS = 4  # the table has what is left
LABELS = {
    "prefill_npus": "Prefill NPUs", "decode_npus": "Decode NPUs",
    "colocated_npus": "Colocated NPUs", "changing_npus": "Starting or draining",
    "npu_hours": "NPU-hours", "npu_hours_idle": "Without work", "energy_kwh": "Energy, kWh",
    "hit_percent": "Hit ratio, %", "arrived": "Requests",
}  # fmt: skip


def applies(scenario: Scenario) -> bool:
    """Whether the run has hours to tell apart."""
    return hour_s(scenario) is not None


def section(row: RunRow, scenario: Scenario) -> None:
    """What each hour had of NPUs, what it used and wasted of them, drew, and found cached."""
    length_s = hour_s(scenario)
    assert length_s is not None
    hours = by_hour(record.table(row.id, "windows"), scenario, length_s).with_columns(
        hit_percent=100.0 * pl.col("hit_token_ratio"),
        npu_hours_used=pl.col("npu_hours") - pl.col("npu_hours_idle"),
    )
    st.markdown(_told(hours))
    panels = {
        "NPUs by pool": (charts.POOLS, "NPUs"),
        "NPU-hours used and wasted": (charts.HOURS, "NPU-hours"),
        "Energy": (charts.ENERGY, "kWh"),
        "Prompt tokens found cached": (charts.HITS, "%"),
        "Requests that came": (charts.REQUESTS, "requests"),
    }
    shown = {
        title: panel for title, panel in panels.items()
        if any(name in hours.columns and hours[name].max() for name in panel[0])
    }  # fmt: skip
    columns = st.columns(2, gap="large")
    for k, (title, (series, unit)) in enumerate(list(shown.items())[:PANELS]):
        with columns[k % 2]:
            st.subheader(title, anchor=False)
            plot(charts.hourly(hours, series, unit), f"day-{next(iter(series))}")
    kept = [c for c in LABELS if c in hours.columns and hours[c].max()]
    table = hours.select("hour", *kept).with_columns(pl.col(pl.Float64).round(1))
    st.dataframe(table.rename({"hour": "Hour"} | {c: LABELS[c] for c in kept}), hide_index=True)
    lasts = f"An hour lasts {words.duration(length_s)} of simulated time. " * (length_s != 3600.0)
    daily = scenario.workload.profile.shape in DAILY
    st.caption(
        ("Hours of the day that the rate follows. " if daily else "Hours of simulated time. ")
        + lasts
        + "Without work: an instance has no request, starts or drains."
    )


def _told(hours: pl.DataFrame) -> str:
    """The day in one line."""
    held, idle = float(hours["npu_hours"].sum()), float(hours["npu_hours_idle"].sum())
    said = [
        f"**{amount(held, 'rate', 'NPU-hours')}**",
        f"without work: **{amount(idle / held if held else None, 'share')}**",
    ]
    if hours["energy_kwh"].max():
        said.append(f"energy: **{amount(float(hours['energy_kwh'].sum()), 'rate', 'kWh')}**")
    busiest = hours.sort("arrived", descending=True)["hour"][0]
    return " · ".join([*said, f"busiest hour: **{busiest}**"])
