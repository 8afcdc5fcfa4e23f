"""Fields of the draft as editable tables: numbers, and the rows of a list."""

from collections.abc import Sequence
from typing import Any

import polars as pl
import streamlit as st

from twin.scenario import ScenarioField, fields, read
from twin.ui import forms, session
from twin.ui.fields import declared, label, why_idle

TABLE = "number-table"  # `drawer.js` marks it where the field that was looked for is a row
TYPES = {int: pl.Int64, float: pl.Float64, bool: pl.Boolean, str: pl.String}


def _shown(widget: str, rows: Any = None) -> list[dict[str, Any]]:
    """The rows that a table was given first, until something else changes the draft: an editor
    whose own input moves under it forgets every second edit."""
    shown: list[dict[str, Any]] = st.session_state.setdefault(f"{widget}:rows", rows)
    return shown


def number_table(paths: Sequence[str], key: str) -> None:
    """Draw the numeric fields among `paths` that apply, each with the preset's value and what it
    means; names those without effect."""
    idle = {path: why_idle(path, session.draft()) for path in paths}
    shown = [path for path in paths if not idle[path]]
    searches, found = forms.sought()
    shown.sort(key=lambda path: session.field_key(path) != found)  # what was looked for is on top
    widget = f"{session.field_key(key)}:{len(shown)}:{searches}"
    number = st.column_config.NumberColumn
    rows = [
        {
            "Part": ("→ " if session.field_key(path) == found else "") + label(path),
            "Value": float(session.value(path)),
            "Preset": float(read(session.preset(), path)),
        }
        for path in shown
    ]
    with st.container(key=TABLE):
        st.data_editor(
            _shown(widget, rows), key=widget, hide_index=True, height="content",
            on_change=_take_numbers, args=(widget, shown), disabled=["Part", "Preset"],
            column_config={
                "Part": st.column_config.TextColumn(width=190),
                "Value": number(required=True, format="%.6g", width=75),
                "Preset": number(format="%.6g", width=70),
            },
        )  # fmt: skip
    # A column of sentences would be cut off at any width that leaves room for the picture.
    with st.popover("What these mean", icon=":material/help:"):
        st.markdown("\n".join(f"- **{label(path)}**: {declared(path).help}" for path in shown))
    if refused := next((path for path in shown if session.refusal(path)), ""):
        forms.problem(session.refusal(refused))
    forms.unused({path: reason for path, reason in idle.items() if reason})


def _take_numbers(widget: str, paths: Sequence[str]) -> None:
    """Hand what the table now shows to the draft. All rows, not only those the editor calls edited:
    it forgets a row that is set back."""
    if session.gone(widget):
        return
    edited = st.session_state[widget]["edited_rows"]
    changes: dict[str, Any] = {}
    for index, (path, row) in enumerate(zip(paths, _shown(widget), strict=True)):
        value = edited.get(index, {}).get("Value", row["Value"])
        if value is not None and value != session.value(path):
            counts = declared(path).kind is int and float(value).is_integer()
            changes[path] = int(value) if counts else float(value)
    if changes:
        session.propose(changes)


def rows_table(path: str, options: dict[str, list[str]] | None = None) -> None:
    """Draw the rows of a list, which are added and taken out in the table; one that lacks what it
    must have waits. options: names that a column accepts, by name of its field."""
    columns, widget = _columns(path), session.field_key(path)
    rows = _shown(widget, [row.model_dump() for row in read(session.draft(), path)])
    st.data_editor(
        pl.DataFrame(rows, schema={name: TYPES[known.kind] for name, known in columns.items()}),
        key=widget, num_rows="dynamic", hide_index=True, height="content",
        on_change=_take_rows, args=(path, widget),
        column_config={
            name: _column(known, (options or {}).get(name)) for name, known in columns.items()
        },
    )  # fmt: skip
    if refused := session.refusal(path):
        forms.problem(refused)


def _columns(path: str) -> dict[str, ScenarioField]:
    head = f"{path}[]."
    return {p.removeprefix(head): f for p, f in fields().items() if p.startswith(head)}


def _column(known: ScenarioField, options: list[str] | None) -> Any:
    named = f"{known.label} ({known.unit})" if known.unit else known.label
    common: dict[str, Any] = {"help": known.help, "required": known.required}
    if options:
        return st.column_config.SelectboxColumn(named, options=options, **common)
    if known.kind is str:
        return st.column_config.TextColumn(named, **common)
    return st.column_config.NumberColumn(
        named, min_value=known.low, max_value=known.high, default=known.default,
        step=1 if known.kind is int else None, **common,
    )  # fmt: skip


def _take_rows(path: str, widget: str) -> None:
    """Hand the table's rows to the draft, those that are whole."""
    if session.gone(widget):
        return
    edits = st.session_state[widget]
    rows = [row | edits["edited_rows"].get(i, {}) for i, row in enumerate(_shown(widget))]
    rows = [row for i, row in enumerate(rows) if i not in edits["deleted_rows"]]
    needed = [name for name, known in _columns(path).items() if known.required]
    whole = [
        {name: value for name, value in row.items() if value is not None}
        for row in [*rows, *edits["added_rows"]]
        if all(row.get(name) is not None for name in needed)
    ]
    session.propose({path: whole})
