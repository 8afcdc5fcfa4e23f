"""Places of a fabric's elements on its picture: nodes in racks, other switches in blocks.
The browser places racks and blocks for its width; grids and free layouts are placed here."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import networkx as nx
import numpy as np

from twin.hardware.kinds import VERTICES, is_switch
from twin.hardware.network import Network

# Units of the picture; a screen shows one as half a px to some tens.
NPU_W, NPU_H, STEP, GUTTER = 24.0, 29.0, 26.0, 27.0
CHIP_W, CHIP_H, HEAD = 14.0, 11.0, 25.0
SCREEN = 1.8  # width of a screen over its height
NPUS_IN_ROW, CHIPS_IN_ROW, STRIP, NODES_IN_COLUMN, NODES_IN_RACK = 8, 8, 16, 8, 4
SWITCHES_APART = 40  # of a machine without a drawing of its own: each a box, links between them
STRIP_ORDER = ("l1", "cpu", "qingtian")  # of what stands below the NPUs
PLANES = {  # kinds off the UB plane that are no switches
    kind: known.plane
    for kind, known in VERTICES.items()
    if known.plane in ("rdma", "vpc") and not is_switch(kind)
}


@dataclass
class Boxes:
    """Boxes of a picture, in columns. Each follows the box that contains it, and its x and y count
    from the corner of that box."""

    net: Network
    name: list[str] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    rect: list[tuple[float, float, float, float]] = field(default_factory=list)  # x, y, w, h
    outer: list[int] = field(default_factory=list)  # the outermost box around each
    box_of: dict[int, int] = field(default_factory=dict)  # vertex -> its box
    blocks: list[tuple[int, int, str]] = field(default_factory=list)  # box, supernode, what it is
    rows: dict[str, tuple[str, list[int]]] = field(default_factory=dict)  # text -> plane, vertices
    fixed: bool = False  # whether the blocks have their places
    apart: bool = False  # whether each switch outside the nodes is a block of its own

    def add_box(self, name: str, kind: str, parent: int, rect: Iterable[float]) -> int:
        """Add a box at `rect` (x, y, w, h) in box `parent` (-1: none); returns the new index."""
        x, y, width, height = (round(number, 1) for number in rect)
        box = len(self.name)
        self.name.append(name)
        self.kind.append(kind)
        self.parent.append(parent)
        self.rect.append((x, y, width, height))
        self.outer.append(box if parent < 0 else self.outer[parent])
        return box

    def add_vertex(self, vertex: int, parent: int, *rect: float) -> int:
        """Add the box of a vertex at `rect` (x, y, w, h) in box `parent` (-1: none); returns the
        index of the new box."""
        vertex_name, vertex_kind = self.net.vertices[vertex], self.net.vertex_data[vertex]["kind"]
        self.box_of[vertex] = box = self.add_box(vertex_name, vertex_kind, parent, rect)
        return box

    def resize(self, box: int, w: float, h: float) -> None:
        """Set the width and height of a box, after its contents were added."""
        self.rect[box] = (*self.rect[box][:2], round(w, 1), round(h, 1))


@lru_cache(maxsize=8)
def boxes(net: Network) -> Boxes:
    """Make the boxes that draw a machine as built: vertices, NPUs, nodes, racks, switch planes."""
    sheet = Boxes(net)
    vertices_of_node: dict[int, list[int]] = defaultdict(list)
    switches_of_rack: dict[str, list[int]] = defaultdict(list)
    rack_names = {attrs["rack"] for attrs in net.vertex_data if "node" in attrs and "rack" in attrs}
    switches: dict[tuple[int, tuple[str, Hashable]], list[int]] = defaultdict(list)
    for vertex, attrs in enumerate(net.vertex_data):
        if "node" in attrs:
            vertices_of_node[attrs["node"]].append(vertex)
        elif attrs.get("rack") in rack_names:
            switches_of_rack[attrs["rack"]].append(vertex)
        else:
            vertex_name = net.vertices[vertex] if attrs["kind"] in PLANES else None
            plane_key = attrs["kind"], attrs.get("sub_plane", vertex_name)
            switches[attrs.get("supernode", -1), plane_key].append(vertex)
    layout_name = net.about.get("layout", "racks")
    sheet.fixed = layout_name in ("grid", "free")
    sheet.apart = layout_name == "free" and sum(map(len, switches.values())) <= SWITCHES_APART
    if sheet.apart:
        switches = {
            (supernode, (kind, net.vertices[vertex])): [vertex]
            for (supernode, (kind, _)), vertices in switches.items()
            for vertex in vertices
        }
    if sheet.fixed and not switches_of_rack:
        for node, vertices in vertices_of_node.items():
            sheet.blocks.append((_add_node(sheet, node, vertices, -1, 0.0, 0.0), -1, "rack"))
    else:
        _add_racks(sheet, vertices_of_node, switches_of_rack)
    has_several_supernodes = len({supernode for supernode, _ in switches if supernode >= 0}) > 1
    switch_groups = sorted(switches.items(), key=lambda item: item[0][1][0] in PLANES)
    for (supernode, _), vertices in switch_groups:
        block = _add_switches(sheet, vertices, supernode if has_several_supernodes else -1)
        sheet.blocks.append((block, supernode, "hub"))
    if sheet.fixed:
        _place_blocks(sheet, layout_name)
    _set_matrix_rows(sheet)
    return sheet


def _add_racks(
    sheet: Boxes, nodes: Mapping[int, list[int]], switches: Mapping[str, list[int]]
) -> None:
    """Add boxes of racks with their nodes and switches; nodes without a rack are put into racks of
    four. nodes: vertices by number of the node. switches: vertices by name of the rack."""
    nodes_of_rack: dict[tuple[int, str], list[int]] = defaultdict(list)
    for k, (node, vertices) in enumerate(nodes.items()):
        attrs = sheet.net.vertex_data[vertices[0]]
        rack_name = attrs.get("rack") or f"rack {k // NODES_IN_RACK}"
        nodes_of_rack[attrs.get("supernode", 0), rack_name].append(node)
    for (supernode, rack_name), rack_nodes in nodes_of_rack.items():
        rack_box = sheet.add_box(rack_name, "rack", -1, (0, 0, 0, 0))
        nodes_per_column = math.ceil(len(rack_nodes) / math.ceil(len(rack_nodes) / NODES_IN_COLUMN))
        x, y, right_edge, bottom_edge = 5.0, HEAD, 0.0, 0.0
        for i, node in enumerate(rack_nodes):
            if i and i % nodes_per_column == 0:
                x, y = right_edge + 4.0, HEAD
            node_box = _add_node(sheet, node, nodes[node], rack_box, x, y)
            _, _, width, height = sheet.rect[node_box]
            right_edge, y = max(right_edge, x + width), y + height + 4.0
            bottom_edge = max(bottom_edge, y)
        rack_switches = switches.get(rack_name, [])
        for k, switch in enumerate(rack_switches):
            corner = 5.0 + k % CHIPS_IN_ROW * 17.0, bottom_edge + k // CHIPS_IN_ROW * 14.0
            sheet.add_vertex(switch, rack_box, *corner, CHIP_W, CHIP_H)
        bottom_edge += 14.0 * math.ceil(len(rack_switches) / CHIPS_IN_ROW)
        sheet.resize(rack_box, right_edge + 5.0, bottom_edge + 1.0)
        sheet.blocks.append((rack_box, supernode, "rack"))


def _add_node(sheet: Boxes, n: int, members: Sequence[int], parent: int, x: float, y: float) -> int:
    """Add the boxes of node number `n` and of its vertices (`members`), with its corner at x, y in
    box `parent` (-1: none); returns the index of the node's box."""
    node_box = sheet.add_box(f"node {n}", "node", parent, (x, y, 0, 0))
    attrs = sheet.net.vertex_data
    vertices_of_npu: dict[int, list[int]] = defaultdict(list)
    for vertex in members:
        if "npu" in attrs[vertex]:
            vertices_of_npu[attrs[vertex]["npu"]].append(vertex)
    npus_per_row = max(4, min(NPUS_IN_ROW, len(vertices_of_npu)))
    for k, (npu_number, npu_vertices) in enumerate(vertices_of_npu.items()):
        corner = GUTTER + STEP * (k % npus_per_row), 4.0 + (NPU_H + 2.0) * (k // npus_per_row)
        npu_box = sheet.add_box(f"NPU {n}.{npu_number}", "npu", node_box, (*corner, NPU_W, NPU_H))
        dies = [vertex for vertex in npu_vertices if attrs[vertex]["kind"] == "die"]
        nics = [vertex for vertex in npu_vertices if vertex not in dies]  # above the dies
        dies_top = 9.0 if nics else 3.0
        for vertices, row_top, height in (
            (nics, 3.0, 4.0),
            (dies, dies_top, NPU_H - 3.0 - dies_top),
        ):
            vertex_width = (NPU_W - 2.0 - 2.0 * len(vertices)) / max(1, len(vertices))
            for i, vertex in enumerate(vertices):
                sheet.add_vertex(vertex, npu_box, 2.0 + i * (vertex_width + 2.0), row_top,
                                 vertex_width, height)  # fmt: skip
    npus_width = STEP * npus_per_row - 2.0
    strip_top = 4.0 + (NPU_H + 2.0) * math.ceil(len(vertices_of_npu) / npus_per_row)
    kind_of = {vertex: attrs[vertex]["kind"] for vertex in members if "npu" not in attrs[vertex]}
    other_vertices = sorted(kind_of, key=lambda v: (STRIP_ORDER + (kind_of[v],)).index(kind_of[v]))
    for strip_start in range(0, len(other_vertices), STRIP):
        strip_vertices = other_vertices[strip_start : strip_start + STRIP]
        box_width = min(40.0, (npus_width + 2.0) / len(strip_vertices) - 2.0)
        for k, vertex in enumerate(strip_vertices):
            sheet.add_vertex(vertex, node_box, GUTTER + k * (box_width + 2.0), strip_top,
                             box_width, 9.0)  # fmt: skip
        strip_top += 11.0
    sheet.resize(node_box, GUTTER + npus_width + 4.0, strip_top + 2.0)
    return node_box


def _add_switches(sheet: Boxes, switches: Sequence[int], supernode: int) -> int:
    """Add a box with the boxes of switches in it, or only the box of a single switch; returns the
    index of the outer box. supernode: number in front of the name; -1: none."""
    attrs = sheet.net.vertex_data[switches[0]]
    chips_per_row = CHIPS_IN_ROW if len(switches) <= 4 * CHIPS_IN_ROW else 2 * CHIPS_IN_ROW
    chips_per_row = max(CHIPS_IN_ROW, min(chips_per_row, len(switches)))
    width = 10.0 + chips_per_row * (CHIP_W + 3.0) - 3.0
    height = HEAD + math.ceil(len(switches) / chips_per_row) * (CHIP_H + 3.0) + 3.0
    if len(switches) == 1 and (sheet.apart or "sub_plane" not in attrs):
        return sheet.add_vertex(switches[0], -1, 0, 0, width, height)
    prefix = f"{supernode}:" if supernode >= 0 else ""
    block_name = f"{attrs['kind']} {prefix}"
    if "sub_plane" in attrs:
        block_name = f"sub-plane {prefix}{attrs['sub_plane']}"
    block = sheet.add_box(block_name.strip(": "), "plane", -1, (0, 0, width, height))
    for k, switch in enumerate(switches):
        corner = 5.0 + k % chips_per_row * 17.0, HEAD + k // chips_per_row * 14.0
        sheet.add_vertex(switch, block, *corner, CHIP_W, CHIP_H)
    return block


def _place_blocks(sheet: Boxes, layout_name: str) -> None:
    """Set x and y of all blocks (outermost boxes): in the layout "grid" by the coordinates of their
    vertices, otherwise by the links between blocks."""
    column_width, row_height = (
        max(sheet.rect[box][side] for box, _, _ in sheet.blocks) + 44.0 for side in (2, 3)
    )
    if layout_name == "grid":
        positions = _grid_places(sheet, column_width / row_height)
    elif any(kind == "hub" for _, _, kind in sheet.blocks):
        positions = _level_places(sheet)
    else:
        positions = _spring_places(sheet)
    next_row = 1.2 + max((y for _, y in positions.values()), default=0.0)
    unplaced = [box for box, _, _ in sheet.blocks if box not in positions]
    blocks_per_row = max(
        1, round(1.0 + max((x for x, _ in positions.values()), default=len(unplaced)))
    )
    for k, box in enumerate(unplaced):
        positions[box] = float(k % blocks_per_row), next_row + k // blocks_per_row
    for box, (x, y) in positions.items():
        corner = round(x * column_width, 1), round(y * row_height, 1)
        sheet.rect[box] = (*corner, *sheet.rect[box][2:])


def _grid_places(sheet: Boxes, aspect: float) -> dict[int, tuple[float, float]]:
    """(column, row) by block, from the coordinates (attribute `grid`) of the block's vertices. Each
    dimension becomes columns or rows, so that the picture fits a screen. aspect: width divided by
    height of a block."""
    places_of: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for vertex, attrs in enumerate(sheet.net.vertex_data):
        if attrs.get("grid"):
            place = *attrs["grid"], attrs.get("supernode", 0)
            places_of[sheet.outer[sheet.box_of[vertex]]].append(place)
    # The longest place is that of whole blocks; what has none stands below.
    dimensions = max((len(place) for places in places_of.values() for place in places), default=0)
    full_places = ((box, [place for place in places if len(place) == dimensions])
                  for box, places in places_of.items())  # fmt: skip
    corner_of = {box: np.min(places, axis=0) for box, places in full_places if places}
    corners = np.array(list(corner_of.values()), float)
    positions = np.zeros((len(corners), 2))
    columns_and_rows = [1.0, 1.0]
    for axis_values in corners.T:
        coordinates = np.unique(axis_values)
        if coordinates.size > 1:
            axis = int(columns_and_rows[0] * aspect > SCREEN * columns_and_rows[1])
            positions[:, axis] += np.searchsorted(coordinates, axis_values) * columns_and_rows[axis]
            columns_and_rows[axis] = columns_and_rows[axis] * coordinates.size + 0.4
    return {box: (x, y) for box, (x, y) in zip(corner_of, positions.tolist(), strict=True)}


def _level_places(sheet: Boxes) -> dict[int, tuple[float, float]]:
    """(column, row) by block: nodes at the top, switches below them by their number of hops to the
    nearest node."""
    racks = [box for box, _, kind in sheet.blocks if kind == "rack"]
    vertices = enumerate(sheet.net.vertex_data)
    node_of_block = {
        sheet.outer[sheet.box_of[vertex]]: attrs["node"]
        for vertex, attrs in vertices
        if "node" in attrs
    }
    racks.sort(key=lambda box: node_of_block.get(box, 0))
    hops_of = nx.multi_source_dijkstra_path_length(_block_graph(sheet), set(racks)) if racks else {}
    switches_by_hops: dict[int, list[int]] = defaultdict(list)
    for box, _, kind in sheet.blocks:
        if kind != "rack":
            switches_by_hops[int(hops_of.get(box, len(sheet.name)))].append(box)
    boxes_per_row = max(NODES_IN_COLUMN, math.ceil(math.sqrt(2 * len(sheet.blocks))))
    rows = [
        level[row_start : row_start + boxes_per_row]
        for level in (racks, *(switches_by_hops[k] for k in sorted(switches_by_hops)))
        for row_start in range(0, len(level), boxes_per_row)
    ]
    column_count = max(map(len, rows))
    return {
        box: (k + (column_count - len(row)) / 2.0, float(y))
        for y, row in enumerate(rows)
        for k, box in enumerate(row)
    }


def _block_graph(sheet: Boxes) -> nx.Graph:
    """Graph of the blocks, with an edge between two blocks if vertices in them are linked."""
    graph, net = nx.Graph(), sheet.net
    graph.add_nodes_from(box for box, _, _ in sheet.blocks)
    outer_box = np.array([sheet.outer[sheet.box_of[vertex]] for vertex in range(len(net.vertices))])
    box_pairs = np.unique(np.stack([outer_box[net.tail], outer_box[net.head]], axis=1), axis=0)
    graph.add_edges_from((tail, head) for tail, head in box_pairs.tolist() if tail != head)
    return graph


def _spring_places(sheet: Boxes) -> dict[int, tuple[float, float]]:
    """(column, row) by block in a square grid, with linked blocks near each other."""
    positions = nx.spring_layout(_block_graph(sheet), seed=1, iterations=60)
    column_count = max(1, math.ceil(math.sqrt(len(positions) / 2)))
    sorted_boxes = sorted(positions, key=lambda box: positions[box][0])
    row_count = math.ceil(len(sorted_boxes) / column_count)
    position_of_box: dict[int, tuple[float, float]] = {}
    for x in range(column_count):
        column = sorted(
            sorted_boxes[x * row_count : (x + 1) * row_count], key=lambda box: positions[box][1]
        )
        position_of_box |= {box: (float(x), float(y)) for y, box in enumerate(column)}
    return position_of_box


def plane_names(net: Network) -> dict[str, str]:
    """Shown name of each plane; RDMA and VPC have one name if a single network carries both."""
    name_of_plane = {plane: plane.upper() for plane in ("ub", "rdma", "vpc")}
    forwarded = (attrs.get("forwards", "") for attrs in net.vertex_data if attrs["kind"] in PLANES)
    if any({"rdma", "vpc"} <= set(plane_text.split()) for plane_text in forwarded):
        name_of_plane |= dict.fromkeys(("rdma", "vpc"), "RDMA and VPC")
    return name_of_plane


def _set_matrix_rows(sheet: Boxes) -> None:
    """Set the rows of the load matrix: UB sub-planes, RDMA, VPC, and other kinds of switches."""
    sub_planes = [attrs["sub_plane"] for attrs in sheet.net.vertex_data if "sub_plane" in attrs]
    for sub_plane in range(max(sub_planes, default=0) + 1):
        sheet.rows[f"UB {sub_plane}"] = ("ub", [])
    name_of_plane = plane_names(sheet.net)
    sheet.rows |= {name_of_plane[plane]: (plane, []) for plane in ("rdma", "vpc")}
    for vertex, attrs in enumerate(sheet.net.vertex_data):
        if "sub_plane" in attrs:
            sheet.rows[f"UB {attrs['sub_plane']}"][1].append(vertex)
        elif attrs["kind"] in PLANES:
            sheet.rows[name_of_plane[PLANES[attrs["kind"]]]][1].append(vertex)
        elif "node" not in attrs:
            sheet.rows.setdefault(attrs["kind"], ("ub", []))[1].append(vertex)


def matrix_row(sheet: Boxes) -> np.ndarray[Any, Any]:
    """Row of each vertex in the load matrix, i8[vertices]; -1: not shown there."""
    row_of_vertex = np.full(len(sheet.net.vertices), -1)
    for k, (_, vertices) in enumerate(sheet.rows.values()):
        row_of_vertex[vertices] = k
    return row_of_vertex
