"""A real Chromium for the browser tests: found, or installed where that is possible.

`python -m tests.chromium --install` is a step of `make test`. It never fails: where there is no
browser and none can be had it says so, and the browser tests skip and say so again. It knows
nothing about the pages.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# The shell is the same engine without windows of its own, whose menus and tabs are pages too: it
# takes half the processor.
SHELL = "chromium-headless-shell"
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")

# Headless, as root in a container, and silent: a browser that calls home makes tests wait.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    # Pages of one profile share a process: what one has compiled, the next finds.
    "--process-per-site",
    "--renderer-process-limit=1",
    # A page of a test does not live long enough to repay its scripts' optimisation.
    "--js-flags=--no-opt --no-maglev --max-lazy --no-flush-bytecode",
]

# Debian's packages, in this order of preference.
PACKAGES = (SHELL, "chromium")
FONTS = "fonts-liberation"  # without any, a browser draws boxes and measures them

MISSING = (
    "NO BROWSER: no Chromium was found and none could be installed, so every browser test is "
    "skipped. Install chromium, or name one in TWIN_CHROMIUM."
)


def find() -> str | None:
    """Path of a Chromium: TWIN_CHROMIUM, then one on the path, then Playwright's own."""
    named = os.environ.get("TWIN_CHROMIUM")
    if named:
        return named
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return found or _own()


def _own() -> str | None:
    """Playwright's own download, when there is one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def install() -> str | None:
    """A Chromium, from Debian's packages as root on Debian, else from Playwright."""
    if found := find():
        return found
    if os.geteuid() == 0 and Path("/etc/debian_version").exists():
        _try("apt-get", "update", "-qq")
        for package in PACKAGES:
            _try("apt-get", "install", "-y", "-qq", "--no-install-recommends", package, FONTS)
            if found := find():
                return found
    _try(sys.executable, "-m", "playwright", "install", "chromium")
    return find()


def _try(*command: str) -> None:
    """Run a command whose failure is answered by looking again."""
    print("+", *command, flush=True)  # noqa: T201 - a step of make test
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, check=False, env=quiet, stdin=subprocess.DEVNULL, timeout=600)


if __name__ == "__main__":
    path = install() if "--install" in sys.argv else find()
    print(f"Chromium for the browser tests: {path}" if path else MISSING)  # noqa: T201
