import polars as pl
import pytest

from tests.lab.searched import searched
from tests.laws.advice import LITE
from twin.lab.explain.causes import propose_even_experts, propose_optimisations
from twin.lab.explain.explain import explain
from twin.lab.explain.pools import propose_instance_sizes
from twin.lab.explain.view import View
from twin.lab.explain.waterfall import SLACK, layer_shares, operator_seconds
from twin.lab.explain.words import PIECES
from twin.lab.library import load_facts, preset
from twin.model.timeline import decode_timeline
from twin.scenario import parse_scenario, with_overrides
from twin.steady import predict_steady


@pytest.fixture(scope="module", autouse=True)
def no_search():
    """What a load's largest is takes fifty runs, and no figure of this room reads it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twin.lab.explain.explain.capacity", searched)
        yield


@pytest.fixture(scope="module")
def slowed():
    fault = {"at_s": 3.0, "element": "die 1.0.0", "kind": "slow", "factor": 0.3}
    wishes = {"name": "slowed", "workload.rate_req_per_s": 40.0, "horizon_s": 12.0,
              "warmup_s": 2.0, "workload.output_tokens": 64, "faults": [fault],
              "experts.placement": "round_robin", "experts.skew": 1.5}  # fmt: skip
    return explain(with_overrides(parse_scenario(LITE), wishes), load_facts())


def test_the_pieces_add_up_to_the_time_of_a_mean_request(slowed):
    pieces = slowed.waterfall
    assert set(pieces) == set(PIECES) and all(value >= 0 for value in pieces.values())
    assert sum(pieces.values()) == pytest.approx(slowed.summary["e2e_s_mean"], rel=0.01)


def test_a_fault_and_uneven_experts_are_pieces_of_their_own(slowed):
    assert slowed.waterfall["faults"] > 0 and slowed.waterfall["imbalance"] > 0


def test_experts_are_no_cause_where_a_model_has_none():
    """Whatever the scenario says of them: their time is not asked, and no advice names them."""
    asked = {
        "deployment.model": "qwen3-32b", "deployment.prefill.attention": "tp",
        "deployment.prefill.tp_dies": 8, "deployment.decode.tp_dies": 8,
        "deployment.decode.mtp_draft_tokens": 0, "experts.popularity": "power_law",
        "experts.placement": "round_robin", "workload.rate_req_per_s": 10.0, "horizon_s": 12.0,
        "warmup_s": 2.0, "workload.output_tokens": 64, "deployment.decode.batch_per_npu": 2,
        "deployment.communication.fused": False,
    }  # fmt: skip
    dense = with_overrides(parse_scenario(LITE), asked)
    found = explain(dense, load_facts())
    assert found.waterfall["imbalance"] == found.waterfall["exchange"] == 0.0
    assert found.waterfall["attention"] > 0.0 and found.waterfall["experts"] > 0.0  # dense layers
    for model, many in (("qwen3-32b", False), ("deepseek-v2-lite", True)):
        view = View(with_overrides(dense, {"deployment.model": model}), load_facts(), {}, None, {})
        changes = [
            *propose_even_experts(view),
            *propose_optimisations(view),
            *propose_instance_sizes(view),
        ]
        assert bool(changes) is many
    assert not {measured.cause.key for measured in found.causes} & {"imbalance", "ep", "switches"}


def at_work(plan):
    """Share of the work of a layer by operator, both streams together."""
    spent = {}
    for _, name, share in layer_shares(plan):
        if name != SLACK:
            spent[name] = spent.get(name, 0.0) + share
    return {name: share / sum(spent.values()) for name, share in spent.items()}


def _microbatched():
    return predict_steady(preset("quickstart"), load_facts()).costs.decode


def test_both_streams_of_a_layer_fill_it_with_work_and_slack():
    costs = predict_steady(preset("quickstart"), load_facts()).costs
    plan = decode_timeline(costs.decode, 40.0, 160_000.0, 1.0, 1.0)
    rows = layer_shares(plan)
    for stream in plan.streams:
        assert sum(share for name, _, share in rows if name == stream) == pytest.approx(1.0)


def test_the_work_of_an_operator_does_not_jump_where_the_other_stream_becomes_the_longer():
    costs = predict_steady(preset("quickstart"), load_facts()).costs
    shares = []
    for requests in range(8, 49):
        plan = decode_timeline(costs.decode, float(requests), 5000.0 * requests, 1.2, 1.2)
        if plan is not None:
            shares.append(at_work(plan)["attention_core"])
    assert len(shares) > 10
    steps = [abs(b - a) for a, b in zip(shares, shares[1:], strict=False)]
    assert max(steps) < 0.05


def test_an_iteration_of_two_streams_lasts_as_long_as_each_with_its_slack():
    plan = decode_timeline(_microbatched(), 40.0, 160_000.0, 1.0, 1.0)
    names = ["attention_core", "experts", "mtp", "lm_head"]
    booked = pl.DataFrame({"phase": ["decode"] * 4, "operator": names,
                           "per_iteration_s": [0.02, 0.01, 0.004, 0.006]})  # fmt: skip
    rows = operator_seconds(booked, "decode", plan)
    outside = sum(spent for stream, _, spent in rows if not stream)
    for stream in plan.streams:
        assert sum(s for name, _, s in rows if name == stream) + outside == pytest.approx(0.04)
    assert any(name == SLACK for _, name, _ in rows)
    assert {name for stream, name, _ in rows if not stream} == {"mtp", "lm_head"}
    alone = operator_seconds(booked, "decode", None)
    assert [name for _, name, _ in alone] == names
