"""In a real browser: the evidence page fits a phone, and its address brings a row back."""

import pytest
from playwright.sync_api import expect

from tests.browsing import rest


def error(page):
    """The figure of the tile that a chosen row has."""
    return page.get_by_test_id("stMetric").filter(has_text="Error").first


@pytest.mark.browser
def test_in_a_browser_a_click_shows_a_row_and_its_address_brings_it_back(app_url, page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{app_url}/evidence?regime=decode")  # which opens the table
    page.get_by_text("Click a row for more").first.wait_for()
    rest(page)  # a table that is drawn anew swallows a click
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    table = page.get_by_test_id("stDataFrame").first
    table.locator(".dvn-scroller").click(position={"x": 20, "y": 35 * 2 + 18})
    page.wait_for_url("**row=*")
    rest(page)
    shown = error(page).inner_text()
    page.reload()
    page.get_by_text("Farthest off").first.wait_for()
    expect(error(page)).to_have_text(shown, use_inner_text=True)


@pytest.mark.browser
def test_in_a_browser_the_page_fits_two_screens(app_url, page):
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{app_url}/evidence")
    page.get_by_text("Farthest off").first.wait_for()
    page.locator(".js-plotly-plot").first.wait_for()
    rest(page)
    assert page.get_by_test_id("stMain").evaluate("it => it.scrollHeight") <= 2 * 800
