"""A machine as a picture, coloured by role or by load; what the browser does stands in `canvas/`.
With `on_act` it can be edited: what a person asks for is handed on, never done here."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
import streamlit as st

from twin.hardware.fabric import Fabric
from twin.hardware.network import network
from twin.hardware.placement import Instance
from twin.ui import theme
from twin.ui.fabric_message import built, changes, columns, deflated, machine_text

_HERE = Path(__file__).parent / "canvas"
PICTURE = ("scene", "picture", "matrix")  # the modules that every page with the picture shares
ROLE = "role"  # the colours that need no load


def component(name: str, home: Path, own: str, parts: Sequence[str]) -> Callable[..., Any]:
    """A component with the picture: `own`.html and .css of `home`, and its modules `parts`. Its
    code travels by itself, in a message that stays the same and is sent once."""

    def text(*files: Path) -> str:
        return "\n".join(file.read_text("utf-8") for file in files)

    modules = text(*(_HERE / f"{p}.js" for p in PICTURE), *(home / f"{p}.js" for p in parts))
    shown = modules.replace("export default function", f"globalThis.{name} = function")
    told = f'document.dispatchEvent(new CustomEvent("{name}"))'
    code = st.components.v2.component(
        f"{name}_code", js=f"{shown}\n{told}\nexport default function () {{}}"
    )
    picture = st.components.v2.component(
        name,
        html=text(home / f"{own}.html"),
        css=text(_HERE / "picture.css", home / f"{own}.css"),
        js=_WHEN_THERE.replace("NAME", name),
    )

    def draw(**options: Any) -> Any:
        code(key=f"{name}-code")
        return picture(**options)

    return draw


_WHEN_THERE = """
export default function (given) {
  let stop = null, gone = false
  const draw = () => { if (!gone) stop = globalThis.NAME(given) }
  globalThis.NAME ? draw() : document.addEventListener("NAME", draw, { once: true })
  return () => { gone = true; stop?.() }
}"""
_GEOMETRY = """
export default function ({ data }) {
  const known = (globalThis.machinesAsBuilt ??= new Map())
  known.set(data.digest, data.machine)
  if (known.size > 4) known.delete(known.keys().next().value)
  document.dispatchEvent(new CustomEvent("machine-as-built"))
}"""
# The machine as built goes to the browser by itself, too.
_geometry = st.components.v2.component("fabric_geometry", js=_GEOMETRY)
_canvas = component("fabric_picture", _HERE, "view", ["view"])


def fabric_picture(
    fabric: Fabric,
    *,
    title: str,
    key: str,
    instances: Sequence[Instance] = (),
    carried: Sequence[float | None] | None = None,
    unit: str = "% of capacity",
    modes: Mapping[str, str] | None = None,
    on_act: Callable[[Sequence[dict[str, Any]]], None] | None = None,
    acted: int = 0,
) -> dict[str, Any]:
    """Draw the fabric and return the selection: {name, names} or {}; `name` is the one selected
    last. `carried`: how full each link is, in `unit`, else roles give the colours. `modes`: colours
    to choose from, see `colour`. `on_act` is called with what was asked for, each a dict with
    `number` (growing), `names` and what to do, until `acted` is the last number that was taken."""

    def take_acts() -> None:
        picture = st.session_state.get(key)  # None: a picture of another key stands there by now
        if on_act and picture and picture.acts:
            on_act(picture.acts)

    with st.container(gap=None):  # what only carries code and geometry takes no room
        result = _canvas(
            data={
                "title": title,
                "machine": geometry(fabric, key),
                "changes": deflated(changes(fabric)),
                "instances": [
                    [i.role, i.name, [[first, last + 1] for first, last in i.parts()]]
                    for i in instances
                ],
                "colours": theme.PLANE | theme.ROLE,
                "carried": "" if carried is None else deflated(list(carried)),
                "high": max((v for v in carried or () if v is not None), default=0.0) or 1.0,
                "unit": unit,
                "modes": list((modes or {}).items()),
                "mode": colour(key),
                "editable": on_act is not None,
                "acted": acted,
            },
            key=key,
            on_selection_change=lambda: None,
            on_colour_change=lambda: None,
            on_acts_change=take_acts,
        )
    return dict(result.selection or {})


def geometry(fabric: Fabric, picture: str) -> str:
    """Send the machine as built to the browser; the name by which the picture whose key is
    `picture` finds it there: one script may draw it at rest and then, in its place, a run playing
    on it."""
    text = machine_text(built(fabric))
    digest = f"{crc32(text.encode()):08x}"
    _geometry(data={"digest": digest, "machine": text}, key=f"geometry-{picture}-{digest}")
    return digest


def colour(key: str) -> str:
    """The colours chosen in the picture of a key: ROLE, or one of its modes."""
    picture = st.session_state.get(key)
    return str((picture.get("colour") if picture else None) or ROLE)


def cells_of_links(
    fabric: Fabric, links: pl.DataFrame, column: str = "utilisation_mean"
) -> np.ndarray[Any, Any]:
    """A run's `links` table as cells f8[nodes, sub_planes + 2]: the busier direction; NaN: none."""
    net = network(fabric)
    cells = np.full((net.nodes, net.sub_planes + 2), np.nan)
    for row in links.iter_rows(named=True):
        if row["node"] is not None and row[column] is not None:
            at = row["node"], columns(row["plane"], row["sub_plane"], net.sub_planes)
            cells[at] = np.fmax(cells[at], row[column])
    return cells
