"""Sliding windows: layers that attend to the last tokens, beside layers that attend to all."""

from dataclasses import replace

import pytest

from tests.model.agreement import MODES, agree
from twin.model.coefficients import PromptCore
from twin.model.decode import decode_flops, decode_hbm_bytes
from twin.model.layer import local_core_s, prompt_core_s, window_pairs
from twin.model.prefill import prefill_flops
from twin.model.shape import ModelError, load_shape
from twin.scenario import Scenario, with_overrides
from twin.steady import Priced, predict_steady

# gpt-oss-120b's config.json: layers, of which with a window of 128, hidden, heads, KV heads, width.
LAYERS, NEAR, WINDOW, HIDDEN, HEADS, KV_HEADS, WIDTH = 36, 18, 128, 2880, 64, 8, 64
EXPERTS, TOP_K, INNER, VOCABULARY = 128, 4, 2880, 201088
OSS = {
    "deployment.model": "gpt-oss-120b", "deployment.decode.mtp_draft_tokens": 0,
    "supernode.nodes": 4, "deployment.prefill.instances": 2, "experts.redundant": 0,
    "deployment.prefill.npus_per_instance": 8, "deployment.decode.npus_per_instance": 8,
    "deployment.decode.microbatch": "off", "deployment.decode.batch_per_npu": 32,
    "deployment.colocated.npus_per_instance": 8, "workload.output_tokens": 512,
}  # fmt: skip
UNIT = {
    "int8": (1.0, 1.0),
    "w4a16": (2.0, 0.5 + 2 / 32),
    "mxfp4": (2.0, 0.5 + 1 / 32),
}  # bytes of projections, of experts


def oss(**more):
    return with_overrides(Scenario(), OSS | {k.replace("__", "."): v for k, v in more.items()})


def costs_of(scenario, facts):
    return Priced(scenario, facts).parts.costs


def test_cost_of_a_window_is_flat_in_context_beyond_it(facts):
    """The layers with a window by themselves: time, FLOPs and bytes."""
    p = costs_of(oss(), facts).decode
    w = replace(p.sequence.core, context=0.0)
    near, far = (local_core_s(w, 8.0, 8.0 * context) for context in (128.0, 131_072.0))
    assert near == far > local_core_s(w, 8.0, 8.0 * 64.0)
    alone = replace(p, demand=replace(p.demand, context_bytes=0.0, context_flops=0.0))
    assert decode_flops(alone, 8.0, 8.0 * 4096.0) == decode_flops(alone, 8.0, 8.0 * 131_072.0)
    read = [decode_hbm_bytes(alone, 8.0, 8.0 * context, 16.0) for context in (4096.0, 131_072.0)]
    assert read[0] == read[1]


def test_half_of_the_layers_grow_half_as_fast(facts):
    half = costs_of(oss(), facts).decode.sequence.core
    none = costs_of(oss(), facts.replaced({
        f"models.gpt-oss-120b.{name}": replace(facts[f"models.gpt-oss-120b.{name}"], value=0)
        for name in ("window_layers", "window")
    })).decode.sequence.core  # fmt: skip
    grown = [local_core_s(w, 1.0, 65_536.0) - local_core_s(w, 1.0, 4096.0) for w in (half, none)]
    assert grown[0] == pytest.approx(0.5 * grown[1])
    assert local_core_s(half, 1.0, 100.0) == pytest.approx(local_core_s(none, 1.0, 100.0))


@pytest.mark.parametrize("weights", list(UNIT))
def test_bytes_and_flops_of_decode_are_those_counted_by_hand(facts, weights):
    p = costs_of(oss(deployment__precision__weights=weights), facts).decode
    attention = HIDDEN * WIDTH * (2 * HEADS + 2 * KV_HEADS)
    gate, expert = HIDDEN * EXPERTS, 3 * HIDDEN * INNER
    requests, context = 64.0, 64.0 * 5000.0
    seen = context * (LAYERS - NEAR) + requests * WINDOW * NEAR  # of a query token, all layers
    token = 2 * (attention + gate + TOP_K * expert) * LAYERS + 2 * VOCABULARY * HIDDEN
    by_hand = requests * token + seen * 4 * HEADS * WIDTH
    assert decode_flops(p, requests, context) == pytest.approx(by_hand, rel=1e-3)
    many = 1e9  # so many tokens that every expert is read
    linear, routed = UNIT[weights]
    read = 16 * ((attention * linear + gate * 2) * LAYERS + 2 * VOCABULARY * HIDDEN)
    read += EXPERTS * expert * routed * LAYERS
    assert decode_hbm_bytes(p, many, 0.0, 16.0) == pytest.approx(read, rel=1e-3)
    kv = decode_hbm_bytes(p, requests, context, 16.0) - decode_hbm_bytes(p, requests, 0.0, 16.0)
    assert kv == pytest.approx(seen * 2 * KV_HEADS * WIDTH * 2, rel=1e-3)


def test_pairs_within_a_window_are_their_sum_over_a_prompt(facts):
    for prompt in (64, 128, 1000, 8192):
        every = prompt * (prompt + 1) / 2
        by_hand = sum(min(i, WINDOW) for i in range(1, prompt + 1))
        assert window_pairs(128.0, float(prompt), every) == pytest.approx(by_hand, rel=2e-3)
    p = costs_of(oss(), facts).prefill
    prompt, every = 8192.0, 8192.0 * 8193.0 / 2
    pairs = every * (LAYERS - NEAR) + window_pairs(128.0, prompt, every) * NEAR
    core = prefill_flops(p, prompt, every) - prefill_flops(p, prompt, 1e-9)
    assert core == pytest.approx(pairs * 4 * HEADS * WIDTH, rel=1e-3)
    assert prompt_core_s(PromptCore(windowed=1.0, window=128.0), prompt, every) < 0.04 * every


@pytest.mark.parametrize("kv", ["bf16", "int8"])
def test_kv_of_windows_is_set_aside_for_every_slot_and_no_token_has_it(facts, kv):
    scenario = oss(deployment__precision__kv=kv, deployment__mode="decode_only")
    role = costs_of(scenario, facts).decode_role
    token = 2 * KV_HEADS * WIDTH * (2 if kv == "bf16" else 1)  # of one layer
    assert role.memory.slots == 16 * NEAR * WINDOW * token
    assert role.kv_tokens_per_rank == int(role.memory.kv / (token * (LAYERS - NEAR)))
    more = costs_of(with_overrides(scenario, {"deployment.decode.batch_per_npu": 64}), facts)
    assert more.decode_role.memory.slots == 2 * role.memory.slots


@pytest.mark.parametrize("mode", MODES)
def test_formula_and_simulation_agree(mode, facts):
    agree(oss(), mode, facts)


def test_what_reads_all_of_the_context_is_refused(facts):
    with pytest.raises(ModelError, match="attends to a part of the context in some layers"):
        predict_steady(oss(deployment__decode__attention_offload=0.2), facts)
    name = "models.gpt-oss-120b.window"
    wrong = facts.replaced({name: replace(facts[name], value=0)})
    with pytest.raises(ModelError, match="window_layers = 18 must be fewer than its 36 layers"):
        load_shape(wrong, "gpt-oss-120b")
