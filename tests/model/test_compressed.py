"""Compressed attention (DeepSeek-V4): each layer has a window, some select among keys of four
tokens, the others attend to all keys of 128."""

from dataclasses import replace

import pytest

from tests.model.agreement import MODES, agree
from twin.model.alone import ALONE
from twin.model.decode import decode_flops, decode_hbm_bytes
from twin.model.layer import local_core_s, product_s, prompt_core_s, window_pairs
from twin.model.memory import whole_model_bytes
from twin.model.operators import formats
from twin.model.prefill import prefill_flops
from twin.model.shape import ModelError, load_shape
from twin.scenario import Precision, Scenario, with_overrides
from twin.steady import Priced, predict_steady

# V4-Flash's config.json.
LAYERS, SELECT, POOL, WINDOW, HIDDEN, HEADS, WIDTH, ROTARY = 43, 21, 20, 128, 4096, 64, 512, 64
QUERY, GROUPS, GROUP, INDEX, INDEX_WIDTH, TOP = 1024, 8, 1024, 64, 128, 512
EXPERTS, TOP_K, INNER, VOCABULARY = 256, 6, 2048, 129280
FLASH = {
    "deployment.model": "deepseek-v4-flash", "deployment.decode.mtp_draft_tokens": 0,
    "supernode.nodes": 4, "deployment.prefill.instances": 1, "experts.redundant": 0,
    "deployment.prefill.npus_per_instance": 16, "deployment.decode.npus_per_instance": 8,
    "deployment.prefill.attention": "dp", "deployment.decode.microbatch": "off",
    "deployment.decode.batch_per_npu": 32, "deployment.decode.instances": 1,
    "deployment.colocated.npus_per_instance": 8, "workload.output_tokens": 512,
}  # fmt: skip
# Parameters of a layer's attention: of all, of one that selects, of one that does not.
PLAIN = HIDDEN * (QUERY + WIDTH) + QUERY * HEADS * WIDTH
PLAIN += HEADS * WIDTH * GROUP + GROUPS * GROUP * HIDDEN
CHOICE = QUERY * INDEX * INDEX_WIDTH + HIDDEN * (INDEX + 4 * INDEX_WIDTH + 4 * WIDTH)
POOLING = 2 * HIDDEN * WIDTH
ATTENTION = LAYERS * PLAIN + SELECT * CHOICE + POOL * POOLING


@pytest.fixture(scope="module")
def facts(facts):
    """Of kernels alone, as they were measured."""
    return facts.replaced(ALONE)


def flash(**more):
    return with_overrides(Scenario(), FLASH | {k.replace("__", "."): v for k, v in more.items()})


def costs_of(scenario, facts):
    return Priced(scenario, facts).parts.costs


@pytest.mark.parametrize(
    ("name", "parameters"), [("deepseek-v4-flash", 284e9), ("deepseek-v4-pro", 1.573e12)]
)
def test_a_model_has_as_many_parameters_as_its_name_says(facts, name, parameters):
    plain = formats(Precision(weights="bf16", attention="bf16", kv="bf16"))
    held = whole_model_bytes(load_shape(facts, name), plain)
    assert held / 2 == pytest.approx(parameters, rel=0.002)


def test_time_grows_with_the_context_by_scores_and_pooled_keys_alone_beyond_the_selection(facts):
    w = costs_of(flash(), facts).decode.sequence.core
    reach = float(TOP * 4)
    assert w.reach == reach
    grown = [local_core_s(w, 1.0, k * reach) - local_core_s(w, 1.0, reach) for k in (2.0, 3.0)]
    assert grown[1] == pytest.approx(2.0 * grown[0])
    assert grown[0] == pytest.approx(w.index * reach)
    before = local_core_s(w, 1.0, reach) - local_core_s(w, 1.0, 0.5 * reach)
    assert before > 0.5 * grown[0]  # while all keys are selected the core grows too


def test_a_core_that_has_a_query_token_to_itself_has_its_window_too(facts):
    """One query token takes as long as the 24 that a die of CANN's sparse kernel has cores for."""
    w = costs_of(flash(deployment__stack="cann-recipes"), facts).decode.sequence.core
    assert w.independent_cores == 24.0
    alone, all_cores = (local_core_s(w, n, n * 8192.0) - w.index * n * 8192.0 for n in (1.0, 24.0))
    assert alone == pytest.approx(all_cores)


def test_bytes_and_flops_of_decode_are_those_counted_by_hand(facts):
    p = costs_of(flash(deployment__precision__kv="bf16"), facts).decode
    requests, context = 64.0, 64.0 * 20_000.0
    keys = context * POOL / 128 + requests * (SELECT * TOP + LAYERS * WINDOW)
    scores = context / 4 * SELECT * INDEX
    expert = 3 * HIDDEN * INNER
    token = 2 * (ATTENTION + LAYERS * (HIDDEN * EXPERTS + (TOP_K + 1) * expert))
    by_hand = requests * (token + 2 * VOCABULARY * HIDDEN)
    by_hand += keys * 4 * HEADS * WIDTH + scores * 2 * (INDEX_WIDTH + 1)
    assert decode_flops(p, requests, context) == pytest.approx(by_hand, rel=1e-3)
    kv = decode_hbm_bytes(p, requests, context, 16.0) - decode_hbm_bytes(p, requests, 0.0, 16.0)
    read = keys * WIDTH * 2 + context / 4 * SELECT * INDEX_WIDTH * 2
    assert kv == pytest.approx(read, rel=1e-3)


def test_flops_of_a_prompt_are_those_counted_by_hand(facts):
    p, prompt = costs_of(flash(), facts).prefill, 32_768.0
    every = prompt * (prompt + 1.0) / 2
    reach, near = TOP * 4.0, window_pairs(WINDOW, prompt, every)
    selected = prompt * (reach - 0.25 * reach * reach * prompt / every) / 4 * SELECT
    keys = selected + every / 128 * POOL + near * LAYERS
    core = prefill_flops(p, prompt, every) - prefill_flops(p, prompt, 1e-9)
    by_hand = keys * 4 * HEADS * WIDTH + every / 4 * SELECT * 2 * INDEX * (INDEX_WIDTH + 1)
    all_pairs = every / 4 * SELECT - selected  # masked, where that is faster
    assert core in (
        pytest.approx(by_hand, rel=1e-3),
        pytest.approx(by_hand + all_pairs * 4 * HEADS * WIDTH, rel=1e-3),
    )


@pytest.mark.parametrize(("kv", "each", "key"), [("bf16", 1024, 256), ("int8", 576, 132)])
def test_a_token_of_the_context_has_keys_of_its_groups_and_a_slot_its_windows(facts, kv, each, key):
    scenario = flash(deployment__precision__kv=kv, deployment__mode="decode_only")
    role = costs_of(scenario, facts).decode_role
    assert role.memory.slots == 16 * LAYERS * WINDOW * each
    token = SELECT / 4 * (each + key) + POOL / 128 * each
    assert role.kv_tokens_per_rank == int(role.memory.kv / token)


def test_more_residual_streams_move_more_bytes_and_take_no_matrix_product(facts):
    one = facts.replaced({
        "models.deepseek-v4-flash.residual_streams":
        replace(facts["models.deepseek-v4-flash.residual_streams"], value=1)
    })  # fmt: skip
    four_s, one_s = (predict_steady(flash(), known).decode.iteration_s for known in (facts, one))
    assert four_s > one_s
    costs = [costs_of(flash(), known).decode for known in (facts, one)]
    assert decode_flops(costs[0], 64.0, 1e5) == decode_flops(costs[1], 64.0, 1e5)


@pytest.mark.parametrize(
    ("chip", "measured_s"), [("ascend-910c", 74.8e-6), ("ascend-950dt", 32e-6)]
)
def test_mixing_streams_on_ascend_takes_its_kernels(facts, chip, measured_s):
    """Twice the kernels before and after a sublayer: on Atlas A3 by another profile of the same
    repository (reports/device-account-fixed-baseline.md: 29.8 and 7.6 us) than the fact is of, and
    the slowest die a few percent longer."""
    one = replace(facts["models.deepseek-v4-flash.residual_streams"], value=1)
    single = facts.replaced({"models.deepseek-v4-flash.residual_streams": one})
    four, alone = (
        costs_of(flash(supernode__chip=chip), known).decode.sequence.before[0].fixed
        for known in (facts, single)
    )
    assert four - alone == pytest.approx(measured_s, rel=0.15)


@pytest.mark.parametrize(
    ("chip", "requests", "context", "measured_s"),
    [("b200", 1, 1_024, 108e-6), ("b200", 1, 4_096, 140e-6), ("b200", 64, 1_024, 128e-6),
     ("b200", 64, 4_096, 164e-6), ("h200", 1, 4_096, 160e-6), ("h200", 64, 4_096, 190e-6),
     ("gb300", 64, 4_096, 161e-6)],
)  # fmt: skip
def test_a_layer_on_nvidia_takes_what_its_modules_were_measured_with(
    facts, chip, requests, context, measured_s
):
    """V4-Flash's mean layer under SGLang 0.5.14: attention of 21 layers that select and 22 that do
    not, and mixing of residual streams (aiconfigurator-core 0.12: dsv4_csa_generation_module,
    dsv4_hca_generation_module, mhc_module)."""
    p = costs_of(on_nvidia(chip), facts).colocated_role.decode
    m, rows = p.sequence, float(requests)
    time = m.core.fixed + local_core_s(m.core, rows, rows * context)
    time += sum(product_s(w, rows) for w in (*m.before, *m.after))
    assert time == pytest.approx(measured_s, rel=0.1)


@pytest.mark.parametrize(
    ("chip", "tokens", "measured_s"),
    [("b200", 1_024, 399e-6), ("b200", 4_096, 1_374e-6), ("h200", 1_024, 689e-6),
     ("h200", 4_096, 2_308e-6), ("gb300", 4_096, 1_273e-6)],
)  # fmt: skip
def test_a_prompt_on_nvidia_takes_what_its_modules_were_measured_with(
    facts, chip, tokens, measured_s
):
    p = costs_of(on_nvidia(chip), facts).colocated_role.decode
    c, rows = p.chunk, float(tokens)
    assert c.least_from == 0.0  # no kernel attends to compressed keys whole
    time = p.sequence.core.fixed + prompt_core_s(c, rows, rows * (rows + 1.0) / 2)
    time += c.edge * rows + sum(product_s(w, rows) for w in (*p.sequence.before, *p.sequence.after))
    assert time == pytest.approx(measured_s, rel=0.2)


def on_nvidia(chip):
    return flash(
        supernode__chip=chip, supernode__nodes=1, supernode__npus_per_node=8,
        supernode__scale_up="node", supernode__sub_planes=1, deployment__mode="colocated",
        deployment__precision__weights="fp8", deployment__stack="sglang-0-5",
    )  # fmt: skip


def test_dies_that_split_the_heads_have_the_groups_of_their_heads(facts):
    whole = load_shape(facts, "deepseek-v4-flash")
    part = whole.split(4)
    assert 4 * part.o_weights == whole.o_weights
    assert part.kv_width == whole.kv_width  # one key and value for all heads


@pytest.mark.parametrize("mode", MODES)
def test_formula_and_simulation_agree(mode, facts):
    agree(flash(), mode, facts)


def test_what_reads_all_of_the_context_is_refused(facts):
    with pytest.raises(ModelError, match="attends to a part of the context"):
        predict_steady(flash(deployment__decode__attention_offload=0.2), facts)
