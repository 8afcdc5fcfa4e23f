"""The machine as one graph: dies, CPUs, switch chips and the links between them.

`build_fabric(supernode, facts)` gives a frozen networkx graph. A vertex is an element with a name
that people use ("die 20.1.0": node 20, NPU 1, die 0; "L1 20.3": node 20, sub-plane 3;
"L2 3.12": sub-plane 3, chip 12). An edge has `capacity_bytes_per_s` and `latency_s` of *one
direction*, its `plane` ("ub", "rdma" or "vpc"), its `kind`, its `sub_plane` (None off the UB
plane) and how many physical `links` it bundles. The same links stand beside the graph as arrays
(hardware/tables.py), made with it, so an edited fabric gives edited answers: change a fabric with
`edited` only, never its edges in place.

Several supernodes are one graph: nodes number through, each supernode has L2 chips of its own
("L2 1:3.12" is of the second), and the RDMA and VPC networks join them.

What it does not know: traffic (routes.py), how switch chips queue, the paths inside the RDMA and
VPC networks (each is one non-blocking vertex), the CPUs' own full mesh (its bandwidth is not
published), and DRAM sizes. A machine whose scale-up plane is not UB is drawn with the same
elements: its first-level switch is "L1", its latencies are UB's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import networkx as nx
import numpy as np

from twin.facts import Facts
from twin.hardware.chip import HardwareError, load_chip
from twin.hardware.names import Edge, Fabric, die_name, members, name_index
from twin.hardware.tables import INTS, Tables, tables, wiring
from twin.scenario import Edit, Supernode

__all__ = [
    "Constants",
    "Edge",
    "Fabric",
    "build_fabric",
    "built",
    "constants",
    "die_name",
    "edited",
    "edits",
    "l2_chips_per_sub_plane",
    "links_between",
    "members",
]

MOST_BYTES_PER_S = 1e18  # beyond these an edit is a slip of the pen
MOST_LATENCY_S = 3600.0
MOST_LINKS = 1_000_000


@dataclass(frozen=True)
class Constants:
    """The figures of data/fabric.toml and of the chip that shape a fabric, SI units."""

    dies_per_npu: int
    cross_die_bytes_per_s: float
    cpu_bytes_per_s: float
    l2_step: int  # L2 chips of a sub-plane in one communication rack
    cpu_with_dpu: int
    hop_s: tuple[tuple[str, float], ...]  # link kind -> latency of one hop
    efficiency: tuple[tuple[str, float], ...]  # see routes.efficiency


def constants(supernode: Supernode, facts: Facts) -> Constants:
    """The constants of a supernode's fabric; a chip may replace the measured UB efficiencies."""
    chip = load_chip(facts, supernode.chip)
    efficiency = {name: fact.si for name, fact in facts.group("fabric.efficiency").items()}
    own = f"chips.{chip.name}.link_efficiency"
    if own in facts:
        efficiency |= dict.fromkeys(("npu_read", "cpu_read", "write"), facts.si(own))
    return Constants(
        dies_per_npu=chip.dies_per_npu,
        cross_die_bytes_per_s=chip.cross_die_bytes_per_s,
        cpu_bytes_per_s=facts.si("fabric.wiring.cpu_ub_bandwidth"),
        l2_step=int(facts["fabric.wiring.l2_chips_per_rack_and_sub_plane"].value),
        cpu_with_dpu=int(facts["fabric.wiring.cpu_with_dpu"].value),
        hop_s=tuple((name, fact.si) for name, fact in facts.group("fabric.hop").items()),
        efficiency=tuple(sorted(efficiency.items())),
    )


def build_fabric(supernode: Supernode, facts: Facts) -> Fabric:
    """The frozen graph of a supernode with its edits; equal supernodes share one graph.

    Raises HardwareError when the wiring cannot reach every node, or an edit names what is not
    there.
    """
    known = constants(supernode, facts)
    return _with_edits(supernode, known) if supernode.edits else _build(supernode, known)


@lru_cache(maxsize=16)
def _with_edits(s: Supernode, c: Constants) -> Fabric:
    bare = _build(s.model_copy(update={"edits": ()}), c)
    return edited(bare, edits=s.edits, supernode=s)


@lru_cache(maxsize=8)
def _build(s: Supernode, c: Constants) -> Fabric:
    chips = l2_chips_per_sub_plane(s, c.l2_step)
    links = s.all_nodes * (
        s.npus_per_node * c.dies_per_npu * (s.sub_planes + 2) + s.sub_planes * (4 + chips)
    )
    if links > MOST_LINKS:
        raise HardwareError(
            f"a machine of some {links:,} links is too large to be held as a graph: take fewer "
            f"nodes, NPUs, sub-planes or supernodes, for at most {MOST_LINKS:,} links"
        )
    host = min(c.cpu_with_dpu, s.cpus_per_node - 1)
    graph = nx.Graph()
    graph.graph.update(
        supernode=s,
        constants=c,
        dies_per_npu=c.dies_per_npu,
        l2_chips_per_sub_plane=chips,
        cpu_with_dpu=host,
        write_extra_s=dict(c.hop_s)["write_extra"],
        efficiency=dict(c.efficiency),
    )
    graph.add_nodes_from(_vertices(s, c, chips))
    graph.add_edges_from(_ub_edges(s, c, chips))
    graph.add_edges_from(_rdma_edges(s, c))
    graph.add_edges_from(_vpc_edges(s, c))
    made = wiring(graph, s, c.dies_per_npu, chips, host)
    graph.graph["dies"] = tuple(v for v, kind in graph.nodes(data="kind") if kind == "die")
    graph.graph["names"] = name_index(graph)
    graph.graph["tables"] = Tables(made, made.capacity, made.latency)
    return nx.freeze(graph)


def l2_chips_per_sub_plane(s: Supernode, step: int) -> int:
    """L2 switch chips a sub-plane needs: the paper's rule (section 3.3.3, Table 11).

    Enough ports for every L1 uplink, in whole communication racks (`step` chips of each
    sub-plane), but never more chips than an L1 chip has uplinks, for each L1 chip must reach
    every L2 chip of its sub-plane. 0 when nothing lies beyond the node.
    """
    if s.scale_up == "node" or s.nodes == 1:
        return 0
    if s.nodes > s.l2_ports_per_chip:
        raise HardwareError(
            f"supernode.nodes = {s.nodes} is more than an L2 switch chip has ports "
            f"({s.l2_ports_per_chip}, one a node): nodes {s.l2_ports_per_chip} to {s.nodes - 1} "
            f"could not be reached; take at most {s.l2_ports_per_chip} nodes, chips with "
            f"{s.nodes} ports, or scale_up = node"
        )
    needed = math.ceil(s.nodes * s.l1_uplinks / s.l2_ports_per_chip)
    return min(step * math.ceil(needed / step), s.l1_uplinks)


def _vertices(s: Supernode, c: Constants, chips: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for n in range(s.all_nodes):
        home = {"supernode": n // s.nodes, "node": n}
        for i in range(s.npus_per_node):
            for d in range(c.dies_per_npu):
                yield f"die {n}.{i}.{d}", {"kind": "die", **home, "npu": i, "die": d}
                yield f"NIC {n}.{i}.{d}", {"kind": "nic", **home, "npu": i, "die": d}
        for i in range(s.cpus_per_node):
            yield f"CPU {n}.{i}", {"kind": "cpu", **home, "index": i}
        for p in range(s.sub_planes):
            yield f"L1 {n}.{p}", {"kind": "l1", **home, "sub_plane": p}
        yield f"Qingtian {n}", {"kind": "qingtian", **home}
    for g in range(s.supernodes):
        for p in range(s.sub_planes):
            for i in range(chips):
                at = {"supernode": g, "sub_plane": p, "index": i}
                yield l2_name(g, p, i), {"kind": "l2", **at}
    yield "RDMA network", {"kind": "rdma"}
    yield "VPC network", {"kind": "vpc"}


def l2_name(supernode: int, sub_plane: int, index: int) -> str:
    """Name of an L2 chip: "L2 3.12" in the first supernode, "L2 1:3.12" in the second."""
    return f"L2 {supernode}:{sub_plane}.{index}" if supernode else f"L2 {sub_plane}.{index}"


def _link(
    kind: str, plane: str, capacity: float, latency_s: float, sub_plane: int | None = None,
    links: int = 1,
) -> dict[str, Any]:  # fmt: skip
    return {
        "kind": kind,
        "plane": plane,
        "capacity_bytes_per_s": capacity,
        "latency_s": latency_s,
        "sub_plane": sub_plane,
        "links": links,
    }


def _ub_edges(s: Supernode, c: Constants, chips: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    hop = dict(c.hop_s)
    link = s.ub_link_gb_per_s * 1e9
    for n in range(s.all_nodes):
        for i in range(s.npus_per_node):
            for d in range(c.dies_per_npu):
                for e in range(d + 1, c.dies_per_npu):
                    yield (
                        f"die {n}.{i}.{d}",
                        f"die {n}.{i}.{e}",
                        _link("die-die", "ub", c.cross_die_bytes_per_s, hop["cross_die"]),
                    )
                for p in range(s.sub_planes):
                    yield (
                        f"die {n}.{i}.{d}",
                        f"L1 {n}.{p}",
                        _link("die-L1", "ub", link, hop["die_l1"], p),
                    )
        for i in range(s.cpus_per_node):
            for p in range(s.sub_planes):
                yield (
                    f"CPU {n}.{i}",
                    f"L1 {n}.{p}",
                    _link("CPU-L1", "ub", c.cpu_bytes_per_s / s.sub_planes, hop["cpu_l1"], p),
                )
        for i, links in _dealt(n % s.nodes, s.l1_uplinks, chips):
            for p in range(s.sub_planes):
                yield (
                    f"L1 {n}.{p}",
                    l2_name(n // s.nodes, p, i),
                    _link("L1-L2", "ub", links * link, hop["l1_l2"], p, links),
                )


def _dealt(node: int, uplinks: int, chips: int) -> list[tuple[int, int]]:
    """(L2 chip, links) of one node's L1 chip: links dealt round, going on where the last ended.

    So every chip gets its fair number of ports used, and every L1 chip reaches every L2 chip.
    """
    if not chips:
        return []
    each, rest = divmod(uplinks, chips)
    more = {(node * uplinks + k) % chips for k in range(rest)}
    return [(i, each + (i in more)) for i in range(chips) if each or i in more]


def _rdma_edges(s: Supernode, c: Constants) -> Iterator[tuple[str, str, dict[str, Any]]]:
    capacity = s.rdma_gb_per_s_per_npu * 1e9 / c.dies_per_npu
    hop_s = dict(c.hop_s)["rdma"]
    for n in range(s.all_nodes):
        for i in range(s.npus_per_node):
            for d in range(c.dies_per_npu):
                nic = f"NIC {n}.{i}.{d}"
                yield f"die {n}.{i}.{d}", nic, _link("die-NIC", "rdma", capacity, hop_s)
                yield nic, "RDMA network", _link("NIC-RDMA", "rdma", capacity, hop_s)


def _vpc_edges(s: Supernode, c: Constants) -> Iterator[tuple[str, str, dict[str, Any]]]:
    capacity = s.vpc_gb_per_s_per_node * 1e9
    hop = dict(c.hop_s)
    host = min(c.cpu_with_dpu, s.cpus_per_node - 1)
    for n in range(s.all_nodes):
        dpu = f"Qingtian {n}"
        yield f"CPU {n}.{host}", dpu, _link("CPU-Qingtian", "vpc", capacity, hop["cpu_dpu"])
        yield dpu, "VPC network", _link("Qingtian-VPC", "vpc", capacity, hop["dpu_vpc"])


def edited(
    fabric: Fabric,
    *,
    remove: Iterable[str] = (),
    capacity: Mapping[Edge, float] | None = None,
    scale: Mapping[str, float] | None = None,
    latency: Mapping[str, float] | None = None,
    edits: Iterable[Edit] = (),
    supernode: Supernode | None = None,
) -> Fabric:
    """A frozen copy with elements removed or links changed; the original stays as it is.

    `capacity` sets bytes/s of single edges; `scale` and `latency` multiply the capacity and the
    latency of every link at an element ("sub-plane 3": 0.5); `edits` are a scenario's, applied in
    order, their factors multiplying what they find; `remove` names elements (see `members`). A
    link of capacity 0 is gone. The vertex order, and with it the numbering of dies, is kept: a
    removed die keeps its number without links. `supernode` is what the copy says it was built
    from (default: as before). Raises HardwareError when a name or a link is not there.
    """
    t = tables(fabric)
    rates, waits = t.capacity.copy(), t.latency.copy()
    for (a, b), bytes_per_s in (capacity or {}).items():
        rates[links_between(fabric, a, b)] = float(bytes_per_s)
    for name, factor in (scale or {}).items():
        rates[links_between(fabric, name)] *= factor
    for name, factor in (latency or {}).items():
        waits[links_between(fabric, name)] *= factor
    for edit in edits:
        at = links_between(fabric, edit.element, edit.to)
        rates[at] *= edit.capacity_factor
        waits[at] *= edit.latency_factor
        _refuse_absurd(rates[at], waits[at], edit.element)
    for name in remove:
        rates[links_between(fabric, name)] = 0.0
    _refuse_absurd(rates, waits, "an edit")
    return _copy(fabric, Tables(t.wiring, rates, waits), supernode)


def _refuse_absurd(rates: Any, waits: Any, what: str) -> None:
    fits = (rates >= 0.0) & (rates <= MOST_BYTES_PER_S) & (waits >= 0.0) & (waits <= MOST_LATENCY_S)
    if not fits.all():
        raise HardwareError(
            f"{what} gives a link less than 0 or more than {MOST_BYTES_PER_S:g} bytes/s, or a "
            f"latency beyond {MOST_LATENCY_S:g} s: use factors nearer to 1"
        )


def links_between(fabric: Fabric, element: str, to: str = "") -> INTS:
    """Numbers of the links as built at an element, or of those that join it with `to`.

    Either may be a group ("NPU 20.1"). Raises HardwareError when there is none.
    """
    made = tables(fabric).wiring
    here = members(fabric, element)
    found = np.unique(np.concatenate([made.at[v] for v in here]))
    if to:
        mine, other = set(here), set(members(fabric, to))
        joins = [_crosses(made.edges[i], mine, other) for i in found.tolist()]
        found = found[np.array(joins, bool)]
    if not found.size:
        raise HardwareError(
            f"no link joins {element} and {to}: name the two ends of one link, such as L1 20.3 "
            "and L2 3.12"
        )
    return found


def _crosses(edge: Edge, mine: set[str], other: set[str]) -> bool:
    a, b = edge
    return (a in mine and b in other) or (b in mine and a in other)


def _copy(fabric: Fabric, now: Tables, supernode: Supernode | None) -> Fabric:
    """A graph with other links; whatever did not change is shared with the original."""
    before = tables(fabric)
    graph = nx.Graph()
    graph.graph.update(fabric.graph, tables=now)
    graph.graph.pop("ports", None)
    if supernode is not None:
        graph.graph["supernode"] = supernode
    graph._node = fabric._node
    rows = dict(fabric._adj)
    own = set()
    differ = (now.capacity != before.capacity) | (now.latency != before.latency)
    for i in np.flatnonzero(differ).tolist():
        a, b = now.wiring.edges[i]
        for end in (a, b):
            if end not in own:
                own.add(end)
                rows[end] = dict(rows[end])
        if now.capacity[i] > 0.0:
            rows[a][b] = rows[b][a] = {
                **now.wiring.data[i],
                "capacity_bytes_per_s": float(now.capacity[i]),
                "latency_s": float(now.latency[i]),
            }
        else:
            rows[a].pop(b, None)
            rows[b].pop(a, None)
    graph._adj = rows
    return nx.freeze(graph)


def built(fabric: Fabric) -> Fabric:
    """The fabric as built, before any edit."""
    s: Supernode = fabric.graph["supernode"]
    return _build(s.model_copy(update={"edits": ()}), fabric.graph["constants"])


def edits(fabric: Fabric) -> dict[Edge, float]:
    """Links whose capacity differs from the fabric as built: bytes/s now, 0 when removed."""
    t = tables(fabric)
    differ = np.flatnonzero(t.capacity != t.wiring.capacity)
    return {t.wiring.edges[i]: float(t.capacity[i]) for i in differ.tolist()}
