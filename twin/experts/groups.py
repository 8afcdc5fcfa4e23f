"""Routing limited to groups: DeepSeek-V3's gate takes the 4 best of 8 groups of consecutive
experts, then the 8 best experts in them (arXiv 2412.19437 2.1.2). Experts' chances stay; which are
picked *together* changes. A reached group's picks vary EVEN times as much as independent picks
would."""

import numpy as np

from twin.experts.popularity import Floats, Ints
from twin.kernels.compiled import kernel, late

EVEN = 0.25  # variance of a reached group's picks over that of independent ones, by simulated gates


@kernel(allocates=True)
def group_chances(chance: Floats, groups: int, top_groups: int, out: Floats) -> None:
    """Fills out f8[groups] with the chance that a token reaches each group, from chance
    f8[experts]: by its picks, at most 1, at least its most popular expert's; sums to top_groups."""
    size = chance.size // groups
    least = np.zeros(groups)
    for g in range(groups):
        out[g] = 0.0
        for i in range(g * size, (g + 1) * size):
            out[g] += chance[i]
            least[g] = max(least[g], min(1.0, chance[i]))
    fixed = np.zeros(groups, np.bool_)
    load = out.copy()
    groups_left = float(top_groups)
    for _ in range(groups):
        free = 0.0
        for g in range(groups):
            if not fixed[g]:
                free += load[g]
        changed = False
        for g in range(groups):
            if fixed[g]:
                continue
            out[g] = load[g] * groups_left / free if free > 0.0 else 0.0
        for g in range(groups):
            if not fixed[g] and (out[g] > 1.0 or out[g] < least[g]):
                out[g] = 1.0 if out[g] > 1.0 else least[g]
                fixed[g] = True
                changed = True
        if not changed:
            return
        groups_left = float(top_groups)
        for g in range(groups):
            if fixed[g]:
                groups_left -= out[g]
        groups_left = max(groups_left, 0.0)


@kernel
def together(a: float, b: float, top_groups: int) -> float:
    """P(two groups are both reached) / (a b), for groups reached with chances a and b. Exact for
    groups with equal chances: (m - 1) G / (m (G - 1)) for m of G groups."""
    remaining = top_groups - 0.5 * (a + b)
    return 0.0 if remaining <= 0.0 else min((top_groups - 1.0) / remaining, 1.0 / max(a, b))


@late
def limited_own(now: Floats, slots: Ints, part: Floats, groups: int, top_groups: int) -> Floats:
    """`own` of `load.die_moments` (same arguments) under routing limited to groups, f8[layers,
    dies]: a token's squared chances less twice the covariance of every pair of experts on a die,
    adjusted to independent counts with equal results for the fixed total, as `peak` needs them."""
    layers, dies, room = slots.shape
    experts = now.shape[1]
    size = experts // groups
    result = np.zeros((layers, dies))
    group_chance = np.empty(groups)
    within = np.empty(groups)
    mean = np.empty(groups)
    bound = np.empty(groups)
    variance = np.empty(dies)
    for layer in range(layers):
        group_chances(now[layer], groups, top_groups, group_chance)
        within[:] = 1e-12
        for e in range(experts):
            p = min(1.0, now[layer, e] / max(group_chance[e // size], 1e-12))
            within[e // size] += p * (1.0 - p)
        total = 0.0
        for d in range(dies):
            mean[:] = 0.0
            bound[:] = 0.0
            variance[d] = 0.0
            for i in range(room):
                if part[layer, d, i] <= 0.0:
                    continue
                e = slots[layer, d, i]
                g = e // size
                x = now[layer, e] * part[layer, d, i]
                p = min(1.0, now[layer, e] / max(group_chance[g], 1e-12))
                v = p * (1.0 - p) * part[layer, d, i]
                variance[d] += x - x * x  # of this expert, and what the pairs below count of it
                variance[d] -= x * x * (1.0 / max(group_chance[g], 1e-12) - 1.0)
                variance[d] += group_chance[g] * (1.0 - EVEN) * v * v / within[g]
                mean[g] += x
                bound[g] += v
            for g in range(groups):
                if mean[g] == 0.0:
                    continue
                variance[d] += mean[g] * mean[g] * (1.0 / group_chance[g] - 1.0)
                variance[d] -= group_chance[g] * (1.0 - EVEN) * bound[g] * bound[g] / within[g]
                for h in range(g):
                    joint = together(group_chance[g], group_chance[h], top_groups)
                    variance[d] += 2.0 * mean[g] * mean[h] * (joint - 1.0)
            variance[d] = max(0.0, variance[d])
            total += variance[d]
        for d in range(dies):
            picks = 0.0
            for i in range(room):
                if part[layer, d, i] > 0.0:
                    picks += now[layer, slots[layer, d, i]] * part[layer, d, i]
            rest = max(total - variance[d], 0.1 * total)
            result[layer, d] = picks - (variance[d] * total / rest if rest > 0.0 else 0.0)
    return result
