"""Parts of charts: template, bars, lines, maps, marks; text and grid get the page's colours."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas  # noqa: F401 - plotly takes it from sys.modules, where it may be half loaded
import plotly.graph_objects as go
import polars as pl

from twin.ui import theme

LEGEND = 32  # characters of a name in a legend
VISIBLE = 0.003  # share of a time axis; shorter spans are drawn with this length
CROSSHAIR = {
    "showspikes": True, "spikemode": "across", "spikesnap": "cursor", "spikethickness": 1,
    "spikedash": "dot", "spikecolor": theme.OTHER,
}  # fmt: skip
TEMPLATE = go.layout.Template(
    layout={
        "margin": {"l": 8, "r": 16, "t": 34, "b": 8},
        "height": 300,
        "hovermode": "x unified",
        "hoverlabel": {"namelength": -1},
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom",
            "title": {"text": ""}, "itemsizing": "constant",
        },
        "bargap": 0.35,
        "modebar": {"orientation": "h", "bgcolor": "rgba(0,0,0,0)", "color": theme.OTHER,
                    "activecolor": theme.SERIES[0]},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {"zeroline": False, "showgrid": False, "automargin": True,
                  "separatethousands": True, "title": {"standoff": 8}, **CROSSHAIR},
        "yaxis": {"zeroline": False, "rangemode": "tozero", "automargin": True,
                  "separatethousands": True, "nticks": 6, "title": {"standoff": 22}, **CROSSHAIR},
    }
)  # fmt: skip


class Chart(NamedTuple):
    """A figure, its alternative text, and a sentence below it that says how to read it."""

    figure: go.Figure
    alt: str
    reads: str = ""


class Curve(NamedTuple):
    """One series: its name, its colour, its numbers (seconds for times)."""

    name: str
    colour: str
    values: Sequence[float] | np.ndarray | pl.Series


def shorten(name: str) -> str:
    """The name, cut in its middle if it is too long for a legend on a phone.

    >>> shorten("Quick start, 8 prefill instances and a larger memory pool")
    'Quick start, 8 pre…ger memory pool'
    """
    return name if len(name) <= LEGEND else f"{name[: LEGEND // 2 + 2]}…{name[-LEGEND // 2 + 1 :]}"


def figure(height: int = 300) -> go.Figure:
    """An empty figure in the common template."""
    return go.Figure(layout=go.Layout(TEMPLATE.layout)).update_layout(height=height)


def chart(
    fig: go.Figure, alt: str, reads: str, *, x: Mapping[str, Any] = {},
    y: Mapping[str, Any] = {}, columns: Mapping[str, str] = {}, **layout: Any,
) -> Chart:  # fmt: skip
    """Make a Chart of a figure and its alternative text (`alt`).
    reads: caption on how to read it, dropped if the figure is empty. x, y: plotly's properties of
    the axes. columns: names of "x", "y" and "z" in the CSV, if those of the axes do not fit."""
    fig.update_layout(xaxis=dict(x), yaxis=dict(y), **layout)
    if columns:
        fig.update_layout(meta=dict(columns))
    return Chart(fig, alt, reads if fig.data else "")


def empty_chart(message: str) -> Chart:
    """A figure with only a sentence that says why there is no chart."""
    fig, hidden_axis = figure(height=120), {"visible": False}
    fig.add_annotation(text=message, showarrow=False, font={"color": theme.OTHER, "size": 14})
    return chart(fig, f"{message}.", "", x=hidden_axis, y=hidden_axis)


def add_bars(
    fig: go.Figure, names: Sequence[str], values: Sequence[float | None],
    colour: str | Sequence[str], *, hover: str = "%{y}: %{text}<extra></extra>", **trace: Any,
) -> None:  # fmt: skip
    """Add horizontal bars to a figure, the first name at the top; trace: plotly's properties."""
    fig.add_bar(
        y=list(names), x=list(values), orientation="h", cliponaxis=False, hovertemplate=hover,
        marker={"color": colour, "line_width": 0}, **{"name": "", "textangle": 0} | trace,
    )  # fmt: skip
    fig.update_xaxes(showgrid=True)
    fig.update_yaxes(autorange="reversed", nticks=len(names))


def span_chart(
    rows: Sequence[str], series: Mapping[str, tuple[str, Sequence[tuple[str, float, float, str]]]],
    alt: str, reads: str, row: str, *, horizon_s: float, warmup_s: float = 0.0,
) -> Chart:  # fmt: skip
    """Chart of rows with bars that span simulated time. series: label -> (colour, bars), a bar is
    (row, begin_s, end_s, text at the pointer). row: what a row is, a column's name in the CSV."""
    units_per_s, unit = time_axis(horizon_s)
    fig = figure(height=115 + 23 * len(rows))
    for label, (colour, row_spans) in series.items():
        if row_spans:
            row_names, begins_s, ends_s, hover_texts = zip(*row_spans, strict=True)
            durations_s = [end_s - begin_s for begin_s, end_s in zip(begins_s, ends_s, strict=True)]
            add_bars(
                fig, row_names, [units_per_s * max(s, VISIBLE * horizon_s) for s in durations_s],
                colour, base=[units_per_s * begin_s for begin_s in begins_s], name=label,
                meta={"x": [units_per_s * s for s in durations_s]}, customdata=hover_texts,
                hover="%{y}: from %{base:,.4~g} " + unit + ", %{customdata}<extra></extra>",
            )  # fmt: skip
    shade_warm_up(fig, units_per_s * warmup_s)
    return chart(
        fig, alt, reads,
        x={"range": [0, units_per_s * horizon_s], "title_text": f"simulated time ({unit})"},
        y={"nticks": len(rows), "categoryorder": "array", "categoryarray": list(rows)},
        columns={"y": row}, barmode="overlay", hovermode="closest", bargap=0.3, showlegend=True,
    )  # fmt: skip


def add_line(
    fig: go.Figure, x: Iterable[Any], y: Iterable[Any], colour: str, hover: str,
    *, width: float = 2.0, mode: str = "lines", **trace: Any,
) -> None:  # fmt: skip
    """Add a line through the points (x, y) to a figure. hover: plotly's template of the text at the
    pointer. trace: further properties for plotly."""
    line_style = {"color": colour, "width": width}
    fig.add_scatter(x=x, y=y, mode=mode, line=line_style, hovertemplate=hover, **trace)


def add_heat_map(fig: go.Figure, z: np.ndarray, *, dark: bool, **trace: Any) -> None:
    """Add a heat map of z f8[rows, columns] to a figure, with reversed colours if `dark`. trace:
    further properties for plotly."""
    colours = list(reversed(theme.SEQUENTIAL) if dark else theme.SEQUENTIAL)
    bar = {"thickness": 10, "outlinewidth": 0, "len": 0.9, "nticks": 5} | trace.pop("colorbar", {})
    fig.add_heatmap(z=z, colorscale=colours, colorbar=bar, **{"name": "", "zmin": 0} | trace)
    fig.update_layout(hovermode="closest")


def mark_at(fig: go.Figure, label: str, where: str, *, x: float = 0.0, y: float = 0.0) -> None:
    """Add a dashed line: vertical at `x`, or horizontal at `y` if x is 0. where: plotly's name of
    the position of its label."""
    line_options = {
        "line": {"color": theme.OTHER, "width": 1.2, "dash": "dash"}, "annotation_text": label,
        "annotation_position": where, "annotation_font": {"size": 12, "color": theme.OTHER},
    }  # fmt: skip
    fig.add_vline(x=x, **line_options) if x else fig.add_hline(y=y, **line_options)


def shade(
    fig: go.Figure, begin: float, end: float, colour: str, opacity: float, **more: Any
) -> None:
    """Shade the chart from x = begin to x = end, behind the data. more: properties for plotly;
    without a "line" there is no outline."""
    shape_options = {"layer": "below"} | ({"line_width": 0} if "line" not in more else {})
    fig.add_vrect(x0=begin, x1=end, fillcolor=colour, opacity=opacity, **shape_options, **more)


def shade_warm_up(fig: go.Figure, until: float, label: str = "") -> None:
    """Shade the warm-up, from 0 to `until` of the time axis; nothing if it is 0."""
    if until > 0:
        shade(fig, 0, until, theme.OTHER, 0.12, annotation_text=label,
              annotation_position="top left",
              annotation_font={"size": 11, "color": theme.OTHER})  # fmt: skip


def time_unit(largest_s: float) -> tuple[float, str]:
    """(factor from seconds, unit) of an axis of durations up to `largest_s`.

    >>> time_unit(0.02)
    (1000.0, 'ms')
    """
    if largest_s >= 1:
        return 1.0, "s"
    return (1e3, "ms") if largest_s >= 1e-3 else (1e6, "µs")


def time_axis(horizon_s: float) -> tuple[float, str]:
    """(factor from seconds, unit) of an axis of simulated time."""
    if horizon_s <= 900:
        return 1.0, "s"
    return (1 / 60, "min") if horizon_s <= 3 * 3600 else (1 / 3600, "h")
