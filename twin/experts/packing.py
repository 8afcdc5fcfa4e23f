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
    layers, dies, die_slots = slots.shape
    experts = load.shape[1]
    each_layer = np.arange(layers)
    expert_copies = np.ones((layers, experts), np.int64)
    copy_count = min(copies, experts * dies)
    for _ in range(experts, copy_count):
        hottest_expert = np.where(expert_copies < dies, load / expert_copies, -1.0).argmax(axis=1)
        expert_copies[each_layer, hottest_expert] += 1
    had_expert = np.zeros((layers, experts, nodes), np.bool_)
    if nodes > 1 and current.shape[0] > 0:
        layer_index, die, _ = np.nonzero(current >= 0)
        had_expert[layer_index, current[current >= 0], node_of[die]] = True
    node_copies = _copies_by_node(load, expert_copies, node_of, had_expert, die_slots, copy_count)
    # Expert by expert, node by node: which copy goes where, and what it weighs.
    expert_node = np.repeat(np.tile(np.arange(experts * nodes), layers), node_copies.ravel())
    expert, node = np.divmod(expert_node.reshape(layers, copy_count), nodes)
    layer_rows = each_layer[:, None]
    nodes_without = (node_copies == 0).sum(axis=2)
    shares = (  # of an expert's load on a node, by copy
        1.0 / node_copies[layer_rows, expert, node]
        + nodes_without[layer_rows, expert] / expert_copies[layer_rows, expert]
    )
    _pack_apart(load[layer_rows, expert] / nodes * shares, expert, node, node_of, experts, slots)


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
    each_layer = np.arange(layers)
    node_slots = np.bincount(node_of, minlength=nodes) * die_slots
    free_slots = np.tile(node_slots, (layers, 1))
    slot_load_limit = SLACK * np.add.accumulate(load, axis=1)[:, -1] / (node_of.size * die_slots)
    copies_of_node = np.zeros((layers, experts, nodes), np.int64)
    node_load = np.zeros((layers, nodes))
    order = np.argsort(-load / count, axis=1, kind="mergesort")
    sequence = np.repeat(order.ravel(), count[each_layer[:, None], order].ravel()).reshape(
        layers, copies
    )
    for copy_number in range(copies):
        expert = sequence[:, copy_number]
        copy_load = load[each_layer, expert] / count[each_layer, expert]
        node_copies = np.where(
            free_slots > 0, copies_of_node[each_layer, expert], np.iinfo(np.int64).max
        )
        has_fewest = node_copies == node_copies.min(axis=1, keepdims=True)
        node = np.where(has_fewest, node_load / np.maximum(node_slots, 1), np.inf).argmin(axis=1)
        may_stay = (
            has_fewest
            & had_copy[each_layer, expert]
            & (node_load + copy_load[:, None] <= slot_load_limit[:, None] * node_slots)
        )
        stays_on_node = may_stay.any(axis=1) & ~had_copy[each_layer, expert, node]
        node = np.where(stays_on_node, may_stay.argmax(axis=1), node)
        copies_of_node[each_layer, expert, node] += 1
        free_slots[each_layer, node] -= 1
        node_load[each_layer, node] += copy_load
    return copies_of_node


def _pack_apart(
    copy_load: Floats, expert: Ints, node: Ints, node_of: Ints, experts: int, slots: Ints
) -> None:
    """Fill `slots` with copies, heaviest first, each on its node's lightest die with room, if
    possible one without its expert. copy_load, expert, node: of each copy, [layers, copies]."""
    layers, dies, slots_per_die = slots.shape
    each_layer = np.arange(layers)
    die_load = np.zeros((layers, dies))
    copies_on_die = np.zeros((layers, dies), np.int64)
    holds_expert = np.zeros((experts, layers, dies), np.bool_)
    for copy_of_layer in np.argsort(-copy_load, axis=1, kind="mergesort").T:
        expert_of_copy = expert[each_layer, copy_of_layer]
        has_room = (node_of == node[each_layer, copy_of_layer][:, None]) & (
            copies_on_die < slots_per_die
        )
        fits_apart = has_room & ~holds_expert[expert_of_copy, each_layer]
        may_take = np.where(fits_apart.any(axis=1, keepdims=True), fits_apart, has_room)
        lightest_die = np.where(may_take, die_load, np.inf).argmin(axis=1)
        slots[each_layer, lightest_die, copies_on_die[each_layer, lightest_die]] = expert_of_copy
        copies_on_die[each_layer, lightest_die] += 1
        die_load[each_layer, lightest_die] += copy_load[each_layer, copy_of_layer]
        holds_expert[expert_of_copy, each_layer, lightest_die] = True


@lazy_entry
def renumber_dies(current: Ints, new: Ints, node_of: Ints, experts: int) -> Ints:
    """`new` i8[layers, dies, slots] with the dies of each node renumbered, so that they hold
    experts that they hold in `current`: greedily, pairs with most experts in common first. A node's
    dies are alike, so no load changes. node_of i8[dies]: node of each; experts: their number."""
    layers, dies, slots_per_die = new.shape
    renumbered = np.empty_like(new)
    for layer in range(layers):
        holds_expert = np.zeros((dies, experts), np.bool_)
        in_common = np.zeros((dies, dies), np.int64)
        for die in range(dies):
            for expert in current[layer, die]:
                if expert >= 0:
                    holds_expert[die, expert] = True
        for i in range(dies):
            for expert in new[layer, i]:
                for die in range(dies):
                    if expert >= 0 and node_of[die] == node_of[i] and holds_expert[die, expert]:
                        in_common[i, die] += 1
        is_numbered, is_taken = np.zeros(dies, np.bool_), np.zeros(dies, np.bool_)
        # 0: a die of the same number; -1: of the node.
        for common in range(in_common.max(), -2, -1):
            for i in range(dies):
                chosen_die = -1
                if is_numbered[i]:
                    continue
                if not is_taken[i] and (common < 1 or in_common[i, i] == common):
                    chosen_die = i
                elif common != 0:
                    for die in range(dies):
                        has_as_many = common < 0 or in_common[i, die] == common
                        if has_as_many and node_of[die] == node_of[i] and not is_taken[die]:
                            chosen_die = die
                            break
                if chosen_die >= 0:
                    is_numbered[i] = is_taken[chosen_die] = True
                    renumbered[layer, chosen_die] = new[layer, i]
    return renumbered
