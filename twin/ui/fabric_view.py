"""The fabric as a picture: nodes x planes on a canvas, coloured, drilled into, clicked.

`fabric_matrix` shows any fabric with any numbers for its cells and returns what was selected.
What the browser does stands in `canvas/`, what it is told of the machine in `fabric_message`; this
file adds the colours of the moment. With `on_act` the picture can be edited: what a person asks for
there is handed on, never done here. It does not know where the numbers come from.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from twin.hardware.fabric import Fabric, built
from twin.hardware.placement import Instance
from twin.ui import theme
from twin.ui.fabric_message import capacities, changes, layout, machine

_HERE = Path(__file__).parent / "canvas"
CODE = ("machine", "layout", "edit", "view")

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
    """Draw the fabric and return the selection: {name, names} or {}.

    `names` are all that are selected, `name` the one selected last.

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
            "machine": machine(built(fabric)),
            "changes": changes(fabric),
            "instances": _places(fabric, instances),
            "colours": theme.PLANE | theme.ROLE,
            "live": live(values, elements or {}, (0.0 if scale is None else scale[0], high))
            | {
                "unit": unit,
                "title": title,
                "measured": measured,
                "most": {} if measured else _most(built(fabric)),
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


def _places(fabric: Fabric, instances: Sequence[Instance]) -> list[list[Any]]:
    """Instances with the nodes they begin and end at, in fractions of nodes, by unbroken part."""
    per_node = fabric.graph["supernode"].npus_per_node * fabric.graph["dies_per_npu"]
    return [
        [i.role, i.name, first / per_node, (last + 1) / per_node]
        for i in instances
        for first, last in i.parts()
    ]


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
    """GB/s of the fullest cell of each plane as built: the capacity picture fades by it."""
    most: dict[str, float] = {}
    for row, cells in zip(layout(fabric).rows, capacities(fabric).T / 1e9, strict=True):
        most[row["plane"]] = max(most.get(row["plane"], 0.0), float(cells.max()))
    return most
