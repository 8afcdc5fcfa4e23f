"""A dashboard without a browser, on an empty store of its own."""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest, local_script_runner

from tests.conftest import PATIENCE_S, ROOT
from tests.ui.stored_runs import done
from twin import outlook
from twin.lab.store import Store, open_store
from twin.lab.store.scenarios import Scenarios
from twin.scenario import Scenario
from twin.ui import live, session

# Every app of a test would read the metadata of all that is installed anew: a tenth of a second.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)
is_over = local_script_runner.require_widgets_deltas


def wait_until_over(runner: local_script_runner.LocalScriptRunner, timeout: float) -> None:
    """Wait for the thread of a script, where Streamlit looks a thousand times a second."""
    runner._script_thread.join(timeout)
    is_over(runner, 1.0)


local_script_runner.require_widgets_deltas = wait_until_over


@pytest.fixture(scope="session")
def seeded(tmp_path_factory) -> Path:
    """A database with the presets in it and nothing else."""
    path: Path = tmp_path_factory.mktemp("seeded") / "twin.db"
    store = open_store(f"sqlite:///{path}")
    store.scenarios.store_presets()
    store.close()
    return path


@pytest.fixture
def store(seeded, tmp_path, monkeypatch) -> Iterator[Store]:
    """Sends every page of this test to a store without a run; what formulas say is remembered."""
    shutil.copy(seeded, tmp_path / "twin.db")
    monkeypatch.setenv("TWIN_DB_URL", f"sqlite:///{tmp_path / 'twin.db'}")
    monkeypatch.setattr(Scenarios, "store_presets", lambda self: [])
    of_a_server = (session._store, session.runner, live._live)
    for kept in of_a_server:
        kept.clear()
    monkeypatch.setattr(session, "runner", lambda: None)  # no process waits for work
    monkeypatch.setattr(live, "ready", lambda: False)
    monkeypatch.setattr(outlook, "_slo_rate", slo_rate)
    yield session.store()
    session.store().close()
    for kept in of_a_server:
        kept.clear()


def slo_rate(priced: outlook.Priced, _judgement: object) -> tuple[float, str]:
    """In place of the largest load that meets the SLO by formula, a third of a page's time, which
    no test of a page reads: most of what the pools sustain."""
    return 0.9 * priced.prediction.requests_per_s, priced.prediction.limit


@pytest.fixture
def app(store) -> AppTest:
    """The dashboard at its start page, not yet run."""
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=PATIENCE_S)


def patient(script: Callable[..., None], **options: Any) -> AppTest:
    """A function's own little app, not yet run, that may be slow."""
    return AppTest.from_function(script, default_timeout=PATIENCE_S, **options)


@pytest.fixture
def begun(store, monkeypatch) -> list[Scenario]:
    """Scenarios that pages begin; each is done at once."""
    scenarios: list[Scenario] = []

    def run(scenario: Scenario) -> str:
        scenarios.append(scenario)
        return done(store, scenario)

    monkeypatch.setattr(session, "start_run", run)
    return scenarios
