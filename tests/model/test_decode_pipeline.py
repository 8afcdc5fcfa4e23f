"""Pipeline stages in decode and mixed serving: what a die holds, pace, bubbles, what forbids."""

import math

import numpy as np
import pytest

from tests.engine.small import run, small
from twin.engine.simulate import simulate
from twin.hardware.fabric import build_fabric
from twin.hardware.placement import place
from twin.model.costs import build_costs
from twin.model.decode import decode_hbm_bytes, decode_iteration_s
from twin.model.mixed import mixed_iteration_s
from twin.model.parallel import first_stage, place_in_stage
from twin.model.predict import EVEN
from twin.model.shape import ModelError, load_shape
from twin.scenario import json_text, with_overrides
from twin.steady import predict_steady

R1, QWEN, LITE = "deepseek-r1", "qwen3-32b", "deepseek-v2-lite"
STAGES, TP = "deployment.decode.pp_stages", "deployment.decode.tp_dies"
DECODE = {"deployment.mode": "decode_only", "deployment.decode.npus_per_instance": 16,
          "deployment.decode.instances": 1, "deployment.decode.batch_per_npu": 32,
          "deployment.model": R1, "supernode.nodes": 4, "experts.redundant": 0}  # fmt: skip
DENSE = {"deployment.model": QWEN, TP: 4, "deployment.decode.npus_per_instance": 8}


def role_of(facts, stages, settings=DECODE):
    s = small(DECODE | settings | {STAGES: stages})
    return build_costs(s, facts, build_fabric(s.supernode, facts)).decoding_role


def took(role, requests, context=1000.0):
    """Seconds of an iteration with so many requests on each rank, and by operator."""
    count = np.full(role.ranks, requests)
    ops = role.operator_sink()
    contexts = count * context
    seconds = decode_iteration_s(role.decode, count, contexts, 0, role.ranks, *EVEN, ops)
    assert math.fsum(ops) == pytest.approx(seconds, rel=1e-12)
    return seconds, dict(zip(role.operators, ops, strict=True))


def test_of_one_stage_nothing_changes(facts):
    plain = small()
    assert json_text(with_overrides(plain, {STAGES: 1})) == json_text(plain)
    role = role_of(facts, 1)
    assert role.decode.pipeline.stages == 1.0 and role.pool.rank_dies == role.pool.layer_dies
    assert took(role, 16)[1]["pipeline"] == 0.0


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_a_die_of_r1_has_the_weights_and_kv_of_its_layers(facts, stages):
    """By hand: INT8 projections and experts of as many layers as the fullest stage has, one BF16
    matrix of the vocabulary, BF16 latents."""
    role, s = role_of(facts, stages), load_shape(facts, R1)
    layers, dies = -(-61 // stages), 32 // stages
    experts = -(-256 // dies) + 1  # and the shared one
    each = s.attention_weights + experts * s.expert_weights + 2.0 * s.hidden * s.routed_experts
    weights = layers * each + 2.0 * s.vocabulary * s.hidden
    assert role.memory.weights == pytest.approx(weights, rel=1e-3)
    per_token = role.memory.kv / role.kv_tokens_per_rank
    assert per_token == pytest.approx(2.0 * (512 + 64) * layers, rel=1e-4)
    assert role.ranks == role.layout.dies == dies


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_die_of_a_dense_model_has_a_part_of_everything(facts, stages):
    """By hand, Qwen3-32B over 4 dies a stage: 64 layers, 8 KV heads of 128 in BF16."""
    role, s = role_of(facts, stages, DENSE), load_shape(facts, QWEN)
    layer = s.attention_weights + s.dense_weights
    ends = 2 if stages == 1 else 1
    whole = 64 / stages * layer + ends * 2.0 * s.vocabulary * s.hidden
    assert role.memory.weights == pytest.approx(whole / 4, rel=2e-3)
    per_token = role.memory.kv / role.kv_tokens_per_rank
    assert per_token == pytest.approx(2 * 2 * 2 * 128 * 64 / stages, rel=1e-4)


@pytest.mark.parametrize("stages", [2, 4])
def test_equal_groups_take_the_slowest_stage_so_many_times(facts, stages):
    """A rank of a dense model: p groups of b requests are p times a stage, which is a p-th of the
    layers with b requests; the last one has the LM head too."""
    one, some = (
        role_of(facts, 1, DENSE | {"deployment.decode.npus_per_instance": 2}),
        (role_of(facts, stages, DENSE | {"deployment.decode.npus_per_instance": 2 * stages})),
    )
    assert one.ranks == some.ranks == 1
    alone, ops = took(one, 16)
    head = ops["lm_head"] + ops["sampling"]
    layers = alone - head - ops["launch_gaps"]
    seconds, _ = took(some, 16 * stages)
    assert seconds == pytest.approx(stages * (layers / stages + head), rel=1e-6)


@pytest.mark.parametrize("stages", [2, 4])
def test_a_request_alone_takes_all_stages_and_their_hops(facts, stages):
    one, some = (
        role_of(facts, 1, DENSE | {"deployment.decode.npus_per_instance": 2}),
        (role_of(facts, stages, DENSE | {"deployment.decode.npus_per_instance": 2 * stages})),
    )
    alone, (seconds, ops) = took(one, 1)[0], took(some, 1)
    hop = some.decode.pipeline.hop
    hops = (stages - 1) * (hop.fixed + hop.token)
    assert hops > 0.0 and ops["pipeline"] == pytest.approx(hops)
    assert seconds - ops["launch_gaps"] == pytest.approx(
        alone + hops - took(one, 1)[1]["launch_gaps"]
    )


def test_fewer_requests_than_stages_leave_bubbles(facts):
    """One to four requests on four stages take a pass as long; from then on groups grow."""
    four = role_of(facts, 4, DENSE)
    spans = [took(four, n)[0] for n in (1, 2, 3, 4)]
    assert max(spans) < 1.1 * min(spans) and sorted(spans) == spans
    assert took(four, 64)[0] > spans[-1]


def test_weights_are_read_once_for_each_group(facts):
    four = role_of(facts, 4, DENSE).decode
    one, two = (decode_hbm_bytes(four, n, 0.0, 1.0) for n in (1.0, 2.0))
    assert two == pytest.approx(2.0 * one)
    assert decode_hbm_bytes(four, 8.0, 0.0, 1.0) == pytest.approx(4.0 * one)


def test_a_pass_has_pieces_of_what_an_iteration_computes(facts):
    """Of a full iteration each of p groups computes a p-th; of less than that one computes all."""
    mixed = {
        "deployment.mode": "colocated",
        "deployment.colocated.instances": 1,
        "deployment.colocated.npus_per_instance": 8,
        "deployment.model": QWEN,
        TP: 4,
    }
    role = role_of(facts, 4, mixed)
    budget, none = role.prompt_tokens, np.zeros(1)
    assert role.decode.pipeline.piece == budget / 4

    def seconds(tokens):
        chunk = np.full(1, tokens)
        ops, load = role.operator_sink(), (none, none, chunk, 500.0 * chunk)
        return mixed_iteration_s(role.decode, *load, 0, 1, *EVEN, ops)

    assert seconds(budget) == pytest.approx(seconds(budget / 4))
    assert seconds(budget / 8) < seconds(budget / 4)


def test_hidden_states_go_from_stage_to_stage(facts):
    """By hand: BF16 hidden states of a token three times with four stages, shared by a rank."""
    shape = load_shape(facts, R1)
    for dies in (1, 4):
        role = role_of(facts, 4, {TP: dies})
        assert role.context_bytes_per_token == pytest.approx(3 * 2.0 * shape.hidden)


def test_a_stage_of_all_ranks_is_an_unbroken_part_of_the_dies(facts):
    s = small(DECODE | {STAGES: 4, TP: 2})
    (instance,) = place(s, build_fabric(s.supernode, facts)).instances
    pool = build_costs(s, facts, build_fabric(s.supernode, facts)).decoding_role.pool
    assert first_stage(pool, instance.die_of_rank) == tuple(range(8))
    assert instance.die_of_rank[: pool.rank_dies] == (0, 1, 8, 9, 16, 17, 24, 25)
    places = [place_in_stage(pool, k, 32) for k in range(32)]
    assert places == [instance.die_of_rank[k] % 8 for k in range(32)]


@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "decode_only"])
@pytest.mark.parametrize("more", [
    {},
    {"faults": [{"at_s": 1.5, "element": "die 1.1.0"}], "recovery.policy": "shrink"},
])  # fmt: skip
def test_runs_hold_every_law(mode, more):
    found = run({"deployment.mode": mode, STAGES: 2, TP: 2, "workload.rate_req_per_s": 30.0} | more)
    assert all(check["ok"] for check in found.checks)
    assert found.summary["finished"] > 0


FULL = {"deployment.model": LITE, "workload.arrivals": "closed_loop", "workload.input_tokens": 1000,
        "workload.output_tokens": 200, "horizon_s": 30.0, "warmup_s": 10.0, "start": "steady",
        "memory_pool.enabled": False, "deployment.decode.instances": 1,
        "deployment.colocated.instances": 1}  # fmt: skip


@pytest.mark.parametrize(("settings", "clients"), [
    ({"deployment.mode": "decode_only", STAGES: 2}, 64),
    ({"deployment.mode": "decode_only", STAGES: 4, TP: 2}, 64),
    ({"deployment.mode": "colocated", STAGES: 2, "workload.output_tokens": 400}, 64),
    ({"deployment.mode": "colocated", STAGES: 4, TP: 2, "workload.output_tokens": 400}, 64),
])  # fmt: skip
def test_formula_and_simulation_agree(facts, settings, clients):
    s = small(FULL | settings | {"workload.concurrency": clients})
    found = simulate(s, facts).summary["decode_tokens_per_s_per_npu"]
    assert found == pytest.approx(predict_steady(s, facts).serving.tokens_per_s_per_npu, rel=0.02)


@pytest.mark.parametrize(("settings", "sentence"), [
    ({STAGES: 5}, "pp_stages = 5 must divide the 32 dies of a decode instance"),
    ({STAGES: 8, TP: 8}, "tp_dies = 8 must divide the 4 dies of a pipeline stage"),
    ({STAGES: 4, "deployment.decode.expert_npus": 4}, "that run its attention or have"),
    ({STAGES: 4, "deployment.mode": "disaggregated", "deployment.model": LITE,
      "deployment.prefill.on": "decode_npus",
      "deployment.prefill.instances": 2, "supernode.nodes": 8}, "decode shares with prefill"),
    ({STAGES: 4, "deployment.mode": "disaggregated", "deployment.model": LITE,
      "deployment.decode.attention_offload": 0.2,
      "supernode.nodes": 8}, "need all layers"),
    ({STAGES: 32, "deployment.model": LITE}, "is more than the 27 layers"),
    ({STAGES: 2, "deployment.decode.mtp_draft_tokens": 1}, "engines draft nothing over pipeline"),
])  # fmt: skip
def test_what_cannot_be_a_pipeline_is_refused_in_one_sentence(facts, settings, sentence):
    s = small(DECODE | settings)
    with pytest.raises(ModelError, match=sentence):
        build_costs(s, facts, build_fabric(s.supernode, facts))
