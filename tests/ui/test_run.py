"""The run page: live while it runs, then results; every other state one sentence, one next step."""

import re
import time
from types import SimpleNamespace

import polars as pl
import pytest

from tests.ui.fake_run import fake_checks, fake_tables
from tests.ui.stored_runs import done, queued, scenario
from twin.facts import Facts
from twin.lab.runs.executor import Stage
from twin.lab.share import links
from twin.lab.store import Owner
from twin.metrics.observed import Observed
from twin.metrics.registry import METRICS
from twin.scenario import Scenario, SpecError
from twin.ui import record, runs, session
from twin.ui.pages import PAGES
from twin.ui.pages.run import results, sections
from twin.ui.pages.run.results import tile_rows

UNITS = (" ms", " µs", " s", " tokens/s", " req/s", " %")


class Runner:
    """Stands for the processes: hears what is asked to stop."""

    trouble = ""
    stages: dict[str, Stage] = {}

    def __init__(self, store):
        self.cancel = lambda run, _seen=None: store.runs.request_stop(run)


@pytest.fixture(autouse=True)
def runner(store, monkeypatch):
    monkeypatch.setattr(session, "runner", lambda: Runner(store))


def opened(app, run="", section=""):
    app.switch_page(PAGES["run"].script)
    if run:
        app.query_params["run"] = run
    if section:
        app.session_state["section"] = section
    app.run()
    assert not app.exception
    return app


def words(app):
    every = [*app.markdown, *app.caption, *app.error, *app.warning, *app.info]
    return " ".join(str(e.value) for e in every)


def popovers(app):
    return [p.proto.popover.label for p in app.get("popover")]


def primary(app):
    return [b.label for b in app.button if b.proto.type == "primary"]


def running(store, s):
    owner = Owner.current()
    run = store.runs.add(store.scenarios.save(s), session.facts(), "engine 1", 1, owner=owner)
    return run, owner


# Nothing to show, or not yet.


def test_without_a_run_the_one_next_step_is_a_preset(app):
    opened(app)
    assert primary(app) == ["Choose a preset"]
    app.button(key="to-start").click().run()
    assert app.title[0].value == "Supernode twin"


def test_without_a_run_in_the_address_the_latest_are_offered(app, store):
    done(store, scenario("Yesterday"))
    opened(app)
    assert [link.label for link in app.page_link] == ["Yesterday"]


@pytest.mark.parametrize(
    ("name", "said"), [("x" * 24, "it may have been deleted"), ("<b>", "no run's id")]
)
def test_an_unknown_run_is_said_and_nothing_is_run(app, name, said):
    opened(app, name)
    assert said in app.error[0].value
    assert primary(app) == ["Choose a preset"]


def test_a_queued_run_tells_its_place_and_can_be_stopped(app, store):
    queued(store, scenario("First"))
    run = queued(store, scenario("Second"))
    opened(app, run)
    assert app.title[0].value == "Second"
    assert "1 run before it" in words(app)
    app.button(key="stop").click().run()
    assert store.runs.get(run).state == "cancelled"
    app.run()  # what the page asks of itself from within its fragment
    assert "was stopped at 0 %" in words(app)
    assert primary(app) == ["Run it again"]
    app.button(key="edit-copy").click().run()
    assert app.session_state["history"][-1].name == "Second"


def test_a_run_that_waits_for_the_compiler_says_which_stage_it_is_at(app, store, monkeypatch):
    monkeypatch.setattr(runs, "PATIENCE_S", 0.0)
    now = time.monotonic()
    stages = {"prefill": Stage(now - 9.0, 4.0), "decode": Stage(now - 5.0), "loop": Stage(now)}
    monkeypatch.setattr(Runner, "stages", stages)
    opened(app, queued(store, scenario("First")))
    said = words(app)
    assert "check: prefill 4 s" in said
    assert all(f"progress_activity: {stage} " in said for stage in ("decode", "loop"))
    assert "elapsed" in said
    monkeypatch.setattr(Runner, "trouble", "no run can be started (exit status 1)")
    app.run()
    assert "No run can be started" in words(app)


def test_a_running_run_shows_live_numbers_and_then_its_results(app, store):
    s = scenario("Live")
    run, owner = running(store, s)
    live = {"arrived": 1200.0, "finished": 900.0, "inside": 300.0, "decoding": 250.0}
    points = {"t_s": [3.0, 6.0], "ttft_s": [None, 0.42], "tpot_s": [None, 0.021]}
    points["tokens_per_s"] = [0.0, 98_765.0]
    store.runs.beat(run, owner, 0.25, live | {"points": points})
    opened(app, run)
    assert "Running: 25 % done" in words(app)
    now = {m.label: m for m in app.metric}
    assert now["Arrived"].value == "1,200"
    assert (now["TTFT, mean"].value, now["TPOT, mean"].value) == ("420 ms", "21.0 ms")
    assert now["TPOT, mean"].delta == "29.0 ms under the SLO of 50.0 ms"
    assert now["Output tokens"].value == "98,800 tokens/s"
    assert list(now["Output tokens"].proto.chart_data) == [0.0, 98_765.0]
    assert "to go" in words(app)
    finish(store, run, owner, s)
    app.run()
    assert "laws held" in " ".join(popovers(app))


def finish(store, run, owner, s, **other):
    tables = fake_tables(s, requests=300, windows=20)
    result = {"digest": "0" * 64, "summary": {"requests": 300, "ttft_s_p50": 0.2}, "notes": [],
              "tables": tables, "checks": fake_checks(), "valid": True}  # fmt: skip
    assert store.runs.finish(run, owner, SimpleNamespace(**result | other), 1.0)


def test_a_copy_is_edited_from_whatever_section_the_address_remembers(app, store):
    run = done(store, scenario("Done"))
    opened(app, run)
    app.get_by_key("section").set_value("Latency").run()
    app.query_params["section"] = "Latency"
    app.run().button(key="edit-copy").click().run()
    assert not app.exception
    assert app.title[0].value != "Done"
    assert app.session_state["history"][-1].name == "Done"
    assert not app.query_params  # Back needs nothing of the run's address


def test_a_failed_run_says_why_and_offers_a_copy(app, store):
    run, owner = running(store, scenario("Too much"))
    store.runs.fail(run, owner, "a decode die cannot hold one request")
    opened(app, run)
    assert app.error[0].value == "This run failed: A decode die cannot hold one request."
    app.button(key="edit-copy").click().run()
    assert app.session_state["history"][-1].name == "Too much"


def test_an_interrupted_run_can_be_asked_again(app, store, monkeypatch):
    asked = []
    monkeypatch.setattr(session, "start_run", lambda s: asked.append(s.name) or "an-id")
    run, _ = running(store, scenario("Torn"))
    store.runs.recover(lambda owner, age: False)
    opened(app, run)
    assert "interrupted" in app.warning[0].value
    app.button(key="run-again").click().run()
    assert asked == ["Torn"]


def test_a_run_whose_laws_do_not_hold_is_not_to_be_relied_on(app, store):
    s = scenario("Broken")
    run, owner = running(store, s)
    checks = [*fake_checks(), {"id": "I9", "statement": "KV fits.", "ok": False, "detail": "2"}]
    finish(store, run, owner, s, checks=checks, valid=False)
    opened(app, run)
    assert "do not rely on its figures" in app.error[0].value
    assert "1 of 4 laws broken" in popovers(app)


# Results.


def test_every_headline_figure_has_a_unit_and_a_basis(app, store):
    opened(app, done(store, scenario()))
    tiles = {m.label: m for m in app.metric}
    assert len(tiles) == 10
    bare = [v for k, v in tiles.items() if k != "Finished requests" and not v.value.endswith(UNITS)]
    assert bare == []
    assert all(m.proto.help for m in tiles.values())
    assert [k for k, m in tiles.items() if m.value.endswith("tokens/s") and "NPU" not in k] == []


def test_what_a_run_has_not_is_left_out():
    tiles = tile_rows({"ttft_s_p50": 0.2, "tpot_s_mean": None}, scenario())
    assert [t["label"] for t in tiles] == ["TTFT p50"]


def test_the_promise_is_told_beside_the_tails():
    tiles = {t["label"]: t for t in tile_rows({"ttft_s_p99": 7.5}, scenario(slo__ttft_s=5.0))}
    assert tiles["TTFT p99"]["delta"] == "2.50 s over the SLO of 5.00 s"
    assert tiles["TTFT p99"]["delta_color"] == "inverse"  # red, for a figure without a sign


def test_a_figure_says_where_most_measurements_are_expected():
    figures = {"tpot_s_mean": 0.05, "decode_tokens_per_s_per_npu": 2000.0}
    open_loop = {t["label"]: t for t in tile_rows(figures, scenario())}
    closed = tile_rows(figures, scenario(workload__arrivals="closed_loop"))
    tpot, throughput = closed
    low, high = re.fullmatch(r"80 % band: ([\d.]+) to ([\d.]+) ms", tpot["delta"]).groups()
    assert float(low) < 50.0 < float(high)
    assert re.fullmatch(r"80 % band: [\d,]+ to [\d,]+", throughput["delta"])
    assert "four of five measurements" in tpot["help"]
    assert "delta" not in open_loop[throughput["label"]]  # the load sets it


def test_a_share_below_the_slo_with_percentiles_within_it_is_explained():
    s = Scenario()
    summary = {"slo_attainment": 0.806, "ttft_s_p99": 1.6, "tpot_s_p99": 0.03}
    assert "longer warm-up" in results.missed_early_sentence(summary, s)
    for other in ({"slo_attainment": 0.985}, {"slo_attainment": None}, {"ttft_s_p99": 5.1}):
        assert not results.missed_early_sentence(summary | other, s)


def test_what_was_left_out_is_said(app, store):
    opened(app, done(store, scenario(horizon_s=60.0, warmup_s=10.0)))
    assert "10 s to 1 min: the warm-up before it is left out" in words(app)


@pytest.mark.parametrize("section", list(sections.SECTIONS))
def test_every_section_draws(app, store, section):
    opened(app, done(store, scenario()), section)
    assert len(app.subheader) + len(app.get("bidi_component")) >= 1
    assert not app.error


def test_busy_says_of_what():
    """A die that computes all the time may have most of its slots empty."""
    busy = [name for name, (column, _) in sections.DIE_FIGURES.items() if "busy" in column]
    busy += [METRICS[f"{role}_utilisation"].label for role in ("prefill", "decode")]
    assert len(busy) == 3 and all("of the time" in name for name in busy)


def test_requests_still_inside_are_not_told_as_lost():
    (tile,) = tile_rows({"finished": 13_978, "running": 4_167}, scenario())
    assert tile["delta"] == "4,167 requests still inside"


@pytest.mark.parametrize("number", ["99999999", "-5", "²", "9" * 5000])
def test_a_request_in_the_address_that_is_not_in_the_run_is_said(app, store, number):
    app.query_params["request"] = number
    opened(app, done(store, scenario()), "One request")
    (text,) = [w.value for w in app.warning if "names request" in w.value]
    assert "this run has 0 to" in text


def test_a_section_reads_only_its_own_tables(app, store, monkeypatch):
    run = done(store, scenario())
    read = []
    table = store.runs.table

    def spy(run, name, columns=None):
        read.append(name)
        return table(run, name, columns)

    monkeypatch.setattr(store.runs, "table", spy)
    opened(app, run, "Iteration")
    assert sorted(set(read)) == ["operators", "ranks", "requests", "windows"]


def test_a_damaged_table_is_a_sentence_and_the_headline_stays(app, store):
    run = done(store, scenario())
    artefact = store.runs.tables(run)["windows"]
    store.artefacts.path(artefact.sha256).unlink()
    opened(app, run, "Over time")
    assert "is gone" in app.error[0].value
    assert len(app.metric) == 10


def test_a_question_that_cannot_be_read_is_a_sentence(app, store, monkeypatch):
    run = done(store, scenario("Old"))

    def refuse(_digest):
        raise SpecError("the scenario is of schema 0, this twin knows 1")

    monkeypatch.setattr(store.scenarios, "load", refuse)
    record.scenario.clear()
    opened(app, run)
    assert "cannot be read. The scenario is of schema 0" in app.error[0].value
    assert primary(app) == ["Choose a preset"]


def test_the_run_that_differs_least_is_the_first_to_compare_with(app, store):
    near = done(store, scenario("Made elsewhere", workload__rate_req_per_s=80.0))
    done(store, scenario(workload__rate_req_per_s=120.0, seed=2))  # under the preset's name
    mine = scenario("Quick start · mine", workload__rate_req_per_s=80.0, seed=3)
    opened(app, done(store, mine))
    assert app.selectbox(key="baseline").value == near


def test_comparing_opens_both_runs(app, store):
    other, run = done(store, scenario("Other")), done(store, scenario("This"))
    opened(app, run)
    app.button(key="compare").click().run()
    assert not app.exception
    assert re.sub(r"[\[\]']", "", str(app.query_params["runs"])) == f"{other},{run}"


def test_the_pins_are_shown_whole(app, store):
    run = done(store, scenario())
    opened(app, run, "Scenario")
    row = store.runs.get(run)
    shown = {value.strip("`") for value in app.table[0].value.Value}
    assert {row.scenario, row.result_digest, row.facts_digest, run} <= shown


# The record.


def test_distributions_are_small_and_agree_with_the_summary(store):
    s = scenario(horizon_s=60.0, warmup_s=10.0)
    run = done(store, s, requests=3000)
    seen = record.latencies(run, s.warmup_s)
    assert len(seen.ttft_s) == record.QUANTILES
    requests = store.runs.table(run, "requests").filter(pl.col("first_token_s") >= s.warmup_s)
    ttft = (requests["first_token_s"] - requests["arrival_s"]).to_numpy()
    assert seen.ttft_s[record.QUANTILES // 2] == pytest.approx(float(pl.Series(ttft).median()))
    assert sum(v for _, v in seen.slowest) > ttft.mean()


def test_a_curve_passes_through_the_percentiles_beside_it(store):
    s = scenario()
    run = done(store, s, requests=4000)
    seen = record.latencies(run, s.warmup_s)
    spread = Observed(s, store.runs.table(run, "requests"), {}).spreads
    for name in ("ttft_s", "tpot_s"):
        assert getattr(seen, name)[[1000, 1980]] == pytest.approx(
            [spread[f"{name}_p50"], spread[f"{name}_p99"]]
        )


def test_the_slowest_request_is_one_that_the_figures_count(store):
    s = scenario()
    run = done(store, s)
    rows = store.runs.table(run, "requests")
    warmup_s = float(rows["first_token_s"].median())
    slowest, _ = record.slow_requests(run, warmup_s)["TTFT"]
    counted = rows.filter(pl.col("first_token_s") >= warmup_s, pl.col("finish_s").is_not_nan())
    ttft_s = counted["first_token_s"] - counted["arrival_s"]
    assert slowest in counted["request_id"]
    of_it = counted["request_id"] == slowest
    assert ttft_s.filter(of_it).item() == ttft_s.max()


def test_requests_in_progress_at_time_zero_have_no_ttft_and_no_whole_stay(store, monkeypatch):
    s = scenario(warmup_s=0.0)
    run = done(store, s, requests=300)
    rows = store.runs.table(run, "requests").with_columns(
        pl.when(pl.col("request_id") < 200).then(0.0).otherwise(column).alias(column)
        for column in ("arrival_s", "first_token_s", "prefill_end_s")
    )  # fmt: skip

    def table(_self, _run, _name, columns=None):
        return rows.select(columns or rows.columns)

    monkeypatch.setattr(type(store.runs), "table", table)
    spread = Observed.by_requests(s, rows).spreads
    seen = record.latencies(f"{run} zero", 0.0)
    assert seen.ttft_s[1000] == pytest.approx(spread["ttft_s_p50"]) and seen.ttft_s[0] > 0.0
    for criterion in ("TTFT", "E2E"):
        assert min(record.slow_requests(f"{run} zero", 0.0)[criterion]) >= 200


def test_the_table_of_requests_is_never_kept_whole(store):
    run = done(store, scenario())
    with pytest.raises(ValueError, match="let go"):
        record.table(run, "requests")


def test_a_question_beyond_the_evidence_says_so(app, store, monkeypatch):
    beyond = ["context is 200,000 tokens, beyond the 4,989 of any published row"]
    monkeypatch.setattr(results, "outside_evidence", lambda scenario, facts: beyond)
    opened(app, run=done(store, scenario("Far out")))
    assert "Outside the published evidence in 1 respect" in popovers(app)
    assert "200,000 tokens" in words(app)


def test_a_link_of_a_run_that_is_elsewhere_offers_its_question_here(app, store, monkeypatch):
    asked = []
    monkeypatch.setattr(session, "start_run", lambda s: asked.append(s) or done(store, s))
    elsewhere = scenario("Elsewhere", workload__rate_req_per_s=77.0)
    app.query_params["asked"] = links.pack_scenario(elsewhere)
    opened(app, "r" * 24)
    assert "run here has the id" in app.error[0].value
    assert "ask for the scenario" not in app.error[0].value  # it is in the link
    assert "Elsewhere" in words(app)
    app.button(key="run-here").click().run()
    assert not app.exception
    assert asked == [elsewhere]
    assert app.title[0].value == "Elsewhere"


def test_a_name_of_one_s_own_tags_and_a_note_stand_wherever_a_run_is_listed(app, store):
    run, other = done(store, scenario()), done(store, scenario("Other"))
    store.notes.write(run, "The *good* one", ["night"], "Why so fast?")
    app.run()
    assert "The \\*good\\* one" in [link.label for link in app.page_link]
    assert any(":gray-badge[night]" in c.value for c in app.caption)
    at = opened(app, run)
    assert at.title[0].value == "The \\*good\\* one"
    assert "Scenario: Quick start" in words(at)
    assert ":gray-badge[night]" in words(at) and "Why so fast?" in words(at)
    app.switch_page(PAGES["compare"].script)
    app.query_params["runs"] = f"{run},{other}"
    app.run()
    assert not app.exception
    assert any("A · The *good* one" in html.body for html in app.get("html"))
    (choice,) = app.multiselect
    assert any(option.startswith("The *good* one · ") for option in choice.options)


def test_a_run_from_before_a_fact_was_known_shows_its_iteration(app, store, monkeypatch):
    today = session.facts()
    assert today.names("stores")
    with monkeypatch.context() as then:
        known = Facts({name: fact for name, fact in today.items() if name[:7] != "stores."})
        then.setattr(session, "facts", lambda: known)
        run = done(store, scenario())
    at = opened(app, run, "Iteration")
    assert any("iteration takes" in s.value for s in at.subheader)
