"""The page Plan: its form makes the plan, an answer is shown, a deployment goes on from it."""

import json
from urllib.parse import parse_qsl

import pytest

from twin.engine.simulate import ENGINE_VERSION
from twin.lab.library import load_facts
from twin.lab.plan.drive import Plans, PlanStatus
from twin.lab.plan.question import Plan
from twin.lab.share import links
from twin.lab.sweep.sweep import Published
from twin.scenario import Scenario, with_overrides
from twin.ui import access
from twin.ui.charts import sweep as charts
from twin.ui.pages import PAGES
from twin.ui.pages.plan import requested

SETTINGS = {"deployment.prefill.instances": 2, "deployment.decode.instances": 1}
FIGURES = {
    "tokens_per_s_per_npu": 800.0, "tpot_s_mean": 0.03, "ttft_s_p99": 1.0, "power_kw": 90.0,
    "cost_per_million_tokens": None,
}  # fmt: skip
ROW = {
    "rank": 1, "equal_to_first": False, "key": "a", "npus": 192, "score": 1 / 192,
    "req_per_s": 90.0, "settings": SETTINGS | {"workload.rate_req_per_s": 90.0, "horizon_s": 40.0},
    "summary": FIGURES, "margins": {"headroom": 0.04}, "losses": {}, "held_back_by": "decode",
    "next_step": "", "own": False, "ratio_known_within": 0.07,
}  # fmt: skip
ANSWER = {
    "ranked": [ROW, ROW | {"rank": 2, "equal_to_first": True, "key": "b"}],
    "gap": 0.1, "gap_sentence": "None is better by 10 %.", "tornado": [],
    "front": [], "relaxations": [], "notes": [], "counts": {"simulations": 9, "feasible": 2},
}  # fmt: skip
POINT = {"key": "a", "npus": 192, "settings": SETTINGS, "tokens_per_s_per_user": 30.0,
         "tokens_per_s_per_npu": 800.0, "on_front": True}  # fmt: skip
RELAXED = {"limit": "slo.tpot_ms", "from": 50.0, "to": 61.0, "settings": SETTINGS, "npus": 192,
           "run_s": 35.0}  # fmt: skip


@pytest.fixture
def stored(store):
    """A function that stores a plan with its answer and returns its key."""
    folder = store.artefacts.folder / "plans"

    def put(answer, scenario, engine=ENGINE_VERSION, **limits):
        version = f"{engine} {load_facts().digest}"
        plans, plan = Plans(folder, version), Plan(scenario=scenario, **limits)
        key = plans.key(plan)
        (folder / key).mkdir(parents=True)
        plans.write_question(key, plan)
        (folder / key / "plan.json").write_text(json.dumps(answer))
        return key

    return put


def opened(app, **query):
    app.switch_page(PAGES["plan"].script)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


@pytest.mark.parametrize("per_npu, count", [(800.0, 2), (18.0, 1)])
def test_published_points_are_drawn_where_they_leave_the_plans_own_legible(per_npu, count):
    fast = [Published("one", 0.03, 2000.0, "a source")]
    chart = charts.plan_front([POINT | {"tokens_per_s_per_npu": per_npu}], {}, fast)
    assert sum(len(trace.x) > 0 for trace in chart.figure.data) == count
    assert ("Crosses are of one" in chart.reads) == (count == 2)


def test_the_form_starts_the_plan_that_it_shows(app, monkeypatch):
    begun = []
    monkeypatch.setattr(Plans, "start", lambda _, plan: begun.append(plan) or "none")
    opened(app)
    app.radio(key="plan-goal").set_value("rate").run()
    app.number_input(key="plan-npus").set_value(100).run()
    app.button(key="find").click().run()
    assert [(p.goal, p.npus, p.simulations) for p in begun] == [("rate", 100, requested.USUAL)]


def test_a_machine_too_small_for_the_draft_can_be_planned(app, monkeypatch):
    begun = []
    monkeypatch.setattr(Plans, "start", lambda _, plan: begun.append(plan) or "none")
    app.run()
    app.session_state["pending"] = {"supernode.nodes": 1}
    app.session_state["refusal"] = "deployment needs 256 NPUs but supernode has 8 (1 node x 8)"
    opened(app)
    assert app.button(key="find").disabled
    app.button(key="plan-fitting").click().run()
    assert not app.warning and app.number_input(key="plan-npus").value == 8
    app.button(key="find").click().run()
    (plan,) = begun
    assert plan.scenario.supernode.nodes == 1


def test_a_limit_of_power_needs_watts_before_anything_is_searched(app):
    app.run()
    app.session_state["history"] = [with_overrides(Scenario(), {"supernode.chip": "ascend-950dt"})]
    opened(app)
    app.number_input(key="plan-power").set_value(100.0).run()
    (warning,) = app.warning
    assert "rated power of" in warning.value and app.button(key="find").disabled
    assert app.number_input(key="plan-power").value == 100.0


def test_an_answer_is_shown_with_its_ranking_and_goes_into_the_draft(app, stored):
    opened(app, plan=stored(ANSWER, Scenario()))
    assert "192 NPUs" in app.subheader[0].value
    assert list(app.dataframe[0].value[""]) == ["1", "2 ="]
    (question,) = [each.value for each in app.caption if "met by 99 % of requests" in each.value]
    assert "60 req/s" in question
    captions = " ".join(each.value for each in app.caption)
    assert "Four of five measurements" in captions and "price of an NPU-hour" in captions
    assert "Another engine" not in captions
    app.button(key="plan-take").click().run()
    assert not app.exception


def test_an_answer_of_another_engine_says_so(app, stored):
    opened(app, plan=stored(ANSWER, Scenario(), engine="1.0"))
    assert any("Another engine or other facts found this" in each.value for each in app.caption)
    assert "192 NPUs" in app.subheader[0].value


def test_a_stopped_plan_of_another_engine_promises_no_simulation_that_is_kept(app, stored):
    for engine, kept in ((ENGINE_VERSION, True), ("1.0", False)):
        opened(app, plan=stored({}, Scenario(), engine=engine))
        (text,) = [w.value for w in app.warning]
        assert ("nothing is simulated twice" in text, "begins anew" in text) == (kept, not kept)
        assert app.button(key="resume-plan")


def test_a_plan_that_was_refused_is_not_offered_again(app, stored, monkeypatch):
    key, refusal = stored({}, Scenario()), "it does not fit: use more NPUs per instance"
    for is_refused in (False, True):
        look = PlanStatus(False, 0.0, {}, {}, refusal, refused=is_refused)
        monkeypatch.setattr(Plans, "state_of", lambda *_, look=look: look)
        opened(app, plan=key)
        assert [w.value for w in app.warning] == [refusal]
        assert any(b.key == "resume-plan" for b in app.button) != is_refused


def test_a_page_of_a_stopped_plan_notices_that_another_browser_goes_on(app, stored, monkeypatch):
    periods = []
    monkeypatch.setattr("streamlit.fragment", lambda drawn, run_every: periods.append(run_every)
                        or drawn)  # fmt: skip
    opened(app, plan=stored({}, Scenario()))
    opened(app, plan=stored(ANSWER, Scenario(seed=2)))
    stopped_s, ended_s = periods
    assert stopped_s is not None and ended_s is None


def test_a_visitor_of_a_plan_goes_on_from_its_scenario_unless_they_have_a_draft(app, stored):
    settings = {"name": "Quick start · mine", "question": "Old?", "workload.rate_req_per_s": 33.0}
    planned = with_overrides(Scenario(), settings)
    opened(app, plan=stored(ANSWER, planned, simulations=24))
    assert not any("another scenario" in each.value for each in app.caption)
    assert app.selectbox(key="plan-budget").value == 24
    app.button(key="plan-take").click().run()
    draft = app.session_state["history"][-1]
    assert draft.workload.rate_req_per_s == 33.0  # and not of the short run that was ranked
    assert draft.deployment.prefill.instances == 2
    app.session_state["history"] = [Scenario(), draft]
    app.session_state["position"] = 0
    opened(app, plan=stored(ANSWER, Scenario(seed=2)))
    assert any("another scenario" in each.value for each in app.caption)


def test_the_run_of_a_ranked_deployment_says_which_it_is(app, stored, begun):
    mine = {"name": "Quick start · Seed 2", "question": "Quick start with this change: Seed 2."}
    opened(app, plan=stored(ANSWER, with_overrides(Scenario(seed=2), mine)))
    app.button(key="plan-run").click().run()
    (scenario,) = begun
    assert scenario.name == "Quick start · Seed 2 · plan 1"
    assert scenario.question.startswith(
        "Deployment 1 of a plan for Quick start · Seed 2: 2 prefill"
    )


def test_where_nothing_fits_the_relaxations_stand(app, stored):
    none = ANSWER | {"ranked": [], "relaxations": [RELAXED], "gap": None}
    opened(app, plan=stored(none, Scenario()))
    assert "Nothing fits" in app.subheader[0].value
    assert list(app.dataframe[0].value["Fits at"]) == ["61"]
    assert any("in runs of 35 s at most" in m.value for m in app.markdown)


def test_relaxations_stand_while_others_are_looked_for(app, stored, monkeypatch):
    key, so_far = stored(ANSWER, Scenario()), {"stage": "Nothing fits", "relaxations": [RELAXED]}
    monkeypatch.setattr(Plans, "state_of", lambda *_: PlanStatus(True, 0.5, so_far, {}, ""))
    assert list(opened(app, plan=key).dataframe[0].value["Fits at"]) == ["61"]


def test_a_search_that_has_simulated_nothing_yet_judges_nothing(app, stored, monkeypatch):
    key = stored(ANSWER, Scenario())
    status = PlanStatus(True, 0.1, {"stage": "Search"}, {}, "")
    monkeypatch.setattr(Plans, "state_of", lambda *_: status)
    opened(app, plan=key)
    assert not app.get("plotly_chart")
    so_far = {"stage": "Search", "front": [POINT]}
    monkeypatch.setattr(Plans, "state_of", lambda *_: PlanStatus(True, 0.5, so_far, {}, ""))
    assert opened(app, plan=key).get("plotly_chart")


def test_a_plan_says_what_it_does_before_its_first_simulation_and_that_it_stops(
    app, stored, monkeypatch
):
    key = stored(ANSWER, Scenario())
    so_far = {"stage": "Searching", "simulations": 0, "deployments": 9626}
    monkeypatch.setattr(Plans, "state_of", lambda *_: PlanStatus(True, 0.0, so_far, {}, ""))
    button = opened(app, plan=key).button(key="stop-plan")
    assert (button.label, button.disabled) == ("Stop", False)
    said = app.get("progress")[0].proto.text
    assert said == "Searching: 0 simulated, 9,626 priced by formula"
    monkeypatch.setattr(
        Plans, "state_of", lambda *_: PlanStatus(True, 0.0, so_far, {}, "", stopping=True)
    )
    button = opened(app, plan=key).button(key="stop-plan")
    assert (button.label, button.disabled) == ("Stopping", True)


def test_a_plan_that_is_not_stored_here_is_said(app):
    assert "not stored" in opened(app, plan="nowhere").error[0].value


def test_a_read_only_server_shows_what_was_found_and_searches_nothing(app, stored, monkeypatch):
    key = stored(ANSWER, Scenario())
    monkeypatch.setenv(access.VARIABLE, access.READ_ONLY)
    monkeypatch.setattr(Plans, "start", lambda *_: pytest.fail("searched"))
    app.session_state[requested.NOW] = True
    opened(app, **{requested.PLAN: key})
    assert app.button(key="find").disabled
    assert any("read-only" in warning.value for warning in app.warning)
    assert "192 NPUs" in app.subheader[0].value


def test_a_plan_of_an_unknown_model_is_refused_before_it_is_begun(app, monkeypatch):
    monkeypatch.setattr(Plans, "start", lambda *_: pytest.fail("begun"))
    unknown = with_overrides(Scenario(), {"deployment.model": "gpt-9"})
    query = dict(parse_qsl(links.draft_url(unknown, "plan").partition("?")[2]))
    opened(app, **query).button(key="find").click().run()
    assert not app.exception and "not known" in app.toast[0].value
