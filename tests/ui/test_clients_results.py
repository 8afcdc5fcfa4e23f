"""The section of a run about its clients: tenants, refusals, sessions; and the tenants' form."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from tests.ui.fake_run import fake_checks, fake_summary, fake_tables
from tests.ui.stored_runs import done, scenario
from tests.ui.test_faults_results import sections_of
from tests.ui.test_run import Runner, opened
from twin.lab.library import presets
from twin.lab.store import Owner
from twin.ui import session
from twin.ui.pages import PAGES

PRESETS = {p.key: p.scenario for p in presets()}
TENANTS = [{"name": "chat", "share": 1.0}, {"name": "batch", "share": 4.0}]


@pytest.fixture(autouse=True)
def runner(store, monkeypatch):
    monkeypatch.setattr(session, "runner", lambda: Runner(store))


def served(store, s):
    """A finished run of sessions of four turns, by the scenario's tenants."""
    tables = fake_tables(s, requests=400, windows=20)
    number = np.arange(400)
    names = [t.name for t in s.tenants] or [""]
    tables["requests"] = tables["requests"].with_columns(
        tenant=pl.Series([names[i % len(names)] for i in number], dtype=pl.Enum(names)),
        session=pl.Series(number // 4), turns_left=pl.Series(3 - number % 4),
        asked_s=pl.col("arrival_s"), attempt=pl.lit(0, pl.Int16),
    )  # fmt: skip
    run = store.runs.add(
        store.scenarios.save(s), session.facts(), "engine 1", s.seed, owner=(owner := Owner.here())
    )
    summary = fake_summary(s, tables) | {"asked_again": 17, "sessions_finished": 42}
    result = SimpleNamespace(digest="0" * 64, summary=summary, tables=tables,
                             checks=fake_checks(), notes=[], valid=True)  # fmt: skip
    assert store.runs.finish(run, owner, result, 1.0)
    return run


def test_a_run_of_one_tenant_that_nobody_leaves_has_no_such_section(app, store):
    assert "Clients" not in sections_of(opened(app, done(store, scenario())))


def test_each_tenant_has_its_row_with_units_and_the_reasons_a_picture(app, store):
    at = opened(app, served(store, PRESETS["two-tenants"]), "Clients")
    (table,) = (d.value for d in at.dataframe if "Goodput" in d.value.columns)
    assert table[""].to_list() == ["chat", "batch"]
    assert all(text.endswith("tokens/s") for text in table["Tokens served"])
    assert all(text.endswith(("s", "ms")) for text in table["TTFT p99"])
    assert {m.label: m.value for m in at.metric}["Asked again"].startswith("17")
    assert not {m.label: m.delta for m in at.metric}["TTFT p99"]  # no one SLO to be held against
    assert len(at.get("plotly_chart")) == 2  # tenants, reasons; their sessions do not wait


def test_sessions_that_wait_have_their_times(app, store):
    at = opened(app, served(store, PRESETS["agentic-sessions"]), "Clients")
    assert "Sessions" in [s.value for s in at.subheader]
    assert "Tenants" not in [s.value for s in at.subheader]


def test_the_form_has_a_row_for_each_tenant(app):
    app.run()
    app.session_state["history"] = [scenario(tenants=TENANTS)]
    app.session_state["workload-group"] = "Clients"
    app.switch_page(PAGES["workload"].script).run()
    assert not app.exception
    (table,) = (f.value for f in app.dataframe if "share" in f.value.columns)
    assert table["name"].to_list() == ["chat", "batch"]
    assert table["share"].to_list() == [1.0, 4.0]
