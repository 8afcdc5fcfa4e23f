"""The form of a fleet, from its declarations: a widget for each field, a table for each list."""

import re
from typing import Any

import streamlit as st

from twin.extras.fleet.question import Fleet, FleetError, fleet_from, fleet_of_toml
from twin.lab.library import DATA, preset, presets
from twin.scenario import Scenario
from twin.scenario.fields import fields
from twin.ui import forms, session
from twin.ui.fields import sentence
from twin.ui.forms import tables

EXAMPLES = ("fleet-small.toml", "fleet-day-100.toml")  # the first is answered in seconds
# Session state: the fleet to edit, and how often it changed.
BEGUN, TIMES = "fleet-begun", "fleet-times"


def named(name: str) -> Scenario:
    """Scenario of a preset, or a stored one by its digest; raises FleetError, because visitors have
    no files on this server."""
    if (scenario := preset(name)) is not None:
        return scenario
    if re.fullmatch("[0-9a-f]{64}", name):
        return session.store().scenarios.load(name)
    raise FleetError(f"{name} is no preset, and no digest of a scenario stored here")


@st.cache_data(show_spinner=False)
def example(name: str) -> Fleet:
    """A fleet that is shipped with the twin."""
    return fleet_of_toml((DATA / "examples" / name).read_bytes(), name)


def begun() -> Fleet:
    """Draw the examples and the upload; returns the fleet that the form begins with."""
    if BEGUN not in st.session_state:
        _begin(example(EXAMPLES[0]))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        for name in EXAMPLES:
            st.button(example(name).name, key=f"fleet:{name}", type="tertiary",
                      icon=":material/lan:", on_click=_begin, args=(example(name),))  # fmt: skip
        with st.popover("A file of yours", icon=":material/upload:"):
            file = st.file_uploader("Fleet file (.toml)", type="toml", key="fleet-file")
            if file is not None and st.button("Take this file", key="fleet-take"):
                try:
                    _begin(fleet_of_toml(file.getvalue(), file.name))
                    st.rerun()
                except FleetError as error:
                    st.error(sentence(str(error)))
    fleet: Fleet = st.session_state[BEGUN]
    return fleet


def _begin(fleet: Fleet) -> None:
    """Set the fleet that the form begins with; its widgets are drawn anew."""
    st.session_state[BEGUN] = fleet
    st.session_state[TIMES] = st.session_state.get(TIMES, 0) + 1


def edited(fleet: Fleet) -> Fleet:
    """Draw the form; returns the edited fleet. Raises FleetError."""
    declared, values = fields(Fleet), fleet.model_dump()
    new_values: dict[str, Any] = {}
    grid = st.grid(3, min_column_width=230, vertical_alignment="top", gap=("small", "medium"))
    for path, field in declared.items():
        if field.kind is tuple or "[]" in path:
            continue
        if not all(condition.holds(fleet) for condition in field.conditions):
            new_values[path] = values[path]
            continue
        with grid.cell():
            key = f"fleet-{path}:{st.session_state[TIMES]}"
            names = list(field.options) or None
            forms.widget(field, values[path], names=names, key=key, help=field.help)
        value = st.session_state.get(key, values[path])
        new_values[path] = values[path] if value is None else value
    for path, field in declared.items():
        if field.kind is tuple:
            st.markdown(f"**{field.label}**", help=field.help)
            new_values[path] = _rows(path, values[path])
    return fleet_from(new_values)


def _rows(path: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Draw the rows of a list as a table; incomplete ones are not applied."""
    columns, options = tables.columns_of(fields(Fleet), path), {}
    if path == "kinds":
        keys = [each.key for each in presets()]
        options["scenario"] = keys + [r["scenario"] for r in rows if r["scenario"] not in keys]
    key = f"fleet-{path}:{st.session_state[TIMES]}"
    return tables.whole(tables.editor(columns, rows, options, key).to_dicts(), columns)
