"""Expert-parallel load balancer (EPLB): which logical expert each physical slot holds.

An own implementation of the algorithm DeepSeek published (deepseek-ai/EPLB, commit d52c72d, MIT):
pack expert groups to nodes, replicate the experts that are hottest per copy, pack the copies to
dies. All three steps are greedy, in float32 as in the original, and every sort is stable, which
the original's is not above 16 items: where loads tie, indices may differ from it, loads do not.

It knows loads only as numbers: not where they were measured, nor how they drift. It does not
forbid two copies of one expert on one die (neither does the original); such a die wastes a slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Singles = NDArray[np.float32]
Ints = NDArray[np.int64]


class EplbError(ValueError):
    """Sizes that cannot be balanced: one sentence naming which do not divide."""


@dataclass(frozen=True)
class Assignment:
    """Physical slots in the order of the dies, `slots / dies` consecutive slots to a die.

    `expert` [layers, slots] is the logical expert of each slot, `copy` [layers, slots] its
    number among that expert's copies, `copies` [layers, experts] how many there are.
    """

    expert: Ints
    copy: Ints
    copies: Ints


def rebalance(
    weight: NDArray[np.floating] | NDArray[np.integer],
    slots: int,
    groups: int,
    nodes: int,
    dies: int,
) -> Assignment:
    """Balance `weight` [layers, experts] over `slots` on `dies` of `nodes`.

    Hierarchical (groups stay within a node) when `groups` divides evenly over `nodes`, else
    global: one group, one node. Raises EplbError for sizes that do not divide.
    """
    load = np.ascontiguousarray(weight, dtype=np.float32)
    if load.ndim != 2:
        raise EplbError(f"weight has {load.ndim} axes, not 2: give [layers, experts]")
    if not np.isfinite(load).all() or (load < 0).any():
        raise EplbError("weight holds a load that is negative or not finite: give counts")
    if groups < 1 or nodes < 1 or groups % nodes:
        groups = nodes = 1
    layers, experts = load.shape
    for what, total, part, parts in (
        ("experts", experts, "groups", groups),
        ("dies", dies, "nodes", nodes),
        ("slots", slots, "dies", dies),
    ):
        if parts < 1 or total % parts:
            raise EplbError(f"{total} {what} do not divide evenly over {parts} {part}")
    if slots < experts:
        raise EplbError(f"{slots} slots cannot hold {experts} experts: give at least {experts}")
    expert = np.empty((layers, slots), np.int64)
    copy = np.empty((layers, slots), np.int64)
    copies = np.empty((layers, experts), np.int64)
    for layer in range(layers):
        _rebalance_layer(
            load[layer], groups, nodes, dies, expert[layer], copy[layer], copies[layer]
        )
    return Assignment(expert, copy, copies)


@njit(cache=True)
def pack(load: Singles, packs: int) -> tuple[Ints, Ints]:
    """Pack items, heaviest first, each to the lightest pack with room (ties: lowest index).

    load f4[n], n divisible by packs -> (pack i8[n], place within the pack i8[n]). The identity
    when a pack holds one item, as in the original.
    """
    n = load.size
    room = n // packs
    where = np.empty(n, np.int64)
    place = np.zeros(n, np.int64)
    if room == 1:
        for i in range(n):
            where[i] = i
        return where, place
    total = np.zeros(packs, np.float32)
    items = np.zeros(packs, np.int64)
    for i in np.argsort(-load, kind="mergesort"):
        best = -1
        for p in range(packs):
            if items[p] < room and (best < 0 or total[p] < total[best]):
                best = p
        where[i] = best
        place[i] = items[best]
        items[best] += 1
        total[best] = np.float32(total[best] + load[i])
    return where, place


@njit(cache=True)
def replicate(load: Singles, slots: int) -> tuple[Ints, Ints, Ints]:
    """Copies for the experts that are hottest per copy (ties: lowest index), one at a time.

    load f4[experts] -> (expert i8[slots], copy i8[slots], copies i8[experts]); the first
    `experts` slots are the experts themselves, in order.
    """
    experts = load.size
    expert = np.empty(slots, np.int64)
    copy = np.zeros(slots, np.int64)
    copies = np.ones(experts, np.int64)
    share = load.copy()
    for i in range(experts):
        expert[i] = i
    for i in range(experts, slots):
        hot = 0
        for e in range(1, experts):
            if share[e] > share[hot]:
                hot = e
        expert[i] = hot
        copy[i] = copies[hot]
        copies[hot] += 1
        share[hot] = np.float32(load[hot] / np.float32(copies[hot]))
    return expert, copy, copies


@njit(cache=True)
def _rebalance_layer(
    load: Singles,
    groups: int,
    nodes: int,
    dies: int,
    out_expert: Ints,
    out_copy: Ints,
    out_copies: Ints,
) -> None:
    """One layer of `rebalance`: fills out_expert i8[slots], out_copy i8[slots], out_copies."""
    experts = load.size
    slots = out_expert.size
    group_size = experts // groups
    node_experts = experts // nodes
    node_slots = slots // nodes
    node_dies = dies // nodes
    die_slots = slots // dies
    # Step 1: groups to nodes; `member` lists the experts node by node.
    group_load = np.zeros(groups, np.float32)
    for e in range(experts):
        g = e // group_size
        group_load[g] = np.float32(group_load[g] + load[e])
    node, place = pack(group_load, nodes)
    member = np.empty(experts, np.int64)
    for e in range(experts):
        g = e // group_size
        member[(node[g] * (groups // nodes) + place[g]) * group_size + e % group_size] = e
    local = np.empty(node_experts, np.float32)
    for n in range(nodes):
        # Step 2: copies within the node.
        for i in range(node_experts):
            local[i] = load[member[n * node_experts + i]]
        expert, copy, copies = replicate(local, node_slots)
        for i in range(node_experts):
            out_copies[member[n * node_experts + i]] = copies[i]
        # Step 3: copies to the node's dies.
        share = np.empty(node_slots, np.float32)
        for i in range(node_slots):
            share[i] = np.float32(local[expert[i]] / np.float32(copies[expert[i]]))
        die, slot = pack(share, node_dies)
        for i in range(node_slots):
            to = n * node_slots + die[i] * die_slots + slot[i]
            out_expert[to] = member[n * node_experts + expert[i]]
            out_copy[to] = copy[i]
