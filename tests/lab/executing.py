"""How quick runs in the background are: `python -m tests.lab.executing`.

Empty runs: what asking for one and carrying one out costs, and how soon the first begins. Runs that
keep a core busy: what is gained by as many processes as there are. A run of the engine: how good
the time left is that its page tells.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from twin.lab.library import preset
from twin.lab.runs import executor
from twin.lab.runs.executor import Runner
from twin.lab.runs.job import ENGINE
from twin.lab.store import Store, open_store
from twin.scenario import Scenario, with_overrides

FAKE = "tests.lab.fake_engine"
EMPTY, BUSY = 1000, 4  # runs
PATIENCE_S = 600.0


def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("waited in vain")
        time.sleep(0.01)


@contextmanager
def running(processes: int, engine: str) -> Iterator[tuple[Store, Runner]]:
    """A store and a runner, with a warm process."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/twin.db")
        runner = Runner(store, processes=processes, engine=engine).start()
        until(lambda: runner._processes)
        first = runner.submit(Scenario(name="warm", horizon_s=1.0, warmup_s=0.0, seed=99))
        runner.wait_for(first, PATIENCE_S)
        yield store, runner
        runner.close(kill=True)
        store.close()


def waiting(store: Store) -> bool:
    """Whether anything waits or runs."""
    return bool(store.runs.search(states=("queued", "running")).total)


def empty() -> str:
    """Runs that take no time."""
    executor.WAITING_MAX = EMPTY
    with running(1, FAKE) as (store, runner):
        begun_s = time.time()
        runs = [
            runner.submit(Scenario(horizon_s=0.1, warmup_s=0.0, seed=seed)) for seed in range(EMPTY)
        ]
        asked_s = time.time() - begun_s
        until(lambda: not waiting(store))
        rows = [store.runs.get(run) for run in runs]
        first_s = min(row.started_s or 0.0 for row in rows if row) - begun_s
        ended_s = max(row.finished_s or 0.0 for row in rows if row) - begun_s
    return (
        f"{EMPTY} empty runs asked for in {asked_s:.1f} s, carried out by one process in "
        f"{ended_s:.1f} s; the first began after {first_s:.2f} s"
    )


def busy() -> str:
    """Runs of two seconds of the processor, one after the other and side by side."""
    took = {}
    for processes in (1, executor.cores()):
        with running(processes, FAKE) as (store, runner):
            begun_s = time.time()
            for seed in range(BUSY * executor.cores()):
                runner.submit(Scenario(question="busy", horizon_s=200.0, seed=seed))
            until(lambda store=store: not waiting(store))
            took[processes] = time.time() - begun_s
    cores = executor.cores()
    return (
        f"{BUSY * cores} busy runs: {took[1]:.1f} s in one process, {took[cores]:.1f} s in "
        f"{cores}: {took[1] / cores / took[cores]:.0%} of {cores} cores"
    )


def time_left() -> str:
    """What a page says of a run of the engine at a tenth of it and later, over what it took."""
    quick = preset("quickstart")
    assert quick is not None
    with running(1, ENGINE) as (store, runner):
        run = runner.submit(with_overrides(quick, {"horizon_s": 4000.0}))
        said: list[tuple[float, float, float]] = []
        moves: list[float] = []
        shown = -1.0
        while (row := runner.row(run)) and not row.ended:
            if row.progress != shown and row.started_s:
                shown, now = row.progress, time.time()
                moves.append(now)
                if row.progress >= 0.1:
                    elapsed_s = now - row.started_s
                    said.append((row.progress, now, elapsed_s * (1 / row.progress - 1)))
            time.sleep(0.02)
        ended_s = row.finished_s or 0.0
    gaps = [later - earlier for earlier, later in zip(moves, moves[1:], strict=False)]
    told = []
    for share in (0.1, 0.25, 0.5, 0.75):
        _, at_s, left_s = next(one for one in said if one[0] >= share)
        told.append(f"{left_s / (ended_s - at_s):.2f} at {share:.0%}")
    return (
        f"time left over what was left: {', '.join(told)} of {ended_s - moves[0]:.0f} s; progress "
        f"moved at least every {max(gaps):.1f} s"
    )


if __name__ == "__main__":
    for measure in (empty, busy, time_left):
        sys.stdout.write(measure() + "\n")
        sys.stdout.flush()
