"""What tables of NVIDIA's chips say of prompts, of one rank's all-reduces, and of launches."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from twin.hardware.chip import load_chip
from twin.hardware.fabric import build_fabric
from twin.metrics.operators import DECODE_OPERATORS
from twin.model.alone import ALONE
from twin.model.coefficients import Collective, DecodeCosts
from twin.model.costs import build_costs
from twin.model.decode import decode_iteration_s, launch_gap_s
from twin.model.formats import FORMATS
from twin.model.layer import PassLoad, collective_s, moe_stages_s
from twin.model.mixed import mixed_iteration_s
from twin.model.predict import EVEN
from twin.model.record import dtype_of, numbers
from twin.model.roofline import facts_of_stack, kernel_facts, load_machine
from twin.model.shape import load_shape
from twin.scenario import Scenario, with_overrides

NODE = {
    "supernode.chip": "h200", "supernode.nodes": 1, "supernode.npus_per_node": 8,
    "supernode.scale_up": "node", "supernode.sub_planes": 1, "supernode.ub_link_gb_per_s": 450.0,
    "supernode.rdma_gb_per_s_per_npu": 50.0, "deployment.precision.weights": "fp8",
    "deployment.decode.mtp_draft_tokens": 0, "experts.redundant": 0,
}  # fmt: skip
WIDE = {"supernode__nodes": 2, "deployment__prefill__npus_per_instance": 16}
TABLE = "chips.h200.operators"


@pytest.fixture(scope="module")
def facts(facts):
    """Of kernels alone, as they were measured."""
    return facts.replaced(ALONE)


def costs(facts, **fields):
    s = with_overrides(Scenario(), NODE | {k.replace("__", "."): v for k, v in fields.items()})
    return build_costs(s, facts, build_fabric(s.supernode, facts))


def prompts(facts, **fields):
    fields = {"deployment__prefill__npus_per_instance": 8} | fields
    return costs(
        facts, deployment__mode="prefill_only", deployment__prefill__instances=1,
        deployment__prefill__attention="dp", **fields,
    ).prefill  # fmt: skip


def one_rank(facts, dies=8, **fields):
    return costs(
        facts, deployment__mode="decode_only", deployment__decode__instances=1,
        deployment__decode__npus_per_instance=8,
        deployment__decode__tp_dies=dies, **fields,
    ).decode  # fmt: skip


def test_a_token_of_a_prompt_costs_the_pairs_at_its_diagonal(facts):
    """By hand: pairs of the table at the share of the peak that a sustained clock leaves."""
    p = prompts(facts)
    table = facts.group(f"{TABLE}.prefill_mla.bf16")
    peak = facts.si("chips.h200.flops.bf16") * facts.si("chips.h200.sustained_clock")
    pair = load_shape(facts, "deepseek-r1").prefill_core_flops / peak / table["compute"].si
    assert p.core.pair == pytest.approx(pair)
    assert p.core.edge == pytest.approx(pair * table["edge"].si)
    assert numbers(p).nbytes == dtype_of(type(p)).itemsize  # a simulation reads it as one
    mixed = costs(
        facts,
        deployment__mode="colocated",
        deployment__colocated__instances=1,
        deployment__colocated__npus_per_instance=8,
    )
    assert mixed.decode.chunk.edge == pytest.approx(pair * table["edge"].si)


def test_a_chip_without_a_table_has_its_familys_share_and_no_diagonal(facts):
    p = prompts(facts, supernode__chip="h800", **WIDE)
    machine = load_machine(facts, load_chip(facts, "h800"))
    reached = machine.prompt_efficiency("bf16", "mla")
    assert reached.compute == machine.prefill_attention_utilisation and reached.edge == 0.0
    assert p.core.edge == 0.0


def test_experts_of_one_rank_take_a_second_all_reduce_and_no_dispatch(facts):
    spread, rank = one_rank(facts, 1).sequence, one_rank(facts).sequence
    start_s = 0.5 * facts[f"{TABLE}.collective.inside.start"].list_si[-1]
    for half in (rank.gather.fixed, rank.dispatch.fixed, rank.combine.fixed):
        assert half == pytest.approx(start_s)
    assert rank.dispatch.message == rank.dispatch.row == rank.combine.row == 0.0
    # A die's own tokens are an eighth of the rank's, which are all gathered.
    assert rank.dispatch.token == pytest.approx(8 * rank.gather.token)
    assert spread.dispatch.fixed > 3 * rank.dispatch.fixed and spread.dispatch.row > 0.0
    assert one_rank(facts, 4).sequence.dispatch.row > 0.0  # two ranks send to each other


def test_links_carry_the_all_reduces_of_one_rank_and_no_messages(facts):
    """Bytes of a token by hand: a hidden state to seven dies and seven sums back, 58 layers."""
    rank = costs(
        facts, deployment__mode="decode_only", deployment__decode__instances=1,
        deployment__decode__npus_per_instance=8, deployment__decode__tp_dies=8,
    ).decode_role  # fmt: skip
    assert rank.exchange_bytes_per_token == 2 * 7 * 2 * 7_168 * 58


def test_a_pass_with_prompts_is_no_shorter_than_its_launches(facts):
    p, shape = prompts(facts), load_shape(facts, "deepseek-r1")
    host = {part: facts.si(f"{TABLE}.eager.{part}.host") for part in ("mla", "moe")}
    of = {part: host["mla"] * facts.si(f"operators.nvidia.eager_layer.{part}")
          for part in ("mla", "gqa", "sparse", "dense")}  # fmt: skip
    assert of["sparse"] > of["mla"] > host["mla"] > of["gqa"]  # norms and all-reduces stand in them
    passes = shape.moe_layers * (2 if p.microbatch else 1)
    expected = of["mla"] * (passes + 3) + of["dense"] * 3 + host["moe"] * passes
    assert math.isclose(p.kernels, expected)
    decode = one_rank(facts).host
    assert decode.kernels == pytest.approx(of["mla"] * 61 + of["dense"] * 3 + host["moe"] * 58)
    known = {"deployment__stack": "tensorrt-llm"}  # of its launches one by one no table is known
    assert prompts(facts, **known).kernels == 0.0
    # Hosts of H20 and H800 are an H100's, by its table.
    h100, *others = (
        prompts(facts, supernode__chip=chip, **WIDE).kernels for chip in ("h100", "h800", "h20")
    )
    assert h100 > 0.0 and others == [h100, h100]


@pytest.mark.parametrize(
    ("model", "attention", "layers"),
    [("deepseek-v3-2", "sparse", 61), ("qwen3-235b", "gqa", 94), ("qwen3-32b", "gqa", 64)],
)
def test_the_host_launches_a_layer_by_its_attention(facts, model, attention, layers):
    """Whole launches of a pass by hand, from what a layer of each kind takes."""
    shape = load_shape(facts, model)
    own = facts.si(f"{TABLE}.eager.mla.host")
    by_kind = own * facts.si(f"operators.nvidia.eager_layer.{attention}") * layers
    ffn = own * facts.si("operators.nvidia.eager_layer.dense") * (layers - shape.moe_layers)
    moe = facts.si(f"{TABLE}.eager.moe.host") * shape.moe_layers
    launched = one_rank(facts, deployment__model=model).host.kernels
    assert launched == pytest.approx(by_kind + ffn + moe)


def test_grouped_query_attention_has_a_table_of_its_own(facts):
    machine = load_machine(facts, load_chip(facts, "h200"))
    own = machine.attention_efficiency("bf16", "gqa")
    assert own.start_s == facts.si(f"{TABLE}.gqa.bf16.start")
    assert own != machine.attention_efficiency("bf16", "mla") == machine.reaches["attention.bf16"]
    without = load_machine(facts, load_chip(facts, "h20"))
    of_gqa, of_mla = (without.attention_efficiency("int8", kind) for kind in ("gqa", "mla"))
    assert of_gqa == of_mla


def test_experts_of_one_rank_are_the_kernel_of_tokens_that_nobody_sends(facts):
    one, several = (one_rank(facts, dies).sequence.experts for dies in (8, 4))
    grouped, fused = (facts.si(f"{TABLE}.{name}.fp8.compute") for name in ("grouped", "fused"))
    assert one.flop / several.flop == pytest.approx(grouped / fused)


@pytest.mark.parametrize(
    ("model", "weights", "stack", "table"),
    [
        ("deepseek-r1", "fp8", "sglang-0-5", "operators.fused.fp8"),
        ("qwen3-235b", "fp8", "sglang-0-5", "operators.fused_gqa.fp8"),
        ("qwen3-235b", "bf16", "plain", "operators.fused_gqa.bf16"),
        ("qwen3-235b", "fp4", "sglang-0-5", "operators.fused.fp4"),
        ("qwen3-235b", "fp8", "vllm-0-24", "kernels.vllm.latest.fused.fp8"),
        ("qwen3-235b", "fp8", "tensorrt-llm-1-3", "kernels.trtllm.latest.fused.fp8"),
        ("kimi-k2", "w4a16", "sglang-0-5", "operators.fused.w4a16"),
        ("kimi-k2", "w4a16", "vllm-0-24", "kernels.vllm.latest.fused.w4a16"),
        ("kimi-k2", "w4a16", "vllm-0-24-flashinfer-int4", "operators.fused.w4a16"),
        ("qwen3-235b", "fp8", "vllm-0-24-flashinfer-int4", "kernels.vllm.latest.fused.fp8"),
        ("gpt-oss-120b", "mxfp4", "plain", "operators.fused.mxfp4"),
    ],
)
def test_experts_of_one_rank_have_the_kernel_of_their_model_weights_and_engine(
    facts, model, weights, stack, table
):
    """On Blackwell SGLang has one of its own in 8 and 16 bits without latent attention, unless an
    engine's own library has a kernel; packed weights have one on all chips that were measured."""
    x = one_rank(
        facts, supernode__chip="b200", deployment__model=model, deployment__stack=stack,
        deployment__precision__weights=weights,
    ).sequence.experts  # fmt: skip
    shape, reads = load_shape(facts, model), facts.si(f"chips.b200.{table}.bandwidth")
    weight_bytes = 3.0 * shape.hidden * shape.expert_intermediate * FORMATS[weights].weight_bytes
    read_s = weight_bytes / facts.si("chips.b200.hbm_bandwidth") / reads
    assert read_s <= x.weight < 1.05 * read_s  # the slowest die of eight is some 3 % slower


def test_a_flag_that_acts_on_blackwell_changes_nothing_elsewhere(facts):
    stacks = "vllm-0-24", "vllm-0-24-flashinfer-int4"
    for chip, is_equal in (("h200", True), ("b200", False)):
        plain, flagged = (kernel_facts(facts, stack, chip) for stack in stacks)
        assert (plain == flagged) is is_equal


def test_vllm_replays_graphs_for_short_prompts(facts):
    """512 tokens of a rank in one pass are a graph, 513 are launched; of SGLang none are."""
    fields = {"deployment__mode": "colocated", "deployment__colocated__instances": 1,
              "deployment__colocated__npus_per_instance": 8,
              "deployment__decode__tp_dies": 8}  # fmt: skip
    seconds = {}
    for stack in ("vllm-0-24", "sglang-0-5"):
        role = costs(facts, deployment__stack=stack, **fields).decode
        flat, none = np.ones(1), np.zeros(len(DECODE_OPERATORS))
        for tokens in (512.0, 513.0):
            seconds[stack, tokens] = mixed_iteration_s(
                role, [0], [0.0], [tokens], [0.5 * tokens * tokens], 0, 1, flat, flat, none
            )
        assert seconds[stack, 513.0] >= role.host.kernels
    assert seconds["vllm-0-24", 512.0] < role.host.kernels
    assert seconds["sglang-0-5", 512.0] >= role.host.kernels


def test_a_batch_of_prefill_is_a_graph_up_to_the_tokens_that_were_captured(facts):
    of_die = {512: "vllm-0-24", 0: "sglang-0-5"}
    for tokens, stack in of_die.items():
        assert prompts(facts, deployment__stack=stack).captured == tokens
    shared = costs(
        facts, deployment__mode="prefill_only", deployment__prefill__instances=1,
        deployment__prefill__npus_per_instance=8, deployment__prefill__attention="tp",
        deployment__prefill__tp_dies=8, deployment__stack="vllm-0-24",
    ).prefill  # fmt: skip
    assert shared.captured == 512 / 8


@pytest.mark.parametrize(
    ("stack", "singly"), [("sglang-0-4-3", True), ("sglang-0-4", False), ("sglang-0-5", False)]
)
def test_passes_beyond_the_sizes_that_a_release_captures_are_launched_one_by_one(
    facts, stack, singly
):
    """SGLang of February 2025 captured passes of 160 requests at most (server_args.py)."""
    host = one_rank(facts_of_stack(facts, stack, "h200"), deployment__stack=stack).host
    ops = np.zeros(len(DECODE_OPERATORS))
    within, beyond = (
        launch_gap_s(SimpleNamespace(host=host, passes=0.0), 0.03, 1, requests, False, ops)
        for requests in (160.0, 161.0)
    )
    assert within == pytest.approx(host.gap)
    assert (beyond > within + 0.02) == singly


@pytest.mark.parametrize(
    ("model", "stack", "table"),
    [
        ("qwen3-235b", "tensorrt-llm-1-3", "kernels.trtllm.latest.gemm_gqa.fp8"),
        ("deepseek-r1", "tensorrt-llm-1-3", "kernels.trtllm.latest.gemm.fp8"),
        ("qwen3-235b", "sglang-0-5", "operators.gemm.fp8"),
    ],
)
def test_products_in_fp8_have_the_scales_of_their_model_s_checkpoint(facts, model, stack, table):
    """TensorRT-LLM serves NVIDIA's: one scale a tensor, but blocks for DeepSeek's models."""
    product = costs(
        facts_of_stack(facts, stack, "h200"), deployment__model=model, deployment__stack=stack,
        deployment__precision__weights="fp8", deployment__mode="decode_only",
        deployment__decode__instances=1, deployment__decode__npus_per_instance=8,
    ).decode.sequence.before[0]  # fmt: skip
    assert product.tile_large == facts.si(f"chips.h200.{table}.tile_large")


@pytest.mark.parametrize(
    ("stack", "stages", "lost"),
    [("sglang-0-4", 4, 4 * 9e-3), ("sglang-0-4", 1, 0.0), ("sglang-0-5", 4, 0.0)],
)
def test_a_stage_of_a_pipeline_waits_where_its_host_hands_groups_on(facts, stack, stages, lost):
    """SGLang of July 2025 lost 9 ms between two stages (pull request 7673)."""
    fields = {"deployment__mode": "colocated", "deployment__colocated__instances": 1,
              "deployment__colocated__npus_per_instance": 8, "deployment__decode__tp_dies": 2,
              "deployment__decode__pp_stages": stages,
              "deployment__decode__mtp_draft_tokens": 0}  # fmt: skip
    host = costs(
        facts_of_stack(facts, stack, "h200"), deployment__model="qwen3-235b",
        deployment__stack=stack, deployment__precision__weights="fp8", **fields,
    ).decode.host  # fmt: skip
    assert host.replay == pytest.approx(lost)


def test_one_process_hands_out_the_answers_of_an_engine_of_2025(facts):
    """65 us each, while the NPU works: a pass of 1,000 requests is no shorter than 65 ms."""
    host = one_rank(facts_of_stack(facts, "vllm-0-10", "b200"), deployment__stack="vllm-0-10").host
    ops = np.zeros(len(DECODE_OPERATORS))
    few, many = (
        launch_gap_s(SimpleNamespace(host=host, passes=0.0), 0.02, requests, requests, False, ops)
        for requests in (100.0, 1000.0)
    )
    assert few == pytest.approx(1.5e-3)
    assert many == pytest.approx(few + 0.065 - 0.02, rel=0.05)


def by_operator(role, requests, context):
    """Seconds of an iteration by operator, with so many requests on each rank."""
    load = [requests] * role.ranks, [requests * context] * role.ranks
    ops = role.operator_sink()
    decode_iteration_s(role.decode, *load, 0, role.ranks, *EVEN, ops)
    return dict(zip(role.operators, ops.tolist(), strict=True))


def test_without_an_exchange_ranks_gather_all_tokens_and_sum_the_results(facts):
    """Whole experts then send what experts split over all dies do, and no messages."""
    alone = {"deployment__mode": "decode_only", "deployment__decode__instances": 1,
             "deployment__decode__npus_per_instance": 8}  # fmt: skip
    messages, gathered, split = (
        costs(facts, **alone, **more).decoding_role
        for more in (
            {}, {"deployment__communication__fused": False}, {"deployment__decode__experts_tp": 8},
        )
    )  # fmt: skip
    assert gathered.layout == messages.layout != split.layout
    sent, read, same = (by_operator(role, 8, 4096) for role in (messages, gathered, split))
    for name in ("dispatch", "combine"):
        assert read[name] == pytest.approx(same[name])
        assert read[name] != pytest.approx(sent[name])


GATHERING = {"deployment__communication__fused": False}


def test_ranks_that_share_experts_gather_by_nccl_and_one_rank_does_not(facts):
    """Eight ranks of a die, two of four, and one of eight, which has the custom all-reduce."""
    for dies, start_s in (
        (1, facts[f"{TABLE}.collective.gathers.start"].list_si[-1]),
        (4, facts[f"{TABLE}.collective.gathers.start"].list_si[-1]),
        (8, 0.5 * facts[f"{TABLE}.collective.inside.start"].list_si[-1]),
    ):
        mode = one_rank(facts, dies, **GATHERING).sequence
        assert mode.dispatch.fixed == pytest.approx(start_s)
        assert mode.combine.fixed == pytest.approx(start_s)


def test_ranks_with_prompts_gather_by_sums_under_sglang(facts):
    """By hand: whole all-reduces of all tokens, twice the bytes, for gathers padded to the rank
    with most; where it alone has a prompt, they are a quarter of the bytes."""
    start_s = facts[f"{TABLE}.collective.inside.start"].list_si[-1]
    both = [
        costs(
            facts, deployment__mode="colocated", deployment__colocated__instances=1,
            deployment__colocated__npus_per_instance=8, deployment__stack=stack, **GATHERING,
        ).decode for stack in ("vllm-0-24", "sglang-0-5")
    ]  # fmt: skip
    assert both[0].chunk.sums == Collective()
    p = both[1]
    assert p.chunk.sums.fixed == pytest.approx(2.0 * start_s)
    padded = replace(p, chunk=replace(p.chunk, sums=Collective()))

    def pass_s(each: DecodeCosts, chunk: list[float]) -> float:
        none, pairs = [0.0] * 8, [tokens * tokens / 2 for tokens in chunk]
        sink = np.zeros(len(DECODE_OPERATORS))
        return mixed_iteration_s(each, [0] * 8, none, chunk, pairs, 0, 8, *EVEN, sink)

    for chunk in ([0.0] * 7 + [4096.0], [4096.0] * 8):
        load = PassLoad(4096.0, 0.0, 4096.0, sum(chunk), 8.0, 1.0, 1.0)
        _, dispatch, _, combine = moe_stages_s(p, p.sequence, load)
        sums_s = collective_s(p.chunk.sums, sum(chunk) / 8)
        by_hand = p.moe_layers * (sums_s - dispatch - combine)
        assert pass_s(p, chunk) - pass_s(padded, chunk) == pytest.approx(by_hand)
        assert (by_hand < 0.0) == (sum(chunk) == 4096.0)
    whole, halves = (
        prompts(facts, deployment__stack=stack, **GATHERING)
        for stack in ("sglang-0-5", "vllm-0-24")
    )
    assert whole.dispatch.fixed == pytest.approx(start_s)
    nccl_s = facts[f"{TABLE}.collective.gathers.start"].list_si[-1]
    assert halves.dispatch.fixed == pytest.approx(nccl_s)


def test_sglang_waits_before_a_pass_with_prompts_and_before_no_other(facts):
    """Once a pass, however many prompts it has; where prompts have passes of their own too."""
    name = "stacks.sglang-0-5.operators.nvidia.prompt_gap"
    wait_s, without = facts.si(name), facts.replaced({name: 0.0})
    seconds = dict[tuple[bool, float], float]()
    for waits, from_facts in ((True, facts), (False, without)):
        mixed = costs(
            from_facts, deployment__mode="colocated", deployment__colocated__instances=1,
            deployment__colocated__npus_per_instance=8, deployment__decode__tp_dies=8,
            deployment__stack="sglang-0-5",
        ).decode  # fmt: skip
        for tokens in (0.0, 300.0, 8000.0):
            sink = np.zeros(len(DECODE_OPERATORS))
            seconds[waits, tokens] = mixed_iteration_s(
                mixed, [4], [4000.0], [tokens], [tokens * tokens / 2], 0, 1, *EVEN, sink
            )
            assert sink.sum() == pytest.approx(seconds[waits, tokens])
    assert seconds[True, 0.0] == seconds[False, 0.0]
    for tokens in (300.0, 8000.0):
        assert seconds[True, tokens] - seconds[False, tokens] == pytest.approx(wait_s)
    batch = [prompts(each, deployment__stack="sglang-0-5").launch for each in (facts, without)]
    assert batch[0] - batch[1] == pytest.approx(wait_s)


def test_norms_over_all_heads_take_one_more_all_reduce_of_a_rank(facts):
    """MiniMax-M2's, by hand: a kernel, and the start of an all-reduce of 8 dies; none on one."""
    none = facts.replaced({"models.minimax-m2-5.norm_sums": 0})
    start_s = facts[f"{TABLE}.collective.inside.start"].list_si[-1]
    for dies, expected in ((8, facts.si("operators.nvidia.kernel_gap") + start_s), (1, 0.0)):
        with_it, without = (
            one_rank(each, dies, deployment__model="minimax-m2-5").sequence.gather.fixed
            for each in (facts, none)
        )
        assert with_it - without == pytest.approx(expected)


@pytest.mark.parametrize(
    "model, stack, chip, lost",
    [
        ("glm-4-7", "sglang-0-5", "b200", "sglang-0-5"), ("glm-4-7", "vllm-0-24", "b200", None),
        ("deepseek-r1", "sglang-0-5", "h200", None), ("kimi-k2", "sglang-0-5", "h200", None),
        ("deepseek-r1", "sglang-0-4-3", "h200", "sglang-0-4-3"),
        ("minimax-m2-5", "sglang-0-5", "h200", None), ("glm-5", "sglang-0-5", "h200", "sglang-0-5"),
        ("glm-5", "sglang-0-5", "b200", None),  # whose kernel of experts chooses them
    ],
)  # fmt: skip
def test_a_choice_of_experts_without_a_kernel_of_its_own_takes_several(
    facts, model, stack, chip, lost
):
    none = facts.replaced(
        {f"stacks.{name}.operators.nvidia.choice": 0.0 for name in ("sglang-0-5", "sglang-0-4-3")}
    )
    fields = {"deployment__model": model, "deployment__stack": stack, "supernode__chip": chip,
              "deployment__decode__experts_tp": 8}  # fmt: skip
    with_it, without = (one_rank(each, **fields).splits[0].gate.fixed for each in (facts, none))
    expected = facts.si(f"stacks.{lost}.operators.nvidia.choice") if lost else 0.0
    assert with_it - without == pytest.approx(expected, abs=1e-9)


def test_the_host_launches_a_choice_of_several_kernels_one_by_one(facts):
    name = "stacks.sglang-0-5.operators.nvidia.choice_host"
    fields = {"deployment__model": "glm-4-7", "deployment__stack": "sglang-0-5"}
    with_it, without = (
        one_rank(each, **fields).host.kernels for each in (facts, facts.replaced({name: 0.0}))
    )
    layers = load_shape(facts, "glm-4-7").moe_layers
    assert with_it - without == pytest.approx(layers * facts.si(name))


def test_an_indexer_whose_weights_are_in_fp32_takes_its_stack_longer(facts):
    """40 us of each layer, of models that have an indexer alone (SGLang issue 16861), and 3 % that
    the slowest of eight dies takes longer."""
    alone = {"deployment__mode": "decode_only", "deployment__decode__instances": 1,
             "deployment__decode__npus_per_instance": 8}  # fmt: skip
    for model, more in (("deepseek-v3-2", 40e-6), ("deepseek-r1", 0.0)):
        newer, older = (
            costs(
                facts_of_stack(facts, stack, "h200"), **alone,
                deployment__stack=stack, deployment__model=model,
            ).decoding_role
            for stack in ("sglang-0-5", "sglang-0-5-6")
        )  # fmt: skip
        before, after = (by_operator(role, 8, 4096)["mla_prolog"] for role in (newer, older))
        assert after - before == pytest.approx(more * load_shape(facts, model).layers, rel=0.04)
