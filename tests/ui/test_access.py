"""Who may do what, by TWIN_ACCESS."""

import pytest

from twin.lab.runs.executor import Runner
from twin.ui import access, session


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


def test_a_word_that_means_nothing_is_refused(monkeypatch):
    monkeypatch.setenv(access.VARIABLE, "everybody")
    with pytest.raises(ValueError, match="none of: unset, login, read-only"):
        access.mode()


def test_everybody_has_the_store_itself(store):
    assert session.store() is store
