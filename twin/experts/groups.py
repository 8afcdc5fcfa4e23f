"""Routing limited to groups: DeepSeek-V3's gate takes the 4 best of 8 groups of consecutive
experts, then the 8 best experts in them (arXiv 2412.19437 2.1.2). Experts' chances stay; which are
picked *together* changes. A reached group's picks vary EVEN times as much as independent ones."""

import numpy as np

from twin.experts.popularity import Floats, Ints
from twin.kernels.compiled import kernel, lazy_entry

EVEN = 0.25  # variance of a reached group's picks over that of independent ones, by simulated gates


@kernel(allocates=True)
def group_chances(chance: Floats, groups: int, top_groups: int, out: Floats) -> None:
    """Fill out f8[groups] with the chance that a token reaches each group: proportional to the
    group's mean picks, at most 1, at least the chance of its most popular expert; their sum is
    top_groups. chance f8[experts]: that a token picks an expert."""
    group_size = chance.size // groups
    least_chance = np.zeros(groups)
    for g in range(groups):
        out[g] = 0.0
        for expert in range(g * group_size, (g + 1) * group_size):
            out[g] += chance[expert]
            least_chance[g] = max(least_chance[g], min(1.0, chance[expert]))
    is_fixed = np.zeros(groups, np.bool_)
    group_picks = out.copy()
    groups_to_reach = float(top_groups)
    for _ in range(groups):
        free_picks = 0.0
        for g in range(groups):
            if not is_fixed[g]:
                free_picks += group_picks[g]
        fixes_group = False
        for g in range(groups):
            if not is_fixed[g]:
                out[g] = group_picks[g] * groups_to_reach / free_picks if free_picks > 0.0 else 0.0
        for g in range(groups):
            if not is_fixed[g] and (out[g] > 1.0 or out[g] < least_chance[g]):
                out[g] = 1.0 if out[g] > 1.0 else least_chance[g]
                is_fixed[g] = True
                fixes_group = True
        if not fixes_group:
            return
        groups_to_reach = float(top_groups)
        for g in range(groups):
            if is_fixed[g]:
                groups_to_reach -= out[g]
        groups_to_reach = max(groups_to_reach, 0.0)


@kernel
def joint_ratio(a: float, b: float, top_groups: int) -> float:
    """P(two groups are both reached) / (a b), for a token that reaches `top_groups` groups, these
    two with chances a, b. Exact for G equal groups: (m - 1) G / (m (G - 1)), m = `top_groups`."""
    groups_left = top_groups - 0.5 * (a + b)
    return 0.0 if groups_left <= 0.0 else min((top_groups - 1.0) / groups_left, 1.0 / max(a, b))


@lazy_entry
def grouped_deficit(
    chances: Floats, slots: Ints, slot_share: Floats, groups: int, top_groups: int
) -> Floats:
    """Mean minus variance of a token's picks on each die, f8[layers, dies], when its experts are in
    `top_groups` of the groups. chances f8[layers, experts]: that a token picks an expert;
    slot_share f8[layers, dies, slots]: share of its expert's tokens that each slot gets. All dies
    together have a fixed number of picks; the variance is that of independent picks that vary as
    much once their sum is given."""
    layers, dies, slots_per_die = slots.shape
    experts = chances.shape[1]
    group_size = experts // groups
    deficits = np.zeros((layers, dies))
    group_chance = np.empty(groups)
    group_var = np.empty(groups)
    group_picks = np.empty(groups)
    group_pick_var = np.empty(groups)
    die_var, mean_picks = np.empty(dies), np.empty(dies)
    for layer in range(layers):
        group_chances(chances[layer], groups, top_groups, group_chance)
        group_var[:] = 1e-12
        for expert in range(experts):
            g = expert // group_size
            chance_in_group = min(1.0, chances[layer, expert] / max(group_chance[g], 1e-12))
            group_var[g] += chance_in_group * (1.0 - chance_in_group)
        var_sum = 0.0
        for die in range(dies):
            group_picks[:] = 0.0
            group_pick_var[:] = 0.0
            die_var[die] = mean_picks[die] = 0.0
            for slot in range(slots_per_die):
                if slot_share[layer, die, slot] <= 0.0:
                    continue
                expert = slots[layer, die, slot]
                g = expert // group_size
                slot_picks = chances[layer, expert] * slot_share[layer, die, slot]
                chance_in_group = min(1.0, chances[layer, expert] / max(group_chance[g], 1e-12))
                pick_var = chance_in_group * (1.0 - chance_in_group) * slot_share[layer, die, slot]
                mean_picks[die] += slot_picks
                # Of this expert, and what the pairs below count of it.
                die_var[die] += slot_picks - slot_picks * slot_picks
                die_var[die] -= slot_picks * slot_picks * (1.0 / max(group_chance[g], 1e-12) - 1.0)
                die_var[die] += group_chance[g] * (1.0 - EVEN) * pick_var * pick_var / group_var[g]
                group_picks[g] += slot_picks
                group_pick_var[g] += pick_var
            for g in range(groups):
                if group_picks[g] == 0.0:
                    continue
                die_var[die] += group_picks[g] * group_picks[g] * (1.0 / group_chance[g] - 1.0)
                freed_chance = group_chance[g] * (1.0 - EVEN)
                die_var[die] -= freed_chance * group_pick_var[g] * group_pick_var[g] / group_var[g]
                for other_group in range(g):
                    ratio = joint_ratio(group_chance[g], group_chance[other_group], top_groups)
                    die_var[die] += 2.0 * group_picks[g] * group_picks[other_group] * (ratio - 1.0)
            die_var[die] = max(0.0, die_var[die])
            var_sum += die_var[die]
        for die in range(dies):
            other_variance = max(var_sum - die_var[die], 0.1 * var_sum)
            free_variance = die_var[die] * var_sum / other_variance if other_variance > 0.0 else 0.0
            deficits[layer, die] = mean_picks[die] - free_variance
    return deficits
