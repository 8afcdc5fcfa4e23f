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
