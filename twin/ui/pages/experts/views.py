"""Expert load of a stored run, as shares of a layer's mean die; and sections of the Experts page,
each of a run, its scenario and an instance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from twin.lab.store import RunRow
from twin.metrics.events import Kind
from twin.metrics.measures import NOTHING, amount, seconds
from twin.scenario import Scenario
from twin.ui import record, theme, words
from twin.ui.charts import experts as charts_experts
from twin.ui.show import is_dark, plot

MOMENTS = {"start": "Start", "before": "Before rebalance", "after": "After rebalance", "end": "End"}
ORDER = {name: place for place, name in enumerate(MOMENTS)}


@dataclass(frozen=True, slots=True)
class Moment:
    """Time and reason of a recorded load of an instance."""

    t_s: float
    name: str  # start, before, after or end
    number: int  # of the rebalance, from 1; 0 at the start and at the end


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Load of each die in each layer at one moment, over the layer's mean die."""

    layers: np.ndarray  # i8[layers], their numbers in the model
    load: np.ndarray  # f8[layers, dies]
    replicas: np.ndarray  # i8[layers, dies], redundant copies on the die

    @property
    def imbalance(self) -> np.ndarray:
        """Load of each layer's hottest die divided by the mean die's, f8[layers]."""
        return self.load.max(axis=1)


def instances_of(die_load: pl.DataFrame) -> list[tuple[str, int]]:
    """(role, number) of every instance with recorded load, decode first."""
    roles_and_numbers = die_load.select("role", "instance").unique().rows()
    return sorted(
        ((str(role), int(number)) for role, number in roles_and_numbers),
        key=lambda x: (x[0] == "prefill", *x),
    )


def moments_of(die_load: pl.DataFrame, role: str, instance: int) -> list[Moment]:
    """Moments at which an instance's load was recorded, in order. The moments before and after a
    rebalance have its number. Of several moments `after` in a row only the last remains."""
    instance_load = die_load.filter(instance_filter(role, instance))
    stamps = [(float(t), str(m)) for t, m in instance_load.select("t_s", "moment").unique().rows()]
    stamps.sort(key=lambda x: (x[0], ORDER.get(x[1], len(ORDER))))
    moments: list[Moment] = []
    rebalance_count = 0
    for t_s, name in stamps:
        if name == "after" and moments and moments[-1].name == "after":
            moments.pop()
        rebalance_count += name == "before"
        moments.append(Moment(t_s, name, rebalance_count if name in ("before", "after") else 0))
    return moments


def snapshot_at(die_load: pl.DataFrame, role: str, instance: int, moment: Moment) -> Snapshot:
    """Load of an instance at one of its moments; dies without experts have load 0."""
    is_moment = (pl.col("t_s") == moment.t_s) & (pl.col("moment") == moment.name)
    load_rows = die_load.filter(instance_filter(role, instance) & is_moment)
    layers, layer_index = np.unique(load_rows["layer"].to_numpy(), return_inverse=True)
    dies = load_rows["die"].to_numpy()
    load = np.zeros((layers.size, int(dies.max()) + 1 if dies.size else 0))
    replicas = np.zeros(load.shape, np.int64)
    load[layer_index, dies] = load_rows["load"].to_numpy()
    replicas[layer_index, dies] = load_rows["replicas"].to_numpy()
    return Snapshot(layers, load, replicas)


def instance_filter(role: str, instance: int) -> pl.Expr:
    """Polars filter of the rows of an instance."""
    return (pl.col("role") == role) & (pl.col("instance") == instance)


def event_filter(role: str, instance: int) -> pl.Expr:
    """Polars filter of the events of an instance or of its whole pool."""
    has_instance = pl.col("instance").is_null() | (pl.col("instance") == instance)
    return (pl.col("role") == role) & has_instance


def rebalance_rows(events: pl.DataFrame, role: str, instance: int) -> list[dict[str, Any]]:
    """Rows of `events` for the rebalances of an instance, or of its whole pool, by time."""
    rebalances = events.filter(pl.col("kind") == Kind.REBALANCE, event_filter(role, instance))
    return rebalances.sort("t_s").to_dicts()


def iteration_s_around(
    windows: pl.DataFrame, t_s: float, end_s: float
) -> tuple[float | None, float | None, float | None]:
    """Mean iteration times in s (before, during, after) the span t_s to end_s, each over equally
    many windows. None: no iteration ran; all are None if no window overlaps the span."""
    if "iteration_s" not in windows.columns:
        return None, None, None
    begins_s, window_s = windows["t_s"].to_numpy(), windows["window_s"].to_numpy()
    iteration_s = windows["iteration_s"].cast(pl.Float64).to_numpy()
    is_during = (begins_s < max(end_s, t_s + 1e-9)) & (begins_s + window_s > t_s)
    window_count = max(1, int(is_during.sum()))
    if not is_during.any():
        return None, None, None
    first_window, last_window = np.flatnonzero(is_during)[[0, -1]]
    windows_before = slice(max(0, first_window - window_count), first_window)
    windows_after = slice(last_window + 1, last_window + 1 + window_count)
    chosen_s = (iteration_s[selection] for selection in (windows_before, is_during, windows_after))
    finite_s = (times_s[np.isfinite(times_s)] for times_s in chosen_s)
    return tuple(float(times_s.mean()) if times_s.size else None for times_s in finite_s)  # type: ignore[return-value]


def choose_instance(row: RunRow) -> tuple[str, int]:
    """Draw the choice of an instance with experts; returns its role and number."""
    instances = instances_of(record.table(row.id, "die_load"))
    if len(instances) == 1:
        return instances[0]
    return st.selectbox("Instance", instances, format_func=lambda i: f"{theme.title(i[0])} {i[1]}",
                        key="instance", label_visibility="collapsed", width=220)  # fmt: skip


def choose_moment(row: RunRow, role: str, instance: int) -> Moment:
    """Draw a slider over the moments of an instance's recorded load; returns the chosen one."""
    moments = moments_of(record.table(row.id, "die_load"), role, instance)
    if len(moments) == 1:
        st.caption(_moment_text(moments[0]))
        return moments[0]
    return st.select_slider(
        "Moment", moments, format_func=_moment_text, key=f"moment:{row.id}:{role}:{instance}",
        help="Load is written down at the start, on both sides of each rebalance, and at the end.",
    )  # fmt: skip


def _moment_text(moment: Moment) -> str:
    """A moment as text: its name, the rebalance's number, and the time."""
    number_text = f" {moment.number}" if moment.number else ""
    moment_title = MOMENTS.get(moment.name, moment.name)
    return f"{moment_title}{number_text} · {words.duration_text(round(moment.t_s, 1))}"


def draw_tiles(row: RunRow, role: str, instance: int) -> None:
    """Draw tiles of an instance: imbalance at the start and at the end, and moved weights."""
    die_load = record.table(row.id, "die_load")
    moments = moments_of(die_load, role, instance)
    at_start, at_end = (
        snapshot_at(die_load, role, instance, moment) for moment in (moments[0], moments[-1])
    )
    rebalances = rebalance_rows(record.table(row.id, "events"), role, instance)
    moves_s = sum((move["end_s"] or move["t_s"]) - move["t_s"] for move in rebalances)
    hint = "Load of the hottest die over the mean die, averaged over layers; 1 is perfectly even."
    start_ratio, end_ratio = float(at_start.imbalance.mean()), float(at_end.imbalance.mean())
    change_text = (
        f"{end_ratio - start_ratio:+.2f}" if abs(end_ratio - start_ratio) >= 0.005 else None
    )
    moved_bytes = sum(move["bytes"] or 0.0 for move in rebalances)
    moves_text = f"in {seconds(moves_s)}" if rebalances else None
    grey_delta: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off"}
    with st.grid(5, min_column_width=165):
        st.metric("Hottest die, start", f"{start_ratio:.2f} × mean", help=hint)
        end_text = f"{end_ratio:.2f} × mean"
        st.metric("Hottest die, end", end_text, change_text, delta_color="inverse", help=hint)
        st.metric("Worst layer, end", f"{at_end.imbalance.max():.2f} × mean",
                  f"layer {at_end.layers[int(at_end.imbalance.argmax())]}",
                  help="The layer whose hottest die is hottest.", **grey_delta)  # fmt: skip
        st.metric("Rebalances", f"{len(rebalances):,}", help="Of this pool, over the whole run.")
        st.metric("Weights moved", amount(moved_bytes, "bytes"), moves_text, **grey_delta,
                  help="Expert weights that went over the UB plane for rebalancing.")  # fmt: skip


def draw_dies(row: RunRow, scenario: Scenario, role: str, instance: int) -> None:
    """Draw the load of every die in every layer at one moment, as a map."""
    moment = choose_moment(row, role, instance)
    snap = snapshot_at(record.table(row.id, "die_load"), role, instance, moment)
    plot(charts_experts.die_map(snap.layers, snap.load, snap.replicas, dark=is_dark()), "die-map")
    marks = "an orange dot marks a die that holds a redundant copy"
    if (snap.replicas > 0).sum() > charts_experts.MARKS_MOST:
        marks = "nearly every die holds redundant copies, so they are listed where the pointer is"
    st.caption(
        "Load of a die as a multiple of its layer's mean die, on one scale for every moment and "
        f"run; {marks}. {int(snap.replicas.sum()):,} redundant copies in {snap.layers.size} layers."
    )


def draw_over_time(row: RunRow, scenario: Scenario, role: str, instance: int) -> None:
    """Draw TPOT and the hottest die over time, with rebalances marked, and what each one cost."""
    events = record.table(row.id, "events")
    marked_events = events.filter((pl.col("kind") == Kind.SHIFT) | event_filter(role, instance))
    windows = record.table(row.id, "windows")
    if scenario.deployment.mode != "prefill_only":
        st.subheader("Time per output token", anchor=False)
        slo_s = 1e-3 * scenario.slo.tpot_ms
        chart = charts_experts.tpot(windows, marked_events, slo_s, scenario.warmup_s)
        plot(chart, "tpot")
    st.subheader("Hottest die", anchor=False)
    hot_ratios = record.table(row.id, "hottest").filter(instance_filter(role, instance))
    plot(charts_experts.hottest_over_time(hot_ratios, marked_events, scenario.horizon_s), "hottest")
    st.subheader("What each move cost", anchor=False)
    rebalances = rebalance_rows(events, role, instance)
    if not rebalances:
        st.caption("No expert was moved in this run.")
        return
    instance_rows = record.table(row.id, "instances").filter(instance_filter(role, instance))
    move_rows = []
    for rebalance in rebalances:
        begin_s, end_s = rebalance["t_s"], rebalance["end_s"]
        before_s, during_s, after_s = iteration_s_around(instance_rows, begin_s, end_s or begin_s)
        slow_down = during_s / before_s if before_s and during_s is not None else None
        move_rows.append({
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
    st.dataframe(move_rows, hide_index=True, column_config={"Begins, s": number, "Took, s": number})
    st.caption(
        "Iterations are means over the windows that the move touches, and over as many before "
        "and after it; a move shorter than a window is thinned out by the rest of it."
    )


VIEWS: dict[str, Callable[[RunRow, Scenario, str, int], None]] = {
    "Dies": draw_dies,
    "Over time": draw_over_time,
}
