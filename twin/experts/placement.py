"""Which slot holds which expert: placements, what changes between two, and which layers change.
Expert of slot is i8[layers, dies, slots_per_die] or EMPTY; die d is on node d * nodes // dies."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twin.experts.eplb import place_eplb
from twin.experts.load import EMPTY, hottest_by_layer
from twin.experts.packing import place_spread, renumber_dies
from twin.experts.popularity import ExpertsError, Floats, Ints
from twin.scenario import Experts

Policy = Literal["none", "periodic", "threshold", "layer_budget", "oracle"]


def place(
    experts: Experts, measured: Floats, dies: int, slots_per_die: int, nodes: int = 1,
    current: Ints | None = None, groups: int = 1,
) -> Ints:  # fmt: skip
    """Experts placed on dies: the expert of each slot, i8[layers, dies, slots_per_die], or EMPTY.
    measured f8[layers, experts]: loads. By `experts.placement`: `round_robin` fills the dies in
    order; `eplb` packs greedily, as the original's global policy; `eplb_groups` as its hierarchical
    policy, if `groups` fit on nodes; `greedy` (and `perfect`) is `eplb` without two copies on a
    die; `topology` spreads copies over the nodes first. current: the present slots; dies are
    renumbered to resemble them. Raises ExpertsError for too few slots."""
    layers, routed_experts = measured.shape
    copy_count = routed_experts + experts.redundant
    if copy_count > dies * slots_per_die:
        raise ExpertsError(
            f"{routed_experts} routed + {experts.redundant} redundant experts need {copy_count} "
            f"slots but {dies} dies x {slots_per_die} slots hold {dies * slots_per_die}: lower "
            "experts.redundant or give the instance more dies"
        )
    slots = np.full((layers, dies, slots_per_die), EMPTY, np.int64)
    if experts.placement == "round_robin":
        for copy_number in range(copy_count):
            die = copy_number * dies // copy_count
            slots[:, die, copy_number - -(-die * copy_count // dies)] = copy_number % routed_experts
        return slots
    node_of_die, single_node = np.arange(dies) * nodes // dies, np.zeros(dies, np.int64)
    load = np.ascontiguousarray(measured, np.float64)
    present_slots = slots[:0] if current is None else np.ascontiguousarray(current)
    nodes_matter = False  # whether a die's number says more than which die is meant: its node
    if experts.placement == "eplb":
        place_eplb(load, copy_count, 1, 1, slots)
    elif experts.placement == "eplb_groups":
        # Whole groups on nodes with equally many dies: else the hierarchical policy does not fit.
        nodes_matter = not (groups % nodes or routed_experts % groups or dies % nodes)
        place_eplb(
            load, copy_count, groups if nodes_matter else 1, nodes if nodes_matter else 1, slots
        )
    elif experts.placement == "topology":
        nodes_matter = nodes > 1
        place_spread(load, copy_count, node_of_die, nodes, present_slots, slots)
    else:
        place_spread(load, copy_count, single_node, 1, present_slots, slots)
    if current is not None:
        slots = renumber_dies(
            present_slots, slots, node_of_die if nodes_matter else single_node, routed_experts
        )
    return slots


def replicas(slots: Ints, experts: int) -> NDArray[np.int32]:
    """Number of redundant copies on each die, i4[layers, dies]: all copies of each expert but the
    first. experts: number of routed experts."""
    layers = slots.shape[0]
    is_filled = (slots >= 0).reshape(layers, -1)
    expert_in_layer = (slots.reshape(layers, -1) + np.arange(layers)[:, None] * experts)[is_filled]
    is_first_copy = np.zeros(expert_in_layer.size, np.bool_)
    is_first_copy[np.unique(expert_in_layer, return_index=True)[1]] = True
    is_redundant = is_filled.copy()
    is_redundant[is_filled] = ~is_first_copy
    return is_redundant.reshape(slots.shape).sum(axis=2, dtype=np.int32)


def copy_counts(slots: Ints, experts: int) -> NDArray[np.int32]:
    """Number of copies of each of `experts` experts, i4[layers, experts]."""
    copies_of_expert = np.zeros((slots.shape[0], experts), np.int32)
    layer_of_copy = np.nonzero(slots >= 0)[0]
    np.add.at(copies_of_expert, (layer_of_copy, slots[slots >= 0]), 1)
    return copies_of_expert


def received_experts(old: Ints, new: Ints) -> Ints:
    """Number of experts whose weights each die must receive to go from `old` to `new` slots,
    i8[layers, dies]. The slot in a die does not matter; a die's second copy needs no transfer."""
    if old.shape != new.shape:
        raise ExpertsError(f"slots of shape {old.shape} cannot become slots of shape {new.shape}")
    received_counts = np.zeros(new.shape[:2], np.int64)
    for slot in range(new.shape[2]):
        expert = new[:, :, slot, None]
        had_copy = (old == expert).any(axis=2) | (new[:, :, :slot] == expert).any(axis=2)
        received_counts += (expert[:, :, 0] >= 0) & ~had_copy
    return received_counts


def choose_layers(
    policy: Policy, measured: Floats, slots: Ints, threshold: float, budget: int, nearest: int = 1
) -> Ints:
    """Layers that a decision changes, i8[k], ascending. policy "periodic": all layers; "threshold":
    those whose hottest die, divided by the mean, exceeds `threshold`; "layer_budget": the `budget`
    most uneven; "none", "oracle": no layers. measured f8[layers, experts]: loads; nearest: number
    of nodes within each of which tokens prefer a copy."""
    if policy in ("none", "oracle"):
        return np.empty(0, np.int64)
    if policy == "periodic":
        return np.arange(slots.shape[0])
    hottest_over_mean = hottest_by_layer(measured, slots, nearest)
    if policy == "threshold":
        return np.flatnonzero(hottest_over_mean > threshold)
    return np.sort(np.argsort(-hottest_over_mean, kind="stable")[: max(0, budget)])
