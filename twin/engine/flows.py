"""Which flows there are in a deployment, and which links they may meet on.

Each class of traffic is a row of flows (`first_flows`), one per prefill (or colocated) instance or
one per column: instances, prefill first, then decode or colocated. Links that only one flow crosses
are left out: they are in that flow's rate alone. Links that the same flows cross in the same
proportion count as one, and those that all flows together cannot fill as none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from twin.engine.codes import NONE
from twin.engine.shared_links import Traffic
from twin.hardware import demands
from twin.hardware.faults import dies_without
from twin.hardware.flows import Load, Plane, mixed
from twin.hardware.network import Network
from twin.hardware.walks import FLOATS
from twin.model.fetch import pool_plane
from twin.model.offload import offloaded_share
from twin.scenario import Scenario

IDLE = 1e30  # bytes/s of a flow that is not there
TINY = 1e-9  # bytes/s of a link that is gone
SPARE = 1e-9  # how much more than a link flows may want in all before it holds them


def first_flows(prefills: int, columns: int) -> tuple[dict[str, int], int]:
    """Number of the first flow of each class after the exchange of every column; how many in all.
    expert weights move into columns; the rest is of prefill instances."""
    first, number = {}, columns
    for name in ("pool_read", "pool_write", "kv_hand_off", "weights", "ssd_write", "ssd_read"):
        first[name] = number
        number += columns if name == "weights" else prefills
    return first, number


@dataclass(frozen=True)
class Flow:
    """One class of an instance's traffic: who, what, and what it puts on the links."""

    number: int  # NONE: of traffic that takes no part in sharing links
    traffic: str  # as in codes.TRAFFIC
    role: str
    instance: int
    load: Load


@dataclass(frozen=True)
class Seat:
    """An instance as the flows see it."""

    role: str
    index: int
    column: int
    dies: tuple[int, ...]  # in service and alive
    pool_nodes: tuple[int, ...]  # whose DRAM holds its part of the memory pool


def flows_of(
    s: Scenario, net: Network, seats: Sequence[Seat], prefills: int, columns: int
) -> list[Flow]:
    """Every flow of the instances in service, on this network."""
    plane = pool_plane(s)
    hand_off = s.deployment.kv_transfer_plane
    no_way = dies_without(net, hand_off)
    among = [die for seat in seats if seat.role == "decode" for die in seat.dies]
    among = [die for die in among if die not in no_way]
    written = demands.to_storage(net)
    flows: list[Flow] = []
    first, _ = first_flows(prefills, columns)

    def add(traffic: str, seat: Seat, load: Load) -> None:
        row = seat.column if traffic in ("experts", "weights") else seat.index
        flows.append(Flow(first.get(traffic, 0) + row, traffic, seat.role, seat.index, load))

    for seat in seats:
        if not seat.dies:
            continue
        if len(seat.dies) > 1:
            exchange = demands.exchange(net, seat.dies)
            add("experts", seat, exchange)
            add("weights", seat, exchange)
        if seat.role == "decode":
            continue
        read = _from_pool(net, seat, plane) if s.memory_pool.enabled else None
        if read is not None:
            add("pool_read", seat, read)
            back = demands.pool(net, seat.dies, plane, seat.pool_nodes, "write")
            if back is not None:
                add("pool_write", seat, back[0])
            if written is not None:
                add("ssd_write", seat, written)
            cold = from_storage(net, seat.dies)
            if cold is not None:
                add("ssd_read", seat, cold)
        source = [die for die in seat.dies if die not in no_way]
        if seat.role == "prefill" and among and source:
            hand = demands.hand_off(net, source, among, hand_off)
            add("kv_hand_off", seat, hand)
    if offloaded_share(s.deployment):
        flows += _offloads(net, seats, no_way, hand_off)
    return flows


def _offloads(
    net: Network, seats: Sequence[Seat], no_way: frozenset[int], plane: str
) -> Iterator[Flow]:
    """Queries of each decode instance to all prefill dies and values back, half of the bytes each
    (to a few percent). They tell where bytes go: they hold nobody, and nobody holds them."""
    lend = [die for seat in seats if seat.role == "prefill" for die in seat.dies]
    lend = [die for die in lend if die not in no_way]
    for seat in seats:
        own = [die for die in seat.dies if die not in no_way]
        if seat.role == "decode" and own and lend:
            out = demands.hand_off(net, own, lend, plane)
            back = demands.hand_off(net, lend, own, plane)
            both = replace(
                out, places=np.concatenate((out.places, back.places)),
                placed=np.concatenate((out.placed, back.placed)),
            )  # fmt: skip
            yield Flow(NONE, "offload", seat.role, seat.index, both)


def _from_pool(net: Network, seat: Seat, plane: Plane) -> Load | None:
    """Reads of an instance from the memory pool; None when nothing of it can be reached."""
    reached = demands.pool(net, seat.dies, plane, seat.pool_nodes)
    return reached[0] if reached else None


def from_storage(net: Network, dies: Sequence[int]) -> Load | None:
    """What an instance's reads from the SSD tier put on the links; None: no node reaches it. They
    come in through the DPUs of its own nodes; when none of these is left, through those of as many
    other dies."""
    no_way = dies_without(net, "vpc")
    ends = [die for die in dies if die not in no_way]
    if not ends:
        ends = [die for die in range(net.dies.size) if die not in no_way][: len(dies)]
    return demands.from_storage(net, ends) if ends else None


def shares_of(net: Network, load: Load) -> FLOATS:
    """What each of `load.places` has of the bytes that leave (or enter) dies and CPUs in all. Each
    byte is counted on the plane that carries it between its ends, so the shares of a direction sum
    to 1. Links between the dies of an NPU count as none."""
    enters = np.array([net.places[i].direction == "in" for i in load.places], np.int64)
    total = np.bincount(enters, load.placed, 2)
    return np.asarray(load.placed / total[enters])


def _rounded(amounts: FLOATS) -> FLOATS:
    """To nine digits, so that links that differ by rounding alone are alike."""
    part, power = np.frexp(amounts)
    return np.asarray(np.ldexp(np.round(part * 2.0**30) / 2.0**30, power))


def lay_out(flows: Sequence[Flow], net: Network, traffic: Traffic) -> None:
    """Write the flows as the solver reads them; what is under way stays as it was. A flow at its
    rate alone takes a part of each of its links; links that all flows together cannot fill hold
    nobody, and those that the same flows take the same parts of count as one."""
    count = traffic.alone.size
    alone = np.full(count, IDLE)
    number, link, part = [], [], []
    for flow in flows:
        if flow.number == NONE:
            continue
        alone[flow.number] = rate = max(flow.load.alone(net)[0], 1.0)
        number.append(np.full(flow.load.links.size, flow.number))
        link.append(flow.load.links)
        capacity = np.maximum(net.capacity[flow.load.links], TINY)
        part.append(_rounded(flow.load.amounts * rate / capacity))
    numbers, links, parts = (
        np.concatenate(x) if x else np.zeros(0, t)
        for x, t in ((number, np.int64), (link, np.int64), (part, np.float64))
    )
    full = np.bincount(links, parts, net.capacity.size) > 1.0 + SPARE
    shared = full & (np.bincount(links, minlength=net.capacity.size) > 1)
    kept = shared[links]
    numbers, links, parts = numbers[kept], links[kept], parts[kept]
    alike = np.zeros(net.capacity.size, np.uint64)  # equal for links that the same flows take
    np.add.at(alike, links, mixed(mixed(numbers.view(np.uint64)) + parts.view(np.uint64)))
    _, first = np.unique(alike[np.flatnonzero(shared)], return_index=True)
    row_of = np.full(net.capacity.size, -1)
    row_of[np.flatnonzero(shared)[first]] = np.arange(first.size)
    rows: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    some = row_of[links] >= 0
    for f, row, x in zip(
        numbers[some].tolist(), row_of[links[some]].tolist(), parts[some].tolist(), strict=True
    ):
        rows[f].append((row, x))
    traffic.assign(
        alone=alone,
        wish=np.minimum(traffic.pace / alone, 1.0),
        most=np.zeros(count),
        level=np.zeros(count),
        load=np.zeros(first.size),
        scratch=np.zeros(first.size),
        held=np.ones(1, np.int64),  # look at everything at the next border
        **_both_ways(rows, first.size),
    )


def _both_ways(rows: list[list[tuple[int, float]]], links: int) -> dict[str, np.ndarray]:
    """Flows by link and links by flow, in compressed rows."""
    start = np.zeros(len(rows) + 1, np.int64)
    start[1:] = np.cumsum([len(r) for r in rows])
    of = np.array([link for r in rows for link, _ in r], np.int64)
    owner = np.array([f for f, r in enumerate(rows) for _ in r], np.int64)
    parts = np.array([part for r in rows for _, part in r], np.float64)
    by_link = np.argsort(of, kind="stable")
    link_start = np.zeros(links + 1, np.int64)
    link_start[1:] = np.cumsum(np.bincount(of, minlength=links))
    return {
        "start": start,
        "links": of,
        "parts": parts,
        "link_start": link_start,
        "owners": owner[by_link],
        "owner_parts": parts[by_link],
    }
