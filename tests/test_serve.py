"""The dashboard as a server: it starts as the Procfile says, and answers only whom it should."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import requests
from streamlit.proto.WidgetStates_pb2 import WidgetState

from tests.conftest import PATIENCE_S, ROOT
from tests.protocol import Tab
from twin.lab.library import preset
from twin.lab.share.links import pack_scenario
from twin.lab.store import open_store
from twin.scenario import with_overrides


def handshake(url: str, host: str, origin: str) -> int:
    """Status of a WebSocket handshake under a given Host and Origin."""
    import http.client

    at = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=PATIENCE_S)
    connection.putrequest("GET", "/_stcore/stream", skip_host=True)
    for name, value in {
        "Host": f"{host}:{at.port}",
        "Origin": f"{origin}:{at.port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }.items():
        connection.putheader(name, value)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def test_it_answers_its_own_page(app_url):
    assert handshake(app_url, "localhost", "http://localhost") == 101


def test_a_foreign_page_is_refused(app_url):
    assert handshake(app_url, "localhost", "http://elsewhere.example") == 403


def test_a_name_rebound_to_this_machine_is_refused(app_url):
    assert handshake(app_url, "elsewhere.example", "http://elsewhere.example") == 403


def got(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError:
        return b""


def test_no_file_of_the_project_is_served(app_url):
    page = got(f"{app_url}/")
    for path in ("requirements.txt", "app.py", "data/twin.db", "..%2frequirements.txt"):
        # An unknown path gets the page itself, which then says what is wrong.
        assert got(f"{app_url}/{path}") in (page, b"")


def test_an_address_below_a_page_leads_to_one_that_says_what_is_wrong(app_url):
    for path, there in {"s/abc": "s-abc", "run/a b//c/": "run-a%20b--c", "plan": "plan"}.items():
        with urllib.request.urlopen(f"{app_url}/{path.replace(' ', '%20')}") as answer:
            assert answer.url == f"{app_url}/{there}"
            assert b"<title>" in answer.read()


def test_a_tab_that_is_gone_in_the_middle_of_a_write_leaves_nothing_open(app_url, served_db):
    store, quick, draw = open_store(served_db), preset("quickstart"), random.Random(1)
    seeds = [draw.randrange(1 << 30) for _ in range(3)]
    for seed in seeds:
        with Tab(app_url, requests.Session()) as tab:
            asked = pack_scenario(with_overrides(quick, {"seed": seed, "name": "Left alone"}))
            run = tab.open("workload", f"s={asked}").button("Run")
            tab.send({run: WidgetState(trigger_value=True)})
            time.sleep(draw.uniform(0.0, 0.3))
            tab.vanish()
    # What was asked for is there whole or not at all, and can be stopped.
    rows = store.runs.search("Left alone").rows
    assert {row.seed for row in rows} <= set(seeds)
    for row in rows:
        assert store.scenarios.load(row.scenario).seed == row.seed
        store.runs.request_stop(row.id)
    # Nobody writes any more, and no reader is left that holds the log of writes back.
    store.scenarios.save(with_overrides(quick, {"seed": 0, "name": "Written afterwards"}))
    connection = sqlite3.connect(served_db.removeprefix("sqlite:///"), timeout=60)
    deadline = time.monotonic() + 120
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        assert time.monotonic() < deadline, "a transaction was left open"
        time.sleep(0.1)
    connection.close()
    store.close()


def test_the_procfile_does_not_serve_whoever_names_it():
    """Without a name of its own, a server would answer a foreign name that leads to it. With one it
    serves: ui/test_login.py."""
    command = (ROOT / "Procfile").read_text("utf-8").removeprefix("web:").strip()
    assert shutil.which(command.split()[0], path=str(Path(sys.executable).parent))
    unnamed = {k: v for k, v in os.environ.items() if k != "TWIN_PUBLIC_HOST"}
    end = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=ROOT,
        env={**unnamed, "PORT": "1"},
        capture_output=True,
        check=False,
    )
    assert end.returncode != 0
    assert b"TWIN_PUBLIC_HOST: set it to the name" in end.stderr
