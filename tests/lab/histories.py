"""Histories: visitors, servers, jobs and commands on a machine where everything goes wrong.

    python -m tests.lab.histories SEED

prints one, as it is drawn from its number. What each visitor was told is written down, and in the
end, when nothing goes wrong any more, the store has to agree with it.
"""

import logging
import re
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.lab import fake_engine, simulated
from tests.lab.simulated import World
from twin.lab.kinds import CountsTable
from twin.lab.runs.executor import Runner
from twin.lab.runs.runner import run_now
from twin.lab.store import RunRow, Store, StoreError, handle, open_store
from twin.lab.store.migrate import GUARDS
from twin.lab.store.models import ENDED_STATES, QUEUED, RUNNING, TRANSITIONS
from twin.scenario import Scenario

ENGINE = "tests.lab.simulated"
LIFE_S, FAREWELL_S, PATIENCE_S = 16.0, 5.0, 200.0  # in between everybody ends what they do
VISITORS = ("ann", "ben", "cem")
QUESTIONS = ("", "", "", "broken", "impossible", "deaf")
SCENARIOS = [
    Scenario(question=question, seed=seed, horizon_s=60.0 * (1 + 2 * seed))
    for seed, question in enumerate(QUESTIONS)
]
EXPECTED = [fake_engine.answer(scenario, requests=10) for scenario in SCENARIOS]
COUNTS = [CountsTable("c.json", "json", np.array([[1.0, 2.0, 3.0, n]])) for n in (4.0, 5.0)]
UNSURE = "unsure"
DIGEST = 64  # letters; the id of a run has fewer
# What may be said to a visitor, or of a run that failed: anything else is a fault.
SENTENCES = re.compile(
    r"is full|MB are free|was busy for|cannot be written: Input|its disk fails"
    r"|somebody else's|others' too|was shared|stop it first|share it when it has ended"
    r"|no [a-z ]+ here has the id|has [\d,]+ runs?: delete those"
    r"|deleted meanwhile|this cannot be|checks do not hold"
)
VANISHED = "vanished: try again"  # where a clock jumped or a process stood still meanwhile


@dataclass(eq=False)
class Try:
    """An attempt that goes on; of two at once nobody was told which came last."""

    process: simulated.Process
    alone: bool = True


class History:
    """One history: what is done, what each was told, and whether the store agrees."""

    def __init__(self, seed: int, folder: Path, template: Path):
        self.known: dict[tuple[str, str], Any] = {}
        self.trying: dict[tuple[str, str], list[Try]] = {}
        self.ended: dict[str, tuple[Any, ...]] = {}  # runs, as somebody saw them end
        self.deleted: set[str] = set()  # runs that somebody tried to delete
        self.dangling: Counter[str] = Counter()  # of a visitor: runs asked for, and never told
        self.undos: list[tuple[str, str, Any]] = []
        self.commanded: set[str] = set()  # scenarios that a command saved, for no visitor
        self.spied: dict[str, str] = {}
        self.outages = 0
        self.closing = False
        self.wrong: list[str] = []
        self.history: list[str] = []
        self.database = folder / "twin.db"
        with simulated.simulated(seed, folder, template, self.spy) as world:
            self.world, self.chance = world, world.chance
            self.login = self.chance.random() < 0.7
            self.servers = self.chance.choice([1, 2])
            handler = _Log(world)
            logging.getLogger("twin.lab").addHandler(handler)
            try:
                self.live()
            finally:
                logging.getLogger("twin.lab").removeHandler(handler)
                self.wrong, self.history = world.wrong, world.history

    def live(self) -> None:
        """A time in which all goes wrong, then one in which all must come to its end."""
        world = self.world
        self.go_on(LIFE_S, lambda: False)
        world.heal()
        self.closing = True
        self.go_on(world.now_s + FAREWELL_S, lambda: False)
        self.go_on(world.now_s + PATIENCE_S, self.at_rest)
        self.check()

    def go_on(self, until_s: float, over: Callable[[], bool]) -> None:
        """Let time pass; servers that died start again, and commands come and go."""
        world = self.world
        servers = [p for p in world.processes if p.name.startswith("server") and p.alive]
        while world.now_s < until_s and not world.wrong and not over():
            for n in range(self.servers):
                name = f"server {n}"
                if not any(p.name == name and p.alive for p in servers):
                    servers.append(world.start(name, world.hosts[n], lambda n=n: self.serve(n)))
            if not self.closing and self.chance.random() < 0.1:
                world.start("command", self.chance.choice(world.hosts), self.command)
            world.run(world.now_s + 1.0)
            servers = [p for p in servers if p.alive]

    def at_rest(self) -> bool:
        """Whether no run is on its way any more."""
        return not {QUEUED, RUNNING} & set(self.states().values())

    def states(self) -> dict[str, str]:
        """The state of every run, past all hooks."""
        connection = sqlite3.connect(self.database)
        try:
            return dict(connection.execute("SELECT id, state FROM runs").fetchall())
        finally:
            connection.close()

    def spy(self) -> None:
        """After a commit: no run may have done what none may do."""
        if self.outages != self.world.outages:
            self.spied, self.outages = {}, self.world.outages
        states = self.states()
        for run, before in self.spied.items():
            after = states.get(run)
            if after is None and (before not in ENDED_STATES or run not in self.deleted):
                self.world.fault(f"run {run} was {before} and is gone")
            if after not in (None, before) and (before, after) not in TRANSITIONS:
                self.world.fault(f"run {run} was {before} and is {after}")
        self.spied = states

    # What processes do.

    def serve(self, n: int) -> None:
        """A server: a runner, and the sessions of its visitors."""
        try:
            store = open_store("the store")
            runner = Runner(store, processes=2, engine=ENGINE).start()
        except StoreError as error:
            self.refused(error)
            return
        for visitor in VISITORS[n :: self.servers]:
            self.world.spawn(
                self.world.process, lambda visitor=visitor: self.visit(store, runner, visitor)
            )
        self.world.wait(lambda: False)

    def command(self) -> None:
        """`python -m twin run`: a run in a process of its own."""
        n = self.chance.randrange(len(SCENARIOS))
        self.commanded.add(simulated.digest(SCENARIOS[n]))
        try:
            store = open_store("the store")
            run, result = run_now(store, SCENARIOS[n], engine=ENGINE)
            self.world.say(f"the command answers {run[:6]}")
            if result.digest != EXPECTED[n].digest:
                self.world.fault("a command gave a wrong answer")
            store.close()
        except simulated.Cancelled:
            self.world.say("was stopped")
        except ValueError as error:
            self.refused(error)

    def visit(self, store: Store, runner: Runner, visitor: str) -> None:
        """A session: one thing after the other, with a pause between."""
        seen = store.for_visitor(visitor) if self.login else store
        who = visitor if self.login else ""
        deeds = [self.ask, self.ask, self.look, self.cancel, self.share, self.delete, self.draft]
        deeds += [self.file, self.open, self.undo]
        while not self.closing:
            self.world.sleep(self.chance.random() * 2.0)
            self.chance.choice(deeds)(seen, runner, who)

    def attempt(self, words: str, told: dict[tuple[str, str], Any], deed: Callable[[], Any]) -> Any:
        """Do something; once it is done `told` is known, and when it is refused nothing changed."""
        world = self.world
        world.say(words)
        before = {key: self.known.get(key, False) for key in told}
        unsure = world.unsure
        tries = {key: Try(world.process) for key in told}
        for key, one in tries.items():
            others = [other for other in self.trying.get(key, ()) if other.process.alive]
            for other in (one, *others):
                other.alone &= not others
            self.trying[key] = [*others, one]
        self.known |= dict.fromkeys(told, UNSURE)
        try:
            done, result = True, deed()
        except StoreError as error:
            done, result = False, None
            self.refused(error)
        for key, value in told.items():
            self.trying[key].remove(tries[key])
            sure = tries[key].alone and (done or unsure == world.unsure)
            self.known[key] = (value if done else before[key]) if sure else UNSURE
        return result

    def refused(self, error: Exception) -> None:
        self.world.say("refused:", error)
        if not self.expected(str(error)):
            self.world.fault(f"somebody was told: {error}")

    def expected(self, words: str) -> bool:
        """Whether this may be said, in a history with these faults."""
        drawn = self.world.drawn
        late = VANISHED in words and bool(drawn.clock or drawn.stall)
        return late or SENTENCES.search(words) is not None

    def observe(self, row: RunRow) -> None:
        """What a run is once it has ended, it stays."""
        self.world.say(f"sees {row.id[:6]} {row.state}")
        if not row.ended:
            return
        now = (row.state, row.result_digest, row.finished_s, row.message)
        if self.ended.setdefault(row.id, now) != now:
            self.world.fault(f"run {row.id} had ended as {self.ended[row.id]} and is now {now}")

    # What visitors do.

    def ask(self, seen: Store, runner: Runner, who: str) -> None:
        n = self.chance.randrange(len(SCENARIOS))
        key = (who, simulated.digest(SCENARIOS[n]))
        self.dangling[who] += 1
        unsure = self.world.unsure
        run = self.attempt(f"asks {n}", {key: True}, lambda: ask(seen, runner, SCENARIOS[n]))
        self.dangling[who] -= unsure == self.world.unsure
        if run is None:
            self.known[key] = UNSURE  # it may have been saved before the run was refused
        else:
            self.world.say(f"was given {run[:6]}")
            self.known[who, run] = True

    def some_run(self, who: str) -> str | None:
        """A run that a visitor was given, or sometimes somebody else's."""
        stranger = self.chance.random() < 0.2
        holders = VISITORS if stranger else (who,)
        given = [name for (holder, name), held in self.known.items() if holder in holders and held]
        runs = [name for name in given if len(name) != DIGEST]
        return self.chance.choice(runs) if runs else None

    def look(self, seen: Store, runner: Runner, who: str) -> None:
        rows = self.attempt("looks", {}, lambda: seen.runs.search().rows) or []
        for row in rows:
            self.observe(row)
            self.check_holder(who, row.id)

    def strange(self, who: str) -> bool:
        """Whether a visitor may hold no run but those they were told of: some are asked for, and
        the server dies before it can say so."""
        return self.login and not self.dangling[who]

    def check_holder(self, who: str, name: str) -> None:
        """Whoever holds something asked for it, or may have without ever being told."""
        if (who, name) not in self.known and self.strange(who):
            self.world.fault(f"{who} holds {name}, which is somebody else's")

    def cancel(self, seen: Store, runner: Runner, who: str) -> None:
        if run := self.some_run(who):
            state = self.attempt(f"stops {run[:6]}", {}, lambda: cancel(seen, runner, run))
            if state == "cancelled" and self.ended.get(run, (state,))[0] != state:
                self.world.fault(f"run {run} had ended and was stopped")
            if state == "cancelled":
                self.known["stopped", run] = True
            if state and self.known.get((who, run), False) is False and self.strange(who):
                self.world.fault(f"{who} stopped somebody else's run")

    def share(self, seen: Store, runner: Runner, who: str) -> None:
        if run := self.some_run(who):
            on = self.chance.random() < 0.6
            deed = seen.runs.publish if on else seen.runs.unpublish
            words = f"{'shares' if on else 'revokes'} {run[:6]}"
            self.attempt(words, {("link", run): on}, lambda: deed(run))

    def delete(self, seen: Store, runner: Runner, who: str) -> None:
        if run := self.some_run(who):
            held = self.known.get((who, run), False)
            self.deleted.add(run)

            words, told = f"deletes {run[:6]}", {(who, run): False}
            undo = self.attempt(words, told, lambda: seen.runs.delete(run))
            if undo and held is False and self.strange(who):
                self.world.fault(f"{who} deleted somebody else's run")
            self.undos.append((who, run, undo))

    def undo(self, seen: Store, runner: Runner, who: str) -> None:
        """Take back the last deletion, if it was one's own."""
        if self.undos:
            whose, name, undo = self.undos.pop()
            if whose == who and undo:
                self.attempt(f"takes {name[:6]} back", {(who, name): True}, undo)

    def draft(self, seen: Store, runner: Runner, who: str) -> None:
        scenario = self.chance.choice(SCENARIOS)
        digest = simulated.digest(scenario)
        if self.chance.random() < 0.5:
            self.attempt(
                f"saves draft {digest[:6]}", {(who, digest): True},
                lambda: seen.scenarios.save(scenario),
            )  # fmt: skip
        else:
            words, told = f"deletes draft {digest[:6]}", {(who, digest): False}
            undo = self.attempt(words, told, lambda: seen.scenarios.delete(digest))
            self.undos.append((who, digest, undo))

    def file(self, seen: Store, runner: Runner, who: str) -> None:
        value = self.chance.choice(COUNTS)
        key = (who, value.digest)
        if self.chance.random() < 0.6:
            self.attempt(
                f"imports {value.digest[:6]}", {key: True}, lambda: seen.counts.save(value)
            )
            return
        words = f"deletes file {value.digest[:6]}"
        self.attempt(words, {key: False}, lambda: seen.counts.delete(value.digest))

    def open(self, seen: Store, runner: Runner, who: str) -> None:
        if run := self.some_run(who):
            row = self.attempt(f"opens {run[:6]}", {}, lambda: seen.runs.get(run))
            if row is not None:
                self.observe(row)
                for name in (
                    self.attempt("lists its tables", {}, lambda: seen.runs.tables(run)) or ()
                ):
                    self.check_table(seen, row, name)

    def check_table(self, store: Store, row: RunRow, name: str) -> None:
        """A table is what was computed, or a sentence says that the disk lost it."""
        tables = store.runs.tables(row.id)  # the run may be gone by now
        try:
            table = store.runs.table(row.id, name)
        except StoreError as error:
            self.world.say(error)
            excused = name not in tables or tables[name].sha256 in self.world.rotten
            whole = excused or not store.runs.tables(row.id)
        else:
            whole = table.equals(EXPECTED[self.number(row)].tables[name])
        if not whole:
            self.world.fault(f"table {name} of run {row.id} is not what it was")

    def number(self, row: RunRow) -> int:
        """Which of the scenarios a run asks."""
        return [simulated.digest(scenario) for scenario in SCENARIOS].index(row.scenario)

    # What must hold in the end.

    def check(self) -> None:
        """The store as its own reader sees it, against all that was told."""
        if self.world.wrong:
            return
        self.world.start("check", self.world.hosts[0], self._check)
        self.world.run(self.world.now_s + PATIENCE_S, lambda: not self._checking())

    def _checking(self) -> bool:
        return any(p.name == "check" and p.alive for p in self.world.processes)

    def _check(self) -> None:
        fault = self.world.fault
        for process in self.world.processes:
            if process.alive and process.name != "check":
                self.world.kill(process)
        store = handle.open_store("the store")
        store.delete_unused(older_than_s=-1e9)
        rows = {row.id: row for row in store.runs.search(limit=10_000).rows}
        for run in sorted(rows):
            self._check_run(store, rows[run])
        self._check_told(rows)
        self._check_files(store)
        busy = store.database.writer.pool.checkedout() + store.database.reader.pool.checkedout()
        if busy:
            fault(f"{busy} connections were never given back")

    def _check_run(self, store: Store, row: RunRow) -> None:
        fault = self.world.fault
        if not row.ended:
            fault(f"run {row.id} is {row.state} for ever")
            return
        self.observe(row)
        n = self.number(row)
        if row.state == "failed" and not self.expected(row.message):
            fault(f"run {row.id} failed: {row.message}")
        tables = store.runs.tables(row.id)
        if not row.seal:
            if tables or row.summary or row.state == "done":
                fault(f"run {row.id} is {row.state} and has half a result")
            return
        store.runs.get(row.id)
        if (row.result_digest, row.summary) != (EXPECTED[n].digest, EXPECTED[n].summary):
            fault(f"run {row.id} has a wrong result")
        for name in tables:
            self.check_table(store, row, name)

    def _check_told(self, rows: dict[str, RunRow]) -> None:
        fault = self.world.fault
        connection = sqlite3.connect(self.database)
        held = set(connection.execute("SELECT visitor, name FROM holdings"))
        scenarios = dict(connection.execute("SELECT digest, published_s FROM scenarios"))
        imports = {name for (name,) in connection.execute("SELECT digest FROM imports")}
        connection.close()
        there = {*rows, *scenarios, *imports}
        for visitor, name in sorted(held):
            self.check_holder(visitor, name)
            if name not in there:
                fault(f"{visitor} holds {name}, which is gone")
            if self.known.get((visitor, name), UNSURE) is False:
                fault(f"{visitor} let go of {name} and holds it")
        for (who, name), value in self.known.items():
            if who == "stopped":
                if name in rows and rows[name].state != "cancelled":
                    fault(f"run {name} was stopped and is {rows[name].state}")
            elif who == "link":
                if value is not UNSURE and name in rows:
                    if (rows[name].published_s is not None) != value:
                        fault(f"the link of run {name} should be {value}")
                elif value is True:
                    fault(f"run {name} was shared and is gone")
            elif value is True and name not in there and not self.let_go(name):
                fault(f"{name} of {who} is gone")
            elif value is True and self.login and (who, name) not in held:
                fault(f"{who} was given {name} and does not hold it")
            elif value is False and not self.login and name in rows:
                fault(f"run {name} was deleted and is there")
        if self.login:
            names = {name for _, name in held}
            kept = names | self.commanded | {row.scenario for row in rows.values()}
            alone = [s for s, shared in scenarios.items() if s not in kept and shared is None]
            alone += [name for name in imports if name not in names]
            alone += [run for run, row in rows.items() if run not in names
                      and row.published_s is None and row.queued_s != row.started_s]  # fmt: skip
            if alone:
                fault(f"nobody holds {alone}")

    def let_go(self, name: str) -> bool:
        """Whether somebody may have deleted what all hold together."""
        return not self.login and (name in self.deleted or len(name) == DIGEST)

    def _check_files(self, store: Store) -> None:
        """No file without a row, no row without a file; damage only where the disk was at fault."""
        folder = store.artefacts.folder
        files = {p.stem for p in folder.rglob("*.parquet")} if folder.exists() else set()
        drafts = [p.name for p in folder.glob(".tmp-*")] if folder.exists() else []
        connection = sqlite3.connect(self.database)
        named = {name for (name,) in connection.execute("SELECT sha256 FROM artefacts")}
        query = "SELECT sha256 FROM run_tables UNION SELECT sha256 FROM import_tables"
        used = {name for (name,) in connection.execute(query)}
        connection.close()
        if files - named or drafts or named - used:
            self.world.fault(f"left over: {files - named} {drafts} {named - used}")
        for line in store.find_damage():
            if not any(name in line for name in self.world.rotten):
                self.world.fault(f"damaged: {line}")


def ask(seen: Store, runner: Runner, scenario: Scenario) -> str:
    """As the page does."""
    return runner.submit(scenario, seen)


def cancel(seen: Store, runner: Runner, run: str) -> str:
    """As the page does."""
    return runner.cancel(run, seen)


class _Log(logging.Handler):
    """Errors that nobody foresaw stand in the log with their traceback."""

    def __init__(self, world: World):
        super().__init__(logging.WARNING)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        words = record.getMessage()
        self.world.say("log:", words)
        if any(guard.message in words for guard in GUARDS if "shared" not in guard.message):
            self.world.fault(f"only the database itself refused: {words}")
        error = record.exc_info[1] if record.exc_info else None
        if (
            error is not None
            and not isinstance(error, StoreError)
            and "this cannot be" not in str(error)
        ):
            self.world.fault(f"{record.getMessage()}: {error!r}")


def history(seed: int, template: Path) -> History:
    """The history of a number, on a copy of a migrated database."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        return History(seed, Path(folder), template)


def new_template(folder: Path) -> Path:
    """A migrated, empty database."""
    path = folder / "template.db"
    open_store(f"sqlite:///{path}").close()
    return path


def main() -> None:
    """Print the history of a seed, or say which of some seeds end badly."""
    first, *last = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        template = new_template(Path(folder))
        for seed in range(first, (last or [first])[0] + 1):
            told = history(seed, template)
            if not last:
                sys.stdout.write("\n".join([*told.history, ""]))
            for words in told.wrong[:1]:
                sys.stdout.write(f"seed {seed}: {words}\n")


if __name__ == "__main__":
    main()
