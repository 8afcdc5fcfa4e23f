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


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_is_cut_off(browser, app_url, width):
    context = profile(browser, viewport={"width": width, "height": 900})
    page = context.new_page()
    for name in PAGES:
        page.goto(f"{app_url}/{name}")
        page.get_by_role("heading", level=1).wait_for()
        page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(CUT) == [], name
    context.close()
