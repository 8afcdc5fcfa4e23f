"""Migrations at start, and triggers that refuse to change a value, made again after each migration.
Of two starts the second waits for a lock and finds nothing to do."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from twin.lab.store.engines import Database, execute_raw, migration_connection
from twin.lab.store.errors import StoreError
from twin.lab.store.models import ENDED_STATES, TRANSITIONS, Row

log = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
VERSIONS = MIGRATIONS / "versions"
BACKUPS_MOST = 3


def revisions(versions: Path = VERSIONS) -> list[str]:
    """Names of all revisions in a folder, oldest first: 'v0001_first.py' is revision 'v0001'."""
    return sorted(path.stem.split("_")[0] for path in versions.glob("v[0-9]*.py"))


def revision_of(database: Database) -> str:
    """The revision that a database is at, '' if it is new."""
    with database.read() as session:
        return _connection_revision(session.connection())


def upgrade(database: Database, versions: Path = VERSIONS) -> None:
    """Migrate a database to the newest revision, after a backup. Raises StoreError if newer."""
    all_revisions = revisions(versions)
    revision = revision_of(database)
    if revision and revision not in all_revisions:
        raise StoreError(
            f"{database.path or 'the database'} was written by a newer twin (schema {revision}, "
            f"this one knows up to {all_revisions[-1]}): update the twin"
        )
    if revision == all_revisions[-1]:
        return
    if revision and (path := database.path) is not None:  # PostgreSQL has tools of its own
        backup_stem = f"{path.name}.before-migration-"
        backup_copy = path.with_name(f"{backup_stem}{revision}-{time.time_ns()}")
        execute_raw(database, "VACUUM INTO ?", str(backup_copy))  # consistent during use
        log.warning("stored a backup of the database before migrating it: %s", backup_copy)
        backups = sorted(path.parent.glob(f"{backup_stem}*"), key=lambda p: p.stat().st_mtime_ns)
        for backup in backups[:-BACKUPS_MOST]:
            backup.unlink()
    with migration_connection(database) as connection:
        if _connection_revision(connection) != all_revisions[-1]:
            drop_guards(connection)
            _run_alembic(connection, versions)
            make_guards(connection)


def _connection_revision(connection: Connection) -> str:
    """The revision that the database of a connection is at; '' if it is new."""
    if not inspect(connection).has_table("alembic_version"):
        return ""
    version_row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return str(version_row[0]) if version_row else ""


def _run_alembic(connection: Connection, versions: Path) -> None:
    """Make the tables of a new database, or apply the missing revisions of an older one."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("version_locations", str(versions).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    if _connection_revision(connection):
        command.upgrade(config, "head")
    else:
        Row.metadata.create_all(connection)
        command.stamp(config, "head")


ENDED = ", ".join(f"'{state}'" for state in ENDED_STATES)
ALLOWED = " OR ".join(
    f"(OLD.state = '{before}' AND NEW.state = '{after}')" for before, after in TRANSITIONS
)


@dataclass(frozen=True)
class Guard:
    """Trigger that refuses an event on a table when a condition on OLD and NEW holds."""

    name: str
    table: str
    event: str
    condition: str
    message: str


SHARED = "this {kind} was shared: its link must keep working"
RESULT = (
    "state, cancel_s, progress, live, started_s, beat_s, owner, finished_s, wall_s, message, "
    "valid, result_digest, summary, checks, notes, seal"
)


def _no_update(name: str, table: str, message: str, columns: str = "") -> Guard:
    """Guard against updates of a table, or of some of its columns ('': of any)."""
    return Guard(name, table, f"UPDATE OF {columns}" if columns else "UPDATE", "1 = 1", message)


def _publication_guards(kind: str) -> tuple[Guard, Guard]:
    """Guards against deleting shared rows and changing when they were shared, until the link is
    revoked; kind: 'run' or 'scenario'."""
    table, was_shared, refusal = f"{kind}s", "OLD.published_s IS NOT NULL", SHARED.format(kind=kind)
    stays = f"{was_shared} AND NEW.published_s IS NOT NULL"
    return (
        Guard(f"published_{kind}_stays", table, "DELETE", was_shared, refusal),
        Guard(f"published_{kind}_stays_published", table, "UPDATE OF published_s", stays, refusal),
    )


GUARDS = (
    _no_update("scenario_is_a_value", "scenarios",
           "a scenario is a value: save the change as a new one",
           "digest, schema_version, body, name, question, source, trace_digest, created_s"),
    _no_update("question_of_a_run_is_fixed", "runs", "what a run asks is fixed: make another run",
           "id, scenario, facts_digest, engine_version, seed, queued_s"),
    Guard("state_follows_the_rules", "runs", "UPDATE OF state", f"NOT ({ALLOWED})",
          "a run cannot change its state that way"),
    Guard("ended_run_is_a_value", "runs", f"UPDATE OF {RESULT}", f"OLD.state IN ({ENDED})",
          "this run has ended: its result is a value"),
    *_publication_guards("scenario"),
    *_publication_guards("run"),
    _no_update("alias_is_a_value", "scenario_aliases", "another digest of a scenario is a value"),
    _no_update("tables_of_a_run_are_values", "run_tables", "a table of a run is a value"),
    _no_update("facts_are_values", "facts", "a set of facts is a value"),
    _no_update("import_is_a_value", "imports",
               "what was imported is a value: import it as a new one"),
)  # fmt: skip


def drop_guards(connection: Connection) -> None:
    """Remove all guards of PostgreSQL, which alters no column that a trigger names."""
    if connection.dialect.name == "sqlite":
        return
    trigger_tables = connection.exec_driver_sql(
        "SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
        "JOIN pg_proc p ON p.oid = t.tgfoid WHERE p.proname = 'twin_refuse'"
    ).all()
    for trigger, table in trigger_tables:
        connection.exec_driver_sql(f'DROP TRIGGER "{trigger}" ON "{table}"')


def make_guards(connection: Connection) -> None:
    """Create all guards, replacing earlier ones."""
    is_sqlite = connection.dialect.name == "sqlite"
    if not is_sqlite:
        connection.exec_driver_sql(
            "CREATE OR REPLACE FUNCTION twin_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE integrity_constraint_violation USING MESSAGE = TG_ARGV[0]; END $$"
        )
    for guard in GUARDS:
        table_clause = "" if is_sqlite else f" ON {guard.table}"
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {guard.name}{table_clause}")
        connection.exec_driver_sql(_trigger_sql(guard, sqlite=is_sqlite))


def _trigger_sql(guard: Guard, *, sqlite: bool) -> str:
    """SQL statement that creates a guard, for SQLite or PostgreSQL."""
    trigger_head = f"CREATE TRIGGER {guard.name} BEFORE {guard.event} ON {guard.table} FOR EACH ROW"
    sqlite_action = f"BEGIN SELECT RAISE(ABORT, '{guard.message}'); END"
    action = sqlite_action if sqlite else f"EXECUTE FUNCTION twin_refuse('{guard.message}')"
    return f"{trigger_head} WHEN ({guard.condition}) {action}"


def check_guards(database: Database) -> list[str]:
    """Sentences on missing or changed guards of an SQLite file; empty for PostgreSQL."""
    if database.path is None:
        return []
    query = text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    with database.read() as session:
        sql_by_guard = {str(name): sql for name, sql in session.execute(query)}
    damaged_guards = [
        guard.name
        for guard in GUARDS
        if sql_by_guard.get(guard.name) != _trigger_sql(guard, sqlite=True)
    ]
    return [
        f"the guard {name} of {database.path} is damaged: restore a backup"
        for name in damaged_guards
    ]
