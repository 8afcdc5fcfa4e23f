"""The editor of the draft's fabric: what the page, the picture and the tables change it by.

Every change ends in one call of `take`, which puts the new edits into the draft as one step that
can be undone, or says in one sentence why it cannot. What a change does to a link is the
hardware's to know, how it is said `fabric_edit_words`'.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import Fabric, build_fabric
from twin.scenario import Edit, Scenario, Supernode
from twin.ui import session
from twin.ui.fields import sentence
from twin.ui.pages.supernode.edit_words import parse
from twin.ui.pages.supernode.edits import EditError, Inventory, change, restore

Elements = Iterable[str | tuple[str, str]]


def fabric_of(supernode: Supernode) -> Fabric:
    """The fabric with its edits; raises HardwareError when it cannot be wired."""
    return build_fabric(supernode, session.facts())


def as_built(supernode: Supernode) -> Supernode:
    """The same machine before anyone edited it."""
    return supernode.model_copy(update={"edits": ()}) if supernode.edits else supernode


@lru_cache(maxsize=8)
def inventory(supernode: Supernode) -> Inventory:
    """Every element there is; an edit adds and removes none."""
    return Inventory.of(fabric_of(as_built(supernode)))


def shown_fabric() -> tuple[Fabric | None, str]:
    """The draft's fabric; where it cannot be wired, the last that could, and why."""
    state = st.session_state
    try:
        fabric = fabric_of(session.draft().supernode)
    except HardwareError as error:
        last = state.get("fabric-shown")
        return (fabric_of(last) if last is not None else None), sentence(str(error))
    state["fabric-shown"] = session.draft().supernode
    return fabric, ""


def said() -> tuple[str, bool]:
    """What came of the last change, and whether it was refused; told once."""
    return st.session_state.pop("fabric-said", ("", False))


def say(text: str, refused: bool = False) -> None:
    """Keep a sentence for the next drawing of the page."""
    st.session_state["fabric-said"] = (text, refused)


def version() -> str:
    """Changes whenever edits were made by other means than the table that asks."""
    return f"{session.field_key('edits')}:{st.session_state.get('fabric-version', 0)}"


def renew_tables() -> None:
    """Have every table of elements made anew, with what the draft holds."""
    st.session_state["fabric-version"] = st.session_state.get("fabric-version", 0) + 1


def take(edits: Sequence[Edit], *, from_table: bool = False) -> bool:
    """Make these the draft's edits; whether that could be."""
    supernode = session.draft().supernode
    if tuple(edits) == supernode.edits:
        return True
    try:
        fabric_of(supernode.model_copy(update={"edits": tuple(edits)}))
    except HardwareError as error:
        say(sentence(str(error)), refused=True)
        return False
    refused = session.propose({"supernode.edits": [e.model_dump() for e in edits]})
    if refused:
        say(sentence(refused), refused=True)
        return False
    if not from_table:
        renew_tables()
    return True


def set_elements(
    names: Elements,
    *,
    capacity: float | None = None,
    latency: float | None = None,
    from_table: bool = False,
) -> bool:
    """Set elements or links to a share of their capacity or latency as built."""
    supernode = session.draft().supernode
    try:
        return take(
            change(supernode.edits, names, capacity=capacity, latency=latency),
            from_table=from_table,
        )
    except EditError as error:
        say(sentence(str(error)), refused=True)
        return False


def restore_elements(names: Iterable[str]) -> bool:
    """Take back the edits of elements and of what is within them."""
    supernode = session.draft().supernode
    edits, wider = restore(supernode.edits, names, fabric_of(as_built(supernode)))
    if wider:
        whole = ", ".join(dict.fromkeys(e.element for e in wider))
        say(f"Still edited as part of {whole}: restore that to have all of it as built.")
    return take(edits)


def on_act(asked: Sequence[dict[str, Any]]) -> None:
    """Do what was asked for in the picture, each wish once and in the order it was made."""
    state = st.session_state
    for wish in asked:
        number = int(wish.get("number", 0))
        if number <= state.get("fabric-acted", 0):
            continue
        state["fabric-acted"] = number
        try:
            _do(wish)
        except ValueError as error:  # an element or a factor that cannot be
            say(sentence(str(error).partition("\n")[0]), refused=True)


def acted() -> int:
    """Number of the last wish of the picture that was taken."""
    return int(st.session_state.get("fabric-acted", 0))


def _do(wish: dict[str, Any]) -> None:
    if step := wish.get("step"):
        session.undo() if step < 0 else session.redo()
        return
    names = chips([str(name) for name in wish.get("names", ())])
    capacity, latency = _factor(wish, "capacity"), _factor(wish, "latency")
    if wish.get("link") and len(names) == 2:
        if wish.get("restore"):
            ends = {tuple(names), tuple(reversed(names))}
            take([e for e in session.draft().supernode.edits if (e.element, e.to) not in ends])
        else:
            set_elements([(names[0], names[1])], capacity=capacity, latency=latency)
    elif wish.get("restore"):
        restore_elements(names)
    else:
        set_elements(names, capacity=capacity, latency=latency)


def _factor(wish: dict[str, Any], name: str) -> float | None:
    return None if wish.get(name) is None else float(wish[name])


def chips(names: Iterable[str]) -> list[str]:
    """Elements that names in the picture stand for: 'NICs 3' is a cell of the matrix."""
    known = inventory(as_built(session.draft().supernode))
    return [chip for name in names for chip in known.expand(name)]


def by_words() -> None:
    """Take the change that was typed; where it is not understood, say what would be."""
    typed = str(st.session_state.get("fabric-words", "")).strip()
    if not typed:
        return
    supernode = session.draft().supernode
    try:
        wish = parse(typed, inventory(as_built(supernode)))
        _check_links(wish.names)
    except (EditError, HardwareError) as error:
        say(sentence(str(error)), refused=True)
        return
    if wish.restored:
        done = restore_elements(str(n) for n in wish.names)
    else:
        done = set_elements(wish.names, capacity=wish.capacity, latency=wish.latency)
    if done:
        st.session_state["fabric-words"] = ""
        if not said_already():
            say(f"{wish.said()}.")


def said_already() -> bool:
    """Whether a sentence waits to be told."""
    return bool(st.session_state.get("fabric-said"))


def _check_links(names: Elements) -> None:
    built = fabric_of(as_built(session.draft().supernode))
    for pair in names:
        if isinstance(pair, tuple) and all(p in built for p in pair) and not built.has_edge(*pair):
            raise EditError(f"no link joins {pair[0]} and {pair[1]}")


def differences(draft: Scenario, preset: Scenario) -> dict[str, tuple[Any, Any]]:
    """Parameters of the machine that differ from the preset, by dotted path."""
    old, new = preset.supernode.model_dump(), draft.supernode.model_dump()
    return {
        f"supernode.{name}": (old[name], new[name])
        for name in old
        if name != "edits" and old[name] != new[name]
    }


def take_back(path: str) -> None:
    """Set one parameter of the machine back to the preset's value."""
    session.propose({path: session.read(session.preset(), path)})
    st.session_state["generation"] += 1


def take_back_edits(gone: Sequence[Edit]) -> None:
    """Set edits back to what the preset has for the same elements."""
    keys = {(e.element, e.to) for e in gone}
    before = {(e.element, e.to): e for e in session.preset().supernode.edits}
    kept = [e for e in session.draft().supernode.edits if (e.element, e.to) not in keys]
    take([*kept, *(before[k] for k in keys if k in before)])


def take_back_all() -> None:
    """The preset's machine again, as one step."""
    wanted = session.preset().supernode.model_dump()
    replace_machine(wanted)


def replace_machine(values: dict[str, Any]) -> str:
    """Take a whole machine into the draft; '' or the sentence why it cannot be."""
    refused = session.propose({f"supernode.{k}": v for k, v in values.items()})
    if refused:
        say(sentence(refused), refused=True)
    st.session_state["generation"] += 1
    return refused
