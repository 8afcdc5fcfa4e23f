"""Charts of instances that come and go: their lives, NPUs by pool, what a controller saw."""

from __future__ import annotations

import polars as pl

from twin.ui import theme
from twin.ui.charts import timeline
from twin.ui.charts.base import Chart, bars, figure, line_at, time_axis, warm_up

STATES = {
    "process": ("starts", "#C9CDD8"),
    "fetch": ("fetches weights", theme.PLANE["vpc"]),
    "load": ("loads weights", theme.ROLE["memory_pool"]),
    "graphs": ("makes graphs", theme.PLANE["rdma"]),
    "drain": ("drains", theme.OTHER),
}
NPUS = {
    "decode_npus": ("decode", theme.ROLE["decode"]),
    "prefill_npus": ("prefill", theme.ROLE["prefill"]),
    "changing_npus": ("starting or draining", theme.OTHER),
}
MOST = 60  # rows of a picture


def lives(table: pl.DataFrame, horizon_s: float, warmup_s: float = 0.0) -> Chart:
    """A row per instance that ever lived, sorted by its NPUs, with a bar for each state."""
    factor, unit = time_axis(horizon_s)
    first = pl.col("npus").sum(), pl.col("first_npu").first()
    known = table.group_by("role", "instance").agg(*first)
    known = known.sort("first_npu", "role", "instance").head(MOST)
    names = {(r["role"], r["instance"]): f"{r['role']} {r['instance']}"
             for r in known.iter_rows(named=True)}  # fmt: skip
    fig = figure(height=90 + 20 * len(names))
    looks = {role: (f"{role} serves", theme.ROLE[role]) for role in ("prefill", "decode")} | STATES
    of = pl.when(pl.col("state") == "serve").then(pl.col("role")).otherwise(pl.col("state"))
    for state, (label, colour) in looks.items():
        rows = [r for r in table.filter(of == state).iter_rows(named=True)
                if (r["role"], r["instance"]) in names]  # fmt: skip
        if rows:
            bars(
                fig, [names[r["role"], r["instance"]] for r in rows],
                [max(r["end_s"] - r["t_s"], 0.002 * horizon_s) * factor for r in rows],
                colour, base=[r["t_s"] * factor for r in rows], name=label,
                customdata=[r["end_s"] - r["t_s"] for r in rows],
                hover="%{y} " + label + ": from %{base:,.4~g} " + unit
                      + ", %{customdata:,.4~g} s<extra></extra>",
            )  # fmt: skip
    warm_up(fig, warmup_s * factor)
    fig.update_layout(barmode="overlay", hovermode="closest", bargap=0.25, showlegend=True)
    fig.update_xaxes(range=[0, horizon_s * factor], title_text=f"simulated time ({unit})")
    fig.update_yaxes(nticks=len(names), categoryorder="array", categoryarray=list(names.values()))
    count = table.filter(pl.col("state") == "drain").height
    return Chart(fig, f"{known.height} instances over the run; {count} times one drained.")


def npus(windows: pl.DataFrame, warmup_s: float) -> Chart:
    """NPUs by pool over time, stacked."""
    return timeline(windows, NPUS, "NPUs", stacked=True, warmup_s=warmup_s)


def pressures(decisions: pl.DataFrame, column: str, high: float, low: float) -> Chart:
    """What the controller saw of both pools over time, with its marks."""
    seen = decisions.with_columns(t_s=pl.col("seen_s"))
    columns = {
        f"{role}_{column}": (role, theme.ROLE[role]) for role in ("prefill", "decode")
    }  # fmt: skip
    chart = timeline(seen, columns, "pressure, 1 at its limit")
    line_at(chart.figure, "high mark", "top left", y=high)
    line_at(chart.figure, "low mark", "bottom left", y=low)
    return chart
