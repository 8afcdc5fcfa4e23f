"""The links of a fabric as arrays: one number a link, and tables by kind and place.

A fabric's graph says what is joined to what; its `Tables` say the same in the regular shape of
the wiring, so that whole patterns of traffic are priced at once. Edited copies share the `Wiring`
(which links were built) and have their own capacities; a link that was taken out has capacity 0.
Nothing here knows traffic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.hardware.names import Edge, Fabric
from twin.scenario import Supernode

FLOATS = NDArray[np.float64]
INTS = NDArray[np.int64]

KEPT_DOORS = 256


@dataclass(frozen=True)
class Wiring:
    """The links as built, numbered; shared by every edited copy of a fabric."""

    edges: tuple[Edge, ...]
    data: tuple[Mapping[str, Any], ...]  # attributes as built, by link number
    number: Mapping[Edge, int]  # both ways round
    at: Mapping[str, INTS]  # vertex -> numbers of its links
    places: Mapping[str, INTS]  # link kind -> numbers in the kind's shape (see Tables); -1: none
    capacity: FLOATS  # as built, bytes/s; one 0 behind, for places without a link
    latency: FLOATS  # as built, s; likewise
    supernode: Supernode
    dies_per_npu: int
    chips: int  # L2 chips of a sub-plane in one supernode
    host: int  # index of the CPU with the Qingtian DPU


def wiring(graph: Fabric, supernode: Supernode, dies_per_npu: int, chips: int, host: int) -> Wiring:
    """Number the links of a graph just built."""
    edges, data = [], []
    at: dict[str, list[int]] = defaultdict(list)
    number: dict[Edge, int] = {}
    places = _empty_places(supernode, dies_per_npu, chips)
    vertices = dict(graph.nodes(data=True))
    for i, (a, b, made) in enumerate(graph.edges(data=True)):
        edges.append((a, b))
        data.append(made)
        number[a, b] = number[b, a] = i
        at[a].append(i)
        at[b].append(i)
        places[made["kind"]][_place(made, vertices[a], vertices[b], supernode, dies_per_npu)] = i
    return Wiring(
        edges=tuple(edges),
        data=tuple(data),
        number=number,
        at={v: np.array(numbers, np.int64) for v, numbers in at.items()},
        places=places,
        capacity=np.array([*(d["capacity_bytes_per_s"] for d in data), 0.0]),
        latency=np.array([*(d["latency_s"] for d in data), 0.0]),
        supernode=supernode,
        dies_per_npu=dies_per_npu,
        chips=chips,
        host=host,
    )


def _empty_places(s: Supernode, dies_per_npu: int, chips: int) -> dict[str, INTS]:
    nodes, dies = s.all_nodes, s.npus * dies_per_npu
    shapes: dict[str, tuple[int, ...]] = {
        "die-die": (s.npus, dies_per_npu, dies_per_npu),
        "die-L1": (dies, s.sub_planes),
        "CPU-L1": (nodes, s.cpus_per_node, s.sub_planes),
        "L1-L2": (nodes, s.sub_planes, chips),
        "die-NIC": (dies,),
        "NIC-RDMA": (dies,),
        "CPU-Qingtian": (nodes,),
        "Qingtian-VPC": (nodes,),
    }
    return {kind: np.full(shape, -1, np.int64) for kind, shape in shapes.items()}


def _place(
    made: Mapping[str, Any], a: Mapping[str, Any], b: Mapping[str, Any], s: Supernode, dies: int
) -> tuple[int, ...]:
    """Where a link from a to b stands in the shape of its kind."""
    kind = made["kind"]
    home = int(a["node"])
    if kind == "CPU-L1":
        return home, a["index"], b["sub_plane"]
    if kind == "L1-L2":
        return home, a["sub_plane"], b["index"]
    if kind in {"CPU-Qingtian", "Qingtian-VPC"}:
        return (home,)
    npu = home * s.npus_per_node + a["npu"]
    if kind == "die-die":
        return npu, a["die"], b["die"]
    die = npu * dies + a["die"]
    return (die, b["sub_plane"]) if kind == "die-L1" else (die,)


@dataclass(frozen=True)
class Tables:
    """Capacity (bytes/s) and latency (s) of one direction of every link, by number.

    By kind: die-L1 [dies, sub-planes], CPU-L1 [nodes, CPUs, sub-planes], L1-L2 [nodes,
    sub-planes, chips], die-NIC and NIC-RDMA [dies], CPU-Qingtian and Qingtian-VPC [nodes],
    die-die [NPUs, dies, dies] (upper triangle).
    """

    wiring: Wiring
    capacity: FLOATS
    latency: FLOATS

    def rates(self, kind: str) -> FLOATS:
        """Nominal bytes/s of all links of a kind, in the kind's shape; 0 where there is none."""
        return np.asarray(self.capacity[self.wiring.places[kind]])

    def waits(self, kind: str) -> FLOATS:
        """Latency (s) of all links of a kind, -inf for those that carry nothing."""
        number = self.wiring.places[kind]
        return np.where(self.capacity[number] > 0.0, self.latency[number], -np.inf)

    @cached_property
    def die_links(self) -> FLOATS:
        """Each die's UB links, f8[dies, sub_planes]."""
        return self.rates("die-L1")

    @cached_property
    def cpu_links(self) -> FLOATS:
        """UB links of all CPUs of a node together, f8[nodes, sub_planes]."""
        return np.asarray(self.rates("CPU-L1").sum(axis=1))

    @cached_property
    def nics(self) -> FLOATS:
        """What each die's NIC carries, f8[dies]."""
        return np.minimum(self.rates("die-NIC"), self.rates("NIC-RDMA"))

    @cached_property
    def dpus(self) -> FLOATS:
        """What each node's Qingtian DPU carries, f8[nodes]."""
        return np.minimum(self.rates("CPU-Qingtian"), self.rates("Qingtian-VPC"))

    @cached_property
    def uplinks(self) -> FLOATS:
        """Links of each L1 chip to each L2 chip of its sub-plane, f8[nodes, sub_planes, chips]."""
        return self.rates("L1-L2")

    @cached_property
    def siblings(self) -> FLOATS:
        """The slowest link between two dies of each NPU, f8[npus]; 0 for NPUs of one die."""
        rows, columns = np.triu_indices(self.wiring.dies_per_npu, 1)
        if not rows.size:
            return np.zeros(self.wiring.supernode.npus)
        return np.asarray(self.rates("die-die")[:, rows, columns].min(axis=1))

    @cached_property
    def every_door(self) -> FLOATS:
        """`doors` when a node may talk to every other, f8[nodes, sub_planes]."""
        return self.doors(range(self.wiring.supernode.all_nodes))

    def doors(self, among: Collection[int] | INTS) -> FLOATS:
        """Nominal bytes/s of every node's uplinks, over L2 chips that reach another of `among`.

        f8[nodes, sub_planes]; 0 where the UB plane ends at the node.
        """
        asked = np.asarray(among, np.int64).tobytes()
        found = self._doors.get(asked)
        if found is None:
            if len(self._doors) >= KEPT_DOORS:
                self._doors.clear()
            found = self._doors[asked] = self._open_doors(among)
        return found

    @cached_property
    def _doors(self) -> dict[bytes, FLOATS]:
        """Answers of `doors` by what was asked: every flow of an instance asks the same."""
        return {}

    def _open_doors(self, among: Collection[int] | INTS) -> FLOATS:
        s = self.wiring.supernode
        inside = np.zeros(s.all_nodes, np.int64)
        inside[np.asarray(among, np.int64)] = 1
        links = self.uplinks
        joined = (links > 0.0) * inside[:, None, None]
        parts = joined.reshape(s.supernodes, s.nodes, *joined.shape[1:])
        others = (parts.sum(axis=1, keepdims=True) - parts).reshape(joined.shape)
        return np.asarray(np.where(others > 0, links, 0.0).sum(axis=2))

    # Latencies: the longest way over links that carry anything, 0 where there is none.

    @cached_property
    def up_waits(self) -> FLOATS:
        """From an L1 chip to the L2 chips of its sub-plane, f8[nodes, sub_planes]."""
        return self.waits("L1-L2").max(axis=2, initial=0.0)

    @cached_property
    def die_waits(self) -> Mapping[str, FLOATS]:
        """From a die to the middle of each plane, f8[dies]; "l1": to its node's L1 chips."""
        own = self.waits("die-L1")
        nodes = np.arange(own.shape[0]) // self.dies_per_node
        nic, net = self.waits("die-NIC"), np.maximum(self.waits("NIC-RDMA"), 0.0)
        down = (self.waits("CPU-L1") + self._host_waits()[:, :, None]).max(axis=1, initial=0.0)
        return {
            "l1": own.max(axis=1, initial=0.0),
            "ub": (own + self.up_waits[nodes]).max(axis=1, initial=0.0),
            "rdma": np.maximum(nic + net, 0.0),
            "vpc": (own + down[nodes]).max(axis=1, initial=0.0),
        }

    @cached_property
    def host_waits(self) -> Mapping[str, FLOATS]:
        """From the CPU with the DPU to the middle of each plane, f8[nodes].

        CPUs have no NIC: over RDMA a die of the node lends its own.
        """
        own = self.waits("CPU-L1")[:, self.wiring.host]
        lent = self.die_waits["rdma"].reshape(-1, self.dies_per_node).max(axis=1)
        return {
            "ub": (own + self.up_waits).max(axis=1, initial=0.0),
            "rdma": lent,
            "vpc": self._host_waits()[:, self.wiring.host],
        }

    def _host_waits(self) -> FLOATS:
        """From each CPU to the VPC network, f8[nodes, cpus]; only one of a node has the DPU."""
        s = self.wiring.supernode
        on = np.zeros((s.all_nodes, s.cpus_per_node))
        beyond = self.waits("CPU-Qingtian") + np.maximum(self.waits("Qingtian-VPC"), 0.0)
        on[:, self.wiring.host] = np.maximum(beyond, 0.0)
        return on

    @property
    def dies_per_node(self) -> int:
        """Dies of one node."""
        return self.wiring.supernode.npus_per_node * self.wiring.dies_per_npu

    def domain(self, nodes: Sequence[int] | INTS) -> INTS:
        """Which UB plane each node is on: its supernode's, or its own where UB ends at the node."""
        at = np.asarray(nodes, np.int64)
        return at // self.wiring.supernode.nodes if self.wiring.chips else at


def tables(fabric: Fabric) -> Tables:
    """The arrays that stand beside a fabric's graph."""
    found: Tables = fabric.graph["tables"]
    return found
