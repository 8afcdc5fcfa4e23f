"""The fabric as a picture: nodes x planes on a canvas, coloured, drilled into, clicked.

`fabric_matrix` shows any fabric with any numbers for its cells and returns what was selected.
What the browser does stands in `canvas/`; this file makes the two small messages it gets: the
`shape` (constant for a fabric, so a click sends nothing back down) and the colours of the moment.
Edits of the supernode travel as the few words they are, and the browser works out the links. With
`on_act` the picture can be edited: what a person asks for there is handed on, never done here.
It does not know where the numbers come from.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from twin.hardware.fabric import Edge, Fabric, built, edited, edits
from twin.hardware.placement import Instance
from twin.hardware.survey import uplink_matrix
from twin.hardware.tables import tables
from twin.ui import theme
from twin.ui.pages.supernode.edits import Inventory, plain

_HERE = Path(__file__).parent / "canvas"
CODE = ("shape", "layout", "edit", "view")

_canvas = st.components.v2.component(
    "fabric_matrix",
    html=(_HERE / "view.html").read_text("utf-8"),
    css=(_HERE / "view.css").read_text("utf-8"),
    js="\n".join((_HERE / f"{part}.js").read_text("utf-8") for part in CODE),
)


def fabric_matrix(
    fabric: Fabric,
    *,
    values: np.ndarray[Any, Any] | None = None,
    unit: str = "",
    title: str = "",
    scale: tuple[float, float] | None = None,
    elements: Mapping[str, float] | None = None,
    instances: Sequence[Instance] = (),
    key: str,
    height: int | None = None,
    on_act: Callable[[Sequence[dict[str, Any]]], None] | None = None,
    acted: int = 0,
) -> dict[str, Any]:
    """Draw the fabric and return the selection: {name, kind, node, sub_plane, names} or {}.

    `names` are all that are selected, the others tell of the one selected last.

    `values` colours the cells, in `unit`: f8[nodes, sub_planes], or two columns more for what
    the node does on the RDMA and the VPC plane; NaN is "no value". Without values the cells show
    capacity. `scale` fixes the ends of the colour scale (default: 0 to the largest value);
    `elements` colours single chips on drill-in by name; `instances` are shown above their nodes.
    `on_act` makes the picture editable: it is called with what was asked for, each a dict with
    `number` (growing), `names` and what to do, until `acted` says the last number that was taken.
    """
    if values is None:
        values, unit = capacities(fabric) / 1e9, "GB/s of a cell, one direction"
        title = title or "Capacity"
        measured = False
    else:
        measured = True
    high = float(np.nanmax(values, initial=0.0)) if scale is None else scale[1]

    def take_acts() -> None:
        picture = st.session_state.get(key)  # None: a picture of another key stands there by now
        if on_act and picture and picture.acts:
            on_act(picture.acts)

    result = _canvas(
        data={
            "shape": shape_of(fabric, instances),
            "live": live(values, elements or {}, (0.0 if scale is None else scale[0], high))
            | {
                "unit": unit,
                "title": title,
                "measured": measured,
                "most": {} if measured else _most(fabric),
            },
            "height": height,
            "editable": on_act is not None,
            "acted": acted,
        },
        key=key,
        on_selection_change=lambda: None,
        on_acts_change=take_acts,
    )
    return dict(result.selection or {})


@lru_cache(maxsize=8)
def capacities(fabric: Fabric) -> np.ndarray[Any, Any]:
    """Nominal bytes/s of each cell, f8[nodes, sub_planes + 2]: UB uplinks, then RDMA, then VPC."""
    s = fabric.graph["supernode"]
    cells = np.zeros((s.all_nodes, s.sub_planes + 2))
    cells[:, :-2] = uplink_matrix(fabric)
    cells[:, -2] = tables(fabric).rates("NIC-RDMA").reshape(s.all_nodes, -1).sum(axis=1)
    cells[:, -1] = tables(fabric).rates("Qingtian-VPC")
    cells.setflags(write=False)
    return cells


def cells_of_links(
    fabric: Fabric, links: pl.DataFrame, column: str = "utilisation_mean"
) -> np.ndarray[Any, Any]:
    """Cells from a run's `links` table, f8[nodes, sub_planes + 2]: the busier direction; NaN: none.

    A UB row without a sub-plane counts for all sub-planes of its node.
    """
    s = fabric.graph["supernode"]
    cells = np.full((s.all_nodes, s.sub_planes + 2), np.nan)
    for row in links.iter_rows(named=True):
        plane, at = row["plane"], row["sub_plane"]
        if row["node"] is None or row[column] is None:
            continue
        columns = {"rdma": [-2], "vpc": [-1]}.get(plane) or (
            list(range(s.sub_planes)) if at is None else [at]
        )
        for c in columns:
            cells[row["node"], c] = np.fmax(cells[row["node"], c], row[column])
    return cells


def shape_of(fabric: Fabric, instances: Sequence[Instance] = ()) -> dict[str, Any]:
    """What the canvas needs to know of a fabric: counts, capacities in GB/s, and edited links."""
    s = fabric.graph["supernode"]
    dies = fabric.graph["dies_per_npu"]
    built = fabric.graph["constants"]
    gb = {
        "link": s.ub_link_gb_per_s,
        "sibling": built.cross_die_bytes_per_s / 1e9,
        "cpu": built.cpu_bytes_per_s / 1e9,
        "nic": s.rdma_gb_per_s_per_npu / dies,
        "vpc": s.vpc_gb_per_s_per_node,
    }
    per_node = s.npus_per_node * dies
    return {
        "nodes": s.all_nodes,
        "npus": s.npus_per_node,
        "dies": dies,
        "cpus": s.cpus_per_node,
        "host": fabric.graph["cpu_with_dpu"],
        "planes": s.sub_planes,
        "l2": fabric.graph["l2_chips_per_sub_plane"],
        "uplinks": s.l1_uplinks,
        "ports": s.l2_ports_per_chip,
        "gb": gb,
        "supernodes": s.supernodes,
        "edits": [
            [_shown(fabric, e.element), _shown(fabric, e.to), e.capacity_factor, e.latency_factor]
            for e in s.edits
        ],
        "changed": {f"{a}|{b}": rate / 1e9 for (a, b), rate in _beside(fabric).items()},
        "instances": [
            [i.role, i.name, i.first_die / per_node, (i.first_die + i.dies) / per_node]
            for i in instances
        ],
        "colours": theme.PLANE | theme.ROLE,
    }


def _shown(fabric: Fabric, name: str) -> str:
    """An edit's element by the name the picture has for it, however it was typed."""
    return _inventory(built(fabric)).exact.get(plain(name), name) if name else ""


@lru_cache(maxsize=8)
def _inventory(fabric: Fabric) -> Inventory:
    return Inventory.of(fabric)


@lru_cache(maxsize=8)
def _beside(fabric: Fabric) -> dict[Edge, float]:
    """Links that differ from the supernode with its edits: bytes/s now, 0 when removed."""
    differ, s = edits(fabric), fabric.graph["supernode"]
    if not (differ and s.edits):
        return differ
    given = edits(edited(built(fabric), edits=s.edits, supernode=s))
    back = {
        e: float(built(fabric).edges[e]["capacity_bytes_per_s"]) for e in given if e not in differ
    }
    return {e: rate for e, rate in (differ | back).items() if given.get(e) != rate}


def live(
    values: np.ndarray[Any, Any], elements: Mapping[str, float], scale: tuple[float, float]
) -> dict[str, Any]:
    """The colours of the moment: cells node by node, rounded to what an eye can tell."""
    cells = [None if np.isnan(v) else float(f"{v:.4g}") for v in values.ravel().tolist()]
    chips = {name: float(f"{value:.4g}") for name, value in elements.items()}
    version = zlib.crc32(repr((cells, chips, scale)).encode())
    return {
        "cells": cells,
        "elements": chips,
        "low": scale[0],
        "high": scale[1],
        "version": version,
    }


def _most(fabric: Fabric) -> dict[str, float]:
    """GB/s of a cell of each plane as built, by which the capacity picture fades its cells."""
    s, dies = fabric.graph["supernode"], fabric.graph["dies_per_npu"]
    up = s.l1_uplinks if fabric.graph["l2_chips_per_sub_plane"] else s.npus_per_node * dies
    return {
        "ub": up * s.ub_link_gb_per_s,
        "rdma": s.npus_per_node * s.rdma_gb_per_s_per_npu,
        "vpc": s.vpc_gb_per_s_per_node,
    }
