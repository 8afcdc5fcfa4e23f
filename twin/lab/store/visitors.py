"""What one visitor may see and change, where a server knows its visitors by name.

Scenarios, runs and imported files are values that several visitors may hold: whoever saves one or
asks for it holds it. A visitor sees what they hold, presets, and what was shared; they let go of
what they delete, and it is gone when nobody holds it any more. Where nothing can be kept, all is
shown. A store that nobody has to log in to knows no visitors: everybody sees and may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, exists, or_, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from twin.lab.kinds import Kind, T
from twin.lab.store.artefacts import Artefacts
from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError
from twin.lab.store.models import HoldingRow, ImportRow, RunRow, ScenarioRow
from twin.lab.store.runs import Runs
from twin.lab.store.scenarios import Scenarios
from twin.lab.store.statements import Undo, insert_once, require
from twin.lab.store.values import Values
from twin.scenario import Scenario

READ_ONLY = (
    "this server shows what is stored and keeps nothing: run a twin of your own to change it"
)


class Holdings:
    """Who holds what, in one database."""

    def __init__(self, database: Database, visitor: str, *, writes: bool = True):
        self._database = database
        self.visitor = visitor
        self._writes = writes

    def require_writes(self) -> None:
        """Raise StoreError on a server that only shows."""
        if not self._writes:
            raise StoreError(READ_ONLY)

    def take(self, session: Session, name: str) -> None:
        """From now on this visitor holds a run (id), a scenario or a file (digest)."""
        self.require_writes()
        key = (self.visitor, name)
        insert_once(session, key, HoldingRow(visitor=self.visitor, name=name))

    def held(self, column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        """That this visitor holds what a column names; of a server that only shows: always."""
        h = HoldingRow
        if not self._writes:
            return true()
        return exists().where(h.visitor == self.visitor, h.name == column).correlate_except(h)

    @contextmanager
    def alone(self, kind: str, name: str) -> Iterator[bool]:
        """Let go of something; the body is told whether nobody else holds it.

        Raises StoreError where this visitor does not hold it.
        """
        self.require_writes()
        h = HoldingRow
        with self._database.read() as session:
            holders = set(session.scalars(select(h.visitor).where(h.name == name)))
        if self.visitor not in holders:
            raise StoreError(f"this {kind} is somebody else's: only who asked for it may do that")
        yield len(holders) == 1
        with self._database.write() as session:
            session.execute(delete(h).where(h.name == name, h.visitor == self.visitor))

    def held_again(self, name: str, restore: Undo | None) -> Undo:
        """What takes back that something was let go of; restore: what brings it itself back."""

        def undo() -> None:
            if restore is not None:
                restore()
            with self._database.write() as session:
                self.take(session, name)

        return undo

    def require_held(self, kind: str, name: str) -> None:
        """Raise StoreError unless this visitor, and nobody else, holds something."""
        self.require_writes()
        with self._database.read() as session:
            query = select(HoldingRow.visitor).where(HoldingRow.name == name)
            holders = set(session.scalars(query))
        if holders != {self.visitor}:
            who = "others' too" if self.visitor in holders else "somebody else's"
            raise StoreError(f"this {kind} is {who}: only who alone asked for it may do that")


class VisitorScenarios(Scenarios):
    """Scenarios as one visitor sees them."""

    def __init__(self, database: Database, holdings: Holdings):
        super().__init__(database)
        self._holdings = holdings

    def save(self, scenario: Scenario, *, preset: str = "") -> str:
        """Store a scenario and hold it; returns its digest."""
        self._holdings.require_writes()
        digest = super().save(scenario, preset=preset)
        with self._database.write() as session:
            self._holdings.take(session, digest)
        return digest

    def visible(self, query: Select[Any]) -> Select[Any]:
        """Those rows that this visitor holds, and presets."""
        r = ScenarioRow
        return query.where(or_(r.preset != "", self._holdings.held(r.digest)))

    def publish(self, digest: str) -> None:
        """Share it, as whoever holds it may."""
        self._holdings.require_writes()
        super().publish(digest)

    def delete(self, digest: str) -> Undo:
        """Let go of a scenario; it is deleted when nobody else holds it."""
        row = require(self.get(digest), "scenario", digest)
        with self._holdings.alone("scenario", row.digest) as alone:
            undo = super().delete(digest) if alone else None
        return self._holdings.held_again(row.digest, undo)


class VisitorRuns(Runs):
    """Runs as one visitor sees them."""

    def __init__(self, database: Database, artefacts: Artefacts, holdings: Holdings):
        super().__init__(database, artefacts)
        self._holdings = holdings

    def get(self, run: str) -> RunRow | None:
        """A run that this visitor holds or that was shared; None is also said of all others."""
        row = super().get(run)
        if row is None or row.published_s is not None:
            return row
        held = select(RunRow.id).where(RunRow.id == run, self._holdings.held(RunRow.id))
        with self._database.read() as session:
            return row if session.scalar(held) else None

    def visible(self, query: Select[Any]) -> Select[Any]:
        """Those rows that this visitor holds."""
        return query.where(self._holdings.held(RunRow.id))

    def hold(self, run: str) -> None:
        """From now on this visitor holds a run that was asked for in their name."""
        with self._database.write() as session:
            self._holdings.take(session, run)

    def require_stoppable(self, run: str) -> None:
        """Raise StoreError for a run that somebody else waits for."""
        self._holdings.require_held("run", run)

    def ask_cancel(self, run: str) -> str:
        """Stop a run that nobody else waits for."""
        self.require_stoppable(run)
        return super().ask_cancel(run)

    def publish(self, run: str) -> None:
        """Share a run that this visitor sees."""
        self._holdings.require_writes()
        super().publish(run)

    def unpublish(self, run: str) -> None:
        """Revoke the link of a run that nobody else holds."""
        self._holdings.require_held("run", run)
        super().unpublish(run)

    def delete(self, run: str) -> Undo:
        """Let go of a run; it is deleted when nobody else holds it."""
        require(self.get(run), "run", run)
        with self._holdings.alone("run", run) as alone:
            undo = super().delete(run) if alone else None
        return self._holdings.held_again(run, undo)


class VisitorValues(Values[T]):
    """Imported files of one kind as one visitor sees them."""

    def __init__(self, database: Database, artefacts: Artefacts, kind: Kind[T], holdings: Holdings):
        super().__init__(database, artefacts, kind)
        self._holdings = holdings

    def save(self, value: T) -> str:
        """Store a value and hold it; returns its digest."""
        self._holdings.require_writes()
        digest = super().save(value)
        with self._database.write() as session:
            self._holdings.take(session, digest)
        return digest

    def visible(self, query: Select[Any]) -> Select[Any]:
        """Those rows that this visitor holds."""
        return query.where(self._holdings.held(ImportRow.digest))

    def delete(self, digest: str) -> None:
        """Let go of a value; it is deleted when nobody else holds it."""
        require(self.get(digest), self.kind.key, digest)
        with self._holdings.alone(self.kind.key, digest) as alone:
            if alone:
                super().delete(digest)
