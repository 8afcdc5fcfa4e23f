"""The section of a run whose prompts read from the memory pool."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from tests.ui.fake_run import fake_checks, fake_summary, fake_tables
from tests.ui.stored_runs import done, scenario
from tests.ui.test_faults_results import sections_of
from tests.ui.test_run import Runner, opened, words
from twin.lab.store import Owner
from twin.ui import session
from twin.ui.charts import memory

NODES, HOT = 4, 2


@pytest.fixture(autouse=True)
def runner(store, monkeypatch):
    monkeypatch.setattr(session, "runner", lambda: Runner(store))


def served(times_s, window_s):
    """Every node serves 1 GB a window, the hot one 4."""
    node = np.tile(np.arange(NODES, dtype=np.int32), times_s.size)
    return pl.DataFrame(
        {
            "t_s": np.repeat(times_s, NODES),
            "window_s": np.full(node.size, window_s),
            "node": node,
            "read_bytes": np.where(node == HOT, 4e9, 1e9),
        }
    )


def read_back(store):
    s = scenario()
    tables = fake_tables(s, requests=400, windows=20)
    windows = tables["windows"]
    tables["servers"] = served(windows["t_s"].to_numpy(), float(windows["window_s"][0]))
    tables["traffic"] = windows.select("t_s", "window_s").with_columns(
        traffic=pl.lit("pool_read"), bytes=pl.lit(7e9)
    )
    owner = Owner.here()
    run = store.runs.add(store.scenarios.save(s), session.facts(), "engine 1", s.seed, owner=owner)
    result = SimpleNamespace(
        digest="0" * 64, summary=fake_summary(s, tables) | {"hit_token_ratio": 0.5}, tables=tables,
        checks=fake_checks(), notes=[], valid=True,
    )  # fmt: skip
    assert store.runs.finish(run, owner, result, 1.0)
    return run


def test_a_run_that_wrote_down_no_reads_has_no_such_section(app, store):
    assert "Memory pool" not in sections_of(opened(app, done(store, scenario())))


def test_the_hottest_server_is_named_with_its_imbalance(app, store):
    at = opened(app, read_back(store), "Memory pool")
    assert not at.exception
    assert "Node 2 served" in words(at) and "2.29 x the mean" in words(at)


def test_a_cell_is_what_a_node_served_in_a_window():
    times_s = np.array([0.0, 5.0, 10.0])
    table = served(times_s, 5.0).sample(fraction=1.0, shuffle=True, seed=1)
    [cells] = memory.servers(table, 0.0).figure.data
    assert np.asarray(cells.z) == pytest.approx(
        np.where(np.arange(NODES)[:, None] == HOT, 0.8, 0.2) * np.ones((1, 3))
    )
    assert list(cells.y) == ["node 0", "node 1", "node 2", "node 3"]
