"""Dies of prefill with data-parallel attention: how full each is, and which takes a prompt."""

from __future__ import annotations

import math

from twin.engine.columns import World
from twin.engine.in_hbm import nearest
from twin.kernels.compiled import kernel
from twin.policies.router import SEES_HITS


@kernel
def attention_s(world: World, p: int, die: int) -> float:
    """Seconds of a layer's attention on a die of the batch, without launches; with dies that split
    prompts, summed over those of a group."""
    state, pair_s = world.prefill, world.costs.prefill[p].core.pair
    of_tokens = state.attention_s_per_token[p] * state.die_tokens[die]
    return float(of_tokens + pair_s * state.die_pairs[die])


@kernel
def die_for(world: World, p: int, i: int, begins: bool) -> int:
    """Die, or group of dies that split prompts, that takes the next piece of a prompt: with least
    attention work. If the router looks for hits in HBM, they are weighed against a die's load."""
    if begins and world.settings.in_hbm and world.settings.router_policy in SEES_HITS:
        return nearest(world, p, i, world.prefill.die_tokens)
    state, best, layout = world.prefill, 0, world.costs.prefill[p].layout
    for r in range(1, int(layout.dies / layout.context_dies)):
        is_lighter = state.die_tokens[r] < state.die_tokens[best]
        if world.settings.even_attention:
            is_lighter = attention_s(world, p, r) < attention_s(world, p, best)
        if is_lighter:
            best = r
    return best


@kernel
def share_left(world: World, p: int, die: int, held: int) -> int:
    """Tokens of a prompt after `held` until a die has its share of attention: what a die has in a
    full batch of the prompts seen so far."""
    state, prices = world.prefill, world.costs.prefill[p]
    token_s, pair_s = state.attention_s_per_token[p], prices.core.pair
    context = state.computed_pairs[p] / max(state.computed_tokens[p], 1.0)
    groups = prices.layout.dies / prices.layout.context_dies
    full_s = world.settings.prefill_budget / groups * (token_s + context * pair_s)
    left_s = full_s - attention_s(world, p, die)
    if left_s <= 0.0:
        return 0
    next_s = token_s + held * pair_s
    return max(1, int((math.sqrt(next_s**2 + 2.0 * pair_s * left_s) - next_s) / pair_s))
