"""Kinds of vertices and of links, each declared once: what builders, files and pictures say; and
what elements of a fabric are called: vertices, groups of them, numbers of dies.

A vertex of a kind that is not here is a switch (an imported machine may have any). Planes are
"ub", "rdma", "vpc", "package" and "host" (see fabric.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from twin.hardware.chip import HardwareError

Edge: TypeAlias = tuple[str, str]

EXAMPLES = (
    "try NPU 20.1, die 20.1.0, CPU 20.2, L1 20.3, L2 3.12, node 20, sub-plane 3 or RDMA network"
)


@dataclass(frozen=True, slots=True)
class VertexKind:
    """A kind of vertex."""

    one: str  # words for people
    several: str
    forwards: str  # planes that it passes on, in words, unless its builder says otherwise
    plane: str = ""  # in whose colour it is drawn; "": in none
    named: str = ""  # what its name begins with in a file; "": a file cannot name it
    place: tuple[str, ...] = ()  # what the numbers in its name are
    end: bool = False  # what bytes come from or go to, with its ports; other kinds are switches


@dataclass(frozen=True, slots=True)
class LinkKind:
    """A kind of link; its name is that of its two ends."""

    plane: str  # where its bytes are counted
    hop: str  # latency of one hop: a fact of the machine's `hop` group
    serves: str  # planes whose paths may use it, in words
    write_waits: bool = False  # a write takes `write_extra` longer there
    port: str = ""  # what people call the port it belongs to
    owner: str = ""  # kind of the vertex that has this port


DIE = ("node", "npu", "die")
VERTICES = {
    "die": VertexKind("die", "dies", "host", named="die", place=DIE, end=True),
    "cpu": VertexKind("CPU", "CPUs", "vpc", named="cpu", place=("node", "index"), end=True),
    "port": VertexKind("NPU port", "NPU ports", "ub vpc host", "ub", "port", ("node", "npu")),
    "nic": VertexKind("NIC", "NICs", "rdma host", "rdma", "nic", DIE, end=True),
    "l1": VertexKind(
        "L1 switch chip", "L1 switch chips", "ub vpc host", "ub", "l1", ("node", "sub_plane")
    ),
    "l2": VertexKind("L2 switch chip", "L2 switch chips", "ub", "ub", "l2", ("sub_plane", "index")),
    "l3": VertexKind("L3 switch chip", "L3 switch chips", "ub", "ub"),
    "nvswitch": VertexKind("NVSwitch chip", "NVSwitch chips", "ub", "ub"),
    "lrs": VertexKind("LRS switch", "LRS switches", "ub vpc host", "ub"),
    "hrs": VertexKind("HRS switch", "HRS switches", "ub", "ub"),
    "qingtian": VertexKind(
        "Qingtian DPU", "Qingtian DPUs", "vpc", "vpc", "qingtian", ("node",), end=True
    ),
    "leaf": VertexKind("leaf switch", "leaf switches", "rdma host", "rdma"),
    "spine": VertexKind("spine switch", "spine switches", "rdma host", "rdma"),
    "rdma": VertexKind("RDMA network", "RDMA networks", "rdma host", "rdma", "rdma network"),
    "vpc": VertexKind("VPC network", "VPC networks", "vpc", "vpc", "vpc network"),
    "switch": VertexKind("switch", "switches", "ub"),
}

BETWEEN = {  # plane -> planes that may use a link of no kind below
    "ub": "ub", "rdma": "rdma host", "vpc": "vpc", "package": "package",
}  # fmt: skip
INSIDE = "ub vpc host"  # UB links of a node's ends: also the way to storage and to its NICs
LINKS = {
    "die-die": LinkKind(
        "ub", "cross_die", "package", port="die-die links of NPU {node}.{npu}", owner="die"
    ),
    "die-L1": LinkKind("ub", "die_l1", INSIDE, True, "UB links of die {node}.{npu}.{die}", "die"),
    "die-port": LinkKind("ub", "die_l1", INSIDE, True),
    "die-NVSwitch": LinkKind("ub", "die_l1", "ub"),
    "CPU-L1": LinkKind("ub", "cpu_l1", INSIDE, True, "CPU ports of node {node}", "cpu"),
    "CPU-port": LinkKind("ub", "cpu_l1", INSIDE, True),
    "CPU-die": LinkKind("ub", "cpu_l1", INSIDE, True),
    "CPU-LRS": LinkKind("ub", "cpu_l1", INSIDE, True),
    "port-LRS": LinkKind("ub", "direct", INSIDE),
    "port-port": LinkKind("ub", "direct", "ub"),
    "L1-L1": LinkKind("ub", "l1_l2", "ub"),
    "L1-L2": LinkKind("ub", "l1_l2", "ub", port="L1 uplinks of node {node}", owner="l1"),
    "L2-L3": LinkKind("ub", "l1_l2", "ub"),
    "LRS-LRS": LinkKind("ub", "l1_l2", "ub"),
    "LRS-HRS": LinkKind("ub", "l1_l2", "ub"),
    "die-NIC": LinkKind(
        "rdma", "rdma", "rdma host", port="NIC of die {node}.{npu}.{die}", owner="die"
    ),
    "NIC-RDMA": LinkKind(
        "rdma", "rdma", "rdma host", port="NIC of die {node}.{npu}.{die}", owner="nic"
    ),
    "NIC-leaf": LinkKind("rdma", "rdma", "rdma host"),
    "leaf-spine": LinkKind("rdma", "rdma", "rdma host"),
    "spine-RDMA": LinkKind("rdma", "rdma", "rdma host"),
    "CPU-Qingtian": LinkKind(
        "vpc", "cpu_dpu", "vpc", port="Qingtian DPU of node {node}", owner="qingtian"
    ),
    "Qingtian-VPC": LinkKind(
        "vpc", "dpu_vpc", "vpc", port="Qingtian DPU of node {node}", owner="qingtian"
    ),
}


def is_switch(kind: str) -> bool:
    """Whether vertices of this kind are switch chips, rather than ends, ports or networks."""
    vertex_kind = VERTICES.get(kind, VERTICES["switch"])
    return not vertex_kind.end and kind not in ("port", "rdma", "vpc")


@dataclass(frozen=True, eq=False)
class Names:
    """Index of a machine's names: normalised spelling -> vertices. Made at its first use; edited
    copies of a machine share it unless they add vertices."""

    given: Mapping[str, Mapping[str, Any]]  # attributes of every vertex

    @cached_property
    def _groups(self) -> dict[str, list[str]]:
        """Names of the vertices of each group: a node, NPU, sub-plane, plane, rack or supernode."""
        vertices_of_group: dict[str, list[str]] = defaultdict(list)
        for vertex, data in self.given.items():
            kind, node, supernode = data["kind"], data.get("node"), data.get("supernode")
            if kind == "die" and "npu" in data:
                vertices_of_group[f"NPU {node}.{data['npu']}"].append(vertex)
            if node is not None:
                vertices_of_group[f"node {node}"].append(vertex)
            if kind in {"l1", "l2"} and "sub_plane" in data:
                vertices_of_group[f"sub-plane {data['sub_plane']}"].append(vertex)
                vertices_of_group[f"sub-plane {supernode}:{data['sub_plane']}"].append(vertex)
            if kind == "l1":
                vertices_of_group["UB plane"].append(vertex)
            if kind in {"rdma", "vpc"}:
                vertices_of_group[f"{kind.upper()} plane"].append(vertex)
            if "rack" in data:
                vertices_of_group[data["rack"]].append(vertex)
            if supernode is not None:
                vertices_of_group[f"supernode {supernode}"].append(vertex)
        return vertices_of_group

    @cached_property
    def by_spelling(self) -> dict[str, tuple[str, ...]]:
        """Names of vertices, by the normalised spelling of their own name or of their group's."""
        vertices_of = {spelling(vertex): (vertex,) for vertex in self.given}
        for vertex, data in self.given.items():
            if data["kind"] == "l2" and "supernode" in data:
                long_name = f"L2 {data['supernode']}:{data['sub_plane']}.{data['index']}"
                vertices_of[spelling(long_name)] = (vertex,)
        return vertices_of | {spelling(name): tuple(group) for name, group in self._groups.items()}

    def find(self, name: str) -> tuple[str, ...]:
        """Vertices of an element, named as a person would type it: a vertex itself; "NPU 20.1" its
        dies, "node 20" all vertices in it, "sub-plane 3" its L1 and L2 chips in every supernode,
        "sub-plane 1:3" those of the second, "UB plane" all L1 chips. Letter case and a hyphen for a
        dot or space do not matter. Raises HardwareError for an unknown name."""
        vertices = self.by_spelling.get(spelling(name))
        if vertices is None:
            raise HardwareError(f"no element is named {name!r}: {EXAMPLES}")
        return vertices

    def shown_names(self) -> list[str]:
        """Every name as shown to people: groups first, then vertices by kind."""
        has_several_supernodes = sum(name.startswith("supernode") for name in self._groups) > 1
        group_names = [
            group
            for group in self._groups
            if has_several_supernodes or not (":" in group or group.startswith("supernode"))
        ]
        vertices = sorted(self.given, key=lambda vertex: (vertex.split()[0], vertex))
        return [*sorted(group_names, key=_number_key), *vertices]


def _number_key(name: str) -> tuple[str, list[int]]:
    """Sort key of a name: its first word, then its numbers."""
    return name.split(maxsplit=1)[0], [
        int(word) for word in spelling(name).replace(":", " ").split() if word.isdigit()
    ]


def spelling(name: str) -> str:
    """Normalised spelling of a name: without letter case, dots and hyphens."""
    return " ".join(name.lower().replace(".", " ").replace("-", " ").split())


def port_label(kind: str, end_data: Mapping[str, Any], other_data: Mapping[str, Any]) -> str:
    """Name for people of the port that a link belongs to; "" if the link has no such port. kind:
    the link's kind; end_data, other_data: attributes of its two ends."""
    if kind not in LINKS:
        return ""
    owner_data = end_data if end_data["kind"] == LINKS[kind].owner else other_data
    return LINKS[kind].port.format(**owner_data) if owner_data["kind"] == LINKS[kind].owner else ""
