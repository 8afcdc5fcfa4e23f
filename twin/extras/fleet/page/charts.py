"""A fleet over time: supernodes as rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from twin.metrics.registry import Metric
from twin.ui.charts.base import Chart, add_heat_map, chart, empty_chart, figure, time_axis

# What is drawn of each hour: key -> what it is called, factor from SI, unit.
DRAWN = {
    "tpot_s": ("TPOT, mean", 1e3, "ms"),
    "rate_req_per_s": ("Requests per second", 1.0, "req/s"),
    "slo_attainment": ("SLO met", 100.0, "%"),
}


def over_time_chart(answer: Mapping[str, Any], key: str, *, dark: bool = False) -> Chart:
    """Map of a figure (of DRAWN) of each supernode (down) in each hour of the fleet (across)."""
    label, scale, unit = DRAWN[key]
    rows = answer["rows"]
    values = np.array([row["hours"][key] for row in rows], dtype=float) * scale
    if np.isnan(values).all():
        return empty_chart("No request finished")
    hours, length_s = values.shape[1], answer["hour_s"]
    factor, time_unit = time_axis(hours * length_s)
    names = [row["name"] for row in rows]
    fig = figure(height=150 + 26 * len(rows))
    add_heat_map(
        fig, values, dark=dark, x=(np.arange(hours) + 0.5) * length_s * factor, y=names, ygap=1,
        zmax=float(np.nanmax(values)),
        hovertemplate=f"%{{y}}, at %{{x:.3~g}} {time_unit}<br>%{{z:,.4~g}} {unit}<extra></extra>",
        colorbar={"title": {"text": unit, "side": "top"}},
    )  # fmt: skip
    least, most = (
        f"{values.flat[position]:,.4g} {unit} at {names[position // hours]}"
        for position in (np.nanargmin(values), np.nanargmax(values))
    )
    return chart(
        fig, f"{label} of {len(rows)} rows of supernodes over time: least {least}; most {most}.",
        "Each row is one supernode, or several that are alike. Empty: nothing finished there.",
        x={"title_text": f"simulated time ({time_unit})"},
        y={"autorange": "reversed", "type": "category"},
    )  # fmt: skip


IN_MS = "tpot_s"  # the metrics whose seconds the table shows as ms begin so


def column_header(metric: Metric) -> str:
    """Header of a metric's column: its name, and its unit unless it is a count or share."""
    name = metric.short or metric.label
    unit = "ms" if metric.key.startswith(IN_MS) else metric.unit
    return name if metric.kind in ("count", "share") or unit == name else f"{name} ({unit})"


def cell_value(metric: Metric, value: float | None) -> float | None:
    """A metric's figure in the unit of its column: ms where it is a TPOT."""
    return 1e3 * value if value is not None and metric.key.startswith(IN_MS) else value
