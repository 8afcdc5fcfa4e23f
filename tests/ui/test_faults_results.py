"""The fault section of a finished run: the dip in figures, and where playback begins."""

import pytest

from tests.ui.playback_run import broken, done_broken
from tests.ui.stored_runs import done, scenario
from tests.ui.test_run import Runner, opened, words
from twin.scenario import Fault
from twin.ui import record, session
from twin.ui.charts import history
from twin.ui.pages.playback import player as playback
from twin.ui.pages.run import own_sections


@pytest.fixture(autouse=True)
def runner(store, monkeypatch):
    monkeypatch.setattr(session, "runner", lambda: Runner(store))


def sections_of(at):
    return next(w for w in at.get("button_group") if w.key == "section").options


def test_a_run_without_faults_has_no_fault_section(app, store):
    at = opened(app, done(store, scenario()))
    assert "Faults" not in sections_of(at)


def test_the_dip_is_told_in_figures_with_units_and_leads_to_its_moment(app, store):
    run = done_broken(store)
    at = opened(app, run, "Faults")
    assert "Faults" in sections_of(at)
    shown = {m.label: m.value for m in at.metric}
    assert shown["Output before"].endswith("tokens/s")
    assert number(shown["Lowest"]) < 0.5 * number(shown["Output before"])
    assert 14 <= number(shown["Back after"]) <= 17
    assert shown["Requests retried · lost"] == "0 · 0"  # the made-up requests were never thrown out
    assert "Decode 0 was out of service for 15.0 s" in words(at)
    [watch] = [link for link in at.get("page_link") if link.label == "Watch it"]
    assert "at=60" in watch.proto.query_string
    assert run in watch.proto.query_string


def number(text):
    return float(text.split()[0].replace(",", ""))


def test_a_fault_after_the_end_is_said(app, store):
    late = broken(faults=[{"at_s": 500.0, "element": "node 3"}])
    owner_run = done_broken(store, late)
    at = opened(app, owner_run, "Faults")
    assert not at.exception


def test_dips_are_found_once_and_marked_in_the_charts(app, store):
    app.run()
    run = done_broken(store)
    [dip] = own_sections.dips_of_run(run, 5.0, 0.1)
    assert dip.at_s == 60.0
    assert dip.down == (("decode 0", 15.0),)
    windows, events = record.table(run, "windows"), record.table(run, "events")
    chart = history.around_faults(windows, events, (), 20.0, "output_tokens_per_s")
    assert "1 fault" in chart.alt
    lines = [s for s in chart.figure.layout.shapes if s.type == "line"]
    assert 60.0 in [line.x0 for line in lines]


def test_an_old_run_is_not_offered_for_playback(app, store):
    run = done_broken(store, traffic=False)
    assert playback.missing_tables(run) == ["traffic"]
    at = opened(app, run)
    assert "Play back" not in [link.label for link in at.get("page_link")]


@pytest.mark.parametrize("column", ["tpot_s_mean", "ttft_s_mean"])
def test_what_is_slow_is_shaded_like_what_is_out(app, store, column):
    app.run()
    run = done_broken(store)
    windows, events = record.table(run, "windows"), record.table(run, "events")
    slow = Fault(element="plane ub", kind="derate", at_s=30.0, duration_s=20.0, factor=0.5)
    chart = history.around_faults(windows, events, (slow,), 20.0, column)
    shades = [(s.x0, s.x1) for s in chart.figure.layout.shapes if s.type == "rect"]
    assert (30.0, 50.0) in shades
