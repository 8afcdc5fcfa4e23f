"""Sections of the Experts page, each of a run, its scenario and an instance."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from twin.lab.store import RunRow
from twin.metrics.events import Kind
from twin.metrics.measures import NOTHING, amount, seconds
from twin.scenario import Scenario, serving
from twin.ui import record, session, theme, words
from twin.ui.charts import experts as charts_experts
from twin.ui.pages.experts import load as experts
from twin.ui.pages.experts.load import MOMENTS, Moment
from twin.ui.show import is_dark, plot


def choose_instance(row: RunRow) -> tuple[str, int]:
    """Draw the choice of an instance with experts; returns its role and number."""
    instances = experts.instances(record.table(row.id, "die_load"))
    if len(instances) == 1:
        return instances[0]
    return st.selectbox("Instance", instances, format_func=lambda i: f"{theme.title(i[0])} {i[1]}",
                        key="instance", label_visibility="collapsed", width=220)  # fmt: skip


def choose_moment(row: RunRow, role: str, instance: int) -> Moment:
    """Draw the slider of moments of recorded load; returns the chosen one."""
    moments = experts.moments(record.table(row.id, "die_load"), role, instance)
    if len(moments) == 1:
        st.caption(_moment_text(moments[0]))
        return moments[0]
    return st.select_slider(
        "Moment", moments, format_func=_moment_text, key=f"moment:{row.id}:{role}:{instance}",
        help="Load is written down at the start, on both sides of each rebalance, and at the end.",
    )  # fmt: skip


def _moment_text(moment: Moment) -> str:
    """A moment as text: its name, the rebalance's number, and the time."""
    number = f" {moment.number}" if moment.number else ""
    name = MOMENTS.get(moment.name, moment.name)
    return f"{name}{number} · {words.duration(round(moment.t_s, 1))}"


def draw_tiles(row: RunRow, role: str, instance: int) -> None:
    """Draw tiles: imbalance at the start and at the end, and moved weights."""
    die_load = record.table(row.id, "die_load")
    moments = experts.moments(die_load, role, instance)
    start, end = (experts.snapshot(die_load, role, instance, m) for m in (moments[0], moments[-1]))
    rebalances = experts.rebalance_rows(record.table(row.id, "events"), role, instance)
    took_s = sum((move["end_s"] or move["t_s"]) - move["t_s"] for move in rebalances)
    note = "Load of the hottest die over the mean die, averaged over layers; 1 is perfectly even."
    old_ratio, new_ratio = float(start.hottest.mean()), float(end.hottest.mean())
    change_text = f"{new_ratio - old_ratio:+.2f}" if abs(new_ratio - old_ratio) >= 0.005 else None
    moved_bytes = sum(move["bytes"] or 0.0 for move in rebalances)
    moves_text = f"in {seconds(took_s)}" if rebalances else None
    grey_delta: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off"}
    with st.grid(5, min_column_width=165):
        st.metric("Hottest die, start", f"{old_ratio:.2f} × mean", help=note)
        end_text = f"{new_ratio:.2f} × mean"
        st.metric("Hottest die, end", end_text, change_text, delta_color="inverse", help=note)
        st.metric("Worst layer, end", f"{end.hottest.max():.2f} × mean",
                  f"layer {end.layers[int(end.hottest.argmax())]}",
                  help="The layer whose hottest die is hottest.", **grey_delta)  # fmt: skip
        st.metric("Rebalances", f"{len(rebalances):,}", help="Of this pool, over the whole run.")
        st.metric("Weights moved", amount(moved_bytes, "bytes"), moves_text, **grey_delta,
                  help="Expert weights that went over the UB plane for rebalancing.")  # fmt: skip


def draw_dies(row: RunRow, scenario: Scenario, role: str, instance: int) -> None:
    """Draw the load of every die in every layer at one moment, as a map."""
    moment = choose_moment(row, role, instance)
    snap = experts.snapshot(record.table(row.id, "die_load"), role, instance, moment)
    plot(charts_experts.die_map(snap.layers, snap.load, snap.replicas, dark=is_dark()), "die-map")
    marks = "an orange dot marks a die that holds a redundant copy"
    if (snap.replicas > 0).sum() > charts_experts.MARKS_MOST:
        marks = "nearly every die holds redundant copies, so they are listed where the pointer is"
    st.caption(
        "Load of a die as a multiple of its layer's mean die, on one scale for every moment and "
        f"run; {marks}. {int(snap.replicas.sum()):,} redundant copies in {snap.layers.size} layers."
    )


def draw_layers(row: RunRow, scenario: Scenario, role: str, instance: int) -> None:
    """Draw the hottest die of each layer, before and after a rebalance if there was one."""
    die_load = record.table(row.id, "die_load")
    moments = experts.moments(die_load, role, instance)
    pairs = experts.rebalance_sides(moments)
    number = next(iter(pairs), 0)
    if len(pairs) > 1:
        number = st.select_slider(
            "Rebalance", list(pairs), value=number, key=f"rebalance:{row.id}:{role}:{instance}",
            format_func=lambda n: f"{n} · {words.duration(round(pairs[n][0].t_s, 1))}",
        )  # fmt: skip
    shown_moments = pairs.get(number, moments[:1])
    snapshots = [experts.snapshot(die_load, role, instance, moment) for moment in shown_moments]
    hottest_before, *hottest_after = (snapshot.hottest for snapshot in snapshots)
    plot(charts_experts.by_layer(snapshots[0].layers, hottest_before, *hottest_after), "by-layer")
    if not hottest_after:
        st.caption("Nothing was rebalanced in this run, so there is one line: the start.")
        return
    st.caption(
        f"Rebalance {number} at {words.duration(round(pairs[number][0].t_s, 1))}: from "
        f"{hottest_before.mean():.2f} to {hottest_after[0].mean():.2f} × mean on average over "
        f"layers, from {hottest_before.max():.2f} to {hottest_after[0].max():.2f} in the worst "
        "layer."
    )


def draw_over_time(row: RunRow, scenario: Scenario, role: str, instance: int) -> None:
    """Draw TPOT and the hottest die over time, with rebalances and shifts, and costs of moves."""
    events = record.table(row.id, "events")
    marks = events.filter((pl.col("kind") == Kind.SHIFT) | experts.event_filter(role, instance))
    windows = record.table(row.id, "windows")
    if scenario.deployment.mode != "prefill_only":
        st.subheader("Time per output token", anchor=False)
        chart = charts_experts.tpot(windows, marks, 1e-3 * scenario.slo.tpot_ms, scenario.warmup_s)
        plot(chart, "tpot")
    st.subheader("Hottest die", anchor=False)
    hottest = record.table(row.id, "hottest").filter(experts.instance_filter(role, instance))
    plot(charts_experts.hottest_over_time(hottest, marks, scenario.horizon_s), "hottest")
    st.subheader("What each move cost", anchor=False)
    rebalances = experts.rebalance_rows(events, role, instance)
    if not rebalances:
        st.caption("No expert was moved in this run.")
        return
    windows = record.table(row.id, "instances").filter(experts.instance_filter(role, instance))
    rows = []
    for rebalance in rebalances:
        begin_s, end_s = rebalance["t_s"], rebalance["end_s"]
        before_s, during_s, after_s = experts.iteration_around(windows, begin_s, end_s or begin_s)
        slow_down = during_s / before_s if before_s and during_s is not None else None
        rows.append({
            "Begins, s": begin_s,
            "Took, s": None if end_s is None else end_s - begin_s,
            "Moved": amount(rebalance["bytes"] or None, "bytes"),
            "Iteration before": amount(before_s, "time"),
            "While moving": amount(during_s, "time"),
            "Slow-down": f"{100 * (slow_down - 1):+.1f} %" if slow_down else NOTHING,
            "After": amount(after_s, "time"),
            "What": (rebalance["detail"] or "").replace("->", "→"),
        })  # fmt: skip
    number = st.column_config.NumberColumn(format="%.4g")
    st.dataframe(rows, hide_index=True, column_config={"Begins, s": number, "Took, s": number})
    st.caption(
        "Iterations are means over the windows that the move touches, and over as many before "
        "and after it; a move shorter than a window is thinned out by the rest of it."
    )


def draw_nodes(row: RunRow, scenario: Scenario, role: str, instance: int) -> None:
    """Draw the bytes of the expert exchange from node to node."""
    die_load = record.table(row.id, "die_load")
    scenario = experts.scenario_of(scenario, die_load, role, instance)
    if serving(scenario)[role].own.experts_tp > 1:
        st.caption("Every die has a part of its experts and gathers all tokens: dies send alike.")
        return
    traffic, ranks = record.table(row.id, "traffic"), record.table(row.id, "ranks")
    is_instance = experts.instance_filter(role, instance)
    total_bytes = float(traffic.filter(is_instance, traffic="experts")["bytes"].sum())
    node_of_rank = ranks.filter(is_instance)["node"].to_numpy()
    moment = choose_moment(row, role, instance)
    snapshot = experts.snapshot(die_load, role, instance, moment)
    if not total_bytes or not node_of_rank.size:
        st.caption("This run recorded no expert exchange of this instance.")
        return
    messages = experts.messages_of(scenario, session.facts())
    nodes, bytes_between = experts.between_nodes(snapshot, node_of_rank, total_bytes, messages)
    span_text = f"in {words.duration(scenario.horizon_s)}"
    chart = charts_experts.node_matrix(nodes, bytes_between, span_text, dark=is_dark())
    plot(chart, "nodes")
    ratios = bytes_between.sum(axis=0) / max(1e-12, float(np.mean(bytes_between.sum(axis=0))))
    st.caption(
        f"{amount(total_bytes, 'bytes')} of dispatch and combine {span_text}, split by the "
        "placement at this moment: tokens leave every die alike and go to the dies that hold their "
        f"experts, answers come back. The busiest node receives {ratios.max():.2f} × the mean."
    )


VIEWS: dict[str, Callable[[RunRow, Scenario, str, int], None]] = {
    "Dies": draw_dies,
    "Layers": draw_layers,
    "Over time": draw_over_time,
    "Between nodes": draw_nodes,
}
