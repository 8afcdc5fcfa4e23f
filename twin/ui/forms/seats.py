"""Where instances sit: what the placement comes to, and a table for those placed by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.lab.allocation_study import Filling, study
from twin.scenario import Scenario, pools
from twin.ui import forms, session
from twin.ui.charts import allocation
from twin.ui.fields import declared, label, sentence
from twin.ui.seated import seated
from twin.ui.show import plot

GROUP = "Pools"  # of the form, below which this stands
PATH = "deployment.seats"
FIELDS = {"role": pl.String, "index": pl.Int64, "element": pl.String}


def form(*, study: bool) -> None:
    """Who moved off what is off, or why nobody can be placed; and the table of seats.

    study: offer the study of allocation too.
    """
    draft = session.draft()
    try:
        placement, no_place = seated(draft, build_fabric(draft.supernode, session.facts()))
    except HardwareError as error:
        no_place, placement = sentence(str(error)), None
    if no_place:
        forms.problem(no_place)
    for move in placement.moved if placement else ():
        st.caption(f":material/event_seat: {sentence(move)}")
    if draft.deployment.placement == "by_hand":
        _table([role for role, _, _ in pools(draft)])
    if study and st.toggle("How full do such blocks keep supernodes?", key="allocation-study"):
        _allocation(draft)


def _allocation(draft: Scenario) -> None:
    """The study of allocation, with this deployment's instances among the blocks."""
    fillings = _study(pools(draft), draft)
    plot(allocation.by_size(fillings), "allocation-by-size")
    sizes = sorted({one.supernode_npus for one in fillings})
    npus = draft.supernode.nodes * draft.supernode.npus_per_node
    plot(allocation.over_time(fillings, min(sizes, key=lambda n: abs(n - npus))), "allocation-time")
    st.caption(
        "A block needs all of its NPUs in one supernode and waits until one has room. "
        f"Sizes of blocks: {session.facts()['allocation.block_means'].source}; "
        f"{session.facts()['allocation.block_sizes'].source}."
    )


@st.cache_data(show_spinner="Filling supernodes with blocks", max_entries=20)
def _study(instances: list[tuple[str, int, int]], _draft: Scenario) -> list[Filling]:
    """By the instances alone: nothing else of the draft is asked."""
    return study(session.facts(), deployment=_draft)


def _table(roles: list[str]) -> None:
    # As in forms/table.py: an editor whose own input moves under it forgets edits.
    widget = session.field_key(PATH)
    rows = [row.model_dump() for row in session.draft().deployment.seats]
    shown = st.session_state.setdefault(f"{widget}:rows", rows)
    st.caption("One row an instance, or several; instances without a row are packed around them.")
    st.data_editor(
        pl.DataFrame(shown, schema=FIELDS),
        key=widget,
        num_rows="dynamic",
        hide_index=True,
        height="content",
        on_change=_take,
        args=(widget,),
        column_config={
            "role": st.column_config.SelectboxColumn(_label("role"), options=roles, required=True),
            "index": st.column_config.NumberColumn(
                _label("index"), min_value=0, step=1, required=True, help=_help("index")
            ),
            "element": st.column_config.TextColumn(
                _label("element"), required=True, help=_help("element")
            ),
        },
    )
    if refused := session.refusal(PATH):
        forms.problem(refused)


def _take(widget: str) -> None:
    """Hand the table's rows to the draft, those that are whole."""
    if session.gone(widget):
        return
    edits = st.session_state[widget]
    shown: list[dict[str, Any]] = st.session_state[f"{widget}:rows"]
    rows = [row | edits["edited_rows"].get(i, {}) for i, row in enumerate(shown)]
    kept = [row for i, row in enumerate(rows) if i not in edits["deleted_rows"]]
    whole = [
        {name: row[name] for name in FIELDS}
        for row in [*kept, *edits["added_rows"]]
        if all(row.get(name) is not None for name in FIELDS)
    ]
    session.propose({PATH: whole})


def _label(name: str) -> str:
    return label(f"{PATH}[].{name}")


def _help(name: str) -> str:
    return declared(f"{PATH}[].{name}").help
