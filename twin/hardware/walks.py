"""Walks of fewest hops through a small directed graph, and how bytes are split over them.

`Walks` knows every admissible path of a set of senders without listing one: what leads to a vertex
is summed up hop by hop, for all senders at once. `spread` splits what they send, by the links'
capacities or so that the fullest link is as empty as can be. Vertices and links are numbers here;
this module knows no machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FLOATS = NDArray[np.float64]
INTS = NDArray[np.int64]
BOOLS = NDArray[np.bool_]

GAP = 0.005  # how near to the best split an adaptive one is taken to be good enough
ROUNDS = 60  # of re-weighting, at most
MIX = 10  # turns after which the best mixture of all that was tried is sought
START = 0.25  # power of its capacity that a link is first weighted by
LINK_STEP, PRICE_STEP = 0.3, 1.0  # step lengths of the two sides of the re-weighting


@dataclass(frozen=True)
class _Level:
    """Links that walks of one length may end with, ordered by head, and how to sum over them."""

    links: INTS
    tail: INTS
    head: INTS
    heads: INTS  # each once
    head_start: INTS
    repeats: INTS
    by_tail: INTS  # order of the links by tail
    tails: INTS
    tail_start: INTS


def _level(links: INTS, tail: INTS, head: INTS) -> _Level:
    tail, head = tail[links], head[links]
    by_tail = np.argsort(tail, kind="stable")
    head_start, tail_start = _starts(head), _starts(tail[by_tail])
    return _Level(
        links, tail, head, head[head_start], head_start,
        np.diff(np.append(head_start, head.size)),
        by_tail, tail[by_tail][tail_start], tail_start,
    )  # fmt: skip


def _starts(ordered: INTS) -> INTS:
    return np.flatnonzero(np.diff(ordered, prepend=-1))


class Walks:
    """The admissible walks from every row's vertex to the ends it sends to, by number of hops.

    Minimal ones, and with `detour` = 1 those of one hop more (which visit no vertex twice either:
    a loop would leave less than the minimum). Tables are f8[vertices or links, rows].
    """

    def __init__(
        self, size: int, tail: INTS, head: INTS, rows: INTS, ends: INTS, parts: FLOATS,
        detour: int = 0,
    ) -> None:  # fmt: skip
        self.size, self.rows, self.ends, self.detour = size, rows, ends, detour
        self.parts = parts.transpose(0, 2, 1)  # f8[parts, ends, rows]
        self.tail, self.head = tail, head
        self.wanted = self.parts.sum(axis=0) > 0.0
        order = np.argsort(head, kind="stable")
        reach = self._reach(tail[order], head[order])
        self.levels = self._needed(order, tail, head, reach)

    def _reach(self, tail: INTS, head: INTS) -> list[BOOLS]:
        """Vertices by number of hops from each row's own; fills `hops` (-1: no path)."""
        here = np.zeros((self.size, self.rows.size), bool)
        here[self.rows, np.arange(self.rows.size)] = True
        self.hops = np.full(self.wanted.shape, -1)
        reach, seen = [here], here.copy()
        while True:
            arrived = (self.hops < 0) & self.wanted & here[self.ends]
            self.hops[arrived] = len(reach) - 1
            if (self.hops[self.wanted] >= 0).all():
                break
            here = _one_hop(here, tail, head)
            if not (here & ~seen).any():
                break
            seen |= here
            reach.append(here)
        for _ in range(self.detour):
            reach.append(_one_hop(reach[-1], tail, head))
        return reach

    def _needed(self, order: INTS, tail: INTS, head: INTS, reach: list[BOOLS]) -> list[_Level]:
        """By number of hops, the links that some row's walks end with there."""
        levels = []
        need = np.zeros_like(reach[0])
        for hops in range(len(reach) - 1, 0, -1):
            end, row = np.nonzero(self._arrives(hops))
            need[self.ends[end], row] = True
            need &= reach[hops]
            ends_well = need[head[order]] & reach[hops - 1][tail[order]]
            live = ends_well.any(axis=1)
            level = _level(order[live], tail, head)
            need = np.zeros_like(need)
            if level.links.size:
                need[level.tails] = np.logical_or.reduceat(
                    ends_well[live][level.by_tail], level.tail_start, axis=0
                )
            levels.append(level)
        return levels[::-1]

    def _arrives(self, hops: int) -> BOOLS:
        """Which pairs have walks of just so many hops, bool[ends, rows]."""
        direct = self.hops == hops
        if self.detour:
            direct |= (self.hops > 0) & (self.hops == hops - self.detour)
        return np.asarray(direct)

    def apart(self, first_row: int) -> list[tuple[int, int]]:
        """Pairs (row, end) that something is sent between and no path joins."""
        end, row = np.nonzero(self.wanted & (self.hops < 0))
        return [(int(r) + first_row, int(e)) for r, e in zip(row, end, strict=True)]

    def by_weight(self, log_weight: FLOATS) -> FLOATS:
        """Bytes/s on every link, f8[parts, links], where each path has the product of its links'
        weights as its weight among those of its pair.
        """
        weight, shares = self._shares(log_weight)
        return self._split(self._arriving(weight), shares)

    def by_capacity(self, capacity: FLOATS) -> FLOATS:
        """The same where every vertex splits by the capacity of what lies behind each link."""
        here = np.zeros((self.size, self.rows.size))
        here[self.rows, np.arange(self.rows.size)] = np.inf
        shares = []
        for level in self.levels:
            through = np.minimum(here[level.tail], capacity[level.links][:, None])
            here = np.zeros_like(here)
            if level.links.size:
                total = np.add.reduceat(through, level.head_start, axis=0)
                here[level.heads] = total
                through /= np.repeat(np.where(total > 0.0, total, 1.0), level.repeats, axis=0)
            shares.append(through)
        direct = [(self.hops == hops).astype(np.float64) for hops in range(len(shares) + 1)]
        return self._split(direct, shares)

    def _split(self, arriving: list[FLOATS], shares: list[FLOATS]) -> FLOATS:
        """Send every pair's bytes back along its links, from where they arrive."""
        carried = np.zeros((self.parts.shape[0], self.tail.size))
        for p, part in enumerate(self.parts):
            if not part.any():
                continue
            to_come = np.zeros((self.size, self.rows.size))
            for hops in range(len(self.levels), 0, -1):
                level = self.levels[hops - 1]
                np.add.at(to_come, self.ends, part * arriving[hops])
                moved = shares[hops - 1] * to_come[level.head]
                carried[p][level.links] += moved.sum(axis=1)
                to_come = np.zeros_like(to_come)
                if level.links.size:
                    to_come[level.tails] = np.add.reduceat(
                        moved[level.by_tail], level.tail_start, axis=0
                    )
        return carried

    def _shares(self, log_weight: FLOATS) -> tuple[list[FLOATS], list[FLOATS]]:
        """Logarithm of the weight of all walks to every vertex, by hops, and each link's share of
        it among the links that lead there.
        """
        here = np.full((self.size, self.rows.size), -np.inf)
        here[self.rows, np.arange(self.rows.size)] = 0.0
        weights, shares = [here], []
        for level in self.levels:
            here = np.full_like(here, -np.inf)
            through = weights[-1][level.tail] + log_weight[level.links][:, None]
            if level.links.size:
                top = np.maximum.reduceat(through, level.head_start, axis=0)
                some = top > -np.inf
                top[~some] = 0.0
                through = np.exp(through - np.repeat(top, level.repeats, axis=0))
                total = np.add.reduceat(through, level.head_start, axis=0)
                total[~some] = 1.0
                through /= np.repeat(total, level.repeats, axis=0)
                here[level.heads] = np.where(some, top + np.log(total), -np.inf)
            weights.append(here)
            shares.append(through)
        return weights, shares

    def _arriving(self, weights: list[FLOATS]) -> list[FLOATS]:
        """Share of a pair's bytes that arrives after so many hops, f8[ends, rows]."""
        if not self.detour:
            return [(self.hops == hops).astype(np.float64) for hops in range(len(weights))]
        direct = np.full(self.hops.shape, -np.inf)
        longer = direct.copy()
        for hops, weight in enumerate(weights):
            at = weight[self.ends]
            direct = np.where(self.hops == hops, at, direct)
            longer = np.where((self.hops > 0) & (self.hops == hops - 1), at, longer)
        with np.errstate(over="ignore", invalid="ignore"):
            part = np.where(self.hops > 0, 1.0 / (1.0 + np.exp(longer - direct)), 0.0)
        return [
            np.where(self.hops == hops, part, 0.0)
            + np.where((self.hops > 0) & (self.hops == hops - 1), 1.0 - part, 0.0)
            for hops in range(len(weights))
        ]

    def cheapest(self, price: FLOATS) -> FLOATS:
        """Least sum of link prices of a pair's admissible paths, f8[ends, rows]."""
        at = np.full((self.size, self.rows.size), np.inf)
        at[self.rows, np.arange(self.rows.size)] = 0.0
        least = np.full(self.hops.shape, np.inf)
        for hops, level in enumerate(self.levels, 1):
            following = np.full_like(at, np.inf)
            if level.links.size:
                following[level.heads] = np.minimum.reduceat(
                    at[level.tail] + price[level.links][:, None], level.head_start, axis=0
                )
            at = following
            arrives = self._arrives(hops)
            least[arrives] = np.minimum(least[arrives], at[self.ends][arrives])
        return least

    def longest(self, latency: FLOATS) -> float:
        """Largest sum of latencies over the minimal paths of any pair."""
        at = np.full((self.size, self.rows.size), -np.inf)
        at[self.rows, np.arange(self.rows.size)] = 0.0
        longest = 0.0
        for hops, level in enumerate(self.levels, 1):
            following = np.full_like(at, -np.inf)
            if level.links.size:
                following[level.heads] = np.maximum.reduceat(
                    at[level.tail] + latency[level.links][:, None], level.head_start, axis=0
                )
            at = following
            longest = max(longest, float(at[self.ends][self.hops == hops].max(initial=0.0)))
        return longest


def _one_hop(here: BOOLS, tail: INTS, head: INTS) -> BOOLS:
    """Vertices one hop on; links are ordered by head."""
    following = np.zeros_like(here)
    live = np.flatnonzero(here[tail].any(axis=1))
    if live.size:
        start = _starts(head[live])
        following[head[live][start]] = np.logical_or.reduceat(here[tail[live]], start, axis=0)
    return following


def spread(walks: Walks, capacity: FLOATS, beyond: float, adaptive: bool) -> FLOATS:
    """Bytes/s on every link, f8[near and far, links]; far bytes take 1 / beyond as long.

    Split by the links' capacities, or so that the fullest link is as empty as can be: senders
    re-weight links by their prices while prices follow the loads, each side a little ahead of the
    other (optimistic multiplicative weights), and the best mixture of what they tried is taken.
    """
    if not capacity.size:
        return np.zeros((walks.parts.shape[0], 0))
    cost = np.array([1.0, 1.0 / beyond])
    best = walks.by_capacity(capacity)
    demand = np.tensordot(cost, walks.parts, 1)
    sent = (demand > 0.0) & (walks.hops >= 0)
    total = float(demand[sent].sum())
    if not adaptive or total <= 0.0:
        return best
    tried, use = [best], cost @ best / capacity
    full, bound, before = use, 0.0, None
    log_weight = START * np.log(capacity / capacity.max())
    log_price = 8.0 * (use / use.max() - 1.0)
    for turn in range(ROUNDS):
        price = np.exp(log_price - log_price.max())
        price /= price.sum()
        guess = _guess(walks, capacity, full, price, turn)
        bound = max(bound, float(demand[sent] @ walks.cheapest(guess / capacity)[sent]))
        if full.max() <= bound * (1.0 + GAP):
            break
        slope = price / capacity
        step = slope if before is None else 2.0 * slope - before
        log_weight = log_weight - LINK_STEP * step * total / max(bound, 0.3 * full.max())
        before = slope
        tried.append(walks.by_weight(log_weight))
        now = cost @ tried[-1] / capacity
        log_price = log_price + PRICE_STEP * (2.0 * now - use) / full.max()
        log_price = np.maximum(log_price - log_price.max(), -200.0)
        use = now
        if now.max() < full.max():
            best, full = tried[-1], now
        if turn % MIX == MIX - 1:
            best = np.tensordot(_mixture([cost @ x / capacity for x in tried]), tried, 1)
            full = cost @ best / capacity
    return best


def _guess(walks: Walks, capacity: FLOATS, full: FLOATS, price: FLOATS, turn: int) -> FLOATS:
    """Prices (sum 1) that may prove how full the fullest link must be: other ones each turn."""
    fullest = int(full.argmax())
    guesses = (
        full >= full[fullest] * (1.0 - 1e-9),
        walks.tail == walks.tail[fullest],
        walks.head == walks.head[fullest],
        full >= full[fullest] * 0.97,
    )
    if turn % 5 == 4:
        return price
    priced = guesses[turn % 5] * capacity
    return np.asarray(priced / priced.sum())


def _mixture(uses: list[FLOATS]) -> FLOATS:
    """Parts (sum 1) of the tried splits whose mixture has the emptiest fullest link."""
    from scipy.optimize import linprog  # half a second to import, and most networks never ask

    table = np.stack(uses, axis=1)
    table /= table.max(axis=0).min()
    rows = table[table.max(axis=1) > 0.5]
    found = linprog(
        np.append(1.0, np.zeros(len(uses))),
        A_ub=np.hstack([np.full((len(rows), 1), -1.0), rows]),
        b_ub=np.zeros(len(rows)),
        A_eq=np.append(0.0, np.ones(len(uses)))[None, :],
        b_eq=[1.0],
    )
    return np.asarray(found.x[1:] / found.x[1:].sum())
