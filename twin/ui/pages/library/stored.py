"""Stored runs and scenarios as tables, a page of a query each, and actions on selected rows."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import streamlit as st

from twin.lab.library import scenario_from_toml, scenario_to_toml
from twin.lab.share import links
from twin.lab.store import RunRow, ScenarioRow, StoreError
from twin.lab.store.archive import export_runs
from twin.lab.store.scenarios import Kind
from twin.lab.store.visitors import TAGS_MAX, TEXT_CHARS, TITLE_CHARS, Undo, split_tags
from twin.metrics.measures import numbered
from twin.metrics.registry import metric_of, metrics_at
from twin.scenario import Scenario, SpecError
from twin.ui import session, words
from twin.ui.fields import sentence, with_glossary
from twin.ui.link import go_to
from twin.ui.show import draw_download, file_name, plain
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
Row = RunRow | ScenarioRow


def figure_columns() -> list[tuple[str, str, float, str]]:
    """For each column of figures: (header with unit, key in summaries, factor from SI, format)."""
    unit_by_kind = {"time": (" (ms)", 1e3, "%,.1f"), "share": (" (%)", 1e2, "%,.1f")}
    columns = []
    for metric in metrics_at("library"):
        name = metric.short or metric.label
        unit_text = "" if metric.unit == name.lower() else f" ({metric.unit})"
        suffix, factor, number_format = unit_by_kind.get(metric.kind, (unit_text, 1.0, "%,.0f"))
        columns.append((f"{name}{suffix}", metric.key, factor, number_format))
    return columns


def draw_table(rows: Sequence[Row], key: str) -> list[Any]:
    """Draw the table of runs with figures, or of scenarios; returns the selected rows."""
    notes = session.store().notes.notes_on([_row_id(row) for row in rows])
    has_tags = any(note.tags for note in notes.values())
    table = []
    for row in rows:
        note = notes.get(_row_id(row))
        tags = {"Tags": split_tags(note.tags) if note else []} if has_tags else {}
        title = note.title if note and note.title else row.name
        table.append(_run_cells(row, title, tags) if isinstance(row, RunRow)
                     else _scenario_cells(row, title, tags))  # fmt: skip
    column_types = st.column_config
    name_column: Any = column_types.TextColumn(pinned=True, width=NAME_PX)
    columns = dict.fromkeys(("Run", "Scenario"), name_column)
    columns |= dict.fromkeys(("Queued", "Stored"), column_types.DatetimeColumn(format="distance"))
    columns |= {"Question": column_types.TextColumn(width="large"),
                "Runs": column_types.NumberColumn(format="%,d")}  # fmt: skip
    for name, metric_key, _, number_format in figure_columns():
        help_text = with_glossary(name, metric_of(metric_key).help)
        columns[name] = column_types.NumberColumn(format=number_format, help=help_text)
    event = st.dataframe(
        table, hide_index=True, column_config=columns, key=key_after_acts(key), on_select="rerun",
        selection_mode="multi-row", height="content", placeholder="–",
    )  # fmt: skip
    return [rows[i] for i in event.selection.rows if i < len(rows)]


def _run_cells(run: RunRow, title: str, tags: dict[str, Any]) -> dict[str, Any]:
    """Cells of a run in the table, by column. tags: the cell "Tags", or {} without that column."""
    state_text = f"{run.state} {100 * run.progress:.0f} %" if run.state == "running" else run.state
    figures = ((name, run.summary.get(key), factor) for name, key, factor, _ in figure_columns())
    return {
        "Run": title, "State": "damaged" if run.damaged else state_text,
        **{name: None if value is None else factor * value for name, value, factor in figures},
        **tags, "Queued": datetime.fromtimestamp(run.queued_s, UTC),
        "Stays": "shared" if run.published_s is not None else "", "Id": run.id,
    }  # fmt: skip


def _scenario_cells(row: ScenarioRow, title: str, tags: dict[str, Any]) -> dict[str, Any]:
    """Cells of a scenario in the table, by column. tags: the cell "Tags", or {} without it."""
    return {
        "Scenario": title, "Question": row.question, **tags, "Runs": row.runs,
        "Stays": "preset" if row.preset else "shared" if row.published else "",
        "Stored": datetime.fromtimestamp(row.created_s, UTC), "Id": row.digest[:12],
    }  # fmt: skip


def key_after_acts(key: str) -> str:
    """Widget key that changes after each action, so that no selection remains."""
    return f"{key}:{st.session_state.get(ACTS, 0)}"


def _count_act() -> None:
    """Count an action, so that the keys of `key_after_acts` change."""
    st.session_state[ACTS] = st.session_state.get(ACTS, 0) + 1


def draw_details(rows: Sequence[Row]) -> None:
    """Draw the selected row's note, question and why its run ended; nothing for several rows."""
    if len(rows) != 1:
        return
    row = rows[0]
    if note := session.store().notes.notes_on([_row_id(row)]).get(_row_id(row)):
        if note.title:
            st.caption(f"Scenario: {plain(row.name)}")
        if note.text:
            st.markdown("  \n".join(map(plain, note.text.splitlines())))
    if isinstance(row, RunRow):
        if row.message:
            st.caption(f":material/error: {sentence(row.message)}")
        origin_text = f"seed {row.seed} · engine {row.engine_version}"
    else:
        origin_text = "preset" if row.preset else "own scenario"
    if scenario := _load_scenario(_scenario_digest(row)):
        line_parts = words.npus_text(scenario), words.card_line(scenario), origin_text
        st.caption(plain(" · ".join(line_parts)))
        st.caption(plain(scenario.question))


def _row_id(row: Row) -> str:
    """Id under which a row's notes are stored: of a run its id, of a scenario its digest."""
    return row.id if isinstance(row, RunRow) else row.digest


def _scenario_digest(row: Row) -> str:
    """Digest of the scenario of a row, which is a run or a scenario."""
    return row.scenario if isinstance(row, RunRow) else row.digest


def draw_note_form(rows: Sequence[Row]) -> None:
    """Draw the form of a row's name, tags and note; for several rows, of tags to add."""
    row_ids, store = [_row_id(row) for row in rows], session.store()
    with st.popover(
        "Name and tags" if len(row_ids) < 2 else "Add tags", icon=":material/edit_note:",
        disabled=not row_ids, key=key_after_acts("describe"), on_change="rerun",
    ):  # fmt: skip
        note = store.notes.notes_on(row_ids).get(row_ids[0]) if len(row_ids) == 1 else None
        key = key_after_acts(f"note:{','.join(row_ids)}")
        if len(row_ids) == 1:
            note_title, scenario_name = note.title if note else "", rows[0].name
            st.text_input(
                "Name", note_title, TITLE_CHARS, key=f"{key}:title", placeholder=scenario_name
            )
        st.multiselect("Tags", store.notes.tags(), split_tags(note.tags) if note else [],
                       accept_new_options=True, max_selections=TAGS_MAX, key=f"{key}:tags",
                       placeholder="Choose one or type a new one")  # fmt: skip
        if len(row_ids) == 1:
            st.text_area("Note", note.text if note else "", max_chars=TEXT_CHARS, key=f"{key}:text")
        st.button("Save", type="primary", key="save-note", on_click=_save_note, args=(row_ids, key))


def _save_note(row_ids: list[str], key: str) -> None:
    """Callback: store the note form whose widgets have this key. One row gets all its fields;
    several rows get the new tags."""
    note_store, form = session.store().notes, st.session_state
    old_notes = note_store.notes_on(row_ids)
    with session.toast_refusals("lock"):
        for row_id in row_ids:
            title, note_text = form.get(f"{key}:title", ""), form.get(f"{key}:text", "")
            tags = form[f"{key}:tags"]
            if len(row_ids) > 1 and (old_note := old_notes.get(row_id)):
                title, note_text = old_note.title, old_note.text
                tags = [*split_tags(old_note.tags), *tags]
            note_store.write(row_id, title, tags, note_text)
        _count_act()


def draw_actions(rows: Sequence[Row], *, runs: bool) -> None:
    """Draw buttons for the selected rows; runs: whether the rows are runs or scenarios."""
    row, store = rows[0] if len(rows) == 1 else None, session.store()
    if runs:
        if st.button("Open", icon=":material/open_in_new:", disabled=not row, key="open") and row:
            go_to("run", {"run": _row_id(row)})
        is_comparable = 1 <= len(rows) <= links.COMPARED_MAX  # a second one can be chosen there
        if st.button(
            "Compare", icon=":material/compare_arrows:", disabled=not is_comparable,
            key="compare-picked", help=None if is_comparable else "Pick up to six runs.",
        ):  # fmt: skip
            go_to("compare", {links.RUNS: ",".join(map(_row_id, rows))})
    elif (
        st.button("Run", icon=":material/play_arrow:", disabled=not row, key="run-picked")
        and row
        and (scenario := _load_scenario(_scenario_digest(row)))
    ):
        open_run(scenario)
    digest = _scenario_digest(row) if row else ""
    clicked = st.button("Edit a copy", icon=":material/tune:", disabled=not digest, key="fork")
    if clicked and (scenario := _load_scenario(digest)):
        session.start_from(scenario)
        go_to("workload")
    scenario_row = store.scenarios.get(digest) if digest else None
    download_name = file_name(scenario_row.name if scenario_row else "scenario", ".toml")
    draw_download("TOML", lambda: scenario_to_toml(store.scenarios.load(digest)), download_name,
                  "toml", disabled=not digest, help="The scenario as a file.")  # fmt: skip
    draw_note_form(rows)
    if runs:
        ended_ids = [run.id for run in rows if isinstance(run, RunRow) and run.ended]
        download_name = file_name(rows[0].name if len(rows) == 1 else "runs", ".twin.tar")
        draw_download(
            "Archive", lambda: export_runs(store, *ended_ids), download_name, "archive",
            icon=":material/archive:", disabled=not ended_ids or len(ended_ids) < len(rows),
            help="Scenario, facts, engine version, tables, and your name, tags and notes: another "
            "twin takes the file in with `twin library import`.",
        )  # fmt: skip
    kind, store_table = ("run", store.runs) if runs else ("scenario", store.scenarios)
    if row is not None and row.published_s is not None:
        st.button(
            "Revoke link", icon=":material/link_off:", key="revoke", on_click=_call_all,
            args=([partial(store_table.unpublish, _row_id(row))],),
            help=f"The {kind} may be deleted again; then its link finds nothing.",
        )  # fmt: skip
    _draw_deletion([*map(_row_id, rows)], store_table.delete, kind)


def _call_all(acts: Sequence[Callable[[], object]]) -> None:
    """Callback: call each of these functions; a refusal becomes a toast."""
    _count_act()
    for act in acts:
        with session.toast_refusals("lock"):
            act()


def _load_scenario(digest: str) -> Scenario | None:
    """A stored scenario; None, with the reason as a toast, if it cannot be read."""
    with session.toast_refusals():
        return session.store().scenarios.load(digest)
    return None


def _draw_deletion(row_ids: list[str], delete: Callable[[str], Undo], kind: str) -> None:
    """Draw the button that deletes rows after a confirmation. delete: deletes one id, returns how
    to undo it. kind: noun of the rows."""
    with st.popover(
        "Delete", icon=":material/delete:", disabled=not row_ids, width="content",
        key=key_after_acts("delete"), on_change="rerun",
    ):  # fmt: skip
        count_text = numbered(len(row_ids), kind)
        st.markdown(f"**{count_text}** will be deleted. Presets, and what was shared, stay.")
        st.button(f"Delete {count_text}", type="primary", key="delete-picked", on_click=delete_all,
                  args=(row_ids, delete, kind))  # fmt: skip


def delete_all(row_ids: list[str], delete: Callable[[str], Undo], kind: str) -> None:
    """Callback: delete rows. Refusals become toasts; rows that were deleted can be restored.
    delete, kind: see `_draw_deletion`."""
    _count_act()
    refusals, undo_acts = [], []
    for row_id in row_ids:
        try:
            undo_acts.append(delete(row_id))
        except StoreError as error:
            refusals.append(sentence(str(error)))
    if undo_acts:
        st.session_state[DELETED] = (f"{numbered(len(undo_acts), kind)} deleted.", undo_acts)
    for refusal in list(dict.fromkeys(refusals))[:REFUSALS_SHOWN]:
        st.toast(refusal, icon=":material/lock:", duration="long")


def draw_undo() -> None:
    """Draw the last deletion with a button that undoes it; nothing without one."""
    if DELETED not in st.session_state:
        return
    deleted_text, undo_acts = st.session_state[DELETED]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f":material/delete: {deleted_text}", width="content")
        st.button(
            "Undo the deletion", icon=":material/undo:", key="undo-delete", on_click=_call_all,
            args=([partial(st.session_state.pop, DELETED), *undo_acts],),
        )  # fmt: skip


def draw_import() -> None:
    """Draw the upload of a scenario's TOML file, with a preview."""
    file = st.file_uploader("Scenario file (TOML)", type="toml", key="scenario-file")
    if file is None:
        return
    try:
        scenario = scenario_from_toml(file.getvalue(), file.name)
    except SpecError as error:
        st.error(plain(f"{error}."), icon=":material/error:")
        return
    st.markdown(f"**{plain(scenario.name)}**")
    st.caption(plain(f"{words.npus_text(scenario)} · {words.card_line(scenario)}"))
    with st.container(horizontal=True):
        if st.button("Store it", type="primary", icon=":material/check:", key="keep-file"):
            with session.toast_refusals("lock"):
                session.store().scenarios.save(scenario)
                st.toast(f"{plain(scenario.name)} is in the library.", icon=":material/check:")
        if st.button("Edit it", icon=":material/tune:", key="edit-file"):
            session.start_from(scenario)
            go_to("workload")
