"""The form of faults, typical ones first, and recovery; an unknown element is refused."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import Fabric, build_fabric
from twin.hardware.faults import broken
from twin.hardware.network import network
from twin.hardware.placement import Instance
from twin.scenario import KINDS, Fault, Scenario, form_groups, remarks, with_overrides
from twin.ui import forms, session
from twin.ui.charts import faults as charts_faults
from twin.ui.fields import choice_label, declared, options, sentence
from twin.ui.formulas import seated
from twin.ui.show import plot

Row = dict[str, Any]  # the fields of a `twin.scenario.Fault`

ROWS_SHOWN = 8  # at a time
WIDTHS = (1.1, 1.9, 1.5, 0.9, 1.1)  # when, what, kind, a field of the kind, how long


def form() -> None:
    """The whole group: rows, ways to add one, a picture in time, and recovery."""
    draft = session.draft()
    try:
        fabric = build_fabric(draft.supernode, session.facts())
    except HardwareError as error:
        st.error(sentence(str(error)), icon=":material/device_hub:")
        return
    rows = [fault.model_dump() for fault in draft.faults]
    st.caption("What fails while the machine serves, and when; and how the serving stack recovers.")
    if rows:
        _rows(rows, fabric)
        st.caption(
            "Left: the share of its speed or rate that remains, when it does not fail outright. "
            "Lasts 0 s: until the end of the run."
        )
    else:
        st.markdown("Nothing breaks in this scenario. Add a typical fault, or one of your own.")
    _add(rows, draft, fabric)
    for remark in remarks(draft):  # faults that the run never sees
        st.caption(f":material/info: {sentence(remark)}")
    if rows:
        picture = charts_faults.faults(draft.faults, draft.horizon_s, draft.warmup_s)
        plot(picture, "faults-over-time")
    recovery = form_groups("deployment")["Faults"]
    if rows or forms.sought()[1] in map(session.field_key, recovery):
        st.subheader("Recovery", anchor=False)
        forms.group(recovery)


def _add(rows: list[Row], draft: Scenario, fabric: Fabric) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        with st.popover("Typical faults", icon=":material/bolt:"):
            instances, _ = seated(draft, fabric)
            for name, added in typical(draft, fabric, instances.instances).items():
                _button(name, f"typical:{name}", [*rows, *added], type="tertiary")
        new = Fault(element="node 0", at_s=draft.warmup_s).model_dump()
        _button("Add a fault", "fault-add", [*rows, new], icon=":material/add:")
        if rows:
            icon = ":material/delete_sweep:"
            _button("Remove all", "fault-none", [], icon=icon, type="tertiary")


def _button(text: str, key: str, rows: list[Row], **look: Any) -> None:
    """A button that makes `rows` the draft's faults."""
    st.button(text, key=key, on_click=_keep, args=(rows,), **look)


def _rows(rows: list[Row], fabric: Fabric) -> None:
    first = 0
    if len(rows) > ROWS_SHOWN:
        pages = -(-len(rows) // ROWS_SHOWN)
        page = st.number_input(f"Page of {pages}", 1, pages, pages, key=f"fault-page:{len(rows)}")
        first = ROWS_SHOWN * (int(page) - 1)
    for number in range(first, min(first + ROWS_SHOWN, len(rows))):
        _row(rows, number, fabric)


def _row(rows: list[Row], number: int, fabric: Fabric) -> None:
    row = rows[number]
    with st.container(border=True):
        *columns, more = st.columns([*WIDTHS, 0.6], gap="small", vertical_alignment="bottom")
        kind = KINDS[row["kind"]]
        own_field, *others = kind.uses or ("factor",)
        shown_fields = ("at_s", "element", "kind", own_field, "duration_s")
        others += ["to"] if kind.needs_to else []
        below = st.columns(2)[: len(others)] if others else []
        for column, field in zip([*columns, *below], [*shown_fields, *others], strict=False):
            with column:
                _cell(row, number, field, fabric)
        with more.popover("", icon=":material/more_horiz:", help="More about this fault"):
            if "to" not in others:
                _cell(row, number, "to", fabric)
            before, after = rows[:number], rows[number + 1 :]
            for name, act, changed, icon in (
                ("Duplicate", "copy", [*before, row, row, *after], "content_copy"),
                ("Remove", "remove", [*before, *after], "delete"),
            ):
                _button(name, f"fault-{act}:{number}", changed, icon=f":material/{icon}:")
        refused = st.session_state.get(key(number, "refused")) or wrong(fabric, row)
        if refused:
            forms.problem(refused)


def _cell(row: Row, number: int, field: str, fabric: Fabric) -> None:
    path = f"faults[].{field}"
    special: dict[str, Any] = {"help": declared(path).help}
    if field == "kind":
        kinds = "\n".join(f"- **{kind.label}**: {kind.help}" for kind in KINDS.values())
        special["help"] = f"What happens to it.\n\n{kinds}"
    if field == "element":
        special |= {"names": offered_names(fabric), "accept_new_options": True}
    elif field == "to":
        special |= {"placeholder": "the whole element"}
    elif field == "factor":
        special |= {"disabled": "factor" not in KINDS[row["kind"]].uses}
    special |= {"key": key(number, field), "on_change": _take, "args": (number, field, fabric)}
    names = {"names": options(path, session.facts())}
    forms.widget(declared(path), row[field], **(names | special))


def key(number: int, field: str) -> str:
    """Key of a row's widget; changes when the draft is changed elsewhere."""
    return session.field_key(f"faults.{number}.{field}")


def _take(number: int, field: str, fabric: Fabric) -> None:
    """Apply a widget of a row to the draft, or show a sentence below the row."""
    if session.gone(key(number, field)):
        return
    value = st.session_state[key(number, field)]
    rows = [fault.model_dump() for fault in session.draft().faults]
    if number >= len(rows) or value is None:
        return
    st.session_state.pop(key(number, "refused"), None)
    wished = {**rows[number], field: value}
    refused = wrong(fabric, wished)
    incomplete = KINDS[wished["kind"]].needs_to and not wished["to"]
    if refused and field in ("element", "to", "kind") and not incomplete:
        element = rows[number][field] or "the whole element"
        value = choice_label("faults[].kind", element) if field == "kind" else element
        refused = f"{refused.rstrip('.')}; until then it stays {value}"
    else:
        rows[number] = wished
        refused = session.propose({"faults": rows}) or refused
    if refused:
        st.session_state[key(number, "refused")] = refused


def _keep(rows: list[Row]) -> None:
    """Set the draft's list of faults, as one undo step."""
    with session.refusals_toasted():
        session.set_draft(with_overrides(session.draft(), {"faults": rows}))


LEFT_OUT = ("NIC", "Qingtian")  # too many to choose from; their names can be typed


def typical(s: Scenario, fabric: Fabric, instances: Iterable[Instance]) -> dict[str, list[Row]]:
    """Typical faults by name, each within this machine."""
    at_s = float(f"{s.warmup_s + 0.3 * (s.horizon_s - s.warmup_s):.3g}")

    def fault(element: str, kind: str = "fail", to: str = "", **more: float) -> Row:
        row = {"at_s": at_s, "element": element, "kind": kind, "to": to} | more
        return Fault.model_validate(row).model_dump()

    dies: tuple[str, ...] = fabric.graph["dies"]
    # A decode instance where there is one; where none can be placed, any die.
    last = [Instance("machine", 0, tuple(range(len(dies)))), *instances][-1]
    die = dies[last.die_of_rank[0]]
    node = int(fabric.nodes[dies[last.die_of_rank[-1]]]["node"])
    switch, of_switch = f"L1 {node}.3", f"of an L1 switch of node {node}"
    cpus = [fault(f"CPU {node}.{cpu}") for cpu in range(s.supernode.cpus_per_node)]
    offered = {
        f"A die of {last.name}": [fault(die)],
        "A node": [fault(f"node {node}")],
        f"A straggler in {last.name}, half speed": [fault(die, "slow")],
        "An L2 switch": [fault("L2 3.12")],
        "A rack": [fault("rack 0")],
        f"An optical module {of_switch}": [fault(switch, "module", "sub-plane 3")],
        f"A flapping link {of_switch}": [fault(switch, "flap", "L2 3.12", duration_s=10.0)],
        "Sub-plane 3": [fault("sub-plane 3")],
        "The RDMA plane at half its rate": [fault("RDMA plane", "derate")],
        f"The memory server of node {node}": cpus,
    }
    return {name: rows for name, rows in offered.items() if not any(wrong(fabric, r) for r in rows)}


def wrong(fabric: Fabric, row: Row) -> str:
    """Sentence why a fault is impossible on this machine; '' if it is possible."""
    try:
        broken(fabric, [Fault.model_validate(row)])
    except (HardwareError, ValueError) as error:
        return str(error)
    return ""


@lru_cache(maxsize=4)
def offered_names(fabric: Fabric) -> list[str]:
    """Elements to choose from: groups first, then chips by kind."""
    return [name for name in network(fabric).names.shown() if not name.startswith(LEFT_OUT)]
