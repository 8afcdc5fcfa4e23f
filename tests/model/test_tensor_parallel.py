"""Tensor-parallel attention in decode: what a die of a rank holds, computes and moves."""

import pytest

from tests.engine.small import run, small
from tests.model.agreement import iteration_s
from twin.hardware.fabric import build_fabric
from twin.model.alone import collective_alone_s
from twin.model.collectives import exchange, half_all_reduce
from twin.model.costs import build_costs
from twin.model.decode import best_split, decode_flops, decode_hbm_bytes
from twin.model.layer import PassLoad, attention_s, core_s
from twin.model.operators import ACTIVATION_BYTES, rank_bytes
from twin.model.roofline import load_machine
from twin.model.shape import ModelError, load_shape
from twin.model.timeline import decode_timeline

TP, R1, QWEN = "deployment.decode.tp_dies", "deepseek-r1", "qwen3-235b"
ONE = {"deployment.mode": "decode_only", "deployment.decode.npus_per_instance": 8,
       "deployment.decode.instances": 1, "deployment.decode.mtp_draft_tokens": 0,
       "deployment.model": QWEN}  # fmt: skip


def role_of(facts, dies, **more):
    s = small(ONE | {TP: dies} | {name.replace("__", "."): v for name, v in more.items()})
    return build_costs(s, facts, build_fabric(s.supernode, facts)).decode_role


@pytest.mark.parametrize("name", [R1, QWEN])
def test_a_die_has_its_share_of_the_heads_and_all_latents(facts, name):
    whole = load_shape(facts, name)
    part = whole.split(8)
    assert part.o_weights * 8 == whole.o_weights and part.dense_weights * 8 == whole.dense_weights
    assert part.decode_core_flops * 8 == whole.decode_core_flops
    if name == R1:
        assert part.down_weights == whole.down_weights and part.kv_width == whole.kv_width
        assert part.q_up_weights * 8 == whole.q_up_weights
    else:  # four KV heads over eight dies: each has one, which another has too
        assert part.kv_heads == 1 and part.kv_width * 4 == whole.kv_width
    assert whole.split(1) is whole
    with pytest.raises(ModelError, match=f"tp_dies = 7 must divide the {whole.heads} heads"):
        whole.split(7)


def test_a_rank_has_the_weights_of_one_die_once_and_more_room_for_kv(facts):
    """Bytes by hand: attention, embedding and LM head of a rank are the model's, split."""
    shape = load_shape(facts, QWEN)
    alone, split = role_of(facts, 1), role_of(facts, 4)
    assert split.ranks * 4 == alone.ranks == split.dies == 16
    heads = shape.attention_weights * shape.layers + 2.0 * 2.0 * shape.vocabulary * shape.hidden
    assert alone.memory.weights - split.memory.weights == pytest.approx(0.75 * heads)
    each = shape.kv_bytes_per_token_layer("bf16") * shape.layers / 4
    assert split.kv_tokens_per_rank == int(split.memory.kv / each)
    assert split.kv_tokens_per_rank > 4 * alone.kv_tokens_per_rank


@pytest.mark.parametrize(("name", "copies"), [(R1, 8.0), (QWEN, 2.0)])
def test_dies_that_split_heads_read_the_kv_of_their_own_heads(facts, name, copies):
    """Latents are on every die; four KV heads over eight dies are read twice."""
    fits = {"deployment.model": name, "deployment.decode.npus_per_instance": 16}
    one, eight = (role_of(facts, dies, **fits) for dies in (1, 8))
    assert eight.fetch.bytes_per_token == pytest.approx(copies * one.fetch.bytes_per_token)


def test_a_rank_of_one_die_sends_nothing_and_one_of_four_what_its_hidden_states_take(facts):
    alone, split = (role_of(facts, dies).decode for dies in (1, 4))
    shape = load_shape(facts, QWEN)
    for mode in (alone.sequence, alone.splits[0]):
        assert mode.gather.fixed == mode.gather.token == mode.scatter.token == 0.0
    assert alone.logits.fixed == 0.0 and rank_bytes(shape, 1) == 0.0
    gather, scatter = split.sequence.gather, split.sequence.scatter
    start_s = facts["operators.ascend.collective.start"].value[0] * 1e-6
    assert gather.fixed == pytest.approx(start_s)  # fewer than were measured: as those
    rate = ACTIVATION_BYTES * shape.hidden * 0.75 / gather.token
    assert 50e9 < rate < 400e9  # measured between 8 and 16 dies: 149 and 200 GB/s into a die
    assert scatter.token > gather.token  # its sums are added up
    assert rank_bytes(shape, 4) == 2 * 3 * 2 * shape.hidden * shape.layers


def test_flops_and_bytes_of_an_instance_grow_by_what_every_die_does_again(facts):
    """GQA with as many KV heads as dies splits all of attention: nothing is computed twice."""
    alone, split = (role_of(facts, dies).decode for dies in (1, 4))
    load = 64.0, 64.0 * 4096
    assert decode_flops(split, *load) == pytest.approx(decode_flops(alone, *load), rel=1e-3)
    assert decode_hbm_bytes(split, *load, 4.0) < decode_hbm_bytes(alone, *load, 16.0)
    r1 = [role_of(facts, dies, deployment__model=R1, supernode__nodes=4,
                  deployment__decode__npus_per_instance=16).decode for dies in (1, 4)]  # fmt: skip
    assert decode_flops(r1[1], *load) > decode_flops(r1[0], *load)  # latents are not split


def test_one_long_request_gains_and_many_short_ones_lose(facts):
    """Four dies read a long context four times as fast; what they exchange costs every layer."""
    alone, split = (role_of(facts, dies) for dies in (1, 4))
    core = [role.decode.sequence.core.context * 500_000.0 * 94 for role in (alone, split)]
    assert core[1] == pytest.approx(core[0] / 4.0, rel=1e-3)
    gained = iteration_s(alone, 1, 500_000.0) - iteration_s(split, 1, 500_000.0)
    assert 0.5 * core[0] < gained < core[0]
    assert iteration_s(split, 1024, 100.0) > iteration_s(alone, 1024, 100.0)


def test_dies_that_do_not_divide_an_instance_are_refused(facts):
    with pytest.raises(ModelError, match="decode.tp_dies = 32 must divide the 16 dies"):
        role_of(facts, 32)
    with pytest.raises(ModelError, match="must divide the 8 dies with attention"):
        role_of(facts, 16, deployment__decode__expert_npus=4)


def test_a_timeline_and_a_profile_are_those_of_ranks(facts):
    """A layer's attention stream by hand, collectives in it; weights are read once a die."""
    more = {"deployment__decode__microbatch": "on", "deployment__decode__batch_per_npu": 64}
    for dies in (1, 4):
        role = role_of(facts, dies, **more)
        p, requests, context = role.decode, 32.0 * dies, 32.0 * dies * 4096.0
        plan = decode_timeline(p, requests, context, 1.0, 1.0)
        stream = next(x for x in plan.pieces if x.operators[0][0] == "mla_prolog")
        half = PassLoad(0.5 * requests, 0.5 * context, 16.0, 256.0, 16.0, 1.0, 1.0)
        k, _ = best_split(p, half)
        seconds = attention_s(p.splits[k], half.tokens, core_s(p.splits[k].core, *half[:2]))
        assert sum(took for _, took in stream.operators) == pytest.approx(seconds, rel=1e-6)
        weights = decode_hbm_bytes(p, 1e9, 0.0, float(role.ranks))
        again = decode_hbm_bytes(p, 1e9, 0.0, 2.0 * role.ranks)
        held = p.demand.attention_bytes * (p.moe_layers + p.dense_layers) + p.demand.head_bytes
        assert again - weights == pytest.approx(held * role.dies, rel=1e-9)


def test_prefill_over_ranks_of_decode_has_its_own_attention_and_whole_kv(facts):
    """On dies that decode splits by heads prefill leaves less KV space than on whole ones."""
    fields = {"deployment.mode": "disaggregated", "deployment.prefill.on": "decode_npus",
              "deployment.prefill.attention": "dp", "deployment.prefill.instances": 1,
              "deployment.prefill.npus_per_instance": 8, "supernode.nodes": 4}  # fmt: skip
    held = {}
    for dies in (1, 4):
        s = small(ONE | fields | {TP: dies})
        budget = build_costs(s, facts, build_fabric(s.supernode, facts)).decode_role.memory
        held[dies] = budget.weights + budget.others
    assert held[4] == pytest.approx(held[1], rel=0.01)


@pytest.mark.parametrize("mode", ["decode_only", "colocated", "disaggregated"])
def test_a_lost_die_takes_its_rank_with_it_and_the_others_serve(mode):
    """Four ranks of four dies: with one die gone three ranks go on, and all laws hold."""
    role = "colocated" if mode == "colocated" else "decode"
    found = run({
        "deployment.mode": mode, TP: 4, f"deployment.{role}.npus_per_instance": 8,
        f"deployment.{role}.instances": 1, "supernode.nodes": 4, "horizon_s": 20.0,
        "faults": [{"element": "die 1.1.0" if mode == "disaggregated" else "die 0.1.0",
                    "at_s": 5.0, "duration_s": 0.0}],
        "recovery.policy": "shrink", "recovery.detection_s": 1.0,
    })  # fmt: skip
    assert any("12 of 16 dies" in text for text in found.tables["events"]["detail"].to_list())
    assert all(check["ok"] for check in found.checks)


@pytest.mark.parametrize("stack", ["sglang-npu", "vllm-ascend-0-13", "vllm-ascend-0-11"])
def test_sampling_of_a_served_engine_takes_its_kernels_time_for_every_logit(facts, stack):
    shape = load_shape(facts, QWEN)
    plain, served = (role_of(facts, 4, **more).decode.sampling
                     for more in ({}, {"deployment__stack": stack}))  # fmt: skip
    name = "vllm-ascend-0-13" if stack.startswith("vllm") else stack
    logit_s = facts.si(f"stacks.{name}.operators.ascend.sampling_logit")
    assert served.token == pytest.approx(logit_s * shape.vocabulary)
    assert served.token > plain.token > 0.0


def test_a_collective_alone_starts_once_and_brings_the_bytes_of_all_other_dies(facts):
    s = small(ONE | {TP: 8})
    costs = build_costs(s, facts, build_fabric(s.supernode, facts))
    machine = load_machine(facts, costs.decoding_role.chip)
    group = exchange(build_fabric(s.supernode, facts), range(8), "read")
    half = half_all_reduce(machine, facts, group)
    gathered = collective_alone_s(costs, "gather", 1e6)
    assert gathered == pytest.approx(half.start_s + 7e6 / half.bytes_per_s)
    assert collective_alone_s(costs, "scatter", 1e6) >= gathered
