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

from twin.hardware.network import cached_answer
from twin.hardware.walks import FLOATS, INTS, Walks, number_values
from twin.kernels.rng import stream_key, uniforms

# Balls of all placements together, and numbers of placements: many flows lie alike, few do not.
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
    far_rate: float  # far bytes take 1 / far_rate as long

    @property
    def most_flows(self) -> int:
        """Largest number of flows of one placement, including those from an end to itself."""
        end_counts = self.rows.vertex.size, self.ends.vertex.size
        return min(end_counts) if self.each else end_counts[0] * end_counts[1]

    @property
    def count(self) -> int:
        """Number of flows that one random placement puts on paths."""
        rows, ends = self.rows, self.ends
        if self.each:
            return self.most_flows
        self_pairs = np.intersect1d(rows.vertex, ends.vertex).size
        if self.same_domain is None:
            return self.most_flows - self_pairs
        same_domain = int((rows.domain[:, None] == ends.domain).sum())
        return same_domain - self_pairs if self.same_domain else self.most_flows - same_domain

    def digest(self) -> bytes:
        """SHA-1 of all that decides which links flows take; equal for ends at equivalent places."""
        sha1 = hashlib.sha1(f"{self.each} {self.same_domain} {self.far_rate}".encode(),
                             usedforsecurity=False)  # fmt: skip
        for attribute in ("vertex", "node", "domain"):
            numbers = [getattr(side, attribute) for side in (self.rows, self.ends)]
            sha1.update(number_values(np.concatenate(numbers))[0].data)
        for side in (self.rows, self.ends):
            for column in (side.group, side.rank, side.amount):
                sha1.update(np.ascontiguousarray(column).data)
        return sha1.digest()

    def random_placements(self, first: int, draws: int) -> Iterator[tuple[INTS, INTS, INTS]]:
        """Yield random placements number `first` to first + draws - 1, in pieces of (placement,
        row, end), i8[flows] each: a flow's placement, counted from 0, and its row's and end's
        numbers."""
        row_count, end_count = self.rows.vertex.size, self.ends.vertex.size
        if self.each:
            flow_count = min(row_count, end_count)
            draw_numbers = np.arange(first, first + draws)[:, None]
            orders = []
            for side_name, side_size in (("rows", row_count), ("ends", end_count)):
                random_keys = uniforms(stream_key(0, f"{side_name} of transfers"),
                                       draw_numbers * side_size + np.arange(side_size))  # fmt: skip
                orders.append(np.argsort(random_keys, axis=1, kind="stable")[:, :flow_count])
            yield (np.repeat(np.arange(draws), flow_count), orders[0].ravel(), orders[1].ravel())
            return
        rows_per_piece = max(1, BALLS // max(1, end_count * draws))
        for first_row in range(0, row_count, rows_per_piece):
            row_ids = np.arange(first_row, min(first_row + rows_per_piece, row_count))
            index_axes = np.arange(draws), row_ids, np.arange(end_count)
            placement, row, end = (grid.ravel() for grid in np.meshgrid(*index_axes, indexing="ij"))
            yield placement, row, end

    def flow_sizes(self, row: INTS, end: INTS) -> FLOATS:
        """Bytes f8 of the flow from each row[i] to end[i]; 0 for a pair without a flow. Bytes
        between nodes are divided by far_rate. Single transfers (`each`) all have the same size."""
        rows, ends = self.rows, self.ends
        flow_bytes = rows.amount[row] * ends.amount[end]
        if self.each:
            pair_bytes = np.outer(rows.amount, ends.amount)
            pair_bytes[rows.vertex[:, None] == ends.vertex] = 0.0
            flow_bytes = np.full(row.size, pair_bytes.sum() / self.most_flows)
        flow_bytes = np.where(rows.vertex[row] == ends.vertex[end], 0.0, flow_bytes)
        if self.same_domain is not None:
            is_same_domain = rows.domain[row] == ends.domain[end]
            flow_bytes = np.where(is_same_domain == self.same_domain, flow_bytes, 0.0)
        is_same_node = (rows.node[row] == ends.node[end]) & (rows.node[row] >= 0)
        return np.asarray(np.where(is_same_node, flow_bytes, flow_bytes / self.far_rate))


@dataclass(frozen=True, eq=False)
class Paths:
    """Links of a demand's groups of vertices, in the order of the walks' `used`."""

    capacity: FLOATS  # of all that the link stands for
    members: INTS  # vertices of each group
    cables: INTS  # parallel cables of each link between two vertices


class _Hashing:
    """Possible paths of flows: the even split as chances, and the links as bins."""

    def __init__(self, walks: Walks, paths: Paths) -> None:
        """walks: the demand's walks; paths: the links on these walks."""
        self.walks, self.members, self.cables = walks, paths.members, paths.cables
        cable_counts = paths.members[walks.tail] * paths.members[walks.head] * paths.cables
        self.base = np.cumsum(cable_counts) - cable_counts
        self.bins = int(cable_counts.sum())
        self.cable_rate = paths.capacity / cable_counts  # of one cable
        self.levels = []
        even_shares = walks.shares_by_capacity(paths.capacity, paths.members)
        for level, step_shares in zip(walks.levels, even_shares, strict=True):
            share_sums = np.cumsum(step_shares)
            last_step = np.append(level.head_start[1:], step_shares.size) - 1
            sums_below = np.append(0.0, share_sums)[level.head_start]
            share_spans = share_sums[last_step] - sums_below
            self.levels.append((level, share_sums, sums_below, share_spans, last_step))
        self.arrival = np.full(walks.hops.shape, -1)
        for hops, level in enumerate(walks.levels, 1):
            is_shortest = walks.hops[level.end, level.row] == hops
            end_and_row = level.end[is_shortest], level.row[is_shortest]
            self.arrival[end_and_row] = level.state[is_shortest]

    def follow(self, flows: Flows, ids: INTS, row: INTS, end: INTS) -> Iterator[tuple[INTS, INTS]]:
        """Follow flows back from end[i] to row[i]. Yields for each hop (flows, cables): the
        positions i of the flows that cross a link there, and the number of the cable that each
        takes. ids: numbers that decide the flows' random choices."""
        end_and_row = flows.ends.group[end], flows.rows.group[row]
        path_hops, flow_state = self.walks.hops[end_and_row], self.arrival[end_and_row].copy()
        number_in_group = flows.ends.rank[end]  # of the head of each flow's next link
        for hop in range(len(self.levels), 0, -1):
            flow_ids = np.flatnonzero(path_hops >= hop)
            level, share_sums, share_offsets, share_spans, last_step = self.levels[hop - 1]

            def chance(choice: str, positions: INTS = flow_ids, hop: int = hop) -> FLOATS:
                """Uniform random numbers of the flows `positions` for a choice such as "link"."""
                return uniforms(stream_key(0, f"{choice} at hop {hop}"), ids[positions])

            state = flow_state[flow_ids]
            drawn_step = last_step[state]
            if share_sums.size > last_step.size:  # else every state is reached by one link only
                drawn_shares = share_offsets[state] + chance("link") * share_spans[state]
                drawn_step = np.searchsorted(share_sums, drawn_shares, side="right")
                drawn_step = np.clip(drawn_step, level.head_start[state], last_step[state])
            link, flow_state[flow_ids] = level.links[drawn_step], level.tail[drawn_step]
            tail_count = self.members[self.walks.tail[link]]
            tail_number = flows.rows.rank[row[flow_ids]]
            if hop > 1:
                tail_number = np.zeros(flow_ids.size, np.int64)
                if tail_count.max(initial=1) > 1:
                    tail_number = (chance("switch") * tail_count).astype(np.int64)
            pair_index = (
                tail_number * self.members[self.walks.head[link]] + number_in_group[flow_ids]
            )
            cable_index = pair_index * self.cables[link]
            if self.cables[link].max(initial=1) > 1:
                cable_index += (chance("cable") * self.cables[link]).astype(np.int64)
            number_in_group[flow_ids] = tail_number
            yield flow_ids, self.base[link] + cable_index

    def seconds(self, flows: Flows, first: int, draws: int) -> FLOATS:
        """Seconds until each of `draws` placements, from number `first` on, is done; for single
        transfers (`flows.each`): seconds until each transfer is done."""
        cable_s, ends_count = np.zeros(draws * self.bins), flows.ends.vertex.size
        cable_bytes_per_s = np.repeat(self.cable_rate, np.diff(np.append(self.base, self.bins)))
        bins_of_hops: list[tuple[INTS, INTS]] = []
        flow_bytes = np.zeros(0)
        for flow_columns in flows.random_placements(first, draws):
            flow_bytes = flows.flow_sizes(*flow_columns[1:])
            draw_number, row, end = (column[flow_bytes > 0.0] for column in flow_columns)
            flow_bytes = flow_bytes[flow_bytes > 0.0]
            flow_id = ((first + draw_number) * flows.rows.vertex.size + row) * ends_count + end
            for hop_flows, cable in self.follow(flows, flow_id, row, end):
                bin_index = draw_number[hop_flows] * self.bins + cable
                sent_s = flow_bytes[hop_flows] / cable_bytes_per_s[cable]
                cable_s += np.bincount(bin_index, sent_s, cable_s.size)
                if flows.each:
                    bins_of_hops.append((hop_flows, bin_index))
        if not flows.each:
            return np.asarray(cable_s.reshape(draws, self.bins).max(axis=1, initial=0.0))
        flow_s = np.zeros(flow_bytes.size)
        for hop_flows, bin_index in bins_of_hops:
            flow_s[hop_flows] = np.maximum(flow_s[hop_flows], cable_s[bin_index])
        return flow_s


_collisions: dict[bytes, Collision] = {}  # problem -> answer
KNOWN = 64


def collision(walks: Walks, paths: Paths, flows: Flows, even_bytes: FLOATS) -> Collision:
    """Collision factor of a hashed demand relative to the even split, at least 1: less is chance.
    even_bytes: bytes of the even split on each link, with far bytes divided by far_rate; divided by
    `paths.capacity` (bytes/s) they are seconds."""
    fullest_link_s = float((even_bytes / paths.capacity).max(initial=0.0))
    if fullest_link_s <= 0.0:
        return Collision()
    problem_key = walks.digest(paths.capacity, flows.far_rate) + flows.digest()
    problem_key += paths.members.tobytes() + paths.cables.tobytes()
    return cached_answer(
        _collisions, problem_key,
        lambda: _collision_of_draws(_Hashing(walks, paths), flows, fullest_link_s), KNOWN,
    )  # fmt: skip


def _collision_of_draws(hashing: _Hashing, flows: Flows, fullest_link_s: float) -> Collision:
    """Mean, 99th percentile and number of flows of a collision, over random placements;
    fullest_link_s: seconds of the fullest link by the even split."""
    draws = int(np.clip(BALLS // flows.most_flows, FEWEST, MOST))
    chunk_draws = int(np.clip(min(BALLS // flows.most_flows, BINS // hashing.bins), 1, draws))
    factors = np.concatenate([
        hashing.seconds(flows, first_draw, min(chunk_draws, draws - first_draw)) / fullest_link_s
        for first_draw in range(0, draws, chunk_draws)
    ])  # fmt: skip
    if flows.each:  # one that keeps clear of the fullest link is as fast as by the even split
        factors = np.maximum(factors, 1.0)
    # Nine digits: in which order a link's bytes were added up is no collision.
    mean_factor, p99_factor = (
        float(f"{factor:.9g}") for factor in (factors.mean(), np.quantile(factors, 0.99))
    )
    return Collision(max(1.0, mean_factor), max(1.0, mean_factor, p99_factor), flows.count)
