"""A job carries out one stored run. As a program (`python -m twin.lab.runs.job`) it takes queued
runs until its parent is gone or it was idle for long."""

import argparse
import importlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from twin.kernels import compiled
from twin.lab.library import load_facts
from twin.lab.runs import warm
from twin.lab.runs.budget import Budget, budget_of, limit_bytes
from twin.lab.runs.process import PEAK_BYTES_MAX, end_now, listen, peak_bytes, resident_bytes
from twin.lab.store import Owner, RunRow, Store, StoreError, open_store
from twin.lab.store.models import EXPLAINED
from twin.lab.store.owner import CLUSTER
from twin.lab.store.runs import Beat
from twin.lab.store.statements import require
from twin.scenario import Scenario

if TYPE_CHECKING:
    from twin.engine.simulate import Run

log = logging.getLogger(__name__)

ENGINE = "twin.engine.simulate"
EXPLAIN = "twin.lab.explain.explain"  # answers what a run means; its runs are its own
PULSE_S = 0.25  # between two looks at the database while a run goes on
POLL_S = 1.0  # between two looks for work; a line on standard input wakes at once
LATER = ("colocated engine",)  # compiled by a helper or when first needed: few runs need it

Watch = Callable[[float, Mapping[str, Any]], bool]  # whether to go on


def load_engine(name: str = ENGINE) -> ModuleType:
    """Import an engine: a module with `simulate`, `ENGINE_VERSION` and `Cancelled`."""
    return importlib.import_module(name)


def engine_of(row: RunRow, engine: ModuleType) -> ModuleType:
    """Engine module of a run: the one that explains for an explanation, else the given one."""
    return load_engine(EXPLAIN) if row.engine_version.startswith(EXPLAINED) else engine


@contextmanager
def start_heartbeat(
    store: Store, run: str, owner: Owner, watch: Watch | None, budget: Budget | None
) -> Iterator[Watch]:
    """Start a thread that stores a run's progress until the block ends; yields a function that
    takes progress, also for `watch`, and returns whether to continue. With a budget the thread ends
    the run and this process if they take far more memory."""
    latest_progress: tuple[float, dict[str, Any]] = (0.0, {})
    beat_reply: Beat = "go"
    is_over = threading.Event()

    def beat_until_over() -> None:
        """Store progress as a heartbeat, and read whether to stop, until the run is over."""
        nonlocal beat_reply
        while not is_over.wait(PULSE_S):
            if budget is not None and (taken_bytes := resident_bytes()) > limit_bytes(budget):
                _fail_too_large(store, run, owner, budget, taken_bytes)
            try:
                beat_reply = store.runs.beat(run, owner, *latest_progress)
            except StoreError as error:
                # The next beat may get through; a run outlives many missed ones.
                log.warning("progress of run %s was not stored: %s", run, error)

    def take_progress(share_done: float, live: Mapping[str, Any]) -> bool:
        """Note progress for the next heartbeat; returns whether the run goes on."""
        nonlocal latest_progress
        latest_progress = (share_done, dict(live))
        return beat_reply == "go" and (watch is None or watch(share_done, live))

    beat_thread = threading.Thread(target=beat_until_over, daemon=True)
    beat_thread.start()
    try:
        yield take_progress
    finally:
        is_over.set()
        beat_thread.join()


def execute_run(
    store: Store, row: RunRow, owner: Owner, engine: ModuleType, watch: Watch | None = None,
    limited: bool = False,
) -> "Run":  # fmt: skip
    """Carry out a run and store its result; an error is stored and raised again. limited: end the
    run and this process if they take far more memory than estimated."""
    start_s, budget = time.monotonic(), None
    try:
        if limited:
            budget = budget_of(store, store.scenarios.load(row.scenario), load_facts())
        with start_heartbeat(store, row.id, owner, watch, budget) as take_progress:
            if row.engine_version != engine.ENGINE_VERSION:
                raise StoreError(
                    f"this run was requested of engine {row.engine_version}, and here is "
                    f"{engine.ENGINE_VERSION}: run the scenario again"
                )
            run_result = compute_run(store, row, engine, take_progress)
            store.runs.finish(row.id, owner, run_result, time.monotonic() - start_s)
    except (engine.Cancelled, KeyboardInterrupt):
        store.runs.end_cancelled(row.id, owner)
        raise
    except Exception as error:
        store.runs.fail(row.id, owner, _error_text(error, row.id))
        raise
    return run_result


def compute_run(store: Store, row: RunRow, engine: ModuleType, progress: Watch) -> "Run":
    """An engine's result for the scenario and the facts of a run's row."""
    scenario = store.scenarios.load(row.scenario)
    facts = load_facts()
    if facts.digest != row.facts_digest:
        facts = store.facts(row.facts_digest)
    trace, counts_table = store.traces.value_of(scenario), store.counts.value_of(scenario)
    count_args = {} if counts_table is None else {"counts": counts_table.counts}
    run: Run = engine.simulate(scenario, facts, trace=trace, progress=progress, **count_args)
    return run


def _fail_too_large(store: Store, run: str, owner: Owner, budget: Budget, taken_bytes: int) -> None:
    """Fail a run that takes too much memory (bytes), and end this process."""
    reason = (
        f"the run took {taken_bytes / 1e9:.2g} GB of memory, and {limit_bytes(budget) / 1e9:.2g} "
        f"GB are allowed ({budget.memory_bytes / 1e9:.2g} GB were estimated): shorten horizon_s or "
        "lower the rate"
    )
    try:
        store.runs.fail(run, owner, reason)
    finally:
        log.error("run %s was ended: %s", run, reason)
        os._exit(0)


def _error_text(error: Exception, run: str) -> str:
    """Sentence about an error for a person; internal errors refer to the log."""
    if type(error).__module__.startswith("twin."):
        return str(error)
    reference = secrets.token_hex(4)
    log.error("run %s failed (reference %s)", run, reference, exc_info=error)
    return f"the engine failed: {type(error).__name__}: {error} (reference {reference} in the log)"


class Parent:
    """Connection to the parent process, which wakes this one."""

    def __init__(self) -> None:
        """Begin to listen to the parent process."""
        self._woken = threading.Event()
        self.gone = False
        self.ready = False  # before, nothing has begun that must be ended in order
        self._say = listen(lambda _: self._woken.set(), self._end)

    def _end(self) -> None:
        """Note that the input has ended; end this process at once while it only prepares."""
        if not self.ready:
            end_now()  # no process waits for what is being compiled
        self.gone = True
        self._woken.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until woken or closed, or until a timeout."""
        self._woken.wait(timeout_s)
        self._woken.clear()

    def tell(self, stage: str, took_s: float | None) -> None:
        """Report that a stage of preparation has begun (None), or how many seconds it took."""
        self._say({"stage": stage, "took_s": took_s})


def set_up_once() -> None:
    """Set up a tiny scenario once, so that all modules are loaded before a user waits."""
    from twin.engine.setup import set_up

    tiny_workload = {"rate_req_per_s": 1.0, "input_tokens": 256, "output_tokens": 8}
    tiny_scenario = {"horizon_s": 1.0, "warmup_s": 0.0, "workload": tiny_workload}
    set_up(Scenario.model_validate(tiny_scenario), load_facts(), None)


def stages_of(name: str) -> warm.Stages:
    """Independent stages of compiling an engine, by name; empty for another than ENGINE."""
    return {**compiled.STAGES, "set-up": set_up_once} if name == ENGINE else {}


def compile_once(tell: warm.Tell) -> None:
    """Compile or load all that runs need; tell: as in `compile_stages`. Raises OSError."""
    if not warm.is_compiled():
        load_engine()
        warm.compile_stages(stages_of(ENGINE), tell)


@cache
def _cluster_store_and_owner() -> tuple[Store, Owner]:
    """The environment's store, and this process as an owner of runs in a cluster."""
    return open_store(), Owner.current(CLUSTER + secrets.token_urlsafe(12))


def warm_up(_: str) -> str:
    """Compile, or load, all that runs need, as a task of a cluster; returns ''."""
    load_engine()
    warm.compile_stages(stages_of(ENGINE), lambda _stage, _took_s: None, later=LATER)
    return ""


def carry_out(text: str) -> str:
    """Carry out a stored run (text: "engine's-module id") for a cluster; returns its state. Waits
    while another process has it, restarts it after a dead one. Raises StoreError."""
    engine_name, _, run = text.partition(" ")
    store, owner = _cluster_store_and_owner()
    store.runs.end_runs(owner.name, "how it ended could not be stored")
    engine = load_engine(engine_name)
    while (claimed_row := store.runs.claim(owner, run)) is None:
        run_row = store.runs.get(run)
        if run_row is None:
            raise StoreError(
                f"run {run} is not in the store that this process of a cluster opens: start it "
                "with the TWIN_DB_URL and the TWIN_ARTIFACTS of the server"
            )
        if run_row.ended:
            return run_row.state
        time.sleep(PULSE_S)
        store.runs.recover()
    try:
        execute_run(store, claimed_row, owner, engine_of(claimed_row, engine), limited=True)
    except engine.Cancelled:
        log.info("run %s was stopped on request", run)
    except Exception as error:
        log.error("%s", error)
        store.runs.end_runs(owner.name, str(error))
    return require(store.runs.get(run), "run", run).state


def serve(store: Store, owner: Owner, engine: ModuleType, parent: Parent, idle_s: float) -> None:
    """Carry out queued runs until the parent is gone, `idle_s` passed, or memory grew too much."""
    idle_since_s = time.monotonic()
    unstored_reason = ""  # why the last run ended, where that may not have been stored
    while not parent.gone and time.monotonic() - idle_since_s < idle_s:
        claimed_run = None
        try:
            if unstored_reason:
                store.runs.end_runs(owner.name, unstored_reason)
                unstored_reason = ""
            claimed_run = store.runs.claim(owner)
            if claimed_run is not None:
                execute_run(store, claimed_run, owner, engine_of(claimed_run, engine), limited=True)
        except engine.Cancelled:
            log.info("run %s was stopped on request", claimed_run.id if claimed_run else "")
        except Exception as error:
            log.error("%s", error)
            unstored_reason = unstored_reason or str(error)
        if claimed_run is None:
            parent.wait(POLL_S)
            continue
        # However it ended: the next may begin at once, in a process that is not too large.
        idle_since_s = time.monotonic()
        if peak_bytes() > PEAK_BYTES_MAX:
            return


def main() -> None:
    """Take queued runs from the store that the environment names, as the command's options say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owner", required=True, help="name under which runs are claimed")
    parser.add_argument("--engine", default=ENGINE, help="module of the engine")
    parser.add_argument("--idle-s", type=float, default=float("inf"), help="end after so long")
    parser.add_argument("--prepare-only", action="store_true", help="lend a hand, then end")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="job %(process)d: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    if hasattr(os, "nice"):
        os.nice(5)  # the pages stay quick while runs compute
    engine, parent = load_engine(arguments.engine), Parent()
    stages = stages_of(arguments.engine)
    if arguments.prepare_only:
        os.nice(10)  # the first visitor's page goes before
        warm.compile_stages(stages, parent.tell, shared_only=True)
    else:
        warm.compile_stages(stages, parent.tell, later=LATER)
        parent.ready = True
        serve(open_store(), Owner.current(arguments.owner), engine, parent, arguments.idle_s)
    end_now()


if __name__ == "__main__":
    main()
