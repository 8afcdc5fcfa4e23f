"""Lists of the draft as editable tables."""

from typing import Any

import polars as pl
import streamlit as st

from twin.scenario import ScenarioField, fields, read
from twin.scenario.words import titled
from twin.ui import forms, session

TYPES = {int: pl.Int64, float: pl.Float64, bool: pl.Boolean, str: pl.String}


def _shown(widget: str, rows: Any = None) -> list[dict[str, Any]]:
    """Initial rows of a table until the draft changes elsewhere, because new input makes editors
    lose edits."""
    shown: list[dict[str, Any]] = st.session_state.setdefault(f"{widget}:rows", rows)
    return shown


def rows_table(path: str, options: dict[str, list[str]] | None = None) -> None:
    """Draw an editable table of a list's rows; incomplete rows are not applied. options: by
    field."""
    columns, widget = _columns(path), session.field_key(path)
    rows = _shown(widget, [row.model_dump() for row in read(session.draft(), path)])
    st.data_editor(
        pl.DataFrame(rows, schema={name: TYPES[known.kind] for name, known in columns.items()}),
        key=widget, num_rows="dynamic", hide_index=True, height="content",
        on_change=_take_rows, args=(path, widget),
        column_config={
            name: column(known, (options or {}).get(name)) for name, known in columns.items()
        },
    )  # fmt: skip
    if refused := session.refusal(path):
        forms.problem(refused)


def _columns(path: str) -> dict[str, ScenarioField]:
    head = f"{path}[]."
    return {p.removeprefix(head): f for p, f in fields().items() if p.startswith(head)}


def column(known: ScenarioField, options: list[str] | None = None) -> Any:
    """Column of a declared field. options: accepted names."""
    named = titled(known)
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
    """Apply the table's complete rows to the draft."""
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
