"""What visitors may do by `TWIN_ACCESS`: unset, everything; `login` (OpenID Connect, `[auth]` of
secrets.toml), with their own and shared results; `read-only`, store, run and delete nothing.
Headers of the server's answers: browsers load nothing from elsewhere (see `show.plain`)."""

import json
import logging
import os
import re
import secrets
from typing import Any
from urllib.parse import quote, urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME
from streamlit.web.server.starlette.starlette_websocket import _get_signed_cookie_with_chunks

from twin.ui.show import plain

VARIABLE = "TWIN_ACCESS"
LOGIN, READ_ONLY = "login", "read-only"
MODES = ("", LOGIN, READ_ONLY)
log = logging.getLogger(__name__)

METRICS = "/_stcore/metrics"
PAGE, PORT = re.compile(r"https?://(\[[^]]*\]|[^][/:?#@]+)(?::\d+)?(?:/|$)"), re.compile(r":\d+$")
LOGOUT = "/auth/logout"  # Streamlit's: ends a login, whoever made the browser ask for it
METRICS_WANTED = "TWIN_METRICS"  # set: the server's counters may be read by who reaches it

# Streamlit's own page holds a script and styles inline; components are modules made in the page
# (blob:); plotly's maps and 3-D scenes build functions, of which the twin draws none.
POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "worker-src": "'self' blob:",
    "frame-src": "'self'",
    "frame-ancestors": "'self'",
    "form-action": "'self'",
    "base-uri": "'self'",
    "object-src": "'none'",
}
HEADERS = {
    "content-security-policy": "; ".join(f"{part} {origins}" for part, origins in POLICY.items()),
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def mode() -> str:
    """Access mode of this server by TWIN_ACCESS: LOGIN, READ_ONLY or '' (open to all). Raises
    ValueError for an unknown word."""
    mode_text = os.environ.get(VARIABLE, "")
    if mode_text not in MODES:
        raise ValueError(f"{VARIABLE} = {mode_text} is none of: unset, {LOGIN}, {READ_ONLY}")
    return mode_text


def visitor() -> str:
    """Name of this visitor in the store: issuer and subject of the login; '' without logins."""
    return _login_name(st.user.to_dict()) if mode() == LOGIN else ""


def visitor_of(request: Request) -> str:
    """Name of the visitor who sent a request, by its login cookie; '' on a server without logins.
    Raises PermissionError without a valid login, or if the access mode is unknown."""
    try:
        if mode() != LOGIN:
            return ""
    except ValueError as error:
        raise PermissionError(str(error)) from None
    cookie_text = _get_signed_cookie_with_chunks(request.cookies, USER_COOKIE_NAME)
    login = json.loads(cookie_text) if cookie_text else {}
    is_same_host = urlsplit(str(login.get("origin", ""))).netloc == request.headers.get("host", "")
    if not (login.get("is_logged_in") and is_same_host and (name := _login_name(login))):
        login_hint = "log in on the pages of this server first"
        raise PermissionError(f"{login_hint}; the same cookie counts here")
    return name


def _login_name(user: dict[str, Any]) -> str:
    """Name in the store of a logged-in user, from the claims of the login: issuer and subject."""
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
        user_name = st.user.to_dict().get("email") or visitor()
        st.caption(f"Logged in as {plain(str(user_name))}")
        st.button("Log out", icon=":material/logout:", on_click=st.logout)


def report_error(error: Exception) -> bool:
    """Log a page's unexpected error with a random code and draw the code; returns True
    (handled)."""
    error_code = secrets.token_hex(4)
    log.error("reference %s: %s on a page", error_code, type(error).__name__, exc_info=error)
    st.error(
        "This page met an unforeseen error. Load it again; if it comes back, tell whoever "
        f"runs this server: reference {error_code} in its log.",
        icon=":material/report:",
    )
    return True


def secured_app(app: ASGIApp) -> ASGIApp:
    """Return an app that calls `app` and adds HEADERS to its responses. It hides the server's
    metrics unless METRICS_WANTED is set, and refuses log-outs requested by other sites."""

    async def handle_request(scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request with HEADERS; refuse hidden metrics and log-outs from other sites."""
        if scope["type"] != "http":
            return await app(scope, receive, send)
        path = scope["path"].rstrip("/")
        if path == METRICS and not os.environ.get(METRICS_WANTED):
            return await Response(status_code=404, headers=HEADERS)(scope, receive, send)
        if path.endswith(LOGOUT) and not _is_from_our_page(scope):
            return await Response(status_code=403, headers=HEADERS)(scope, receive, send)

        async def send_with_headers(message: Message) -> None:
            """Send one message of a response. The first gets HEADERS; if it is a page at an address
            below a page's own, it becomes a redirect."""
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                is_page = message["status"] == 200 and _is_page(headers)
                if is_page and (redirect_path := _redirect_path(path)):
                    message["status"], headers["location"] = 307, redirect_path
            await send(message)

        return await app(scope, receive, send_with_headers)

    return handle_request


def _is_page(headers: MutableHeaders) -> bool:
    """Whether the response with these headers is Streamlit's page, not an HTML file to download."""
    is_html = headers.get("content-type", "").startswith("text/html")
    return is_html and "content-disposition" not in headers


def _redirect_path(path: str) -> str:
    """Relative address to redirect a path below a page to; '' for other paths. At the path itself
    Streamlit shows a blank page, at the new address it reports that no such page exists.

    >>> _redirect_path("/run/abc"), _redirect_path("/run")
    ('../run-abc', '')
    """
    base_path = str(st.get_option("server.baseUrlPath")).strip("/")
    page_path = path.strip("/").removeprefix(f"{base_path}/")
    parent_path = "../" * page_path.count("/")
    return parent_path + quote(page_path.replace("/", "-")) if parent_path else ""


def _is_from_our_page(scope: Scope) -> bool:
    """Whether a page of this server sent the request, by the header Sec-Fetch-Site; without it
    (over plain HTTP), by the host in Referer."""
    headers = Headers(scope=scope)
    if fetch_site := headers.get("sec-fetch-site"):
        return fetch_site in ("same-origin", "none")  # none: typed into the address bar
    referer = PAGE.match(headers.get("referer", ""))
    # Some proxies name the host without its port.
    return referer is not None and referer[1] == PORT.sub("", headers.get("host", ""))
