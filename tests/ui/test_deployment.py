"""The deployment page: an instant estimate beside the form, and refusals in sentences."""

from urllib.parse import parse_qsl

import pytest
import streamlit as st

from tests.draws import some
from twin.lab.library import DATA
from twin.lab.share import links
from twin.scenario import Scenario, form_groups, with_overrides
from twin.ui import formulas
from twin.ui.forms.tables import schedule_warnings
from twin.ui.pages import PAGES
from twin.ui.session import initial_draft

UNITS = ("req/s", "%", " s", "ms", "µs", "tokens/s", "tokens", "requests")


@pytest.fixture
def page(app):
    return app.switch_page(PAGES["deployment"].script).run()


def tiles(at):
    return {m.label: m.value for m in at.metric}


def edit(at, path, value):
    """Sets a field's widget, whatever generation of it is on the page."""
    group = next(name for name, paths in form_groups("deployment").items() if path in paths)
    at.get_by_key("deployment-group").set_value(group)
    at.run()
    at.get_by_key(f"field:{path}:{at.session_state['generation']}").set_value(value)
    return at.run()


def number(text):
    return float(text.split()[0].replace(",", ""))


def test_every_tile_has_a_unit(page):
    assert not page.exception
    assert len(page.metric) >= 7
    assert [m.value for m in page.metric if not m.value.endswith(UNITS)] == []


def test_a_smaller_batch_answers_faster_and_serves_fewer(page):
    before = tiles(page)
    edit(page, "deployment.decode.batch_per_npu", 16)
    after = tiles(page)
    assert number(after["TPOT, slots full"]) < number(before["TPOT, slots full"])
    assert number(after["Decode, per NPU"]) < number(before["Decode, per NPU"])


def test_what_the_model_cannot_do_is_said_in_one_sentence(page):
    edit(page, "deployment.model", "kimi-k2")
    assert not page.exception
    assert any("multi-token-prediction" in m.value for m in page.markdown)
    edit(page, "deployment.decode.mtp_draft_tokens", 0)
    assert not page.exception
    assert "Most requests, SLO aside" in tiles(page)


@pytest.mark.parametrize(
    "mode", some(["disaggregated"], "colocated", "prefill_only", "decode_only")
)
def test_every_group_opens_in_every_mode(page, mode):
    edit(page, "deployment.mode", mode)
    for group in form_groups("deployment"):
        page.get_by_key("deployment-group").set_value(group)
        page.run()
        assert not page.exception


def test_more_npus_than_there_are_hold_the_run_back_until_it_fits(page):
    first = page.session_state["history"][0]
    edit(page, "deployment.prefill.instances", 40)
    assert any("384" in m.value and "NPUs" in m.value for m in page.markdown)
    assert page.button(key="run-draft").disabled
    page.button(key="undo").click().run()
    assert not page.button(key="run-draft").disabled
    assert page.session_state["history"][-1] == first


def test_load_and_capacity_count_requests_that_find_no_kv_space_too(page, monkeypatch):
    """As the load in the sentence above them does."""
    before, load = tiles(page), formulas.load_and_room(initial_draft())
    assert load == (100.0, 1.0)
    monkeypatch.setattr(formulas, "load_and_room", lambda _: (load[0], 0.8))
    after = tiles(page.run())
    assert number(after["Offered load"]) == pytest.approx(
        0.8 * number(before["Offered load"]), 0.01
    )
    most, most_before = (number(shown["Most requests, SLO aside"]) for shown in (after, before))
    assert most == pytest.approx(most_before / 0.8, 0.01)
    assert any("20.0 % of them find no KV space" in m.help for m in page.metric)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("deployment.decode.npus_per_instance", 2, "does not fit"),
        ("deployment.model", "gpt-9", "not known"),
        ("faults", [{"element": "node 999", "at_s": 20.0}], "No element is named"),
    ],
)
def test_a_run_that_cannot_be_says_why_and_leaves_the_page_as_it_is(app, begun, path, value, says):
    unfit = with_overrides(initial_draft(), {path: value})
    app.query_params.update(dict(parse_qsl(links.draft_url(unfit, "deployment").partition("?")[2])))
    app.switch_page(PAGES["deployment"].script).run()
    app.button(key="run-draft").click().run()
    assert not app.exception and begun == []
    assert [says in toast.value for toast in app.toast] == [True]


def test_changes_are_told_against_the_preset_and_can_be_taken_back(page):
    edit(page, "router.policy", "round_robin")
    assert any("Round robin" in m.value and "Least loaded" in m.value for m in page.markdown)
    reset = next(b for b in page.button if b.label == "Back to the preset")
    reset.click().run()
    assert page.session_state["history"][-1].router.policy == "least_loaded"


def test_an_instance_that_moved_off_a_node_says_so(page):
    edits = [{"element": "node 20", "capacity_factor": 0.0}]
    page.session_state["history"] = [with_overrides(Scenario(), {"supernode.edits": edits})]
    page.session_state["position"] = 0
    page.run()
    assert not page.exception
    assert any("Decode 0 moved off node 20 to node 32." in c.value for c in page.caption)
    gone = [{"element": f"node {n}", "capacity_factor": 0.0} for n in range(30)]
    page.session_state["history"] = [with_overrides(Scenario(), {"supernode.edits": gone})]
    page.run()
    assert not page.exception
    assert any("only 144 of 384 are on" in m.value for m in page.markdown)


def test_seats_by_hand_are_a_table_and_a_wrong_one_is_one_sentence(page):
    edit(page, "deployment.placement", "by_hand")
    assert not page.exception
    row = {"role": "decode", "index": 0, "element": "node 99"}
    changed = {"deployment.placement": "by_hand", "deployment.seats": [row]}
    page.session_state["history"] = [with_overrides(Scenario(), changed)]
    page.session_state["position"] = 0
    page.run()
    assert not page.exception
    assert any("no element is named 'node 99'" in m.value.lower() for m in page.markdown)


def test_a_schedule_has_rows_and_an_own_controller_a_file_of_the_operator(page, monkeypatch):
    page.get_by_key("deployment-group").set_value("Elasticity")
    page.run()
    edit(page, "elastic.controller", "schedule")
    assert any("at_s" in frame.value for frame in page.dataframe)
    monkeypatch.delenv("TWIN_CONTROLLERS", raising=False)
    edit(page, "elastic.controller", "own")
    assert any("TWIN_CONTROLLERS" in caption.value for caption in page.caption)
    monkeypatch.setenv("TWIN_CONTROLLERS", str(DATA / "examples"))
    page.run()
    page.selectbox(key="own-controller").set_value("one_by_one").run()
    assert not page.exception
    own = page.session_state["history"][-1].elastic
    assert (own.controller, own.own.name) == ("own", "one_by_one") and len(own.own.digest) == 64


def test_dies_without_an_expert_are_warned_of_with_the_redundancy_that_fills_them(page):
    edit(page, "deployment.decode.npus_per_instance", 160)
    edit(page, "experts.redundant", 0)
    assert not page.exception
    warned = [w.value for w in page.warning]
    assert any(
        "hold no routed expert" in w and "Redundant experts = 28 gives one to each" in w
        for w in warned
    )
    edit(page, "experts.redundant", 28)
    assert not page.warning


def test_the_tab_names_the_draft_and_the_page(app, monkeypatch):
    titles = []
    shown = st.set_page_config
    monkeypatch.setattr(st, "set_page_config", lambda *a, **k: (titles.append(k), shown(*a, **k)))
    app.switch_page(PAGES["deployment"].script).run()
    assert {"page_title": "Quick start · Deployment"} in titles


def test_where_the_time_goes_shows_both_streams_with_their_slack(page):
    charts = {c.proto.id.rpartition("-")[2]: c for c in page.get("plotly_chart")}
    assert {"layer", "operators"} <= set(charts)
    edit(page, "deployment.decode.microbatch", "on")
    edit(page, "deployment.decode.batch_per_npu", 16)
    assert any("stream waits" in m.value for m in page.markdown)
    edit(page, "deployment.decode.microbatch", "off")
    assert not page.exception
    assert any("one after the other" in m.value for m in page.markdown)


def test_a_schedule_says_what_no_run_can_give():
    rows = [{"at_s": 60.0, "prefill": 20, "decode": 4}, {"at_s": 9e4, "prefill": 1, "decode": 1}]
    asked = {"elastic.controller": "schedule", "elastic.npus": 128, "elastic.schedule": rows}
    size = {
        "deployment.prefill.npus_per_instance": 8, "deployment.prefill.instances": 2,
        "deployment.decode.npus_per_instance": 16, "deployment.decode.instances": 4,
    }  # fmt: skip
    many, late = schedule_warnings(with_overrides(Scenario(), asked | size))
    assert "on 224 NPUs are wanted, and instances may take 128" in many
    assert "never seen: rows at 25 h" in late
    fits = {"elastic.schedule": [{"at_s": 60.0, "prefill": 2, "decode": 4}]}
    assert schedule_warnings(with_overrides(Scenario(), asked | size | fits)) == []


def test_a_button_sets_what_a_stack_schedules_by_default_and_then_is_gone(page):
    edit(page, "deployment.stack", "vllm-ascend-0-13")
    button = page.button(key="as-stack")
    assert button.label == "Schedule as vLLM-Ascend 0.13 to 0.18 does by default"
    assert "Decode batch" in button.help and "**512**" in button.help
    button.click().run()
    assert not page.exception
    assert page.session_state["history"][-1].deployment.decode.batch_per_npu == 512
    shown = f"field:deployment.decode.batch_per_npu:{page.session_state['generation']}"
    assert page.get_by_key(shown).value == 512
    assert not [each for each in page.button if each.key == "as-stack"]
