"""The second answer: the formula's chip, then the simulation's, on every page that is edited."""

from contextlib import nullcontext

import pytest

from twin.lab.runs.live import Status
from twin.outlook import Outlook
from twin.scenario import with_overrides
from twin.ui import live, session
from twin.ui.pages import PAGES

SUMMARY = {"ttft_s_p99": 7.2, "tpot_s_p99": 0.027, "tpot_s_mean": 0.024, "slo_attainment": 0.81}


class Fake:
    """Answers each question at once, or never."""

    def __init__(self, *, ended=True):
        self.asked, self.superseded, self.ended = [], [], ended

    def begin(self, question, superseded=""):
        self.asked.append(question)
        self.superseded.append(superseded)
        return f"run {len(self.asked)}"

    def status(self, run, patience_s=0.0):
        return Status(1.0, {}, SUMMARY) if self.ended else Status(0.4, {"finished": 9})


@pytest.fixture
def running(store, monkeypatch):
    fake = Fake()
    monkeypatch.setattr(live, "ready", lambda: True)
    monkeypatch.setattr(live, "_live", lambda: fake)
    return fake


def chips(app):
    return [m.value for m in app.markdown if "-badge[" in m.value]


@pytest.mark.parametrize("name", ["start", "supernode", "workload", "deployment"])
def test_each_edit_is_simulated_and_says_what_broke(app, running, name):
    app.switch_page(PAGES[name].script).run()
    assert not app.exception
    assert any("Simulated" in chip for chip in chips(app))
    assert any(":red[TTFT p99 7.20 s of 5.00 s]" in m.value for m in app.markdown)
    assert any(":red[81.0 % within the SLO]" in m.value for m in app.markdown)
    (verdict,) = (s.value for s in app.subheader if "a token" in s.value)
    assert "**24.0 ms a token**" in verdict  # the simulation's figure, not the formula's
    assert "misses its SLO" in verdict
    asked = len(running.asked)
    app.run()
    assert len(running.asked) == asked  # the same question is not asked twice


def test_a_page_says_what_it_prices_while_it_does(app, monkeypatch):
    texts = []
    monkeypatch.setattr(live.st, "spinner", lambda text: texts.append(text) or nullcontext())
    app.switch_page(PAGES["deployment"].script).run()
    assert not app.exception
    assert texts == ["Pricing 384 NPUs, their links and experts"]


def test_what_takes_too_long_leaves_the_formula_s_answer(app, running, monkeypatch):
    running.ended = False
    monkeypatch.setattr(live, "PATIENCE_S", 0.2)
    app.run()
    assert not app.exception
    assert any("By formula; simulating 40 % · 9 requests served" in chip for chip in chips(app))
    assert not any("Simulated" in chip for chip in chips(app))


def test_where_the_rate_swings_the_load_by_formula_is_even_and_the_peak_is_named(app):
    """A day whose mean keeps the SLO need not keep it at noon: here 100 req/s swing to 175."""
    app.run()
    for high, peak, is_open in ((1.75, "175 req/s", True), (1.0, "100 req/s", False)):
        swings = {"workload.profile.shape": "step", "workload.profile.at_s": 90.0,
                  "workload.profile.low": 2.0 - high, "workload.profile.high": high}  # fmt: skip
        app.session_state["history"] = [with_overrides(app.session_state["preset"], swings)]
        app.run()
        (verdict,) = (s.value for s in app.subheader if "a token" in s.value)
        assert f"of even load; it peaks at {peak}" in verdict
        assert ("a run decides" in verdict) == is_open


def test_a_short_simulation_of_a_day_leaves_the_verdict_to_a_run(app, running, monkeypatch):
    monkeypatch.setattr(live, "shortened_draft", lambda draft, _: with_overrides(
        draft, {"horizon_s": 60.0, "warmup_s": 10.0}))  # fmt: skip
    app.run()
    day = {"workload.profile.shape": "day", "workload.profile.period_s": 180.0}
    app.session_state["history"] = [with_overrides(app.session_state["preset"], day)]
    app.run()
    assert any("how the load swings later is not in it" in m.value for m in app.markdown)
    (verdict,) = (s.value for s in app.subheader if "a token" in s.value)
    assert "24.0 ms" not in verdict and "misses its SLO" not in verdict


def test_nothing_is_simulated_before_the_engine_is_ready_or_where_nothing_may_run(app, monkeypatch):
    asked = []
    monkeypatch.setattr(live, "_live", lambda: asked.append(1))
    app.run()
    monkeypatch.setattr(live, "ready", lambda: True)
    monkeypatch.setattr(session, "refusal", lambda path="": "this cannot hold")
    app.run()
    assert not app.exception
    assert not asked


def drafted(app, changes):
    app.run()
    state = app.session_state
    state["history"] = [with_overrides(state["history"][0], changes)]
    return app.switch_page(PAGES["workload"].script).run()


def test_a_fault_after_the_end_is_said_where_the_answer_stands(app):
    drafted(app, {"faults": [{"at_s": 500.0, "element": "node 1"}]})
    assert not app.exception
    (said,) = (w.value for w in app.warning)
    assert "After the end of the run at 180 s, so never seen: node 1 at 500 s" in said


def test_a_fault_beyond_the_simulated_part_is_said_beside_its_figures(app, running):
    hour = {"horizon_s": 3600.0, "faults": [{"at_s": 3000.0, "element": "node 1"}]}
    drafted(app, hour)
    assert not app.exception and not app.warning
    assert running.asked[-1].horizon_s < 3000.0
    assert any("what fails later is not in it" in m.value for m in app.markdown)
    drafted(app, hour | {"faults": []})
    assert not any("what fails later is not in it" in m.value for m in app.markdown)


def test_what_the_formula_leaves_out_is_said_below_its_answer(app):
    drafted(app, {"faults": [{"at_s": 50.0, "element": "node 1"}]})
    assert not app.exception
    assert any(c.value == "Formulas leave out faults: a run has them." for c in app.caption)
    drafted(app, {"faults": []})
    assert not any("leave out" in c.value for c in app.caption)


@pytest.mark.parametrize(
    ("state", "figure", "said"),
    [("steady", True, ""), ("filling", False, "still filling"), ("overloaded", True, "overloaded")],
)
def test_figures_that_are_no_steady_state_s_are_not_shown_as_such(
    app, running, monkeypatch, state, figure, said
):
    monkeypatch.setitem(SUMMARY, "steady_state", state)
    drafted(app, {"seed": 5})
    assert not app.exception
    assert any("**24.0 ms a token**" in s.value for s in app.subheader) == figure
    assert any(said in m.value for m in (*app.markdown, *app.subheader))


@pytest.mark.parametrize(
    ("rate", "share", "said"),
    [(104.0, None, "at its limit"), (106.0, None, "too much load"), (106.0, 0.999, "in this run"),
     (104.0, 0.81, "too much load"), (99.0, None, "by formula holds its SLO")],
)  # fmt: skip
def test_a_load_within_the_formula_s_reserve_is_no_overload(
    app, running, monkeypatch, rate, share, said
):
    """Between 95 % of the load that is found and all of it the formula leaves the verdict open, and
    a run that keeps the SLO decides."""
    running.ended = share is not None
    monkeypatch.setattr(live, "PATIENCE_S", 0.2)
    for key, value in {"ttft_s_p99": 1.0, "slo_attainment": share}.items():
        monkeypatch.setitem(SUMMARY, key, value)
    outlook = Outlook(0.024, rate, 110.0, 100.0, "decode")
    monkeypatch.setattr(live.formulas, "outlook", lambda _: outlook)
    app.switch_page(PAGES["workload"].script).run()
    assert not app.exception
    assert any(said in s.value for s in app.subheader)
