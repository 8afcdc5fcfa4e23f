"""A metric is one entry: declared once, it stands in the summary and everywhere that reads it."""

import dataclasses
from collections import defaultdict

import pytest

from docs.make import metric_table
from tests.ui.fake_run import fake_tables
from twin.commands import runs as commands
from twin.lab.library import terms
from twin.lab.sweep.compare import metric_row
from twin.metrics.observed import Observed
from twin.metrics.registry import LINE, METRICS, Metric, as_text, metric_of, summarise, verdict
from twin.scenario import Scenario
from twin.ui import runs
from twin.ui.pages.compare import comparison
from twin.ui.pages.library.stored import figure_columns
from twin.ui.pages.run import results, sections
from twin.ui.pages.run.results import tile_rows


@pytest.fixture
def dummy(monkeypatch):
    """A metric nobody knows, as someone would add it."""
    metric = Metric(
        "dummy_fraction", "Dummy share", "share", "%", "higher", "Half of what there is.", "use",
        of=lambda run: 0.5 if run.requests.height else None, basis="whole machine", places=LINE,
        slo=lambda s: s.slo.ttft_s, note=("requests", "of {}"),
    )  # fmt: skip
    monkeypatch.setitem(METRICS, metric.key, metric)
    return metric


def test_a_metric_that_is_declared_stands_everywhere(dummy, monkeypatch):
    key, label, said = dummy.key, dummy.tile, "50.0 %"
    scenario = Scenario()
    totals = defaultdict(lambda: 1.0)
    summary = summarise(Observed(scenario, fake_tables(scenario)["requests"], totals))
    assert summary[key] == 0.5
    tiles = {tile["label"]: tile for tile in tile_rows(summary, Scenario())}
    assert tiles[label]["value"] == said and "of " in tiles[label]["delta"]
    assert f"dummy share {said}" in runs.headlines(summary)
    assert ("Dummy share (%)", key) in [figure[:2] for figure in figure_columns()]
    row = metric_row(key, [0.5, 0.25], 0)
    assert comparison.figures_of([row], "Headlines") == comparison.figures_of([row], "Use") == [row]
    assert row.verdicts == ("same", "worse") and row.cell_texts()[0] == said
    assert (dummy.label, 0.5) in [row[:2] for row in sections.use_shares(summary)]
    assert f"| `{key}` | {label} |" in metric_table()
    stored = dataclasses.make_dataclass("Row", ["summary"])(summary)
    assert key in results.summary_table(stored)["figure"]
    printed = []
    monkeypatch.setattr(commands.terminal, "print_rows", lambda *table: printed.append(table))
    body = {"summary": summary, "name": "a", "notes": [], "broken_checks": [], "wall_s": 1.0,
            "requests": 1, "run": None}  # fmt: skip
    commands.print_run(body)
    assert (key, said) in printed[0][2]


def test_every_metric_has_a_unit_and_says_what_it_counts():
    for key, metric in METRICS.items():
        text = as_text(key, 1234.5)
        assert not text.replace(",", "").replace(".", "").isdigit(), key
        assert metric.help and metric.label, key


def test_every_term_of_a_metric_stands_in_the_glossary():
    assert {m.term for m in METRICS.values() if m.term} <= set(terms())


def test_what_is_no_metric_of_a_scenario_is_not_shown():
    tokens = METRICS["tokens_per_s_per_npu"]
    alone = Scenario(deployment={"mode": "prefill_only"})
    assert tokens.shows("tile", 5.0, Scenario()) and not tokens.shows("tile", 5.0, alone)
    assert not tokens.shows("line", 5.0) and not tokens.shows("tile", None)
    assert not METRICS["lost"].shows("table", 0) and METRICS["lost"].shows("table", 1)


def test_a_figure_that_is_not_declared_is_read_from_its_name():
    assert metric_of("ttft_other_s_p99").kind == "time"
    assert as_text("reload_bytes_per_s_mean", 2.5e9) == "2.50 GB/s"


def test_less_waiting_is_better_and_more_tokens_are_better():
    assert verdict("ttft_s_p99", 1.0, 2.0) == "better"
    assert verdict("goodput_req_per_s", 1.0, 2.0) == "worse"
    assert verdict("goodput_req_per_s", 2.0, 2.0) == "same"
    assert verdict("requests", 1.0, 2.0) == ""
