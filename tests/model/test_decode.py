from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from twin.hardware.fabric import build_fabric
from twin.kernels.compiled import entry
from twin.metrics.operators import DECODE_OPERATORS
from twin.model.costs import build_costs
from twin.model.decode import decode_flops, decode_hbm_bytes, decode_iteration_s, launch_gap_s
from twin.model.record import row_of
from twin.scenario import Scenario, with_overrides

EVEN = np.array([1.0]), np.array([1.0])


@pytest.fixture
def iteration(facts):
    def seconds(requests, context, call=None, hot=1.0, **fields):
        fields["deployment__mode"] = "decode_only"
        s = with_overrides(Scenario(), {k.replace("__", "."): v for k, v in fields.items()})
        costs = build_costs(s, facts, build_fabric(s.supernode, facts))
        r = np.full(320, requests) if np.isscalar(requests) else requests
        c = np.full(320, float(context)) if np.isscalar(context) else context
        ops = np.zeros(len(DECODE_OPERATORS))
        p = row_of(costs.decode) if call else costs.decode
        seconds = call or decode_iteration_s
        took = seconds(p, r, c, 0, 320, np.array([1.0]), np.array([hot]), ops)
        assert ops.sum() == pytest.approx(took, rel=1e-12)
        assert (ops >= 0.0).all()
        return took

    return seconds


@pytest.mark.parametrize("mode", ["on", "off", "auto"])
def test_plain_python_and_compiled_code_agree(iteration, mode):
    kind = {"deployment__decode__microbatch": mode}
    compiled = iteration(48, 200_000, entry(decode_iteration_s), **kind)
    assert compiled == iteration(48, 200_000, **kind)


def test_more_requests_context_or_unevenness_never_take_less(iteration):
    base = iteration(48, 200_000)
    assert iteration(49, 200_000) > base
    assert iteration(48, 210_000) > base or iteration(48, 210_000, hot=0.5) >= base
    assert iteration(48, 200_000, hot=1.5) > base
    assert iteration(0, 0.0) == 0.0


def test_the_slowest_rank_sets_the_pace(iteration):
    context = np.full(320, 100_000.0)
    slow = context.copy()
    slow[317] = 400_000.0
    off = {"deployment__decode__microbatch": "off"}
    assert iteration(24, slow, **off) == iteration(24, np.full(320, 400_000.0), **off)
    assert iteration(24, slow, **off) > iteration(24, context, **off)


@pytest.mark.parametrize("requests", [1, 4, 16, 48, 64])
def test_auto_is_the_faster_of_both(iteration, requests):
    context = requests * 4_000.0
    both = [iteration(requests, context, deployment__decode__microbatch=m) for m in ("on", "off")]
    auto = iteration(requests, context, deployment__decode__microbatch="auto")
    assert auto == min(both)


@pytest.mark.parametrize(
    ("fields", "slower"),
    [
        ({"deployment__precision__weights": "bf16"}, True),
        ({"deployment__communication__fused": False}, True),
        ({"deployment__communication__early_quantisation": False}, True),
        ({"deployment__decode__mtp_draft_tokens": 0}, False),
        ({"deployment__decode__mtp_draft_tokens": 3}, True),
        ({"deployment__precision__kv": "int8"}, False),
    ],
)
@pytest.mark.parametrize("requests", [4, 48])
def test_every_switch_moves_the_iteration_the_right_way(iteration, fields, slower, requests):
    context = requests * 4_000.0
    base = iteration(requests, context, deployment__decode__microbatch="off")
    other = iteration(requests, context, deployment__decode__microbatch="off", **fields)
    assert bool(other > base) is slower


def test_demand_counts_every_token_and_weight(facts):
    s = Scenario()
    p = build_costs(s, facts, build_fabric(s.supernode, facts)).decode
    one, two = (decode_flops(p, n, n * 4096.0) for n in (1.0, 2.0))
    assert two == pytest.approx(2 * one)
    weights = decode_hbm_bytes(p, 1.0, 0.0, 320.0)
    assert decode_hbm_bytes(p, 1.0, 4096.0, 320.0) - weights == 4096 * 1152 * 62
    routed = decode_hbm_bytes(p, 1e6, 0.0, 320.0) - decode_hbm_bytes(p, 0.0, 0.0, 320.0)
    assert routed == pytest.approx(288 * 59 * 3 * 7168 * 2048)  # all asked for, or none


@pytest.mark.parametrize("drafts", [0, 1, 3])
def test_flops_are_those_of_the_passes_that_are_timed(facts, drafts):
    """DeepSeek-R1: 61 layers and a head for 1 + k positions, then k passes of the module."""
    s = with_overrides(Scenario(), {"deployment.decode.mtp_draft_tokens": drafts})
    p = build_costs(s, facts, build_fabric(s.supernode, facts)).decode
    attention, expert = 187_105_280 + 7168 * 256, 3 * 7168 * 2048
    head, dense = 7168 * 129_280, 3 * 7168 * 18_432
    position = 61 * attention + 58 * 9 * expert + 3 * dense + head
    module = attention + 9 * expert + 2 * 7168 * 7168
    drafted = drafts and 1 + drafts + drafts - 1
    pair = 128 * (2 * 512 + 64)
    wanted = (1 + drafts) * position + drafted * module + drafts * head
    wanted += 4096 * pair * (61 * (1 + drafts) + drafted)
    assert decode_flops(p, 1.0, 4096.0) == pytest.approx(2 * wanted, rel=1e-12)


def host(p, **fields):
    return replace(p, host=replace(p.host, **fields))


@pytest.fixture
def served(facts):
    s = with_overrides(Scenario(), {"deployment.mode": "decode_only",
                                    "deployment.stack": "sglang-npu",
                                    "deployment.decode.mtp_draft_tokens": 3})  # fmt: skip
    return build_costs(s, facts, build_fabric(s.supernode, facts)).decode


def gap(p, busy, tokens=8.0, pieces=False):
    return launch_gap_s(p, busy, 100, tokens, pieces, np.zeros(len(DECODE_OPERATORS)))


def test_a_served_engine_waits_before_each_graph_for_the_last_of_its_hosts(served):
    # Verify, draft and extend: each 1.02 ms, and the latest of 320 hosts.
    latest = NormalDist().inv_cdf((320 - 0.375) / 320.25)
    assert gap(served, 1.0) == pytest.approx(3 * (1.02e-3 + 0.594e-3 * latest))
    undrafted = replace(served, passes=0.0)
    assert gap(undrafted, 1.0) == pytest.approx(gap(served, 1.0) / 3)


def test_what_the_host_does_while_the_npu_computes_shows_where_it_takes_longer(served):
    alone = gap(served, 1.0)
    ahead = 4 * 0.7e-3 + 319 * 124e-6 + 61 * 184e-6  # launches, ranks that agree, lengths
    assert gap(served, ahead - 5e-3) == pytest.approx(alone + 5e-3)
    assert gap(served, ahead + 1e-6) == pytest.approx(alone)


def test_a_pass_that_was_not_captured_is_launched_kernel_by_kernel(served):
    p = host(served, captured=16.0, sync=0.0, launch=0.0, kernels=61 * 34.5 * 53e-6)
    assert gap(p, 0.05, tokens=16.0) == gap(p, 1.0)
    one_by_one = 61 * 34.5 * 53e-6 - 0.05
    assert gap(p, 0.05, tokens=17.0) == pytest.approx(gap(p, 1.0) + one_by_one)
    assert gap(p, 0.05, pieces=True) == gap(p, 0.05, tokens=17.0)
    assert gap(host(p, captured=0.0), 0.05, tokens=1e9) == gap(p, 1.0)


def test_the_papers_engine_does_all_that_while_the_npu_computes(facts):
    s = with_overrides(Scenario(), {"deployment.mode": "decode_only"})
    p = build_costs(s, facts, build_fabric(s.supernode, facts)).decode
    assert gap(p, 0.01, tokens=1e9, pieces=True) == 0.0


def test_a_host_that_does_not_work_ahead_hands_out_answers_between_passes(facts):
    s = with_overrides(Scenario(), {"deployment.mode": "decode_only",
                                    "deployment.stack": "mindie"})  # fmt: skip
    p = build_costs(s, facts, build_fabric(s.supernode, facts)).decode
    each = facts.si("stacks.mindie.operators.ascend.host_answer")
    assert gap(p, 1.0) == pytest.approx(100 * each)
    assert gap(p, 2.0) == gap(p, 1.0)  # whatever the NPU takes


def test_a_layer_that_selects_is_launched_in_more_kernels(facts):
    stack = {"deployment.mode": "decode_only", "deployment.stack": "vllm-ascend-0-13"}
    launched = []
    for model in ("deepseek-r1", "deepseek-v3-2"):
        s = with_overrides(Scenario(), stack | {"deployment.model": model})
        launched.append(build_costs(s, facts, build_fabric(s.supernode, facts)).decode.host.kernels)
    table = "stacks.vllm-ascend-0-13.operators.ascend"
    count, more = (facts[f"{table}.{name}"].value for name in ("decode_kernels", "index_kernels"))
    assert launched[1] / launched[0] == pytest.approx(1 + more / count)


def test_layers_of_grouped_query_attention_are_launched_by_their_own_counts(facts):
    name, table = "vllm-ascend-0-13", "stacks.vllm-ascend-0-13.operators.ascend"
    experts = ("qwen3-235b", "gqa_decode_kernels")
    for model, count in (("qwen3-32b", "dense_decode_kernels"), experts):
        s = with_overrides(Scenario(), {
            "deployment.mode": "decode_only", "deployment.model": model, "deployment.stack": name,
            "deployment.decode.mtp_draft_tokens": 0, "experts.redundant": 0,
        })  # fmt: skip
        parts = build_costs(s, facts, build_fabric(s.supernode, facts))
        each = facts.si("operators.ascend.kernel_launch")
        layers = facts[f"models.{model}.layers"].value
        by_hand = layers * facts[f"{table}.{count}"].value * each
        assert parts.decode.host.kernels == pytest.approx(by_hand)
