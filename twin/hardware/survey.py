"""What is in a fabric: counts and totals.

Aggregates for tables and pictures, read from the graph like everything else, so an edited fabric
shows its edits. It does not know traffic or use.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from twin.hardware.names import Fabric
from twin.hardware.paths import Operation
from twin.hardware.routes import Price, between
from twin.hardware.tables import tables


def summary(fabric: Fabric) -> dict[str, float]:
    """Counts of every element and the headline capacities, bytes/s of one direction, nominal.

    `bisection_bytes_per_s` is what half of a supernode can send to the other half over UB;
    `oversubscription` is what the NPUs of a node can send over what its uplinks carry (1 is
    non-blocking, 0 when there are no uplinks).
    """
    kinds = Counter(kind for _, kind in fabric.nodes(data="kind"))
    links: Counter[str] = Counter()
    for _, _, edge in fabric.edges(data=True):
        links[edge["kind"]] += edge["links"] * (edge["capacity_bytes_per_s"] > 0.0)
    s, t = fabric.graph["supernode"], tables(fabric)
    beyond = bool(fabric.graph["l2_chips_per_sub_plane"])
    uplinks = uplink_matrix(fabric).sum(axis=1) * beyond
    injection = t.die_links.sum(axis=1).reshape(s.all_nodes, -1).sum(axis=1)
    ports = kinds["l2"] * s.l2_ports_per_chip
    weakest = float(uplinks.min())
    most = float(injection.max())
    halves = np.sort(uplinks.reshape(s.supernodes, s.nodes))[:, : s.nodes // 2].sum(axis=1)
    return {
        "supernodes": s.supernodes,
        "nodes": s.all_nodes,
        "npus": s.npus,
        "dies": kinds["die"],
        "cpus": kinds["cpu"],
        "l1_chips": kinds["l1"],
        "l2_chips": kinds["l2"],
        "l2_chips_per_sub_plane": fabric.graph["l2_chips_per_sub_plane"],
        "sub_planes": s.sub_planes,
        "nics": kinds["nic"],
        "dpus": kinds["qingtian"],
        "ub_links": sum(links[k] for k in ("die-L1", "CPU-L1", "L1-L2", "die-die")),
        "l2_ports": ports,
        "l2_ports_used": links["L1-L2"],
        "l2_port_utilisation": links["L1-L2"] / ports if ports else 0.0,
        "npu_bytes_per_s": most / s.npus_per_node,
        "node_npu_bytes_per_s": most,
        "node_uplink_bytes_per_s": weakest,
        "oversubscription": most / weakest if weakest > 0.0 else 0.0,
        "bisection_bytes_per_s": float(halves.min()),
        "rdma_bytes_per_s": float(t.rates("NIC-RDMA").sum()),
        "vpc_bytes_per_s": float(t.rates("Qingtian-VPC").sum()),
    }


def uplink_matrix(fabric: Fabric) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Nominal bytes/s, one direction, of each node's uplinks on each sub-plane, f8[nodes, planes].

    Where the UB plane ends at the node it is what its dies put into the L1 chip instead.
    """
    t = tables(fabric)
    if fabric.graph["l2_chips_per_sub_plane"]:
        return np.asarray(t.uplinks.sum(axis=2))
    s = fabric.graph["supernode"]
    return np.asarray(t.die_links.reshape(s.all_nodes, -1, s.sub_planes).sum(axis=1))


MAIN_LINKS = {  # vertex kind -> kinds of link of the plane it mainly serves
    "die": ("die-L1",),
    "cpu": ("CPU-L1",),
    "l1": ("L1-L2",),
    "l2": ("L1-L2",),
    "nic": ("NIC-RDMA",),
    "qingtian": ("Qingtian-VPC",),
}


def point_to_point(fabric: Fabric) -> dict[tuple[str, Operation, str], Price]:
    """What the first die gets, by (npu_npu | npu_cpu, operation, intra_node | inter_node).

    The rows of arXiv 2506.12708v2 Table 1; pairs the machine does not have are left out.
    """
    s = fabric.graph["supernode"]
    ends = {
        ("npu_npu", "intra_node"): "die 0.1.0",
        ("npu_npu", "inter_node"): "die 1.0.0",
        ("npu_cpu", "intra_node"): f"CPU 0.{s.cpus_per_node - 1}",
        ("npu_cpu", "inter_node"): f"CPU 1.{s.cpus_per_node - 1}",
    }
    beyond = fabric.graph["l2_chips_per_sub_plane"]
    operations: tuple[Operation, ...] = ("read", "write")
    return {
        (pair, operation, where): between(fabric, "die 0.0.0", end, operation)
        for (pair, where), end in ends.items()
        if end in fabric and (beyond or where == "intra_node")
        for operation in operations
    }
