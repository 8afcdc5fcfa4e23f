"""What elements of a fabric are called: vertices, groups of them, numbers of dies.

The one place that reads names people type. Everything is looked up in an index made once for a
fabric and shared by its edited copies, for an edit changes links and never vertices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import networkx as nx

from twin.hardware.chip import HardwareError

Fabric: TypeAlias = nx.DiGraph  # frozen; see hardware/fabric.py
Edge: TypeAlias = tuple[str, str]

EXAMPLES = (
    "try NPU 20.1, die 20.1.0, CPU 20.2, L1 20.3, L2 3.12, node 20, sub-plane 3 or RDMA network"
)


LABELS = {  # kind of link -> what people call the port it belongs to, and the vertex that has it
    "die-L1": ("UB links of die {node}.{npu}.{die}", "die"),
    "die-die": ("die-die links of NPU {node}.{npu}", "die"),
    "CPU-L1": ("CPU ports of node {node}", "cpu"),
    "L1-L2": ("L1 uplinks of node {node}", "l1"),
    "die-NIC": ("NIC of die {node}.{npu}.{die}", "die"),
    "NIC-RDMA": ("NIC of die {node}.{npu}.{die}", "nic"),
    "CPU-Qingtian": ("Qingtian DPU of node {node}", "qingtian"),
    "Qingtian-VPC": ("Qingtian DPU of node {node}", "qingtian"),
}


@dataclass(frozen=True)
class Names:
    """Plain spelling -> vertices, and the groups in the order and spelling shown to people."""

    vertices: dict[str, tuple[str, ...]]
    groups: tuple[str, ...]


def name_index(fabric: Fabric) -> Names:
    """The index of a fabric's vertices and groups; made by build_fabric."""
    groups: dict[str, list[str]] = defaultdict(list)
    found: dict[str, tuple[str, ...]] = {}
    for vertex, data in fabric.nodes(data=True):
        kind, home, part = data["kind"], data.get("node"), data.get("supernode")
        found[plain(vertex)] = (vertex,)
        if kind == "l2" and part is not None:
            found[plain(f"L2 {part}:{data['sub_plane']}.{data['index']}")] = (vertex,)
        elif kind == "die" and "npu" in data:
            groups[f"NPU {home}.{data['npu']}"].append(vertex)
        if home is not None:
            groups[f"node {home}"].append(vertex)
        if kind in {"l1", "l2"} and "sub_plane" in data:
            groups[f"sub-plane {data['sub_plane']}"].append(vertex)
            groups[f"sub-plane {part}:{data['sub_plane']}"].append(vertex)
        if kind == "l1":
            groups["UB plane"].append(vertex)
        if kind in {"rdma", "vpc"}:
            groups[f"{kind.upper()} plane"].append(vertex)
        if "rack" in data:
            groups[data["rack"]].append(vertex)
        if part is not None:
            groups[f"supernode {part}"].append(vertex)
    found |= {plain(name): tuple(members) for name, members in groups.items()}
    several = len({v for v in groups if v.startswith("supernode")}) > 1
    shown = [g for g in groups if several or not (":" in g or g.startswith("supernode"))]
    return Names(found, tuple(sorted(shown, key=_by_number)))


def _by_number(name: str) -> tuple[str, list[int]]:
    return name.split(maxsplit=1)[0], [
        int(n) for n in plain(name).replace(":", " ").split() if n.isdigit()
    ]


def plain(name: str) -> str:
    """A name as it is looked up: letter case, dots and hyphens make no difference."""
    return " ".join(name.lower().replace(".", " ").replace("-", " ").split())


def port_label(kind: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What people call the port of a link between two vertices; "" where nothing is known."""
    text, owner = LABELS.get(kind, ("", ""))
    place = one if one["kind"] == owner else other
    return text.format(**place) if place["kind"] == owner else ""


def die_name(fabric: Fabric, die: int) -> str:
    """Vertex of a die by its number in the machine (node by node, NPU by NPU)."""
    dies: tuple[str, ...] = fabric.graph["dies"]
    if not 0 <= die < len(dies):
        raise HardwareError(
            f"die {die} does not exist: the supernode has dies 0 to {len(dies) - 1}"
        )
    return dies[die]


def members(fabric: Fabric, name: str) -> tuple[str, ...]:
    """Vertices an element's name stands for, as a person would type it.

    A vertex stands for itself; "NPU 20.1" for its dies, "node 20" for all in it, "sub-plane 3"
    for its L1 and L2 chips in every supernode, "sub-plane 1:3" for those of the second, "UB plane"
    for all L1 chips. Letter case and a hyphen for a dot or space do not matter.
    Raises HardwareError when nothing has that name.
    """
    names: Names = fabric.graph["names"]
    found = names.vertices.get(plain(name))
    if found is None:
        raise HardwareError(f"no element is named {name!r}: {EXAMPLES}")
    return found


def element_names(fabric: Fabric) -> list[str]:
    """Every name `members` knows, as shown to people: groups first, then vertices by kind."""
    return listed(fabric.graph["names"], fabric)


def listed(names: Names, vertices: Iterable[str]) -> list[str]:
    """Groups as shown to people, then vertices by kind."""
    return [*names.groups, *(v for _, v in sorted((v.split()[0], v) for v in vertices))]
