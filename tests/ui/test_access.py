"""Who may do what, by TWIN_ACCESS."""

import json

import pytest
from starlette.requests import Request
from streamlit.web.server.server_util import get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value

from tests.ui.stored_runs import done, scenario
from twin.lab.runs.executor import Runner
from twin.ui import access, session
from twin.ui.pages import PAGES


def test_a_laptop_asks_nobody(app):
    app.run()
    assert app.title[0].value == "Supernode twin"
    assert app.button(key="run-draft")


def test_a_server_with_logins_shows_nothing_before_one(app, monkeypatch):
    monkeypatch.setenv(access.VARIABLE, access.LOGIN)
    app.run()
    assert "needs an [auth] section" in app.error[0].value
    assert not app.title


def test_a_server_that_only_shows_keeps_no_run(app, store, monkeypatch):
    monkeypatch.setenv(access.VARIABLE, access.READ_ONLY)
    monkeypatch.setattr(session, "runner", lambda: Runner(store))
    app.run().button(key="run-draft").click().run()
    assert not app.exception
    assert "keeps nothing" in app.toast[0].value
    assert store.runs.search().rows == []
    assert store.scenarios.search("Quick start · ").rows == []


def test_a_server_that_only_shows_keeps_what_is_there_as_it_is(app, store, monkeypatch):
    monkeypatch.setenv(access.VARIABLE, access.READ_ONLY)
    run = done(store, scenario("Shown to all"))
    before = store.runs.search().total, store.scenarios.search().total
    app.switch_page(PAGES["run"].script)
    app.query_params["run"] = run
    assert "Shown to all" in app.run().title[0].value
    app.query_params.clear()
    app.switch_page(PAGES["library"].script).run()
    app.session_state["table:Runs:All::1:0"] = {"selection": {"rows": [0]}}
    assert app.run().button(key="delete-picked").label == "Delete 1 run"
    app.button(key="delete-picked").click().run()
    assert not app.exception
    assert (store.runs.search().total, store.scenarios.search().total) == before


def test_a_word_that_means_nothing_is_refused(app, monkeypatch):
    with monkeypatch.context() as wrong:
        wrong.setenv(access.VARIABLE, "everybody")
        with pytest.raises(ValueError, match="none of: unset, login, read-only"):
            access.mode()
        with pytest.raises(PermissionError, match="none of: unset, login, read-only"):
            access.visitor_of(Request({"type": "http", "headers": []}))
        app.run()
    assert "everybody is none of: unset, login" in app.error[0].value
    assert not app.title and not app.exception


def test_everybody_has_the_store_itself(store):
    assert session.store() is store


def requested(host: str, **user) -> Request:
    """A request with the login cookie of a user, as Streamlit signs it for http://twin.example."""
    user = {"origin": "http://twin.example", "is_logged_in": True, "iss": "id", "sub": "ann"} | user
    name = access.USER_COOKIE_NAME
    cookie = create_signed_value(get_cookie_secret(), name, json.dumps(user)).decode("latin-1")
    headers = [(b"host", host.encode()), (b"cookie", f"{name}={cookie}".encode("latin-1"))]
    return Request({"type": "http", "headers": headers})


def test_a_request_of_the_api_is_its_cookies_visitor(monkeypatch):
    assert access.visitor_of(Request({"type": "http", "headers": []})) == ""
    monkeypatch.setenv(access.VARIABLE, access.LOGIN)
    assert access.visitor_of(requested("twin.example")) == "id ann"
    for stranger in (
        Request({"type": "http", "headers": [(b"cookie", b"_streamlit_user=forged")]}),
        requested("other.example"),
        requested("twin.example", is_logged_in=False),
    ):
        with pytest.raises(PermissionError, match="log in"):
            access.visitor_of(stranger)
