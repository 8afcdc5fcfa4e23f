"""Operators as they are measured one at a time: a collective, a kernel, a stream, a profile. The
same coefficients and kernels as in an iteration, for what a publication shows of them."""

import math
from dataclasses import replace

from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.hardware.fabric import build_fabric
from twin.metrics.operators import operator_names
from twin.model import layer
from twin.model.batch import LoadCurve
from twin.model.coefficients import LayerCosts
from twin.model.collectives import direct_exchange, exchange, moe_traffic
from twin.model.costs import Costs
from twin.model.decode import decode_iteration_s
from twin.model.formats import ACTIVATION_BYTES
from twin.model.predict import EVEN, Prediction, Traffic, rank_load
from twin.model.roofline import load_machine
from twin.model.shape import load_shape
from twin.scenario import Scenario

PAPER_SPLIT = 4  # 16 of 24 cube cores for attention
# Facts of kernels that run one at a time, outside a pass.
ALONE = dict.fromkeys((f"operators.nvidia.in_network.{x}" for x in ("decode", "prefill")), 1.0)
BEFORE_DISPATCH = (*operator_names("decode", "attention"), "gate")


def exchange_alone_s(s: Scenario, facts: Facts, operation: str, dies: int, tokens: float) -> float:
    """Seconds of one exchange outside a pass, with `tokens` on each of the first `dies` of a
    supernode, evenly loaded. operation: "dispatch" or "combine"."""
    shape = load_shape(facts, s.deployment.model)
    machine = load_machine(facts, load_chip(facts, s.supernode.chip))
    exchange_price = exchange(build_fabric(s.supernode, facts), range(dies))
    if machine.family == "nvidia":
        exchange_price = direct_exchange(exchange_price, machine.chip.name, facts)
    traffic = moe_traffic(shape, s.deployment.communication, machine, facts, exchange_price)
    host_s, moe_transfer = (
        (traffic.host_s, traffic.dispatch) if operation == "dispatch" else (0.0, traffic.combine)
    )
    wire_s = max(tokens * moe_transfer.token, tokens * shape.top_k * moe_transfer.row)
    return host_s + moe_transfer.fixed + tokens * moe_transfer.message + wire_s


def decode_streams_s(costs: Costs, traffic: Traffic, hot: LoadCurve) -> tuple[float, float]:
    """(seconds of attention, of MoE) for one of two microbatches in a decode layer: attention on
    16, MoE on 8 of 24 cube cores (arXiv 2506.12708v2). hot: load of the hottest die by tokens."""
    role_costs, decode_costs = costs.decode_role, costs.decode
    assert role_costs is not None
    rank_dies = role_costs.pool.layer_dies
    slots_per_rank = int(role_costs.slots(role_costs.pool.batch_per_npu))
    _, context_tokens = rank_load(slots_per_rank, role_costs.ranks, traffic)
    half_query_tokens = 0.5 * decode_costs.query_tokens
    microbatch_tokens = half_query_tokens * (slots_per_rank * role_costs.ranks)
    layer_load = layer.PassLoad(
        half_query_tokens * slots_per_rank, 0.5 * float(context_tokens[0]),
        half_query_tokens * slots_per_rank / rank_dies, microbatch_tokens,
        float(role_costs.stage_dies),
        *layer.die_and_link_load(decode_costs.layout, microbatch_tokens, *hot),
    )  # fmt: skip
    return layer.layer_s(decode_costs, decode_costs.splits[PAPER_SPLIT], layer_load)


def attention_core_s(costs: Costs, context: float) -> float:
    """Seconds of decode's attention core on a die for `context` cached tokens and all query tokens
    that one request has in a pass, without waits for slower dies."""
    core_costs = _layer_without_waits(costs).core
    return core_costs.fixed + core_costs.context * context


def grouped_product_s(costs: Costs, experts: float, rows: float) -> float:
    """Seconds of a die's grouped product of `experts` experts, which share `rows` rows (tokens)
    evenly, without waits for slower dies."""
    expert_costs = _layer_without_waits(costs).experts
    s_per_row = (
        expert_costs.flop * experts * layer.whole_tile_rows(expert_costs, rows / experts) / rows
    )
    even_costs = replace(expert_costs, flop=s_per_row, tile_small=0.0, tile_large=0.0)
    return layer.expert_ffn_s(even_costs, layer.used_experts(experts, rows), 0.0, rows)


def collective_alone_s(costs: Costs, operation: str, bytes_per_die: float) -> float:
    """Seconds of one collective (operation: "gather" or "scatter") of a decode rank's dies, with
    `bytes_per_die` bytes of hidden states on each die, without waits for slower dies."""
    layer_costs, role = _layer_without_waits(costs), costs.decode_role
    assert role is not None
    rank_tokens = role.pool.layer_dies * bytes_per_die / (ACTIVATION_BYTES * costs.shape.hidden)
    return layer.collective_s(
        layer_costs.gather if operation == "gather" else layer_costs.scatter, rank_tokens
    )


def _layer_without_waits(costs: Costs) -> LayerCosts:
    """Coefficients of a decode layer in which no barrier waits for slower dies."""
    return costs.decode.splits[0] if costs.decode.hides > 0.0 else costs.decode.sequence


def profile_of_mean_die(prediction: Prediction, traffic: Traffic, facts: Facts) -> dict[str, float]:
    """Seconds of an iteration by operator on a die of mean load, without microbatches. Its
    attention and experts take their mean time; it waits in dispatch until the slowest die has sent
    and in combine until the hottest has computed."""
    decode, role = prediction.decode, prediction.costs.decode_role
    assert decode is not None and role is not None
    slots_per_rank = int(role.slots(int(decode.batch_per_npu)))
    requests, context_tokens = rank_load(slots_per_rank, role.ranks, traffic)
    context_tokens[0] = context_tokens[-1]
    operator_s = role.operator_sink()
    decode_iteration_s(role.decode, requests, context_tokens, 0, role.ranks, *EVEN, operator_s)
    seconds_by_operator = dict(zip(role.operators, operator_s.tolist(), strict=True))
    slowdown = load_machine(facts, role.chip).slowest_over_mean(role.dies)
    for name in (*BEFORE_DISPATCH, "experts"):
        seconds_by_operator[name] /= slowdown
    for operator, earlier_operators in (("dispatch", BEFORE_DISPATCH), ("combine", ("experts",))):
        wait_s = math.fsum(decode.operators[n] - seconds_by_operator[n] for n in earlier_operators)
        seconds_by_operator[operator] = decode.operators[operator] + wait_s
    return seconds_by_operator
