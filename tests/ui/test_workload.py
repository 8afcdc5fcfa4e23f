"""The workload page: edits change what is asked for, a trace is looked at and then replayed."""

import json

import pytest

MOONCAKE = "\n".join(
    json.dumps(
        {"timestamp": 500 * i, "input_length": 1024, "output_length": 64, "hash_ids": [0, i + 1]}
    )
    for i in range(40)
).encode()


@pytest.fixture
def page(app):
    return app.run().switch_page("twin/ui/pages/workload.py").run()


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
    assert tiles(page)["Prompt : answer tokens"] == f"{w.input_tokens / w.output_tokens:.3g} : 1"
    asked = w.rate_req_per_s * w.input_tokens
    assert tiles(page)["Prompt tokens"] == f"{asked:,.0f} tokens/s"


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
    page.switch_page("twin/ui/pages/deployment.py").run()
    page.switch_page("twin/ui/pages/workload.py").run()
    assert page.number_input(key="field:workload.input_tokens:0").value == 2048


def test_every_group_opens(page):
    for group in ("Shared prefixes", "Promise", "Time and chance", "Traffic"):
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
    assert tiles(page)["Prompt : answer tokens"] == "16 : 1"


def test_a_malformed_trace_gets_one_sentence_with_its_line_and_changes_nothing(page):
    edit(page, "workload.arrivals", "trace")
    page.file_uploader[0].upload("cut.jsonl", MOONCAKE + b'\n{"timestamp": 1, "input_leng')
    page.run()
    assert not page.exception
    assert "41" in page.error[0].value
    assert len(page.session_state["history"]) == 1


def test_a_link_opens_its_scenario_and_says_when_it_cannot(app):
    app.run()
    from twin.lab import share
    from twin.spec import Scenario, with_overrides

    sent = with_overrides(Scenario(), {"name": "Sent", "workload.rate_req_per_s": 7.0})
    app.query_params["s"] = share.pack(sent)
    app.run()
    assert app.session_state["history"][-1] == sent
    app.query_params["s"] = "nonsense"
    app.run()
    assert not app.exception
    assert app.error[0].value.startswith("this link")
    assert app.session_state["history"][-1] == sent
