"""A fabric as three messages (deflated JSON) for the browser: `machine` (boxes, links and cells of
nodes x planes as built), `changes` by edits, `loads` of links."""

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
import streamlit as st

from twin.hardware import fabric as hardware
from twin.hardware.chip import HardwareError
from twin.hardware.kinds import VERTICES
from twin.hardware.network import Network
from twin.hardware.placement import Instance
from twin.scenario import NO_CHIP
from twin.ui import session, theme
from twin.ui.fabric_layout import boxes, matrix_row, plane_names
from twin.ui.fields import CHIPS, choice_label

KINDS = {  # of boxes: one, several, colour
    "rack": ("rack", "racks", ""),
    "plane": ("switch plane", "switch planes", "ub"),
    "node": ("node", "nodes", ""),
    "npu": ("NPU", "NPUs", ""),
} | {kind: (known.one, known.several, known.plane) for kind, known in VERTICES.items()}

Array = np.ndarray[Any, Any]


class Layout:
    """A fabric as built: boxes, links (one for both directions), and cells of the load matrix."""

    def __init__(self, net: Network) -> None:
        """Lay out the boxes and links of a fabric as built."""
        self.net, self.boxes = net, boxes(net)
        link_of_pair, _ = net.pairs
        end_vertices = np.stack([net.tail[link_of_pair], net.head[link_of_pair]], axis=1)
        self.ends: Array = np.sort(end_vertices, axis=1)  # i8[links, 2], vertices by number
        self.rates = self.lower_direction(net.capacity)  # bytes/s
        names_and_kinds = zip(self.boxes.name, self.boxes.kind, strict=True)
        self.nodes = [name for name, kind in names_and_kinds if kind == "node"]

    def lower_direction(self, values: Array) -> Array:
        """For each link, the lower of the values of its two directions, f8[links]. values:
        f8[directed links]."""
        link_of_pair, pair_of_link = self.net.pairs
        lower_values = np.full(link_of_pair.size, np.inf)
        np.minimum.at(lower_values, pair_of_link, values)
        return lower_values

    @cached_property
    def matrix_cell(self) -> Array:
        """Number of each link's cell in the load matrix of nodes and planes, i8[links]: node times
        the number of rows (planes), plus the row. -1: the link is not shown."""
        net, row_of_vertex = self.net, matrix_row(self.boxes)
        node_index = {int(name.split()[1]): k for k, name in enumerate(self.nodes)}
        end_nodes = np.array([node_index.get(node, -1) for node in net.node.tolist()])[self.ends]
        link_of_pair, _ = net.pairs
        sub_planes = np.where(
            end_nodes.min(axis=1) >= 0, np.maximum(net.sub_plane[link_of_pair], 0), -1
        )
        link_rows = np.maximum(row_of_vertex[self.ends].max(axis=1), sub_planes)
        is_leaving = (end_nodes[:, 0] != end_nodes[:, 1]) & (link_rows >= 0)
        has_die = np.isin(self.ends, net.dies).any(axis=1)
        is_entering = (
            (end_nodes[:, 0] == end_nodes[:, 1])
            & (row_of_vertex[self.ends].max(axis=1) >= 0)
            & has_die
        )
        has_cell = is_leaving | (is_entering & ~np.isin(link_rows, link_rows[is_leaving]))
        home_node = np.where(end_nodes[:, 0] >= 0, end_nodes[:, 0], end_nodes[:, 1])
        cell_numbers = home_node * len(self.boxes.rows) + link_rows
        return np.where(has_cell & (home_node >= 0), cell_numbers, -1)

    @cached_property
    def elements(self) -> list[tuple[str, Array]]:
        """(name in edits, vertices i8[n]) of each element with several vertices, such as a node."""
        named_elements = []
        for name in dict.fromkeys(self.boxes.name):
            if name not in self.net.number:
                try:
                    named_elements.append((name, self.net.members(name)))
                except HardwareError:  # a rack, where the machine has no word for it
                    continue
        return named_elements


# The fabric as built, the same graph each time; and its arrays, for questions about it as built.
built = lru_cache(maxsize=16)(hardware.network_as_built)
layout = lru_cache(maxsize=8)(Layout)


@lru_cache(maxsize=8)
def machine_message(fabric: Network) -> dict[str, Any]:
    """Message of a machine without edits: boxes with their places, links with their GB/s."""
    picture = layout(fabric)
    sheet, net = picture.boxes, picture.net
    kinds = list(dict.fromkeys([*KINDS, *sheet.kind]))
    planes_and_counts = [(attrs["plane"], attrs["links"]) for attrs in net.link_data]
    link_of_pair, _ = net.pairs
    tail_kinds = (net.vertex_data[vertex]["kind"] for vertex in net.tail.tolist())
    plane_of = dict(zip(tail_kinds, (plane for plane, _ in planes_and_counts), strict=True))
    links_and_rates = zip(link_of_pair.tolist(), picture.rates.tolist(), strict=True)
    link_types = [(*planes_and_counts[k], rate) for k, rate in links_and_rates]
    type_index = {link_type: k for k, link_type in enumerate(dict.fromkeys(link_types))}
    box_of = np.array([sheet.box_of[vertex] for vertex in range(len(net.vertices))])
    boxes_in = {name: {sheet.box_of[int(v)] for v in members} for name, members in picture.elements}
    main_chip = net.about["supernode"].chip
    nodes_and_chips = zip(net.node[net.first_dies].tolist(), net.chips(main_chip), strict=True)
    chip_of_node = {f"node {node}": chip for node, chip in nodes_and_chips}
    node_chips = [chip_of_node.get(name, NO_CHIP) for name in picture.nodes]
    chips = list(dict.fromkeys([main_chip, *node_chips]))
    return {
        "kinds": [[kind, *KINDS.get(kind, (kind, kind, plane_of.get(kind, "")))] for kind in kinds],
        "name": sheet.name,
        "kind": [kinds.index(kind) for kind in sheet.kind],
        "parent": sheet.parent,
        "rect": [list(column) for column in zip(*sheet.rect, strict=True)],
        "blocks": [list(block) for block in sheet.blocks],
        "fixed": sheet.fixed,
        "dies": box_of[net.dies].tolist(),
        "chip": [chips.index(chip) for chip in node_chips],
        "chips": chips,
        "also": [  # what a plane has in the nodes
            [k, sorted(boxes_in[name]
                       - {box for box, parent in enumerate(sheet.parent) if parent == k})]
            for k, name in enumerate(sheet.name) if sheet.kind[k] == "plane" and name in boxes_in
        ],
        "named": [name for name, _ in picture.elements],
        "rows": [[row_title, plane] for row_title, (plane, _) in sheet.rows.items()],
        "planes": plane_names(net),
        "ends": [np.diff(end_boxes, prepend=0).tolist() for end_boxes in box_of[picture.ends].T],
        "sorts": [[plane, link_count, rate / 1e9] for plane, link_count, rate in type_index],
        "sort": [type_index[link_type] for link_type in link_types],
        "cell": np.diff(picture.matrix_cell, prepend=0).tolist(),
    }  # fmt: skip


@lru_cache(maxsize=8)
def machine_text(fabric: Network) -> str:
    """Text that is sent for `machine_message`: base64 of its deflated JSON."""
    return deflate_json(machine_message(fabric))


@lru_cache(maxsize=16)
def edits_message(fabric: Network) -> dict[str, Any]:
    """Message of a fabric's edits: links whose rate changed, with GB/s; factors of capacity and
    latency by edited element; names of elements that contain edited ones."""
    picture = layout(built(fabric))
    edited_rates = picture.lower_direction(fabric.capacity)
    changed_links = np.flatnonzero(edited_rates != picture.rates)
    edits = fabric.about["supernode"].edits
    # Factors (capacity, latency) of edited elements, and the boxes that contain any.
    element_names = [name for name, _ in picture.elements]
    member_vertices = np.concatenate([members for _, members in picture.elements])
    vertex_counts = np.array([members.size for _, members in picture.elements])
    element_index = np.repeat(np.arange(vertex_counts.size), vertex_counts)
    factors_of: dict[str, list[float]] = {}
    containers: set[str] = set()
    for edit in edits:
        is_edited = np.zeros(len(picture.net.vertices), bool)
        for element in (edit.element, edit.to):
            if element:
                is_edited[picture.net.members(element)] = True
        edited_counts = np.bincount(element_index, is_edited[member_vertices], vertex_counts.size)
        all_edited = (edited_counts == vertex_counts) & (not edit.to)
        containers.update(
            element_names[k] for k in np.flatnonzero((edited_counts > 0) & ~all_edited)
        )
        if edit.to:
            continue
        vertex_names = [picture.net.vertices[k] for k in np.flatnonzero(is_edited)]
        for name in vertex_names + [element_names[k] for k in np.flatnonzero(all_edited)]:
            factors = factors_of.get(name, (1.0, 1.0))
            factors_of[name] = [factors[0] * edit.capacity_factor, factors[1] * edit.latency_factor]
    return {
        "edits": len(edits),
        "links": np.diff(changed_links, prepend=0).tolist(),
        "gb": [float(f"{gb:.6g}") for gb in edited_rates[changed_links] / 1e9], "marks": factors_of,
        "within": sorted(containers),
    }  # fmt: skip


def plane_colours(net: Network) -> dict[str, str]:
    """Colour of each plane's links; planes that share a name have the colour of the last one."""
    names = plane_names(net)
    colour_of = {names[plane]: colour for plane, colour in theme.PLANE.items()}
    return {plane: colour_of[name] for plane, name in names.items()}


def plane_columns(plane: str, sub_plane: int | None, planes: int) -> list[int]:
    """Columns of a plane in an array [nodes, planes + 2] of UB sub-planes, RDMA and VPC. planes:
    number of UB sub-planes. sub_plane: one of them, or None for all."""
    if plane in ("rdma", "vpc"):
        return [planes + (plane == "vpc")]
    return list(range(planes)) if sub_plane is None else [sub_plane]


def link_values(fabric: Network, cells: Array) -> list[float | None]:
    """For each link, the value of its node and plane; None if unknown. cells: the values f8[nodes,
    UB sub-planes + 2], with RDMA and VPC in the last two columns."""
    picture = layout(built(fabric))
    ub_planes = cells.shape[1] - 2
    row_values = np.full((len(picture.nodes), len(picture.boxes.rows)), np.nan)
    is_one_network = len(set(plane_names(picture.net).values())) < 3
    for k, (row_name, (plane, vertices)) in enumerate(picture.boxes.rows.items()):
        forwards = [picture.net.vertex_data[vertex].get("forwards", "") for vertex in vertices]
        if plane in ("rdma", "vpc"):
            is_vpc = plane == "vpc"
            columns = slice(ub_planes + (is_vpc and not is_one_network), ub_planes + 1 + is_vpc)
            row_values[:, k] = np.fmax.reduce(cells[:, columns], axis=1)
        elif k < ub_planes and row_name.startswith("UB"):
            row_values[:, k] = cells[:, k]
        elif ub_planes and forwards and all("ub" in plane_text.split() for plane_text in forwards):
            # Switches of no sub-plane: an imported machine's, which may lead to CPUs, too.
            row_values[:, k] = np.fmax.reduce(cells[:, :ub_planes], axis=1)
    return _three_figures(np.append(row_values.ravel(), np.nan)[picture.matrix_cell])


def link_loads(fabric: Network, shares: Array) -> list[float | None]:
    """Load of each link's busier direction in %. shares: load / capacity, f8[directed links]."""
    return _three_figures(0.0 - 100.0 * layout(built(fabric)).lower_direction(-shares))


def _three_figures(values: Array) -> list[float | None]:
    """Values rounded to three significant figures; NaN becomes None."""
    return [None if np.isnan(value) else float(f"{value:.3g}") for value in values.tolist()]


def deflate_json(message: Any) -> str:
    """A message as base64 of its deflated JSON."""
    json_bytes = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(zlib.compress(json_bytes, 6)).decode()


def pack_floats(values: Array) -> str:
    """Numbers as base64 of little-endian f4."""
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()


_HERE = Path(__file__).parent / "canvas"
PICTURE = ("scene", "picture", "matrix")  # the modules that every page with the picture shares
ROLE = "role"  # the colours that need no load


def component(name: str, home: Path, stem: str, parts: Sequence[str]) -> Callable[..., Any]:
    """Make a function that draws a component called `name`, from files of the folder `home`: HTML
    and CSS called `stem`, JavaScript modules called `parts`. A page receives the code only once."""

    def read_all(*files: Path) -> str:
        """Contents of text files, joined."""
        return "\n".join(file.read_text("utf-8") for file in files)

    modules_js = read_all(*(_HERE / f"{p}.js" for p in PICTURE), *(home / f"{p}.js" for p in parts))
    script_js = modules_js.replace("export default function", f"globalThis.{name} = function")
    ready_js = f'document.dispatchEvent(new CustomEvent("{name}"))'
    code_js = f"{script_js}\n{ready_js}\nexport default function () {{}}"
    draw_code = st.components.v2.component(f"{name}_code", js=code_js)
    html = read_all(home / f"{stem}.html")
    css = read_all(_HERE / "picture.css", home / f"{stem}.css")
    picture_js = read_all(_HERE / "wait.js").replace("NAME", name)
    draw_picture = st.components.v2.component(name, html=html, css=css, js=picture_js)

    def draw(**options: Any) -> Any:
        """Draw the component; options: arguments that Streamlit takes; returns its state."""
        draw_code(key=f"{name}-code")
        return draw_picture(**options)

    return draw


# The machine as built goes to the browser by itself, too.
_GEOMETRY = (_HERE / "geometry.js").read_text("utf-8")
_geometry = st.components.v2.component("fabric_geometry", js=_GEOMETRY)
_canvas = component("fabric_picture", _HERE, "view", ["view"])


def draw_fabric(
    fabric: Network, *, title: str, key: str, instances: Sequence[Instance] = (),
    carried: Sequence[float | None] | None = None, unit: str = "% of capacity",
    modes: Mapping[str, str] | None = None,
    on_act: Callable[[Sequence[dict[str, Any]]], None] | None = None, acted: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Draw the fabric; returns what is selected: {"name": the last element, "names": all}, or {}.
    carried: value of each link, in `unit`, by which it is coloured. modes: other colourings to
    choose from, label by name. on_act: receives the edits made in the picture; None: it cannot be
    edited. acted: number of the last edit that was handled."""

    def pass_actions() -> None:
        """Pass the edits made in the picture to `on_act`."""
        state = st.session_state.get(key)  # None: a picture of another key stands there by now
        if on_act and state and state.acts:
            on_act(state.acts)

    die_ranges = [
        [instance.role, instance.name, [[first, last + 1] for first, last in instance.spans()]]
        for instance in instances
    ]
    chips, facts = machine_message(built(fabric))["chips"], session.facts()
    with st.container(gap=None):  # what only carries code and geometry takes no room
        canvas_state = _canvas(
            data={
                "title": title, "machine": send_geometry(fabric, key), "instances": die_ranges,
                "changes": deflate_json(edits_message(fabric)), "mode": chosen_colouring(key),
                "colours": plane_colours(fabric) | theme.ROLE | theme.KIND,
                "chips": [choice_label(CHIPS, chip, facts) for chip in chips],
                "carried": "" if carried is None else deflate_json(list(carried)),
                "high": max((link_value for link_value in carried or () if link_value is not None),
                            default=0.0) or 1.0,
                "unit": unit, "modes": list((modes or {}).items()),
                "editable": on_act is not None, "acted": acted,
            },
            key=key, on_selection_change=lambda: None, on_colour_change=lambda: None,
            on_acts_change=pass_actions,
        )  # fmt: skip
    return dict(canvas_state.selection or {})


def send_geometry(fabric: Network, picture: str) -> str:
    """Send the machine as built to the browser; returns the digest by which the picture with the
    key `picture` finds it."""
    message_text = machine_text(built(fabric))
    digest = f"{crc32(message_text.encode()):08x}"
    _geometry(data={"digest": digest, "machine": message_text}, key=f"geometry-{picture}-{digest}")
    return digest


def chosen_colouring(key: str) -> str:
    """Colouring chosen in the picture with this key: ROLE, or a key of its `modes`."""
    picture_state = st.session_state.get(key)
    return str((picture_state.get("colour") if picture_state else None) or ROLE)


def link_matrix(
    net: Network, links: pl.DataFrame, column: str = "utilisation_mean"
) -> np.ndarray[Any, Any]:
    """Values of a `column` of the table `links`, f8[nodes, UB sub-planes + 2], with RDMA and VPC in
    the last two columns. Of both directions the higher value counts; NaN: no link."""
    values_by_plane = np.full((net.nodes, net.sub_planes + 2), np.nan)
    for row in links.iter_rows(named=True):
        if row["node"] is not None and row[column] is not None:
            indices = row["node"], plane_columns(row["plane"], row["sub_plane"], net.sub_planes)
            values_by_plane[indices] = np.fmax(values_by_plane[indices], row[column])
    return values_by_plane
