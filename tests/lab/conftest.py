"""A store of its own for each test, copied from one that was migrated once."""

import shutil

import pytest

from twin.lab.library import load_facts
from twin.lab.store import Owner, Store, open_store
from twin.spec import Scenario


@pytest.fixture(scope="session")
def new_store(tmp_path_factory):
    """Makes empty stores."""
    template = tmp_path_factory.mktemp("template") / "twin.db"
    open_store(f"sqlite:///{template}").close()

    def make() -> Store:
        path = tmp_path_factory.mktemp("store") / "twin.db"
        shutil.copy(template, path)
        return open_store(f"sqlite:///{path}")

    return make


@pytest.fixture
def store(new_store):
    store = new_store()
    yield store
    store.close()


@pytest.fixture
def add_run(store):
    """Stores a run, queued, or running for an owner; returns its id."""

    def add(scenario: Scenario | None = None, owner: Owner | None = None, **options) -> str:
        scenario = scenario or Scenario()
        digest = store.scenarios.save(scenario)
        return store.runs.add(digest, load_facts(), "fake-1", scenario.seed, owner=owner, **options)

    return add
