"""A demand's part of a network, with what nothing tells apart made one, and its bytes on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twin.hardware.collisions import Collision, Flows, Paths, Side, collision
from twin.hardware.network import Network
from twin.hardware.reach import FAR, Usable
from twin.hardware.spread import spread_rates
from twin.hardware.walks import BOOLS, FLOATS, INTS, Walks, number_values, numbers_in

HASHES = NDArray[np.uint64]
# Links from which on those alike are made one; fewer keep the order of sums, which digests show.
MANY = 100_000
CELLS = 40_000_000  # largest table of links by senders that is held at once


@dataclass
class Route:
    """Bytes and paths of a demand on one plane."""

    part: Quotient
    far_rate: float  # share of a link's rate that bytes between nodes reach
    links: INTS
    near: FLOATS  # bytes within nodes on each of these links, and beyond them
    far: FLOATS
    longest_s: float  # longest latency
    apart: list[tuple[int, int]]  # pairs without a path
    collision: Collision  # of flows that are hashed; no factor where none are


class Problem(NamedTuple):
    """Bytes to be split over links between vertices, each of which may represent several."""

    size: int
    tail: INTS
    head: INTS
    rows: INTS
    ends: INTS
    parts: FLOATS  # bytes/s f8[near and far, rows, ends]
    added: INTS
    rows_receive: bool
    first: INTS  # of the links that each represents, the first
    link: INTS  # which represents each link of the part
    number: FLOATS  # of links that each represents, and those of them into one vertex
    fan: FLOATS
    end_of: INTS  # which of `ends` represents each end of the part


class Quotient:
    """The idea: 768 dies are 48 kinds of senders. Vertices with the same links to the very same
    neighbours, of the same capacities and with the same bytes to send, carry the same in every best
    split, so each such group is one vertex and its links one link of their total capacity.
    Sameness is found by hashing (`_vertex_hashes`), not by comparing pairs.

    A vertex that only sends or receives is split in two, so no path leads through it: vertex i
    enters as `size + i` and is left at `2 * size + i`; one that passes the plane on is i for both.
    Every end's own port is made part of the end's link: die -> NIC -> leaf becomes die -> leaf. So
    ends that only differ by these are alike."""

    def __init__(self, usable: Usable, same_domain: bool | None, links: INTS, reach: int) -> None:
        """usable: links that the demand may use; links: those of them that are considered, with all
        paths of up to `reach` hops. same_domain: True for pairs within one scale-up domain, False
        for pairs of two domains, None for all."""
        net, passes = usable.net, usable.passes
        self.usable, self.reach, vertex_count = usable, reach, len(net.vertices)
        self.same_domain = same_domain
        vertex_numbers = np.arange(vertex_count)
        self.enter = np.where(passes, vertex_numbers, vertex_count + vertex_numbers)
        self.leave = np.where(passes, vertex_numbers, 2 * vertex_count + vertex_numbers)
        hashes = _vertex_hashes(net, usable.out, usable.into, passes)
        links = self._add_link_hashes(hashes, links)
        tail, head, port_links = self._merge_port_links(links)
        senders, receivers = np.flatnonzero(usable.out), np.flatnonzero(usable.into)
        # Vertices of one colour, with the same links and neighbours, share a group; -1: unused.
        in_use = numbers_in(hashes.size, tail, head, self.enter[senders], self.leave[receivers])
        group_of = np.full(hashes.size, -1, np.int64)
        group_of[in_use], self.size = number_values(hashes[in_use])
        group_pairs, example_links, link_group, link_counts = np.unique(
            group_of[tail] * self.size + group_of[head],
            return_index=True, return_inverse=True, return_counts=True,
        )  # fmt: skip
        self.tail, self.head = np.divmod(group_pairs, self.size)
        has_port = port_links >= 0
        self.links = np.concatenate([links, port_links[has_port]])
        self.whole = np.concatenate([link_group, link_group[has_port]])
        self.count = link_counts.astype(np.float64)
        # A link between two ends that pass nothing on serves their pair only: as if it were added.
        is_direct = (tail >= vertex_count) & (head >= 2 * vertex_count)
        edit_of = np.maximum(net.added[links], np.where(has_port, net.added[port_links], is_direct))
        self.added = edit_of[example_links]
        self.first, self.second = links[example_links], port_links[example_links]
        self.group = group_of
        self._set_pair_bytes(group_of, same_domain)

    def _merge_port_links(self, links: INTS) -> tuple[INTS, INTS, INTS]:
        """(tail vertex, head vertex, port link) of each of `links`. The link of a sender or
        receiver to its port is merged with the port's link to the network, so that it leads past
        the port; port link -1: not merged."""
        net = self.usable.net
        tail, head = self.enter[net.tail[links]], self.leave[net.head[links]]
        port_links = np.full(links.size, -1)
        if self.ports is not None:
            leaves_sender, enters_receiver = tail >= self.enter.size, head >= 2 * self.enter.size
            port_links[leaves_sender] = self.ports[0][head[leaves_sender]]
            port_links[enters_receiver] = self.ports[1][tail[enters_receiver]]
            head[leaves_sender], tail[enters_receiver] = (
                net.head[port_links[leaves_sender]],
                net.tail[port_links[enters_receiver]],
            )
        return tail, head, port_links

    def _add_link_hashes(self, hashes: HASHES, links: INTS) -> INTS:
        """Add to each vertex's hash the hashes of all its links that the demand may use, even if
        paths take only `links`. Returns those of `links` that are not merged into others."""
        usable, net = self.usable, self.usable.net
        self.ports = usable.port_links()
        hashes[: usable.passes.size] += net.once(("sums", usable.plane), self._inner_link_hashes)
        tail, head, port_link_of = self._merge_port_links(usable.at_ends)
        link_prints = net.link_prints[usable.at_ends]
        link_prints[port_link_of >= 0] ^= mix64(net.link_prints[port_link_of[port_link_of >= 0]])
        _add_hashes(np.add, hashes, link_prints, tail, head)
        if self.ports is None:
            return links
        port_links = np.unique(np.concatenate(self.ports))[1:]
        port_tails, port_heads = net.tail[port_links], net.head[port_links]
        _add_hashes(np.subtract, hashes, net.link_prints[port_links], port_tails, port_heads)
        is_port_link = np.zeros(net.tail.size, bool)
        is_port_link[port_links] = True
        return links[~is_port_link[links]]

    def _inner_link_hashes(self) -> HASHES:
        """Sum of the hashes of each vertex's links between forwarding vertices, u8[vertices]."""
        net, links = self.usable.net, np.flatnonzero(self.usable.inner)
        hashes = np.zeros(self.usable.passes.size, np.uint64)
        _add_hashes(np.add, hashes, net.link_prints[links], net.tail[links], net.head[links])
        return hashes

    def _set_pair_bytes(self, group_of: INTS, same_domain: bool | None) -> None:
        """Set bytes/s between groups, f8[senders, receivers]: `near` within a node, `far` between
        nodes. group_of: group of each vertex; same_domain: see `__init__`."""
        net, sent, received = self.usable.net, self.usable.out, self.usable.into
        senders, receivers = np.flatnonzero(sent), np.flatnonzero(received)
        self.rows, first_sender, row = np.unique(
            group_of[self.enter[senders]], return_index=True, return_inverse=True
        )
        self.columns, first_receiver, column = np.unique(
            group_of[self.leave[receivers]], return_index=True, return_inverse=True
        )
        self.sender, self.receiver = senders[first_sender], receivers[first_receiver]
        bytes_per_s = np.outer(
            np.bincount(row, sent[senders]), np.bincount(column, received[receivers])
        )
        both_ways, sender_at, receiver_at = np.intersect1d(senders, receivers, return_indices=True)
        bytes_to_self_per_s = sent[both_ways] * received[both_ways]
        np.subtract.at(bytes_per_s, (row[sender_at], column[receiver_at]), bytes_to_self_per_s)
        bytes_per_s[bytes_per_s < 1e-12 * bytes_per_s.max(initial=0.0)] = 0.0
        from_ends, to_ends = self.sender[:, None], self.receiver[None, :]
        if same_domain is not None:
            is_counted = (net.domain[from_ends] == net.domain[to_ends]) == same_domain
            bytes_per_s = np.where(is_counted, bytes_per_s, 0.0)
        is_same_node = (net.node[from_ends] == net.node[to_ends]) & (net.node[from_ends] >= 0)
        self.near = np.where(is_same_node, bytes_per_s, 0.0)
        self.far = np.where(is_same_node, 0.0, bytes_per_s)

    def _group_rates(self, operation: str) -> FLOATS:
        """Summed bytes/s of each group of equal links at an operation's efficiency, f8[groups]."""
        capacity, efficiency = self.usable.net.capacity, self.usable.net.efficiency[operation]
        bytes_per_s = capacity[self.first] * efficiency[self.first]
        has_port = self.second >= 0
        port_links = self.second[has_port]
        port_bytes_per_s = capacity[port_links] * efficiency[port_links]
        bytes_per_s[has_port] = np.minimum(bytes_per_s[has_port], port_bytes_per_s)
        return np.asarray(bytes_per_s * self.count)

    def route(self, operation: str, flows: str = "none") -> Route | None:
        """The demand's paths and bytes/s on every link; None if some pair may use more than `reach`
        hops. flows: which flows a hashed plane sends over one path: "pairs", "each", "none"."""
        if self.reach < FAR and self.added.any():
            return None
        net, plane, problem = self.usable.net, self.usable.plane, self.problem
        costs_more_beyond = plane == "ub" and operation != "nominal"
        far_rate = float(net.about.get("beyond_node", 1.0)) if costs_more_beyond else 1.0
        group_rates = self._group_rates(operation)
        capacity = group_rates[problem.first] * problem.number
        latency_s = net.latency[self.first]
        latency_s += np.where(self.second >= 0, net.latency[self.second], 0.0)
        link_bytes = np.zeros((2, problem.tail.size))
        longest_latency_s, cut_off_pairs, collision_factor = 0.0, [], Collision()
        routing = net.routing(plane)
        rows_at_once = max(1, CELLS // max(1, problem.tail.size))
        if routing == "hashed":  # who collides with whom shows with all together only
            rows_at_once = max(rows_at_once, problem.rows.size)
        for first_row in range(0, problem.rows.size if problem.parts.any() else 0, rows_at_once):
            row_slice = slice(first_row, first_row + rows_at_once)
            walks = Walks(
                problem.size, problem.tail, problem.head, problem.rows[row_slice], problem.ends,
                problem.parts[:, row_slice], self.usable.detour, problem.added,
            )  # fmt: skip
            unreached = [
                (row, end_index)
                for row, end in walks.pairs_without_path(first_row)
                for end_index in np.flatnonzero(problem.end_of == end)
            ]
            if self.reach < FAR and (unreached or walks.most.max() + walks.detour > self.reach):
                return None
            is_adaptive = problem.rows.size <= rows_at_once and routing == "adaptive"
            group_sizes = None if routing == "adaptive" else self._group_sizes()
            links = walks.used
            walk_bytes = spread_rates(
                walks, capacity[links], far_rate, is_adaptive, group_sizes, problem.number[links],
                problem.fan[links],
            )  # fmt: skip
            link_bytes[:, links] += walk_bytes
            if routing == "hashed" and flows != "none":
                collision_factor = self._collision(
                    walks, group_rates, walk_bytes, flows == "each", far_rate
                )
            walk_latency_s = walks.longest_latency_s(latency_s[problem.first][links])
            longest_latency_s = max(longest_latency_s, walk_latency_s)
            cut_off_pairs += [
                (int(self.sender[end]), int(self.receiver[row])) if problem.rows_receive
                else (int(self.sender[row]), int(self.receiver[end]))
                for row, end in unreached
            ]  # fmt: skip
        link_bytes /= problem.number * self.count[problem.first]
        near_bytes, far_bytes = link_bytes[:, problem.link[self.whole]]
        return Route(
            self, far_rate, self.links, near_bytes, far_bytes, longest_latency_s, cut_off_pairs,
            collision_factor,
        )  # fmt: skip

    @cached_property
    def problem(self) -> Problem:
        """The problem of splitting the demand's bytes/s over the links. If senders' groups
        outnumber receivers', directions are reversed: the reverse has the same paths. With adaptive
        routing over more than MANY links, one vertex or link stands for all equal ones."""
        tail, head, rows, ends = self.tail, self.head, self.rows, self.columns
        parts = np.stack([self.near, self.far])
        rows_receive = rows.size > ends.size
        if rows_receive:
            tail, head, rows, ends = head, tail, ends, rows
            parts = parts.transpose(0, 2, 1)
        is_adaptive = self.usable.net.routing(self.usable.plane) == "adaptive"
        if not (is_adaptive and tail.size > MANY):
            ones, numbers = np.ones(tail.size), np.arange(tail.size)
            common_fields = self.size, tail, head, rows, ends, parts, self.added, rows_receive
            return Problem(*common_fields, numbers, numbers, ones, ones, np.arange(ends.size))
        class_of, link_hashes = self._find_classes(tail, head, rows, ends, parts)
        classes = int(class_of.max()) + 1
        keys = mix64((class_of[tail] * classes + class_of[head]).astype(np.uint64)) + link_hashes
        _, first_links, class_of_link, link_counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        tail, head = class_of[tail[first_links]], class_of[head[first_links]]
        ends, class_of_end = np.unique(class_of[ends], return_inverse=True)
        parts = np.stack([[np.bincount(class_of_end, rates) for rates in part] for part in parts])
        return Problem(
            classes, tail, head, class_of[rows], ends, parts, self.added[first_links], rows_receive,
            first_links, class_of_link, link_counts.astype(np.float64),
            link_counts / np.bincount(class_of)[head], class_of_end,
        )  # fmt: skip

    def _find_classes(
        self, tail: INTS, head: INTS, rows: INTS, ends: INTS, parts: FLOATS
    ) -> tuple[INTS, HASHES]:
        """(class of every vertex, i8; hash of each link, u8, equal for equal links) of a `Problem`.
        Vertices of a class have equally many equal links with every class and equal bytes for each
        row, and each row is a class by itself: so some best split treats them alike."""
        net = self.usable.net
        hashes = mix64(self._group_sizes().astype(np.uint64))
        row_hash = mix64(np.arange(rows.size, dtype=np.uint64) + np.uint64(5))
        for part in parts:
            hashes[ends] = mix64(hashes[ends]) + mix64(_bits(part) ^ row_hash[:, None]).sum(axis=0)
        hashes[rows] += row_hash
        port_hashes = np.where(self.second < 0, np.uint64(0), net.link_prints[self.second])
        link_hashes = mix64(net.link_prints[self.first] + mix64(port_hashes + _bits(self.count)))
        link_hashes += _bits(self.added)
        (class_of, class_count), last_count = number_values(hashes), 0
        while class_count > last_count:
            last_hashes = mix64(hashes)
            hashes = last_hashes.copy()
            np.add.at(hashes, tail, mix64(link_hashes + last_hashes[head]))
            np.add.at(hashes, head, mix64(link_hashes ^ last_hashes[tail]))
            (class_of, class_count), last_count = number_values(hashes), class_count
        return class_of, link_hashes

    def _collision(
        self, walks: Walks, rates: FLOATS, link_bytes: FLOATS, is_transfer: bool, far_rate: float
    ) -> Collision:
        """Collision factor when each flow uses one of its equal paths. rates: bytes/s of groups of
        links; link_bytes: of the even split, f8[near and far, links]; is_transfer: whether each
        flow is a single transfer; far_rate: share of a link's rate for far bytes."""
        group_sizes = self._group_sizes()
        group_order = np.argsort(self.group, kind="stable")
        rank_in_group = np.empty_like(group_order)
        ordered = self.group[group_order]
        rank_in_group[group_order] = np.arange(ordered.size) - np.searchsorted(ordered, ordered)
        senders = self._single_ends(self.rows, self.enter, self.usable.out, rank_in_group)
        receivers = self._single_ends(self.columns, self.leave, self.usable.into, rank_in_group)
        rows, ends = (receivers, senders) if self.problem.rows_receive else (senders, receivers)
        flows = Flows(rows, ends, is_transfer, self.same_domain, far_rate)
        cables = np.maximum(self.usable.net.cables[self.first[walks.used]], 1)
        paths = Paths(rates[walks.used], group_sizes, cables)
        return collision(walks, paths, flows, link_bytes[0] + link_bytes[1] / far_rate)

    def _group_sizes(self) -> INTS:
        """Number of vertices in each group, i8[groups]."""
        return np.bincount(self.group[self.group >= 0], minlength=self.size)

    def _single_ends(self, groups: INTS, number_of: INTS, end_bytes: FLOATS, rank_of: INTS) -> Side:
        """The individual senders, or receivers: vertices that send, or receive, `end_bytes`
        f8[vertices] (bytes/s). groups: this side's groups; number_of: this side's number of each
        vertex; rank_of: number of a vertex within its group."""
        net, vertices = self.usable.net, np.flatnonzero(end_bytes)
        return Side(
            np.searchsorted(groups, self.group[number_of[vertices]]), rank_of[number_of[vertices]],
            vertices, net.node[vertices], net.domain[vertices], end_bytes[vertices],
        )  # fmt: skip


def mix64(values: HASHES) -> HASHES:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014), of values u8: a bijection in which
    each bit changes half of the result, so that sums of such numbers identify sets."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def _bits(values: FLOATS | INTS) -> HASHES:
    """The bits of each value read as a u8 integer, so equal floats give equal numbers."""
    return np.ascontiguousarray(values).view(np.uint64)


def _vertex_hashes(net: Network, out: FLOATS, into: FLOATS, passes: BOOLS) -> HASHES:
    """Hash u8[3 * vertices] of the properties that vertices must share to be routed as one: first
    as forwarding vertices, then as senders, then as receivers. out, into: bytes/s that each vertex
    sends and receives; passes: whether it forwards."""
    hashes, ends = np.zeros((3, out.size), np.uint64), np.flatnonzero((out > 0.0) | (into > 0.0))
    # A node matters where bytes stay in it: where nothing is received, senders are all far.
    end_node = net.node[ends]
    sends, receives = (np.bincount(end_node[side[ends] > 0.0] + 1, minlength=net.nodes + 1) > 0
                      for side in (out, into))  # fmt: skip
    end_node = np.where((sends & receives)[end_node + 1], end_node, -1)
    end_hash = mix64(mix64(_bits(end_node)) + _bits(net.domain[ends]))
    end_hash = mix64(mix64(end_hash + _bits(out[ends])) + _bits(into[ends]))
    hashes[0, passes] = 1
    passing_ends = ends[passes[ends]]
    hashes[0, passing_ends] = mix64(passing_ends.astype(np.uint64) + np.uint64(7))
    hashes[1:, ends] = end_hash, mix64(end_hash)
    return hashes.ravel()


def _add_hashes(ufunc: np.ufunc, sums: HASHES, link_hashes: HASHES, tail: INTS, head: INTS) -> None:
    """Add to `sums` u8[vertices] (ufunc np.add), or subtract from it (np.subtract), a hash of each
    of a vertex's links, made of the link's hash and the vertex at its other end. Sums do not depend
    on the order of links; 11 and 13 let links in and out differ. Two vertices get the same sum with
    a chance of 2**-64."""
    with np.errstate(over="ignore"):  # whole numbers wrap round, as in every hash
        ufunc.at(sums, tail, mix64(link_hashes + mix64(head.astype(np.uint64) + np.uint64(11))))
        ufunc.at(sums, head, mix64(link_hashes ^ mix64(tail.astype(np.uint64) + np.uint64(13))))
