"""Where experts sit; and models without that stage: bytes, FLOPs and time of a rank, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from tests.engine.small import run
from twin.model.coefficients import CLASSES, Layout, Popular
from twin.model.decode import decode_flops, decode_hbm_bytes, decode_iteration_s
from twin.model.layer import used_experts, used_experts_by_class
from twin.model.memory import whole_model_bytes
from twin.model.operators import formats
from twin.model.predict import EVEN
from twin.model.prefill import prefill_batch_s, prefill_flops, prefill_hbm_bytes
from twin.model.shape import ModelError, load_shape
from twin.model.stages import expert_layout, with_class_loads
from twin.scenario import Experts, Scenario, with_overrides
from twin.steady import Priced, predict_steady

# Of each config.json: layers, hidden, heads, KV heads, width of a head, FFN, vocabulary.
CONFIGS = {
    "qwen3-32b": (64, 5120, 64, 8, 128, 25600, 151936),
    "llama-3-3-70b": (80, 8192, 64, 8, 128, 28672, 128256),
}
BYTES = {"bf16": 2.0, "int8": 1.0}
DENSE = {
    "deployment.decode.mtp_draft_tokens": 0, "supernode.nodes": 4,
    "deployment.prefill.attention": "tp", "deployment.prefill.tp_dies": 8,
    "deployment.prefill.npus_per_instance": 4, "deployment.prefill.instances": 2,
    "deployment.decode.tp_dies": 8, "deployment.decode.npus_per_instance": 4,
    "deployment.decode.instances": 2, "deployment.decode.batch_per_npu": 8,
    "deployment.colocated.npus_per_instance": 4, "deployment.colocated.instances": 2,
    "deployment.colocated.chunk_tokens_per_npu": 512, "workload.input_tokens": 2048,
}  # fmt: skip
CASES = [(name, unit) for name in CONFIGS for unit in BYTES]


@pytest.mark.parametrize(
    ("dies", "redundant", "routed_dies", "slots", "shared_dies"),
    [
        (320, 32, 288, 1, 32),  # arXiv 2506.12708v2 section 4.1, decode
        (32, 32, 32, 9, 0),  # the same, prefill: 8 + 1 redundant + 1 shared
        (144, 32, 144, 2, 0),  # DeepSeek on H800, decode
        (288, 256, 256, 2, 32),  # xDeepServe: 256 dies with a second expert, 32 with the shared
    ],
)
def test_layouts_are_the_published_ones(facts, dies, redundant, routed_dies, slots, shared_dies):
    found = expert_layout(load_shape(facts, "deepseek-r1"), redundant, dies)
    assert (found.routed_dies, found.slots_per_die, found.shared_dies) == (
        routed_dies, slots, shared_dies)  # fmt: skip


@pytest.mark.parametrize("dies", [1, 7, 33, 100, 257, 289, 300, 321, 640])
def test_every_expert_has_a_slot_and_no_die_is_counted_twice(facts, dies):
    found = expert_layout(load_shape(facts, "deepseek-r1"), 32, dies)
    assert found.routed_dies * found.slots_per_die >= 256 + 32
    assert found.routed_dies + found.shared_dies <= dies


def dense(name="qwen3-32b", weights="bf16", **more):
    settings = {"deployment.model": name, "deployment.precision.weights": weights}
    return with_overrides(
        Scenario(), DENSE | settings | {k.replace("__", "."): v for k, v in more.items()}
    )


def costs_of(scenario, facts):
    return Priced(scenario, facts).parts.costs


def layer_weights(name):
    """Parameters of a layer: Q, K, V, O, and gate, up, down."""
    _, hidden, heads, kv_heads, width, inner, _ = CONFIGS[name]
    return hidden * width * (2 * heads + 2 * kv_heads) + 3 * hidden * inner


@pytest.mark.parametrize(("name", "weights"), CASES)
def test_bytes_and_flops_of_decode_are_those_counted_by_hand(facts, name, weights):
    layers, hidden, heads, kv_heads, width, _, vocabulary = CONFIGS[name]
    p = costs_of(dense(name, weights), facts).decode
    requests, context = 12.0, 12.0 * 3000.0
    core = 4 * heads * width * layers  # of a query and a cached token: scores and their sum
    by_hand = requests * 2 * (layer_weights(name) * layers + vocabulary * hidden) + context * core
    assert decode_flops(p, requests, context) == pytest.approx(by_hand, rel=1e-3)
    read = layer_weights(name) * layers * BYTES[weights] + 2 * vocabulary * hidden
    cached = context * 2 * kv_heads * width * 2 * layers
    assert decode_hbm_bytes(p, requests, context, 1.0) == pytest.approx(read + cached, rel=1e-3)
    assert decode_hbm_bytes(p, requests, context, 3.0) == pytest.approx(3 * read + cached, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "weights", "attention"),
    [*((*case, "tp") for case in CASES), ("qwen3-32b", "int8", "dp")],  # else too large for a die
)
def test_bytes_and_flops_of_prefill_are_those_counted_by_hand(facts, name, weights, attention):
    layers, hidden, heads, _, width, _, vocabulary = CONFIGS[name]
    p = costs_of(dense(name, weights, deployment__prefill__attention=attention), facts).prefill
    tokens, pairs = 16384.0, 8.0 * 2048.0 * 2049.0 / 2
    by_hand = tokens * 2 * layer_weights(name) * layers + pairs * 4 * heads * width * layers
    assert prefill_flops(p, tokens, pairs) == pytest.approx(by_hand, rel=1e-3)
    copies = {"tp": 1, "dp": 8}[attention]  # of the weights in an instance of 8 dies
    assert prefill_hbm_bytes(p, 0.0) == pytest.approx(
        copies * layer_weights(name) * layers * BYTES[weights], rel=1e-3
    )


@pytest.mark.parametrize(("name", "weights"), CASES)
def test_a_rank_holds_the_model_once_and_kv_of_its_heads(facts, name, weights):
    layers, hidden, _, kv_heads, width, _, vocabulary = CONFIGS[name]
    scenario = dense(name, weights)
    whole = layer_weights(name) * layers * BYTES[weights] + 2 * vocabulary * hidden * 2
    shape = load_shape(facts, name)
    assert whole_model_bytes(shape, formats(scenario.deployment.precision)) == whole
    for role in costs_of(scenario, facts).roles.values():
        assert role.memory.weights == pytest.approx(whole / 8, rel=1e-3)
        assert role.memory.buffers == 0.0
        token = 2 * kv_heads * width * 2 * layers / 8
        assert role.kv_tokens_per_rank == int(role.memory.kv / token)


def test_nothing_is_dispatched_or_balanced(facts):
    found = costs_of(dense(), facts)
    assert all(role.exchange_bytes_per_token == 0.0 for role in found.roles.values())
    assert found.decode.moe_layers == found.decode.microbatch == found.prefill.microbatch == 0.0
    assert list(found.remarks) == [
        "Qwen3-32B has no routed experts: the settings under experts change nothing."
    ]
    full = predict_steady(dense(), facts)
    exchange = {"gate", "dispatch", "experts", "combine"}
    assert not exchange & (set(full.decode.operators) | set(full.prefill.operators))
    asked = {"experts.redundant": 64, "experts.popularity": "power_law", "experts.skew": 3.0,
             "experts.balancing.policy": "periodic"}  # fmt: skip
    again = predict_steady(with_overrides(dense(), asked), facts)
    assert (again.decode, again.prefill) == (full.decode, full.prefill)


def test_an_ffn_over_dies_has_the_collectives_of_attention(facts):
    """Twice an all-reduce a layer, in two halves; what dies split takes no longer for it."""
    split, whole = (
        costs_of(dense(weights="int8", deployment__decode__tp_dies=dies), facts).decode
        for dies in (8, 1)
    )  # fmt: skip
    ops, tokens = np.zeros(32), 16.0
    one = np.array([16]), np.array([16 * 2048.0])
    took = decode_iteration_s(split, *one, 0, 1, *EVEN, ops)
    moved = 2 * (split.sequence.gather.fixed + split.sequence.gather.token * tokens)
    moved += 2 * (split.sequence.scatter.fixed + split.sequence.scatter.token * tokens)
    alone = decode_iteration_s(replace(
        split,
        sequence=replace(split.sequence, gather=whole.sequence.gather,
                         scatter=whole.sequence.scatter),
    ), *one, 0, 1, *EVEN, ops)  # fmt: skip
    assert took - alone == pytest.approx(64 * moved, rel=1e-6)
    assert split.dense.weight == pytest.approx(whole.dense.weight / 8)


def test_a_prefill_batch_of_a_rank_is_one_of_a_die_and_its_collectives(facts):
    """Long prompts: dies that split a model compute as long as dies that split the prompts."""
    took = {}
    for form in ("tp", "dp"):
        p = costs_of(dense(weights="int8", deployment__prefill__attention=form), facts).prefill
        ops = np.zeros(32)
        seconds = prefill_batch_s(p, 65536.0, 8192.0, 8192.0 * 1024, *EVEN, ops)
        assert seconds == pytest.approx(ops.sum())
        moved = (p.gather.fixed + p.gather.token * 65536.0) * 2 * 64
        moved += (p.exchange.fixed + p.exchange.token * 8192.0) * 2 * 64
        took[form] = seconds - moved * (form == "tp")
    assert took["tp"] == pytest.approx(took["dp"], rel=0.2)  # hidden states are read by every die
    assert took["tp"] > took["dp"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"deployment.prefill.attention": "sp_tp_sp"}, "take 'tp', which splits its weights"),
        ({"deployment.decode.expert_npus": 1}, "has no routed experts to put on NPUs of their own"),
        ({"deployment.decode.mtp_draft_tokens": 1}, "has no multi-token-prediction module"),
        ({"deployment.decode.tp_dies": 1, "deployment.mode": "decode_only"},
         "does not fit: .* raise deployment.decode.tp_dies or a smaller number format"),
        ({"deployment.prefill.attention": "dp"},
         "does not fit: .* take deployment.prefill.attention = 'tp' or a smaller number format"),
    ],
)  # fmt: skip
def test_what_needs_experts_or_latents_is_refused(facts, asked, said):
    with pytest.raises(ModelError, match=said):
        predict_steady(with_overrides(dense("llama-3-3-70b"), asked), facts)


def test_a_model_with_some_dense_layers_and_no_experts_is_refused(facts):
    name = "models.qwen3-32b.dense_layers"
    wrong = facts.replaced({name: replace(facts[name], value=3)})
    with pytest.raises(ModelError, match="dense_layers = 3 must be all 64"):
        load_shape(wrong, "qwen3-32b")


def test_notes_say_what_does_nothing_and_what_iterates_together():
    """Experts' settings, and ranks that share an instance; a lost die takes its rank."""
    found = run({
        **DENSE, "deployment.model": "qwen3-32b", "deployment.mode": "decode_only",
        "deployment.decode.tp_dies": 4, "deployment.decode.instances": 1, "horizon_s": 20.0,
        "workload.rate_req_per_s": 4.0, "recovery.policy": "shrink", "recovery.detection_s": 1.0,
        "faults": [{"element": "die 0.1.0", "at_s": 5.0, "duration_s": 0.0}],
    })  # fmt: skip
    assert any("has no routed experts: the settings under experts" in n for n in found.notes)
    assert any(
        n.startswith("The 2 ranks of a decode instance iterate together") for n in found.notes
    )
    assert any("4 of 8 dies" in text for text in found.tables["events"]["detail"].to_list())
    assert all(check["ok"] for check in found.checks)
    assert found.tables["die_load"].height == 0


@pytest.mark.parametrize("popularity", ["skewed", "power_law"])
def test_experts_of_a_die_differ_in_popularity_by_the_skew(facts, popularity):
    """Few rows use fewer of them than of equal ones; none is lost, and no load is below zero."""
    plain = expert_layout(load_shape(facts, "deepseek-r1"), 0, 8)
    few = []
    for skew in (0.0, 0.5, 1.0):
        asked = Experts(popularity=popularity, skew=skew)
        loads = with_class_loads(plain, asked, facts, CLASSES).loads
        assert bool(loads) == (skew > 0.0)
        assert all(load >= 0.0 for load in loads)
        if loads:
            assert sum(loads) / CLASSES == pytest.approx(1.0, rel=0.02)
        classes = tuple(map(Popular, loads)) or Layout().classes
        at = Layout(classed=float(bool(loads)), classes=classes)
        few.append(used_experts_by_class(at, 32.0, 16.0))
        assert used_experts_by_class(at, 32.0, 1e6) == pytest.approx(32.0, rel=0.02)
    assert few[0] == used_experts(32.0, 16.0)
    assert few[0] > few[1] > few[2] > 0.6 * few[0]


@pytest.mark.parametrize(
    "asked",
    [Experts(popularity="uniform"), Experts(skew=0.0), Experts(placement="perfect")],
)
def test_experts_alike_have_no_classes(facts, asked):
    plain = expert_layout(load_shape(facts, "deepseek-r1"), 0, 8)
    assert with_class_loads(plain, asked, facts, CLASSES) == plain


@pytest.mark.parametrize(("dies", "slots"), [(40, 7), (64, 4), (128, 2)])
def test_few_experts_of_a_die_fill_all_classes(facts, dies, slots):
    """Power-law popularity is of one layer: a class may be a part of one expert."""
    plain = expert_layout(load_shape(facts, "deepseek-r1"), 0, dies)
    assert plain.slots_per_die == slots < CLASSES
    loads = with_class_loads(plain, Experts(popularity="power_law"), facts, CLASSES).loads
    assert len(loads) == CLASSES and sum(loads) / CLASSES == pytest.approx(1.0)
    assert len(set(loads)) >= slots and list(loads) == sorted(loads)


def test_an_expert_alone_on_its_die_is_as_popular_as_itself(facts):
    plain = expert_layout(load_shape(facts, "deepseek-r1"), 0, 256)
    assert with_class_loads(plain, Experts(skew=1.0), facts, CLASSES) == plain
