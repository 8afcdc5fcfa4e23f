"""Pictures of where time goes: a request's from ideal to actual, and a layer's on two streams."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from twin.metrics.measures import amount, seconds
from twin.model.timeline import Timeline
from twin.ui import theme
from twin.ui.charts.base import Chart, bars, chart, empty, figure, reads, time_unit

SHOWN = 0.002  # of the whole: a smaller piece is not drawn
HATCHED = {"fillmode": "overlay", "fgcolor": "rgba(255, 255, 255, 0.75)"}
SLACK_COLOUR = "rgba(128, 128, 128, 0.18)"


@reads("Stages of a mean request from arrival to its last token, in their order.")
def waterfall(pieces: Mapping[str, float], labels: Mapping[str, str]) -> Chart:
    """The pieces of a mean time, each beginning where the one before ended; the sum last."""
    whole = sum(pieces.values())
    drawn = {name: value for name, value in pieces.items() if value > SHOWN * whole}
    if not drawn:
        return empty("No request finished")
    factor, unit = time_unit(whole)
    names = [labels[name] for name in drawn]
    values = [value * factor for value in drawn.values()]
    texts = [f"{seconds(v)} · {amount(v / whole, 'share')}" for v in drawn.values()]
    fig = figure(height=90 + 27 * (len(names) + 1))
    bars(
        fig, [*names, "A mean request"], [*values, whole * factor],
        [*(theme.SERIES[k % len(theme.SERIES)] for k in range(len(names))), theme.OTHER],
        base=[*_begins(values), 0.0], text=[*texts, seconds(whole)],
        textposition=["auto"] * len(names) + ["inside"],
    )  # fmt: skip
    longest = sorted(drawn.items(), key=lambda item: -item[1])[:3]
    listing = ", ".join(f"{labels[name]} {seconds(value)}" for name, value in longest)
    return chart(
        fig, f"A mean request takes {seconds(whole)}; most of it: {listing}.",
        x={"title_text": unit, "range": [0, 1.15 * whole * factor]},
        hovermode="closest", showlegend=False, bargap=0.28, margin={"t": 8},
    )  # fmt: skip


def _begins(values: Iterable[float]) -> list[float]:
    """Where each of several values begins that stand one after the other."""
    return list(accumulate(values, initial=0.0))[:-1]


@reads("Hatched: the second microbatch. Grey: the stream waits for the other one.")
def layer(plan: Timeline, layer_s: float) -> Chart:
    """One layer over time: what each stream does for which microbatch; the rest is its slack. What
    runs over into the next layer stands at its begin, for every layer is like it."""
    factor, unit = time_unit(layer_s)
    names = [f"{name[0].upper()}{name[1:]}" for name in plan.streams]
    drawn: dict[str, list[tuple[str, float, float, int, float]]] = {}
    for piece in plan.pieces:
        total = sum(time for _, time in piece.operators)
        begin = piece.low
        for operator, time in piece.operators:
            share = time / total * (piece.high - piece.low)
            for low, high in _within(begin, begin + share):
                bar = names[piece.stream], low, high - low, piece.microbatch, share
                drawn.setdefault(operator, []).append(bar)
            begin += share
    fig = figure(height=170 + 62 * len(names))
    scale = layer_s * factor
    bars(fig, names, [scale] * len(names), SLACK_COLOUR, name="Slack", hover="Slack")
    for operator, cut in drawn.items():
        fig.add_bar(
            y=[bar[0] for bar in cut], x=[scale * bar[2] for bar in cut],
            base=[scale * bar[1] for bar in cut], orientation="h", name=theme.title(operator),
            marker={"color": theme.operator_colour(operator), "line_width": 0,
                    "pattern": HATCHED | {"shape": ["/" if bar[3] else "" for bar in cut]}},
            customdata=[(seconds(layer_s * bar[4]), 1 + bar[3]) for bar in cut],
            hovertemplate="%{fullData.name}, microbatch %{customdata[1]}: %{customdata[0]}"
            "<extra></extra>",
        )  # fmt: skip
    listing = ", ".join(f"{name} {amount(share, 'share')}" for name, share in slack_of(plan))
    return chart(
        fig, f"One layer takes {seconds(layer_s)}. Slack of its streams: {listing}.",
        x={"title_text": f"{unit} of one layer", "range": [0, scale]},
        barmode="overlay", hovermode="closest", bargap=0.3,
    )  # fmt: skip


def _within(begin: float, end: float) -> list[tuple[float, float]]:
    """A span of layers as spans of one layer."""
    begin, end = begin - int(begin), end - int(begin)
    return [(begin, end)] if end <= 1.0 else [(begin, 1.0), (0.0, end - 1.0)]


def slack_of(plan: Timeline) -> list[tuple[str, float]]:
    """Share of a layer in which a stream waits for the other, by stream."""
    busy = [0.0] * len(plan.streams)
    for piece in plan.pieces:
        busy[piece.stream] += piece.high - piece.low
    return [(name, max(0.0, 1.0 - b)) for name, b in zip(plan.streams, busy, strict=True)]


def pace(plan: Timeline | None, rows: Sequence[tuple[str, str, float]]) -> str:
    """What sets the pace of an iteration, in one sentence."""
    work = sorted((row for row in rows if row[1] != "slack"), key=lambda row: -row[2])
    longest = " and ".join(theme.title(name).lower() for _, name, _ in work[:2])
    if plan is None:
        return f"Its operators run one after the other; the longest: {longest}."
    (busy, least), (other, slack) = sorted(slack_of(plan), key=lambda item: item[1])
    if slack < 0.02:
        return f"Both streams of a layer are busy all the time. Longest at work: {longest}."
    idle = "" if least < 0.02 else f", which itself waits {amount(least, 'share')}"
    return (
        f"The {other} stream waits {amount(slack, 'share')} of a layer for the {busy} stream"
        f"{idle}. Longest at work: {longest}."
    )


@reads("Time each operator is at work; where two streams overlap, the sum exceeds the whole.")
def at_work(rows: Sequence[tuple[str, str, float]], name_of: str) -> Chart:
    """How long each operator is at work in one iteration, on whichever stream; slack at the end."""
    if not rows:
        return empty(f"No {name_of} ran")
    rows = [row for row in rows if row[2] > SHOWN * sum(value for _, _, value in rows)]
    rows = sorted(rows, key=lambda row: (row[1] == "slack", -row[2]))
    longest = max(value for _, _, value in rows)
    factor, unit = time_unit(longest)
    names = [f"Slack of {stream}" if n == "slack" else theme.title(n) for stream, n, _ in rows]
    fig = figure(height=90 + 27 * len(rows))
    bars(
        fig, names, [value * factor for _, _, value in rows],
        [SLACK_COLOUR if n == "slack" else theme.operator_colour(n) for _, n, _ in rows],
        text=[seconds(value) for _, _, value in rows], textposition="outside",
        customdata=[f", {stream} stream" if stream else "" for stream, _, _ in rows],
        hover="%{y}%{customdata}: %{text}<extra></extra>",
    )  # fmt: skip
    listing = ", ".join(f"{n} {seconds(v)}" for n, (_, _, v) in zip(names[:3], rows, strict=False))
    return chart(
        fig, f"At work in a mean {name_of}: {listing}.",
        x={"title_text": f"{unit} at work per {name_of}", "range": [0, 1.2 * longest * factor]},
        hovermode="closest", showlegend=False, bargap=0.28,
    )  # fmt: skip


@reads("Stages of this request beside the median of all.")
def beside_median(
    parts: Mapping[str, float], median: Mapping[str, float], colours: Mapping[str, str]
) -> Chart:
    """A request's time part by part, each beginning where the last one ended; grey: the median
    request's."""
    whole = max(sum(parts.values()), sum(median.values()))
    if whole <= 0:
        return empty("No first token was made")
    factor, unit = time_unit(whole)
    shown = [n for n in parts if max(parts[n], median.get(n, 0.0)) > SHOWN * whole]
    fig = figure(height=110 + 40 * len(shown))
    series = (("this request", parts, [colours[n] for n in shown]),
              ("the median request", median, SLACK_COLOUR))  # fmt: skip
    for name, each, colour in series:
        begins = dict(zip(each, _begins(each.values()), strict=True))
        values = [each.get(n, 0.0) for n in shown]
        bars(
            fig, [n[0].upper() + n[1:] for n in shown], [v * factor for v in values], colour,
            base=[begins.get(n, 0.0) * factor for n in shown], name=name,
            text=[seconds(v) if v else "" for v in values], textposition="outside",
        )  # fmt: skip
    listing = ", ".join(
        f"{n} {seconds(parts[n])} (median {seconds(median.get(n, 0.0))})" for n in shown
    )
    return chart(
        fig, f"Time of one request by part: {listing}.",
        x={"title_text": unit, "range": [0, 1.15 * whole * factor]},
        barmode="group", hovermode="closest", bargap=0.2, legend_traceorder="normal",
    )  # fmt: skip
