"""The Deployment page in a real browser: fields of a kind, a table of seats, charts, a search."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import choose, opened_group, rest
from tests.draws import some

pytestmark = pytest.mark.browser


@pytest.fixture
def page(deployment: Page) -> Page:
    return deployment


def test_any_chart_is_taken_away_as_png_svg_and_csv(page: Page):
    chart = page.locator(".st-key-operators .js-plotly-plot").first
    bar = chart.locator(".modebar[data-twin=complete]")
    bar.wait_for(state="attached")
    rest(page)
    chart.hover()
    for title in ("Zoom", "Pan", "Reset axes"):
        expect(bar.locator(f'[data-title="{title}"]')).to_have_count(1)
    kept = {}
    for title in ("Download as SVG", "Download the numbers as CSV", "Download plot as a PNG"):
        with page.expect_download() as waiting:
            bar.locator(f'[data-title="{title}"]').click()
        kept[waiting.value.suggested_filename] = Path(waiting.value.path()).read_bytes()
    assert {name.rpartition(".")[2] for name in kept} == {"svg", "csv", "png"}
    by_kind = {name.rpartition(".")[2]: body for name, body in kept.items()}
    assert by_kind["svg"].startswith(b"<svg") and by_kind["png"].startswith(b"\x89PNG")
    rows = by_kind["csv"].decode().splitlines()
    assert rows[0] == "series,ms at work per iteration,operator"
    assert all(len(row.split(",")[1].strip("0.").replace(".", "")) <= 6 for row in rows[1:])
    drawn = chart.locator(".bars .point").count()
    assert len(rows) - 1 == drawn > 3


def swiped(page, chart):
    """How far the page moves when a finger swipes over a chart."""
    chart.scroll_into_view_if_needed()
    box, finger = chart.bounding_box(), page.context.new_cdp_session(page)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    before = page.get_by_test_id("stMain").evaluate("it => it.scrollTop")
    steps = [("touchStart", 0), *(("touchMove", 10 * k) for k in range(1, 10)), ("touchEnd", None)]
    for kind, moved in steps:
        points = [] if moved is None else [{"x": x, "y": y + moved}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        page.evaluate("() => new Promise(requestAnimationFrame)")
    return before - page.get_by_test_id("stMain").evaluate("it => it.scrollTop")


def test_on_a_phone_a_swipe_over_a_chart_moves_the_page_and_a_tap_shows_its_tools(browser, app_url):
    phone = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    page = phone.new_page()
    page.goto(f"{app_url}/deployment")
    chart = page.locator(".st-key-operators .js-plotly-plot").first
    bar = chart.locator(".modebar[data-twin=complete]")
    bar.wait_for(state="attached")
    rest(page)
    expect(bar).to_be_hidden()
    assert swiped(page, chart)
    expect(bar).to_be_hidden()
    chart.tap()
    expect(bar).to_be_visible()
    assert not swiped(page, chart)  # it zooms
    phone.close()


@pytest.mark.parametrize(
    "sought",
    some([("chunk (tok", "spinbutton", "Prefill chunk (tokens)")], ("torus", "combobox", "Wiring")),
    ids=lambda sought: sought[0],
)
def test_a_field_that_was_looked_for_is_in_view_and_has_the_keyboard(page: Page, sought):
    word, role, label = sought
    rest(page)
    box = page.get_by_role("combobox", name="Find a field")
    box.click()
    box.press_sequentially(word)
    expect(
        page.get_by_role("option").filter(has_not_text=re.compile(re.escape(word), re.I))
    ).to_have_count(0)
    page.get_by_role("option").first.wait_for()
    box.press("Enter")
    expect(page.get_by_role(role, name=label)).to_be_focused()
    expect(page.get_by_role(role, name=label)).to_be_in_viewport()


def test_a_kind_of_fault_shows_the_fields_of_its_own(page: Page):
    opened_group(page, "Faults")
    page.get_by_role("button", name="Typical faults").click()
    page.get_by_role("button", name="An optical module").click()
    expect(page.get_by_role("spinbutton", name="Links of the module")).to_have_value("4")
    expect(page.get_by_role("textbox", name="Other end of a single link")).to_have_value(
        "sub-plane 3"
    )
    page.keyboard.press("Escape")
    choose(page, "Kind", "Flapping")
    expect(page.get_by_role("spinbutton", name="Period")).to_be_visible()
    expect(page.get_by_role("spinbutton", name="Share of time down")).to_be_visible()
    expect(page.get_by_role("spinbutton", name="Links of the module")).to_have_count(0)


def test_a_controller_shows_its_fields(page: Page):
    opened_group(page, "Elasticity")
    expect(page.get_by_role("spinbutton", name="Decision interval")).to_have_count(0)
    choose(page, "Controller", "Prefill:decode re-balancing")
    expect(page.get_by_role("spinbutton", name="Decision interval")).to_be_visible()


def test_instances_are_seated_by_hand_in_a_table(page: Page):
    opened_group(page, "Pools")
    page.get_by_role("combobox", name="Instance placement").wait_for()
    tables = page.get_by_test_id("stDataFrame")
    expect(tables).to_have_count(1)  # of further models
    choose(page, "Instance placement", "By hand")
    expect(page.get_by_text("One row an instance, or several")).to_be_visible()
    expect(tables).to_have_count(2)
    expect(tables.first).to_be_visible()
