"""A sweep as pictures: its figures over the field, and throughput against latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from twin.lab.sweep import Axis, Published, knees
from twin.metrics.registry import METRICS, shown
from twin.ui import theme
from twin.ui.charts.base import Chart, empty, figure, line_at, time_unit

PANELS = ("ttft_s_p99", "tpot_s_p99", "tokens_per_s_per_npu")
FOR_USER, PER_NPU = "tpot_s_mean", "decode_tokens_per_s_per_npu"
KEPT, BROKEN = "circle", "circle-open"
PUBLISHED = theme.PLANE["rdma"]
_AIR = 0.04  # of an axis, beside its first and last point


@dataclass(frozen=True, slots=True)
class Ran:
    """A point: where it stands, what came out (empty: nothing yet), whether the SLO is kept."""

    x: Any
    summary: Mapping[str, Any]
    kept: bool
    limits: Mapping[str, float]  # of the metrics that have an SLO, in SI


Series = Mapping[str, Sequence[Ran]]  # by the value of the second field; '' where there is none


def over(axis: Axis, key: str, series: Series) -> Chart:
    """One of PANELS over the swept field; hollow: the SLO is broken; dashed: knee and SLO.

    The axes stand before the first point, with the SLO.
    """
    ran = [p for points in series.values() for p in points]
    values = [p.summary[key] for p in ran if p.summary.get(key)]
    if not values and all(p.summary for p in ran):
        return empty("No point has this figure")
    metric, limits = METRICS[key], {p.limits[key] for p in ran if key in p.limits}
    highest = max([*values, *([] if values else limits)], default=0.0)
    factor, unit = time_unit(highest) if metric.kind == "time" else (1.0, metric.unit)
    fig = figure(height=250, hovermode="closest")
    numeric = not isinstance(axis.values[0], str | bool)
    sentences = []
    for (name, points), colour in zip(series.items(), _colours(series), strict=True):
        known = [p for p in points if p.summary.get(key) is not None]
        _points(
            fig, name, colour, [p.x if numeric else axis.said(p.x) for p in known],
            [p.summary[key] * factor for p in known], known,
            [f"{axis.said(p.x)}: {shown(key, p.summary[key])}" for p in known],
        )  # fmt: skip
        for i in knees([p.kept for p in known]) if numeric else ():
            word = "knee" if len(series) == 1 else ""
            line_at(fig, word, "top left", x=0.5 * (known[i].x + known[i + 1].x))
        sentences.append(", ".join(f"{axis.said(p.x)} {shown(key, p.summary[key])}" for p in known))
    if len(limits) == 1 and highest > 0.3 * (limit := limits.pop()):
        line_at(fig, f"SLO {shown(key, limit)}", "top right", y=limit * factor)
    if not values:
        fig.update_yaxes(range=[0, 1.3 * highest * factor or 1], showticklabels=highest > 0)
    fig.update_layout(showlegend=len(series) > 1)
    if numeric:
        low, high = min(axis.values), max(axis.values)
        fig.update_xaxes(title_text=_titled(axis), range=[low - _AIR * (high - low),
                                                          high + _AIR * (high - low)])  # fmt: skip
    else:
        said = [axis.said(value) for value in axis.values]
        fig.update_xaxes(categoryorder="array", categoryarray=said, range=[-0.5, len(said) - 0.5],
                         type="category", title_text=axis.label)  # fmt: skip
    fig.update_yaxes(title_text=f"{metric.label} ({unit})")
    told = "; ".join(filter(None, sentences)) or "No point is done yet"
    return Chart(fig, f"{metric.label} over {axis.label}. {told}.")


def _titled(axis: Axis) -> str:
    unit = axis.said(0).removeprefix("0").strip()
    return (
        f"{axis.label} ({unit})" if unit and unit.lower() not in axis.label.lower() else axis.label
    )


def frontier(axis: Axis, series: Series, published: Sequence[Published]) -> Chart:
    """Tokens/s of an NPU over tokens/s of one user, with published operating points."""
    fig = figure(height=380, hovermode="closest")
    sentences, shown_speeds = [], [0.0]
    for (name, points), colour in zip(series.items(), _colours(series), strict=True):
        known = [p for p in points if p.summary.get(FOR_USER) and p.summary.get(PER_NPU)]
        speeds = [1.0 / p.summary[FOR_USER] for p in known]
        rates = [p.summary[PER_NPU] for p in known]
        told = [f"{axis.said(p.x)}: {s:.3g} tokens/s a user, {r:,.0f} tokens/s per NPU"
                for p, s, r in zip(known, speeds, rates, strict=True)]  # fmt: skip
        _points(fig, name or "this sweep", colour, speeds, rates, known, told)
        sentences += told
        shown_speeds += speeds
    if not sentences and all(p.summary for points in series.values() for p in points):
        return empty("No point decodes")
    fastest = max([*(1.0 / p.tpot_s for p in published), *shown_speeds])
    fig.add_scatter(
        x=[1.0 / p.tpot_s for p in published], y=[p.tokens_per_s_per_npu for p in published],
        mode="markers+text", name="published", text=[p.name for p in published],
        textposition=["top left" if 1.0 / p.tpot_s > 0.6 * fastest else "top right"
                      for p in published], textfont={"size": 11},
        marker={"symbol": "cross-thin", "size": 11, "line": {"width": 2, "color": PUBLISHED}},
        hovertemplate="%{text}: %{x:.3g} tokens/s a user, %{y:,.0f} per NPU<extra></extra>",
    )  # fmt: skip
    limits = {
        p.limits["tpot_s_p99"] for ps in series.values() for p in ps if "tpot_s_p99" in p.limits
    }
    if len(limits) == 1:
        limit = limits.pop()
        line_at(fig, f"TPOT SLO {shown('tpot_s_p99', limit)}", "bottom right", x=1.0 / limit)
    fig.update_layout(showlegend=True)
    fig.update_xaxes(title_text="tokens/s for one user", range=[0, 1.25 * fastest], showgrid=True)
    fig.update_yaxes(title_text="output tokens/s per decode NPU")
    return Chart(fig, "Throughput against speed for one user. " + "; ".join(sentences) + ".")


def _points(
    fig: go.Figure, name: str, colour: str, x: Sequence[Any], y: Sequence[float],
    points: Sequence[Ran], told: Sequence[str],
) -> None:  # fmt: skip
    fig.add_scatter(
        x=list(x), y=list(y), mode="lines+markers", name=name, text=list(told),
        hovertemplate="%{text}<extra></extra>",
        line={"color": colour, "width": 2},
        marker={"size": 9, "symbol": [KEPT if p.kept else BROKEN for p in points]},
    )  # fmt: skip


def _colours(series: Series) -> list[str]:
    """Runs of one sweep in one hue, or from light to dark by the second field's value."""
    if len(series) == 1:
        return [theme.SERIES[0]]
    scale = theme.SEQUENTIAL[3:]
    last = len(series) - 1
    return [scale[round(i * (len(scale) - 1) / last)] for i in range(len(series))]
