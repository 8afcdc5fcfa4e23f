"""Live runs: a draft simulated while it is edited, never stored. A warm process (`python -m
twin.lab.runs.live`) answers each question within about `SECONDS`, and capacities when idle."""

import logging
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any

import polars as pl

from twin.facts import Facts
from twin.lab.explain.capacity import Search, search_steps, stays_steady, with_load
from twin.lab.kinds import COUNTS, TRACE
from twin.lab.library import load_facts
from twin.lab.runs import warm
from twin.lab.runs.budget import estimate_budget
from twin.lab.runs.job import ENGINE, LATER, load_engine, stages_of
from twin.lab.runs.process import Message, Piped, listen, start_process
from twin.lab.share.shipped import TABLES
from twin.scenario import Scenario, SpecError, json_text, scenario_from_canonical, with_overrides

log = logging.getLogger(__name__)

PROGRAM = "twin.lab.runs.live"
SECONDS = 0.6  # that a live run may be estimated to take
SHORTEST_S = 20.0  # of simulated time: below, next to nothing would finish
RUNS_MOST = 40  # live runs whose visitors may still be looking
FOUND_MOST = 500  # capacities that are known without another search
REPORT_S = 0.04  # between two reports of how far a run is
FIXED_FIELDS = {"name": "", "question": "", "source": "", "horizon_s": 2.0, "warmup_s": 1.0}
DEATHS_MAX = 3  # processes that end without an answer, before no more is started


@dataclass(frozen=True, slots=True)
class Status:
    """State of a live run: its progress, counts, and its answer once it ended."""

    progress: float = 0.0
    live: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    searching: bool = False  # whether its capacity is still to come
    capacity: Mapping[str, Any] = field(default_factory=dict)  # fields of `Capacity`, once known

    @property
    def ended(self) -> bool:
        """Whether the run has an answer."""
        return bool(self.summary)


class Live:
    """The live runs of one server."""

    def __init__(self) -> None:
        """Start the process that answers live runs."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._runs: OrderedDict[str, Status] = OrderedDict()
        self._deaths = 0
        self._process = Piped(start_process(PROGRAM), self._take_state)

    def begin(self, question: Scenario, superseded: str = "") -> str:
        """Begin a run, and stop the one that it supersedes; returns its id."""
        run = secrets.token_urlsafe(9)
        with self._lock:
            if self._process.poll() is not None and self._deaths < DEATHS_MAX:
                self._process = Piped(start_process(PROGRAM), self._take_state)
            self._forget(superseded)
            self._runs[run] = Status()
            while len(self._runs) > RUNS_MOST:
                self._forget(next(iter(self._runs)))
            self._send(run, question)
        return run

    def drop(self, run: str) -> None:
        """Stop and remove a run that no visitor waits for."""
        with self._lock:
            self._forget(run)

    def status(self, run: str, patience_s: float = 0.0) -> Status | None:
        """Wait at most `patience_s` until a run ends; returns its present state, ended or not, or
        None if the run was stopped, failed or dropped."""
        with self._changed:
            self._changed.wait_for(
                lambda: (state := self._runs.get(run)) is None or state.ended, patience_s
            )
            return self._runs.get(run)

    def close(self) -> None:
        """End the process and all its runs."""
        with self._lock:
            self._runs.clear()
        self._process.kill()
        self._process.wait()

    def _forget(self, run: str) -> None:
        """Remove a run, and stop it if work on it goes on."""
        status = self._runs.pop(run, None)
        if status is not None and (status.searching or not status.ended):
            self._send(run, None)

    def _send(self, run: str, question: Scenario | None) -> None:
        """Send a question to the process; None stops the run."""
        self._process.say([run, json_text(question) if question else None])

    def _take_state(self, message: Message | None) -> None:
        """Store a run's state from a message of the process; at the process's end (None) drop the
        runs without an answer."""
        with self._changed:
            if message is None:  # the run under way and those that waited have no answer
                self._deaths += 1
                ended_runs = {run: status for run, status in self._runs.items() if status.ended}
                self._runs.clear()
                self._runs |= {
                    run: replace(status, searching=False) for run, status in ended_runs.items()
                }
            else:
                head, tables = message
                self._deaths = 0
                run, known_status = head["run"], self._runs.get(head["run"])
                if head["seen"] is None:
                    self._runs.pop(run, None)
                elif known_status is not None:
                    self._runs[run] = Status(**head["seen"], tables=tables or known_status.tables)
            self._changed.notify_all()


def shortened_draft(draft: Scenario, facts: Facts) -> Scenario | None:
    """The draft over a horizon short enough to simulate live; None if it is too large, or names
    imported files or a function of its own."""
    names_files = TRACE.named(draft) or COUNTS.named(draft) or draft.supernode.imported
    if names_files or draft.elastic.controller == "own":
        return None
    estimate_s = estimate_budget(draft, facts).seconds
    if estimate_s <= SECONDS:
        return draft
    time_factor = SECONDS / estimate_s
    if draft.horizon_s * time_factor < SHORTEST_S:
        return None
    new_times = {
        "horizon_s": round(draft.horizon_s * time_factor, 1),
        "warmup_s": draft.warmup_s * time_factor,
    }
    try:
        return with_overrides(draft, new_times)
    except SpecError:
        return None


class Answering:
    """The answering process's side: receives questions from the server and sends answers."""

    def __init__(self) -> None:
        """Begin to listen to the server."""
        self._waiting: SimpleQueue[tuple[str, Scenario]] = SimpleQueue()
        self._dropped: set[str] = set()
        # By run, each with its next trial, its state, and what its capacity depends on:
        self._searches: dict[str, tuple[Search, Scenario, Status, str]] = {}
        self._found: OrderedDict[str, Mapping[str, Any]] = OrderedDict()  # by that
        self._say = listen(self._take_question)

    def _take_question(self, message: tuple[str, str | None]) -> None:
        """Queue a question from the server, or note that its run was dropped (text None)."""
        run, scenario_text = message
        if scenario_text is None:
            self._dropped.add(run)
        else:
            self._waiting.put((run, scenario_from_canonical(scenario_text)))

    def serve(self) -> None:
        """Answer questions in order, and search capacities in between, until this process ends."""
        self._engine, self._facts = load_engine(), load_facts()
        while True:
            try:
                run_and_question = self._waiting.get(block=not self._searches)
            except Empty:
                self._continue_search()
                continue
            if run_and_question[0] not in self._dropped:
                self._answer(*run_and_question)

    def _answer(self, run: str, question: Scenario) -> None:
        """Simulate a question and report its progress, then search its capacity."""
        last_report_s = 0.0

        def progress(share_done: float, live: Mapping[str, Any]) -> bool:
            """Report progress from time to time; returns whether the run goes on."""
            nonlocal last_report_s
            if time.monotonic() - last_report_s > REPORT_S:
                last_report_s = time.monotonic()
                self._report(run, Status(share_done, {"finished": live.get("finished", 0.0)}))
            return run not in self._dropped

        try:
            run_result = self._engine.simulate(question, self._facts, progress=progress)
        except self._engine.Cancelled:
            return
        except Exception as error:
            # The formula's answer stands; the run of the draft itself will say why.
            log.warning("a live run failed: %s", error)
            run_result = None
        if run_result is None or not run_result.valid:
            self._report(run, None)
            return
        tables = {name: run_result.tables[name] for name in TABLES if name in run_result.tables}
        capacity_key = ""  # the scenario without load, times and names: what a capacity depends on
        if stays_steady(question):
            capacity_key = json_text(with_overrides(with_load(question, 1.0), FIXED_FIELDS))
        known_capacity = self._found.get(capacity_key, {})
        is_new = bool(capacity_key and not known_capacity)
        status = Status(
            1.0, summary=dict(run_result.summary), searching=is_new, capacity=known_capacity
        )
        self._report(run, status, tables)
        if is_new:
            search = search_steps(question, self._facts)
            self._searches[run] = search, next(search), status, capacity_key

    def _continue_search(self) -> None:
        """Run the next simulation of the newest search; one that a question stops is repeated."""
        run = next(reversed(self._searches))
        search, trial_scenario, status, capacity_key = self._searches[run]
        if capacity_key in self._found:  # that of another visitor has found it
            self._end_search(run)
            return

        summary = None
        try:  # until a question waits or the run is dropped
            summary = self._engine.simulate(trial_scenario, self._facts, progress=lambda *_: (
                self._waiting.empty() and run not in self._dropped)).summary  # fmt: skip
        except self._engine.Cancelled:
            if run in self._dropped:
                del self._searches[run]
            return
        except ValueError as error:
            log.info("a load cannot run: %s", error)
        try:
            self._searches[run] = search, search.send(summary), status, capacity_key
        except StopIteration as ended:
            capacity = asdict(ended.value) | {"unit": ended.value.unit}
            if capacity["high"] == math.inf:
                capacity["high"] = None
            self._found[capacity_key] = capacity
            if len(self._found) > FOUND_MOST:
                self._found.popitem(last=False)
            self._end_search(run)

    def _end_search(self, run: str) -> None:
        """End the search of a run whose capacity is found, and report it."""
        _, _, status, capacity_key = self._searches.pop(run)
        self._report(run, replace(status, searching=False, capacity=self._found[capacity_key]))

    def _report(
        self, run: str, status: Status | None, tables: Mapping[str, pl.DataFrame] = {}
    ) -> None:
        """Send the state of a run (None: it failed); tables: of its result, sent once."""
        status_fields = asdict(status) if status is not None else {}
        status_fields.pop("tables", None)
        self._say({"run": run, "seen": status_fields or None}, tables)


def main() -> None:
    """Compile or load what runs need, then answer questions until this process ends."""
    logging.basicConfig(level=logging.WARNING, format="live %(process)d: %(message)s")
    answering = Answering()
    warm.compile_stages(stages_of(ENGINE), lambda _stage, _took_s: None, later=LATER)
    answering.serve()


if __name__ == "__main__":
    main()
