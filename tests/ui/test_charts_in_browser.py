"""In a real browser: the bar of any chart zooms, and gives the picture and the numbers away."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browsing import rest


@pytest.mark.browser
def test_in_a_browser_any_chart_is_taken_away_as_png_svg_and_csv(app_url, page):
    page.goto(f"{app_url}/deployment")
    chart = page.locator(".st-key-operators .js-plotly-plot").first
    bar = chart.locator(".modebar[data-twin=complete]")
    bar.wait_for(state="attached")
    rest(page)
    chart.hover()
    for title in ("Zoom", "Pan", "Reset axes"):
        expect(bar.locator(f'[data-title="{title}"]')).to_have_count(1)
    kept = {}
    for title in ("Download as SVG", "Download the numbers as CSV", "Download plot as a PNG"):
        with page.expect_download() as waiting:
            bar.locator(f'[data-title="{title}"]').click()
        kept[waiting.value.suggested_filename] = Path(waiting.value.path()).read_bytes()
    assert {name.rpartition(".")[2] for name in kept} == {"svg", "csv", "png"}
    by_kind = {name.rpartition(".")[2]: body for name, body in kept.items()}
    assert by_kind["svg"].startswith(b"<svg") and by_kind["png"].startswith(b"\x89PNG")
    rows = by_kind["csv"].decode().splitlines()
    assert rows[0].startswith("series,") and "iteration" in rows[0]
    drawn = chart.locator(".bars .point").count()
    assert len(rows) - 1 == drawn > 3
