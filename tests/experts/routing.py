"""Brute force beside the formulas: batches routed token by token, and the best placement."""

from typing import NamedTuple

import numpy as np
from numba import njit

from twin import experts as x
from twin.experts import EMPTY, Routed, chances_at, long_run_chances, start_process
from twin.experts.eplb import place_eplb


def popularity(experts, routed_experts, layers, facts, seed, top_k=8):
    """(measured, now): what a placement is computed from and what tokens follow, at 0 s."""
    process = start_process(Routed(experts, routed_experts, layers, top_k, facts, seed))
    return long_run_chances(process), chances_at(process, 0.0)


class Assignment(NamedTuple):
    """Expert of each slot in the order of the dies i8[layers, slots], copies i8[layers, experts]"""

    expert: np.ndarray
    copies: np.ndarray


def rebalance(weight, slots, groups, nodes, dies):
    """EPLB as the original asks it: hierarchical when groups divide over the nodes, else global."""
    if groups % nodes:
        groups = nodes = 1
    held = np.full((len(weight), dies, slots // dies), EMPTY)
    place_eplb(np.asarray(weight, np.float64), slots, groups, nodes, held)
    return Assignment(held.reshape(len(weight), -1), x.copy_counts(held, np.shape(weight)[1]))


def node_traffic(now, slots, nodes, nearest=1):
    """Share of all picks from tokens on one node to experts on another, f8[nodes, nodes]."""
    node = np.broadcast_to(np.arange(slots.shape[1])[:, None] * nodes // slots.shape[1],
                           slots.shape[1:])  # fmt: skip
    out = np.zeros((nodes, nodes))
    for chances, layer in zip(now, slots, strict=True):
        held = np.zeros((chances.size, nodes))
        np.add.at(held, (layer[layer >= 0], node[layer >= 0]), 1.0)
        for n in range(nodes):
            to = held / held.sum(axis=1, keepdims=True)
            if nearest > 1:
                to[held[:, n] > 0] = np.eye(nodes)[n]
            out[n] += chances / chances.sum() @ to
    return out / (nodes * len(now))


def tables(slots, experts):
    """(expert of copy sorted, die of copy, first copy of expert) of one layer's slots [d, r]."""
    dies, room = slots.shape
    expert, die = slots.ravel(), np.repeat(np.arange(dies), room)
    expert, die = expert[expert >= 0], die[expert >= 0]
    order = np.argsort(expert, kind="stable")
    first = np.concatenate(([0], np.cumsum(np.bincount(expert, minlength=experts))))
    return die[order], first


@njit(cache=True)
def different_picks(now, tokens, rng):
    """Experts i8[tokens, top_k] that tokens pick, all of a token's different.

    By systematic sampling in a random order: inclusion probabilities are `chances_at` exactly.
    """
    experts = now.size
    top_k = round(now.sum())
    out = np.empty((tokens, top_k), np.int64)
    order = np.arange(experts)
    for t in range(tokens):
        picked = 0
        while picked < top_k:  # again when the sum is rounded below its last whole number
            picked = 0
            for i in range(experts - 1, 0, -1):
                j = int(rng.random() * (i + 1))
                order[i], order[j] = order[j], order[i]
            start = rng.random()
            before = 0.0
            for i in range(experts):
                after = before + now[order[i]]
                if np.floor(after - start) > np.floor(before - start) and picked < top_k:
                    out[t, picked] = order[i]
                    picked += 1
                before = after
    return out


@njit(cache=True)
def hottest_of_batches(picks, die, first, tokens, rounds, rng, dies):
    """Most picks of a die, i8[rounds], in batches of `tokens` out of picks i8[many, top_k]."""
    out = np.empty(rounds, np.int64)
    for r in range(rounds):
        load = np.zeros(dies, np.int64)
        for _ in range(tokens):
            t = int(rng.random() * len(picks))
            for e in picks[t]:
                load[die[first[e] + int(rng.random() * (first[e + 1] - first[e]))]] += 1
        out[r] = load.max()
    return out


def hottest_of_multinomials(now, die, first, tokens, rounds, rng, dies):
    """As `hottest_of_batches`, but every pick is drawn anew from chances now f8[experts]."""
    copies = np.diff(first)
    share = np.bincount(die, np.repeat(now / copies, copies), dies) / now.sum()
    most = [rng.multinomial(round(tokens * now.sum()), share).max() for _ in range(rounds)]
    return np.array(most)


def simulated(now, slots, tokens, rounds, rng, distinct):
    """Mean and p99 of the hottest die of batches over the mean die, by brute force.

    now f8[experts], slots i8[dies, slots]; distinct as in `hot_factors`.
    """
    dies = len(slots)
    die, first = tables(slots, now.size)
    if distinct:
        picks = different_picks(now, min(200_000, tokens * rounds), rng)
        most = hottest_of_batches(picks, die, first, tokens, rounds, rng, dies)
    else:
        most = hottest_of_multinomials(now, die, first, tokens, rounds, rng, dies)
    return np.array([most.mean(), quantile(most, 0.99)]) * dies / (tokens * now.sum())


def gate(logit, tokens, groups, top_groups, top_k, rng):
    """Experts i8[tokens, top_k] of a gate limited to groups (arXiv 2412.19437 2.1.2).

    Scores are sigmoids of logit + noise; a group's is the sum of its two best.
    """
    score = 1.0 / (1.0 + np.exp(-logit - rng.standard_normal((tokens, logit.size))))
    grouped = score.reshape(tokens, groups, -1)
    best = np.sort(grouped)[:, :, -2:].sum(axis=2)
    beyond = np.argsort(-best)[:, top_groups:]
    np.put_along_axis(grouped, beyond[:, :, None], -1.0, axis=1)
    return np.argsort(-score)[:, :top_k]


def quantile(counts, q):
    """Quantile of integer counts, their cumulative probabilities joined by straight lines."""
    below = np.cumsum(np.bincount(counts)) / counts.size
    k = int(np.searchsorted(below, q))
    return k - (below[k] - q) / (below[k] - (below[k - 1] if k else 0.0))


def best_peak(weight, slots, dies, known=np.inf):
    """Least load of the hottest die that any copies and any packing give: branch and bound.

    known: one that some packing has.
    """
    room = slots // dies
    best = [min(float(sum(weight)), known)]
    for copies in _ways(len(weight), slots):
        shares = sorted((w / c for w, c in zip(weight, copies, strict=True) for _ in range(c)))
        if shares[-1] < best[0]:
            _pack(shares, [0.0] * dies, [0] * dies, room, best)
    return best[0]


def _ways(experts, slots):
    if experts == 1:
        yield (slots,)
        return
    for c in range(1, slots - experts + 2):
        for rest in _ways(experts - 1, slots - c):
            yield (c, *rest)


def _pack(shares, load, items, room, best):
    if max(load) >= best[0] - 1e-12:
        return
    if not shares:
        best[0] = max(load)
        return
    free = sum(room - i for i in items)
    if free < len(shares):
        return
    tried = set()
    for d in range(len(load)):
        state = (load[d], items[d])
        if items[d] < room and state not in tried:  # dies alike are one choice
            tried.add(state)
            load[d] += shares[-1]
            items[d] += 1
            _pack(shares[:-1], load, items, room, best)
            load[d], items[d] = state
