"""Guards: triggers that let the database itself refuse to change what is a value.

The code above never tries to; the guards are there for the code that one day will. They are made
anew after every migration, because rebuilding a table drops its triggers.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from twin.lab.store.models import ENDED_STATES, TRANSITIONS

ENDED = ", ".join(f"'{state}'" for state in ENDED_STATES)
ALLOWED = " OR ".join(
    f"(OLD.state = '{before}' AND NEW.state = '{after}')" for before, after in TRANSITIONS
)


@dataclass(frozen=True)
class Guard:
    """Refuse an event on a table when a condition on OLD and NEW holds."""

    name: str
    table: str
    event: str
    condition: str
    message: str


SHARED = "this {one} was shared: its link must keep working"
ENDED_RUN = (
    "state, cancel_s, progress, live, started_s, beat_s, owner, finished_s, wall_s, message, "
    "valid, result_digest, summary, checks, notes, seal"
)


def _fixed(name: str, table: str, message: str, columns: str = "") -> Guard:
    """No update of a table, or of some of its columns."""
    return Guard(name, table, f"UPDATE OF {columns}" if columns else "UPDATE", "1 = 1", message)


def _stays(one: str) -> tuple[Guard, Guard]:
    """What was published is not deleted; when that was is fixed, until a run's link is revoked."""
    table, shared, message = f"{one}s", "OLD.published_s IS NOT NULL", SHARED.format(one=one)
    again = f"{shared} AND NEW.published_s IS NOT NULL" if one == "run" else shared
    return (
        Guard(f"published_{one}_stays", table, "DELETE", shared, message),
        Guard(f"published_{one}_stays_published", table, "UPDATE OF published_s", again, message),
    )


GUARDS = (
    _fixed(
        "scenario_is_a_value",
        "scenarios",
        "a scenario is a value: save the change as a new one",
        "digest, schema_version, body, name, question, source, trace_digest, created_s",
    ),
    _fixed(
        "question_of_a_run_is_fixed",
        "runs",
        "what a run asks is fixed: make another run",
        "id, scenario, facts_digest, engine_version, seed, queued_s",
    ),
    Guard(
        "state_follows_the_rules",
        "runs",
        "UPDATE OF state",
        f"NOT ({ALLOWED})",
        "a run cannot change its state that way",
    ),
    Guard(
        "ended_run_is_a_value",
        "runs",
        f"UPDATE OF {ENDED_RUN}",
        f"OLD.state IN ({ENDED})",
        "this run has ended: its result is a value",
    ),
    *_stays("scenario"),
    *_stays("run"),
    _fixed("alias_is_a_value", "scenario_aliases", "another digest of a scenario is a value"),
    _fixed("tables_of_a_run_are_values", "run_tables", "a table of a run is a value"),
    _fixed("facts_are_values", "facts", "a set of facts is a value"),
    _fixed("import_is_a_value", "imports", "what was imported is a value: import it as a new one"),
)


def drop_guards(connection: Connection) -> None:
    """Remove all guards, and such as were once made: a migration may change what they name.

    PostgreSQL refuses to alter a column that a trigger names; SQLite has no triggers yet or drops
    them with the table.
    """
    if connection.dialect.name == "sqlite":
        return
    there = connection.exec_driver_sql(
        "SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
        "JOIN pg_proc p ON p.oid = t.tgfoid WHERE p.proname = 'twin_refuse'"
    ).all()
    for name, table in there:
        connection.exec_driver_sql(f'DROP TRIGGER "{name}" ON "{table}"')


def make_guards(connection: Connection) -> None:
    """Create all guards, replacing earlier ones."""
    sqlite = connection.dialect.name == "sqlite"
    if not sqlite:
        connection.exec_driver_sql(
            "CREATE OR REPLACE FUNCTION twin_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE integrity_constraint_violation USING MESSAGE = TG_ARGV[0]; END $$"
        )
    for guard in GUARDS:
        on = "" if sqlite else f" ON {guard.table}"
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {guard.name}{on}")
        head = f"CREATE TRIGGER {guard.name} BEFORE {guard.event} ON {guard.table} FOR EACH ROW"
        action = (
            f"BEGIN SELECT RAISE(ABORT, '{guard.message}'); END"
            if sqlite
            else f"EXECUTE FUNCTION twin_refuse('{guard.message}')"
        )
        connection.exec_driver_sql(f"{head} WHEN ({guard.condition}) {action}")
