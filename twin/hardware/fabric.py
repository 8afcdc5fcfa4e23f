"""The machine as one graph: dies, CPUs, switch chips and the links between them.

`build_fabric(supernode, facts)` gives a frozen networkx DiGraph; every price is read from it, so a
graph with other links is another machine. A vertex is an element with a name that people use
("die 20.1.0": node 20, NPU 1, die 0; "L1 20.3": node 20, sub-plane 3; "L2 3.12": sub-plane 3,
chip 12). Its attributes:

    kind      die (computes), cpu (offers its DRAM), nic, qingtian (DPU), or a switch: l1, l2, ...
    node, npu, die, index, sub_plane, supernode    its place, where it has one
    rack      name of the rack it stands in ("rack 3", "communication rack 1"), where it has one
    grid      its place in a mesh or torus, one integer a dimension, where it has one
    domain    the scale-up plane it is on: two ends of one domain reach each other over "ub",
              others over "rdma"
    forwards  the planes that it passes on, in words; ends forward none

An edge is one direction of a link, or of a bundle of `links` parallel ones:

    capacity_bytes_per_s, latency_s     of that direction; capacity 0: taken out
    kind, plane, sub_plane              what it is, and where its bytes are counted
    serves                              the planes whose paths may use it, in words
    read_efficiency, write_efficiency   share of the capacity that an operation reaches
    write_extra_s                       what a write takes longer, once a path

Planes are "ub" (scale-up), "rdma" (scale-out), "vpc" (storage), "package" (between the dies of an
NPU) and "host": the way of CPUs to what their UB plane does not reach, over the dies of their node
and these dies' NICs. Attributes of the graph: `beyond_node` (what the way out of a node leaves of
a UB rate), `routing` ("adaptive" or "ecmp"), `detour_hops`, `layout` (how it is best drawn: "racks"
of a hierarchy, "grid" of a mesh or torus, "block" of one switched domain, "free"), the supernode
and what it was built from.

Several supernodes are one graph: nodes number through, each supernode has L2 chips of its own
("L2 1:3.12" is of the second), and the RDMA and VPC networks join them. Change a fabric with
`edited`. What it does not know: traffic (flows.py), how switch chips queue, the paths inside the
RDMA and VPC networks (each is one non-blocking vertex), the CPUs' own full mesh (its bandwidth is
not published), and DRAM sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import networkx as nx
import numpy as np

from twin.facts import Facts
from twin.hardware.chip import HardwareError, load_chip
from twin.hardware.names import Edge, Fabric, die_name, members, name_index
from twin.hardware.network import CAPACITY, LATENCY, Network, Wiring, network, remember
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
    "members",
    "with_edits",
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
    nodes_per_rack: int
    hop_s: tuple[tuple[str, float], ...]  # link kind -> latency of one hop
    efficiency: tuple[tuple[str, float], ...]  # kind of link or plane -> share that is reached


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
        nodes_per_rack=int(facts["fabric.wiring.nodes_per_rack"].value),
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
    graph = nx.DiGraph(
        supernode=s,
        constants=c,
        dies_per_npu=c.dies_per_npu,
        l2_chips_per_sub_plane=chips,
        cpu_with_dpu=host,
        beyond_node=dict(c.efficiency)["beyond_node"],
        routing="adaptive",
        detour_hops=0,
        layout="racks",
    )
    graph.add_nodes_from(_vertices(s, c, chips))
    for edges in (_ub_edges(s, c, chips), _rdma_edges(s, c), _vpc_edges(s, c)):
        for a, b, link in edges:
            graph.add_edge(a, b, **link)
            graph.add_edge(b, a, **link)
    graph.graph["dies"] = tuple(v for v, kind in graph.nodes(data="kind") if kind == "die")
    graph.graph["names"] = name_index(graph)
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
    racks = math.ceil(s.nodes / c.nodes_per_rack)  # of a supernode
    for n in range(s.all_nodes):
        rack = n // s.nodes * racks + n % s.nodes // c.nodes_per_rack
        home = {"supernode": n // s.nodes, "node": n, "rack": f"rack {rack}"}
        end = home | {"domain": n // s.nodes if chips else n}
        for i in range(s.npus_per_node):
            for d in range(c.dies_per_npu):
                die = end | {"npu": i, "die": d}
                yield f"die {n}.{i}.{d}", {"kind": "die", **die, "forwards": "host"}
                yield f"NIC {n}.{i}.{d}", {"kind": "nic", **die, "forwards": "rdma host"}
        for i in range(s.cpus_per_node):
            yield f"CPU {n}.{i}", {"kind": "cpu", **end, "index": i, "forwards": "vpc"}
        for p in range(s.sub_planes):
            yield f"L1 {n}.{p}", {"kind": "l1", **home, "sub_plane": p, "forwards": "ub vpc host"}
        yield f"Qingtian {n}", {"kind": "qingtian", **home, "forwards": "vpc"}
    racks = math.ceil(chips / c.l2_step)
    for g in range(s.supernodes):
        for p in range(s.sub_planes):
            for i in range(chips):
                rack = f"communication rack {g * racks + i // c.l2_step}"
                at = {"supernode": g, "sub_plane": p, "index": i, "rack": rack}
                yield l2_name(g, p, i), {"kind": "l2", **at, "forwards": "ub"}
    yield "RDMA network", {"kind": "rdma", "forwards": "rdma host"}
    yield "VPC network", {"kind": "vpc", "forwards": "vpc"}


def l2_name(supernode: int, sub_plane: int, index: int) -> str:
    """Name of an L2 chip: "L2 3.12" in the first supernode, "L2 1:3.12" in the second."""
    return f"L2 {supernode}:{sub_plane}.{index}" if supernode else f"L2 {sub_plane}.{index}"


SERVES = {  # kind of link -> planes whose paths may use it
    "die-die": "package",
    "die-L1": "ub vpc host",
    "CPU-L1": "ub vpc host",
    "L1-L2": "ub",
    "die-NIC": "rdma host",
    "NIC-RDMA": "rdma host",
    "CPU-Qingtian": "vpc",
    "Qingtian-VPC": "vpc",
}


def _link(
    c: Constants, kind: str, plane: str, capacity: float, latency_s: float,
    sub_plane: int | None = None, links: int = 1,
) -> dict[str, Any]:  # fmt: skip
    share = dict(c.efficiency)
    switched = kind in ("die-L1", "CPU-L1")
    if plane == "ub":
        read, write = share["cpu_read" if kind == "CPU-L1" else "npu_read"], share["write"]
    else:
        read = write = share[plane]
    place = {} if sub_plane is None else {"sub_plane": sub_plane}
    return {
        "kind": kind,
        "plane": plane,
        "capacity_bytes_per_s": capacity,
        "latency_s": latency_s,
        **place,
        "links": links,
        "serves": SERVES[kind],
        "read_efficiency": read,
        "write_efficiency": write,
        "write_extra_s": dict(c.hop_s)["write_extra"] if switched else 0.0,
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
                        _link(c, "die-die", "ub", c.cross_die_bytes_per_s, hop["cross_die"]),
                    )
                for p in range(s.sub_planes):
                    yield (
                        f"die {n}.{i}.{d}",
                        f"L1 {n}.{p}",
                        _link(c, "die-L1", "ub", link, hop["die_l1"], p),
                    )
        for i in range(s.cpus_per_node):
            for p in range(s.sub_planes):
                yield (
                    f"CPU {n}.{i}",
                    f"L1 {n}.{p}",
                    _link(c, "CPU-L1", "ub", c.cpu_bytes_per_s / s.sub_planes, hop["cpu_l1"], p),
                )
        for i, links in _dealt(n % s.nodes, s.l1_uplinks, chips):
            for p in range(s.sub_planes):
                yield (
                    f"L1 {n}.{p}",
                    l2_name(n // s.nodes, p, i),
                    _link(c, "L1-L2", "ub", links * link, hop["l1_l2"], p, links),
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
                yield f"die {n}.{i}.{d}", nic, _link(c, "die-NIC", "rdma", capacity, hop_s)
                yield nic, "RDMA network", _link(c, "NIC-RDMA", "rdma", capacity, hop_s)


def _vpc_edges(s: Supernode, c: Constants) -> Iterator[tuple[str, str, dict[str, Any]]]:
    capacity = s.vpc_gb_per_s_per_node * 1e9
    hop = dict(c.hop_s)
    host = min(c.cpu_with_dpu, s.cpus_per_node - 1)
    for n in range(s.all_nodes):
        dpu = f"Qingtian {n}"
        yield f"CPU {n}.{host}", dpu, _link(c, "CPU-Qingtian", "vpc", capacity, hop["cpu_dpu"])
        yield dpu, "VPC network", _link(c, "Qingtian-VPC", "vpc", capacity, hop["dpu_vpc"])


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

    `capacity` sets bytes/s of single links, both ways; `scale` and `latency` multiply the capacity
    and the latency of every link at an element ("sub-plane 3": 0.5); `edits` are a scenario's,
    applied in order, their factors multiplying what they find; `remove` names elements (see
    `members`). A link of capacity 0 stays in the graph and carries nothing, so the numbering of
    dies is kept. `supernode` is what the copy says it was built from (default: as before). Raises
    HardwareError when a name or a link is not there.
    """
    net = network(fabric)
    rates = net.capacity.copy()
    for (a, b), bytes_per_s in (capacity or {}).items():
        rates[net.links_at(a, b)] = float(bytes_per_s)
    factors = [Edit(element=name, capacity_factor=by) for name, by in (scale or {}).items()]
    factors += [Edit(element=name, latency_factor=by) for name, by in (latency or {}).items()]
    gone = [Edit(element=name, capacity_factor=0.0) for name in remove]
    after = with_edits(net.changed(rates, net.latency), [*factors, *edits, *gone])
    graph = nx.DiGraph(**fabric.graph)
    if supernode is not None:
        graph.graph["supernode"] = supernode
    graph.add_nodes_from(fabric.nodes(data=True))
    graph.add_edges_from(
        (a, b, {**data, CAPACITY: rate, LATENCY: wait})
        for (a, b, data), rate, wait in zip(
            fabric.edges(data=True), after.capacity.tolist(), after.latency.tolist(), strict=True
        )
    )
    remember(graph, replace(after, about=graph.graph))
    return nx.freeze(graph)


def with_edits(net: Network, edits: Iterable[Edit]) -> Network:
    """The network with edits in force, in order; the same where there is none."""
    edits = tuple(edits)
    if not edits:
        return net
    rates, waits = net.capacity.copy(), net.latency.copy()
    for edit in edits:
        at = net.links_at(edit.element, edit.to)
        rates[at] *= edit.capacity_factor * net.left_without(at, edit.links_out, edit.element)
        waits[at] *= edit.latency_factor
        _refuse_absurd(rates[at], waits[at], edit.element)
    return net.changed(rates, waits)


def _refuse_absurd(rates: Any, waits: Any, what: str) -> None:
    fits = (rates >= 0.0) & (rates <= MOST_BYTES_PER_S) & (waits >= 0.0) & (waits <= MOST_LATENCY_S)
    if not fits.all():
        raise HardwareError(
            f"{what} gives a link less than 0 or more than {MOST_BYTES_PER_S:g} bytes/s, or a "
            f"latency beyond {MOST_LATENCY_S:g} s: use factors nearer to 1"
        )


def built(fabric: Wiring) -> Fabric:
    """The fabric as built, before any edit."""
    about = network(fabric).about
    return _build(about["supernode"].model_copy(update={"edits": ()}), about["constants"])


def edits(fabric: Wiring) -> dict[Edge, float]:
    """Links whose capacity differs from the fabric as built: bytes/s now, 0 when removed.

    Each link once; where only its way back differs, by that.
    """
    now, before = network(fabric), network(built(fabric))
    found: dict[Edge, float] = {}
    for link in np.flatnonzero(now.capacity != before.capacity).tolist():
        a, b = now.edge(link)
        if (b, a) not in found:
            found[a, b] = float(now.capacity[link])
    return found
