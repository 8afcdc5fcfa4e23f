"""The bar above every form: what the draft is, what was changed, undo, link, Run."""

from __future__ import annotations

import streamlit as st

from twin.lab import share
from twin.lab.store import StoreError
from twin.scenario import Scenario, field_unit, form_groups
from twin.scenario.declaration import FORMS
from twin.ui import forms, live, session, words
from twin.ui.fields import declared, field_name, label, sentence, show, why_idle
from twin.ui.forms.first import FIRST
from twin.ui.link import copy_link, go_to, page_link
from twin.ui.pages import BUILD, PAGES, SECTIONS
from twin.ui.show import plain

FOUND = "fields-found"  # session state: how often the search for a field led somewhere


def header(page: str, *, run: bool = True) -> None:
    """Title, one sentence, and the bar: the top of every page that edits the draft."""
    session.open_link()
    session.resume()
    st.set_page_config(page_title=f"{session.named_draft().name} · {PAGES[page].title}")
    st.title(PAGES[page].title, anchor=False)
    st.caption(PAGES[page].about)
    toolbar(page, run=run)


def workspace(page: str) -> live.Strip:
    """The top of what is built: the header, its other parts, any field, and the live answer.

    Returns the places of both answers, for `live.answer`.
    """
    header(page)
    _parts(page)
    return live.strip(session.draft())


def toolbar(page: str, *, run: bool = True) -> None:
    """What the draft is on the left; undo, link and (run) Run on the right."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        _name()
        _changes()
        st.space("stretch")
        st.button(
            ":material/undo:", help="Undo", on_click=session.undo,
            disabled=not session.can_undo(), key="undo",
        )  # fmt: skip
        st.button(
            ":material/redo:", help="Redo", on_click=session.redo,
            disabled=not session.can_redo(), key="redo",
        )  # fmt: skip
        if run:
            draft_link(page)
            run_button(f"Run {words.duration(session.draft().horizon_s)} of traffic")
    if session.link_problem():
        st.error(plain(session.link_problem()), icon=":material/link_off:")


def _parts(page: str) -> None:
    """The parts of what is built, one click apart, and any field by its name."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for name in SECTIONS[BUILD]:
            if name == page:
                st.markdown(
                    f"**:material/{PAGES[name].icon}: {PAGES[name].title}**", width="content"
                )
            else:
                page_link(name, PAGES[name].title)
        st.space("stretch")
        draft = session.draft()
        paths = [p for form in FORMS for group in form_groups(form).values() for p in group]
        times = st.session_state.setdefault(FOUND, 0)
        path = st.selectbox(
            "Find a field", [p for p in paths if not why_idle(p, draft)], index=None,
            placeholder="Find a field", format_func=label, label_visibility="collapsed",
            key=f"find-field:{times}", width=260,
        )  # fmt: skip
    if path is None:
        return
    st.session_state[FOUND] = times + 1  # the box begins anew: it leads there once
    known = declared(path)
    st.session_state[f"{known.form}-group"] = None if path in FIRST[known.form] else known.group
    if known.form == "supernode":
        st.session_state["supernode-tab"] = "More fields"
    if known.form == page:
        st.rerun()
    go_to(known.form)


def draft_link(page: str) -> None:
    """Copy the draft's address, which the address bar takes too when the draft is one's own.

    What is too long for an address is stored when its link is copied, and not before.
    """
    path = session.link(page)
    if share.carries(path):
        copy_link(path, save=session.edited())
    else:
        copy_link(path, on_copy=_keep_linked)


def _keep_linked() -> None:
    share.share_scenario(session.store(), session.named_draft())


def run_button(text: str, **layout: str) -> None:
    """The one primary button: runs the draft in the background and opens the run's page."""
    refused = session.refusal()
    takes = "" if refused else session.budget().said
    if st.button(
        f"{text} · {takes}" if takes else text,
        type="primary",
        icon=":material/play_arrow:",
        disabled=bool(refused),
        help=f"Not yet: {sentence(refused)}" if refused else None,
        key="run-draft",
        **layout,  # type: ignore[arg-type]
    ):
        open_run(session.named_draft())


def open_run(scenario: Scenario) -> None:
    """Ask for a run and go to its page; where it cannot be, say why and stay."""
    try:
        run = session.run(scenario)
    except StoreError as error:
        st.toast(sentence(str(error)), icon=":material/error:", duration="long")
    else:
        go_to("run", {"run": run})


def _name() -> None:
    with st.popover(plain(session.named_draft().name), icon=":material/edit:"):
        forms.field("name")
        forms.field("question")
        if session.draft().source:
            st.caption(f"Figures: {plain(session.draft().source)}")


def _changes() -> None:
    counted = session.changes().items()
    changed = {p: v for p, v in counted if declared(p).group or p in ("faults", "deployment.seats")}
    edits = session.draft().supernode.edits
    fabric = edits != session.preset().supernode.edits
    if not (changed or fabric):
        return
    total = len(changed) + fabric
    count = f"{total} change{'s' if total > 1 else ''}"
    with st.popover(count, icon=":material/difference:"):
        st.caption(f"Against {plain(session.preset().name)}")
        for path, (old, new) in changed.items():
            before, now = (plain(show(value, path)) for value in (old, new))
            st.markdown(
                f"{field_name(path)}: :gray[{before}] → **{now}** {field_unit(path)}".rstrip()
            )
        if fabric:
            count = f"{len(edits):,} edit{'s' if len(edits) != 1 else ''}"
            st.markdown(f"Fabric: **{count}**, told one by one on the Supernode page")
        st.button("Back to the preset", icon=":material/restart_alt:", on_click=session.reset)
