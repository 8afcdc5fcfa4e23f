"""What tests share: the command line, a running dashboard, a real browser, real traces."""

from __future__ import annotations

import gc
import logging
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests import chromium, draws

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT.parent / "shared" / "traces"
PATIENCE_S = 120  # how long a page may take: a busy machine is no reason for a test to fail
PATIENCE_MS = 1000 * PATIENCE_S
# Test processes share the cores, as those of runs do: threads of a library that wait for work of
# microseconds take processor from the others. tests/laws/test_determinism.py compares with two.
for name in ("POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# What is logged is no output of a test, unless the test says where it goes.
logging.getLogger().addHandler(logging.NullHandler())
# What a developer has set for a twin of their own, or for a terminal, is none of a test's business.
for name in ("TWIN_DB_URL", "TWIN_ARTIFACTS", "TWIN_CALIBRATION", "FORCE_COLOR", "COLUMNS"):
    os.environ.pop(name, None)


# Who prefers reduced motion still sees Streamlit's signs of waiting turn, frame by frame.
UNMOVED = """const unmoved = new CSSStyleSheet()
unmoved.replaceSync(`@media (prefers-reduced-motion: reduce) {
  *, ::before, ::after {
    animation: none !important; transition-duration: 1ms !important; transition-delay: 0s !important
  }
}`)
document.adoptedStyleSheets = [unmoved]
"""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give one process all files that share what takes seconds to make, and others whole files."""
    from xdist.scheduler import LoadScopeScheduling

    class Shared(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _shares(file) or file

    return Shared(config, log) if config.getvalue("dist") == "loadfile" else None


# What tests share is made once in a process; files that need it, by what stands in them.
SHARED = {
    "app_url": "a dashboard and a browser",
    "deployment: Page": "a dashboard and a browser",
    "lab.plan.small": "a plan",
    "evidence(": "the judged rows",
    "coverages(": "the judged rows",
    "docs.make import": "the judged rows",
    "import covered": "the judged rows",
    "nodes(path)": "the syntax trees of all files",
}


@cache
def _shares(file: str) -> str:
    text = (ROOT / file).read_text("utf-8")
    return next((made for word, made in SHARED.items() if word in text), "")


def pytest_configure(config: pytest.Config) -> None:
    draws.LONG = config.option.markexpr != "not long"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Search for no garbage while tests are collected: all that is made then stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of every later search for garbage.

    It stays to the end, and there is much of it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)  # tests make much that goes at once


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    without = [r for r in skipped if chromium.MISSING in str(r.longrepr)]
    if without:
        terminalreporter.section(f"{len(without)} browser tests did not run", red=True)
        terminalreporter.line(chromium.MISSING, red=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """What a browser showed when its test failed, beside the reason."""
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    closed = getattr(page, "is_closed", lambda: True)  # a page without a browser has none
    if report.when == "call" and report.failed and not closed():
        report.sections.append((page.url, page.locator("body").inner_text()[:3000]))
    return report


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real traces, which is not part of the project."""
    if not TRACES.is_dir():
        pytest.skip(f"no real traces at {TRACES.relative_to(ROOT.parent)} beside the project")
    return TRACES


@pytest.fixture
def twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """The command line, in this process, on an empty store: words in, what came of them out."""
    from twin.__main__ import main

    monkeypatch.setenv("TWIN_DB_URL", f"sqlite:///{tmp_path / 'twin.db'}")
    monkeypatch.chdir(ROOT)

    def command(*words: str) -> subprocess.CompletedProcess[bytes]:
        monkeypatch.setattr(sys, "argv", ["twin", *words])
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        written = capsysbinary.readouterr()
        code = end.value.code
        assert code is None or isinstance(code, int)
        return subprocess.CompletedProcess(words, code or 0, written.out, written.err)

    return command


@pytest.fixture(scope="session")
def served_db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The database of the dashboard at `app_url`, the same for all tests."""
    return f"sqlite:///{tmp_path_factory.mktemp('served') / 'twin.db'}"


@pytest.fixture(scope="session")
def app_url(served_db: str) -> Iterator[str]:
    """The address of a dashboard, the same for all tests: none may count on an empty store."""
    log = Path(served_db.removeprefix("sqlite:///")).with_name("server.log")
    with dashboard(served_db, log) as url:
        yield url


@contextmanager
def dashboard(database: str, log: Path) -> Iterator[str]:
    """A dashboard on a database while it is asked for: its address."""
    port = free_port()
    with log.open("wb") as written:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.served", "run", "app.py", f"--server.port={port}"],
            cwd=ROOT, env={**os.environ, "TWIN_DB_URL": database}, stdin=subprocess.DEVNULL,
            stdout=written, stderr=subprocess.STDOUT,
        )  # fmt: skip
        url = f"http://localhost:{port}"
        try:
            wait_until_healthy(url, server, log)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium; every test that asks for it is a browser test."""
    path = chromium.find()
    if path is None:
        pytest.skip(chromium.MISSING)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=chromium.FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def visits(browser: Browser) -> Iterator[BrowserContext]:
    """One profile for the visits of all tests: all but the first find scripts in its cache."""
    yield from shared_profile(browser)


@pytest.fixture(scope="session")
def visits_elsewhere(browser: Browser) -> Iterator[BrowserContext]:
    """The profile of somebody else, for all tests too."""
    yield from shared_profile(browser)


@pytest.fixture
def page(visits: BrowserContext) -> Iterator[Page]:
    """A page, 1280 x 900, of somebody who was never here before."""
    with first_visit(visits) as page:
        yield page


@pytest.fixture
def page_elsewhere(visits_elsewhere: BrowserContext) -> Iterator[Page]:
    """A page of somebody else, who was never here before either."""
    with first_visit(visits_elsewhere) as page:
        yield page


@pytest.fixture(scope="session")
def deployment(visits: BrowserContext, app_url: str) -> Iterator[Page]:
    """The Deployment page, on which tests open one group of fields after the other."""
    page = visits.new_page()
    page.goto(f"{app_url}/deployment")
    page.get_by_role("heading", level=1).first.wait_for()
    yield page
    page.close()


def shared_profile(browser: Browser) -> Iterator[BrowserContext]:
    """A profile to the end of all tests."""
    context = profile(browser)
    # Pages of this machine share a process, which ends with the last of them: an empty one stays,
    # and the next finds compiled what one before it has compiled.
    stays = context.new_page()
    stays.route("**", lambda route: route.fulfill(body=""))
    stays.goto("http://localhost")
    yield context
    context.close()


@contextmanager
def first_visit(visits: BrowserContext) -> Iterator[Page]:
    """A page in a profile that then forgets what the page has stored, and what it was allowed."""
    page = visits.new_page()
    yield page
    at = urlsplit(page.url)
    if at.netloc:
        stored = {"origin": f"{at.scheme}://{at.netloc}", "storageTypes": "cookies,local_storage"}
        visits.new_cdp_session(page).send("Storage.clearDataForOrigin", stored)
    page.close()
    visits.clear_permissions()


def profile(browser: Browser, **options: Any) -> BrowserContext:
    """A fresh profile, 1280 x 900 unless told, that waits as long as a busy machine needs.

    Without motion unless told: whatever fades or turns is drawn sixty times a second.
    """
    usual = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
    context = browser.new_context(**usual | options)
    context.add_init_script(UNMOVED)
    context.set_default_timeout(PATIENCE_MS)
    return context


def free_port() -> int:
    """A port that nobody listens at, of those that no outgoing connection is given.

    Drawn at random: two test processes that ask at once get different ones.
    """
    while True:
        port = random.SystemRandom().randrange(11_000, 32_000)  # above those a browser refuses
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


def wait_until_healthy(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as answer:
                if answer.read() == b"ok":
                    return
        except OSError:
            time.sleep(0.25)
    pytest.fail(f"the dashboard did not start:\n{log.read_text()[-2000:]}")
