"""Which flows there are in a deployment, and which links they may meet on.

Numbers follow the columns (instances, prefill first, then decode or colocated): exchange of each
column; memory pool reads, memory pool writes and KV hand-off of each prefill instance; expert
weights moving into each column; what each prefill instance writes to the SSD tier. Links that only
one flow crosses are left out: they are in that flow's rate alone. Links that the same flows cross
in the same proportion count as one, and those that all flows together cannot fill as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twin.engine.build import pool_plane_of
from twin.engine.columns import Traffic
from twin.hardware import traffic as ways
from twin.hardware.fabric import Fabric
from twin.hardware.faults import dies_without
from twin.hardware.paths import Plane
from twin.hardware.ports import Ports, Share, Takes, port_table, shares
from twin.hardware.tables import FLOATS
from twin.scenario import Scenario

IDLE = 1e30  # bytes/s of a flow that is not there
TINY = 1e-9  # bytes/s of a link that is gone


@dataclass(frozen=True)
class Flow:
    """One class of an instance's traffic: who, what, and what it takes of the ports."""

    number: int
    traffic: str  # as in world.TRAFFIC
    role: str
    instance: int
    takes: Takes


@dataclass(frozen=True)
class Seat:
    """An instance as the flows see it."""

    role: str
    index: int
    column: int
    dies: tuple[int, ...]  # in service and alive
    pool_nodes: tuple[int, ...]  # whose DRAM holds its part of the memory pool


def flows_of(
    s: Scenario, fabric: Fabric, seats: Sequence[Seat], prefills: int, columns: int
) -> list[Flow]:
    """Every flow of the instances in service, on this fabric."""
    ports = port_table(fabric)
    plane = pool_plane_of(s)
    hand_off = s.deployment.kv_transfer_plane
    no_way = dies_without(fabric, hand_off)
    among = [die for seat in seats if seat.role == "decode" for die in seat.dies]
    among = [die for die in among if die not in no_way]
    written = _to_storage(ports)
    found = []

    def add(number: int, traffic: str, seat: Seat, takes: Takes) -> None:
        found.append(Flow(number, traffic, seat.role, seat.index, takes))

    for seat in seats:
        if not seat.dies:
            continue
        if len(seat.dies) > 1:
            exchange = ways.exchange_takes(fabric, ports, seat.dies)
            add(seat.column, "experts", seat, exchange)
            weights = ways.weights_takes(fabric, ports, seat.dies)
            add(columns + 3 * prefills + seat.column, "weights", seat, weights)
        if seat.role == "decode":
            continue
        at = columns + seat.index
        read = _from_pool(fabric, ports, seat, plane) if s.memory_pool.enabled else None
        if read is not None:
            add(at, "pool_read", seat, read)
            back = ways.store_takes(fabric, ports, seat.dies, plane, seat.pool_nodes)
            add(at + prefills, "pool_write", seat, back)
            if written is not None:
                add(2 * columns + 3 * prefills + seat.index, "ssd_write", seat, written)
        source = [die for die in seat.dies if die not in no_way]
        if seat.role == "prefill" and among and source:
            hand = ways.hand_off_takes(fabric, ports, source, among, hand_off)
            add(at + 2 * prefills, "kv_hand_off", seat, hand)
    return found


def _from_pool(fabric: Fabric, ports: Ports, seat: Seat, plane: Plane) -> Takes | None:
    """Reads of an instance from the memory pool; None when nothing of it can be reached."""
    if not ways.pool_sources(fabric, seat.dies, plane, seat.pool_nodes).size:
        return None
    takes = ways.pool_takes(fabric, ports, seat.dies, plane, seat.pool_nodes)
    return takes if takes.alone(ports)[0] > 0.0 else None


def _to_storage(ports: Ports) -> Takes | None:
    """Kept blocks lie evenly over the nodes, and each node writes its own to the SSD tier."""
    slot = ports.slots["dpu_out"]
    at = slot.start + np.flatnonzero(ports.capacity[slot] > 0.0)
    if not at.size:
        return None
    each = np.full(at.size, 1.0 / at.size)
    nothing = np.zeros((slot.stop - slot.start, ports.sub_planes))
    return Takes(at, each, each, nothing, nothing)


def from_storage(fabric: Fabric, dies: Sequence[int]) -> Takes | None:
    """What an instance's reads from the SSD tier take; None when no node reaches it.

    They come in through the DPUs of its own nodes; when none of these is left, through those of
    as many other dies.
    """
    ports = port_table(fabric)
    no_way = dies_without(fabric, "vpc")
    ends = [die for die in dies if die not in no_way]
    if not ends:
        ends = [die for die in range(len(ports.dies)) if die not in no_way][: len(dies)]
    return ways.storage_takes(fabric, ports, ends) if ends else None


def storage_shares(fabric: Fabric, seats: Sequence[Seat]) -> list[tuple[Seat, list[Share]]]:
    """Where bytes of the SSD tier go, by instance."""
    ports = port_table(fabric)
    found = [(s, from_storage(fabric, s.dies)) for s in seats if s.role != "decode" and s.dies]
    return [(seat, shares(ports, takes)) for seat, takes in found if takes is not None]


def _rounded(amounts: FLOATS) -> FLOATS:
    """To nine digits, so that ports that differ by rounding alone are alike."""
    part, power = np.frexp(amounts)
    return np.ldexp(np.round(part * 2.0**30) / 2.0**30, power)


def lay_out(flows: Sequence[Flow], ports: Ports, traffic: Traffic) -> None:
    """Write the flows as the solver reads them; what is under way stays as it was."""
    count = traffic.alone.size
    alone = np.full(count, IDLE)
    crossed: dict[int, list[tuple[int, float]]] = {}
    for flow in flows:
        alone[flow.number] = max(flow.takes.alone(ports)[0], 1.0)
        amounts = _rounded(flow.takes.amounts)
        for port, amount in zip(flow.takes.ports.tolist(), amounts.tolist(), strict=True):
            crossed.setdefault(port, []).append((flow.number, amount))
    merged: dict[tuple[tuple[int, float], ...], float] = {}
    for port, who in crossed.items():
        if len(who) > 1:
            key = tuple(who)
            capacity = float(ports.capacity[port])
            merged[key] = min(merged.get(key, capacity), capacity)
    # A link that all flows together could not fill holds nobody.
    parts = {
        key: [(f, amount * alone[f] / max(capacity, TINY)) for f, amount in key]
        for key, capacity in merged.items()
        if capacity <= 0.0 or sum(a * alone[f] for f, a in key) > capacity
    }
    rows: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    for link, found in enumerate(parts.values()):
        for f, part in found:
            rows[f].append((link, part))
    traffic.assign(
        alone=alone,
        most=np.zeros(count),
        level=np.zeros(count),
        load=np.zeros(len(parts)),
        scratch=np.zeros(len(parts)),
        held=np.ones(1, np.int64),  # look at everything at the next border
        **_both_ways(rows, len(parts)),
    )


def _both_ways(rows: list[list[tuple[int, float]]], links: int) -> dict[str, np.ndarray]:
    """Flows by link and links by flow, in compressed rows."""
    start = np.zeros(len(rows) + 1, np.int64)
    start[1:] = np.cumsum([len(r) for r in rows])
    of = np.array([link for r in rows for link, _ in r], np.int64)
    owner = np.array([f for f, r in enumerate(rows) for _ in r], np.int64)
    entries = np.argsort(of, kind="stable")
    link_start = np.zeros(links + 1, np.int64)
    link_start[1:] = np.cumsum(np.bincount(of, minlength=links))
    return {
        "start": start,
        "links": of,
        "parts": np.array([part for r in rows for _, part in r], np.float64),
        "link_start": link_start,
        "entries": entries,
        "owners": owner[entries],
    }
