"""Walks of fewest hops through a small directed graph, and how bytes are split over them.

The idea: no path is listed. Each link has a weight, a path the product of its links' weights, and
bytes split over the paths of a pair in proportion. Then the sum over all paths of h hops to a
vertex follows from those of h - 1 hops to its neighbours: one pass forward over the levels h = 1,
2, ... sums up, one pass back divides the bytes, for all senders at once. Weights with which the
fullest link is as empty as possible are found in spread.py.

Vertices and links are numbers here; this module knows no machine."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.kernels.rng import apply_to_distinct

FLOATS = NDArray[np.float64]
INTS = NDArray[np.int64]
BOOLS = NDArray[np.bool_]
# Weights of paths become too small or too large for a float, as products of up to sixty updates a
# link. They are pairs (fraction, power of two), as numpy's frexp and ldexp take them apart: exact.
SCALED = tuple[FLOATS, NDArray[np.int32]]
LOG_2 = math.log(2.0)


@dataclass(frozen=True)
class _Level:
    """Last steps of all walks of one length; a row is a sender, a step a link on a row's walk. A
    state is a (vertex, row) at which such a walk ends, numbered by its index in the level's list;
    tails are indices into the list of the level before. Steps are ordered by state, so that sums
    over the steps into a state are sums of slices (`reduceat`); `by_tail` orders them by tail."""

    links: INTS  # of every step
    tail: INTS  # state of the level before
    head: INTS  # state of this level
    head_start: INTS  # first step to each state
    by_tail: INTS  # order of the steps by tail
    tails: INTS  # states of the level before that are left, each once
    tail_start: INTS
    end: INTS  # ends that are arrived at, with row and state
    row: INTS
    state: INTS


def _run_starts(ordered: INTS) -> INTS:
    """Position of the first element of each run of equal values."""
    return np.flatnonzero(np.diff(ordered, prepend=-1))


class Walks:
    """The walks from every row's vertex to its receivers, by number of hops: with at most as many
    as the shortest walk over the links as built (`added` = 0), and with `detour` = 1 one more, so
    an added link removes no walk. Arguments and results by link are in the order of `used`."""

    def __init__(
        self, size: int, tail: INTS, head: INTS, rows: INTS, ends: INTS, parts: FLOATS,
        detour: int = 0, added: INTS | None = None,
    ) -> None:  # fmt: skip
        """size: number of vertices; tail, head: of each link; rows, ends: vertices of the senders
        and receivers; parts: bytes/s to send, f8[parts, rows, ends]; added: stage of each link."""
        self.size, self.rows, self.ends, self.detour = size, rows, ends, detour
        self.parts = parts.transpose(0, 2, 1)  # f8[parts, ends, rows]
        self.wanted = self.parts.sum(axis=0) > 0.0
        order = np.argsort(head, kind="stable")
        stage = np.zeros_like(order) if added is None else added[order]
        reached_by_hops = self._reached_by_hops(tail[order], head[order], stage)
        self.levels, self.used = self._levels_used(order, tail, head, reached_by_hops)
        self.tail, self.head = tail[self.used], head[self.used]

    def _reached_by_hops(self, tail: INTS, head: INTS, added: INTS) -> list[BOOLS]:
        """By number of hops: whether a walk of so many leads from each row to a vertex,
        bool[vertices, rows]. Sets by pair `hops`, of the shortest walk, and `most`, of the shortest
        over links as built or, without one, over the fewest added links (-1: no path)."""
        self.hops, reached_by_hops = self._fewest_hops(tail, head)
        self.most = np.full_like(self.hops, -1)
        for stage in np.flatnonzero(np.bincount(added))[:-1].tolist():
            is_earlier = added <= stage
            hops, _ = self._fewest_hops(tail[is_earlier], head[is_earlier])
            self.most = np.where(self.most < 0, hops, self.most)
        self.most = np.where(self.most < 0, self.hops, self.most)
        while len(reached_by_hops) <= self.most.max(initial=0) + self.detour:
            reached_by_hops.append(_one_hop(reached_by_hops[-1], tail, head))
        return reached_by_hops

    def _fewest_hops(self, tail: INTS, head: INTS) -> tuple[INTS, list[BOOLS]]:
        """Hops of each pair's shortest walk, i8[ends, rows] (-1: none), and by number of hops
        whether each vertex is reached from each row, bool[vertices, rows]. tail, head: of links."""
        is_reached = np.zeros((self.size, self.rows.size), bool)
        is_reached[self.rows, np.arange(self.rows.size)] = True
        hops = np.full(self.wanted.shape, -1)
        reached_by_hops, is_visited = [is_reached], is_reached.copy()
        while True:
            is_new = (hops < 0) & self.wanted & is_reached[self.ends]
            hops[is_new] = len(reached_by_hops) - 1
            if (hops[self.wanted] >= 0).all():
                break
            is_reached = _one_hop(is_reached, tail, head)
            if not (is_reached & ~is_visited).any():
                break
            is_visited |= is_reached
            reached_by_hops.append(is_reached)
        return hops, reached_by_hops

    def _levels_used(
        self, order: INTS, tail: INTS, head: INTS, reach: list[BOOLS]
    ) -> tuple[list[_Level], INTS]:
        """The levels, from one hop on, with only those steps that are on a walk to a receiver, and
        the links of these. order: links by head; reach: vertices reached, by number of hops."""
        rows = self.rows.size
        steps = []
        is_needed = np.zeros_like(reach[0])
        tail_in_order, head_in_order = tail[order], head[order]
        for hops in range(len(reach) - 1, 0, -1):
            may_end = (self.hops > 0) & (self.hops <= hops) & (hops <= self.most + self.detour)
            end, row = np.nonzero(may_end)  # pairs with walks of this number of hops
            is_reached = reach[hops][self.ends[end], row]
            end, row = end[is_reached], row[is_reached]
            is_needed[self.ends[end], row] = True
            is_needed &= reach[hops]
            live_links = np.flatnonzero(
                np.any(is_needed, 1)[head_in_order] & np.any(reach[hops - 1], 1)[tail_in_order]
            )
            heads, sources = head_in_order[live_links], tail_in_order[live_links]
            is_walked = is_needed.T.take(heads, axis=1) & reach[hops - 1].T.take(sources, axis=1)
            # States are numbered by row, so steps are in the order of their states.
            row_index, link = np.divmod(np.flatnonzero(is_walked), max(live_links.size, 1))
            source, states = sources[link], row_index * self.size
            steps.append((order[live_links[link]], states + source, states + heads[link], end, row))
            is_needed = np.zeros_like(is_needed)
            # Walks go back from the ends: what leads nowhere drops out.
            is_needed[source, row_index] = True
        links_used = numbers_in(tail.size, *(links for links, *_ in steps))
        position_of = np.zeros_like(tail)
        position_of[links_used] = np.arange(links_used.size)
        levels = []
        last_states = np.arange(rows) * self.size + self.rows
        state_of = np.zeros(self.size * rows, np.int64)  # by row and vertex: index in `last_states`
        for links, source, head_rows, end, row in reversed(steps):
            head_start = _run_starts(head_rows)
            states = head_rows[head_start]
            state_of[last_states] = np.arange(last_states.size)
            tails = state_of[source]
            by_tail = np.argsort(tails, kind="stable")
            tail_start = _run_starts(tails[by_tail])
            levels.append(
                _Level(
                    position_of[links], tails, np.repeat(
                        np.arange(states.size), np.diff(np.append(head_start, head_rows.size))
                    ),
                    head_start, by_tail, tails[by_tail][tail_start], tail_start,
                    end, row, np.searchsorted(states, row * self.size + self.ends[end]),
                )
            )  # fmt: skip
            last_states = states
        return levels, links_used

    def digest(self, capacity: FLOATS, beyond: float, adaptive: bool) -> bytes:
        """SHA-1 of all that decides how bytes spread, equal for instances at equivalent places.
        capacity: bytes/s of links; beyond: share of it for far bytes."""
        digest = hashlib.sha1(f"{beyond} {adaptive} {self.detour}".encode(), usedforsecurity=False)
        vertex_position = np.zeros(self.size, np.int64)
        vertices = numbers_in(self.size, self.tail, self.head)
        vertex_position[vertices] = np.arange(vertices.size)
        # All walks follow from these.
        ends = vertex_position[np.concatenate([self.tail, self.head, self.rows, self.ends])]
        for array in (capacity, ends, self.hops, self.most, self.parts):
            digest.update(np.ascontiguousarray(array).data)
        return digest.digest()

    def pairs_apart(self, first_row: int) -> list[tuple[int, int]]:
        """(row, end) of each pair with bytes but no path, rows counted from `first_row`."""
        end, row = np.nonzero(self.wanted & (self.hops < 0))
        return list(zip((row + first_row).tolist(), end.tolist(), strict=True))

    def split_by_weight(self, log_weight: FLOATS) -> FLOATS:
        """Bytes/s on every link, f8[parts, links]: the bytes of a pair are split over its paths in
        proportion to the product of their links' weights. log_weight: their natural logarithms."""
        # By level: the sum of the weights of all walks to each state, and each step's share of it.
        # `top_power` of a state is the largest power among its steps: scaled to it, sums neither
        # overflow nor lose a step that matters.
        log2_weight = np.floor(log_weight / LOG_2)  # a whole number: the power of two
        link_fraction = apply_to_distinct(math.exp, log_weight - log2_weight * LOG_2)
        link_power = log2_weight.astype(np.int32)
        state_fraction, state_power = np.ones(self.rows.size), np.zeros(self.rows.size, np.int32)
        weights, shares = [], []
        for level in self.levels:
            step_weight = state_fraction[level.tail] * link_fraction[level.links]
            step_power = state_power[level.tail] + link_power[level.links]
            top_power = np.maximum.reduceat(step_power, level.head_start)
            step_weight = np.ldexp(step_weight, step_power - top_power[level.head])
            state_weight = np.add.reduceat(step_weight, level.head_start)
            state_fraction, state_power = np.frexp(state_weight)
            state_power += top_power
            weights.append((state_fraction, state_power))
            shares.append(step_weight / state_weight[level.head])
        return self._split(self._arrival_shares(weights), shares)

    def split_by_capacity(self, capacity: FLOATS, members: INTS | None, fan: FLOATS) -> FLOATS:
        """Bytes/s on every link, f8[near and far bytes, links], if every vertex splits by the
        capacity of the paths ahead. A vertex may stand for several equal ones (members: how many,
        None: 1), and a link for several equal links (fan: how many of them enter each vertex)."""
        arriving = [self.hops[level.end, level.row] == h for h, level in enumerate(self.levels, 1)]
        return self._split(arriving, self.shares_by_capacity(capacity, members, fan))

    def shares_by_capacity(
        self, capacity: FLOATS, members: INTS | None, fan: FLOATS | float = 1.0
    ) -> list[FLOATS]:
        """By level: share of each step among the steps into its state, when split by capacity."""
        state_capacity = np.full(self.rows.size, np.inf)
        shares = []
        tail_members = np.ones(self.tail.size) if members is None else members[self.tail]
        fan_of_link = np.broadcast_to(fan, self.tail.size)
        if members is not None:  # from one member to another
            capacity = capacity / (tail_members * members[self.head])
        for hops, level in enumerate(self.levels, 1):
            step_capacity = np.minimum(state_capacity[level.tail], capacity[level.links])
            step_capacity *= fan_of_link[level.links]
            if members is not None and hops > 1:  # a walk begins at one
                step_capacity *= tail_members[level.links]
            state_capacity = np.add.reduceat(step_capacity, level.head_start)
            shares.append(step_capacity / state_capacity[level.head])
        return shares

    def _split(self, arriving: Sequence[FLOATS | BOOLS], shares: list[FLOATS]) -> FLOATS:
        """Bytes/s on links, traced back from the ends. By level, arriving: share of a pair's bytes
        that arrives in each state; shares: of each step into its state."""
        link_bytes = np.zeros((self.parts.shape[0], self.tail.size))
        for part_index, pair_bytes in enumerate(self.parts):
            if not pair_bytes.any() or not self.levels:
                continue
            at_state = np.zeros(self.levels[-1].head_start.size)
            for h, level in reversed(list(enumerate(self.levels, 1))):
                at_state[level.state] += pair_bytes[level.end, level.row] * arriving[h - 1]
                step_bytes = shares[h - 1] * at_state[level.head]
                link_bytes[part_index] += np.bincount(level.links, step_bytes, self.tail.size)
                at_state = np.zeros(self.levels[h - 2].head_start.size if h > 1 else self.rows.size)
                at_state[level.tails] = np.add.reduceat(step_bytes[level.by_tail], level.tail_start)
        return link_bytes

    def _arrival_shares(self, weights: list[SCALED]) -> Sequence[FLOATS | BOOLS]:
        """By level: share of a pair's bytes that arrives by walks of that length, f8."""
        lengths = int((self.most - self.hops).max(initial=0)) + self.detour + 1
        if lengths == 1:
            return [np.ones(level.end.size) for level in self.levels]
        fraction = np.zeros((lengths, *self.hops.shape))  # of all walks of `hops` + 0, 1, ... hops
        powers = np.zeros(fraction.shape, np.int32)
        for h, v in enumerate(self.levels, 1):
            index = h - self.hops[v.end, v.row], v.end, v.row
            fraction[index], powers[index] = (part[v.state] for part in weights[h - 1])
        top_log2 = np.where(fraction > 0.0, powers, np.iinfo(np.int32).min // 2)[1:].max(axis=0)
        by_detour = np.ldexp(fraction[1:], powers[1:] - top_log2)
        longer_sum = by_detour.sum(axis=0)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            longer_ratio = np.ldexp(longer_sum / fraction[0], top_log2 - powers[0])
            shortest_share = np.where(self.hops > 0, 1.0 / (1.0 + longer_ratio), 0.0)
            share = np.stack([shortest_share, *(1.0 - shortest_share) * (by_detour / longer_sum)])
        return [
            share[h - self.hops[v.end, v.row], v.end, v.row] for h, v in enumerate(self.levels, 1)
        ]

    def least_costs(self, price: FLOATS) -> FLOATS:
        """Least sum of link prices over a pair's admissible paths, f8[ends, rows]; inf: no path."""
        costs = np.zeros(self.rows.size)
        least_cost = np.full(self.hops.shape, np.inf)
        for level in self.levels:
            costs = np.minimum.reduceat(costs[level.tail] + price[level.links], level.head_start)
            end_rows = level.end, level.row
            least_cost[end_rows] = np.minimum(least_cost[end_rows], costs[level.state])
        return least_cost

    def longest_latency_s(self, latency: FLOATS) -> float:
        """Largest sum of link latencies (s) over the paths of any pair, without detours."""
        latency_s = np.zeros(self.rows.size)
        longest_s = 0.0
        for hops, level in enumerate(self.levels, 1):
            step_latency_s = latency_s[level.tail] + latency[level.links]
            latency_s = np.maximum.reduceat(step_latency_s, level.head_start)
            is_no_detour = self.most[level.end, level.row] >= hops
            longest_s = max(longest_s, float(latency_s[level.state[is_no_detour]].max(initial=0.0)))
        return longest_s


def hops_from(start: INTS, tail: INTS, head: INTS, size: int) -> INTS:
    """Fewest hops of every vertex from `start` over links tail to head; `size`: not reached."""
    hops = np.full(size, size)
    hops[start] = 0
    for hop in range(1, size):
        new_vertices = head[(hops[tail] < hop) & (hops[head] == size)]
        if not new_vertices.size:
            break
        hops[new_vertices] = hop
    return hops


def numbers_in(size: int, *number_lists: INTS) -> INTS:
    """Numbers below `size` that occur in any of some arrays, ascending."""
    is_member = np.zeros(size, bool)
    for member_numbers in number_lists:
        is_member[member_numbers] = True
    return np.flatnonzero(is_member)


def numbering(values: NDArray[Any]) -> tuple[INTS, int]:
    """Number of each value in order of first occurrence, and the count of different ones: in the
    machine's order, so that alike parts look alike."""
    _, first_at, index = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first_at, kind="stable"), kind="stable")[index], first_at.size


def _one_hop(is_here: BOOLS, tail: INTS, head: INTS) -> BOOLS:
    """Whether a link leads there from a vertex that `is_here`, bool[vertices, rows]; heads rise."""
    is_reached = np.zeros_like(is_here)
    live = np.flatnonzero(np.any(is_here, axis=1)[tail])
    if live.size:
        starts = _run_starts(head[live])
        is_reached[head[live][starts]] = np.logical_or.reduceat(is_here[tail[live]], starts, axis=0)
    return is_reached
