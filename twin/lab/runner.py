"""Runs in the background: a few processes that outlive every page, watched by one thread.

`submit` puts a run into the store's queue; processes of our own (`job`) take it from there, so
that neither a closed tab nor a stopped server ends it. A process that dies is noticed and its run
marked; one that does not hear a request to stop is killed. `run_now` does the same in the calling
process. This module knows nothing about the screen.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twin.facts import Facts
from twin.lab.job import ENGINE, Watch, execute, load_engine, uses_counts, uses_trace
from twin.lab.library import ROOT, facts_environment, load_facts
from twin.lab.store import Owner, Store, StoreError
from twin.lab.store.runs import Result
from twin.scenario import Scenario, scenario_digest

if TYPE_CHECKING:
    from twin.workload.generate import TraceTable

log = logging.getLogger(__name__)

WAITING_MAX = 200  # queued runs; more are refused
DEAF_S = 1.0  # a run that was asked to stop may take so long to obey
BUSY_TICK_S, QUIET_TICK_S = 0.2, 1.0
RECOVER_S = 5.0  # between two looks for runs whose process, of whatever server, died
SWEEP_S = 3600.0
IDLE_S = 120.0  # a process without work ends after so long; the first one stays warm
STILLBORN_MAX = 3  # processes in a row that end before doing anything
# One run uses one core; more threads would only fight over it.
ONE_THREAD = {
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that was carried out here: its id in the store, and its result."""

    id: str
    result: Result


def add_run(
    store: Store,
    scenario: Scenario,
    *,
    trace: TraceTable | None = None,
    facts: Facts | None = None,
    owner: Owner | None = None,
    parent: str | None = None,
    again: bool = True,
    engine: str = ENGINE,
) -> str:
    """Store a question and a run of it; returns the run's id. Raises StoreError.

    With `again` false an identical run that is queued, running or done is returned instead.
    """
    store.artefacts.require_space()
    wanted = scenario.workload.trace.digest
    if trace is not None and uses_trace(scenario) and trace.digest == wanted:
        store.traces.save(trace)
    if lacks := lacking_trace(store, scenario) or lacking_counts(store, scenario):
        raise StoreError(lacks)
    saved = store.scenarios.save(scenario, parent=parent)
    version = load_engine(engine).version
    return store.runs.add(
        saved, facts or load_facts(), version, scenario.seed, owner=owner, again=again
    )


def lacking_trace(store: Store, scenario: Scenario) -> str:
    """That the trace a scenario replays is not stored here; '' when it is, or there is none."""
    wanted = scenario.workload.trace
    if not uses_trace(scenario) or store.traces.get(wanted.digest) is not None:
        return ""
    return f"the trace {wanted.name or wanted.digest} is not stored here: import its file first"


def lacking_counts(store: Store, scenario: Scenario) -> str:
    """That the expert counts a scenario uses are not stored here; '' as for a trace."""
    wanted = scenario.experts.counts
    if not uses_counts(scenario) or store.counts.get(wanted.digest) is not None:
        return ""
    name = wanted.name or wanted.digest
    return f"the expert counts {name} are not stored here: import their file first"


def run_now(
    store: Store,
    scenario: Scenario,
    *,
    trace: TraceTable | None = None,
    facts: Facts | None = None,
    watch: Watch | None = None,
    engine: str = ENGINE,
) -> Finished:
    """Carry out a run in this process and store it, as the background does.

    `watch(fraction, live)` gets progress. Raises what the engine raises, after storing how it
    ended; an interrupt from the keyboard leaves a cancelled run.
    """
    owner = Owner.here()
    run = add_run(store, scenario, trace=trace, facts=facts, owner=owner, engine=engine)
    row = store.runs.get(run)
    if row is None:
        raise StoreError(f"run {run} was deleted before it began")
    loaded = load_engine(engine)
    return Finished(run, execute(store, row, owner, loaded, facts=facts, trace=trace, watch=watch))


def find_run(
    store: Store, scenario: Scenario, *, facts: Facts | None = None, engine: str = ENGINE
) -> str | None:
    """The id of a done run of exactly this question, None when there is none."""
    digest = (facts or load_facts()).digest
    return store.runs.find(scenario_digest(scenario), digest, load_engine(engine).version)


class Runner:
    """The processes of one server and the thread that watches them. Share one per process."""

    def __init__(self, store: Store, *, processes: int | None = None, engine: str = ENGINE):
        self._store = store
        self._engine = engine
        self._size = processes or max(1, _cores() - 1)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._stillborn = 0
        self._recover_at_s = self._sweep_at_s = 0.0
        self._thread = threading.Thread(target=self._watch, name="runner", daemon=True)
        self.trouble = ""  # one sentence when no process can be started

    def start(self) -> Runner:
        """Mark what dead processes left behind, then start working the queue."""
        self._store.runs.recover()
        self._thread.start()
        return self

    def submit(
        self,
        scenario: Scenario,
        *,
        trace: TraceTable | None = None,
        parent: str | None = None,
        again: bool = False,
    ) -> str:
        """Queue a run, or return an identical one that is queued, running or done.

        `again` makes a new one in any case. Raises StoreError when the queue or the disk is full,
        or the scenario's trace is not stored here.
        """
        if self._store.runs.waiting() >= WAITING_MAX:
            raise StoreError(f"{WAITING_MAX} runs are waiting: let some finish, or stop some")
        run = add_run(
            self._store, scenario, trace=trace, parent=parent, again=again, engine=self._engine
        )
        self._stillborn, self.trouble = 0, ""
        self._nudge()
        return run

    def cancel(self, run: str) -> str:
        """Ask to stop a run; returns its state now. It has ended within two seconds."""
        state = self._store.runs.ask_cancel(run)
        self._nudge()
        return state

    def close(self, *, kill: bool = False) -> None:
        """Stop watching. Running runs go on to their end in their processes, unless killed."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            for name, process in self._processes.items():
                _hang_up(process)
                if kill:
                    process.kill()
                    process.wait()
                    self._store.runs.disown(name, "the server was stopped")
            self._processes.clear()

    @property
    def pids(self) -> list[int]:
        """Process ids of the processes at work or at hand."""
        with self._lock:
            return [process.pid for process in self._processes.values()]

    def _nudge(self) -> None:
        """Wake the watching thread and every process that waits for work."""
        self._wake.set()
        with self._lock:
            for process in self._processes.values():
                _say(process, b"\n")

    def _watch(self) -> None:
        while not self._closed:
            try:
                busy = self._tick()
            except (StoreError, OSError) as error:
                log.warning("the runner could not look after its runs: %s", error)
                busy = False
            except Exception:
                # Without this thread no run would begin, end or stop any more, and nobody be told.
                log.exception("the runner could not look after its runs")
                busy = False
            self._wake.wait(BUSY_TICK_S if busy else QUIET_TICK_S)
            self._wake.clear()

    def _tick(self) -> bool:
        """One look at everything; tells whether anything runs or waits."""
        now = time.monotonic()
        if now >= self._recover_at_s:
            self._recover_at_s = now + RECOVER_S
            self._store.runs.recover()
        if now >= self._sweep_at_s:
            self._sweep_at_s = now + SWEEP_S
            self._store.sweep()
        with self._lock:
            self._bury()
            running = self._store.runs.running(list(self._processes))
            self._silence(running)
            waiting = self._store.runs.waiting()
            self._hire(waiting, len(running))
        return bool(running or waiting)

    def _bury(self) -> None:
        """Take note of processes that ended, and end the runs they left."""
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is None:
                continue
            del self._processes[name]
            _hang_up(process)
            left = self._store.runs.disown(name, f"its process ended unexpectedly ({_how(code)})")
            self._stillborn = 0 if left or code == 0 else self._stillborn + 1
            if self._stillborn >= STILLBORN_MAX:
                self.trouble = f"no run can be started ({_how(code)}): the server's log says why"
                log.error(self.trouble)

    def _silence(self, running: list[tuple[str, str, float | None]]) -> None:
        """Kill processes whose run was asked to stop and did not."""
        now = time.time()
        for _run, owner, asked_s in running:
            if asked_s is not None and now - asked_s > DEAF_S:
                self._processes[owner].kill()

    def _hire(self, waiting: int, running: int) -> None:
        """Start as many processes as there is work for, and keep one warm."""
        if self._stillborn >= STILLBORN_MAX:
            return
        free = len(self._processes) - running
        wanted = min(self._size, max(1, len(self._processes) + waiting - free))
        for _ in range(wanted - len(self._processes)):
            name = secrets.token_urlsafe(12)
            idle_s = float("inf") if not self._processes else IDLE_S
            self._processes[name] = self._start_process(name, idle_s)

    def _start_process(self, name: str, idle_s: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-X", "faulthandler", "-m", "twin.lab.job"]
        command += [f"--owner={name}", f"--engine={self._engine}", f"--idle-s={idle_s}"]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            # Its folder is another one, so what names files names them in full.
            env={**os.environ, **ONE_THREAD, **facts_environment(), **self._store.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C meant for the server does not tear a run
        )


def _cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _how(code: int) -> str:
    """How a process ended, in words."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def _say(process: subprocess.Popen[bytes], line: bytes) -> None:
    if process.stdin is None or process.stdin.closed:
        return
    try:
        process.stdin.write(line)
        process.stdin.flush()
    except BrokenPipeError:
        log.info("process %d is gone already", process.pid)


def _hang_up(process: subprocess.Popen[bytes]) -> None:
    """Close our end: the process ends when its current run has."""
    if process.stdin is None:
        return
    try:
        process.stdin.close()
    except BrokenPipeError:
        log.info("process %d is gone already", process.pid)
