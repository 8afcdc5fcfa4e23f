"""The compare page: the address says which runs; inputs first, then figures against a baseline."""

import csv
import io
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.ui.stored_runs import done, queued, scenario
from twin.engine.simulate import ENGINE_VERSION
from twin.lab.share import links
from twin.lab.sweep.compare import SEEDS, compare
from twin.metrics.registry import METRICS
from twin.ui import session
from twin.ui.charts.sweep import COLOURS, differences
from twin.ui.pages import PAGES
from twin.ui.pages.compare import comparison


@pytest.fixture
def runs(store):
    fast = scenario("Fast", workload__rate_req_per_s=40.0)
    return [done(store, scenario("Base")), done(store, fast, requests=200)]


@pytest.fixture
def found(store, runs):
    rows = [store.runs.get(run) for run in runs]
    scenarios = [store.scenarios.load(row.scenario) for row in rows]
    return compare(rows, scenarios), scenarios


def opened(app, **query):
    app.switch_page(PAGES["compare"].script)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def asked(app, name):
    """A parameter of the address; the test harness gives a list or a text."""
    value = app.query_params[name]
    return value if isinstance(value, str) else value[0]


def words(app):
    return " ".join(str(e.value) for e in [*app.markdown, *app.caption, *app.error, *app.warning])


def test_a_link_to_unknown_runs_is_said_and_leads_on(app):
    opened(app, runs=f"{'a' * 24},{'b' * 24}")
    assert words(app).count("No run here has the id") == 2
    assert [link.label for link in app.page_link] == ["Run a preset"]


def test_what_is_wrong_with_two_ids_is_one_sentence(app):
    opened(app, runs="a,b")
    assert words(app).count("This is no run's id") == 1


def test_without_two_runs_the_next_step_is_to_run_something(app):
    opened(app)
    assert "two finished runs" in words(app)
    assert [link.label for link in app.page_link] == ["Run a preset"]


def test_the_latest_runs_are_offered_and_the_choice_goes_into_the_address(app, runs):
    opened(app).button(key="compare").click().run()
    assert not app.exception
    assert set(asked(app, "runs").split(",")) == set(runs)
    assert [s.value for s in app.subheader] == [app.subheader[0].value, "What came out"]


def test_only_what_differs_is_shown_with_its_unit(app, runs):
    table = opened(app, runs=",".join(runs)).table[0].value
    assert table["Field"].tolist() == ["Request rate (req/s)"]
    assert table.iloc[0, 2] == "**40**"


def test_figures_are_told_against_the_chosen_baseline(app, runs):
    first = opened(app, runs=",".join(runs)).table[1].value.set_index("Figure")
    assert "\n" not in first.loc["Goodput"].iloc[0]
    assert "worse" in first.loc["Goodput"].iloc[1]
    app.button(key=f"base:{runs[1]}").click().run()
    assert asked(app, "baseline") == runs[1]
    second = app.table[1].value.set_index("Figure")
    assert "better" in second.loc["Goodput"].iloc[0]
    assert list(second.columns) == ["A · Base", "B · Fast"]


def test_another_group_of_figures_stays_when_the_baseline_changes(app, runs):
    opened(app, runs=",".join(runs), figures="Times")
    app.button(key=f"base:{runs[1]}").click().run()
    assert not app.exception
    assert asked(app, "baseline") == runs[1]
    assert app.get_by_key("figures").value == "Times"


def test_leaving_a_run_out_changes_the_address(app, runs, store):
    third = done(store, scenario("Third", seed=9))
    opened(app, runs=",".join([*runs, third])).button(key=f"drop:{runs[0]}").click().run()
    assert asked(app, "runs") == f"{runs[1]},{third}"


def test_an_unknown_id_is_one_sentence_and_the_others_stay(app, runs):
    opened(app, runs=",".join([*runs, "x" * 24]))
    assert len(app.error) == 1
    assert "x" * 24 in app.error[0].value
    assert len(app.table) == 2


def test_a_run_without_a_result_is_one_sentence_and_never_the_baseline(app, runs, store):
    waiting = queued(store, scenario("Waiting", seed=5))
    opened(app, runs=",".join([waiting, *runs]), baseline=waiting)
    assert [w.value for w in app.warning if "A · Waiting is queued" in w.value]
    assert any("Against B" in c.value for c in app.caption)


def test_seven_runs_are_refused_in_a_sentence(app, runs):
    opened(app, runs=",".join(f"{i}" * 24 for i in range(7)))
    assert "at most 6" in app.error[0].value


def test_every_figure_that_is_shown_has_a_unit(found):
    for group in comparison.GROUPS:
        for row in comparison.figures_of(found[0].metrics, group):
            assert METRICS[row.name].unit, row.name
    listed = comparison.metric_table(found[0], "All")
    assert len(listed) == len(found[0].metrics)


@pytest.mark.parametrize(("factor", "equal"), [(1.01, True), (3.0, False)])
def test_a_difference_says_whether_it_is_within_what_is_known(store, runs, factor, equal):
    row = store.runs.get(runs[0])
    base = SimpleNamespace(summary={"tpot_s_mean": 0.05})
    other = SimpleNamespace(summary={"tpot_s_mean": 0.05 * factor})
    pair = [store.scenarios.load(row.scenario)] * 2
    known = comparison.ratio_errors([base, other], pair, 0)
    (apart,) = known[1].values()
    assert apart.equal is equal and list(known) == [1]
    assert bool(comparison.equality_sentences(known)) is equal
    assert comparison.ratio_errors([base, base], pair, 0) == {1: {}}


def test_a_table_of_figures_says_how_well_their_ratios_are_known(found):
    compared, scenarios = found
    i = next(k for k, row in enumerate(compared.metrics) if row.name == "tpot_s_mean")
    values = (0.05, 0.051)
    rows = [SimpleNamespace(summary={"tpot_s_mean": v}) for v in values]
    known = comparison.ratio_errors(rows, scenarios, 0)
    row = replace(compared.metrics[i], values=values)
    (cells,) = comparison.metric_table(replace(compared, metrics=[row]), "All", known)
    assert "equal within what is known (±" in list(cells.values())[2]
    assert "known" not in list(cells.values())[1]


def test_a_field_that_does_nothing_in_any_run_is_left_out(store):
    names = ("a", "b")
    pair = [scenario(n, deployment__colocated__instances=i) for i, n in enumerate(names, start=1)]
    rows = [store.runs.get(queued(store, s)) for s in pair]
    assert comparison.input_table(compare(rows, pair), pair) == []


def test_a_spreadsheet_takes_no_text_for_a_formula(store):
    pair = [scenario('=HYPERLINK("x")'), scenario("@b", seed=3)]
    rows = [store.runs.get(queued(store, s)) for s in pair]
    table = list(csv.reader(io.StringIO(comparison.as_csv(compare(rows, pair)))))
    texts = [cell for line in table for cell in line]
    assert not [t for t in texts if t.startswith(("=", "+", "@"))]
    assert any(t == "'@b" for t in texts)


def test_the_json_holds_every_figure_with_its_unit(found):
    body = json.loads(comparison.as_json(found[0]))
    assert (body["baseline"], len(body["runs"])) == (0, 2)
    assert len(body["metrics"]) == len(found[0].metrics)
    assert {f["unit"] for f in body["metrics"] if f["name"].endswith("_s_p99")} == {"s"}


@pytest.mark.parametrize(
    ("name", "value", "base", "said"),
    [
        ("ttft_s_p50", 2.0, 1.0, ":red[+100.0 %, worse]"),
        ("tpot_s_mean", 5.0, 1.0, ":red[× 5.0, worse]"),
        ("rejected", 3.0, 0.0, ":red[+3 requests, worse]"),
        ("requests", 3.0, 2.0, ":gray[+50.0 %]"),
        ("ttft_s_p50", 1.0, 1.0, ":gray[same]"),
    ],
)
def test_a_change_is_told_in_words_and_colour(name, value, base, said):
    assert comparison.worded_change(name, value, base) == said


def test_a_comparison_from_elsewhere_offers_its_questions_here(app, store, monkeypatch):
    asked = []
    monkeypatch.setattr(session, "start_run", lambda s: asked.append(s) or done(store, s))
    here = done(store, scenario("Here"))
    there = scenario("There", seed=5)
    app.switch_page(PAGES["compare"].script)
    app.query_params["runs"] = f"{here},{'r' * 24}"
    app.query_params["asked"] = (
        f"{links.pack_scenario(scenario('Here'))},{links.pack_scenario(there)}"
    )
    app.run()
    assert not app.exception
    assert "ask for the scenario" not in app.error[0].value
    app.button(key="run-here").click().run()
    assert not app.exception
    assert asked == [there]
    assert [s.value for s in app.subheader] == [app.subheader[0].value, "What came out"]


def test_npus_that_idle_make_no_figure_worse():
    def row(npus, served, per_npu):
        summary = {"npus": npus, "throughput_req_per_s": served, "tokens_per_s_per_npu": per_npu}
        return SimpleNamespace(
            id="r", name="r", summary=summary, facts_digest="", engine_version="", state="done",
            notes=[],
        )  # fmt: skip

    runs = [row(256, 100.0, 600.0), row(384, 100.0, 400.0), row(256, 66.0, 400.0)]
    compared = compare(runs, [scenario()] * 3)
    verdicts = next(r for r in compared.metrics if r.name == "tokens_per_s_per_npu").verdicts
    assert verdicts == ("same", "different", "worse")
    assert comparison.worded_change("tokens_per_s_per_npu", 400.0, 600.0, verdicts[1]).startswith(
        ":gray"
    )
    assert comparison.worded_change("tokens_per_s_per_npu", 400.0, 600.0, verdicts[2]).startswith(
        ":red"
    )


def test_a_run_is_called_by_its_letter_and_its_name_to_the_end():
    assert comparison.letter_names(["Base", "Quick start · Request rate 125 req/s"]) == [
        "A · Base",
        "B · Quick start · Request rate 125 req/s",
    ]


# The picture at the head.


def judged(name, values, better="lower"):
    return SimpleNamespace(id=name, name=name, state="done", facts_digest="f", engine_version="e",
                           summary=values, notes=[])  # fmt: skip


def seen(base, *others, fields=()):
    scenarios = [scenario("Base"), *(scenario(f"Other {i}", **more) for i, more in
                                     enumerate(fields or [{} for _ in others]))]  # fmt: skip
    rows = [judged(f"r{i}", values) for i, values in enumerate([base, *others])]
    names = comparison.letter_names([s.name for s in scenarios])
    return compare(rows, scenarios, 0, names), scenarios


def test_a_difference_is_coloured_by_whether_it_is_better_not_by_its_sign():
    compared, _ = seen({"ttft_s_p99": 1.0, "goodput_req_per_s": 10.0},
                       {"ttft_s_p99": 0.5, "goodput_req_per_s": 8.0})  # fmt: skip
    rows = {row.label: row for row in comparison.results_that_differ(compared)}
    assert rows["TTFT p99"].change == -0.5 and rows["TTFT p99"].standing == "better"
    assert rows["Goodput"].change == pytest.approx(-0.2) and rows["Goodput"].standing == "worse"
    bars = differences(list(rows.values()), ["B"], "came out otherwise").figure.data[0]
    colour = dict(zip(bars.y, bars.marker.color, strict=True))
    assert colour == {"TTFT p99": COLOURS["better"], "Goodput": COLOURS["worse"]}


def test_added_idle_npus_are_not_red():
    served = {"throughput_req_per_s": 50.0, "ttft_s_p99": 0.5}
    compared, _ = seen(served | {"npus": 100, "tokens_per_s_per_npu": 600.0},
                       served | {"npus": 200, "tokens_per_s_per_npu": 300.0})  # fmt: skip
    (row,) = comparison.results_that_differ(compared)
    assert row.label == "Machine throughput" and row.standing == "different"
    bars = differences([row], ["B"], "came out otherwise").figure.data[0]
    assert COLOURS["worse"] not in bars.marker.color


def test_a_figure_whose_baseline_is_zero_has_a_bar_of_full_length():
    compared, _ = seen({"goodput_req_per_s": 0.0}, {"goodput_req_per_s": 40.0})
    (row,) = comparison.results_that_differ(compared)
    bars = differences([row], ["B"], "came out otherwise").figure.data[0]
    assert list(bars.x) == [100.0] and bars.marker.color[0] == COLOURS["better"]


def test_one_sentence_says_what_was_asked_and_what_came_of_it():
    compared, scenarios = seen(
        {"slo_attainment": 1.0, "ttft_s_p99": 1.0, "tokens_per_s_per_npu": 400.0},
        {"slo_attainment": 0.6, "ttft_s_p99": 2.0, "tokens_per_s_per_npu": 500.0},
        fields=[{"workload__rate_req_per_s": 200.0}],
    )
    told = comparison.conclusion(compared, scenarios)
    assert told.startswith("With Request rate (req/s) 100 → 200, B is worse in SLO")
    assert told.index("SLO attainment −40.0 points") < told.index("better in Machine throughput")


def test_a_number_of_a_field_that_differs_stands_as_it_is():
    compared, scenarios = seen({}, {}, fields=[{"deployment__prefill__tokens_per_npu": 4096}])
    (row,) = comparison.settings_that_differ(compared, scenarios)
    assert row.text == "16,384 → 4,096"


def test_the_sentence_says_a_long_field_whole():
    faults = [{"at_s": 50.0 + n, "element": f"node {n}", "kind": "fail"} for n in range(3)]
    goodput = {"goodput_req_per_s": 9.0}
    told = comparison.conclusion(*seen(goodput, goodput, fields=[{"faults": faults}]))
    assert "node 2 fails at 52 s" in told and "…" not in told


def test_of_several_runs_the_sentence_says_which_is_best_in_what():
    compared, scenarios = seen({"goodput_req_per_s": 10.0, "ttft_s_p99": 1.0},
                               {"goodput_req_per_s": 20.0, "ttft_s_p99": 2.0},
                               {"goodput_req_per_s": 15.0, "ttft_s_p99": 1.5})  # fmt: skip
    assert comparison.conclusion(compared, scenarios) == "Best: A in TTFT p99; B in Goodput."


def test_the_page_opens_with_the_sentence_and_the_picture(app, runs):
    opened(app, runs=",".join(runs))
    assert app.subheader[0].value.startswith("With Request rate")
    assert len(app.get("plotly_chart")) == 6
    headings = [m.value for m in app.markdown]
    assert headings.index("**Results that differ**") < headings.index("**Time to first token**")


def test_runs_of_other_seeds_are_offered_and_what_is_chance_is_then_said(app, store, monkeypatch):
    made = []

    def run(s):
        made.append(s)
        return done(store, s, engine=ENGINE_VERSION, requests=300 + s.seed)

    monkeypatch.setattr(session, "start_run", run)
    runs = [done(store, scenario(name), engine=ENGINE_VERSION) for name in ("Base", "Other")]
    opened(app, runs=",".join(runs))
    (button,) = [b for b in app.button if "other seeds" in b.label]
    assert f"Run {2 * (SEEDS - 1)} with" in button.label
    button.click().run()
    assert not app.exception and not [b for b in app.button if "other seeds" in b.label]
    assert sorted(s.seed for s in made) == sorted([scenario().seed + k for k in range(1, 5)] * 2)
    assert "95 % interval" in words(app)
    rows = [store.runs.get(run) for run in runs]
    scenarios = [store.scenarios.load(row.scenario) for row in rows]
    found, missing = comparison.with_seeds(compare(rows, scenarios), rows, scenarios)
    assert not missing and all(row.verdicts[1] == "same" for row in found.metrics)


def test_runs_of_other_seeds_go_on_in_a_page_that_is_loaded_again(app, store, monkeypatch):
    monkeypatch.setattr(session, "start_run", lambda s: queued(store, s))
    runs = [done(store, scenario(name), engine=ENGINE_VERSION) for name in ("Base", "Other")]
    opened(app, runs=",".join(runs))
    next(b for b in app.button if "other seeds" in b.label).click().run()
    del app.session_state[f"seeds:{','.join(runs)}"]  # all that a page loaded again has not
    app.run()
    assert not app.exception and not [b for b in app.button if "other seeds" in b.label]
    assert f"0 of {2 * (SEEDS - 1)} runs with other seeds are done." in [
        c.value for c in app.caption
    ]
