"""The machine as one graph: dies, CPUs, switch chips and the links between them.

`build_fabric(supernode, facts)` gives a frozen networkx graph. A vertex is an element with a name
that people use ("die 20.1.0": node 20, NPU 1, die 0; "L1 20.3": node 20, sub-plane 3;
"L2 3.12": sub-plane 3, chip 12). An edge has `capacity_bytes_per_s` and `latency_s` of *one
direction*, its `plane` ("ub", "rdma" or "vpc"), its `kind`, its `sub_plane` (None off the UB
plane) and how many physical `links` it bundles. Everything `routes` answers it reads from these
edges, so an edited fabric gives edited answers.

What it does not know: traffic (routes.py), how switch chips queue, the paths inside the RDMA and
VPC networks (each is one non-blocking vertex), the CPUs' own full mesh (its bandwidth is not
published), and DRAM sizes. A machine whose scale-up plane is not UB is drawn with the same
elements: its first-level switch is "L1", its latencies are UB's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import networkx as nx

from twin.facts import Facts
from twin.hardware.chip import HardwareError, load_chip
from twin.spec import Supernode

Fabric: TypeAlias = nx.Graph  # frozen; see the module's docstring
Edge: TypeAlias = tuple[str, str]

PLANES = ("ub", "rdma", "vpc")

GROUPS = (  # names of more than one vertex, as typed, and the kinds they take in
    (r"npu (?P<node>\d+) (?P<npu>\d+)", {"die"}),
    (r"node (?P<node>\d+)", {"die", "nic", "cpu", "l1", "qingtian"}),
    (r"sub plane (?P<sub_plane>\d+)", {"l1", "l2"}),
)


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
    """The frozen graph of a supernode; equal supernodes share one graph.

    Raises HardwareError when the wiring cannot reach every node.
    """
    return _build(supernode, constants(supernode, facts))


@lru_cache(maxsize=8)
def _build(s: Supernode, c: Constants) -> Fabric:
    chips = l2_chips_per_sub_plane(s, c.l2_step)
    graph = nx.Graph()
    graph.graph.update(
        supernode=s,
        constants=c,
        dies_per_npu=c.dies_per_npu,
        l2_chips_per_sub_plane=chips,
        cpu_with_dpu=min(c.cpu_with_dpu, s.cpus_per_node - 1),
        write_extra_s=dict(c.hop_s)["write_extra"],
        efficiency=dict(c.efficiency),
    )
    graph.add_nodes_from(_vertices(s, c, chips))
    graph.add_edges_from(_ub_edges(s, c, chips))
    graph.add_edges_from(_rdma_edges(s, c))
    graph.add_edges_from(_vpc_edges(s, c))
    graph.graph["dies"] = tuple(_of_kind(graph, "die"))
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
    for n in range(s.nodes):
        for i in range(s.npus_per_node):
            for d in range(c.dies_per_npu):
                yield f"die {n}.{i}.{d}", {"kind": "die", "node": n, "npu": i, "die": d}
                yield f"NIC {n}.{i}.{d}", {"kind": "nic", "node": n, "npu": i, "die": d}
        for i in range(s.cpus_per_node):
            yield f"CPU {n}.{i}", {"kind": "cpu", "node": n, "index": i}
        for p in range(s.sub_planes):
            yield f"L1 {n}.{p}", {"kind": "l1", "node": n, "sub_plane": p}
        yield f"Qingtian {n}", {"kind": "qingtian", "node": n}
    for p in range(s.sub_planes):
        for i in range(chips):
            yield f"L2 {p}.{i}", {"kind": "l2", "sub_plane": p, "index": i}
    yield "RDMA network", {"kind": "rdma"}
    yield "VPC network", {"kind": "vpc"}


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
    for n in range(s.nodes):
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
        for i, links in _dealt(n, s.l1_uplinks, chips):
            for p in range(s.sub_planes):
                yield (
                    f"L1 {n}.{p}",
                    f"L2 {p}.{i}",
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
    for n in range(s.nodes):
        for i in range(s.npus_per_node):
            for d in range(c.dies_per_npu):
                nic = f"NIC {n}.{i}.{d}"
                yield f"die {n}.{i}.{d}", nic, _link("die-NIC", "rdma", capacity, hop_s)
                yield nic, "RDMA network", _link("NIC-RDMA", "rdma", capacity, hop_s)


def _vpc_edges(s: Supernode, c: Constants) -> Iterator[tuple[str, str, dict[str, Any]]]:
    capacity = s.vpc_gb_per_s_per_node * 1e9
    hop = dict(c.hop_s)
    host = min(c.cpu_with_dpu, s.cpus_per_node - 1)
    for n in range(s.nodes):
        dpu = f"Qingtian {n}"
        yield f"CPU {n}.{host}", dpu, _link("CPU-Qingtian", "vpc", capacity, hop["cpu_dpu"])
        yield dpu, "VPC network", _link("Qingtian-VPC", "vpc", capacity, hop["dpu_vpc"])


def _of_kind(graph: Fabric, kind: str) -> list[str]:
    return [v for v, k in graph.nodes(data="kind") if k == kind]


def die_name(fabric: Fabric, die: int) -> str:
    """Vertex of a die by its number in the supernode (node by node, NPU by NPU)."""
    dies: tuple[str, ...] = fabric.graph["dies"]
    if not 0 <= die < len(dies):
        raise HardwareError(
            f"die {die} does not exist: the supernode has dies 0 to {len(dies) - 1}"
        )
    return dies[die]


def members(fabric: Fabric, name: str) -> tuple[str, ...]:
    """Vertices an element's name stands for, as a person would type it.

    A vertex stands for itself; "NPU 20.1" for its dies, "node 20" for all in it, "sub-plane 3"
    for its L1 and L2 chips. Letter case and a hyphen for a dot or space do not matter.
    Raises HardwareError when nothing has that name.
    """
    wanted = _plain(name)
    for vertex in fabric:
        if _plain(vertex) == wanted:
            return (vertex,)
    found: list[str] = []
    for pattern, kinds in GROUPS:
        if match := re.fullmatch(pattern, wanted):
            at = {key: int(number) for key, number in match.groupdict().items()}
            found = [
                v
                for v, d in fabric.nodes(data=True)
                if d["kind"] in kinds and at.items() <= d.items()
            ]
    if not found:
        raise HardwareError(
            f"no element is named {name!r}: try NPU 20.1, die 20.1.0, CPU 20.2, L1 20.3, L2 3.12, "
            "node 20 or sub-plane 3"
        )
    return tuple(found)


def _plain(name: str) -> str:
    return " ".join(name.lower().replace(".", " ").replace("-", " ").split())


def edited(
    fabric: Fabric,
    *,
    remove: Iterable[str] = (),
    capacity: Mapping[Edge, float] | None = None,
    scale: Mapping[str, float] | None = None,
) -> Fabric:
    """A frozen copy with elements removed or links changed; the original stays as it is.

    `remove` names elements (see `members`); `capacity` sets bytes/s of single edges; `scale`
    multiplies the capacity of every edge at an element ("sub-plane 3": 0.5). The vertex order,
    and with it the numbering of dies, is kept: a removed die keeps its number without links.
    """
    graph = nx.Graph(fabric)
    for (a, b), bytes_per_s in (capacity or {}).items():
        if not graph.has_edge(a, b):
            raise HardwareError(f"no link joins {a} and {b}")
        graph.edges[a, b]["capacity_bytes_per_s"] = float(bytes_per_s)
    for name, factor in (scale or {}).items():
        for a, b in {tuple(sorted(e)): e for e in graph.edges(members(fabric, name))}.values():
            graph.edges[a, b]["capacity_bytes_per_s"] *= factor
    for name in remove:
        for vertex in members(fabric, name):
            graph.remove_edges_from(list(graph.edges(vertex)))
    return nx.freeze(graph)


def edits(fabric: Fabric) -> dict[Edge, float]:
    """Links that differ from the supernode's fabric as built: bytes/s now, 0 when removed."""
    built = _build(fabric.graph["supernode"], fabric.graph["constants"])
    if fabric is built:
        return {}
    now = {(a, b): fabric.get_edge_data(a, b) for a, b in built.edges}
    rates = {e: float(d["capacity_bytes_per_s"]) if d else 0.0 for e, d in now.items()}
    return {e: r for e, r in rates.items() if r != built.edges[e]["capacity_bytes_per_s"]}
