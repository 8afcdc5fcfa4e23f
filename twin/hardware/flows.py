"""Demands become load on every directed link: the one routing algorithm.

A `Demand` says who sends how much to whom. Its paths are those of fewest hops on its plane (and,
where the machine says so, those of one hop more). Links that edits add open paths and close none:
the limit is the fewest hops of the machine as built. "ecmp" splits bytes over the shortest paths by
the capacity of what lies ahead; "adaptive" re-weights the links until the fullest one is as empty
as any split over all these paths can make it, to half a percent: the dual prices of the links bound
what is possible from below, so it is known when to stop. Vertices that nothing tells apart (dies on
the same switches, switches between the same switches) are routed as one, exactly.

A measured efficiency belongs to a path and is taken once: the rate of a link for an operation is
its nominal rate times that share, less what the way beyond the node costs. Nothing here knows what
travels, nor who else is on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.hardware.network import Network
from twin.hardware.walks import BOOLS, FLOATS, INTS, Walks, spread

Operation: TypeAlias = Literal["read", "write", "nominal"]
Plane: TypeAlias = Literal["ub", "rdma", "vpc"]
HASHES: TypeAlias = NDArray[np.uint64]

CELLS = 40_000_000  # largest table of links by senders that is held at once


@dataclass(frozen=True)
class Demand:
    """`out[i] * into[j]` bytes/s from each sender to each receiver; none sends to itself.

    Pairs on one scale-up plane take `planes[0]`, others the last of `planes`.
    """

    senders: tuple[int, ...]  # vertices
    receivers: tuple[int, ...]
    out: tuple[float, ...]
    into: tuple[float, ...]
    planes: tuple[str, ...]
    operation: Operation = "write"


@dataclass(frozen=True, eq=False)
class Load:
    """What a unit of a demand puts on the links.

    `amounts` is time on a link times its nominal capacity, so efficiencies are in it; `bytes`
    is what really passes.
    """

    links: INTS  # ascending, each once
    amounts: FLOATS
    bytes: FLOATS
    latency_s: float  # of the longest path
    off_node: float  # share of the bytes between different nodes
    unreached: tuple[tuple[int, int], ...]  # some pairs (sender, receiver) that no path joins
    places: INTS  # places where bytes leave or enter ends of the network, see Network.places
    placed: FLOATS  # bytes there

    def alone(self, net: Network) -> tuple[float, int]:
        """Rate with no other traffic on the way, and the link that is full first.

        (0, -1) where something is cut off, (inf, -1) where nothing travels. Of several full links
        one between switches is named before those at their ends.
        """
        if self.unreached:
            return 0.0, -1
        if not self.links.size:
            return float("inf"), -1
        rates = net.capacity[self.links] / self.amounts
        least = float(rates.min())
        full = self.links[rates <= least * (1.0 + 1e-9)]
        inner = full[(net.leaves[full] < 0) & (net.enters[full] < 0)]
        # Twelve digits: the order in which shares of a link were added up is no physics.
        return float(f"{least:.12g}"), int(inner[0] if inner.size else full[0])


def load_of(net: Network, demand: Demand) -> Load:
    """The load of a demand on a network; equal questions share one answer."""
    return net.once(demand, lambda: _load(net, demand))


def _load(net: Network, demand: Demand) -> Load:
    carried, amounts = np.zeros(net.tail.size), np.zeros(net.tail.size)
    placed = np.zeros(len(net.places))
    latency_s = total = off_node = 0.0
    unreached: list[tuple[int, int]] = []
    for plane, same_domain in _planes_of(demand):
        part = _Quotient(net, demand, plane, same_domain)
        total += float(part.near.sum() + part.far.sum())
        off_node += float(part.far.sum())
        near, far, longest_s, apart = part.routed(net)
        carried += near + far
        amounts += (near + far / part.beyond) / net.efficiency[demand.operation]
        if demand.operation == "write" and (near + far).any():
            longest_s += float(net.write_extra_s[near + far > 0.0].max())
        latency_s = max(latency_s, longest_s)
        unreached += apart
        # A byte counts on its own plane; on the way there only what never leaves the node.
        counted = net.about.get("counted", COUNTED)
        own = net.place_plane == counted.get(plane, plane)
        for counts in (net.leaves, net.enters):
            some = counts >= 0
            moved = np.bincount(counts[some], (near + far)[some], minlength=placed.size)
            inside = np.bincount(counts[some], near[some], minlength=placed.size)
            placed += np.where(own, moved, inside)
    links, places = np.flatnonzero(amounts), np.flatnonzero(placed)
    return Load(
        links=links,
        amounts=amounts[links],
        bytes=carried[links],
        latency_s=latency_s,
        off_node=off_node / total if total > 0.0 else 0.0,
        unreached=tuple(unreached),
        places=places,
        placed=placed[places],
    )


COUNTED = {"host": "rdma"}  # plane of a demand -> plane its bytes are counted on


def _planes_of(demand: Demand) -> list[tuple[str, bool | None]]:
    """(plane, whether it takes the pairs of one domain, of two, or None: all)."""
    first, last = demand.planes[0], demand.planes[-1]
    return [(first, None)] if first == last else [(first, True), (last, False)]


class _Quotient:
    """The part of a network that a demand can use, with what nothing tells apart made one.

    The idea: 768 dies are 48 kinds of senders. Vertices with the same links to the very same
    neighbours, of the same capacities and with the same bytes to send, carry the same in every best
    split, so each such group is one vertex and its links one link of their total capacity.
    Sameness is found by hashing (`_twins`), not by comparing pairs.

    A vertex that only sends or receives is split in two, so no path leads through it: vertex i
    enters as `size + i` and is left at `2 * size + i`; one that passes the plane on is i for both.
    """

    def __init__(self, net: Network, demand: Demand, plane: str, same_domain: bool | None) -> None:
        size = len(net.vertices)
        bit = net.bit(plane)
        passes = net.forwards & bit > 0
        out, into = np.zeros(size), np.zeros(size)
        senders, receivers = np.array(demand.senders), np.array(demand.receivers)
        out[senders], into[receivers] = demand.out, demand.into
        enter = np.where(passes, np.arange(size), size + np.arange(size))
        leave = np.where(passes, np.arange(size), 2 * size + np.arange(size))
        usable = (net.serves & bit > 0) & (net.capacity > 0.0)
        usable &= (passes[net.tail] | (out[net.tail] > 0.0)) & (
            passes[net.head] | (into[net.head] > 0.0)
        )
        links = np.flatnonzero(usable)
        ways = _without_ports(net, links, enter[net.tail[links]], leave[net.head[links]])
        first, tail, head, second = ways
        senders, receivers = np.flatnonzero(out), np.flatnonzero(into)
        colour = _colours(net, out, into, passes)
        prints = net.link_prints[first] ^ np.where(second >= 0, mixed(net.link_prints[second]), 0)
        group, self.size = _twins(prints, tail, head, colour, enter[senders], leave[receivers])
        pairs, at, whole, count = np.unique(
            group[tail] * self.size + group[head],
            return_index=True, return_inverse=True, return_counts=True,
        )  # fmt: skip
        self.tail, self.head = np.divmod(pairs, self.size)
        both = second >= 0
        self.links = np.concatenate([first, second[both]])
        self.whole = np.concatenate([whole, whole[both]])
        self.count = count.astype(np.float64)
        rate = net.capacity * net.efficiency[demand.operation]
        least = np.where(both, np.minimum(rate[first], rate[second]), rate[first])
        self.capacity = least[at] * count
        # A link between two ends that pass nothing on serves their pair only: as if it were added.
        straight = (tail >= size) & (head >= 2 * size)
        added = np.maximum(net.added[first], np.where(both, net.added[second], straight))
        self.added = added[at]
        self.latency = (net.latency[first] + np.where(both, net.latency[second], 0.0))[at]
        self._pairs(net, demand, group, enter, leave, out, into, same_domain)
        away = plane == "ub" and demand.operation != "nominal"
        self.beyond = float(net.about.get("beyond_node", 1.0)) if away else 1.0

    def _pairs(
        self, net: Network, demand: Demand, group: INTS, enter: INTS, leave: INTS,
        out: FLOATS, into: FLOATS, same_domain: bool | None,
    ) -> None:  # fmt: skip
        """Bytes/s between the groups, f8[senders, receivers]: within a node, and beyond it."""
        senders, receivers = np.flatnonzero(out), np.flatnonzero(into)
        self.rows, first_sender, row = np.unique(
            group[enter[senders]], return_index=True, return_inverse=True
        )
        self.columns, first_receiver, column = np.unique(
            group[leave[receivers]], return_index=True, return_inverse=True
        )
        self.sender, self.receiver = (
            senders[first_sender],
            receivers[first_receiver],
        )  # an example of each
        moved = np.outer(np.bincount(row, out[senders]), np.bincount(column, into[receivers]))
        both, i, j = np.intersect1d(senders, receivers, return_indices=True)
        np.subtract.at(moved, (row[i], column[j]), out[both] * into[both])
        moved[moved < 1e-12 * moved.max(initial=0.0)] = 0.0
        a, b = self.sender[:, None], self.receiver[None, :]
        if same_domain is not None:
            moved = np.where((net.domain[a] == net.domain[b]) == same_domain, moved, 0.0)
        near = (net.node[a] == net.node[b]) & (net.node[a] >= 0)
        self.near, self.far = np.where(near, moved, 0.0), np.where(near, 0.0, moved)

    def routed(self, net: Network) -> tuple[FLOATS, FLOATS, float, list[tuple[int, int]]]:
        """Bytes within and beyond nodes on every link, longest latency, pairs without a path."""
        near, far = np.zeros(net.tail.size), np.zeros(net.tail.size)
        demand = self.near + self.far
        if not demand.any():
            return near, far, 0.0, []
        tail, head, rows, ends = self.tail, self.head, self.rows, self.columns
        parts = np.stack([self.near, self.far])
        turned = rows.size > ends.size
        if turned:  # the same paths, found from the side with fewer ends
            tail, head, rows, ends = head, tail, ends, rows
            parts = parts.transpose(0, 2, 1)
        carried = np.zeros((2, tail.size))
        longest, apart = 0.0, []
        each = max(1, CELLS // max(1, tail.size))
        for start in range(0, rows.size, each):
            some = slice(start, start + each)
            walks = Walks(
                self.size, tail, head, rows[some], ends, parts[:, some],
                int(net.about.get("detour_hops", 0)), self.added,
            )  # fmt: skip
            balance = rows.size <= each and net.about.get("routing", "adaptive") == "adaptive"
            carried[:, walks.used] += spread(walks, self.capacity[walks.used], self.beyond, balance)
            longest = max(longest, walks.longest(self.latency[walks.used]))
            apart += [
                (int(self.sender[j]), int(self.receiver[i])) if turned
                else (int(self.sender[i]), int(self.receiver[j]))
                for i, j in walks.apart(start)
            ]  # fmt: skip
        near[self.links], far[self.links] = (carried / self.count)[:, self.whole]
        return near, far, longest, apart


def mixed(x: HASHES) -> HASHES:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection of 64 bits in which each
    bit changes half of the result, so that sums of such numbers identify sets."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def _bits(values: FLOATS | INTS) -> HASHES:
    """The same bytes read as whole numbers: equal floats are equal numbers, without rounding."""
    return np.ascontiguousarray(values).view(np.uint64)


def _colours(net: Network, out: FLOATS, into: FLOATS, passes: BOOLS) -> HASHES:
    """A number of what must be equal of two vertices that are routed as one, u8[3 * vertices].

    By the numbering of `_Quotient`: vertices that pass the plane on, senders, receivers.
    """
    size = out.size
    ends = (out > 0.0) | (into > 0.0)
    # A node matters where bytes stay in it: where nothing is received, senders are all far.
    inside = np.intersect1d(net.node[out > 0.0], net.node[into > 0.0])
    node = np.where(np.isin(net.node, inside), net.node, -1)
    alike = mixed(mixed(_bits(node)) + _bits(net.domain))
    alike = mixed(mixed(alike + _bits(out)) + _bits(into))
    own = np.where(ends, mixed(np.arange(size, dtype=np.uint64) + np.uint64(7)), np.uint64(1))
    return np.concatenate([np.where(passes, own, 0), alike, mixed(alike)])


def _without_ports(
    net: Network, links: INTS, tail: INTS, head: INTS
) -> tuple[INTS, INTS, INTS, INTS]:
    """(link, tail, head, second link or -1) with every end's own port (its NIC) made part of its
    link: so ends that only differ by these are alike. All stays as it is unless every end has one.

    die -> NIC -> leaf becomes die -> leaf. A port qualifies (`fits`) that belongs to one end, has
    one link to the network, and has its way back from where its way out leads.
    """
    size = len(net.vertices)
    plain = links, tail, head, np.full(links.size, -1)
    sends, receives = tail >= size, head >= 2 * size
    inner = ~sends & ~receives
    if not (sends.any() or receives.any()) or (sends & receives).any():
        return plain
    port = np.zeros(size, bool)
    port[head[sends]] = port[tail[receives]] = True
    owners = np.bincount(head[sends], minlength=size), np.bincount(tail[receives], minlength=size)
    beyond = np.full(size, -1)
    out, back = inner & port[np.minimum(tail, size - 1)], inner & port[np.minimum(head, size - 1)]
    onward, inward = np.full(size, -1), np.full(size, -1)  # link of a port to its network, and back
    onward[tail[out]], inward[head[back]] = np.flatnonzero(out), np.flatnonzero(back)
    beyond[tail[out]] = head[out]
    single = (np.bincount(tail[out], minlength=size) <= 1) & (
        np.bincount(head[back], minlength=size) <= 1
    )
    one_way = (inward < 0) | (onward < 0) | (tail[inward] == beyond)
    owner = np.full(size, -1)
    owner[head[sends]] = tail[sends] - size
    same = np.ones(size, bool)
    both = tail[receives], head[receives] - 2 * size
    same[both[0]] = (owner[both[0]] < 0) | (owner[both[0]] == both[1])
    fits = single & one_way & same & (owners[0] <= 1) & (owners[1] <= 1)
    fits &= ((owners[0] == 0) | (onward >= 0)) & ((owners[1] == 0) | (inward >= 0))
    if not fits[port].all() or (out & back).any():
        return plain
    rest = np.flatnonzero(inner & ~out & ~back)
    on, off = np.flatnonzero(sends), np.flatnonzero(receives)
    over, under = onward[head[on]], inward[tail[off]]
    return (
        np.concatenate([links[rest], links[on], links[off]]),
        np.concatenate([tail[rest], tail[on], tail[under]]),
        np.concatenate([head[rest], head[over], head[off]]),
        np.concatenate([np.full(rest.size, -1), links[over], links[under]]),
    )


def _twins(
    prints: HASHES, tail: INTS, head: INTS, colour: HASHES, enter: INTS, leave: INTS
) -> tuple[INTS, int]:
    """Group of every vertex in use: one for those with equal links to the very same neighbours.

    Each vertex adds up a number for each of its links, mixed from what the link is (`prints`) and
    which vertex is at its other end. Sums do not depend on the order of links; 11 and 13 let links
    in and links out differ. Two different vertices get the same sum with a chance of 2**-64.
    """
    with np.errstate(over="ignore"):  # whole numbers wrap round, as in every hash
        np.add.at(colour, tail, mixed(prints + mixed(head.astype(np.uint64) + np.uint64(11))))
        np.add.at(colour, head, mixed(prints ^ mixed(tail.astype(np.uint64) + np.uint64(13))))
    used = np.zeros(colour.size, bool)
    for vertices in (tail, head, enter, leave):
        used[vertices] = True
    at = np.flatnonzero(used)
    _, first, of = np.unique(colour[at], return_index=True, return_inverse=True)
    fall = np.argsort(first, kind="stable")
    number = np.argsort(fall, kind="stable")  # in the machine's order: alike parts look alike
    group = np.full(colour.size, -1, np.int64)
    group[at] = number[of]
    return group, int(of.max(initial=-1)) + 1
