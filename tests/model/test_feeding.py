"""Where something else limits, decode serves what it is fed: fewer requests, sooner tokens."""

import numpy as np
import pytest

from twin.lab.library import preset
from twin.model.feeding import expected_max_decoding
from twin.scenario import Scenario, with_overrides
from twin.steady import predict_steady


@pytest.mark.parametrize("instances", [1, 2, 4])
def test_decode_serves_what_prefill_feeds_it(facts, instances):
    full = predict_steady(
        with_overrides(Scenario(), {"deployment.prefill.instances": instances}), facts
    )
    fed, slots = full.serving, full.decode
    assert (full.limit, fed.limited_by) == ("prefill", "prefill")
    assert fed.requests_per_s == pytest.approx(full.requests_per_s, rel=2e-3)
    assert fed.tpot_s < slots.tpot_s and fed.batch_per_npu < slots.batch_per_npu


@pytest.mark.parametrize("mode", ["decode_only", "prefill_only", "colocated"])
def test_full_slots_serve_where_nothing_else_limits_them(facts, mode):
    full = predict_steady(with_overrides(Scenario(), {"deployment.mode": mode}), facts)
    assert full.fed is None and full.serving is full.decode


def test_a_step_in_the_time_does_not_throw_the_search_off(facts):
    """Near full slots the fullest die's next request bends the line: it once pointed below none."""
    asked = {"deployment.model": "kimi-k2", "deployment.decode.mtp_draft_tokens": 0}
    full = predict_steady(with_overrides(preset("quickstart"), asked), facts)
    assert full.limit == "prefill"
    assert full.fed.requests_per_s == pytest.approx(full.requests_per_s, rel=1e-2)
    assert 0 < full.fed.batch_per_npu <= full.decode.batch_per_npu


@pytest.mark.parametrize(
    ("ranks", "places", "share"), [(64, 7 + 2 / 64, 0.77), (320, 48.0, 0.125), (3, 0.5, 0.9)]
)
def test_the_busiest_rank_is_the_fullest_of_as_many_draws(ranks, places, share):
    each = np.full(ranks, int(places))
    each[: round((places % 1) * ranks)] += 1
    drawn = np.random.default_rng(1).binomial(each, share, (4000, ranks)).max(axis=1)
    assert expected_max_decoding(ranks, places, share) == pytest.approx(drawn.mean(), rel=0.01)


def test_a_rank_decodes_no_more_than_have_a_place_on_it():
    assert expected_max_decoding(1, 4.0, 0.5) == pytest.approx(2.0)
    assert 1000 < expected_max_decoding(768, 1024.0, 0.999) <= 1024
