"""Looking at stored runs: by id, by words, by question; their tables and their place in the queue.

Changes nothing. The seal over a result is checked whenever a run is opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from sqlalchemy import Connection, Row, func, or_, select

from twin.lab.store import models as m
from twin.lab.store.artefacts import Artefact, Artefacts
from twin.lab.store.engines import Database, json_text
from twin.lab.store.errors import StoreError
from twin.lab.store.models import DONE, ENDED_STATES, QUEUED, RUNNING
from twin.lab.store.owner import Owner
from twin.lab.store.statements import PAGE, Page, matching, page_of

ANSWER = ("summary", "checks", "notes", "result_digest", "valid")  # what the seal covers


@dataclass(frozen=True, slots=True)
class RunRow:
    """A stored run without its tables. Times are Unix seconds."""

    id: str
    scenario: str  # digest
    name: str  # the scenario's
    facts_digest: str
    engine_version: str
    seed: int
    queued_s: float
    state: str
    cancel_s: float | None
    progress: float
    live: dict[str, Any]
    started_s: float | None
    beat_s: float | None
    finished_s: float | None
    wall_s: float | None
    message: str
    valid: bool
    result_digest: str
    summary: dict[str, Any]
    checks: list[dict[str, Any]]
    notes: list[str]
    seal: str
    published_s: float | None
    owner: Owner

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in ENDED_STATES


class RunRows:
    """Find and open runs."""

    def __init__(self, database: Database, artefacts: Artefacts):
        self._database = database
        self._artefacts = artefacts

    def get(self, run: str) -> RunRow | None:
        """A run by id, None when it is not here; raises StoreError when its row was damaged."""
        with self._database.read() as connection:
            row = row_of(connection, run)
            if row and row.seal:
                names = {name: a.sha256 for name, a in _tables(connection, run).items()}
                if seal({key: getattr(row, key) for key in ANSWER}, names) != row.seal:
                    raise StoreError(f"the result of run {run} is damaged: restore a backup")
        return row

    def search(
        self,
        text: str = "",
        *,
        states: Sequence[str] = (),
        scenario: str = "",
        limit: int = PAGE,
        offset: int = 0,
    ) -> Page[RunRow]:
        """Runs whose scenario holds every word of a text (or whose id begins so), newest first."""
        c, s = m.runs.c, m.scenarios.c
        query = matching(_ROWS, text, [s.name, s.question], c.id)
        if states:
            query = query.where(c.state.in_(list(states)))
        if scenario:
            query = query.where(c.scenario == scenario)
        with self._database.read() as connection:
            return page_of(connection, query, (c.queued_s.desc(), c.id), _row, limit, offset)

    def find(self, scenario: str, facts_digest: str, engine_version: str) -> str | None:
        """The newest done run of a question, None when it has none."""
        with self._database.read() as connection:
            return same_question(connection, scenario, facts_digest, engine_version, (DONE,))

    def tables(self, run: str) -> dict[str, Artefact]:
        """Names, sizes and hashes of a run's tables."""
        with self._database.read() as connection:
            return _tables(connection, run)

    def table(self, run: str, name: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """One table of a run, its file checked; raises StoreError."""
        stored = self.tables(run)
        if name not in stored:
            raise StoreError(f"run {run} has no table {name}: it has {', '.join(stored) or 'none'}")
        return self._artefacts.read(stored[name].sha256, columns)

    def queue_position(self, run: str) -> int | None:
        """How many queued runs come before a queued one; None when it is not queued."""
        c = m.runs.c
        with self._database.read() as connection:
            row = connection.execute(
                select(c.queued_s).where(c.id == run, c.state == QUEUED)
            ).first()
            if row is None:
                return None
            earlier = or_(c.queued_s < row.queued_s, (c.queued_s == row.queued_s) & (c.id < run))
            before = select(func.count()).select_from(m.runs).where(c.state == QUEUED, earlier)
            return int(connection.execute(before).scalar_one())

    def waiting(self) -> int:
        """How many runs are queued."""
        with self._database.read() as connection:
            query = select(func.count()).select_from(m.runs).where(m.runs.c.state == QUEUED)
            return int(connection.execute(query).scalar_one())

    def running(self, owners: Sequence[str]) -> list[tuple[str, str, float | None]]:
        """What some owners run: (run id, owner, when it was asked to stop)."""
        c = m.runs.c
        mine = select(c.id, c.owner, c.cancel_s).where(
            c.state == RUNNING, c.owner.in_(list(owners))
        )
        with self._database.read() as connection:
            return [(row.id, row.owner, row.cancel_s) for row in connection.execute(mine)]


OWNER = (m.runs.c.owner, m.runs.c.owner_host, m.runs.c.owner_pid, m.runs.c.owner_started)
_COLUMNS = tuple(name for name in RunRow.__slots__ if name not in {"name", "owner"})
_ROWS = select(*(m.runs.c[name] for name in _COLUMNS), m.scenarios.c.name, *OWNER).join_from(
    m.runs, m.scenarios
)


def row_of(connection: Connection, run: str) -> RunRow | None:
    """A run's row, None when it is not here."""
    row = connection.execute(_ROWS.where(m.runs.c.id == run)).first()
    return _row(row) if row else None


def same_question(
    connection: Connection, scenario: str, facts: str, version: str, states: Sequence[str]
) -> str | None:
    """The newest run of a question in one of some states that nobody asked to stop."""
    c = m.runs.c
    return connection.execute(
        select(c.id)
        .where(c.scenario == scenario, c.facts_digest == facts, c.engine_version == version)
        .where(c.state.in_(list(states)), c.cancel_s.is_(None) | (c.state == DONE))
        .order_by(c.queued_s.desc(), c.id)
        .limit(1)
    ).scalar_one_or_none()


def owner_values(owner: Owner | None) -> dict[str, Any]:
    """An owner as columns of a run; without one, nobody's."""
    nobody = owner or Owner("", "", 0, "")
    return {
        "owner": nobody.name,
        "owner_host": nobody.host,
        "owner_pid": nobody.pid,
        "owner_started": nobody.started,
    }


def seal(answer: Mapping[str, Any], tables: Mapping[str, str]) -> str:
    """SHA-256 over a result's columns (ANSWER) and the hashes of its tables."""
    return hashlib.sha256(json_text({**answer, "tables": tables}).encode()).hexdigest()


def _row(row: Row[*tuple[Any, ...]]) -> RunRow:
    values = dict(row._mapping)
    parts = [values.pop(column.name) for column in OWNER]
    return RunRow(**values, owner=Owner(*parts))


def _tables(connection: Connection, run: str) -> dict[str, Artefact]:
    a, t = m.artefacts.c, m.run_tables.c
    rows = connection.execute(
        select(t.name, a.sha256, a.bytes, a.rows)
        .join_from(m.run_tables, m.artefacts)
        .where(t.run == run)
        .order_by(t.name)
    )
    return {row.name: Artefact(row.sha256, row.bytes, row.rows) for row in rows}
