"""Load of the dies for given chances and slots: expected, hottest, by batch size.

`hot_factors` is what the price of a layer reads: the hottest die of a finite batch over the mean
of ALL dies, so that dies that are lost raise it. Tokens choose among an expert's copies at random,
or, when `nearest` counts nodes, among the copies on their own node first. A gate picks different
experts, so an expert's picks in a batch vary less than a multinomial's: by its own chance. For
the hot experts of small batches that is percents, so a multinomial has to be asked for.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from twin.experts.groups import limited_own
from twin.experts.peak import MEAN, SMALL_MEAN, peak_of_amounts, peak_of_counts
from twin.experts.popularity import ExpertsError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EMPTY = -1  # a slot that holds no expert


def hot_factors(
    now: Floats,
    slots: Ints,
    tokens: Floats,
    tokens_per_request: float = 1.0,
    correlation: float = 0.0,
    groups: int = 1,
    top_groups: int = 1,
    nearest: int = 1,
    distinct: bool = True,
) -> Floats:
    """Expected load of the hottest die over the mean, averaged over layers, f8[g].

    now f8[layers, experts] and slots i8[layers, dies, slots_per_die]; tokens f8[g] that enter a
    layer at once over all dies. `tokens_per_request` of them come from one request and pick alike
    by `correlation`. groups > 1: a token's experts lie in `top_groups` of so many groups of
    consecutive experts. nearest > 1: nodes within which tokens prefer a copy. distinct: a token
    picks different experts, as gates do; False: every pick is drawn anew, so that a batch is one
    multinomial draw (groups = 1). The mean is over all dies, those that hold nothing included.
    Raises ExpertsError.
    """
    picks, own, alike, ceiling = _moments(now, slots, groups, top_groups, nearest, distinct)
    shared = _shared(tokens, tokens_per_request, correlation)
    return _table(picks, own, alike, tokens, shared, ceiling, MEAN)


def hot_quantiles(
    now: Floats,
    slots: Ints,
    tokens: Floats,
    quantile: float = 0.99,
    tokens_per_request: float = 1.0,
    correlation: float = 0.0,
    groups: int = 1,
    top_groups: int = 1,
    nearest: int = 1,
    distinct: bool = True,
) -> Floats:
    """As `hot_factors`, but the quantile of the hottest die's load, averaged over layers, f8[g].

    Between two counts the quantile is interpolated in their probabilities.
    """
    if not 0.0 < quantile < 1.0:
        raise ExpertsError(f"quantile = {quantile:g} must lie between 0 and 1")
    picks, own, alike, ceiling = _moments(now, slots, groups, top_groups, nearest, distinct)
    shared = _shared(tokens, tokens_per_request, correlation)
    return _table(picks, own, alike, tokens, shared, ceiling, quantile)


def _moments(
    now: Floats, slots: Ints, groups: int, top_groups: int, nearest: int, distinct: bool
) -> tuple[Floats, Floats, Floats, float]:
    """`die_moments` of dies in falling order, and the most picks one token can make on one die."""
    refuse_groups(now.shape[1], groups, top_groups)
    top_k = round(float(now[0].sum()))
    part = copy_shares(slots, now.shape[1], nearest)
    picks, own, alike = die_moments(now, slots, part)
    ceiling = min(top_k, slots.shape[2])
    if not distinct:
        if groups > 1:
            raise ExpertsError(
                f"distinct = False with {groups} groups: a gate limited to groups picks different "
                "experts; ask for a multinomial with groups = 1"
            )
        own[:] = 0.0  # counts of Poisson variance, given their total, are a multinomial's
        ceiling = top_k
    elif groups > 1:
        own = limited_own(now, slots, part, groups, top_groups)
    _fall(picks, own, alike)
    return picks, own, alike, float(ceiling)


def _shared(tokens: Floats, tokens_per_request: float, correlation: float) -> Floats:
    """Topic correlation times the other tokens of the same request, f8[g]."""
    others = np.minimum(tokens_per_request, np.asarray(tokens, np.float64)) - 1.0
    return np.asarray(np.maximum(0.0, others) * correlation)


def _table(
    picks: Floats,
    own: Floats,
    alike: Floats,
    tokens: Floats,
    shared: Floats,
    ceiling: float,
    quantile: float,
) -> Floats:
    """`_mean_peak` for every batch size, f8[g]."""
    out = np.empty(len(tokens))
    for g, n in enumerate(np.asarray(tokens, np.float64).tolist()):
        out[g] = _mean_peak(picks, own, alike, n, float(shared[g]), ceiling, quantile)
    return out


def die_load(now: Floats, slots: Ints, nearest: int = 1) -> Floats:
    """Expected load of each die over its layer's mean, f8[layers, dies]; rows average to 1."""
    picks, _, _ = die_moments(now, slots, copy_shares(slots, now.shape[1], nearest))
    mean = picks.sum(axis=1, keepdims=True) / slots.shape[1]
    return np.asarray(picks / mean)


def hottest_by_layer(now: Floats, slots: Ints, nearest: int = 1) -> Floats:
    """Expected load of the hottest die over the mean, f8[layers]: that of an endless batch."""
    return np.asarray(die_load(now, slots, nearest).max(axis=1))


def refuse_groups(experts: int, groups: int, top_groups: int) -> None:
    """Raise ExpertsError for expert groups that a router cannot have."""
    if groups < 1 or experts % groups or not 1 <= top_groups <= groups:
        raise ExpertsError(
            f"{experts} experts in {groups} groups, {top_groups} of them a token: the experts "
            "must divide evenly over the groups, and a token reach from 1 to all of them"
        )


@njit(cache=True)
def copy_shares(slots: Ints, experts: int, nearest: int) -> Floats:
    """Share of its expert's tokens that each slot gets, f8[layers, dies, slots]; 0 if empty.

    Of several copies of one expert on a die the first has the shares of all. nearest > 1: tokens
    spread evenly over so many nodes take a copy on their own where there is one, else any copy.
    """
    layers, dies, room = slots.shape
    part = np.zeros((layers, dies, room))
    copies = np.zeros(experts)
    near = np.zeros((nearest, experts))
    for layer in range(layers):
        copies[:] = 0.0
        near[:] = 0.0
        for d in range(dies):
            for i in range(room):
                e = slots[layer, d, i]
                if e >= 0:
                    copies[e] += 1.0
                    near[d * nearest // dies, e] += 1.0
        for d in range(dies):
            for i in range(room):
                e = slots[layer, d, i]
                if e < 0:
                    continue
                here = 1.0
                first = True
                for j in range(room):
                    if j != i and slots[layer, d, j] == e:
                        here += 1.0
                        first = first and j > i
                if not first:
                    continue
                if nearest == 1:
                    part[layer, d, i] = here / copies[e]
                    continue
                without = 0.0
                for n in range(nearest):
                    if near[n, e] == 0.0:
                        without += 1.0
                own = 1.0 / near[d * nearest // dies, e]
                part[layer, d, i] = here * (own + without / copies[e]) / nearest
    return part


@njit(cache=True)
def die_moments(now: Floats, slots: Ints, part: Floats) -> tuple[Floats, Floats, Floats]:
    """What one token brings to each die: (picks, own, alike), each f8[layers, dies].

    now f8[layers, experts], slots i8[layers, dies, slots_per_die], part as of `copy_shares`.
    `picks` is the mean number of experts it picks there; `own` the sum of the squared chances,
    which a token that picks an expert at most once takes off the variance of its count; `alike`
    the variance per unit of topic correlation, x (1 - x) for an expert of chance x, of which the
    die has a share.
    """
    layers, dies, room = slots.shape
    picks = np.zeros((layers, dies))
    own = np.zeros((layers, dies))
    alike = np.zeros((layers, dies))
    for layer in range(layers):
        for d in range(dies):
            for i in range(room):
                share = part[layer, d, i]
                if share > 0.0:
                    x = now[layer, slots[layer, d, i]]
                    picks[layer, d] += x * share
                    own[layer, d] += x * share * x * share
                    alike[layer, d] += x * (1.0 - x) * share * share
    return picks, own, alike


@njit(cache=True)
def _fall(picks: Floats, own: Floats, alike: Floats) -> None:
    """Sorts the dies of each layer in place by picks f8[layers, dies], falling."""
    for layer in range(picks.shape[0]):
        order = np.argsort(-picks[layer], kind="mergesort")
        picks[layer] = picks[layer][order]
        own[layer] = own[layer][order]
        alike[layer] = alike[layer][order]


@njit(cache=True)
def _mean_peak(
    picks: Floats,
    own: Floats,
    alike: Floats,
    tokens: float,
    shared: float,
    ceiling: float,
    quantile: float,
) -> float:
    """Mean over layers of the hottest die / mean die, for a batch of `tokens`; dies falling.

    `shared`: topic correlation times the other tokens of the same request. `ceiling`: the most
    picks one token can make on one die. `quantile` of the hottest die, or MEAN: its expectation.
    """
    layers, dies = picks.shape
    mean = np.empty(dies)
    spread = np.empty(dies)
    total = 0.0
    for layer in range(layers):
        expected = 0.0
        busy = 0
        for d in range(dies):
            x = picks[layer, d]
            if x <= 0.0:
                break  # empty dies come last and are never the hottest
            expected += x
            mean[busy] = x * tokens
            spread[busy] = max(1e-6, 1.0 + (shared * alike[layer, d] - own[layer, d]) / x)
            busy += 1
        expected *= tokens / dies
        if mean[0] <= SMALL_MEAN:
            peak = peak_of_counts(mean[:busy], spread[:busy], quantile)
        else:
            peak = peak_of_amounts(mean[:busy], spread[:busy], quantile)
        total += min(peak, ceiling * tokens) / expected
    return total / layers
