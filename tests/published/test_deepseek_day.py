"""DeepSeek's day (open-infra-index, day 6): what a prefill unit takes of it, from its lengths.

608 B prompt tokens a day over 73,700 tokens/s a node: a unit of four nodes takes 294,800 tokens/s,
hits counted. Prompts differ as in data/workloads/deepseek-service.toml.
"""

import pytest

from twin.engine.simulate import simulate
from twin.lab.library import load_facts, preset
from twin.scenario import with_overrides
from twin.steady import predict_steady
from twin.workload.generate import mean_lengths

PUBLISHED = 73_700.0  # tokens/s a node, with hits
FRESH = 1.0 - 342 / 608
UNIT = {
    "deployment.mode": "prefill_only",
    "deployment.prefill.instances": 1,
    "supernode.nodes": 4,
    "elastic.controller": "fixed",
    "elastic.npus": 0,
    "workload.profile.shape": "constant",
    "workload.rate_req_per_s": 120.0,  # more than a unit takes
    "workload.prefix": "shared",  # sessions would have to go on for long to hit
    "workload.shared_fraction": 0.563,
    "horizon_s": 120.0,
    "warmup_s": 40.0,
}
FACTS = load_facts()


def unit(**more):
    return with_overrides(preset("deepseek-day-nodes"), UNIT | more)


def node_tokens_per_s(fresh_per_npu):
    """Prompt tokens/s of a node of 8, at the published share of hits."""
    return 8.0 * fresh_per_npu / FRESH


def full(balance):
    run = simulate(unit(**{"deployment.prefill.dp_balance": balance}), FACTS)
    assert run.valid
    return node_tokens_per_s(run.summary["prefill_tokens_per_s_per_npu"])


def test_a_unit_takes_its_share_of_the_day_only_where_attention_is_even():
    even, whole = full("attention"), full("tokens")
    assert PUBLISHED < even < 1.3 * PUBLISHED  # a day's mean has hours in which units wait
    assert whole < 0.6 * PUBLISHED


def test_the_formula_counts_that_long_prompts_outweigh_short_ones():
    means = mean_lengths(unit().workload, FACTS)
    alike = {"workload.lengths": "fixed", "workload.input_tokens": round(means.input_tokens)}
    rates = [
        predict_steady(unit(**more), FACTS).prefill.tokens_per_s_per_npu for more in ({}, alike)
    ]
    assert means.prompt_spread > 3.0
    assert rates[0] < 0.9 * rates[1]
    assert node_tokens_per_s(rates[0]) == pytest.approx(full("attention"), rel=0.15)
