"""The tour points at real controls, works by keys alone, can be left, and is not offered twice."""

import pytest
from playwright.sync_api import expect

from tests.browsing import rest, until
from twin.extras.tour.tour import STEPS

pytestmark = pytest.mark.browser
RING_PX = 16
# The ring lies around an element; the tour's own elements stand in a shadow root.
AROUND = """([target, most]) => {
  const rings = [...document.querySelectorAll('.st-key-tour *')]
    .map(e => e.shadowRoot?.querySelector('#ring')).filter(Boolean)
  const [a, b] = [rings[0].getBoundingClientRect(), target.getBoundingClientRect()]
  return ['x', 'y', 'width', 'height'].every(side => Math.abs(a[side] - b[side]) < most)
}"""


@pytest.fixture
def visit(page, app_url):
    """A browser that was never here, at the first page."""
    page.goto(app_url)
    page.get_by_role("button", name="Take the two-minute tour").wait_for()
    rest(page)
    return page


def card(page):
    return page.get_by_role("dialog")


def test_every_step_points_at_what_it_speaks_of_and_enter_goes_on(visit):
    visit.get_by_role("button", name="Take the two-minute tour").press("Enter")
    for number, (key, (title, _)) in enumerate(STEPS.items(), 1):
        card(visit).get_by_role("heading", name=title).first.wait_for()
        card(visit).get_by_text(f"{number} of {len(STEPS)}", exact=True).first.wait_for()
        target = visit.locator(f".st-key-{key}")
        target.wait_for()
        until(lambda on=target: visit.evaluate(AROUND, [on.element_handle(), RING_PX]))
        card(visit).get_by_role("button", name="Next").or_(
            card(visit).get_by_role("button", name="Done")
        ).press("Enter")
    expect(card(visit)).to_be_hidden()
    visit.reload()
    visit.get_by_role("button", name="Two-minute tour", exact=True).wait_for()
    rest(visit)
    expect(visit.get_by_text("New here?")).to_be_hidden()


def test_escape_leaves_it_and_a_skip_is_remembered(visit):
    visit.get_by_role("button", name="Take the two-minute tour").click()
    card(visit).wait_for()
    visit.keyboard.press("Escape")
    expect(card(visit)).to_be_hidden()
    assert visit.evaluate("localStorage.getItem('twin-tour-seen')") == "yes"
    visit.evaluate("localStorage.clear()")
    visit.reload()
    visit.get_by_role("button", name="Skip", exact=True).click()
    visit.get_by_role("button", name="Two-minute tour", exact=True).wait_for()


def test_it_fits_a_phone(visit):
    visit.set_viewport_size({"width": 390, "height": 844})
    visit.get_by_role("button", name="Take the two-minute tour").click()

    def fits():
        box = card(visit).bounding_box()
        across = box["x"] >= 0 and box["x"] + box["width"] <= 390
        return across and box["y"] >= 0 and box["y"] + box["height"] <= 844

    for number in range(len(STEPS)):
        card(visit).get_by_text(f"{number + 1} of {len(STEPS)}", exact=True).first.wait_for()
        until(fits)
        card(visit).locator("#next").click()
