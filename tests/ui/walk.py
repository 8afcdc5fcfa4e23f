"""A walk of random real clicks over all pages, replayable by its seed.

`python -m tests.ui.walk --clicks 2000 --seed 1` starts a server on a store with a few runs and lets
one visitor press, type, drag and choose whatever is on screen, by mouse and by keys. It stops at
nothing; it notes every error box, error in the browser's console, traceback of the server, page
that does not come to rest, and place without a way out, each with the last things that were done.
"""

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Error, Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests import chromium
from tests.conftest import dashboard, profile
from tests.ui.playback_run import done_broken
from tests.ui.stored_runs import done, scenario
from tests.visitors import complaints
from twin.lab.library import presets
from twin.lab.store import open_store
from twin.ui.pages import FIRST, PAGES

REST_S = 120.0  # a page that works longer than this without an end is a fault
CLOSING = 30  # tenths of a second that what lies over a page may take to close
ELSEWHERE = 0.04  # share of steps that open a page by its address, as from a bookmark
BACK = 0.04  # share that go back
LEFT = "callback is no longer runnable"  # of a script whose document is gone
COSTLY = re.compile(r"Run|Why|Where does|Fail a node|Sweep|Apply|Explain|Compute|Find", re.I)
COSTLY_SHARE = 0.15  # of the chances to start a simulation, which all compete for two cores
TEXTS = ("", "0", "1", "-1", "3.5", "1e9", "abc", "*b* <i> [x](y)", "node 3", "ünïcode ✓ " * 9)
KEYS = ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown")
# Lines of a console that no page of ours can help.
# (Streamlit looks for its server below the address of a page first; its menu can record a screen.)
NOT_OURS = re.compile(
    r"favicon|net::ERR_ABORTED|ResizeObserver loop|/_stcore/(health|host-config)|Permissions policy"
)

# Marks what can be acted on now; inside an open dialog or menu only what is in it.
LOOK = """() => {
  const shown = e => e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})
    && e.getBoundingClientRect().width > 3 && e.getBoundingClientRect().height > 3
  const kinds = {
    link: 'a[href]', slider: '[role=slider],input[type=range]', select: '[role=combobox]',
    text: 'input[type=text],input[type=number],input[type=search],input:not([type]),textarea',
    choice: '[role=radio],[role=tab],[role=checkbox],[role=switch],[role=option],[role=menuitem],' +
      'label:has(input[type=radio]),label:has(input[type=checkbox]),summary',
    button: 'button,[role=button]', picture: 'canvas,.js-plotly-plot',
  }
  const roots = [document]
  for (const e of document.querySelectorAll('*')) if (e.shadowRoot) roots.push(e.shadowRoot)
  const all = selector => roots.flatMap(r => [...r.querySelectorAll(selector)])
  const over = all('[role=dialog],[data-testid=stPopoverBody],[role=listbox],[role=menu]')
    .filter(shown)
  const inside = e => over.some(o => o.contains(e) || o.contains(e.getRootNode().host))
  const once = new Set()
  window.walked = []
  const told = []
  for (const [kind, selector] of Object.entries(kinds)) for (const e of all(selector)) {
    if (once.has(e) || !shown(e) || e.disabled || e.ariaDisabled === 'true') continue
    if (kind === 'link' && (e.target === '_blank' || e.origin !== location.origin)) continue
    once.add(e)
    const label = (e.getAttribute('aria-label') || e.innerText || e.placeholder || e.title || '')
    told.push({kind, name: label.trim().replace(/\\s+/g, ' ').slice(0, 60), over: inside(e),
      index: window.walked.push(e) - 1})
  }
  return {controls: told, over: over.length}
}"""
POINT = """([index, along, down]) => {
  const e = window.walked[index]
  if (!e || !e.isConnected) return null
  e.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'})
  const r = e.getBoundingClientRect()
  const x = r.x + along * r.width, y = r.y + down * r.height
  let top = document.elementFromPoint(x, y)
  while (top && top.shadowRoot && top.shadowRoot.elementFromPoint(x, y) !== top)
    top = top.shadowRoot.elementFromPoint(x, y)
  const label = e.closest('label')
  const same = top && label && top.closest('label') === label
  return top && (same || e.contains(top) || top.contains(e)) ? {x, y} : null
}"""
BOXES = """() => [...document.querySelectorAll('[data-testid=stException]')].map(e => e.innerText)
  .concat(/Connection error|app has encountered an error/.test(document.body.innerText)
    ? [document.body.innerText.slice(0, 300)] : [])"""


@dataclass
class Seen:
    """What happened: how many steps of which kind on which page, and what went wrong."""

    steps: Counter[str] = field(default_factory=Counter)
    pages: Counter[str] = field(default_factory=Counter)
    wrong: list[dict[str, Any]] = field(default_factory=list)
    trail: deque[str] = field(default_factory=lambda: deque(maxlen=12))

    def note(self, what: str, where: str) -> None:
        """Keep a fault, once, with what was done before it."""
        if not any(one["what"] == what for one in self.wrong):
            self.wrong.append({"what": what, "where": where, "after": list(self.trail)})


class Walker:
    """One visitor who does whatever can be done."""

    def __init__(self, page: Page, url: str, log: Path, seed: int) -> None:
        self.page, self.url, self.log, self.seen = page, url, log, Seen()
        self._draw = random.Random(seed)
        self._written = log.stat().st_size  # before this walk
        self._covered = 0  # looks in a row at which nothing could be reached
        page.on("pageerror", self._failed_in_browser)
        page.on("console", self._console)
        page.on("dialog", lambda dialog: dialog.dismiss())

    def walk(self, clicks: int, until_s: float = float("inf")) -> Seen:
        """Take so many steps, fewer where time (monotonic s) runs out."""
        self._open("")
        while self.seen.steps.total() < clicks and time.monotonic() < until_s:
            try:
                self._step()
            except PlaywrightTimeout as error:
                self._wrong(f"no answer: {error.message.splitlines()[0]}")
                self._open("")
            except Error as error:  # what was looked at has gone meanwhile
                self.seen.trail.append(f"gone: {error.message.splitlines()[0][:80]}")
        written = self.log.read_bytes()[self._written :].decode("utf-8", "replace")
        for text in complaints(written):
            self._wrong(f"in the server's log: {text}")
        return self.seen

    def _step(self) -> None:
        self._rest()
        self._look_for_errors()
        chance = self._draw.random()
        if chance < ELSEWHERE:
            return self._open(self._draw.choice([name for name in PAGES if name != FIRST]))
        if chance < ELSEWHERE + BACK:
            self._did("back", "")
            self.page.go_back(wait_until="commit")
            if not self.page.url.startswith(self.url):
                self._open("")
            return None
        return self._act(self.page.evaluate(LOOK))

    def _act(self, look: dict[str, Any]) -> None:
        controls = look["controls"]
        if look["over"]:
            if self._draw.random() < 0.3:
                return self._close(look["over"])
            controls = [c for c in controls if c["over"]] or controls
        kinds = sorted({c["kind"] for c in controls})
        if not kinds:
            return self._wrong("a dead end: nothing on the page can be pressed")
        kind = self._draw.choice(kinds)
        control = self._draw.choice([c for c in controls if c["kind"] == kind])
        costly = kind == "button" and COSTLY.match(control["name"])
        if costly and self._draw.random() > COSTLY_SHARE:
            return None
        within = (self._draw.uniform(0.1, 0.9), self._draw.uniform(0.1, 0.9))
        at = within if kind == "picture" else (0.5, 0.5)
        point = self.page.evaluate(POINT, [control["index"], *at])
        if point is None:
            self._covered += 1
            if self._covered > 40:
                self._wrong(f"a dead end: {control['name']} and all else is covered")
                self._open("")
            return None
        self._covered = 0
        self._did(kind, control["name"])
        self.page.mouse.click(point["x"], point["y"])
        return self._then(kind)

    def _then(self, kind: str) -> None:
        """What follows a click on some kinds: keys, words, a choice."""
        keys = self.page.keyboard
        if kind == "slider":
            for _ in range(self._draw.randrange(1, 4)):
                keys.press(self._draw.choice(KEYS))
        elif kind == "text":
            keys.press("Control+a")
            keys.type(self._draw.choice(TEXTS))
            keys.press(self._draw.choice(("Enter", "Tab")))
        elif kind == "select":
            for _ in range(self._draw.randrange(0, 5)):
                keys.press("ArrowDown")
            keys.press(self._draw.choice(("Enter", "Escape")))
        elif kind == "picture" and self._draw.random() < 0.5:
            self.page.mouse.wheel(0, self._draw.choice((-240, 240)))

    def _close(self, before: int) -> None:
        """What lies over the page goes away when Escape is pressed."""
        self._did("close", "Escape")
        for _ in range(before + 1):
            self.page.keyboard.press("Escape")
            for _ in range(CLOSING):
                self.page.wait_for_timeout(100)
                if self.page.evaluate(LOOK)["over"] < before:
                    return
        self._wrong("a dead end: Escape does not close what lies over the page")
        self._open("")

    def _open(self, name: str) -> None:
        self._did("open", name or "the first page")
        self.page.goto(f"{self.url}/{name}", wait_until="commit")
        self.page.get_by_role("heading", level=1).first.wait_for()

    def _rest(self) -> None:
        """Wait until the page's script has ended."""
        try:
            self.page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for(
                timeout=1000 * REST_S
            )
        except PlaywrightTimeout:
            self._wrong(f"the page did not come to rest in {REST_S:g} s")
            self._open("")

    def _look_for_errors(self) -> None:
        for text in self.page.evaluate(BOXES):
            self._wrong(f"an error box: {text[:200]}")
            self._open("")

    def _did(self, kind: str, name: str) -> None:
        where = self._where()
        self.seen.steps[kind] += 1
        self.seen.pages[where] += 1
        self.seen.trail.append(f"{where}: {kind} {name}")

    def _console(self, message: Any) -> None:
        if message.type == "error" and not NOT_OURS.search(str(message.location) + message.text):
            where = message.location.get("url", "")
            self._wrong(f"in the console: {message.text[:300]} {where}")

    def _failed_in_browser(self, error: object) -> None:
        """Note an error of a script, but for one of Streamlit's print: the document in which it
        prints may be gone while its callbacks run."""
        printed = self.seen.trail and self.seen.trail[-1].endswith(" Print")
        if LEFT not in str(error) or not printed:
            self._wrong(f"in the browser: {error}")

    def _wrong(self, what: str) -> None:
        self.seen.note(what, self.page.url.removeprefix(self.url)[:200])

    def _where(self) -> str:
        return self.page.url.removeprefix(self.url).strip("/").partition("?")[0] or "start"


def fill(database: str) -> None:
    """Some runs to find: two to compare, one with a fault."""
    store = open_store(database)
    done(store, presets()[0].scenario)
    done(store, scenario("Faster", workload__rate_req_per_s=150.0))
    done_broken(store)
    store.close()


def main() -> None:
    """Walk, and print one JSON object; status 1 where anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    asked = parser.parse_args()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        database = f"sqlite:///{home}/twin.db"
        fill(database)
        log = Path(home) / "server.log"
        with dashboard(database, log) as url:
            browser = playwright.chromium.launch(
                executable_path=chromium.find(), args=chromium.FLAGS
            )
            size = {"width": asked.width, "height": 900}
            context = profile(browser, viewport=size, reduced_motion="no-preference")
            walker = Walker(context.new_page(), url, log, asked.seed)
            seen = walker.walk(asked.clicks, begun_s + 60 * asked.minutes)
            browser.close()
    minutes = (time.monotonic() - begun_s) / 60
    told = {
        "seed": asked.seed, "steps": seen.steps.total(), "minutes": minutes,
        "kinds": seen.steps, "pages": seen.pages, "wrong": seen.wrong,
    }  # fmt: skip
    sys.stdout.write(json.dumps(told, indent=1) + "\n")
    sys.exit(bool(seen.wrong))


if __name__ == "__main__":
    main()
