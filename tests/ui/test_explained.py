"""The head of a result: verdict, tiles against the SLO, causes, what is applied and compared."""

import time
from types import SimpleNamespace

import pytest

from tests.ui.stored_runs import done, scenario
from tests.ui.test_run import opened, words
from twin.lab.explain.causes import CAUSES
from twin.lab.explain.explain import Measured, causes_table, waterfall_table
from twin.lab.explain.runs import Gain
from twin.lab.runs.job import EXPLAIN, load_engine
from twin.lab.store import Owner
from twin.metrics.measures import amount
from twin.metrics.steadiness import UNSTEADY
from twin.scenario import scenario_digest
from twin.ui import runs, session
from twin.ui.pages.run import explained

GAIN = Gain({"deployment.prefill.instances": 10}, "ttft_s_p99", 31.2, 0.82, 25.0, 0.12, 1.0)
CAUSE = Measured(CAUSES["prefill"], "", 6.0, GAIN, GAIN)
ONLY_SEEN = Measured(CAUSES["imbalance"], "", 0.4, GAIN, None)
VERDICT = "Only 12.0 % of requests keep the SLO; it is kept up to 156 req/s."
SUMMARY = {"verdict": VERDICT, "headroom_factor": 0.71, "headroom_bounded": 1, "runs": 40,
           "capacity": 71.0, "capacity_low": 69.5, "capacity_high": 72.5,
           "capacity_unit": "req/s"}  # fmt: skip


def explain(store, s, causes=(CAUSE, ONLY_SEEN), verdict=VERDICT):
    """A stored explanation; returns its id."""
    owner, version = Owner.current(), load_engine(EXPLAIN).ENGINE_VERSION
    run = store.runs.add(store.scenarios.save(s), session.facts(), version, s.seed, owner=owner)
    tables = {"causes": causes_table(causes),
              "waterfall": waterfall_table({"weights": 1.0, "queueing": 3.0})}  # fmt: skip
    result = SimpleNamespace(
        digest="1" * 64, summary=SUMMARY | {"verdict": verdict}, tables=tables, checks=[],
        notes=[], valid=True,
    )  # fmt: skip
    assert store.runs.finish(run, owner, result, 1.0)
    return run


@pytest.fixture
def made(store):
    s = scenario("Base")
    return s, done(store, s, engine=load_engine().ENGINE_VERSION)


def test_a_result_opens_with_its_verdict_its_headroom_and_its_causes(app, store, made):
    s, run = made
    explain(store, s)
    opened(app, run)
    assert any(VERDICT.split(";", maxsplit=1)[0] in str(s.value) for s in app.subheader)
    (headroom,) = (m for m in app.metric if m.label == "Headroom")  # of the load that surely holds
    assert headroom.value == "0.71 x traffic"
    assert headroom.delta == "up to 69.5 req/s, missed from 72.5"
    assert "Prefill instances 6 → 10" in words(app)
    assert "TTFT p99 31.2 s → 820 ms, SLO attainment 12.0 % → 100 %" in words(app)
    assert "None of the changes that were tried helps" in words(app)


@pytest.mark.parametrize("state", UNSTEADY)
def test_a_run_that_is_not_steady_says_so_once(app, store, state):
    s, note = scenario("Base"), UNSTEADY[state]
    first, rest = VERDICT.split("; ")
    explain(store, s, verdict=f"{first}. {note} {rest}")
    opened(app, done(store, s, engine=load_engine().ENGINE_VERSION, steady_state=state))
    assert [w.value for w in app.warning] == [note]
    headings = [str(heading.value) for heading in app.subheader]
    assert not any(note in heading for heading in headings)
    assert any(first in heading and rest in heading for heading in headings)


def test_a_suggestion_is_run_at_a_click_and_compared(app, store, made, monkeypatch):
    s, run = made
    explain(store, s)
    asked = []

    def ask(question):
        asked.append((question, done(store, question, engine=load_engine().ENGINE_VERSION)))
        return asked[0][1]

    monkeypatch.setattr(session, "start_run", ask)
    opened(app, run)
    app.button(key="apply-0").click().run()
    assert not app.exception
    ((question, applied),) = asked
    assert question.deployment.prefill.instances == 10
    assert dict(app.query_params) == {"runs": f"{run},{applied}"}  # Back needs nothing else
    assert app.title[0].value == "Compare"


def test_a_quick_run_is_explained_unasked_and_one_that_made_way_is_offered(
    app, store, made, monkeypatch
):
    s, run = made
    waiting = store.runs.add(
        store.scenarios.save(s), session.facts(), load_engine(EXPLAIN).ENGINE_VERSION, 1
    )
    monkeypatch.setattr(session, "start_run", lambda *_: waiting)
    monkeypatch.setattr(session, "stop_run", store.runs.request_stop)
    opened(app, run)
    assert app.get("progress") and "Headroom" in [m.label for m in app.metric]
    app.button(key="stop-watched").click().run()
    app.run()
    assert "It was stopped, or made way for a run." in words(app)
    assert app.button(key="explain").label == "Explain this run"


def test_a_run_that_was_begun_to_be_explained_is_even_if_it_took_long(
    app, store, made, monkeypatch
):
    s, run = made
    monkeypatch.setattr(explained, "AT_ONCE_S", -1.0)
    opened(app, run)
    assert app.button(key="explain").label == "Explain this run"
    share = store.runs.get(run).summary["slo_attainment"]
    assert f"{amount(share, 'share')} of requests met the SLO." in [s.value for s in app.subheader]
    wanted = []
    monkeypatch.setattr(session, "start_run", lambda scenario, _: wanted.append(scenario) or run)
    app.session_state[explained.NOW] = scenario_digest(s)
    app.run()
    assert wanted == [s]


def test_a_run_of_another_engine_is_not_explained(app, store):
    opened(app, done(store, scenario("Base")))
    assert "Headroom" not in [m.label for m in app.metric]


@pytest.mark.parametrize(
    ("state", "live", "told"),
    [
        ("queued", {}, "Comparing. Waiting for a free process"),
        ("running", {}, "Comparing. "),
        ("running", {"arrived": 3.0}, "Comparing. "),  # an ordinary run tells no re-runs
        ("running", {"runs": 4.0}, "Comparing. 4 of about 16 re-runs made, about 30 s to go"),
    ],
)
def test_a_run_that_is_waited_for_says_how_far_it_is(monkeypatch, state, live, told):
    row = SimpleNamespace(state=state, live=live, progress=0.25, ended=False, id="run",
                          started_s=time.time() - 10.0, cancel_s=None)  # fmt: skip
    found = SimpleNamespace(get=lambda run: row)
    monkeypatch.setattr(session, "store", lambda: SimpleNamespace(runs=found))
    shown = []
    monkeypatch.setattr(runs.st, "progress", lambda *progress: shown.append(progress))
    runs.watch_runs.__wrapped__(["run"], "Comparing.")
    assert shown == [(0.25, told)]
