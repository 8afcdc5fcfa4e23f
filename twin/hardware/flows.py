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

from twin.hardware.alike import SHORT, Swap, as_int32, map_numbers, swap_of
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
        """`numbers` with those at positions `at` replaced; the same array if there are none."""
        if self.at.size:
            numbers = numbers.copy()
            numbers[self.at] = self.to
        return numbers

    def swap(self, numbers: INTS, old: SHORT, new: SHORT) -> Changes:
        """Changes of `numbers` that do the same as these and then replace every `old[i]`
        (ascending) by `new[i]`, also among the numbers that these changes put in."""
        positions = np.minimum(np.searchsorted(numbers, old), max(numbers.size - 1, 0))
        is_exchanged = numbers[positions] == old if numbers.size else np.zeros(old.size, bool)
        if self.at.size:  # a number replaced before is no longer there to be exchanged
            is_replaced = np.zeros(numbers.size, bool)
            is_replaced[self.at] = True
            is_exchanged &= ~is_replaced[positions]
        moved_positions = np.concatenate([self.at, positions[is_exchanged]])
        replacements = np.concatenate([map_numbers(self.to, old, new), new[is_exchanged]])
        is_changed = replacements != numbers[moved_positions]
        return Changes(as_int32(moved_positions[is_changed]), as_int32(replacements[is_changed]))


@dataclass(frozen=True, eq=False)
class Load:
    """Load on links per unit of a demand. `amounts` are effective bytes: those sent, divided by
    efficiencies and, on hashed planes, times the mean collision factor. Loads that are alike share
    a pattern and differ in their links."""

    pattern: Pattern
    latency_s: float  # of the longest path
    off_node: float  # share of the bytes between different nodes
    unreached: tuple[tuple[int, int], ...]  # some pairs (sender, receiver) that no path joins
    collisions: tuple[tuple[str, Collision], ...] = ()  # by plane, of those that hash whole flows
    moved: Changes = Changes()  # links of the pattern that are others here
    moved_places: Changes = Changes()

    @property
    def links(self) -> INTS:
        """Links that carry bytes, i8, each once, in the order of `amounts`."""
        return self.moved.apply(self.pattern.links)

    @property
    def amounts(self) -> FLOATS:
        """Effective bytes/s on each of `links`, f8[links], per unit of the demand: a link is full
        when effective bytes/s equal its capacity."""
        return self.pattern.amounts

    @property
    def places(self) -> INTS:
        """Numbers of the `Network.places` where bytes leave or enter ends of the network,
        ascending."""
        return np.sort(self.moved_places.apply(self.pattern.places))

    @property
    def bytes_at_places(self) -> FLOATS:
        """Bytes that leave or enter the network at each of `places`, f8, per unit of the demand."""
        place_order = np.argsort(self.moved_places.apply(self.pattern.places), kind="stable")
        return self.pattern.bytes_at_places[place_order]

    def with_ends_swapped(self, swap: Swap) -> Load:
        """Load of the demand after a swap moved its senders and receivers to equivalent places."""
        unreached = map_numbers(np.array(self.unreached, np.int64), swap.vertices, swap.to_vertices)
        return replace(
            self,
            moved=self.moved.swap(self.pattern.links, swap.links, swap.to_links),
            moved_places=self.moved_places.swap(self.pattern.places, swap.places, swap.to_places),
            unreached=tuple((sender, receiver) for sender, receiver in unreached.tolist()),
        )

    def with_own_pattern(self) -> Load:
        """This load with a pattern of its own if many links differ from the shared pattern."""
        if self.moved.at.size < max(MANY, QUARTER * self.pattern.links.size):
            return self
        order = np.argsort(self.links, kind="stable")
        pattern = Pattern(self.links[order], self.amounts[order], self.places, self.bytes_at_places)
        return replace(self, pattern=pattern, moved=Changes(), moved_places=Changes())

    def rate_alone(self, net: Network) -> tuple[float, int]:
        """(bytes/s, link): the highest rate of the demand without other traffic, and the link that
        limits it. If several links do, a link between switches is chosen. (0, -1) if a pair has no
        path, (inf, -1) without traffic."""
        if self.unreached:
            return 0.0, -1
        if not self.pattern.links.size:
            return float("inf"), -1
        links = self.links
        link_bytes_per_s = net.capacity[links] / self.amounts
        bytes_per_s = float(link_bytes_per_s.min())
        full_links = links[link_bytes_per_s <= bytes_per_s * (1.0 + 1e-9)]
        between_switches = full_links[(net.leaves[full_links] < 0) & (net.enters[full_links] < 0)]
        # Twelve digits: the order in which shares of a link were added up is no physics.
        full_links = between_switches if between_switches.size else full_links
        return float(f"{bytes_per_s:.12g}"), int(min(full_links))

    def port_time_share(self, net: Network) -> float:
        """Transfer time on the slowest port of a die, CPU or NIC, divided by the transfer time on
        the slowest of all links, which may carry bytes of many ends. 1 without traffic."""
        links = self.links
        if not links.size:
            return 1.0
        link_s = self.amounts / net.capacity[links]
        port_s = link_s[(net.leaves[links] >= 0) | (net.enters[links] >= 0)]
        return float(port_s.max(initial=0.0) / link_s.max())


@cached_by_network
def load_of(net: Network, demand: Demand) -> Load:
    """Load of a demand on a network. Equal demands share one result, demands with ends at
    equivalent places share its arrays. Hashed demands are computed one by one: the draw of an
    equivalent demand may differ, and a result must not depend on earlier demands."""
    is_hashed = any(net.routing(plane) == "hashed" for plane in demand.planes)
    return (_compute_load if is_hashed else _load_by_symmetry)(net, demand)


def _load_by_symmetry(net: Network, demand: Demand) -> Load:
    """Load of a demand. If a swap of equivalent places turns a recent demand into this one, the
    load follows from that of the recent demand; otherwise it is computed. Computed loads, and loads
    for which many vertices were swapped, are stored for later demands."""
    # Nodes at equivalent places have equal hashes, and nodes with a dead link have others.
    sides, node_hashes = (demand.senders, demand.receivers), _link_hashes_by_node(net)
    hash_sums = (int(node_hashes[net.node[list(side)]].sum()) for side in sides)
    symmetry_key = demand.planes, demand.operation, *map(len, sides), *hash_sums
    recent_loads = net.once(("found", symmetry_key), list[tuple[Demand, Load]])
    for recent_demand, load in reversed(recent_loads[-TRIED:]):
        swap = _swap_between(net, recent_demand, demand)
        if swap is None:
            continue
        if swap.vertices.size <= NEAR:
            return load.with_ends_swapped(swap)
        recent_loads.append((demand, load.with_ends_swapped(swap).with_own_pattern()))
        return recent_loads[-1][1]
    recent_loads.append((demand, _compute_load(net, demand)))
    return recent_loads[-1][1]


@cached_by_network
def _link_hashes_by_node(net: Network) -> NDArray[np.uint64]:
    """Sum of the hashes of each node's links, u8[nodes + 1]; the last, 0, is for no node."""
    node_hashes = np.zeros(net.nodes + 1, np.uint64)
    for vertices in (net.tail, net.head):
        np.add.at(node_hashes, net.node[vertices], net.link_kinds)
    node_hashes[-1] = 0
    return node_hashes


def _swap_between(net: Network, old: Demand, new: Demand) -> Swap | None:
    """The exchange of equivalent vertices that maps demand `old` to `new`; None if not found."""
    side_pairs: list[tuple[Side, Side]] = [
        ((old.senders, old.out), (new.senders, new.out)),
        ((old.receivers, old.into), (new.receivers, new.into)),
    ]
    if any(before != after and before[1] != after[1] for before, after in side_pairs):
        return None
    new_vertex_of = {
        vertex: image
        for before, after in side_pairs
        if before != after
        for vertex, image in zip(before[0], after[0], strict=True)
        if vertex != image
    }
    swap = swap_of(net, tuple(new_vertex_of), tuple(new_vertex_of.values()))
    maps_demand = swap is not None and all(_maps_side(net, swap, *pair) for pair in side_pairs)
    return swap if maps_demand else None


def _maps_side(net: Network, swap: Swap, old: Side, new: Side) -> bool:
    """Whether a swap maps the side `old` (vertices, amounts) of a demand to the side `new`."""
    if old != new:
        return map_numbers(np.array(old[0]), swap.vertices, swap.to_vertices).tolist() == [*new[0]]
    vertex_amounts = np.zeros(len(net.vertices))
    vertex_amounts[list(old[0])] = old[1]
    return bool((vertex_amounts[swap.vertices] == vertex_amounts[swap.to_vertices]).all())


def _compute_load(net: Network, demand: Demand) -> Load:
    """Load of a demand on all its planes, added up by link; stored loads are not used."""
    routes = [
        _route(net, demand, plane, same_domain) for plane, same_domain in _planes_of(net, demand)
    ]
    is_routed = np.zeros(net.tail.size, bool)
    for route in routes:
        is_routed[route.links] = True
    links, position_of_link = np.flatnonzero(is_routed), np.cumsum(is_routed) - 1
    weighted_bytes, place_bytes = np.zeros(links.size), np.zeros(len(net.places))
    longest_latency_s = total_bytes = off_node_bytes = 0.0
    unreached_pairs: list[tuple[int, int]] = []
    for route in routes:
        total_bytes += float(route.part.near.sum() + route.part.far.sum())
        off_node_bytes += float(route.part.far.sum())
        near_bytes, far_bytes = np.zeros(links.size), np.zeros(links.size)
        positions = position_of_link[route.links]
        near_bytes[positions], far_bytes[positions] = route.near, route.far
        link_bytes = near_bytes + far_bytes
        weighted_bytes += (
            route.collision.mean * (near_bytes + far_bytes / route.far_rate)
            / net.efficiency[demand.operation][links]
        )  # fmt: skip
        if demand.operation == "write" and link_bytes.any():
            route.longest_s += float(net.write_extra_s[links[link_bytes > 0.0]].max())
        longest_latency_s = max(longest_latency_s, route.longest_s)
        unreached_pairs += route.apart
        # A byte counts on its own plane; on the way there only what never leaves the node.
        plane_counted_as = net.about.get("counted", COUNTED_AS)
        plane = route.part.usable.plane
        is_counted = net.place_plane == plane
        if (counted_plane := plane_counted_as.get(plane)) is not None:
            is_counted |= net.place_plane == counted_plane
        for link_place in (net.leaves[links], net.enters[links]):
            has_place = link_place >= 0
            place_index, place_count = link_place[has_place], place_bytes.size
            all_bytes = np.bincount(place_index, link_bytes[has_place], place_count)
            in_node_bytes = np.bincount(place_index, near_bytes[has_place], place_count)
            place_bytes += np.where(is_counted, all_bytes, in_node_bytes)
    places, is_loaded = np.flatnonzero(place_bytes), weighted_bytes > 0.0
    return Load(
        Pattern(links[is_loaded], weighted_bytes[is_loaded], places, place_bytes[places]),
        latency_s=longest_latency_s,
        off_node=off_node_bytes / total_bytes if total_bytes > 0.0 else 0.0,
        unreached=tuple(unreached_pairs),
        collisions=tuple((r.part.usable.plane, r.collision) for r in routes if r.collision.flows),
    )


COUNTED_AS = {"host": "rdma"}  # plane of a demand -> plane its bytes are counted on


def _planes_of(net: Network, demand: Demand) -> list[tuple[str, bool | None]]:
    """List of (plane, same_domain): the planes that carry pairs of a demand. same_domain: True if
    the plane carries pairs within one scale-up domain, False: pairs of two domains, None: all."""
    near_plane, far_plane = demand.planes[0], demand.planes[-1]
    if near_plane == far_plane:
        return [(near_plane, None)]
    sides = demand.senders, demand.receivers
    out_domains, in_domains = (set(net.domain[list(ends)]) for ends in sides)
    planes: list[tuple[str, bool | None]] = [(near_plane, True)] if out_domains & in_domains else []
    return [*planes, (far_plane, False)] if len(out_domains | in_domains) > 1 else planes


def _reverse_links(net: Network) -> INTS | None:
    """Number of each link's reverse, i8[links]; None if routing distinguishes any link from it."""
    reverse = net.links_between(net.head, net.tail)
    is_alike = (net.link_prints == net.link_prints[reverse]) & (net.serves == net.serves[reverse])
    return reverse if (is_alike & (reverse >= 0)).all() else None


def _route(net: Network, demand: Demand, plane: str, same_domain: bool | None) -> Route:
    """Bytes of a demand on a plane's links; links near its ends are tried first. Demands with very
    many receivers may be routed in reverse. same_domain: True for pairs within one scale-up domain,
    False for pairs of two domains, None for all."""
    sent, received = np.zeros((2, len(net.vertices)))
    sent[list(demand.senders)], received[list(demand.receivers)] = demand.out, demand.into
    reverse_links = None
    if len(demand.receivers) > max(WIDE, len(demand.senders)) and net.routing(plane) == "adaptive":
        reverse_links = net.once("opposite", lambda: _reverse_links(net))
    if reverse_links is not None:
        sent, received = received, sent
    usable = Usable(net, plane, sent, received)
    quotients = (
        Quotient(usable, same_domain, *link_set) for link_set in usable.link_sets(same_domain)
    )
    routes = (candidate.route(demand.operation, demand.flows) for candidate in quotients)
    route = next(filter(None, routes))  # all links reach far enough
    if reverse_links is None:
        return route
    reversed_pairs = [(receiver, sender) for sender, receiver in route.apart]
    return replace(route, links=reverse_links[route.links], apart=reversed_pairs)
