"""Context parallelism: what a die holds, reads and sends, by hand, and what forbids it."""

import pytest

from tests.engine.small import run, small
from tests.model.agreement import agree, iteration_s
from twin.engine.simulate import result_digest, simulate
from twin.hardware.fabric import build_fabric
from twin.model.collectives import exchange, half_all_reduce
from twin.model.costs import build_costs
from twin.model.decode import decode_flops, decode_hbm_bytes
from twin.model.parallel import LSE_BYTES
from twin.model.predict import EVEN, predict
from twin.model.prefill import prefill_batch_s, prefill_flops
from twin.model.roofline import load_machine
from twin.model.shape import ModelError, load_shape
from twin.scenario import json_text, with_overrides
from twin.steady import traffic_of

R1, QWEN, V32, LITE = "deepseek-r1", "qwen3-235b", "deepseek-v3-2", "deepseek-v2-lite"
BF16 = 2.0
DECODE = {"deployment.mode": "decode_only", "deployment.decode.npus_per_instance": 16,
          "deployment.decode.instances": 1, "deployment.decode.mtp_draft_tokens": 0,
          "deployment.model": R1, "supernode.nodes": 4}  # fmt: skip
PREFILL = {"deployment.mode": "prefill_only", "deployment.prefill.npus_per_instance": 16,
           "deployment.prefill.instances": 1, "deployment.prefill.attention": "dp",
           "deployment.decode.mtp_draft_tokens": 0, "deployment.model": R1,
           "supernode.nodes": 4}  # fmt: skip


def costs_of(facts, base, **more):
    s = small(base | {f"deployment.{name.replace('__', '.')}": v for name, v in more.items()})
    return build_costs(s, facts, build_fabric(s.supernode, facts)), s


def decoding(facts, heads, pieces, **more):
    more |= {"decode__tp_dies": heads, "decode__cp_dies": pieces}
    return costs_of(facts, DECODE, **more)[0].decode_role


def prefilling(facts, pieces, **more):
    return costs_of(facts, PREFILL, prefill__cp_dies=pieces, **more)[0].prefill_role


@pytest.mark.parametrize("mode", ["disaggregated", "colocated"])
def test_of_one_piece_nothing_changes(facts, mode):
    """Said or not said: the same text, so the same bytes; and no byte of KV crosses dies."""
    one = {"deployment.decode.cp_dies": 1, "deployment.prefill.cp_dies": 1}
    plain = small({"deployment.mode": mode})
    assert json_text(with_overrides(plain, one)) == json_text(plain)
    costs = build_costs(plain, facts, build_fabric(plain.supernode, facts))
    assert all(role.context_bytes_per_token == 0.0 for role in costs.roles.values())
    p = costs.decode
    assert p.sequence.context.fixed == p.sequence.context.token == 0.0


@pytest.mark.parametrize("name", [R1, V32])
def test_kv_of_a_rank_is_divided_by_the_dies_that_share_it_out(facts, name):
    """Weights, buffers and their room are those of a rank without; of KV each die has a part."""
    roles = {n: decoding(facts, 8, n, model=name) for n in (1, 2, 4, 8)}
    for n, role in roles.items():
        assert role.memory == roles[1].memory
        assert role.kv_tokens_per_rank == n * roles[1].kv_tokens_per_rank


def test_kv_of_a_prompt_is_divided_by_the_pieces_of_it(facts):
    """A prompt of a million tokens fits prefill dies that share it, and no single one."""
    roles = {n: prefilling(facts, n) for n in (1, 4, 32)}
    for n, role in roles.items():
        assert role.kv_tokens_per_rank == n * roles[1].kv_tokens_per_rank
    million = {"workload.input_tokens": 1_000_000}
    for n, fits in ((1, False), (4, False), (32, True)):
        costs, s = costs_of(facts, PREFILL | million, prefill__cp_dies=n)
        traffic = traffic_of(s, facts)
        if fits:
            assert predict(costs, traffic).prefill.requests_per_s > 0.0
        else:
            with pytest.raises(ModelError, match="a prompt of 1,000,000 tokens does not fit"):
                predict(costs, traffic)


def test_a_layer_of_decode_sends_queries_and_partial_values(facts):
    """By hand, R1 with 8 dies: 16 heads each, whose absorbed queries have 512 + 64 values and whose
    partial values 512, with a log-sum-exp; seven eighths of what the group has arrive at a die in
    two halves of an all-reduce, and vector cores add up eight partial values."""
    shape = load_shape(facts, R1)
    queries, values = BF16 * 16 * (512 + 64), 16 * (BF16 * 512 + LSE_BYTES)
    arriving = 7 * (queries + values)
    role = decoding(facts, 8, 8)
    assert role.context_bytes_per_token == pytest.approx(8 * arriving * shape.layers)
    machine = load_machine(facts, role.chip)
    group = exchange(build_fabric(small(DECODE).supernode, facts), range(8), "read")
    half, found = half_all_reduce(machine, facts, group), role.decode.sequence.context
    added_s = 8 * values / machine.vector_bytes_per_s()
    assert found.fixed == pytest.approx(2.0 * half.start_s)
    assert found.token == pytest.approx(arriving / half.bytes_per_s + added_s)


def test_a_die_of_a_prompt_gathers_the_kv_of_the_other_pieces(facts):
    """By hand: for a token of its own the latents of one of each other die, in every layer; over a
    ring as many bytes would pass."""
    shape, n = load_shape(facts, R1), 8
    role = prefilling(facts, n)
    latent = BF16 * (512 + 64)
    assert role.context_bytes_per_token == pytest.approx((n - 1) * latent * shape.layers)
    group = exchange(build_fabric(small(PREFILL).supernode, facts), range(n), "read")
    token = role.prefill.context.token
    assert token == pytest.approx((n - 1) * latent / group.rate_bytes_per_s)
    heads = prefilling(facts, 4, prefill__attention="tp", prefill__tp_dies=8)
    # A die has an eighth of the heads and the latents of all tokens of its group of eight.
    assert heads.context_bytes_per_token == pytest.approx(3 * 8 * latent * shape.layers)


def test_a_long_context_gains_and_short_ones_pay_the_exchange(facts):
    one, eight = (decoding(facts, 8, n) for n in (1, 8))
    assert iteration_s(eight, 4, 500_000.0) < 0.5 * iteration_s(one, 4, 500_000.0)
    assert iteration_s(eight, 64, 100.0) > iteration_s(one, 64, 100.0)


def test_bytes_of_kv_are_read_once_and_flops_stay(facts):
    """Eight dies with a copy each read latents eight times; dies that share them out once."""
    one, eight = (decoding(facts, 8, n).decode for n in (1, 8))
    load = 64.0, 64.0 * 100_000
    assert decode_flops(eight, *load) == pytest.approx(decode_flops(one, *load), rel=1e-9)
    shape = load_shape(facts, R1)
    kv = load[1] * BF16 * (512 + 64) * shape.layers
    read = [decode_hbm_bytes(p, *load, 4.0) for p in (one, eight)]
    assert read[0] - read[1] == pytest.approx(7.0 * kv, rel=1e-6)


def test_a_prompt_alone_takes_a_part_of_the_time(facts):
    """One prompt of 64K: its attention is shared out; keys and values are projected up again on
    every die, so FLOPs are more."""
    took = {}
    for n in (1, 4, 16):
        role = prefilling(facts, n)
        tokens, pairs = 65_536.0, 65_536.0**2 / 2
        sink = role.operator_sink()
        took[n] = prefill_batch_s(role.prefill, tokens, tokens / n, pairs / n, *EVEN, sink)
        assert took[n] == pytest.approx(sink.sum())
    assert took[4] < 0.3 * took[1] and took[16] < 0.4 * took[4]
    one, four = (prefill_flops(prefilling(facts, n).prefill, 1e4, 1e7) for n in (1, 4))
    shape = load_shape(facts, R1)
    again = 3 * 2.0 * shape.kv_up_weights * shape.layers * 1e4
    assert four - one == pytest.approx(again, rel=1e-6)


@pytest.mark.parametrize(("settings", "sentence"), [
    ({"decode__tp_dies": 4, "decode__cp_dies": 3}, "cp_dies = 3 must divide deployment"),
    ({"decode__cp_dies": 2}, "must divide deployment.decode.tp_dies = 1"),
    ({"decode__tp_dies": 8, "decode__cp_dies": 4, "model": QWEN}, "the 4 KV heads of .* 2 times"),
    ({"decode__tp_dies": 2, "decode__cp_dies": 2, "model": "kimi-linear-48b"}, "goes through the "),
])  # fmt: skip
def test_what_cannot_be_shared_out_is_refused_in_one_sentence(facts, settings, sentence):
    with pytest.raises(ModelError, match=sentence):
        costs_of(facts, DECODE, **settings)


def test_prompts_that_dies_do_not_divide_and_offloaded_attention_are_refused(facts):
    with pytest.raises(ModelError, match="must divide the 32 dies"):
        prefilling(facts, 5)
    with pytest.raises(ModelError, match="offloaded attention"):
        costs_of(facts, {"deployment.decode.attention_offload": 0.3, "supernode.nodes": 8},
                 decode__tp_dies=4, decode__cp_dies=2)  # fmt: skip


def test_copies_of_kv_heads_can_be_shared_out(facts):
    """Eight dies have four KV heads twice."""
    one, two = (decoding(facts, 8, n, model=QWEN) for n in (1, 2))
    assert two.kv_tokens_per_rank == 2 * one.kv_tokens_per_rank


@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "decode_only", "prefill_only"])
def test_runs_hold_every_law_and_differ(mode):
    cut = {"deployment.mode": mode, "deployment.prefill.attention": "dp",
           "deployment.decode.tp_dies": 4}  # fmt: skip
    shared = cut | {"deployment.decode.cp_dies": 4, "deployment.prefill.cp_dies": 4}
    found = run(shared)
    assert all(check["ok"] for check in found.checks)
    assert result_digest(found.tables) != result_digest(run(cut).tables)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["decode_only", "colocated"])
def test_formula_and_simulation_agree(facts, mode):
    agree(small({"deployment.decode.tp_dies": 4, "deployment.decode.cp_dies": 4}), mode, facts)


def test_a_lost_die_takes_the_dies_that_share_its_requests(facts):
    s = small({
        "deployment.mode": "decode_only", "deployment.decode.tp_dies": 4,
        "deployment.decode.cp_dies": 4, "deployment.decode.npus_per_instance": 8,
        "deployment.decode.instances": 1, "horizon_s": 8.0,
        "faults": [{"element": "die 0.1.0", "at_s": 2.0, "duration_s": 0.0}],
        "recovery.policy": "shrink", "recovery.detection_s": 1.0,
    })  # fmt: skip
    found = simulate(s, facts)
    assert any("12 of 16 dies" in text for text in found.tables["events"]["detail"].to_list())
    assert all(check["ok"] for check in found.checks)
