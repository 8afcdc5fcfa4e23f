"""A plan as a picture: throughput per NPU against the speed that one user sees."""

from collections.abc import Mapping, Sequence
from typing import Any

from twin.lab.plan.answer import in_words
from twin.lab.sweep.sweep import Published
from twin.ui import theme
from twin.ui.charts.base import Chart, chart, empty, figure, line, reads
from twin.ui.charts.sweep import PUBLISHED

NEAR = 4.0  # times the slowest or fastest deployment: published points beyond are not drawn


@reads("Up is cheaper, right is faster for a user; the line joins what nothing beats in both.")
def front(
    points: Sequence[Mapping[str, Any]], ranks: Mapping[str, int], published: Sequence[Published]
) -> Chart:
    """Deployments within the limits, their front as a line, ranks, and published points."""
    with_speed = [p for p in points if p["tokens_per_s_per_user"]]
    if not with_speed:
        return empty("No deployment is within the limits")
    fig = figure(height=380)
    behind_front = [p for p in with_speed if not p["on_front"]]
    best = sorted((p for p in with_speed if p["on_front"]), key=_speed)
    tip = "%{text}<br>%{x:.3g} tokens/s a user, %{y:,.0f} per NPU<extra></extra>"
    for name, rows, mode, colour in (
        ("simulated", behind_front, "markers", theme.OTHER),
        ("front", best, "lines+markers", theme.SERIES[0]),
    ):
        line(
            fig, [_speed(p) for p in rows], [p["tokens_per_s_per_npu"] for p in rows], colour, tip,
            mode=mode, name=name, text=[_named(p, ranks) for p in rows], marker={"size": 8},
        )  # fmt: skip
    for p in with_speed:
        if ranks.get(p["key"]) == 1:
            fig.add_annotation(
                x=_speed(p), y=p["tokens_per_s_per_npu"], text="first", showarrow=False,
                yshift=13, font={"size": 13},
            )  # fmt: skip
    speeds = [_speed(p) for p in with_speed]
    near = [p for p in published if min(speeds) / NEAR < 1.0 / p.tpot_s < NEAR * max(speeds)]
    fig.add_scatter(
        x=[1.0 / p.tpot_s for p in near], y=[p.tokens_per_s_per_npu for p in near], mode="markers",
        name="published, decode NPUs alone", text=[p.name for p in near],
        marker={"symbol": "cross-thin", "size": 11, "line": {"width": 2, "color": PUBLISHED}},
        hovertemplate=tip,
    )  # fmt: skip
    text = "; ".join(f"{_named(p, ranks)}: {p['tokens_per_s_per_npu']:,.0f} per NPU" for p in best)
    return chart(
        fig, f"The front of throughput per NPU against speed for one user. {text}.",
        x={"title_text": "tokens/s for one user", "showgrid": True},
        y={"title_text": "tokens/s per NPU", "rangemode": "tozero"},
        hovermode="closest", showlegend=True,
    )  # fmt: skip


def _speed(point: Mapping[str, Any]) -> float:
    return float(point["tokens_per_s_per_user"])


def _named(point: Mapping[str, Any], ranks: Mapping[str, int]) -> str:
    rank = ranks.get(point["key"])
    first = f"{rank}. " if rank else ""
    return f"{first}{in_words(dict(point['settings']))} ({point['npus']} NPUs)"
