"""What is kept here as tables, and what can be done with the rows someone picked.

A table shows one page of a query, so a full store costs no more than an empty one. What a row may
be used for is the store's to say: its refusals are shown as they are, one sentence each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from twin.lab import share
from twin.lab.library import scenario_from_toml, scenario_to_toml
from twin.lab.store import RunRow, ScenarioRow, StoreError
from twin.lab.store.archive import export_runs
from twin.lab.store.models import NoteRow
from twin.lab.store.scenarios import Kind
from twin.lab.store.statements import Undo
from twin.lab.store.visitors import TAGS_MAX, TEXT_CHARS, TITLE_CHARS, split_tags
from twin.metrics.registry import Metric, metric_of, placed
from twin.scenario import Scenario, SpecError
from twin.ui import session, words
from twin.ui.fields import glossed, sentence
from twin.ui.link import go_to
from twin.ui.show import file_name, plain
from twin.ui.toolbar import open_run

ROWS = 20  # of a page
NAME_PX = 210
REFUSALS_SHOWN = 3
ACTS, DELETED = "library-acts", "library-deleted"  # session state: how many acts; what to undo

STATES = {
    "All": (),
    "Done": ("done",),
    "Going on": ("queued", "running"),
    "Not finished": ("failed", "cancelled", "interrupted"),
}
KINDS: dict[str, Kind] = {"All": "all", "Presets": "presets", "Own": "own"}


def figures() -> list[tuple[str, str, float, str]]:
    """Figures of a run in the table: header with its unit, key of the summary, factor, format."""
    return [_figure(metric) for metric in placed("library")]


def _figure(metric: Metric) -> tuple[str, str, float, str]:
    name = metric.short or metric.label
    if metric.kind == "time":
        return f"{name} (ms)", metric.key, 1e3, "%,.1f"
    if metric.kind == "share":
        return f"{name} (%)", metric.key, 1e2, "%,.1f"
    unit = "" if metric.unit == name.lower() else f" ({metric.unit})"
    return f"{name}{unit}", metric.key, 1.0, "%,.0f"


def run_table(rows: Sequence[RunRow], key: str) -> list[RunRow]:
    """Runs with their headline figures; returns the picked ones."""
    notes = session.store().notes.of([run.id for run in rows])
    cells = [
        {
            "Run": _titled(notes.get(run.id), run.name),
            "State": _state(run),
            **{name: _scaled(run.summary.get(key), by) for name, key, by, _ in figures()},
            **_tags(notes, run.id),
            "Asked": _when(run.queued_s),
            "Stays": "shared" if run.published_s is not None else "",
            "Id": run.id,
        }
        for run in rows
    ]
    numbers = {
        name: st.column_config.NumberColumn(format=form, help=glossed(name, metric_of(key).help))
        for name, key, _, form in figures()
    }
    return _picked(rows, cells, numbers | {"Run": _first("Run")}, key)


def _state(run: RunRow) -> str:
    if run.damaged:
        return "damaged"
    return f"{run.state} {run.progress:.0%}" if run.state == "running" else run.state


def scenario_table(rows: Sequence[ScenarioRow], key: str) -> list[ScenarioRow]:
    """Scenarios with the question each asks; returns the picked ones."""
    notes = session.store().notes.of([row.digest for row in rows])
    cells = [
        {
            "Scenario": _titled(notes.get(row.digest), row.name),
            "Question": row.question,
            **_tags(notes, row.digest),
            "Runs": row.runs,
            "Stays": "preset" if row.preset else "shared" if row.published else "",
            "Kept": _when(row.created_s),
            "Id": row.digest[:12],
        }
        for row in rows
    ]
    columns = {
        "Scenario": _first("Scenario"),
        "Question": st.column_config.TextColumn(width="large"),
        "Runs": st.column_config.NumberColumn(format="%,d"),
    }
    return _picked(rows, cells, columns, key)


def _titled(note: NoteRow | None, name: str) -> str:
    return note.title if note and note.title else name


def _tags(notes: Mapping[str, NoteRow], name: str) -> dict[str, list[str]]:
    """The cell of tags, where any row of the table has some."""
    if not any(note.tags for note in notes.values()):
        return {}
    return {"Tags": split_tags(notes[name].tags) if name in notes else []}


def _first(name: str) -> Any:
    return st.column_config.TextColumn(name, pinned=True, width=NAME_PX)


def _picked(rows: Sequence[Any], cells: list[dict[str, Any]], columns: dict, key: str) -> list[Any]:
    times = {"Asked": "Asked", "Kept": "Kept"}
    columns |= {n: st.column_config.DatetimeColumn(n, format="distance") for n in times}
    event = st.dataframe(
        cells, hide_index=True, column_config=columns, key=after_acts(key), on_select="rerun",
        selection_mode="multi-row", height="content", placeholder="–",
    )  # fmt: skip
    return [rows[i] for i in event.selection.rows if i < len(rows)]


def after_acts(key: str) -> str:
    """Key of a widget that begins anew after each action: no selection outlives what it picked."""
    return f"{key}:{st.session_state.get(ACTS, 0)}"


def _acted() -> None:
    st.session_state[ACTS] = st.session_state.get(ACTS, 0) + 1


def _scaled(value: Any, by: float) -> float | None:
    return None if value is None else by * value


def _when(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def about(picked: Sequence[RunRow | ScenarioRow]) -> None:
    """What a row has no room for: the note and question of the one picked, and why it ended."""
    if len(picked) != 1:
        return
    row = picked[0]
    if note := session.store().notes.of([_name(row)]).get(_name(row)):
        if note.title:
            st.caption(f"Scenario: {plain(row.name)}")
        if note.text:
            st.markdown("  \n".join(map(plain, note.text.splitlines())))
    if isinstance(row, RunRow):
        if row.message:
            st.caption(f":material/error: {sentence(row.message)}")
        digest, where = row.scenario, f"seed {row.seed} · engine {row.engine_version}"
    else:
        digest, where = row.digest, "preset" if row.preset else "own scenario"
    if scenario := _load(digest):
        st.caption(plain(" · ".join((words.machine(scenario), words.brief(scenario), where))))
        st.caption(plain(scenario.question))


def _name(row: RunRow | ScenarioRow) -> str:
    return row.id if isinstance(row, RunRow) else row.digest


# What can be done.


def describe(picked: Sequence[RunRow | ScenarioRow]) -> None:
    """A name of one's own, tags and a note for what is picked; of several rows tags alone."""
    names, store = [_name(row) for row in picked], session.store()
    with st.popover(
        "Name and tags" if len(names) < 2 else "Add tags", icon=":material/edit_note:",
        disabled=not names, key=after_acts("describe"), on_change="rerun",
    ):  # fmt: skip
        note = store.notes.of(names).get(names[0]) if len(names) == 1 else None
        key = after_acts(f"note:{','.join(names)}")
        if len(names) == 1:
            title = note.title if note else ""
            st.text_input(
                "Name", title, TITLE_CHARS, key=f"{key}:title", placeholder=picked[0].name
            )
        st.multiselect(
            "Tags", store.notes.tags(), split_tags(note.tags) if note else [],
            accept_new_options=True, max_selections=TAGS_MAX, key=f"{key}:tags",
            placeholder="Choose one or type a new one",
        )  # fmt: skip
        if len(names) == 1:
            st.text_area("Note", note.text if note else "", max_chars=TEXT_CHARS, key=f"{key}:text")
        st.button("Save", type="primary", key="save-note", on_click=_save_note, args=(names, key))


def _save_note(names: list[str], key: str) -> None:
    """Keep what the form says: of one thing all of it, of several the tags beside their own."""
    notes, form = session.store().notes, st.session_state
    before = notes.of(names)
    try:
        for name in names:
            title, text = form.get(f"{key}:title", ""), form.get(f"{key}:text", "")
            tags = form[f"{key}:tags"]
            if len(names) > 1 and (old := before.get(name)):
                title, text, tags = old.title, old.text, [*split_tags(old.tags), *tags]
            notes.write(name, title, tags, text)
    except StoreError as error:
        st.toast(sentence(str(error)), icon=":material/lock:", duration="long")
    else:
        _acted()


def run_actions(picked: list[RunRow]) -> None:
    """The buttons over the runs."""
    one = picked[0] if len(picked) == 1 else None
    if st.button("Open", icon=":material/open_in_new:", disabled=one is None, key="open") and one:
        go_to("run", {"run": one.id})
    comparable = 1 <= len(picked) <= share.COMPARED_MAX  # a second one can be chosen there
    if st.button(
        "Compare", icon=":material/compare_arrows:", disabled=not comparable, key="compare-picked",
        help=None if comparable else "Pick up to six runs.",
    ):  # fmt: skip
        ids = ",".join(run.id for run in picked)
        go_to("compare", {share.RUNS: ids})
    _copy(one.scenario if one else "")
    describe(picked)
    _archive(picked)
    if one and one.published_s is not None:
        st.button(
            "Revoke link", icon=":material/link_off:", key="revoke", on_click=_revoke,
            args=(one.id,), help="The run may be deleted again; then its link finds nothing.",
        )  # fmt: skip
    _delete([(run.id, run.name) for run in picked], session.store().runs.delete, "run")


def _revoke(run: str) -> None:
    _acted()
    try:
        session.store().runs.unpublish(run)
    except StoreError as error:
        st.toast(sentence(str(error)), icon=":material/lock:", duration="long")


def scenario_actions(picked: list[ScenarioRow]) -> None:
    """The buttons over the scenarios."""
    one = picked[0] if len(picked) == 1 else None
    if (
        st.button("Run", icon=":material/play_arrow:", disabled=one is None, key="run-picked")
        and one
        and (scenario := _load(one.digest))
    ):
        open_run(scenario)
    _copy(one.digest if one else "")
    describe(picked)
    drafts = [(row.digest, row.name) for row in picked]
    _delete(drafts, session.store().scenarios.delete, "scenario")


def _archive(picked: list[RunRow]) -> None:
    """Whole runs as one file that any twin takes in."""
    ended = [run.id for run in picked if run.ended]
    name = file_name(picked[0].name if len(picked) == 1 else "runs", ".twin.tar")
    st.download_button(
        "Archive", lambda: export_runs(session.store(), *ended), name,
        "application/x-tar", icon=":material/archive:", on_click="ignore", key="archive",
        disabled=not ended or len(ended) < len(picked),
        help="Scenario, facts, engine version, tables, and your name, tags and notes: another twin "
        "takes the file in with `twin library import`.",
    )  # fmt: skip


def _copy(digest: str) -> None:
    """Edit a copy of a scenario, or take it away as a file."""
    if (
        st.button("Edit a copy", icon=":material/tune:", disabled=not digest, key="fork")
        and (scenario := _load(digest)) is not None
    ):
        session.start_from(scenario)
        go_to("workload")
    st.download_button(
        "TOML", lambda: scenario_to_toml(session.store().scenarios.load(digest)),
        _file_name(digest), "application/toml", icon=":material/download:",
        disabled=not digest, on_click="ignore", key="toml", help="The scenario as a file.",
    )  # fmt: skip


def _file_name(digest: str) -> str:
    row = session.store().scenarios.get(digest) if digest else None
    return file_name(row.name if row else "scenario", ".toml")


def _load(digest: str) -> Scenario | None:
    try:
        return session.store().scenarios.load(digest)
    except (StoreError, SpecError) as error:
        st.toast(sentence(str(error)), icon=":material/error:", duration="long")
        return None


def _delete(picked: list[tuple[str, str]], delete: Callable[[str], Undo], kind: str) -> None:
    with st.popover(
        "Delete", icon=":material/delete:", disabled=not picked, width="content",
        key=after_acts("delete"), on_change="rerun",
    ):  # fmt: skip
        count = f"{len(picked)} {kind}{'s' if len(picked) != 1 else ''}"
        st.markdown(f"**{count}** will be deleted. Presets, and what was shared, stay.")
        st.button(
            f"Delete {count}", type="primary", key="delete-picked",
            on_click=_delete_all, args=([name for name, _ in picked], delete, kind),
        )  # fmt: skip


def _delete_all(names: list[str], delete: Callable[[str], Undo], kind: str) -> None:
    _acted()
    refused, undo = [], []
    for name in names:
        try:
            undo.append(delete(name))
        except StoreError as error:
            refused.append(sentence(str(error)))
    if undo:
        text = f"{len(undo)} {kind}{'s' if len(undo) != 1 else ''} deleted."
        st.session_state[DELETED] = (text, undo)
    for refusal in list(dict.fromkeys(refused))[:REFUSALS_SHOWN]:
        st.toast(refusal, icon=":material/lock:", duration="long")


def undo_deletion() -> None:
    """What was deleted last, and the button that takes it back; nothing where nothing was."""
    if DELETED not in st.session_state:
        return
    text, undo = st.session_state[DELETED]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f":material/delete: {text}", width="content")
        st.button(
            "Undo the deletion", icon=":material/undo:", key="undo-delete",
            on_click=_undo_all, args=(undo,),
        )  # fmt: skip


def _undo_all(undo: list[Undo]) -> None:
    _acted()
    del st.session_state[DELETED]
    for one in undo:
        try:
            one()
        except StoreError as error:
            st.toast(sentence(str(error)), icon=":material/lock:", duration="long")


def import_scenario() -> None:
    """A scenario's TOML file into the library, looked at first."""
    file = st.file_uploader("Scenario file (TOML)", type="toml", key="scenario-file")
    if file is None:
        return
    try:
        scenario = scenario_from_toml(file.getvalue(), file.name)
    except SpecError as error:
        st.error(plain(f"{error}."), icon=":material/error:")
        return
    st.markdown(f"**{plain(scenario.name)}**")
    st.caption(plain(f"{words.machine(scenario)} · {words.brief(scenario)}"))
    with st.container(horizontal=True):
        if st.button("Keep it", type="primary", icon=":material/check:", key="keep-file"):
            try:
                session.store().scenarios.save(scenario)
            except StoreError as error:
                st.toast(sentence(str(error)), icon=":material/lock:", duration="long")
            else:
                st.toast(f"{plain(scenario.name)} is in the library.", icon=":material/check:")
        if st.button("Edit it", icon=":material/tune:", key="edit-file"):
            session.start_from(scenario)
            go_to("workload")
