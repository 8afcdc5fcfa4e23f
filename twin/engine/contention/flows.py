"""Which flows there are in a deployment, and which links they may meet on.

Each class of traffic is a row of flows (`numbers_of`): one per instance, or one per instance that
computes prompts. Links that only one flow crosses
are left out: they are in that flow's rate alone. Links that the same flows cross in the same
proportion count as one, and those that all flows together cannot fill as none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twin.engine import codes as w
from twin.engine.contention.shared_links import Traffic
from twin.hardware import demands
from twin.hardware.faults import dies_without
from twin.hardware.flows import Load, mixed
from twin.hardware.network import Network
from twin.hardware.walks import BOOLS, FLOATS, INTS
from twin.model.fetch import pool_plane
from twin.scenario import Scenario, offloaded_share

IDLE = 1e30  # bytes/s of a flow that is not there
TINY = 1e-9  # bytes/s of a link that is gone
SPARE = 1e-9  # how much more than a link flows may want in all before it holds them


def numbers_of(prefills: int, columns: int) -> tuple[INTS, INTS]:
    """First flow of each class of traffic and the one behind its last, both i8[classes]; equal for
    a class that takes no part."""
    first, end = np.zeros((2, len(w.TRAFFIC)), np.int64)
    number = 0
    for kind in w.FLOWS:
        first[kind] = number
        number += columns if kind in w.PER_INSTANCE else prefills
        end[kind] = number
    return first, end


@dataclass(frozen=True)
class Flow:
    """One class of an instance's traffic: who, what, and what it puts on the links."""

    number: int  # NONE: of traffic that takes no part in sharing links
    kind: int  # class of traffic
    role: str
    instance: int
    load: Load
    sources: tuple[int, ...] = ()  # of reads: nodes whose memory servers are reached
    port: INTS | None = None  # of each link: place of the memory server whose port it is, -1: none
    beyond: BOOLS | None = None  # links that are not on the servers' side

    @property
    def traffic(self) -> str:
        """Name of its class."""
        return w.TRAFFIC[self.kind]

    def alone(self, net: Network) -> float:
        """Bytes/s without other flows, at least 1; of reads, only links beyond servers count."""
        rate = self.load.alone(net)[0]
        if self.beyond is not None and self.beyond.any():
            links = self.load.links[self.beyond]
            rate = float((net.capacity[links] / self.load.amounts[self.beyond]).min())
        return max(rate, 1.0)


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
    first, _ = numbers_of(prefills, columns)

    def add(kind: int, seat: Seat, load: Load, **reads: Any) -> None:
        row = seat.column if kind in w.PER_INSTANCE else seat.index
        number = int(first[kind]) + row
        flows.append(Flow(number, kind, seat.role, seat.index, load, **reads))

    for seat in seats:
        if not seat.dies:
            continue
        if len(seat.dies) > 1:
            exchange = demands.exchange(net, seat.dies)
            add(w.EXPERTS, seat, exchange)
            add(w.WEIGHTS, seat, exchange)
        if seat.role == "decode":
            continue
        wanted = s.memory_pool.enabled
        read = demands.pool(net, seat.dies, plane, seat.pool_nodes) if wanted else None
        if read is not None:
            load, sources = read
            node, side = demands.server_ports(net, load, plane)
            port = np.where(node >= 0, np.searchsorted(seat.pool_nodes, node), -1)
            reached = tuple(sources.tolist())
            add(w.POOL_READ, seat, load, sources=reached, port=port, beyond=~side)
            back = demands.pool(net, seat.dies, plane, seat.pool_nodes, "write")
            if back is not None:
                add(w.POOL_WRITE, seat, back[0])
            if written is not None:
                add(w.SSD_WRITE, seat, written)
            cold = from_storage(net, seat.dies)
            if cold is not None:
                add(w.SSD_READ, seat, cold)
        source = [die for die in seat.dies if die not in no_way]
        if seat.role == "prefill" and among and source:
            hand = demands.hand_off(net, source, among, hand_off)
            add(w.KV_HAND_OFF, seat, hand)
    if offloaded_share(s):
        flows += _offloads(net, seats, no_way, hand_off)
    return flows


def _offloads(
    net: Network, seats: Sequence[Seat], no_way: frozenset[int], plane: str
) -> Iterator[Flow]:
    """Queries of each decode instance to all prefill dies and values back, half of the bytes each
    (to a few percent). They only say where bytes go: they take no part in sharing."""
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
            yield Flow(w.NONE, w.OFFLOAD, seat.role, seat.index, both)


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
    rate alone takes a part of each of its links; links that all flows together cannot fill are
    left out, and those that the same flows take the same parts of count as one. A memory server's
    port stays by itself: what a batch takes of it hangs on where its blocks lie."""
    count, size = traffic.alone.size, net.capacity.size
    alone = np.full(count, IDLE)
    crossings = [np.zeros((5, 0))]
    for flow in flows:
        if flow.number == w.NONE:
            continue
        alone[flow.number] = rate = flow.alone(net)
        load = flow.load
        part = _rounded(load.amounts * rate / np.maximum(net.capacity[load.links], TINY))
        port = np.full(part.size, -1) if flow.port is None else flow.port
        most = np.where(port < 0, part, part * len(flow.sources))
        crossings.append(np.stack([np.full(part.size, flow.number), load.links, port, part, most]))
    numbers, links, ports, parts, most = np.concatenate(crossings, axis=1)
    numbers, links = numbers.astype(np.int64), links.astype(np.int64)
    shared = np.bincount(links, most, size) > 1.0 + SPARE
    shared &= (np.bincount(links, minlength=size) > 1) | (np.bincount(links, ports >= 0, size) > 0)
    alike = np.zeros(size, np.uint64)  # equal for links that the same flows take
    same = mixed(numbers.view(np.uint64)) + (parts + (ports + 1.0)).view(np.uint64)
    np.add.at(alike, links, mixed(same))
    _, first = np.unique(alike[np.flatnonzero(shared)], return_index=True)
    row_of = np.full(size, -1)
    row_of[np.flatnonzero(shared)[first]] = np.arange(first.size)
    some = row_of[links] >= 0
    rows: list[list[tuple[int, ...]]] = [[] for _ in range(count)]
    for f, *crossing in zip(
        *(x[some].tolist() for x in (numbers, row_of[links], ports, parts, most)), strict=True
    ):
        rows[f].append(tuple(crossing))
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


def _both_ways(rows: list[list[tuple[int, ...]]], links: int) -> dict[str, np.ndarray]:
    """Flows by link and links by flow, in compressed rows; a crossing is a link, the memory server
    whose port it is, the part that the flow takes of it, and the most that it could."""
    start = np.zeros(len(rows) + 1, np.int64)
    start[1:] = np.cumsum([len(r) for r in rows])
    crossings = np.array([x for r in rows for x in r]).reshape(-1, 4).T
    of = crossings[0].astype(np.int64)
    owner = np.repeat(np.arange(len(rows)), np.diff(start))
    by_link = np.argsort(of, kind="stable")
    link_start = np.zeros(links + 1, np.int64)
    link_start[1:] = np.cumsum(np.bincount(of, minlength=links))
    return {
        "start": start,
        "links": of,
        "server": crossings[1].astype(np.int32),
        "parts": crossings[2],
        "whole": crossings[3],
        "link_start": link_start,
        "owners": owner[by_link],
        "owner_parts": crossings[2][by_link],
        "place": np.argsort(by_link, kind="stable"),
    }
