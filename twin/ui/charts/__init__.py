"""Charts: a table in, a plotly figure and its alternative text out.

What they are built of stands in `base`. A series has a few hundred points at most (of a
distribution, quantiles). Streamlit, runs, stores are unknown here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from twin.metrics.measures import amount, seconds, three_figures
from twin.metrics.registry import METRICS
from twin.ui import theme
from twin.ui.charts.base import (
    Chart,
    Curve,
    bars,
    empty,
    figure,
    heat,
    line_at,
    time_axis,
    time_unit,
    warm_up,
)

__all__ = ["Chart", "Curve", "empty", "figure"]

QUANTILES = 240  # points of a distribution curve
TOP_OPERATORS = 5  # bands of a stacked picture before the rest is one band
TOP_BESIDE = 8  # operators told apart where several runs stand beside each other


def distribution(curves: Sequence[Curve], slo_s: float | None = None) -> Chart:
    """Cumulative distribution of durations, with the SLO as a line. Values in seconds."""
    cut = [(curve, _quantiles(curve.values)) for curve in curves]
    known = [(curve, points) for curve, points in cut if points is not None]
    if not known:
        return empty("No finished request to show")
    right = max(float(x[round(0.995 * (QUANTILES - 1))]) for _, (x, _) in known)
    if slo_s is not None and slo_s < 2.5 * right:
        right = max(right, 1.08 * slo_s)
    factor, unit = time_unit(right)
    fig = figure()
    sentences = []
    for curve, (x, y) in known:
        hover = f"%{{y:.1f}} % within %{{x:,.3~g}} {unit}<extra>{curve.name}</extra>"
        fig.add_scatter(
            x=x * factor, y=100 * y, mode="lines", name=curve.name, hovertemplate=hover,
            line={"color": curve.colour, "width": 2.4},
        )  # fmt: skip
        half, late = np.interp([0.5, 0.99], y, x)
        sentences.append(f"{curve.name}: half within {seconds(half)}, 99 % within {seconds(late)}")
    if slo_s is not None and slo_s <= right:
        line_at(fig, f"SLO {seconds(slo_s)}", "top left", x=slo_s * factor)
    fig.update_layout(hovermode="closest", showlegend=len(known) > 1)
    fig.update_xaxes(range=[0, right * factor], title_text=unit, showgrid=True)
    fig.update_yaxes(range=[0, 101], ticksuffix=" %", title_text="of requests")
    return Chart(fig, "Cumulative distribution. " + "; ".join(sentences) + ".")


def _quantiles(values: object) -> tuple[np.ndarray, np.ndarray] | None:
    array = values.to_numpy() if isinstance(values, pl.Series) else np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    if not array.size:
        return None
    share = np.linspace(0.0, 1.0, QUANTILES)
    return np.quantile(array, share), share


def timeline(
    windows: pl.DataFrame,
    columns: Mapping[str, tuple[str, str]],
    y_title: str,
    *,
    stacked: bool = False,
    scale: float = 1.0,
    warmup_s: float = 0.0,
    top: float | None = None,
) -> Chart:
    """Columns of the windows table over simulated time; `columns` maps name to (label, colour).

    `scale` turns SI into the unit that y_title names; `top` fixes the upper end of the axis.
    """
    present = {c: v for c, v in columns.items() if c in windows.columns}
    # What is nothing all along (a pool that is not there) would only be a line on the axis.
    present = {c: v for c, v in present.items() if windows[c].max()} or present
    if not windows.height or not present:
        return empty("Nothing was recorded")
    time_factor, time_unit = time_axis(float(windows["t_s"].max() or 0.0))  # type: ignore[arg-type]
    t = windows["t_s"].to_numpy() * time_factor
    fig = figure(height=260)
    sentences = []
    for column, (label, colour) in present.items():
        values = windows[column].cast(pl.Float64).to_numpy() * scale
        line = {"color": colour, "width": 0.8 if stacked else 2}
        fig.add_scatter(
            x=t, y=values, mode="lines", name=label, line=line,
            stackgroup="all" if stacked else None, fillcolor=colour if stacked else None,
            hovertemplate="%{y:,.3~s}" if top is None else "%{y:.1f}",
        )  # fmt: skip
        mean, peak = np.nanmean(values), np.nanmax(values)
        figures = f"{three_figures(float(mean))} on average, {three_figures(float(peak))} at most"
        sentences.append(f"{label} {figures}")
    until = warmup_s * time_factor
    wide = until > 0.1 * float(t.max())  # else the word would lie on the data
    warm_up(fig, until, "warm-up" if wide else "")
    fig.update_layout(showlegend=len(present) > 1)
    fig.update_xaxes(title_text=f"simulated time ({time_unit})", range=[0, float(t.max())])
    fig.update_yaxes(title_text=y_title, range=None if top is None else [0, top])
    return Chart(fig, f"{y_title} over simulated time. " + "; ".join(sentences) + ".")


# Figures of the windows that a page shows over time: columns with label and colour, what the axis
# says, and how they are drawn (see `timeline`).
OVER_TIME: dict[str, dict[str, Any]] = {
    "waiting": {
        "columns": {
            "prefill_queue": ("for prefill", theme.STAGE["prefill_queue"]),
            "router_queue": ("for a place", theme.STAGE["router"]),
            "front_end_queue": ("at the front end", theme.STAGE["front_end"]),
        },
        "y_title": "requests waiting",
        "stacked": True,
    },
    "running": {
        "columns": {
            "decode_running": ("decode", theme.STAGE["decode"]),
            "prefill_running": ("prefill", theme.STAGE["prefill"]),
            "transfer_running": ("KV transfer", theme.STAGE["kv_transfer"]),
        },
        "y_title": "requests being served",
    },
    "output": {
        "columns": {"output_tokens_per_s": ("output tokens", theme.ROLE["decode"])},
        "y_title": "output tokens/s, whole machine",
    },
    "input": {
        "columns": {"input_tokens_per_s": ("input tokens", theme.ROLE["prefill"])},
        "y_title": "input tokens/s, whole machine",
    },
    "busy": {
        "columns": {
            "decode_busy": ("decode busy, of the time", theme.ROLE["decode"]),
            "prefill_busy": ("prefill busy, of the time", theme.ROLE["prefill"]),
            "hbm_utilisation": ("HBM bandwidth", theme.SERIES[4]),
            "cube_utilisation": ("cube cores", theme.SERIES[2]),
        },
        "y_title": "%",
        "scale": 100,
        "top": 101,
    },
    "pool": {
        "columns": {
            "hit_token_ratio": ("hit ratio", theme.ROLE["prefill"]),
            "pool_used_fraction": ("DRAM used", theme.ROLE["memory_pool"]),
        },
        "y_title": "%",
        "scale": 100,
        "top": 101,
    },
    "power": {
        "columns": {"power_w": ("power of the NPUs that serve", theme.SERIES[2])},
        "y_title": "kW",
        "scale": 1e-3,
    },
    "planes": {
        "columns": {
            f"{plane}_utilisation": (theme.title(plane), colour)
            for plane, colour in theme.PLANE.items()
        },
        "y_title": "% of capacity",
        "scale": 100,
    },
}


def over_time(name: str, windows: pl.DataFrame, warmup_s: float = 0.0) -> Chart:
    """One of OVER_TIME."""
    return timeline(windows, **OVER_TIME[name], warmup_s=warmup_s)


def stages(rows: Mapping[str, Sequence[tuple[str, float]]]) -> Chart:
    """Where the TTFT went: one stacked bar a row, parts as (stage, mean seconds)."""
    total = max((sum(value for _, value in parts) for parts in rows.values()), default=0.0)
    if total <= 0:
        return empty("No first token was made")
    factor, unit = time_unit(total)
    names = list(rows)
    # A stage that takes no time at all would only be a word in the legend.
    order = list(dict.fromkeys(stage for parts in rows.values() for stage, v in parts if v > 0))
    fig = figure(height=96 + 44 * len(rows) + 14 * len(order))  # the legend in one column
    for stage in order:
        values = [dict(rows[name]).get(stage, 0.0) for name in names]
        bars(
            fig, names, [v * factor for v in values], stage_colour(stage), name=stage_title(stage),
            text=[seconds(v) if v > 0.09 * total else "" for v in values],
            textposition="inside", insidetextanchor="middle",
            customdata=[seconds(v) for v in values], hover="%{customdata}",
        )  # fmt: skip
    fig.update_layout(barmode="stack", hovermode="y unified", bargap=0.3)
    fig.update_layout(legend={"traceorder": "normal"})
    fig.update_xaxes(title_text=f"mean time ({unit})")
    fig.update_yaxes(showticklabels=len(rows) > 1)
    sentences = [
        f"{name}: " + ", ".join(f"{stage_title(s).lower()} {seconds(v)}" for s, v in parts)
        for name, parts in rows.items()
    ]
    return Chart(fig, "Mean time to first token by stage. " + "; ".join(sentences) + ".")


def stage_title(stage: str) -> str:
    """A stage of the TTFT as a person reads it."""
    return METRICS[f"ttft_{stage}_s_mean"].label


def stage_colour(stage: str) -> str:
    """A stage's colour; the first decode iteration wears decode's."""
    return theme.STAGE.get(stage) or (theme.ROLE["decode"] if "decode" in stage else theme.OTHER)


def iteration_over_time(
    windows: pl.DataFrame, warmup_s: float = 0.0, in_sequence: bool = True
) -> Chart:
    """The decode iteration over time; its operators stacked where they run `in_sequence`.

    Of two streams a run books the longer one: its operators would come and go with the load.
    """
    if not in_sequence:
        whole = {"decode_iteration_s": ("decode iteration", theme.ROLE["decode"])}
        return timeline(windows, whole, "ms per iteration", scale=1e3, warmup_s=warmup_s)
    names = [c for c in windows.columns if c.startswith("decode_") and c.endswith("_s")]
    names = [c for c in names if c != "decode_iteration_s"]
    if not names:
        return empty("No decode iteration ran")
    mean = {c: float(windows[c].mean() or 0.0) for c in names}  # type: ignore[arg-type]
    names.sort(key=lambda c: (-mean[c], c))
    rest = windows.select(
        rest=pl.sum_horizontal(*names[TOP_OPERATORS:]) if names[TOP_OPERATORS:] else pl.lit(0.0)
    )
    columns = {}
    for column in names[:TOP_OPERATORS]:
        operator = column.removeprefix("decode_").removesuffix("_s")
        columns[column] = (theme.title(operator), theme.operator_colour(operator))
    columns["rest"] = ("all other", theme.OTHER)
    return timeline(
        windows.with_columns(rest), columns, "ms per iteration", stacked=True, scale=1e3,
        warmup_s=warmup_s,
    )  # fmt: skip


def shares(rows: Sequence[tuple[str, float, str]]) -> Chart:
    """Horizontal bars of shares 0..1 as (label, share, colour), on one axis to 100 %."""
    if not rows:
        return empty("Nothing was recorded")
    fig = figure(height=70 + 30 * len(rows))
    labels, values, colours = zip(*rows, strict=True)
    bars(
        fig, labels, [100 * share for share in values], list(colours),
        text=[amount(share, "share") for share in values], textposition="outside",
    )  # fmt: skip
    fig.update_layout(hovermode="closest", showlegend=False, bargap=0.35, margin={"t": 8})
    fig.update_xaxes(range=[0, 112], tickvals=[0, 25, 50, 75, 100], ticksuffix=" %")
    listing = "; ".join(f"{label} {amount(share, 'share')}" for label, share, _ in rows)
    return Chart(fig, listing + ".")


def dies(
    ranks: pl.DataFrame, column: str, label: str, *, percent: bool, dark: bool = False
) -> Chart:
    """One figure of every die in use as a map: nodes across, the dies of a node down."""
    if not ranks.height or column not in ranks.columns:
        return empty("No die served")
    per_node = int(ranks.group_by("node").len()["len"].max() or 1)  # type: ignore[arg-type]
    nodes = int(ranks["node"].max() or 0) + 1  # type: ignore[arg-type]
    per_node = max(per_node, int((ranks["die"] - ranks["die"].min()).max() or 0) // nodes + 1)  # type: ignore[arg-type]
    field = np.full((per_node, nodes), np.nan)
    hover = np.full((per_node, nodes), "not in use", dtype=object)
    for row in ranks.iter_rows(named=True):
        cell = (row["die"] % per_node, row["node"])
        value = row[column]
        field[cell] = (100 if percent else 1) * value if value is not None else math.nan
        hover[cell] = f"{row['role']} {row['instance']}, rank {row['rank']}, die {row['die']}"
    unit = " %" if percent else ""
    fig = figure(height=120 + 14 * per_node, margin={"t": 8})
    heat(
        fig, field, dark=dark, customdata=hover, xgap=1.5, ygap=1.5, hoverongaps=False,
        zmax=100 if percent else None, colorbar={"ticksuffix": unit},
        hovertemplate=f"%{{customdata}}<br>{label} %{{z:.3~g}}{unit}<extra></extra>",
    )  # fmt: skip
    fig.update_xaxes(title_text="node", constrain="domain")
    fig.update_yaxes(title_text="die in node", autorange="reversed", showgrid=False)
    low, high = np.nanmin(field), np.nanmax(field)
    span = f"from {three_figures(float(low))}{unit} to {three_figures(float(high))}{unit}"
    return Chart(fig, f"{label} of {ranks.height:,} dies in use, {span}.")


def operators_beside(runs: Mapping[str, tuple[str, Mapping[str, float]]]) -> Chart:
    """Seconds by operator of several runs, a bar each: runs maps name to (colour, seconds)."""
    each = {name: times for name, (_, times) in runs.items() if sum(times.values()) > 0}
    if not each:
        return empty("No iteration ran")
    longest: dict[str, float] = {}
    for times in each.values():
        for operator, value in times.items():
            longest[operator] = max(longest.get(operator, 0.0), value)
    order = sorted((o for o in longest if longest[o] > 0), key=lambda o: (-longest[o], o))
    order, rest = order[:TOP_BESIDE], order[TOP_BESIDE:]
    names = [theme.title(o) for o in order] + ["All other"] * bool(rest)
    factor, unit = time_unit(max(longest.values()))
    fig = figure(height=90 + (12 + 11 * len(each)) * len(names))
    for name, times in each.items():
        values = [times.get(operator, 0.0) for operator in order]
        values += [sum(times.get(operator, 0.0) for operator in rest)] * bool(rest)
        bars(
            fig, names, [v * factor for v in values], runs[name][0], name=name,
            customdata=[seconds(v) for v in values], hover="%{customdata}",
        )  # fmt: skip
    fig.update_layout(barmode="group", hovermode="y unified", bargap=0.25, bargroupgap=0.08)
    fig.update_layout(legend={"traceorder": "normal"}, showlegend=len(each) > 1)
    fig.update_xaxes(title_text=f"{unit} per iteration")
    listing = "; ".join(f"{name}: {seconds(sum(times.values()))}" for name, times in each.items())
    return Chart(fig, f"Time of an iteration by operator. In all {listing}.")
