"""The Experts page: figures as the tables say, missing ones in words, one click for the cost."""

import numpy as np
import polars as pl
import pytest

from tests.ui.conftest import patient
from tests.ui.experts_run import (
    DIES,
    HORIZON_S,
    LAYERS,
    MOVED_BYTES,
    MOVES,
    done_skewed,
    expert_tables,
    skewed,
)
from twin.lab.kinds import CountsTable
from twin.ui import record
from twin.ui.charts import experts as charts_experts
from twin.ui.pages import PAGES
from twin.ui.pages.experts import views as experts


@pytest.fixture(scope="module")
def tables():
    return expert_tables(skewed())


def opened(app, run="", view="", page="experts"):
    app.switch_page(PAGES[page].script)
    if run:
        app.query_params["run"] = run
    if view:
        app.session_state["experts-view"] = view
    app.run()
    assert not app.exception
    return app


def words(app):
    every = [*app.markdown, *app.caption, *app.error, *app.warning, *app.info]
    return " ".join(str(e.value) for e in every)


def metrics(app):
    return {m.label: m.value for m in app.metric}


# Cutting tables.


def test_moments_pair_the_two_sides_of_each_rebalance(tables):
    found = experts.moments_of(tables["die_load"], "decode", 0)
    assert [(m.name, m.number) for m in found] == [
        ("start", 0), ("before", 1), ("after", 1), ("before", 2), ("after", 2), ("end", 0),
    ]  # fmt: skip
    assert [m.t_s for m in found if m.number] == [*MOVES[0], *MOVES[1]]


def test_loads_written_down_by_another_pools_rebalance_do_not_hide_the_own_one(tables):
    die_load = tables["die_load"]
    early = die_load.filter(pl.col("moment") == "after").with_columns(pl.col("t_s") - 1.0)
    twice = die_load.filter(pl.col("moment") == "before")
    found = experts.moments_of(pl.concat([die_load, early, twice]), "decode", 0)
    assert found == experts.moments_of(die_load, "decode", 0)


def test_a_snapshot_has_a_mean_of_one_in_every_layer(tables):
    die_load = tables["die_load"]
    for at in experts.moments_of(die_load, "decode", 0):
        snap = experts.snapshot_at(die_load, "decode", 0, at)
        assert snap.load.shape == (LAYERS, DIES)
        assert snap.load.mean(axis=1) == pytest.approx(np.ones(LAYERS))
        assert (snap.imbalance >= 1).all()


def test_a_move_tells_its_bytes_its_time_and_its_slow_down(tables):
    found = experts.rebalance_rows(tables["events"], "decode", 0)
    assert [m["bytes"] for m in found] == [MOVED_BYTES] * 2
    assert [(m["t_s"], m["end_s"]) for m in found] == list(MOVES)
    windows = tables["instances"].filter(experts.instance_filter("decode", 0))
    for move in MOVES:
        before_s, during_s, after_s = experts.iteration_s_around(windows, *move)
        assert during_s / before_s == pytest.approx(1.15, abs=0.02)
        assert after_s == pytest.approx(before_s, rel=0.02)


def test_the_moves_of_a_whole_pool_are_those_of_each_of_its_instances(tables):
    events = tables["events"].with_columns(instance=pl.lit(None, pl.Int32))
    assert len(experts.rebalance_rows(events, "decode", 3)) == 2
    assert experts.rebalance_rows(events, "prefill", 0) == []
    none = tables["instances"].clear()
    assert experts.iteration_s_around(none, *MOVES[0]) == (None, None, None)


# Charts.


def test_the_map_of_loads_has_one_fixed_scale_and_marks_copies(tables):
    at = experts.moments_of(tables["die_load"], "decode", 0)[0]
    snap = experts.snapshot_at(tables["die_load"], "decode", 0, at)
    chart = charts_experts.die_map(snap.layers, snap.load, snap.replicas)
    heat, marks = chart.figure.data
    assert (heat.zmin, heat.zmax) == (0, charts_experts.LOAD_TOP)
    assert len(marks.x) == (snap.replicas > 0).sum()
    assert "hottest die over the mean" in chart.alt
    many = charts_experts.die_map(snap.layers, snap.load, np.ones_like(snap.replicas))
    assert len(many.figure.data) == 1


def test_rebalances_and_shifts_are_marked_on_the_time_axis(tables):
    run = skewed()
    windows = pl.DataFrame(
        {"t_s": np.arange(60.0) * 2, "window_s": np.full(60, 2.0), "tpot_s_mean": np.full(60, 0.04)}
    )
    chart = charts_experts.tpot(windows, tables["events"], 0.05, run.warmup_s)
    names = {trace.name: len(trace.x) for trace in chart.figure.data}
    assert names == {"TPOT mean": 60, "rebalance": 2, "shift": 1}
    assert chart.figure.layout.yaxis.title.text == "TPOT, ms"
    assert "2 rebalances" in chart.alt
    over = charts_experts.hottest_over_time(tables["hottest"], tables["events"], HORIZON_S)
    assert {"worst layer", "median layer"} <= {trace.name for trace in over.figure.data}


def test_nothing_to_draw_is_said():
    none = np.zeros((0, 0))
    for chart in (
        charts_experts.die_map(none, none, none),
        charts_experts.hottest_over_time(pl.DataFrame(), pl.DataFrame(), 1.0),
    ):
        assert not chart.figure.data
        assert chart.alt


# The page.


@pytest.mark.parametrize("view", ["Dies", "Over time"])
def test_every_view_of_a_run_draws(app, store, view):
    opened(app, done_skewed(store), view)
    shown = metrics(app)
    assert shown["Rebalances"] == "2"
    assert "× mean" in shown["Hottest die, start"]
    assert "GB" in shown["Weights moved"]
    assert len(app.get("plotly_chart")) >= 1


def test_the_page_opens_with_what_imbalance_costs_by_the_run_s_own_waterfall(
    app, store, monkeypatch
):
    pieces = {"weights": 3.0, "attention": 5.0, "imbalance": 2.0}
    monkeypatch.setattr(record, "seconds_by_piece", lambda row, scenario: pieces)
    opened(app, done_skewed(store))
    assert app.subheader[0].value == (
        "Expert imbalance costs 2.00 s of a mean request's 10.0 s: 20.0 %."
    )
    monkeypatch.setattr(
        record, "seconds_by_piece", lambda row, scenario: pieces | {"imbalance": 0.0}
    )
    assert "imbalance is free" in app.run().subheader[0].value
    monkeypatch.setattr(record, "seconds_by_piece", lambda row, scenario: {})
    app.run()
    assert "Another engine or other facts made this one: run it again" in words(app)
    monkeypatch.setattr("twin.ui.pages.run.explained.can_explain", lambda row, scenario: True)
    app.run()
    assert "measured when the run is explained" in words(app)


def test_experts_that_are_all_as_popular_cost_nothing(app, store):
    opened(app, done_skewed(store, skewed(experts__popularity="uniform")))
    assert "imbalance costs nothing" in app.subheader[0].value


def test_a_model_without_experts_is_one_sentence_and_no_chart(app, store):
    opened(app, done_skewed(store, skewed(deployment__model="qwen3-32b")))
    assert app.subheader[0].value == "Qwen3-32B has no routed experts: nothing to balance."
    assert not app.get("plotly_chart") and not app.error


def test_the_slider_goes_through_the_moments(app, store, tables):
    opened(app, done_skewed(store))
    slider = app.select_slider[0]
    assert slider.options[0] == "Start · 0 s"
    assert "After rebalance 2 · 82 s" in slider.options
    moments = experts.moments_of(tables["die_load"], "decode", 0)
    copies = words(app)
    slider.set_value(moments[2]).run()
    assert not app.exception
    assert words(app) != copies


def test_without_moves_the_page_says_there_were_none(app, store):
    run = done_skewed(store, empty=("events", "instances", "traffic", "hottest"))
    opened(app, run, "Over time")
    assert "No expert was moved" in words(app)


# Counts of one's own.


def upload_form() -> None:
    """The script under test: the uploader alone."""
    from twin.ui import imports

    imports.draw_upload(imports.COUNTS)


def test_counts_of_ones_own_reach_the_draft_and_a_broken_file_is_one_sentence(store):
    at = patient(upload_form).run()
    at.file_uploader[0].upload("broken.csv", b"layer,expert\n1,2\n", "text/csv").run()
    assert not at.exception
    assert at.error[0].value.count(".") >= 1
    rows = [f"{layer},{e},{1 + e % 7}" for layer in range(58) for e in range(256)]
    text = "\n".join(["layer,expert,count", *rows])
    at = patient(upload_form).run()
    at.file_uploader[0].upload("mine.csv", text.encode(), "text/csv").run()
    assert not at.error
    at.button(key="use-counts").click().run()
    draft = at.session_state["history"][-1]
    assert draft.experts.popularity == "imported"
    assert draft.experts.counts.name == "mine.csv"
    assert store is None or draft.experts.counts.digest


def test_idle_counts_are_deleted_and_the_drafts_own_stay(store):
    own, idle = (
        store.counts.save(CountsTable(f"{name}.csv", "csv", np.full((58, 256), count)))
        for name, count in (("a", 1.0), ("b", 2.0))
    )
    at = patient(upload_form).run()
    at.selectbox(key="stored-counts:").set_value(own).run()
    assert at.session_state["history"][-1].experts.counts.digest == own
    at.selectbox(key="forget-counts").set_value(own).run()
    assert at.button(key="forget-counts-yes").disabled
    at.selectbox(key="forget-counts").set_value(idle).run()
    assert "b.csv (58 × 256)** will be gone for good" in at.markdown[-1].value
    at.button(key="forget-counts-yes").click().run()
    assert not at.exception
    assert at.toast[0].value == "Counts deleted."
    assert [row.digest for row in store.counts.search().rows] == [own]
    store.counts.delete(own)  # by another visitor
    at.run()
    assert not at.exception
    assert "The expert counts a.csv are not stored here" in at.error[0].value
