"""Stored runs: queued -> running -> done | failed | cancelled | interrupted, queued -> cancelled. A
change is one UPDATE that names old states and owner. A result has the facts that it was made with,
and a seal that is checked at opening."""

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
from sqlalchemy import ColumnElement, Select, delete, func, or_, select, update
from sqlalchemy.orm import Session

from twin.facts import Facts, facts_from_tables
from twin.lab.store.artefacts import Artefact, Artefacts
from twin.lab.store.engines import Database, json_text
from twin.lab.store.errors import NoTable, StoreError
from twin.lab.store.models import (
    CANCELLED,
    DONE,
    ENDED_STATES,
    EXPLAINED,
    FAILED,
    INTERRUPTED,
    QUEUED,
    RUNNING,
    ArtefactRow,
    FactsRow,
    RunRow,
    RunTableRow,
    ScenarioRow,
)
from twin.lab.store.owner import CLUSTER, Owner
from twin.lab.store.scenarios import digest_condition, digests_in_store
from twin.lab.store.statements import PAGE, Page, add_file, insert_once, page_of, publish, require
from twin.lab.store.visitors import NOTE_COLUMNS, Undo, Visitor, delete_note, join_notes, undo_of

if TYPE_CHECKING:
    from twin.engine.simulate import Run

SEALED = ("summary", "checks", "notes", "result_digest", "valid")  # what the seal covers


def seal(answer: Mapping[str, Any], tables: Mapping[str, str]) -> str:
    """SHA-256 (hex) over a row's SEALED columns and its tables' SHA-256, both by name."""
    return hashlib.sha256(json_text({**answer, "tables": tables}).encode()).hexdigest()


def broken_checks_text(result: "Run") -> str:
    """Sentence on the checks of a result that do not hold; '' if all do."""
    if result.valid:
        return ""
    faults = [
        f"{check['id']}: {check['statement']} ({check['detail']})"
        for check in result.checks
        if not check["ok"]
    ]
    return "checks do not hold: " + ("; ".join(faults) or "the engine says so, without naming one")


def tables_of(session: Session, run: str) -> dict[str, Artefact]:
    """The artefacts (SHA-256, bytes, rows) of a run's tables, by name."""
    columns = (RunTableRow.name, ArtefactRow.sha256, ArtefactRow.bytes, ArtefactRow.rows)
    query = select(*columns).join(ArtefactRow, ArtefactRow.sha256 == RunTableRow.sha256)
    rows = session.execute(query.where(RunTableRow.run == run).order_by(RunTableRow.name))
    return {
        name: Artefact(sha256, size_bytes, row_count)
        for name, sha256, size_bytes, row_count in rows
    }


def newest_run_query(scenario: str, facts: str, version: str) -> Select[str]:
    """Query for the id of a scenario's newest run with these facts (digests) and engine version."""
    is_equal = digest_condition(RunRow.scenario, scenario) & (RunRow.facts_digest == facts)
    is_equal &= RunRow.engine_version == version
    return select(RunRow.id).where(is_equal).order_by(RunRow.queued_s.desc(), RunRow.id).limit(1)


FACT = ("value", "unit", "source", "mark", "note")


@lru_cache(maxsize=4)
def facts_text(facts: Facts) -> str:
    """Stored text of facts as JSON, without notes, which the digest does not cover."""
    return json_text(
        {name: [fact.value, fact.unit, fact.source, fact.mark, ""] for name, fact in facts.items()}
    )


def facts_of_text(text: str, digest: str) -> Facts:
    """Facts of a stored text; raises StoreError if their digest is another."""
    try:
        fact_items = json.loads(text).items()
        facts = facts_from_tables(
            {name: dict(zip(FACT, fact_fields, strict=True)) for name, fact_fields in fact_items}
        )
    except (AttributeError, LookupError, TypeError, ValueError):
        facts = None
    if facts is None or facts.digest != digest:
        raise StoreError(f"the facts {digest} are damaged on disk: restore a backup")
    return facts


Beat = Literal["go", "cancel", "lost"]
ID_BYTES = 18  # 144 bits: knowing a run's id is the right to see it
STOPPED = "stopped on request"
SHARED = "this run was shared: its link must keep working, or be revoked first"
NO_OWNER = Owner("", "", 0, "")
STOPPING = RunRow.cancel_s.is_not(None)  # a stop was requested
# Began and has no owner: it waits for another.
GIVEN_BACK = (RunRow.state == RUNNING) & (RunRow.owner_name == NO_OWNER.name)


class Runs:
    """Make, claim, advance, finish, find, open, share and delete runs."""

    def __init__(self, database: Database, artefacts: Artefacts, visitor: Visitor):
        """Use a database and a folder of artefacts for a visitor."""
        self._database, self._artefacts, self._visitor = database, artefacts, visitor
        # Of running runs: the last heartbeat, and when it was first seen here (monotonic s).
        self._heartbeats: dict[str, tuple[float | None, float]] = {}

    # Finding and opening.

    def get(self, run: str) -> RunRow | None:
        """The row of a run by id; None if absent or invisible. Raises StoreError if damaged."""
        with self._database.read() as session:
            run_row = self._visible_row(session, run)
            if run_row and run_row.seal:
                digest_by_table = {
                    name: artefact.sha256 for name, artefact in tables_of(session, run).items()
                }
                if (
                    seal({key: getattr(run_row, key) for key in SEALED}, digest_by_table)
                    != run_row.seal
                ):
                    raise StoreError(
                        f"the result of run {run} is damaged: restore a backup, or "
                        "delete it in the library"
                    )
        return run_row

    def _visible_row(self, session: Session, run: str) -> RunRow | None:
        """The row of a run that this visitor may see, or that is shared; None otherwise."""
        run_row = session.get(RunRow, run)
        is_shared = run_row is not None and run_row.published_s is not None
        return run_row if is_shared or self._visitor.sees(session, run) else None

    def search(
        self, text: str = "", *, states: Sequence[str] = (), tags: Sequence[str] = (),
        limit: int = PAGE, offset: int = 0,
    ) -> Page[RunRow]:  # fmt: skip
        """A page of runs with every word in scenario, note or id, and every tag, newest first."""
        query = select(RunRow).join(ScenarioRow, RunRow.scenario == ScenarioRow.digest)
        query = join_notes(query, RunRow.id, self._visitor.name, tags)
        query = self.limit_to_visible(query.where(~RunRow.engine_version.startswith(EXPLAINED)))
        if states:
            query = query.where(RunRow.state.in_(list(states)))
        sort_columns = (RunRow.queued_s.desc(), RunRow.id)
        text_columns = (ScenarioRow.name, ScenarioRow.question, *NOTE_COLUMNS, RunRow.id)
        return page_of(self._database, query, text, text_columns, sort_columns, limit, offset)

    def latest_runs(self, scenarios: Sequence[str]) -> dict[str, RunRow]:
        """Newest finished run by scenario (given digest), without explanations."""
        conditions = (RunRow.state == DONE, ~RunRow.engine_version.startswith(EXPLAINED))
        with self._database.read() as session:
            stored_digests = digests_in_store(session, scenarios)
            query = select(RunRow).where(*conditions, RunRow.scenario.in_(stored_digests.values()))
            query = self.limit_to_visible(query).order_by(RunRow.queued_s)
            # Oldest first: later pairs replace earlier ones.
            digests_and_ids = session.execute(query.with_only_columns(RunRow.scenario, RunRow.id))
            runs = session.scalars(
                select(RunRow).where(RunRow.id.in_(dict(digests_and_ids.all()).values()))
            )
            newest_by_digest = {run.scenario: run for run in runs}
        return {
            name: newest_by_digest[digest]
            for name, digest in stored_digests.items()
            if digest in newest_by_digest
        }

    def limit_to_visible(self, query: Select[Any]) -> Select[Any]:
        """The query, limited to rows that this visitor holds."""
        return self._visitor.limit_to_held(query, RunRow.id)

    def find(self, scenario: str, facts_digest: str, engine_version: str) -> str | None:
        """Id of the newest finished run of a scenario with facts (digests) and engine; or None."""
        query = newest_run_query(scenario, facts_digest, engine_version).where(RunRow.state == DONE)
        with self._database.read() as session:
            return session.scalar(query)

    def tables(self, run: str) -> dict[str, Artefact]:
        """The artefacts (SHA-256, bytes, rows) of a run's tables, by name."""
        with self._database.read() as session:
            return tables_of(session, run)

    def table(self, run: str, name: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """A run's table or some of its columns; raises NoTable or another StoreError."""
        tables = self.tables(run)
        if name not in tables:
            raise NoTable(f"run {run} has no table {name}: it has {', '.join(tables) or 'none'}")
        return self._artefacts.read(tables[name].sha256, columns)

    def queue_position(self, run: str) -> int | None:
        """Number of queued runs before a queued one; None if it is not queued."""
        query = select(func.count(RunRow.id)).where(RunRow.state == QUEUED)
        with self._database.read() as session:
            run_row = session.get(RunRow, run)
            if run_row is None or run_row.state != QUEUED:
                return None
            wins_tie = (RunRow.queued_s == run_row.queued_s) & (RunRow.id < run)
            return session.scalar(query.where(wins_tie | (RunRow.queued_s < run_row.queued_s)))

    def queued_ids(self) -> set[str]:
        """Ids of the queued runs and of those given back by a process."""
        query = select(RunRow.id).where((RunRow.state == QUEUED) | GIVEN_BACK)
        with self._database.read() as session:
            return set(session.scalars(query))

    def running_rows(self, owners: Sequence[str], *, cluster: bool = False) -> Sequence[RunRow]:
        """Rows of running runs of these owners (names); cluster: also of processes of a cluster."""
        owner_conditions: list[ColumnElement[bool]] = [RunRow.owner_name.in_(list(owners))]
        owner_conditions += [RunRow.owner_name.startswith(CLUSTER)] if cluster else []
        query = select(RunRow).where(RunRow.state == RUNNING, or_(*owner_conditions))
        with self._database.read() as session:
            return session.scalars(query).all()

    def add(
        self, scenario: str, facts: Facts, engine_version: str, seed: int, *,
        owner: Owner | None = None, again: bool = True,
    ) -> str:  # fmt: skip
        """Store a run, queued or (of an owner) running; returns its id. again: store it even if an
        equal run exists; else the equal one's id is returned."""
        now_s = time.time()
        new_row = RunRow(
            id=new_id(), scenario=scenario, facts_digest=facts.digest,
            engine_version=engine_version, seed=seed, queued_s=now_s, owner=owner or NO_OWNER,
            state=RUNNING if owner else QUEUED, started_s=now_s if owner else None,
            beat_s=now_s if owner else None,
        )  # fmt: skip
        is_usable = RunRow.state.in_((QUEUED, RUNNING)) & RunRow.cancel_s.is_(None)
        is_usable |= RunRow.state == DONE
        equal_query = newest_run_query(scenario, facts.digest, engine_version).where(is_usable)
        with self._database.write(durable=True) as session:
            if not again and (run := session.scalar(equal_query)):
                self._visitor.hold(session, run)
                return run
            require(session.get(ScenarioRow, scenario), "scenario", scenario)
            facts_row = FactsRow(digest=facts.digest, body=facts_text(facts), created_s=now_s)
            insert_once(session, facts.digest, facts_row)
            session.add(new_row)
            self._visitor.hold(session, new_row.id)
        return new_row.id

    # Advancing it: only its owner does.

    def claim(self, owner: Owner, run: str = "") -> RunRow | None:
        """Take a run for an owner: one that was given back, else the oldest queued one; None
        without any. run: the only id to take ('': any)."""
        now_s = time.time()
        values = {RunRow.started_s: now_s, RunRow.beat_s: now_s, RunRow.owner: owner}
        with self._database.write() as session:
            for condition, state in (
                (GIVEN_BACK, {}), (RunRow.state == QUEUED, {RunRow.state: RUNNING})
            ):  # fmt: skip
                conditions = (condition, RunRow.id == run) if run else (condition,)
                oldest_run = select(RunRow.id).where(*conditions)
                oldest_run = oldest_run.order_by(RunRow.queued_s, RunRow.id).limit(1)
                is_claimed = (RunRow.id == oldest_run.scalar_subquery()) & condition
                statement = update(RunRow).where(is_claimed).values({**values, **state})
                statement = statement.returning(RunRow.id)
                if claimed_run := session.scalar(statement):
                    return session.get(RunRow, claimed_run)
        return None

    def release(self, run: str, owner: Owner) -> bool:
        """Give a run back for another process, or end it if a stop was requested; False if it has
        another owner by now."""
        if self._end_run(_held_by(run, owner) & STOPPING, CANCELLED, STOPPED):
            return True
        new_values = {RunRow.owner: NO_OWNER, RunRow.progress: 0.0, RunRow.live: {}}
        return self._change_row(_held_by(run, owner), new_values)

    def beat(
        self, run: str, owner: Owner, progress: float | None = None,
        live: Mapping[str, Any] | None = None,
    ) -> Beat:  # fmt: skip
        """Store a heartbeat and, with a progress (0..1), `live`: the latest figures by name.
        Returns 'go', 'cancel' or 'lost' (another owner has the run)."""
        new_values: dict[str, Any] = {"beat_s": time.time()}
        if progress is not None:
            new_values |= {"progress": min(1.0, max(0.0, progress)), "live": dict(live or {})}
        statement = update(RunRow).where(_held_by(run, owner)).values(new_values)
        with self._database.write() as session:
            cancel_row = session.execute(statement.returning(RunRow.cancel_s)).first()
        if cancel_row is None:
            return "lost"
        return "go" if cancel_row.cancel_s is None else "cancel"

    def finish(self, run: str, owner: Owner, result: "Run", wall_s: float) -> bool:
        """Store a run's result, as failed if checks do not hold; False if it has another owner."""
        artefacts = self._artefacts.save_all(result.tables)
        result_columns = {
            "summary": dict(result.summary), "checks": [dict(check) for check in result.checks],
            "notes": list(result.notes), "result_digest": result.digest,
            "valid": bool(result.valid),
        }  # fmt: skip
        new_values = result_columns | {
            "state": DONE if result.valid else FAILED, "message": broken_checks_text(result),
            "seal": seal(result_columns, {table: a.sha256 for table, a in artefacts.items()}),
            "progress": 1.0, "finished_s": time.time(), "wall_s": wall_s,
        }  # fmt: skip
        with self._database.write(durable=True) as session:
            run_row = session.scalar(select(RunRow).where(_held_by(run, owner)))
            if run_row is None:
                return False
            equal_query = newest_run_query(
                run_row.scenario, run_row.facts_digest, run_row.engine_version
            )
            has_other_result = (RunRow.state == DONE) & (RunRow.result_digest != result.digest)
            if result.valid and (other_run := session.scalar(equal_query.where(has_other_result))):
                new_values["message"] = f"the same question gave another result in run {other_run}"
            for table, artefact in sorted(artefacts.items()):
                add_file(session, self._artefacts, artefact)
                session.add(RunTableRow(run=run, name=table, sha256=artefact.sha256))
            session.flush()
            session.execute(update(RunRow).where(_held_by(run, owner)).values(new_values))
        return True

    def fail(self, run: str, owner: Owner, message: str) -> bool:
        """End a run with the sentence that says why; False if it has another owner by now."""
        return self._end_run(_held_by(run, owner), FAILED, message)

    def end_cancelled(self, run: str, owner: Owner) -> bool:
        """End a run that obeyed a request to stop; False if it has another owner by now."""
        return self._end_run(_held_by(run, owner), CANCELLED, STOPPED)

    # Ending what dead processes left.

    def end_runs(self, owner_name: str, message: str) -> list[str]:
        """End the running runs of a dead process, by its owner's name; returns their ids."""
        orphans = self.running_rows([owner_name])
        return [
            run_row.id
            for run_row in orphans
            if self._abandon(run_row, RunRow.id == run_row.id, message)
        ]

    def recover(self, lives: Callable[[Owner, float], bool] = Owner.lives) -> list[str]:
        """Mark runs of dead processes as interrupted, give back those of a cluster; returns ids of
        the interrupted. lives: whether a process lives, by owner and seconds since a heartbeat."""
        with self._database.read() as session:
            # Most stores that are opened have none; SQL for whole rows takes long to compile.
            running_id = session.scalar(select(RunRow.id).where(RunRow.state == RUNNING).limit(1))
            running_query = select(RunRow).where(RunRow.state == RUNNING, ~GIVEN_BACK)
            running = session.scalars(running_query).all() if running_id else []
        # Not the heartbeat's own time: clocks of two machines differ, and a machine that slept
        # wakes to old heartbeats of processes that are well.
        now_s = time.monotonic()
        heard_by_run = {run_row.id: (run_row.beat_s, now_s) for run_row in running}
        for run, (beat_s, heard_s) in self._heartbeats.items():
            if run in heard_by_run and heard_by_run[run][0] == beat_s:
                heard_by_run[run] = beat_s, heard_s
        self._heartbeats = heard_by_run
        ended_ids = []
        for run_row in running:
            if lives(run_row.owner, now_s - heard_by_run[run_row.id][1]):
                continue
            if run_row.owner.name.startswith(CLUSTER):
                self.release(run_row.id, run_row.owner)
                continue
            is_quiet = (RunRow.id == run_row.id) & (RunRow.beat_s == run_row.beat_s)
            if self._abandon(
                run_row, is_quiet, "the process that ran it ended before it was finished"
            ):
                ended_ids.append(run_row.id)
        return ended_ids

    def _abandon(self, row: RunRow, condition: ColumnElement[bool], message: str) -> bool:
        """End a run whose process is dead, if a condition holds; one with a request to stop counts
        as cancelled. Returns whether it was ended."""
        condition = condition & (RunRow.owner_name == row.owner.name)
        was_stopped = self._end_run(condition & STOPPING, CANCELLED, STOPPED)
        return was_stopped or self._end_run(condition & ~STOPPING, INTERRUPTED, message)

    def _end_run(self, condition: ColumnElement[bool], state: str, message: str) -> bool:
        """Put a running run that meets a condition into a final state; False without one."""
        new_values = {"state": state, "message": message, "finished_s": time.time()}
        return self._change_row(condition & (RunRow.state == RUNNING), new_values)

    def _change_row(self, condition: ColumnElement[bool], values: Mapping[Any, Any]) -> bool:
        """Change the row of a run that meets a condition; returns whether there was one."""
        statement = update(RunRow).where(condition).values(values).returning(RunRow.id)
        with self._database.write(durable=True) as session:
            return session.scalar(statement) is not None

    # What a person asks for.

    def request_stop(self, run: str) -> str:
        """Request a run to stop (a queued one ends at once); returns its state."""
        now_s = time.time()
        values = {"state": CANCELLED, "cancel_s": now_s, "finished_s": now_s, "message": STOPPED}
        with self._database.write(durable=True) as session:
            self._visitor.require_sole_holder(session, "run", run)
            is_waiting = (RunRow.id == run) & (RunRow.state == QUEUED)
            session.execute(update(RunRow).where(is_waiting).values(values))
            is_running = (RunRow.id == run) & (RunRow.state == RUNNING) & RunRow.cancel_s.is_(None)
            session.execute(update(RunRow).where(is_running).values({"cancel_s": now_s}))
            return require(session.scalar(select(RunRow.state).where(RunRow.id == run)), "run", run)

    def publish(self, run: str) -> None:
        """Mark an ended run and protect it against deletion, because its link was shared."""
        self._visitor.require_writes()
        run_row = require(self.get(run), "run", run)
        if not run_row.ended:
            raise StoreError(f"run {run} is {run_row.state}: share it when it has ended")
        with self._database.write(durable=True) as session:
            publish(session, "run", RunRow.id, run)

    def unpublish(self, run: str) -> None:
        """Revoke a link: the run may be deleted again, and the link finds nothing."""
        with self._database.write(durable=True) as session:
            self._visitor.require_sole_holder(session, "run", run)
            require(session.get(RunRow, run), "run", run)
            session.execute(update(RunRow).where(RunRow.id == run).values({"published_s": None}))

    def delete(self, run: str) -> Undo:
        """Delete an ended, unshared run; returns a function that undoes it. Raises StoreError."""
        is_own_table, is_ended = RunTableRow.run == run, RunRow.state.in_(ENDED_STATES)
        condition_by_table = {RunRow: (RunRow.id == run) & is_ended, RunTableRow: is_own_table}
        with self._database.write(durable=True) as session:
            run_row = require(self._visible_row(session, run), "run", run)
            undo = undo_of(self._database, session, ("run", run), condition_by_table, self._visitor)
            delete_note(session, run, self._visitor.name)
            if not self._visitor.let_go(session, "run", run):
                return undo
            if not run_row.ended:
                raise StoreError(f"run {run} is {run_row.state}: stop it first")
            if run_row.published_s is not None:
                raise StoreError(SHARED)
            # Its files count as new, so that sweeps spare them until an undo.
            is_own_file = ArtefactRow.sha256.in_(select(RunTableRow.sha256).where(is_own_table))
            session.execute(update(ArtefactRow).where(is_own_file).values(created_s=time.time()))
            session.execute(delete(RunRow).where(RunRow.id == run))
        return undo


def new_id() -> str:
    """An unguessable id that a command line cannot take for an option."""
    while (token := secrets.token_urlsafe(ID_BYTES)).startswith("-"):
        pass
    return token


def _held_by(run: str, owner: Owner) -> ColumnElement[bool]:
    """Condition that a run is running and has this owner."""
    return (RunRow.id == run) & (RunRow.state == RUNNING) & (RunRow.owner_name == owner.name)
