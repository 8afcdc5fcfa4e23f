"""Imported values (`lab.kinds`) by digest, a sealed row and a few artefacts each, so that a
scenario that names one runs without its file."""

import time
from collections.abc import Mapping
from typing import Any, Generic

from polars.exceptions import PolarsError
from sqlalchemy import Select, delete, func, select
from sqlalchemy.orm import Session

from twin.lab.files import printable
from twin.lab.kinds import Kind, Parts, T
from twin.lab.store.artefacts import Artefacts
from twin.lab.store.engines import Database
from twin.lab.store.errors import StoreError
from twin.lab.store.models import ImportRow, ImportTableRow, RunRow, ScenarioRow
from twin.lab.store.runs import seal
from twin.lab.store.statements import PAGE, Page, add_file, page_of, require
from twin.lab.store.visitors import Visitor
from twin.metrics.measures import numbered
from twin.scenario import Scenario

AGAIN = "import its file again"
VALUE_BYTES_MAX = 1 << 30  # of a value's tables in memory


class Values(Generic[T]):
    """Save, find, load and delete the values of one kind."""

    def __init__(self, database: Database, artefacts: Artefacts, visitor: Visitor, kind: Kind[T]):
        """Use a database and a folder of artefacts for values of a kind and a visitor."""
        self._database, self._artefacts, self._visitor = database, artefacts, visitor
        self.kind = kind

    def save(self, value: T) -> str:
        """Store a value or replace a damaged one; returns its digest. Raises StoreError."""
        self._visitor.require_writes()
        digest, parts = value.digest, self.kind.split(value)
        size_bytes = sum(frame.estimated_size() for frame in parts.tables.values())
        if size_bytes > VALUE_BYTES_MAX:
            raise StoreError(
                f"{parts.name} takes {size_bytes / 1e6:.0f} MB: a stored {self.kind.key} may take "
                f"{VALUE_BYTES_MAX / 1e6:.0f} MB, {self.kind.smaller}"
            )
        artefacts = self._artefacts.put_all(parts.tables)
        row = ImportRow(
            digest=digest, kind=self.kind.key, name=parts.name, format=parts.format,
            about=dict(parts.about), rows=next(iter(artefacts.values())).rows,
            created_s=time.time(),
        )  # fmt: skip
        row.seal = seal_of(row, {name: artefact.sha256 for name, artefact in artefacts.items()})
        with self._database.write(durable=True) as session:
            present_row = session.get(ImportRow, digest)
            if present_row and seal_of(present_row, files_of(session, digest)) != present_row.seal:
                session.delete(present_row)
                session.flush()
                present_row = None
            if present_row is None:
                session.add(row)
                session.flush()
                for name, artefact in artefacts.items():
                    add_file(session, self._artefacts, artefact)
                    session.add(ImportTableRow(digest=digest, name=name, sha256=artefact.sha256))
            self._visitor.hold(session, digest)
        return digest

    def get(self, digest: str) -> ImportRow | None:
        """The row of a value by its digest; None if it is not stored."""
        with self._database.read() as session:
            return self._row(session, digest)

    def load(self, digest: str) -> T:
        """The value of a digest, with all checks; raises UnknownId or StoreError."""
        with self._database.read() as session:
            row = require(self._row(session, digest), self.kind.key, digest)
            files = files_of(session, digest)
        if seal_of(row, files) != row.seal:
            raise StoreError(f"the {self.kind.key} {digest} is damaged in the database: {AGAIN}")
        return self.join(row, files)

    def join(self, row: ImportRow, files: Mapping[str, str]) -> T:
        """The value of a row and its files (SHA-256 by table), checked; raises StoreError."""
        tables = {name: self._artefacts.read(sha256) for name, sha256 in files.items()}
        subject = f"the {self.kind.key} {printable(row.name)}"
        try:
            value = self.kind.join(Parts(row.name, row.format, row.about, tables))
        except (AttributeError, LookupError, TypeError, ValueError, PolarsError) as error:
            reason = f"{subject} was stored by another version of the twin: {AGAIN}"
            raise StoreError(reason) from error
        if row.digest not in (value.digest, getattr(value, "plain_digest", value.digest)):
            raise StoreError(f"{subject} was stored by a twin that read it otherwise: {AGAIN}")
        return value

    def value_of(self, scenario: Scenario) -> T | None:
        """The value of this kind that a scenario names, or None; raises UnknownId, StoreError."""
        reference = self.kind.named(scenario)
        return self.load(reference.digest) if reference else None

    def absence(self, scenario: Scenario) -> str:
        """Sentence if the value that a scenario names is not stored; '' if it is, or none named."""
        ref = self.kind.named(scenario)
        if ref is None or self.kind.at_hand(ref.digest) or self.get(ref.digest) is not None:
            return ""
        return self.kind.absent.format(ref.name or ref.digest)

    def search(self, text: str = "", *, limit: int = PAGE, offset: int = 0) -> Page[ImportRow]:
        """A page of values whose name or format contains every word, newest first."""
        query = self.limit_to_visible(select(ImportRow).where(ImportRow.kind == self.kind.key))
        order = (ImportRow.created_s.desc(), ImportRow.digest)
        columns = (ImportRow.name, ImportRow.format, ImportRow.digest)
        return page_of(self._database, query, text, columns, order, limit, offset)

    def limit_to_visible(self, query: Select[Any]) -> Select[Any]:
        """The query, limited to rows that this visitor holds."""
        return self._visitor.limit(query, ImportRow.digest)

    def use_text(self, digest: str) -> str:
        """Sentence on the scenarios and runs that use a value; '' if none."""
        # In a text, 64 hexadecimal digits occur only as a digest.
        names_value = ScenarioRow.body.contains(digest, autoescape=True)
        scenario_query = select(func.count()).select_from(ScenarioRow).where(names_value)
        run_query = select(func.count(RunRow.id)).join(ScenarioRow).where(names_value)
        with self._database.read() as session:
            scenarios, runs = session.scalar(scenario_query), session.scalar(run_query)
        if not scenarios:
            return ""
        runs_text = f" with {numbered(runs, 'run')}" if runs else ""
        users = f"{numbered(scenarios, 'scenario')}{runs_text}"
        return f"{self.kind.in_use} used by {users}: delete those first"

    def delete(self, digest: str) -> None:
        """Delete a value that no scenario names. Raises StoreError if one does, UnknownId."""
        with self._database.write(durable=True) as session:
            require(self._row(session, digest), self.kind.key, digest)
            if not self._visitor.let_go(session, self.kind.key, digest):
                return
            if use_text := self.use_text(digest):
                raise StoreError(use_text)
            session.execute(delete(ImportRow).where(ImportRow.digest == digest))

    def _row(self, session: Session, digest: str) -> ImportRow | None:
        """The row of a value of this kind; None if it is not stored."""
        query = select(ImportRow).where(ImportRow.digest == digest)
        return session.scalar(query.where(ImportRow.kind == self.kind.key))


def seal_of(row: ImportRow, files: dict[str, str]) -> str:
    """SHA-256 (hex) over a row's contents and the SHA-256 of its tables by name."""
    return seal({key: getattr(row, key) for key in row.SEALED}, files)


def files_of(session: Session, digest: str) -> dict[str, str]:
    """SHA-256 of the tables of a value, by name."""
    columns = ImportTableRow.name, ImportTableRow.sha256
    return dict(session.execute(select(*columns).where(ImportTableRow.digest == digest)).all())
