"""What the server answers with: headers that a browser keeps to. Texts of strangers are shown as
they were typed (`show.plain`); should one slip through, nothing is loaded from elsewhere."""

import logging
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import streamlit as st

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

METRICS = "/_stcore/metrics"
LOG_OUT = "/auth/logout"
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
    "content-security-policy": "; ".join(f"{part} {from_}" for part, from_ in POLICY.items()),
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def unforeseen(error: Exception) -> bool:
    """An error that no page expects: a reference on the screen, the same one in the log. True tells
    Streamlit, which has logged the traceback, that enough was shown."""
    reference = secrets.token_hex(4)
    log.error("reference %s: %s on a page", reference, type(error).__name__, exc_info=error)
    st.error(
        "This page met an error that nobody foresaw. Load it again; if it comes back, tell whoever "
        f"runs this server: reference {reference} in its log.",
        icon=":material/report:",
    )
    return True


class Door:
    """ASGI middleware: the headers on every answer, and no counters for everybody."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        """Stand before `app`."""
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].rstrip("/") == METRICS and not os.environ.get(METRICS_WANTED):
            await send({"type": "http.response.start", "status": 404, "headers": _headers()})
            await send({"type": "http.response.body", "body": b""})
            return

        if scope["path"].rstrip("/").endswith(LOG_OUT) and _from_elsewhere(scope):
            await send({"type": "http.response.start", "status": 403, "headers": _headers()})
            await send({"type": "http.response.body", "body": b""})
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in _headers()}
                kept = [pair for pair in message.get("headers", ()) if pair[0].lower() not in own]
                message = {**message, "headers": [*kept, *_headers()]}
            await send(message)

        await self._app(scope, receive, answer)


def _from_elsewhere(scope: Message) -> bool:
    """Whether another site's page made the browser ask: it says so, and no page can hide it."""
    sent = {name.lower(): value for name, value in scope.get("headers", ())}
    return sent.get(b"sec-fetch-site", b"none") in (b"cross-site", b"same-site")


def _headers() -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in HEADERS.items()]
