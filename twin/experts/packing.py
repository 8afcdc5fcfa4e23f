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
    """Copies for the hottest experts, each on a node with few copies of it and on a light die
    without one. load f8[layers, experts], node_of i8[dies] rising: fills slots i8[layers, dies,
    slots_per_die]. current: the present slots, or no layers; an expert stays on its node if that
    has room. Two copies meet on a die only if no other die of the node has room."""
    layers, dies, room = slots.shape
    experts = load.shape[1]
    rows = np.arange(layers)
    count = np.ones((layers, experts), np.int64)
    copies = min(physical, experts * dies)
    for _ in range(experts, copies):
        hot = np.where(count < dies, load / count, -1.0).argmax(axis=1)
        count[rows, hot] += 1
    had_copy = np.zeros((layers, experts, nodes), np.bool_)
    if nodes > 1 and current.shape[0] > 0:
        layer, die, _ = np.nonzero(current >= 0)
        had_copy[layer, current[current >= 0], node_of[die]] = True
    copied = _copies_to_nodes(load, count, node_of, had_copy, room, copies)
    # Expert by expert, node by node: which copy goes where, and what it weighs.
    pairs = np.repeat(np.tile(np.arange(experts * nodes), layers), copied.ravel())
    expert, node = np.divmod(pairs.reshape(layers, copies), nodes)
    layer_rows = rows[:, None]
    uncopied = (copied == 0).sum(axis=2)
    share = (
        1.0 / copied[layer_rows, expert, node]
        + uncopied[layer_rows, expert] / count[layer_rows, expert]
    )
    _pack_apart(load[layer_rows, expert] / nodes * share, expert, node, node_of, experts, slots)


def _copies_to_nodes(
    load: Floats, count: Ints, node_of: Ints, was: Bools, room: int, copies: int
) -> Ints:
    """Copies of each expert, count i8[layers, experts], by node, i8[layers, experts, nodes]:
    heaviest experts first, copy by copy to the node with the fewest of it, then to the lightest;
    preferably to one that has the expert (`was`) while its load is below SLACK times its part."""
    layers, experts, nodes = was.shape
    if nodes == 1:
        return count[:, :, None].copy()
    rows = np.arange(layers)
    space = np.bincount(node_of, minlength=nodes) * room
    free = np.tile(space, (layers, 1))
    part = SLACK * np.add.accumulate(load, axis=1)[:, -1] / (node_of.size * room)
    copies_of_node = np.zeros((layers, experts, nodes), np.int64)
    total = np.zeros((layers, nodes))
    order = np.argsort(-load / count, axis=1, kind="mergesort")
    turns = np.repeat(order.ravel(), count[rows[:, None], order].ravel()).reshape(layers, copies)
    for turn in range(copies):
        e = turns[:, turn]
        share = load[rows, e] / count[rows, e]
        copies_here = np.where(free > 0, copies_of_node[rows, e], np.iinfo(np.int64).max)
        fewest = copies_here == copies_here.min(axis=1, keepdims=True)
        best = np.where(fewest, total / np.maximum(space, 1), np.inf).argmin(axis=1)
        keeps_node = fewest & was[rows, e] & (total + share[:, None] <= part[:, None] * space)
        stay = keeps_node.any(axis=1) & ~was[rows, e, best]
        best = np.where(stay, keeps_node.argmax(axis=1), best)
        copies_of_node[rows, e, best] += 1
        free[rows, best] -= 1
        total[rows, best] += share
    return copies_of_node


def _pack_apart(
    share: Floats, expert: Ints, node: Ints, node_of: Ints, experts: int, slots: Ints
) -> None:
    """Pack copies, heaviest first, on their node's lightest die with room, without its expert."""
    layers, dies, room = slots.shape
    rows = np.arange(layers)
    total = np.zeros((layers, dies))
    items = np.zeros((layers, dies), np.int64)
    holds = np.zeros((experts, layers, dies), np.bool_)
    for p in np.argsort(-share, axis=1, kind="mergesort").T:
        e = expert[rows, p]
        fits = (node_of == node[rows, p][:, None]) & (items < room)
        fits_apart = fits & ~holds[e, rows]
        candidates = np.where(fits_apart.any(axis=1, keepdims=True), fits_apart, fits)
        best = np.where(candidates, total, np.inf).argmin(axis=1)
        slots[rows, best, items[rows, best]] = e
        items[rows, best] += 1
        total[rows, best] += share[rows, p]
        holds[e, rows, best] = True


@late
def renumber(current: Ints, new: Ints, node_of: Ints, experts: int) -> Ints:
    """`new` i8[layers, dies, slots] with the dies of a node permuted to resemble `current`:
    greedily, most experts in common first. Loads do not change: a node's dies are alike."""
    layers, dies, room = new.shape
    out = np.empty_like(new)
    slot_of = np.full((experts, dies), -1, np.int64)
    for layer in range(layers):
        holders = np.zeros(experts, np.int64)
        for d in range(dies):
            for i in range(room):
                e = current[layer, d, i]
                if e >= 0 and (holders[e] == 0 or slot_of[e, holders[e] - 1] != d):
                    slot_of[e, holders[e]] = d
                    holders[e] += 1
        common = np.zeros((dies, dies), np.int64)
        most = 0
        for p in range(dies):
            for i in range(room):
                e = new[layer, p, i]
                if e < 0:
                    continue
                for j in range(holders[e]):
                    d = slot_of[e, j]
                    if node_of[d] == node_of[p]:
                        common[p, d] += 1
                        most = max(most, common[p, d])
        die = np.full(dies, -1, np.int64)
        is_taken = np.zeros(dies, np.bool_)
        for level in range(most, 0, -1):
            for p in range(dies):
                if die[p] >= 0:
                    continue
                if common[p, p] == level and not is_taken[p]:
                    die[p] = p
                    is_taken[p] = True
                    continue
                for d in range(dies):
                    if common[p, d] == level and not is_taken[d]:
                        die[p] = d
                        is_taken[d] = True
                        break
        for p in range(dies):
            if die[p] < 0 and not is_taken[p]:
                die[p] = p
                is_taken[p] = True
        for p in range(dies):
            if die[p] < 0:
                for d in range(dies):
                    if not is_taken[d] and node_of[d] == node_of[p]:
                        die[p] = d
                        is_taken[d] = True
                        break
        for p in range(dies):
            out[layer, die[p]] = new[layer, p]
    return out
