"""Popularity over time: stationary, forgetful, stable between shifts, and the same when asked."""

import math
import tomllib

import numpy as np
import pytest

from twin.experts import (
    ExpertsError,
    Routed,
    chances_at,
    first_slots,
    long_run_chances,
    measured_load,
    mix_at,
    place,
    start_process,
    topics_of,
)
from twin.experts.process import _drift_at
from twin.facts import facts_from_tables
from twin.lab.library import DATA
from twin.scenario import Experts

FACTS = facts_from_tables({"experts": tomllib.loads((DATA / "experts.toml").read_text())})
SD = FACTS.si("experts.drift.log_sd")


def process(layers=8, seed=1, counts=None, **fields):
    return start_process(Routed(Experts(**fields), 256, layers, 8, FACTS, seed), counts)


def hot(chances, share=0.05):
    """The hottest experts of every layer, as a set of (layer, expert)."""
    most = round(share * chances.shape[1])
    order = np.argsort(-chances, axis=1, kind="stable")[:, :most]
    return {(layer, int(e)) for layer, row in enumerate(order) for e in row}


def test_frozen_popularity_is_one_draw():
    got = process()
    drawn = chances_at(got, 0.0).tobytes()
    for t in (17.0, 1e6):
        assert chances_at(got, t).tobytes() == drawn
    assert chances_at(process(drift_s=60.0), 0.0).tobytes() == drawn
    assert measured_load(got, 60.0, 60.0).tobytes() == drawn != long_run_chances(got).tobytes()


def test_equal_questions_share_what_is_drawn_and_placed():
    asked = {"drift_s": 60.0, "topics": 2}
    got = process(**asked)
    assert process(**asked) is got and process(seed=2, **asked) is not got
    assert chances_at(got, 17.0) is chances_at(got, 17.0) and chances_at(
        got, 17.0
    ) is not chances_at(got, 18.0)
    assert chances_at(got, 17.0, np.ones(2)) is chances_at(got, 17.0, np.full(2, 0.5))
    experts = Experts(**asked)
    slots = first_slots(experts, got, 32, 9, 4, 8)
    assert first_slots(experts, got, 32, 9, 4, 8) is slots
    assert (slots == place(experts, long_run_chances(got), 32, 9, 4, groups=8)).all()
    counts = np.ones((8, 256))
    given = {"popularity": "imported", "counts": counts}
    assert process(**given) is not process(**given)  # counts may change under the same name


@pytest.mark.parametrize(
    "fields",
    [
        {"popularity": "uniform"},
        {"popularity": "power_law", "drift_s": 100.0},
        {"drift_s": 100.0, "shift_every_s": 70.0, "topics": 3, "skew": 2.0},
    ],
)
def test_chances_are_chances_at_every_time(fields):
    got = process(**fields)
    for t in (0.0, 33.0, 211.0):
        chances = chances_at(got, t)
        assert chances.min() > 0 and chances.max() <= 1.0
        assert np.allclose(chances.sum(axis=1), 8.0, rtol=1e-12)
    if fields.get("popularity") == "uniform":
        assert np.ptp(chances) < 1e-12


def test_asked_again_or_out_of_order_it_answers_the_same():
    got = process(drift_s=100.0, shift_every_s=170.0, topics=2)
    times = [0.0, 40.0, 250.0, 900.0]
    forward = [chances_at(got, t).tobytes() for t in times]
    assert [chances_at(got, t).tobytes() for t in reversed(times)] == forward[::-1]
    other = process(drift_s=100.0, shift_every_s=170.0, topics=2, seed=2)
    assert chances_at(other, 40.0).tobytes() != forward[1]


def test_drift_is_stationary_and_forgets_within_its_time():
    got = process(layers=20, drift_s=100.0)
    noise = {t: _drift_at(got, t).ravel() for t in np.arange(0.0, 2000.0, 31.0).tolist()}
    assert all(v.std() == pytest.approx(SD, rel=0.04) for v in noise.values())
    assert all(abs(v.mean()) < 4 * SD / math.sqrt(v.size) for v in noise.values())
    lag = 2.5  # the autocorrelation integrates to drift_s, averaged over where between knots
    pairs = 0.0
    for begin in np.arange(0.0, 123.0, 24.6).tolist():
        first = _drift_at(got, begin)
        for step in range(104):
            pairs += float((first * _drift_at(got, begin + (step + 0.5) * lag)).mean()) / SD**2
    assert pairs / 5 * lag == pytest.approx(100.0, rel=0.03)


def test_hot_set_is_stable_under_drift_and_changes_with_a_shift():
    got = process(layers=58, drift_s=600.0, shift_every_s=3600.0)
    first = hot(chances_at(got, 0.0))
    stays = len(first & hot(chances_at(got, 3500.0))) / len(first)
    after = len(first & hot(chances_at(got, 3700.0))) / len(first)
    assert stays > 0.75 and after < stays - 0.15
    unchanged = process(layers=58, shift_every_s=3600.0)
    assert chances_at(unchanged, 10.0).tobytes() == chances_at(unchanged, 3599.0).tobytes()
    sizes = [
        np.sort(chances_at(unchanged, t), axis=1)[:, -10:].mean() for t in (10.0, 3700.0, 7300.0)
    ]
    assert np.ptp(sizes) < 0.05 * sizes[0]  # another hot set, not another skew


def test_topics_swing_round_and_average_to_even():
    got = process(topics=4, mix_period_s=400.0)
    mix = np.array([mix_at(got, t) for t in range(0, 400, 4)])
    assert np.allclose(mix.sum(axis=1), 1) and np.allclose(mix.mean(axis=0), 0.25)
    assert mix[0].argmax() == 0 and mix[25].argmax() == 1 and mix[75].argmax() == 3
    assert np.allclose(mix_at(got, 10.0), mix_at(got, 410.0))
    alone = [chances_at(got, 0.0, np.eye(4)[k]) for k in range(4)]
    both = chances_at(got, 0.0, np.array([1.0, 0.0, 3.0, 0.0]))
    assert np.allclose(both, 0.25 * alone[0] + 0.75 * alone[2])
    assert len(hot(alone[0]) & hot(alone[1])) < len(hot(alone[0]))


def test_requests_follow_the_mix_and_sessions_keep_their_topic():
    got = process(topics=2, mix_period_s=1000.0)
    arrival = np.linspace(0.0, 1000.0, 20_000)
    alone = topics_of(got, arrival, np.full(20_000, -1), 1)
    for lo in (0, 8_000, 16_000):
        expected = np.mean([mix_at(got, t)[1] for t in arrival[lo : lo + 2_000]])
        assert alone[lo : lo + 2_000].mean() == pytest.approx(expected, abs=0.03)
    session = np.random.default_rng(1).integers(0, 500, 20_000)
    kept = topics_of(got, arrival, session, 1)
    assert all(np.ptp(kept[session == s]) == 0 for s in range(0, 500, 50))
    assert kept.tobytes() == topics_of(got, arrival, session, 1).tobytes()
    more = topics_of(got, np.append(arrival, 1001.0), np.append(session, 500), 1)
    assert more[:-1].tobytes() == kept.tobytes()
    assert not topics_of(process(), arrival, session, 1).any()


def test_measuring_averages_the_window():
    got = process(drift_s=50.0)
    exact = measured_load(got, 1000.0, 1000.0)
    far = np.abs(np.log(exact) - np.log(long_run_chances(got))).mean()
    assert far < np.abs(np.log(chances_at(got, 1000.0)) - np.log(long_run_chances(got))).mean()


def test_power_law_is_as_skewed_in_every_layer_as_nvidia_draws_it():
    chances = long_run_chances(process(layers=6, popularity="power_law"))
    hottest = chances.max(axis=1) / chances.mean(axis=1)
    assert np.allclose(hottest, hottest[0]) and 8 < hottest[0] < 11
    ordered = np.sort(chances[0])
    gini = 1 - 2 * float((np.cumsum(ordered) / ordered.sum()).mean()) + 1 / 256
    assert 0.74 < gini < 0.84
    even = long_run_chances(process(layers=2, popularity="power_law", skew=0.0))
    assert np.ptp(even) < 1e-12
    steep = long_run_chances(process(layers=1, popularity="power_law", power_law_alpha=2.0))
    assert steep.max() > chances.max()


def test_imported_counts_are_the_long_run():
    counts = np.random.default_rng(1).integers(0, 50, (4, 256)).astype(float) + 1
    got = long_run_chances(process(layers=4, popularity="imported", counts=counts))
    assert np.allclose(got, 8 * counts / counts.sum(axis=1, keepdims=True))
    counts[0, 0] = 0.0
    assert (
        0 < long_run_chances(process(layers=4, popularity="imported", counts=counts))[0, 0] < 1e-3
    )
    flat = long_run_chances(process(layers=4, popularity="imported", counts=counts, skew=0.0))
    assert np.ptp(flat) < 1e-12


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (None, "the expert counts my.csv are not here: import their file first"),
        (np.ones((3, 256)), "hold 3 x 256 layers x experts, but the model has 4 MoE layers x 256"),
        (np.zeros((4, 256)), "some above 0 in every layer"),
    ],
)
def test_counts_that_do_not_fit_are_refused(counts, words):
    named = {"name": "my.csv", "digest": "0" * 64}
    experts = Experts(popularity="imported", counts=named)
    with pytest.raises(ExpertsError, match=words):
        start_process(Routed(experts, 256, 4, 8, FACTS, 1), counts)


def test_questions_outside_time_or_topics_are_refused():
    with pytest.raises(ExpertsError, match="popularity begins at 0 s"):
        chances_at(process(), -1.0)
    with pytest.raises(ExpertsError, match="give 2 weights"):
        chances_at(process(topics=2), 0.0, np.ones(3))


def test_imported_counts_without_drift_are_the_popularity_to_the_digit():
    counts = np.random.default_rng(1).integers(1, 1000, (58, 256)).astype(float)
    imported = Experts.model_validate(
        {"popularity": "imported", "counts": {"name": "mine", "digest": "0" * 64}}
    )
    found = start_process(Routed(imported, 256, 58, 8, FACTS, 1), counts)
    for t_s in (0.0, 500.0):
        assert chances_at(found, t_s).tobytes() == long_run_chances(found).tobytes()
    moving = imported.model_copy(update={"drift_s": 100.0})
    assert (
        chances_at(start_process(Routed(moving, 256, 58, 8, FACTS, 1), counts), 0.0)
        != long_run_chances(found)
    ).any()
