"""The form of what breaks: a row a fault, typical faults to begin with, and the reaction to them.

An edit of a row goes into the draft as the whole list; what this machine has no element for is
refused below its row with one sentence, and the draft keeps the element it had.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import Fabric, build_fabric
from twin.hardware.placement import place_instances
from twin.scenario import Fault, Scenario, SpecError, with_overrides
from twin.ui import forms, session
from twin.ui.charts import faults as charts_playback
from twin.ui.faults_rows import Row, offered_names, typical, wrong
from twin.ui.faults_words import KINDS, RECOVERY
from twin.ui.fields import sentence
from twin.ui.show import plot

GROUP = "What breaks"
SHOWN = 8  # rows at a time
WIDTHS = (1.1, 1.9, 1.5, 0.9, 1.1, 0.6)
HELP = {name: str(info.description) for name, info in Fault.model_fields.items()}


def form() -> None:
    """The whole group: rows, ways to add one, a picture in time, and recovery."""
    draft = session.draft()
    try:
        fabric = build_fabric(draft.supernode, session.facts())
    except HardwareError as error:
        st.error(sentence(str(error)), icon=":material/device_hub:")
        return
    rows = [fault.model_dump() for fault in draft.faults]
    st.caption("What breaks while the machine serves, and when; and how the serving stack reacts.")
    if rows:
        _rows(rows, fabric)
        st.caption(
            "Left: the part of its speed or rate that remains, when it does not fail outright. "
            "Lasts 0 s: until the end of the run."
        )
    else:
        st.markdown("Nothing breaks in this scenario. Add a typical fault, or one of your own.")
    _add(rows, draft, fabric)
    _told(draft)
    if rows:
        picture = charts_playback.faults(draft.faults, draft.horizon_s, draft.warmup_s)
        plot(picture, "faults-over-time")
        st.subheader("How the serving stack reacts", anchor=False)
        forms.group(RECOVERY)


def _add(rows: list[Row], draft: Scenario, fabric: Fabric) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        with st.popover("Typical faults", icon=":material/bolt:"):
            placed = place_instances(draft, fabric.graph["dies_per_npu"])
            for name, added in typical(draft, fabric, placed).items():
                st.button(
                    name, key=f"typical:{name}", on_click=_keep, args=([*rows, *added],),
                    type="tertiary",
                )  # fmt: skip
        mine = {**Fault(element="node 0").model_dump(), "at_s": draft.warmup_s}
        st.button(
            "Add a fault", icon=":material/add:", key="fault-add", on_click=_keep,
            args=([*rows, mine],),
        )  # fmt: skip
        if rows:
            st.button(
                "Remove all", icon=":material/delete_sweep:", key="fault-none", on_click=_keep,
                args=([],), type="tertiary",
            )  # fmt: skip


def _rows(rows: list[Row], fabric: Fabric) -> None:
    first = 0
    if len(rows) > SHOWN:
        pages = -(-len(rows) // SHOWN)
        page = st.number_input(f"Page of {pages}", 1, pages, pages, key=f"fault-page:{len(rows)}")
        first = SHOWN * (int(page) - 1)
    for number in range(first, min(first + SHOWN, len(rows))):
        _row(rows, number, fabric)


def _row(rows: list[Row], number: int, fabric: Fabric) -> None:
    row = rows[number]

    def about(field: str) -> dict[str, Any]:
        return {"key": key(number, field), "on_change": _take, "args": (number, field, fabric)}

    with st.container(border=True):
        time, element, kind, left, lasts, more = st.columns(
            WIDTHS, gap="small", vertical_alignment="bottom"
        )
        time.number_input(
            "At (s)", 0.0, 604_800.0, float(row["at_s"]), format="%.6g", help=HELP["at_s"],
            **about("at_s"),
        )  # fmt: skip
        names = _names(fabric)
        listed = names if row["element"] in names else [row["element"], *names]
        element.selectbox(
            "Element", listed, listed.index(row["element"]), accept_new_options=True,
            help=HELP["element"], **about("element"),
        )  # fmt: skip
        kind.selectbox(
            "Kind", list(KINDS), list(KINDS).index(row["kind"]), format_func=KINDS.__getitem__,
            help=HELP["kind"], **about("kind"),
        )  # fmt: skip
        left.number_input(
            "Left (x)", 0.01, 1.0, float(row["factor"]), step=0.05, format="%.6g",
            help=HELP["factor"], disabled=row["kind"] == "fail", **about("factor"),
        )  # fmt: skip
        lasts.number_input(
            "Lasts (s)", 0.0, 604_800.0, float(row["duration_s"]), format="%.6g",
            help=HELP["duration_s"], **about("duration_s"),
        )  # fmt: skip
        with more.popover("", icon=":material/more_horiz:", help="More about this fault"):
            st.text_input("Other end of a single link", row["to"], max_chars=60, help=HELP["to"],
                          placeholder="the whole element", **about("to"))  # fmt: skip
            copied = [*rows[: number + 1], row, *rows[number + 1 :]]
            st.button("Duplicate", icon=":material/content_copy:", on_click=_keep, args=(copied,),
                      key=f"fault-copy:{number}")  # fmt: skip
            rest = [*rows[:number], *rows[number + 1 :]]
            st.button("Remove", icon=":material/delete:", on_click=_keep, args=(rest,),
                      key=f"fault-remove:{number}")  # fmt: skip
        refused = st.session_state.get(f"{key(number, 'refused')}")
        said = refused or wrong(fabric, row)
        if said:
            st.markdown(f":small[:red[:material/error: {sentence(said)}]]")


@lru_cache(maxsize=4)
def _names(fabric: Fabric) -> list[str]:
    return offered_names(fabric)


def key(number: int, field: str) -> str:
    """Key of a row's widget; changes when the draft was changed by something else."""
    return session.field_key(f"faults.{number}.{field}")


def _take(number: int, field: str, fabric: Fabric) -> None:
    """One widget of a row was edited: into the draft, or a sentence below the row."""
    if session.gone(key(number, field)):
        return
    value = st.session_state[key(number, field)]
    rows = [fault.model_dump() for fault in session.draft().faults]
    if number >= len(rows) or value is None:
        return
    refused = key(number, "refused")
    st.session_state.pop(refused, None)
    wished = {**rows[number], field: value}
    problem = wrong(fabric, wished)
    if problem and field in ("element", "to", "kind"):
        still = rows[number][field] or "the whole element"
        kept = KINDS.get(still, still)
        st.session_state[refused] = f"{problem.rstrip('.')}; until then it stays {kept}"
        return
    rows[number] = wished
    problem = session.propose({"faults": rows})
    if problem:
        st.session_state[refused] = problem


def _keep(rows: list[Row]) -> None:
    """Take another list of faults as the draft's, as a step that can be undone."""
    try:
        session.set_draft(with_overrides(session.draft(), {"faults": rows}))
    except SpecError as error:
        st.toast(sentence(str(error)), icon=":material/error:")


def _told(draft: Scenario) -> None:
    """Faults that will not be seen, in a sentence."""
    late = [fault for fault in draft.faults if fault.at_s >= draft.horizon_s]
    if late:
        named = ", ".join(f"{fault.element} at {fault.at_s:g} s" for fault in late[:3])
        st.caption(f":material/info: After the end of the run, so never seen: {named}.")
