"""Reading the fabric: parallel paths, ports, uplinks and their latencies.

The small questions that `routes` puts together into prices. It knows edges, not traffic patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import networkx as nx

from twin.hardware.chip import HardwareError
from twin.hardware.names import Fabric, die_name

Operation: TypeAlias = Literal["read", "write", "nominal"]
Plane: TypeAlias = Literal["ub", "rdma", "vpc"]

FORWARDS = {"l1", "l2", "nic", "rdma", "qingtian", "vpc"}  # dies and CPUs end a path
IN_NODE = {"die-L1", "CPU-L1"}  # UB links that lead a die to the CPU with the Qingtian DPU


def efficiency(fabric: Fabric, kind: str, plane: str, operation: Operation) -> float:
    """Share of a link's nominal rate that an operation reaches; 1 for "nominal"."""
    if operation == "nominal":
        return 1.0
    share: Mapping[str, float] = fabric.graph["efficiency"]
    if plane != "ub":
        return share[plane]
    if operation == "write":
        return share["write"]
    return share["cpu_read" if kind == "CPU-L1" else "npu_read"]


def beyond_node(fabric: Fabric, operation: Operation) -> float:
    """What the way through an L2 chip leaves of a rate."""
    return 1.0 if operation == "nominal" else float(fabric.graph["efficiency"]["beyond_node"])


def vertex(fabric: Fabric, element: int | str) -> str:
    """The vertex of a die's number or of a name; raises HardwareError when there is none."""
    if isinstance(element, str):
        if element not in fabric:
            raise HardwareError(f"no element is named {element!r}; names look like 'die 20.1.0'")
        return element
    return die_name(fabric, element)


def parallel_paths(fabric: Fabric, a: str, b: str, plane: str) -> nx.DiGraph:
    """All paths of fewest hops from a to b on a plane, as one directed graph.

    Raises HardwareError when there is none.
    """
    depth = {a: 0}
    ring = [a]
    while ring and b not in depth:
        following = []
        for here in ring:
            kind = fabric.nodes[here]["kind"]
            if here != a and kind not in FORWARDS and not (plane == "vpc" and kind == "cpu"):
                continue
            for other in _open(fabric, here, plane):
                if other not in depth:
                    depth[other] = depth[here] + 1
                    following.append(other)
        ring = following
    if b not in depth:
        raise HardwareError(f"{a} cannot reach {b} on the {plane} plane: no path of links is left")
    paths = nx.DiGraph()
    back = [b]
    while back:
        here = back.pop()
        for other in _open(fabric, here, plane):
            if depth.get(other, len(depth)) == depth[here] - 1 and _passes(fabric, other, a, plane):
                if other not in paths and other != a:
                    back.append(other)
                paths.add_edge(other, here)
    return paths


def _open(fabric: Fabric, here: str, plane: str) -> Iterator[str]:
    """Neighbours over links of a plane that carry anything."""
    for other, edge in fabric.adj[here].items():
        on_plane = edge["plane"] == plane or (plane == "vpc" and edge["kind"] in IN_NODE)
        if on_plane and edge["capacity_bytes_per_s"] > 0.0:
            yield other


def _passes(fabric: Fabric, here: str, start: str, plane: str) -> bool:
    kind = fabric.nodes[here]["kind"]
    return here == start or kind in FORWARDS or (plane == "vpc" and kind == "cpu")


def cut(
    fabric: Fabric, paths: nx.DiGraph, a: str, b: str, operation: Operation
) -> tuple[float, str]:
    """Most bytes/s through parallel paths, and in words the links that are full first."""
    beyond = beyond_node(fabric, operation) if crosses_l2(fabric, paths) else 1.0
    flow = nx.DiGraph()
    for u, v in paths.edges:
        edge = fabric.edges[u, v]
        share = efficiency(fabric, edge["kind"], edge["plane"], operation)
        flow.add_edge(u, v, capacity=edge["capacity_bytes_per_s"] * share * beyond)
    rate, (near, far) = nx.minimum_cut(flow, a, b)
    full = sorted((u, v) for u in near for v in flow[u] if v in far)
    return float(rate), _in_words(fabric, full)


def crosses_l2(fabric: Fabric, paths: nx.DiGraph) -> bool:
    """Whether the paths leave the node over L2 chips."""
    return any(fabric.nodes[v]["kind"] == "l2" for v in paths)


def _in_words(fabric: Fabric, edges: Sequence[tuple[str, str]]) -> str:
    """Edges for people: '7 die-L1 links at die 0.0.0'."""
    kinds = sorted({fabric.edges[e]["kind"] for e in edges})
    common = sorted(set.intersection(*(set(e) for e in edges)))
    count = sum(fabric.edges[e]["links"] for e in edges)
    plural = "s" if count != 1 else ""
    return f"{count} {' and '.join(kinds)} link{plural}" + (f" at {common[0]}" if common else "")


def latency(fabric: Fabric, paths: nx.DiGraph, a: str, b: str, operation: Operation) -> float:
    """Latency of the slowest parallel path: a sprayed message is there with its last piece."""
    at = {a: 0.0}
    for here in nx.topological_sort(paths):
        for other in paths[here]:
            there = at[here] + fabric.edges[here, other]["latency_s"]
            at[other] = max(at.get(other, 0.0), there)
    switched = any(fabric.nodes[v]["kind"] == "l1" for v in paths)
    return at[b] + (write_extra(fabric, operation) if switched else 0.0)


def write_extra(fabric: Fabric, operation: Operation) -> float:
    """Seconds a write over UB switch chips takes longer than a read."""
    return float(fabric.graph["write_extra_s"]) if operation == "write" else 0.0
