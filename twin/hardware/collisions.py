"""How whole flows collide on a plane that hashes them: balls in bins, the bins being equal paths.

A switch that hashes (ECMP) keeps a flow on one of its equal paths, so some paths get more flows
than others. What is thrown and where it may land come from the graph: a demand's flows are its
pairs of ends, or one flow of each sender, and a path is chosen link by link with the shares of the
even split, down to one cable of a bundle. Each switch hashes by itself, so choices are independent.
A few seeded placements give how much longer the demand takes than by the even split: until the
fullest path is through (an exchange, a read), or for each flow by itself (single transfers).

Placements are numbered and drawn by hashes of numbers: equal questions get equal answers."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from twin.hardware.walks import FLOATS, INTS, Walks
from twin.kernels.rng import stream_key, uniforms

# Balls of all placements together, and how many placements: few of many flows, which lie alike,
# and many of few flows, which do not.
BALLS, FEWEST, MOST = 1_000_000, 8, 4096
BINS = 8_000_000  # that are held at once, of several placements


@dataclass(frozen=True, slots=True)
class Collision:
    """Factor by which hashing prolongs a demand over the even split: statistics over placements
    and, for single transfers, over transfers."""

    mean: float = 1.0
    p99: float = 1.0
    flows: int = 0  # that are placed at once


@dataclass(frozen=True, eq=False)
class Side:
    """Individual senders, or receivers, of a demand."""

    group: INTS  # its row (or column) among the groups of vertices that are routed as one
    rank: INTS  # its number within its group
    vertex: INTS
    node: INTS
    domain: INTS
    amount: FLOATS


@dataclass(frozen=True, eq=False)
class Flows:
    """The flows of a demand: one for every pair, or (`each`) one per sender to a different
    receiver. Rows are the side from which walks are counted."""

    rows: Side
    ends: Side
    each: bool
    same_domain: bool | None  # takes pairs of one domain only, of two only, or (None) all
    beyond: float  # far bytes take 1 / beyond as long

    @property
    def most(self) -> int:
        """Flows of one placement, including those from an end to itself."""
        sizes = self.rows.vertex.size, self.ends.vertex.size
        return min(sizes) if self.each else sizes[0] * sizes[1]

    @property
    def count(self) -> int:
        """Flows of one placement."""
        rows, ends = self.rows, self.ends
        if self.each:
            return self.most
        itself = np.intersect1d(rows.vertex, ends.vertex).size
        if self.same_domain is None:
            return self.most - itself
        same_domain = int((rows.domain[:, None] == ends.domain).sum())
        return same_domain - itself if self.same_domain else self.most - same_domain

    def digest(self) -> bytes:
        """Digest of what decides on which links flows land; equal for ends at equivalent places."""
        text = hashlib.sha1(f"{self.each} {self.same_domain} {self.beyond}".encode(),
                               usedforsecurity=False)  # fmt: skip
        for of_rows, of_ends in ((self.rows.vertex, self.ends.vertex),
                                 (self.rows.node, self.ends.node),
                                 (self.rows.domain, self.ends.domain)):  # fmt: skip
            ends = np.concatenate([of_rows, of_ends])
            _, first, numbers = np.unique(ends, return_index=True, return_inverse=True)
            text.update(np.argsort(np.argsort(first, kind="stable"), kind="stable")[numbers].data)
        for side in (self.rows, self.ends):
            for part in (side.group, side.rank, side.amount):
                text.update(np.ascontiguousarray(part).data)
        return text.digest()

    def placed(self, first: int, draws: int) -> Iterator[tuple[INTS, INTS, INTS]]:
        """Yield pieces of `count` drawn placements: placement (from 0), row end of each flow."""
        rows, ends = self.rows.vertex.size, self.ends.vertex.size
        if self.each:
            count = min(rows, ends)
            numbers = np.arange(first, first + draws)[:, None]
            orders = []
            for side, size in (("rows", rows), ("ends", ends)):
                points = uniforms(stream_key(0, f"{side} of transfers"),
                                 numbers * size + np.arange(size))  # fmt: skip
                orders.append(np.argsort(points, axis=1, kind="stable")[:, :count])
            yield (np.repeat(np.arange(draws), count), orders[0].ravel(), orders[1].ravel())
            return
        step = max(1, BALLS // max(1, ends * draws))
        for start in range(0, rows, step):
            block = np.arange(start, min(start + step, rows))
            draw, row, end = np.meshgrid(np.arange(draws), block, np.arange(ends), indexing="ij")
            yield draw.ravel(), row.ravel(), end.ravel()

    def sizes(self, row: INTS, end: INTS) -> FLOATS:
        """Bytes of these flows, far ones times their longer time per byte; 0 for pairs without a
        flow on this plane. Single transfers have equal sizes."""
        a, b = self.rows, self.ends
        bytes_ = a.amount[row] * b.amount[end]
        if self.each:
            amounts = np.outer(a.amount, b.amount)
            amounts[a.vertex[:, None] == b.vertex] = 0.0
            bytes_ = np.full(row.size, amounts.sum() / self.most)
        bytes_ = np.where(a.vertex[row] == b.vertex[end], 0.0, bytes_)
        if self.same_domain is not None:
            same_domain = a.domain[row] == b.domain[end]
            bytes_ = np.where(same_domain == self.same_domain, bytes_, 0.0)
        same_node = (a.node[row] == b.node[end]) & (a.node[row] >= 0)
        return np.asarray(np.where(same_node, bytes_, bytes_ / self.beyond))


@dataclass(frozen=True, eq=False)
class Paths:
    """Links of a demand's groups of vertices, in the order of the walks' `used`."""

    capacity: FLOATS  # of all that the link stands for
    members: INTS  # vertices of each group
    cables: INTS  # parallel cables of each link between two vertices


class _Hashing:
    """Possible paths of flows: the even split as chances, and the links as bins."""

    def __init__(self, walks: Walks, paths: Paths) -> None:
        self.walks, self.members, self.cables = walks, paths.members, paths.cables
        each = paths.members[walks.tail] * paths.members[walks.head] * paths.cables
        self.base = np.cumsum(each) - each
        self.bins = int(each.sum())
        self.cable_rate = paths.capacity / each  # of one cable
        self.levels = []
        even = walks.shares_by_capacity(paths.capacity, paths.members)
        for level, shares in zip(walks.levels, even, strict=True):
            total = np.cumsum(shares)
            stop = np.append(level.head_start[1:], shares.size)
            below = np.append(0.0, total)[level.head_start]
            self.levels.append((level, total, below, total[stop - 1] - below, stop - 1))
        self.arrival = np.full(walks.hops.shape, -1)
        for hops, level in enumerate(walks.levels, 1):
            shortest = walks.hops[level.end, level.row] == hops
            end_rows = level.end[shortest], level.row[shortest]
            self.arrival[end_rows] = level.state[shortest]

    def land(self, flows: Flows, number: INTS, row: INTS, end: INTS) -> Iterator[tuple[INTS, INTS]]:
        """Flows, as indices into `row`, and the cable of each, chosen hop by hop from the ends."""
        group = flows.ends.group[end], flows.rows.group[row]
        hops, state = self.walks.hops[group], self.arrival[group].copy()
        rank = flows.ends.rank[end]
        for h in range(len(self.levels), 0, -1):
            index = np.flatnonzero(hops >= h)
            level, total, below, span, last = self.levels[h - 1]

            def chance(of: str, at: INTS = index, h: int = h) -> FLOATS:
                return uniforms(stream_key(0, f"{of} at hop {h}"), number[at])

            now = state[index]
            step = last[now]
            if total.size > last.size:  # else every state is reached by one link only
                aim = below[now] + chance("link") * span[now]
                step = np.searchsorted(total, aim, side="right")
                step = np.clip(step, level.head_start[now], last[now])
            link, state[index] = level.links[step], level.tail[step]
            before, behind = (flows.rows.rank[row[index]], self.members[self.walks.tail[link]])
            if h > 1:
                before = np.zeros(index.size, np.int64)
                if behind.max(initial=1) > 1:
                    before = (chance("switch") * behind).astype(np.int64)
            place = before * self.members[self.walks.head[link]] + rank[index]
            place *= self.cables[link]
            if self.cables[link].max(initial=1) > 1:
                place += (chance("cable") * self.cables[link]).astype(np.int64)
            rank[index] = before
            yield index, self.base[link] + place

    def seconds(self, flows: Flows, first: int, draws: int) -> FLOATS:
        """Seconds of placements until the fullest cable or, of single transfers, each is done."""
        full, count = np.zeros(draws * self.bins), flows.ends.vertex.size
        rate = np.repeat(self.cable_rate, np.diff(np.append(self.base, self.bins)))
        landed: list[tuple[INTS, INTS]] = []
        size = np.zeros(0)
        for placement in flows.placed(first, draws):
            size = flows.sizes(*placement[1:])
            draw, row, end = (part[size > 0.0] for part in placement)
            size = size[size > 0.0]
            number = ((first + draw) * flows.rows.vertex.size + row) * count + end
            for hop_flows, cable in self.land(flows, number, row, end):
                bins = draw[hop_flows] * self.bins + cable
                full += np.bincount(bins, size[hop_flows] / rate[cable], full.size)
                if flows.each:
                    landed.append((hop_flows, bins))
        if not flows.each:
            return np.asarray(full.reshape(draws, self.bins).max(axis=1, initial=0.0))
        worst = np.zeros(size.size)
        for hop_flows, bins in landed:
            worst[hop_flows] = np.maximum(worst[hop_flows], full[bins])
        return worst


_known: dict[bytes, Collision] = {}  # problem -> answer, as `spread.spread` holds its own
KNOWN = 64


def collision(walks: Walks, paths: Paths, flows: Flows, even: FLOATS) -> Collision:
    """Collision factor of a hashed demand over the even split. even: bytes/s of the even split on
    each link, far bytes times their longer time per byte. At least 1: less is chance."""
    fullest = float((even / paths.capacity).max(initial=0.0))
    if fullest <= 0.0:
        return Collision()
    problem = walks.digest(paths.capacity, flows.beyond, False) + flows.digest()
    problem += paths.members.tobytes() + paths.cables.tobytes()
    if problem not in _known:
        if len(_known) >= KNOWN:
            _known.pop(next(iter(_known)))
        _known[problem] = _drawn(_Hashing(walks, paths), flows, fullest)
    return _known[problem]


def _drawn(hashing: _Hashing, flows: Flows, fullest: float) -> Collision:
    """Mean, spread and tail of collisions over random placements."""
    draws = int(np.clip(BALLS // flows.most, FEWEST, MOST))
    at_once = int(np.clip(min(BALLS // flows.most, BINS // hashing.bins), 1, draws))
    factors = np.concatenate([
        hashing.seconds(flows, first, min(at_once, draws - first)) / fullest
        for first in range(0, draws, at_once)
    ])  # fmt: skip
    if flows.each:  # one that keeps clear of the fullest link is as fast as by the even split
        factors = np.maximum(factors, 1.0)
    # Nine digits: in which order a link's bytes were added up is no collision.
    mean, p99 = (float(f"{x:.9g}") for x in (factors.mean(), np.quantile(factors, 0.99)))
    return Collision(max(1.0, mean), max(1.0, mean, p99), flows.count)
