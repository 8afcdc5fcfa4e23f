"""Which experts get the tokens, where they sit, and how uneven that makes the dies.

Popularity per layer (log-logistic with a fitted scale), placement on dies, and the expected load
of the hottest die over the mean for a batch of given size. It knows loads in shares of the mean,
never in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from twin.facts import Facts
from twin.serving.eplb import pack, replicate
from twin.serving.rng import stream_key, uniform
from twin.spec import Experts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class ExpertsError(ValueError):
    """Experts that cannot be placed: one sentence naming what is missing."""


@dataclass(frozen=True)
class Imbalance:
    """How uneven the dies are: `factor` [G] over `tokens` [G], `die_load` [layers, dies].

    `factor` is the hottest die's load over the mean, averaged over layers, when that many tokens
    enter an MoE layer at once; `die_load` is each die's expected share of the mean.
    """

    tokens: Floats
    factor: Floats
    die_load: Floats


def imbalance(
    experts: Experts,
    routed_experts: int,
    layers: int,
    top_k: int,
    routed_dies: int,
    slots_per_die: int,
    facts: Facts,
    seed: int,
    tokens_per_request: float = 1.0,
) -> Imbalance:
    """Expected load of the hottest of `routed_dies` over the mean, by batch size.

    Raises ExpertsError when experts and redundant experts do not fit in the slots.
    """
    tokens = np.array([2.0 ** (i / 2) for i in range(41)])
    if experts.placement == "perfect":
        return Imbalance(tokens, np.ones(tokens.size), np.ones((layers, routed_dies)))
    popularity = layer_popularity(experts, routed_experts, layers, top_k, facts, seed)
    load = np.zeros((layers, routed_dies))
    for layer in range(layers):
        expert, die, copies = place(
            experts, popularity[layer].astype(np.float32), routed_dies, slots_per_die
        )
        for e, d in zip(expert.tolist(), die.tolist(), strict=True):
            load[layer, d] += popularity[layer, e] / copies[e]
    load *= routed_dies / top_k
    factor = np.empty(tokens.size)
    for g, n in enumerate(tokens.tolist()):
        total = 0.0
        for layer in range(layers):
            total += _expected_peak(load[layer], n * top_k / routed_dies)
        factor[g] = total / layers
    return Imbalance(tokens, factor, load)


def layer_popularity(
    experts: Experts, routed_experts: int, layers: int, top_k: int, facts: Facts, seed: int
) -> Floats:
    """Chance that a token picks each expert, [layers, experts]; each row sums to `top_k`."""
    scale = [float(s) for s in facts["experts.popularity.layer_scale"].value]
    strength = experts.skew if experts.popularity == "skewed" else 0.0
    picked = np.empty((layers, routed_experts))
    for layer in range(layers):
        s = strength * scale[layer * len(scale) // layers]
        key = stream_key(seed, f"experts/{layer}")
        order = np.argsort([uniform(key, i) for i in range(routed_experts)], kind="stable")
        for rank, e in enumerate(order.tolist()):
            u = (rank + 0.5) / routed_experts
            picked[layer, e] = math.exp(s * math.log(u / (1.0 - u)))
        picked[layer] *= top_k / math.fsum(picked[layer].tolist())
    return np.minimum(picked, 1.0)


def place(
    experts: Experts, estimate: NDArray[np.float32], dies: int, slots_per_die: int
) -> tuple[Ints, Ints, Ints]:
    """Experts and redundant experts of one layer to dies: (expert of slot, die of slot, copies).

    Slots without an expert are left out. Raises ExpertsError when the slots do not suffice.
    """
    count = estimate.size
    physical = count + experts.redundant
    room = dies * slots_per_die
    if physical > room:
        raise ExpertsError(
            f"{count} routed + {experts.redundant} redundant experts need {physical} slots but "
            f"{dies} dies x {slots_per_die} slots hold {room}: lower serving.experts.redundant "
            "or give the instance more dies"
        )
    if experts.placement == "round_robin":
        expert = np.arange(physical) % count
        die = np.arange(physical) * dies // physical
        return expert, die, np.bincount(expert, minlength=count)
    expert, _, copies = replicate(estimate, physical)
    share = np.zeros(room, np.float32)  # empty slots weigh nothing and are packed last
    for i, e in enumerate(expert.tolist()):
        share[i] = estimate[e] / np.float32(copies[e])
    die, _ = pack(share, dies)
    return expert, die[:physical], copies


@njit(cache=True)
def _expected_peak(share, mean_tokens):  # type: ignore[no-untyped-def]
    """E[max] / mean of independent normals of mean and variance share * mean_tokens."""
    low = np.inf
    high = -np.inf
    for m in share:
        sd = math.sqrt(m / mean_tokens)
        high = max(high, m + 6.0 * sd)
        low = min(low, m)
    top = share.max()
    low = max(0.0, top - 6.0 * math.sqrt(top / mean_tokens))
    steps = 64
    width = (high - low) / steps
    total = low
    for i in range(steps):
        x = low + (i + 0.5) * width
        below = 1.0
        for m in share:
            sd = math.sqrt(m / mean_tokens) + 1e-12
            below *= 0.5 * math.erfc((m - x) / sd * 0.7071067811865476)
        total += (1.0 - below) * width
    return total
