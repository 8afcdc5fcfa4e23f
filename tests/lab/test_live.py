"""Live runs: answered beside the library, superseded ones stopped, nothing left behind."""

from pathlib import Path

import pytest

from tests.lab.test_executor import wait
from twin.lab import live
from twin.lab.library import load_facts, preset
from twin.lab.live import Live, question_of
from twin.lab.store import open_store
from twin.scenario import with_overrides


@pytest.fixture
def library(tmp_path):
    store = open_store(f"sqlite:///{tmp_path / 'twin.db'}")
    yield store
    store.close()


@pytest.fixture
def running(library):
    made = Live(library)
    yield made
    made.close()


def quick(**fields):
    short = {"horizon_s": 20.0, "warmup_s": 2.0, "workload.output_tokens": 64}
    return with_overrides(preset("quickstart"), short | fields)


def test_an_edit_supersedes_a_run_and_the_library_hears_of_none(library, running):
    first = running.ask(quick(**{"horizon_s": 3600.0}))
    second = running.ask(quick(), superseded=first)
    assert wait(lambda: (seen := running.look(second)) and seen.ended)
    assert running.look(first) is None
    assert running.look(second).summary["tpot_s_p99"] > 0
    assert "traffic" in running.tables(second, ("traffic", "none such"))
    assert library.runs.search().total == 0
    assert not library.scenarios.search("Quick start").total
    third = running.ask(quick(seed=2), superseded=second)
    assert running.look(second) is None
    running.drop(third)


def test_runs_whose_visitors_left_are_forgotten_with_their_files(running, monkeypatch):
    monkeypatch.setattr(live, "KEPT", 1)
    asked = [running.ask(quick(seed=seed)) for seed in (1, 2)]
    assert wait(lambda: all((seen := running.look(run)) and seen.ended for run in asked))
    files = Path(running._folder.name) / "live.artifacts"
    before = len(list(files.glob("*/*")))
    running.tidy(younger_s=-1.0)
    assert [running.look(run) is None for run in asked].count(True) == 1
    assert len(list(files.glob("*/*"))) < 0.7 * before


def test_what_is_kept_goes_with_the_process(library):
    made = Live(library)
    folder = Path(made._folder.name)
    assert folder.exists()
    made.close()
    assert not folder.exists()


def test_a_question_is_cut_to_a_horizon_that_is_simulated_at_once():
    facts = load_facts()
    assert question_of(preset("quickstart"), facts) == preset("quickstart")
    hour = with_overrides(preset("quickstart"), {"horizon_s": 3600.0, "warmup_s": 360.0})
    cut = question_of(hour, facts)
    assert live.SHORTEST_S <= cut.horizon_s < 600
    assert cut.warmup_s == pytest.approx(0.1 * cut.horizon_s, rel=0.01)
    traced = {"workload.arrivals": "trace", "workload.trace.digest": "0" * 64}
    assert question_of(with_overrides(preset("quickstart"), traced), facts) is None
