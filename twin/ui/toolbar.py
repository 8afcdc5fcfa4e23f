"""The bar above every form: what the draft is, what was changed, undo, link, Run."""

import streamlit as st

from twin.lab.runs.budget import budget_of
from twin.lab.share import links
from twin.scenario import Scenario
from twin.ui import changes, forms, formulas, live, session, words
from twin.ui.fields import declared, formed, label, sentence, why_idle
from twin.ui.link import copy_link, go_to, page_link
from twin.ui.pages import BUILD, PAGES, SECTIONS
from twin.ui.show import plain


def header(page: str, *, run: bool = True) -> None:
    """The top of a page that edits the draft: title, sentence, draft, undo, link and (run) Run."""
    session.open_link()
    session.resume()
    st.set_page_config(page_title=f"{session.named_draft().name} · {PAGES[page].title}")
    st.title(PAGES[page].title, anchor=False)
    st.caption(PAGES[page].about)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        _name()
        changes.popover()
        st.space("stretch")
        for name, step, can in (
            ("undo", session.undo, session.can_undo()), ("redo", session.redo, session.can_redo()),
        ):  # fmt: skip
            st.button(
                f":material/{name}:", help=name.capitalize(), on_click=step, disabled=not can,
                key=name,
            )  # fmt: skip
        if run:
            draft_link(page)
            run_button()
    if session.link_problem():
        st.error(plain(session.link_problem()), icon=":material/link_off:")


def workspace(page: str) -> live.Strip:
    """Head of machine, traffic and deployment pages: header, links to the others, live answer."""
    header(page)
    _parts(page)
    return live.strip(session.draft())


def _parts(page: str) -> None:
    """Links to the parts of the scenario, and the search for a field by name."""
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
        times, _ = forms.sought()
        path = st.selectbox(
            "Find a field", [p for p in formed() if not why_idle(p, draft)], index=None,
            placeholder="Find a field", format_func=_findable, label_visibility="collapsed",
            key=f"find-field:{times}", filter_mode="contains", width=260,
        )  # fmt: skip
    if path is None:
        return
    forms.seek(path)  # the box begins anew: it leads there once
    info = declared(path)
    if info.form == page:
        st.rerun()
    go_to(info.form)


def _findable(path: str) -> str:
    """A field's label with its search words."""
    also = declared(path).also
    return f"{label(path)} · {also}" if also else label(path)


def draft_link(page: str) -> None:
    """Button that copies the draft's address; a draft too long for an address is then stored."""
    path = session.link(page)
    if links.carries(path):
        copy_link(path, save=session.edited())
    else:
        copy_link(
            path, on_copy=lambda: links.share_scenario(session.store(), session.named_draft())
        )


def refusal() -> str:
    """Why the draft cannot run: refused edits, or an imported machine that is too small."""
    refused, draft = session.refusal(), session.draft()
    if refused or not draft.supernode.imported:
        return refused
    expected = formulas.outlook(formulas.whole(draft))
    return expected if isinstance(expected, str) else ""


def run_button() -> None:
    """The primary button: run the draft in the background and open the run's page."""
    refused, draft = refusal(), session.draft()
    text = f"Run {words.duration(draft.horizon_s)} of traffic"
    if takes := "" if refused else budget_of(session.store(), draft, session.facts()).said:
        text = f"{text} · {takes}"
    why = f"Not yet: {sentence(refused)}" if refused else None
    if st.button(
        text, type="primary", icon=":material/play_arrow:", disabled=bool(refused), help=why,
        key="run-draft",
    ):  # fmt: skip
        open_run(session.named_draft())


def open_run(scenario: Scenario) -> None:
    """Start a run and open its page; if refused, say why and stay."""
    with session.refusals_toasted():
        go_to("run", {"run": session.run(scenario)})


def _name() -> None:
    with st.popover(plain(session.named_draft().name), icon=":material/edit:"):
        forms.field("name")
        forms.field("question")
        if session.draft().source:
            st.caption(f"Figures: {plain(session.draft().source)}")
