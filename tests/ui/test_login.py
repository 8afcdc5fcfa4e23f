"""A server that the Procfile starts, whose visitors log in with OpenID Connect."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import randbits, token_hex

import pytest
import requests

from tests.conftest import PATIENCE_S, ROOT, free_port, wait_until_healthy
from tests.lab.plan.small import small
from tests.protocol import Tab
from tests.served import ENGINE_VARIABLE
from tests.ui import oidc
from tests.ui.stored_runs import done, scenario
from twin.hooks import Page, hooks_of
from twin.lab.share.links import pack_scenario
from twin.lab.store import Store, open_store
from twin.scenario import with_overrides
from twin.ui import access

USER = "_streamlit_user"  # the cookie of a login
UNKNOWN = "A" * 24  # shaped as the id of a run, and of none


@dataclass
class Server:
    """A dashboard that is served, and its store as the operator sees it."""

    url: str
    store: Store


@contextmanager
def served(folder: Path, port: int, option: str) -> Iterator[Server]:
    """A dashboard of its own on the port that the Procfile takes from the environment."""
    database = f"sqlite:///{folder / 'twin.db'}"
    command = (ROOT / "Procfile").read_text("utf-8").removeprefix("web: streamlit ").strip()
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$0" -m tests.served {command} "$1"', sys.executable, option],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env={**os.environ, "TWIN_DB_URL": database, access.VARIABLE: access.LOGIN,
                 "PORT": str(port), "TWIN_PUBLIC_HOST": "localhost",
                 ENGINE_VARIABLE: "tests.lab.fake_engine"},
        )  # fmt: skip
    url = f"http://localhost:{port}"
    try:
        wait_until_healthy(url, server, folder / "log")
        store = open_store(database)
        yield Server(url, store)
        store.close()
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    """A dashboard whose visitors log in."""
    folder, port = tmp_path_factory.mktemp("login"), free_port()
    with oidc.provider() as provider:
        secrets = {
            "redirect_uri": f"http://localhost:{port}/oauth2callback",
            "cookie_secret": "thirty-two characters or even more",
            "client_id": oidc.CLIENT,
            "client_secret": oidc.SECRET,
            "server_metadata_url": f"{provider.issuer}/.well-known/openid-configuration",
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in secrets.items()]
        (folder / "secrets.toml").write_text("\n".join(["[auth]", *lines]))
        option = f"--secrets.files={folder / 'secrets.toml'}"
        with served(folder, port, option) as running:
            yield running


def enter(server: Server, who: str) -> requests.Session:
    """The cookies of somebody who went through the login of the dashboard and its provider."""
    cookies = requests.Session()
    cookies.cookies.set("who", who, domain="127.0.0.1")
    with Tab(server.url, cookies) as tab:
        way = tab.press("Log in").redirect
    assert way.startswith("/auth/login")
    cookies.get(server.url + way, timeout=PATIENCE_S)
    return cookies


@pytest.fixture(scope="module")
def visitors(server):
    """Ann and Ben, logged in."""
    return enter(server, "ann"), enter(server, "ben")


@pytest.fixture
def asked(server, visitors):
    """Ann and Ben, logged in, and a run that Ann asked for: it goes on for minutes."""
    ann, ben = visitors
    name, seed = f"Ann's own {token_hex(4)}", randbits(30)
    changed = {"name": name, "seed": seed, "horizon_s": 20_000.0}
    with Tab(server.url, ann) as tab:
        tab.open("workload", f"s={pack_scenario(with_overrides(small(), changed))}").press("Run")
    (run,) = server.store.runs.search(name).rows
    yield ann, ben, run.id
    if server.store.runs.get(run.id):
        server.store.runs.request_stop(run.id)


def open_runs(server, cookies, run) -> str:
    with Tab(server.url, cookies) as tab:
        return tab.open("run", f"run={run}").text.replace("\\", "")


def listed(server, cookies) -> str:
    with Tab(server.url, cookies) as tab:
        return tab.open("library").text


def test_who_has_not_logged_in_sees_a_button_and_nothing_else(server, asked):
    run = asked[2]
    pages = [
        ("", ""),
        ("library", ""),
        ("run", f"run={run}"),
        *((name, "") for name in hooks_of(Page)),
    ]
    for page, query in pages:
        with Tab(server.url, requests.Session()) as tab:
            tab.open(page, query)
            assert [e.button.label for e in tab.of("button")] == ["Log in"]
            assert "Ann" not in str(tab.elements)


def test_a_token_of_another_key_logs_nobody_in(server):
    with Tab(server.url, enter(server, oidc.FORGER)) as tab:
        assert tab.button("Log in")


def test_a_changed_cookie_logs_nobody_in(server, visitors):
    value = visitors[0].cookies.get_dict()[USER]
    changed = "A" if value[20] != "A" else "B"
    forged = requests.Session()
    forged.cookies.set(USER, value[:20] + changed + value[21:])
    with Tab(server.url, forged) as tab:
        assert tab.button("Log in")


def test_a_run_is_seen_by_who_asked_for_it(server, asked):
    ann, ben, run = asked
    assert "Ann's own" in open_runs(server, ann, run)
    # Somebody else's, and what is not there at all, are told in the same words.
    theirs, nobodys = (open_runs(server, ben, name) for name in (run, UNKNOWN))
    assert theirs.replace(run, UNKNOWN) == nobodys
    assert "No run is stored here yet." in listed(server, ben)
    assert "No run is stored here yet." not in listed(server, ann)


def test_only_who_asked_stops_and_deletes_it(server, asked):
    ann, ben, run = asked
    with Tab(server.url, ann) as tab:
        stop = tab.open("run", f"run={run}").button("Stop this run")
        with Tab(server.url, ben) as other:
            other.open("run", f"run={run}").trigger(stop)
        assert server.store.runs.get(run).cancel_s is None
        tab.trigger(stop)
    end = time.monotonic() + PATIENCE_S
    while not server.store.runs.get(run).ended:
        assert time.monotonic() < end
        time.sleep(0.1)
    with Tab(server.url, ann) as tab:
        (table,) = tab.open("library").of("dataframe")
        picked = {"selection": {"rows": [0], "columns": [], "cells": []}}
        tab.change(table.dataframe.id, string_value=json.dumps(picked))
        delete = tab.button("Delete 1 run")
        with Tab(server.url, ben) as other:
            other.open("library").trigger(delete)
        assert server.store.runs.get(run) is not None
        tab.trigger(delete)
    assert server.store.runs.get(run) is None


def test_what_was_shared_is_seen_and_hidden_again(server, asked):
    ann, ben, _ = asked
    who = server.store.for_visitor(holder_of(server, asked[2]))
    run = done(who, scenario("Finished"))
    assert "Finished" not in open_runs(server, ben, run)
    who.runs.publish(run)
    assert "Finished" in open_runs(server, ben, run)
    who.runs.unpublish(run)
    assert "Finished" not in open_runs(server, ben, run)
    assert "Finished" in open_runs(server, ann, run)


def holder_of(server: Server, run: str) -> str:
    with server.store.database.read() as session:
        connection = session.connection()
        rows = connection.exec_driver_sql("SELECT visitor FROM holdings WHERE name = ?", (run,))
        (name,) = rows.one()
    assert name.endswith(" ann")
    return name


def test_who_logs_out_is_a_stranger_again(server):
    cookies = enter(server, "ann")
    with Tab(server.url, cookies) as tab:
        way = tab.press("Log out").redirect
    sites = [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")]
    foreign = [{}, {"Referer": "https://elsewhere.example/"}, *sites]
    for headers in foreign:
        answer = cookies.get(server.url + way, timeout=PATIENCE_S, headers=headers)
        assert answer.status_code == 403
    with Tab(server.url, cookies) as tab:
        assert tab.button("Log out")
    own = {"Sec-Fetch-Site": "same-origin", "Referer": f"{server.url}/library"}
    cookies.get(server.url + way, timeout=PATIENCE_S, headers=own)
    with Tab(server.url, cookies) as tab:
        assert tab.button("Log in")
