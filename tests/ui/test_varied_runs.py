"""A preset that somebody varies: what the run is called, what its page lists, and the way back."""

import pytest

from tests.ui.stored_runs import done, scenario
from twin.hooks import Page, hooks_of
from twin.ui import fields, words
from twin.ui.fields import text_of, tooltip
from twin.ui.pages import PAGES
from twin.ui.pages.run import sections

FAULT = {"at_s": 106.0, "element": "node 31"}
EDIT = {"element": "sub-plane 3", "capacity_factor": 0.5}


def varied(**fields):
    return scenario(**{"faults": [FAULT], "supernode.edits": [EDIT], **fields})


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "Quick start"),
        ({"name": "Mine", "faults": [FAULT]}, "Mine"),
        ({"supernode__supernodes": 2}, "Quick start · Supernodes 2"),
        ({"horizon_s": 100.0, "faults": [FAULT]}, "Quick start · node 31 fails at 106 s +1"),
        ({"workload__rate_req_per_s": 80.0}, "Quick start · Request rate 80 req/s"),
        ({"deployment__model": "deepseek-v3-2"}, "Quick start · Model DeepSeek-V3.2 685B"),
    ],
)
def test_a_varied_run_is_named_by_its_weightiest_change(fields, name):
    draft, preset = scenario(**fields), scenario()
    assert words.name_draft(draft, preset).name == name


def test_a_varied_run_has_a_question_of_its_own():
    preset = scenario()
    question = words.name_draft(varied(), preset).question
    edits = "sub-plane 3: 50 % of capacity"
    assert question == f"Quick start with these changes: node 31 fails at 106 s, {edits}."
    question = words.name_draft(scenario(faults=[FAULT]), preset).question
    assert question == "Quick start with this change: node 31 fails at 106 s."


def test_a_long_name_keeps_its_count_and_its_bound():
    draft, preset = varied(faults=[{**FAULT, "element": "L2 3.12", "kind": "derate"}]), scenario()
    draft = draft.model_copy(update={"name": "x" * 78})
    preset = preset.model_copy(update={"name": "x" * 78})
    assert len(words.name_draft(draft, preset).name) <= words.NAME_MOST
    assert words.name_draft(draft, preset).name.endswith("+1")


def test_lists_are_told_in_words_as_models_and_as_plain_values():
    s = varied()
    assert text_of(s.faults, "faults") == text_of([FAULT | {"kind": "fail", "to": ""}], "faults")
    assert text_of(s.supernode.edits, "supernode.edits") == "sub-plane 3: 50 % of capacity"
    slow = {**FAULT, "kind": "slow", "factor": 0.5, "duration_s": 20.0}
    assert (
        fields.rows_in_words("faults", [slow])
        == "node 31 computes at 0.5 x of its speed from 106 s for 20 s"
    )
    assert fields.rows_in_words("faults", [slow] * 5).endswith("2 more")
    assert fields.list_sentences(scenario()) == []


def test_every_field_lists_faults_and_edits_and_says_what_is_not_used():
    rows = sections.field_rows(varied())
    told = {(row["Field"], row["Value"]) for row in rows}
    assert ("Faults", "node 31 fails at 106 s") in told
    assert ("Fabric edits", "sub-plane 3: 50 % of capacity") in told
    assert ("Requests in flight", "not used: only with Arrivals: Closed loop") in told
    assert all(row["Value"] for row in rows)


def test_tenants_are_told_in_words_wherever_a_scenario_is():
    rows = [{"name": "chat"}, {"name": "batch", "share": 4.0}]
    words_of = "chat, 1 part of the sessions; batch, 4 parts of the sessions"
    s = scenario(tenants=rows)
    assert text_of(s.tenants, "tenants") == words_of
    assert fields.list_sentences(s) == [f"Tenants: {words_of}"]
    told = [row["Value"] for row in sections.field_rows(s) if row["Field"] == "Tenants"]
    assert told == words_of.split("; ")


@pytest.mark.parametrize("page", ["run", "playback", "experts", "library"])
def test_a_page_without_a_run_says_what_it_shows(app, page):
    app.switch_page(PAGES[page].script).run()
    assert PAGES[page].about in [caption.value for caption in app.caption]


def test_the_runs_page_says_what_breaks_and_what_was_edited(app, store):
    app.query_params["run"] = done(store, varied())
    app.switch_page(PAGES["run"].script).run()
    assert not app.exception
    said = " ".join(m.value for m in app.markdown).replace("\\", "")
    assert "Faults: node 31 fails at 106 s" in said
    assert "sub-plane 3: 50 % of capacity" in said


def test_back_to_a_form_after_a_reload_takes_up_the_runs_scenario(app, store):
    run = done(store, scenario("Asked before", workload__rate_req_per_s=33.0))
    app.switch_page(PAGES["workload"].script)
    app.query_params["run"] = run
    app.run()
    assert not app.exception
    assert [f.value for f in app.number_input if f.label.startswith("Request rate")] == [33.0]


def test_wrong_constants_are_a_sentence_on_every_page(app, monkeypatch, tmp_path):
    wrong = tmp_path / "mine.toml"
    wrong.write_text("[nonsense]\nvalue = 1\n")
    monkeypatch.setenv("TWIN_CALIBRATION", str(wrong))
    for page in ("start", "deployment", "library", *hooks_of(Page)):
        app.switch_page(PAGES[page].script).run()
        assert not app.exception
        [error] = app.error
        assert "nonsense is no constant" in error.value


def test_the_help_of_the_skew_says_what_it_scales():
    assert "0 makes it uniform" in tooltip("experts.skew")
