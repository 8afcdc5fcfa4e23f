"""A fabric as two small messages for the browser: what stands and is linked, and what was edited.

The browser knows no wiring and reads no names. `machine` tells it every element with what it is
part of, every link, and the cells of the matrix of nodes x planes; it depends on the machine as
built alone, so an edit does not change it. `changes` tells what edits made of that. Both are read
off the graph, its vertices' kinds and the groups that people name. This file draws nothing and
knows no streamlit.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import Fabric, built
from twin.hardware.names import element_names, members
from twin.scenario import Edit

KINDS = {  # of vertices, in the order in which a drill-in shows them: one, several, colour
    "npu": ("NPU", "NPUs", ""),
    "nic": ("NIC", "NICs", "rdma"),
    "die": ("die", "dies", ""),
    "l2": ("L2 chip", "L2 chips", "ub"),
    "l1": ("L1 chip", "L1 chips", "ub"),
    "cpu": ("CPU", "CPUs", ""),
    "qingtian": ("Qingtian DPU", "Qingtian DPUs", "vpc"),
    "rdma": ("RDMA network", "RDMA networks", "rdma"),
    "vpc": ("VPC network", "VPC networks", "vpc"),
}
GROUPS = {"node": "node", "NPU": "npu", "sub-plane": "plane"}  # first word of a name -> kind
PLANES = {"nic": "rdma", "qingtian": "vpc"}  # rows of the matrix below the sub-planes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Layout:
    """A fabric as built in arrays: its vertices and links numbered, and who is part of what."""

    fabric: Fabric

    @cached_property
    def number(self) -> dict[str, int]:
        """Vertex -> number."""
        return {name: k for k, name in enumerate(self.fabric)}

    @cached_property
    def links(self) -> dict[tuple[int, int], tuple[str, float]]:
        """Plane, and bytes/s of one direction as built, of every link by its two ends."""
        found = {}
        for a, b, edge in self.fabric.edges(data=True):
            i, j = self.number[a], self.number[b]
            found[min(i, j), max(i, j)] = edge["plane"], edge["capacity_bytes_per_s"]
        return found

    @cached_property
    def ends(self) -> Array:
        """Numbers of the two ends of every link, i8[links, 2]."""
        return np.array(list(self.links), np.int64).reshape(-1, 2)

    @cached_property
    def rates(self) -> Array:
        """Bytes/s of every link, one direction, as built."""
        return np.array([rate for _, rate in self.links.values()])

    @cached_property
    def groups(self) -> dict[str, tuple[str, Array]]:
        """Group -> its kind and the numbers of its vertices; those that the picture can select."""
        found = {}
        for name in element_names(self.fabric):
            kind = GROUPS.get(name.partition(" ")[0], "")
            if kind and ":" not in name:
                found[name] = (kind, self.numbers(members(self.fabric, name)))
        return found

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of the matrix: the UB sub-planes, the RDMA plane, the VPC plane."""
        planes = [(n, k) for n, (kind, k) in self.groups.items() if kind == "plane"]
        rows = [
            {"text": f"UB {p}", "plane": "ub", "name": name} for p, (name, _) in enumerate(planes)
        ]
        return rows + [
            {"text": plane.upper(), "plane": plane, "name": ""} for plane in PLANES.values()
        ]

    @cached_property
    def cells(self) -> list[tuple[str, Array]]:
        """Name and vertices of each cell of the matrix, node by node; '' where nothing stands."""
        found = []
        kinds = np.array([kind for _, kind in self.fabric.nodes(data="kind")])
        planes = [k for kind, k in self.groups.values() if kind == "plane"]
        for name, (kind, inside) in self.groups.items():
            if kind != "node":
                continue
            chips = [np.intersect1d(inside, plane) for plane in planes]
            chips += [inside[kinds[inside] == kind] for kind in PLANES]
            called = f"NIC {name.partition(' ')[2]}.*"  # as an editor understands it
            for cell in chips:
                one = self.names[int(cell[0])] if cell.size else ""
                found.append((called if cell.size > 1 else one, cell))
        return found

    @cached_property
    def names(self) -> list[str]:
        """Names of the vertices by number."""
        return list(self.number)

    @cached_property
    def elements(self) -> list[tuple[str, Array]]:
        """Groups, and cells that are several vertices."""
        several = [(name, k) for name, k in self.cells if k.size > 1]
        return [(name, k) for name, (_, k) in self.groups.items()] + several

    def called(self, kind: str) -> list[str]:
        """Names of the groups of a kind, in their order."""
        return [name for name, (found, _) in self.groups.items() if found == kind]

    @cached_property
    def homes(self) -> dict[str, dict[str, int]]:
        """Kind of group -> vertex -> number of its group."""
        found: dict[str, dict[str, int]] = {kind: {} for kind in GROUPS.values()}
        counts = dict.fromkeys(GROUPS.values(), 0)
        for kind, inside in self.groups.values():
            found[kind] |= dict.fromkeys((self.names[k] for k in inside), counts[kind])
            counts[kind] += 1
        return found

    def place(self, vertices: Iterable[str]) -> tuple[int | None, int | None]:
        """Numbers of the node and of the sub-plane that vertices share, None where they do not."""
        node, plane = ({self.homes[kind].get(v) for v in vertices} for kind in ("node", "plane"))
        return tuple(next(iter(s)) if len(s) == 1 else None for s in (node, plane))  # type: ignore[return-value]

    def numbers(self, names: Iterable[str]) -> Array:
        """Vertices by number."""
        return np.array([self.number[name] for name in names], np.int64)


@lru_cache(maxsize=8)
def layout(fabric: Fabric) -> Layout:
    """The arrays of a fabric as built; pass `built(fabric)`."""
    return Layout(fabric)


def place(fabric: Fabric, element: str) -> tuple[int | None, int | None]:
    """Number of the node and of the UB sub-plane that an element is in; None: in none, in several.

    An element that there is not is nowhere.
    """
    try:
        return layout(built(fabric)).place(members(fabric, element))
    except HardwareError:
        return None, None


@lru_cache(maxsize=8)
def places(fabric: Fabric) -> list[list[Any]]:
    """Name, node and sub-plane of every element, and of the rows of the matrix."""
    known = layout(fabric)
    names = [*known.names, *known.groups]
    found = [[name, *known.place(members(fabric, name))] for name in names]
    return found + [[row["text"], None, p] for p, row in enumerate(known.rows) if row["name"]]


@lru_cache(maxsize=16)
def rates(fabric: Fabric) -> Array:
    """Bytes/s of every link of the layout now, one direction; 0 where an edit took it out."""
    known = layout(built(fabric))
    names = known.names
    edges = (fabric.get_edge_data(names[a], names[b]) for a, b in known.ends.tolist())
    return np.array([edge["capacity_bytes_per_s"] if edge else 0.0 for edge in edges])


@lru_cache(maxsize=8)
def machine(fabric: Fabric) -> dict[str, Any]:
    """Everything that stands, by number: vertices, groups of them, links in GB/s as built."""
    known = layout(fabric)
    data = dict(fabric.nodes(data=True))
    kinds = {kind: k for k, kind in enumerate(KINDS)}
    sorts = {sort: k for k, sort in enumerate(dict.fromkeys(known.links.values()))}
    made = {
        "kinds": [[kind, *words] for kind, words in KINDS.items()],
        "names": known.names,
        "kind": [kinds[data[name]["kind"]] for name in known.names],
        "part": [data[name].get("supernode", -1) for name in known.names],
        "groups": [[name, kind, k.tolist()] for name, (kind, k) in known.groups.items()],
        "rows": known.rows,
        "cells": [[name, k.tolist()] for name, k in known.cells],
        "ends": packed(known.ends, "<u4"),
        "sorts": [[plane, rate / 1e9] for plane, rate in sorts],
        "sort": packed(np.array([sorts[sort] for sort in known.links.values()]), "<u2"),
    }
    return made | {"digest": zlib.crc32(repr(made).encode())}


@lru_cache(maxsize=16)
def changes(fabric: Fabric) -> dict[str, Any]:
    """What edits made of a fabric: links in GB/s now, marks of elements, who holds edited ones.

    A mark is the product of the capacity and latency factors of the edits that take the whole
    element in; an edit of a part of it, or of a link, is `within`.
    """
    known = layout(built(fabric))
    now = rates(fabric)
    differ = np.flatnonzero(now != known.rates)
    marks, within = _marks(known, fabric.graph["supernode"].edits)
    return {
        "edits": len(fabric.graph["supernode"].edits),
        "links": packed(differ, "<u4"),
        "gb": packed(now[differ] / 1e9, "<f4"),
        "marks": marks,
        "within": sorted(within),
    }


def _marks(known: Layout, edits: Iterable[Edit]) -> tuple[dict[str, list[float]], set[str]]:
    """Factors of capacity and latency by element, and the groups that hold something edited."""
    names = [name for name, _ in known.elements]
    inside = np.concatenate([k for _, k in known.elements])
    sizes = np.array([k.size for _, k in known.elements])
    group = np.repeat(np.arange(sizes.size), sizes)
    marks: dict[str, list[float]] = {}
    within: set[str] = set()
    for edit in edits:
        taken = np.zeros(len(known.number), bool)
        for end in (edit.element, edit.to):
            if end:
                taken[known.numbers(members(known.fabric, end))] = True
        met = np.bincount(group, taken[inside], sizes.size)
        whole = (met == sizes) & (not edit.to)
        within.update(names[k] for k in np.flatnonzero((met > 0) & ~whole))
        if edit.to:
            continue
        wholes = [known.names[k] for k in np.flatnonzero(taken)]
        for name in wholes + [names[k] for k in np.flatnonzero(whole)]:
            capacity, latency = marks.get(name, (1.0, 1.0))
            marks[name] = [capacity * edit.capacity_factor, latency * edit.latency_factor]
    return marks, within


@lru_cache(maxsize=8)
def capacities(fabric: Fabric) -> Array:
    """Nominal bytes/s of each cell out of its node, f8[nodes, rows]; within it where none leaves.

    The latter is an L1 chip of a machine whose UB plane ends at the node: what its dies put in.
    """
    known = layout(built(fabric))
    home = np.full(len(known.number), -1)
    nodes = [k for kind, k in known.groups.values() if kind == "node"]
    for n, inside in enumerate(nodes):
        home[inside] = n
    a, b = known.ends.T
    out = home[a] != home[b]
    dies = np.array([kind == "die" for _, kind in known.fabric.nodes(data="kind")])
    leaves = _sum_at(known, rates(fabric), out)
    enters = _sum_at(known, rates(fabric), dies[a] | dies[b])
    beyond = _sum_at(known, known.rates, out) > 0.0
    cells = np.array(
        [(leaves if beyond[k].any() else enters)[k].sum() for _, k in known.cells]
    ).reshape(len(nodes), len(known.rows))
    cells.setflags(write=False)
    return cells


def _sum_at(known: Layout, each: Array, links: Array) -> Array:
    """Bytes/s of some links, summed at each of their ends."""
    ends, chosen = known.ends[links], each[links]
    count = len(known.number)
    return np.bincount(ends[:, 0], chosen, count) + np.bincount(ends[:, 1], chosen, count)


def packed(values: Array, kind: str = "<f4") -> str:
    """Numbers as base64 of little-endian ones of a kind."""
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()
