"""How soon a visitor is answered, in a real browser: a moved slider, and the very first page.

`python -m tests.benchmarks.bench_slider [--moves 20]` starts a server on an empty store, moves a
slider that many times and prints how long the formula's and the simulation's answers took, and how
busy the machine was. The clock is the page's own, from the key to the frame after the text has
changed. With `--first` Run is pressed as soon as it is there, and the times are those of the first
picture, the first answer and the first own run of a server that `make serve` set up; with `--cold`
the same where nothing has been compiled.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def served(*, cold: bool) -> Iterator[str]:
    """Address of a server on an empty store."""
    with tempfile.TemporaryDirectory() as home:
        log, port = Path(home) / "server.log", free_port()
        environment = {**os.environ, "TWIN_DB_URL": f"sqlite:///{home}/twin.db"}
        if cold:
            (Path(home) / "kernels").mkdir()
            environment["NUMBA_CACHE_DIR"] = f"{home}/kernels"
        command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
        pipes: dict[str, Any] = {"stdout": log.open("wb"), "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as server:
            try:
                wait_until_healthy(f"http://localhost:{port}", server, log)
                yield f"http://localhost:{port}"
            finally:
                server.terminate()


def first_times(page: Page, url: str) -> dict[str, float]:
    """Seconds from opening the page to its first picture and answer, and from Run to a result."""
    opened_s = time.perf_counter()
    page.goto(url)
    times = {}
    for name, what in (
        ("answer", page.locator(".st-key-verdict h3")),
        ("picture", page.locator("[data-draw]").first),
        ("button", page.get_by_role("button", name="of traffic")),
    ):
        what.wait_for()
        times[name] = time.perf_counter() - opened_s
    page.get_by_role("button", name="of traffic").click()
    pressed_s = time.perf_counter()
    page.get_by_text("laws held").first.wait_for()
    times["own run, from Run"] = time.perf_counter() - pressed_s
    return times


def main() -> None:
    """Start a server, move or open, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--page", default="")
    parser.add_argument("--pause-s", type=float, default=0.5)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--cold", action="store_true")
    given = parser.parse_args()
    with served(cold=given.cold) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=chromium.FLAGS)
        page = browser.new_page(bypass_csp=True, viewport={"width": 1280, "height": 900})
        page.set_default_timeout(110_000)
        if given.first or given.cold:
            for name, took_s in first_times(page, url).items():
                print(f"{name}: {took_s:.1f} s")  # noqa: T201
        else:
            page.goto(f"{url}/{given.page}")
            page.get_by_text("Simulated:").first.wait_for()
            moves(page, 3, 0.5)
            took = moves(page, given.moves, given.pause_s)
            print(told("formula", [formula for formula, _ in took]))  # noqa: T201
            print(told("simulation", [simulation for _, simulation in took]))  # noqa: T201
        browser.close()
    print(f"load {os.getloadavg()[0]:.1f}")  # noqa: T201


if __name__ == "__main__":
    main()
