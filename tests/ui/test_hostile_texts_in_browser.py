"""Texts of strangers, in a real browser: shown as they were typed, on every page."""

from __future__ import annotations

import base64
import json
import zlib

import pytest

from tests.ui import stored_runs
from twin.lab.share import RUN, pack
from twin.lab.store import Owner, open_store
from twin.scenario import scenario_digest
from twin.ui.pages import PAGES

pytestmark = pytest.mark.browser

HOST = "evil.test"
HOSTILE = (
    f"![x](http://{HOST}/p.png) [y](http://{HOST}/l) www.{HOST} http://{HOST} me@{HOST} "
    f"<img src=http://{HOST}/i> :red[z] `c` $x$"
)
# What a stranger's text must never become: something that loads, leads away, or is styled.
MADE = f"""() => [...document.querySelectorAll('a, img, iframe, .katex, [data-testid=stMain] code')]
    .filter(e => (e.href || e.src || e.innerText || '').includes('{HOST}')
        || e.className === 'katex' || e.innerText === 'c')
    .map(e => e.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def hostile_runs(app_url, served_db):
    """A finished, a failed and a stored question, each with hostile words wherever words go."""
    store = open_store(served_db)
    asked = stored_runs.scenario(HOSTILE[:80], question=HOSTILE, source=HOSTILE)
    done = stored_runs.done(store, asked)
    owner = Owner.here()
    failed = store.runs.add(
        store.scenarios.save(asked), stored_runs.session.facts(), "engine 2", 1, owner=owner
    )
    store.runs.fail(failed, owner, f"the run failed: {HOSTILE}")
    yield {"done": done, "failed": failed, "link": pack(asked)}
    for run in (done, failed):
        store.runs.delete(run)
    store.scenarios.delete(scenario_digest(asked))
    store.close()


def raw_link(fields: dict) -> str:
    """A link's text for fields that no form would let through."""
    text = json.dumps(fields).encode()
    return base64.urlsafe_b64encode(zlib.compress(text)).decode().rstrip("=")


def visit(page, app_url, path):
    """The hosts that a page asked, and what it made of hostile words."""
    asked = set()
    page.on("request", lambda request: asked.add(request.url))
    page.goto(f"{app_url}/{path}")
    page.get_by_role("heading", level=1).first.wait_for()
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    beyond = {u for u in asked if not u.startswith((app_url, "data:", "blob:"))}
    return beyond, page.evaluate(MADE)


@pytest.mark.parametrize("name", [name for name in PAGES if name != "run"])
def test_a_linked_question_renders_nothing(app_url, page, hostile_runs, name):
    path = "" if name == "start" else name
    assert visit(page, app_url, f"{path}?s={hostile_runs['link']}") == (set(), [])


@pytest.mark.parametrize("state", ["done", "failed"])
@pytest.mark.parametrize("name", ["run", "playback", "experts"])
def test_a_run_renders_nothing(app_url, page, hostile_runs, name, state):
    assert visit(page, app_url, f"{name}?{RUN}={hostile_runs[state]}") == (set(), [])


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": HOSTILE},
        {HOSTILE: 1},
        {"deployment": {"model": HOSTILE}},
        {"supernode": {"chip": HOSTILE}},
        {"supernode": {"edits": [{"element": HOSTILE}]}},
        {"workload": {"lengths": HOSTILE}},
        {"workload": {"arrivals": "trace", "trace": {"name": HOSTILE, "digest": "0" * 64}}},
        {"faults": [{"element": HOSTILE, "at_s": 5}]},
    ],
    ids=lambda fields: next(iter(fields))[:12],
)
def test_a_refused_link_renders_nothing(app_url, page, fields):
    assert visit(page, app_url, f"workload?s={raw_link(fields)}") == (set(), [])


def test_no_page_may_be_framed_or_load_from_elsewhere(app_url, page):
    page.goto(app_url)
    page.get_by_role("heading", level=1).wait_for()
    loaded = page.evaluate(
        """url => new Promise(done => { const image = new Image()
            image.onload = () => done(true); image.onerror = () => done(false)
            image.src = url })""",
        f"http://{HOST}/p.png",
    )
    assert not loaded
    answer = page.request.get(app_url)
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'self'" in policy and "img-src 'self' data: blob:" in policy
    assert page.request.get(f"{app_url}/_stcore/metrics").status == 404
