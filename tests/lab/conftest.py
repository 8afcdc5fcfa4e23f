"""A store of its own for each test, copied from one that was migrated once.

TWIN_TEST_POSTGRES, the URL of a server on which databases may be made and dropped, has the same
tests ask the same of PostgreSQL; the tests of what only a SQLite file has are then left out.
"""

import os
import secrets
import shutil

import pytest
from sqlalchemy import create_engine, make_url

from twin.lab.library import load_facts
from twin.lab.store import Owner, Store, open_store
from twin.scenario import Scenario

SERVER = os.environ.get("TWIN_TEST_POSTGRES", "")


@pytest.fixture(scope="session")
def new_store(tmp_path_factory):
    """Makes empty stores."""
    if SERVER:
        yield from _on_server(tmp_path_factory)
        return
    template = tmp_path_factory.mktemp("template") / "twin.db"
    open_store(f"sqlite:///{template}").close()

    def make() -> Store:
        path = tmp_path_factory.mktemp("store") / "twin.db"
        shutil.copy(template, path)
        return open_store(f"sqlite:///{path}")

    yield make


def _on_server(tmp_path_factory):
    server = create_engine(SERVER, isolation_level="AUTOCOMMIT")
    made = []

    def make() -> Store:
        made.append(f"twin_test_{secrets.token_hex(6)}")
        with server.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {made[-1]}")
        url = make_url(SERVER).set(database=made[-1]).render_as_string(hide_password=False)
        return open_store(url, tmp_path_factory.mktemp("store") / "artifacts")

    yield make
    for name in made:
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    server.dispose()


@pytest.fixture
def store(new_store):
    store = new_store()
    yield store
    store.close()


@pytest.fixture
def file_store(store):
    """The same, for what is asked of a SQLite file alone."""
    if store._database.path is None:
        pytest.skip("asked of SQLite alone")
    return store


@pytest.fixture
def add_run(store):
    """Stores a run, queued, or running for an owner; returns its id."""

    def add(scenario: Scenario | None = None, owner: Owner | None = None, **options) -> str:
        scenario = scenario or Scenario()
        digest = store.scenarios.save(scenario)
        return store.runs.add(digest, load_facts(), "fake-1", scenario.seed, owner=owner, **options)

    return add
