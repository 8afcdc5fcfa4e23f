"""What elements of a fabric are called: vertices, groups of them, numbers of dies.

Names that people type are looked up in an index, which is made at its first use. Edited copies of a
machine share it unless they add vertices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from twin.hardware.chip import HardwareError
from twin.hardware.kinds import LINKS

Edge: TypeAlias = tuple[str, str]

EXAMPLES = (
    "try NPU 20.1, die 20.1.0, CPU 20.2, L1 20.3, L2 3.12, node 20, sub-plane 3 or RDMA network"
)


@dataclass(frozen=True, eq=False)
class Names:
    """Index of a machine's names: normalised spelling -> vertices."""

    given: Mapping[str, Mapping[str, Any]]  # attributes of every vertex

    @cached_property
    def _groups(self) -> dict[str, list[str]]:
        """Vertices of each group of elements, by the group's name: node, NPU, plane, switches."""
        groups: dict[str, list[str]] = defaultdict(list)
        for vertex, data in self.given.items():
            kind, node, supernode = data["kind"], data.get("node"), data.get("supernode")
            if kind == "die" and "npu" in data:
                groups[f"NPU {node}.{data['npu']}"].append(vertex)
            if node is not None:
                groups[f"node {node}"].append(vertex)
            if kind in {"l1", "l2"} and "sub_plane" in data:
                groups[f"sub-plane {data['sub_plane']}"].append(vertex)
                groups[f"sub-plane {supernode}:{data['sub_plane']}"].append(vertex)
            if kind == "l1":
                groups["UB plane"].append(vertex)
            if kind in {"rdma", "vpc"}:
                groups[f"{kind.upper()} plane"].append(vertex)
            if "rack" in data:
                groups[data["rack"]].append(vertex)
            if supernode is not None:
                groups[f"supernode {supernode}"].append(vertex)
        return groups

    @cached_property
    def vertices(self) -> dict[str, tuple[str, ...]]:
        """Names of vertices by the normalised spelling of an element or a group."""
        vertex_of = {spelling(vertex): (vertex,) for vertex in self.given}
        for vertex, data in self.given.items():
            if data["kind"] == "l2" and "supernode" in data:
                long_name = f"L2 {data['supernode']}:{data['sub_plane']}.{data['index']}"
                vertex_of[spelling(long_name)] = (vertex,)
        return vertex_of | {spelling(name): tuple(group) for name, group in self._groups.items()}

    def find(self, name: str) -> tuple[str, ...]:
        """Vertices of an element, named as a person would type it: a vertex itself; "NPU 20.1" its
        dies, "node 20" all vertices in it, "sub-plane 3" its L1 and L2 chips in every supernode,
        "sub-plane 1:3" those of the second, "UB plane" all L1 chips. Letter case and a hyphen for a
        dot or space do not matter. Raises HardwareError for an unknown name."""
        vertices = self.vertices.get(spelling(name))
        if vertices is None:
            raise HardwareError(f"no element is named {name!r}: {EXAMPLES}")
        return vertices

    def shown(self) -> list[str]:
        """Every name as shown to people: groups first, then vertices by kind."""
        has_several_supernodes = sum(name.startswith("supernode") for name in self._groups) > 1
        groups = [
            group
            for group in self._groups
            if has_several_supernodes or not (":" in group or group.startswith("supernode"))
        ]
        vertices = sorted(self.given, key=lambda v: (v.split()[0], v))
        return [*sorted(groups, key=_number_key), *vertices]


def _number_key(name: str) -> tuple[str, list[int]]:
    """Sort key of a name: its first word, then its numbers."""
    return name.split(maxsplit=1)[0], [
        int(word) for word in spelling(name).replace(":", " ").split() if word.isdigit()
    ]


def spelling(name: str) -> str:
    """Normalised spelling of a name: without letter case, dots and hyphens."""
    return " ".join(name.lower().replace(".", " ").replace("-", " ").split())


def port_label(kind: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Name for people of the port of a link whose ends have these attributes; "" if unknown."""
    if kind not in LINKS:
        return ""
    owner_data = one if one["kind"] == LINKS[kind].owner else other
    return LINKS[kind].port.format(**owner_data) if owner_data["kind"] == LINKS[kind].owner else ""
