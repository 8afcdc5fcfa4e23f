"""Which experts get the tokens, where they sit, and how uneven that makes the dies.

Four mechanisms, each computed, none a fitted factor on time:
- popularity: each layer's mean load over its experts, log-logistic with the layer's own scale;
- drift: placement balances the load measured earlier, tokens follow the load of now;
- topics: the tokens of one request pick alike, so a batch of few long prompts is less even than
  the same number of independent tokens;
- sampling: a finite batch is a finite draw.
`imbalance` turns them into the expected load of the hottest die over the mean, by batch size.

It knows loads in shares of the mean, never in seconds, and not when a rebalance happens: drift is
the typical distance between the last measurement and now. Tokens choose among an expert's copies
at random. Routing limited to expert groups is not modelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from twin.facts import Facts
from twin.serving.eplb import pack, replicate
from twin.serving.rng import normal, stream_key, uniform
from twin.spec import Experts

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

EMPTY = -1  # a slot that holds no expert
GRID = 41  # batch sizes 1, sqrt(2), 2 ... 2**20 tokens
SMALL_MEAN = 24.0  # tokens per die up to which token counts are treated as the integers they are
STEPS = 16  # quadrature points over the distribution of the hottest die: 400 change 6e-5
ROOT_HALF = math.sqrt(0.5)


class ExpertsError(ValueError):
    """Experts that cannot be placed: one sentence naming what is missing."""


@dataclass(frozen=True)
class Imbalance:
    """How uneven the dies are when `tokens` enter an MoE layer at once.

    tokens f8[G]: batch sizes, rising, over all dies of the instance. factor f8[G]: the hottest
    die's load over the mean die's, expected and averaged over layers; 1 is perfectly even.
    die_load f8[layers, dies]: each die's expected load as a share of the layer's mean.
    """

    tokens: Floats
    factor: Floats
    die_load: Floats


@dataclass(frozen=True)
class Popularity:
    """Chance that a token picks each expert, [layers, experts]; each row sums to top_k.

    `measured` is what a placement was computed from, `now` what tokens follow.
    """

    measured: Floats
    now: Floats


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
    """Load of the hottest of `routed_dies` over the mean, by tokens entering an MoE layer.

    `tokens_per_request` is how many of these tokens come from one request: the mean number of
    computed prompt tokens in prefill, 1 + drafted tokens in decode. Raises ExpertsError when
    experts and redundant experts do not fit in `routed_dies * slots_per_die` slots.
    """
    if tokens_per_request < 1:
        raise ExpertsError(
            f"tokens_per_request = {tokens_per_request:g}: a request brings at least 1 token"
        )
    tokens = np.array([math.sqrt(2.0**i) for i in range(GRID)])
    if experts.placement == "perfect":
        return Imbalance(tokens, np.ones(GRID), np.ones((layers, routed_dies)))
    popularity = layer_popularity(experts, routed_experts, layers, top_k, facts, seed)
    slots = place(experts, popularity.measured, routed_dies, slots_per_die)
    picks, own, alike = die_moments(popularity.now, slots)
    correlation = topic_correlation(experts, facts)
    ceiling = float(min(top_k, slots_per_die))
    factor = np.empty(GRID)
    for g, n in enumerate(tokens.tolist()):
        shared = (min(tokens_per_request, n) - 1.0) * correlation
        factor[g] = _mean_peak(picks, own, alike, n, shared, ceiling)
    return Imbalance(tokens, factor, picks * (routed_dies / top_k))


def topic_correlation(experts: Experts, facts: Facts) -> float:
    """Correlation between two tokens of one request picking the same expert.

    Scales with the square of `skew`, as the variance of log popularity does; 0 when uniform.
    """
    if experts.popularity == "uniform":
        return 0.0
    return min(1.0, facts.si("experts.topic.correlation") * experts.skew * experts.skew)


def layer_popularity(
    experts: Experts, routed_experts: int, layers: int, top_k: int, facts: Facts, seed: int
) -> Popularity:
    """Popularity when measured and now, drawn from the fitted shape of each layer.

    The layers' scales are spread over the depth of the model when it has another number of
    layers than the data. Raises ExpertsError when there are fewer experts than a token picks.
    """
    if not 1 <= top_k <= routed_experts:
        raise ExpertsError(f"top_k = {top_k} must be from 1 to {routed_experts} routed experts")
    skew = experts.skew if experts.popularity == "skewed" else 0.0
    scales = [float(s) for s in facts["experts.popularity.layer_scale"].value]
    drift = skew * facts.si("experts.drift.log_sd")
    measured = np.empty((layers, routed_experts))
    now = np.empty((layers, routed_experts))
    for layer in range(layers):
        draw_layer(
            skew * scales[layer * len(scales) // layers],
            drift,
            float(top_k),
            stream_key(seed, f"experts/order/{layer}"),
            stream_key(seed, f"experts/drift/{layer}"),
            measured[layer],
            now[layer],
        )
    return Popularity(measured, now)


def place(experts: Experts, measured: Floats, dies: int, slots_per_die: int) -> Ints:
    """Experts to dies by load: expert of slot, i8[layers, dies, slots_per_die], or EMPTY.

    `round_robin` fills the dies in order, redundant copies last and whatever the load; `eplb`
    copies the hottest and packs greedily (global policy: the UB plane reaches all dies alike).
    Where the copies do not divide evenly over the dies, some dies have empty slots. Two copies of
    one expert may meet on a die, as in the original. Raises ExpertsError for too few slots.
    """
    layers, count = measured.shape
    physical = count + experts.redundant
    room = dies * slots_per_die
    if physical > room:
        raise ExpertsError(
            f"{count} routed + {experts.redundant} redundant experts need {physical} slots but "
            f"{dies} dies x {slots_per_die} slots hold {room}: lower experts.redundant "
            "or give the instance more dies"
        )
    slots = np.full((layers, dies, slots_per_die), EMPTY, np.int64)
    if experts.placement == "round_robin":
        for p in range(physical):
            die = p * dies // physical
            first = -(-die * physical // dies)
            slots[:, die, p - first] = p % count
        return slots
    for layer in range(layers):
        _place_balanced(measured[layer].astype(np.float32), physical, slots[layer])
    return slots


@njit(cache=True)
def draw_layer(
    scale: float,
    drift: float,
    top_k: float,
    order_key: np.uint64,
    drift_key: np.uint64,
    measured: Floats,
    now: Floats,
) -> None:
    """One layer's popularity: fills measured f8[experts] and now f8[experts].

    Log loads are the mid-rank quantiles of a logistic distribution times `scale`, in an order
    drawn from `order_key`; now differs by a normal number times `drift` from `drift_key`.
    """
    experts = measured.size
    lot = np.empty(experts)
    for e in range(experts):
        lot[e] = uniform(order_key, e)
    order = np.argsort(lot, kind="mergesort")
    for rank in range(experts):
        u = (rank + 0.5) / experts
        log_load = scale * math.log(u / (1.0 - u))
        e = order[rank]
        measured[e] = math.exp(log_load)
        now[e] = math.exp(log_load + drift * normal(drift_key, e))
    _to_chances(measured, top_k)
    _to_chances(now, top_k)


@njit(cache=True)
def _to_chances(load: Floats, top_k: float) -> None:
    """Scales load f8[experts] in place to chances of at most 1 that sum to top_k."""
    before = -1
    while True:
        free = 0.0
        full = 0
        for e in range(load.size):
            if before >= 0 and load[e] >= 1.0:
                load[e] = 1.0
                full += 1
            else:
                free += load[e]
        if full == before or free <= 0.0:
            return
        before = full
        for e in range(load.size):
            if full == 0 or load[e] < 1.0:
                load[e] *= (top_k - full) / free


@njit(cache=True)
def _place_balanced(measured: Singles, physical: int, slots: Ints) -> None:
    """One layer by EPLB: measured f4[experts] -> fills slots i8[dies, slots_per_die].

    Slots beyond `physical` weigh nothing and are packed last, so they end up spread and empty.
    """
    dies, room = slots.shape
    expert, _, copies = replicate(measured, physical)
    share = np.zeros(dies * room, np.float32)
    for i in range(physical):
        share[i] = np.float32(measured[expert[i]] / np.float32(copies[expert[i]]))
    die, slot = pack(share, dies)
    for i in range(physical):
        slots[die[i], slot[i]] = expert[i]


@njit(cache=True)
def die_moments(now: Floats, slots: Ints) -> tuple[Floats, Floats, Floats]:
    """What one token brings to each die: (picks, own, alike), each f8[layers, dies].

    now f8[layers, experts], slots i8[layers, dies, slots_per_die]. `picks` is the mean number of
    experts it picks there; `own` the sum of the squared chances, which a token that picks an
    expert at most once takes off the variance of its count; `alike` the variance per unit of
    topic correlation, x (1 - x) for an expert of chance x, of which the die has a share.
    """
    layers, dies, room = slots.shape
    experts = now.shape[1]
    picks = np.zeros((layers, dies))
    own = np.zeros((layers, dies))
    alike = np.zeros((layers, dies))
    here = np.zeros(experts)
    for layer in range(layers):
        copies = np.zeros(experts)
        for d in range(dies):
            for i in range(room):
                if slots[layer, d, i] >= 0:
                    copies[slots[layer, d, i]] += 1.0
        for d in range(dies):
            for i in range(room):
                if slots[layer, d, i] >= 0:
                    here[slots[layer, d, i]] += 1.0
            for i in range(room):
                e = slots[layer, d, i]
                if e < 0 or here[e] == 0.0:
                    continue
                part = here[e] / copies[e]
                here[e] = 0.0
                x = now[layer, e]
                picks[layer, d] += x * part
                own[layer, d] += x * part * x * part
                alike[layer, d] += x * (1.0 - x) * part * part
    return picks, own, alike


@njit(cache=True)
def _mean_peak(
    picks: Floats, own: Floats, alike: Floats, tokens: float, shared: float, ceiling: float
) -> float:
    """Mean over layers of E[hottest die] / mean die, for a batch of `tokens`.

    `shared`: topic correlation times the other tokens of the same request. `ceiling`: the most
    picks one token can make on one die.
    """
    layers, dies = picks.shape
    mean = np.empty(dies)
    spread = np.empty(dies)
    total = 0.0
    for layer in range(layers):
        order = np.argsort(-picks[layer], kind="mergesort")
        expected = 0.0
        busy = 0
        for d in order:
            x = picks[layer, d]
            if x <= 0.0:
                break  # empty dies come last and are never the hottest
            expected += x
            mean[busy] = x * tokens
            spread[busy] = max(1e-6, 1.0 + (shared * alike[layer, d] - own[layer, d]) / x)
            busy += 1
        expected *= tokens / dies
        if mean[0] <= SMALL_MEAN:
            peak = peak_of_counts(mean[:busy], spread[:busy])
        else:
            peak = peak_of_amounts(mean[:busy], spread[:busy])
        total += min(peak, ceiling * tokens) / expected
    return total / layers


@njit(cache=True)
def peak_of_counts(mean: Floats, spread: Floats) -> float:
    """E[max] of independent integer counts: mean f8[dies] > 0, falling, spread = variance / mean.

    Each count is binomial (spread < 1), Poisson (1) or negative binomial (> 1), which share the
    recursion p(k) = p(k-1) (a + b/k) (Panjer 1981); E[max] = sum over k of 1 - P(all <= k).
    """
    dies = mean.size
    a = np.empty(dies)
    b = np.empty(dies)
    chance = np.empty(dies)
    below = np.empty(dies)
    for d in range(dies):
        over = spread[d] - 1.0
        if over < -1e-9:  # a binomial counts whole trials, or its chances do not sum to 1
            trials = max(math.ceil(mean[d]) + 1.0, math.floor(0.5 - mean[d] / over))
            over = -mean[d] / trials
        if abs(over) <= 1e-9:
            a[d] = 0.0
            b[d] = mean[d]
            chance[d] = math.exp(-mean[d])
        else:
            a[d] = over / (1.0 + over)
            b[d] = (mean[d] - over) / (1.0 + over)
            chance[d] = math.exp(-mean[d] * math.log(1.0 + over) / over)
        below[d] = chance[d]
    total = 0.0
    k = 0
    while True:
        all_below = 1.0
        for d in range(dies):
            all_below *= below[d]
            if all_below < 1e-10:
                break
        total += 1.0 - all_below
        if 1.0 - all_below < 1e-7 or k > 100_000:
            return total
        k += 1
        for d in range(dies):
            chance[d] *= max(0.0, a[d] + b[d] / k)
            below[d] = min(1.0, below[d] + chance[d])


@njit(cache=True)
def peak_of_amounts(mean: Floats, spread: Floats) -> float:
    """E[max] of independent large counts: mean f8[dies] > 0, falling, spread = variance / mean.

    Each is taken as a shifted gamma of the same mean, variance and skewness as the counts of
    `peak_of_counts`, by the cube-root transform (Wilson and Hilferty 1931); then the midpoint
    rule over E[max] = low + integral of 1 - P(all <= x).
    """
    dies = mean.size
    sd = np.empty(dies)
    skew = np.empty(dies)
    low = 0.0
    high = 0.0
    for d in range(dies):
        sd[d] = math.sqrt(mean[d] * spread[d])
        skew[d] = max(1e-6, (2.0 * spread[d] - 1.0) / max(sd[d], 1e-12))
        low = max(low, mean[d] - 3.5 * sd[d])
        high = max(high, mean[d] + (5.5 + 5.0 * skew[d]) * sd[d])
    width = (high - low) / STEPS
    total = low
    for i in range(STEPS):
        x = low + (i + 0.5) * width
        all_below = 1.0
        below = 1.0
        for d in range(dies):
            if d == 0 or mean[d] != mean[d - 1] or sd[d] != sd[d - 1]:
                far = (x - mean[d]) / sd[d]
                y = 1.0 + 0.5 * skew[d] * far
                below = 0.0
                if far > 12.0:
                    below = 1.0
                elif y > 0.0:
                    z = 6.0 / skew[d] * (math.pow(y, 1.0 / 3.0) - 1.0) + skew[d] / 6.0
                    below = 0.5 * math.erfc(-z * ROOT_HALF)
            all_below *= below  # copies of one expert alone on their dies are alike
            if all_below < 1e-9:
                break
        total += (1.0 - all_below) * width
    return total
