"""Imported routing counts reach the formulas and a run, and are missed in a sentence."""

import numpy as np
import pytest

from twin.lab.kinds import CountsTable
from twin.lab.library import load_facts, presets
from twin.lab.runs.runner import add_run
from twin.lab.store import StoreError, open_store
from twin.scenario import with_overrides
from twin.steady import Priced, predict_with_advice


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("TWIN_DB_URL", f"sqlite:///{tmp_path / 'twin.db'}")
    opened = open_store()
    yield opened
    opened.close()


def imported(table):
    return with_overrides(
        presets()[0].scenario,
        {
            "experts.popularity": "imported",
            "experts.counts": {"name": table.name, "digest": table.digest},
            "experts.placement": "round_robin",
            "experts.redundant": 0,
        },
    )


def test_more_uneven_counts_make_decode_slower_by_formula(store):
    facts = load_facts()
    even = CountsTable("even.npy", "npy", np.full((58, 256), 100.0))
    uneven = CountsTable("uneven.npy", "npy", np.tile(np.arange(1.0, 257.0), (58, 1)))
    tpot = []
    for table in (even, uneven):
        counts = store.counts.load(store.counts.save(table)).counts
        tpot.append(
            predict_with_advice(Priced(imported(table), facts, counts=counts)).decode.tpot_s
        )
    assert tpot[1] > 1.1 * tpot[0]


def test_a_run_of_counts_that_are_not_here_is_refused_in_a_sentence(store):
    table = CountsTable("mine.csv", "csv", np.ones((58, 256)))
    with pytest.raises(StoreError, match=r"the expert counts mine.csv are not stored here"):
        add_run(store, imported(table), engine="tests.lab.fake_engine")
    store.counts.save(table)
    assert add_run(store, imported(table), engine="tests.lab.fake_engine")
