"""Packing copies on dies and numbering dies; all layers side by side."""

import numpy as np
from numpy.typing import NDArray

from twin.experts.popularity import Floats, Ints
from twin.kernels.compiled import late

Bools = NDArray[np.bool_]

SLACK = 1.01  # load of a node over its part, up to which experts stay where they are


def place_spread(
    load: Floats, physical: int, node_of: Ints, nodes: int, current: Ints, slots: Ints
) -> None:
    """Copy the hottest experts and put each copy on a node with few copies of its expert, on a
    light die without one. load f8[layers, experts], node_of i8[dies] rising: fills slots i8[layers,
    dies, slots_per_die]. current: the present slots, or no layers; an expert stays on its node if
    that has room. Two copies meet on a die only if no other die of the node has room."""
    layers, dies, room = slots.shape
    experts = load.shape[1]
    rows = np.arange(layers)
    copies_of = np.ones((layers, experts), np.int64)
    copy_count = min(physical, experts * dies)
    for _ in range(experts, copy_count):
        hottest = np.where(copies_of < dies, load / copies_of, -1.0).argmax(axis=1)
        copies_of[rows, hottest] += 1
    had_copy = np.zeros((layers, experts, nodes), np.bool_)
    if nodes > 1 and current.shape[0] > 0:
        layer, die, _ = np.nonzero(current >= 0)
        had_copy[layer, current[current >= 0], node_of[die]] = True
    on_node = _copies_to_nodes(load, copies_of, node_of, had_copy, room, copy_count)
    # Expert by expert, node by node: which copy goes where, and what it weighs.
    pairs = np.repeat(np.tile(np.arange(experts * nodes), layers), on_node.ravel())
    expert, node = np.divmod(pairs.reshape(layers, copy_count), nodes)
    layer_rows = rows[:, None]
    nodes_without = (on_node == 0).sum(axis=2)
    served = (
        1.0 / on_node[layer_rows, expert, node]
        + nodes_without[layer_rows, expert] / copies_of[layer_rows, expert]
    )
    _pack_apart(load[layer_rows, expert] / nodes * served, expert, node, node_of, experts, slots)


def _copies_to_nodes(
    load: Floats, count: Ints, node_of: Ints, was: Bools, room: int, copies: int
) -> Ints:
    """Number of copies of each expert on each node, i8[layers, experts, nodes]; count i8[layers,
    experts]: on all nodes. Copies are dealt one by one, those of the heaviest experts first, to the
    node with the fewest of the expert, then to the lightest; preferably to one that has the expert
    (`was`) while its load is below SLACK times its part."""
    layers, experts, nodes = was.shape
    if nodes == 1:
        return count[:, :, None].copy()
    rows = np.arange(layers)
    node_slots = np.bincount(node_of, minlength=nodes) * room
    free_slots = np.tile(node_slots, (layers, 1))
    stay_load = SLACK * np.add.accumulate(load, axis=1)[:, -1] / (node_of.size * room)
    copies_of_node = np.zeros((layers, experts, nodes), np.int64)
    node_load = np.zeros((layers, nodes))
    order = np.argsort(-load / count, axis=1, kind="mergesort")
    turns = np.repeat(order.ravel(), count[rows[:, None], order].ravel()).reshape(layers, copies)
    for turn in range(copies):
        e = turns[:, turn]
        copy_load = load[rows, e] / count[rows, e]
        copies_here = np.where(free_slots > 0, copies_of_node[rows, e], np.iinfo(np.int64).max)
        fewest = copies_here == copies_here.min(axis=1, keepdims=True)
        best = np.where(fewest, node_load / np.maximum(node_slots, 1), np.inf).argmin(axis=1)
        keeps_node = (
            fewest
            & was[rows, e]
            & (node_load + copy_load[:, None] <= stay_load[:, None] * node_slots)
        )
        stays = keeps_node.any(axis=1) & ~was[rows, e, best]
        best = np.where(stays, keeps_node.argmax(axis=1), best)
        copies_of_node[rows, e, best] += 1
        free_slots[rows, best] -= 1
        node_load[rows, best] += copy_load
    return copies_of_node


def _pack_apart(
    share: Floats, expert: Ints, node: Ints, node_of: Ints, experts: int, slots: Ints
) -> None:
    """Pack copies, heaviest first, on their node's lightest die with room, without its expert."""
    layers, dies, room = slots.shape
    rows = np.arange(layers)
    die_load = np.zeros((layers, dies))
    copies_on_die = np.zeros((layers, dies), np.int64)
    holds_expert = np.zeros((experts, layers, dies), np.bool_)
    for copy in np.argsort(-share, axis=1, kind="mergesort").T:
        expert_of_copy = expert[rows, copy]
        fits = (node_of == node[rows, copy][:, None]) & (copies_on_die < room)
        fits_apart = fits & ~holds_expert[expert_of_copy, rows]
        candidates = np.where(fits_apart.any(axis=1, keepdims=True), fits_apart, fits)
        best_die = np.where(candidates, die_load, np.inf).argmin(axis=1)
        slots[rows, best_die, copies_on_die[rows, best_die]] = expert_of_copy
        copies_on_die[rows, best_die] += 1
        die_load[rows, best_die] += share[rows, copy]
        holds_expert[expert_of_copy, rows, best_die] = True


@late
def renumber(current: Ints, new: Ints, node_of: Ints, experts: int) -> Ints:
    """`new` i8[layers, dies, slots] with the dies of a node permuted to resemble `current`:
    greedily, most experts in common first. Loads do not change: a node's dies are alike."""
    layers, dies, room = new.shape
    renumbered = np.empty_like(new)
    for layer in range(layers):
        holds = np.zeros((dies, experts), np.bool_)
        overlap = np.zeros((dies, dies), np.int64)
        for die in range(dies):
            for expert in current[layer, die]:
                if expert >= 0:
                    holds[die, expert] = True
        for p in range(dies):
            for expert in new[layer, p]:
                for die in range(dies):
                    if expert >= 0 and node_of[die] == node_of[p] and holds[die, expert]:
                        overlap[p, die] += 1
        has_die, is_taken = np.zeros(dies, np.bool_), np.zeros(dies, np.bool_)
        for level in range(overlap.max(), -2, -1):  # 0: a die of the same number; -1: of the node
            for p in range(dies):
                chosen = -1
                if has_die[p]:
                    continue
                if not is_taken[p] and (level < 1 or overlap[p, p] == level):
                    chosen = p
                elif level != 0:
                    for die in range(dies):
                        fits = level < 0 or overlap[p, die] == level
                        if fits and node_of[die] == node_of[p] and not is_taken[die]:
                            chosen = die
                            break
                if chosen >= 0:
                    has_die[p] = is_taken[chosen] = True
                    renumbered[layer, chosen] = new[layer, p]
    return renumbered
