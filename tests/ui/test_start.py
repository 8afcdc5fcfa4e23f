"""The start page says what this is, has one obvious Run, and takes a preset into the draft."""

from types import SimpleNamespace

import pytest

from tests.ui.stored_runs import done, scenario
from twin import steady
from twin.lab.library import presets
from twin.lab.share import links, shipped
from twin.lab.store import StoreError
from twin.scenario import legacy_digests, scenario_digest, value_of, with_overrides
from twin.ui import fabric_message, formulas, live, session, words
from twin.ui.pages import PAGES
from twin.ui.pages.playback import player
from twin.ui.pages.run import explained
from twin.ui.pages.start import parts
from twin.ui.pages.start.parts import SHELVES, find_presets, picture_svg
from twin.ui.runs import headlines
from twin.ui.show import plain


@pytest.fixture
def asked(monkeypatch):
    """Scenarios that were asked to run; nothing is really run."""
    scenarios = []

    def remember(scenario):
        scenarios.append(scenario)
        return "an-id"

    monkeypatch.setattr(session, "start_run", remember)
    return scenarios


def test_a_first_visit_finds_one_primary_button_and_no_runs(app):
    app.run()
    assert not app.exception
    assert app.title[0].value == "Supernode twin"
    assert [b.key for b in app.button if b.proto.type == "primary"] == ["run-draft"]
    assert "None yet" in app.caption[-1].value


def test_a_first_visitor_finds_the_picture_and_the_prices_made(app):
    parts.prepare_first_page()
    asked = (fabric_message.machine_text, steady._assemble, steady._cached_imbalance)
    before = [kept.cache_info().misses for kept in asked]
    app.run()
    assert not app.exception
    assert [kept.cache_info().misses for kept in asked] == before


def test_a_first_visit_sees_a_shipped_run_play_and_says_whose_it_is(app):
    app.run()
    assert any("came with the project, made by engine" in c.value for c in app.caption)


def test_run_asks_for_the_draft(app, asked):
    app.run().button(key="run-draft").click().run()
    assert asked == [presets()[0].scenario]


def test_every_preset_is_in_the_gallery_with_its_source(app):
    app.session_state["shelf"] = "All"
    app.run()
    shown = {b.key.removeprefix("edit-") for b in app.button if (b.key or "").startswith("edit-")}
    assert shown == {p.key for p in presets()}
    sources = [c.proto.help for c in app.caption if c.value == "Source"]
    assert sources == [plain(p.scenario.source) for p in presets()]
    assert all(sources)


@pytest.mark.parametrize("shelf", list(SHELVES))
def test_no_shelf_is_empty(app, shelf):
    app.session_state["shelf"] = shelf
    app.run()
    assert sum((b.key or "").startswith("edit-") for b in app.button) >= 3


def test_every_preset_answers_one_of_the_questions_and_says_its_answer_in_a_picture_and_figures():
    named = [(p.key, p.scenario) for p in presets()]
    asked = [words for name, words in SHELVES.items() if name != "All"]
    assert {key for words in asked for key, _ in find_presets(named, words, "")} == {
        p.key for p in presets()
    }
    for preset in presets():
        assert "aria-label" in picture_svg(preset.scenario)
        summary = shipped.shipped_summaries()[scenario_digest(preset.scenario)]
        assert headlines(summary, "card"), preset.key
    drawn = picture_svg(presets()[0].scenario)
    assert drawn.count("<rect") == 48
    assert "96 prefill, 160 decode, 128 idle" in drawn


def test_editing_a_preset_makes_it_the_draft(app):
    app.run().button(key="edit-r1-reasoning").click().run()
    assert not app.exception
    assert app.session_state["history"][-1].name == "R1 reasoning"
    assert app.session_state["preset"].name == "R1 reasoning"
    assert app.title[0].value == "Workload"


def test_a_shelf_that_the_address_remembers_is_left_by_a_click(app):
    app.run().get_by_key("shelf").set_value("All").run()
    app.query_params["shelf"] = "All"  # as the browser says it from now on
    app.run().button(key="edit-fault-node").click().run()
    assert not app.exception
    assert app.title[0].value == "Workload"
    assert "shelf" not in app.query_params


def test_a_run_that_cannot_be_asked_for_says_why_and_stays(app, monkeypatch):
    def full(_scenario):
        raise StoreError("200 runs are waiting: let some finish, or stop some")

    monkeypatch.setattr(session, "start_run", full)
    app.run().button(key="run-draft").click().run()
    assert not app.exception
    assert "200 runs are waiting" in app.toast[0].value
    assert app.title[0].value == "Supernode twin"


def test_recent_runs_are_listed_by_name(app, store):
    digest = store.scenarios.save(presets()[0].scenario)
    store.runs.add(digest, session.facts(), "engine 1", 1)
    app.run()
    assert [link.label for link in app.page_link if "Quick start" in link.label]
    assert any("queued" in c.value for c in app.caption)


def test_a_store_that_cannot_be_opened_is_said_in_a_sentence(app, monkeypatch):
    def refuse():
        raise StoreError("data/twin.db was written by a newer twin: update this one")

    monkeypatch.setattr(session, "runner", refuse)
    app.run()
    assert not app.exception
    assert "newer twin" in app.error[0].value


@pytest.mark.parametrize("page", ["start", "workload"])
def test_words_that_came_in_a_link_are_shown_as_typed(app, page):
    image = "![x](http://elsewhere.example/seen.png)"
    words = dict.fromkeys(("name", "question", "source"), image)
    app.query_params["s"] = links.pack_scenario(presets()[0].scenario.model_copy(update=words))
    if page == "workload":
        app.switch_page(PAGES["workload"].script)
    app.run()
    assert not app.exception
    assert app.session_state["history"][-1].name == image
    bodies = [
        element.value for kind in (app.markdown, app.caption, app.subheader) for element in kind
    ]
    labels = [block.proto.popover.label for block in app.get("popover")]
    said = [text for text in bodies + labels if "elsewhere" in text]
    assert said
    assert not [text for text in said if image in text]


def test_each_button_says_of_what(app):
    app.session_state["shelf"] = "All"
    buttons = [b for b in app.run().button if (b.key or "").startswith(("run-", "edit-"))]
    told = {b.proto.help or b.label for b in buttons}
    assert len(told) == len({b.key for b in buttons}) > 2 * len(presets())


def test_presets_are_found_by_their_words_and_say_their_answer(app):
    app.run()
    assert any("SLO met" in m.value for m in app.markdown)
    app.text_input(key="preset-search").set_value("h100 prefill").run()
    assert {b.key for b in app.button if (b.key or "").startswith("edit-")} == {
        "edit-h100-sglang-prefill"
    }
    app.text_input(key="preset-search").set_value("no such thing").run()
    assert not [b for b in app.button if (b.key or "").startswith("edit-")]


def test_a_linked_scenario_keeps_its_difference_and_its_name(app):
    first = presets()[0].scenario
    varied = with_overrides(first, {"deployment.prefill.instances": 8})
    app.run()
    link = links.draft_url(words.name_draft(varied, first))
    app.query_params["s"] = link.partition("?s=")[2]
    app.run()
    assert not app.exception
    assert app.subheader[0].value == plain("Quick start · Prefill instances 8")
    assert app.session_state["preset"] == first
    app.session_state["history"].append(with_overrides(varied, {"workload.rate_req_per_s": 120.0}))
    app.session_state["position"] += 1
    assert app.run().subheader[0].value == plain("Quick start · Request rate 120 req/s +1")


def test_an_edit_that_cannot_hold_leaves_no_answer_standing(app):
    app.run()
    assert any("a token" in s.value for s in app.subheader)
    app.session_state["refusal"] = "warmup_s = 200 s must end before horizon_s = 180 s"
    app.session_state["pending"] = {"warmup_s": 200.0}
    for name in ("start", "workload", "deployment"):
        app.switch_page(PAGES[name].script).run()
        assert not app.exception
        assert "Warm-up = 200 s" in app.warning[0].value
        assert not app.metric
        assert not any("a token" in s.value for s in app.subheader)


def test_an_edited_preset_has_another_question(app):
    for path, value in (("workload.rate_req_per_s", 150.0), ("workload.output_tokens", 512)):
        app.run().select_slider(key=session.field_key(path)).set_value(value).run()
    assert not app.exception
    said = [markdown.value.replace("\\", "") for markdown in app.markdown]
    assert any(
        "changes: Request rate 150 req/s, Output length 512 tokens." in text for text in said
    )
    assert presets()[0].scenario.question not in said[:4]  # its own card, below, has it


def test_why_not_faster_is_one_click_from_its_run(app, asked):
    app.run().button(key="why-not-faster").click().run()
    assert not app.exception
    assert asked == [presets()[0].scenario]
    assert app.session_state[explained.NOW] == scenario_digest(asked[0])


def test_a_node_of_the_draft_fails_and_its_traffic_stays(app, asked):
    mine = with_overrides(presets()[0].scenario, {"workload.rate_req_per_s": 42.0})
    app.query_params["s"] = links.pack_scenario(mine)
    app.run().button(key="fail-a-node").click().run()
    assert not app.exception
    (run,) = asked
    assert run.workload == mine.workload and run.deployment == mine.deployment
    (fault,) = run.faults
    assert fault.element.startswith("node ") and mine.warmup_s < fault.at_s < mine.horizon_s
    assert run.question != mine.question and "node" in run.question


def test_a_live_run_plays_in_place_of_the_machine_at_rest(app, monkeypatch):
    monkeypatch.setattr(live, "draw_answer", lambda place, draft: "a live run")
    monkeypatch.setattr(live, "tables", lambda run: {"windows": None})
    monkeypatch.setattr(player, "shipped_film", lambda draft, came, run: {})
    app.query_params["s"] = links.pack_scenario(
        with_overrides(presets()[0].scenario, {"seed": 4711})
    )
    app.run()
    assert not app.exception  # both pictures of one machine stood in one run of the script


def test_the_newest_run_of_each_scenario_is_found_at_once_by_its_digest_of_any_schema(store):
    # Beginning empty, as all did in older schemas, so that these have digests of it.
    many, one, none = (scenario(seed=seed, start="empty") for seed in (1, 2, 3))
    runs = {}
    for s in (many, many, one):
        runs |= dict.fromkeys((scenario_digest(s), *legacy_digests(s)), done(session.store(), s))
    latest = session.store().runs.latest_runs([*runs, scenario_digest(none)])
    assert {digest: row.id for digest, row in latest.items()} == runs
    assert len(runs) > len({row.scenario for row in latest.values()}) == 2


@pytest.mark.parametrize(
    ("limit", "path", "value"),
    [
        ("prefill", "deployment.prefill.instances", 14),
        ("decode", "deployment.decode.npus_per_instance", 288),
    ],
)
def test_idle_npus_are_given_to_the_pool_that_is_full_first(app, monkeypatch, limit, path, value):
    told = SimpleNamespace(limit=limit, slo_req_per_s=140.0, tpot_s=0.03, rate_req_per_s=100.0,
                           sustained_req_per_s=150.0)  # fmt: skip
    monkeypatch.setattr(formulas, "outlook", lambda _: told)
    app.run()
    app.button(key="use-idle").click().run()
    assert not app.exception
    state = app.session_state
    assert value_of(state["history"][state["position"]], path) == value
    assert "use-idle" not in [b.key for b in app.button]
    app.button(key="take-back-0").click().run()
    assert value_of(state["history"][-1], path) == value_of(state["history"][0], path)
