"""Forms made from the scenario's declarations, one widget a field. A field without effect under the
other choices is not shown, and the group says why; a refused edit says why below its field."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import streamlit as st

from twin.scenario import ScenarioField
from twin.ui import session
from twin.ui.fields import (
    choice_label,
    declared,
    field_name,
    label,
    options,
    sentence,
    tooltip,
    why_idle,
)
from twin.ui.link import go_to
from twin.ui.pages.sweep import points

# Session state: how often a field was looked for, the last one, and that its form has to open it.
SEARCHES, SOUGHT, OPENS = "field-searches", "field-sought", "field-opens"
ROW_CHARACTERS = 30  # choices up to this many letters in all stand side by side


def group(paths: Iterable[str]) -> None:
    """Draw the fields that apply, two to a row where there is room, and name those that do not."""
    paths = list(paths)
    scenario = session.wished()
    idle: dict[str, str] = {}
    grid = st.grid(2, min_column_width=230, vertical_alignment="top", gap=("small", "medium"))
    for path in paths:
        reason = why_idle(path, scenario)
        if reason and not session.refusal(path):
            idle[path] = reason
            continue
        with grid.cell():
            field(path)
    unused(idle)
    sweep_menu([path for path in paths if path not in idle])


def sweep_menu(paths: Sequence[str]) -> None:
    """One of these fields over a range: a menu that leads to its sweep."""
    known = [path for path in points.offered() if path in paths]
    if not known:
        return
    path = st.menu_button(
        "Sweep a field", known, format_func=field_name, type="tertiary",
        icon=":material/ssid_chart:", key=f"sweep:{known[0]}",
        help="Simulate one of these fields over a range.",
    )  # fmt: skip
    if path is not None:
        go_to("sweep", {"over": points.usual(path).text})


def field(path: str) -> None:
    """One field's widget; an edit goes into the draft, or says right here why it cannot."""
    widget(declared(path), session.value(path), names=options(path, session.facts()), **edits(path))
    if refusal := session.refusal(path):
        problem(refusal)


def seek(path: str) -> None:
    """Lead to a field: its form opens it when it is drawn next, and the page goes there."""
    st.session_state[SEARCHES] = st.session_state.get(SEARCHES, 0) + 1
    st.session_state[SOUGHT] = st.session_state[OPENS] = path


def sought() -> tuple[int, str]:
    """How often a field was looked for, and the key of the last one's widget."""
    path = st.session_state.get(SOUGHT)
    return (st.session_state[SEARCHES], session.field_key(path)) if path else (0, "")


def to_open(form: str) -> str | None:
    """The field of this form that was looked for and is not open yet: told once."""
    path = st.session_state.get(OPENS)
    if path is None or declared(path).form != form:
        return None
    del st.session_state[OPENS]
    return str(path)


def edits(path: str) -> dict[str, Any]:
    """What the widget of a field is given, so that it edits the draft."""
    take = {"on_change": session.edit, "args": (path,)}
    return {"key": session.field_key(path), "help": tooltip(path), **take}


def refused() -> bool:
    """Say that there is no answer while an edit cannot hold, and tell whether that is so: what was
    right of the settings before would else stand as if it were of these."""
    if refusal := session.refusal():
        told = f"No answer with these settings. {sentence(refusal)} Undo goes back."
        st.warning(told, icon=":material/error:")
    return bool(refusal)


def problem(refusal: str) -> None:
    """A refused edit's sentence, below its field."""
    st.markdown(f":small[:red[:material/error: {sentence(refusal)}]]")


def unused(idle: dict[str, str]) -> None:
    """Name the fields (path: reason) that have no effect with the other choices."""
    by_reason: dict[str, list[str]] = {}
    for path, reason in idle.items():
        by_reason.setdefault(reason, []).append(field_name(path))
    if by_reason:
        listed = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
        st.caption(f"Not used with these choices: {listed}.")


def widget(
    known: ScenarioField, value: Any, *, names: Sequence[str] | None = None, **common: Any
) -> None:
    """The widget of a declared field: toggle, choice among `names`, number or text. `common` goes
    to the widget: key, help, callback, disabled."""
    if known.kind is bool:
        st.space("xsmall")
        st.toggle(label(known.path), value, **common)
    elif names is not None:
        _choice(known, value, names, common)
    elif known.kind in (int, float):
        _number(known, value, common)
    else:
        st.text_input(label(known.path), value, max_chars=known.chars_max, **common)


def _choice(known: ScenarioField, value: str, names: Sequence[str], common: dict[str, Any]) -> None:
    if value not in names:
        names = [value, *names]

    def called(option: str) -> str:
        return choice_label(known.path, option, session.facts())

    common |= {"format_func": called}
    if "[]" not in known.path and sum(len(called(o)) for o in names) <= ROW_CHARACTERS:
        st.segmented_control(label(known.path), names, default=value, required=True, **common)
    else:
        st.selectbox(label(known.path), names, list(names).index(value), **common)


def _number(known: ScenarioField, value: float, common: dict[str, Any]) -> None:
    whole = known.kind is int
    step = known.step or 10.0 ** (math.floor(math.log10(known.default or 1)) - 1)
    common |= {"format": "%d", "step": max(1, int(step))} if whole else {"format": "%.6g"}
    # Without ends of its own: a number beyond them is refused in a sentence that says them.
    shown = {"value": known.kind(value), "step": float(step)}
    st.number_input(label(known.path), **shown | common)
