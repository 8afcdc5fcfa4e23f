"""What the draft differs in from the scenario that it began as, each to be taken back."""

from collections.abc import Callable
from functools import partial
from itertools import groupby

import streamlit as st

from twin.scenario import Edit
from twin.ui import session
from twin.ui.fields import change_line, declared, effect, show
from twin.ui.pages.supernode import editor
from twin.ui.show import plain

SHOWN = 30  # differences listed one by one
LISTS = ("faults", "deployment.seats")  # that stand in no group of a form


def popover() -> None:
    """Button with the number of differences, which opens the list; nothing without differences."""
    rows = differences()
    if not rows:
        return
    count = f"{len(rows)} change{'s' if rows[1:] else ''}"
    with st.popover(count, icon=":material/difference:"):
        st.caption(f"Against {plain(session.preset().name)}")
        with st.container(gap="xsmall"):
            for place, (text, take_back) in enumerate(rows[:SHOWN]):
                with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                    st.markdown(text, width="stretch")
                    st.button(
                        "", icon=":material/settings_backup_restore:", type="tertiary",
                        key=f"take-back-{place}", help="Back to the preset", on_click=take_back,
                    )  # fmt: skip
        if rows[SHOWN:]:
            st.caption(f"And {len(rows) - SHOWN:,} more.")
        st.button(
            "Back to the preset", icon=":material/restart_alt:", on_click=session.set_draft,
            args=(session.preset(),),
        )  # fmt: skip


def differences() -> list[tuple[str, Callable[[], None]]]:
    """Each difference as Markdown, with its undo; equal edits of one kind are grouped."""
    rows: list[tuple[str, Callable[[], None]]] = [
        (change_line(path, plain(show(old, path)), plain(show(new, path))),
         partial(editor.take_back, path))
        for path, (old, new) in session.changes().items()
        if declared(path).group or path in LISTS
    ]  # fmt: skip
    for _, group in groupby(_changed_edits(), lambda e: (
        e.element.split()[0], e.to.split(" ")[0], e.capacity_factor, e.latency_factor
    )):  # fmt: skip
        edits = list(group)
        rows.append((_in_words(edits), partial(editor.take_back_edits, edits)))
    return rows


def _changed_edits() -> list[Edit]:
    """Edits that the preset lacks, and edits of the preset that were removed (as built now)."""
    draft_edits, preset_edits = session.draft().supernode.edits, session.preset().supernode.edits
    new = [e for e in draft_edits if e not in preset_edits]
    edited = {(e.element, e.to) for e in draft_edits}
    removed = [e for e in preset_edits if (e.element, e.to) not in edited]
    return new + [Edit(element=e.element, to=e.to) for e in removed]


def _in_words(group: list[Edit]) -> str:
    """Equal edits as one line: the elements, and the edit."""
    names = [f"{e.element} – {e.to}" if e.to else e.element for e in group]
    items = (
        ", ".join(names) if len(names) < 4 else f"{names[0]} to {names[-1]}, {len(names)} in all"
    )
    return f"{plain(items)}: **{effect(group[0].capacity_factor, group[0].latency_factor)}**"
