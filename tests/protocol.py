"""One tab of a browser without the browser: speaks the dashboard's protocol over its WebSocket.

It shows what a page's script drew, and changes and presses widgets. What a browser does with that
(layout, scripts, policies) it does not know: for that there is Chromium.
"""

from __future__ import annotations

import socket
from typing import Any

import requests
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.sync.client import connect

PATIENCE_S = 120.0
XSRF = "_streamlit_xsrf"
ENDED = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_WITH_COMPILE_ERROR)


class Tab:
    """A connection of one visitor, whose cookies a `requests` session holds."""

    def __init__(self, url: str, cookies: requests.Session, page: str = "") -> None:
        """Connect, as a page at `url` would."""
        self.hashes: dict[str, str] = {}
        self.states: dict[str, WidgetState] = {}
        self.elements: list[Element] = []
        self.redirect = ""  # where the server last sent this visitor to log in or out
        self.page, self.query = "", ""
        cookies.get(f"{url}/_stcore/health", timeout=PATIENCE_S).raise_for_status()
        jar = cookies.cookies.get_dict()
        self._opened = connect(
            f"{url.replace('http', 'ws')}/_stcore/stream",
            origin=url,
            subprotocols=["streamlit", jar[XSRF]],
            additional_headers={"Cookie": "; ".join(f"{k}={v}" for k, v in jar.items())},
            max_size=None,
        )
        self.socket = self._opened.__enter__()
        self.open(page)

    def __enter__(self) -> Tab:
        """Itself."""
        return self

    def __exit__(self, *error: Any) -> None:
        """Close the tab."""
        self._opened.__exit__(*error)

    def open(self, page: str, query: str = "") -> Tab:
        """Go to a page, '' for the first one, and wait until it is drawn."""
        self.states, self.page, self.query = {}, page, query
        return self.rerun()

    def press(self, label: str) -> Tab:
        """Press the button that says so."""
        return self.trigger(self.button(label))

    def trigger(self, widget: str) -> Tab:
        """Press the button of that id, whether it is on the page or not."""
        return self.rerun({widget: WidgetState(trigger_value=True)})

    def change(self, widget: str, **value: Any) -> Tab:
        """Give a widget a value, by the name of its kind in the protocol."""
        return self.rerun({widget: WidgetState(**value)})

    def button(self, label: str) -> str:
        """Id of the first button that begins so."""
        shown = {e.button.label: e.button.id for e in self.of("button") if not e.button.disabled}
        named = [each for each in shown if each.startswith(label)]
        assert named, f"no button {label} among {sorted(shown)}"
        return shown[named[0]]

    def of(self, kind: str) -> list[Element]:
        """The page's elements of one kind."""
        return [e for e in self.elements if e.WhichOneof("type") == kind]

    @property
    def text(self) -> str:
        """Everything that headings, paragraphs and messages say."""
        return "\n".join(
            str(getattr(getattr(element, kind), "body", ""))
            for kind in ("heading", "markdown", "alert", "toast")
            for element in self.of(kind)
        )

    def vanish(self) -> None:
        """Be gone, without a word to the server."""
        self.socket.socket.shutdown(socket.SHUT_RDWR)

    def rerun(self, changed: dict[str, WidgetState] | None = None) -> Tab:
        """Send what changed, and take in the page until its script has ended."""
        self.send(changed)
        while not self._ended(self.socket.recv(timeout=PATIENCE_S)):
            pass
        return self

    def send(self, changed: dict[str, WidgetState] | None = None) -> None:
        """Say what changed; the server begins to draw."""
        message = BackMsg()
        asked = message.rerun_script
        asked.query_string = self.query
        asked.page_script_hash = self.hashes.get(self.page, "")
        asked.page_name = "" if self.page in self.hashes else self.page
        for name, state in (self.states | (changed or {})).items():
            state.id = name
            asked.widget_states.widgets.append(state)
        self.states |= {n: s for n, s in (changed or {}).items() if not s.trigger_value}
        self.elements = []
        self.socket.send(message.SerializeToString())

    def _ended(self, data: Any) -> bool:
        """Take in one message; whether it was the page's last."""
        message = ForwardMsg()
        message.ParseFromString(data)
        kind = message.WhichOneof("type")
        if kind == "navigation":
            self.hashes = {
                "" if p.is_default else p.url_pathname: p.page_script_hash
                for p in message.navigation.app_pages
            }
        elif kind == "new_session":
            names = {found: name for name, found in self.hashes.items()}
            self.page = names.get(message.new_session.page_script_hash, self.page)
            self.elements = []  # another page, or the same again: what was drawn is gone
        elif kind == "page_info_changed":
            self.query = message.page_info_changed.query_string
        elif kind == "auth_redirect":
            self.redirect = message.auth_redirect.url
        elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
            self.elements.append(message.delta.new_element)
        return kind == "script_finished" and message.script_finished in ENDED
