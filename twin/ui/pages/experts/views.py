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
from twin.ui.show import dark, plot


def chosen_instance(row: RunRow) -> tuple[str, int]:
    """The instance selected for its experts."""
    instances = experts.instances(record.table(row.id, "die_load"))
    if len(instances) == 1:
        return instances[0]
    return st.selectbox(
        "Instance", instances, format_func=lambda i: f"{theme.title(i[0])} {i[1]}", key="instance",
        label_visibility="collapsed", width=220,
    )  # fmt: skip


def chosen_moment(row: RunRow, role: str, instance: int) -> Moment:
    """The moment selected by the slider."""
    moments = experts.moments(record.table(row.id, "die_load"), role, instance)
    if len(moments) == 1:
        st.caption(_moment(moments[0]))
        return moments[0]
    return st.select_slider(
        "Moment", moments, format_func=_moment, key=f"moment:{row.id}:{role}:{instance}",
        help="Load is written down at the start, on both sides of each rebalance, and at the end.",
    )  # fmt: skip


def _moment(moment: Moment) -> str:
    number = f" {moment.number}" if moment.number else ""
    name = MOMENTS.get(moment.name, moment.name)
    return f"{name}{number} · {words.duration(round(moment.t_s, 1))}"


def tiles(row: RunRow, role: str, instance: int) -> None:
    """Tiles: imbalance at the start and at the end, and moved weights."""
    die_load = record.table(row.id, "die_load")
    moments = experts.moments(die_load, role, instance)
    first, last = (experts.snapshot(die_load, role, instance, m) for m in (moments[0], moments[-1]))
    moves = experts.moves(record.table(row.id, "events"), None, role, instance)
    took_s = sum((m.end_s or m.t_s) - m.t_s for m in moves)
    note = "Load of the hottest die over the mean die, averaged over layers; 1 is perfectly even."
    before, after = float(first.hottest.mean()), float(last.hottest.mean())
    change = f"{after - before:+.2f}" if abs(after - before) >= 0.005 else None
    total, moves_s = (sum(m.bytes for m in moves), f"in {seconds(took_s)}" if moves else None)
    plain: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off"}
    with st.grid(5, min_column_width=165):
        st.metric("Hottest die, start", f"{before:.2f} × mean", help=note)
        end = f"{after:.2f} × mean"
        st.metric("Hottest die, end", end, change, delta_color="inverse", help=note)
        st.metric(
            "Worst layer, end", f"{last.hottest.max():.2f} × mean",
            f"layer {last.layers[int(last.hottest.argmax())]}",
            help="The layer whose hottest die is hottest.", **plain,
        )  # fmt: skip
        st.metric("Rebalances", f"{len(moves):,}", help="Of this pool, over the whole run.")
        st.metric(
            "Weights moved", amount(total, "bytes"), moves_s, **plain,
            help="Expert weights that went over the UB plane for rebalancing.",
        )  # fmt: skip


def dies(row: RunRow, scenario: Scenario, role: str, instance: int) -> None:
    """Map of every die in every layer at one moment."""
    moment = chosen_moment(row, role, instance)
    snap = experts.snapshot(record.table(row.id, "die_load"), role, instance, moment)
    plot(charts_experts.die_map(snap.layers, snap.load, snap.replicas, dark=dark()), "die-map")
    dots = "an orange dot marks a die that holds a redundant copy"
    if (snap.replicas > 0).sum() > charts_experts.MARKS_MOST:
        dots = "nearly every die holds redundant copies, so they are listed where the pointer is"
    st.caption(
        "Load of a die as a multiple of its layer's mean die, on one scale for every moment and "
        f"run; {dots}. {int(snap.replicas.sum()):,} redundant copies in {snap.layers.size} layers."
    )


def layers(row: RunRow, scenario: Scenario, role: str, instance: int) -> None:
    """Hottest die of each layer, before and after a rebalance if there was one."""
    die_load = record.table(row.id, "die_load")
    moments = experts.moments(die_load, role, instance)
    pairs = experts.pairs(moments)
    number = next(iter(pairs), 0)
    if len(pairs) > 1:
        number = st.select_slider(
            "Rebalance", list(pairs), value=number, key=f"rebalance:{row.id}:{role}:{instance}",
            format_func=lambda n: f"{n} · {words.duration(round(pairs[n][0].t_s, 1))}",
        )  # fmt: skip
    one, two = pairs.get(number, (moments[0], None))
    before = experts.snapshot(die_load, role, instance, one)
    after = experts.snapshot(die_load, role, instance, two).hottest if two else None
    plot(charts_experts.by_layer(before.layers, before.hottest, after), "by-layer")
    if two is None:
        st.caption("Nothing was rebalanced in this run, so there is one line: the start.")
    else:
        assert after is not None
        st.caption(
            f"Rebalance {number} at {words.duration(round(one.t_s, 1))}: from "
            f"{before.hottest.mean():.2f} to {after.mean():.2f} × mean on average over layers, "
            f"from {before.hottest.max():.2f} to {after.max():.2f} in the worst layer."
        )


def over_time(row: RunRow, scenario: Scenario, role: str, instance: int) -> None:
    """TPOT and the hottest die over time with marks of rebalances and shifts, and moves' cost."""
    events = record.table(row.id, "events")
    marks = events.filter((pl.col("kind") == Kind.SHIFT) | experts.concerns(role, instance))
    windows = record.table(row.id, "windows")
    if scenario.deployment.mode != "prefill_only":
        st.subheader("Time per output token", anchor=False)
        chart = charts_experts.tpot(windows, marks, 1e-3 * scenario.slo.tpot_ms, scenario.warmup_s)
        plot(chart, "tpot")
    st.subheader("Hottest die", anchor=False)
    hottest = record.table(row.id, "hottest").filter(experts.of(role, instance))
    plot(charts_experts.hottest_over_time(hottest, marks, scenario.horizon_s), "hottest")
    st.subheader("What each move cost", anchor=False)
    cost(row, role, instance)


def cost(row: RunRow, role: str, instance: int) -> None:
    """The moves as a table: bytes, seconds, slow-down while moving, and the iteration after."""
    events, instances = (record.table(row.id, name) for name in ("events", "instances"))
    moves = experts.moves(events, instances, role, instance)
    if not moves:
        st.caption("No expert was moved in this run.")
        return
    rows = [
        {
            "Begins, s": move.t_s,
            "Took, s": None if move.end_s is None else move.end_s - move.t_s,
            "Moved": amount(move.bytes or None, "bytes"),
            "Iteration before": amount(move.before_s, "time"),
            "While moving": amount(move.during_s, "time"),
            "Slow-down": f"{100 * (move.slow_down - 1):+.1f} %" if move.slow_down else NOTHING,
            "After": amount(move.after_s, "time"),
            "What": move.detail.replace("->", "→"),
        }
        for move in moves
    ]
    number = st.column_config.NumberColumn(format="%.4g")
    st.dataframe(rows, hide_index=True, column_config={"Begins, s": number, "Took, s": number})
    st.caption(
        "Iterations are means over the windows that the move touches, and over as many before "
        "and after it; a move shorter than a window is thinned out by the rest of it."
    )


def nodes(row: RunRow, scenario: Scenario, role: str, instance: int) -> None:
    """Bytes of expert exchange from node to node."""
    if serving(scenario)[role].own.experts_tp > 1:
        st.caption("Every die has a part of its experts and gathers all tokens: dies send alike.")
        return
    traffic, ranks = record.table(row.id, "traffic"), record.table(row.id, "ranks")
    here = experts.of(role, instance)
    total = float(traffic.filter(here, traffic="experts")["bytes"].sum())
    node_numbers = ranks.filter(here)["node"].to_numpy()
    moment = chosen_moment(row, role, instance)
    snap = experts.snapshot(record.table(row.id, "die_load"), role, instance, moment)
    if not total or not node_numbers.size:
        st.caption("This run recorded no expert exchange of this instance.")
        return
    row_bytes = experts.row_of(scenario, session.facts())
    numbers, bytes_between = experts.between_nodes(snap, node_numbers, total, row_bytes)
    span = f"in {words.duration(scenario.horizon_s)}"
    plot(charts_experts.node_matrix(numbers, bytes_between, span, dark=dark()), "nodes")
    received = bytes_between.sum(axis=0) / max(1e-12, float(np.mean(bytes_between.sum(axis=0))))
    st.caption(
        f"{amount(total, 'bytes')} of dispatch and combine {span}, split by the placement at this "
        f"moment: tokens leave every die alike and go to the dies that hold their experts, answers "
        f"come back. The busiest node receives {received.max():.2f} × the mean."
    )


VIEWS: dict[str, Callable[[RunRow, Scenario, str, int], None]] = {
    "Dies": dies,
    "Layers": layers,
    "Over time": over_time,
    "Between nodes": nodes,
}
