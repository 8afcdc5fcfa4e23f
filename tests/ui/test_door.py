"""What the server answers with, whatever is asked."""

import re

import pytest

from tests.ui.conftest import patient
from twin.ui import door


def test_an_error_that_nobody_foresaw_is_a_reference_here_and_in_the_log(caplog):
    def page():
        from twin.ui.door import unforeseen

        unforeseen(KeyError("the path of a secret"))

    app = patient(page).run()
    (told,) = app.error
    assert "secret" not in told.value and "KeyError" not in told.value
    (reference,) = re.findall(r"reference ([0-9a-f]{8}) in its log", told.value)
    assert f"reference {reference}: KeyError" in caplog.text
    assert "secret" in caplog.text  # the traceback


def test_the_server_asks_for_it():
    import app

    assert app.app._on_script_error is door.unforeseen


@pytest.mark.parametrize(
    ("path", "site", "status"),
    [
        ("/auth/logout", b"cross-site", 403),
        ("/auth/logout", b"same-site", 403),
        ("/auth/logout", b"same-origin", 200),
        ("/auth/logout", b"none", 200),  # typed into the address bar
        ("/", b"cross-site", 200),  # a link from elsewhere
    ],
)
def test_no_other_site_logs_a_visitor_out(path, site, status):
    async def behind(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "headers": [(b"Sec-Fetch-Site", site)]}
    with pytest.raises(StopIteration):  # nothing waits: the first step is the whole
        door.Door(behind)(scope, None, send).send(None)
    assert sent[0]["status"] == status
