"""The picture of the README: a finished run in the dashboard, as a real browser shows it.

`make picture` writes docs/dashboard.png anew, from a run made in a store of its own.
"""

import os
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.chromium import FLAGS, find
from tests.conftest import free_port, wait_until_healthy
from twin.lab.ask import scenario_named
from twin.lab.library import ROOT
from twin.lab.runs.answer import answer_scenario

PICTURE = ROOT / "docs" / "dashboard.png"
COLOURS = 128  # of the palette: the file stays below 300 KB
WIDTH, HEIGHT = 1280, 1400


def picture() -> bytes:
    """The results page of the quick start as a PNG."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["TWIN_DB_URL"] = f"sqlite:///{home}/twin.db"
        run = answer_scenario(scenario_named("quickstart"), None, lambda fraction, live: True)[
            "run"
        ]
        port = free_port()
        log = Path(home) / "log"
        with log.open("wb") as said:
            server = subprocess.Popen(
                [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip
            try:
                wait_until_healthy(f"http://localhost:{port}", server, log)
                return _shot(f"http://localhost:{port}/run?run={run}")
            finally:
                server.terminate()
                server.wait()


def _shot(address: str) -> bytes:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=FLAGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(address)
        page.get_by_test_id("stMetric").nth(9).wait_for(timeout=120_000)
        explain = page.get_by_role("button", name="Explain this run")
        if explain.is_visible():  # a server without other work begins by itself
            explain.click()
        page.get_by_role("button", name="Apply and compare").first.wait_for(timeout=600_000)
        page.wait_for_timeout(2000)  # what was there before fades
        content = page.screenshot()
        browser.close()
    image = Image.open(BytesIO(content)).convert("RGB").quantize(COLOURS)
    small = BytesIO()
    image.save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    PICTURE.write_bytes(picture())
