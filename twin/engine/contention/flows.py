"""Which flows there are in a deployment, and which links they may meet on.

Each class of traffic is a row of flows (`number_flows`): one per instance, or one per instance that
computes prompts. Links that only one flow crosses
are left out: they are in that flow's rate alone. Links that the same flows cross in the same
proportion count as one, and those that all flows together cannot fill as none."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from twin.engine import codes as w
from twin.engine.contention.shared_links import Traffic
from twin.hardware import demands
from twin.hardware.faults import dies_without_path
from twin.hardware.flows import Changes, Load, Operation, Pattern
from twin.hardware.network import Network, cached_answer
from twin.hardware.quotient import mix64
from twin.hardware.walks import BOOLS, FLOATS, INTS
from twin.scenario import Scenario, copies_kv, offloaded_share

T = TypeVar("T")

DIRECTIONS: tuple[Operation, ...] = ("read", "write")  # of host memory: back, and out
IDLE = 1e30  # bytes/s of a flow that is not there
TINY = 1e-9  # bytes/s of a link that is gone
# Columns that begin at zero when flows are laid out.
OF_LINKS = (
    "load", "touched", "is_touched", "full", "group_links", "in_group_links", "rest", "full_at",
    "outdated", "scratch",
)  # fmt: skip
OF_FLOWS = ("is_listed", "group_flows", "in_group_flows", "near_end", "bound", "stopped")
SPARE = 1e-9  # how much more than a link flows may want in all before it holds them


def number_flows(
    prefills: int, columns: int, swaps: bool, exchanges: int = 0, others: int | None = None
) -> tuple[INTS, INTS]:
    """(number of the first flow, number after the last flow) of each class of traffic, i8[classes]
    each. prefills: number of instances that compute prompts; columns: number of all instances;
    swaps: whether KV is swapped. exchanges, others: where the numbers of exchanges and of other
    flows begin; others None: directly after the exchanges."""
    first_flow_of_kind, end_flow_of_kind = np.zeros((2, len(w.TRAFFIC)), np.int64)
    next_flow_number = exchanges
    for kind in w.FLOWS:
        first_flow_of_kind[kind] = next_flow_number
        if swaps or kind != w.SWAP:
            next_flow_number += columns if kind in w.PER_INSTANCE else prefills
        end_flow_of_kind[kind] = next_flow_number
        if kind == w.EXPERTS and others is not None:
            next_flow_number = others
    return first_flow_of_kind, end_flow_of_kind


@dataclass(frozen=True, eq=False)
class Flow:
    """One class of an instance's traffic and its load on links."""

    number: int  # NONE: of traffic that takes no part in sharing links
    kind: int  # class of traffic
    role: str
    instance: int
    load: Load
    sources: INTS = field(default_factory=lambda: np.zeros(0, np.int64))  # of reads: servers' nodes
    nodes: tuple[int, ...] = ()  # of reads: all nodes of the pool, by which servers are numbered
    port: BOOLS | None = None  # links of the load's pattern that are ports of memory servers
    beyond: BOOLS | None = None  # those that are not on the servers' side
    groups: INTS | None = None  # of swaps: 2 * node + direction of each link, which are the servers
    rate: float = 0.0  # of swaps: bytes/s of all groups together, without the ports of CPUs

    @property
    def traffic(self) -> str:
        """Name of the traffic class."""
        return w.TRAFFIC[self.kind]

    def alone_bytes_per_s(self, net: Network) -> float:
        """Bytes/s without other flows, at least 1; for reads, without limits at memory servers."""
        bytes_per_s = self.rate or self.load.rate_alone(net)[0]
        if self.beyond is not None and self.beyond.any():
            pattern = self.load.pattern
            bytes_per_s = float((net.capacity[pattern.links] / pattern.amounts)[self.beyond].min())
        return max(bytes_per_s, 1.0)


@dataclass(frozen=True)
class Coming:
    """Weights in transfer to an instance: from object storage to nodes, or from DRAM to dies."""

    stored: bool
    dies: tuple[int, ...]
    nodes: tuple[int, ...] | None = None  # whose DRAM sends them; None: of all


@dataclass(frozen=True)
class Seat:
    """An instance as flows need it: role, number and dies."""

    role: str
    index: int
    column: int
    dies: tuple[int, ...]  # in service and alive
    pool_nodes: tuple[int, ...]  # whose DRAM holds its part of the memory pool
    coming: Coming | None = None  # weights from beyond its dies; else they move among these
    supernode: int = 0  # behind a front router: no KV crosses from one to another


def flows_of(s: Scenario, net: Network, seats: Sequence[Seat], first: INTS) -> list[Flow]:
    """All flows of serving instances (seats); first i8[classes]: first number of each class."""
    pool, kv_plane = s.memory_pool, s.deployment.kv_transfer_plane
    plane, cut_dies = pool.read_plane, dies_without_path(net, kv_plane)
    decode_dies: dict[int, list[int]] = {seat.supernode: [] for seat in seats}
    pool_nodes: dict[int, set[int]] = {seat.supernode: set() for seat in seats}
    for seat in seats:
        pool_nodes[seat.supernode].update(seat.pool_nodes)
        if seat.role == "decode":
            decode_dies[seat.supernode] += [die for die in seat.dies if die not in cut_dies]
    ssd_write_load = demands.storage_write(net)
    flows: list[Flow] = []

    def add_flow(kind: int, seat: Seat, load: Load | None, **fields: Any) -> None:
        """Append an instance's flow of class `kind` if it has a load; fields: more of `Flow`."""
        place_in_class = seat.column if kind in w.PER_INSTANCE else seat.index
        if load is not None:
            flow_number = int(first[kind]) + place_in_class
            flows.append(Flow(flow_number, kind, seat.role, seat.index, load, **fields))

    for seat in seats:
        if seat.coming is not None:
            add_flow(w.WEIGHTS, seat, _weights_load(net, seat.coming, plane))
        if not seat.dies:
            continue
        if len(seat.dies) > 1:
            exchange_load = demands.exchange_load(net, seat.dies)
            add_flow(w.EXPERTS, seat, exchange_load)
            if seat.coming is None:
                add_flow(w.WEIGHTS, seat, exchange_load)
        if seat.role == "decode":
            nodes_of_pool = sorted(pool_nodes[seat.supernode])
            if pool.enabled and pool.answers and nodes_of_pool:
                answer_load = demands.pool_load(net, seat.dies, plane, nodes_of_pool, "write")
                if answer_load is not None:  # no share of bandwidth: a die writes some tens of MB/s
                    flows.append(Flow(w.NONE, w.POOL_WRITE, seat.role, seat.index, answer_load[0]))
            continue
        read_and_nodes = pool.enabled and demands.pool_load(net, seat.dies, plane, seat.pool_nodes)
        if read_and_nodes:
            read_load, server_nodes = read_and_nodes
            is_port, is_near_server = demands.server_ports(net, read_load.pattern, plane)
            add_flow(w.POOL_READ, seat, read_load, sources=server_nodes, nodes=seat.pool_nodes,
                port=is_port, beyond=~is_near_server)  # fmt: skip
            write_and_nodes = demands.pool_load(net, seat.dies, plane, seat.pool_nodes, "write")
            if write_and_nodes is not None:
                add_flow(w.POOL_WRITE, seat, write_and_nodes[0])
            add_flow(w.SSD_WRITE, seat, ssd_write_load)
            add_flow(w.SSD_READ, seat, storage_load(net, seat.dies))
        sending_dies = [die for die in seat.dies if die not in cut_dies]
        if seat.role == "prefill" and decode_dies[seat.supernode] and sending_dies:
            kv_load = demands.kv_load(net, sending_dies, decode_dies[seat.supernode], kv_plane)
            add_flow(w.KV_HAND_OFF, seat, kv_load)
    if copies_kv(s):
        flows += _swap_flows(net, seats, int(first[w.SWAP]))
    if offloaded_share(s):
        flows += _offload_flows(net, seats, cut_dies, kv_plane)
    return flows


def _weights_load(net: Network, coming: Coming, plane: str) -> Load | None:
    """Load on links of the weights `coming`; None without a path. plane: of weights from DRAM."""
    if coming.stored:
        return demands.memory_read(net, coming.dies) or storage_load(net, coming.dies)
    load_and_nodes = demands.pool_load(net, coming.dies, plane, coming.nodes)
    return load_and_nodes[0] if load_and_nodes is not None else None


def _swap_flows(net: Network, seats: Sequence[Seat], first: int) -> Iterator[Flow]:
    """Flows of KV between decoding dies and the memory of their nodes, numbered from `first`. The
    links of one node and direction form a group; each pass uses the groups by its bytes. Here the
    bytes are spread evenly over all dies, equal in both directions."""
    for seat in seats:
        nodes = tuple(net.nodes_of(seat.dies)) if seat.role != "prefill" else ()
        weighted_loads, group_of_load, bytes_per_s = list[tuple[Load, float]](), list[int](), 0.0
        for node_index, node in enumerate(nodes):
            node_dies = [die for die in seat.dies if net.node[net.dies[die]] == node]
            for is_out, operation in enumerate(DIRECTIONS):
                load_and_nodes = demands.pool_load(net, node_dies, "ub", (node,), operation)
                if load_and_nodes is not None:
                    weighted_loads.append((load_and_nodes[0], float(len(node_dies))))
                    group_of_load.append(2 * node_index + is_out)
                    bytes_per_s += _bytes_per_s_at_dies(net, load_and_nodes[0], node_dies)
        if weighted_loads:
            swap_load, load_of_link = _join_loads(weighted_loads)
            yield Flow(
                first + seat.column, w.SWAP, seat.role, seat.index, swap_load, nodes=nodes,
                sources=np.array(group_of_load), port=load_of_link >= 0, rate=bytes_per_s,
                groups=np.array(group_of_load)[load_of_link],
            )  # fmt: skip


def _bytes_per_s_at_dies(net: Network, load: Load, dies: Sequence[int]) -> float:
    """Bytes/s of a load that only the links at these dies limit, at least 1."""
    is_at_dies = np.isin([net.tail[load.links], net.head[load.links]], net.dies[dies]).any(axis=0)
    return max(float((net.capacity[load.links] / load.amounts)[is_at_dies].min()), 1.0)


def _join_loads(loads: Sequence[tuple[Load, float]]) -> tuple[Load, INTS]:
    """(load that moves equal parts of all loads, number of the load that each of its links belongs
    to, i8[links]). loads: each with a factor that multiplies its bytes at places."""
    links, amounts, places = (
        np.concatenate([getattr(load, field_name) for load, _ in loads])
        for field_name in ("links", "amounts", "places")
    )
    place_bytes = np.concatenate([factor * load.bytes_at_places for load, factor in loads])
    load_of_link = np.repeat(np.arange(len(loads)), [load.links.size for load, _ in loads])
    link_order, place_order = (np.argsort(keys, kind="stable") for keys in (links, places))
    pattern = Pattern(
        links[link_order], amounts[link_order] / len(loads), places[place_order],
        place_bytes[place_order],
    )  # fmt: skip
    joined_load = replace(loads[0][0], pattern=pattern, moved=Changes(), moved_places=Changes())
    return joined_load, load_of_link[link_order]


def _offload_flows(
    net: Network, seats: Sequence[Seat], cut_dies: frozenset[int], plane: str
) -> Iterator[Flow]:
    """Flows of offloaded attention between each decode instance and all prefill dies: queries out,
    values back, about half the bytes each, no shared links. cut_dies: dies without the plane."""
    lending_dies = [die for seat in seats if seat.role == "prefill" for die in seat.dies]
    lending_dies = [die for die in lending_dies if die not in cut_dies]
    for seat in seats:
        linked_dies = [die for die in seat.dies if die not in cut_dies]
        if seat.role == "decode" and linked_dies and lending_dies:
            query_load = demands.kv_load(net, linked_dies, lending_dies, plane)
            value_load = demands.kv_load(net, lending_dies, linked_dies, plane)
            exchange_load, _ = _join_loads([(query_load, 1.0), (value_load, 1.0)])
            yield Flow(w.NONE, w.OFFLOAD, seat.role, seat.index, exchange_load)


def storage_load(net: Network, dies: Sequence[int]) -> Load | None:
    """Load of an instance's reads from the SSD tier; None if no node reaches it. The bytes enter
    through the DPUs of its own nodes or, if none of these works, through those of other dies."""
    cut_dies = dies_without_path(net, "vpc")
    linked_dies = [die for die in dies if die not in cut_dies]
    if not linked_dies:
        linked_dies = [die for die in range(net.dies.size) if die not in cut_dies][: len(dies)]
    return demands.storage_read(net, linked_dies) if linked_dies else None


def shares_by_place(net: Network, load: Load, uneven: FLOATS | float = 1.0) -> FLOATS:
    """Share of each of `load.places` in the bytes that leave (or enter) dies and CPUs, f8[places].
    uneven: factor on the bytes of a place. A byte counts on the plane that it crosses, so the
    shares of a direction sum to 1. Links between the dies of an NPU count as no plane."""
    is_entering = net.place_ends[1][load.places]
    place_bytes = load.bytes_at_places * uneven
    return np.asarray(place_bytes / np.bincount(is_entering, place_bytes, 2)[is_entering])


def _round_amounts(amounts: FLOATS) -> FLOATS:
    """Amounts rounded to nine digits, so that links that differ only by rounding compare equal."""
    mantissa, exponent = np.frexp(amounts)
    return np.asarray(np.ldexp(np.round(mantissa * 2.0**30) / 2.0**30, exponent))


@dataclass(frozen=True, eq=False)
class _Family:
    """Flows whose loads have one pattern: equal amounts on corresponding links."""

    flows: list[Flow]
    pattern: Pattern
    rate: float  # bytes/s of each flow alone
    link_part: FLOATS  # part of each link of the pattern that a flow takes at that rate
    most_part: FLOATS  # the same if all is read from one memory server
    is_port: BOOLS  # whether the link is the port of a memory server
    link_class: BOOLS | INTS  # links of different classes are not alike

    def crossings(
        self, net: Network, row_of: INTS
    ) -> Iterator[tuple[int, INTS, NDArray[np.int32], FLOATS, FLOATS]]:
        """Yield (number of the flow, row of each of its links, memory server whose port the link is
        or -1, part of the link that the flow takes, that part if all is read from one server).
        Links are in order, without those that have no row (-1 in row_of i8[links])."""
        has_row = row_of[self.pattern.links] >= 0
        for flow in self.flows:
            is_crossed, moved_links = has_row.copy(), flow.load.moved
            is_crossed[moved_links.at] = row_of[moved_links.to] >= 0
            crossed_indices, links = np.flatnonzero(is_crossed), flow.load.links
            if moved_links.at.size:  # else they are in order
                crossed_indices = crossed_indices[np.argsort(links[crossed_indices], kind="stable")]
            server_of = np.full(crossed_indices.size, -1, np.int32)
            is_port = self.is_port[crossed_indices]
            if flow.groups is not None:
                server_of[:] = flow.groups[crossed_indices]
            elif is_port.any():
                port_nodes = net.node[net.tail[links[crossed_indices[is_port]]]]
                server_of[is_port] = np.searchsorted(flow.nodes, port_nodes)
            part_columns = self.link_part[crossed_indices], self.most_part[crossed_indices]
            yield flow.number, row_of[links[crossed_indices]], server_of, *part_columns

    def add_products(
        self, table: NDArray[Any], link_values: NDArray[Any], flow_values: NDArray[Any]
    ) -> None:
        """Add to `table` [links], f8 or u8, for each flow its value times the value of each link it
        crosses. link_values: by link of the pattern; flow_values: by flow."""
        table[self.pattern.links] += link_values * flow_values.sum()
        for flow, flow_value in zip(self.flows, flow_values, strict=True):
            moved_links = flow.load.moved
            table[self.pattern.links[moved_links.at]] -= link_values[moved_links.at] * flow_value
            table[moved_links.to] += link_values[moved_links.at] * flow_value


def _families(flows: Sequence[Flow], net: Network) -> Iterator[_Family]:
    """Yield flows with equal patterns of links together, one family at a time, to bound memory."""
    flows_by_key: dict[tuple[Pattern, bool, int], list[Flow]] = {}
    for flow in flows:
        if flow.number != w.NONE:
            family_key = flow.load.pattern, flow.port is None, len(flow.sources)
            flows_by_key.setdefault(family_key, []).append(flow)
    for family_flows in flows_by_key.values():
        first_flow, pattern = family_flows[0], family_flows[0].load.pattern
        bytes_per_s = first_flow.alone_bytes_per_s(net)
        link_capacity = np.maximum(net.capacity[pattern.links], TINY)
        link_part = _round_amounts(pattern.amounts * bytes_per_s / link_capacity)
        is_port = np.zeros(link_part.size, bool) if first_flow.port is None else first_flow.port
        one_server_factor: FLOATS | int = len(first_flow.sources)  # servers; of DRAM, by its size
        if first_flow.groups is None:  # of one server's DRAM
            cpus_of_node = np.maximum(net.cpus[net.node[net.tail[pattern.links]]], 1)
            one_server_factor = net.cpus[first_flow.sources].sum() / cpus_of_node
        most_part = np.where(is_port, link_part * one_server_factor, link_part)
        link_class = is_port if first_flow.groups is None else first_flow.groups + 1
        yield _Family(family_flows, pattern, bytes_per_s, link_part, most_part, is_port, link_class)


def _links_that_limit(flows: Sequence[Flow], net: Network) -> INTS:
    """Links on which flows limit each other; of links that the same flows cross in equal parts only
    one."""
    link_load, link_flows, link_ports = np.zeros((3, net.capacity.size))
    link_hash = np.zeros(net.capacity.size, np.uint64)  # equal for links that the same flows take
    for family in _families(flows, net):
        ones = np.ones(len(family.flows))
        family.add_products(link_load, family.most_part, ones)
        family.add_products(link_flows, np.ones(family.link_part.size), ones)
        family.add_products(link_ports, family.is_port.astype(np.float64), ones)
        flow_hashes = mix64(np.array([flow.number for flow in family.flows], np.uint64))
        class_codes = family.link_class.astype(np.uint64)
        part_hashes = mix64(family.link_part.view(np.uint64) + class_codes)
        family.add_products(link_hash, part_hashes, flow_hashes)
    shared_links = np.flatnonzero(
        (link_load > 1.0 + SPARE) & ((link_flows > 1.5) | (link_ports > 0.5))
    )
    node_hashes = mix64(net.node[net.tail[shared_links]].view(np.uint64) + np.uint64(7))
    equality_hashes = link_hash[shared_links] + node_hashes * (link_ports[shared_links] > 0.5)
    _, first_of_equals = np.unique(equality_hashes, return_index=True)
    return np.sort(shared_links[first_of_equals])


def can_meet(groups: Sequence[Sequence[Flow]], net: Network) -> bool:
    """Whether flows of several groups cross a link that all of them together can overload."""
    demand_by_group = np.zeros((len(groups), net.capacity.size))
    for demand_of_group, flows in zip(demand_by_group, groups, strict=True):
        for family in _families(flows, net):
            family.add_products(demand_of_group, family.most_part, np.ones(len(family.flows)))
    is_shared = (demand_by_group > SPARE).sum(axis=0) > 1
    return bool((is_shared & (demand_by_group.sum(axis=0) > 1.0 + SPARE)).any())


def lay_out(flows: Sequence[Flow], net: Network, *tables: Traffic) -> None:
    """Write the flows into the solver's columns; active flows stay active. tables: one of each
    model, all with the same columns. A flow at full rate takes a part of each of its links. Links
    that all flows together cannot fill are left out, and links with equal parts of the same flows
    count as one. A memory server's port stays separate: a batch's blocks decide its load."""
    traffic, *other_tables = tables
    links_by_flows = net.once("shared links", dict[Hashable, INTS])
    links = cached_answer(links_by_flows, tuple(flows), lambda: _links_that_limit(flows, net))
    row_of_link = np.full(net.capacity.size, -1)
    row_of_link[links] = np.arange(links.size)
    alone_bytes_per_s = np.full(traffic.alone.size, IDLE)
    no_values = np.zeros(0)
    crossings = [(-1, no_values.astype(np.int64), no_values.astype(np.int32), no_values, no_values)]
    for family in _families(flows, net):
        alone_bytes_per_s[[flow.number for flow in family.flows]] = family.rate
        crossings += family.crossings(net, row_of_link)
    crossings.sort(key=lambda crossing: crossing[0])
    flow_numbers, *columns = zip(*crossings, strict=True)
    flow_number_array = np.array(flow_numbers)
    crossing_counts = [link_rows.size for link_rows in columns[0]]
    link_rows, servers, link_parts, server_parts = (np.concatenate(column) for column in columns)
    del crossings, columns
    row_hashes = np.zeros(links.size, np.uint64)
    crossing_hashes = np.repeat(mix64(flow_number_array.view(np.uint64)), crossing_counts)
    crossing_hashes += (link_parts + (servers + 1.0)).view(np.uint64)
    np.add.at(row_hashes, link_rows, mix64(crossing_hashes))
    link_rows = np.argsort(np.argsort(row_hashes, kind="stable"), kind="stable")[link_rows]
    flow_count, link_count = alone_bytes_per_s.size, links.size
    first_crossings = _offsets(np.repeat(flow_number_array, crossing_counts), flow_count)
    first_of_link = _offsets(link_rows, link_count)
    solver_columns = dict(
        alone=alone_bytes_per_s, wish=np.minimum(traffic.pace / alone_bytes_per_s, 1.0),
        # As laid out, and now: until a batch says otherwise, reads are even over servers.
        start=first_crossings, way=link_rows, whole=server_parts, port=servers,
        end=first_crossings[1:].copy(), links=link_rows, parts=link_parts, server=servers.copy(),
        # Nothing is under way; look at everything at the next border.
        most=np.zeros(flow_count), level=np.zeros(flow_count), levels=np.zeros((2, flow_count)),
        held=np.ones(1), counts=np.array([flow_count, 0, 0, 0, 0, 0]),
        noted=np.arange(flow_count), is_noted=np.ones(flow_count), movers=np.zeros(flow_count),
        link_start=first_of_link, link_end=first_of_link[:-1].copy(),
        owners=np.zeros(link_rows.size), owner_parts=np.zeros(link_rows.size),
        **{name: np.zeros(link_count) for name in OF_LINKS},
        **{name: np.zeros(flow_count) for name in OF_FLOWS},
        near=np.zeros(link_rows.size), near_parts=np.zeros(link_rows.size),
    )  # fmt: skip
    traffic.assign(**solver_columns)
    for other_table in other_tables:
        other_table.assign(**{name: getattr(traffic, name) for name in solver_columns})


def _offsets(rows: INTS, count: int) -> INTS:
    """First index of each of `count` rows in sorted row numbers, then the end of the last."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
