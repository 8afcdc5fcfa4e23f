"""Demands become load on every directed link: the one routing algorithm.

A `Demand` says who sends how much to whom. Its paths are those of fewest hops on its plane (and,
where the machine says so, those of one hop more). Links that edits add open paths and close none:
the limit is the fewest hops of the machine as built. "ecmp" splits bytes over the shortest paths by
the capacity of what lies ahead; "adaptive" splits them so that the fullest link is as empty as can
be, to half a percent (spread.py). "hashed" splits as "ecmp" does, and time on every link of the
plane is multiplied by the mean factor by which whole flows collide (collisions.py).

A measured efficiency belongs to a path and is taken once: the rate of a link for an operation is
its nominal rate times that share, less what the way beyond the node costs. Nothing here knows what
travels, nor who else is on the way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.hardware.alike import SHORT, Swap, as_int32, renumber, swap_of
from twin.hardware.collisions import Collision
from twin.hardware.network import Network, cached_by_network
from twin.hardware.quotient import Quotient, Route
from twin.hardware.reach import Usable
from twin.hardware.walks import FLOATS, INTS

Operation: TypeAlias = Literal["read", "write", "nominal"]
Plane: TypeAlias = Literal["ub", "rdma", "vpc"]
# Flows that a plane hashes whole: of all pairs, which end with the slowest; of each sender to one
# receiver, each by itself; or none, where the rate of a port is wanted.
Whole: TypeAlias = Literal["pairs", "each", "none"]
Side: TypeAlias = tuple[tuple[int, ...], tuple[float, ...]]

TRIED = 4  # loads of one shape that a new one is compared with
WIDE = 1024  # receivers of a demand that is routed as its reverse
NEAR = 1024  # vertices that move, at most, from a place to one near it
# A load of which so many links move, a quarter of them or more, is stored with links of its own:
# a list of what moves would be longer, and every sum over the machine's links slower.
MANY, QUARTER = 20_000, 0.25


@dataclass(frozen=True)
class Demand:
    """`out[i] * into[j]` bytes/s from each sender to each receiver; none to itself. Pairs on one
    scale-up plane use `planes[0]`, others the last of `planes`."""

    senders: tuple[int, ...]  # vertices
    receivers: tuple[int, ...]
    out: tuple[float, ...]
    into: tuple[float, ...]
    planes: tuple[str, ...]
    operation: Operation = "write"
    flows: Whole = "pairs"


@dataclass(frozen=True, eq=False)
class Pattern:
    """Load of a unit of a demand on links, as computed for the first of all alike demands."""

    links: INTS  # ascending, each once
    amounts: FLOATS
    places: INTS  # places where bytes leave or enter ends of the network, see Network.places
    bytes_at_places: FLOATS


@dataclass(frozen=True, eq=False)
class Changes:
    """Positions in a list of numbers, and the numbers that stand there instead."""

    at: SHORT = field(default_factory=lambda: np.zeros(0, np.int32))
    to: SHORT = field(default_factory=lambda: np.zeros(0, np.int32))

    def apply(self, numbers: INTS) -> INTS:
        """The numbers, with those at positions `at` replaced."""
        if self.at.size:
            numbers = numbers.copy()
            numbers[self.at] = self.to
        return numbers

    def swap(self, numbers: INTS, of: SHORT, to: SHORT) -> Changes:
        """These changes of `numbers`, followed by an exchange of the ascending `of` for `to`."""
        positions = np.minimum(np.searchsorted(numbers, of), max(numbers.size - 1, 0))
        is_exchanged = numbers[positions] == of if numbers.size else np.zeros(of.size, bool)
        if self.at.size:  # what had gone is no longer there to be exchanged
            is_gone = np.zeros(numbers.size, bool)
            is_gone[self.at] = True
            is_exchanged &= ~is_gone[positions]
        moved_positions = np.concatenate([self.at, positions[is_exchanged]])
        replacements = np.concatenate([renumber(self.to, of, to), to[is_exchanged]])
        is_changed = replacements != numbers[moved_positions]
        return Changes(as_int32(moved_positions[is_changed]), as_int32(replacements[is_changed]))


@dataclass(frozen=True, eq=False)
class Load:
    """Load of a unit of a demand on links. `amounts` is time on a link times its nominal capacity:
    bytes, including efficiencies and, on hashed planes, the mean collision factor. Loads that are
    alike share a pattern and differ in their links."""

    pattern: Pattern
    latency_s: float  # of the longest path
    off_node: float  # share of the bytes between different nodes
    unreached: tuple[tuple[int, int], ...]  # some pairs (sender, receiver) that no path joins
    collisions: tuple[tuple[str, Collision], ...] = ()  # by plane, of those that hash whole flows
    moved: Changes = Changes()  # links of the pattern that are others here
    moved_places: Changes = Changes()

    @property
    def links(self) -> INTS:
        """Links with a load, i8, each once, in the order of `amounts`."""
        return self.moved.apply(self.pattern.links)

    @property
    def amounts(self) -> FLOATS:
        """Time on each of `links` times its nominal capacity: bytes, f8."""
        return self.pattern.amounts

    @property
    def places(self) -> INTS:
        """Numbers in Network.places where bytes leave or enter ends of the network, ascending."""
        return np.sort(self.moved_places.apply(self.pattern.places))

    @property
    def bytes_at_places(self) -> FLOATS:
        """Bytes that leave or enter the network at each of `places`, f8, per unit of the demand."""
        order = np.argsort(self.moved_places.apply(self.pattern.places), kind="stable")
        return self.pattern.bytes_at_places[order]

    def with_ends_swapped(self, swap: Swap) -> Load:
        """The load of the demand with ends exchanged for others at equivalent places."""
        unreached = renumber(np.array(self.unreached, np.int64), swap.vertices, swap.to_vertices)
        return replace(
            self,
            moved=self.moved.swap(self.pattern.links, swap.links, swap.to_links),
            moved_places=self.moved_places.swap(self.pattern.places, swap.places, swap.to_places),
            unreached=tuple((sender, receiver) for sender, receiver in unreached.tolist()),
        )

    def with_own_pattern(self) -> Load:
        """The same load with arrays of its own, if many links differ from those that it shares."""
        if self.moved.at.size < max(MANY, QUARTER * self.pattern.links.size):
            return self
        order = np.argsort(self.links, kind="stable")
        pattern = Pattern(self.links[order], self.amounts[order], self.places, self.bytes_at_places)
        return replace(self, pattern=pattern, moved=Changes(), moved_places=Changes())

    def rate_alone(self, net: Network) -> tuple[float, int]:
        """Bytes/s without other traffic, and the link that limits it: (0, -1) where the path is
        cut, (inf, -1) without traffic. Of several such links one between switches comes first."""
        if self.unreached:
            return 0.0, -1
        if not self.pattern.links.size:
            return float("inf"), -1

        def highest_rate() -> tuple[float, INTS]:
            """The highest bytes/s that no link exceeds; positions of the links that bound it."""
            link_bytes_per_s = net.capacity[self.pattern.links] / self.amounts
            lowest_rate = float(link_bytes_per_s.min())
            return lowest_rate, np.flatnonzero(link_bytes_per_s <= lowest_rate * (1.0 + 1e-9))

        bytes_per_s, positions = net.once(("fullest", self.pattern), highest_rate)
        links = self.links[positions]
        between_switches = links[(net.leaves[links] < 0) & (net.enters[links] < 0)]
        # Twelve digits: the order in which shares of a link were added up is no physics.
        links = between_switches if between_switches.size else links
        return float(f"{bytes_per_s:.12g}"), int(min(links))

    def port_time_share(self, net: Network) -> float:
        """Time on the fullest link at an end (a port of a die, CPU or NIC) as a share of that on
        the fullest link of all, which may carry bytes of many ends."""

        def share() -> float:
            """Time of the fullest link at an end over that of the fullest link."""
            links = self.pattern.links
            link_times = self.amounts / net.capacity[links]
            port_times = link_times[(net.leaves[links] >= 0) | (net.enters[links] >= 0)]
            return float(port_times.max(initial=0.0) / link_times.max())

        return net.once(("ports", self.pattern), share) if self.pattern.links.size else 1.0


@cached_by_network
def load_of(net: Network, demand: Demand) -> Load:
    """The load of a demand on a network; equal demands share one result, and equivalent ones its
    arrays. Hashed demands are computed one by one: the draw of an equivalent demand may differ, and
    a result must not depend on earlier demands."""
    is_hashed = any(net.routing(plane) == "hashed" for plane in demand.planes)
    return (_load if is_hashed else _load_by_symmetry)(net, demand)


def _load_by_symmetry(net: Network, demand: Demand) -> Load:
    """Load of a demand: that of a recent demand with two equivalent places swapped, otherwise
    computed. Computed loads, and those with many vertices swapped, serve later demands."""
    end_lists = demand.senders, demand.receivers
    key = demand.planes, demand.operation, *((len(ends), _hash_at(net, ends)) for ends in end_lists)
    recent_loads = net.once(("found", key), list[tuple[Demand, Load]])
    for recent_demand, load in reversed(recent_loads[-TRIED:]):
        swap = _swap_between(net, recent_demand, demand)
        if swap is None:
            continue
        if swap.vertices.size <= NEAR:
            return load.with_ends_swapped(swap)
        recent_loads.append((demand, load.with_ends_swapped(swap).with_own_pattern()))
        return recent_loads[-1][1]
    recent_loads.append((demand, _load(net, demand)))
    return recent_loads[-1][1]


def _hash_at(net: Network, ends: tuple[int, ...]) -> int:
    """A hash of the links at the nodes of some ends, which an exchange of places does not change:
    so ends that a dead link touches are not compared with others."""

    def sums() -> NDArray[np.uint64]:
        """Sum of the hashes of the links at each node, u8[nodes + 1]; the last is of no node."""
        node_hashes = np.zeros(net.nodes + 1, np.uint64)
        for vertices in (net.tail, net.head):
            np.add.at(node_hashes, net.node[vertices], net.link_kinds)
        node_hashes[-1] = 0
        return node_hashes

    return net.once(
        ("around", ends), lambda: int(net.once("nodes", sums)[net.node[list(ends)]].sum())
    )


def _swap_between(net: Network, old: Demand, new: Demand) -> Swap | None:
    """The exchange of equal vertices that maps one demand to the other, if one is found."""
    sides: list[tuple[Side, Side]] = [
        ((old.senders, old.out), (new.senders, new.out)),
        ((old.receivers, old.into), (new.receivers, new.into)),
    ]
    if any(ours != theirs and ours[1] != theirs[1] for ours, theirs in sides):
        return None
    image_of = {
        vertex: image
        for ours, theirs in sides
        if ours != theirs
        for vertex, image in zip(ours[0], theirs[0], strict=True)
        if vertex != image
    }
    swap = swap_of(net, tuple(image_of), tuple(image_of.values()))
    maps_demand = swap is not None and all(_maps_side(net, swap, *pair) for pair in sides)
    return swap if maps_demand else None


def _maps_side(net: Network, swap: Swap, old: Side, new: Side) -> bool:
    """Whether an exchange maps one side (vertices and their amounts) to the other."""
    if old != new:
        return renumber(np.array(old[0]), swap.vertices, swap.to_vertices).tolist() == list(new[0])

    def amounts() -> FLOATS:
        """Bytes/s that each vertex sends or receives, f8[vertices]."""
        amounts_by_vertex = np.zeros(len(net.vertices))
        amounts_by_vertex[list(old[0])] = old[1]
        return amounts_by_vertex

    vertex_amounts = net.once(("amounts", old), amounts)
    return bool((vertex_amounts[swap.vertices] == vertex_amounts[swap.to_vertices]).all())


def _load(net: Network, demand: Demand) -> Load:
    """Load of a demand on all its planes, added up by link, without regard to stored loads."""
    routes = [_route(net, demand, plane, same) for plane, same in _planes_of(net, demand)]
    has_bytes = np.zeros(net.tail.size, bool)
    for route in routes:
        has_bytes[route.links] = True
    links, position_of = np.flatnonzero(has_bytes), np.cumsum(has_bytes) - 1
    link_weighted_bytes, place_bytes = np.zeros(links.size), np.zeros(len(net.places))
    latency_s = total_bytes = off_node_bytes = 0.0
    unreached: list[tuple[int, int]] = []
    for route in routes:
        total_bytes += float(route.part.near.sum() + route.part.far.sum())
        off_node_bytes += float(route.part.far.sum())
        near_on_link, far_on_link = np.zeros(links.size), np.zeros(links.size)
        positions = position_of[route.links]
        near_on_link[positions], far_on_link[positions] = route.near, route.far
        link_bytes = near_on_link + far_on_link
        link_weighted_bytes += (
            route.collision.mean * (near_on_link + far_on_link / route.beyond)
            / net.efficiency[demand.operation][links]
        )  # fmt: skip
        if demand.operation == "write" and link_bytes.any():
            route.longest_s += float(net.write_extra_s[links[link_bytes > 0.0]].max())
        latency_s = max(latency_s, route.longest_s)
        unreached += route.apart
        # A byte counts on its own plane; on the way there only what never leaves the node.
        counted_planes = net.about.get("counted", COUNTED_AS)
        plane = route.part.usable.plane
        at_plane = net.place_plane == plane
        if (counted_as := counted_planes.get(plane)) is not None:
            at_plane |= net.place_plane == counted_as
        for place in (net.leaves[links], net.enters[links]):
            valid = place >= 0
            all_bytes = np.bincount(place[valid], link_bytes[valid], place_bytes.size)
            in_node_bytes = np.bincount(place[valid], near_on_link[valid], place_bytes.size)
            place_bytes += np.where(at_plane, all_bytes, in_node_bytes)
    places, valid = np.flatnonzero(place_bytes), link_weighted_bytes > 0.0
    return Load(
        Pattern(links[valid], link_weighted_bytes[valid], places, place_bytes[places]),
        latency_s=latency_s,
        off_node=off_node_bytes / total_bytes if total_bytes > 0.0 else 0.0,
        unreached=tuple(unreached),
        collisions=tuple((r.part.usable.plane, r.collision) for r in routes if r.collision.flows),
    )


COUNTED_AS = {"host": "rdma"}  # plane of a demand -> plane its bytes are counted on


def _planes_of(net: Network, demand: Demand) -> list[tuple[str, bool | None]]:
    """Planes that carry some pairs of a demand, each with whether it carries those of one scale-up
    domain (True), of two (False), or all (None)."""
    near_plane, far_plane = demand.planes[0], demand.planes[-1]
    if near_plane == far_plane:
        return [(near_plane, None)]
    sides = demand.senders, demand.receivers
    out_domains, in_domains = (set(net.domain[list(ends)]) for ends in sides)
    planes: list[tuple[str, bool | None]] = [(near_plane, True)] if out_domains & in_domains else []
    return [*planes, (far_plane, False)] if len(out_domains | in_domains) > 1 else planes


def _reverse_links(net: Network) -> INTS | None:
    """The reverse of each link, i8[links]; None where routing distinguishes the two."""
    reverse = net.links_between(net.head, net.tail)
    is_alike = (net.link_prints == net.link_prints[reverse]) & (net.serves == net.serves[reverse])
    return reverse if (is_alike & (reverse >= 0)).all() else None


def _route(net: Network, demand: Demand, plane: str, same_domain: bool | None) -> Route:
    """Bytes of a demand on the links of a plane; links near its ends are tried first. The part of
    the network that was routed last serves other operations between the same ends. A demand to many
    ends is routed in reverse, where each link has its equal in the opposite direction."""
    sent, received = np.zeros((2, len(net.vertices)))
    sent[list(demand.senders)], received[list(demand.receivers)] = demand.out, demand.into
    reverse_links = None
    if len(demand.receivers) > max(WIDE, len(demand.senders)) and net.routing(plane) == "adaptive":
        reverse_links = net.once("opposite", lambda: _reverse_links(net))
    if reverse_links is not None:
        sent, received = received, sent
    last_quotients = net.once("routed last", dict[tuple[str, bool | None], Quotient])
    quotient, route = last_quotients.pop((plane, same_domain), None), None
    if quotient and all(
        map(np.array_equal, (quotient.usable.out, quotient.usable.into), (sent, received))
    ):
        route = quotient.route(demand.operation, demand.flows)
    if route is None:
        usable = Usable(net, plane, sent, received)
        quotients = (
            Quotient(usable, same_domain, *links) for links in usable.link_sets(same_domain)
        )
        routes = (candidate.route(demand.operation, demand.flows) for candidate in quotients)
        route = next(one for one in routes if one is not None)  # all links reach far enough
    last_quotients[plane, same_domain] = route.part
    if reverse_links is None:
        return route
    return replace(route, links=reverse_links[route.links], apart=[(a, b) for b, a in route.apart])
