"""Lists of the draft as editable tables: rows of any, seats, further models, a schedule."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
import streamlit as st

from twin.lab.ask import scheduler_defaults, with_scheduler
from twin.lab.controllers import VARIABLE, controller_digests
from twin.scenario import Scenario, ScenarioField, fields, npus_used, pools, seated_pools, value_of
from twin.scenario.fields import value_at
from twin.ui import forms, session, words
from twin.ui.fields import change_line, choice_label, options, sentence, text_of, with_labels
from twin.ui.formulas import place_instances

# Fields of a row's own sections that stand in its table; the others are set in a file.
ALSO = {
    "models": (
        "deployment.model", "workload.rate_req_per_s", "workload.input_tokens",
        "workload.output_tokens", "deployment.mode", "deployment.prefill.instances",
        "deployment.prefill.npus_per_instance", "deployment.decode.instances",
        "deployment.decode.npus_per_instance", "deployment.colocated.instances",
        "deployment.colocated.npus_per_instance",
    ),
}  # fmt: skip
TYPES = {int: pl.Int64, float: pl.Float64, bool: pl.Boolean, str: pl.String}
CHOICE = "own-controller"  # session state: the file that was chosen


def _first_rows(widget: str, rows: Any = None) -> list[dict[str, Any]]:
    """Rows with which the table of the key `widget` was first drawn: those of the first call, also
    at later calls, because other rows would discard the visitor's edits."""
    first_rows: list[dict[str, Any]] = st.session_state.setdefault(f"{widget}:rows", rows)
    return first_rows


def draw_rows(path: str, options: dict[str, list[str]] | None = None) -> None:
    """Draw the draft's list at `path` as an editable table. Incomplete rows are not written to the
    draft. options: names to choose from, by column."""
    widget = session.field_key(path)
    rows = _first_rows(widget, [row.model_dump() for row in value_of(session.draft(), path)])
    columns = columns_of(fields(), path)
    row_cells = [{name: value_at(row, name) for name in columns} for row in rows]
    edit_table(columns, row_cells, options or {}, widget, on_change=_set_rows, args=(path, widget))
    if refusal := session.refusal(path):
        forms.draw_refusal(refusal)


def edit_table(
    columns: Mapping[str, ScenarioField], rows: list[dict[str, Any]],
    options: Mapping[str, list[str]], key: str, **more: Any,
) -> pl.DataFrame:  # fmt: skip
    """Draw an editable table of declared columns; returns its edited rows. options: names to choose
    from, by column. more: arguments of `st.data_editor`."""
    edited_table: pl.DataFrame = st.data_editor(
        pl.DataFrame(rows, schema={name: TYPES[field.kind] for name, field in columns.items()}),
        column_config={name: column_config(field, options.get(name))
                       for name, field in columns.items()},
        key=key, num_rows="dynamic", hide_index=True, height="content", **more,
    )  # fmt: skip
    return edited_table


def columns_of(declared: Mapping[str, ScenarioField], path: str) -> dict[str, ScenarioField]:
    """Fields of the rows of the list at `path`, by name in a row; declared: all fields by path."""
    prefix = f"{path}[]."
    row_fields = {name.removeprefix(prefix): field for name, field in declared.items()
                  if name.startswith(prefix)}  # fmt: skip
    return row_fields | {name: declared[name] for name in ALSO.get(path, ())}


def complete_rows(
    rows: Iterable[dict[str, Any]], columns: Mapping[str, ScenarioField]
) -> list[dict[str, Any]]:
    """Rows whose required cells are all filled, each without its empty cells."""
    required_names = [name for name, field in columns.items() if field.required]
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in rows
        if all(row.get(name) is not None for name in required_names)
    ]


def _with_cells(row: dict[str, Any], cells: dict[str, Any]) -> dict[str, Any]:
    """Copy of a row with new values. cells: by name of a column, `a.b` for a field of a section;
    None: the cell is empty, so the field is removed."""
    new_row = copy.deepcopy(row)
    for column, value in cells.items():
        *sections, last_name = column.split(".")
        section = new_row
        for section_name in sections:
            section = section.setdefault(section_name, {})
        section.pop(last_name, None)
        if value is not None:
            section[last_name] = value
    return new_row


def column_config(field: ScenarioField, options: list[str] | None = None) -> Any:
    """Streamlit's configuration of a declared field's column; options: names it accepts."""
    title = field.title
    arguments: dict[str, Any] = {"help": with_labels(field.help), "required": field.required}
    if options:
        more_options = [option for option in field.options if option not in options]
        return st.column_config.SelectboxColumn(title, options=options + more_options, **arguments)
    if field.kind is str:
        return st.column_config.TextColumn(title, **arguments)
    return st.column_config.NumberColumn(
        title, min_value=field.low, max_value=field.high, default=field.default,
        step=1 if field.kind is int else None, **arguments,
    )  # fmt: skip


def _set_rows(path: str, widget: str) -> None:
    """Write the complete rows of the table with the key `widget` to the draft's list at `path`."""
    if session.is_gone(widget):
        return
    table_edits = st.session_state[widget]
    rows = [
        _with_cells(row, table_edits["edited_rows"].get(row_number, {}))
        for row_number, row in enumerate(_first_rows(widget))
        if row_number not in table_edits["deleted_rows"]
    ]
    rows += [_with_cells({}, row) for row in table_edits["added_rows"]]
    session.propose({path: complete_rows(rows, columns_of(fields(), path))})


def draw_seats() -> None:
    """Draw which instances were moved, or why one cannot be placed, and the table of seats."""
    draft = session.draft()
    placement, reason = place_instances(draft)
    if reason:
        forms.draw_refusal(reason)
    for move in placement.moved:
        st.caption(f":material/event_seat: {sentence(move)}")
    if draft.deployment.placement == "by_hand":
        st.caption("One row an instance, or several; those without a row are packed around them.")
        draw_rows("deployment.seats", {"role": [role for role, _, _ in seated_pools(draft)]})


def draw_scheduler_button() -> None:
    """Draw a button that gives the draft's scheduler fields the defaults of its serving stack.
    Draws nothing if they already have these values."""
    draft = session.draft()
    changes = scheduler_defaults(draft, session.facts())
    if not changes:
        return
    stack_title = choice_label("deployment.stack", draft.deployment.stack)
    change_lines = (
        change_line(path, text_of(value_of(draft, path), path), text_of(new_value, path))
        for path, new_value in changes.items()
    )
    st.button(
        f"Schedule as {stack_title.partition(',')[0]} does by default", icon=":material/schedule:",
        help="  \n".join(change_lines), key="as-stack",
        on_click=session.toast_refusals()(
            lambda: session.set_draft(with_scheduler(session.draft(), session.facts()))
        ),
    )  # fmt: skip


def draw_models() -> None:
    """Draw the table of further models."""
    st.caption(
        "Further models on the same machine, each with its own instances and requests. A file sets "
        "every other field of theirs."
    )
    draw_rows("models", {"deployment.model": options("deployment.model", session.facts()) or []})


def draw_scaling() -> None:
    """Draw the table of a schedule, or the choice of the operator's own controllers."""
    controller = session.widget_value("elastic.controller")
    if controller == "schedule":
        st.caption("How many instances of each pool are wanted, and from when on.")
        draw_rows("elastic.schedule")
        for warning in schedule_warnings(session.draft()):
            st.warning(warning, icon=":material/event_busy:")
    elif controller == "own" and (digest_by_name := controller_digests()):
        digests = list(digest_by_name.values())
        used_digest = value_of(session.draft(), "elastic.own.digest")
        st.selectbox(
            "Own controller", list(digest_by_name),
            index=digests.index(used_digest) if used_digest in digests else None,
            key=CHOICE, placeholder="A file of the operator's folder", on_change=_set_controller,
        )  # fmt: skip
    elif controller == "own":
        st.caption(f"The operator of this server has named no folder of controllers ({VARIABLE}).")


def schedule_warnings(draft: Scenario) -> list[str]:
    """Sentences on rows of a schedule that want too many NPUs, or begin after the end."""
    schedule, sentences = draft.elastic.schedule, []
    npu_limit = max(draft.elastic.npus, npus_used(draft))
    npus_wanted_by_row = [
        (sum(row.wanted_instances(role) * npus for role, _, npus in pools(draft)),
         -row_number, row.at_s)
        for row_number, row in enumerate(schedule) if row.at_s < draft.horizon_s
    ]  # fmt: skip
    npus, _, at_s = max(npus_wanted_by_row, default=(0, 0, 0.0))
    if npus > npu_limit:
        sentences.append(
            f"From {words.duration_text(at_s)} on {npus:,} NPUs are wanted, and instances may take "
            f"{npu_limit:,}: those beyond do not start."
        )
    end_s = draft.horizon_s
    if late_times := [words.duration_text(row.at_s) for row in schedule if row.at_s >= end_s]:
        end_text, late_text = words.duration_text(end_s), ", ".join(late_times)
        sentences.append(
            f"After the end of the run at {end_text}, so never seen: rows at {late_text}."
        )
    return sentences


def _set_controller() -> None:
    """Set the chosen controller in the draft, by its name and digest."""
    name = st.session_state[CHOICE]
    session.propose({"elastic.own.name": name, "elastic.own.digest": controller_digests()[name]})
