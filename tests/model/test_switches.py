"""Where attention and experts sit, how large buffers are, how attention is split: mechanisms."""

import math
from dataclasses import replace

import numpy as np
import pytest

from twin.model.decode import decode_hbm_bytes
from twin.model.layer import PassLoad, moe_stages_s
from twin.model.schedule import StageSeconds, pipeline, ring_s, turns_s
from twin.model.shape import ModelError

APART = {"deployment__decode__expert_npus": 48}
OFF = {"deployment__decode__microbatch": "off"}


# --- Attention and experts on dies of their own ---------------------------------------------------


@pytest.mark.parametrize(
    ("stages", "seconds"),
    [
        ((5.0, 1.0, 1.0, 1.0, 1.0), 10.0), ((1.0, 1.0, 5.0, 1.0, 5.0), 10.0),
        ((2.0, 2.0, 2.0, 2.0, 2.0), 8.0), ((4.0, 1.0, 2.0, 1.0, 6.0), 12.0),
    ],
)  # fmt: skip
def test_a_ring_takes_its_longest_stage_twice_or_the_way_around(stages, seconds):
    attention, dispatch, experts, combine, taken = stages
    x = StageSeconds(
        attention=attention, dispatch=dispatch, experts=experts, combine=combine, taken=taken
    )
    assert ring_s(x, 2.0) == seconds


def test_domains_shorten_the_way_around_until_experts_read_their_weights_too_often(ask):
    one, two, eight = (ask(**APART, deployment__decode__domains=n).decode for n in (1, 2, 8))
    assert two.tpot_s < one.tpot_s < eight.tpot_s


def test_domains_without_microbatches_use_the_experts_while_others_are_in_attention(ask):
    one, two = (ask(**APART, **OFF, deployment__decode__domains=n).decode for n in (1, 2))
    assert two.tpot_s < one.tpot_s


def test_two_microbatches_hide_one_side_behind_the_other(ask):
    with_two, without = ask(**APART), ask(**APART, **OFF)
    assert 0.5 < with_two.decode.iteration_s / without.decode.iteration_s < 0.75


def test_expert_npus_serve_no_attention_so_the_others_have_more_of_it(ask):
    both, apart = ask(**OFF), ask(**APART, **OFF)
    crowd = 160 / 112
    core = apart.decode.operators["attention_core"] / both.decode.operators["attention_core"]
    assert core == pytest.approx(crowd, rel=0.01)
    assert apart.costs.decode.concentration == pytest.approx(crowd)
    assert apart.costs.decode.layout.expert_dies == 96


def test_kv_space_is_that_of_attention_dies_without_experts(ask):
    both, apart = ask().costs.decode_role, ask(**APART).costs.decode_role
    assert apart.memory.weights < both.memory.weights
    assert apart.memory.kv > both.memory.kv
    per_token = 70_272 * 62 / 61
    assert apart.kv_tokens_per_rank == int(apart.memory.kv / per_token * 112 / 160)


def test_weights_are_read_where_they_are(ask):
    p = ask(**APART).costs.decode
    dies = 320.0
    d, at = p.demand, p.layout
    layers = p.moe_layers + p.dense_layers + p.drafts
    attention = d.attention_bytes * layers + d.dense_bytes * p.dense_layers
    attention += d.head_bytes * (1 + p.drafts)
    shared = 0.0 if at.shared_dies else at.shared_experts
    experts = d.expert_bytes * (p.moe_layers + p.drafts) * (at.slots + shared)
    assert decode_hbm_bytes(p, 1e6, 0.0, dies) == pytest.approx(224 * attention + 96 * experts)


def test_no_npu_left_for_attention_is_refused(ask):
    with pytest.raises(ModelError, match="leaves no NPU for attention: take at most 159"):
        ask(deployment__decode__expert_npus=160)


def test_experts_that_do_not_fit_their_dies_are_refused(ask):
    with pytest.raises(ModelError, match="An expert die's part .* raise deployment.decode.expert"):
        ask(deployment__decode__expert_npus=4)


def test_attention_dies_that_exchange_too_much_are_told_to_be_more(ask):
    with pytest.raises(ModelError, match="An attention die's part .* lower deployment.decode.expe"):
        ask(deployment__decode__expert_npus=159)


# --- Static exchange buffers ----------------------------------------------------------------------


def test_the_papers_buffers_take_645_mb(ask):
    # arXiv 2506.12708v2 section 4.2.1: 320 ranks x 96 tokens, 225 + 420 MB (of 1,024 KB)
    found = ask(deployment__communication__buffer_tokens_per_die=96).costs.decode_role.memory
    assert found.buffers / 1024 / 1024 == pytest.approx(645, rel=0.005)


def test_smaller_buffers_leave_more_for_kv_and_larger_ones_are_not_taken(ask):
    sized, small, large = (
        ask(deployment__communication__buffer_tokens_per_die=n).costs.decode_role.memory.buffers
        for n in (0, 24, 60_000)
    )
    assert small == pytest.approx(sized / 4)
    assert large == sized


def test_what_does_not_fit_goes_in_a_second_round(ask):
    p = ask().costs.decode

    def parts(p, tokens):
        load = PassLoad(tokens, 0.0, tokens, tokens * 320, 320.0, 1.0, 1.0)
        return moe_stages_s(p, p.sequence, load)

    whole, half = parts(p, 40.0), parts(p, 20.0)
    rounds = parts(replace(p, buffer_tokens=20.0), 40.0)
    assert rounds[0] == whole[0]  # the gate chooses once
    assert rounds[1:] == tuple(2 * part for part in half[1:])
    assert sum(rounds) > sum(whole)


# --- Tensor-parallel prefill ----------------------------------------------------------------------


def test_tensor_parallel_attention_reduces_all_tokens_of_a_group(ask):
    apart = {"experts__placement": "perfect", "deployment__prefill__microbatch": False}
    four, eight = (
        ask(**apart, deployment__prefill__attention="tp", deployment__prefill__tp_dies=n).prefill
        for n in (4, 8)
    )
    # (n - 1) shares leave each die; and n partial sums are added: between 7/3 and 2
    grown = eight.operators["all_to_all"] / four.operators["all_to_all"]
    assert 2.0 < grown < 7 / 3
    assert eight.operators["attention_input"] > 1.3 * four.operators["attention_input"]
    assert eight.operators["attention_core"] == pytest.approx(four.operators["attention_core"])
    assert eight.batch_s > four.batch_s


def test_a_group_holds_its_share_of_the_attention_weights(ask):
    staged, tp = (ask(deployment__prefill__attention=a).costs.prefill_role for a in
                  ("dp", "tp"))  # fmt: skip
    assert tp.memory.weights < staged.memory.weights


def test_a_group_that_does_not_divide_the_dies_is_refused(ask):
    with pytest.raises(ModelError, match="tp_dies = 24 must divide the 32 dies"):
        ask(deployment__prefill__attention="tp", deployment__prefill__tp_dies=24)


# --- Acceptance by dataset ------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "share"), [("c_eval", 0.814), ("gsm8k", 0.887), ("mmlu", 0.907)])
def test_a_dataset_has_its_published_acceptance(ask, name, share):
    found = ask(deployment__decode__mtp_dataset=name)
    assert found.decode.tokens_per_iteration == pytest.approx(1.0 + share)
    assert found.decode.iteration_s == ask().decode.iteration_s


# --- Two batches in turn --------------------------------------------------------------------------


def test_what_an_exchange_takes_beside_its_bytes_is_not_hidden(ask):
    h800 = {
        "supernode__chip": "h800", "supernode__scale_up": "node", "supernode__nodes": 24,
        "supernode__sub_planes": 1, "deployment__mode": "decode_only",
        "deployment__precision__weights": "fp8", "deployment__decode__microbatch": "on",
        "deployment__decode__batch_per_npu": 16,
    }  # fmt: skip
    p = ask(**h800).costs.decode
    assert p.hides == 1.0
    parts = moe_stages_s(p, p.splits[0], PassLoad(8.0, 0.0, 8.0, 8.0 * 160, 160.0, 1.0, 1.0))
    assert parts[1] > p.splits[0].dispatch.fixed > 30e-6


def test_stages_in_a_fixed_order_are_never_faster_than_their_cores_or_their_wire():
    rng = np.random.default_rng(4)
    for prepare, core, sent, experts, answered in rng.uniform(0.1, 2.0, (200, 5)):
        x = StageSeconds(prepare, prepare + core, dispatch=sent, experts=experts, combine=answered)
        staged = turns_s(x)
        assert staged >= 2 * max(prepare + core + experts, sent + answered) - 1e-12
        assert staged <= 2 * math.fsum((prepare, core, sent, experts, answered)) + 1e-12


def test_a_pipeline_is_never_faster_than_its_cores_or_its_wire():
    rng = np.random.default_rng(3)
    for before, sent, experts, answered in rng.uniform(0.1, 2.0, (200, 4)):
        found = pipeline(before, sent, experts, answered).period
        assert found >= 2 * max(before + experts, sent + answered) - 1e-12
        assert found <= 2 * math.fsum((before, sent, experts, answered)) + 1e-12
