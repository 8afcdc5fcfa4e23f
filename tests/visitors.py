"""Twenty visitors at once: two real browsers and eighteen that speak the server's protocol.

`python -m tests.visitors --actions 1000 --think 10` starts a server on an empty store, lets
everybody open pages, edit and run while two simulations go on, and reports errors, the times of a
page, and the server's memory as it went. Each thinks for some seconds between two actions; with
`--think 0` an hour's actions are pressed into minutes, which tells about memory and not about
waiting. Not part of the suite: it takes the whole machine.
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import websockets
from playwright.async_api import async_playwright
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.NumberInput_pb2 import NumberInput
from streamlit.proto.WidgetStates_pb2 import WidgetState

from tests import chromium
from tests.conftest import ROOT, free_port, wait_until_healthy
from twin import hooks
from twin.lab.library import load_facts, preset
from twin.lab.runs.runner import add_run
from twin.lab.share.links import pack_scenario
from twin.lab.store import Store, open_store
from twin.scenario import Scenario, with_overrides

PATIENCE_S = 120.0
# Opened most.
PAGES = ("", "workload", "deployment", "supernode", "run", "library", *hooks.hooks_of(hooks.Page))
LONG_S = 1800.0  # simulated seconds of the runs that go on beside
FINISHED = ForwardMsg.ScriptFinishedStatus


def some_scenario(draw: random.Random) -> Scenario:
    """A short run that nobody asked for yet."""
    quick = preset("quickstart")
    assert quick is not None
    short = {"seed": draw.randrange(1 << 30), "horizon_s": 40.0, "warmup_s": 10.0}
    return with_overrides(quick, short)


class Seen:
    """What happened to all visitors: seconds by kind of action, and what went wrong."""

    def __init__(self, most: int, think_s: float) -> None:
        self.left, self._think_s = most, think_s
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.wrong: list[str] = []

    def note(self, action: str, begun_s: float) -> None:
        """An action that was answered."""
        self.seconds[action].append(time.perf_counter() - begun_s)
        self.left -= 1

    async def think(self, draw: random.Random) -> None:
        """Between two actions of one visitor."""
        if self._think_s:
            await asyncio.sleep(draw.expovariate(1.0 / self._think_s))


class Visitor:
    """One that speaks the protocol: asks for pages, keeps its widgets, changes and presses them."""

    def __init__(self, url: str, seen: Seen, number: int) -> None:
        self.url, self.seen, self.draw = url, seen, random.Random(number)
        self.hashes: dict[str, str] = {}
        self.page, self.query = "", ""
        self.states: dict[str, WidgetState] = {}
        self.numbers: dict[str, NumberInput] = {}
        self.runs: list[str] = []  # ids of buttons that run

    async def live(self) -> None:
        """Act until all have acted enough."""
        while self.seen.left > 0:
            try:
                await self._session()
            except (OSError, TimeoutError, websockets.WebSocketException) as error:
                self.seen.wrong.append(f"{type(error).__name__}: {error}"[:300])
                self.seen.left -= 1

    async def _session(self) -> None:
        """A tab: opened, used for some actions, closed."""
        address = self.url.replace("http", "ws") + "/_stcore/stream"
        async with websockets.connect(
            address, subprotocols=["streamlit"], origin=self.url, max_size=None
        ) as socket:
            self.socket, self.hashes = socket, {}
            self.query = f"s={pack_scenario(some_scenario(self.draw))}"
            await self._open("", "first page")
            for _ in range(self.draw.randrange(5, 25)):
                if self.seen.left <= 0:
                    return
                await self.seen.think(self.draw)
                await self._act()

    async def _act(self) -> None:
        kind = self.draw.random()
        if kind < 0.35 and self.numbers:
            await self._edit()
        elif kind < 0.45 and self.runs:
            begun_s = time.perf_counter()
            await self._rerun({self.draw.choice(self.runs): WidgetState(trigger_value=True)})
            self.seen.note("run", begun_s)
        else:
            await self._open(self.draw.choice(PAGES), "page")

    async def _edit(self) -> None:
        widget = self.draw.choice(list(self.numbers.values()))
        value = widget.default * self.draw.choice((0.5, 1.0, 2.0)) + self.draw.choice((0, 1))
        low = widget.min if widget.has_min else value
        high = widget.max if widget.has_max else value
        value = min(max(value, low), high)
        whole = widget.data_type == NumberInput.INT
        state = WidgetState(int_value=int(value)) if whole else WidgetState(double_value=value)
        begun_s = time.perf_counter()
        await self._rerun({widget.id: state})
        self.seen.note("edit", begun_s)

    async def _open(self, page: str, action: str) -> None:
        self.states, self.page = {}, page
        begun_s = time.perf_counter()
        await self._rerun({})
        self.seen.note(action, begun_s)

    async def _rerun(self, changed: dict[str, WidgetState]) -> None:
        """Send what changed, and take in the page until its script has finished."""
        message = BackMsg()
        asked = message.rerun_script
        asked.query_string = self.query
        asked.page_script_hash = self.hashes.get(self.page, "")
        asked.page_name = "" if self.page in self.hashes else self.page
        for name, state in (self.states | changed).items():
            state.id = name
            asked.widget_states.widgets.append(state)
        self.states |= {n: s for n, s in changed.items() if not s.trigger_value}
        self.numbers, self.runs = {}, []
        await self.socket.send(message.SerializeToString())
        async with asyncio.timeout(PATIENCE_S):
            while not self._finished(await self.socket.recv()):
                pass

    def _finished(self, data: Any) -> bool:
        """Take in one message; whether it was the page's last."""
        message = ForwardMsg()
        message.ParseFromString(data)
        kind = message.WhichOneof("type")
        if kind == "navigation":
            pages = message.navigation.app_pages
            self.hashes = {
                "" if p.is_default else p.url_pathname: p.page_script_hash for p in pages
            }
        elif kind == "page_info_changed":
            self.query = message.page_info_changed.query_string
        elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
            element = message.delta.new_element
            if element.WhichOneof("type") == "exception":
                self.seen.wrong.append(f"on {self.page or 'start'}: {element.exception.message}")
            elif element.WhichOneof("type") == "number_input" and not element.number_input.disabled:
                self.numbers[element.number_input.id] = element.number_input
            elif element.WhichOneof("type") == "button" and element.button.label.startswith("Run"):
                self.runs.append(element.button.id)
        return kind == "script_finished" and message.script_finished in (
            FINISHED.FINISHED_SUCCESSFULLY, FINISHED.FINISHED_WITH_COMPILE_ERROR,
        )  # fmt: skip


async def browse(url: str, seen: Seen, number: int) -> None:
    """One with a real browser: opens pages by their address and runs what it finds."""
    draw = random.Random(1000 + number)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium.find(), args=chromium.FLAGS
        )
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(1000 * PATIENCE_S)
        page.on(
            "pageerror",
            lambda error: seen.wrong.append(f"{page.url[:60]}: {error.stack or error}"[:900]),
        )
        while seen.left > 0:
            await seen.think(draw)
            where = draw.choice(PAGES)
            begun_s = time.perf_counter()
            await page.goto(f"{url}/{where}?s={pack_scenario(some_scenario(draw))}")
            await page.get_by_role("heading", level=1).first.wait_for()
            await page.get_by_test_id("stStatusWidget").wait_for(state="detached")
            seen.note("browser page", begun_s)
            run = page.get_by_role("button", name="Run", exact=False).first
            if draw.random() < 0.3 and await run.count() and await run.is_enabled():
                await run.click()
                await page.get_by_test_id("stStatusWidget").wait_for(state="detached")
        await browser.close()


async def keep_two_going(store: Store, seen: Seen, going: list[float]) -> None:
    """See to it that two simulations run all the time; notes how many did, once a second."""
    draw, facts = random.Random(7), load_facts()
    while seen.left > 0:
        rows = store.runs.search(states=("running", "queued"), limit=50).rows
        going.append(sum(row.state == "running" for row in rows))
        if len(rows) < 3:
            long = with_overrides(some_scenario(draw), {"horizon_s": LONG_S})
            add_run(store, long, facts=facts)
        await asyncio.sleep(1.0)


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    return next((int(x.split()[1]) / 1e3 for x in lines if x.startswith("VmRSS:")), 0.0)


def processor_s(pid: int) -> float:
    """Processor time that a process has taken."""
    stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


async def weigh(pid: int, seen: Seen, most: int, weights: list[tuple[int, float]]) -> None:
    """Note the server's memory as the actions go by."""
    while seen.left > 0:
        weights.append((most - seen.left, resident_mb(pid)))
        await asyncio.sleep(2.0)


async def all_at_once(
    url: str, server: int, store: Store, most: int, think_s: float
) -> dict[str, Any]:
    """Let everybody in, and say what came of it."""
    seen = Seen(most, think_s)
    weights: list[tuple[int, float]] = []
    going: list[float] = []
    begun_s, begun_cpu_s = time.perf_counter(), processor_s(server)
    await asyncio.gather(
        *(Visitor(url, seen, number).live() for number in range(18)),
        *(browse(url, seen, number) for number in range(2)),
        keep_two_going(store, seen, going),
        weigh(server, seen, most, weights),
    )
    elapsed_s = time.perf_counter() - begun_s

    def mean(values: list[float]) -> float:
        return sum(values) / max(len(values), 1)

    # Memory once everybody has been everywhere, and at the end.
    early = [mb for done, mb in weights if 0.3 * most < done <= 0.5 * most]
    late = [mb for done, mb in weights if done > 0.8 * most]
    told = {
        kind: {"count": len(s), "p50_s": _at(s, 0.5), "p95_s": _at(s, 0.95), "most_s": max(s)}
        for kind, s in sorted(seen.seconds.items())
    }
    return {
        "actions": most, "think_s": think_s, "elapsed_s": elapsed_s, "errors": len(seen.wrong),
        "server_cpu_s_per_action": (processor_s(server) - begun_cpu_s) / most,
        "wrong": sorted(set(seen.wrong))[:10], "answered": told,
        "server_mb": {"early": mean(early), "late": mean(late),
                      "course": weights[:: max(1, len(weights) // 12)]},
        "simulations_running": mean(going),
        "runs": {s: store.runs.search(states=(s,), limit=1).total
                 for s in ("done", "failed", "interrupted", "queued", "running")},
        "load": os.getloadavg(), "cores": os.cpu_count(),
    }  # fmt: skip


def _at(seconds: list[float], share: float) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]


def complaints(log: str) -> list[str]:
    """Each traceback of a server's log, once: its last frames and what was raised."""
    tracebacks = re.split(r"(?=^.*Traceback \(most recent call last\))", log, flags=re.MULTILINE)
    return sorted({piece.strip()[-3000:] for piece in tracebacks if "Traceback" in piece})


def main() -> None:
    """Start a server, let them in, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=1000)
    parser.add_argument("--think", type=float, default=10.0, help="mean seconds between actions")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        database = f"sqlite:///{folder}/twin.db"
        port, log = free_port(), Path(folder) / "log"
        with log.open("wb") as out:
            server = subprocess.Popen(
                [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"],
                cwd=ROOT, env={**os.environ, "TWIN_DB_URL": database},
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        url = f"http://localhost:{port}"
        try:
            wait_until_healthy(url, server, log)
            store = open_store(database)
            told = asyncio.run(all_at_once(url, server.pid, store, asked.actions, asked.think))
            told["log"] = complaints(log.read_text("utf-8", "replace"))
        finally:
            server.terminate()
            server.wait(timeout=60)
    sys.stdout.write(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
