"""Sections of a run in a real browser: pictures, a phone, axe-core."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests import axe
from tests.browsing import still
from tests.draws import some
from tests.ui.stored_runs import done, scenario
from tests.ui.test_accessibility_in_browser import broken_rules
from tests.ui.test_own_sections import DAY, PRESETS, moved, read_back, tenants_served
from twin.lab.store import open_store

pytestmark = pytest.mark.browser
# A run's section: its subheadings, and how many pictures it draws.
SECTIONS = {
    "Instances": (["Lives of the instances", "NPUs by pool", "What the controller saw",
                   "Decisions"], 3),
    "Day": (["NPUs by pool", "NPU-hours used and wasted", "Energy", "Prompt tokens found cached",
             "Memory pool used", "Requests that came"], 6),
    "Clients": (["Tenants", "Why requests came to nothing", "Sessions"], 3),
    "Memory pool": (["Hit ratio and fill", "Read from DRAM", "Hit ratio by namespace",
                     "Memory servers"], 4),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(served_db):
    """A run of made-up figures for each section."""
    store = open_store(served_db)
    made = {
        "Instances": moved(store),
        "Day": done(store, scenario(**DAY)),
        "Clients": tenants_served(store, PRESETS["two-tenants"]),
        "Memory pool": read_back(store, PRESETS["two-tenants"]),
    }
    store.close()
    return made


@pytest.mark.parametrize("section", some(["Instances"], "Memory pool", "Day", "Clients"))
def test_a_section_draws_what_it_tells_at_any_width(page: Page, app_url, runs, section):
    headings, pictures = SECTIONS[section]
    page.emulate_media(color_scheme="dark")
    page.goto(f"{app_url}/run?run={runs[section]}&section={section.replace(' ', '+')}")
    for heading in headings:
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(page.locator(".stPlotlyChart .js-plotly-plot")).to_have_count(pictures)
    still(page)
    if script := axe.find():
        page.evaluate(script.read_text("utf-8"))
        assert broken_rules(page) == []
    page.set_viewport_size({"width": 390, "height": 900})
    still(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_back_from_a_page_that_a_button_opened_leads_to_the_page_as_it_was(
    page: Page, app_url, runs
):
    page.goto(f"{app_url}/run?run={runs['Day']}&section=Latency")
    still(page)
    address, length = page.url, page.evaluate("history.length")
    page.get_by_role("button", name="Edit a copy").click()
    expect(page).to_have_url(re.compile("/workload[?]s=[^&]*$"))
    still(page)  # an address that comes after Back would be that of the page before
    assert page.evaluate("history.length") == length + 1
    page.go_back()
    expect(page).to_have_url(address)
    page.get_by_role("button", name="Compare with").click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page).to_have_url(re.compile("/compare[?]runs=[^&]*$"))
    still(page)
    page.go_back()
    expect(page).to_have_url(address)
