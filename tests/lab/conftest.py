"""A store of its own for each test, copied from one that was migrated once.

Tests of the store itself ask the same of SQLite and of PostgreSQL, where a server can be started;
the tests of what only a SQLite file has are then left out.
"""

import os
import secrets
import shutil

import pytest
from sqlalchemy import create_engine, make_url

from tests.draws import some
from tests.lab import postgres
from twin.lab.library import load_facts
from twin.lab.store import Owner, Store, open_store
from twin.scenario import Scenario

ON_A_SERVER_TOO = {
    "test_store",
    "test_migrate",
    "test_run_states",
    "test_visitors",
    "test_archive",
    "test_notes",
    "test_two_servers",
}
# The suite asks PostgreSQL for what is its own: eight processes at one row, damage and deletions in
# test_store, an archive's way there and back in test_notes.
ON_A_SERVER_AT_LENGTH = {"test_two_servers", "test_archive"}


def pytest_generate_tests(metafunc):
    named = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "database" in metafunc.fixturenames and "database" not in named:
        too = metafunc.module.__name__.rpartition(".")[2] in ON_A_SERVER_TOO
        kinds = ["sqlite", "postgresql"] if too else ["sqlite"]
        if metafunc.module.__name__.rpartition(".")[2] in ON_A_SERVER_AT_LENGTH:
            kinds = some(["sqlite"], "postgresql")
        metafunc.parametrize("database", kinds, scope="session")


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", [])
    without = [r for r in skipped if postgres.MISSING in str(r.longrepr)]
    if without:
        terminalreporter.section(f"{len(without)} tests did not run on PostgreSQL", red=True)
        terminalreporter.line(postgres.MISSING, red=True)


@pytest.fixture(scope="session")
def server():
    """An engine on a PostgreSQL server, None where there is none."""
    with postgres.server() as url:
        engine = create_engine(url, isolation_level="AUTOCOMMIT") if url else None
        yield engine
        if engine:
            engine.dispose()


@pytest.fixture(scope="session")
def new_store(database, tmp_path_factory, request):
    """Makes empty stores."""
    if database == "postgresql":
        server = request.getfixturevalue("server")
        if server is None:
            pytest.skip(postgres.MISSING)
        yield from _on_server(server, tmp_path_factory)
        return
    template = tmp_path_factory.mktemp("template") / "twin.db"
    open_store(f"sqlite:///{template}").close()

    def make() -> Store:
        path = tmp_path_factory.mktemp("store") / "twin.db"
        shutil.copy(template, path)
        return open_store(f"sqlite:///{path}")

    yield make


def _on_server(server, tmp_path_factory):
    made = []

    def store_of(name: str, template: str = "template1") -> Store:
        with server.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        made.append(name)
        url = make_url(server.url).set(database=name).render_as_string(hide_password=False)
        return open_store(url, tmp_path_factory.mktemp("store") / "artifacts")

    template = f"twin_template_{secrets.token_hex(6)}"
    store_of(template).close()
    yield lambda: store_of(f"twin_test_{secrets.token_hex(6)}", template)
    # A server of the tests' own is thrown away whole: dropping each takes a second.
    for name in made if os.environ.get("TWIN_TEST_POSTGRES") else ():
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def store(new_store):
    store = new_store()
    yield store
    store.close()


@pytest.fixture
def file_store(store):
    """The same, for what is asked of a SQLite file alone."""
    if store.database.path is None:
        pytest.skip("asked of SQLite alone")
    return store


@pytest.fixture
def add_run(store):
    return adding_to(store)


def adding_to(store: Store):
    """What stores a run there, queued, or running for an owner, and returns its id."""

    def add(scenario: Scenario | None = None, owner: Owner | None = None, **options) -> str:
        scenario = scenario or Scenario()
        digest = store.scenarios.save(scenario)
        return store.runs.add(digest, load_facts(), "fake-1", scenario.seed, owner=owner, **options)

    return add
