"""Charts of a run's history: instances that come and go, faults, hours of a day, memory pool."""

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
import polars as pl

from twin.metrics.events import Kind
from twin.metrics.measures import amount, numbered, seconds
from twin.scenario import KINDS, Fault
from twin.ui import theme
from twin.ui.charts import OVER_TIME, base, timeline
from twin.ui.charts.base import Chart, span_chart

STATES = {
    "process": ("starts", "#C9CDD8"),
    "fetch": ("fetches weights", theme.PLANE["vpc"]),
    "load": ("loads weights", theme.ROLE["memory_pool"]),
    "graphs": ("makes graphs", theme.PLANE["rdma"]),
    "drain": ("drains", theme.OTHER),
    "down": ("is down", theme.SERIES[3]),
}
ROLES = ("prefill", "decode", "colocated")
HOURS = {
    "npu_hours_used": ("computing", theme.ROLE["decode"]),
    "npu_hours_idle": ("without work", theme.OTHER),
}
# Panels of a day: title, columns with label and colour, unit.
DAY = {
    "NPUs by pool": (OVER_TIME["npus"]["columns"], "NPUs"),
    "NPU-hours used and wasted": (HOURS, "NPU-hours"),
    "Energy": ({"energy_kwh": ("energy", theme.SERIES[2])}, "kWh"),
    "Prompt tokens found cached": ({"hit_percent": ("hit ratio", theme.ROLE["prefill"])}, "%"),
    "Memory pool used": ({"pool_percent": ("DRAM used", theme.ROLE["memory_pool"])}, "%"),
    "Requests that came": ({"arrived": ("requests", theme.SERIES[0])}, "requests"),
}
TIERS = {"pool_read": ("DRAM", theme.ROLE["memory_pool"]), "ssd_read": ("SSD", theme.SERIES[4])}
INSTANCES_MOST, FAULTS_MOST = 60, 40  # rows of a picture
FAULT = "#D03B2F"  # a thing out of service; 4.5:1 on white, 3.9:1 on the dark page
LOOKS = {"out": FAULT, "reduced": theme.PLANE["rdma"], "slow": theme.ROLE["colocated"]}
MARKS = {
    Kind.FAULT: ("✕", FAULT),
    Kind.REBALANCE: ("⇄", theme.ROLE["colocated"]),
    Kind.SHIFT: ("≈", theme.PLANE["vpc"]),
}
# Columns of the windows that are drawn around faults: label, role whose colour it bears, axis,
# factor from SI to its unit.
AROUND = {
    "output_tokens_per_s": ("output", "decode", "output tokens/s", 1.0),
    "input_tokens_per_s": ("input", "prefill", "input tokens/s", 1.0),
    "ttft_s_mean": ("TTFT", "prefill", "TTFT, mean (s)", 1.0),
    "tpot_s_mean": ("TPOT", "decode", "TPOT, mean (ms)", 1e3),
}
SHADES = 0.06, 0.12  # while a fault is in force; while an instance was out of service


def lives(table: pl.DataFrame, horizon_s: float, warmup_s: float = 0.0) -> Chart:
    """Chart of the states of each instance over time, from the table `lives`: a row for each
    instance, sorted by its first NPU, and a bar for each state."""
    key_columns = [name for name in ("role", "instance", "model") if name in table.columns]
    instances = table.group_by(key_columns).agg(pl.col("first_npu").first())
    instances = instances.sort("first_npu", "role", "instance").head(INSTANCES_MOST)
    row_names = [_instance_name(row) for row in instances.iter_rows(named=True)]
    series: dict[str, tuple[str, list[tuple[str, float, float, str]]]] = {}
    styles = {role: (f"{role} serves", theme.ROLE[role]) for role in ROLES} | STATES
    for state, (label, colour) in styles.items():
        series[label] = colour, [
            (name, row["t_s"], row["end_s"], f"{label} for {row['end_s'] - row['t_s']:,.4g} s")
            for row in table.iter_rows(named=True)
            if (name := _instance_name(row)) in row_names
            and state == (row["role"] if row["state"] == "serve" else row["state"])
        ]  # fmt: skip
    drains_text = numbered(table.filter(pl.col("state") == "drain").height, "drain")
    alt = f"{numbered(instances.height, 'instance')} over the run; {drains_text}."
    caption = "Each row is an instance: what it costs lasts from its start to the end of its drain."
    return span_chart(
        row_names, series, alt, caption, "instance", horizon_s=horizon_s, warmup_s=warmup_s
    )


def _instance_name(row: dict[str, Any]) -> str:
    """Name of an instance, with its model where there are several."""
    return f"{row['role']} {row['instance']}" + (f", {row['model']}" if "model" in row else "")


def pressures(decisions: pl.DataFrame, column: str, marks: tuple[float, float] | None) -> Chart:
    """Chart over time of the metric that a controller reads of each pool. column: name of the
    metric in the table `decisions`, without the role before it. marks: the controller's thresholds
    (high, low); None without any."""
    curves = {f"{role}_{column}": (role, theme.ROLE[role]) for role in ROLES
               if f"{role}_{column}" in decisions.columns}  # fmt: skip
    y_title = "instances needed" if column == "needed" else "pressure, 1 at its limit"
    chart = timeline(
        decisions.with_columns(t_s="seen_s"), curves, y_title,
        reads="What the controller saw; where it has marks, it acts on a pool that leaves the band "
        "between them.",
    )  # fmt: skip
    for name, side, threshold in zip(("high", "low"), ("top", "bottom"), marks or (), strict=False):
        base.mark_at(chart.figure, f"{name} mark", f"{side} left", y=threshold)
    return chart


def hourly_bars(hours: pl.DataFrame, columns: Mapping[str, tuple[str, str]], unit: str) -> Chart:
    """Chart of stacked bars, one for each hour of the table `hours`. columns: (label, colour) by
    column. unit: the unit that all columns share."""
    fig, sentences = base.figure(height=240), []
    for column, (label, colour) in columns.items():
        if column not in hours.columns or not hours[column].max():
            continue
        fig.add_bar(
            x=hours["hour"].to_list(), y=hours[column].to_list(), name=label,
            marker={"color": colour, "line_width": 0}, hovertemplate="%{y:,.3~g} " + unit,
        )  # fmt: skip
        filled_hours = hours.with_columns(pl.col(column).fill_null(0.0))
        low_and_high = filled_hours[column].arg_min(), filled_hours[column].arg_max()
        low_row, high_row = (filled_hours.row(int(k or 0), named=True) for k in low_and_high)
        sentences.append(
            f"{label}: {amount(low_row[column], 'rate', unit)} at least, in hour {low_row['hour']}"
            f", {amount(high_row[column], 'rate', unit)} at most, in hour {high_row['hour']}"
        )
    return base.chart(
        fig, f"{unit} by hour. " + "; ".join(sentences) + ".", "Each bar is one hour of the day.",
        x={"title_text": "hour", "dtick": max(1, hours.height // 8)}, y={"title_text": unit},
        barmode="stack", showlegend=len(sentences) > 1, bargap=0.15,
    )  # fmt: skip


def tiers(windows: pl.DataFrame, traffic: pl.DataFrame, warmup_s: float) -> Chart:
    """Chart of the bytes/s read from each tier of the memory pool over simulated time."""
    pool_reads = traffic.filter(pl.col("traffic").is_in(list(TIERS)))
    bytes_by_tier = pool_reads.pivot(
        "traffic", index="t_s", values="bytes", aggregate_function="sum"
    )
    read_rates = windows.select("t_s", "window_s").join(bytes_by_tier, on="t_s", how="left")
    tier_columns = pl.col([tier for tier in TIERS if tier in bytes_by_tier.columns])
    read_rates = read_rates.with_columns(tier_columns.fill_null(0.0) / pl.col("window_s"))
    caption = "What DRAM has lost comes from SSD, in addition to the reads from DRAM."
    return timeline(read_rates, TIERS, "GB/s", scale=1e-9, warmup_s=warmup_s, reads=caption)


def namespaces(hits: pl.DataFrame, names: Sequence[str], warmup_s: float) -> Chart:
    """Chart of the hit ratio of each tenant's namespace over time. names: of the tenants. hits:
    table of `t_s` and one column per tenant, called "0", "1" and so on in the order of names."""
    styles = zip(names, cycle(theme.SERIES), strict=False)
    curves = {str(k): style for k, style in enumerate(styles)}
    caption = "Each tenant hits only blocks of its own namespace."
    return timeline(hits, curves, "%", scale=100, top=101, warmup_s=warmup_s, reads=caption)


def servers(reads: pl.DataFrame, warmup_s: float, *, dark: bool = False) -> Chart:
    """Map of the bytes/s read from each memory server over time. reads: the table `servers`."""
    nodes, times_s = reads["node"].unique().sort(), reads["t_s"].unique().sort()
    reads, shape = reads.sort("node", "t_s"), (nodes.len(), times_s.len())
    gb_per_s = (reads["read_bytes"] / reads["window_s"]).to_numpy().reshape(shape) / 1e9
    delay_texts = [f", held reads back by {seconds(s)}" if s > 0 else "" for s in reads["held_s"]]
    units_per_s, unit = base.time_axis(float(times_s[-1]))
    fig = base.figure(height=140 + 10 * nodes.len())
    base.add_heat_map(
        fig, gb_per_s, x=times_s.to_numpy() * units_per_s, y=[f"node {node}" for node in nodes],
        ygap=1, dark=dark, colorbar={"ticksuffix": " GB/s"},
        customdata=np.array(delay_texts).reshape(shape),
        hovertemplate="%{y}, %{x:.3~g} " + unit + "<br>%{z:.3~g} GB/s%{customdata}<extra></extra>",
    )  # fmt: skip
    base.shade_warm_up(fig, warmup_s * units_per_s)
    node_means = gb_per_s.mean(axis=1)
    return base.chart(
        fig, f"Read from {nodes.len()} memory servers over simulated time: on average "
        f"{np.mean(node_means):.3g} GB/s each, node {nodes[int(np.argmax(node_means))]} most with "
        f"{np.max(node_means):.3g}.",
        "Each row is the DRAM of a node: a row that is hotter than others holds blocks that many "
        "prompts share.", x={"title_text": f"simulated time ({unit})"},
        y={"autorange": "reversed", "showgrid": False}, margin={"t": 8},
        columns={"y": "memory server", "z": "GB/s"},
    )  # fmt: skip


def faults(scenario_faults: Sequence[Fault], horizon_s: float, warmup_s: float = 0.0) -> Chart:
    """Chart of faults over simulated time, with a bar for each from its begin to its repair."""
    shown_faults = [fault for fault in scenario_faults if fault.at_s < horizon_s][:FAULTS_MOST]
    if not shown_faults:
        return base.empty_chart("Nothing breaks within the simulated time")
    row_names = [f"{k + 1}  {fault.where}" for k, fault in enumerate(shown_faults)]
    spans_by_kind = {
        kind.label: (LOOKS[kind.look], [
            (name, begin_s, end_s, _effect_text(fault))
            for name, fault in zip(row_names, shown_faults, strict=True) if fault.kind == kind.name
            for begin_s, end_s in _fault_spans(fault, horizon_s)
        ])
        for kind in KINDS.values()
    }  # fmt: skip
    listing = "; ".join(f"{e.element} at {e.at_s:g} s, {_effect_text(e)}" for e in shown_faults[:5])
    alt = f"{numbered(len(shown_faults), 'fault')} over {horizon_s:g} s. {listing}."
    caption = "A bar lasts from the fault to its repair; the warm-up is shaded."
    return span_chart(
        row_names, spans_by_kind, alt, caption, "fault", horizon_s=horizon_s, warmup_s=warmup_s
    )


def _fault_spans(fault: Fault, horizon_s: float) -> list[tuple[float, float]]:
    """Spans (begin, end) in simulated s in which a fault is in force. More than FAULTS_MOST spans
    are replaced by one from the fault to the horizon."""
    spans_s = [
        (fault.at_s + begin_s, min(horizon_s, fault.at_s + end_s))
        for begin_s, end_s in islice(KINDS[fault.kind].spans(fault), FAULTS_MOST + 1)
        if fault.at_s + begin_s < horizon_s
    ]
    return spans_s if len(spans_s) <= FAULTS_MOST else [(fault.at_s, horizon_s)]


def _effect_text(fault: Fault) -> str:
    """Duration and effect of a fault as text: 'for 10 s: fails'."""
    duration_text = f"for {fault.duration_s:g} s" if fault.duration_s else "to the end"
    return f"{duration_text}: {KINDS[fault.kind].says(fault)}"


def around_faults(
    windows: pl.DataFrame, events: pl.DataFrame, faults: Sequence[Fault], warmup_s: float,
    column: str,
) -> Chart:  # fmt: skip
    """Chart over time of a column of the table `windows` (a key of AROUND), with lines at events.
    Times with a fault are shaded, and darker while an instance is out of service."""
    label, role, y_title, scale = AROUND[column]
    curve = {column: (label, theme.ROLE[role])}
    caption = "Shaded while a fault is in force, darker while an instance is out of service."
    time_chart = timeline(windows, curve, y_title, scale=scale, warmup_s=warmup_s, reads=caption)
    horizon_s = float(windows["t_s"].max() or 0.0)  # type: ignore[arg-type]
    units_per_s, _ = base.time_axis(horizon_s)
    next_mark_s = -1.0  # nearer ones have no room for their signs
    for fault in [fault for fault in faults if fault.at_s < horizon_s][:FAULTS_MOST]:
        for begin_s, end_s in _fault_spans(fault, horizon_s):
            colour = LOOKS[KINDS[fault.kind].look]
            base.shade(
                time_chart.figure, begin_s * units_per_s, end_s * units_per_s, colour, SHADES[0]
            )
    for event in events.sort("t_s").head(10 * FAULTS_MOST).iter_rows(named=True):
        if event["kind"] == Kind.INSTANCE_DOWN:
            down_end_x = units_per_s * (horizon_s if event["end_s"] is None else event["end_s"])
            base.shade(time_chart.figure, event["t_s"] * units_per_s, down_end_x, FAULT, SHADES[1])
        elif event["kind"] in MARKS:
            mark, colour = MARKS[event["kind"]]
            time_chart.figure.add_vline(
                x=event["t_s"] * units_per_s, line={"color": colour, "width": 1.4},
                annotation_text=mark if event["t_s"] >= next_mark_s else "",
                annotation_position="top", annotation_font={"size": 13, "color": colour},
            )  # fmt: skip
            next_mark_s = max(next_mark_s, event["t_s"] + 0.04 * horizon_s)
    kind_counts = events["kind"].value_counts().sort("kind").iter_rows()
    listing = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in kind_counts)
    return time_chart._replace(alt=f"{time_chart.alt} Marked: {listing}.")
