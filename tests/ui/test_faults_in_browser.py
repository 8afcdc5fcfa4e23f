"""The forms of faults and of seats in a real browser: fields of a kind, a table of seats."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import choose, rest

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(visits, app_url: str) -> Iterator[Page]:
    """The Deployment page, which both tests use one after the other."""
    page = visits.new_page()
    page.goto(f"{app_url}/deployment")
    page.get_by_role("heading", level=1).first.wait_for()
    yield page
    page.close()


def opened(page: Page, group: str):
    rest(page)
    page.get_by_test_id("stMain").get_by_role("radio", name=group, exact=True).click()
    rest(page)


def test_a_kind_of_fault_shows_the_fields_of_its_own(page: Page):
    opened(page, "Faults")
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


def test_instances_are_seated_by_hand_in_a_table(page: Page):
    opened(page, "Pools")
    page.get_by_role("combobox", name="Instance placement").wait_for()
    tables = page.get_by_test_id("stDataFrame")
    expect(tables).to_have_count(1)  # of further models
    choose(page, "Instance placement", "By hand")
    expect(page.get_by_text("One row an instance, or several")).to_be_visible()
    expect(tables).to_have_count(2)
    expect(tables.first).to_be_visible()
