"""kill -9 at random moments, of server, jobs and commands: nothing finished is ever lost."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.draws import some
from tests.lab.fake_engine import answer
from twin.lab.runs.executor import Runner
from twin.lab.store import Owner, open_store
from twin.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]


class BusyServer:
    """A server process that can be killed and started again; all share one diary."""

    def __init__(self, store, folder: Path, first_seed: int = 0, processes: int = 2):
        self.url = store.database.url.render_as_string(hide_password=False)
        self.environment = {**os.environ, **store.environment}
        self.first_seed, self.processes = first_seed, processes
        self.diary = folder / f"diary {first_seed}"
        self.diary.touch()
        self.errors = folder / f"errors {first_seed}"
        self.started = 0
        self.start()

    def start(self) -> None:
        self.started += 1
        self.seen = len(self.lines())
        command = [sys.executable, "-m", "tests.lab.busy_server", self.url, str(self.diary)]
        seed = self.first_seed + 10_000 * self.started
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, str(seed), "server", str(self.processes)],
                cwd=ROOT,
                env=self.environment,
                stderr=errors,
            )

    def command(self, seed: int) -> subprocess.Popen[bytes]:
        """A run in a process of its own, as the command line does; begun, or over."""
        command = [sys.executable, "-m", "tests.lab.busy_server", self.url, str(self.diary)]
        process = subprocess.Popen([*command, str(seed), "command"], cwd=ROOT)
        while process.poll() is None and ["began", str(seed)] not in self.lines():
            time.sleep(0.02)
        return process

    def lines(self) -> list[list[str]]:
        """Whole lines only: the last may have been torn by a kill."""
        text = self.diary.read_text("utf-8")
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def pids(self) -> list[int]:
        """Its processes, once another run was done since the last kill: it is in full swing."""
        deadline = time.monotonic() + 300
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "no run was done for five minutes"
            news = self.lines()[self.seen :]
            said = [line[1:] for line in news if line[0] == "pids" and line[1:]]
            if said and any(line[0] == "ended" and line[2] == "done" for line in news):
                self.seen += len(news)
                return [int(pid) for pid in said[-1]]
            time.sleep(0.02)
        raise AssertionError(f"the server ended by itself: {self.errors.read_text()[-2000:]}")


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def kill_at_random(server: BusyServer, kills: int) -> None:
    chance = random.Random(kills)
    for n in range(kills):
        jobs, what = server.pids(), chance.choice(["server", "command", "job", "job"])
        command = server.command(-n - 1) if what == "command" else None
        time.sleep(chance.uniform(0.0, 0.3))
        if what == "server":
            server.process.kill()
            server.process.wait()
            server.start()
        elif command is None:
            kill(chance.choice(jobs))
        else:
            command.kill()
            command.wait()
    server.pids()
    server.process.kill()
    server.process.wait()


@pytest.mark.parametrize("kills", some([3], 200))
def test_kills_break_nothing_and_lose_no_finished_run(store, tmp_path, kills):
    server = BusyServer(store, tmp_path)
    kill_at_random(server, kills)
    lines = server.lines()
    asked = {line[1]: int(line[2]) for line in lines if line[0] == "asked"}
    ended = {line[1]: line[2:] for line in lines if line[0] == "ended"}
    assert sum(1 for said in ended.values() if said[0] == "done") >= kills

    # What is left is finished or marked by the next server.
    runner = Runner(store, processes=1, engine="tests.lab.fake_engine").start()
    deadline = time.monotonic() + 180
    while store.runs.search(states=["queued", "running"]).total and time.monotonic() < deadline:
        time.sleep(0.05)
    runner.close(kill=True)

    rows = {row.id: row for row in store.runs.search(limit=100_000).rows}
    assert asked.keys() <= rows.keys(), "a run whose id was given out is gone"
    assert {row.state for row in rows.values()} <= {"done", "interrupted"}
    for run, said in ended.items():
        assert [rows[run].state, rows[run].result_digest] == (said + [""])[:2]
    for run, row in rows.items():
        expected = answer(store.scenarios.load(row.scenario))
        stored = store.runs.tables(run)
        if row.state == "done":
            assert (row.summary, row.result_digest) == (expected.summary, expected.digest)
            assert store.runs.table(run, "requests").equals(expected.tables["requests"])
        else:
            assert (stored, row.summary, row.seal) == ({}, {}, "")
    assert store.find_damage() == []
    assert store.delete_unused(older_than_s=-1) >= 0
    assert store.find_damage() == []


def test_a_run_left_by_a_killed_command_is_marked_by_whoever_opens_the_store(store, add_run):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = add_run(Scenario(), owner=Owner("gone", Owner.current().host, gone.pid, "1"))
    own = add_run(Scenario(seed=2), owner=Owner.current())
    open_store(str(store.database.url), store.artefacts.folder).close()
    assert [store.runs.get(run).state for run in (left, own)] == ["interrupted", "running"]


def test_a_run_left_by_a_dead_process_is_marked_at_the_next_start(store, add_run):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    owner = Owner("gone", Owner.current().host, gone.pid, "1")
    left = add_run(Scenario(), owner=owner)
    runner = Runner(store, processes=1, engine="tests.lab.fake_engine").start()
    runner.close(kill=True)
    assert store.runs.get(left).state == "interrupted"
