"""Charts of what breaks: the faults of a scenario over time, and a run's figures around them."""

from collections.abc import Sequence
from itertools import islice

import polars as pl

from twin.metrics.events import Kind
from twin.metrics.measures import numbered
from twin.scenario import KINDS, Fault
from twin.ui import theme
from twin.ui.charts import timeline
from twin.ui.charts.base import Chart, empty_chart, shade, span_chart, time_axis

FAULT = "#D03B2F"  # a thing out of service; 4.5:1 on white, 3.9:1 on the dark page
LOOKS = {"out": FAULT, "reduced": theme.PLANE["rdma"], "slow": theme.ROLE["colocated"]}
MOST = 40  # rows of a picture
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


def faults(events: Sequence[Fault], horizon_s: float, warmup_s: float = 0.0) -> Chart:
    """Chart of faults over simulated time, a bar each from its begin to its repair."""
    shown_events = [e for e in events if e.at_s < horizon_s][:MOST]
    if not shown_events:
        return empty_chart("Nothing breaks within the simulated time")
    row_names = [f"{k + 1}  {e.where}" for k, e in enumerate(shown_events)]
    series = {
        kind.label: (LOOKS[kind.look], [
            (name, begin_s, end_s, _effect_text(e))
            for name, e in zip(row_names, shown_events, strict=True) if e.kind == kind.name
            for begin_s, end_s in _spans(e, horizon_s)
        ])
        for kind in KINDS.values()
    }  # fmt: skip
    listing = "; ".join(f"{e.element} at {e.at_s:g} s, {_effect_text(e)}" for e in shown_events[:5])
    alt = f"{numbered(len(shown_events), 'fault')} over {horizon_s:g} s. {listing}."
    reads = "A bar lasts from the fault to its repair; the warm-up is shaded."
    return span_chart(row_names, series, alt, reads, horizon_s=horizon_s, warmup_s=warmup_s)


def _spans(fault: Fault, horizon_s: float) -> list[tuple[float, float]]:
    """(begin, end) in s of simulated time in which a fault is in force; one span if too many."""
    spans_s = [
        (fault.at_s + begin_s, min(horizon_s, fault.at_s + end_s))
        for begin_s, end_s in islice(KINDS[fault.kind].spans(fault), MOST + 1)
        if fault.at_s + begin_s < horizon_s
    ]
    return spans_s if len(spans_s) <= MOST else [(fault.at_s, horizon_s)]


def _effect_text(fault: Fault) -> str:
    """Duration of a fault and what it does, as text."""
    duration_text = f"for {fault.duration_s:g} s" if fault.duration_s else "to the end"
    return f"{duration_text}: {KINDS[fault.kind].says(fault)}"


def around_faults(
    windows: pl.DataFrame, events: pl.DataFrame, faults: Sequence[Fault], warmup_s: float,
    column: str,
) -> Chart:  # fmt: skip
    """Chart of an entry of AROUND over time, lines at events, shaded during faults and outages."""
    label, role, y_title, scale = AROUND[column]
    colours = {column: (label, theme.ROLE[role])}
    caption = "Shaded while a fault is in force, darker while an instance is out of service."
    time_chart = timeline(windows, colours, y_title, scale=scale, warmup_s=warmup_s, reads=caption)
    end_s = float(windows["t_s"].max() or 0.0)  # type: ignore[arg-type]
    factor, _ = time_axis(end_s)
    mark_s = -1.0
    for fault in [candidate for candidate in faults if candidate.at_s < end_s][:MOST]:
        for begin_s, stop_s in _spans(fault, end_s):
            colour = LOOKS[KINDS[fault.kind].look]
            shade(time_chart.figure, begin_s * factor, stop_s * factor, colour, SHADES[0])
    for row in events.sort("t_s").head(10 * MOST).iter_rows(named=True):
        if row["kind"] == Kind.INSTANCE_DOWN:
            down_end = factor * (end_s if row["end_s"] is None else row["end_s"])
            shade(time_chart.figure, row["t_s"] * factor, down_end, FAULT, SHADES[1])
        elif row["kind"] in MARKS:
            mark, colour = MARKS[row["kind"]]
            time_chart.figure.add_vline(
                x=row["t_s"] * factor, line={"color": colour, "width": 1.4},
                annotation_text=mark if row["t_s"] >= mark_s else "", annotation_position="top",
                annotation_font={"size": 13, "color": colour},
            )  # fmt: skip
            mark_s = max(mark_s, row["t_s"] + 0.04 * end_s)
    kind_counts = events["kind"].value_counts().sort("kind").iter_rows()
    listing = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in kind_counts)
    return time_chart._replace(alt=f"{time_chart.alt} Marked: {listing}.")
