"""Pictures of where time goes: a request's from ideal to actual, and a layer's on two streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twin.metrics.measures import amount, seconds
from twin.ui import theme
from twin.ui.charts.base import Chart, bars, empty, figure, time_unit

SHOWN = 0.002  # of the whole: a smaller piece is not drawn
SLACK_COLOUR = "rgba(128, 128, 128, 0.18)"


def waterfall(pieces: Mapping[str, float], labels: Mapping[str, str]) -> Chart:
    """The pieces of a mean time, each beginning where the one before ended; the sum last."""
    whole = sum(pieces.values())
    drawn = {name: value for name, value in pieces.items() if value > SHOWN * whole}
    if not drawn:
        return empty("No request finished")
    factor, unit = time_unit(whole)
    names, starts, begun = [], [], 0.0
    for name, value in drawn.items():
        names.append(labels[name])
        starts.append(begun * factor)
        begun += value
    values = [value * factor for value in drawn.values()]
    texts = [f"{seconds(v)} · {amount(v / whole, 'share')}" for v in drawn.values()]
    fig = figure(height=90 + 27 * (len(names) + 1))
    bars(
        fig, [*names, "A mean request"], [*values, whole * factor],
        [*(theme.SERIES[k % len(theme.SERIES)] for k in range(len(names))), theme.OTHER],
        base=[*starts, 0.0], text=[*texts, seconds(whole)],
        textposition=["auto"] * len(names) + ["inside"],
    )  # fmt: skip
    fig.update_layout(hovermode="closest", showlegend=False, bargap=0.28, margin={"t": 8})
    fig.update_xaxes(title_text=unit, range=[0, 1.15 * whole * factor])
    longest = sorted(drawn.items(), key=lambda item: -item[1])[:3]
    listing = ", ".join(f"{labels[name]} {seconds(value)}" for name, value in longest)
    return Chart(fig, f"A mean request takes {seconds(whole)}; most of it: {listing}.")


def streams(rows: Sequence[tuple[str, str, float]]) -> Chart:
    """What each of two streams does in a layer, as shares of its time, with its slack."""
    names = list(dict.fromkeys(stream for stream, _, _ in rows))
    operators = list(dict.fromkeys(operator for _, operator, _ in rows if operator != "slack"))
    fig = figure(height=90 + 46 * len(names))
    for operator in [*operators, "slack"]:
        shares = {stream: share for stream, name, share in rows if name == operator}
        values = [100 * shares.get(stream, 0.0) for stream in names]
        slack = operator == "slack"
        bars(
            fig, [name.capitalize() for name in names], values,
            SLACK_COLOUR if slack else theme.operator_colour(operator),
            name="Slack" if slack else theme.title(operator),
            text=[f"{v:.0f} %" if v >= 4 else "" for v in values],
            textposition="inside", hover="%{fullData.name}: %{x:.1f} %<extra></extra>",
        )  # fmt: skip
    fig.update_layout(barmode="stack", hovermode="closest", bargap=0.3, margin={"t": 8})
    fig.update_xaxes(title_text="% of a layer's time", range=[0, 100])
    slack_of = {stream: share for stream, name, share in rows if name == "slack"}
    listing = ", ".join(f"{name} {amount(slack_of[name], 'share')}" for name in names)
    return Chart(fig, f"Slack of the streams of a layer: {listing}.")
