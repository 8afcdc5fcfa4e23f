"""The trace as a download of the Run page."""

import gzip

import pytest

from tests.extras.perfetto.trace_format import check, parsed
from tests.ui.stored_runs import done, scenario
from twin.extras.perfetto import section
from twin.lab.runs import watched
from twin.ui.pages import PAGES


@pytest.fixture
def same_engine(store, monkeypatch):
    """The engine here is the one that stored runs say they were made by."""
    version = store.runs.get(done(store, scenario("Any"))).engine_version
    monkeypatch.setattr(watched, "ENGINE_VERSION", version)


def test_a_trace_of_a_stored_run_keeps_the_format_even_when_nobody_is_there(store, same_engine):
    run = done(store, scenario())
    for begin_s, end_s in ((60.0, 61.0), (0.0, 0.0001)):
        made = section.trace_bytes(store, run, begin_s, end_s)
        found = parsed(gzip.decompress(made))
        check(found)
        assert {e["ph"] for e in found} >= {"M", "C"}
        assert made == section.trace_bytes(store, run, begin_s, end_s)


def test_a_run_of_another_engine_is_offered_as_a_new_run(store, app):
    app.switch_page(PAGES["run"].script)
    app.query_params["run"] = done(store, scenario())
    app.run()
    app.selectbox(key="download-what").select("Trace (Perfetto)").run()
    assert not app.exception
    assert app.button(key="trace-run-again").label == "Run it again"


def test_the_page_asks_which_span_and_stays_within_the_run(store, app, same_engine):
    run = done(store, scenario(horizon_s=30.0, warmup_s=10.0))
    app.switch_page(PAGES["run"].script)
    app.query_params["run"] = run
    app.run()
    app.selectbox(key="download-what").select("Trace (Perfetto)").run()
    assert not app.exception
    begin, length = app.number_input(key="trace-from"), app.number_input(key="trace-length")
    assert (begin.value, length.value) == (10.0, 2.0)
    assert begin.max < 30.0 and length.max <= section.LONGEST_TRACE_S
