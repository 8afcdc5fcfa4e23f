"""Charts: few points whatever the run's size, units on axes, a sentence for who cannot see."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from functools import partial

import numpy as np
import polars as pl
import pytest

from tests.ui.fake_run import fake_tables
from twin.lab.library import presets
from twin.metrics.measures import amount
from twin.model.timeline import Piece, Timeline
from twin.ui import charts, show
from twin.ui.charts import base
from twin.ui.charts import sweep as charts_sweep

SAYING = ("chart", "span_chart", "timeline", "waterfall")  # what takes the sentence below a chart


@pytest.fixture(scope="module")
def tables():
    return fake_tables(presets()[0].scenario)


def points(chart):
    return max(len(trace.x if trace.x is not None else trace.z) for trace in chart.figure.data)


def test_what_plotly_looks_for_is_loaded_before_the_first_figure():
    asked = "import sys, twin.ui.charts; sys.exit('pandas' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0


def test_a_distribution_of_a_million_is_few_points_and_keeps_its_quantiles():
    values = np.random.default_rng(1).gamma(2, 0.4, 1_000_000)
    chart = charts.distribution([charts.Curve("TTFT", "#123456", values)], slo_s=2.0)
    assert points(chart) == charts.QUANTILES
    line = chart.figure.data[0]
    middle = np.interp(50, line.y, line.x)
    assert middle == pytest.approx(np.median(values), rel=1e-3)
    assert "SLO 2.00 s" in chart.figure.layout.annotations[0].text
    assert "half within" in chart.alt


def test_a_distribution_is_in_the_unit_of_its_size():
    chart = charts.distribution([charts.Curve("TPOT", "#123456", [0.02, 0.03, 0.05])])
    assert chart.figure.layout.xaxis.title.text == "ms"
    assert max(chart.figure.data[0].x) == pytest.approx(50)


def test_a_far_promise_does_not_squeeze_the_curve():
    chart = charts.distribution([charts.Curve("a", "#123456", [0.1, 0.2])], slo_s=60.0)
    assert chart.figure.layout.xaxis.range[1] < 1000
    assert not chart.figure.layout.annotations


def test_nothing_to_show_is_said_instead_of_drawn():
    for chart in (
        charts.distribution([charts.Curve("a", "#123456", [])]),
        charts.stages({"mean": []}),
        charts.over_time("waiting", pl.DataFrame()),
        charts.dies(pl.DataFrame(), "busy_fraction", "busy", percent=True),
    ):
        assert not chart.figure.data
        assert chart.figure.layout.annotations[0].text
        assert chart.alt


@pytest.mark.parametrize(
    "draw",
    [*(partial(charts.over_time, name) for name in charts.OVER_TIME), charts.iteration_over_time],
)  # fmt: skip
def test_a_timeline_draws_windows_and_names_its_axes(tables, draw):
    windows = tables["windows"].with_columns(decode_npus=pl.lit(16.0))
    chart = draw(windows, warmup_s=2.0)
    assert points(chart) == tables["windows"].height
    assert "simulated time" in chart.figure.layout.xaxis.title.text
    assert chart.figure.layout.yaxis.title.text
    assert "on average" in chart.alt


@pytest.mark.parametrize("name", ["busy", "waiting"])
def test_the_word_warm_up_stands_above_the_data(tables, name):
    until_s = 0.5 * tables["windows"]["t_s"].max()
    chart = charts.over_time(name, tables["windows"].with_columns(prefill_busy=1.0), until_s)
    (word,) = chart.figure.layout.annotations
    assert word.text == "warm-up" and word.yanchor == "top"
    traces = [trace.y for trace in chart.figure.data]
    highest = np.sum(traces, axis=0).max() if name == "waiting" else np.max(traces)
    assert chart.figure.layout.yaxis.range[1] > 1.1 * highest


def test_what_is_nothing_all_along_gets_no_line(tables):
    chart = charts.over_time("busy", tables["windows"].with_columns(prefill_busy=pl.lit(0.0)))
    names = [trace.name for trace in chart.figure.data]
    assert "prefill busy, of the time" not in names
    assert "decode busy, of the time" in names


def test_a_die_that_instances_share_shows_the_highest_figure_in_its_own_cell():
    """An NPU that changed its role is a row of each of its instances, some without the figure."""
    dies = pl.DataFrame({"die": range(32), "node": [die // 16 for die in range(32)]})
    ranks = pl.concat(
        dies.with_columns(role=pl.lit(role), instance=0, rank=pl.col("die"), requests_mean=value)
        for role, value in (("decode", pl.lit(3.0)), ("prefill", pl.lit(None, pl.Float64)))
    )
    chart = charts.dies(ranks, "requests_mean", "Requests held", percent=False)
    (field,) = chart.figure.data
    assert np.asarray(field.z).shape == (16, 2) and np.all(np.asarray(field.z) == 3.0)
    assert all("decode 0" in name for name in np.asarray(field.customdata).ravel())
    assert "32 dies" in chart.alt


def test_an_iteration_stacks_to_its_whole_time(tables):
    chart = charts.iteration_over_time(tables["windows"])
    stacked = sum(float(np.mean(trace.y)) for trace in chart.figure.data)
    columns = [c for c in tables["windows"].columns if c.startswith("decode_") and c[-2:] == "_s"]
    columns.remove("decode_iteration_s")
    whole = sum(tables["windows"][c].mean() for c in columns)
    assert stacked == pytest.approx(1e3 * whole)


def test_bars_of_runs_have_their_letters_so_that_a_phone_has_room_for_bars():
    parts = [("prefill", 1.5)]
    axis = charts.stages({"A · Quick start · a change": parts, "slowest 1 %": parts}).figure
    assert list(axis.layout.yaxis.ticktext) == ["A", "slowest 1 %"]


def test_stages_say_each_part_of_the_way():
    chart = charts.stages({"mean": [("prefill_queue", 0.5), ("prefill", 1.5)]})
    assert [trace.name for trace in chart.figure.data] == ["Prefill queue", "Prefill"]
    assert "prefill 1.50 s" in chart.alt


def test_a_sentence_that_charts_of_two_columns_share_stands_once(monkeypatch):
    said = []
    monkeypatch.setattr(show, "plot", lambda chart, key: said.append(chart.reads))
    monkeypatch.setattr(show.st, "caption", said.append)
    one = base.empty_chart("Nothing")
    show.plot_all((n, one._replace(reads=r), n) for n, r in (("a", "x"), ("b", "x"), ("c", "y")))
    assert said == ["", "", "y", "x"]


def test_shares_read_as_percent():
    chart = charts.shares([("UB plane", 0.125, "#123456")])
    assert chart.figure.data[0].x[0] == pytest.approx(12.5)
    assert amount(0.125, "share") in chart.alt


def test_the_map_of_dies_has_a_cell_for_every_die(tables):
    ranks = tables["ranks"]
    chart = charts.dies(ranks, "busy_fraction", "busy", percent=True)
    cells = np.asarray(chart.figure.data[0].z, dtype=float)
    assert np.isfinite(cells).sum() == ranks.height
    assert cells[np.isfinite(cells)].max() <= 100


# Where time goes.


@pytest.fixture(scope="module")
def plan():
    """A layer of two streams, of which the second runs over into the next one."""
    pieces = (Piece(0, 0, 0.0, 0.3, (("attention_core", 1.0),)),
              Piece(1, 0, 0.5, 0.9, (("dispatch", 1.0), ("experts", 3.0))),
              Piece(0, 1, 0.5, 0.8, (("attention_core", 1.0),)),
              Piece(1, 1, 1.0, 1.4, (("dispatch", 1.0), ("experts", 3.0))))  # fmt: skip
    return Timeline(("attention", "MoE"), 58, 0.1, 0.9, pieces)


def test_a_layer_shows_both_streams_and_what_each_waits(plan):
    chart = charts.layer(plan, 1e-3)
    drawn = {trace.name: trace for trace in chart.figure.data}
    assert list(drawn) == ["Slack", "Attention core", "Dispatch", "Experts"]
    busy = sum(sum(drawn[name].x) for name in list(drawn)[1:])
    assert busy == pytest.approx(1000 * (0.6 + 0.8) * 1e-3)
    assert dict(charts.slack_by_stream(plan)) == pytest.approx({"attention": 0.4, "MoE": 0.2})
    assert "attention 40.0 %" in chart.alt and "MoE 20.0 %" in chart.alt
    assert (
        max(b + x for t in drawn.values() for b, x in zip(t.base or [0, 0], t.x, strict=True))
        <= 1.0 + 1e-9
    )


def test_what_is_at_work_names_the_slack_of_the_stream_that_waits(plan):
    chart = charts.operator_times([("MoE", "experts", 0.02), ("attention", "slack", 0.008),
                               ("", "lm_head", 0.003)], "iteration")  # fmt: skip
    assert list(chart.figure.data[0].y) == ["Experts", "LM head", "Slack of attention"]
    assert "ms" in chart.figure.layout.xaxis.title.text


def test_a_request_stands_beside_the_median_part_by_part():
    colours = {"front end": "#111111", "prefill": "#222222"}
    median = {"front end": 0.1, "prefill": 0.2}
    parts = {"front end": 0.1, "prefill": 0.5}
    chart = charts.waterfall(parts, "Parts.", colours=colours, median=median)
    one, usual = chart.figure.data
    assert list(one.base) == pytest.approx([0.0, 100.0]) and list(one.x)[1] == pytest.approx(500)
    assert list(usual.x)[1] == pytest.approx(200)
    assert "prefill 500 ms (median 200 ms)" in chart.alt
    room = chart.figure.layout.margin.r  # a phone's chart has no other for the label of the last
    assert room >= 5.5 * max(map(len, one.text)) and chart.figure.layout.xaxis.range[1] <= 600


def test_columns_of_a_csv_are_named_and_hold_more_than_a_bar_can_show(tables, plan):
    one = charts_sweep.Difference("TTFT", 0, 3.5, "+350 %", "1 s → 4.5 s", "worse")
    compared = charts_sweep.differences([one], ["B · other"], "differs in results").figure
    assert compared.data[0].x[0] == 100 and compared.data[0].meta["x"] == [350]
    spans = base.span_chart(
        ["decode 0"], {"down": ("#123456", [("decode 0", 5.0, 5.01, "")])}, "", "", "instance",
        horizon_s=90.0,
    ).figure  # fmt: skip
    assert spans.data[0].x[0] > 0.2 and spans.data[0].meta["x"] == pytest.approx([0.01])
    for figure in (
        compared, spans, charts.stages({"mean": [("prefill", 0.5)]}).figure,
        charts.shares([("UB plane", 0.1, "#123456")]).figure, charts.reasons({"refused": 3}).figure,
        charts.layer(plan, 1e-3).figure, charts.operator_times([("", "lm_head", 1.0)], "x").figure,
        charts.operators_by_run({"A": ("#123456", {"experts": 0.01})}).figure,
        charts.waterfall({"prefill": 0.5}, "Parts.").figure,
        charts.dies(tables["ranks"], "busy_fraction", "busy", percent=True).figure,
    ):  # fmt: skip
        named = {axis for axis in "xy" if figure.layout[f"{axis}axis"].title.text}
        named |= set(figure.layout.meta or ())
        assert named >= ({"x", "y", "z"} if figure.data[0].type == "heatmap" else {"x", "y"})


def test_every_chart_has_a_crosshair():
    axes = charts.figure().layout
    assert axes.xaxis.showspikes and axes.yaxis.showspikes


def test_every_chart_says_below_how_it_is_read():
    """A figure becomes a chart in one place, which takes a sentence; only an empty one has none."""
    for draw in (charts.base.chart, charts.base.span_chart, charts.timeline, charts.waterfall):
        assert inspect.signature(draw).parameters["reads"].default is inspect.Parameter.empty
    found = pkgutil.iter_modules(charts.__path__, charts.__name__ + ".")
    made, silent = [], []
    for module in (charts, *(importlib.import_module(one.name) for one in found)):
        for call in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(call, ast.Call):
                name = getattr(call.func, "attr", getattr(call.func, "id", ""))
                given = [*call.args, *(keyword.value for keyword in call.keywords)]
                empty = any(isinstance(one, ast.Constant) and one.value == "" for one in given)
                made += [module.__name__] if name == "Chart" else []
                silent += [module.__name__] if name in SAYING and empty else []
    assert made == silent == ["twin.ui.charts.base"]
    assert all(entry["reads"] for entry in charts.OVER_TIME.values())


def test_a_chart_without_anything_to_draw_does_not_say_how_it_is_read():
    assert not charts.reasons({}).reads
    assert charts.reasons({"refused": 3}).reads


def test_a_long_name_in_a_legend_keeps_both_ends():
    name = "Quick start, 8 prefill instances and a larger memory pool"
    known = charts.distribution([charts.Curve(name, "red", [1.0, 2.0])])
    short = known.figure.data[0].name
    assert len(short) < 36 and short.startswith(name[:16]) and short.endswith(name[-12:])
    assert name in known.figure.data[0].hovertemplate and name in known.alt
