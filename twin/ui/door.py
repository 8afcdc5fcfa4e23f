"""Headers of the server's answers: browsers load nothing from elsewhere (see `show.plain`)."""

import logging
import os
import re
import secrets

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


def report_error(error: Exception) -> bool:
    """Log a page's unexpected error under a reference and draw that; True: it was shown."""
    reference = secrets.token_hex(4)
    log.error("reference %s: %s on a page", reference, type(error).__name__, exc_info=error)
    st.error(
        "This page met an unforeseen error. Load it again; if it comes back, tell whoever "
        f"runs this server: reference {reference} in its log.",
        icon=":material/report:",
    )
    return True


def guard(app: ASGIApp) -> ASGIApp:
    """The app with our headers on every answer; it hides counters and refuses foreign log-outs."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request with our headers; refuse unwanted metrics and another page's log-out."""
        if scope["type"] != "http":
            return await app(scope, receive, send)
        path = scope["path"].rstrip("/")
        if path == METRICS and not os.environ.get(METRICS_WANTED):
            return await Response(status_code=404, headers=HEADERS)(scope, receive, send)
        if path.endswith(LOGOUT) and not _from_our_page(scope):
            return await Response(status_code=403, headers=HEADERS)(scope, receive, send)

        async def with_headers(message: Message) -> None:
            """Send a part of the response; its start gets our headers."""
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        return await app(scope, receive, with_headers)

    return answer


def _from_our_page(scope: Scope) -> bool:
    """Whether our own page sent the request, by the browser's headers; on plain HTTP by host."""
    headers = Headers(scope=scope)
    if fetch_site := headers.get("sec-fetch-site"):
        return fetch_site in ("same-origin", "none")  # none: typed into the address bar
    referer = PAGE.match(headers.get("referer", ""))
    # Some proxies name the host without its port.
    return referer is not None and referer[1] == PORT.sub("", headers.get("host", ""))
