"""Playback: a run is sent to the browser once, where time, zoom and selection live
(`playback*.js`); the view's rest comes back for the address."""

from pathlib import Path
from typing import Any

import streamlit as st

from twin.hardware.fabric import Fabric, build_fabric
from twin.lab.share.shipped import Shipped
from twin.lab.store import RunRow
from twin.metrics.events import Kind
from twin.scenario import Scenario
from twin.ui import record, session
from twin.ui.fabric_message import component, geometry
from twin.ui.formulas import seated
from twin.ui.pages.playback import frames as playback_frames

AT, SEE = "at", "see"  # query parameters: seconds of simulated time, name of what is selected
KINDS = {
    Kind.FAULT: "Something breaks",
    Kind.DETECTED: "Noticed",
    Kind.INSTANCE_DOWN: "Instance out of service",
    Kind.SHRUNK: "Instance goes on smaller",
    Kind.SPARE: "Spares take over",
    Kind.REJOINED: "Repaired die serves again",
    Kind.REBALANCE: "Experts rebalanced",
    Kind.SHIFT: "Popularity shifts",
    Kind.POOL_LOST: "Memory pool loses blocks",
}

_PARTS = ("playback_frames", "playback_strip", "playback_tools", "playback")
_player = component("playback", Path(__file__).parent, "playback", _PARTS)


def missing(run: str) -> list[str]:
    """Tables that playback needs and a run of an earlier engine lacks."""
    names = session.store().runs.tables(run)
    return [name for name in playback_frames.TABLES if name not in names]


@st.cache_resource(show_spinner="Reading the run", max_entries=20)
def film(run: str, _row: RunRow, _scenario: Scenario) -> dict[str, Any]:
    """The run as the player's message; shared, so never changed. Raises StoreError."""
    fabric = record.fabric(_row, _scenario)
    names = session.store().runs.tables(run)
    table_names = [*playback_frames.TABLES, *(name for name in ("seats",) if name in names)]
    tables = {name: record.table(run, name) for name in table_names}
    instances, _ = seated(_scenario, fabric)
    return playback_frames.message(_scenario, tables, instances.instances, fabric)


@st.fragment
def player(row: RunRow, scenario: Scenario) -> None:
    """Draw the player; its resting view goes into the address, and no more is redrawn."""
    data = {"run": row.id, "film": film(row.id, row, scenario), "start": _start(row.id)}
    if view := _playing(data, record.fabric(row, scenario), "playback"):
        st.query_params[AT] = f"{float(view.get('at', 0.0)):.6g}"
        if view.get("see"):
            st.query_params[SEE] = str(view["see"])
        else:
            st.query_params.pop(SEE, None)
        st.session_state[f"playback:{row.id}"]["now"] = _address()


def _playing(data: dict[str, Any], fabric: Fabric, key: str) -> dict[str, Any]:
    """Draw the player; returns its resting view."""
    with st.container(gap=None):
        data |= {"machine": geometry(fabric, key)}
        return dict(_player(data=data, key=key, on_view_change=lambda: None).view or {})


@st.cache_resource(show_spinner=False, max_entries=8)
def shipped_film(_scenario: Scenario, _run: Shipped, digest: str) -> dict[str, Any]:
    """A result that came with the project as the player's message; shared, so never changed."""
    fabric = build_fabric(_scenario.supernode, session.facts())
    instances, _ = seated(_scenario, fabric)
    return playback_frames.message(_scenario, _run.tables, instances.instances, fabric)


def brief(name: str, film: dict[str, Any], fabric: Fabric) -> None:
    """Draw a run on its machine's picture without controls; its view is not sent back."""
    _playing({"run": name, "film": film, "start": {}, "brief": True}, fabric, "playback-brief")


def _start(run: str) -> dict[str, Any]:
    """Initial view of the player: from the opened address, not from its own later ones."""
    data, key = _address(), f"playback:{run}"
    if data not in st.session_state.get(key, {}).values():
        st.session_state[key] = {"start": data}
    return st.session_state[key]["start"]


def _address() -> dict[str, Any]:
    query = st.query_params
    try:
        start_s = max(0.0, float(query.get(AT, "0")))
    except ValueError:
        start_s = 0.0
    return {"at": start_s if start_s < float("inf") else 0.0, "see": query.get(SEE, "")[:60]}
