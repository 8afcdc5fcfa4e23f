"""Compiled loops of `placement`: packing copies on dies, numbering dies, counting differences."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from twin.experts.eplb import pack, replicate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = NDArray[np.int32]

SLACK = 1.01  # load of a node over its part, up to which experts stay where they are


@njit(cache=True)
def place_eplb(load: Floats, physical: int, groups: int, nodes: int, slots: Ints) -> None:
    """EPLB of load f8[layers, experts]: fills slots i8[layers, dies, slots_per_die].

    As `eplb.rebalance` for any number of copies `physical`: the first nodes get one more where
    they do not divide evenly. Slots beyond them weigh nothing and are packed last, so they end up
    spread and empty. groups = nodes = 1: the global policy.
    """
    layers, dies, room = slots.shape
    experts = load.shape[1]
    size = experts // groups
    here = experts // nodes
    node_dies = dies // nodes
    member = np.empty(experts, np.int64)
    for layer in range(layers):
        weight = load[layer].astype(np.float32)
        total = np.zeros(groups, np.float32)
        for e in range(experts):
            total[e // size] = np.float32(total[e // size] + weight[e])
        node, spot = pack(total, nodes)
        for e in range(experts):
            g = e // size
            member[(node[g] * (groups // nodes) + spot[g]) * size + e % size] = e
        for n in range(nodes):
            filled = physical // nodes + (1 if n < physical % nodes else 0)
            local = np.empty(here, np.float32)
            for i in range(here):
                local[i] = weight[member[n * here + i]]
            expert, _, count = replicate(local, filled)
            share = np.zeros(node_dies * room, np.float32)
            for i in range(filled):
                share[i] = np.float32(local[expert[i]] / np.float32(count[expert[i]]))
            die, slot = pack(share, node_dies)
            for i in range(filled):
                to = member[n * here + expert[i]]
                slots[layer, n * node_dies + die[i], slot[i]] = to


@njit(cache=True)
def place_spread(
    load: Floats, physical: int, node_of: Ints, nodes: int, current: Ints, slots: Ints
) -> None:
    """Copies for the hottest, each on a node that has few of it, each on a light die without it.

    load f8[layers, experts], node_of i8[dies] rising: fills slots i8[layers, dies, slots_per_die].
    current: the slots as they are, or no layers; an expert then stays on its node if that has room.
    A copy weighs what it gets when tokens take a copy on their own node first. No expert has more
    copies than there are dies; two meet on a die only when no other die of the node has room.
    """
    layers, dies, room = slots.shape
    experts = load.shape[1]
    for layer in range(layers):
        count = np.ones(experts, np.int64)
        copies = experts
        while copies < physical:
            hot = -1
            for e in range(experts):
                if count[e] < dies and (
                    hot < 0 or load[layer, e] * count[hot] > load[layer, hot] * count[e]
                ):
                    hot = e
            if hot < 0:
                break  # every die has every expert
            count[hot] += 1
            copies += 1
        was = np.zeros((experts, nodes), np.bool_)
        if nodes > 1 and current.shape[0] > 0:
            for d in range(dies):
                for i in range(current.shape[2]):
                    if current[layer, d, i] >= 0:
                        was[current[layer, d, i], node_of[d]] = True
        near = _copies_to_nodes(load[layer], count, node_of, was, room)
        share = np.empty(copies)
        expert = np.empty(copies, np.int64)
        node = np.empty(copies, np.int64)
        p = 0
        for e in range(experts):
            without = 0.0
            for n in range(nodes):
                if near[e, n] == 0:
                    without += 1.0
            for n in range(nodes):
                for _ in range(near[e, n]):
                    expert[p] = e
                    node[p] = n
                    share[p] = load[layer, e] / nodes * (1.0 / near[e, n] + without / count[e])
                    p += 1
        _pack_apart(share, expert, node, node_of, experts, slots[layer])


@njit(cache=True)
def _copies_to_nodes(
    load: Floats, count: Ints, node_of: Ints, was: NDArray[np.bool_], room: int
) -> Ints:
    """How many of the copies count i8[experts] each node gets, i8[experts, nodes].

    Heaviest experts first, copy by copy to the node with the fewest of it, then to the lightest;
    but rather to one that has the expert, was [experts, nodes], while its load stays below SLACK
    times its part of the whole.
    """
    experts, nodes = was.shape
    free = np.zeros(nodes, np.int64)
    for d in range(node_of.size):
        free[node_of[d]] += room
    space = free.copy()
    part = SLACK * load.sum() / (node_of.size * room)
    near = np.zeros((experts, nodes), np.int64)
    total = np.zeros(nodes)
    for e in np.argsort(-load / count, kind="mergesort"):
        share = load[e] / count[e]
        for _ in range(count[e]):
            best = -1
            for n in range(nodes):
                if free[n] > 0 and (
                    best < 0
                    or near[e, n] < near[e, best]
                    or (
                        near[e, n] == near[e, best]
                        and total[n] * space[best] < total[best] * space[n]
                    )
                ):
                    best = n
            if not was[e, best]:
                for n in range(nodes):
                    if (
                        was[e, n]
                        and free[n] > 0
                        and near[e, n] == near[e, best]
                        and total[n] + share <= part * space[n]
                    ):
                        best = n
                        break
            near[e, best] += 1
            free[best] -= 1
            total[best] += share
    return near


@njit(cache=True)
def _pack_apart(
    share: Floats, expert: Ints, node: Ints, node_of: Ints, experts: int, slots: Ints
) -> None:
    """Heaviest copy first, each to the lightest die of its node that has room, not its expert."""
    dies = slots.shape[0]
    room = slots.shape[1]
    total = np.zeros(dies)
    items = np.zeros(dies, np.int64)
    holds = np.zeros((dies, experts), np.bool_)
    for p in np.argsort(-share, kind="mergesort"):
        best = -1
        for d in range(dies):
            if node_of[d] != node[p] or items[d] >= room:
                continue
            if best < 0:
                best = d
                continue
            again = holds[d, expert[p]]
            if again != holds[best, expert[p]]:
                if not again:
                    best = d
            elif total[d] < total[best]:
                best = d
        slots[best, items[best]] = expert[p]
        items[best] += 1
        total[best] += share[p]
        holds[best, expert[p]] = True


@njit(cache=True)
def renumber(current: Ints, new: Ints, node_of: Ints, experts: int) -> Ints:
    """new i8[layers, dies, slots] with dies of a node exchanged to resemble current's.

    Greedy: the pair with most experts in common first, then as numbered. At most as good as the
    best assignment, never worse for the load: dies of a node are alike.
    """
    layers, dies, room = new.shape
    out = np.empty_like(new)
    where = np.full((experts, dies), -1, np.int64)
    for layer in range(layers):
        found = np.zeros(experts, np.int64)
        for d in range(dies):
            for i in range(room):
                e = current[layer, d, i]
                if e >= 0 and (found[e] == 0 or where[e, found[e] - 1] != d):
                    where[e, found[e]] = d
                    found[e] += 1
        common = np.zeros((dies, dies), np.int64)
        most = 0
        for p in range(dies):
            for i in range(room):
                e = new[layer, p, i]
                if e < 0:
                    continue
                for j in range(found[e]):
                    d = where[e, j]
                    if node_of[d] == node_of[p]:
                        common[p, d] += 1
                        most = max(most, common[p, d])
        die = np.full(dies, -1, np.int64)
        taken = np.zeros(dies, np.bool_)
        for level in range(most, 0, -1):
            for p in range(dies):
                if die[p] >= 0:
                    continue
                if common[p, p] == level and not taken[p]:
                    die[p] = p
                    taken[p] = True
                    continue
                for d in range(dies):
                    if common[p, d] == level and not taken[d]:
                        die[p] = d
                        taken[d] = True
                        break
        for p in range(dies):
            if die[p] < 0 and not taken[p]:
                die[p] = p
                taken[p] = True
        for p in range(dies):
            if die[p] < 0:
                for d in range(dies):
                    if not taken[d] and node_of[d] == node_of[p]:
                        die[p] = d
                        taken[d] = True
                        break
        for p in range(dies):
            out[layer, die[p]] = new[layer, p]
    return out


@njit(cache=True)
def count_replicas(slots: Ints, experts: int) -> Counts:
    """Copies on each die that are not their expert's first, i4[layers, dies]."""
    layers, dies, room = slots.shape
    out = np.zeros((layers, dies), np.int32)
    for layer in range(layers):
        seen = np.zeros(experts, np.bool_)
        for d in range(dies):
            for i in range(room):
                e = slots[layer, d, i]
                if e >= 0:
                    out[layer, d] += 1 if seen[e] else 0
                    seen[e] = True
    return out


@njit(cache=True)
def count_copies(slots: Ints, experts: int) -> Counts:
    """Copies of each expert, i4[layers, experts]."""
    layers, dies, room = slots.shape
    out = np.zeros((layers, experts), np.int32)
    for layer in range(layers):
        for d in range(dies):
            for i in range(room):
                if slots[layer, d, i] >= 0:
                    out[layer, slots[layer, d, i]] += 1
    return out


@njit(cache=True)
def count_moves(old: Ints, new: Ints, experts: int) -> Ints:
    """Experts of each die in new that it does not hold in old, i8[layers, dies]."""
    layers, dies, room = new.shape
    out = np.zeros((layers, dies), np.int64)
    mark = np.full(experts, -1, np.int64)
    for layer in range(layers):
        for d in range(dies):
            stamp = layer * dies + d
            for i in range(old.shape[2]):
                if old[layer, d, i] >= 0:
                    mark[old[layer, d, i]] = stamp
            for i in range(room):
                e = new[layer, d, i]
                if e >= 0 and mark[e] != stamp:
                    mark[e] = stamp
                    out[layer, d] += 1
    return out
