"""Numbers of the draft as one editable table: value, unit, the preset's value; what each means.

The same fields as a form would show, for machines that are easier read as a list. An edit goes
into the draft like any other; a refused one says its sentence below the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from twin.scenario import field_info
from twin.ui import session
from twin.ui.fields import LABELS, label, why_idle


def spec_table(paths: Sequence[str], key: str) -> None:
    """Draw the numeric fields among `paths` that apply; names those that the choices make idle."""
    draft = session.draft()
    shown = [p for p in paths if not why_idle(p, draft)]
    idle = {LABELS.get(p) or label(p): why_idle(p, draft) for p in paths if why_idle(p, draft)}
    # The table is given the same rows until something else changes the draft: an editor whose
    # own input moves under it forgets every second edit.
    widget = f"{session.field_key(key)}:{len(shown)}"
    rows = st.session_state.setdefault(f"{widget}:rows", [_row(p) for p in shown])
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
        st.markdown("\n".join(f"- **{label(p)}**: {field_info(p).description}" for p in shown))
    for path in shown:
        if session.refusal(path):
            st.markdown(f":red[:material/error: {session.refusal(path)}]")
            break
    if idle:
        said = "; ".join(f"{name} ({why})" for name, why in idle.items())
        st.caption(f"Not used with these choices: {said}.")


def _row(path: str) -> dict[str, Any]:
    return {
        "Part": label(path),
        "Value": float(session.value(path)),
        "Preset": float(session.read(session.preset(), path)),
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
        counts = field_info(path).annotation is int and float(value).is_integer()
        changes[path] = int(value) if counts else float(value)
    if changes:
        session.propose(changes)
