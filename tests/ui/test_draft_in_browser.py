"""In a real browser: a draft survives a reload, travels in its link, and fits a phone."""

import pytest
from playwright.sync_api import expect

from tests.browsing import copied_link, rest, still
from tests.draws import some

RATE = "Request rate (req/s)"
pytestmark = pytest.mark.browser


def open_page(page, address):
    page.goto(address)
    page.get_by_role("heading", level=1).wait_for()
    return page


def rate(page):
    return page.get_by_role("spinbutton", name=RATE)


def set_rate(page, value, shown):
    rate(page).fill(value)
    rate(page).press("Enter")
    page.get_by_text(shown).first.wait_for()
    page.wait_for_url("**/workload?s=*")
    rest(page)


def test_an_edited_draft_survives_a_reload_and_travels_in_its_link(app_url, page, page_elsewhere):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, f"{app_url}/workload")
    set_rate(page, "77", "77.0 req/s")
    page.reload()
    rate(page).wait_for()
    expect(rate(page)).to_have_value("77")
    link = copied_link(page, page.get_by_role("button", name="Copy link").click)
    open_page(page_elsewhere, link)
    rate(page_elsewhere).wait_for()
    expect(rate(page_elsewhere)).to_have_value("77")


@pytest.mark.parametrize(
    "way", some([("Compare and sweep", "Sweep")], (None, "Plan")), ids=lambda way: way[1]
)
def test_an_edited_draft_survives_a_reload_of_pages_that_are_about_it(app_url, page, way):
    section, name = way
    open_page(page, f"{app_url}/workload")
    set_rate(page, "77", "77.0 req/s")
    if section:
        opened_from(page, section, name)
    else:
        page.get_by_role("link", name=name).first.click()
    page.wait_for_url(f"**/{name.lower()}?*s=*")
    rest(page)
    page.reload()
    expect(page.get_by_text("1 change", exact=True)).to_be_visible()
    page.get_by_role("link", name="Start").first.click()
    expect(page.get_by_text("77.0 req/s").first).to_be_visible()


def test_a_page_that_is_left_before_it_is_drawn_gives_no_address_to_the_one_before(app_url, page):
    open_page(page, f"{app_url}/workload")
    set_rate(page, "77", "77.0 req/s")
    opened_from(page, "Library and reference", "Glossary")
    page.get_by_role("heading", name="Glossary", level=1).wait_for()
    rest(page)
    opened_from(page, "Build", "Deployment")
    page.wait_for_url("**/deployment*", wait_until="commit")
    page.go_back(wait_until="commit")
    page.get_by_role("heading", name="Glossary", level=1).wait_for()
    still(page)
    expect(page).to_have_url(f"{app_url}/glossary")


def opened_from(page, section, name):
    """Choose a page of a section in the navigation."""
    page.get_by_text(section, exact=True).first.click()
    page.get_by_test_id("stTopNavDropdownLink").filter(has_text=name).click()


def test_undo_takes_back_an_edit_and_a_page_change_keeps_one(app_url, page):
    open_page(page, f"{app_url}/workload")
    rest(page)
    first = rate(page).input_value()
    set_rate(page, "77", "77.0 req/s")
    page.get_by_role("link", name="Deployment").first.click()
    page.get_by_role("heading", name="Deployment", level=1).wait_for()
    page.get_by_role("link", name="Workload").first.click()
    rate(page).wait_for()
    expect(rate(page)).to_have_value("77")
    rest(page)
    page.get_by_role("button", name="undo icon").click()
    expect(page.get_by_text("77.0 req/s")).to_have_count(0)
    expect(rate(page)).to_have_value(first)
