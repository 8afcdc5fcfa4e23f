"""Lists of runs, the same on every page, and how far off their figures may be."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import streamlit as st

from twin.lab.evidence.near import bands_by_run, bands_text
from twin.lab.runs.executor import WAITING_MAX
from twin.lab.store import RunRow
from twin.lab.store.visitors import split_tags
from twin.metrics.registry import Place, metrics_at, shown
from twin.scenario import Scenario
from twin.ui import session, words
from twin.ui.link import link_page
from twin.ui.show import plain

STATE_ICONS = {
    "queued": ":material/schedule:",
    "running": ":material/progress_activity:",
    "done": ":material/check_circle:",
    "failed": ":material/error:",
    "cancelled": ":material/do_not_disturb_on:",
    "interrupted": ":material/power_off:",
}
SOON = 0.95  # of what is expected: from here on it may be more
SHOWN = 3  # groups of runs with bands of their own that are said at once


def titles(rows: Sequence[RunRow]) -> list[str]:
    """Names of these runs for this visitor: their own, otherwise the scenarios'."""
    notes = session.store().notes.notes_on([run.id for run in rows])
    return [notes[run.id].title or run.name if run.id in notes else run.name for run in rows]


def latest_runs(count: int, *states: str) -> list[RunRow]:
    """The latest runs of the store, `count` at most, all or those in some states."""
    return session.store().runs.search(states=states, limit=count).rows


def unfinished_runs() -> dict[str, RunRow]:
    """Queued and running runs by their scenario's digest; a reloaded page follows them."""
    rows = session.store().runs.search(states=("queued", "running"), limit=WAITING_MAX).rows
    return {run.scenario: run for run in rows if run.cancel_s is None}


def list_line(run: RunRow, figures: int | None = None) -> tuple[str, str]:
    """(icon, line) of a run in a list; line: state or its first `figures` headlines, and age."""
    queued_text = words.age_text(time.time() - run.queued_s)
    if run.state == "running":
        return STATE_ICONS[run.state], f"{100 * run.progress:.0f} % done · started {queued_text}"
    if run.damaged:
        return ":material/broken_image:", f"damaged: restore a backup · {queued_text}"
    if run.state != "done":
        return STATE_ICONS.get(run.state, ""), f"{run.state} · {queued_text}"
    return STATE_ICONS["done"], " · ".join([*headlines(run.summary)[:figures], queued_text])


def headlines(summary: Mapping[str, Any], place: Place = "line") -> list[str]:
    """Texts of a summary's figures that belong to a place, with units: 'TTFT p50 0.8 s'."""
    metrics = [metric for metric in metrics_at(place) if summary.get(metric.key)]
    return [f"{_lower_first(m.short or m.label)} {shown(m.key, summary[m.key])}" for m in metrics]


def _lower_first(text: str) -> str:
    """A label for the middle of a sentence: 'decode', but 'TTFT p50'."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def choice_labels(rows: Iterable[RunRow], figures: int | None = None) -> dict[str, str]:
    """Label of each run by its id, for a choice: title, state or figures, age."""
    row_by_id = {run.id: run for run in rows}
    titled_rows = zip(titles([*row_by_id.values()]), row_by_id.values(), strict=True)
    return {run.id: f"{title} · {list_line(run, figures)[1]}" for title, run in titled_rows}


def draw_links(page: str, rows: list[RunRow]) -> None:
    """Draw runs as links to a page, with state, figures and the visitor's tags."""
    notes = session.store().notes.notes_on([run.id for run in rows])
    for run, title in zip(rows, titles(rows), strict=True):
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            icon, status_text = list_line(run)
            link_page(page, plain(title), {"run": run.id}, icon)
            tags = tag_badges(notes[run.id].tags) if run.id in notes else ""
            st.caption(f"{status_text} {tags}", width="content")


def tag_badges(tags: str) -> str:
    """Tags of a note as Markdown."""
    return " ".join(f":gray-badge[{plain(tag)}]" for tag in split_tags(tags))


@st.fragment(run_every=0.5)
def watch(ids: Sequence[str], text: str = "") -> None:
    """Redraw the page when a run has ended; with a text, meanwhile draw its progress and Stop."""
    rows = [row for row in map(session.store().runs.get, ids) if row is not None and not row.ended]
    if len(rows) < len(ids):
        st.rerun()
    if text:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.progress(rows[0].progress, f"{text} {_rerun_progress(rows[0])}")
            st.button("Stop", icon=":material/stop_circle:", key="stop-watched", args=(rows[0].id,),
                      on_click=session.toast_refusals("lock")(session.stop),
                      disabled=rows[0].cancel_s is not None)  # fmt: skip


def _rerun_progress(run: RunRow) -> str:
    """Sentence on an explanation's re-runs made so far, and on the time that others may take."""
    rerun_count, share = run.live.get("runs"), run.progress
    if run.state == "queued":
        return "Waiting for a free process"
    if not rerun_count or share >= SOON:
        return f"{rerun_count:,.0f} re-runs made" if rerun_count else ""
    remaining_s = (time.time() - (run.started_s or run.queued_s)) * (1.0 - share) / share
    made_text = f"{rerun_count:,.0f} of about {rerun_count / share:,.0f} re-runs made"
    return f"{made_text}, about {words.remaining_text(remaining_s)} to go"


def draw_error_bands(scenarios: Mapping[str, Scenario]) -> None:
    """Draw the error bands of scenarios (by the names of their runs); details in a popover."""
    groups = [(runs, bands) for runs, bands in bands_by_run(scenarios, session.facts()) if bands]
    if not groups:
        return
    one_group = len(groups) == 1
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for runs, bands in groups[:SHOWN]:
            prefix = "" if one_group else f"{plain(', '.join(runs))}: "
            band_text = f"Four of five measurements are expected within {plain(bands_text(bands))}."
            st.caption(f":material/target: {prefix}{band_text}", width="content")
        hidden_count = len(groups) - SHOWN
        label = "What this rests on" + (f", and {hidden_count} more" if hidden_count > 0 else "")
        with st.popover(label, type="tertiary"):
            for runs, bands in groups:
                if not one_group:
                    st.markdown(f"**{plain(', '.join(runs))}**")
                for band in bands:
                    st.markdown(f"- {plain(band.sentence)}")
