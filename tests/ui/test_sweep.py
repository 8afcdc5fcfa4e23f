"""The sweep page: fields over ranges, results as they come, an address that opens the same."""

from types import SimpleNamespace

import pytest

from tests.ui.stored_runs import queued
from twin.lab.sweep import sweep
from twin.ui import session
from twin.ui.charts import sweep as charts
from twin.ui.pages import PAGES
from twin.ui.pages.sweep import points

RATE = "workload.rate_req_per_s"


def opened(app, *over):
    app.switch_page(PAGES["sweep"].script)
    app.query_params["over"] = list(over)
    app.run()
    assert not app.exception
    return app


def test_a_sweep_asks_for_each_point_and_draws_what_came(app, begun):
    opened(app, f"{RATE}=50:150:3").button(key="simulate").click().run()
    assert not app.exception
    assert [s.workload.rate_req_per_s for s in begun] == [50.0, 100.0, 150.0]
    assert app.get("plotly_chart")
    assert "SLO" in app.subheader[0].value
    table = app.dataframe[0].value
    assert len(table["Run"]) == 3
    assert (
        "Energy per token (J/token)" in table and "Cost (/ M tokens)" not in table
    )  # no price is set
    assert app.button(key="simulate").disabled


@pytest.mark.parametrize(
    "over",
    [
        f"{RATE}=1:1e99:7",
        f"{RATE}=-5:100:3",
        f"{RATE}=" + ",".join(map(str, range(1, 60))),
        "router.policy=least_loaded,<b>x",
        "deployment.prefill.instances=1,1e99",
        "memory_pool.enabled=true,5",
    ],
)
def test_an_address_with_values_that_no_field_has_opens(app, over):
    opened(app, over)
    assert not any("unforeseen" in error.value for error in app.error)


def test_a_sweep_under_way_goes_on_in_a_page_that_is_loaded_again(app, store, monkeypatch):
    monkeypatch.setattr(session, "start_run", lambda scenario: queued(store, scenario))
    monkeypatch.setattr(session, "stop_run", store.runs.request_stop)
    opened(app, f"{RATE}=50:150:3").button(key="simulate").click().run()
    del app.session_state[points.STARTED]  # all that a page loaded again has not
    app.run()
    assert not app.exception and app.button(key="simulate").disabled
    app.button(key="stop-sweep").click().run()
    assert not app.exception and not app.button(key="simulate").disabled


def test_points_that_were_stopped_can_be_simulated_after_all(app, store, monkeypatch):
    monkeypatch.setattr(session, "start_run", lambda scenario: queued(store, scenario))
    monkeypatch.setattr(session, "stop_run", store.runs.request_stop)
    opened(app, f"{RATE}=50:150:3").button(key="simulate").click().run()
    app.button(key="stop-sweep").click().run()
    button = app.run().button(key="simulate")
    assert button.label == "Simulate 3 points" and not button.disabled
    assert app.button(key="simulate").click().run().button(key="stop-sweep")


def test_nothing_is_drawn_before_a_point_was_begun_and_a_point_that_cannot_be_is_said(app, begun):
    opened(app, "deployment.decode.npus_per_instance=80:320:4")  # 96 prefill, 384 in all
    assert not app.get("plotly_chart")
    assert any("needs 416 NPUs but" in caption.value for caption in app.caption)
    app.button(key="simulate").click().run()
    assert len(begun) == 3
    assert "SLO" in app.subheader[0].value  # of the points that can be


def test_what_a_token_costs_is_drawn_where_a_price_is_set():
    runs = [SimpleNamespace(summary={"joules_per_token": 2.0}), None]
    assert points.metric_keys("panel", runs)[-1] == "joules_per_token"
    runs[0].summary["cost_per_million_tokens"] = 1.5
    assert points.metric_keys("panel", runs)[-1] == "cost_per_million_tokens"


def test_whoever_asks_where_it_breaks_gets_it_simulated(app, begun):
    app.run().button(key="where-it-breaks").click().run()
    assert not app.exception
    assert app.title[0].value == "Sweep"
    rates = [s.workload.rate_req_per_s for s in begun]
    assert len(rates) == 9
    assert rates[0] < 100 < rates[-1]


def test_a_broken_address_is_said_and_the_form_stands(app):
    opened(app, "nothing=1:2:3")
    assert "not a field" in app.error[0].value
    assert app.selectbox(key="sweep-field-0").value == RATE


def test_two_fields_make_a_line_for_each_value_of_the_second(app, begun):
    opened(app, f"{RATE}=50:100:2", "deployment.prefill.instances=4,6")
    app.button(key="simulate").click().run()
    assert not app.exception
    assert len(begun) == 4


def test_a_field_cannot_be_swept_for_each_value_of_itself(app):
    opened(app, f"{RATE}=50:100:2", f"{RATE}=20:40:2")
    second = app.selectbox(key="sweep-field-1")
    assert second.value is None
    assert second.options and "Request rate (req/s)" not in second.options
    second.set_value("deployment.prefill.instances").run()
    app.selectbox(key="sweep-field-0").set_value("deployment.prefill.instances").run()
    assert not app.exception


def test_every_field_that_is_offered_has_a_usual_range(app):
    seen = {}

    def remember():
        seen.update({path: points.default_axis(path) for path in points.sweepable_fields()})

    app.run()
    session_of(app, remember)
    assert len(seen) > 60
    assert all(len(axis.values) >= 2 for axis in seen.values())


def session_of(app, function):
    """Call a function as if a page of this app's session did."""
    from streamlit.testing.v1 import AppTest

    def script():
        from tests.ui.test_sweep import CALLS

        CALLS.pop()()

    CALLS.append(function)
    ran = AppTest.from_function(script, default_timeout=120).run()
    assert not ran.exception


CALLS = []


def test_the_axes_stand_with_the_slo_before_the_first_point():
    axis = sweep.parse_axis(f"{RATE}=50:150:3")
    waiting = [charts.SweepPoint(x, {}, False, {"ttft_s_p99": 5.0}) for x in axis.values]
    figure = charts.metric_over_field(axis, "ttft_s_p99", {"": waiting}).figure
    assert {a.text for a in figure.layout.annotations} == {"SLO 5.00 s"}
    assert figure.layout.xaxis.range == (46.0, 154.0)
    assert figure.layout.yaxis.range == (0, 6.5)
    done = [
        charts.SweepPoint(x, {"ttft_s_p99": 0.5}, True, {"ttft_s_p99": 5.0}) for x in axis.values
    ]
    later = charts.metric_over_field(axis, "ttft_s_p99", {"": done[:1] + waiting[1:]}).figure
    assert later.layout.xaxis.range == figure.layout.xaxis.range  # points come, the axis stays
    assert list(later.data[0].x) == [50.0]


def test_the_pictures_mark_knee_slo_and_published_points():
    axis = sweep.parse_axis(f"{RATE}=50:150:3")
    limits = {"ttft_s_p99": 5.0, "tpot_s_p99": 0.05}
    ran = [
        charts.SweepPoint(
            x,
            {"ttft_s_p99": t, "tpot_s_p99": 0.03, "tpot_s_mean": 0.02,
             "decode_tokens_per_s_per_npu": 900.0},
            t < 5, limits,
        )
        for x, t in ((50.0, 1.0), (100.0, 2.0), (150.0, 8.0))
    ]  # fmt: skip
    figure = charts.metric_over_field(axis, "ttft_s_p99", {"": ran}).figure
    assert list(figure.data[0].marker.symbol) == ["circle", "circle", "circle-open"]
    assert {a.text for a in figure.layout.annotations} == {"knee", "SLO 5.00 s"}
    assert [s.x0 for s in figure.layout.shapes if s.x0 == s.x1] == [125.0]
    front = charts.frontier(axis, {"": ran}, sweep.published_points())
    assert list(front.figure.data[0].x) == [50.0] * 3
    assert len(front.figure.data[1].x) == len(sweep.published_points())
    names = [name for name in front.figure.data[1].text if name]
    assert names and len(set(names)) == len(names)  # more would cover each other on a phone
    assert "50 tokens/s a user" in front.alt
    slow = [p._replace(summary={**p.summary, "decode_tokens_per_s_per_npu": 20.0}) for p in ran]
    assert (
        len(charts.frontier(axis, {"": slow}, sweep.published_points()).figure.data) == 1
    )  # 100 x less
    assert list(front.figure.data[0].error_x.array) == [0.0] * 3  # nothing is known of these
    known = [p._replace(bands={charts.FOR_USER: (0.8, 1.25)}) for p in ran]
    bars = charts.frontier(axis, {"": known}, []).figure.data[0].error_x
    assert list(bars.array) == pytest.approx([12.5] * 3)  # a shorter TPOT is more speed
    assert list(bars.arrayminus) == pytest.approx([10.0] * 3)


@pytest.mark.parametrize("dark, background", [(False, "#FFFFFF"), (True, "#12151C")])
def test_every_line_of_a_sweep_stands_out_from_the_background(dark, background):
    def light(colour):
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    axis = sweep.parse_axis(f"{RATE}=50:150:3")
    ran = [charts.SweepPoint(x, {"ttft_s_p99": 1.0}, True, {}) for x in axis.values]
    lines = {str(k): ran for k in range(6)}
    drawn = charts.metric_over_field(axis, "ttft_s_p99", lines, dark=dark).figure
    for line in drawn.data:
        lesser, larger = sorted([light(line.line.color), light(background)])
        assert (larger + 0.05) / (lesser + 0.05) > 1.9
