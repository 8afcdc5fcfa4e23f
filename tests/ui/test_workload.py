"""The workload page: edits change what is asked for, a trace is looked at and then replayed."""

import json

import pytest

from tests.ui.conftest import patient
from tests.ui.stored_runs import queued
from twin.lab import ask
from twin.lab.library import presets
from twin.lab.traces.reader import read_trace
from twin.ui.forms import further_fields
from twin.ui.pages import PAGES

MOONCAKE = "\n".join(
    json.dumps(
        {"timestamp": 500 * i, "input_length": 1024, "output_length": 64, "hash_ids": [0, i + 1]}
    )
    for i in range(40)
).encode()


@pytest.fixture
def page(app):
    return app.switch_page(PAGES["workload"].script).run()


def tiles(at):
    return {m.label: m.value for m in at.metric}


def edit(at, path, value):
    """Sets a field's widget, whatever generation of it is on the page."""
    generation = at.session_state["generation"]
    at.get_by_key(f"field:{path}:{generation}").set_value(value)
    return at.run()


def test_the_traffic_is_said_in_tokens_per_second(page):
    assert not page.exception
    w = page.session_state["history"][0].workload
    assert tiles(page)["Prompt : output tokens"] == f"{w.input_tokens / w.output_tokens:.3g} : 1"
    asked = w.rate_req_per_s * w.input_tokens
    assert asked == 409_600.0
    assert tiles(page)["Prompt tokens"] == "410,000 tokens/s"  # three figures


def test_an_edit_changes_what_is_asked_for(page):
    edit(page, "workload.input_tokens", 2000)
    edit(page, "workload.rate_req_per_s", 120.0)
    assert tiles(page)["Prompt tokens"] == "240,000 tokens/s"


def test_a_closed_loop_has_no_rate(page):
    edit(page, "workload.arrivals", "closed_loop")
    edit(page, "workload.concurrency", 500)
    assert tiles(page)["Requests in flight"] == "500 in flight"
    assert "Prompt tokens" not in tiles(page)


def test_a_draft_survives_a_page_change(page):
    edit(page, "workload.input_tokens", 2048)
    page.switch_page(PAGES["deployment"].script).run()
    page.switch_page(PAGES["workload"].script).run()
    assert page.number_input(key="field:workload.input_tokens:0").value == 2048


def test_every_group_opens(page):
    for group in further_fields("workload"):
        page.get_by_key("workload-group").set_value(group)
        page.run()
        assert not page.exception


def test_a_trace_is_previewed_then_replayed(page):
    edit(page, "workload.arrivals", "trace")
    page.file_uploader[0].upload("mooncake.jsonl", MOONCAKE)
    page.run()
    assert any("40 requests" in m.value for m in page.markdown)
    page.button(key="use-trace").click().run()
    draft = page.session_state["history"][-1]
    assert not page.exception
    assert draft.workload.arrivals == "trace"
    assert draft.workload.trace.name == "mooncake.jsonl"
    assert draft.horizon_s == pytest.approx(20, rel=0.1)
    assert tiles(page)["Prompt : output tokens"] == "16 : 1"


# Deleting traces.


def upload_form() -> None:
    """The script under test: the choice of a trace alone."""
    from twin.ui import imports

    imports.draw_trace_upload()


def recorded(name="a.jsonl", requests=40):
    return read_trace(b"\n".join(MOONCAKE.splitlines()[:requests]), name)


def replaying(table):
    return ask.with_trace(presets()[0].scenario, table)


def form_of(draft):
    """The choice of a trace for a visitor with this draft."""
    at = patient(upload_form)
    state = {"history": [draft], "position": 0, "preset": draft}
    state |= {
        "generation": 0,
        "pending": {},
        "refusal": "",
        "addresses": [],
        "link_problem": "",
        "edited_path": "",
    }
    for key, value in state.items():
        at.session_state[key] = value
    return at.run()


def choose_to_delete(at, digest):
    at.selectbox(key="forget-traces").set_value(digest).run()
    assert not at.exception
    return at.button(key="forget-traces-yes")


def test_an_idle_trace_is_deleted_after_a_look_and_a_confirmation(store):
    kept, idle = recorded(), recorded("b.jsonl", 20)
    for table in (kept, idle):
        store.traces.save(table)
    at = form_of(replaying(kept))
    assert at.button(key="forget-traces-yes").disabled
    confirm = choose_to_delete(at, idle.digest)
    assert "b.jsonl (20 requests, " in at.markdown[-1].value
    assert "kB)** will be gone for good" in at.markdown[-1].value
    assert store.traces.get(idle.digest)
    confirm.click().run()
    assert not at.exception
    assert at.toast[0].value == "Trace deleted."
    assert [row.digest for row in store.traces.search().rows] == [kept.digest]
    assert at.selectbox(key="forget-traces").value is None
    assert at.session_state["history"][-1].workload.trace.digest == kept.digest


def test_a_trace_in_use_and_the_drafts_own_say_so_and_stay(store):
    own, used = recorded(), recorded("b.jsonl", 20)
    for table in (own, used):
        store.traces.save(table)
    queued(store, replaying(used))
    at = form_of(replaying(own))
    assert choose_to_delete(at, used.digest).disabled
    said = at.markdown[-1].value
    assert said.endswith("This trace is used by 1 scenario with 1 run: delete those first.")
    assert choose_to_delete(at, own.digest).disabled
    assert at.markdown[-1].value.endswith("What the draft uses stays: choose another first.")
    assert store.traces.search().total == 2


def test_what_others_do_between_look_and_confirmation_is_one_sentence(store):
    own, used, gone = recorded(), recorded("b.jsonl", 20), recorded("c.jsonl", 10)
    for table in (own, used, gone):
        store.traces.save(table)
    at = form_of(replaying(own))
    confirm = choose_to_delete(at, gone.digest)
    store.traces.delete(gone.digest)
    confirm.click().run()
    assert not at.exception
    assert at.toast[0].value == "Trace already deleted."
    confirm = choose_to_delete(at, used.digest)
    store.scenarios.save(replaying(used))
    confirm.click().run()
    assert not at.exception
    assert "used by 1 scenario: delete those first" in at.toast[0].value
    assert store.traces.search().total == 2


def test_a_chosen_trace_that_is_gone_a_moment_later_is_one_sentence(store, monkeypatch):
    table = recorded()
    store.traces.save(table)
    at = form_of(presets()[0].scenario)
    monkeypatch.setattr(store.traces, "load", _vanishing(store.traces.load, store.traces.delete))
    at.selectbox(key="stored-trace:").set_value(table.digest).run()
    assert not at.exception
    assert "No trace here has the id" in at.error[0].value
    assert len(at.session_state["history"]) == 1


def _vanishing(load, delete):
    def loaded(digest):
        delete(digest)
        return load(digest)

    return loaded


def test_two_traces_of_one_name_and_size_are_told_apart(store):
    one = recorded()
    lines = MOONCAKE.replace(b'"output_length": 64', b'"output_length": 65')
    two = read_trace(lines, "a.jsonl")
    for table in (one, two):
        store.traces.save(table)
    at = form_of(presets()[0].scenario)
    choose_to_delete(at, one.digest).click().run()
    assert [row.digest for row in store.traces.search().rows] == [two.digest]


def test_undo_to_a_trace_that_is_gone_says_so_and_its_file_brings_it_back(page, store):
    edit(page, "workload.arrivals", "trace")
    page.file_uploader[0].upload("mooncake.jsonl", MOONCAKE).run()
    page.button(key="use-trace").click().run()
    page.button(key="undo").click().run()
    store.traces.delete(page.session_state["history"][1].workload.trace.digest)
    page.button(key="redo").click().run()
    assert not page.exception
    for shown in (page.error, page.caption):
        assert any("The trace mooncake.jsonl is not stored here" in e.value for e in shown)
    assert not tiles(page).keys() & {"Requests", "Reusable prompt tokens"}
    page.file_uploader[0].upload("mooncake.jsonl", MOONCAKE).run()
    page.button(key="use-trace").click().run()
    assert not page.exception
    assert not page.error
    assert tiles(page)["Prompt : output tokens"] == "16 : 1"


def test_a_malformed_trace_gets_one_sentence_with_its_line_and_changes_nothing(page):
    edit(page, "workload.arrivals", "trace")
    page.file_uploader[0].upload("cut.jsonl", MOONCAKE + b'\n{"timestamp": 1, "input_leng')
    page.run()
    assert not page.exception
    assert "41" in page.error[0].value
    assert len(page.session_state["history"]) == 1


def test_a_trace_that_is_longer_than_any_run_is_one_sentence(page):
    edit(page, "workload.arrivals", "trace")
    rows = "2023-11-16 18:15:46,9,10\n9999-12-31 18:15:47,10,10\n"
    table = f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}".encode()
    page.file_uploader[0].upload("far.csv", table).run()
    assert not page.exception
    assert any("takes at most 604,800 s of it" in error.value for error in page.error)


def test_a_link_opens_its_scenario_and_says_when_it_cannot(app):
    app.run()
    from twin.lab.share import links
    from twin.scenario import Scenario, with_overrides

    sent = with_overrides(Scenario(), {"name": "Sent", "workload.rate_req_per_s": 7.0})
    app.query_params["s"] = links.pack_scenario(sent)
    app.run()
    assert app.session_state["history"][-1] == sent
    app.query_params["s"] = "nonsense"
    app.run()
    assert not app.exception
    assert app.error[0].value.startswith("This link")
    for page in ("start", "run", "library", "compare", "glossary"):
        app.switch_page(PAGES[page].script)
        app.query_params["s"] = "nonsense"
        app.run()
        assert [e.value.startswith("This link") for e in app.error] == [True], page
    assert app.session_state["history"][-1] == sent
