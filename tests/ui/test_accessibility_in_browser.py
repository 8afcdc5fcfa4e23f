"""No page breaks a serious rule of axe-core, light or dark; the tree names every control."""

import pytest

from tests import axe
from tests.conftest import profile
from tests.ui.stored_runs import done, scenario
from twin.lab.store import open_store
from twin.ui.pages import PAGES

pytestmark = pytest.mark.browser
SERIOUS = ("serious", "critical")
CONTROLS = {
    "button", "link", "slider", "textbox", "searchbox", "spinbutton", "combobox", "checkbox",
    "radio", "switch", "tab", "menuitem", "option", "listbox", "radiogroup", "dialog",
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(served_db):
    """Two made-up runs in the store of the served dashboard."""
    store = open_store(served_db)
    ids = [done(store, scenario("One")), done(store, scenario("Two", seed=2))]
    store.close()
    return ids


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_serious_violation(browser, app_url, runs, name, theme):
    script = axe.find()
    if script is None:
        pytest.skip(axe.MISSING)
    context = profile(browser, color_scheme=theme)
    page = context.new_page()
    page.goto(f"{app_url}/{name}?run={runs[0]}&runs={','.join(runs)}")
    page.get_by_role("heading", level=1).wait_for()
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    page.wait_for_timeout(1500)  # what is stale fades for a moment
    page.evaluate(script.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    broken = [
        (rule["id"], node["html"][:200])
        for rule in found
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]
    assert broken == []
    assert unnamed(page) == []
    context.close()


def unnamed(page):
    """Controls of the accessibility tree that nobody could call by a name."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    return [
        node["role"]["value"]
        for node in tree
        if not node.get("ignored") and node.get("role", {}).get("value") in CONTROLS
        and not node.get("name", {}).get("value", "").strip()
    ]  # fmt: skip
