"""The editor of the draft's fabric: what the page, the picture and the tables change it by.

Every change ends in one call of `take`, which puts the new edits into the draft as one step that
can be undone, or says in one sentence why it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import Fabric, build_fabric
from twin.scenario import Edit, Supernode, read
from twin.ui import session
from twin.ui.fields import sentence
from twin.ui.pages.supernode.edit_words import parse
from twin.ui.pages.supernode.edits import change, restore
from twin.ui.pages.supernode.elements import EditError, expand

Elements = Iterable[str | tuple[str, str]]


def fabric_of(supernode: Supernode) -> Fabric:
    """The fabric with its edits; raises HardwareError when it cannot be wired."""
    return build_fabric(supernode, session.facts())


def as_built() -> Fabric:
    """The draft's fabric before anyone edited it."""
    return fabric_of(session.draft().supernode.model_copy(update={"edits": ()}))


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


def outcome() -> tuple[str, bool]:
    """What came of the last change, and whether it was refused; told once."""
    return st.session_state.pop("fabric-outcome", ("", False))


def say(text: str) -> None:
    """Keep a sentence for the next drawing of the page."""
    st.session_state["fabric-outcome"] = (text, False)


def refuse(text: str) -> bool:
    """Keep a sentence that says why a change cannot be; False, for whoever asked."""
    st.session_state["fabric-outcome"] = (sentence(text), True)
    st.session_state["fabric-refusals"] = refusals() + 1
    return False


def refusals() -> int:
    """How many changes were refused: a table that shows one of them is made anew."""
    return int(st.session_state.get("fabric-refusals", 0))


def take(edits: Sequence[Edit]) -> bool:
    """Make these the draft's edits; whether that could be."""
    supernode = session.draft().supernode
    if tuple(edits) == supernode.edits:
        return True
    try:
        fabric_of(supernode.model_copy(update={"edits": tuple(edits)}))
    except HardwareError as error:
        return refuse(str(error))
    refused = session.propose({"supernode.edits": [e.model_dump() for e in edits]})
    return refuse(refused) if refused else True


def set_elements(
    names: Elements, *, capacity: float | None = None, latency: float | None = None
) -> bool:
    """Set elements or links to a share of their capacity or latency as built."""
    before = session.draft().supernode.edits
    try:
        return take(change(before, names, capacity=capacity, latency=latency))
    except EditError as error:
        return refuse(str(error))


def restore_elements(names: Iterable[str]) -> bool:
    """Take back the edits of elements and of what is within them."""
    edits, wider = restore(session.draft().supernode.edits, names, as_built())
    if wider:
        whole = ", ".join(dict.fromkeys(e.element for e in wider))
        say(f"Still edited as part of {whole}: restore that to have all of it as built.")
    return take(edits)


def on_act(asked: Sequence[dict[str, Any]]) -> None:
    """Do what was asked for in the picture, each wish once and in the order it was made."""
    for wish in asked:
        if (number := int(wish.get("number", 0))) > acted():
            st.session_state["fabric-acted"] = number
            try:
                _act(wish)
            except ValueError as error:  # an element or a factor that cannot be
                refuse(str(error).partition("\n")[0])


def acted() -> int:
    """Number of the last wish of the picture that was taken."""
    return int(st.session_state.get("fabric-acted", 0))


def _act(wish: dict[str, Any]) -> None:
    if step := wish.get("step"):
        session.undo() if step < 0 else session.redo()
        return
    built = as_built()
    names = [name for typed in wish.get("names", ()) for name in expand(built, str(typed))]
    factors = {
        name: float(wish[name]) for name in ("capacity", "latency") if wish.get(name) is not None
    }
    if not (wish.get("link") and len(names) == 2):
        restore_elements(names) if wish.get("restore") else set_elements(names, **factors)
    elif wish.get("restore"):
        ends = {tuple(names), tuple(reversed(names))}
        take([e for e in session.draft().supernode.edits if (e.element, e.to) not in ends])
    else:
        set_elements([(names[0], names[1])], **factors)


def by_words() -> None:
    """Take the change that was typed; where it is not understood, say what would be."""
    typed = str(st.session_state.get("fabric-words", "")).strip()
    if not typed:
        return
    try:
        built = as_built()
        wish = parse(typed, built)
        for pair in wish.names:
            if isinstance(pair, tuple) and all(p in built for p in pair):
                _check_link(built, *pair)
    except (EditError, HardwareError) as error:
        refuse(str(error))
        return
    if wish.restored:
        done = restore_elements(str(n) for n in wish.names)
    else:
        done = set_elements(wish.names, capacity=wish.capacity, latency=wish.latency)
    if done:
        st.session_state["fabric-words"] = ""
        st.session_state.setdefault("fabric-outcome", (f"{wish.told()}.", False))


def _check_link(built: Fabric, a: str, b: str) -> None:
    if not built.has_edge(a, b):
        raise EditError(f"no link joins {a} and {b}")


def take_back(path: str) -> None:
    """Set one parameter of the machine back to the preset's value."""
    session.propose({path: read(session.preset(), path)})
    st.session_state["generation"] += 1


def take_back_edits(edits: Sequence[Edit]) -> None:
    """Set edits back to what the preset has for the same elements."""
    keys = {(e.element, e.to) for e in edits}
    before = {(e.element, e.to): e for e in session.preset().supernode.edits}
    kept = [e for e in session.draft().supernode.edits if (e.element, e.to) not in keys]
    take([*kept, *(before[k] for k in keys if k in before)])


def take_back_all() -> None:
    """The preset's machine again, as one step."""
    replace_machine(session.preset().supernode.model_dump())


def replace_machine(values: dict[str, Any]) -> str:
    """Take a whole machine into the draft; '' or the sentence why it cannot be."""
    refused = session.propose({f"supernode.{k}": v for k, v in values.items()})
    if refused:
        refuse(refused)
    st.session_state["generation"] += 1
    return refused
