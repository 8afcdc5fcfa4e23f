"""Forms made from the scenario's own declaration: one widget a field, nothing said twice.

What a field is called, when it applies and what it may be stands in `fields`; the value, and what
becomes of an edit, in `session`. A field that the other choices make idle is not shown, and the
group says which and why; a refused edit says its one sentence right below its field.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from twin.scenario import field_info
from twin.ui import session
from twin.ui.fields import (
    LABELS,
    STEPS,
    bounds,
    choice_label,
    label,
    longest,
    options,
    sentence,
    tooltip,
    why_idle,
)

ROW_CHARACTERS = 30  # choices up to this many letters in all stand side by side


def group(paths: Iterable[str]) -> None:
    """Draw the fields that apply, two to a row where there is room, and name those that do not."""
    scenario = session.wished()
    idle: dict[str, list[str]] = {}
    grid = st.grid(2, min_column_width=230, vertical_alignment="top", gap=("small", "medium"))
    for path in paths:
        reason = why_idle(path, scenario)
        if reason and not session.refusal(path):
            idle.setdefault(reason, []).append(LABELS.get(path) or label(path))
            continue
        with grid.cell():
            field(path)
    if idle:
        said = "; ".join(f"{', '.join(names)} ({why})" for why, names in idle.items())
        st.caption(f"Not used with these choices: {said}.")


def field(path: str) -> None:
    """One field's widget; an edit goes into the draft, or says right here why it cannot."""
    value = session.value(path)
    common: dict[str, Any] = {
        "key": session.field_key(path),
        "help": tooltip(path),
        "on_change": session.edit,
        "args": (path,),
    }
    if isinstance(value, bool):
        st.space("xsmall")
        st.toggle(label(path), value, **common)
    elif (listed := options(path, session.facts())) is not None:
        _choice(path, value, listed, common)
    elif isinstance(value, int | float):
        _number(path, value, common)
    else:
        st.text_input(label(path), value, max_chars=longest(path), **common)
    if session.refusal(path):
        st.markdown(f":small[:red[:material/error: {sentence(session.refusal(path))}]]")


def _choice(path: str, value: str, listed: list[str], common: Mapping[str, Any]) -> None:
    if value not in listed:
        listed = [value, *listed]

    def named(option: str) -> str:
        return choice_label(path, option, session.facts())

    if sum(len(named(o)) for o in listed) <= ROW_CHARACTERS:
        st.segmented_control(
            label(path), listed, default=value, required=True, format_func=named, **common
        )
    else:
        st.selectbox(label(path), listed, listed.index(value), format_func=named, **common)


def _number(path: str, value: float, common: Mapping[str, Any]) -> None:
    low, high = bounds(path)
    kind = int if field_info(path).annotation is int else float
    usual = field_info(path).default
    step = STEPS.get(path) or 10.0 ** (math.floor(math.log10(usual or 1)) - 1)
    st.number_input(
        label(path),
        kind(low),
        kind(high),
        kind(value),
        step=max(1, int(step)) if kind is int else float(step),
        format="%d" if kind is int else "%.6g",
        **common,
    )
