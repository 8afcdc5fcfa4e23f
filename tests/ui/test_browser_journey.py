"""The main job in a real browser: preset, Run, results, copy link, opened by somebody else."""

import re
import sqlite3
from contextlib import closing

import pytest
from playwright.sync_api import expect

from tests.browsing import copied_link, rest, until
from tests.conftest import first_visit

pytestmark = pytest.mark.browser
PHONE = {"width": 390, "height": 844}
RUN_MS = 600_000  # the first start on a machine compiles the engine


@pytest.fixture(scope="module")
def finished(app_url, visits):
    """A run made by pressing Run on a preset, seen to its results; its page stays open."""
    with first_visit(visits) as page:
        visits.grant_permissions(["clipboard-read", "clipboard-write"])
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(app_url)
        page.locator(".st-key-run-quickstart button").locator("visible=true").first.click()
        page.wait_for_url("**/run?run=*")
        page.get_by_text(re.compile(r"All \d+ laws held")).first.wait_for(timeout=RUN_MS)
        expect(page.get_by_role("heading", name="Quick start", level=1)).to_have_count(1)
        yield page


def tiles(page):
    rest(page)
    page.get_by_test_id("stMetric").nth(9).wait_for()
    texts = page.get_by_test_id("stMetric").all_inner_texts()
    return [text for text in texts if not text.startswith("Headroom")]  # comes with its explanation


def test_a_preset_runs_and_its_link_opens_the_same_page_elsewhere_and_on_a_phone(
    finished, page_elsewhere
):
    link = copied_link(finished, finished.get_by_role("button", name="Copy link").click)
    assert re.search(r"/run\?run=[\w-]{22,}&asked=[\w-]+$", link)
    other = page_elsewhere
    other.goto(link)
    expect(other.get_by_role("heading", name="Quick start", level=1)).to_have_count(1)
    other.get_by_text(re.compile(r"All \d+ laws held")).first.wait_for()
    until(lambda: tiles(other) == tiles(finished))
    expect(other.get_by_role("radio", name="Causes", exact=True)).to_be_checked()
    other.set_viewport_size(PHONE)
    rest(other)
    assert other.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    expect(finished.get_by_role("button", name="Copy link")).to_be_visible()  # again


def test_a_run_whose_link_was_handed_out_stays(finished, served_db):
    expect(finished.get_by_role("button", name="Copy link")).to_be_visible()  # says no more
    copied_link(finished, finished.get_by_role("button", name="Copy link").click)
    run = finished.url.partition("run=")[2].partition("&")[0]
    with closing(sqlite3.connect(served_db.removeprefix("sqlite:///"), timeout=60)) as database:
        asked = "select published_s from runs where id = ? and published_s is not null"
        until(lambda: database.execute(asked, (run,)).fetchall())


def test_a_section_is_part_of_the_address_and_draws_its_picture(finished):
    finished.get_by_test_id("stMain").get_by_role("radio", name="Fabric", exact=True).click()
    finished.wait_for_url("**section=Fabric*")
    finished.locator("canvas").first.wait_for()
    finished.reload()
    finished.locator("canvas").first.wait_for()


@pytest.mark.long  # the first section is looked at by whoever opens the link
@pytest.mark.parametrize("section", ["Why", "Load", "Latency", "Scenario"])
def test_results_fit_a_phone(finished, page_elsewhere, section):
    page = page_elsewhere
    page.set_viewport_size(PHONE)
    page.goto(f"{finished.url.partition('&')[0]}&section={section}")
    page.get_by_text(re.compile(r"All \d+ laws held")).first.wait_for()
    page.get_by_role("heading", level=3).first.wait_for()
    rest(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_table_downloads(finished):
    rest(finished)
    finished.get_by_text("Download", exact=True).first.click()
    with finished.expect_download() as caught:
        finished.get_by_role("button", name="JSON").click()
    assert re.fullmatch(r"quick-start-.{8}-summary\.json", caught.value.suggested_filename)
