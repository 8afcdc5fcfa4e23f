"""Imported files kept here, to choose from and to delete: called by name and size.

What somebody uses stays, and says so before it is asked; the store has the last word, because
another visitor may have begun to use it, or deleted it, a moment ago.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from twin.lab.store import StoreError, UnknownId
from twin.lab.store.values import Values
from twin.ui import session
from twin.ui.fields import sentence
from twin.ui.show import plain

OWN = "What the draft uses stays: choose another first."


def distinct(names: Mapping[str, str]) -> dict[str, str]:
    """What each digest is called, alike ones with the beginning of their digest.

    A choice is sent by what it is called: of two alike, the last would be taken.

    >>> distinct({"0ab1": "a.csv", "77c2": "b.csv", "0ef3": "a.csv"})
    {'0ab1': 'a.csv · 0ab1', '77c2': 'b.csv', '0ef3': 'a.csv · 0ef3'}
    """
    called = list(names.values())
    return {d: f"{n} · {d[:8]}" if called.count(n) > 1 else n for d, n in names.items()}


def forget(one: str, many: str, kept: Mapping[str, str], own: str, part: Values[Any]) -> None:
    """Choose one of what is kept (digest: what it is called), see who uses it, and confirm.

    `own` is the digest that the draft uses: that one is not taken from under its feet.
    """
    key = f"forget-{many}"
    with st.popover(f"Delete kept {many}", icon=":material/delete:"):
        digest = st.selectbox(
            f"{one.capitalize()} to delete",
            list(kept),
            index=None,
            format_func=lambda d: kept.get(d, d),
            placeholder=f"Choose the {one}",
            key=key,
        )
        used = _used(digest, own, part) if digest else ""
        if digest and not used:
            st.markdown(f"**{plain(kept[digest])}** will be gone for good.")
        elif used:
            st.markdown(f":material/lock: {used}")
        st.button(
            "Delete for good", type="primary", disabled=not digest or bool(used),
            key=f"{key}-yes", on_click=_forget, args=(key, one, own, part),
        )  # fmt: skip


def _used(digest: str, own: str, part: Values[Any]) -> str:
    return OWN if digest == own else sentence(used) if (used := part.used(digest)) else ""


def _forget(key: str, one: str, own: str, part: Values[Any]) -> None:
    # What is chosen now, not when the button was drawn: a click may overtake the page.
    if session.gone(key) or not (digest := st.session_state[key]):
        return
    if digest == own:
        st.toast(OWN, icon=":material/lock:", duration="long")
        return
    try:
        part.delete(digest)
    except UnknownId:
        st.toast(f"{one.capitalize()} already deleted.", icon=":material/delete:")
    except StoreError as error:
        st.toast(sentence(str(error)), icon=":material/lock:", duration="long")
    else:
        st.toast(f"{one.capitalize()} deleted.", icon=":material/delete:")
