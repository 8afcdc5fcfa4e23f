"""Several models served, on the Deployment page: without a browser, and in one."""

import pytest
from playwright.sync_api import Page, expect

from tests.browsing import rest
from twin.ui.pages import PAGES


def test_what_switching_models_takes_stands_with_the_memory_pool(app):
    page = app.switch_page(PAGES["deployment"].script).run()
    page.get_by_key("deployment-group").set_value("Memory pool")
    page.run()
    page.number_input(key="cache-instances").set_value(2).run()
    page.number_input(key="cache-hours").set_value(2).run()
    assert not page.exception
    (table,) = (frame.value for frame in page.dataframe if "Stored in" in frame.value)
    shown = dict(zip(table["Stored in"], table["memory pool"], strict=True))
    assert (
        shown["Cold start"] == "269 s" and shown["DRAM for one model in every NPU slot"] == "1.00 x"
    )
    page.multiselect(key="cache-names").set_value(["qwen3-235b"]).run()
    assert not page.exception
    (table,) = (frame.value for frame in page.dataframe if "Stored in" in frame.value)
    assert table["memory pool"][0] != shown["Cold start"]
    page.text_input(key="cache-shares").set_value("50 30").run()
    assert any("2 shares for 8 models" in caption.value for caption in page.caption)
    page.text_input(key="cache-shares").set_value("").run()
    page.number_input(key="cache-rate").set_value(1_000_000).run()
    assert not page.exception
    assert any("200,000 requests" in caption.value for caption in page.caption)


@pytest.mark.browser
def test_a_fleet_of_several_models_answers_on_the_deployment_page(page: Page, app_url):
    page.goto(f"{app_url}/deployment")
    page.get_by_role("heading", level=1).first.wait_for()
    rest(page)
    chosen = page.get_by_test_id("stMain").get_by_role("radio", name="Memory pool", exact=True)
    chosen.click()
    expect(page.get_by_text("8 take 2,048 NPUs")).to_be_visible()
    rest(page)
    slots = page.get_by_role("spinbutton", name="NPU slots")
    slots.fill("2")
    slots.press("Enter")
    expect(page.get_by_text("2 take 512 NPUs")).to_be_visible()
    expect(page.locator(".st-key-model-waits .js-plotly-plot").first).to_be_visible()
