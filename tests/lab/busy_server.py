"""A server that keeps asking short questions, and writes down what it was told, durably."""

import os
import sys
import time
from pathlib import Path

from twin.lab.runs.executor import Runner
from twin.lab.runs.runner import run_now
from twin.lab.store import open_store
from twin.scenario import Scenario

ENGINE = "tests.lab.fake_engine"


def command(url: str, diary: Path, seed: int) -> None:
    """One run in this process, as the command line does; written down once it has begun."""
    begun = False

    def watch(_fraction: float, _live: object) -> bool:
        nonlocal begun
        if not begun:
            begun = True
            with diary.open("a") as file:
                file.write(f"began {seed}\n")
        return True

    scenario = Scenario(seed=1_000_000 - seed, horizon_s=20.0, warmup_s=0.0)
    run_now(open_store(url), scenario, watch=watch, engine=ENGINE)


def server(url: str, diary: Path, first_seed: int, processes: int) -> None:
    store = open_store(url)
    runner = Runner(store, processes=processes, engine=ENGINE).start()
    asked: set[str] = set()
    seed = first_seed
    with diary.open("a") as file:

        def note(*words: object) -> None:
            file.write(" ".join(map(str, words)) + "\n")
            file.flush()
            os.fsync(file.fileno())

        while True:
            while len(asked) < 4:
                seed += 1
                run = runner.submit(Scenario(seed=seed, horizon_s=4.0, warmup_s=0.0))
                note("asked", run, seed)
                asked.add(run)
            for run in sorted(asked):
                row = store.runs.get(run)
                if row.ended:
                    note("ended", run, row.state, row.result_digest)
                    asked.discard(run)
            note("pids", *[process.pid for process in [*runner._processes.values()]])
            time.sleep(0.05)


if __name__ == "__main__":
    url, diary, first_seed, what, *processes = sys.argv[1:]
    if what == "command":
        command(url, Path(diary), int(first_seed))
    else:
        server(url, Path(diary), int(first_seed), int(processes[0]))
