"""The section of a run whose instances came, went and changed role."""

from types import SimpleNamespace

import polars as pl
import pytest

from tests.ui.fake_run import fake_checks, fake_summary, fake_tables
from tests.ui.stored_runs import done, scenario
from tests.ui.test_faults_results import sections_of
from tests.ui.test_run import Runner, opened, words
from twin.lab.store import Owner
from twin.ui import session
from twin.ui.charts import elastic as charts

LIVES = pl.DataFrame(
    [
        ("prefill", 0, "serve", 0.0, 120.0, 16, 0),
        ("prefill", 1, "serve", 0.0, 40.0, 16, 16),
        ("prefill", 1, "drain", 40.0, 42.0, 16, 16),
        ("decode", 0, "serve", 0.0, 120.0, 160, 32),
        ("decode", 1, "load", 42.0, 43.0, 16, 16),
        ("decode", 1, "graphs", 43.0, 50.0, 16, 16),
        ("decode", 1, "serve", 50.0, 120.0, 16, 16),
    ],
    schema=["role", "instance", "state", "t_s", "end_s", "npus", "first_npu"],
    orient="row",
)
SEEN = {
    f"{role}_{name}": value
    for role in ("prefill", "decode")
    for name, value in (
        ("serving", 2), ("starting", 0), ("draining", 0), ("waiting", 3), ("in_hand", 0.4),
        ("busy", 0.9), ("latency", 0.7), ("wanted", 1),
    )
}  # fmt: skip
DECISIONS = pl.DataFrame(
    [
        {"t_s": t_s, "seen_s": t_s - 5.0, "arrivals_per_s": 10.0, **SEEN, "started": 0,
         "stopped": 0, "changed_role": changed, "held_back": ""}
        for t_s, changed in ((35.0, 1), (65.0, 0))
    ]
)  # fmt: skip


@pytest.fixture(autouse=True)
def runner(store, monkeypatch):
    monkeypatch.setattr(session, "runner", lambda: Runner(store))


def moved(store):
    s = scenario(elastic__controller="rebalance")
    tables = fake_tables(s, requests=400, windows=20)
    npus = {"prefill_npus": 32.0, "decode_npus": 160.0, "changing_npus": 0.0}
    tables["windows"] = tables["windows"].with_columns(**{k: pl.lit(v) for k, v in npus.items()})
    tables |= {"lives": LIVES, "decisions": DECISIONS}
    owner = Owner.here()
    run = store.runs.add(store.scenarios.save(s), session.facts(), "engine 1", s.seed, owner=owner)
    summary = fake_summary(s, tables) | {"role_changes": 1, "goodput_per_npu_hour": 321.0}
    result = SimpleNamespace(digest="0" * 64, summary=summary, tables=tables,
                             checks=fake_checks(), notes=[], valid=True)  # fmt: skip
    assert store.runs.finish(run, owner, result, 1.0)
    return run


def test_a_run_whose_instances_stay_has_no_such_section(app, store):
    assert "Instances" not in sections_of(opened(app, done(store, scenario())))


def test_lives_and_decisions_are_told(app, store):
    at = opened(app, moved(store), "Instances")
    assert not at.exception
    assert "321" in words(at) and "2 decisions" in words(at)
    [table] = [d.value for d in at.dataframe if "Changed role" in d.value.columns]
    assert table["Changed role"].to_list() == [1]  # the decision that moved nothing is not listed


def test_every_life_has_a_row_and_every_state_its_colour():
    chart = charts.lives(LIVES, 120.0)
    assert {name for bar in chart.figure.data for name in bar.y} == {
        "prefill 0", "prefill 1", "decode 0", "decode 1",
    }  # fmt: skip
    assert {bar.name for bar in chart.figure.data} == {
        "prefill serves", "decode serves", "loads weights", "makes graphs", "drains",
    }  # fmt: skip
