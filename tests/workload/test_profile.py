"""Load over time: as many requests in every stretch as the area under the profile asks for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.engine.small import recorded
from twin.lab.library import load_facts
from twin.scenario import Scenario, SpecError, with_overrides
from twin.workload.generate import generate_requests
from twin.workload.offered import offered_load
from twin.workload.profile import (
    Clock,
    closed_loop_arrivals,
    first_turn_times_s,
    length_factor_at,
    mean_rate_factor,
    rate_factor_at,
    rate_factors,
    scaled_lengths,
)
from twin.workload.requests import WorkloadError

FACTS = load_facts()
SHAPES = ("constant", "ramp", "step", "spike", "day", "servegen_r1_day")


def asked(shape, **settings):
    more = {f"workload.profile.{name}": value for name, value in settings.items()}
    return with_overrides(Scenario(), {"workload.profile.shape": shape, **more}).workload


def times(workload, horizon_s=200.0, trace=None):
    return generate_requests(workload, horizon_s, 1, 128, FACTS, trace).arrival_s


@pytest.mark.parametrize("arrivals", ["poisson", "gamma", "uniform"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_stretch_has_its_share_of_the_requests(shape, arrivals):
    workload = asked(shape, at_s=50.0, lasts_s=60.0, period_s=200.0).model_copy(
        update={"rate_req_per_s": 100.0, "arrivals": arrivals}
    )
    arrived = times(workload)
    assert np.all(np.diff(arrived) >= 0.0) and arrived[0] >= 0.0 and arrived[-1] < 200.0
    edges, factor = (
        rate_factors(workload, 200.0, FACTS) if shape != "constant" else ([0, 200], [1.0])
    )
    area = np.concatenate(([0.0], np.cumsum(np.diff(edges) * factor)))
    stretches = np.linspace(0.0, 200.0, 11)
    wanted = 100.0 * np.diff(np.interp(stretches, edges, area))
    counted = np.histogram(arrived, stretches)[0]
    assert np.all(np.abs(counted - wanted) < 5.0 * np.sqrt(wanted) + 2.0)
    assert mean_rate_factor(workload, 200.0, FACTS) == pytest.approx(wanted.sum() / 2e4, rel=1e-3)


@draws(20)
@given(
    st.sampled_from(SHAPES), st.floats(0, 3), st.floats(0.01, 3), st.floats(0, 250),
    st.floats(0.1, 100), st.floats(1, 400),
)  # fmt: skip
def test_the_clock_keeps_order_and_loses_nobody(shape, low, high, at_s, lasts_s, period_s):
    workload = asked(shape, low=low, high=high, at_s=at_s, lasts_s=lasts_s, period_s=period_s)
    try:
        clock = Clock(workload, 200.0, FACTS)
    except WorkloadError as refusal:
        assert low == 0.0 and "no load" in str(refusal)
        return
    own = np.linspace(0.0, clock.own_horizon_s, 500, endpoint=False)
    seconds = clock.seconds(own)
    assert np.all(np.diff(seconds) > 0.0) and seconds[0] >= 0.0 and seconds[-1] <= 200.0


def test_nobody_arrives_where_there_is_no_load():
    arrived = times(asked("spike", low=0.0, high=2.0, at_s=50.0, lasts_s=10.0))
    assert arrived.size > 800 and arrived.min() >= 50.0 and arrived.max() < 60.0


def test_recorded_arrivals_come_slower_and_faster_and_lengths_stay():
    trace = recorded([float(k) for k in range(100)], [500] * 100, [20] * 100)
    workload = asked("step", low=0.5, high=2.0, at_s=40.0).model_copy(
        update={"arrivals": "trace", "trace": Scenario().workload.trace}
    )
    arrived = times(workload, 1000.0, trace)
    assert arrived[20] == pytest.approx(40.0) and arrived[60] == pytest.approx(60.0)
    assert arrived.size == 100


def test_the_published_day_has_mean_one_and_its_published_peak():
    curve = np.array(FACTS["days.servegen_r1"].value)
    assert curve.mean() == pytest.approx(1.0, abs=1e-3) and curve.size == 144
    assert curve.max() == pytest.approx(42.52 / 16.0147, rel=1e-3)


def test_what_is_offered_is_the_mean_over_the_run():
    scenario = with_overrides(Scenario(), {"workload.profile.shape": "step", "horizon_s": 120.0,
                                           "workload.profile.at_s": 60.0})  # fmt: skip
    assert offered_load(scenario, FACTS).rate_req_per_s == pytest.approx(60.0, rel=1e-3)


def test_lengths_follow_the_published_day_and_keep_their_mean():
    asked = {
        "workload.arrivals": "uniform", "workload.rate_req_per_s": 50.0,
        "workload.lengths": "servegen-deepseek-r1", "horizon_s": 1440.0,
        "workload.profile.shape": "servegen_r1_day", "workload.profile.period_s": 1440.0,
    }  # fmt: skip
    plain, moved = (
        generate_requests(
            with_overrides(Scenario(), asked | {"workload.profile.lengths": on}).workload,
            1440.0, 1, 128, load_facts())
        for on in (False, True)
    )  # fmt: skip
    assert np.array_equal(plain.arrival_s, moved.arrival_s)
    for side in ("input_tokens", "output_tokens"):
        before, after = getattr(plain, side), getattr(moved, side)
        assert after.mean() == pytest.approx(before.mean(), rel=0.03)
        hour = (moved.arrival_s / 60.0).astype(int)
        ratio = np.bincount(hour, after) / np.bincount(hour, before)
        curve = np.array(load_facts()[f"days.servegen_r1_{side[:-7]}"].value).reshape(24, 6)
        assert ratio == pytest.approx(curve.mean(axis=1), rel=0.25)


def test_pieces_change_rate_and_lengths_from_their_times_on():
    pieces = [{"at_s": 50.0, "rate": 0.0}, {"at_s": 100.0, "rate": 2.0, "output": 3.0}]
    arrived = times(asked("constant", pieces=pieces))
    counts = np.histogram(arrived, [0.0, 50.0, 100.0, 200.0])[0]
    assert counts[1] == 0 and counts[2] / counts[0] == pytest.approx(4.0, rel=0.1)
    workload = asked("day", pieces=pieces)
    t = np.array([10.0, 70.0, 150.0])
    plain = rate_factor_at(asked("day"), t, 200.0, FACTS)
    assert rate_factor_at(workload, t, 200.0, FACTS) == pytest.approx(plain * [1.0, 0.0, 2.0])
    assert length_factor_at(workload, t, "output", FACTS).tolist() == [1.0, 1.0, 3.0]
    tokens = np.array([7, 7, 7], np.int32)
    assert scaled_lengths(workload, t, tokens, "output", FACTS).tolist() == [7, 7, 21]


@pytest.mark.parametrize("shape", ["day", "servegen_r1_day"])
def test_a_run_that_begins_later_in_the_day_has_the_rest_of_it(shape):
    t = np.arange(0.5, 100.0)
    of_day = rate_factor_at(asked(shape, period_s=200.0), t + 70.0, 200.0, FACTS)
    later = rate_factor_at(asked(shape, period_s=200.0, begins_s=70.0), t, 100.0, FACTS)
    np.testing.assert_allclose(later, of_day, rtol=1e-12)


def test_pieces_out_of_order_are_refused():
    with pytest.raises(SpecError, match="put their rows in order of at_s"):
        asked("constant", pieces=[{"at_s": 2.0}, {"at_s": 1.0}])


def test_clients_of_a_ramp_begin_evenly_and_are_let_in_by_the_engine():
    assert first_turn_times_s(4, 2.0).tolist() == [0.0, 0.5, 1.0, 1.5]
    assert first_turn_times_s(4, 0.0).size == 0
    assert closed_loop_arrivals(2, 3)[:2].tolist() == [0.0, 0.0]
    assert closed_loop_arrivals(2, 3, 1.0).min() == pytest.approx(float("inf"))
