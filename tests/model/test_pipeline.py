"""Pipeline stages in prefill: what a die holds and sends, bubbles, and what forbids them."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.engine.small import run, small
from twin.engine.phases.prefill import set_stage_ends
from twin.hardware.fabric import build_fabric
from twin.model.coefficients import Collective
from twin.model.costs import build_costs
from twin.model.layer import collective_s
from twin.model.parallel import stage_of
from twin.model.predict import EVEN, predict
from twin.model.prefill import next_piece, prefill_batch_s, prefill_flops, prefill_hbm_bytes
from twin.model.shape import ModelError, load_shape
from twin.scenario import json_text, pools_by_role, with_overrides
from twin.steady import traffic_of

R1, QWEN, LITE = "deepseek-r1", "qwen3-32b", "deepseek-v2-lite"
PREFILL = {"deployment.mode": "prefill_only", "deployment.prefill.npus_per_instance": 16,
           "deployment.prefill.instances": 1, "deployment.decode.mtp_draft_tokens": 0,
           "deployment.model": R1, "supernode.nodes": 4, "experts.redundant": 0}  # fmt: skip
STAGES = "deployment.prefill.pp_stages"


def role_of(facts, stages, **more):
    s = small(PREFILL | {STAGES: stages} | {n.replace("__", "."): v for n, v in more.items()})
    return build_costs(s, facts, build_fabric(s.supernode, facts)).prefill_role


def batch_s(role, tokens):
    each = tokens / role.stage_dies
    ops = role.operator_sink()
    return prefill_batch_s(role.prefill, tokens, each, each * 500.0, *EVEN, ops)


def test_of_one_stage_nothing_changes(facts):
    plain = small()
    assert json_text(with_overrides(plain, {STAGES: 1})) == json_text(plain)
    role = role_of(facts, 1)
    assert role.prefill.hop == Collective() and role.stages == 1.0
    assert role.stage_dies == role.dies
    shape = load_shape(facts, R1)
    assert stage_of(shape, role.pool) is shape


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_a_die_has_the_weights_and_kv_of_its_layers(facts, stages):
    """Experts of as many layers on as many fewer dies: as many bytes, but for rounding."""
    one, some = (role_of(facts, n) for n in (1, stages))
    layers = -(-61 // stages)
    assert some.stages == pytest.approx(61 / layers)
    assert some.memory.weights < one.memory.weights
    per_token = some.memory.kv / some.kv_tokens_per_rank
    assert per_token == pytest.approx(2.0 * (512 + 64) * layers, rel=1e-4)
    assert some.layout.dies == 32 // stages


def test_more_stages_never_need_more_memory_and_hold_longer_prompts(facts):
    roles = [role_of(facts, n) for n in (1, 2, 4, 8)]
    weights = [role.memory.weights for role in roles]
    room = [role.kv_tokens_per_rank for role in roles]
    assert weights == sorted(weights, reverse=True) and room == sorted(room)


def test_flops_of_a_batch_are_those_of_all_layers(facts):
    one, four = (role_of(facts, n).prefill for n in (1, 4))
    assert prefill_flops(four, 1e4, 1e7) == pytest.approx(prefill_flops(one, 1e4, 1e7), rel=0.01)
    assert prefill_hbm_bytes(four, 1e4) < 1.05 * prefill_hbm_bytes(one, 1e4)


@pytest.mark.parametrize("batches", [1, 3, 10, 1000])
@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_equal_batches_leave_the_bubbles_of_1f1b(batches, stages):
    """m batches take (m + p - 1) times that of a stage: of a stage's time (p - 1) / (m + p - 1) is
    idle (arXiv 1811.06965 section 2; arXiv 2104.04473 section 2.2)."""
    took_s, ends_s = 0.5, np.zeros((1, stages))
    world = SimpleNamespace(
        prefill=SimpleNamespace(stage_s=ends_s, most_tokens=[100.0]),
        costs=SimpleNamespace(prefill=[SimpleNamespace(hop=Collective())]),
        settings=SimpleNamespace(stages=stages),
    )
    for k in range(batches):
        set_stage_ends(world, 0, (k + 1) * took_s, took_s)
    all_s = float(ends_s[0, -1])
    assert all_s == pytest.approx((batches + stages - 1) * took_s)
    idle = 1.0 - batches * took_s / all_s
    assert idle == pytest.approx((stages - 1) / (batches + stages - 1))


def test_a_longer_batch_makes_later_ones_wait_at_every_stage():
    """Times of a flow shop of equal stages: all of them, and the longest once more for each later
    stage."""
    ends_s, taken, now_s = np.zeros((1, 3)), [1.0, 4.0, 2.0], 0.0
    world = SimpleNamespace(
        prefill=SimpleNamespace(stage_s=ends_s, most_tokens=[1.0]),
        costs=SimpleNamespace(prefill=[SimpleNamespace(hop=Collective())]),
        settings=SimpleNamespace(stages=3),
    )
    for took_s in taken:
        now_s += took_s
        set_stage_ends(world, 0, now_s, took_s)
    assert float(ends_s[0, -1]) == sum(taken) + 2 * max(taken)


def test_a_lone_prompt_passes_all_stages(facts):
    """TTFT of the run: the time of a batch in each stage, and the way between them."""
    settings = {"deployment.mode": "prefill_only", "deployment.prefill.instances": 1,
                "workload.arrivals": "closed_loop", "workload.concurrency": 1,
                "workload.input_tokens": 4096, "memory_pool.enabled": False}  # fmt: skip
    found = {}
    for stages in (1, 4):
        s = small(settings | {STAGES: stages})
        role = build_costs(s, facts, build_fabric(s.supernode, facts)).prefill_role
        result = run(settings | {STAGES: stages})
        assert all(check["ok"] for check in result.checks)
        requests = result.tables["requests"]
        took = (requests["prefill_end_s"] - requests["prefill_start_s"]).drop_nulls().to_numpy()
        hop_s = collective_s(role.prefill.hop, 4096 / role.stage_dies)
        found[stages] = np.median(took)
        stage_s = result.summary["prefill_batch_s_mean"]
        assert found[stages] == pytest.approx(stages * stage_s + (stages - 1) * hop_s, rel=1e-6)
    assert found[4] > found[1]


def test_a_prompt_in_pieces_fills_the_pipeline():
    """Sixteen pieces on four stages: TTFT is nearer to a quarter of that of whole instances in turn
    than a lone batch's."""
    cut = {"deployment.mode": "prefill_only", "deployment.prefill.instances": 1,
           "workload.rate_req_per_s": 0.5, "workload.input_tokens": 65_536,
           "deployment.prefill.chunk_tokens": 4096, "horizon_s": 40.0, "warmup_s": 2.0,
           STAGES: 4, "memory_pool.enabled": False}  # fmt: skip
    pieces, whole = run(cut), run(cut | {"deployment.prefill.chunk_tokens": 0})
    assert pieces.summary["ttft_prefill_s_mean"] < 0.6 * whole.summary["ttft_prefill_s_mean"]


@pytest.mark.parametrize("mode", ["disaggregated", "prefill_only"])
@pytest.mark.parametrize("arrivals", ["poisson", "closed_loop"])
def test_runs_hold_every_law(mode, arrivals):
    found = run({"deployment.mode": mode, STAGES: 4, "workload.arrivals": arrivals,
                 "workload.concurrency": 30, "deployment.prefill.chunk_tokens": 600})  # fmt: skip
    assert all(check["ok"] for check in found.checks)
    assert found.summary["ttft_s_mean"] > 0.0


def test_hidden_states_go_from_stage_to_stage(facts):
    """By hand: BF16 hidden states of a token three times with four stages."""
    shape = load_shape(facts, R1)
    assert role_of(facts, 4).context_bytes_per_token == pytest.approx(3 * 2.0 * shape.hidden)


@pytest.mark.parametrize(("settings", "sentence"), [
    ({STAGES: 5}, "pp_stages = 5 must divide the 32 dies of a prefill instance"),
    ({STAGES: 4, "deployment.mode": "disaggregated", "deployment.prefill.on": "decode_npus",
      "deployment.prefill.instances": 2, "deployment.decode.npus_per_instance": 16,
      "supernode.nodes": 8},
     "dies that prefill shares with decode"),
    ({STAGES: 4, "deployment.mode": "disaggregated", "deployment.decode.attention_offload": 0.2,
      "supernode.nodes": 8}, "or that run its attention, need all layers"),
    ({STAGES: 32, "deployment.model": LITE}, "is more than the 27 layers"),
])  # fmt: skip
def test_what_cannot_be_a_pipeline_is_refused_in_one_sentence(facts, settings, sentence):
    s = small(PREFILL | settings)
    with pytest.raises(ModelError, match=sentence):
        build_costs(s, facts, build_fabric(s.supernode, facts))


def test_the_formula_counts_the_rate_of_a_stage(facts):
    """A stage of a quarter of the layers on a quarter of the dies: collectives are smaller, so a
    saturated pipeline computes about as much as an instance without."""
    rates = {}
    for stages in (1, 4):
        s = small(PREFILL | {STAGES: stages, "deployment.prefill.tokens_per_npu": 8192})
        costs = build_costs(s, facts, build_fabric(s.supernode, facts))
        rates[stages] = predict(costs, traffic_of(s, facts)).prefill.requests_per_s
    assert 0.7 < rates[4] / rates[1] < 1.5


def test_a_dense_model_has_dense_stages(facts):
    s = small({STAGES: 4, "deployment.prefill.attention": "tp", "deployment.prefill.tp_dies": 2,
               "deployment.model": QWEN, "deployment.mode": "prefill_only"})  # fmt: skip
    stage = stage_of(load_shape(facts, QWEN), pools_by_role(s)["prefill"])
    assert stage.layers == stage.dense_layers == 16
    assert build_costs(s, facts, build_fabric(s.supernode, facts)).prefill_role.stages == 4.0


@pytest.mark.parametrize("evening", [0.0, 0.5, 1.0])
def test_later_pieces_are_shorter_and_take_the_time_of_the_first(evening):
    """By hand: tokens and pairs of a piece after 16,000 others take what those of the first do."""
    token_s, pair_s, first = 1e-4, 1e-9, 2048.0

    def seconds(tokens, held):
        return tokens * token_s + pair_s * tokens * (held + 0.5 * tokens)

    even = next_piece(first, 1.0, token_s, pair_s, 16_000.0)
    assert seconds(even, 16_000.0) == pytest.approx(seconds(first, 0.0))
    piece = next_piece(first, evening, token_s, pair_s, 16_000.0)
    assert piece == pytest.approx(first - evening * (first - even))
    assert next_piece(first, evening, token_s, pair_s, 0.0) == pytest.approx(first)
    assert next_piece(first, 1.0, token_s, pair_s, 1e9) == 0.25 * first


def test_pieces_of_equal_time_shorten_the_way_through_stages():
    """A long prompt on eight stages: later pieces no longer hold up all stages behind them."""
    long = {"deployment.mode": "prefill_only", "deployment.prefill.instances": 1,
            "deployment.prefill.npus_per_instance": 8, "workload.rate_req_per_s": 0.1,
            "workload.input_tokens": 131_072, "deployment.prefill.chunk_tokens": 16_384,
            "horizon_s": 60.0, "warmup_s": 0.0, STAGES: 8,
            "memory_pool.enabled": False}  # fmt: skip
    fixed, even = run(long), run(long | {"deployment.prefill.chunk_evening": 1.0})
    assert even.summary["ttft_prefill_s_mean"] < 0.95 * fixed.summary["ttft_prefill_s_mean"]
