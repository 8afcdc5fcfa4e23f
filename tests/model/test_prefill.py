import numpy as np
import pytest

from twin.hardware.chip import load_chip
from twin.hardware.fabric import build_fabric
from twin.kernels.compiled import entry
from twin.metrics.operators import PREFILL_OPERATORS
from twin.model.costs import build_costs
from twin.model.prefill import layerwise_s, prefill_batch_s, prefill_hbm_bytes, prefill_hits_s
from twin.model.record import row_of
from twin.model.roofline import facts_of_stack, load_machine
from twin.scenario import Scenario, with_overrides

ONE = np.array([1.0])
DIES = 32


@pytest.fixture
def batch(facts):
    def seconds(tokens=262_144.0, length=4_096, hot=1.0, most=1.0, call=None, **fields):
        s = with_overrides(Scenario(), {k.replace("__", "."): v for k, v in fields.items()})
        p = build_costs(s, facts, build_fabric(s.supernode, facts)).prefill
        pairs = tokens * (length + 1) / 2
        ops = np.zeros(len(PREFILL_OPERATORS))
        p, seconds = (row_of(p), call) if call else (p, prefill_batch_s)
        share, hottest = most / DIES, np.array([hot])
        took = seconds(p, tokens, share * tokens, share * pairs, ONE, hottest, ops)
        assert ops.sum() == pytest.approx(took, rel=1e-12)
        return took

    return seconds


def test_plain_python_and_compiled_code_agree(batch):
    assert batch(call=entry(prefill_batch_s)) == batch()


def test_longer_prompts_uneven_dies_and_hot_experts_take_longer(batch):
    assert batch(length=8_192) > batch()
    assert batch(most=1.5) > batch()
    assert batch(hot=1.3) > batch()
    assert batch(tokens=131_072.0) < batch()
    assert batch(tokens=0.0) == 0.0


def test_two_microbatches_hide_most_of_the_exchange(batch):
    assert 1.1 < batch(deployment__prefill__microbatch=False) / batch() < 1.5


def test_rows_ordered_where_it_computes_leave_less_to_hide(batch):
    off = {"deployment__prefill__microbatch": False}
    beside, within = ({"deployment__stack": s} for s in ("plain", "cann-recipes"))
    assert batch(**within, **off) > batch(**beside, **off)  # answers are put back in order too
    gains = [batch(**stack, **off) / batch(**stack) for stack in (within, beside)]
    assert 1.1 < gains[0] < gains[1]
    eight = {"deployment__precision__kv": "int8"}  # then sums are scaled before they are written
    assert batch(**within, **off) > batch(**within, **off, **eight)


@pytest.mark.parametrize(("read_s", "compute_s"), [(0.0, 3.0), (0.4, 3.0), (3.0, 3.0), (9.0, 3.0)])
def test_reading_layer_by_layer_hides_all_but_a_layer_of_the_shorter(facts, read_s, compute_s):
    s = Scenario()
    p = build_costs(s, facts, build_fabric(s.supernode, facts)).prefill
    hidden = read_s + compute_s - layerwise_s(p, read_s, compute_s)
    layers = p.moe_layers + p.dense_layers
    assert hidden == pytest.approx(min(read_s, compute_s) * (1.0 - 1.0 / layers))


def test_staged_attention_pays_for_its_collectives_when_lengths_are_even(batch):
    assert batch(deployment__prefill__attention="dp") < batch()


@pytest.mark.parametrize(
    "fields",
    [
        {"deployment__precision__weights": "bf16", "deployment__prefill__npus_per_instance": 32},
        {"deployment__communication__fused": False, "deployment__prefill__microbatch": False},
        {
            "deployment__communication__early_quantisation": False,
            "deployment__prefill__microbatch": False,
        },
    ],
)
def test_switches_that_cost_time_cost_time(batch, fields):
    same = {k: v for k, v in fields.items() if k.startswith("deployment__prefill")}
    assert batch(**fields) > batch(**same)


def test_cached_tokens_cost_less_than_computed_ones_but_not_nothing(facts):
    s = Scenario()
    p = build_costs(s, facts, build_fabric(s.supernode, facts)).prefill
    ops = np.zeros(len(PREFILL_OPERATORS))
    took = prefill_hits_s(p, 131_072.0, ops)
    assert 0.0 < took == pytest.approx(ops.sum())
    assert took < 0.15 * 1.2


def test_a_shared_expert_on_dies_of_its_own_is_one_more_to_send_to(ask):
    wide = {"deployment__mode": "prefill_only", "deployment__prefill__instances": 1,
            "deployment__prefill__npus_per_instance": 160}  # fmt: skip
    found = ask(**wide).costs
    p = found.prefill
    assert found.prefill_role.layout.shared_dies == 32
    assert p.dispatch.token / p.dispatch.row == pytest.approx(9.0)
    assert p.combine.token / p.combine.row == pytest.approx(9.0)


@pytest.mark.parametrize("attention", ["sp_tp_sp", "tp", "dp"])
@pytest.mark.parametrize("tokens", [1.0, 32.0, 1e5])
def test_a_batch_never_moves_more_than_hbm_can_in_its_time(ask, attention, tokens):
    costs = ask(deployment__mode="prefill_only", deployment__prefill__attention=attention,
                deployment__optimisations__flash_comm=True).costs  # fmt: skip
    one, pairs = np.ones(1), 100.0 * tokens
    took = prefill_batch_s(
        costs.prefill, tokens, tokens / 32, pairs / 32, one, one,
        np.zeros(len(PREFILL_OPERATORS)),
    )  # fmt: skip
    assert prefill_hbm_bytes(costs.prefill, tokens) < took * 32 * 1.6e12


def test_weights_of_a_batch_are_what_its_dies_hold_when_all_experts_are_asked_for(ask):
    costs = ask(deployment__mode="prefill_only", deployment__prefill__npus_per_instance=16).costs
    p, kept = costs.prefill, costs.prefill_role.memory.weights
    outside = 4 * 129_280 * 7_168 + 2 * 7_168 * 7_168  # embedding and heads, the module's own
    read = prefill_hbm_bytes(p, 1e6) - 1e6 * p.demand.token_bytes
    gates = 2 * 7_168 * 256 * 3  # counted in dense layers too, which have none
    assert read / 32 == pytest.approx(kept - outside + gates, rel=1e-9)


def test_a_small_batch_of_a_served_engine_takes_as_long_as_its_launches(batch, facts):
    served = {"deployment__stack": "vllm-ascend-0-13"}
    each_s = facts.si("operators.ascend.kernel_launch")
    launches = (58 * 2 + 1 * 2 + 3) * 42 * each_s  # two microbatches, the MTP module's among them
    assert batch(tokens=32.0, **served) == pytest.approx(launches)
    assert batch(**served) > launches > batch(tokens=32.0)


def test_a_stack_may_exchange_by_all_to_all_in_prefill_alone(batch, facts):
    served, naive = (
        {"deployment__stack": "vllm-ascend-0-13"},
        {"deployment__communication__fused": False},
    )
    costs = {}
    for name, fields in (("served", served), ("naive", naive), ("plain", {})):
        changes = {path.replace("__", "."): value for path, value in fields.items()}
        s = with_overrides(Scenario(), changes)
        costs[name] = build_costs(s, facts, build_fabric(s.supernode, facts))
    for part in ("dispatch", "combine"):
        assert getattr(costs["served"].prefill, part) == getattr(costs["naive"].prefill, part)
        parts = [getattr(costs[name].decode.sequence, part) for name in ("plain", "served")]
        assert parts[0] == parts[1]
    starts = [costs[name].prefill.before[0].fixed for name in ("served", "naive")]
    assert starts[0] > starts[1]  # its kernels start one by one


def test_kernels_of_a_stack_start_as_they_were_measured(facts):
    """Starts by hand: two products, one core and three products of INT8 attention, and what no
    operator stands for."""
    s = with_overrides(Scenario(), {"deployment.stack": "vllm-ascend-0-13"})
    mode = build_costs(s, facts, build_fabric(s.supernode, facts)).decode.splits[0]
    stack = facts.subset("stacks.vllm-ascend-0-13")
    gap, more, core, small = (
        stack[f"stacks.vllm-ascend-0-13.{name}"].value
        for name in ("calibration.kernel_gap", "operators.ascend.product_start.int8",
                     "operators.ascend.attention_fixed", "operators.ascend.small_kernels.mla_int8")
    )  # fmt: skip
    assert mode.before[0].fixed == pytest.approx(1e-6 * (2 * (gap + more) + small))
    assert mode.core.fixed == pytest.approx(1e-6 * (gap + core))
    assert mode.after[0].fixed == pytest.approx(3e-6 * (gap + more))


def test_small_kernels_follow_attention_weights_and_indexer(facts):
    """A stack's own; of grouped queries the family's, whichever engine calls them."""
    tables = [f"{where}operators.ascend.small_kernels" for where in ("stacks.cann-recipes.", "")]
    names = {name: f"{table}.{name}" for table in reversed(tables) for name in facts.names(table)}
    none = facts.replaced(
        {f"{table}.{name}": 0.0 for table in tables for name in facts.names(table)}
    )

    def added(model, weights="int8", stack="cann-recipes"):
        s = with_overrides(Scenario(), {
            "deployment.stack": stack, "deployment.model": model,
            "deployment.decode.mtp_draft_tokens": 0, "deployment.precision.weights": weights,
        })  # fmt: skip
        known, without = (
            build_costs(s, each, build_fabric(s.supernode, each)).decode.splits[0].before[0].fixed
            for each in (facts, none)
        )
        return known - without

    def of(*parts):
        return pytest.approx(sum(facts.si(names[part]) for part in parts))

    assert added("deepseek-r1") == of("mla_int8")
    assert added("deepseek-v3-2") == of("mla_int8", "index")
    for stack in ("cann-recipes", "mindie", "plain"):
        assert added("qwen3-235b", stack=stack) == of("gqa_int8")
        assert added("qwen3-235b", "bf16", stack) == of("gqa")
    assert added("deepseek-r1", stack="plain") == 0.0  # the paper's engine has fused them


@pytest.mark.parametrize("chip", ["ascend-910c", "ascend-910b-313t"])
def test_products_of_stacks_that_call_cann_are_slower_than_those_of_the_papers_engine(facts, chip):
    """By their profile: longer starts, and lower shares of memory and peak, on all grades."""

    def product(stack, fmt):
        of = facts_of_stack(facts, stack, chip)
        return load_machine(of, load_chip(of, chip)).product_efficiency(fmt)

    for fmt in ("int8", "bf16"):
        paper = product("plain", fmt)
        for stack in (
            "vllm-ascend-0-13",
            "vllm-ascend-0-11",
            "sglang-npu",
            "cann-recipes",
            "mindie",
        ):
            called = product(stack, fmt)
            assert called.start_s > paper.start_s
            assert called.bandwidth < paper.bandwidth and called.compute < paper.compute
            assert called == product("vllm-ascend-0-13", fmt)  # one library
