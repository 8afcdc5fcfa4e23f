"""A machine that exists only in a test: its clock, disk, processes and locks are drawn from a seed.

The store, the runner and the jobs that run on it are the real ones, on a real SQLite file. What is
simulated is what they stand on. Processes and their threads are greenlets, of which one runs at a
time: at every statement, commit and file operation the next one is drawn, and so is what happens to
it. So a history is replayed by its seed, and a kill can fall between any two steps.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

import polars as pl
from greenlet import getcurrent, greenlet

from tests.lab import fake_engine
from tests.lab.simulated_disk import Disk, Wal
from twin.facts import facts_from_tables
from twin.lab.runs import executor, job, runner
from twin.lab.runs import process as real
from twin.lab.runs.budget import Budget
from twin.lab.store import artefacts, engines, handle, owner, runs, scenarios, statements
from twin.lab.store.errors import StoreError
from twin.lab.store.handle import Store
from twin.scenario import scenario_digest

WALL_S = 1.75e9  # the time of day at which every history begins
BUSY_S = 8.0  # after so long a locked database is said to be busy
STEP_S = 0.01  # a step takes up to so long
FULL = "database or disk is full"
FACTS = facts_from_tables({"a": {"value": 1, "unit": "s", "source": "here", "mark": "a"}})
# Everything that waits is quicker than in life, and in the same order.
CONSTANTS = {
    job: {"PULSE_S": 1.0, "POLL_S": 2.0},
    executor: {
        "BUSY_TICK_S": 1.0,
        "QUIET_TICK_S": 3.0,
        "RECOVER_S": 4.0,
        "SWEEP_S": 6.0,
        "REST_S": 20.0,
    },
    real: {"HUNG_S": float("inf")},  # its processes say nothing
    owner: {"SILENT_S": 10.0, "STUCK_S": 40.0},
}
SWEEP_AGE_S = 20.0


class Killed(BaseException):  # noqa: N818 - not an error: the process is gone
    """This process was killed: nothing that it still tries has an effect."""


@dataclass(eq=False)
class Host:
    """A process table with a clock of its own: two containers of one machine have two."""

    name: str
    ahead_s: float = 0.0


@dataclass(eq=False)
class Process:
    """A simulated process; its tasks are its threads."""

    name: str
    host: Host
    pid: int
    tasks: list[Task] = field(default_factory=list)
    code: int | None = None
    stalled_until_s: float = 0.0

    @property
    def alive(self) -> bool:
        return self.code is None


@dataclass(eq=False)
class Task:
    """A thread of a process: resumed once its time has come or its condition holds."""

    process: Process
    run: greenlet
    wake_s: float = 0.0
    condition: Callable[[], bool] | None = None


@dataclass
class Rates:
    """How often, per step, what goes wrong does; 0 for what this history does without."""

    kill: float = 0.0
    power: float = 0.0
    stall: float = 0.0
    clock: float = 0.0
    full: float = 0.0
    broken: float = 0.0  # of one file operation or commit
    lock: float = 0.0
    rot: float = 0.0

    @staticmethod
    def drawn(chance: random.Random) -> Rates:
        """Some kinds of faults, more or less often: every history has a mixture of its own."""
        most = {"kill": 8e-3, "power": 2e-3, "stall": 3e-3, "clock": 1e-3, "full": 2e-3}
        most |= {"broken": 1e-2, "lock": 1e-3, "rot": 1e-3}
        return Rates(**{k: m * chance.random() for k, m in most.items() if chance.random() < 0.5})


class World:
    """Time, processes and faults of one history."""

    def __init__(self, seed: int, folder: Path, spy: Callable[[], None]):
        self.chance = random.Random(seed)
        self.spy = spy  # called after every commit
        self.drawn = self.rates = Rates.drawn(self.chance)
        self.now_s = 0.0
        self.hosts = [Host("one"), Host("two")]
        self.processes: list[Process] = []
        self.history: list[str] = []
        self.wrong: list[str] = []
        self.unsure = 0  # commits of which nobody was told whether they happened
        self.outages = 0  # of power
        self.pages = self.chance.choice([20, 1000])  # of the log, before a checkpoint
        self.full_until_s = 0.0
        self.rotten: set[str] = set()
        self.connections: WeakSet[sqlite3.Connection] = WeakSet()
        self.next_pid = 101
        self._hub = getcurrent()
        self._task: Task | None = None
        self.disk = Disk(folder, self.chance)
        self.wal = Wal(folder / "twin.db", self.chance)

    # What happened.

    def say(self, *words: object) -> None:
        """A line of the history."""
        who = self._task.process.name if self._task else "-"
        self.history.append(f"{self.now_s:9.3f} {who:12} " + " ".join(map(str, words)))

    def fault(self, words: str) -> None:
        """A law that was broken: the history ends badly."""
        self.say("WRONG:", words)
        self.wrong.append(words)

    # Processes.

    @property
    def process(self) -> Process:
        """The one that runs now."""
        assert self._task is not None
        return self._task.process

    def start(self, name: str, host: Host, main: Callable[[], object]) -> Process:
        """A new process that runs `main`."""
        process = Process(name, host, self.next_pid)
        self.next_pid += 1
        self.processes.append(process)

        def whole() -> None:
            code = 1
            try:
                main()
                code = 0
            except Exception:
                self.fault(f"{name} crashed: {traceback.format_exc()}")
            process.code = code

        self.spawn(process, whole)
        return process

    def spawn(self, process: Process, run: Callable[[], object]) -> Task:
        """A new thread of a process."""

        def until_killed() -> None:
            try:
                run()
            except Killed:
                return
            except Exception:
                self.fault(f"a thread of {process.name} crashed: {traceback.format_exc()}")

        task = Task(process, greenlet(until_killed, self._hub), self.now_s)
        process.tasks.append(task)
        return task

    def kill(self, process: Process, code: int = -9) -> None:
        """End a process at once; where it stands it leaves everything as it is."""
        if process.alive:
            self.say("kill -9", process.name)
            process.code = code
        if self._task is not None and process is self._task.process:
            raise Killed
        self._bury(process)

    def _bury(self, process: Process) -> None:
        """Unwind the threads of a dead process; its hooks refuse whatever they still try."""
        before = self._task
        for task in process.tasks:
            if task.run:  # begun and not over
                self._task = task
                task.run.parent = getcurrent()
                task.run.throw(Killed)
        self._task = before
        process.tasks.clear()

    # Time.

    def pause(self, wake_s: float, condition: Callable[[], bool] | None = None) -> None:
        """Let others run until a time or condition; raises Killed."""
        task = self._task
        if task is None:
            return
        if task.process.alive:
            task.wake_s, task.condition = wake_s, condition
            self._hub.switch()
        if not task.process.alive:
            raise Killed

    def step(self, words: str = "") -> None:
        """Between two steps of a process, where others may come in."""
        if words:
            self.say(words)
        self.pause(self.now_s)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.pause(self.now_s + seconds)

    def wait(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Until a condition holds, at most so long; whether it does."""
        if not condition():
            self.pause(float("inf") if timeout_s is None else self.now_s + timeout_s, condition)
        return condition()

    def run(self, until_s: float, over: Callable[[], bool] = lambda: False) -> None:
        """Resume one task after the other until a time, or until it is over."""
        while self.now_s < until_s and not over():
            tasks = [t for p in self.processes if p.alive for t in p.tasks]
            ready = [t for t in tasks if self._ready_s(t) <= self.now_s]
            if not ready:
                self.now_s = min(until_s, *(self._ready_s(t) for t in tasks), until_s)
                continue
            self.now_s += self.chance.random() * STEP_S
            task = self.chance.choice(ready)
            if self._spared(task):
                self._resume(task)

    def _ready_s(self, task: Task) -> float:
        wake_s = self.now_s if task.condition and task.condition() else task.wake_s
        return max(wake_s, task.process.stalled_until_s)

    def _resume(self, task: Task) -> None:
        self._task = task
        task.run.switch()
        self._task = None
        if task.run.dead:
            if task in task.process.tasks:
                task.process.tasks.remove(task)
            if not task.process.alive:
                self._bury(task.process)

    def _spared(self, task: Task) -> bool:
        """Draw what happens before a task goes on; whether it still can."""
        rates, chance, process = self.rates, self.chance, task.process
        if chance.random() < rates.kill:
            self.kill(process)
        elif chance.random() < rates.power:
            self.lose_power()
        elif chance.random() < rates.stall:
            seconds = chance.choice([3.0, 12.0, 60.0])
            self.say(f"{process.name} stalls for {seconds:.0f} s")
            process.stalled_until_s = self.now_s + seconds
            return False
        if chance.random() < rates.clock:
            host = chance.choice(self.hosts)
            host.ahead_s = chance.choice([-3600.0, -30.0, 0.0, 30.0, 3600.0])
            self.say(f"the clock of {host.name} is off by {host.ahead_s:.0f} s")
        if chance.random() < rates.full:
            self.full_until_s = self.now_s + chance.choice([0.05, 2.0, 10.0])
            self.say(f"the disk is full until {self.full_until_s:.1f} s")
        if chance.random() < rates.lock:
            self.start("a backup", chance.choice(self.hosts), self._hold_lock)
        if chance.random() < rates.rot and (name := self.disk.rot()):
            self.say(f"{name[:8]} rots")
            self.rotten.add(name)
        return process.alive

    def heal(self) -> None:
        """From now on nothing goes wrong any more; clocks and disk are well."""
        self.say("nothing goes wrong from here on")
        self.rates, self.full_until_s = Rates(), 0.0
        for host in self.hosts:
            host.ahead_s = 0.0
        for process in self.processes:
            process.stalled_until_s = min(process.stalled_until_s, self.now_s)

    # Disk and database.

    @property
    def full(self) -> bool:
        return self.now_s < self.full_until_s

    def broken(self) -> bool:
        """Whether this one operation on the disk fails."""
        return self._task is not None and self.chance.random() < self.rates.broken

    def touch(self, path: Path) -> None:
        """A file's time, by the clock of whoever wrote it."""
        os.utime(path, (self.wall_s(), self.wall_s()))

    def wall_s(self) -> float:
        """The time of day where the running process is."""
        ahead_s = self._task.process.host.ahead_s if self._task else 0.0
        return WALL_S + self.now_s + ahead_s

    def _hold_lock(self) -> None:
        """Another program that keeps the database locked, as a backup does."""
        connection = sqlite3.connect(self.wal.database, timeout=0, isolation_level=None)
        try:
            while True:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    break
                except sqlite3.OperationalError:
                    self.sleep(0.3)
            self.say("keeps the database locked")
            self.sleep(self.chance.choice([2.0, 2 * BUSY_S]))
        finally:
            connection.close()

    def lose_power(self) -> None:
        """Everything ends, and what no one forced to the disk may be gone or torn."""
        self.say("the power fails")
        self.wal.keep()
        for process in self.processes:
            if process.alive:
                process.code = -9
                self._bury(process)
        self.database.close()
        for connection in [*self.connections]:
            connection.close()
        for lost in [*self.wal.lose(), *self.disk.lose()]:
            self.say("lost:", lost)
        self.outages += 1

    database: engines.Database  # of every process: each has connections of its own


# What the modules under test see in place of the real thing.


def _time(world: World) -> SimpleNamespace:
    return SimpleNamespace(
        time=world.wall_s, monotonic=lambda: 1e4 + world.now_s, sleep=world.sleep
    )


def _secrets(world: World) -> SimpleNamespace:
    return SimpleNamespace(
        token_hex=lambda n: f"{world.chance.getrandbits(8 * n):0{2 * n}x}",
        token_urlsafe=lambda n: f"{world.chance.getrandbits(4 * n):0{n}x}",
    )


def _threading(world: World) -> SimpleNamespace:
    class Event:
        def __init__(self) -> None:
            self._set = False

        def set(self) -> None:
            self._set = True

        def clear(self) -> None:
            self._set = False

        def wait(self, timeout: float | None = None) -> bool:
            return world.wait(lambda: self._set, timeout)

    class Lock:
        def __init__(self) -> None:
            self._held = False

        def __enter__(self) -> None:
            while self._held:
                world.wait(lambda: not self._held)
            self._held = True

        def __exit__(self, *_: object) -> None:
            self._held = False

    class Thread:
        def __init__(self, target: Callable[..., object], args: tuple[Any, ...] = (), **_: object):
            self._run = lambda: target(*args)
            self._task: Task | None = None

        def start(self) -> None:
            self._task = world.spawn(world.process, self._run)

        def is_alive(self) -> bool:
            return self._task is not None and not self._task.run.dead

        def join(self) -> None:
            world.wait(lambda: not self.is_alive())

    return SimpleNamespace(Event=Event, Lock=Lock, Thread=Thread)


def _popen(world: World) -> type:
    class Popen:
        """A job process, as the runner starts it; `stdin` is how the job hears of its parent."""

        def __init__(self, command: list[str], **_: object):
            given = dict(word[2:].split("=") for word in command if word.startswith("--"))
            self.stdin = SimpleNamespace(closed=False, write=self._wake, flush=lambda: None)
            self.stdin.close = self._close
            self.stdout = _Silence()
            self._woken = False
            server = world.process
            popen = self

            class Parent:
                gone = property(lambda _: popen.stdin.closed or not server.alive)
                wait = staticmethod(popen._wait)

            def main() -> None:
                try:
                    store = handle.open_store("the store")
                    own = owner.Owner.current(given["owner"])
                    engine = job.load_engine(given["engine"])
                    job.serve(store, own, engine, Parent(), float(given["idle-s"]))
                except StoreError as error:
                    world.say("refused:", error)

            self._process = world.start(f"job {world.next_pid}", server.host, main)
            self.pid = self._process.pid

        def _wake(self, _line: bytes) -> None:
            self._woken = True

        def _close(self) -> None:
            self.stdin.closed = self._woken = True

        def _wait(self, seconds: float) -> None:
            world.wait(lambda: self._woken, seconds)
            self._woken = False

        def poll(self) -> int | None:
            return self._process.code

        def kill(self) -> None:
            world.kill(self._process)

        def wait(self) -> None:
            return None

    return Popen


class _Silence:
    """A pipe on which nothing is ever said."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[bytes]:
        return iter(())


def _driver(world: World) -> Any:
    """SQLite's driver; a transaction pauses at every statement, and may fail as a disk fails."""

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
            if sql == "BEGIN IMMEDIATE":
                return self._lock(sql)
            if self.connection.in_transaction:
                world.step()
                self._refuse(sql)
            return self._tried(super().execute, sql, *given)

        def executemany(self, sql: str, *given: Any) -> sqlite3.Cursor:
            world.step()
            self._refuse(sql)
            return self._tried(super().executemany, sql, *given)

        def _refuse(self, sql: str) -> None:
            if world.full and not sql.startswith(("SELECT", "PRAGMA")):
                self.connection.rollback()  # as SQLite does
                raise sqlite3.OperationalError(FULL)

        def _tried(self, execute: Callable[..., sqlite3.Cursor], *given: Any) -> sqlite3.Cursor:
            try:
                return execute(*given)
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    world.fault("a transaction met another one's lock after it had begun")
                raise

        def _lock(self, sql: str) -> sqlite3.Cursor:
            deadline_s = world.now_s + BUSY_S
            while True:
                world.step()
                try:
                    return super().execute(sql)
                except sqlite3.OperationalError:
                    if world.now_s > deadline_s:
                        raise
                world.sleep(0.3)

    class Connection(sqlite3.Connection):
        def __init__(self, *given: Any, **named: Any):
            super().__init__(*given, **named)
            self._cursors: WeakSet[Cursor] = WeakSet()
            world.connections.add(self)

        def cursor(self, *_: object) -> Cursor:
            cursor = super().cursor(Cursor)
            self._cursors.add(cursor)
            return cursor

        def close(self) -> None:
            for cursor in [*self._cursors]:  # one that is still referred to keeps the file open
                cursor.close()
            self._cursors.clear()
            super().close()

        def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
            if "busy_timeout" in sql:
                sql = f"PRAGMA wal_autocheckpoint={world.pages}"  # who waits, waits in our time
            return super().execute(sql, *given)

        def commit(self) -> None:
            if not self.in_transaction:
                return
            writes = super().execute("PRAGMA query_only").fetchone()[0] == 0
            world.step("commits" if writes else "")
            fails = writes and world.broken()
            if writes and (world.full or (fails and world.chance.random() < 0.5)):
                self.rollback()
                raise sqlite3.OperationalError(FULL if world.full else "disk I/O error")
            changes = self.total_changes
            super().commit()
            if writes:
                level = super().execute("PRAGMA synchronous").fetchone()[0]
                world.wal.committed(synced=level == 2)
                world.spy()
            if fails:
                world.unsure += 1
                world.say("is not told that it was committed", changes)
                raise sqlite3.OperationalError("disk I/O error")
            world.step()

    class Driver:
        def __getattr__(self, name: str) -> Any:
            return getattr(sqlite3, name)

        def connect(self, *given: Any, **named: Any) -> sqlite3.Connection:
            return sqlite3.connect(*given, **{**named, "timeout": 0}, factory=Connection)

    return Driver()


def _paths(world: World) -> type[Path]:
    """Paths whose changes pause, fail and are noted for what a loss of power would undo."""

    def tried(path: Path) -> None:
        world.step()
        if world.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        if world.broken():
            raise OSError(errno.EIO, "Input/output error", str(path))

    class SimulatedPath(type(Path())):  # type: ignore[misc]
        def replace(self, target: Path) -> Path:
            tried(self)
            world.disk.forget(target)
            moved = super().replace(target)
            world.step()
            return moved

        def unlink(self, missing_ok: bool = False) -> None:
            world.step()
            if world.broken():
                raise OSError(errno.EIO, "Input/output error", str(self))
            world.disk.forget(self)
            super().unlink(missing_ok)

        def mkdir(self, *given: Any, **named: Any) -> None:
            tried(self)
            super().mkdir(*given, **named)

        def read_bytes(self) -> bytes:
            world.step()
            return super().read_bytes()

    return SimulatedPath


def _os(world: World) -> Any:
    class Os:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def fsync(self, handle: int) -> None:
            world.step()
            if world.full or world.broken():
                code = errno.ENOSPC if world.full else errno.EIO
                raise OSError(code, os.strerror(code))
            world.disk.sync(handle)

        def utime(self, path: Path) -> None:
            world.step()
            world.touch(path)

    return Os()


class _OneByOne:
    """Files on their way to the disk, one after the other."""

    def __init__(self, _: int):
        self.map = map

    def __enter__(self) -> _OneByOne:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _write_parquet(world: World) -> Callable[..., None]:
    write = pl.DataFrame.write_parquet

    def tried(frame: pl.DataFrame, path: Path, **options: Any) -> None:
        world.step()
        write(frame, path, **options)
        world.touch(path)
        if world.full:
            os.truncate(path, path.stat().st_size // 2)
            raise pl.exceptions.ComputeError("No space left on device (os error 28)")
        world.step()

    return tried


# The engine that the simulated jobs run.

ENGINE_VERSION = "simulated-1"
Cancelled = fake_engine.Cancelled
_here: list[World] = []  # the world of this moment


def simulate(scenario: Any, facts: Any, trace: Any = None, progress: Any = None, **_: Any) -> Any:
    """As many seconds as a scenario's horizon has minutes, then the fake engine's answer."""
    world = _here[-1]
    if scenario.question == "impossible":
        raise ValueError("this cannot be")
    seconds = int(scenario.horizon_s) // 60
    for second in range(seconds):
        world.sleep(1.0)
        heard = progress is None or progress(second / seconds, {"t_s": float(second)})
        if not heard and scenario.question != "deaf":
            raise Cancelled
    return fake_engine.answer(scenario, requests=10)


@contextmanager
def simulated(seed: int, folder: Path, template: Path, spy: Callable[[], None]) -> Iterator[World]:
    """A world on a copy of a migrated database; `spy` is called after every commit."""
    shutil.copy(template, folder / "twin.db")
    world = World(seed, folder, spy)
    path = _paths(world)(folder / "twin.db")
    with ExitStack() as stack:

        def put(target: Any, name: str, value: Any) -> None:
            stack.enter_context(patch.object(target, name, value))

        put(engines, "_sqlite_driver", lambda: _driver(world))
        world.database = engines.open_database(f"sqlite:///{folder / 'twin.db'}")
        object.__setattr__(world.database, "path", path)
        for module in (runs, scenarios, statements, artefacts, handle, job, executor):
            put(module, "time", _time(world))
        for module in (runs, artefacts, owner, executor, job):
            put(module, "secrets", _secrets(world))
        for module in (job, executor):
            put(module, "threading", _threading(world))
        for module in (job, executor, runner):
            put(module, "load_facts", lambda: FACTS)
        for module in (executor, runner):
            put(module, "budget_of", lambda *_: Budget(1.0, 1.0, 1.0))
        for name in ("peak_bytes", "resident_bytes"):  # of the simulated process, not of this one
            put(job, name, lambda: 0)
        put(real, "subprocess", SimpleNamespace(Popen=_popen(world), PIPE=None))
        put(owner, "os", SimpleNamespace(getpid=lambda: world.process.pid))
        put(owner, "this_host", lambda: world.process.host.name)
        put(owner, "_start_time", lambda pid: _started(world, pid))
        put(artefacts, "os", _os(world))
        put(artefacts, "ThreadPoolExecutor", _OneByOne)
        usage = SimpleNamespace(
            disk_usage=lambda _: SimpleNamespace(free=0 if world.full else 1e12)
        )
        put(artefacts, "shutil", usage)
        put(pl.DataFrame, "write_parquet", _write_parquet(world))
        put(handle, "open_database", lambda _: world.database)
        put(handle, "set_source", lambda _: None)
        put(Store.delete_unused, "__defaults__", (SWEEP_AGE_S,))
        for module, constants in CONSTANTS.items():
            for name, value in constants.items():
                put(module, name, value)
        stack.enter_context(patch.dict(os.environ))
        os.environ.pop(handle.ARTEFACTS_VARIABLE, None)
        _here.append(world)
        try:
            yield world
        finally:
            for process in world.processes:
                if process.alive:
                    process.code = 0
                    world._bury(process)
            world.database.close()
            _here.pop()


def _started(world: World, pid: int) -> str | None:
    """When a process of the caller's host began; None when it is gone."""
    for process in world.processes:
        if process.pid == pid and process.alive and process.host is world.process.host:
            return str(pid)
    return None


def digest(scenario: Any) -> str:
    """Of a scenario that never changes: worked out once."""
    return _digests.setdefault(scenario, scenario_digest(scenario))


_digests: dict[Any, str] = {}
