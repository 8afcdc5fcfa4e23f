"""Migrations at start: bring a database to today's schema, or refuse with a sentence.

The revisions are the files of `migrations/versions`, in the order of their names. Alembic is only
imported when there is something to do. Two starts at once are safe: the second waits for the
first one's lock and then finds nothing to do.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from twin.lab.store.engines import (
    Database,
    back_up,
    migration_connection,
    stamp,
    stamped_version,
)
from twin.lab.store.errors import StoreError
from twin.lab.store.guards import drop_guards, make_guards

log = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
VERSIONS = MIGRATIONS / "versions"
BACKUPS_KEPT = 3


def revisions(versions: Path = VERSIONS) -> list[str]:
    """Names of all revisions, oldest first: 'v0001_first.py' is revision 'v0001'."""
    return sorted(path.stem.split("_")[0] for path in versions.glob("v[0-9]*.py"))


def current(database: Database) -> str:
    """The revision a database is at, '' when it is new."""
    with database.read() as session:
        return _current(session.connection())


def upgrade(database: Database, versions: Path = VERSIONS) -> None:
    """Bring the schema up to the newest revision, after a backup when there is anything to lose.

    Raises StoreError when the database was written by a newer twin.
    """
    known = revisions(versions)
    there = current(database)
    with database.read() as session:
        version = stamped_version(session.connection())
    if (there and there not in known) or version > len(known):
        raise StoreError(
            f"{database.path or 'the database'} was written by a newer twin (schema "
            f"{there or version}, this one knows up to {known[-1]}): update the twin"
        )
    if there == known[-1]:
        return
    if there:
        _keep_backup(database, there)
    with migration_connection(database) as connection:
        if _current(connection) != known[-1]:
            drop_guards(connection)
            _run_alembic(connection, versions)
            make_guards(connection)
            stamp(connection, len(known))


def _current(connection: Connection) -> str:
    if not inspect(connection).has_table("alembic_version"):
        return ""
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return str(row[0]) if row else ""


def _run_alembic(connection: Connection, versions: Path) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("version_locations", str(versions).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _keep_backup(database: Database, revision: str) -> None:
    if database.path is None:
        return
    stem = f"{database.path.name}.before-migration-"
    copy = database.path.with_name(f"{stem}{revision}-{time.time_ns()}")
    back_up(database, copy)
    log.warning("kept a backup of the database before migrating it: %s", copy)
    older = sorted(database.path.parent.glob(f"{stem}*"), key=lambda p: p.stat().st_mtime_ns)
    for path in older[:-BACKUPS_KEPT]:
        path.unlink()
