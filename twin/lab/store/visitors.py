"""What one visitor may see and change, where a server knows its visitors by name.

Several may hold a value: whoever saves it or asks for it. A visitor sees what they hold, presets
and what was shared, lets go of what they delete, and it is gone when nobody holds it. Where nothing
can be kept, all is shown. A store that nobody logs in to knows no visitors: everybody may do all.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, exists, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from twin.lab.store.errors import StoreError
from twin.lab.store.models import HoldingRow
from twin.lab.store.statements import insert_once

READ_ONLY = (
    "this server shows what is stored and keeps nothing: run a twin of your own to change it"
)


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at a store; what is done with a session is part of its transaction."""

    name: str = ""  # whose notes are shown
    known: bool = False  # False: nobody has to say who they are
    writes: bool = True

    @property
    def _bounded(self) -> bool:
        return self.known and self.writes

    def require_writes(self) -> None:
        """Raise StoreError on a server that only shows."""
        if not self.writes:
            raise StoreError(READ_ONLY)

    def shown(
        self, query: Select[Any], column: InstrumentedAttribute[str], *others: ColumnElement[bool]
    ) -> Select[Any]:
        """Those rows of a query that a list shows: which this visitor holds, and some others."""
        h = HoldingRow
        held = exists().where(h.visitor == self.name, h.name == column).correlate_except(h)
        return query.where(or_(held, *others)) if self._bounded else query

    def sees(self, session: Session, name: str) -> bool:
        """Whether this visitor holds a run or a scenario, or need not."""
        return not self._bounded or self.name in self._holders(session, name)

    def hold(self, session: Session, name: str) -> None:
        """From now on this visitor holds a run (id), a scenario or a file (digest)."""
        self.require_writes()
        if self.known:
            insert_once(session, (self.name, name), HoldingRow(visitor=self.name, name=name))

    def let_go(self, session: Session, kind: str, name: str) -> bool:
        """Let go of something; whether nobody else holds it. Raises StoreError where it is not
        this visitor's."""
        self.require_writes()
        if not self.known:
            return True
        holders = self._holders(session, name)
        if self.name not in holders:
            raise StoreError(f"this {kind} is somebody else's: only who asked for it may do that")
        h = HoldingRow
        session.execute(delete(h).where(h.name == name, h.visitor == self.name))
        return len(holders) == 1

    def require_held(self, session: Session, kind: str, name: str) -> None:
        """Raise StoreError unless this visitor, and nobody else, holds something."""
        self.require_writes()
        holders = self._holders(session, name)
        if self.known and holders != {self.name}:
            who = "others' too" if self.name in holders else "somebody else's"
            raise StoreError(f"this {kind} is {who}: only who alone asked for it may do that")

    def _holders(self, session: Session, name: str) -> Set[str]:
        return set(session.scalars(select(HoldingRow.visitor).where(HoldingRow.name == name)))
