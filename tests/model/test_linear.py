"""Hybrid attention: layers with a state of fixed size in place of cached tokens, by hand."""

from dataclasses import replace

import pytest

from tests.engine.small import run
from tests.model.agreement import MODES, agree
from twin.hardware.chip import load_chip
from twin.model.attention import CHUNK, LINEAR
from twin.model.decode import decode_flops, decode_hbm_bytes
from twin.model.layer import local_core_s
from twin.model.memory import whole_model_bytes
from twin.model.operators import formats
from twin.model.prefill import prefill_flops
from twin.model.roofline import facts_of_stack, load_machine
from twin.model.shape import ModelError, load_shape
from twin.scenario import Precision, Scenario, with_overrides
from twin.steady import Priced, predict_steady

# Qwen3-Next-80B-A3B's config.json: 36 of 48 layers are Gated DeltaNet, the others gated GQA.
LAYERS, STATES, HIDDEN, HEADS, KV_HEADS, WIDTH = 48, 36, 2048, 16, 2, 256
KEYS, VALUES, SIZE, CONV = 16, 32, 128, 4
EXPERTS, TOP_K, INNER, VOCABULARY = 512, 10, 512, 151936
MIXED = 2 * KEYS * SIZE + VALUES * SIZE
LINEAR_LAYER = HIDDEN * (MIXED + VALUES * SIZE + 2 * VALUES) + CONV * MIXED + VALUES * SIZE * HIDDEN
FULL_LAYER = HIDDEN * WIDTH * (2 * HEADS + 2 * KV_HEADS) + HEADS * WIDTH * HIDDEN
ATTENTION = STATES * LINEAR_LAYER + (LAYERS - STATES) * FULL_LAYER
GATE, EXPERT = HIDDEN * EXPERTS, 3 * HIDDEN * INNER
STATE = VALUES * SIZE * SIZE
STATE_BYTES = 4 * STATE + 2 * MIXED * (CONV - 1)  # FP32, and the convolution's last values
NEXT = {
    "deployment.model": "qwen3-next-80b", "deployment.decode.mtp_draft_tokens": 0,
    "supernode.nodes": 4, "deployment.prefill.instances": 2, "experts.redundant": 0,
    "deployment.prefill.npus_per_instance": 8, "deployment.decode.npus_per_instance": 8,
    "deployment.decode.microbatch": "off", "deployment.decode.batch_per_npu": 32,
    "deployment.colocated.npus_per_instance": 8, "workload.output_tokens": 512,
}  # fmt: skip


def nxt(**more):
    return with_overrides(Scenario(), NEXT | {k.replace("__", "."): v for k, v in more.items()})


def costs_of(scenario, facts):
    return Priced(scenario, facts).parts.costs


def test_whole_models_have_the_parameters_of_their_names(facts):
    """80 billion; of Kimi-Linear 49 billion with its embeddings."""
    bf16 = formats(Precision(weights="bf16"))
    held = whole_model_bytes(load_shape(facts, "qwen3-next-80b"), bf16)
    by_hand = ATTENTION + LAYERS * (GATE + (EXPERTS + 1) * EXPERT) + 2 * VOCABULARY * HIDDEN
    assert held == pytest.approx(2 * by_hand, rel=1e-9)
    assert held == pytest.approx(2 * 80e9, rel=0.01)
    kimi = load_shape(facts, "kimi-linear-48b")
    rank = 128  # KDA: queries, keys, values, a step, and decay and gate by a step as wide as a head
    kda = 2304 * (3 * 4096 + 32 + 2 * rank) + rank * 2 * 4096 + 4 * 3 * 4096 + 4096 * 2304
    assert kimi.linear_weights == kda
    assert whole_model_bytes(kimi, bf16) == pytest.approx(2 * 49e9, rel=0.01)


def test_bytes_and_flops_of_decode_are_those_counted_by_hand(facts):
    p = costs_of(nxt(), facts).decode
    requests, context = 64.0, 64.0 * 5000.0
    token = 2 * (ATTENTION + LAYERS * (GATE + (TOP_K + 1) * EXPERT) + VOCABULARY * HIDDEN)
    token += STATES * 7 * STATE  # decay; three products with the state
    by_hand = requests * token + context * (LAYERS - STATES) * 4 * HEADS * WIDTH
    assert decode_flops(p, requests, context) == pytest.approx(by_hand, rel=1e-3)
    bare = replace(p, demand=replace(p.demand, state_bytes=0.0))
    many = 1e9  # so many tokens that every expert is read
    read = 16 * (ATTENTION + LAYERS * (2 * GATE + EXPERT) + 2 * VOCABULARY * HIDDEN)
    read += EXPERTS * EXPERT * LAYERS
    assert decode_hbm_bytes(bare, many, 0.0, 16.0) == pytest.approx(read, rel=1e-3)
    moved = [decode_hbm_bytes(p, requests, c, 16.0) for c in (context, 0.0)]
    cached = (LAYERS - STATES) * 2 * KV_HEADS * WIDTH * 2
    assert moved[0] - moved[1] == pytest.approx(context * cached, rel=1e-3)
    states = moved[0] - decode_hbm_bytes(bare, requests, context, 16.0)
    assert states == pytest.approx(requests * STATES * 2 * STATE_BYTES, rel=1e-3)  # read, written


def test_cost_of_a_state_is_flat_in_context_and_drafts_write_one_each(facts):
    p = costs_of(nxt(), facts).decode
    core = p.sequence.core
    alone = replace(core, context=0.0)
    assert local_core_s(alone, 8.0, 8.0) == local_core_s(alone, 8.0, 8.0 * 131_072.0)
    m = load_machine(facts, costs_of(nxt(), facts).decoding_role.chip)
    by_hand = 8 * (STATES / LAYERS) * 2 * STATE_BYTES / (0.64 * 1.6e12) * m.slowest_over_mean(16)
    assert local_core_s(alone, 8.0, 8.0) == pytest.approx(by_hand, rel=1e-3)
    drafting = costs_of(nxt(deployment__decode__mtp_draft_tokens=1), facts).decode.demand
    assert drafting.state_bytes == pytest.approx(0.75 * p.demand.state_bytes)  # of two tokens


def test_kernels_of_linear_attention_start_on_ascend_as_measured(facts):
    """One and 16 requests of 32 heads: 42.6 and 103.9 us (vllm-ascend pull request 12870)."""
    for chip, start in (("ascend-910c", 38.5e-6), ("h200", None)):
        p = costs_of(nxt(supernode__chip=chip), facts).decode
        m = load_machine(facts, costs_of(nxt(supernode__chip=chip), facts).decoding_role.chip)
        of_full = m.attention_efficiency("bf16", "gqa").start_s
        share = STATES / LAYERS
        by_hand = share * (of_full if start is None else start) + (1 - share) * of_full
        assert p.sequence.core.fixed == pytest.approx(
            by_hand * m.slowest_over_mean(16) * m.in_decode, 0.01
        )
    seconds = [38.5e-6 + n * 2 * 4 * STATE / (0.64 * 1.6e12) for n in (1, 16)]
    assert seconds == pytest.approx([42.6e-6, 103.9e-6], rel=0.005)


def test_flops_of_a_prompt_are_those_counted_by_hand(facts):
    p = costs_of(nxt(), facts).prefill
    prompt, pairs = 8192.0, 8192.0 * 8193.0 / 2
    token = 2 * (ATTENTION + LAYERS * (GATE + (TOP_K + 1) * EXPERT))
    token += STATES * VALUES * (6 * SIZE**2 + 2 * CHUNK * 5 * SIZE + CHUNK**2)
    by_hand = prompt * token + pairs * (LAYERS - STATES) * 4 * HEADS * WIDTH
    assert prefill_flops(p, prompt, pairs) == pytest.approx(by_hand, rel=1e-3)


@pytest.mark.parametrize("drafts", [0, 1])
def test_a_slot_holds_a_state_for_each_verified_token_and_no_token_more(facts, drafts):
    scenario = nxt(deployment__mode="decode_only", deployment__decode__mtp_draft_tokens=drafts)
    costs = costs_of(scenario, facts)
    role = costs.decode_role
    assert role.memory.slots == 16 * STATES * STATE_BYTES * (1 + drafts)
    token = (LAYERS - STATES + drafts) * 2 * KV_HEADS * WIDTH * 2
    assert role.kv_tokens_per_rank == int(role.memory.kv / token)
    assert costs.held_bytes(128) == 128 * token + STATES * STATE_BYTES


def test_dies_of_a_rank_split_states_by_their_heads(facts):
    whole = load_shape(facts, "qwen3-next-80b")
    part = whole.split(4)
    assert part.state_bytes * 4 == whole.state_bytes
    assert part.linear_weights * 4 == whole.linear_weights


@pytest.mark.parametrize(
    "model, fixed",
    [
        ("qwen3-next-80b", lambda tokens: STATES * STATE_BYTES),
        ("gpt-oss-120b", lambda tokens: 18 * min(tokens, 128) * 2 * 8 * 64 * 2),
    ],
)
def test_what_is_handed_to_decode_is_kv_windows_and_a_state(model, fixed):
    """Bytes of a run's hand-over by hand, prompt after prompt."""
    found = run(NEXT | {
        "deployment.model": model, "deployment.mode": "disaggregated", "horizon_s": 30.0,
        "deployment.prefill.instances": 1, "deployment.decode.instances": 1,
        "workload.lengths": "fixed", "workload.input_tokens": 100, "workload.output_tokens": 50,
    })  # fmt: skip
    assert all(check["ok"] for check in found.checks)
    totals = found.tables["traffic"].filter(traffic="kv_hand_off")["bytes"].sum()
    token = {"qwen3-next-80b": 12 * 2 * 2 * 256 * 2, "gpt-oss-120b": 18 * 2 * 8 * 64 * 2}[model]
    arrived = (found.tables["requests"]["transfer_end_s"].fill_nan(None)).drop_nulls()
    each = 100 * token + fixed(100)
    assert totals == pytest.approx(len(arrived) * each, rel=0.02)


@pytest.mark.parametrize("mode", MODES)
def test_formula_and_simulation_agree(mode, facts):
    agree(nxt(), mode, facts)


def test_what_it_cannot_say_is_refused(facts):
    with pytest.raises(ModelError, match="attends to a part of the context in some layers"):
        predict_steady(nxt(deployment__decode__attention_offload=0.2), facts)
    name = "models.qwen3-next-80b.linear"
    wrong = facts.replaced({name: replace(facts[name], value="rwkv")})
    with pytest.raises(ModelError, match=f"linear = {' or '.join(map(repr, LINEAR))}"):
        load_shape(wrong, "qwen3-next-80b")


@pytest.mark.parametrize(("dies", "tokens", "measured_us"), [(1, 8_192, 616), (2, 8_192, 439)])
def test_a_prompt_of_linear_attention_on_nvidia_takes_its_chunks_one_after_another(
    facts, dies, tokens, measured_us
):
    """Gated DeltaNet's chunks in SGLang 0.5.14 on a B200 with 32 and 16 heads (aiconfigurator-core
    0.12, gdn)."""
    scenario = nxt(
        supernode__chip="b200", supernode__nodes=1, supernode__npus_per_node=8,
        supernode__scale_up="node", supernode__sub_planes=1, deployment__mode="colocated",
        deployment__precision__weights="bf16", deployment__stack="sglang-0-5",
        deployment__decode__tp_dies=dies,
    )  # fmt: skip
    chunk = costs_of(scenario, facts).colocated_role.decode.chunk
    layer_s = chunk.edge * tokens * LAYERS / STATES
    assert 1e6 * layer_s == pytest.approx(measured_us, rel=0.2)


@pytest.mark.parametrize(
    ("dies", "tokens", "measured_us", "within"),
    [(2, 65_536, 28_100, 0.01), (1, 65_536, 51_700, 0.01), (1, 21_504, 15_080, 0.25)],
)
def test_a_prompt_of_linear_attention_on_ascend_takes_what_its_kernels_do(
    facts, dies, tokens, measured_us, within
):
    """Gated DeltaNet's chunks on a 910B2 with 16 and 32 heads (megagdn-pto); the last are the newer
    kernels of another table (FlagGems-vllm), which are no part of the figure."""
    chunk = costs_of(on_a2(dies), facts).colocated_role.decode.chunk
    layer_s = chunk.edge * tokens * LAYERS / STATES
    full = dict.fromkeys(("operators.ascend.linear_prompts", "operators.ascend.linear_chain"), 0)
    assert (
        chunk.edge
        > 1.5 * costs_of(on_a2(dies), facts.replaced(full)).colocated_role.decode.chunk.edge
    )
    full_s = LAYERS / STATES * (1 - STATES / LAYERS) * attention_edge_s(on_a2(dies), facts)
    assert 1e6 * (layer_s - full_s * tokens) == pytest.approx(measured_us, rel=within)


def test_a_host_launches_the_chunks_of_linear_attention_only_where_there_are_prompts(facts):
    """2.0 ms a layer, whatever the prompt (FlagGems-vllm, 194 to 1,793 tokens)."""
    host = costs_of(on_a2(1), facts).colocated_role.decode.host
    assert host.prompts == pytest.approx(STATES * 2.0e-3, rel=0.01)
    plain = costs_of(on_a2(1, deployment__stack="plain"), facts).colocated_role.decode.host
    assert plain.prompts == plain.kernels == 0.0


def on_a2(dies, **more):
    own = {
        "supernode__chip": "ascend-910b", "supernode__nodes": 1, "supernode__npus_per_node": 8,
        "supernode__scale_up": "node", "supernode__sub_planes": 7,
        "deployment__mode": "colocated", "deployment__precision__weights": "int8",
        "deployment__precision__kv": "bf16", "deployment__stack": "vllm-ascend-0-13",
        "deployment__decode__tp_dies": dies,
    }  # fmt: skip
    return nxt(**(own | more))


def attention_edge_s(scenario, facts):
    """Seconds for a token of a prompt besides its pairs, of a layer that has pairs."""
    of_stack_facts = facts_of_stack(facts, scenario.deployment.stack, "ascend-910b")
    machine = load_machine(of_stack_facts, load_chip(of_stack_facts, "ascend-910b"))
    reach = machine.prompt_efficiency("bf16", "gqa")
    flops = 4 * HEADS * WIDTH / scenario.deployment.decode.tp_dies
    return reach.edge * flops / (machine.chip.peak(reach.peak) * reach.compute)
