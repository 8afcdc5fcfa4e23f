"""What the fabric can carry between two elements, and for a whole pattern of traffic.

Every answer is a `Price`, read from the edges of the graph: traffic is sprayed over all paths of
equal length (sub-planes, L2 chips), so capacities of parallel paths add up (a minimum cut), and
the links that are full first are named as the bottleneck. An operation reaches the measured share
of a port's nominal rate (arXiv 2506.12708v2 Table 1; data/fabric.toml), less what the way through
an L2 chip costs; operation "nominal" leaves both out.

It does not know who else uses a link at that moment: see `sharing`. It sees no queues in switch
chips and no software in front of the ports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twin.hardware.chip import HardwareError
from twin.hardware.names import Fabric, die_name
from twin.hardware.paths import (
    Operation,
    Plane,
    beyond_node,
    cut,
    efficiency,
    latency,
    parallel_paths,
    vertex,
    write_extra,
)
from twin.hardware.ports import Takes, port_table
from twin.hardware.tables import FLOATS, INTS, tables
from twin.hardware.traffic import exchange_takes, pool_sources, pool_takes

__all__ = ["Price", "all_to_all", "between", "nic", "pool_read"]


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

    The slowest port sets the pace (traffic.exchange_takes says what the exchange takes from each).
    Where the UB plane ends at the node, and between supernodes, bytes take the RDMA plane at the
    same time. A sibling die's bytes use the ports like all others, unless there is only one NPU.
    Latency is that of the farthest pair. Raises HardwareError where a die is cut off.
    """
    takes = exchange_takes(fabric, port_table(fabric), dies, plane, operation)
    rate, bottleneck = _alone(fabric, takes, f"all-to-all over {plane}")
    t = tables(fabric)
    at = np.asarray(dies, np.int64)
    home = at // t.dies_per_node
    others = at.size - 1
    if bottleneck.startswith("die-die"):
        wait = _sibling_wait(fabric, at)
        return Price(rate, wait, _sibling_words(fabric, at), others)
    crowd = np.bincount(home)[home]
    away = float(np.mean((at.size - crowd) / others))
    return Price(rate, _farthest(fabric, at, plane, operation), bottleneck, others, away)


def _alone(fabric: Fabric, takes: Takes, what: str) -> tuple[float, str]:
    """Rate of a flow by itself and the port that is full first."""
    ports = port_table(fabric)
    rate, first = takes.alone(ports)
    label = ports.label(first)
    if rate <= 0.0:
        raise HardwareError(f"{what} is cut off at the {label}: restore a link there")
    return rate, label


def _pairs(fabric: Fabric, at: INTS) -> tuple[INTS, INTS, INTS]:
    """(NPU, die, other die) of every pair among the dies of one NPU."""
    dies = tables(fabric).wiring.dies_per_npu
    own = np.sort(at % dies)
    rows, columns = np.triu_indices(own.size, 1)
    return at[:1] // dies, own[rows], own[columns]


def _sibling_wait(fabric: Fabric, at: INTS) -> float:
    return float(tables(fabric).waits("die-die")[_pairs(fabric, at)].max())


def _sibling_words(fabric: Fabric, at: INTS) -> str:
    return f"1 die-die link at {die_name(fabric, int(at.min()))}"


def pool_read(
    fabric: Fabric, dies: Sequence[int], plane: Plane = "ub", nodes: Sequence[int] | None = None
) -> Price:
    """Bytes/s into all of `dies` together from the DRAM of the CPUs of `nodes` (default: all).

    Blocks lie evenly over the nodes that can be reached (consistent hashing), so each gives the
    same share, and a node's own share stays inside it. On the VPC plane a node's one DPU carries
    what comes in and what goes out, each its own direction. Blocks beyond a UB plane come in
    through the dies' NICs. Raises HardwareError where nothing can be read.
    """
    takes = pool_takes(fabric, port_table(fabric), dies, plane, nodes)
    rate, bottleneck = _alone(fabric, takes, f"a pool read over {plane}")
    t = tables(fabric)
    sources = pool_sources(fabric, dies, plane, nodes)
    home = np.asarray(dies, np.int64) // t.dies_per_node
    away = float(np.mean(np.where(np.isin(home, sources), 1.0 - 1.0 / sources.size, 1.0)))
    source = int(sources[-1])
    same = bool(t.domain([source])[0] == t.domain(home[:1])[0])
    way = plane if plane != "ub" or same else "rdma"
    wait = float(t.die_waits[way][dies[0]] + t.host_waits[way][source])
    return Price(rate, wait, bottleneck, int(sources.size), away, len(dies))


def nic(fabric: Fabric, die: int, plane: Plane = "rdma", operation: Operation = "write") -> Price:
    """What one die can send to, or receive from, another node on a plane.

    On the VPC plane the rate is the node's DPU, shared by the `shared_by_dies` dies of the node.
    """
    name = die_name(fabric, die)
    t = tables(fabric)
    node = die // t.dies_per_node
    crowd = 1
    if plane == "vpc":
        rate = t.dpus[node] * efficiency(fabric, "CPU-Qingtian", "vpc", operation)
        crowd = t.dies_per_node
        label = f"Qingtian DPU of node {node}"
    elif plane == "rdma" or not fabric.graph["l2_chips_per_sub_plane"]:
        plane = "rdma"
        rate = t.nics[die] * efficiency(fabric, "die-NIC", "rdma", operation)
        label = f"NIC of {name}"
    else:
        rate = t.die_links[die].sum() * efficiency(fabric, "die-L1", "ub", operation)
        rate *= beyond_node(fabric, operation)
        label = f"UB links of {name}"
    if rate <= 0.0:
        raise HardwareError(f"{name} has no link left on the {plane} plane: restore one")
    wait = 2.0 * float(t.die_waits[plane][die])
    wait += write_extra(fabric, operation) if plane != "rdma" else 0.0
    return Price(float(rate), wait, label, off_node_fraction=1.0, shared_by_dies=crowd)


def _farthest(fabric: Fabric, at: INTS, plane: Plane, operation: Operation) -> float:
    """Latency (s) of the farthest pair: the two longest ways to where their paths meet."""
    t = tables(fabric)
    home = at // t.dies_per_node
    extra = write_extra(fabric, operation)
    one = np.unique(home).size == 1
    if plane == "rdma":
        return _two_longest(t.die_waits["rdma"][at], np.arange(at.size) if one else home)
    if one:
        return _two_longest(t.die_waits["l1"][at], np.arange(at.size)) + extra
    if plane == "vpc":
        return _two_longest(t.die_waits["vpc"][at], home) + extra
    domain = t.domain(home)
    longest = 0.0
    if np.unique(domain).size > 1:
        longest = _two_longest(t.die_waits["rdma"][at], domain)
    if np.unique(domain).size < np.unique(home).size:
        longest = max(longest, _two_longest(t.die_waits["ub"][at], home) + extra)
    return longest


def _two_longest(waits: FLOATS, groups: INTS) -> float:
    """Sum of the two longest waits of different groups."""
    longest = np.zeros(int(groups.max()) + 1)
    np.maximum.at(longest, groups, waits)
    return float(np.sort(longest)[-2:].sum())
