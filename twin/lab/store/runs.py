"""Stored runs: attempts to answer a scenario, from queue to result.

queued -> running -> done | failed | cancelled | interrupted, and queued -> cancelled. Every change
names the states it may start from and, once claimed, the owner it belongs to; so a late process
can never overwrite what was decided meanwhile. A request to stop is a column of its own.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import polars as pl
from sqlalchemy import Connection, delete, insert, select, update

from twin.facts import Facts
from twin.lab.store import models as m
from twin.lab.store.artefacts import Artefact, Artefacts
from twin.lab.store.engines import Database, json_text
from twin.lab.store.errors import StoreError, UnknownId
from twin.lab.store.models import CANCELLED, DONE, FAILED, INTERRUPTED, QUEUED, RUNNING
from twin.lab.store.owner import Owner
from twin.lab.store.run_rows import (
    OWNER,
    RunRow,
    RunRows,
    owner_values,
    row_of,
    same_question,
    seal,
)
from twin.lab.store.statements import insert_once, publish, remember

Beat = Literal["go", "cancel", "lost"]
ID_BYTES = 18  # 144 bits: knowing a run's id is the right to see it
STOPPED = "stopped on request"
_REUSABLE = (QUEUED, RUNNING, DONE)


class Result(Protocol):
    """What a finished simulation hands over; `engine.simulate.Run` is one."""

    @property
    def digest(self) -> str:
        """SHA-256 of its tables."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """Headline figures by name."""

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Tables by name."""

    @property
    def checks(self) -> Sequence[Mapping[str, Any]]:
        """Laws, each with `id`, `statement`, `ok` and `detail`."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of the figures must know."""

    @property
    def valid(self) -> bool:
        """Whether all laws held."""


class Runs(RunRows):
    """Make, claim, advance, finish, share and delete runs, and all that RunRows can."""

    def __init__(self, database: Database, artefacts: Artefacts):
        super().__init__(database, artefacts)
        # Of running runs: the last heartbeat, and when it was first seen here (monotonic s).
        self._heard: dict[str, tuple[float | None, float]] = {}

    # Making a run.

    def add(
        self,
        scenario: str,
        facts: Facts,
        engine_version: str,
        seed: int,
        *,
        owner: Owner | None = None,
        again: bool = True,
    ) -> str:
        """Store a new run of a stored scenario (digest); returns its id.

        Without owner it is queued; with one it is running at once. With `again` false a queued,
        running or done run of the same question is returned instead.
        """
        now = time.time()
        row = {
            "id": new_id(), "scenario": scenario, "facts_digest": facts.digest,
            "engine_version": engine_version, "seed": seed, "queued_s": now,
            "state": RUNNING if owner else QUEUED, "progress": 0.0, "live": {}, "message": "",
            "valid": False, "result_digest": "", "summary": {}, "checks": [], "notes": [],
            "seal": "", "started_s": now if owner else None, "beat_s": now if owner else None,
            **owner_values(owner),
        }  # fmt: skip
        with self._database.write(durable=True) as connection:
            if not again:
                found = same_question(connection, scenario, facts.digest, engine_version, _REUSABLE)
                if found:
                    return found
            body = {"digest": facts.digest, "body": _facts_text(facts), "created_s": now}
            insert_once(connection, m.facts, "digest", body)
            connection.execute(insert(m.runs).values(row))
        return str(row["id"])

    # Advancing it: only its owner does.

    def claim(self, owner: Owner) -> RunRow | None:
        """Take the oldest queued run, or None; no two owners ever get the same one."""
        c = m.runs.c
        oldest = (
            select(c.id)
            .where(c.state == QUEUED)
            .order_by(c.queued_s, c.id)
            .limit(1)
            .with_for_update(skip_locked=True)  # PostgreSQL; SQLite's writer is alone anyway
            .scalar_subquery()
        )
        now = time.time()
        with self._database.write() as connection:
            taken = connection.execute(
                update(m.runs)
                .where(c.id == oldest, c.state == QUEUED)
                .values(state=RUNNING, started_s=now, beat_s=now, **owner_values(owner))
                .returning(c.id)
            ).scalar_one_or_none()
            return row_of(connection, taken) if taken else None

    def beat(
        self,
        run: str,
        owner: Owner,
        progress: float | None = None,
        live: Mapping[str, Any] | None = None,
    ) -> Beat:
        """Say that a run goes on, and how far it is (0..1); answers what to do.

        'cancel': someone asked to stop it. 'lost': it is no longer this owner's; drop it.
        """
        values: dict[str, Any] = {"beat_s": time.time()}
        if progress is not None:
            values |= {"progress": min(1.0, max(0.0, progress)), "live": dict(live or {})}
        with self._database.write() as connection:
            row = connection.execute(
                update(m.runs).where(_mine(run, owner)).values(values).returning(m.runs.c.cancel_s)
            ).first()
        if row is None:
            return "lost"
        return "go" if row.cancel_s is None else "cancel"

    def finish(self, run: str, owner: Owner, result: Result, wall_s: float) -> bool:
        """Store a result: files first, then the row. False when the run was lost meanwhile.

        A result whose checks do not all hold makes the run failed, its tables kept to look into.
        """
        stored = self._artefacts.put_all(result.tables)
        answer = {
            "summary": dict(result.summary),
            "checks": [dict(check) for check in result.checks],
            "notes": list(result.notes),
            "result_digest": result.digest,
            "valid": bool(result.valid),
        }
        values = answer | {
            "state": DONE if result.valid else FAILED,
            "message": _broken_checks(result),
            "seal": seal(answer, {name: a.sha256 for name, a in stored.items()}),
            "progress": 1.0,
            "finished_s": time.time(),
            "wall_s": wall_s,
        }
        with self._database.write(durable=True) as connection:
            row = connection.execute(
                select(m.runs.c.id).where(_mine(run, owner)).with_for_update()
            ).first()
            if row is None:
                return False
            self._link(connection, run, stored)
            if result.valid:
                values["message"] = _contradiction(connection, run, result.digest)
            connection.execute(update(m.runs).where(_mine(run, owner)).values(values))
        return True

    def fail(self, run: str, owner: Owner, message: str) -> bool:
        """End a run with the sentence that says why; False when it was lost meanwhile."""
        return self._end(_mine(run, owner), FAILED, message)

    def cancelled(self, run: str, owner: Owner) -> bool:
        """End a run that obeyed a request to stop."""
        return self._end(_mine(run, owner), CANCELLED, STOPPED)

    def disown(self, owner_name: str, message: str) -> list[str]:
        """End what a dead process was running, by the owner's name; returns the runs' ids."""
        c = m.runs.c
        with self._database.write() as connection:
            rows = connection.execute(
                select(c.id, c.cancel_s).where(c.state == RUNNING, c.owner == owner_name)
            ).all()
        ended = []
        for row in rows:
            state, why = (INTERRUPTED, message) if row.cancel_s is None else (CANCELLED, STOPPED)
            if self._end((c.id == row.id) & (c.owner == owner_name), state, why):
                ended.append(row.id)
        return ended

    def recover(self, alive: Callable[[Owner, float], bool] = Owner.lives) -> list[str]:
        """Mark running rows of dead processes interrupted; returns their ids.

        `alive` gets an owner and for how long (s) this process has seen no new heartbeat of it. A
        heartbeat that comes in between saves its run.
        """
        c = m.runs.c
        with self._database.read() as connection:
            rows = connection.execute(
                select(c.id, c.cancel_s, c.beat_s, *OWNER).where(c.state == RUNNING)
            ).all()
        # Not the heartbeat's own time: clocks of two machines differ, and a machine that slept
        # wakes to old heartbeats of processes that are well.
        now = time.monotonic()
        last = {row.id: (row.beat_s, now) for row in rows}
        for run, seen in self._heard.items():
            if run in last and last[run][0] == seen[0]:
                last[run] = seen
        self._heard = last
        ended = []
        for row in rows:
            owner = Owner(row.owner, row.owner_host, row.owner_pid, row.owner_started)
            if alive(owner, now - last[row.id][1]):
                continue
            state = INTERRUPTED if row.cancel_s is None else CANCELLED
            silent = (c.id == row.id) & (c.owner == row.owner) & (c.beat_s == row.beat_s)
            if self._end(silent, state, "the process that ran it ended before it was finished"):
                ended.append(row.id)
        return ended

    def _end(self, where: Any, state: str, message: str) -> bool:
        with self._database.write(durable=True) as connection:
            changed = connection.execute(
                update(m.runs)
                .where(where, m.runs.c.state == RUNNING)
                .values(state=state, message=message, finished_s=time.time())
            )
        return bool(changed.rowcount)

    def _link(self, connection: Connection, run: str, stored: Mapping[str, Artefact]) -> None:
        for name, artefact in sorted(stored.items()):
            remember(connection, self._artefacts, artefact)
            connection.execute(
                insert(m.run_tables).values(run=run, name=name, sha256=artefact.sha256)
            )

    # What a person asks for.

    def ask_cancel(self, run: str) -> str:
        """Ask to stop a run: a queued one ends at once; returns the state it is in now."""
        c, now = m.runs.c, time.time()
        with self._database.write() as connection:
            connection.execute(
                update(m.runs)
                .where(c.id == run, c.state == QUEUED)
                .values(state=CANCELLED, cancel_s=now, finished_s=now, message=STOPPED)
            )
            connection.execute(
                update(m.runs)
                .where(c.id == run, c.state == RUNNING, c.cancel_s.is_(None))
                .values(cancel_s=now)
            )
            state = connection.execute(select(c.state).where(c.id == run)).scalar_one_or_none()
        if state is None:
            raise UnknownId("run", run)
        return str(state)

    def publish(self, run: str) -> None:
        """From now on the run and its scenario stay: someone was given the link."""
        row = self.get(run)
        if row is None:
            raise UnknownId("run", run)
        if not row.ended:
            raise StoreError(f"run {run} is {row.state}: share it when it has ended")
        publish(self._database, m.runs, "id", run, "run")
        publish(self._database, m.scenarios, "digest", row.scenario, "scenario")

    def delete(self, run: str) -> None:
        """Delete a run that ended and was not shared; its files go with the next sweep."""
        row = self.get(run)
        if row is None:
            raise UnknownId("run", run)
        if not row.ended:
            raise StoreError(f"run {run} is {row.state}: stop it first")
        if row.published_s is not None:
            raise StoreError("this run was shared: its link must keep working")
        with self._database.write() as connection:
            connection.execute(delete(m.runs).where(m.runs.c.id == run))


def new_id() -> str:
    """An unguessable id that a command line cannot take for an option."""
    while (token := secrets.token_urlsafe(ID_BYTES)).startswith("-"):
        pass
    return token


def _mine(run: str, owner: Owner) -> Any:
    c = m.runs.c
    return (c.id == run) & (c.state == RUNNING) & (c.owner == owner.name)


def _contradiction(connection: Connection, run: str, digest: str) -> str:
    """A sentence when an earlier run of the same question gave other bytes; else ''."""
    this, other = m.runs.alias(), m.runs.alias()
    found = connection.execute(
        select(other.c.id)
        .where(
            this.c.id == run,
            other.c.scenario == this.c.scenario,
            other.c.facts_digest == this.c.facts_digest,
            other.c.engine_version == this.c.engine_version,
            other.c.state == DONE,
            other.c.result_digest != digest,
        )
        .limit(1)
    ).scalar_one_or_none()
    return f"the same question gave another result in run {found}" if found else ""


def _broken_checks(result: Result) -> str:
    if result.valid:
        return ""
    broken = [f"{c['id']}: {c['statement']} ({c['detail']})" for c in result.checks if not c["ok"]]
    return "checks do not hold: " + ("; ".join(broken) or "the engine says so, without naming one")


def _facts_text(facts: Facts) -> str:
    return json_text(
        {name: [f.value, f.unit, f.source, f.mark, f.note] for name, f in facts.items()}
    )
