"""Sparse attention: an indexer scores all of the context, and the core reads what it selects."""

import pytest

from twin.engine.simulate import simulate
from twin.model.alone import ALONE
from twin.model.coefficients import PromptCore
from twin.model.decode import decode_flops, decode_hbm_bytes
from twin.model.layer import local_core_s, product_s, prompt_core_s, prompt_pairs
from twin.model.shape import load_shape
from twin.scenario import Scenario, with_overrides
from twin.steady import Priced

SPARSE = with_overrides(Scenario(), {"deployment.model": "deepseek-v3-2"})


@pytest.fixture(scope="module")
def facts(facts):
    """Of kernels alone, as they were measured."""
    return facts.replaced(ALONE)


def decode_of(scenario, facts):
    return Priced(scenario, facts).parts.costs.decode_role.decode


def test_the_core_is_flat_beyond_what_is_selected_and_the_indexer_is_not(facts):
    w = decode_of(SPARSE, facts).sequence.core
    times = [local_core_s(w, 2.0, float(context)) for context in (4_096, 16_384, 65_536)]
    growth = [
        (b - a) / (d - c) for a, b, c, d in [(*times[:2], 4096, 16384), (*times[1:], 16384, 65536)]
    ]
    assert growth == pytest.approx([w.index] * 2)
    # Two query tokens of one request: below 2,048 all of its context is read. Each has a core.
    alone = 24 / 2
    assert local_core_s(w, 2.0, 1_024.0) == pytest.approx(1_024.0 * (alone * w.context + w.index))
    assert times[0] - 4_096 * w.index == pytest.approx(alone * 2_048.0 * w.context)


def test_query_tokens_of_sparse_attention_take_the_cores_of_a_die_in_rounds(facts):
    w = decode_of(SPARSE, facts).sequence.core
    rounds = ((2.0, 4_096.0), (24.0, 49_152.0), (26.0, 53_248.0))  # tokens, context
    core = [local_core_s(w, tokens, context) - context * w.index for tokens, context in rounds]
    assert core[1] == pytest.approx(core[0])  # a core each
    assert core[2] == pytest.approx(2.0 * core[0])
    # A profile of the model on 910C has 97 to 122 us for CANN's kernel, its start with it.
    starts = [facts.si(f"operators.ascend.{name}") for name in ("sparse_start", "indexer_start")]
    slower = w.fixed / sum(starts)  # the slowest of all dies
    assert 97e-6 < starts[0] + core[0] / slower < 122e-6


@pytest.mark.parametrize("prompt", [512, 2_048, 4_096, 65_536])
def test_selected_pairs_of_a_prompt_are_their_sum_over_its_tokens(prompt):
    every = prompt * (prompt + 1) / 2
    whole, selected, indexed = prompt_pairs(
        PromptCore(pair=1.0, reach=2_048.0), float(prompt), every
    )
    by_hand = sum(min(i, 2_048) for i in range(1, prompt + 1))
    assert whole + selected == pytest.approx(by_hand, rel=1e-3)
    assert (indexed > 0.0) == (prompt > 2_048)


@pytest.mark.parametrize("prompt", [512, 2_048, 65_536])
def test_on_ascend_prompts_of_any_length_are_in_latent_form(facts, prompt):
    core = prefill_on_ascend(facts, "deepseek-v3-2").core
    assert (core.every, core.least, core.hit) == (1.0, 0.0, 0.0)
    pairs = prompt * (prompt + 1) / 2
    whole, selected, indexed = prompt_pairs(core, float(prompt), pairs)
    assert (whole, indexed) == (0.0, pairs)
    assert selected == pytest.approx(sum(min(i, 2_048) for i in range(1, prompt + 1)), rel=1e-3)


def test_a_prompt_on_ascend_takes_what_canns_kernel_was_measured_with(facts):
    """8,192 tokens of 64 heads, a window of 128 and 512 selected places of compressed keys
    (tile-ai/tilelang-ascend pull request 1457)."""
    core = prefill_on_ascend(facts, "deepseek-v4-flash").core
    for places, measured_s in ((128, 1.851e-3), (640, 6.882e-3)):
        assert 8_192 * (core.edge + places * core.windowed) == pytest.approx(measured_s, rel=0.1)


def test_dies_that_split_the_heads_of_a_prompt_each_score_and_gather_all_of_it(facts):
    """Per token of a die: the rank's tokens are as many times its own as it has dies."""
    alone = prefill_on_ascend(facts, "deepseek-v3-2").core
    tensor = {"deployment.prefill.attention": "tp", "deployment.prefill.tp_dies": 8}
    split = prefill_on_ascend(facts, "deepseek-v3-2", tensor).core
    assert split.edge == pytest.approx(8.0 * alone.edge)
    assert split.index == pytest.approx(8.0 * alone.index)
    assert alone.latent < split.latent < 8.0 * alone.latent  # it multiplies for its heads alone


def prefill_on_ascend(facts, model, more=None):
    pool = {"deployment.model": model, "deployment.mode": "prefill_only",
            "deployment.prefill.instances": 1, "deployment.prefill.attention": "dp"}  # fmt: skip
    scenario = with_overrides(Scenario(), pool | (more or {}))
    return Priced(scenario, facts).parts.costs.prefill


def test_a_kernel_that_computes_every_place_takes_each_token_of_a_prompt_alike():
    w = PromptCore(pair=1.0, latent=3.0, index=0.5, select=7.0, reach=2_048.0, least=2_048.0)

    def core(prompt):
        return prompt_core_s(w, prompt, prompt**2 / 2)

    for prompt in (16.0, 2_048.0, 8_192.0):
        scoring = 0.5 * prompt**2 / 2 + 7.0 * prompt
        assert core(prompt) - scoring == pytest.approx(3.0 * 2_048.0 * prompt)
        counted = prompt_pairs(w, prompt, prompt**2 / 2)
        assert counted == (0.0, 2_048.0 * prompt, prompt**2 / 2)


@pytest.mark.parametrize(("model", "sparse"), [("deepseek-v3-2", True), ("deepseek-r1", False)])
def test_sparse_kernels_of_nvidia_compute_blocks_of_64_heads(facts, model, sparse):
    chip = {
        "supernode.chip": "h200", "supernode.nodes": 1, "supernode.npus_per_node": 8,
        "supernode.scale_up": "node", "supernode.sub_planes": 1, "deployment.model": model,
        "deployment.mode": "decode_only", "deployment.decode.npus_per_instance": 8,
        "deployment.precision.weights": "fp8",
        "deployment.decode.mtp_draft_tokens": 0, "deployment.decode.microbatch": "off",
    }  # fmt: skip

    def place_s(dies):
        scenario = with_overrides(Scenario(), chip | {"deployment.decode.tp_dies": dies})
        return decode_of(scenario, facts).sequence.core.context

    heads_16, heads_64, heads_128 = place_s(8), place_s(2), place_s(1)
    assert (heads_16 == pytest.approx(heads_64, rel=0.02)) == sparse
    assert heads_128 > 1.3 * heads_64


def test_vllm_takes_short_prompts_through_the_sparse_kernel_and_sglang_does_not(facts):
    machine = {"supernode.chip": "b200", "supernode.nodes": 1, "supernode.npus_per_node": 8,
               "supernode.scale_up": "node", "supernode.sub_planes": 1,
               "deployment.model": "deepseek-v3-2", "deployment.mode": "prefill_only",
               "deployment.precision.weights": "fp8", "deployment.prefill.instances": 1,
               "deployment.prefill.npus_per_instance": 8}  # fmt: skip

    def prefill_of(stack):
        scenario = with_overrides(Scenario(), machine | {"deployment.stack": stack})
        return Priced(scenario, facts).parts.costs.prefill.core

    vllm, sglang = prefill_of("vllm-0-24"), prefill_of("sglang-0-5")
    assert (vllm.least_from, sglang.least_from) == (0.0, 2_048.0)
    assert (vllm.least, sglang.least) == (2_048.0, 2_048.0)
    assert vllm.latent >= sglang.latent  # padded to as many heads or more


@pytest.mark.parametrize(
    ("before", "tokens", "prompts", "sparse"),
    [(0, 2_048, 1, False), (0, 2_049, 1, True), (0, 1_000, 8, False), (0, 4_096, 4, True),
     (1_024, 1_024, 1, False), (1_536, 1_024, 1, True), (65_536, 16, 1, True)],
)  # fmt: skip
def test_prompts_longer_than_the_selection_go_through_the_sparse_kernel(
    before, tokens, prompts, sparse
):
    """By the length of a prompt, also of the later pieces of one, not by the faster way."""
    rows = float(tokens * prompts)
    pairs = rows * (before + 0.5 * (tokens + 1.0))
    w = PromptCore(pair=1.0, latent=1e9, reach=2_048.0, least=2_048.0, least_from=2_048.0)
    counted = prompt_pairs(w, rows, pairs)
    assert counted == ((0.0, 2_048.0 * rows, pairs) if sparse else (pairs, 0.0, 0.0))


@pytest.mark.parametrize(
    ("chip", "heads", "tokens", "measured_s"),
    [("h200", 16, 4_096, 3.97e-3), ("h200", 16, 8_192, 8.06e-3), ("h200", 64, 8_192, 8.82e-3),
     ("b200", 16, 8_192, 2.78e-3), ("b200", 128, 8_192, 4.81e-3)],
)  # fmt: skip
def test_a_long_prompt_on_a_die_of_nvidia_takes_what_its_module_was_measured_with(
    facts, chip, heads, tokens, measured_s
):
    """DeepSeek-V3.2's attention under SGLang 0.5.14 with 8-bit KV, projections with it
    (aiconfigurator-core 0.12, dsa_context_module)."""
    dies = 128 // heads
    machine = {"supernode.chip": chip, "supernode.nodes": 1, "supernode.npus_per_node": 8,
               "supernode.scale_up": "node", "supernode.sub_planes": 1,
               "deployment.model": "deepseek-v3-2", "deployment.mode": "colocated",
               "deployment.precision.weights": "fp8", "deployment.precision.kv": "int8",
               "deployment.stack": "sglang-0-5",
               "deployment.colocated.npus_per_instance": 8, "deployment.decode.tp_dies": dies,
               "deployment.decode.mtp_draft_tokens": 0}  # fmt: skip
    p = Priced(with_overrides(Scenario(), machine), facts).parts.costs.colocated_role.decode
    c, rows = p.chunk, float(tokens)
    time = p.sequence.core.fixed + c.edge * rows + prompt_core_s(
        c, rows, rows * (rows + 1.0) / 2
    ) + sum(product_s(w, rows) for w in (*p.sequence.before, *p.sequence.after))  # fmt: skip
    assert time == pytest.approx(measured_s, rel=0.25)


def test_a_prompt_takes_the_faster_of_all_pairs_and_the_selected_ones():
    w = PromptCore(pair=1.0, latent=3.0, select=9.0, reach=2_048.0)

    def core(prompt):
        pairs = prompt * prompt / 2
        return prompt_core_s(w, prompt, pairs) - 9.0 * prompt * (pairs > 0.0)

    assert core(4_096.0) == 4_096.0**2 / 2  # a mask over all
    counted = prompt_pairs(w, 4_096.0, 4_096.0**2 / 2)
    assert counted == (4_096.0**2 / 2, 0.0, 4_096.0**2 / 2)  # FLOPs are those of what is timed
    assert core(65_536.0) == pytest.approx(3.0 * (65_536 * 2_048 - 2_048**2 / 2))


def test_bytes_and_flops_of_a_layer_are_those_counted_by_hand(facts):
    s = load_shape(facts, "deepseek-v3-2")
    assert s.index_weights == 1536 * 64 * 128 + 7168 * 128 + 7168 * 64
    assert s.kv_bytes_per_token_layer("bf16") == 2 * 576 + 2 * 128
    assert s.index_bytes_per_token_layer("int8") == 132  # as stored by engines
    dense = decode_of(with_overrides(SPARSE, {"deployment.model": "deepseek-r1"}), facts)
    sparse, context = decode_of(SPARSE, facts), 65_536.0
    layers, query = 61.0, 2.0  # and one draft, whose module sees both positions
    pairs = (2_048 * 2 * 128 * (2 * 512 + 64) + context * 2 * 64 * 129) * query * (layers + 1)
    dense_pairs = context * 2 * 128 * (2 * 512 + 64) * query * (layers + 1)
    projections = 2 * s.index_weights * query * (layers + 1)
    more = decode_flops(sparse, 1.0, context) - decode_flops(dense, 1.0, context)
    assert more == pytest.approx(pairs - dense_pairs + projections, rel=1e-3)
    read = decode_hbm_bytes(sparse, 1.0, context, 320.0) - decode_hbm_bytes(
        dense, 1.0, context, 320.0
    )
    by_hand = (2_048 * query - context) * 1_152 + context * 256
    weights = s.index_weights * 320  # in INT8, on every die
    assert read == pytest.approx((by_hand + weights) * (layers + 1), rel=1e-3)


def test_a_run_with_long_contexts_is_faster_than_that_of_the_dense_model(facts):
    # Few requests a die: below, cores that have no query token cost what the selection saves.
    long = {"workload.input_tokens": 131_072, "workload.rate_req_per_s": 1.0, "horizon_s": 60.0}
    tpot_s = [
        simulate(with_overrides(SPARSE, long | {"deployment.model": model}), facts).summary[
            "tpot_s_mean"
        ]
        for model in ("deepseek-v3-2", "deepseek-r1")
    ]
    assert tpot_s[0] < tpot_s[1]


def mixed_prompt_core(model, tp_dies, is_split, facts):
    rank = {"deployment.mode": "colocated", "deployment.decode.tp_dies": tp_dies}
    scenario = with_overrides(Scenario(), {"deployment.model": model} | rank)
    split = facts.replaced({"operators.ascend.sparse_split": float(is_split)})
    return Priced(scenario, split).parts.costs.colocated_role.decode.chunk


def test_dies_of_a_mixed_rank_split_prompts_where_the_engine_does_and_score_no_token_twice(facts):
    by_heads, by_tokens = (mixed_prompt_core("deepseek-v3-2", 8, on, facts) for on in (0, 1))
    assert by_tokens.index == pytest.approx(by_heads.index / 8)  # each die had scored every token
    assert by_tokens.edge == pytest.approx(by_heads.edge / 8)  # and begun with it
    assert by_tokens.index_flops == pytest.approx(by_heads.index_flops / 8)
    assert by_tokens.latent_flops == pytest.approx(by_heads.latent_flops)  # heads or tokens
    # Selected KV is read by one die, not by eight; what is computed is as much.
    assert by_heads.latent / 8 < by_tokens.latent < by_heads.latent
    assert by_tokens.reach == by_heads.reach


@pytest.mark.parametrize(
    ("model", "tp_dies"), [("deepseek-v3-2", 1), ("deepseek-r1", 8), ("deepseek-v4-flash", 8)]
)
def test_nothing_is_split_within_one_die_or_without_an_indexer_of_all_keys(model, tp_dies, facts):
    assert mixed_prompt_core(model, tp_dies, 0, facts) == mixed_prompt_core(
        model, tp_dies, 1, facts
    )


@pytest.mark.parametrize(
    ("stack", "flash_comm", "is_split"),
    [("vllm-ascend-0-13", True, True), ("vllm-ascend-0-13", False, False),
     ("vllm-ascend-0-11", True, False), ("chitu", True, False), ("sglang-npu", True, False)],
)  # fmt: skip
def test_which_engines_split_prompts_of_a_mixed_rank(stack, flash_comm, is_split, facts):
    fields = {"deployment.model": "deepseek-v3-2", "deployment.mode": "colocated",
              "deployment.stack": stack}  # fmt: skip
    fields["deployment.optimisations.flash_comm"] = flash_comm
    one, eight = (
        Priced(
            with_overrides(Scenario(), fields | {"deployment.decode.tp_dies": dies}), facts
        ).parts.costs.colocated_role.decode.chunk.index
        for dies in (1, 8)
    )
    assert eight / one == pytest.approx(1 / 8 if is_split else 1.0)
