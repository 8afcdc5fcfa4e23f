"""Who visits, and what they may do, as `TWIN_ACCESS` says: unset, everybody everything; `login`,
with OpenID Connect (`[auth]` of secrets.toml) each sees what they hold, presets and what was
shared; `read-only`, nothing can be kept, run or deleted."""

import os

import streamlit as st

from twin.ui.show import plain

VARIABLE = "TWIN_ACCESS"
LOGIN, READ_ONLY = "login", "read-only"
MODES = ("", LOGIN, READ_ONLY)


def mode() -> str:
    """How this server is shared; raises ValueError for a word that means nothing."""
    asked = os.environ.get(VARIABLE, "")
    if asked not in MODES:
        raise ValueError(f"{VARIABLE} = {asked} is none of: unset, {LOGIN}, {READ_ONLY}")
    return asked


def visitor() -> str:
    """What the store calls this visitor: who issued the login and whom it names; '' for none."""
    if mode() != LOGIN:
        return ""
    user = st.user.to_dict()
    return f"{user.get('iss', '')} {user.get('sub', '')}".strip()


def gate() -> None:
    """Where visitors log in, stop whoever has not, with a button that leads to it."""
    if mode() != LOGIN:
        return
    if not st.secrets.load_if_toml_exists() or "auth" not in st.secrets:
        st.error(f"{VARIABLE} = {LOGIN} needs an [auth] section in .streamlit/secrets.toml.")
        st.stop()
    if not st.user.is_logged_in or not visitor():
        st.title("Supernode twin", anchor=False)
        st.markdown("Runs and scenarios belong to who asked for them: say who you are.")
        st.button("Log in", type="primary", icon=":material/login:", on_click=st.login)
        st.stop()
    with st.sidebar:
        st.caption(f"Logged in as {_name()}")
        st.button("Log out", icon=":material/logout:", on_click=st.logout)


def _name() -> str:
    return plain(str(st.user.to_dict().get("email") or visitor()))
