"""Every page, light and dark: no serious rule of axe-core is broken, and each control has a name.

None is wider than its window or cuts a word off, from phone to desk, none asks another host, and no
script of one fails.
"""

import pytest

from tests import axe
from tests.browsing import still, until
from tests.draws import some
from tests.ui.stored_runs import done, scenario
from twin import hooks
from twin.lab.store import open_store
from twin.ui.pages import FIRST, PAGES

pytestmark = pytest.mark.browser
SERIOUS = ("serious", "critical")
CONTROLS = {
    "button", "link", "slider", "textbox", "searchbox", "spinbutton", "combobox", "checkbox",
    "radio", "switch", "tab", "menuitem", "option", "listbox", "radiogroup", "dialog",
}  # fmt: skip
NARROW = ("start", "workload", "deployment", "supernode", "library", *hooks.hooks_of(hooks.Page))
DRAWN_FOR_A_THEME = ("run", "experts")  # by their scripts; the others follow by style alone
# What hides what does not fit and has more than fits. Cells of tables scroll.
CUT = """() => [...document.querySelectorAll('[data-testid=stMain] *')].filter(e => {
  const style = getComputedStyle(e)
  return style.overflowX === 'hidden' && style.position !== 'absolute' && e.innerText
    && e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1
    && !e.closest('[data-testid=stDataFrame]')
}).map(e => e.innerText)"""
# Texts outside tables that may break between a number and its unit.
LOOSE = """() => [...document.querySelectorAll('[data-testid=stMain] p')].map(e => e.textContent)
  .filter(text => /\\d (%|ms|s|req\\/s|GB\\/s|tokens\\/s)( |$|[.,;])/.test(text))"""
# Words of charts, outside bars, with a contrast below 4.5: axe-core passes over them.
PALE = """() => {
  const light = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0.05)
  const app = document.querySelector('[data-testid=stApp]')
  const ground = light(getComputedStyle(app).backgroundColor)
  return [...document.querySelectorAll('.js-plotly-plot text:not(.bartext)')].filter(e => {
    const [a, b] = [ground, light(getComputedStyle(e).fill)].sort((x, y) => y - x)
    return a / b < 4.5
  }).map(e => `${e.textContent}: ${getComputedStyle(e).fill}`)
}"""
GROUND = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"


@pytest.fixture(scope="module")
def runs(served_db):
    """Two made-up runs in the store of the served dashboard."""
    store = open_store(served_db)
    ids = [done(store, scenario("One")), done(store, scenario("Two", seed=2))]
    store.close()
    return ids


FEW = (FIRST, "run")  # a picture and a form; tiles, charts and tables


@pytest.mark.parametrize("name", some([*FEW], *(name for name in PAGES if name not in FEW)))
def test_a_page_can_be_read_by_anyone_at_any_width(page, app_url, runs, name):
    script, asked, failures = axe.find(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failures.append(str(error)))
    path = "" if name == FIRST else name
    page.goto(f"{app_url}/{path}?run={runs[0]}&runs={','.join(runs)}")
    page.get_by_role("heading", level=1).first.wait_for()
    light = page.evaluate(GROUND)
    for theme in ("light", "dark") if script else ():
        page.emulate_media(color_scheme=theme)
        if theme == "dark" and name in DRAWN_FOR_A_THEME:
            page.reload()
            page.get_by_role("heading", level=1).first.wait_for()
        until(lambda on=theme == "light": (page.evaluate(GROUND) == light) == on)
        still(page)  # what fades has no contrast for a moment
        page.evaluate(script.read_text("utf-8"))
        assert broken_rules(page) == [], theme
        assert unnamed(page) == []
    for width in (1280, 768, 390) if name in NARROW else ():
        page.set_viewport_size({"width": width, "height": 900})
        still(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
        assert page.evaluate(CUT) == [], width
        assert page.evaluate(LOOSE) == [], width
    own = ("data:", f"{app_url}/", f"{app_url.replace('http', 'ws')}/", f"blob:{app_url}/")
    assert [url for url in asked if not url.startswith(own)] == [] == failures
    if script is None:
        pytest.skip(axe.MISSING)


def broken_rules(page):
    """What axe-core finds that keeps somebody out."""
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        (rule["id"], node["html"][:200])
        for rule in found
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]


def unnamed(page):
    """Controls of the accessibility tree that nobody could call by a name."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    return [
        node["role"]["value"]
        for node in tree
        if not node.get("ignored") and node.get("role", {}).get("value") in CONTROLS
        and not node.get("name", {}).get("value", "").strip()
    ]  # fmt: skip


def test_the_words_of_a_chart_are_no_paler_than_those_of_its_page(page, app_url):
    page.emulate_media(color_scheme="light")
    page.goto(f"{app_url}/deployment")
    page.locator(".js-plotly-plot .xtick text").first.wait_for()
    ground = page.evaluate(GROUND)
    still(page)
    assert page.evaluate(PALE) == []
    page.emulate_media(color_scheme="dark")
    until(lambda: page.evaluate(GROUND) != ground)
    still(page)
    assert page.evaluate(PALE) == []


def test_the_second_answer_of_a_page_has_its_room_before_it_comes(page, app_url):
    """It moves nothing below it: a list that is open closes when it is moved."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{app_url}/workload")
    page.get_by_role("heading", name="Workload", level=1).first.wait_for()
    still(page)
    room = page.locator(".st-key-simulated")
    line = 1.6 * room.evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    assert room.bounding_box()["height"] > 3 * line  # its badge, and two lines of figures
    page.set_viewport_size({"width": 1280, "height": 844})
    still(page)
    assert line < room.bounding_box()["height"] < 2 * line


def test_a_phone_s_drawer_is_groups_of_links_breaks_no_rule_and_closes_at_a_choice(page, app_url):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{app_url}/compare")
    page.get_by_role("heading", level=1).first.wait_for()
    still(page)
    page.get_by_test_id("stExpandSidebarButton").click()
    page.get_by_role("group", name="Compare and sweep").get_by_role("link", name="Sweep").wait_for()
    script = axe.find()
    if script:
        still(page)
        page.evaluate(script.read_text("utf-8"))
        assert broken_rules(page) == []
    page.get_by_test_id("stSidebar").get_by_text("Library", exact=True).click()
    page.get_by_role("heading", name="Library", level=1).first.wait_for()
    page.get_by_test_id("stExpandSidebarButton").wait_for()
    if script is None:
        pytest.skip(axe.MISSING)
