"""Charts of instances that come and go, of a day by hour, and of the memory pool."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from twin.metrics.measures import amount, numbered, seconds
from twin.ui import theme
from twin.ui.charts import OVER_TIME, base, timeline
from twin.ui.charts.base import Chart, chart, figure, mark_at, span_chart

STATES = {
    "process": ("starts", "#C9CDD8"),
    "fetch": ("fetches weights", theme.PLANE["vpc"]),
    "load": ("loads weights", theme.ROLE["memory_pool"]),
    "graphs": ("makes graphs", theme.PLANE["rdma"]),
    "drain": ("drains", theme.OTHER),
    "down": ("is down", theme.SERIES[3]),
}
ROLES = ("prefill", "decode", "colocated")
HOURS = {
    "npu_hours_used": ("computing", theme.ROLE["decode"]),
    "npu_hours_idle": ("without work", theme.OTHER),
}
# Panels of a day: title, columns with label and colour, unit.
DAY = {
    "NPUs by pool": (OVER_TIME["npus"]["columns"], "NPUs"),
    "NPU-hours used and wasted": (HOURS, "NPU-hours"),
    "Energy": ({"energy_kwh": ("energy", theme.SERIES[2])}, "kWh"),
    "Prompt tokens found cached": ({"hit_percent": ("hit ratio", theme.ROLE["prefill"])}, "%"),
    "Memory pool used": ({"pool_percent": ("DRAM used", theme.ROLE["memory_pool"])}, "%"),
    "Requests that came": ({"arrived": ("requests", theme.SERIES[0])}, "requests"),
}
TIERS = {"pool_read": ("DRAM", theme.ROLE["memory_pool"]), "ssd_read": ("SSD", theme.SERIES[4])}
MOST = 60  # rows of a picture


def lives(table: pl.DataFrame, horizon_s: float, warmup_s: float = 0.0) -> Chart:
    """Chart of instances over time, a row each by its first NPU, with a bar for each state."""
    key_columns = [name for name in ("role", "instance", "model") if name in table.columns]
    instances = table.group_by(key_columns).agg(pl.col("first_npu").first())
    instances = instances.sort("first_npu", "role", "instance").head(MOST)
    row_names = [_instance_name(row) for row in instances.iter_rows(named=True)]
    series: dict[str, tuple[str, list[tuple[str, float, float, str]]]] = {}
    styles = {role: (f"{role} serves", theme.ROLE[role]) for role in ROLES} | STATES
    for state, (label, colour) in styles.items():
        series[label] = colour, [
            (name, row["t_s"], row["end_s"], f"{label} for {row['end_s'] - row['t_s']:,.4g} s")
            for row in table.iter_rows(named=True)
            if (name := _instance_name(row)) in row_names
            and state == (row["role"] if row["state"] == "serve" else row["state"])
        ]  # fmt: skip
    drains_text = numbered(table.filter(pl.col("state") == "drain").height, "drain")
    alt = f"{numbered(instances.height, 'instance')} over the run; {drains_text}."
    reads = "Each row is an instance: what it costs lasts from its start to the end of its drain."
    return span_chart(row_names, series, alt, reads, horizon_s=horizon_s, warmup_s=warmup_s)


def _instance_name(row: dict[str, Any]) -> str:
    """Name of an instance, with its model where there are several."""
    return f"{row['role']} {row['instance']}" + (f", {row['model']}" if "model" in row else "")


def pressures(decisions: pl.DataFrame, column: str, marks: tuple[float, float] | None) -> Chart:
    """Chart of a `column` of the pools' decisions over time, with marks (high, low) if any."""
    columns = {f"{role}_{column}": (role, theme.ROLE[role]) for role in ROLES
               if f"{role}_{column}" in decisions.columns}  # fmt: skip
    unit = "instances needed" if column == "needed" else "pressure, 1 at its limit"
    chart = timeline(
        decisions.with_columns(t_s="seen_s"), columns, unit,
        reads="What the controller saw; where it has marks, it acts on a pool that leaves the band "
        "between them.",
    )  # fmt: skip
    for name, side, mark in zip(("high", "low"), ("top", "bottom"), marks or (), strict=False):
        mark_at(chart.figure, f"{name} mark", f"{side} left", y=mark)
    return chart


def hourly_bars(hours: pl.DataFrame, columns: Mapping[str, tuple[str, str]], unit: str) -> Chart:
    """Chart of stacked bars, one per hour; `columns`: its name -> (label, colour)."""
    fig, sentences = figure(height=240), []
    for name, (label, colour) in columns.items():
        if name not in hours.columns or not hours[name].max():
            continue
        fig.add_bar(
            x=hours["hour"].to_list(), y=hours[name].to_list(), name=label,
            marker={"color": colour, "line_width": 0}, hovertemplate="%{y:,.3~g} " + unit,
        )  # fmt: skip
        rows = hours.with_columns(pl.col(name).fill_null(0.0))
        low_row, high_row = (rows.row(int(k or 0), named=True)
                       for k in (rows[name].arg_min(), rows[name].arg_max()))  # fmt: skip
        sentences.append(
            f"{label}: {amount(low_row[name], 'rate', unit)} at least, in hour {low_row['hour']}, "
            f"{amount(high_row[name], 'rate', unit)} at most, in hour {high_row['hour']}"
        )
    return chart(
        fig, f"{unit} by hour. " + "; ".join(sentences) + ".", "Each bar is one hour of the day.",
        x={"title_text": "hour", "dtick": max(1, hours.height // 8)}, y={"title_text": unit},
        barmode="stack", showlegend=len(sentences) > 1, bargap=0.15,
    )  # fmt: skip


def tiers(windows: pl.DataFrame, traffic: pl.DataFrame, warmup_s: float) -> base.Chart:
    """Chart of the bytes/s read from each tier of the memory pool over simulated time."""
    reads = traffic.filter(pl.col("traffic").is_in(list(TIERS)))
    bytes_by_tier = reads.pivot("traffic", index="t_s", values="bytes", aggregate_function="sum")
    table = windows.select("t_s", "window_s").join(bytes_by_tier, on="t_s", how="left")
    tier_bytes = pl.col([tier for tier in TIERS if tier in bytes_by_tier.columns])
    table = table.with_columns(tier_bytes.fill_null(0.0) / pl.col("window_s"))
    caption = "What DRAM has lost comes from SSD, in addition to the reads from DRAM."
    return timeline(table, TIERS, "GB/s", scale=1e-9, warmup_s=warmup_s, reads=caption)


def namespaces(hits: pl.DataFrame, names: Sequence[str], warmup_s: float) -> base.Chart:
    """Chart of the hit ratio of each tenant's namespace over time; hits: a column per tenant."""
    styles = zip(names, itertools.cycle(theme.SERIES), strict=False)
    columns = {str(k): style for k, style in enumerate(styles)}
    reads = "Each tenant hits only blocks of its own namespace."
    return timeline(hits, columns, "%", scale=100, top=101, warmup_s=warmup_s, reads=reads)


def servers(reads: pl.DataFrame, warmup_s: float, *, dark: bool = False) -> base.Chart:
    """Map of the bytes/s read from each memory server over simulated time, a row a node."""
    nodes, times_s = reads["node"].unique().sort(), reads["t_s"].unique().sort()
    reads, shape = reads.sort("node", "t_s"), (nodes.len(), times_s.len())
    rates = (reads["read_bytes"] / reads["window_s"]).to_numpy().reshape(shape) / 1e9
    delay_texts = [f", held reads back by {seconds(s)}" if s > 0 else "" for s in reads["held_s"]]
    factor, unit = base.time_axis(float(times_s[-1]))
    fig = base.figure(height=140 + 10 * nodes.len())
    base.add_heat_map(
        fig, rates, dark=dark, x=times_s.to_numpy() * factor, y=[f"node {node}" for node in nodes],
        ygap=1, colorbar={"ticksuffix": " GB/s"},
        customdata=np.array(delay_texts).reshape(shape),
        hovertemplate="%{y}, %{x:.3~g} " + unit + "<br>%{z:.3~g} GB/s%{customdata}<extra></extra>",
    )  # fmt: skip
    base.shade_warm_up(fig, warmup_s * factor)
    node_means = rates.mean(axis=1)
    return base.chart(
        fig, f"Read from {nodes.len()} memory servers over simulated time: on average "
        f"{np.mean(node_means):.3g} GB/s each, node {nodes[int(np.argmax(node_means))]} most with "
        f"{np.max(node_means):.3g}.",
        "Each row is the DRAM of a node: a row that is hotter than others holds blocks that many "
        "prompts share.", x={"title_text": f"simulated time ({unit})"},
        y={"autorange": "reversed", "showgrid": False}, margin={"t": 8},
    )  # fmt: skip
