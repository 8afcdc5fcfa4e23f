"""What the fabric can carry between two elements, and for a whole pattern of traffic.

Every answer is a `Price`, read from the edges of the graph: traffic is sprayed over all paths of
equal length (sub-planes, L2 chips), so capacities of parallel paths add up (a minimum cut), and
the links that are full first are named as the bottleneck. An operation reaches the measured share
of a port's nominal rate (arXiv 2506.12708v2 Table 1; data/fabric.toml), less what the way through
an L2 chip costs; operation "nominal" leaves both out.

It does not know who else uses a link at that moment: that is `max_min` over the flows of one
instant. It sees no queues in switch chips and no software in front of the ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import Fabric, die_name
from twin.hardware.paths import (
    Operation,
    Plane,
    beyond_node,
    cut,
    efficiency,
    latency,
    links_of,
    parallel_paths,
    port_latency,
    port_rate,
    uplinks,
    vertex,
    write_extra,
)
from twin.hardware.sharing import Flow, max_min

__all__ = ["Flow", "Price", "all_to_all", "between", "max_min", "nic", "pool_read"]

WAY_OUT = {  # link kinds from an endpoint to the middle of a plane
    "ub": ("die-L1", "L1-L2"),
    "rdma": ("die-NIC", "NIC-RDMA"),
    "vpc": ("die-L1", "CPU-L1", "CPU-Qingtian", "Qingtian-VPC"),
}
Bound = tuple[float, str]  # bytes/s, what sets it


@dataclass(frozen=True)
class Price:
    """Rate (bytes/s, one direction) and latency (s) of a way through the fabric."""

    bytes_per_s: float
    latency_s: float
    bottleneck: str  # the links that are full first
    peers: int = 1  # how many others an endpoint exchanges with
    off_node_fraction: float = 0.0  # share of the bytes that crosses a node's border
    shared_by_dies: int = 1  # dies that share `bytes_per_s` between them

    def seconds(self, size_bytes: float) -> float:
        """Time of `size_bytes` with nobody else on the way."""
        return self.latency_s + size_bytes / self.bytes_per_s


def between(
    fabric: Fabric,
    src: int | str,
    dst: int | str,
    operation: Operation = "write",
    plane: Plane = "ub",
) -> Price:
    """Price between two elements (a vertex name, or a die's number) over all parallel paths.

    Raises HardwareError when the plane does not join them. On the VPC plane a die goes through
    the UB links of its own node to the CPU with the Qingtian DPU; two dies of one node stay in it.
    """
    a, b = vertex(fabric, src), vertex(fabric, dst)
    if a == b:
        raise HardwareError(f"{a} to itself needs no link: name two different elements")
    paths = parallel_paths(fabric, a, b, plane)
    rate, bottleneck = cut(fabric, paths, a, b, operation)
    away = fabric.nodes[a].get("node") != fabric.nodes[b].get("node")
    wait = latency(fabric, paths, a, b, operation)
    return Price(rate, wait, bottleneck, off_node_fraction=float(away))


def all_to_all(
    fabric: Fabric, dies: Sequence[int], plane: Plane = "ub", operation: Operation = "write"
) -> Price:
    """Bytes/s each die can send while every one of `dies` sends alike to all the others.

    The slowest die sets the pace. A die's bytes spread over the sub-planes, on each of which it
    is held by its own link and by its share of the node's uplinks (cuts, tight for uniform
    traffic). Where the UB plane ends at the node, bytes for other nodes take the RDMA plane at
    the same time. A sibling die's bytes use the ports like all others, unless there is only one
    NPU. Latency is that of the farthest pair.
    """
    if len(dies) < 2 or len(set(dies)) < len(dies):
        raise HardwareError(f"all-to-all needs two or more different dies, not {list(dies)[:4]}")
    homes = _by_node(fabric, dies)
    if plane == "ub" and len({(n, fabric.nodes[d]["npu"]) for n in homes for d in homes[n]}) == 1:
        return _among_siblings(fabric, homes, operation)
    bounds = []
    off_node = 0.0
    for node, names in homes.items():
        away = (len(dies) - len(names)) / (len(dies) - 1)
        off_node += away * len(names) / len(dies)
        doors = uplinks(fabric, node, homes, operation) if plane == "ub" else {}
        for name in names:
            bounds += _injection(fabric, name, plane, operation, doors, away, len(names))
    rate, bottleneck = _least(bounds, f"all-to-all over {plane}")
    return Price(
        rate, _farthest(fabric, homes, plane, operation), bottleneck, len(dies) - 1, off_node
    )


def _injection(
    fabric: Fabric, name: str, plane: Plane, operation: Operation, doors: Mapping[int, float],
    away: float, crowd: int,
) -> list[Bound]:  # fmt: skip
    """What holds one die of `crowd` in its node, with a share `away` of its bytes leaving it."""
    node = fabric.nodes[name]["node"]
    if plane == "rdma":
        return [(port_rate(fabric, name, "die-NIC", operation), f"NIC of {name}")]
    ports = port_rate(fabric, name, "die-L1", operation)
    if away == 0.0:
        return [(ports, f"UB links of {name}")]
    if plane == "vpc":
        dpu = port_rate(fabric, f"Qingtian {node}", "Qingtian-VPC", operation)
        return [
            (ports, f"UB links of {name}"),
            (dpu / (crowd * away), f"Qingtian DPU of node {node}"),
        ]
    if not fabric.graph["l2_chips_per_sub_plane"]:
        by_nic = port_rate(fabric, name, "die-NIC", operation)
        local = [(ports / (1.0 - away), f"UB links of {name}")] if away < 1.0 else []
        return [*local, (by_nic / away, f"NIC of {name}")]
    slower = _far_cost(fabric, away, plane, operation)
    share = efficiency(fabric, "die-L1", "ub", operation) / slower
    own, total = 0.0, 0.0
    for _, edge in links_of(fabric, name, "die-L1"):
        link = edge["capacity_bytes_per_s"] * share
        own += link
        total += min(link, doors[int(edge["sub_plane"])] / (crowd * away))
    return [(total, f"UB links of {name}" if total == own else f"L1 uplinks of node {node}")]


def _far_cost(
    fabric: Fabric, away: float, plane: Plane, operation: Operation = "read"
) -> float:  # fmt: skip
    """Port time of a byte against the near rate, when a share `away` goes through L2 chips."""
    return 1.0 - away + away / beyond_node(fabric, operation) if plane == "ub" else 1.0


def _among_siblings(
    fabric: Fabric, homes: Mapping[int, Sequence[str]], operation: Operation
) -> Price:
    """All-to-all between the dies of one NPU: every other die has a link of its own."""
    names = next(iter(homes.values()))
    pairs = [between(fabric, a, b, operation) for a in names for b in names if a < b]
    slow = min(pairs, key=lambda price: price.bytes_per_s)
    peers = len(names) - 1
    return Price(slow.bytes_per_s * peers, slow.latency_s, slow.bottleneck, peers)


def pool_read(
    fabric: Fabric, dies: Sequence[int], plane: Plane = "ub", nodes: Sequence[int] | None = None
) -> Price:
    """Bytes/s into all of `dies` together from the DRAM of the CPUs of `nodes` (default: all).

    Blocks lie evenly over the nodes (consistent hashing), so each gives the same share, and a
    node's own share stays inside it. On the VPC plane a node's one DPU carries what comes in
    and what goes out, each its own direction. Where the UB plane ends at the node, remote blocks
    come in through the dies' NICs.
    """
    homes = _by_node(fabric, dies)
    every = range(fabric.graph["supernode"].nodes) if nodes is None else nodes
    dram = {n: rate for n in every if (rate := _cpu_rate(fabric, n)) > 0.0}
    if not homes or not dram:
        raise HardwareError("a pool read needs at least one die and one node whose CPUs are linked")
    several = len(set(dram) | set(homes)) > 1
    if plane == "ub" and not fabric.graph["l2_chips_per_sub_plane"] and several:
        plane = "rdma"
    bounds = []
    off_node = 0.0
    for node in sorted(set(homes) | set(dram)):
        names = homes.get(node, [])
        taken = len(names) / len(dies)
        given = 1.0 / len(dram) if node in dram else 0.0
        comes_in, goes_out = taken * (1.0 - given), given * (1.0 - taken)
        off_node += comes_in
        if given:
            bounds.append((dram[node] / given, f"CPU ports of node {node}"))
        for name in names:
            ports = port_rate(fabric, name, "die-L1", "read") / _far_cost(
                fabric, 1.0 - given, plane
            )
            bounds.append((ports * len(dies), f"UB links of {name}"))
        door, label = _door(fabric, node, names, plane, set(homes) | set(dram))
        crossing = comes_in if plane == "rdma" else max(comes_in, goes_out)
        if crossing > 0.0:
            bounds.append((door / crossing, label))
    rate, bottleneck = _least(bounds, f"a pool read over {plane}")
    first, source = next(iter(homes.values()))[0], max(dram)
    host = f"CPU {source}.{fabric.graph['cpu_with_dpu']}"
    wait = _farthest(fabric, {0: [first], 1: [host]}, plane, "read")
    return Price(rate, wait, bottleneck, len(dram), off_node, len(dies))


def _cpu_rate(fabric: Fabric, node: int) -> float:
    cpus = fabric.graph["supernode"].cpus_per_node
    return sum(port_rate(fabric, f"CPU {node}.{i}", "CPU-L1", "read") for i in range(cpus))


def _door(
    fabric: Fabric, node: int, names: Sequence[str], plane: Plane, among: set[int]
) -> tuple[float, str]:
    """What a node's border lets through, one direction, reading."""
    if plane == "ub":
        return sum(uplinks(fabric, node, among, "read").values()), f"L1 uplinks of node {node}"
    if plane == "vpc":
        dpu = port_rate(fabric, f"Qingtian {node}", "Qingtian-VPC", "read")
        return dpu, f"Qingtian DPU of node {node}"
    nics = sum(port_rate(fabric, name, "die-NIC", "read") for name in names)
    return nics, f"NICs of node {node}"


def nic(fabric: Fabric, die: int, plane: Plane = "rdma", operation: Operation = "write") -> Price:
    """What one die can send to, or receive from, another node on a plane.

    On the VPC plane the rate is the node's DPU, shared by the `shared_by_dies` dies of the node.
    """
    name = die_name(fabric, die)
    node = fabric.nodes[name]["node"]
    crowd = 1
    if plane == "vpc":
        rate = port_rate(fabric, f"Qingtian {node}", "Qingtian-VPC", operation)
        crowd = fabric.graph["supernode"].npus_per_node * fabric.graph["dies_per_npu"]
        label = f"Qingtian DPU of node {node}"
    elif plane == "rdma" or not fabric.graph["l2_chips_per_sub_plane"]:
        plane = "rdma"
        rate, label = port_rate(fabric, name, "die-NIC", operation), f"NIC of {name}"
    else:
        rate = port_rate(fabric, name, "die-L1", operation) * beyond_node(fabric, operation)
        label = f"UB links of {name}"
    if rate <= 0.0:
        raise HardwareError(f"{name} has no link left on the {plane} plane: restore one")
    wait = _farthest(fabric, {0: [name], 1: [name]}, plane, operation)
    return Price(rate, wait, label, off_node_fraction=1.0, shared_by_dies=crowd)


def _by_node(fabric: Fabric, dies: Sequence[int]) -> dict[int, list[str]]:
    homes: dict[int, list[str]] = {}
    for die in dies:
        name = die_name(fabric, die)
        homes.setdefault(fabric.nodes[name]["node"], []).append(name)
    return homes


def _least(bounds: Sequence[Bound], what: str) -> Bound:
    rate, label = min(bounds)
    if rate <= 0.0:
        raise HardwareError(f"{what} is cut off at the {label}: restore a link there")
    return rate, label


def _farthest(
    fabric: Fabric, homes: Mapping[int, Sequence[str]], plane: Plane, operation: Operation
) -> float:
    """Latency (s) of the farthest pair: the two longest ways to the middle of the plane."""
    if plane == "ub" and len(homes) > 1 and not fabric.graph["l2_chips_per_sub_plane"]:
        plane = "rdma"
    known: dict[str, float] = {}
    if len(homes) > 1:
        kinds = WAY_OUT[plane]
        ways = [max(_way_out(fabric, n, kinds, known) for n in v) for v in homes.values()]
    else:
        kinds = WAY_OUT["rdma"] if plane == "rdma" else WAY_OUT["ub"][:1]
        ways = [_way_out(fabric, n, kinds, known) for n in next(iter(homes.values()))]
    longest = sorted(ways)[-2:]
    return sum(longest) + (write_extra(fabric, operation) if plane != "rdma" else 0.0)


def _way_out(fabric: Fabric, name: str, kinds: Sequence[str], known: dict[str, float]) -> float:
    if fabric.nodes[name]["kind"] == "cpu":  # a pool read's other end
        if kinds == WAY_OUT["rdma"]:  # CPUs have no NIC of their own: a die of the node lends its
            name = f"die {fabric.nodes[name]['node']}.0.0"
        else:
            kinds = ("CPU-L1", *kinds[1:]) if kinds == WAY_OUT["ub"] else kinds[2:]
    return port_latency(fabric, name, kinds, known)
