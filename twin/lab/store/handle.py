"""The store as one handle: open it, and ask its parts for scenarios, runs and traces."""

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, delete, select
from sqlalchemy.orm import InstrumentedAttribute

from twin.facts import Facts
from twin.hardware.imported import set_source
from twin.lab import controllers
from twin.lab.kinds import COUNTS, MACHINE, TRACE
from twin.lab.library import STORED
from twin.lab.store import models
from twin.lab.store.artefacts import SWEEP_AGE_S, Artefacts
from twin.lab.store.engines import Database, check_integrity, open_database, prepare_file
from twin.lab.store.errors import StoreError, StoreFull
from twin.lab.store.migrate import check_guards, upgrade
from twin.lab.store.runs import Runs, facts_of_text
from twin.lab.store.scenarios import Scenarios
from twin.lab.store.statements import require
from twin.lab.store.values import AGAIN, Values
from twin.lab.store.visitors import Notes, Visitor
from twin.policies.controllers import set_controller_loader
from twin.scenario import Scenario

URL_VARIABLE = "TWIN_DB_URL"
ARTEFACTS_VARIABLE = "TWIN_ARTIFACTS"
DEFAULT_NAME = "twin.db"
ANYONE = Visitor()  # where visitors are not known


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
        self.imports = {part.kind.key: part for part in value_stores}

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
            row = require(session.get(models.FactsRow, digest), "set of facts", digest)
        return facts_of_text(row.body, digest)

    def absence(self, scenario: Scenario) -> str:
        """Sentence on a value that a scenario names and that is not stored here; '' if all are."""
        return next(filter(None, (part.absence(scenario) for part in self.imports.values())), "")

    def delete_unused(self, older_than_s: float = SWEEP_AGE_S) -> int:
        """Delete old artefacts that no run or imported value uses; returns their number."""
        cutoff_s = time.time() - older_than_s
        hashes = select(models.RunTableRow.sha256).union_all(select(models.ImportTableRow.sha256))
        files = self.artefacts.old_files(older_than_s)  # before the lock: a disk may be slow
        row = models.ArtefactRow
        with self.database.write(durable=True) as session:
            session.execute(delete(row).where(row.created_s < cutoff_s, row.sha256.not_in(hashes)))
        # Files go when the disk has forgotten their rows, else a loss of power would bring these
        # back without them; and while the lock is held, so that no row naming one comes in between.
        with self.database.write() as session:
            named_hashes = set(session.scalars(select(row.sha256)))
            return self.artefacts.delete(files, named_hashes, older_than_s)

    def find_damage(self) -> list[str]:
        """Sentences on all damage of stored bytes: database, files, results."""
        faults = check_integrity(self.database) + check_guards(self.database)
        checks: list[tuple[Callable[[str], object], InstrumentedAttribute[str]]] = [
            (self.artefacts.read, models.ArtefactRow.sha256),
            (self.facts, models.FactsRow.digest),
            (self.scenarios.require_sound, models.ScenarioRow.digest),
            (self.runs.get, models.RunRow.id),
            (self._load_import, models.ImportRow.digest),
        ]
        for check, column in checks:
            with self.database.read() as session:
                keys = session.scalars(select(column)).all()
            for key in keys:
                try:
                    check(key)
                except ValueError as error:
                    faults.append(str(error))
        return faults

    def _load_import(self, digest: str) -> object:
        """Load an imported value of any kind, which checks it. Raises StoreError."""
        with self.database.read() as session:
            row = require(session.get(models.ImportRow, digest), "import", digest)
        if (value_store := self.imports.get(row.kind)) is None:
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
    """Folder of a database's artefacts: its own, because a sweep deletes files without a row."""
    path = database.path
    if path is None:
        database_name = f"{database.url.host} {database.url.port} {database.url.database}"
        return STORED / f"artifacts-{hashlib.sha256(database_name.encode()).hexdigest()[:12]}"
    shared_folder = path.with_name("artifacts")
    if path.name == DEFAULT_NAME:
        return shared_folder
    own_folder = path.with_name(f"{path.name}-artifacts")
    if not path.exists() or not path.stat().st_size:
        with suppress(OSError):  # without the right to write, making the file fails with a sentence
            own_folder.mkdir(exist_ok=True)
    # A database of before there were folders of their own keeps the one that it knows.
    return shared_folder if shared_folder.exists() and not own_folder.exists() else own_folder
