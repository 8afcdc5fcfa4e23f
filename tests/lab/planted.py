"""Bugs that are planted in the store, to see whether histories find them.

    python -m tests.lab.planted 100

says of each in how many of so many histories it is found.
"""

import hashlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy.engine import Connection

from tests.lab.histories import history, new_template
from tests.lab.simulated_disk import Disk
from twin.lab.store import runs, visitors
from twin.lab.store.artefacts import Artefact, Artefacts
from twin.lab.store.engines import Database
from twin.lab.store.models import ArtefactRow
from twin.lab.store.owner import Owner
from twin.lab.store.statements import insert_once

PLANTED: dict[str, Callable[[], AbstractContextManager[object]]] = {}


def planted(name: str) -> Callable[[Callable[[], Iterator[None]]], None]:
    """Note a bug under a name."""

    def note(plant: Callable[[], Iterator[None]]) -> None:
        PLANTED[name] = contextmanager(plant)

    return note


@planted("an UPDATE names no state that it may start from")
def _no_state() -> Iterator[None]:
    def held(run: str, owner: Owner) -> Any:
        return (runs.RunRow.id == run) & (runs.RunRow.owner_name == owner.name)

    with patch.object(runs, "_held_by", held):
        yield


@planted("a writer takes its lock when it first writes, not before it reads")
def _deferred() -> Iterator[None]:
    asked = Connection.exec_driver_sql

    def begun(self: Connection, sql: str, *given: Any, **named: Any) -> Any:
        return asked(self, sql.replace("BEGIN IMMEDIATE", "BEGIN"), *given, **named)

    with patch.object(Connection, "exec_driver_sql", begun):
        yield


@planted("the row of a result is written before its files")
def _row_first() -> Iterator[None]:
    finish, save_all = runs.Runs.finish, Artefacts.save_all

    def late(self: runs.Runs, run: str, owner: Owner, result: Any, wall_s: float) -> bool:
        said = _written(result.tables)
        with patch.object(self._artefacts, "save_all", lambda _: said):
            done = finish(self, run, owner, result, wall_s)
        save_all(self._artefacts, result.tables)
        return done

    def unseen(session: Any, _: Artefacts, artefact: Artefact) -> None:
        row = ArtefactRow(**asdict(artefact), created_s=runs.time.time())
        insert_once(session, artefact.sha256, row)

    with patch.object(runs.Runs, "finish", late), patch.object(runs, "add_file", unseen):
        yield


def _written(tables: dict[str, Any]) -> dict[str, Artefact]:
    """What files would be called, were they written."""
    said = {}
    for name, table in tables.items():
        file = io.BytesIO()
        table.lazy().sink_parquet(file, compression="zstd", engine="in-memory")
        data = file.getvalue()
        said[name] = Artefact(hashlib.sha256(data).hexdigest(), len(data), table.height)
    return said


@planted("a file is named in a row before it is forced to the disk")
def _no_sync() -> Iterator[None]:
    with patch.object(Disk, "sync", lambda *_: None):
        yield


@planted("no commit waits for the disk")
def _not_durable() -> Iterator[None]:
    write = Database.write
    with patch.object(Database, "write", lambda self, **_: write(self)):
        yield


@planted("who asks for a run holds it in a transaction of its own")
def _held_later() -> Iterator[None]:
    add = runs.Runs.add

    def added(self: Any, *given: Any, **named: Any) -> str:
        with patch.object(visitors.Visitor, "hold", lambda *_: None):
            run = add(self, *given, **named)
        with self.database.write(durable=True) as session:
            self._visitor.hold(session, run)
        return run

    with patch.object(runs.Runs, "add", added):
        yield


@planted("a process counts as alive for as long as its row says so")
def _immortal() -> Iterator[None]:
    with patch.object(runs.Runs.recover, "__defaults__", (lambda *_: True,)):
        yield


def finds(name: str, seeds: range, template: Path) -> list[tuple[int, str]]:
    """Of those seeds, which find a planted bug, and by which law."""
    told = []
    for seed in seeds:
        with PLANTED[name]():
            wrong = history(seed, template).wrong
        if wrong:
            told.append((seed, wrong[0]))
    return told


def main() -> None:
    """A line for each bug."""
    seeds = range(int(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        template = new_template(Path(folder))
        for name in PLANTED:
            told = finds(name, seeds, template)
            first = f", first by seed {told[0][0]}: {told[0][1][:150]}" if told else ""
            sys.stdout.write(f"{len(told)} of {len(seeds)}: {name}{first}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
