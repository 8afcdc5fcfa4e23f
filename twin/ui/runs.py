"""Runs on every page: lists, how far off figures may be, and a run without results (none, unknown,
waiting, running, ended): a sentence and an action."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from twin.lab.evidence.near import bands_by_run, bands_text
from twin.lab.runs.executor import WAITING_MAX
from twin.lab.share import links as addresses
from twin.lab.store import RunRow, StoreError
from twin.lab.store.visitors import split_tags
from twin.metrics.measures import amount, numbered, seconds, three_figures
from twin.metrics.registry import Place, as_text, metrics_at
from twin.scenario import Scenario, SpecError
from twin.ui import record, session, words
from twin.ui.fields import sentence
from twin.ui.link import copy_link, go_to, link_page
from twin.ui.pages import PAGES
from twin.ui.show import plain, slo_margin
from twin.ui.toolbar import open_run

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
RECENT = 8
PATIENCE_S = 4.0  # without progress for this long, the page says what the run waits for
AGAIN = "run the scenario again"  # how the store's sentences end when the question was not at fault
AT_ONCE_S = 2.5  # the page's script waits this long for the result itself
LOOK_S = 0.02
# A run up to this age (s) is checked at this interval (s).
PACE_S = ((10.0, 0.25), (60.0, 0.5), (float("inf"), 1.0))


def titles(rows: Sequence[RunRow]) -> list[str]:
    """Title of each run: that of the visitor's note on it, otherwise its scenario's name."""
    notes = session.store().notes.notes_on([run.id for run in rows])
    return [notes[run.id].title or run.name if run.id in notes else run.name for run in rows]


def latest_runs(count: int, *states: str) -> list[RunRow]:
    """The latest runs of the store, `count` at most, in one of `states` (if empty: in any)."""
    return session.store().runs.search(states=states, limit=count).rows


def unfinished_runs() -> dict[str, RunRow]:
    """Queued and running runs by their scenario's digest, without those being stopped."""
    open_runs = session.store().runs.search(states=("queued", "running"), limit=WAITING_MAX).rows
    return {run.scenario: run for run in open_runs if run.cancel_s is None}


def list_line(run: RunRow, figures: int | None = None) -> tuple[str, str]:
    """(icon, line) of a run in a list. The line has its state, or for a finished run up to
    `figures` headlines (None: all), and its age."""
    age_text = words.age_text(time.time() - run.queued_s)
    if run.state == "running":
        return STATE_ICONS[run.state], f"{100 * run.progress:.0f} % done · started {age_text}"
    if run.damaged:
        return ":material/broken_image:", f"damaged: restore a backup · {age_text}"
    if run.state != "done":
        return STATE_ICONS.get(run.state, ""), f"{run.state} · {age_text}"
    return STATE_ICONS["done"], " · ".join([*headlines(run.summary)[:figures], age_text])


def headlines(summary: Mapping[str, Any], place: Place = "line") -> list[str]:
    """A summary's figures that a place of the pages shows, as texts: 'TTFT p50 0.8 s'."""
    metrics = [metric for metric in metrics_at(place) if summary.get(metric.key)]
    return [f"{_in_sentence(m.short or m.label)} {as_text(m.key, summary[m.key])}" for m in metrics]


def _in_sentence(text: str) -> str:
    """A label as it is written inside a sentence: 'Decode' -> 'decode', but 'TTFT p50' stays."""
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
    """Tags of a note, which stores them as one text, as badges in Markdown."""
    return " ".join(f":gray-badge[{plain(tag)}]" for tag in split_tags(tags))


@st.fragment(run_every=0.5)
def watch_runs(ids: Sequence[str], text: str = "") -> None:
    """Redraw the page when one of these runs has ended. With a `text`, draw it with the progress of
    the first run and a button to stop it."""
    rows = [row for row in map(session.store().runs.get, ids) if row is not None and not row.ended]
    if len(rows) < len(ids):
        st.rerun()
    if text:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.progress(rows[0].progress, f"{text} {_rerun_progress(rows[0])}")
            st.button("Stop", icon=":material/stop_circle:", key="stop-watched", args=(rows[0].id,),
                      on_click=session.toast_refusals("lock")(session.stop_run),
                      disabled=rows[0].cancel_s is not None)  # fmt: skip


def _rerun_progress(run: RunRow) -> str:
    """Sentence on how many re-runs an explaining run has made, and on its remaining time."""
    rerun_count, done_share = run.live.get("runs"), run.progress
    if run.state == "queued":
        return "Waiting for a free process"
    if not rerun_count or done_share >= SOON:
        return f"{rerun_count:,.0f} re-runs made" if rerun_count else ""
    remaining_s = (time.time() - (run.started_s or run.queued_s)) * (1.0 - done_share) / done_share
    made_text = f"{rerun_count:,.0f} of about {rerun_count / done_share:,.0f} re-runs made"
    return f"{made_text}, about {words.remaining_text(remaining_s)} to go"


def draw_error_bands(scenarios: Mapping[str, Scenario]) -> None:
    """Draw error bands of runs' figures, and the reasons for them. scenarios: by name of a run."""
    groups = [(names, bands) for names, bands in bands_by_run(scenarios, session.facts()) if bands]
    if not groups:
        return
    is_one_group = len(groups) == 1
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for names, bands in groups[:SHOWN]:
            prefix = "" if is_one_group else f"{plain(', '.join(names))}: "
            band_text = f"Four of five measurements are expected within {plain(bands_text(bands))}."
            st.caption(f":material/target: {prefix}{band_text}", width="content")
        hidden_count = len(groups) - SHOWN
        label = "What this rests on" + (f", and {hidden_count} more" if hidden_count > 0 else "")
        with st.popover(label, type="tertiary"):
            for names, bands in groups:
                if not is_one_group:
                    st.markdown(f"**{plain(', '.join(names))}**")
                for band in bands:
                    st.markdown(f"- {plain(band.sentence)}")


def draw_heading(row: RunRow, question: str = "") -> None:
    """Draw the run's title, its question or the page's, and the visitor's note."""
    note = session.store().notes.notes_on([row.id]).get(row.id)
    st.title(plain(note.title if note and note.title else row.name), anchor=False)
    if question:
        st.caption(plain(question))
    if note is None:
        return
    if note.title:
        st.caption(f"Scenario: {plain(row.name)}")
    if note.tags or note.text:
        note_lines = [tag_badges(note.tags), *map(plain, note.text.splitlines())]
        st.markdown("  \n".join(note_lines).strip())


def linked_scenarios() -> list[Scenario]:
    """Scenarios inside the address; none, and an error is drawn, where they are damaged."""
    try:
        return addresses.linked_scenarios(st.query_params.to_dict(), session.remember_machine)
    except addresses.ShareError as error:
        st.error(sentence(str(error)), icon=":material/link_off:")
        return []


def draw_linked_scenario(scenario: Scenario) -> None:
    """Draw the name and main settings of a scenario that came with a link."""
    st.markdown(f"The link carries the scenario: **{plain(scenario.name)}**")
    st.caption(plain(f"{words.npus_text(scenario)} · {words.card_line(scenario)}"))


def named_run(page: str) -> tuple[RunRow, Scenario]:
    """Return the run in the page's address and its scenario; or draw why not, and stop."""
    row = addresses.open_run(st.query_params.to_dict(), session.store())
    if row is None:
        st.title(PAGES[page].title, anchor=False)
        st.caption(PAGES[page].about)
        recent_runs = latest_runs(RECENT)
        empty_text = "Nothing has been run here yet. Choose a preset and press Run."
        choose_text = "Choose one of the latest runs, or start a new one."
        st.markdown(choose_text if recent_runs else empty_text)
        _offer_presets()
        draw_links(page, recent_runs)
        st.stop()
    if isinstance(row, addresses.NotHere):
        st.title(PAGES[page].title, anchor=False)
        st.error(sentence(row.message), icon=":material/link_off:")
        if not (scenarios := linked_scenarios()):
            _offer_presets()
            st.stop()
        draw_linked_scenario(scenarios[0])
        if st.button("Run it here", type="primary", icon=":material/play_arrow:", key="run-here"):
            open_run(scenarios[0])
        st.stop()
    st.set_page_config(page_title=f"{titles([row])[0]} · {PAGES[page].title}")
    try:
        scenario = record.scenario(row.scenario)
    except (StoreError, SpecError) as error:  # damaged, or of fields this twin does not know
        draw_heading(row)
        error_text = f"The scenario of this run cannot be read. {sentence(str(error))}"
        st.error(error_text, icon=":material/broken_image:")
        _offer_presets()
        st.stop()
    return row, scenario


def ended_run(page: str) -> tuple[RunRow, Scenario]:
    """Return the address's run and scenario; without results draw why, and stop the page."""
    row, scenario = named_run(page)
    draw_heading(row, PAGES[page].about)
    if not row.ended or not row.summary:
        st.markdown(f"{PAGES[page].title} shows a run when it has ended with results.")
        link_page("run", "See how far it is", {"run": row.id})
        st.stop()
    link_page("run", "Results of this run", {"run": row.id}, ":material/query_stats:")
    return row, scenario


def _offer_presets() -> None:
    """Draw a button to the page of presets."""
    if st.button("Choose a preset", type="primary", icon=":material/home:", key="to-start"):
        go_to("start")


def follow_run(place: DeltaGenerator, row: RunRow, scenario: Scenario) -> RunRow | None:
    """Draw a queued or running run in `place`. Returns the run if it ends within the first seconds,
    which the script waits for; otherwise None, and a fragment draws the progress."""
    with place.container():
        draw_heading(row, scenario.question or words.card_line(scenario))
        progress_place = st.empty()
    shown_text = ""
    while not row.ended and time.time() - row.queued_s < AT_ONCE_S:
        if _state_text(row) != shown_text:
            shown_text = _state_text(row)
            progress_place.progress(row.progress, shown_text)
        time.sleep(LOOK_S)
        row = session.store().runs.get(row.id) or row
    if row.ended:
        place.empty()
        return row
    with progress_place.container():
        interval_s = _check_interval_s(row)
        st.fragment(_draw_progress, run_every=interval_s)(row.id, interval_s)
        with st.container(horizontal=True, vertical_alignment="center"):
            copy_link(addresses.run_url(row.id, scenario))
            st.caption("This page can be closed: the run goes on, and its link opens the results.")
    return None


def _check_interval_s(row: RunRow) -> float:
    """Seconds between checks of a run, longer for runs that take long."""
    age_s = time.time() - row.queued_s
    return next(interval_s for limit_s, interval_s in PACE_S if age_s < limit_s)


def _draw_progress(run: str, interval_s: float) -> None:
    """Draw a run's progress, in a fragment that runs every `interval_s` seconds."""
    row = session.store().runs.get(run)
    if row is None or row.ended or _check_interval_s(row) != interval_s:
        st.rerun()  # the whole page: it shows the results, or looks at another pace
    assert row is not None
    with st.container(border=True):
        text_place, stop_place = st.columns([5, 1], vertical_alignment="center")
        with text_place:
            clock_text = f"{words.duration_text(round(_elapsed_s(row)))} elapsed"
            if 0.02 < row.progress < 1.0:
                remaining_s = _elapsed_s(row) * (1 - row.progress) / row.progress
                clock_text += f", about {words.remaining_text(remaining_s)} to go"
            st.markdown(f"**{_state_text(row)}** · {clock_text}")
        with stop_place:
            st.button(
                "Stopping" if row.cancel_s else "Stop this run",
                icon=":material/stop_circle:", args=(run,), key="stop",
                on_click=session.toast_refusals("lock")(session.stop_run), width="stretch",
                disabled=row.cancel_s is not None,
            )  # fmt: skip
        st.progress(row.progress)
        if row.live:
            _draw_figures(row, record.scenario(row.scenario))
        elif time.time() - (row.started_s or row.queued_s) > PATIENCE_S:
            draw_compilation()


def draw_compilation() -> None:
    """Draw the stages of compilation that runs wait for, if any, or why no run can begin."""
    runner = session.runner()
    if runner is not None and runner.trouble:
        st.caption(f":red[{sentence(runner.trouble)}]")
        return
    stages = runner.stages if runner is not None else {}
    if all(stage.took_s is not None for stage in stages.values()):
        return
    st.markdown("The engine is compiled once on a machine. Later starts take seconds.")
    with st.container(horizontal=True, gap="small"):
        for stage_name, stage in stages.items():
            if stage.took_s is None:
                label = f"{stage_name} {time.monotonic() - stage.began_s:.0f} s"
                st.badge(label, icon=":material/progress_activity:", color="blue", width="content")
            else:
                label = f"{stage_name} {stage.took_s:.0f} s"
                st.badge(label, icon=":material/check:", color="green", width="content")


def _state_text(row: RunRow) -> str:
    """State of an unfinished run as text: waiting, starting, running or stopping."""
    if row.cancel_s is not None:
        return "Stopping"
    if row.state == "queued":
        runs_before = session.store().runs.queue_position(row.id) or 0
        if not runs_before:
            return "Waiting to start"
        return f"Waiting: {numbered(runs_before, 'run')} before it"
    if not row.live:
        return "Starting"
    if row.progress >= 1.0:
        return "Simulated: counting and storing the results"
    return f"Running: {100 * row.progress:.0f} % done"


def _elapsed_s(row: RunRow) -> float:
    """Seconds since a run started, or was queued if it has not; at least 1 ms."""
    return max(time.time() - (row.started_s or row.queued_s), 1e-3)


def _draw_figures(row: RunRow, scenario: Scenario) -> None:
    """Draw a run's live figures: requests by state, latency, throughput, pace by wall time."""
    figures = row.live
    time_text = words.duration_text(round(row.progress * scenario.horizon_s, 1))
    with st.grid(5, min_column_width=150):
        horizon_text = words.duration_text(scenario.horizon_s)
        st.metric("Simulated time", time_text, help=f"Of {horizon_text}.")
        for label, key, when_text in (
            ("Arrived", "arrived", "so far"), ("Finished", "finished", "so far"),
            ("In the machine", "inside", "right now"), ("Decoding", "decoding", "right now"),
        ):  # fmt: skip
            st.metric(label, f"{figures.get(key, 0):,.0f}", help=f"Requests {when_text}.")
    # Past spans of time, the latest against the SLO.
    slo, points_by_figure = scenario.slo, figures.get("points") or {}
    has_output = scenario.deployment.mode != "prefill_only"
    with st.grid(3, min_column_width=230):
        for label, key, limit_s in (
            ("TTFT, mean", "ttft_s", slo.ttft_s), ("TPOT, mean", "tpot_s", 1e-3 * slo.tpot_ms),
            ("Output tokens" if has_output else "Prompt tokens", "tokens_per_s", None),
        ):  # fmt: skip
            points = [value for value in points_by_figure.get(key, ()) if value is not None]
            if not points:
                continue
            latest_text, tile_options = amount(points[-1], "rate", "tokens/s"), {}
            if limit_s is not None:
                latest_text, tile_options = seconds(points[-1]), slo_margin(points[-1], limit_s)
            st.metric(label, latest_text, chart_data=points, **tile_options)
    pace_text = (
        f"{three_figures(figures.get('arrived', 0) / _elapsed_s(row))} requests per wall second"
    )
    rejected_text = f" · {figures['rejected']:,.0f} rejected" if figures.get("rejected") else ""
    st.caption(f"{pace_text}{rejected_text}")


def draw_failure(row: RunRow, scenario: Scenario) -> None:
    """Draw why a run failed, was stopped or interrupted, and the next action."""
    draw_heading(row, scenario.question or words.card_line(scenario))
    if row.state == "failed":
        st.error(f"This run failed: {sentence(row.message)}", icon=":material/error:")
        if AGAIN in row.message:
            _offer_rerun(scenario)
        else:
            offer_copy(scenario, "primary")
        return
    end_text = f"at {100 * row.progress:.0f} %"
    if row.state == "cancelled":
        draw_box, state_text, icon = st.info, f"stopped {end_text}", ":material/do_not_disturb_on:"
    else:
        end_text += f" ({plain(row.message.rstrip('.'))})" if row.message else ""
        draw_box, state_text, icon = st.warning, f"interrupted {end_text}", ":material/power_off:"
    draw_box(f"This run was {state_text}, so it has no results.", icon=icon)
    _offer_rerun(scenario)


def _offer_rerun(scenario: Scenario) -> None:
    """Draw a button that runs a scenario again, and one that edits a copy of it."""
    with st.container(horizontal=True, gap="small"):
        if st.button("Run it again", type="primary", icon=":material/replay:", key="run-again"):
            open_run(scenario)
        offer_copy(scenario)


def offer_copy(scenario: Scenario, kind: Literal["primary", "secondary"] = "secondary") -> None:
    """Draw a button that makes a run's scenario the draft, to be edited."""
    if st.button("Edit a copy", type=kind, icon=":material/tune:", key="edit-copy"):
        session.start_from(scenario)
        go_to("workload")
