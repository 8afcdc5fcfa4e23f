"""Charts of a day at a glance: NPUs by pool, energy and hit ratio, hour by hour."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from twin.metrics.measures import amount
from twin.ui import theme
from twin.ui.charts.base import Chart, figure

POOLS = {
    "decode_npus": ("decode", theme.ROLE["decode"]),
    "colocated_npus": ("colocated", theme.ROLE["decode"]),
    "prefill_npus": ("prefill", theme.ROLE["prefill"]),
    "changing_npus": ("starting or draining", theme.OTHER),
}
HOURS = {
    "npu_hours_used": ("computing", theme.ROLE["decode"]),
    "npu_hours_idle": ("without work", theme.OTHER),
}
ENERGY = {"energy_kwh": ("energy", theme.SERIES[2])}
REQUESTS = {"arrived": ("requests", theme.SERIES[0])}
HITS = {"hit_percent": ("hit ratio", theme.ROLE["memory_pool"])}


def hourly(hours: pl.DataFrame, columns: Mapping[str, tuple[str, str]], unit: str) -> Chart:
    """Stacked bars, one an hour; `columns` maps name to (label, colour)."""
    fig = figure(height=240)
    told = []
    for name, (label, colour) in columns.items():
        if name not in hours.columns or not hours[name].max():
            continue
        values = hours[name].to_list()
        fig.add_bar(
            x=hours["hour"].to_list(), y=values, name=label,
            marker={"color": colour, "line_width": 0}, hovertemplate="%{y:,.3~g} " + unit,
        )  # fmt: skip
        most = max(range(len(values)), key=lambda k: values[k] or 0.0)
        least = min(range(len(values)), key=lambda k: values[k] or 0.0)
        told.append(
            f"{label}: {amount(values[least] or 0.0, 'rate', unit)} at least, in hour "
            f"{hours['hour'][least]}, {amount(values[most] or 0.0, 'rate', unit)} at most, in "
            f"hour {hours['hour'][most]}"
        )
    fig.update_layout(barmode="stack", showlegend=len(told) > 1, bargap=0.15)
    fig.update_xaxes(title_text="hour", dtick=max(1, hours.height // 8))
    fig.update_yaxes(title_text=unit, rangemode="tozero")
    return Chart(fig, f"{unit} by hour. " + "; ".join(told) + ".")
