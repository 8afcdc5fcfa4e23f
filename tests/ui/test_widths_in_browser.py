"""No page is wider than its window, and none cuts a word or a number off, from phone to desk."""

import pytest

from tests.conftest import profile

pytestmark = pytest.mark.browser
PAGES = ("", "workload", "deployment", "supernode", "evidence", "library")
# What hides what does not fit and has more than fits. Cells of tables scroll.
CUT = """() => [...document.querySelectorAll('[data-testid=stMain] *')].filter(e => {
  const style = getComputedStyle(e)
  return style.overflowX === 'hidden' && style.position !== 'absolute' && e.innerText
    && e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1
    && !e.closest('[data-testid=stDataFrame]')
}).map(e => e.innerText)"""


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off(browser, app_url, name):
    context = profile(browser)
    page = context.new_page()
    page.goto(f"{app_url}/{name}")
    page.get_by_role("heading", level=1).wait_for()
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    for width in (1280, 768, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(700)  # until the page has taken its new shape
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
        assert page.evaluate(CUT) == [], width
    context.close()


def test_on_a_phone_choosing_a_page_closes_the_drawer(browser, app_url):
    context = profile(browser, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(app_url)
    page.get_by_role("heading", level=1).wait_for()
    page.get_by_test_id("stExpandSidebarButton").click()
    page.get_by_test_id("stSidebar").get_by_text("Library", exact=True).click()
    page.get_by_role("heading", name="Library", level=1).wait_for()
    page.get_by_test_id("stExpandSidebarButton").wait_for()
    context.close()
