"""Changes of the draft's fabric by picture and table; each is a call of `apply`, an undo step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import streamlit as st
from pydantic import ValidationError

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.kinds import spelling
from twin.hardware.network import Network
from twin.hardware.placement import Instance, place
from twin.scenario import Edit, Supernode, value_of, with_overrides
from twin.scenario.words import problem_sentence
from twin.ui import session
from twin.ui.fields import sentence

Element = str | tuple[str, str]  # a name, or the two ends of a link
MOST = 2000  # edits a scenario may hold
OUTCOME = "fabric-outcome"  # session state: sentence on the last change, whether it was refused


def fabric_of(supernode: Supernode) -> Network:
    """The fabric with its edits; raises HardwareError when it cannot be wired."""
    return build_fabric(supernode, session.facts())


def shown_fabric() -> tuple[Network | None, str]:
    """(the draft's fabric, ''); if it cannot be wired, (the last valid one or None, why)."""
    supernode, state = session.draft().supernode, st.session_state
    try:
        fabric = fabric_of(supernode)
    except HardwareError as error:
        last_supernode = state.get("fabric-shown")
        return (fabric_of(last_supernode) if last_supernode else None), sentence(str(error))
    state["fabric-shown"] = supernode
    return fabric, ""


def store_refusal(text: str) -> bool:
    """Store the sentence on why a change is impossible, which the page draws; returns False."""
    st.session_state[OUTCOME] = (sentence(text), True)
    return False


def apply_edits(edits: Sequence[Edit]) -> bool:
    """Make `edits` the draft's edits of the fabric; returns whether they are valid."""
    supernode = session.draft().supernode
    if tuple(edits) == supernode.edits:
        return True
    try:
        fabric_of(supernode.model_copy(update={"edits": tuple(edits)}))
    except HardwareError as error:
        return store_refusal(str(error))
    return set_fields({"supernode.edits": [edit.model_dump() for edit in edits]})


def set_fields(fields: dict[str, Any]) -> bool:
    """Set fields of the draft, by dotted path; returns whether they are valid."""
    reason = session.propose(fields)
    return store_refusal(reason) if reason else True


def set_factors(factors_by_elements: Iterable[tuple[Iterable[Element], dict[str, float]]]) -> bool:
    """Set factors of capacity or latency on elements or links; returns whether they were set, all
    or none. factors_by_elements: pairs of (elements, {"capacity" or "latency": factor})."""
    edits = session.draft().supernode.edits
    try:
        for elements, factors in factors_by_elements:
            edits = changed_edits(edits, elements, **factors)
        return apply_edits(edits)
    except ValidationError as error:  # a factor that cannot be
        return store_refusal(problem_sentence(error, "supernode.edits[]."))
    except ValueError as error:  # too many
        return store_refusal(str(error))


def restore_elements(names: Sequence[Element]) -> bool:
    """Remove the edits of elements (names) and of their parts, and of links (pairs of names).
    Returns whether the result is valid."""
    link_ends = [{name, (name[1], name[0])} for name in names if not isinstance(name, str)]
    edits = session.draft().supernode.edits
    edits = tuple(e for e in edits if not any((e.element, e.to) in link for link in link_ends))
    fabric_as_built = fabric_of(session.draft().supernode.model_copy(update={"edits": ()}))
    elements = [name for name in names if isinstance(name, str)]
    edits_left, wider_edits = edits_without(edits, elements, fabric_as_built)
    if wider_edits:
        wider_names = ", ".join(dict.fromkeys(edit.element for edit in wider_edits))
        hint = f"Still edited as part of {wider_names}: restore that to have all of it as built."
        st.session_state[OUTCOME] = (hint, False)
    return apply_edits(edits_left)


def seat_by_hand(instance: str, element: str) -> bool:
    """Put an instance ("decode 0") on the NPUs of an element and those that follow. Instances on
    these NPUs are placed anew, all others keep their places. Returns whether this is possible."""
    role, _, index = instance.partition(" ")
    draft = session.draft()
    fabric = fabric_of(draft.supernode)
    new_row = {"role": role, "index": int(index), "element": element}

    def seat_fields(seat_rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Fields of the scenario, by path, that seat instances by these rows."""
        return {"deployment.placement": "by_hand", "deployment.seats": seat_rows}

    try:
        trial_placement = place(with_overrides(draft, seat_fields([new_row])), fabric)
        dies = {
            die for i in trial_placement.instances if i.name == instance for die in i.die_of_rank
        }
        seat_rows = [
            seat_row for placed in place(draft, fabric).instances
            if placed.name != instance and dies.isdisjoint(placed.die_of_rank)
            for seat_row in _seat_rows(placed, fabric)
        ]  # fmt: skip
        seat_rows.append(new_row)
        place(with_overrides(draft, seat_fields(seat_rows)), fabric)
    except ValueError as error:  # an element that has no NPU, or more rows than there may be
        return store_refusal(str(error))
    return set_fields(seat_fields(seat_rows))


def _seat_rows(instance: Instance, net: Network) -> Iterator[dict[str, Any]]:
    """Yield the rows of `deployment.seats` that describe where an instance is. If its NPUs form
    several ranges, the last range needs one row, the others one row per NPU."""
    last_range_npu = net.npu[instance.spans()[-1][0]]
    for npu in sorted({*net.npu[[*instance.die_of_rank]].tolist()}):
        if npu <= last_range_npu:
            attrs = net.vertex_data[net.first_dies[npu]]
            element = f"NPU {attrs['node']}.{attrs['npu']}"
            yield {"role": instance.role, "index": instance.index, "element": element}


def apply_actions(actions: Sequence[dict[str, Any]]) -> None:
    """Carry out the picture's actions in order, without those whose number was handled before."""
    for action in actions:
        if (action_number := int(action.get("number", 0))) > last_action():
            st.session_state["fabric-acted"] = action_number
            try:
                _apply_action(action)
            except ValueError as error:  # an element that there is not
                store_refusal(str(error))


def last_action() -> int:
    """Number of the picture's last action that was handled."""
    return int(st.session_state.get("fabric-acted", 0))


def _apply_action(action: dict[str, Any]) -> None:
    """Carry out one action of the picture on the draft. action: `step` (undo, redo), or `names` of
    elements with `move` (an instance to them), `restore`, or new `capacity` and `latency`."""
    if step := action.get("step"):
        session.undo_or_redo(-1 if step < 0 else 1)
        return
    names = [str(name) for name in action.get("names", ())]
    if action.get("move"):
        seat_by_hand(str(action["move"]), names[0])
        return
    is_link = action.get("link") and len(names) == 2
    elements: list[Element] = [(names[0], names[1])] if is_link else [*names]
    if action.get("restore"):
        restore_elements(elements)
    else:
        factor_names = [name for name in ("capacity", "latency") if action.get(name) is not None]
        set_factors([(elements, {name: float(action[name]) for name in factor_names})])


def reset_field(path: str) -> None:
    """Set one field of the draft back to the preset's value."""
    value = value_of(session.preset(), path)
    new_value = [row.model_dump() for row in value] if isinstance(value, tuple) else value
    session.propose({path: new_value})
    st.session_state["generation"] += 1


def reset_edits(edits: Sequence[Edit]) -> None:
    """Replace edits of the draft by the preset's edits of the same elements, if it has any."""
    edited_ends = {(edit.element, edit.to) for edit in edits}
    preset_edits = {(edit.element, edit.to): edit for edit in session.preset().supernode.edits}
    draft_edits = session.draft().supernode.edits
    other_edits = (edit for edit in draft_edits if (edit.element, edit.to) not in edited_ends)
    apply_edits(
        [*other_edits, *(preset_edits[ends] for ends in edited_ends if ends in preset_edits)]
    )


def changed_edits(
    edits: Sequence[Edit], names: Iterable[Element], *, capacity: float | None = None,
    latency: float | None = None,
) -> tuple[Edit, ...]:  # fmt: skip
    """Return `edits` with new factors of capacity or latency (None: unchanged) on the elements
    `names`, without edits that have no effect. Raises ValueError for too many edits."""
    edit_of = {(spelling(edit.element), spelling(edit.to)): edit for edit in edits}
    for name in names:
        element, target = (name, "") if isinstance(name, str) else name
        ends = spelling(element), spelling(target)
        reverse = ends[::-1]
        old_edit = edit_of.get(ends) or edit_of.get(reverse) or Edit(element=element, to=target)
        if target:
            edit_of.pop(reverse, None)
        edit_fields = {"element": element, "to": target,
                  "capacity_factor": capacity, "latency_factor": latency}  # fmt: skip
        new_fields = {name: value for name, value in edit_fields.items() if value is not None}
        edit_of[ends] = Edit(**old_edit.model_dump() | new_fields)
    remaining_edits = tuple(e for e in edit_of.values() if e != Edit(element=e.element, to=e.to))
    if len(remaining_edits) > MOST:
        raise ValueError(
            f"{len(remaining_edits):,} edits are more than the {MOST:,} a scenario may hold"
        )
    return remaining_edits


def edits_without(
    edits: Sequence[Edit], names: Iterable[str], fabric: Network
) -> tuple[tuple[Edit, ...], list[Edit]]:
    """(remaining edits, wider edits) after the edits of the elements `names` and of their parts are
    removed. Wider edits are remaining edits of elements that contain a named element."""
    vertices_of = fabric.names.find
    vertices = {vertex for name in names for vertex in vertices_of(name)}
    edits_left, wider_edits = [], []
    for edit in edits:
        vertex_sets = [set(vertices_of(end)) for end in (edit.element, edit.to) if end]
        if any(vertex_set <= vertices for vertex_set in vertex_sets):
            continue
        edits_left.append(edit)
        if not edit.to and vertex_sets[0] & vertices:
            wider_edits.append(edit)
    return tuple(edits_left), wider_edits
