"""Charts of a sweep, of a plan (per NPU against speed for a user), and of a comparison."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from twin.lab.plan.answer import brief_text
from twin.lab.sweep.sweep import Axis, Published, knees
from twin.metrics.registry import METRICS, as_text
from twin.metrics.steadiness import UNSTEADY as NOTES
from twin.scenario.words import numbered
from twin.ui import theme
from twin.ui.charts import base
from twin.ui.charts.base import Chart

FOR_USER, PER_NPU = "tpot_s_mean", "decode_tokens_per_s_per_npu"
MET, BROKEN, UNSTEADY = "circle", "circle-open", "x"
PUBLISHED = theme.PLANE["rdma"]
TIP = "%{customdata}<br>%{x:.3g} tokens/s a user, %{y:,.0f} per NPU<extra></extra>"
_AIR = 0.04  # of an axis, beyond its first and last point
NEAR = 4.0  # times the slowest, fastest or best point: published ones beyond are not drawn
FAR = 1.0  # share of the baseline's value; larger changes are drawn with this length
COLOURS = {"better": theme.ROLE["memory_pool"], "worse": theme.ROLE["prefill"]}
HATCHES = ("", "/", "\\", "x", "-")  # of the runs in their order, so that colour can tell how good


class SweepPoint(NamedTuple):
    """One point of a sweep: value of the first field, figures of its run, whether it meets the
    SLO."""

    x: Any
    summary: Mapping[str, Any]  # empty: not yet run
    met: bool
    limits: Mapping[str, float]  # of the metrics that have an SLO, in SI
    bands: Mapping[str, tuple[float, float]] = {}  # of metrics that have one: ends over the figure


Series = Mapping[str, Sequence[SweepPoint]]  # by the second field's value; '' without one


def metric_over_field(axis: Axis, key: str, series: Series, *, dark: bool = False) -> Chart:
    """Chart of the metric `key` over the swept field, one curve per value of the second field.
    Hollow points miss the SLO; points marked x were not steady; lines mark the SLO and each knee,
    where points begin or cease to miss it."""
    all_points = [point for points in series.values() for point in points]
    known_values = [point.summary[key] for point in all_points if point.summary.get(key)]
    if not known_values and all(point.summary for point in all_points):
        return base.empty_chart("No point has this figure")
    metric, slo_limits = METRICS[key], {p.limits[key] for p in all_points if key in p.limits}
    top_value = max([*known_values, *([] if known_values else slo_limits)], default=0.0)
    multiplier, unit = base.time_unit(top_value) if metric.kind == "time" else (1.0, metric.unit)
    fig, sentences = base.figure(height=250), []
    is_numeric = not isinstance(axis.values[0], str | bool)
    for (name, points), colour in zip(series.items(), _series_colours(series, dark), strict=True):
        run_points = [point for point in points if point.summary.get(key) is not None]
        _add_points(
            fig, name, colour, [p.x if is_numeric else axis.text_of(p.x) for p in run_points],
            [point.summary[key] * multiplier for point in run_points], run_points,
            [f"{axis.text_of(p.x)}: {as_text(key, p.summary[key])}" for p in run_points],
        )  # fmt: skip
        for knee in knees([point.met for point in run_points]) if is_numeric else ():
            label = "knee" if len(series) == 1 else ""
            base.mark_at(
                fig, label, "top left", x=0.5 * (run_points[knee].x + run_points[knee + 1].x)
            )
        sentences.append(
            ", ".join(f"{axis.text_of(p.x)} {as_text(key, p.summary[key])}" for p in run_points)
        )
    if len(slo_limits) == 1 and top_value > 0.3 * (slo_limit := slo_limits.pop()):
        base.mark_at(fig, f"SLO {as_text(key, slo_limit)}", "top right", y=slo_limit * multiplier)
    y_axis: dict[str, Any] = {"title_text": f"{metric.label} ({unit})"}
    if not known_values:
        y_axis |= {"range": [0, 1.3 * top_value * multiplier or 1], "showticklabels": top_value > 0}
    listing = "; ".join(filter(None, sentences)) or "No point is done yet"
    return base.chart(
        fig, f"{metric.label} over {axis.label}. {listing}.",
        "Each point is simulated; points marked x were in no steady state.",
        x=_field_axis(axis, is_numeric), y=y_axis, hovermode="closest", showlegend=len(series) > 1,
    )  # fmt: skip


def _field_axis(axis: Axis, numeric: bool) -> dict[str, Any]:
    """Plotly's properties of the x axis for a swept field: a range of numbers if `numeric`,
    otherwise the names of the field's values in order."""
    if not numeric:
        texts = [axis.text_of(value) for value in axis.values]
        return {"categoryorder": "array", "categoryarray": texts, "range": [-0.5, len(texts) - 0.5],
                "type": "category", "title_text": axis.label}  # fmt: skip
    first_value, last_value = min(axis.values), max(axis.values)
    unit_text = axis.text_of(0).removeprefix("0").strip()
    label_has_unit = not unit_text or unit_text.lower() in axis.label.lower()
    margin = _AIR * (last_value - first_value)
    title = axis.label if label_has_unit else f"{axis.label} ({unit_text})"
    return {"title_text": title, "range": [first_value - margin, last_value + margin]}


def frontier(
    axis: Axis, series: Series, published: Sequence[Published], *, dark: bool = False
) -> Chart:
    """Chart of throughput per NPU (y) against tokens/s for one user (x), with a point for each run
    and the published operating points."""
    fig, sentences, shown_user_rates, shown_npu_rates = base.figure(height=380), [], [], []
    for (name, points), colour in zip(series.items(), _series_colours(series, dark), strict=True):
        decoding_points = [p for p in points if p.summary.get(FOR_USER) and p.summary.get(PER_NPU)]
        user_rates = [1.0 / point.summary[FOR_USER] for point in decoding_points]
        npu_rates = [point.summary[PER_NPU] for point in decoding_points]
        tooltips = [
            f"{axis.text_of(p.x)}: {x:.3g} tokens/s a user, {y:,.0f} tokens/s per NPU"
            for p, x, y in zip(decoding_points, user_rates, npu_rates, strict=True)
        ]
        _add_points(
            fig, name or "this sweep", colour, user_rates, npu_rates, decoding_points, tooltips
        )
        rate_bands = [point.bands.get(PER_NPU) for point in decoding_points]
        tpot_bands = (point.bands.get(FOR_USER) for point in decoding_points)
        speed_bands = [band and (1.0 / band[1], 1.0 / band[0]) for band in tpot_bands]
        fig.data[-1].error_x = _error_bars(user_rates, speed_bands, colour)
        fig.data[-1].error_y = _error_bars(npu_rates, rate_bands, colour)
        sentences += tooltips
        shown_user_rates += user_rates
        shown_npu_rates += npu_rates
    published = _drawable_points(published, shown_npu_rates)
    if not sentences and all(point.summary for points in series.values() for point in points):
        return base.empty_chart("No point decodes")
    top_speed = max([0.0, *(1.0 / point.tpot_s for point in published), *shown_user_rates])
    label_sides = ["left" if 1.0 / p.tpot_s > 0.6 * top_speed else "right" for p in published]
    _add_crosses(fig, published, "published", mode="markers+text", textfont={"size": 11},
             textposition=[f"top {side}" for side in label_sides])  # fmt: skip
    all_limits = (point.limits for series_points in series.values() for point in series_points)
    tpot_limits = {limits["tpot_s_p99"] for limits in all_limits if "tpot_s_p99" in limits}
    if len(tpot_limits) == 1:
        tpot_slo_s = tpot_limits.pop()
        base.mark_at(
            fig, f"TPOT SLO {as_text('tpot_s_p99', tpot_slo_s)}", "bottom right", x=1.0 / tpot_slo_s
        )
    return base.chart(
        fig, "Throughput against speed for one user. " + "; ".join(sentences) + ".",
        "Up is more throughput, right is more speed for a user: a point that has none above and "
        "right of it is a best choice.",
        x={"title_text": "tokens/s for one user", "range": [0, 1.25 * top_speed], "showgrid": True},
        y={"title_text": "output tokens/s per decode NPU"}, hovermode="closest", showlegend=True,
    )  # fmt: skip


def _drawable_points(published: Sequence[Published], rates: Sequence[float]) -> list[Published]:
    """Published points whose throughput is below NEAR times the highest of `rates` (tokens/s per
    NPU)."""
    rate_limit = NEAR * max(rates, default=float("inf"))
    return [point for point in published if point.tokens_per_s_per_npu < rate_limit]


def _add_crosses(fig: go.Figure, points: Sequence[Published], name: str, **style: Any) -> None:
    """Add published operating points to a figure as crosses; the first point of each system bears
    the system's name. style: further properties for plotly."""
    if not points:
        return
    systems = [point.name.partition(",")[0] for point in points]
    shown_names = [system if system not in systems[:i] else "" for i, system in enumerate(systems)]
    marker = {"symbol": "cross-thin", "size": 11, "line": {"width": 2, "color": PUBLISHED}}
    fig.add_scatter(x=[1.0 / p.tpot_s for p in points], y=[p.tokens_per_s_per_npu for p in points],
                    name=name, text=shown_names, customdata=[p.name for p in points], marker=marker,
                    hovertemplate=TIP, cliponaxis=False, **style)  # fmt: skip


def _error_bars(
    values: Sequence[float], bands: Sequence[tuple[float, float] | None], colour: str
) -> dict[str, Any]:
    """Plotly's properties of error bars. bands: for each value, (low, high) as multiples of it;
    None: no bar."""
    known_bands = [(1.0, 1.0) if band is None else band for band in bands]
    return {
        "type": "data", "symmetric": False, "thickness": 1, "width": 3, "color": colour,
        "array": [value * (high - 1.0)
                  for value, (_, high) in zip(values, known_bands, strict=True)],
        "arrayminus": [value * (1.0 - low)
                       for value, (low, _) in zip(values, known_bands, strict=True)],
    }  # fmt: skip


def _add_points(
    fig: go.Figure, name: str, colour: str, x: Sequence[Any], y: Sequence[float],
    points: Sequence[SweepPoint], texts: Sequence[str],
) -> None:  # fmt: skip
    """Add a series of points (x, y) to a figure; symbols show which points meet the SLO. texts: the
    text of each point at the pointer."""
    symbols = [UNSTEADY if p.summary.get("steady_state") in NOTES else MET if p.met else BROKEN
               for p in points]  # fmt: skip
    base.add_line(
        fig, list(x), list(y), colour, "%{text}<extra></extra>", mode="lines+markers", name=name,
        text=list(texts), marker={"size": 9, "symbol": symbols}, cliponaxis=False,
    )  # fmt: skip


def _series_colours(series: Series, dark: bool) -> list[str]:
    """Colour of each series of a sweep: one hue, lighter to darker by the second field's value."""
    if len(series) == 1:
        return [theme.SERIES[0]]
    hues = theme.SEQUENTIAL[6::-1] if dark else theme.SEQUENTIAL[3:]
    last_index = len(series) - 1
    return [hues[round(k * (len(hues) - 1) / last_index)] for k in range(len(series))]


class Difference(NamedTuple):
    """A figure or a field of one run, compared with the baseline's."""

    label: str
    run: int  # 0 for the first that is not the baseline
    change: float  # over the baseline's value, FAR where that is 0; 0 where that says nothing
    text: str  # short: the change
    whole: str  # from what to what
    standing: str = ""  # better, worse; all else is only different


def differences(rows: Sequence[Difference], names: Sequence[str], what: str) -> Chart:
    """Bar chart of the differences of runs from the baseline. names: titles of the runs. what: end
    of the title "What ...", such as "differs in settings"."""
    if not rows:
        return base.empty_chart(f"Nothing {what}")
    labels = list(dict.fromkeys(row.label for row in rows))
    fig = base.figure(height=100 + (14 + 20 * len(names)) * len(labels))
    for run, name in enumerate(names):
        row_of = {row.label: row for row in rows if row.run == run}
        bar_rows = [row_of.get(label, Difference(label, run, 0.0, "", "")) for label in labels]
        bar_lengths = [max(-FAR, min(FAR, row.change)) for row in bar_rows]
        base.add_bars(
            fig, labels, [100 * length for length in bar_lengths],
            [COLOURS.get(row.standing, theme.OTHER) for row in bar_rows], name=base.shorten(name),
            text=[row.text for row in bar_rows], textposition="outside",
            meta={"x": [100 * row.change for row in bar_rows]},
            customdata=[row.whole for row in bar_rows],
            hover=f"%{{y}}: %{{customdata}}<extra>{name}</extra>",
        )  # fmt: skip
        fig.data[-1].marker.pattern = {"shape": HATCHES[run % len(HATCHES)], "solidity": 0.2}
    x_end = 100 * min(FAR, max(0.05, *(abs(row.change) for row in rows)))
    fig.add_vline(x=0, line={"color": theme.OTHER, "width": 1})
    listing = "; ".join(
        f"{names[row.run]}: {row.label} {row.whole}" + (f", {row.standing}" if row.standing else "")
        for row in rows
    )
    return base.chart(
        fig, f"What {what}, against the baseline. {listing}.",
        "Bars go right where a figure is above the baseline's; green is better, red is worse, grey "
        "is only different.", barmode="group", bargap=0.25,
        # The words at the ends of the bars need room on both sides.
        x={"title_text": "% from the baseline", "range": [-2.5 * x_end, 2.5 * x_end],
           "tickvals": [-x_end, 0, x_end],
           "ticktext": [_tick_label(-x_end), "0", _tick_label(x_end)]},
        y={"ticklabelstandoff": 18}, columns={"y": "figure or setting"},
        hovermode="closest", showlegend=len(names) > 1,
    )  # fmt: skip


def _tick_label(percent: float) -> str:
    """Label of a tick of the axis: a change in % of the baseline's value."""
    percent_text = f"{percent:+.3g} %".replace("-", "−")
    return f"≥ {percent_text}" if percent >= 100 * FAR else percent_text


def plan_front(
    points: Sequence[Mapping[str, Any]], ranks: Mapping[str, int], published: Sequence[Published]
) -> Chart:
    """Chart of a plan's deployments (`points`), with their Pareto front as a line, and of published
    points. ranks: rank of each of the best deployments, from 1, by its key."""
    shown_points = [point for point in points if point["tokens_per_s_per_user"]]
    if not shown_points:
        return base.empty_chart("No deployment is within the limits")
    fig = base.figure(height=380)
    front_points = sorted((point for point in shown_points if point["on_front"]), key=_speed)
    for name, line_points, mode, colour in (
        ("simulated", [p for p in shown_points if not p["on_front"]], "markers", theme.OTHER),
        ("front", front_points, "lines+markers", theme.SERIES[0]),
    ):
        base.add_line(
            fig, [_speed(p) for p in line_points],
            [p["tokens_per_s_per_npu"] for p in line_points], colour,
            TIP, mode=mode, name=name, marker={"size": 8},
            customdata=[_plan_label(point, ranks) for point in line_points],
        )  # fmt: skip
    for point in shown_points:
        if ranks.get(point["key"]) == 1:
            fig.add_annotation(x=_speed(point), y=point["tokens_per_s_per_npu"], text="first",
                               showarrow=False, yshift=13, font={"size": 13})  # fmt: skip
    speeds = [_speed(point) for point in shown_points]
    npu_rates = [point["tokens_per_s_per_npu"] for point in shown_points]
    near_points = [point for point in _drawable_points(published, npu_rates)
               if min(speeds) / NEAR < 1.0 / point.tpot_s < NEAR * max(speeds)]  # fmt: skip
    _add_crosses(fig, near_points, "published, decode NPUs alone", mode="markers")
    front_texts = (
        f"{_plan_label(p, ranks)}: {p['tokens_per_s_per_npu']:,.0f} per NPU" for p in front_points
    )
    system_names = ", ".join(dict.fromkeys(point.name.partition(",")[0] for point in near_points))
    return base.chart(
        fig,
        f"The front of throughput per NPU against speed for one user. {'; '.join(front_texts)}.",
        "Up is cheaper, right is faster for a user; the line joins what nothing beats in both."
        + (f" Crosses are of {system_names}, whatever the plan's machine." if system_names else ""),
        x={"title_text": "tokens/s for one user", "showgrid": True},
        y={"title_text": "tokens/s per NPU", "rangemode": "tozero"},
        hovermode="closest", showlegend=True,
    )  # fmt: skip


def _speed(point: Mapping[str, Any]) -> float:
    """Output tokens/s that one user gets from a deployment (`point` of a plan)."""
    return float(point["tokens_per_s_per_user"])


def _plan_label(point: Mapping[str, Any], ranks: Mapping[str, int]) -> str:
    """Rank (if it has one), settings and NPUs of a deployment of a plan, as text: '1. 4 x 16
    prefill + 1 x 128 decode (192 NPUs)'. ranks: rank from 1 by the deployment's key."""
    rank = ranks.get(point["key"])
    rank_text = f"{rank}. " if rank else ""
    return f"{rank_text}{brief_text(dict(point['settings']))} ({numbered(point['npus'], 'NPU')})"
