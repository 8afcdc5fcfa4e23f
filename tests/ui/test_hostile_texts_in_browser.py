"""Texts of strangers, in a real browser: shown as they were typed, on every page."""

import base64
import json
import zlib

import pytest
from playwright.sync_api import expect

from tests.browsing import rest
from tests.draws import some
from tests.ui import stored_runs
from twin.lab.share.links import RUN, pack_scenario
from twin.lab.store import Owner, open_store
from twin.scenario import SCHEMA_VERSION, scenario_digest
from twin.ui.pages import PAGES

pytestmark = pytest.mark.browser

HOST = "evil.test"
# What has become of a text elsewhere: a picture, a link, a style, a script.
PAYLOADS = (
    f"![x](http://{HOST}/p.png)", f"[y](http://{HOST}/l)", f"www.{HOST}", f"http://{HOST}",
    f"me@{HOST}", f"<img src=http://{HOST}/i>", ":red[z]", "`c`", "$x$",
    "<script>hit()</script>", "<ScRiPt>hit()</sCrIpT>", "<img src=x onerror=hit()>",
    "<svg onload=hit()>", "<svg><script>hit()</script></svg>", "<body onload=hit()>",
    "<iframe src=javascript:parent.hit()>", "<iframe srcdoc='<script>parent.hit()</script>'>",
    "<a href=javascript:hit()>a</a>", "[a](javascript:hit())", "[a](data:text/html,<script>hit())",
    "<details open ontoggle=hit()>", "<video><source onerror=hit()>", "<audio src=x onerror=hit()>",
    "<input autofocus onfocus=hit()>", "<marquee onstart=hit()>", "<object data=javascript:hit()>",
    "<embed src=javascript:hit()>", f"<link rel=stylesheet href=http://{HOST}/s>",
    f"<style>@import 'http://{HOST}/s';</style>", f"<style>*{{background:url(//{HOST}/b)}}</style>",
    f"<meta http-equiv=refresh content='0;url=http://{HOST}'>", f"<base href=http://{HOST}/>",
    f"<form action=http://{HOST}><button>b</button></form>", "'-hit()-'", '"onmouseover="hit()',
    "</title><script>hit()</script>", "--><script>hit()</script>", "{{hit()}}", "${hit()}",
    "javascript:hit()", "\u202egpj.exe", "<math href=javascript:hit()>m</math>",
    "<template><script>hit()</script></template>", f"![]({HOST})<img/src=`//{HOST}`>",
    f"| a |\n|---|\n| ![x](http://{HOST}/t.png) |", ":material/skull:", ":tada:",
    ":violet-badge[b]",
)  # fmt: skip
HOSTILE = " ".join(PAYLOADS)
MOST = 600  # characters of a question
PARTS = [" ".join(PAYLOADS[k::3]) for k in range(3)]
# What a stranger's text must never become: something that runs, loads, leads away, or is styled.
MADE = f"""() => [...document.querySelectorAll('a, img, iframe, .katex, [data-testid=stMain] code')]
    .filter(e => (e.href || e.src || e.innerText || '').includes('{HOST}')
        || (e.href || e.src || '').startsWith('javascript:')
        || e.className === 'katex' || e.innerText === 'c')
    .map(e => e.outerHTML.slice(0, 200)).concat(window.hits || [])
    .concat([...document.querySelectorAll('[aria-label="skull icon"]')].map(e => e.outerHTML))
    .concat(document.body.innerText.includes('\U0001f389') ? ['an emoji'] : [])"""


@pytest.fixture(scope="module")
def hostile_runs(app_url, served_db):
    """A finished, a failed and a stored question, each with hostile words wherever words go."""
    store = open_store(served_db)
    questions = [
        stored_runs.scenario(part[:80], question=part[:MOST], source=part[:MOST]) for part in PARTS
    ]
    asked = questions[0]
    done = stored_runs.done(store, asked)
    owner = Owner.current()
    failed = store.runs.add(
        store.scenarios.save(asked), stored_runs.session.facts(), "engine 2", 1, owner=owner
    )
    store.runs.fail(failed, owner, f"the run failed: {HOSTILE}")
    yield {
        "done": done,
        "failed": failed,
        "links": [pack_scenario(question) for question in questions],
    }
    for run in (done, failed):
        store.runs.delete(run)
    store.scenarios.delete(scenario_digest(asked))
    store.close()


def test_there_are_forty_payloads():
    assert len(set(PAYLOADS)) >= 40
    assert max(map(len, PARTS)) <= MOST


def raw_link(fields: dict) -> str:
    """A link's text for fields that no form would let through."""
    text = json.dumps({"schema": SCHEMA_VERSION, "scenario": fields}).encode()
    return base64.urlsafe_b64encode(zlib.compress(text)).decode().rstrip("=")


@pytest.fixture
def page(page):
    page.add_init_script("window.hit = () => { window.hits = ['a script ran'] }")
    return page


def visit(page, app_url, path):
    """The hosts that a page asked, and what it made of hostile words."""
    asked = set()
    page.on("request", lambda request: asked.add(request.url))
    page.goto(f"{app_url}/{path}")
    page.get_by_role("heading", level=1).first.wait_for()
    rest(page)
    beyond = {u for u in asked if not u.startswith((app_url, "data:", "blob:"))}
    return beyond, page.evaluate(MADE)


@pytest.mark.parametrize("name", some(["start"], *(n for n in PAGES if n not in ("run", "start"))))
def test_a_linked_question_renders_nothing(app_url, page, hostile_runs, name):
    path = "" if name == "start" else name
    link = hostile_runs["links"][[*PAGES].index(name) % len(PARTS)]
    assert visit(page, app_url, f"{path}?s={link}") == (set(), [])


@pytest.mark.parametrize(
    "way",
    some(
        [("run", "done"), ("run", "failed")],
        ("playback", "done"), ("experts", "done"), ("playback", "failed"), ("experts", "failed"),
    ),
    ids="-".join,
)  # fmt: skip
def test_a_run_renders_nothing(app_url, page, hostile_runs, way):
    name, state = way
    assert visit(page, app_url, f"{name}?{RUN}={hostile_runs[state]}") == (set(), [])


CANNOT_BE = {
    "no field": {HOSTILE: 1},
    "no trace": {"workload": {"arrivals": "trace", "trace": {"name": HOSTILE, "digest": "0" * 64}}},
    "too long": {"faults": [{"element": HOSTILE, "at_s": 5}]},
    "no model": {"deployment": {"model": HOSTILE}},
    "no chip": {"supernode": {"chip": HOSTILE}},
    "no lengths": {"workload": {"lengths": HOSTILE}},
}


@pytest.mark.parametrize("what", some([*CANNOT_BE][:1], *[*CANNOT_BE][1:]))
def test_what_cannot_be_renders_nothing(app_url, page, what):
    assert visit(page, app_url, f"workload?s={raw_link(CANNOT_BE[what])}") == (set(), [])
    expect(page.locator("body")).to_contain_text(f"{HOST}/p.png")  # it is told, as it was typed


def test_no_page_may_be_framed_or_load_from_elsewhere(app_url, deployment):
    loaded = deployment.evaluate(
        """url => new Promise(done => { const image = new Image()
            image.onload = () => done(true); image.onerror = () => done(false)
            image.src = url })""",
        f"http://{HOST}/p.png",
    )
    assert not loaded
    answer = deployment.request.get(app_url)
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'self'" in policy and "img-src 'self' data: blob:" in policy
    assert deployment.request.get(f"{app_url}/_stcore/metrics").status == 404
