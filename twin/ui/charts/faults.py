"""Charts of what breaks: the faults of a scenario over time, and a run's figures around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import plotly.graph_objects as go
import polars as pl

from twin.scenario import KINDS, Fault
from twin.ui import theme
from twin.ui.charts import timeline
from twin.ui.charts.base import Chart, bars, empty, figure, time_axis, warm_up

FAULT = "#D03B2F"  # a thing out of service; 4.5:1 on white, 3.9:1 on the dark page
LOOKS = {"out": FAULT, "reduced": theme.PLANE["rdma"], "slow": theme.ROLE["colocated"]}
MOST = 40  # rows of a picture
MARKS = {
    "fault": ("✕", FAULT),
    "rebalance": ("⇄", theme.ROLE["colocated"]),
    "shift": ("≈", theme.PLANE["vpc"]),
}


def faults(events: Sequence[Fault], horizon_s: float, warmup_s: float = 0.0) -> Chart:
    """A bar a fault from when it begins to when it is repaired, over the simulated time."""
    seen = [e for e in events if e.at_s < horizon_s][:MOST]
    if not seen:
        return empty("Nothing breaks within the simulated time")
    fig = figure(height=100 + 26 * len(seen))
    names = [f"{k + 1}  {e.where}" for k, e in enumerate(seen)]
    for kind in KINDS.values():
        rows = [
            (k, begin_s, end_s)
            for k, e in enumerate(seen)
            if e.kind == kind.name
            for begin_s, end_s in _spans(e, horizon_s)
        ]
        if rows:
            bars(
                fig, [names[k] for k, _, _ in rows],
                [max(end_s - begin_s, 0.004 * horizon_s) for _, begin_s, end_s in rows],
                LOOKS[kind.look], base=[begin_s for _, begin_s, _ in rows], name=kind.label,
                customdata=[_lasts(seen[k]) for k, _, _ in rows],
                hover="%{y}: from %{base:,.6~g} s, %{customdata}<extra></extra>",
            )  # fmt: skip
    warm_up(fig, warmup_s, "warm-up", "bottom left")
    fig.update_layout(barmode="overlay", hovermode="closest", bargap=0.35, showlegend=True)
    fig.update_xaxes(range=[0, horizon_s], ticksuffix=" s")
    fig.update_yaxes(nticks=len(seen), categoryorder="array", categoryarray=names)
    told = "; ".join(f"{e.element} at {e.at_s:g} s, {_lasts(e)}" for e in seen[:5])
    return Chart(fig, f"{len(seen)} faults over {horizon_s:g} s. {told}.")


def _spans(fault: Fault, horizon_s: float) -> list[tuple[float, float]]:
    """When a fault is in force; one span of all where there are too many to be told apart."""
    spans = []
    for begin_s, end_s in islice(KINDS[fault.kind].spans(fault), MOST + 1):
        if fault.at_s + begin_s < horizon_s:
            spans.append((fault.at_s + begin_s, min(horizon_s, fault.at_s + end_s)))
    return spans if len(spans) <= MOST else [(fault.at_s, horizon_s)]


def _lasts(fault: Fault) -> str:
    lasts = f"for {fault.duration_s:g} s" if fault.duration_s else "to the end"
    return f"{lasts}: {KINDS[fault.kind].says(fault)}"


def rates(windows: pl.DataFrame, events: pl.DataFrame, warmup_s: float, column: str) -> Chart:
    """Output or input tokens per second over time, with what happened marked."""
    word = column.partition("_")[0]
    columns = {column: (word, theme.ROLE["decode" if word == "output" else "prefill"])}
    chart = timeline(windows, columns, f"{word} tokens/s", warmup_s=warmup_s)
    return marked(chart, windows, events)


def delays(windows: pl.DataFrame, events: pl.DataFrame, warmup_s: float) -> Chart:
    """Mean time to first token over time, with what happened marked."""
    columns = {"ttft_s_mean": ("TTFT", theme.ROLE["prefill"])}
    return marked(timeline(windows, columns, "TTFT, mean (s)", warmup_s=warmup_s), windows, events)


def marked(chart: Chart, windows: pl.DataFrame, events: pl.DataFrame) -> Chart:
    """The chart with lines at what happened and a shade while an instance was out of service."""
    end_s = float(windows["t_s"].max() or 0.0)  # type: ignore[arg-type]
    factor, _ = time_axis(end_s)
    free = -1.0
    for row in events.sort("t_s").head(10 * MOST).iter_rows(named=True):
        if row["kind"] == "instance_down":
            until = end_s if row["end_s"] is None else row["end_s"]
            chart.figure.add_vrect(
                x0=row["t_s"] * factor, x1=until * factor, fillcolor=FAULT, opacity=0.1,
                line_width=0, layer="below",
            )  # fmt: skip
        elif row["kind"] in MARKS:
            _mark(chart.figure, row, factor, named=row["t_s"] >= free)
            free = max(free, row["t_s"] + 0.04 * end_s)
    kinds = events["kind"].value_counts().sort("kind").iter_rows()
    told = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in kinds)
    return Chart(chart.figure, f"{chart.alt} Marked: {told}.")


def _mark(fig: go.Figure, row: Mapping[str, Any], factor: float, *, named: bool) -> None:
    sign, colour = MARKS[row["kind"]]
    fig.add_vline(
        x=row["t_s"] * factor, line={"color": colour, "width": 1.4},
        annotation_text=sign if named else "", annotation_position="top",
        annotation_font={"size": 13, "color": colour},
    )  # fmt: skip
