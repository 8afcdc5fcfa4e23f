"""Pictures of where time goes: a request's from ideal to actual, and a layer's on two streams."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from twin.lab.explain.waterfall import SLACK, layer_shares
from twin.metrics.measures import amount, seconds
from twin.model.timeline import Timeline
from twin.ui import theme
from twin.ui.charts.base import Chart, add_bars, chart, empty_chart, figure, time_unit

SHOWN = 0.002  # of the whole: a smaller piece is not drawn
HATCHED = {"fillmode": "overlay", "fgcolor": "rgba(255, 255, 255, 0.75)"}
SLACK_COLOUR = "rgba(128, 128, 128, 0.32)"
CHARACTER_PX = 5.5  # width of a character of a label at the end of a bar


def waterfall(
    parts: Mapping[str, float], reads: str, *, total: str = "",
    colours: Mapping[str, str] = {}, median: Mapping[str, float] = {},
) -> Chart:  # fmt: skip
    """Chart of a request's seconds by part; total: name of a bar of all; median: parts, in grey."""
    total_s = max(sum(parts.values()), sum(median.values()))
    names = [n for n in parts if max(parts[n], median.get(n, 0.0)) > SHOWN * total_s]
    if not names:
        return empty_chart("No request finished")
    factor, unit = time_unit(total_s)
    rows = [f"{n[0].upper()}{n[1:]}" for n in names] + [total] * bool(total)
    fig = figure(height=110 + (40 if median else 27) * len(rows))
    palette = [colours.get(n) or theme.SERIES[k % len(theme.SERIES)] for k, n in enumerate(names)]
    series = {"this request": (parts, [*palette, theme.OTHER])}
    longest = 0  # characters of a label
    if median:
        series["the median request"] = median, [SLACK_COLOUR] * len(rows)
    for name, (parts_s, shades) in series.items():
        begins_s = dict(zip(parts_s, accumulate(parts_s.values(), initial=0.0), strict=False))
        values_s = [parts_s.get(n, 0.0) for n in names]
        value_texts = [seconds(v) if v else "" for v in values_s]
        if not median:
            value_texts = [f"{seconds(v)} · {amount(v / total_s, 'share')}" for v in values_s]
        longest = max(longest, *map(len, value_texts))
        add_bars(
            fig, rows, [v * factor for v in [*values_s, total_s]][: len(rows)], shades[: len(rows)],
            base=[begins_s.get(n, 0.0) * factor for n in names] + [0.0] * bool(total), name=name,
            text=[*value_texts, seconds(total_s)][: len(rows)],
            textposition=["outside" if median else "auto"] * len(names) + ["inside"] * bool(total),
        )  # fmt: skip
    median_texts = {n: f" (median {seconds(median.get(n, 0.0))})" if median else "" for n in names}
    listing = ", ".join(f"{n} {seconds(parts[n])}{median_texts[n]}" for n in names)
    return chart(
        fig, f"{total or 'One request'} takes {seconds(sum(parts.values()))}: {listing}.", reads,
        x={"title_text": unit, "range": [0, total_s * factor]}, barmode="group",
        hovermode="closest", showlegend=bool(median), bargap=0.24, legend_traceorder="normal",
        margin_r=10 + CHARACTER_PX * longest,  # for labels of the last bars
    )  # fmt: skip


def layer(plan: Timeline, layer_s: float) -> Chart:
    """Chart of a layer over time, by stream; what goes on after its end is drawn at its begin."""
    factor, unit = time_unit(layer_s)
    streams = [f"{name[0].upper()}{name[1:]}" for name in plan.streams]
    bars_of: dict[str, list[tuple[str, float, float, int, float]]] = {}
    for piece in plan.pieces:
        piece_s = sum(time_s for _, time_s in piece.operators)
        begin = piece.low
        for operator, time_s in piece.operators:
            share = time_s / piece_s * (piece.high - piece.low)
            low, high = begin - int(begin), begin + share - int(begin)
            for start, end in [(low, high)] if high <= 1.0 else [(low, 1.0), (0.0, high - 1.0)]:
                bar = streams[piece.stream], start, end - start, piece.microbatch, share
                bars_of.setdefault(operator, []).append(bar)
            begin += share
    fig = figure(height=170 + 62 * len(streams))
    scale = layer_s * factor
    add_bars(fig, streams, [scale] * len(streams), SLACK_COLOUR, name="Slack", hover="Slack")
    for operator, bars in bars_of.items():
        fig.add_bar(
            y=[bar[0] for bar in bars], x=[scale * bar[2] for bar in bars],
            base=[scale * bar[1] for bar in bars], orientation="h", name=theme.title(operator),
            marker={"color": theme.operator_colour(operator), "line_width": 0,
                    "pattern": HATCHED | {"shape": ["/" if bar[3] else "" for bar in bars]}},
            customdata=[(seconds(layer_s * bar[4]), 1 + bar[3]) for bar in bars],
            hovertemplate="%{fullData.name}, microbatch %{customdata[1]}: %{customdata[0]}"
            "<extra></extra>",
        )  # fmt: skip
    listing = ", ".join(f"{name} {amount(share, 'share')}" for name, share in slack_of(plan))
    return chart(
        fig, f"One layer takes {seconds(layer_s)}. Slack of its streams: {listing}.",
        "Hatched: the second microbatch. Grey: the stream waits for the other one.",
        x={"title_text": f"{unit} of one layer", "range": [0, scale]},
        barmode="overlay", hovermode="closest", bargap=0.3,
    )  # fmt: skip


def slack_of(plan: Timeline) -> list[tuple[str, float]]:
    """(stream, share of a layer in which it waits for the other) of both streams."""
    return [(stream, share) for stream, name, share in layer_shares(plan) if name == SLACK]


def pace_sentence(plan: Timeline | None, rows: Sequence[tuple[str, str, float]]) -> str:
    """Sentence on the stream that limits an iteration; rows: (stream, operator, seconds)."""
    busy_rows = sorted((row for row in rows if row[1] != SLACK), key=lambda row: -row[2])
    longest_text = " and ".join(theme.title(name).lower() for _, name, _ in busy_rows[:2])
    if plan is None:
        return f"Its operators run one after the other; the longest: {longest_text}."
    by_slack = sorted(slack_of(plan), key=lambda item: item[1])
    (busy_stream, least_slack), (other_stream, slack) = by_slack
    if slack < 0.02:
        busy_text = f"busy {amount(1.0 - slack, 'share')} of its time"
        return f"Both streams of a layer are {busy_text}. Longest at work: {longest_text}."
    idle_text = "" if least_slack < 0.02 else f", which itself waits {amount(least_slack, 'share')}"
    return (
        f"The {other_stream} stream waits {amount(slack, 'share')} of a layer for the "
        f"{busy_stream} stream{idle_text}. Longest at work: {longest_text}."
    )


def operator_times(rows: Sequence[tuple[str, str, float]], pass_name: str) -> Chart:
    """Chart of each operator's busy time in a mean iteration or batch (`pass_name`); slack last."""
    if not rows:
        return empty_chart(f"No {pass_name} ran")
    rows = [row for row in rows if row[2] > SHOWN * sum(value for _, _, value in rows)]
    rows = sorted(rows, key=lambda row: (row[1] == SLACK, -row[2]))
    longest_s = max(value for _, _, value in rows)
    factor, unit = time_unit(longest_s)
    names = [f"Slack of {stream}" if n == SLACK else theme.title(n) for stream, n, _ in rows]
    fig = figure(height=90 + 27 * len(rows))
    add_bars(
        fig, names, [value * factor for _, _, value in rows],
        [SLACK_COLOUR if n == SLACK else theme.operator_colour(n) for _, n, _ in rows],
        text=[seconds(value) for _, _, value in rows], textposition="outside",
        customdata=[f", {stream} stream" if stream else "" for stream, _, _ in rows],
        hover="%{y}%{customdata}: %{text}<extra></extra>",
    )  # fmt: skip
    listing = ", ".join(f"{n} {seconds(v)}" for n, (_, _, v) in zip(names[:3], rows, strict=False))
    return chart(
        fig, f"At work in a mean {pass_name}: {listing}.",
        "Time each operator is at work; where two streams overlap, the sum exceeds the whole.",
        x={"title_text": f"{unit} at work per {pass_name}", "range": [0, 1.2 * longest_s * factor]},
        hovermode="closest", showlegend=False, bargap=0.28,
    )  # fmt: skip
