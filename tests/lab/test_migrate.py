"""Migrations: a fresh database equals the tables; an old one keeps its rows and gets a backup."""

import shutil
import sqlite3

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from twin.lab.store import StoreError, open_store
from twin.lab.store.engines import open_database
from twin.lab.store.migrate import BACKUPS_MOST, GUARDS, VERSIONS, revision_of, revisions, upgrade
from twin.lab.store.models import Row
from twin.scenario import Scenario

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "v9999"
down_revision = "{before}"


def upgrade():
    with op.batch_alter_table("scenarios") as batch:
        batch.add_column(sa.Column("colour", sa.String(8), server_default="blue"))
        batch.alter_column("question", type_=sa.String(600))
    {then}
"""


def with_next(tmp_path, then="pass"):
    """Today's revisions and one from the future."""
    folder = tmp_path / "versions"
    shutil.copytree(VERSIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = NEXT.format(before=revisions()[-1], then=then)
    (folder / "v9999_next.py").write_text(text)
    return folder


SCHEMA = {
    "sqlite": "SELECT type, name FROM sqlite_master ORDER BY 1, 2",
    "postgresql": "SELECT 'index', indexname FROM pg_indexes WHERE schemaname = 'public' UNION "
    "SELECT 'trigger', tgname FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2",
}


def schema(store):
    with store.database.read() as session:
        connection = session.connection()
        return connection.exec_driver_sql(SCHEMA[connection.dialect.name]).all()


def test_a_new_database_has_exactly_the_tables_of_the_models(store):
    with store.database.read() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        assert compare_metadata(context, Row.metadata) == []
    names = {name for kind, name in schema(store) if kind == "trigger"}
    assert names == {guard.name for guard in GUARDS}


def test_an_upgrade_keeps_rows_references_and_guards_and_makes_a_backup(tmp_path, store, add_run):
    run = add_run(Scenario(name="kept"))
    before = schema(store)
    store.close()
    upgrade(store.database, with_next(tmp_path))
    assert revision_of(store.database) == "v9999"
    assert store.runs.get(run).name == "kept"
    assert schema(store) == before
    if store.database.path is None:
        return  # a server has backups of its own
    (backup,) = store.database.path.parent.glob("*before-migration*")
    with sqlite3.connect(backup) as connection:
        assert connection.execute("SELECT id FROM runs").fetchall() == [(run,)]


def test_only_the_latest_backups_are_kept(tmp_path, file_store):
    store = file_store
    folder = with_next(tmp_path, then="raise RuntimeError('broken migration')")
    for _ in range(BACKUPS_MOST + 2):
        with pytest.raises(RuntimeError):
            upgrade(store.database, folder)
    assert len(list(store.database.path.parent.glob("*before-migration*"))) == BACKUPS_MOST


def test_a_migration_that_fails_leaves_everything_as_it_was(tmp_path, store, add_run):
    run = add_run()
    before = schema(store)
    with pytest.raises(RuntimeError, match="broken migration"):
        upgrade(store.database, with_next(tmp_path, then="raise RuntimeError('broken migration')"))
    assert schema(store) == before
    assert store.runs.get(run).state == "queued"


def test_a_newer_database_is_refused_by_an_older_twin(tmp_path, store):
    upgrade(store.database, with_next(tmp_path))
    store.close()
    with pytest.raises(StoreError, match="newer twin .* update the twin"):
        open_store(str(store.database.url))


def test_a_second_start_changes_nothing(file_store):
    store = file_store
    before = store.database.path.read_bytes()
    upgrade(open_database(str(store.database.url)))
    assert store.database.path.read_bytes() == before
