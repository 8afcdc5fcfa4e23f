"""How soon a moved slider is answered, in a real browser: by formula, and by simulation.

`python -m tests.benchmarks.bench_slider [--moves 20] [--page start]` starts a server on an empty
store, moves a slider that many times and prints both distributions in seconds, and how busy the
machine was. The clock is the page's own, from the key to the frame after the text has changed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests import chromium
from tests.conftest import ROOT, free_port, wait_until_healthy

# Notes when the verdict by formula, and the chip of the simulation, show another text.
WATCH = """
() => {
  const seen = globalThis.seen = {}
  const texts = () => ({
    formula: document.querySelector('.st-key-verdict')?.innerText ?? '',
    simulation: [...document.querySelectorAll('.st-key-simulated')].map(e => e.innerText).join(),
  })
  globalThis.begin = () => {
    Object.assign(seen, {at: performance.now(), was: texts(), formula: null, simulation: null})
  }
  const look = () => {
    const now = texts()
    if (seen.was && seen.formula === null && now.formula && now.formula !== seen.was.formula)
      seen.formula = performance.now() - seen.at
    if (seen.was && seen.formula !== null && seen.simulation === null
        && now.simulation.includes('Simulated') && now.simulation !== seen.was.simulation)
      seen.simulation = performance.now() - seen.at
    requestAnimationFrame(look)
  }
  look()
}"""


def moves(page: Page, count: int, pause_s: float) -> list[tuple[float, float]]:
    """Seconds to the formula's and to the simulation's answer of every move of a slider."""
    page.evaluate(WATCH)
    slider = page.get_by_role("slider").first
    slider.focus()
    took = []
    for turn in range(count):
        page.evaluate("begin()")
        page.keyboard.press("ArrowLeft" if turn % 6 < 3 else "ArrowRight")
        page.wait_for_function("seen.simulation !== null", timeout=30_000)
        formula_ms, simulation_ms = page.evaluate("[seen.formula, seen.simulation]")
        took.append((formula_ms / 1e3, simulation_ms / 1e3))
        time.sleep(pause_s)
    return took


def told(name: str, values: list[float]) -> str:
    """A distribution in one line."""
    ordered = sorted(values)
    parts = {p: ordered[min(len(ordered) - 1, int(p / 100 * len(ordered)))] for p in (10, 90)}
    return (
        f"{name}: median {statistics.median(ordered):.2f} s, p10 {parts[10]:.2f}, "
        f"p90 {parts[90]:.2f}, from {ordered[0]:.2f} to {ordered[-1]:.2f} ({len(ordered)} moves)"
    )


def main() -> None:
    """Start a server, move, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--page", default="")
    parser.add_argument("--pause-s", type=float, default=0.5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        log, port = Path(home) / "server.log", free_port()
        environment = {**os.environ, "TWIN_DB_URL": f"sqlite:///{home}/twin.db"}
        command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
        pipes: dict[str, Any] = {"stdout": log.open("wb"), "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as server:
            try:
                wait_until_healthy(f"http://localhost:{port}", server, log)
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(
                        executable_path=chromium.find(), args=chromium.FLAGS
                    )
                    page = browser.new_page(
                        bypass_csp=True, viewport={"width": 1280, "height": 900}
                    )
                    page.goto(f"http://localhost:{port}/{given.page}")
                    page.get_by_text("Simulated:").first.wait_for(timeout=90_000)
                    moves(page, 3, 0.5)
                    took = moves(page, given.moves, given.pause_s)
                    browser.close()
            finally:
                server.terminate()
    print(f"load {os.getloadavg()[0]:.1f}")  # noqa: T201
    print(told("formula", [formula for formula, _ in took]))  # noqa: T201
    print(told("simulation", [simulation for _, simulation in took]))  # noqa: T201


if __name__ == "__main__":
    main()
