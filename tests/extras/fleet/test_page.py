"""The page of a fleet: a form from declarations, runs as they are missing, what came out."""

import pytest

from tests.ui.stored_runs import queued
from twin.extras.fleet.page import form
from twin.extras.fleet.question import fleet_from, fleet_to_toml
from twin.lab.share import links
from twin.lab.store import Owner
from twin.metrics.registry import METRICS
from twin.ui import session
from twin.ui.pages import PAGES

TWO = {
    "name": "Two",
    "kinds": [{"name": "a", "scenario": "quickstart", "count": 2}],
    "lost": [{"kind": "a", "number": 1, "from_s": 100.0}],
}


@pytest.fixture
def page(app, begun):
    app.switch_page(PAGES["fleet"].script)
    app.session_state[form.BEGUN], app.session_state[form.TIMES] = fleet_from(TWO), 1
    app.run()
    assert not app.exception
    return app


def test_a_fleet_is_simulated_with_what_follows_from_it_and_shown(page, begun):
    page.button(key="fleet-run").click().run()
    for _ in range(3):  # what was inside the lost one is known, then the others are
        page.run()
    assert not page.exception
    assert len({s.name for s in begun}) == len(begun) == 3
    assert page.get("plotly_chart") and page.metric
    table = page.dataframe[-1].value
    assert table["Supernodes"].to_list() == [1, 1] and table["Run"].str.startswith("/run?").all()
    assert page.button(key="fleet-run").disabled
    assert "began again elsewhere" in " ".join(each.value for each in page.markdown)


def test_a_fleet_under_way_goes_on_in_a_page_that_is_loaded_again(page, store, begun, monkeypatch):
    """Also one whose next runs were not begun yet when its page was closed."""
    monkeypatch.setattr(session, "start_run", lambda scenario: queued(store, scenario))
    monkeypatch.setattr(session, "stop_run", store.runs.request_stop)
    page.button(key="fleet-run").click().run()
    assert page.button(key="fleet-stop")
    del page.session_state["fleet-runs"]  # all that a page loaded again has not
    page.run()
    assert not page.exception and page.button(key="fleet-stop")
    page.button(key="fleet-stop").click().run()
    assert "fleet-stop" not in [each.key for each in page.button]
    assert not page.exception and not page.error


def test_a_run_that_failed_is_said_until_the_fleet_is_begun_again(page, store, begun, monkeypatch):
    failing = {}

    def fails(scenario):
        run = failing[scenario.name] = queued(store, scenario)
        owner = Owner.current()
        store.runs.claim(owner, run)
        store.runs.fail(run, owner, "out of memory")
        return run

    monkeypatch.setattr(session, "start_run", fails)
    page.button(key="fleet-run").click().run()
    page.run()
    assert failing and ["out of memory" in each.value for each in page.error] == [True]
    assert "fleet-stop" not in [each.key for each in page.button]


def test_what_cannot_be_is_said_and_nothing_runs(page, begun):
    page.text_input(key="fleet-traffic:1").set_value("../secret.toml").run()
    assert not page.exception and "no preset" in page.warning[0].value and not begun
    page.text_input(key="fleet-traffic:1").set_value("").run()
    page.number_input(key="fleet-rate_req_per_s:1").set_value(-5.0).run()
    text = "Request rate (req/s) = -5 should be greater than or equal to 0."
    assert [each.value for each in page.warning] == [text]


def test_a_fleet_is_opened_from_its_link_and_a_damaged_one_is_said(app, begun):
    app.switch_page(PAGES["fleet"].script)
    app.query_params[form.LINK] = links.pack_text(fleet_to_toml(fleet_from(TWO)))
    app.run()
    assert app.session_state[form.BEGUN] == fleet_from(TWO)
    del app.session_state[form.BEGUN]
    app.query_params[form.LINK] = "broken"
    app.run()
    assert not app.exception and [each.value for each in app.error] == [
        "This link is damaged: copy it again, whole."
    ]


def test_a_field_of_the_form_changes_the_fleet(page):
    page.number_input(key="fleet-seeds:1").set_value(2).run()
    assert not page.exception
    assert "3 different simulations" in " ".join(each.value for each in page.caption)


def test_columns_of_the_table_have_a_unit_once_and_times_of_a_token_in_ms():
    heads = {
        key: form.column_header(METRICS[key]) for key in ("tpot_s_p99", "ttft_s_p99", "npu_hours")
    }
    assert heads["tpot_s_p99"].endswith("(ms)") and heads["ttft_s_p99"].endswith("(s)")
    assert heads["npu_hours"] == "NPU-hours"
    assert form.cell_value(METRICS["tpot_s_p99"], 0.044) == pytest.approx(44.0)
    assert form.cell_value(METRICS["ttft_s_p99"], 0.8) == 0.8
