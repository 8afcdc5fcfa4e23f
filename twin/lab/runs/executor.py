"""Runs in the background by a few processes (`job`) that outlive pages and servers, or by a cluster
(TWIN_SCHEDULER). One that dies, hangs or does not stop is ended; its run is rerun or marked."""

import logging
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from twin.lab.library import load_facts
from twin.lab.runs import warm
from twin.lab.runs.budget import Budget, budget_of
from twin.lab.runs.cluster import Cluster, ClusterError, scheduler_address
from twin.lab.runs.job import ENGINE
from twin.lab.runs.process import (
    HUNG_S,
    PEAK_BYTES_MAX,
    Message,
    Piped,
    available_bytes,
    cores,
    exit_text,
    start_process,
)
from twin.lab.runs.runner import add_run
from twin.lab.store import Owner, RunRow, Store, StoreError
from twin.lab.store.models import QUEUED, RUNNING
from twin.lab.store.statements import require
from twin.scenario import Scenario

log = logging.getLogger(__name__)

WAITING_MAX = 200  # queued runs; more are refused
EACH_MAX = 100  # of them and of running ones, of one visitor: a whole sweep, not the whole queue
DEAF_S = 1.0  # a run with a request to stop may take so long to obey
BUSY_TICK_S, QUIET_TICK_S = 0.2, 1.0
LOOK_S = 0.02  # between two looks of one who waits for a result
RECOVER_S = 5.0  # between two looks for runs whose process, of whatever server, died
SWEEP_S = 3600.0
IDLE_S = 120.0  # a process without work ends after so long; the first one stays warm
STILLBORN_MAX = 3  # processes in a row that end before doing anything
REST_S = 60.0  # then it is said, and one more is tried after so long


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of preparation: its begin (monotonic s), and its duration once done."""

    began_s: float
    took_s: float | None = None


class Runner:
    """The processes of one server, and the thread that watches them."""

    def __init__(
        self, store: Store, *, processes: int | None = None, engine: str = ENGINE, standby: int = 1
    ):
        """Run a store's queue with an engine (module); processes: most at a time (None: by cores
        and memory); standby: processes that are ready without work."""
        self._store, self._engine, self._size = store, engine, processes or _process_count()
        self._standby = standby  # processes that run without work too: the next run begins at once
        address = scheduler_address()
        self._cluster = Cluster(address) if address else None
        self._processes: dict[str, Piped] = {}
        self._helpers: list[Piped] = []  # compile next to the first process
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._stillborn = 0
        self._rested_at_s = 0.0  # when one more process is tried
        self._door = threading.Lock()  # one after the other: each is weighed against all before
        self._explaining = ""  # the explanation that was requested last
        self._budgets: dict[str, Budget] = {}  # of runs that were queued here and may still wait
        self._deaf: dict[str, float] = {}  # when runs were first seen to be stopped (monotonic s)
        self._rerun: set[str] = set()  # runs whose process hung once
        self._recover_at_s = self._sweep_at_s = 0.0
        self._thread = threading.Thread(target=self._watch, name="runner", daemon=True)
        self.stages: dict[str, Stage] = {}  # of getting ready, by name
        self.trouble = ""  # one sentence when no process can be started

    def start(self) -> "Runner":
        """Mark runs of dead processes, then start processing the queue."""
        self._store.runs.recover()
        if not warm.is_compiled() and self._engine == ENGINE and (cores() > 1 or self._cluster):
            self._helpers.append(self._start_process("helper", 0.0, "--prepare-only"))
        self._thread.start()
        return self

    def submit(self, scenario: Scenario, view: Store | None = None, engine: str = "") -> str:
        """Queue a run; returns its id, or that of an equal run. view: the store as the visitor sees
        it; engine: module of another engine, as `job.EXPLAIN`. Raises StoreError, TooLarge."""
        view = view or self._store
        with self._door:
            queued_ids = self._store.runs.queued_ids()
            if len(queued_ids) >= WAITING_MAX:
                raise StoreError(f"{WAITING_MAX} runs are waiting: let some finish, or stop some")
            if view.visitor and view.runs.search(states=(QUEUED, RUNNING)).total >= EACH_MAX:
                reason = f"{EACH_MAX} runs of yours wait or run"
                raise StoreError(f"{reason}: let some finish, or stop some")
            self._budgets = {
                run: budget for run, budget in self._budgets.items() if run in queued_ids
            }
            waiting_budgets = self._budgets.values()
            # Who waits for a run waits for nothing else.
            if not engine and self._store.runs.get(self._explaining):
                self._store.runs.request_stop(self._explaining)
                self._explaining = ""
            engine_name = engine or self._engine
            run = add_run(view, scenario, again=False, engine=engine_name, waiting=waiting_budgets)
            self._explaining = run if engine else self._explaining
            self._budgets[run] = budget_of(self._store, scenario, load_facts())
        self._stillborn, self.trouble = 0, ""
        self._wake_all()
        return run

    def row(self, run: str) -> RunRow:
        """The present row of a run by its id; raises UnknownId."""
        return require(self._store.runs.get(run), "run", run)

    def cancel(self, run: str, visitor_store: Store | None = None) -> str:
        """Request the end of a run (within two seconds); returns its state. Raises StoreError."""
        run_state = (visitor_store or self._store).runs.request_stop(run)
        self._wake_all()
        return run_state

    def wait_for(self, run: str, timeout_s: float) -> RunRow | None:
        """The row of a run once it has ended; None after the timeout. Raises UnknownId."""
        deadline_s = time.monotonic() + timeout_s
        while not (run_row := self.row(run)).ended:
            if time.monotonic() >= deadline_s:
                return None
            time.sleep(LOOK_S)
        return run_row

    def close(self, *, kill: bool = False) -> None:
        """Stop the watching thread. Running runs continue in their processes, unless killed."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._cluster is not None:
            self._cluster.close(kill=kill)
        with self._lock:
            for process in self._helpers:
                process.close_input()
                process.kill()
                process.wait()
            for owner_name, process in self._processes.items():
                process.close_input()
                if kill:
                    process.kill()
                    process.wait()
                    self._store.runs.end_runs(owner_name, "the server was stopped")
            self._helpers.clear()
            self._processes.clear()

    def _wake_all(self) -> None:
        """Wake the processes and the watching thread."""
        with self._lock:
            for process in self._processes.values():
                process.say()
        self._wake.set()

    def _watch(self) -> None:
        """Look after the queue and the processes until the runner is closed; runs on a thread."""
        while not self._closed:
            is_busy = False
            try:
                is_busy = self._tick()
            except (StoreError, OSError) as error:
                log.warning("the runner could not look after its runs: %s", error)
            except Exception:
                # Without this thread no run would begin, end or stop any more, without a word.
                log.exception("the runner could not look after its runs")
            self._wake.wait(BUSY_TICK_S if is_busy else QUIET_TICK_S)
            self._wake.clear()

    def _tick(self) -> bool:
        """Look after queue, processes and cluster once; returns whether a run waits or runs."""
        now_s = time.monotonic()
        with self._lock:
            self._remove_ended_processes()
        if now_s >= self._recover_at_s:
            self._recover_at_s = now_s + RECOVER_S
            # Of a process of ours only `_remove_ended_processes` says that it ended.
            self._store.runs.recover(
                lambda owner, silent_s: owner.name in self._processes or owner.lives(silent_s)
            )
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + SWEEP_S
            self._store.delete_unused()
        if self._cluster is not None:
            return self._tick_cluster(self._cluster)
        with self._lock:
            running_rows = self._store.runs.running_rows(list(self._processes))
            for run_row in self._unresponsive_rows(running_rows):
                self._processes[run_row.owner.name].kill()
            if running_rows:
                self._stillborn, self.trouble = 0, ""
            waiting_count = len(self._store.runs.queued_ids())
            self._start_needed_processes(waiting_count, len(running_rows))
        return bool(running_rows or waiting_count)

    def _tick_cluster(self, cluster: Cluster) -> bool:
        """Send queued runs to a cluster, take its answers, and end runs that do not stop; returns
        whether a run waits or runs."""
        running_rows = self._store.runs.running_rows((), cluster=True)
        for row in self._unresponsive_rows(running_rows):
            cluster.stop([row.id])
            self._store.runs.release(row.id, row.owner)  # it is to stop: so it ends here
        waiting_ids = self._store.runs.queued_ids()
        for run in waiting_ids:
            cluster.send(run, "run", f"{self._engine} {run}")
        try:
            answer_by_run = cluster.answers()
            warning = f"nothing has joined {cluster.address} to simulate: runs wait"
            self.trouble = warning if waiting_ids and not cluster.worker_count() else ""
        except ClusterError as error:
            self.trouble = f"{error}: runs wait"
            return False
        for run, run_answer in answer_by_run.items():
            if isinstance(run_answer, Exception):
                run_row = self._store.runs.claim(Owner.current(), run) or self._store.runs.get(run)
                if run_row is not None:
                    self._store.runs.fail(
                        run, run_row.owner, f"the cluster gave it up: {run_answer}"
                    )
        return bool(running_rows or waiting_ids)

    def _remove_ended_processes(self) -> None:
        """Remove processes that ended, and end their runs."""
        self._helpers = [process for process in self._helpers if process.poll() is None]
        for owner_name, process in list(self._processes.items()):
            exit_status = process.poll()
            if exit_status is None:
                continue
            if process.hung:  # its runs are queued again; one that hangs twice fails
                reason = f"the run hung twice (no sign of life for {HUNG_S:g} s) and was ended"
                for run_row in self._store.runs.running_rows([owner_name]):
                    if run_row.id in self._rerun:
                        self._store.runs.fail(run_row.id, run_row.owner, reason)
                    else:
                        self._rerun.add(run_row.id)
                        self._store.runs.release(run_row.id, run_row.owner)
            del self._processes[owner_name]
            process.close_input()
            end_text = exit_text(exit_status)
            ended_ids = self._store.runs.end_runs(
                owner_name, f"its process ended unexpectedly ({end_text})"
            )
            self._stillborn = 0 if ended_ids or exit_status == 0 else self._stillborn + 1
            if self._stillborn >= STILLBORN_MAX:
                self._rested_at_s = time.monotonic() + REST_S
                self.trouble = f"no run can be started ({end_text}): the server's log says why"
                log.error(self.trouble)

    def _unresponsive_rows(self, running: Sequence[RunRow]) -> list[RunRow]:
        """Rows, among the running ones, that ignore a request to stop for longer than DEAF_S."""
        now_s = time.monotonic()
        stopping_rows = [run_row for run_row in running if run_row.cancel_s is not None]
        self._deaf = {run_row.id: self._deaf.get(run_row.id, now_s) for run_row in stopping_rows}
        return [run_row for run_row in stopping_rows if now_s - self._deaf[run_row.id] > DEAF_S]

    def _start_needed_processes(self, waiting: int, running: int) -> None:
        """Start missing processes: one for each waiting or running run, but at least the standby
        number and at most the limit."""
        if self._stillborn >= STILLBORN_MAX and time.monotonic() < self._rested_at_s:
            return
        needed_count = min(self._size, max(self._standby, waiting + running))
        for _ in range(needed_count - len(self._processes)):
            owner_name = secrets.token_urlsafe(12)
            idle_s = float("inf") if not self._processes else IDLE_S
            self._processes[owner_name] = self._start_process(owner_name, idle_s)

    def _start_process(self, name: str, idle_s: float, *options: str) -> Piped:
        """Start a process that takes runs under a name until idle for `idle_s`; listen to it."""
        arguments = (f"--owner={name}", f"--engine={self._engine}", f"--idle-s={idle_s}", *options)
        process = start_process("twin.lab.runs.job", *arguments, **self._store.environment)
        return Piped(process, self._note_stage)

    def _note_stage(self, message: Message | None) -> None:
        """Note that a process began or ended a stage of preparation."""
        if message is not None:
            stage, took_s = message[0]["stage"], message[0]["took_s"]
            began_s = self.stages.get(stage, Stage(time.monotonic())).began_s
            self.stages[stage] = Stage(began_s, took_s)


def _process_count() -> int:
    """Largest number of concurrent processes, at least 1: one core stays free for the web pages,
    and available memory holds PEAK_BYTES_MAX for each."""
    return max(1, int(min(cores() - 1, available_bytes() / PEAK_BYTES_MAX)))
