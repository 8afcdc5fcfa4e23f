"""The chart of the Evidence page: signed errors of the rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from twin.lab.evidence.judge import HONEST
from twin.metrics.measures import three_figures
from twin.ui import theme
from twin.ui.charts.base import Chart, chart, empty_chart, figure

BAND = 0.1
# Errors on the axis, of which those that fit are drawn: close to zero they stand evenly, beyond the
# band by their logarithm, so that one row far off leaves the others their room.
TICKS = (-0.9, -0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
HOVER = (
    "%{customdata[0]}<br>%{customdata[1]}<br>published %{customdata[2]}<br>twin %{customdata[3]}"
    "<br>error %{customdata[4]}<extra></extra>"
)

PUBLISHED = "published, in each row's unit"
# What the points are called, the kinds of row among them, and their symbol.
POINTS = {
    "unseen": (("unseen", "unseen, known family"), "diamond"),
    "seen": (("seen",), "circle"),
    "helped": (("derived", "calibrating", "circular", "unstated"), "circle-open"),
}

Rows = Sequence[Mapping[str, Any]]


def error_chart(rows: Rows) -> Chart:
    """Chart of the signed error (%) of each judged row against its published value."""
    if not rows:
        return empty_chart("No published row to show")
    fig, band_y = figure(height=400), _axis_place(BAND)
    fig.add_hrect(y0=-band_y, y1=band_y, fillcolor=theme.OTHER, opacity=0.22, line_width=0)
    fig.add_hline(y=0, line={"color": theme.OTHER, "width": 1})
    _add_points(fig, rows)
    errors = [row["error"] for row in rows]
    axis_ends = [
        _axis_place(min(1.15 * min(errors), -0.15)),
        _axis_place(max(1.15 * max(errors), 0.15)),
    ]
    axis_ticks = [tick for tick in TICKS if axis_ends[0] <= _axis_place(tick) <= axis_ends[1]]
    worst_row = max(rows, key=lambda row: abs(row["error"]))
    return chart(
        fig, f"Signed error of {len(rows)} rows; the largest is {100 * worst_row['error']:+.1f} % "
        f"for {worst_row['quantity']}, {worst_row['system']}.",
        "Errors of today; unseen rows count above with their first ones. Hollow are rows that a "
        "fit, another row or an unstated setting helped. Above zero the twin says "
        "more than was published; the band is 10 % to each side, and the axis is logarithmic "
        "beyond it.", hovermode="closest", legend_traceorder="normal",
        x={"title_text": PUBLISHED, "type": "log", "dtick": 1, "tickformat": ",~r",
           "showgrid": True},
        y={"title_text": "twin over published, %", "range": axis_ends, "rangemode": "normal",
           "tickvals": [_axis_place(tick) for tick in axis_ticks],
           "ticktext": [f"{100 * tick:+.0f} %" if tick else "0 %" for tick in axis_ticks]},
    )  # fmt: skip


def _axis_place(error: float) -> float:
    """Place of a signed error on the axis: about even within the band, by its logarithm beyond it.

    >>> round(_axis_place(-0.5) + _axis_place(0.5), 9), _axis_place(0.0)
    (0.0, 0.0)"""
    return math.asinh(error / BAND)


def _add_points(fig: Any, rows: Rows) -> None:
    """Add points of judged rows: hollow for kinds of POINTS['helped'], else filled; groups by
    colour."""
    for index, group in enumerate(sorted({row["group"] for row in rows})):
        colour = theme.SERIES[index % len(theme.SERIES)]
        for marker_name, (row_kinds, symbol) in POINTS.items():
            drawn_rows = [r for r in rows if r["group"] == group and r["kind"] in row_kinds]
            if drawn_rows:
                fig.add_scatter(
                    x=[r["published"] for r in drawn_rows],
                    y=[_axis_place(r["error"]) for r in drawn_rows],
                    mode="markers", name=f"{group}, {marker_name}",
                    meta={"y": [100 * r["error"] for r in drawn_rows]},
                    customdata=[
                        [r["quantity"], r["system"],
                         *(f"{three_figures(r[key])} {r['unit']}" for key in ("published", "twin")),
                         f"{100 * r['error']:+.1f} %"] for r in drawn_rows
                    ], hovertemplate=HOVER,
                    marker={"symbol": symbol, "size": 9, "color": colour,
                            "line": {"color": colour, "width": 2 * (marker_name not in HONEST)}},
                )  # fmt: skip
