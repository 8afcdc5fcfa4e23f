"""Runs in a store, made up or never finished: for tests of pages that show many of them."""

from types import SimpleNamespace

from tests.ui.fake_run import fake_checks, fake_summary, fake_tables
from twin.lab.library import presets
from twin.lab.store import Owner, Store
from twin.scenario import Scenario, with_overrides
from twin.ui import session


def scenario(name: str = "Quick start", **fields: object) -> Scenario:
    """The quick start under another name and with other fields (a dot is a double underscore)."""
    changed = {path.replace("__", "."): value for path, value in fields.items()}
    return with_overrides(presets()[0].scenario, {"name": name, **changed})


def done(
    store: Store, s: Scenario, requests: int = 400, engine: str = "engine 1", **figures: object
) -> str:
    """A finished run of a scenario, with some figures given; returns its id."""
    owner = Owner.current()
    run = store.runs.add(store.scenarios.save(s), session.facts(), engine, s.seed, owner=owner)
    tables = fake_tables(s, requests=requests, windows=20)
    result = SimpleNamespace(
        digest="0" * 64, summary=fake_summary(s, tables) | figures, tables=tables,
        checks=fake_checks(), notes=[], valid=True,
    )  # fmt: skip
    assert store.runs.finish(run, owner, result, 1.0)
    return run


def queued(store: Store, s: Scenario) -> str:
    """A run that waits; returns its id."""
    return store.runs.add(store.scenarios.save(s), session.facts(), "engine 1", s.seed)
