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
    """The walks from every row's vertex (sender) to its receivers, by number of hops. They have at
    most as many as the shortest walk over the links as built (`added` = 0), and with `detour` = 1
    one more, so an added link removes no walk. Results by link are in the order of `used`."""

    def __init__(
        self, size: int, tail: INTS, head: INTS, rows: INTS, ends: INTS, parts: FLOATS,
        detour: int = 0, added: INTS | None = None,
    ) -> None:  # fmt: skip
        """size: number of vertices; tail, head: vertices of each link; rows, ends: vertices that
        send and that receive; parts: bytes/s, f8[near and far, rows, ends]; detour: extra hops;
        added: number of the edit that added each link, 0 for links as built (None: all)."""
        self.size, self.rows, self.ends, self.detour = size, rows, ends, detour
        self.parts = parts.transpose(0, 2, 1)  # f8[parts, ends, rows]
        self.wanted = self.parts.sum(axis=0) > 0.0
        by_head = np.argsort(head, kind="stable")
        edit_of_link = np.zeros_like(by_head) if added is None else added[by_head]
        reached_by_hops = self._reached_by_hops(tail[by_head], head[by_head], edit_of_link)
        self.levels, self.used = self._levels_used(by_head, tail, head, reached_by_hops)
        self.tail, self.head = tail[self.used], head[self.used]

    def _reached_by_hops(self, tail: INTS, head: INTS, added: INTS) -> list[BOOLS]:
        """List by number of hops: whether a walk of that many hops leads from each row to each
        vertex, bool[vertices, rows]. Sets for each pair `hops`, of the shortest walk, and `most`,
        of the shortest walk over links as built or else over the fewest added ones (-1: no
        path)."""
        self.hops, reached_by_hops = self._fewest_hops(tail, head)
        self.most = np.full_like(self.hops, -1)
        for edit_number in np.flatnonzero(np.bincount(added))[:-1].tolist():
            is_earlier = added <= edit_number
            hops, _ = self._fewest_hops(tail[is_earlier], head[is_earlier])
            self.most = np.where(self.most < 0, hops, self.most)
        self.most = np.where(self.most < 0, self.hops, self.most)
        while len(reached_by_hops) <= self.most.max(initial=0) + self.detour:
            reached_by_hops.append(_one_hop_on(reached_by_hops[-1], tail, head))
        return reached_by_hops

    def _fewest_hops(self, tail: INTS, head: INTS) -> tuple[INTS, list[BOOLS]]:
        """(hops of each pair's shortest walk, i8[ends, rows], -1: none; list by number of hops of
        the vertices that rows reach, bool[vertices, rows]). tail, head: vertices of each link."""
        is_reached = np.zeros((self.size, self.rows.size), bool)
        is_reached[self.rows, np.arange(self.rows.size)] = True
        hops = np.full(self.wanted.shape, -1)
        reached_by_hops, is_visited = [is_reached], is_reached.copy()
        while True:
            is_just_reached = (hops < 0) & self.wanted & is_reached[self.ends]
            hops[is_just_reached] = len(reached_by_hops) - 1
            if (hops[self.wanted] >= 0).all():
                break
            is_reached = _one_hop_on(is_reached, tail, head)
            if not (is_reached & ~is_visited).any():
                break
            is_visited |= is_reached
            reached_by_hops.append(is_reached)
        return hops, reached_by_hops

    def _levels_used(
        self, order: INTS, tail: INTS, head: INTS, reach: list[BOOLS]
    ) -> tuple[list[_Level], INTS]:
        """(levels, links): the last steps of walks of 1, 2, ... hops, restricted to walks that end
        at a receiver, and the links of these steps. order: links sorted by head; reach: by number
        of hops, the vertices that each row reaches, bool[vertices, rows]."""
        row_count = self.rows.size
        steps_by_hops = []
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
            heads, tails = head_in_order[live_links], tail_in_order[live_links]
            is_walked = is_needed.T.take(heads, axis=1) & reach[hops - 1].T.take(tails, axis=1)
            # States are numbered by row, so steps are in the order of their states.
            row_index, link_at = np.divmod(np.flatnonzero(is_walked), max(live_links.size, 1))
            first_state = row_index * self.size
            step_tails, step_heads = first_state + tails[link_at], first_state + heads[link_at]
            steps_by_hops.append((order[live_links[link_at]], step_tails, step_heads, end, row))
            is_needed = np.zeros_like(is_needed)
            # Walks go back from the ends: what leads nowhere drops out.
            is_needed[tails[link_at], row_index] = True
        links_used = numbers_in(tail.size, *(links for links, *_ in steps_by_hops))
        position_of_link = np.zeros_like(tail)
        position_of_link[links_used] = np.arange(links_used.size)
        levels = []
        last_states = np.arange(row_count) * self.size + self.rows
        index_of_state = np.zeros(self.size * row_count, np.int64)  # index in `last_states`
        for links, step_tails, step_heads, end, row in reversed(steps_by_hops):
            head_start = _run_starts(step_heads)
            states = step_heads[head_start]
            index_of_state[last_states] = np.arange(last_states.size)
            tail_index = index_of_state[step_tails]
            by_tail = np.argsort(tail_index, kind="stable")
            tail_start = _run_starts(tail_index[by_tail])
            levels.append(
                _Level(
                    position_of_link[links], tail_index, np.repeat(
                        np.arange(states.size), np.diff(np.append(head_start, step_heads.size))
                    ),
                    head_start, by_tail, tail_index[by_tail][tail_start], tail_start,
                    end, row, np.searchsorted(states, row * self.size + self.ends[end]),
                )
            )  # fmt: skip
            last_states = states
        return levels, links_used

    def digest(self, capacity: FLOATS, far_rate: float) -> bytes:
        """SHA-1 of all that decides which links flows take and how fast these are, equal for
        instances at equivalent places. capacity: bytes/s of links, of which bytes between nodes
        reach the share far_rate."""
        sha1 = hashlib.sha1(f"{far_rate} {self.detour}".encode(), usedforsecurity=False)
        position_of_vertex = np.zeros(self.size, np.int64)
        vertices = numbers_in(self.size, self.tail, self.head)
        position_of_vertex[vertices] = np.arange(vertices.size)
        # All walks follow from these.
        positions = position_of_vertex[np.concatenate([self.tail, self.head, self.rows, self.ends])]
        for array in (capacity, positions, self.hops, self.most, self.parts):
            sha1.update(np.ascontiguousarray(array).data)
        return sha1.digest()

    def pairs_without_path(self, first_row: int) -> list[tuple[int, int]]:
        """(row, end) of each pair with bytes but no path, rows counted from `first_row`."""
        end, row = np.nonzero(self.wanted & (self.hops < 0))
        return list(zip((row + first_row).tolist(), end.tolist(), strict=True))

    def split_by_weight(self, log_weight: FLOATS) -> FLOATS:
        """Bytes/s on every link, f8[near (in a node) and far, links]: a pair's bytes are split over
        its paths in proportion to the product of their links' weights, exp(log_weight)."""
        # By level: the sum of the weights of all walks to each state, and each step's share of it.
        # `top_exponent` of a state is the largest exponent among its steps: scaled to it, sums
        # neither overflow nor lose a step that matters.
        log2_weight = np.floor(log_weight / LOG_2)  # a whole number: the power of two
        link_fraction = apply_to_distinct(math.exp, log_weight - log2_weight * LOG_2)
        link_exponent = log2_weight.astype(np.int32)
        state_fraction, state_exponent = np.ones(self.rows.size), np.zeros(self.rows.size, np.int32)
        state_weights, step_shares = [], []
        for level in self.levels:
            step_weight = state_fraction[level.tail] * link_fraction[level.links]
            step_exponent = state_exponent[level.tail] + link_exponent[level.links]
            top_exponent = np.maximum.reduceat(step_exponent, level.head_start)
            step_weight = np.ldexp(step_weight, step_exponent - top_exponent[level.head])
            state_weight = np.add.reduceat(step_weight, level.head_start)
            state_fraction, state_exponent = np.frexp(state_weight)
            state_exponent += top_exponent
            state_weights.append((state_fraction, state_exponent))
            step_shares.append(step_weight / state_weight[level.head])
        return self._split_back(self._arrival_shares(state_weights), step_shares)

    def split_by_capacity(self, capacity: FLOATS, members: INTS | None, fan_in: FLOATS) -> FLOATS:
        """Bytes/s on every link, f8[near and far, links], if every vertex splits by the capacity of
        the paths ahead. members: number of equal vertices that each vertex stands for (None: 1);
        fan_in: for each link, how many of the equal links that it stands for enter one vertex."""
        arriving = [self.hops[level.end, level.row] == h for h, level in enumerate(self.levels, 1)]
        return self._split_back(arriving, self.shares_by_capacity(capacity, members, fan_in))

    def shares_by_capacity(
        self, capacity: FLOATS, members: INTS | None, fan_in: FLOATS | float = 1.0
    ) -> list[FLOATS]:
        """List by level: share of each step (last link of walks) among the steps into its state
        (vertex, sender), by capacity (bytes/s). members, fan_in: as of `split_by_capacity`."""
        state_capacity = np.full(self.rows.size, np.inf)
        step_shares = []
        tail_members = np.ones(self.tail.size) if members is None else members[self.tail]
        link_fan_in = np.broadcast_to(fan_in, self.tail.size)
        if members is not None:  # from one member to another
            capacity = capacity / (tail_members * members[self.head])
        for hops, level in enumerate(self.levels, 1):
            step_capacity = np.minimum(state_capacity[level.tail], capacity[level.links])
            step_capacity *= link_fan_in[level.links]
            if members is not None and hops > 1:  # a walk begins at one
                step_capacity *= tail_members[level.links]
            state_capacity = np.add.reduceat(step_capacity, level.head_start)
            step_shares.append(step_capacity / state_capacity[level.head])
        return step_shares

    def _split_back(self, arriving: Sequence[FLOATS | BOOLS], step_shares: list[FLOATS]) -> FLOATS:
        """Bytes/s on links, f8[near and far, links], traced back from the ends. Lists by level:
        arriving, the share of a pair's bytes that take walks of that length; step_shares, the share
        of each step among the steps into its state."""
        link_bytes = np.zeros((self.parts.shape[0], self.tail.size))
        for part_index, part_bytes in enumerate(self.parts):
            if not part_bytes.any() or not self.levels:
                continue
            state_bytes = np.zeros(self.levels[-1].head_start.size)
            for hops, level in reversed(list(enumerate(self.levels, 1))):
                state_bytes[level.state] += part_bytes[level.end, level.row] * arriving[hops - 1]
                step_bytes = step_shares[hops - 1] * state_bytes[level.head]
                link_bytes[part_index] += np.bincount(level.links, step_bytes, self.tail.size)
                state_count = self.levels[hops - 2].head_start.size if hops > 1 else self.rows.size
                state_bytes = np.zeros(state_count)
                state_bytes[level.tails] = np.add.reduceat(
                    step_bytes[level.by_tail], level.tail_start
                )
        return link_bytes

    def _arrival_shares(self, state_weights: list[SCALED]) -> Sequence[FLOATS | BOOLS]:
        """List by level: share of each pair's bytes that arrives by walks of that length.
        state_weights, by level: sum of the weights of all walks to each state (vertex, sender)."""
        length_count = int((self.most - self.hops).max(initial=0)) + self.detour + 1
        if length_count == 1:
            return [np.ones(level.end.size) for level in self.levels]
        fractions = np.zeros((length_count, *self.hops.shape))  # walks of `hops` + 0, 1, ... hops
        powers = np.zeros(fractions.shape, np.int32)
        for hops, level in enumerate(self.levels, 1):
            walk_index = hops - self.hops[level.end, level.row], level.end, level.row
            fraction, power = state_weights[hops - 1]
            fractions[walk_index], powers[walk_index] = fraction[level.state], power[level.state]
        top_log2 = np.where(fractions > 0.0, powers, np.iinfo(np.int32).min // 2)[1:].max(axis=0)
        by_detour = np.ldexp(fractions[1:], powers[1:] - top_log2)
        longer_sum = by_detour.sum(axis=0)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            longer_ratio = np.ldexp(longer_sum / fractions[0], top_log2 - powers[0])
            shortest_share = np.where(self.hops > 0, 1.0 / (1.0 + longer_ratio), 0.0)
            shares = np.stack([shortest_share, *(1.0 - shortest_share) * (by_detour / longer_sum)])
        return [
            shares[h - self.hops[v.end, v.row], v.end, v.row] for h, v in enumerate(self.levels, 1)
        ]

    def least_costs(self, price: FLOATS) -> FLOATS:
        """Least sum of link prices over the paths of each pair, f8[ends, rows]; inf: no path."""
        state_costs = np.zeros(self.rows.size)
        pair_costs = np.full(self.hops.shape, np.inf)
        for level in self.levels:
            state_costs = np.minimum.reduceat(
                state_costs[level.tail] + price[level.links], level.head_start
            )
            end_and_row = level.end, level.row
            pair_costs[end_and_row] = np.minimum(pair_costs[end_and_row], state_costs[level.state])
        return pair_costs

    def longest_latency_s(self, link_s: FLOATS) -> float:
        """Largest sum of link latencies link_s (s) over the paths of any pair, without detours."""
        latency_s = np.zeros(self.rows.size)
        longest_s = 0.0
        for hops, level in enumerate(self.levels, 1):
            step_latency_s = latency_s[level.tail] + link_s[level.links]
            latency_s = np.maximum.reduceat(step_latency_s, level.head_start)
            is_no_detour = self.most[level.end, level.row] >= hops
            longest_s = max(longest_s, float(latency_s[level.state[is_no_detour]].max(initial=0.0)))
        return longest_s


def hops_from(start: INTS, tail: INTS, head: INTS, size: int) -> INTS:
    """Fewest hops to each vertex from vertices `start`, over links from tail[i] to head[i],
    i8[size]; `size`: not reached."""
    hops_to = np.full(size, size)
    hops_to[start] = 0
    for hop in range(1, size):
        new_vertices = head[(hops_to[tail] < hop) & (hops_to[head] == size)]
        if not new_vertices.size:
            break
        hops_to[new_vertices] = hop
    return hops_to


def numbers_in(size: int, *number_lists: INTS) -> INTS:
    """Numbers below `size` that occur in any of some arrays, ascending."""
    is_member = np.zeros(size, bool)
    for member_numbers in number_lists:
        is_member[member_numbers] = True
    return np.flatnonzero(is_member)


def number_values(values: NDArray[Any]) -> tuple[INTS, int]:
    """(number of each value, i8[values]; count of different values). Numbers follow the order of
    first occurrence, so parts of a machine that are alike get the same numbers."""
    _, first_at, index = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first_at, kind="stable"), kind="stable")[index], first_at.size


def _one_hop_on(is_here: BOOLS, tail: INTS, head: INTS) -> BOOLS:
    """Whether a link leads to each vertex from a vertex where `is_here` is true, bool[vertices,
    rows]. tail, head: vertices of each link, by ascending head."""
    is_reached = np.zeros_like(is_here)
    live_links = np.flatnonzero(np.any(is_here, axis=1)[tail])
    if live_links.size:
        run_starts = _run_starts(head[live_links])
        is_reached[head[live_links][run_starts]] = np.logical_or.reduceat(
            is_here[tail[live_links]], run_starts, axis=0
        )
    return is_reached
