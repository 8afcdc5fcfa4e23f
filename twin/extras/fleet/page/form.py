"""The form of a fleet, from its declarations: a widget for each field, a table for each list; and
its supernodes over time, as rows of a map."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import streamlit as st

from twin.extras.fleet.question import Fleet, FleetError, fleet_from, fleet_of_toml, fleet_to_toml
from twin.lab.library import DATA, preset, presets
from twin.lab.share import links
from twin.metrics.registry import Metric
from twin.scenario import Scenario
from twin.scenario.fields import fields
from twin.scenario.words import quoted
from twin.ui import forms, session
from twin.ui.charts.base import Chart, add_heat_map, chart, empty_chart, figure, time_axis
from twin.ui.fields import sentence
from twin.ui.forms import tables
from twin.ui.link import copy_link

EXAMPLES = ("fleet-small.toml", "fleet-day-100.toml")  # the first is answered in seconds
# Session state: the fleet to edit, and how often it changed.
BEGUN, TIMES = "fleet-begun", "fleet-times"
LINK = "fleet"  # of the address: the fleet
# What is drawn of each hour: key -> what it is called, factor from SI, unit.
DRAWN = {
    "tpot_s": ("TPOT, mean", 1e3, "ms"),
    "rate_req_per_s": ("Requests per second", 1.0, "req/s"),
    "slo_attainment": ("SLO met", 100.0, "%"),
}


def scenario_of(name: str) -> Scenario:
    """Scenario of a preset, or a stored one by its digest; raises FleetError for other names."""
    if (scenario := preset(name)) is not None:
        return scenario
    if re.fullmatch("[0-9a-f]{64}", name):
        return session.store().scenarios.load(name)
    raise FleetError(f"{quoted(name)} is no preset, and no digest of a scenario stored here")


def refusal_text(error: Exception, file: str = "") -> str:
    """An error as Markdown, with labels in place of field paths; file: a name to leave as it is."""
    message, field_of = str(error), fields(Fleet)

    def to_label(match: re.Match[str]) -> str:
        """Label of the field path in a match, with the number of its row."""
        path, row_match = re.sub(r"\.(\d+)\.", "[].", match[0]), re.search(r"\.(\d+)\.", match[0])
        if path not in field_of:
            return match[0]
        return field_of[path].title + (f" (row {int(row_match[1]) + 1})" if row_match else "")

    return sentence(re.sub(r"(?<![\w.])[a-z_]+(\.\d+\.[a-z_]+)?(?= = )", to_label, message), file)


@st.cache_data(show_spinner=False)
def example_fleet(name: str) -> Fleet:
    """A fleet of data/examples, by the name of its file."""
    return fleet_of_toml((DATA / "examples" / name).read_bytes(), name)


def begin_form() -> Fleet:
    """Draw buttons of the examples and the upload; returns the fleet that the form begins with."""
    if BEGUN not in st.session_state:
        _set_form(_fleet_of_link(st.query_params) or example_fleet(EXAMPLES[0]))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        for name in EXAMPLES:
            example = example_fleet(name)
            st.button(example.name, key=f"fleet:{name}", type="tertiary", icon=":material/lan:",
                      on_click=_set_form, args=(example,))  # fmt: skip
        with st.popover("A file of yours", icon=":material/upload:"):
            file = st.file_uploader("Fleet file (.toml)", type="toml", key="fleet-file")
            if file is not None and st.button("Take this file", key="fleet-take"):
                try:
                    _set_form(fleet_of_toml(file.getvalue(), file.name))
                    st.rerun()
                except FleetError as error:
                    st.error(refusal_text(error, file.name))
    fleet: Fleet = st.session_state[BEGUN]
    return fleet


def _fleet_of_link(query: Mapping[str, str]) -> Fleet | None:
    """The fleet in the address; None without one, or, with an error drawn, if it is damaged."""
    if packed_text := query.get(LINK):
        try:
            return fleet_of_toml(links.unpack_text(packed_text).encode(), "this link")
        except (links.ShareError, FleetError) as error:
            st.error(refusal_text(error), icon=":material/link_off:")
    return None


def draw_link_button(fleet: Fleet) -> None:
    """Draw a button that copies the fleet's address; an edited fleet stays in the address bar."""
    is_edited = fleet != example_fleet(EXAMPLES[0]) or st.session_state[TIMES] > 1
    path = f"/fleet?{LINK}={links.pack_text(fleet_to_toml(fleet))}"
    copy_link(path, label="Copy link of this fleet", save=is_edited)


def _set_form(fleet: Fleet) -> None:
    """Set the fleet with which the form begins; its widgets are made anew."""
    st.session_state[BEGUN] = fleet
    st.session_state[TIMES] = st.session_state.get(TIMES, 0) + 1


def edit_form(fleet: Fleet) -> Fleet:
    """Draw the form; returns the edited fleet. Raises FleetError."""
    field_of, values = fields(Fleet), fleet.model_dump()
    new_values: dict[str, Any] = {}
    grid = st.grid(3, min_column_width=230, vertical_alignment="top", gap=("small", "medium"))
    for path, field in field_of.items():
        if field.kind is tuple or "[]" in path:
            continue
        if not all(condition.holds(fleet) for condition in field.conditions):
            new_values[path] = values[path]
            continue
        with grid.cell():
            widget_key, choices = f"fleet-{path}:{st.session_state[TIMES]}", [*field.options]
            forms.draw_widget(field, values[path], names=choices or None, key=widget_key,
                              help=field.help)  # fmt: skip
        edited_value = st.session_state.get(widget_key, values[path])
        new_values[path] = values[path] if edited_value is None else edited_value
    for path, field in field_of.items():
        if field.kind is tuple:
            st.markdown(f"**{field.label}**", help=field.help)
            table_columns, rows, options = tables.columns_of(field_of, path), values[path], {}
            if path == "kinds":
                scenario_names = [entry.key for entry in presets()] + [
                    row["scenario"] for row in rows
                ]
                options["scenario"] = list(dict.fromkeys(scenario_names))
            edited_table = tables.edit_table(
                table_columns, rows, options, f"fleet-{path}:{st.session_state[TIMES]}"
            )
            new_values[path] = tables.complete_rows(edited_table.to_dicts(), table_columns)
    return fleet_from(new_values)


def over_time_chart(answer: Mapping[str, Any], key: str, *, dark: bool = False) -> Chart:
    """Heat map of the figure `key` of DRAWN: a row for each supernode, a column for each hour."""
    label, si_factor, unit = DRAWN[key]
    fleet_rows = answer["rows"]
    figures = np.array([row["hours"][key] for row in fleet_rows], dtype=float) * si_factor
    if np.isnan(figures).all():
        return empty_chart("No request finished")
    hour_count, hour_s = figures.shape[1], answer["hour_s"]
    time_factor, time_unit = time_axis(hour_count * hour_s)
    row_names = [row["name"] for row in fleet_rows]
    fig = figure(height=150 + 26 * len(fleet_rows))
    add_heat_map(
        fig, figures, dark=dark, x=(np.arange(hour_count) + 0.5) * hour_s * time_factor,
        y=row_names, ygap=1, zmax=float(np.nanmax(figures)),
        hovertemplate=f"%{{y}}, at %{{x:.3~g}} {time_unit}<br>%{{z:,.4~g}} {unit}<extra></extra>",
        colorbar={"title": {"text": unit, "side": "top"}},
    )  # fmt: skip
    least_text, most_text = (
        f"{figures.flat[flat_index]:,.4g} {unit} at {row_names[flat_index // hour_count]}"
        for flat_index in (np.nanargmin(figures), np.nanargmax(figures))
    )
    return chart(
        fig, f"{label} of {len(fleet_rows)} rows of supernodes over time: least {least_text}; most "
        f"{most_text}.",
        "Each row is one supernode, or several that are alike. Empty: nothing finished there.",
        x={"title_text": f"simulated time ({time_unit})"},
        y={"autorange": "reversed", "type": "category"},
        columns={"y": "supernodes", "z": f"{label} ({unit})" if unit else label},
    )  # fmt: skip


IN_MS = "tpot_s"  # the metrics whose seconds the table shows as ms begin so


def column_header(metric: Metric) -> str:
    """Header of a metric's column: its name, and its unit unless it is a count or share."""
    title = metric.short or metric.label
    unit = "ms" if metric.key.startswith(IN_MS) else metric.unit
    return title if metric.kind in ("count", "share") or unit == title else f"{title} ({unit})"


def cell_value(metric: Metric, value: float | None) -> float | None:
    """A metric's figure in the unit of its column: ms where it is a TPOT."""
    return 1e3 * value if value is not None and metric.key.startswith(IN_MS) else value
