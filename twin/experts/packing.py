"""Packing copies on dies and numbering dies; all layers side by side."""

import numpy as np
from numpy.typing import NDArray

from twin.experts.popularity import Floats, Ints
from twin.kernels.compiled import lazy_entry

Bools = NDArray[np.bool_]

SLACK = 1.01  # load of a node over its part, up to which experts stay where they are


def place_spread(
    load: Floats, copies: int, node_of: Ints, nodes: int, current: Ints, slots: Ints
) -> None:
    """Copy the hottest experts, and put each copy on a node with few copies of its expert, on a
    light die without one. Fills slots i8[layers, dies, slots_per_die]. load f8[layers, experts];
    copies: of all experts together; node_of i8[dies], ascending. current: the present slots, or an
    array without layers; an expert stays on its node if that has room. Two copies share a die only
    if no other die of the node has room."""
    layers, dies, slots_per_die = slots.shape
    experts = load.shape[1]
    layer_indices = np.arange(layers)
    expert_copies = np.ones((layers, experts), np.int64)
    copy_count = min(copies, experts * dies)
    for _ in range(experts, copy_count):
        hottest_expert = np.where(expert_copies < dies, load / expert_copies, -1.0).argmax(axis=1)
        expert_copies[layer_indices, hottest_expert] += 1
    had_expert = np.zeros((layers, experts, nodes), np.bool_)
    if nodes > 1 and current.shape[0] > 0:
        slot_layer, slot_die, _ = np.nonzero(current >= 0)
        had_expert[slot_layer, current[current >= 0], node_of[slot_die]] = True
    node_copies = _copies_by_node(
        load, expert_copies, node_of, had_expert, slots_per_die, copy_count
    )
    # Expert by expert, node by node: which copy goes where, and what it weighs.
    expert_node_index = np.repeat(np.tile(np.arange(experts * nodes), layers), node_copies.ravel())
    copy_expert, copy_node = np.divmod(expert_node_index.reshape(layers, copy_count), nodes)
    layer_column = layer_indices[:, None]
    nodes_without_copy = (node_copies == 0).sum(axis=2)
    shares = (  # of an expert's load on a node, by copy
        1.0 / node_copies[layer_column, copy_expert, copy_node]
        + nodes_without_copy[layer_column, copy_expert] / expert_copies[layer_column, copy_expert]
    )
    _pack_apart(
        load[layer_column, copy_expert] / nodes * shares, copy_expert, copy_node, node_of,
        experts, slots,
    )  # fmt: skip


def _copies_by_node(
    load: Floats, count: Ints, node_of: Ints, had_copy: Bools, die_slots: int, copies: int
) -> Ints:
    """Number of copies of each expert on each node, i8[layers, experts, nodes]. count i8[layers,
    experts]: copies on all nodes; copies: their sum in a layer; die_slots: slots of a die. Copies
    are dealt one by one, those of the heaviest experts first, to the node with the fewest copies of
    the expert, then to the lightest; preferably to one that has the expert now (`had_copy`), while
    its load is below SLACK times its part."""
    layers, experts, nodes = had_copy.shape
    if nodes == 1:
        return count[:, :, None].copy()
    layer_indices = np.arange(layers)
    node_slots = np.bincount(node_of, minlength=nodes) * die_slots
    free_slots = np.tile(node_slots, (layers, 1))
    slot_load_limit = SLACK * np.add.accumulate(load, axis=1)[:, -1] / (node_of.size * die_slots)
    copies_of_node = np.zeros((layers, experts, nodes), np.int64)
    node_load = np.zeros((layers, nodes))
    heaviest_first = np.argsort(-load / count, axis=1, kind="mergesort")
    expert_sequence = np.repeat(
        heaviest_first.ravel(), count[layer_indices[:, None], heaviest_first].ravel()
    ).reshape(layers, copies)
    for copy_number in range(copies):
        expert = expert_sequence[:, copy_number]
        copy_load = load[layer_indices, expert] / count[layer_indices, expert]
        node_copies = np.where(
            free_slots > 0, copies_of_node[layer_indices, expert], np.iinfo(np.int64).max
        )
        has_fewest = node_copies == node_copies.min(axis=1, keepdims=True)
        node = np.where(has_fewest, node_load / np.maximum(node_slots, 1), np.inf).argmin(axis=1)
        may_stay = (
            has_fewest
            & had_copy[layer_indices, expert]
            & (node_load + copy_load[:, None] <= slot_load_limit[:, None] * node_slots)
        )
        stays_on_node = may_stay.any(axis=1) & ~had_copy[layer_indices, expert, node]
        node = np.where(stays_on_node, may_stay.argmax(axis=1), node)
        copies_of_node[layer_indices, expert, node] += 1
        free_slots[layer_indices, node] -= 1
        node_load[layer_indices, node] += copy_load
    return copies_of_node


def _pack_apart(
    copy_load: Floats, expert: Ints, node: Ints, node_of: Ints, experts: int, slots: Ints
) -> None:
    """Fill `slots` with copies, heaviest first, each on its node's lightest die with room, if
    possible one without its expert. copy_load, expert, node: of each copy, [layers, copies]."""
    layers, dies, slots_per_die = slots.shape
    layer_indices = np.arange(layers)
    die_load = np.zeros((layers, dies))
    copies_on_die = np.zeros((layers, dies), np.int64)
    holds_expert = np.zeros((experts, layers, dies), np.bool_)
    for copy_of_layer in np.argsort(-copy_load, axis=1, kind="mergesort").T:
        expert_of_copy = expert[layer_indices, copy_of_layer]
        has_room = (node_of == node[layer_indices, copy_of_layer][:, None]) & (
            copies_on_die < slots_per_die
        )
        fits_apart = has_room & ~holds_expert[expert_of_copy, layer_indices]
        may_take = np.where(fits_apart.any(axis=1, keepdims=True), fits_apart, has_room)
        lightest_die = np.where(may_take, die_load, np.inf).argmin(axis=1)
        slots[layer_indices, lightest_die, copies_on_die[layer_indices, lightest_die]] = (
            expert_of_copy
        )
        copies_on_die[layer_indices, lightest_die] += 1
        die_load[layer_indices, lightest_die] += copy_load[layer_indices, copy_of_layer]
        holds_expert[expert_of_copy, layer_indices, lightest_die] = True


@lazy_entry
def renumber_dies(current: Ints, new: Ints, node_of: Ints, experts: int) -> Ints:
    """`new` i8[layers, dies, slots] with the dies of each node renumbered, so that they hold
    experts that they hold in `current`: greedily, pairs with most experts in common first. A node's
    dies are alike, so no load changes. node_of i8[dies]: node of each; experts: their number."""
    layers, dies, slots_per_die = new.shape
    renumbered = np.empty_like(new)
    for layer in range(layers):
        holds_expert = np.zeros((dies, experts), np.bool_)
        common_experts = np.zeros((dies, dies), np.int64)
        for die in range(dies):
            for expert in current[layer, die]:
                if expert >= 0:
                    holds_expert[die, expert] = True
        for new_die in range(dies):
            for expert in new[layer, new_die]:
                for die in range(dies):
                    if (
                        expert >= 0
                        and node_of[die] == node_of[new_die]
                        and holds_expert[die, expert]
                    ):
                        common_experts[new_die, die] += 1
        is_numbered, is_taken = np.zeros(dies, np.bool_), np.zeros(dies, np.bool_)
        # 0: a die of the same number; -1: of the node.
        for common_count in range(common_experts.max(), -2, -1):
            for new_die in range(dies):
                chosen_die = -1
                if is_numbered[new_die]:
                    continue
                if not is_taken[new_die] and (
                    common_count < 1 or common_experts[new_die, new_die] == common_count
                ):
                    chosen_die = new_die
                elif common_count != 0:
                    for die in range(dies):
                        has_as_many = (
                            common_count < 0 or common_experts[new_die, die] == common_count
                        )
                        if has_as_many and node_of[die] == node_of[new_die] and not is_taken[die]:
                            chosen_die = die
                            break
                if chosen_die >= 0:
                    is_numbered[new_die] = is_taken[chosen_die] = True
                    renumbered[layer, chosen_die] = new[layer, new_die]
    return renumbered
