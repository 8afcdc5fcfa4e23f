"""Charts: a table in, a plotly figure and its alternative text out, of a few hundred points."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import polars as pl

from twin.lab.explain.waterfall import SLACK, layer_shares
from twin.metrics.measures import amount, seconds, three_figures
from twin.metrics.registry import METRICS
from twin.model.timeline import Timeline
from twin.scenario.words import numbered
from twin.ui import theme
from twin.ui.charts import base
from twin.ui.charts.base import Chart, Curve, empty_chart, figure

QUANTILES = 240  # points of a distribution curve
TOP_OPERATORS = 5  # bands of a stacked picture before the rest is one band
TOP_COMPARED = 8  # operators shown apart where several runs are compared
TOP_REASONS = 8
WORD_ABOVE = 1.16  # upper end of an axis over its highest value, where a word stands in the chart
SHOWN = 0.002  # of the whole: a smaller piece is not drawn
HATCHED = {"fillmode": "overlay", "fgcolor": "rgba(255, 255, 255, 0.75)"}
SLACK_COLOUR = "rgba(128, 128, 128, 0.32)"
CHARACTER_PX = 5.5  # width of a character of a label at the end of a bar


def distribution(
    curves: Sequence[Curve], slo_s: float | None = None, noun: str = "requests"
) -> Chart:
    """Chart of cumulative distributions of durations in s, a line for each curve, with the SLO as a
    vertical line. noun: what is counted."""
    levels = np.linspace(0.0, 1.0, QUANTILES)
    curve_times = []
    for curve in curves:
        durations_s = np.asarray(curve.values, dtype=float)
        if (durations_s := durations_s[np.isfinite(durations_s)]).size:
            curve_times.append((curve, np.quantile(durations_s, levels)))
    if not curve_times:
        return empty_chart("No finished request to show")
    axis_end_s = max(float(times_s[round(0.995 * (QUANTILES - 1))]) for _, times_s in curve_times)
    if slo_s is not None and slo_s < 2.5 * axis_end_s:
        axis_end_s = max(axis_end_s, 1.08 * slo_s)
    units_per_s, unit = base.time_unit(axis_end_s)
    fig, sentences = figure(), []
    for curve, times_s in curve_times:
        hover = f"%{{y:.1f}} % within %{{x:,.3~g}} {unit}<extra>{curve.name}</extra>"
        name = base.shorten(curve.name)
        base.add_line(
            fig, times_s * units_per_s, 100 * levels, curve.colour, hover, width=2.4, name=name
        )
        median_text, p99_text = map(seconds, np.interp([0.5, 0.99], levels, times_s))
        sentences.append(f"{curve.name}: half within {median_text}, 99 % within {p99_text}")
    if slo_s is not None and slo_s <= axis_end_s:
        share_at_slo = np.mean([np.interp(slo_s, times_s, levels) for _, times_s in curve_times])
        side_text = "left" if slo_s > axis_end_s / 2 else "right"
        label_place = f"{'bottom' if share_at_slo > 0.5 else 'top'} {side_text}"  # off the curves
        base.mark_at(fig, f"SLO {seconds(slo_s)}", label_place, x=slo_s * units_per_s)
    return base.chart(
        fig, "Cumulative distribution. " + "; ".join(sentences) + ".",
        "Each curve says which share is within a time: further to the left is faster.",
        x={"range": [0, axis_end_s * units_per_s], "title_text": unit, "showgrid": True},
        y={"range": [0, 101], "ticksuffix": " %", "title_text": f"of {noun}"},
        columns={"x": f"time ({unit})", "y": f"share of {noun} (%)"},
        hovermode="closest", showlegend=len(curve_times) > 1,
    )  # fmt: skip


def timeline(
    windows: pl.DataFrame, columns: Mapping[str, tuple[str, str]], y_title: str, *, reads: str,
    stacked: bool = False, scale: float = 1.0, warmup_s: float = 0.0, top: float | None = None,
) -> Chart:  # fmt: skip
    """Chart of columns of the table `windows` over time. columns: (label, colour) by column. reads:
    its caption. scale: factor from SI to the unit of y_title. top: end of the y axis."""
    style_of = {c: style for c, style in columns.items() if c in windows.columns}
    # What is nothing all along (a pool that is not there) would only be a line on the axis.
    style_of = {c: style for c, style in style_of.items() if windows[c].max()} or style_of
    if not windows.height or not style_of:
        return empty_chart("Nothing was recorded")
    time_factor, time_unit = base.time_axis(float(windows["t_s"].max() or 0.0))  # type: ignore[arg-type]
    times = windows["t_s"].to_numpy() * time_factor
    fig, sentences, curve_values = figure(height=260), [], []
    hover_text = "%{y:,.3~s}" if top is None else "%{y:.1f}"
    for column, (label, colour) in style_of.items():
        scaled = windows[column].cast(pl.Float64).to_numpy() * scale
        area: dict[str, Any] = {"stackgroup": "all", "fillcolor": colour, "width": 0.8}
        base.add_line(fig, times, scaled, colour, hover_text, name=label, **area if stacked else {})
        curve_values.append(np.nan_to_num(scaled))
        mean, peak = (three_figures(float(reduce(scaled))) for reduce in (np.nanmean, np.nanmax))
        sentences.append(f"{label} {mean} on average, {peak} at most")
    warmup_x = warmup_s * time_factor
    has_room_for_word = warmup_x > 0.1 * float(times.max())  # else the word would lie on the data
    base.shade_warm_up(fig, warmup_x, "warm-up" if has_room_for_word else "")
    highest_value = float(np.max(np.sum(curve_values, axis=0) if stacked else curve_values))
    if has_room_for_word and highest_value > 0:  # the word stands above the data
        top = max(top or 0.0, WORD_ABOVE * highest_value)
    return base.chart(
        fig, f"{y_title} over simulated time. " + "; ".join(sentences) + ".", reads,
        x={"title_text": f"simulated time ({time_unit})", "range": [0, float(times.max())]},
        y={"title_text": y_title, "range": None if top is None else [0, top]},
        showlegend=len(style_of) > 1,
    )  # fmt: skip


# Figures of the windows that a page shows over time: columns with label and colour, what the axis
# says, how they are drawn (see `timeline`), and how the chart is read.
_PERCENT = {"y_title": "%", "scale": 100, "top": 101}
OVER_TIME: dict[str, dict[str, Any]] = {
    "waiting": {"y_title": "requests waiting", "stacked": True, "columns": {
        "prefill_queue": ("for prefill", theme.STAGE["prefill_queue"]),
        "router_queue": ("for admission", theme.STAGE["router"]),
        "front_end_queue": ("at the front end", theme.STAGE["front_end"]),
    }, "reads": "A queue that keeps growing means that more comes than is served."},
    "running": {"y_title": "requests being served", "columns": {
        "decode_running": ("decode", theme.STAGE["decode"]),
        "prefill_running": ("prefill", theme.STAGE["prefill"]),
        "transfer_running": ("KV transfer", theme.STAGE["kv_transfer"]),
    }, "reads": "Decode holds a request for as long as its answer takes."},
    "output": {"y_title": "output tokens/s, whole machine", "columns": {
        "output_tokens_per_s": ("output tokens", theme.ROLE["decode"]),
    }, "reads": "Level where the machine keeps up with what comes."},
    "input": {"y_title": "input tokens/s, whole machine", "columns": {
        "input_tokens_per_s": ("input tokens", theme.ROLE["prefill"]),
    }, "reads": "Tokens that hit in the memory pool are read and not computed."},
    "busy": _PERCENT | {"columns": {
        "decode_busy": ("decode busy, of the time", theme.ROLE["decode"]),
        "prefill_busy": ("prefill busy, of the time", theme.ROLE["prefill"]),
        "hbm_utilisation": ("HBM bandwidth", theme.SERIES[4]),
        "cube_utilisation": ("cube cores", theme.SERIES[2]),
    }, "reads": "An instance is busy whenever it computes, for however few requests: HBM and "
        "cube cores say how hard it works."},
    "pool": _PERCENT | {"columns": {
        "hit_token_ratio": ("hit ratio", theme.ROLE["prefill"]),
        "pool_used_fraction": ("DRAM used", theme.ROLE["memory_pool"]),
    }, "reads": "Hits rise while the pool fills, and stay where it is full or nothing more "
        "comes back."},
    "npus": {"y_title": "NPUs", "stacked": True, "columns": {
        "decode_npus": ("decode", theme.ROLE["decode"]),
        "colocated_npus": ("colocated", theme.ROLE["colocated"]),
        "prefill_npus": ("prefill", theme.ROLE["prefill"]),
        "changing_npus": ("starting or draining", theme.OTHER),
    }, "reads": "NPUs of instances that start, serve or drain; the rest of the machine is free."},
    "power": {"y_title": "kW", "scale": 1e-3, "columns": {
        "power_w": ("power of the NPUs that serve", theme.SERIES[2]),
    }, "reads": "Watts follow what cube cores and HBM do."},
    "planes": {"y_title": "% of capacity", "scale": 100, "columns": {
        f"{plane}_utilisation": (theme.title(plane), colour)
        for plane, colour in theme.PLANE.items()
    }, "reads": "Mean of all links of a plane: single links may be fuller (see Fabric)."},
}  # fmt: skip


def over_time(name: str, windows: pl.DataFrame, warmup_s: float = 0.0) -> Chart:
    """Chart over simulated time of the columns of `windows` that OVER_TIME[name] lists."""
    return timeline(windows, **OVER_TIME[name], warmup_s=warmup_s)


def stages(rows: Mapping[str, Sequence[tuple[str, float]]]) -> Chart:
    """Chart of mean TTFTs as stacked bars. rows: for the name of each bar, its stages as (stage,
    mean seconds)."""
    longest_s = max((sum(stage_s for _, stage_s in bar) for bar in rows.values()), default=0.0)
    if longest_s <= 0:
        return empty_chart("No first token was made")
    units_per_s, unit = base.time_unit(longest_s)
    bar_names = list(rows)
    # A stage that takes no time at all would only be a word in the legend.
    stage_pairs = (pair for bar in rows.values() for pair in bar)
    stage_names = list(dict.fromkeys(stage for stage, stage_s in stage_pairs if stage_s > 0))
    fig = figure(height=96 + 44 * len(rows) + 14 * len(stage_names))  # the legend in one column
    for stage in stage_names:
        times_s = [dict(rows[name]).get(stage, 0.0) for name in bar_names]
        base.add_bars(
            fig, bar_names, [stage_s * units_per_s for stage_s in times_s],
            theme.STAGE.get(stage, theme.ROLE["decode"]), name=_stage_title(stage),
            text=[seconds(stage_s) if stage_s > 0.09 * longest_s else "" for stage_s in times_s],
            textposition="inside", insidetextanchor="middle", hover="%{customdata}",
            customdata=[seconds(stage_s) for stage_s in times_s],
        )  # fmt: skip
    sentences = [
        f"{name}: "
        + ", ".join(f"{_stage_title(stage).lower()} {seconds(stage_s)}" for stage, stage_s in bar)
        for name, bar in rows.items()
    ]
    return base.chart(
        fig, "Mean time to first token by stage. " + "; ".join(sentences) + ".",
        "The parts add up to the mean time to first token.",
        x={"title_text": f"mean time ({unit})"},
        y={"showticklabels": len(rows) > 1, "tickvals": bar_names,  # "A · Quick start": its letter
           "ticktext": [name.partition(" · ")[0] for name in bar_names]},
        columns={"y": "requests"}, barmode="stack", hovermode="y unified", bargap=0.3,
        legend_traceorder="normal",
    )  # fmt: skip


def _stage_title(stage: str) -> str:
    """Label of a stage of the TTFT, by its name in summaries."""
    return METRICS[f"ttft_{stage}_s_mean"].label


def iteration_over_time(
    windows: pl.DataFrame, warmup_s: float = 0.0, in_sequence: bool = True
) -> Chart:
    """Chart of the mean time of decode iterations in each window. It is divided by operator if
    operators run one after the other (`in_sequence`), and whole if they run on two streams."""
    chart_options: dict[str, Any] = {
        "y_title": "ms per iteration", "scale": 1e3, "warmup_s": warmup_s,
        "reads": "An iteration gives each request 1 + accepted MTP tokens: TPOT is its time over "
        "them.",
    }  # fmt: skip
    if not in_sequence:
        iteration_curve = {"decode_iteration_s": ("decode iteration", theme.ROLE["decode"])}
        return timeline(windows, iteration_curve, **chart_options)
    columns = [c for c in windows.columns if c.startswith("decode_") and c.endswith("_s")
             and c != "decode_iteration_s"]  # fmt: skip
    if not columns:
        return empty_chart("No decode iteration ran")
    mean_s_of = {column: float(windows[column].mean() or 0.0) for column in columns}  # type: ignore[arg-type]
    columns.sort(key=lambda c: (-mean_s_of[c], c))
    other_s = (
        pl.sum_horizontal(*columns[TOP_OPERATORS:]) if columns[TOP_OPERATORS:] else pl.lit(0.0)
    )
    operators = {c: c.removeprefix("decode_").removesuffix("_s") for c in columns[:TOP_OPERATORS]}
    styles = {c: (theme.title(o), theme.operator_colour(o)) for c, o in operators.items()}
    styles["rest"] = ("all other", theme.OTHER)
    return timeline(windows.with_columns(rest=other_s), styles, stacked=True, **chart_options)


def shares(rows: Sequence[tuple[str, float, str]]) -> Chart:
    """Chart of horizontal bars from 0 to 100 %. rows: (label, share from 0 to 1, colour)."""
    if not rows:
        return empty_chart("Nothing was recorded")
    fig = figure(height=70 + 30 * len(rows))
    labels, fractions, colours = zip(*rows, strict=True)
    texts = [amount(share, "share") for share in fractions]
    percents = [100 * share for share in fractions]
    base.add_bars(fig, labels, percents, list(colours), text=texts, textposition="outside")
    return base.chart(
        fig, "; ".join(f"{label} {text}" for label, text in zip(labels, texts, strict=True)) + ".",
        "Share of what could be used, mean of the steady state.",
        x={"range": [0, 112], "tickvals": [0, 25, 50, 75, 100], "ticksuffix": " %"},
        columns={"x": "share (%)", "y": "resource"},
        hovermode="closest", showlegend=False, bargap=0.35, margin={"t": 8},
    )  # fmt: skip


def dies(
    ranks: pl.DataFrame, column: str, label: str, *, percent: bool, dark: bool = False
) -> Chart:
    """Heat map of one column of the table `ranks`: a column of cells for each node, a cell for each
    die. label: title of the values. percent: whether they are shares of 1, to be shown in %."""
    if not ranks.height or column not in ranks.columns:
        return empty_chart("No die served")
    node_dies = int(ranks.group_by("node").agg(n=pl.col("die").n_unique())["n"].max() or 1)  # type: ignore[arg-type]
    nodes = int(ranks["node"].max() or 0) + 1  # type: ignore[arg-type]
    node_dies = max(node_dies, int((ranks["die"] - ranks["die"].min()).max() or 0) // nodes + 1)  # type: ignore[arg-type]
    cell_values = np.full((node_dies, nodes), np.nan)
    hover_texts = np.full((node_dies, nodes), "not in use", dtype=object)
    title = pl.format("{} {}, rank {}, die {}", "role", "instance", "rank", "die")
    # Instances that share a die, in turn or at once: the one with the highest figure is shown.
    used_dies = ranks.sort(column, nulls_last=False).group_by("die").last().with_columns(name=title)
    cell_of_die = (used_dies["die"] % node_dies).to_numpy(), used_dies["node"].to_numpy()
    multiplier, unit = (100.0, " %") if percent else (1.0, "")
    cell_values[cell_of_die] = multiplier * used_dies[column].cast(pl.Float64).to_numpy()
    hover_texts[cell_of_die] = used_dies["name"].to_numpy()
    fig = figure(height=120 + 14 * node_dies)
    base.add_heat_map(
        fig, cell_values, dark=dark, customdata=hover_texts, xgap=1.5, ygap=1.5, hoverongaps=False,
        zmax=100 if percent else None, colorbar={"ticksuffix": unit},
        hovertemplate=f"%{{customdata}}<br>{label} %{{z:.3~g}}{unit}<extra></extra>",
    )  # fmt: skip
    low, high = (
        three_figures(float(value)) for value in (np.nanmin(cell_values), np.nanmax(cell_values))
    )
    return base.chart(
        fig,
        f"{label} of {numbered(used_dies.height, 'die')} in use, from {low}{unit} to {high}{unit}.",
        "Each cell is a die: nodes across, the dies of a node down. Where instances share it, the "
        "highest figure is shown.",
        x={"title_text": "node", "constrain": "domain"}, margin={"t": 8},
        columns={"z": f"{label} (%)" if percent else label},
        y={"title_text": "die in node", "autorange": "reversed", "showgrid": False},
    )  # fmt: skip


def operators_by_run(runs: Mapping[str, tuple[str, Mapping[str, float]]]) -> Chart:
    """Chart that compares each operator's seconds in an iteration between runs. runs: (colour,
    seconds by operator) by the name of the run."""
    times_by_run = {name: busy_s for name, (_, busy_s) in runs.items() if sum(busy_s.values()) > 0}
    if not times_by_run:
        return empty_chart("No iteration ran")
    operators = {operator for busy_s in times_by_run.values() for operator in busy_s}
    peak_s = {o: max(busy_s.get(o, 0.0) for busy_s in times_by_run.values()) for o in operators}
    operator_order = sorted((o for o in peak_s if peak_s[o] > 0), key=lambda o: (-peak_s[o], o))
    operator_order, other_names = operator_order[:TOP_COMPARED], operator_order[TOP_COMPARED:]
    row_titles = [theme.title(o) for o in operator_order] + ["All other"] * bool(other_names)
    units_per_s, unit = base.time_unit(max(peak_s.values()))
    fig = figure(height=90 + (12 + 11 * len(times_by_run)) * len(row_titles))
    for name, busy_s in times_by_run.items():
        bar_s = [busy_s.get(operator, 0.0) for operator in operator_order]
        bar_s += [sum(busy_s.get(operator, 0.0) for operator in other_names)] * bool(other_names)
        base.add_bars(
            fig, row_titles, [v * units_per_s for v in bar_s], runs[name][0],
            name=base.shorten(name), customdata=[seconds(v) for v in bar_s], hover="%{customdata}",
        )  # fmt: skip
    totals = [f"{name}: {seconds(sum(busy_s.values()))}" for name, busy_s in times_by_run.items()]
    return base.chart(
        fig, f"Time of an iteration by operator. In all {'; '.join(totals)}.",
        "Where two streams overlap, operators add up to more than the iteration.",
        x={"title_text": f"{unit} per iteration"}, columns={"y": "operator"},
        barmode="group", hovermode="y unified",
        bargap=0.25, bargroupgap=0.08, legend_traceorder="normal", showlegend=len(times_by_run) > 1,
    )  # fmt: skip


def tenants(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Chart of two bars per tenant: the requests/s that it sent (`asked_req_per_s` of its row), and
    the requests/s that met the SLO (`goodput_req_per_s`)."""
    fig, bar_phrases = figure(height=110 + 44 * len(rows)), []
    labels = [str(row["tenant"]) for row in rows]
    for column, title, colour in (
        ("asked_req_per_s", "Offered", theme.OTHER),
        ("goodput_req_per_s", "Met their SLO", theme.ROLE["decode"]),
    ):
        req_per_s = [float(row[column]) for row in rows]
        rate_texts = [amount(value, "rate", "req/s") for value in req_per_s]
        base.add_bars(
            fig, labels, req_per_s, colour, name=title, text=rate_texts, textposition="outside"
        )
        bar_phrases += [
            f"{tenant}: {title.lower()} {rate}"
            for tenant, rate in zip(labels, rate_texts, strict=True)
        ]
    top_req_per_s = max(float(row["asked_req_per_s"]) for row in rows)
    return base.chart(
        fig, "; ".join(bar_phrases) + ".",
        "Both bars of a pair are equal where every request meets its SLO.",
        x={"title_text": "req/s", "range": [0, 1.35 * top_req_per_s or 1]},  # room for the words
        columns={"y": "tenant or model"}, barmode="group", showlegend=True, hovermode="closest",
    )  # fmt: skip


def reasons(counts: Mapping[str, int]) -> Chart:
    """Chart of the numbers of requests that ended without an answer, by reason."""
    if not counts:
        return empty_chart("Every request that ended was answered")
    top_counts = dict(list(counts.items())[:TOP_REASONS])
    fig = figure(height=90 + 34 * len(top_counts))
    texts = [f"{count:,}" for count in top_counts.values()]
    base.add_bars(fig, list(top_counts), list(top_counts.values()), theme.ROLE["prefill"],
         text=texts, textposition="outside")  # fmt: skip
    listing = "; ".join(f"{why}: {count}" for why, count in zip(top_counts, texts, strict=True))
    caption = "Requests by why they ended without an answer."
    column_titles = {"x": "requests", "y": "reason"}
    return base.chart(fig, f"{listing}.", caption, columns=column_titles, hovermode="closest")


def waterfall(
    parts: Mapping[str, float], reads: str, *, total: str = "",
    colours: Mapping[str, str] = {}, median: Mapping[str, float] = {},
) -> Chart:  # fmt: skip
    """Chart of a request's seconds by part; each bar begins where the previous bar ends. total:
    label of a bar with the sum, '' for none. median: seconds by part of the median request, in
    grey. reads: caption."""
    total_s = max(sum(parts.values()), sum(median.values()))
    shown = [part for part in parts if max(parts[part], median.get(part, 0.0)) > SHOWN * total_s]
    if not shown:
        return empty_chart("No request finished")
    units_per_s, unit = base.time_unit(total_s)
    titles = [f"{part[0].upper()}{part[1:]}" for part in shown] + [total] * bool(total)
    fig = figure(height=110 + (40 if median else 27) * len(titles))
    palette = [colours.get(n) or theme.SERIES[k % len(theme.SERIES)] for k, n in enumerate(shown)]
    series = {"this request": (parts, [*palette, theme.OTHER])}
    label_chars = 0  # characters of a label
    if median:
        series["the median request"] = median, [SLACK_COLOUR] * len(titles)
    for name, (parts_s, shades) in series.items():
        begin_s_of = dict(zip(parts_s, accumulate(parts_s.values(), initial=0.0), strict=False))
        times_s = [parts_s.get(part, 0.0) for part in shown]
        time_texts = [seconds(time_s) if time_s else "" for time_s in times_s]
        if not median:
            time_texts = [f"{seconds(v)} · {amount(v / total_s, 'share')}" for v in times_s]
        label_chars = max(label_chars, *map(len, time_texts))
        base.add_bars(
            fig, titles, [v * units_per_s for v in [*times_s, total_s]][: len(titles)],
            shades[: len(titles)], name=name,
            base=[begin_s_of.get(n, 0.0) * units_per_s for n in shown] + [0.0] * bool(total),
            text=[*time_texts, seconds(total_s)][: len(titles)],
            textposition=["outside" if median else "auto"] * len(shown) + ["inside"] * bool(total),
        )  # fmt: skip
    median_texts = {n: f" (median {seconds(median.get(n, 0.0))})" if median else "" for n in shown}
    listing = ", ".join(f"{part} {seconds(parts[part])}{median_texts[part]}" for part in shown)
    return base.chart(
        fig, f"{total or 'One request'} takes {seconds(sum(parts.values()))}: {listing}.", reads,
        x={"title_text": unit, "range": [0, total_s * units_per_s]}, barmode="group",
        columns={"x": f"time ({unit})", "y": "part"},
        hovermode="closest", showlegend=bool(median), bargap=0.24, legend_traceorder="normal",
        margin_r=10 + CHARACTER_PX * label_chars,  # for labels of the last bars
    )  # fmt: skip


def layer(plan: Timeline, layer_s: float) -> Chart:
    """Chart of the operators on the two streams of a layer, which takes `layer_s` seconds. Work
    that ends after the layer continues at the left end, as in the next layer."""
    units_per_s, unit = base.time_unit(layer_s)
    streams = [f"{name[0].upper()}{name[1:]}" for name in plan.streams]
    bars_by_operator: dict[str, list[tuple[str, float, float, int, float]]] = {}
    for piece in plan.pieces:
        piece_s = sum(time_s for _, time_s in piece.operators)
        offset = piece.low
        for operator, time_s in piece.operators:
            share = time_s / piece_s * (piece.high - piece.low)
            begin, end = offset - int(offset), offset + share - int(offset)
            bar_spans = [(begin, end)] if end <= 1.0 else [(begin, 1.0), (0.0, end - 1.0)]
            for bar_begin, bar_end in bar_spans:
                bar = streams[piece.stream], bar_begin, bar_end - bar_begin, piece.microbatch, share
                bars_by_operator.setdefault(operator, []).append(bar)
            offset += share
    fig = figure(height=170 + 62 * len(streams))
    end_x = layer_s * units_per_s
    base.add_bars(fig, streams, [end_x] * len(streams), SLACK_COLOUR, name="Slack", hover="Slack")
    for operator, bars in bars_by_operator.items():
        fig.add_bar(
            y=[bar[0] for bar in bars], x=[end_x * bar[2] for bar in bars],
            base=[end_x * bar[1] for bar in bars], orientation="h", name=theme.title(operator),
            marker={"color": theme.operator_colour(operator), "line_width": 0,
                    "pattern": HATCHED | {"shape": ["/" if bar[3] else "" for bar in bars]}},
            customdata=[(seconds(layer_s * bar[4]), 1 + bar[3]) for bar in bars],
            hovertemplate="%{fullData.name}, microbatch %{customdata[1]}: %{customdata[0]}"
            "<extra></extra>",
        )  # fmt: skip
    listing = ", ".join(f"{name} {amount(share, 'share')}" for name, share in slack_by_stream(plan))
    return base.chart(
        fig, f"One layer takes {seconds(layer_s)}. Slack of its streams: {listing}.",
        "Hatched: the second microbatch. Grey: the stream waits for the other one.",
        x={"title_text": f"{unit} of one layer", "range": [0, end_x]},
        columns={"y": "stream"}, barmode="overlay", hovermode="closest", bargap=0.3,
    )  # fmt: skip


def slack_by_stream(plan: Timeline) -> list[tuple[str, float]]:
    """List, for each of the two streams of a layer, (name of the stream, share of the layer's time
    in which it waits for the other stream)."""
    return [(stream, share) for stream, name, share in layer_shares(plan) if name == SLACK]


def pace_sentence(plan: Timeline | None, rows: Sequence[tuple[str, str, float]]) -> str:
    """Sentence on the stream that limits an iteration. plan: a layer's streams, None if operators
    run in sequence. rows: (stream, operator, seconds)."""
    busy_rows = sorted((row for row in rows if row[1] != SLACK), key=lambda row: -row[2])
    longest_text = " and ".join(theme.title(name).lower() for _, name, _ in busy_rows[:2])
    if plan is None:
        return f"Its operators run one after the other; the longest: {longest_text}."
    streams_by_slack = sorted(slack_by_stream(plan), key=lambda item: item[1])
    (busy_stream, least_slack), (other_stream, other_slack) = streams_by_slack
    if other_slack < 0.02:
        busy_text = f"busy {amount(1.0 - other_slack, 'share')} of its time"
        return f"Both streams of a layer are {busy_text}. Longest at work: {longest_text}."
    idle_text = "" if least_slack < 0.02 else f", which itself waits {amount(least_slack, 'share')}"
    return (
        f"The {other_stream} stream waits {amount(other_slack, 'share')} of a layer for the "
        f"{busy_stream} stream{idle_text}. Longest at work: {longest_text}."
    )


def operator_times(rows: Sequence[tuple[str, str, float]], pass_name: str) -> Chart:
    """Chart of each operator's busy time in a mean iteration or batch (`pass_name`), idle time
    last. rows: (stream, operator, seconds), the operator SLACK is idle time."""
    if not rows:
        return empty_chart(f"No {pass_name} ran")
    rows = [row for row in rows if row[2] > SHOWN * sum(busy_s for _, _, busy_s in rows)]
    rows = sorted(rows, key=lambda row: (row[1] == SLACK, -row[2]))
    longest_s = max(busy_s for _, _, busy_s in rows)
    units_per_s, unit = base.time_unit(longest_s)
    titles = [
        f"Slack of {stream}" if name == SLACK else theme.title(name) for stream, name, _ in rows
    ]
    fig = figure(height=90 + 27 * len(rows))
    base.add_bars(
        fig, titles, [busy_s * units_per_s for _, _, busy_s in rows],
        [SLACK_COLOUR if name == SLACK else theme.operator_colour(name) for _, name, _ in rows],
        text=[seconds(busy_s) for _, _, busy_s in rows], textposition="outside",
        customdata=[f", {stream} stream" if stream else "" for stream, _, _ in rows],
        hover="%{y}%{customdata}: %{text}<extra></extra>",
    )  # fmt: skip
    listing = ", ".join(
        f"{title} {seconds(busy_s)}"
        for title, (_, _, busy_s) in zip(titles[:3], rows, strict=False)
    )
    return base.chart(
        fig, f"At work in a mean {pass_name}: {listing}.",
        "Time each operator is at work; where two streams overlap, the sum exceeds the whole.",
        x={"title_text": f"{unit} at work per {pass_name}",
           "range": [0, 1.2 * longest_s * units_per_s]},
        columns={"y": "operator"},
        hovermode="closest", showlegend=False, bargap=0.28,
    )  # fmt: skip
