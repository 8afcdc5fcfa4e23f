"""Elements and links of the fabric as tables: GB/s as built and now, to be changed in place.

The way to edit that needs no picture: name an element, or select one there. A group's table lists
the chips in it, a chip's table its links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

import streamlit as st

from twin.hardware.fabric import Fabric
from twin.hardware.names import MAIN_LINKS, members
from twin.scenario import Edit
from twin.ui import session
from twin.ui.fields import sentence
from twin.ui.pages.supernode import editor
from twin.ui.pages.supernode.elements import EditError, every, plain

BUILT, NOW, DELAY = "Built GB/s", "Now GB/s", "Latency ×"
MOST_NAMED = 12  # selected elements that are written out
KINDS = {
    "die": "die", "nic": "RDMA NIC", "cpu": "CPU", "l1": "L1 switch chip", "l2": "L2 switch chip",
    "qingtian": "Qingtian DPU", "rdma": "network", "vpc": "network",
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A row: an element, or one link of it, with bytes/s of one direction."""

    name: str
    to: str  # the link's other end; "" for an element with all its links
    kind: str
    built: float
    now: float
    latency: float  # of the link, or what the element's own edit makes of all its links


def parts(fabric: Fabric, built: Fabric, names: Sequence[str]) -> list[Part]:
    """The links of one chip, or the chips of several, and of groups, with their main links."""
    inside = list(dict.fromkeys(v for name in names for v in members(built, name)))
    if len(inside) > 1 or inside[0].endswith("network"):
        return [_chip(fabric, built, v) for v in inside]
    return list(_links(fabric, built, inside[0]))


def _chip(fabric: Fabric, built: Fabric, vertex: str) -> Part:
    kind = built.nodes[vertex]["kind"]
    kinds = MAIN_LINKS.get(kind, ("NIC-RDMA", "Qingtian-VPC"))
    if kind == "l1" and not fabric.graph["l2_chips_per_sub_plane"]:
        kinds = ("die-L1",)

    def rate(graph: Fabric) -> float:
        return sum(
            e["capacity_bytes_per_s"] for e in graph.adj[vertex].values() if e["kind"] in kinds
        )

    own = _own(fabric, vertex)
    return Part(vertex, "", KINDS[kind], rate(built), rate(fabric), own.latency_factor)


def _links(fabric: Fabric, built: Fabric, vertex: str) -> Iterator[Part]:
    for other, edge in built.adj[vertex].items():
        now = fabric.adj[vertex].get(other)
        yield Part(
            vertex,
            other,
            f"{edge['kind']}, {edge['links']} links" if edge["links"] > 1 else edge["kind"],
            edge["capacity_bytes_per_s"],
            now["capacity_bytes_per_s"] if now else 0.0,
            now["latency_s"] / edge["latency_s"] if now and edge["latency_s"] else 1.0,
        )


def _own(fabric: Fabric, element: str, to: str = "") -> Edit:
    """The edit of just this element or link, one that changes nothing when there is none."""
    ends = [plain(element), plain(to)] if to else [plain(element)]
    for edit in fabric.graph["supernode"].edits:
        named = [plain(e) for e in (edit.element, edit.to) if e]
        if sorted(named) == sorted(ends):
            return edit
    return Edit(element=element, to=to)


def parts_table(fabric: Fabric, names: Sequence[str]) -> None:
    """Ask for elements, first those selected, and draw their parts or links to be edited."""
    selected = ", ".join(names if len(names) <= MOST_NAMED else names[-1:])
    typed = st.text_input(
        "Element",
        selected,
        key=f"parts-of:{selected}",
        placeholder="node 20, NPU 20.1, L1 20.3, L2 3.12 or sub-plane 3",
        help="What is selected in the picture, or any other by its name.",
    ).strip()
    if not typed:
        st.info(
            "Select something in the picture, or name it here, to see its parts and links and "
            "to set their capacity in GB/s.",
            icon=":material/ads_click:",
        )
        return
    built = editor.as_built()
    try:
        named = every(built, typed)
    except EditError as error:
        st.markdown(f":red[:material/error: {sentence(str(error))}]")
        return
    rows = parts(fabric, built, named)
    _table(rows)
    what = "Each row is a link" if rows[0].to else "Each row counts the chip's main links"
    st.caption(
        f"{what}, one direction; latency over that as built. 0 GB/s takes it out. "
        + ("" if rows[0].to else "A change holds for all links of the chip.")
    )


def _table(rows: list[Part]) -> None:
    """The rows to be edited; a table of other numbers is another table, so none shows old ones."""
    key = f"parts:{crc32(repr(rows).encode())}:{editor.refusals()}"
    name = "Link to" if rows[0].to else "Element"
    st.data_editor(
        [
            {
                name: row.to or row.name,
                BUILT: row.built / 1e9,
                NOW: row.now / 1e9,
                DELAY: row.latency,
                "Kind": row.kind,
            }
            for row in rows
        ],
        key=key,
        hide_index=True,
        height=min(36 * len(rows) + 40, 420),
        on_change=_take,
        args=(key, rows),
        disabled=[name, "Kind", BUILT],
        column_config={
            BUILT: st.column_config.NumberColumn(format="%.5g", width=90),
            NOW: st.column_config.NumberColumn(format="%.5g", min_value=0, width=90),
            DELAY: st.column_config.NumberColumn(
                format="%.4g", min_value=0.01, max_value=1000, width=90
            ),
        },
    )


def _take(key: str, rows: list[Part]) -> None:
    """Take what was typed into the draft."""
    if session.gone(key):
        return
    for index, cells in st.session_state[key]["edited_rows"].items():
        for column in (NOW, DELAY):
            if cells.get(column) is not None:
                take_cell(rows[int(index)], column, float(cells[column]))


def take_cell(row: Part, column: str, value: float) -> None:
    """Set a row's capacity (GB/s) or latency (over that as built) by an edit of just this row.

    From what the row has now, not from what was drawn: a cell may be sent twice.
    """
    fabric = editor.fabric_of(session.draft().supernode)
    now = _now(fabric, row)
    own = _own(fabric, row.name, row.to)
    what = (row.name, row.to) if row.to else row.name
    wanted = 1e9 * value
    if column == DELAY:
        editor.set_elements([what], latency=round(own.latency_factor * value / now.latency, 9))
    elif now.now > 0.0:
        editor.set_elements([what], capacity=round(own.capacity_factor * wanted / now.now, 9))
    elif own.capacity_factor == 0.0 or wanted == 0.0:
        editor.set_elements([what], capacity=round(wanted / row.built, 9))
    else:
        editor.refuse(f"{row.name} is off by an edit of something it is part of: restore that")


def _now(fabric: Fabric, row: Part) -> Part:
    built = editor.as_built()
    if not row.to:
        return _chip(fabric, built, row.name)
    return next(link for link in _links(fabric, built, row.name) if link.to == row.to)
