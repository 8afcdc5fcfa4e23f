"""Routing limited to groups: a token's experts lie in a few groups of consecutive experts.

DeepSeek-V3's gate takes the 4 best of 8 groups, then the 8 best experts in them (arXiv 2412.19437
2.1.2). The popularity of experts already is what such a gate leads to, so their chances stay;
what changes is which experts are picked *together*. The approximation: a group is reached with a
chance that goes with its load, an expert of a reached group is picked independently with the
chance that keeps its own, and two groups are reached together as `top_groups` drawn without
replacement are. Two experts of one group then come together more often than by chance and two of
different groups less often, which makes dies that hold many experts of one group less even, and
lets a token reach fewer nodes. Knows nothing about time.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(cache=True)
def group_chances(chance: Floats, groups: int, top_groups: int, out: Floats) -> None:
    """Fills out f8[groups] with the chance that a token reaches each group; sums to top_groups.

    chance f8[experts]. In proportion to the group's picks, at most 1 and at least the chance of
    its most popular expert.
    """
    size = chance.size // groups
    least = np.zeros(groups)
    for g in range(groups):
        out[g] = 0.0
        for i in range(g * size, (g + 1) * size):
            out[g] += chance[i]
            least[g] = max(least[g], min(1.0, chance[i]))
    fixed = np.zeros(groups, np.bool_)
    load = out.copy()
    left = float(top_groups)
    for _ in range(groups):
        free = 0.0
        for g in range(groups):
            if not fixed[g]:
                free += load[g]
        changed = False
        for g in range(groups):
            if fixed[g]:
                continue
            out[g] = load[g] * left / free if free > 0.0 else 0.0
        for g in range(groups):
            if not fixed[g] and (out[g] > 1.0 or out[g] < least[g]):
                out[g] = 1.0 if out[g] > 1.0 else least[g]
                fixed[g] = True
                changed = True
        if not changed:
            return
        left = float(top_groups)
        for g in range(groups):
            if fixed[g]:
                left -= out[g]
        left = max(left, 0.0)


@njit(cache=True)
def together(a: float, b: float, top_groups: int) -> float:
    """P(two groups are both reached) / (a b), for groups reached with chances a and b.

    Exact for groups that are alike: (m - 1) G / (m (G - 1)) of m drawn out of G.
    """
    rest = top_groups - 0.5 * (a + b)
    if rest <= 0.0:
        return 0.0
    return min((top_groups - 1.0) / rest, 1.0 / max(a, b))


@njit(cache=True)
def pair_covariance(now: Floats, slots: Ints, part: Floats, groups: int, top_groups: int) -> Floats:
    """Sum over pairs of experts on a die of the covariance of their counts, f8[layers, dies].

    now f8[layers, experts], slots i8[layers, dies, slots], part as of `load.copy_shares`; for one
    token, by the model of this module.
    """
    layers, dies, room = slots.shape
    experts = now.shape[1]
    size = experts // groups
    out = np.zeros((layers, dies))
    reached = np.empty(groups)
    here = np.empty(groups)
    for layer in range(layers):
        group_chances(now[layer], groups, top_groups, reached)
        for d in range(dies):
            here[:] = 0.0
            for i in range(room):
                if part[layer, d, i] > 0.0:
                    e = slots[layer, d, i]
                    x = now[layer, e] * part[layer, d, i]
                    out[layer, d] -= 0.5 * x * x * (1.0 / max(reached[e // size], 1e-12) - 1.0)
                    here[e // size] += x
            for g in range(groups):
                if here[g] == 0.0:
                    continue
                out[layer, d] += 0.5 * here[g] * here[g] * (1.0 / reached[g] - 1.0)
                for h in range(g):
                    both = together(reached[g], reached[h], top_groups)
                    out[layer, d] += here[g] * here[h] * (both - 1.0)
    return out


def nodes_reached(
    now: Floats, slots: Ints, nodes: int, groups: int = 1, top_groups: int = 1
) -> Floats:
    """Mean number of nodes that a token's experts are on, f8[layers].

    now f8[layers, experts], slots i8[layers, dies, slots]; die d is on node d * nodes // dies and
    copies are chosen at random. groups > 1: routing limited to `top_groups` of them.
    """
    return _nodes_reached(now, slots, nodes, groups, top_groups)


@njit(cache=True)
def _nodes_reached(now: Floats, slots: Ints, nodes: int, groups: int, top_groups: int) -> Floats:
    """P(a node is missed) is the product over experts, corrected for the fixed number of picks.

    Independent picks of mean k fall outside a node of mean x all k together with the chance
    (1 - x / k)**k e**x of theirs (the ratio of two Poisson counts at k).
    """
    layers, dies, room = slots.shape
    experts = now.shape[1]
    size = experts // groups
    out = np.zeros(layers)
    held = np.zeros((experts, nodes))
    reached = np.ones(groups)
    for layer in range(layers):
        held[:] = 0.0
        for d in range(dies):
            for i in range(room):
                if slots[layer, d, i] >= 0:
                    held[slots[layer, d, i], d * nodes // dies] += 1.0
        if groups > 1:
            group_chances(now[layer], groups, top_groups, reached)
        picks = 0.0
        for e in range(experts):
            picks += now[layer, e]
            copies = 0.0
            for n in range(nodes):
                copies += held[e, n]
            for n in range(nodes):
                held[e, n] /= copies
        for n in range(nodes):
            missed = 1.0
            mean = 0.0
            for g in range(groups):
                none = 1.0
                for e in range(g * size, (g + 1) * size):
                    x = now[layer, e] * held[e, n]
                    mean += x
                    none *= max(0.0, 1.0 - x / max(reached[g], 1e-12))
                missed *= 1.0 - reached[g] + reached[g] * none
            if mean < picks:
                missed *= math.pow(1.0 - mean / picks, picks) * math.exp(mean)
            else:
                missed = 0.0
            out[layer] += 1.0 - missed
    return out
