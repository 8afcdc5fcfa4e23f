"""Expert load of a stored run for the screen, as shares of a layer's mean die; draws nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.metrics.events import Kind
from twin.model.operators import combine_bytes, dispatch_bytes
from twin.model.roofline import load_machine
from twin.model.shape import load_shape
from twin.scenario import Scenario, chip_of, model_names, of_models

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
    def hottest(self) -> np.ndarray:
        """Hottest die over the mean, f8[layers]."""
        return self.load.max(axis=1)


def instances(die_load: pl.DataFrame) -> list[tuple[str, int]]:
    """Role and number of every instance whose load is known, decode first."""
    keys = die_load.select("role", "instance").unique().rows()
    return sorted(((str(role), int(i)) for role, i in keys), key=lambda x: (x[0] == "prefill", *x))


def moments(die_load: pl.DataFrame, role: str, instance: int) -> list[Moment]:
    """Moments of an instance in order; both sides of a rebalance share a number, and of pools that
    rebalance together the last counts."""
    instance_load = die_load.filter(instance_filter(role, instance))
    stamps = [(float(t), str(m)) for t, m in instance_load.select("t_s", "moment").unique().rows()]
    stamps.sort(key=lambda x: (x[0], ORDER.get(x[1], len(ORDER))))
    moment_list: list[Moment] = []
    number = 0
    for t_s, name in stamps:
        if name == "after" and moment_list and moment_list[-1].name == "after":
            moment_list.pop()
        number += name == "before"
        moment_list.append(Moment(t_s, name, number if name in ("before", "after") else 0))
    return moment_list


def snapshot(die_load: pl.DataFrame, role: str, instance: int, moment: Moment) -> Snapshot:
    """Load of an instance at one of its moments; dies without experts have load 0."""
    is_moment = (pl.col("t_s") == moment.t_s) & (pl.col("moment") == moment.name)
    rows = die_load.filter(instance_filter(role, instance) & is_moment)
    layers, layer_index = np.unique(rows["layer"].to_numpy(), return_inverse=True)
    dies = rows["die"].to_numpy()
    load = np.zeros((layers.size, int(dies.max()) + 1 if dies.size else 0))
    replicas = np.zeros(load.shape, np.int64)
    load[layer_index, dies] = rows["load"].to_numpy()
    replicas[layer_index, dies] = rows["replicas"].to_numpy()
    return Snapshot(layers, load, replicas)


def rebalance_sides(moment_list: Sequence[Moment]) -> dict[int, tuple[Moment, Moment]]:
    """(moment before, moment after) of each rebalance, by its number from 1."""
    after_by_number = {m.number: m for m in moment_list if m.name == "after"}
    return {m.number: (m, after_by_number[m.number])
            for m in moment_list if m.name == "before" and m.number in after_by_number}  # fmt: skip


def scenario_of(s: Scenario, die_load: pl.DataFrame, role: str, instance: int) -> Scenario:
    """The scenario of the model that an instance serves; that of the run if it is the only one."""
    if not s.models:
        return s
    model_name = die_load.filter(instance_filter(role, instance))["model"][0]
    return of_models(s)[model_names(s).index(model_name)]


def instance_filter(role: str, instance: int) -> pl.Expr:
    """Polars filter of the rows of an instance."""
    return (pl.col("role") == role) & (pl.col("instance") == instance)


def event_filter(role: str, instance: int) -> pl.Expr:
    """Polars filter of an instance's events: its own, and those of its whole pool."""
    is_instance = pl.col("instance").is_null() | (pl.col("instance") == instance)
    return (pl.col("role") == role) & is_instance


def rebalance_rows(events: pl.DataFrame, role: str, instance: int) -> list[dict[str, Any]]:
    """Rows of `events` for the rebalances of an instance, or of its whole pool, by time."""
    rebalances = events.filter(pl.col("kind") == Kind.REBALANCE, event_filter(role, instance))
    return rebalances.sort("t_s").to_dicts()


def iteration_around(
    windows: pl.DataFrame, t_s: float, end_s: float
) -> tuple[float | None, float | None, float | None]:
    """Mean iteration in s before, during and after t_s to end_s, over as many windows; or None."""
    if "iteration_s" not in windows.columns:
        return None, None, None
    begins_s, widths_s = windows["t_s"].to_numpy(), windows["window_s"].to_numpy()
    iteration_s = windows["iteration_s"].cast(pl.Float64).to_numpy()
    is_during = (begins_s < max(end_s, t_s + 1e-9)) & (begins_s + widths_s > t_s)
    window_count = max(1, int(is_during.sum()))
    if not is_during.any():
        return None, None, None
    first_window, last_window = np.flatnonzero(is_during)[[0, -1]]
    windows_before = slice(max(0, first_window - window_count), first_window)
    windows_after = slice(last_window + 1, last_window + 1 + window_count)
    spans_s = (iteration_s[rows] for rows in (windows_before, is_during, windows_after))
    finite_s = (span_s[np.isfinite(span_s)] for span_s in spans_s)
    return tuple(float(span_s.mean()) if span_s.size else None for span_s in finite_s)  # type: ignore[return-value]


def messages_of(s: Scenario, facts: Facts) -> tuple[int, float, float]:
    """(experts per token, bytes that a token sends to each, bytes that come back from each)."""
    shape = load_shape(facts, s.deployment.model)
    machine = load_machine(facts, load_chip(facts, chip_of(s, "decode")))
    is_quantised = s.deployment.communication.early_quantisation
    sent_bytes = dispatch_bytes(shape, is_quantised, machine.message_scale_bytes)
    return shape.top_k, sent_bytes, combine_bytes(shape)


def between_nodes(
    snapshot: Snapshot, nodes_of_rank: np.ndarray, total_bytes: float,
    messages: tuple[int, float, float],
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(nodes i8[n], bytes f8[n, n] from row to column) of an instance's expert exchange: dies send
    `messages` to experts by the dies' load, and to the shared one, `total_bytes` in all."""
    top_k, sent_bytes, back_bytes = messages
    nodes, node_of = np.unique(nodes_of_rank, return_inverse=True)
    sender_shares = np.bincount(node_of, minlength=nodes.size) / max(1, node_of.size)
    die_messages = np.zeros(node_of.size)
    routed_dies = min(snapshot.load.shape[1], node_of.size)
    die_messages[:routed_dies] = snapshot.load.mean(axis=0)[:routed_dies]
    die_messages[:routed_dies] *= top_k / max(float(die_messages.sum()), 1e-12)
    if routed_dies < node_of.size:
        die_messages[routed_dies:] = 1.0 / (node_of.size - routed_dies)
    total_messages = max(float(die_messages.sum()), 1e-12)
    receiver_shares = np.bincount(node_of, die_messages, nodes.size) / total_messages
    pair_shares = np.outer(sender_shares, receiver_shares)
    pair_bytes = sent_bytes * pair_shares + back_bytes * pair_shares.T
    return nodes, total_bytes * (pair_bytes / (sent_bytes + back_bytes))
