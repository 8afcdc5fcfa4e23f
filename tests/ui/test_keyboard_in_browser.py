"""The main job by keys alone: Start, a slider, Run, explain, apply and compare, copy the link.

Nothing is clicked: Tab goes on, arrows move, Enter presses, and one sees where the focus is.
"""

import re

import pytest

from tests.browsing import copied_link, rest, until
from tests.draws import some
from tests.ui.test_explained import explain
from twin.lab.store import open_store

pytestmark = pytest.mark.browser
RUN_MS = 600_000  # the first start on a machine compiles the engine
TABS = 150  # more than any page has stops

# What has the focus, wherever it stands: its name, role and value, and whether it can be seen.
FOCUSED = """() => {
  let e = document.activeElement
  while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement
  if (!e || e === document.body) return null
  const labels = [...(e.labels ?? [])].map(l => l.innerText)
  const named = (e.getAttribute('aria-labelledby') ?? '').split(' ')
    .map(id => id && e.getRootNode().getElementById(id)?.innerText)
  const name = [e.getAttribute('aria-label'), ...named, ...labels, e.innerText, e.placeholder]
  const ringed = [e, e.parentElement, e.parentElement?.parentElement, ...e.children]
    .filter(Boolean).map(p => getComputedStyle(p))
  const r = e.getBoundingClientRect()
  return {
    name: name.filter(Boolean).join(' ').replace(/\\s+/g, ' '), tag: e.tagName.toLowerCase(),
    role: e.getAttribute('role') ?? '', value: e.getAttribute('aria-valuetext') ?? e.value ?? '',
    inside: r.bottom > 0 && r.top < innerHeight,
    ring: ringed.some(s => (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0)
      || s.boxShadow !== 'none'),
  }
}"""


@pytest.fixture
def keys(page, app_url):
    """A page at Start, with a clipboard, of a server that is ready to simulate."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    def simulated():
        page.goto(app_url)
        page.get_by_role("heading", level=1).first.wait_for()
        rest(page)
        ready = page.get_by_text(re.compile("Simulated|simulating")).count()
        return ready and page.get_by_role("slider").first.is_visible()

    # A page that came before the engine is not drawn anew by itself. On a busy machine a browser
    # sometimes holds all widgets back, though their code has come: it is loaded again.
    until(simulated, RUN_MS / 1000)
    return page


def tab_to(page, name):
    """Press Tab until something of this name has the focus; what it is."""
    unnamed, passed = [], []
    for _ in range(TABS):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused is None:
            continue
        passed.append(focused["name"][:30])
        if not focused["name"]:
            unnamed.append(focused)
        if re.search(name, focused["name"]):
            assert unnamed == [], "a stop of the Tab key without a name"
            assert focused["inside"] and focused["ring"], focused
            return focused
    raise AssertionError(f"Tab never comes to {name}: {passed}")


def store_explanation(database, run):
    """A made-up explanation of a run, as if somebody had requested one before."""
    store = open_store(database)
    explain(store, store.scenarios.load(store.runs.get(run).scenario))
    store.close()


# A search for causes simulates minutes of traffic some hundred times: `make long` waits for it.
@pytest.mark.parametrize("explained", some(["before"], "now"))
def test_the_main_job_needs_no_mouse(keys, served_db, explained):
    keys.get_by_text(re.compile("Simulated")).first.wait_for(timeout=RUN_MS)
    rest(keys)
    before = tab_to(keys, r"^Request rate")
    keys.keyboard.press("ArrowRight")
    until(lambda: (keys.evaluate(FOCUSED) or before)["value"] != before["value"])
    rest(keys)
    assert keys.evaluate(FOCUSED)["name"].startswith("Request rate")  # no answer takes it away
    tab_to(keys, r"Run 3 min of traffic")
    keys.keyboard.press("Enter")
    keys.wait_for_url("**/run?run=*")
    if explained == "before":
        store_explanation(served_db, keys.url.partition("run=")[2].partition("&")[0])
    apply = keys.get_by_role("button", name=re.compile("Apply and compare")).first
    explain = keys.get_by_role("button", name="Explain this run")
    apply.or_(explain).first.wait_for(timeout=RUN_MS)
    if explain.is_visible():  # a slow machine explains only when it is asked
        tab_to(keys, "Explain this run")
        keys.keyboard.press("Enter")
        apply.wait_for(timeout=RUN_MS)
    rest(keys)
    tab_to(keys, "Apply and compare")
    keys.keyboard.press("Enter")
    keys.wait_for_url("**/compare?runs=*")
    rest(keys)
    tab_to(keys, "Copy link")
    assert "/compare?runs=" in copied_link(keys, lambda: keys.keyboard.press("Enter"))
