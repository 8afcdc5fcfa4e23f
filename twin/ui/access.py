"""What visitors may do by `TWIN_ACCESS`: unset, everything; `login` (OpenID Connect, `[auth]` of
secrets.toml), with their own and shared results; `read-only`, store, run and delete nothing."""

import json
import os
from typing import Any
from urllib.parse import urlsplit

import streamlit as st
from starlette.requests import Request
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME
from streamlit.web.server.starlette.starlette_websocket import _get_signed_cookie_with_chunks

from twin.ui.show import plain

VARIABLE = "TWIN_ACCESS"
LOGIN, READ_ONLY = "login", "read-only"
MODES = ("", LOGIN, READ_ONLY)


def mode() -> str:
    """Access mode of this server, by TWIN_ACCESS; raises ValueError for an unknown word."""
    mode_text = os.environ.get(VARIABLE, "")
    if mode_text not in MODES:
        raise ValueError(f"{VARIABLE} = {mode_text} is none of: unset, {LOGIN}, {READ_ONLY}")
    return mode_text


def visitor() -> str:
    """Name of this visitor in the store: issuer and subject of the login; '' without logins."""
    return _login_name(st.user.to_dict()) if mode() == LOGIN else ""


def visitor_of(request: Request) -> str:
    """The visitor of a request by its login cookie, '' without logins. Raises PermissionError."""
    try:
        if mode() != LOGIN:
            return ""
    except ValueError as error:
        raise PermissionError(str(error)) from None
    cookie_text = _get_signed_cookie_with_chunks(request.cookies, USER_COOKIE_NAME)
    user = json.loads(cookie_text) if cookie_text else {}
    is_same_host = urlsplit(str(user.get("origin", ""))).netloc == request.headers.get("host", "")
    if not (user.get("is_logged_in") and is_same_host and (name := _login_name(user))):
        login_hint = "log in on the pages of this server first"
        raise PermissionError(f"{login_hint}; the same cookie counts here")
    return name


def _login_name(user: dict[str, Any]) -> str:
    """Name of a login in the store: its issuer and subject; '' without both."""
    return f"{user.get('iss', '')} {user.get('sub', '')}".strip()


def require_login() -> None:
    """On a server with logins, stop the page with a log-in button for anyone not logged in."""
    try:
        if mode() != LOGIN:
            return
    except ValueError as error:
        st.error(plain(f"{error}."))
        st.stop()
    if not st.secrets.load_if_toml_exists() or "auth" not in st.secrets:
        st.error(f"{VARIABLE} = {LOGIN} needs an [auth] section in .streamlit/secrets.toml.")
        st.stop()
    if not st.user.is_logged_in or not visitor():
        st.title("Supernode twin", anchor=False)
        st.markdown("Runs and scenarios belong to who requested them: say who you are.")
        st.button("Log in", type="primary", icon=":material/login:", on_click=st.login)
        st.stop()
    with st.sidebar:
        name = st.user.to_dict().get("email") or visitor()
        st.caption(f"Logged in as {plain(str(name))}")
        st.button("Log out", icon=":material/logout:", on_click=st.logout)
