"""The store as one handle: open it, and ask its parts for scenarios, runs and imported values
(`lab.kinds`), a sealed row and a few artefacts each: a scenario that names one needs no file."""

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic

from polars.exceptions import PolarsError
from sqlalchemy import URL, Select, delete, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from twin.facts import Facts
from twin.hardware.imported import set_source
from twin.lab import controllers
from twin.lab.files import printable
from twin.lab.kinds import COUNTS, MACHINE, TRACE, Kind, Parts, T
from twin.lab.library import STORED
from twin.lab.store import models
from twin.lab.store.artefacts import SWEEP_AGE_S, Artefacts
from twin.lab.store.engines import Database, check_integrity, open_database, prepare_file
from twin.lab.store.errors import StoreError, StoreFull
from twin.lab.store.migrate import check_guards, upgrade
from twin.lab.store.models import ArtefactRow, ImportRow, ImportTableRow, RunRow, ScenarioRow
from twin.lab.store.runs import Runs, facts_of_text, seal
from twin.lab.store.scenarios import Scenarios
from twin.lab.store.statements import PAGE, Page, add_file, page_of, require
from twin.lab.store.visitors import Notes, Visitor
from twin.metrics.measures import numbered
from twin.policies.controllers import set_controller_loader
from twin.scenario import Scenario

AGAIN = "import its file again"
VALUE_BYTES_MAX = 1 << 30  # of a value's tables in memory
URL_VARIABLE = "TWIN_DB_URL"
ARTEFACTS_VARIABLE = "TWIN_ARTIFACTS"
DEFAULT_NAME = "twin.db"
ANYONE = Visitor()  # where visitors are not known


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
        artefacts = self._artefacts.save_all(parts.tables)
        import_row = ImportRow(
            digest=digest, kind=self.kind.key, name=parts.name, format=parts.format,
            about=dict(parts.about), rows=next(iter(artefacts.values())).rows,
            created_s=time.time(),
        )  # fmt: skip
        import_row.seal = seal_of(
            import_row, {table: artefact.sha256 for table, artefact in artefacts.items()}
        )
        with self._database.write(durable=True) as session:
            stored_row = session.get(ImportRow, digest)
            if stored_row and seal_of(stored_row, files_of(session, digest)) != stored_row.seal:
                session.delete(stored_row)
                session.flush()
                stored_row = None
            if stored_row is None:
                session.add(import_row)
                session.flush()
                for table, artefact in artefacts.items():
                    add_file(session, self._artefacts, artefact)
                    session.add(ImportTableRow(digest=digest, name=table, sha256=artefact.sha256))
            self._visitor.hold(session, digest)
        return digest

    def get(self, digest: str) -> ImportRow | None:
        """The row of a value by its digest; None if it is not stored."""
        with self._database.read() as session:
            return self._row(session, digest)

    def load(self, digest: str) -> T:
        """The value of a digest, with all checks; raises UnknownId or StoreError."""
        with self._database.read() as session:
            import_row = require(self._row(session, digest), self.kind.key, digest)
            files = files_of(session, digest)
        if seal_of(import_row, files) != import_row.seal:
            raise StoreError(f"the {self.kind.key} {digest} is damaged in the database: {AGAIN}")
        return self.join(import_row, files)

    def join(self, row: ImportRow, files: Mapping[str, str]) -> T:
        """The checked value of a row and its files (SHA-256 by table). Raises StoreError."""
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

    def missing_text(self, scenario: Scenario) -> str:
        """Sentence if the imported file that a scenario names is not stored; otherwise ''."""
        ref = self.kind.named(scenario)
        if ref is None or self.kind.at_hand(ref.digest) or self.get(ref.digest) is not None:
            return ""
        return self.kind.absent.format(ref.name or ref.digest)

    def search(self, text: str = "", *, limit: int = PAGE, offset: int = 0) -> Page[ImportRow]:
        """A page of values whose name or format contains every word, newest first."""
        query = self.limit_to_visible(select(ImportRow).where(ImportRow.kind == self.kind.key))
        sort_columns = (ImportRow.created_s.desc(), ImportRow.digest)
        columns = (ImportRow.name, ImportRow.format, ImportRow.digest)
        return page_of(self._database, query, text, columns, sort_columns, limit, offset)

    def limit_to_visible(self, query: Select[Any]) -> Select[Any]:
        """The query, limited to rows that this visitor holds."""
        return self._visitor.limit_to_held(query, ImportRow.digest)

    def use_text(self, digest: str) -> str:
        """Sentence on the scenarios and runs that use a value; '' if none."""
        # In a text, 64 hexadecimal digits occur only as a digest.
        names_value = ScenarioRow.body.contains(digest, autoescape=True)
        scenario_query = select(func.count()).select_from(ScenarioRow).where(names_value)
        run_query = select(func.count(RunRow.id)).join(ScenarioRow).where(names_value)
        with self._database.read() as session:
            scenario_count, run_count = session.scalar(scenario_query), session.scalar(run_query)
        if not scenario_count:
            return ""
        runs_text = f" with {numbered(run_count, 'run')}" if run_count else ""
        users_text = f"{numbered(scenario_count, 'scenario')}{runs_text}"
        return f"{self.kind.in_use} used by {users_text}: delete those first"

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
    """SHA-256 (hex) over an imported value's row and the SHA-256 of its tables by name."""
    return seal({key: getattr(row, key) for key in row.SEALED}, files)


def files_of(session: Session, digest: str) -> dict[str, str]:
    """SHA-256 of an imported value's tables, by table name."""
    columns = ImportTableRow.name, ImportTableRow.sha256
    return dict(session.execute(select(*columns).where(ImportTableRow.digest == digest)).all())


class Store:
    """Scenarios, runs and traces of one database; safe to share between threads."""

    def __init__(self, database: Database, artefacts: Artefacts, visitor: Visitor = ANYONE):
        """Make the parts of a store as a visitor sees it."""
        self.database, self.artefacts = database, artefacts
        self.visitor = visitor.name  # "" where visitors are not known
        self.require_writes = visitor.require_writes  # StoreError where nothing can be stored
        self.scenarios = Scenarios(database, visitor)
        self.runs = Runs(database, artefacts, visitor)
        self.traces = Values(database, artefacts, visitor, TRACE)
        self.counts = Values(database, artefacts, visitor, COUNTS)
        self.machines = Values(database, artefacts, visitor, MACHINE)
        self.notes = Notes(database, visitor)
        value_stores: tuple[Values[Any], ...] = (self.traces, self.counts, self.machines)
        self.imports = {value_store.kind.key: value_store for value_store in value_stores}

    def for_visitor(self, visitor: str, *, writes: bool = True) -> "Store":
        """The store as a visitor sees it; writes: whether they may store anything."""
        return Store(self.database, self.artefacts, Visitor(visitor, known=True, writes=writes))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for another process to open the same store."""
        return {
            URL_VARIABLE: self.database.url.render_as_string(hide_password=False),
            ARTEFACTS_VARIABLE: str(self.artefacts.folder),
        }

    def facts(self, digest: str) -> Facts:
        """The facts with this digest; raises UnknownId, or StoreError when damaged."""
        with self.database.read() as session:
            facts_row = require(session.get(models.FactsRow, digest), "set of facts", digest)
        return facts_of_text(facts_row.body, digest)

    def missing_text(self, scenario: Scenario) -> str:
        """Sentence on an imported file that a scenario names and that is not stored; or ''."""
        return next(
            filter(
                None, (value_store.missing_text(scenario) for value_store in self.imports.values())
            ),
            "",
        )

    def delete_unused(self, older_than_s: float = SWEEP_AGE_S) -> int:
        """Delete old artefacts that no run or imported value uses; returns their number."""
        cutoff_s = time.time() - older_than_s
        used_hashes = select(models.RunTableRow.sha256).union_all(select(ImportTableRow.sha256))
        old_files = self.artefacts.old_files(older_than_s)  # before the lock: a disk may be slow
        with self.database.write(durable=True) as session:
            is_unused = (ArtefactRow.created_s < cutoff_s) & ArtefactRow.sha256.not_in(used_hashes)
            session.execute(delete(ArtefactRow).where(is_unused))
        # Files go when the disk has forgotten their rows, else a loss of power would bring these
        # back without them; and while the lock is held, so that no row naming one comes in between.
        with self.database.write() as session:
            known_hashes = set(session.scalars(select(ArtefactRow.sha256)))
            return self.artefacts.delete(old_files, known_hashes, older_than_s)

    def find_damage(self) -> list[str]:
        """Sentences on all damage of stored bytes: database, files, results."""
        damage = check_integrity(self.database) + check_guards(self.database)
        checks: list[tuple[Callable[[str], object], InstrumentedAttribute[str]]] = [
            (self.artefacts.read, models.ArtefactRow.sha256),
            (self.facts, models.FactsRow.digest),
            (self.scenarios.require_sound, models.ScenarioRow.digest),
            (self.runs.get, models.RunRow.id),
            (self._load_import, models.ImportRow.digest),
        ]
        for check, column in checks:
            with self.database.read() as session:
                row_keys = session.scalars(select(column)).all()
            for row_key in row_keys:
                try:
                    check(row_key)
                except ValueError as error:
                    damage.append(str(error))
        return damage

    def _load_import(self, digest: str) -> object:
        """Load an imported value of any kind, which checks it. Raises StoreError."""
        with self.database.read() as session:
            import_row = require(session.get(models.ImportRow, digest), "import", digest)
        if (value_store := self.imports.get(import_row.kind)) is None:
            raise StoreError(f"the import {digest} is damaged in the database: {AGAIN}")
        return value_store.load(digest)

    def close(self) -> None:
        """Close all connections; the store can still be used afterwards."""
        self.database.close()


def open_store(url: str | None = None, artefacts: Path | None = None) -> Store:
    """Open the store of a URL, TWIN_DB_URL or `data/twin.db`, migrate it and mark runs of dead
    processes; raises StoreError."""
    # A path may hold what a URL must escape.
    default_url = URL.create("sqlite", database=str(STORED / DEFAULT_NAME)).render_as_string()
    database = open_database(url or os.environ.get(URL_VARIABLE) or default_url)
    artefact_folder = artefacts or os.environ.get(ARTEFACTS_VARIABLE)
    folder = Path(artefact_folder).resolve() if artefact_folder else _artefact_folder(database)
    prepare_file(database, folder)
    upgrade(database)
    store = Store(database, Artefacts(folder))
    set_source(store.machines.load)
    set_controller_loader(controllers.load_controller)
    with suppress(StoreFull):  # who may only read leaves what dead processes left as it is
        store.runs.recover()
    return store


def _artefact_folder(database: Database) -> Path:
    """Folder of a database's artefacts: each database has its own, because a sweep deletes files
    that no row names."""
    path = database.path
    if path is None:
        database_name = f"{database.url.host} {database.url.port} {database.url.database}"
        return STORED / f"artifacts-{hashlib.sha256(database_name.encode()).hexdigest()[:12]}"
    shared_folder = path.with_name("artifacts")
    if path.name == DEFAULT_NAME:
        return shared_folder
    named_folder = path.with_name(f"{path.name}-artifacts")
    if not path.exists() or not path.stat().st_size:
        with suppress(OSError):  # without the right to write, making the file fails with a sentence
            named_folder.mkdir(exist_ok=True)
    # A database of before there were folders of their own keeps the one that it knows.
    return shared_folder if shared_folder.exists() and not named_folder.exists() else named_folder
