"""The bar above every form: the draft, its differences with their undo, link, Run."""

from collections.abc import Callable
from functools import partial
from itertools import groupby

import streamlit as st

from twin.lab.runs.budget import budget_of
from twin.lab.share import links
from twin.lab.sweep.compare import input_rows
from twin.metrics.measures import numbered
from twin.scenario import Edit, Scenario
from twin.ui import fields, forms, formulas, live, session, words
from twin.ui.link import copy_link, go_to, link_page
from twin.ui.pages import BUILD, PAGES, SECTIONS
from twin.ui.pages.supernode import editor
from twin.ui.show import plain

SHOWN = 30  # differences listed one by one
LISTED = {*fields.LISTS} - {"supernode.edits"}  # in no group of a form; edits are grouped by kind


def draw_header(page: str, *, run: bool = True) -> None:
    """Draw the head of a page that edits the draft: title, name, undo; with `run` link and Run."""
    session.open_linked_run()
    st.set_page_config(page_title=f"{session.named_draft().name} · {PAGES[page].title}")
    st.title(PAGES[page].title, anchor=False)
    st.caption(PAGES[page].about)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        with st.popover(plain(session.named_draft().name), icon=":material/edit:"):
            forms.draw_field("name")
            forms.draw_field("question")
            if session.draft().source:
                st.caption(f"Figures: {plain(session.draft().source)}")
        draw_changes()
        st.space("stretch")
        for action, step_count in (("undo", -1), ("redo", 1)):
            st.button(f":material/{action}:", action, action.capitalize(), args=(step_count,),
                      on_click=session.undo_or_redo,
                      disabled=not session.can_undo_or_redo(step_count))  # fmt: skip
        if run:
            draw_draft_link(page)
            draw_run_button()


def draw_scenario_head(page: str) -> live.Strip:
    """Draw the head of one of the scenario's pages; returns containers for the live answer."""
    draw_header(page)
    _draw_page_links(page)
    return live.draw_strip(session.draft())


def _draw_page_links(page: str) -> None:
    """Draw links from `page` to the scenario's other pages, and the search for a field by name."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for name in SECTIONS[BUILD]:
            entry_page = PAGES[name]
            if name == page:
                st.markdown(f"**:material/{entry_page.icon}: {entry_page.title}**", width="content")
            else:
                link_page(name, entry_page.title)
        st.space("stretch")
        draft = session.draft()
        search_count, _ = forms.last_search()
        useful_paths = [path for path in fields.form_paths() if not fields.why_idle(path, draft)]
        useful_fields = map(fields.field_of, useful_paths)
        search_texts = {field.path: (field.title, field.also) for field in useful_fields}
        path = st.selectbox(
            "Find a field", useful_paths, index=None, placeholder="Find a field",
            label_visibility="collapsed", width=260, filter_mode="contains",
            format_func=lambda path: " · ".join(filter(None, search_texts[path])),
            key=f"find-field:{search_count}",
        )  # fmt: skip
    if path is None:
        return
    forms.seek_field(path)  # the box begins anew: it leads there once
    if fields.field_of(path).form == page:
        st.rerun()
    go_to(fields.field_of(path).form)


def draw_draft_link(page: str) -> None:
    """Draw a button that copies the draft's address; a draft too long for one is stored."""
    path, get_draft = session.draft_url(page), session.named_draft
    if links.contains_scenario(path):
        copy_link(path, save=session.is_edited())
    else:
        copy_link(path, on_copy=lambda: links.share_scenario(session.store(), get_draft()))


def refusal() -> str:
    """Why the draft cannot run: refused edits, or an imported machine too small; '' if it can."""
    reason, draft = session.refusal(), session.draft()
    if reason or not draft.supernode.imported:
        return reason
    outlook = formulas.outlook(formulas.without_faults(draft))
    return outlook if isinstance(outlook, str) else ""


def draw_run_button() -> None:
    """Draw the primary button: run the draft in the background and open the run's page."""
    reason, draft = refusal(), session.draft()
    label = f"Run {words.duration_text(draft.horizon_s)} of traffic"
    if budget_text := "" if reason else budget_of(session.store(), draft, session.facts()).text:
        label = f"{label} · {budget_text}"
    tooltip = f"Not yet: {fields.sentence(reason)}" if reason else None
    if st.button(
        label, type="primary", icon=":material/play_arrow:", disabled=bool(reason), help=tooltip,
        key="run-draft",
    ):  # fmt: skip
        if impossible_reason := formulas.why_impossible(draft):
            st.toast(fields.sentence(impossible_reason), icon=":material/error:", duration="long")
        else:
            open_run(session.named_draft())


def open_run(scenario: Scenario) -> None:
    """Start a scenario's run and open its page; if it is refused, say why and stay."""
    with session.toast_refusals():
        go_to("run", {"run": session.start_run(scenario)})


def draw_changes() -> None:
    """Draw a button with the number of changes, which opens their list; nothing without changes."""
    changes = draft_changes()
    if not changes:
        return
    with st.popover(numbered(len(changes), "change"), icon=":material/difference:"):
        st.caption(f"Against {plain(session.preset().name)}")
        with st.container(gap="xsmall"):
            for number, (change_text, undo_change) in enumerate(changes[:SHOWN]):
                with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                    st.markdown(change_text, width="stretch")
                    st.button(
                        "", icon=":material/settings_backup_restore:", type="tertiary",
                        key=f"take-back-{number}", help="Back to the preset", on_click=undo_change,
                    )  # fmt: skip
        if changes[SHOWN:]:
            st.caption(f"And {len(changes) - SHOWN:,} more.")
        st.button("Back to the preset", icon=":material/restart_alt:", on_click=session.set_draft,
                  args=(session.preset(),))  # fmt: skip


def draft_changes() -> list[tuple[str, Callable[[], None]]]:
    """List (line of Markdown, function that undoes the change) for each change from the preset.
    Edits of the fabric with equal effect share a line."""
    values_by_path = {row.path: row.values for row in input_rows(session.preset(), session.draft())}
    changes: list[tuple[str, Callable[[], None]]] = [
        (fields.change_line(path, *(plain(fields.text_of(value, path)) for value in values)),
         partial(editor.reset_field, path))
        for path, values in values_by_path.items()
        if fields.field_of(path).group or path in LISTED
    ]  # fmt: skip
    draft_edits, preset_edits = session.draft().supernode.edits, session.preset().supernode.edits
    new_edits = [edit for edit in draft_edits if edit not in preset_edits]
    edited_elements = {(edit.element, edit.to) for edit in draft_edits}
    removed_edits = [Edit(element=e.element, to=e.to)  # as built now
                     for e in preset_edits if (e.element, e.to) not in edited_elements]  # fmt: skip
    for _, equal_edits in groupby(new_edits + removed_edits, lambda e: (
        e.element.split()[0], e.to.split(" ")[0], e.capacity_factor, e.latency_factor
    )):  # fmt: skip
        edits = list(equal_edits)
        elements = [f"{edit.element} – {edit.to}" if edit.to else edit.element for edit in edits]
        if len(elements) > 3:
            elements = [f"{elements[0]} to {elements[-1]}", f"{len(elements)} in all"]
        effect_text = fields.edit_effect(edits[0].capacity_factor, edits[0].latency_factor)
        change_text = f"{plain(', '.join(elements))}: **{effect_text}**"
        changes.append((change_text, partial(editor.reset_edits, edits)))
    return changes
