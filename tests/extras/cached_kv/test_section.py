"""Cached KV on the Workload and the Deployment page: without a browser, and in one."""

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import opened_group, rest
from twin.ui.pages import PAGES


def set_field(page, path, value):
    page.get_by_key(f"field:{path}:{page.session_state['generation']}").set_value(value)
    return page.run()


def test_the_hit_ratio_by_size_is_drawn_where_prompts_share_blocks(app):
    page = app.switch_page(PAGES["workload"].script).run()
    page.get_by_key("workload-group").set_value("Shared prefixes")
    page.run()
    set_field(page, "workload.prefix", "shared")
    page.toggle(key="hit-curve").set_value(True).run()
    assert not page.exception
    assert any("The pool's DRAM" in caption.value for caption in page.caption)


def test_where_reading_breaks_even_stands_with_the_memory_pool(app):
    page = app.switch_page(PAGES["deployment"].script).run()
    page.get_by_key("deployment-group").set_value("Memory pool")
    page.run()
    assert not page.exception
    (table,) = (frame.value for frame in page.dataframe if "Breaks even at" in frame.value)
    assert table["Read from"].to_list() == ["DRAM over UB", "SSD over VPC", "DRAM over VPC"]
    assert all(text.endswith("B/s") for text in table["Breaks even at"])
    set_field(page, "memory_pool.enabled", False)
    assert "Read or compute again" not in [s.value for s in page.subheader]


@pytest.mark.browser
def test_where_reading_breaks_even_is_drawn_on_the_deployment_page(deployment: Page):
    opened_group(deployment, "Memory pool")
    expect(deployment.locator(".st-key-break-even .js-plotly-plot").first).to_be_visible()


@pytest.mark.browser
@pytest.mark.long  # the pictures of sections are in tests/ui/test_own_sections_in_browser.py
def test_hits_by_size_are_drawn_before_a_run(page: Page, app_url):
    page.goto(f"{app_url}/workload")
    page.get_by_role("heading", level=1).first.wait_for()
    rest(page)
    page.get_by_text("Hit ratio by size of the memory pool").click()
    expect(page.get_by_text("of an endless pool's")).to_be_visible()
    expect(page.locator(".st-key-hit-curve-chart .js-plotly-plot").first).to_be_visible()
