"""Numbers of the draft as one editable table: value, unit, the preset's value; what each means.

The same fields as a form would show, for machines that are easier read as a list. An edit goes
into the draft like any other; a refused one says its sentence below the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from twin.scenario import read
from twin.ui import forms, session
from twin.ui.fields import declared, label, why_idle


def number_table(paths: Sequence[str], key: str) -> None:
    """Draw the numeric fields among `paths` that apply; names those without effect."""
    idle = {path: why_idle(path, session.draft()) for path in paths}
    shown = [path for path in paths if not idle[path]]
    # The table is given the same rows until something else changes the draft: an editor whose
    # own input moves under it forgets every second edit.
    widget = f"{session.field_key(key)}:{len(shown)}"
    rows = st.session_state.setdefault(f"{widget}:rows", [_row(path) for path in shown])
    st.data_editor(
        rows,
        key=widget,
        hide_index=True,
        height="content",
        on_change=_take,
        args=(widget, shown),
        disabled=["Part", "Preset"],
        column_config={
            "Part": st.column_config.TextColumn(width=190),
            "Value": st.column_config.NumberColumn(required=True, format="%.6g", width=75),
            "Preset": st.column_config.NumberColumn(format="%.6g", width=70),
        },
    )
    # A column of sentences would be cut off at any width that leaves room for the picture.
    with st.popover("What these mean", icon=":material/help:"):
        st.markdown("\n".join(f"- **{label(path)}**: {declared(path).help}" for path in shown))
    if refused := next((path for path in shown if session.refusal(path)), ""):
        forms.problem(session.refusal(refused))
    forms.unused({path: reason for path, reason in idle.items() if reason})


def _row(path: str) -> dict[str, Any]:
    return {
        "Part": label(path),
        "Value": float(session.value(path)),
        "Preset": float(read(session.preset(), path)),
    }


def _take(widget: str, paths: Sequence[str]) -> None:
    """Hand what the table now shows to the draft; whole numbers where the field counts something.

    All rows, not only those the editor calls edited: it forgets a row that is set back.
    """
    if session.gone(widget):
        return
    rows = st.session_state[f"{widget}:rows"]
    edited = st.session_state[widget]["edited_rows"]
    changes: dict[str, Any] = {}
    for index, path in enumerate(paths):
        value = edited.get(index, {}).get("Value", rows[index]["Value"])
        if value is None or value == session.value(path):
            continue
        counts = declared(path).kind is int and float(value).is_integer()
        changes[path] = int(value) if counts else float(value)
    if changes:
        session.propose(changes)
