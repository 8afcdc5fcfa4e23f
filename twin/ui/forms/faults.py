"""The form of faults, typical ones first, and recovery; an unknown element is refused."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.faults import with_faults
from twin.hardware.network import Network
from twin.hardware.placement import Instance
from twin.scenario import KINDS, Fault, Scenario, form_groups, remarks, with_overrides
from twin.ui import forms, session
from twin.ui.charts import history
from twin.ui.fields import choice_label, field_of, options, sentence
from twin.ui.formulas import place_instances
from twin.ui.show import plot

Row = dict[str, Any]  # the fields of a `twin.scenario.Fault`

ROWS_SHOWN = 8  # at a time
WIDTHS = (1.1, 1.9, 1.5, 0.9, 1.1)  # when, what, kind, a field of the kind, how long
LEFT_OUT = ("NIC", "Qingtian")  # too many to choose from; their names can be typed


def draw_form() -> None:
    """Draw the form of faults: rows, buttons that add some, a chart over time, and recovery."""
    draft = session.draft()
    try:
        fabric = build_fabric(draft.supernode, session.facts())
    except HardwareError as error:
        st.error(sentence(str(error)), icon=":material/device_hub:")
        return
    fault_rows = [fault.model_dump() for fault in draft.faults]
    st.caption("What fails while the machine serves, and when; and how the serving stack recovers.")
    if fault_rows:
        first_row = 0
        if len(fault_rows) > ROWS_SHOWN:  # in pages
            page_count = -(-len(fault_rows) // ROWS_SHOWN)
            page_key = f"fault-page:{len(fault_rows)}"
            page = st.number_input(f"Page of {page_count}", 1, page_count, page_count, key=page_key)
            first_row = ROWS_SHOWN * (int(page) - 1)
        for row_number in range(first_row, min(first_row + ROWS_SHOWN, len(fault_rows))):
            _draw_row(fault_rows, row_number, fabric)
        st.caption(
            "Left: the share of its speed or rate that remains, when it does not fail outright. "
            "Lasts 0 s: until the end of the run."
        )
    else:
        st.markdown("Nothing breaks in this scenario. Add a typical fault, or one of your own.")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        with st.popover("Typical faults", icon=":material/bolt:"):
            placement, _ = place_instances(draft, fabric)
            for name, typical_rows in typical_faults(draft, fabric, placement.instances).items():
                _draw_button(name, f"typical:{name}", [*fault_rows, *typical_rows], type="tertiary")
        new_fault = Fault(element="node 0", at_s=draft.warmup_s).model_dump()
        _draw_button("Add a fault", "fault-add", [*fault_rows, new_fault], icon=":material/add:")
        if fault_rows:
            _draw_button("Remove all", "fault-none", [], icon=":material/delete_sweep:",
                         type="tertiary")  # fmt: skip
    for remark in remarks(draft):  # faults that the run never sees
        st.caption(f":material/info: {sentence(remark)}")
    if fault_rows:
        chart = history.faults(draft.faults, draft.horizon_s, draft.warmup_s)
        plot(chart, "faults-over-time")
    recovery_paths = form_groups("deployment")["Faults"]
    if fault_rows or forms.last_search()[1] in map(session.field_key, recovery_paths):
        st.subheader("Recovery", anchor=False)
        forms.draw_group(recovery_paths)


def _draw_button(text: str, key: str, rows: list[Row], **look: Any) -> None:
    """Draw a button that makes `rows` the draft's faults. look: further arguments of the button."""
    set_faults = session.toast_refusals()(
        lambda: session.set_draft(with_overrides(session.draft(), {"faults": rows}))
    )
    st.button(text, key=key, on_click=set_faults, **look)


def _draw_row(rows: list[Row], number: int, fabric: Network) -> None:
    """Draw the fault in row `number`: widgets, a menu to copy or remove it, why it is refused."""
    row = rows[number]
    with st.container(border=True):
        *columns, menu_place = st.columns([*WIDTHS, 0.6], gap="small", vertical_alignment="bottom")
        fault_kind = KINDS[row["kind"]]
        kind_field, *other_fields = fault_kind.uses or ("factor",)
        field_names = ("at_s", "element", "kind", kind_field, "duration_s")
        other_fields += ["to"] if fault_kind.needs_to else []
        field_places = [*columns, *(st.columns(2) if other_fields else ())]
        for container, field in zip(field_places, [*field_names, *other_fields], strict=False):
            with container:
                _draw_widget(row, number, field, fabric)
        with menu_place.popover("", icon=":material/more_horiz:", help="More about this fault"):
            if "to" not in other_fields:
                _draw_widget(row, number, "to", fabric)
            rows_before, rows_after = rows[:number], rows[number + 1 :]
            for name, action, new_rows, icon in (
                ("Duplicate", "copy", [*rows_before, row, row, *rows_after], "content_copy"),
                ("Remove", "remove", [*rows_before, *rows_after], "delete"),
            ):
                _draw_button(name, f"fault-{action}:{number}", new_rows, icon=f":material/{icon}:")
        reason = st.session_state.get(widget_key(number, "refused")) or fault_error(fabric, row)
        if reason:
            forms.draw_refusal(reason)


def _draw_widget(row: Row, number: int, field: str, fabric: Network) -> None:
    """Draw the widget of one field of the fault in a row, and write its edits to the draft."""
    path = f"faults[].{field}"
    kinds_text = "\n".join(f"- **{kind.label}**: {kind.help}" for kind in KINDS.values())
    field_options: dict[str, dict[str, Any]] = {
        "kind": {"help": f"What happens to it.\n\n{kinds_text}"},
        "element": {"names": element_names(fabric), "accept_new_options": True},
        "to": {"placeholder": "the whole element"},
        "factor": {"disabled": "factor" not in KINDS[row["kind"]].uses},
    }
    arguments = {
        "names": options(path, session.facts()), "help": field_of(path).help,
        "key": widget_key(number, field), "on_change": _apply_edit, "args": (number, field, fabric),
    } | field_options.get(field, {})  # fmt: skip
    forms.draw_widget(field_of(path), row[field], **arguments)


def widget_key(number: int, field: str) -> str:
    """Key of the widget of a field of the fault in row `number`; changes with the draft."""
    return session.field_key(f"faults.{number}.{field}")


def _apply_edit(number: int, field: str, fabric: Network) -> None:
    """Callback: write the value of a fault's widget to the draft. number: row of the fault. If the
    value is refused, store the sentence on why, which is drawn below the row."""
    if session.is_gone(widget_key(number, field)):
        return
    new_value = st.session_state[widget_key(number, field)]
    fault_rows = [fault.model_dump() for fault in session.draft().faults]
    if number >= len(fault_rows) or new_value is None:
        return
    st.session_state.pop(widget_key(number, "refused"), None)
    new_row = {**fault_rows[number], field: new_value}
    reason = fault_error(fabric, new_row)
    is_incomplete = KINDS[new_row["kind"]].needs_to and not new_row["to"]
    if reason and field in ("element", "to", "kind") and not is_incomplete:
        old_value = fault_rows[number][field] or "the whole element"
        new_value = choice_label("faults[].kind", old_value) if field == "kind" else old_value
        reason = f"{reason.rstrip('.')}; until then it stays {new_value}"
    else:
        fault_rows[number] = new_row
        reason = session.propose({"faults": fault_rows}) or reason
    if reason:
        st.session_state[widget_key(number, "refused")] = reason


def typical_faults(
    s: Scenario, fabric: Network, instances: Iterable[Instance]
) -> dict[str, list[Row]]:
    """Typical faults by name, as rows of the draft's faults; all are possible on this machine."""
    at_s = float(f"{s.warmup_s + 0.3 * (s.horizon_s - s.warmup_s):.3g}")

    def fault(element: str, kind: str = "fail", to: str = "", **more: float) -> Row:
        """A fault at `at_s` as a row."""
        row = {"at_s": at_s, "element": element, "kind": kind, "to": to} | more
        return Fault.model_validate(row).model_dump()

    die_names = [fabric.vertices[vertex] for vertex in fabric.dies.tolist()]
    # A decode instance where there is one; where none can be placed, any die.
    last_instance = [Instance("machine", 0, tuple(range(len(die_names)))), *instances][-1]
    die_name = die_names[last_instance.die_of_rank[0]]
    node = int(fabric.node[fabric.dies[last_instance.die_of_rank[-1]]])
    switch_name, switch_text = f"L1 {node}.3", f"of an L1 switch of node {node}"
    cpu_faults = [fault(f"CPU {node}.{cpu}") for cpu in range(s.supernode.cpus_per_node)]
    faults_by_name = {
        f"A die of {last_instance.name}": [fault(die_name)],
        "A node": [fault(f"node {node}")],
        f"A straggler in {last_instance.name}, half speed": [fault(die_name, "slow")],
        "An L2 switch": [fault("L2 3.12")],
        "A rack": [fault("rack 0")],
        f"An optical module {switch_text}": [fault(switch_name, "module", "sub-plane 3")],
        f"A flapping link {switch_text}": [fault(switch_name, "flap", "L2 3.12", duration_s=10.0)],
        "Sub-plane 3": [fault("sub-plane 3")],
        "The RDMA plane at half its rate": [fault("RDMA plane", "derate")],
        f"The memory server of node {node}": cpu_faults,
    }
    return {
        name: rows for name, rows in faults_by_name.items()
        if not any(fault_error(fabric, row) for row in rows)
    }  # fmt: skip


def fault_error(fabric: Network, row: Row) -> str:
    """Sentence why a fault is impossible on this machine; '' if it is possible."""
    try:
        with_faults(fabric, [Fault.model_validate(row)])
    except (HardwareError, ValueError) as error:
        return str(error)
    return ""


@lru_cache(maxsize=4)
def element_names(fabric: Network) -> list[str]:
    """Names of elements to choose from: groups first, then chips by kind; NICs are left out."""
    return [name for name in fabric.names.shown_names() if not name.startswith(LEFT_OUT)]
