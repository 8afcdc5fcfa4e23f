"""Live runs: a draft simulated while it is edited, beside the library and never in it.

One warm process (`python -m twin.lab.runs.live`) answers them in turn over its standard input and
output; nothing is left behind. A question is cut to a horizon that takes about `SECONDS`; one that
needs a file of the library (a trace, counts, an imported machine) is not asked. While no question
waits, the process searches the capacities of those that were answered, one short run at a time.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

import polars as pl

from twin.facts import Facts
from twin.lab.explain.capacity import Search, searching, steady_by_itself
from twin.lab.kinds import COUNTS, TRACE
from twin.lab.library import ROOT, facts_environment, load_facts
from twin.lab.runs import warm
from twin.lab.runs.budget import estimate
from twin.lab.runs.executor import ONE_THREAD
from twin.lab.runs.job import ENGINE, LATER, load_engine, stages_of
from twin.lab.share.shipped import TABLES
from twin.scenario import (
    Scenario,
    SpecError,
    canonical,
    scenario_from_canonical,
    with_overrides,
)

log = logging.getLogger(__name__)

SECONDS = 0.6  # that a live run may be estimated to take
SHORTEST_S = 20.0  # of simulated time: below, next to nothing would finish
KEPT = 40  # live runs whose visitors may still be looking
TOLD_S = 0.04  # between two words of how far a run is
DEATHS_MAX = 3  # processes that end without an answer, before no more is started


@dataclass(frozen=True, slots=True)
class Look:
    """How a live run stands: how far it is, what it has counted, and its answer once it ended."""

    progress: float = 0.0
    live: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    searching: bool = False  # whether its capacity is still to come
    capacity: Mapping[str, Any] = field(default_factory=dict)  # fields of `Capacity`, once known

    @property
    def ended(self) -> bool:
        """Whether it has an answer."""
        return bool(self.summary)


class Live:
    """The live runs of one server."""

    def __init__(self) -> None:
        """Start the process."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._runs: OrderedDict[str, Look] = OrderedDict()
        self._deaths = 0
        self._process = self._start()

    def ask(self, question: Scenario, superseded: str = "") -> str:
        """Begin a run, stop and forget the one that it takes the place of; returns its id."""
        run = secrets.token_urlsafe(9)
        with self._lock:
            if self._process.poll() is not None and self._deaths < DEATHS_MAX:
                self._process = self._start()
            self._forget(superseded)
            self._runs[run] = Look()
            while len(self._runs) > KEPT:
                self._forget(next(iter(self._runs)))
            self._tell({"ask": run, "scenario": canonical(question)})
        return run

    def drop(self, run: str) -> None:
        """Stop a run that nobody waits for any more, and forget it."""
        with self._lock:
            self._forget(run)

    def look(self, run: str, patience_s: float = 0.0) -> Look | None:
        """How a run stands, once it has ended or after so long. None where it was stopped, failed
        or dropped by somebody else."""
        with self._changed:
            self._changed.wait_for(
                lambda: (seen := self._runs.get(run)) is None or seen.ended, patience_s
            )
            return self._runs.get(run)

    def close(self) -> None:
        """End the process, and all that it was asked."""
        with self._lock:
            self._runs.clear()
        self._process.kill()
        self._process.wait()

    def _forget(self, run: str) -> None:
        seen = self._runs.pop(run, None)
        if seen is not None and (seen.searching or not seen.ended):
            self._tell({"drop": run})

    def _tell(self, message: Mapping[str, str]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            log.info("the process of live runs is gone")

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "twin.lab.runs.live"],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, **facts_environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C meant for the server is not meant for it
        )
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Hear of every run, until the process ends."""
        assert process.stdout is not None
        while line := process.stdout.readline():
            news = json.loads(line)
            tables = {
                name: pl.read_ipc(io.BytesIO(process.stdout.read(size)))
                for name, size in news.get("tables", {}).items()
            }
            with self._changed:
                if "failed" in news:
                    self._runs.pop(news["run"], None)
                elif (seen := self._runs.get(news["run"])) is None:
                    pass
                elif "capacity" in news:
                    found = replace(seen, searching=False, capacity=news["capacity"])
                    self._runs[news["run"]] = found
                else:
                    self._deaths = 0
                    told = {name: news.get(name, {}) for name in ("live", "summary")}
                    searching = news.get("searching", False)
                    self._runs[news["run"]] = Look(
                        news["progress"], tables=tables, searching=searching, **told
                    )
                self._changed.notify_all()
        with self._changed:  # what it was at, and what waited, has no answer
            self._deaths += 1
            for run, seen in list(self._runs.items()):
                if seen.ended:
                    self._runs[run] = replace(seen, searching=False)
                else:
                    del self._runs[run]
            self._changed.notify_all()


def ready() -> bool:
    """Whether kernels are compiled: before, a live run would only be in the way of the first."""
    return warm.is_ready()


def question_of(draft: Scenario, facts: Facts) -> Scenario | None:
    """The draft over a horizon that is simulated at once; None where it cannot be live: with files,
    or with a function of the operator's own, which may never answer and all would wait for."""
    if TRACE.named(draft) or COUNTS.named(draft) or draft.supernode.imported:
        return None
    if draft.elastic.controller == "own":
        return None
    takes_s = estimate(draft, facts).seconds
    if takes_s <= SECONDS:
        return draft
    share = SECONDS / takes_s
    if draft.horizon_s * share < SHORTEST_S:
        return None
    cut = {"horizon_s": round(draft.horizon_s * share, 1), "warmup_s": draft.warmup_s * share}
    try:
        return with_overrides(draft, cut)
    except SpecError:
        return None


class Answering:
    """The other end: questions from one stream, answers to another."""

    def __init__(self, questions: BinaryIO, answers: BinaryIO) -> None:
        """Listen at once: a run that is dropped is stopped, also the one under way."""
        self._answers = answers
        self._asked: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._dropped: set[str] = set()
        self._searches: dict[str, tuple[Search, Scenario]] = {}
        threading.Thread(target=self._listen, args=(questions,), daemon=True).start()

    def _listen(self, questions: BinaryIO) -> None:
        for line in questions:
            message = json.loads(line)
            if "drop" in message:
                self._dropped.add(message["drop"])
            else:
                self._asked.put((message["ask"], message["scenario"]))
        self._asked.put(None)

    def serve(self) -> None:
        """Answer one question after the other, and search in between, until there will be no
        more."""
        self._engine, self._facts = load_engine(), load_facts()
        while True:
            try:
                asked = self._asked.get(block=not self._searches)
            except Empty:
                self._search_on()
                continue
            if asked is None:
                return
            run, text = asked
            if run not in self._dropped:
                self._answer(run, scenario_from_canonical(text))

    def _answer(self, run: str, question: Scenario) -> None:
        told_s = 0.0

        def progress(fraction: float, live: Mapping[str, Any]) -> bool:
            nonlocal told_s
            if time.monotonic() - told_s > TOLD_S:
                told_s = time.monotonic()
                counted = {"finished": live.get("finished", 0.0)}
                self._tell({"run": run, "progress": fraction, "live": counted})
            return run not in self._dropped

        try:
            result = self._engine.simulate(question, self._facts, progress=progress)
        except self._engine.cancelled:
            return
        except Exception as error:
            # The formula's answer stands; the run of the draft itself will say why.
            log.warning("a live run failed: %s", error)
            self._tell({"run": run, "failed": str(error)})
            return
        files = {name: _ipc(result.tables[name]) for name in TABLES if name in result.tables}
        sizes = {name: len(file) for name, file in files.items()}
        if not result.valid:
            self._tell({"run": run, "failed": "a law of the engine is broken"})
            return
        wanted = steady_by_itself(question)
        answer = {"run": run, "progress": 1.0, "summary": dict(result.summary)}
        self._tell(answer | {"searching": wanted, "tables": sizes}, *files.values())
        if wanted:
            search = searching(question, self._facts)
            self._searches[run] = search, next(search)

    def _search_on(self) -> None:
        """Make the next run of the search that was begun last; a question that comes stops it, and
        it is made again later."""
        run = next(reversed(self._searches))
        search, asked = self._searches[run]

        def progress(_fraction: float, _live: Mapping[str, Any]) -> bool:
            return self._asked.empty() and run not in self._dropped

        summary = None
        try:
            summary = self._engine.simulate(asked, self._facts, progress=progress).summary
        except self._engine.cancelled:
            if run in self._dropped:
                del self._searches[run]
            return
        except ValueError as error:
            log.info("a load cannot run: %s", error)
        try:
            self._searches[run] = search, search.send(summary)
        except StopIteration as ended:
            del self._searches[run]
            found = asdict(ended.value) | {"unit": ended.value.unit}
            if found["high"] == math.inf:
                found["high"] = None
            self._tell({"run": run, "capacity": found})

    def _tell(self, message: Mapping[str, Any], *files: bytes) -> None:
        self._answers.write(json.dumps(message).encode() + b"\n" + b"".join(files))
        self._answers.flush()


def _ipc(table: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    table.write_ipc(file)
    return file.getvalue()


def main() -> None:
    """Load what runs need, then answer."""
    logging.basicConfig(level=logging.WARNING, format="live %(process)d: %(message)s")
    # What a library prints must not come between answers.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        answering = Answering(sys.stdin.buffer, answers)
        warm.prepare(stages_of(ENGINE), lambda _stage, _took_s: None, later=LATER)
        answering.serve()


if __name__ == "__main__":
    main()
