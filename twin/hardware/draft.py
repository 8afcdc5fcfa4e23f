"""What all machines have: nodes with dies, CPUs and NICs, and the links inside a node.

A `Draft` is a machine in the making. The builders (builders.py) add what is between the
nodes. Nothing here prices anything."""

import math
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

from twin.hardware.chip import HardwareError
from twin.hardware.kinds import LINKS, VERTICES
from twin.hardware.recipes import Recipe
from twin.scenario import NodeKind, Supernode

MOST_LINKS = 1_500_000


class Draft:
    """A machine under construction: the common parts, and links that builders add."""

    def __init__(self, s: Supernode, recipe: Recipe) -> None:
        """s: the supernode; recipe: of its first kind of nodes, with those of further kinds."""
        self.s, self.recipe = s, recipe
        self.hop = dict(recipe.hop_s)
        self._recipes = (recipe, *recipe.further)
        self._kind = [s.kind_of(node) for node in range(s.all_nodes)]
        self.link_bytes_per_s = s.ub_link_gb_per_s * 1e9
        self.vertices: dict[str, dict[str, Any]] = {}
        self.links: tuple[list[str], list[str], list[dict[str, Any]]] = [], [], []
        self._alike = cache(self._link_attributes)
        self.storage = "VPC network"  # where Qingtian cards lead to
        self.about: dict[str, Any] = {
            "l2_chips_per_sub_plane": 0,
            "beyond_node": dict(recipe.efficiency)["beyond_node"],
            "routing": recipe.routing,
            "detour_hops": recipe.detour_hops,
            "layout": recipe.layout,
        }

    def kind(self, n: int) -> NodeKind | None:
        """The row of `supernode.kinds` that node n belongs to; None for the first kind."""
        return self.s.kinds[self._kind[n] - 1] if self._kind[n] else None

    def npus(self, n: int) -> range:
        """Numbers of the NPUs of node n, from 0; empty for a node that has only CPUs."""
        node_kind = self.kind(n)
        return range(self.s.npus_per_node if node_kind is None or node_kind.has_npus else 0)

    def cpus(self, n: int) -> range:
        """Numbers of the CPUs of node n, from 0."""
        node_kind = self.kind(n)
        return range((node_kind.cpus_per_node if node_kind else 0) or self.s.cpus_per_node)

    def recipe_of(self, n: int) -> Recipe:
        """The recipe with the figures of the chip of node n."""
        return self._recipes[self._kind[n]]

    def die_link_bytes_per_s(self, n: int) -> float:
        """Bytes/s of one UB link of a die of node n, one direction."""
        node_kind = self.kind(n)
        return (node_kind.ub_link_gb_per_s * 1e9 if node_kind else 0.0) or self.link_bytes_per_s

    def add(self, name: str, kind: str, forwards: str = "", **place: Any) -> None:
        """Add a vertex. place: its node, NPU etc.; forwards: planes it passes on, "": by kind."""
        forwarded_planes = forwards or VERTICES[kind].forwards
        self.vertices[name] = {"kind": kind, **place, "forwards": forwarded_planes}

    def link(
        self, end_a: str, end_b: str, kind: str, capacity: float, sub_plane: int | None = None,
        links: int = 1,
    ) -> None:  # fmt: skip
        """Add both directions of a link of a kind (of `LINKS`) between two vertices, or of a bundle
        of `links` parallel ones; capacity: bytes/s of the bundle, one direction."""
        has_node_kind = self.s.kinds and self.vertices[end_a]["kind"] == "die"
        kind_number = self._kind[self.vertices[end_a]["node"]] if has_node_kind else 0
        link_attributes = self._alike(kind, capacity, sub_plane, links, kind_number)
        tails, heads, attributes = self.links
        tails += end_a, end_b
        heads += end_b, end_a
        attributes += link_attributes, link_attributes
        if len(tails) > 2 * MOST_LINKS:
            raise too_large_error(len(tails) // 2)

    def _link_attributes(
        self, kind: str, capacity: float, sub_plane: int | None, links: int, kind_number: int
    ) -> dict[str, Any]:
        """Attributes of a link. capacity: bytes/s of one direction; kind_number: kind of its die's
        node, 0 for the first."""
        link_kind, efficiency = LINKS[kind], dict(self._recipes[kind_number].efficiency)
        plane, served_planes = link_kind.plane, link_kind.serves
        if plane == "ub":
            read_efficiency = efficiency["cpu_read" if kind.startswith("CPU") else "npu_read"]
            write_efficiency = efficiency["write"]
        else:
            read_efficiency = write_efficiency = efficiency[plane]
        sub_plane_entry = {} if sub_plane is None else {"sub_plane": sub_plane}
        if self.recipe.scale_out == "unified" and plane == "rdma":
            served_planes += " vpc"
        return {
            "kind": kind,
            "plane": plane,
            "capacity_bytes_per_s": capacity,
            "latency_s": self.hop[link_kind.hop],
            **sub_plane_entry,
            "links": links,
            "serves": served_planes,
            "read_efficiency": read_efficiency,
            "write_efficiency": write_efficiency,
            "write_extra_s": self.hop["write_extra"] if link_kind.write_waits else 0.0,
        }

    def add_nodes(
        self, domain: Callable[[int], int], *, switches: bool = True, ports: bool = False,
        die_forwards: str = "",
    ) -> None:  # fmt: skip
        """Add the vertices of all nodes: dies with their NICs, CPUs, L1 switches (`switches`) or
        NPU ports (`ports`), and a DPU. domain: function that gives a node's scale-up domain;
        die_forwards: planes that dies pass on."""
        machine, nodes_per_rack = self.s, self.recipe.nodes_per_rack
        racks_per_supernode = math.ceil(machine.nodes / nodes_per_rack)  # of a supernode
        add = self.add
        if machine.cpu_nodes and not switches:
            raise HardwareError(
                f"supernode.kinds has nodes of CPUs alone, and {self.recipe.name} joins nodes by "
                "their NPUs: take a machine with L1 switches in its nodes, as cloudmatrix384"
            )
        nic_forwards = "rdma host vpc" if self.recipe.scale_out == "unified" else ""
        for node in range(machine.all_nodes):
            supernode = node // machine.nodes
            rack = supernode * racks_per_supernode + node % machine.nodes // nodes_per_rack
            place: dict[str, Any] = {"supernode": supernode, "node": node, "rack": f"rack {rack}"}
            end_place = place | {"domain": domain(node)}
            node_kind = self.kind(node)
            chip_entry = {"chip": node_kind.chip} if node_kind else {}
            for npu in self.npus(node):
                for die_index in range(self.recipe_of(node).dies_per_npu):
                    die_place = end_place | {"npu": npu, "die": die_index}
                    die_number = f"{node}.{npu}.{die_index}"
                    add(f"die {die_number}", "die", die_forwards, **die_place, **chip_entry)
                    add(f"NIC {die_number}", "nic", nic_forwards, **die_place)
            for cpu in self.cpus(node):
                add(f"CPU {node}.{cpu}", "cpu", **end_place, index=cpu)
            for npu in range(machine.npus_per_node * ports):
                add(f"port {node}.{npu}", "port", **place, npu=npu)
            for sub_plane in range(machine.sub_planes * switches):
                add(f"L1 {node}.{sub_plane}", "l1", **place, sub_plane=sub_plane)
            add(f"Qingtian {node}", "qingtian", **place)

    def add_networks(self) -> None:
        """Add the networks outside the supernodes, one vertex per plane."""
        self.add("RDMA network", "rdma")
        self.add("VPC network", "vpc")

    def link_package(self, node: int, npu: int) -> None:
        """Add the links between the dies of an NPU of a node; both are numbers."""
        recipe = self.recipe_of(node)
        for die_pair in combinations(range(recipe.dies_per_npu), 2):
            die_a, die_b = (f"die {node}.{npu}.{die_index}" for die_index in die_pair)
            self.link(die_a, die_b, "die-die", recipe.cross_die_bytes_per_s)

    def link_inside(self, node: int) -> None:
        """Add the links inside a node, whose dies and CPUs meet at its L1 switches."""
        machine = self.s
        link_counts = self.recipe.links or (1,) * machine.sub_planes
        if len(link_counts) != machine.sub_planes:
            raise HardwareError(
                f"supernode.sub_planes = {machine.sub_planes} does not fit {self.recipe.name}, "
                f"whose dies have links to {len(link_counts)} switches: take sub_planes = "
                f"{len(link_counts)}"
            )
        switches = [(plane, f"L1 {node}.{plane}") for plane in range(machine.sub_planes)]
        bytes_per_s = self.die_link_bytes_per_s(node)
        for npu in self.npus(node):
            self.link_package(node, npu)
            for die_index in range(self.recipe_of(node).dies_per_npu):
                die = f"die {node}.{npu}.{die_index}"
                for plane, switch in switches:
                    links = link_counts[plane]
                    self.link(die, switch, "die-L1", links * bytes_per_s, plane, links)
        bytes_per_s = self.recipe.cpu_bytes_per_s / machine.sub_planes
        for cpu in self.cpus(node):
            for plane, switch in switches:
                self.link(f"CPU {node}.{cpu}", switch, "CPU-L1", bytes_per_s, plane)

    def link_nics(self, far_end: Callable[[int, int], tuple[str, str]]) -> None:
        """Add the links from every die to its NIC, and from the NIC to another vertex. far_end:
        function that gives (vertex, kind of link) for a node and the number of a die in it."""
        supernode = self.s
        for node in range(supernode.all_nodes):
            node_kind, npu_dies = self.kind(node), self.recipe_of(node).dies_per_npu
            kind_gb_per_s = node_kind.rdma_gb_per_s_per_npu if node_kind else 0.0
            nic_bytes_per_s = (kind_gb_per_s or supernode.rdma_gb_per_s_per_npu) * 1e9 / npu_dies
            for npu in self.npus(node):
                for die_index in range(npu_dies):
                    nic = f"NIC {node}.{npu}.{die_index}"
                    self.link(f"die {node}.{npu}.{die_index}", nic, "die-NIC", nic_bytes_per_s)
                    far_vertex, link_kind = far_end(node, npu * npu_dies + die_index)
                    self.link(nic, far_vertex, link_kind, nic_bytes_per_s)

    def link_storage(self) -> None:
        """Link every node's DPU with storage and with one CPU of its node, or with all its CPUs."""
        bytes_per_s = self.s.vpc_gb_per_s_per_node * 1e9
        cpu_with_dpu = self.recipe.cpu_with_dpu
        for node in range(self.s.all_nodes):
            dpu, cpus = f"Qingtian {node}", self.cpus(node)
            for cpu in cpus if cpu_with_dpu < 0 else (min(cpu_with_dpu, cpus[-1]),):
                self.link(f"CPU {node}.{cpu}", dpu, "CPU-Qingtian", bytes_per_s)
            self.link(dpu, self.storage, "Qingtian-VPC", bytes_per_s)


def too_large_error(links: int) -> HardwareError:
    """HardwareError for a machine with so many links that it would not fit in memory."""
    return HardwareError(
        f"a machine of some {links:,} links or more is too large to be held as a graph: take fewer "
        f"nodes, NPUs, sub-planes or supernodes, for at most {MOST_LINKS:,} links"
    )
