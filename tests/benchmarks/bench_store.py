"""The store with a thousand runs: listing, searching, opening one, storing one."""

import pytest

from tests.lab import fake_engine
from twin.lab.library import load_facts
from twin.lab.store import Owner, Store, open_store
from twin.scenario import Scenario

RUNS = 1000
ME = Owner.current("bench")
# As many headline figures as a real run has.
FIGURES = {f"figure_{i}_s_p99": i / 7 for i in range(80)}


def stored(store: Store, seed: int) -> str:
    scenario = Scenario(name=f"run {seed}", seed=seed)
    digest = store.scenarios.save(scenario)
    run = store.runs.add(digest, load_facts(), "1", seed, owner=ME)
    said = fake_engine.answer(scenario)
    result = fake_engine.FakeRun(said.digest, said.summary | FIGURES, said.tables)
    assert store.runs.finish(run, ME, result, 1.0)
    return run


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('full') / 'twin.db'}")
    runs = [stored(store, seed) for seed in range(RUNS)]
    return store, runs


def bench_first_page(benchmark, full):
    page = benchmark(full[0].runs.search)
    assert (len(page.rows), page.total) == (50, RUNS)


def bench_last_page(benchmark, full):
    page = benchmark(full[0].runs.search, offset=RUNS - 50)
    assert len(page.rows) == 50


def bench_all_runs_at_once(benchmark, full):
    page = benchmark(full[0].runs.search, limit=RUNS)
    assert len(page.rows) == RUNS


def bench_search_by_two_words(benchmark, full):
    page = benchmark(full[0].runs.search, "run 77")
    assert page.total > 0


def bench_scenarios_with_their_runs_counted(benchmark, full):
    page = benchmark(full[0].scenarios.search)
    assert page.total == RUNS


def bench_open_a_run_and_check_its_seal(benchmark, full):
    assert benchmark(full[0].runs.get, full[1][500]).valid


def bench_read_a_table_and_check_its_hash(benchmark, full):
    assert benchmark(full[0].runs.table, full[1][500], "requests").height == 100


def bench_store_a_run(benchmark, full):
    seeds = iter(range(RUNS, 10**9))
    benchmark(lambda: stored(full[0], next(seeds)))


def bench_progress_of_a_run(benchmark, full):
    store, runs = full
    row = store.runs.get(runs[0])
    run = store.runs.add(row.scenario, load_facts(), "1", 0, owner=ME)
    assert benchmark(store.runs.beat, run, ME, 0.5, {"arrived": 1.0}) == "go"
