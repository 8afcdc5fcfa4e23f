"""Forms of declared fields; those without effect are hidden, refused edits say why below."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import streamlit as st

from twin.scenario import ScenarioField, form_groups
from twin.ui import fields, session

# Session state: how often a field was looked for, the last one, and that its form has to open it.
SEARCHES, SOUGHT, OPENS = "field-searches", "field-sought", "field-opens"
ROW_CHARACTERS = 30  # choices up to this many letters in all stand side by side
# What people change, in the order in which they think of it; those that apply are shown.
FIRST: dict[str, tuple[str, ...]] = {
    "supernode": (
        "supernode.machine", "supernode.chip", "supernode.nodes", "supernode.supernodes",
        "supernode.ub_link_gb_per_s", "supernode.rdma_gb_per_s_per_npu",
    ),
    "workload": (
        "workload.arrivals", "workload.rate_req_per_s", "workload.concurrency", "workload.lengths",
        "workload.input_tokens", "workload.output_tokens", "workload.shortest", "workload.prefix",
        "workload.shared_fraction", "workload.follow_up_probability", "slo.ttft_s", "slo.tpot_ms",
        "horizon_s",
    ),
    "deployment": (
        "deployment.model", "deployment.mode", "deployment.prefill.instances",
        "deployment.prefill.npus_per_instance", "deployment.prefill.core_share",
        "deployment.decode.instances", "deployment.decode.npus_per_instance",
        "deployment.colocated.instances", "deployment.colocated.npus_per_instance",
        "deployment.decode.batch_per_npu", "deployment.decode.mtp_draft_tokens",
        "experts.redundant", "router.policy", "memory_pool.enabled",
    ),
}  # fmt: skip


def draw_group(paths: Iterable[str]) -> None:
    """Draw the fields that have an effect, two per row, and name the others with the reasons."""
    scenario = session.draft_with_pending()
    names_by_reason: dict[str, list[str]] = {}
    grid = st.grid(2, min_column_width=230, vertical_alignment="top", gap=("small", "medium"))
    for path in paths:
        reason = fields.why_idle(path, scenario)
        if reason and not session.refusal(path):
            names_by_reason.setdefault(reason, []).append(fields.field_of(path).label)
            continue
        with grid.cell():
            draw_field(path)
    if names_by_reason:
        unused_text = "; ".join(
            f"{', '.join(names)} ({why})" for why, names in names_by_reason.items()
        )
        st.caption(f"Not used with these choices: {unused_text}.")


def draw_field(path: str) -> None:
    """Draw the widget of one field, with a refused edit's reason below."""
    option_names = fields.options(path, session.facts())
    value = session.widget_value(path)
    draw_widget(fields.field_of(path), value, names=option_names, **edit_arguments(path))
    if refusal := session.latest_refusal(path):
        draw_refusal(refusal)


def seek_field(path: str) -> None:
    """Search for a field: its form opens it when it is drawn next, and the page scrolls to it."""
    st.session_state[SEARCHES] = st.session_state.get(SEARCHES, 0) + 1
    st.session_state[SOUGHT] = st.session_state[OPENS] = path


def last_search() -> tuple[int, str]:
    """(number of searches so far, key of the widget of the field found last), or (0, "")."""
    path = st.session_state.get(SOUGHT)
    return (st.session_state[SEARCHES], session.field_key(path)) if path else (0, "")


def pop_sought_field(form: str) -> str | None:
    """Return and forget the path of the field that the visitor searched for, if it is in this form;
    otherwise None."""
    path = st.session_state.get(OPENS)
    if path is None or fields.field_of(path).form != form:
        return None
    del st.session_state[OPENS]
    return str(path)


def edit_arguments(path: str) -> dict[str, Any]:
    """Arguments that make a widget edit a field of the draft: key, help and callback."""
    callback = {"on_change": session.edit_field, "args": (path,)}
    return {"key": session.field_key(path), "help": fields.tooltip(path), **callback}


def draw_refusal(refusal: str) -> None:
    """Show a refused edit's sentence below its field."""
    st.markdown(f":small[:red[:material/error: {fields.sentence(refusal)}]]")


def draw_widget(
    field: ScenarioField, value: Any, *, names: Sequence[str] | None = None, **arguments: Any
) -> None:
    """Draw the widget of a field: a toggle, a choice among `names`, or an input of a number or
    text. arguments: further ones for Streamlit's widget."""
    if field.kind is bool:
        st.space("xsmall")
        st.toggle(field.title, value, **arguments)
    elif names is not None:
        _draw_choice(field, value, names, **arguments)
    elif field.kind in (int, float):
        step_size = field.step or 10.0 ** (math.floor(math.log10(field.default or 1)) - 1)
        number_format, step_size = "%.6g", float(step_size)  # a step of the size of the default
        if field.kind is int:  # as a decimal number too: else 1e3 is read as 1, and 2.5 as 2
            number_format, step_size = "%.15g", max(1.0, step_size // 1)
        arguments |= {"value": float(value), "format": number_format, "step": step_size}
        # Without ends of its own: a number beyond them is refused in a sentence that says them.
        st.number_input(field.title, **arguments)
    else:
        st.text_input(field.title, value, max_chars=field.chars_max, **arguments)


def _draw_choice(field: ScenarioField, value: str, names: Sequence[str], **kwargs: Any) -> None:
    """Draw a choice among names: in a row if their labels are short, otherwise as a list. kwargs:
    further arguments for Streamlit's widget."""
    if value not in names:
        names = [value, *names]

    def label_of(option: str) -> str:
        """Label of one of the field's options."""
        if not field.files and option in field.options:
            return field.options[option]
        return fields.choice_label(field.path, option, session.facts())

    kwargs |= {"format_func": label_of}
    if "[]" not in field.path and sum(len(label_of(option)) for option in names) <= ROW_CHARACTERS:
        st.segmented_control(field.title, names, default=value, required=True, **kwargs)
    else:
        st.selectbox(field.title, names, list(names).index(value), **kwargs)


def further_fields(form: str) -> dict[str, list[str]]:
    """Paths of a form's fields by group, without the fields that `draw_form` draws first."""
    draft = session.draft_with_pending()
    return {
        name: [path for path in paths if path not in FIRST[form] or fields.why_idle(path, draft)]
        for name, paths in form_groups(form).items() if set(paths) - set(FIRST[form])
    }  # fmt: skip


def draw_form(form: str, draw_by_group: Mapping[str, Callable[[], None]]) -> str | None:
    """Draw a form; returns the name of the open group, or None. draw_by_group: functions that draw
    certain groups in place of their fields, by name of the group."""
    draft = session.draft_with_pending()
    draw_group(path for path in FIRST[form] if not fields.why_idle(path, draft))
    paths_by_group, group_key = further_fields(form), f"{form}-group"
    if path := pop_sought_field(form):
        st.session_state[group_key] = None if path in FIRST[form] else fields.field_of(path).group
    if st.session_state.get(group_key) not in paths_by_group:
        st.session_state[group_key] = None
    st.markdown("**More fields**")
    group_name = st.segmented_control(
        "More fields", list(paths_by_group), label_visibility="collapsed", key=group_key,
        persist_state="session", wrap=True,
    )  # fmt: skip
    if draw_special := draw_by_group.get(group_name or ""):
        draw_special()
    elif group_name is not None:
        draw_group(paths_by_group[group_name])
    return group_name
