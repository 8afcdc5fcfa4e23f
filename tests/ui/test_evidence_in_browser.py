"""In a real browser: the evidence page fits a phone, and its address brings a row back."""

import pytest


def settled(page):
    """Wait until the page's script has come to its end."""
    page.wait_for_timeout(500)
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    page.wait_for_timeout(200)


@pytest.mark.browser
def test_in_a_browser_a_click_shows_a_row_and_its_address_brings_it_back(app_url, page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{app_url}/evidence?regime=decode")  # which opens the table
    page.get_by_text("Click a row for more").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    table = page.get_by_test_id("stDataFrame").first
    table.locator(".dvn-scroller").click(position={"x": 20, "y": 35 * 2 + 18})
    page.wait_for_url("**row=*")
    settled(page)
    error = page.get_by_test_id("stMetric").filter(has_text="Error").inner_text()
    page.reload()
    page.get_by_text("Farthest off").wait_for()
    page.get_by_test_id("stMetric").filter(has_text="Error").wait_for()
    settled(page)
    assert page.get_by_test_id("stMetric").filter(has_text="Error").inner_text() == error


@pytest.mark.browser
def test_in_a_browser_the_page_fits_two_screens(app_url, page):
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{app_url}/evidence")
    page.get_by_text("Farthest off").wait_for()
    page.locator(".js-plotly-plot").first.wait_for()
    settled(page)
    assert page.get_by_test_id("stMain").evaluate("it => it.scrollHeight") <= 2 * 800
