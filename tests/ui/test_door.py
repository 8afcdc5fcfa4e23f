"""What the server answers with, whatever is asked."""

import io
import logging
import re

import pytest

from tests.ui.conftest import patient
from twin.ui import access


def test_an_error_that_nobody_foresaw_is_a_reference_here_and_in_the_log(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(access.log, "handlers", [logging.StreamHandler(written)])

    def page():
        from twin.ui.access import report_error

        report_error(KeyError("the path of a secret"))

    app = patient(page).run()
    (told,) = app.error
    assert "secret" not in told.value and "KeyError" not in told.value
    (reference,) = re.findall(r"reference ([0-9a-f]{8}) in its log", told.value)
    assert f"reference {reference}: KeyError" in written.getvalue()
    assert "secret" in written.getvalue()  # the traceback


def test_the_server_asks_for_it():
    import app

    assert app.app._on_script_error is access.report_error


def test_only_a_page_of_this_server_logs_out():
    told = []

    async def app(scope, receive, send):
        told.append(scope["path"])

    def ask(path, **headers):
        told.clear()
        pairs = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
        scope = {"type": "http", "path": path, "headers": [(b"host", b"twin.example:8443"), *pairs]}

        async def send(message):
            told.append(message.get("status"))

        with pytest.raises(StopIteration):  # nothing waits: the first step is the whole
            access.secured_app(app)(scope, None, send).send(None)
        return told[0] == path

    for path in ("/auth/logout", "/twin/auth/logout/"):
        assert ask(path, sec_fetch_site="same-origin")
        assert ask(path, sec_fetch_site="none")  # typed into the address bar
        assert ask(path, referer="https://twin.example/library")
        for foreign in (
            {}, {"sec_fetch_site": "cross-site"},
            {"referer": "https://evil.example/twin.example"}, {"referer": "http://[::1"},
            {"sec_fetch_site": "same-site", "referer": "https://twin.example/"},
        ):  # fmt: skip
            assert not ask(path, **foreign)
    assert ask("/library", sec_fetch_site="cross-site")
