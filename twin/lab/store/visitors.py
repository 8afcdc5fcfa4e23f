"""What one visitor may see and change, where a server knows its visitors by name.

Scenarios, runs and imported files are values that several visitors may hold: whoever saves one or
asks for it holds it. A visitor sees what they hold, presets, and what was shared; they let go of
what they delete, and it is gone when nobody holds it any more. Where nothing can be kept, all is
shown. A store that nobody has to log in to knows no visitors: everybody sees and may do everything.
"""

from __future__ import annotations

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
from twin.lab.store.statements import Held, Undo, insert_once, require
from twin.lab.store.values import Values

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

    def let_go(self, session: Session, kind: str, name: str) -> bool:
        """Let go of something; whether nobody else holds it.

        Raises StoreError where this visitor does not hold it.
        """
        holders = self._holders(session, name)
        if self.visitor not in holders:
            raise StoreError(f"this {kind} is somebody else's: only who asked for it may do that")
        h = HoldingRow
        session.execute(delete(h).where(h.name == name, h.visitor == self.visitor))
        return len(holders) == 1

    def require_held(self, session: Session, kind: str, name: str) -> None:
        """Raise StoreError unless this visitor, and nobody else, holds something."""
        holders = self._holders(session, name)
        if holders != {self.visitor}:
            who = "others' too" if self.visitor in holders else "somebody else's"
            raise StoreError(f"this {kind} is {who}: only who alone asked for it may do that")

    def _holders(self, session: Session, name: str) -> set[str]:
        self.require_writes()
        return set(session.scalars(select(HoldingRow.visitor).where(HoldingRow.name == name)))


class _Seen(Held):
    """A part of the store as one visitor sees it."""

    _holdings: Holdings
    _one: str  # "this run is somebody else's"

    @property
    def visitor(self) -> str:  # type: ignore[override]
        """Who looks."""
        return self._holdings.visitor

    def hold(self, session: Session, name: str) -> None:
        self._holdings.take(session, name)

    def let_go(self, session: Session, name: str) -> bool:
        return self._holdings.let_go(session, self._one, name)

    def require_held(self, session: Session, name: str) -> None:
        self._holdings.require_held(session, self._one, name)


class VisitorScenarios(_Seen, Scenarios):
    """Scenarios as one visitor sees them."""

    _one = "scenario"

    def __init__(self, database: Database, holdings: Holdings):
        super().__init__(database)
        self._holdings = holdings

    def visible(self, query: Select[Any]) -> Select[Any]:
        """Those rows that this visitor holds, and presets."""
        r = ScenarioRow
        return query.where(or_(r.preset != "", self._holdings.held(r.digest)))

    def publish(self, digest: str) -> None:
        """Share it, as whoever holds it may."""
        self._holdings.require_writes()
        super().publish(digest)


class VisitorRuns(_Seen, Runs):
    """Runs as one visitor sees them."""

    _one = "run"

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

    def publish(self, run: str) -> None:
        """Share a run that this visitor sees."""
        self._holdings.require_writes()
        super().publish(run)

    def delete(self, run: str) -> Undo:
        """Let go of a run; it is deleted when nobody else holds it."""
        require(self.get(run), "run", run)
        return super().delete(run)


class VisitorValues(_Seen, Values[T]):
    """Imported files of one kind as one visitor sees them."""

    def __init__(self, database: Database, artefacts: Artefacts, kind: Kind[T], holdings: Holdings):
        super().__init__(database, artefacts, kind)
        self._holdings, self._one = holdings, kind.key

    def save(self, value: T) -> str:
        """Store a value and hold it; returns its digest."""
        self._holdings.require_writes()
        return super().save(value)

    def visible(self, query: Select[Any]) -> Select[Any]:
        """Those rows that this visitor holds."""
        return query.where(self._holdings.held(ImportRow.digest))
