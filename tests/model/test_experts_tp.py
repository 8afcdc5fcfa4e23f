"""Experts split inside (MoE TP): what a die holds, reads, computes and sends, by hand."""

import pytest

from tests.engine.small import run, small
from twin.hardware.fabric import build_fabric
from twin.model.costs import build_costs
from twin.model.decode import decode_flops, decode_hbm_bytes, decode_iteration_s
from twin.model.mixed import mixed_flops
from twin.model.operators import ACTIVATION_BYTES
from twin.model.predict import EVEN
from twin.model.prefill import prefill_flops, prefill_hbm_bytes
from twin.model.shape import ModelError, load_shape
from twin.steady import assemble

QWEN, R1 = "qwen3-235b", "deepseek-r1"
ONE = {"deployment.model": QWEN, "deployment.mode": "decode_only",
       "deployment.decode.npus_per_instance": 8, "deployment.decode.instances": 1,
       "deployment.decode.mtp_draft_tokens": 0, "experts.redundant": 0,
       "experts.placement": "perfect"}  # fmt: skip
SPLIT = "deployment.decode.experts_tp"


def costs_of(facts, **more):
    s = small(ONE | {name.replace("__", "."): value for name, value in more.items()})
    return build_costs(s, facts, build_fabric(s.supernode, facts))


def role_of(facts, split, **more):
    return costs_of(facts, deployment__decode__experts_tp=split, **more).decoding_role


def by_operator(role, requests, context):
    """Seconds of an iteration by operator, with so many requests on each rank."""
    load = [requests] * role.ranks, [requests * context] * role.ranks
    ops = role.operator_sink()
    decode_iteration_s(role.decode, *load, 0, role.ranks, *EVEN, ops)
    return dict(zip(role.operators, ops.tolist(), strict=True))


@pytest.mark.parametrize("split", [2, 4, 16])
@pytest.mark.parametrize("name", [QWEN, R1])
def test_a_die_has_a_part_of_more_experts_and_an_instance_all_the_work(facts, name, split):
    """32 dies: each holds 1/n of n times as many experts, and of a shared one 1/n."""
    more = {"deployment__model": name, "supernode__nodes": 2,
            "deployment__decode__npus_per_instance": 16}  # fmt: skip
    whole, part = (role_of(facts, n, **more) for n in (1, split))
    shape = load_shape(facts, name)
    assert part.layout.places * split == part.dies == 32
    assert part.layout.slots_per_die == split * whole.layout.slots_per_die
    shared = shape.shared_experts * shape.expert_weights * shape.moe_layers * (1.0 - 1.0 / split)
    assert whole.memory.weights - part.memory.weights == pytest.approx(shared, abs=1.0)
    load = 160.0, 160.0 * 4096
    assert decode_flops(part.decode, *load) == pytest.approx(decode_flops(whole.decode, *load))
    full = 1e9, 0.0  # tokens enough to read every expert
    read = [decode_hbm_bytes(role.decode, *full, float(role.ranks)) for role in (whole, part)]
    assert read[0] - read[1] == pytest.approx(32.0 * shared, rel=1e-6, abs=read[0] * 1e-9)
    mixed = {"deployment__mode": "colocated", "deployment__colocated__instances": 1,
             "deployment__colocated__npus_per_instance": 16}  # fmt: skip
    both = [role_of(facts, n, **more, **mixed).decode for n in (1, split)]
    flops = [mixed_flops(p, *load, 1000.0, 1e6) for p in both]
    assert flops[1] == pytest.approx(flops[0])


def test_prefill_of_split_experts_computes_the_same(facts):
    """A batch on 16 dies with experts whole and in 16 parts: FLOPs alike, weights read alike."""
    found = [
        costs_of(
            facts, deployment__mode="prefill_only", deployment__prefill__instances=1,
            deployment__prefill__npus_per_instance=8, deployment__prefill__experts_tp=split,
        ).prefill
        for split in (1, 16)
    ]  # fmt: skip
    flops = [prefill_flops(p, 16_384.0, 1e8) for p in found]
    moved = [prefill_hbm_bytes(p, 16_384.0) for p in found]
    assert flops[1] == pytest.approx(flops[0])
    shape = load_shape(facts, QWEN)
    # Every part reads a token's hidden state and writes an answer of its own, in BF16.
    rows = 16_384.0 * shape.top_k * shape.moe_layers * 15
    per_row = found[1].demand.token_bytes - found[0].demand.token_bytes
    assert moved[1] - moved[0] == pytest.approx(16_384.0 * per_row, rel=1e-6)
    assert per_row * 16_384.0 / rows == pytest.approx((1 + 2) * shape.hidden, rel=1e-3)
    assert found[1].dispatch.row == found[1].combine.row == found[1].dispatch.message == 0.0


def test_tokens_are_gathered_and_sums_scattered(facts):
    """Bytes of one token and layer by hand: a hidden state to 15 dies, 15 partial sums back."""
    shape = load_shape(facts, QWEN)
    role = role_of(facts, 16)
    hand = 2 * 15 * ACTIVATION_BYTES * shape.hidden * shape.moe_layers
    assert role.exchange_bytes_per_token == hand
    m = role.decode.sequence
    rate = 16 * ACTIVATION_BYTES * shape.hidden * 15 / 16 / m.dispatch.token
    halves = "chips.ascend-910c.operators.collective.halves"
    link = role.gather_bytes_per_s / facts.si("fabric.efficiency.npu_read")
    assert rate == pytest.approx(facts.si(f"{halves}.rate") * link)
    start_s = facts[f"{halves}.start"].list_si[-1]
    assert m.dispatch.fixed == m.combine.fixed == pytest.approx(start_s)
    # All dies of one rank: what attention's own two halves take.
    whole = role_of(facts, 16, deployment__decode__tp_dies=16).decode.sequence
    assert whole.dispatch.token == pytest.approx(16 * whole.gather.token)
    assert whole.combine.token == pytest.approx(16 * whole.scatter.token)
    one_npu = role_of(facts, 2, deployment__decode__npus_per_instance=1,
                      deployment__model="deepseek-v2-lite")  # fmt: skip
    assert one_npu.exchange_bytes_per_token == 0.0  # the dies of a package: no plane carries it


def test_one_request_reads_a_part_of_its_experts_on_every_die(facts):
    """Batch 1 over 16 dies, by hand: a sixteenth of eight experts on each die, and none is hotter
    than another; whole experts take as long where they are spread evenly."""
    whole, part = (role_of(facts, n, deployment__decode__tp_dies=16) for n in (1, 16))
    shape = load_shape(facts, QWEN)
    took = [by_operator(role, 1, 4096.0)["experts"] for role in (whole, part)]
    rate = shape.expert_weights / whole.decode.sequence.experts.weight
    fixed = part.decode.sequence.experts.fixed
    read = 128 * (1.0 - 2.718281828459045 ** (-8 / 128))
    by_hand = shape.moe_layers * (fixed + read * shape.expert_weights / 16 / rate)
    assert took[1] == pytest.approx(by_hand, rel=0.02)  # its own activations besides
    assert took[1] == pytest.approx(took[0], rel=0.02)
    s = small(ONE | {SPLIT: 16, "experts.placement": "eplb"})
    assert assemble(s, facts).decode_imbalance.factor == pytest.approx(1.0)


@pytest.mark.parametrize("fields, words", [
    ({"deployment__decode__experts_tp": 3}, "experts_tp = 3 must divide the 16 dies"),
    ({"deployment__decode__experts_tp": 4, "deployment__decode__expert_npus": 4},
     "experts on NPUs of their own"),
    ({"deployment__decode__experts_tp": 2, "deployment__model": "qwen3-32b"},
     "Qwen3-32B has no routed experts to split"),
])  # fmt: skip
def test_what_cannot_be_split_is_refused(facts, fields, words):
    with pytest.raises(ModelError, match=words):
        costs_of(facts, **fields)


def test_a_run_carries_the_bytes_of_its_gathers_and_rebalances_parts():
    """Bytes of a run over its tokens are those by hand; parts move as whole experts do."""
    fields = ONE | {SPLIT: 4, "horizon_s": 20.0, "experts.placement": "eplb",
                    "experts.redundant": 4, "experts.balancing.policy": "periodic",
                    "experts.balancing.interval_s": 5.0}  # fmt: skip
    found = run(fields)
    assert all(check["ok"] for check in found.checks)
    assert "rebalance" in found.tables["events"]["kind"].to_list()
    assert found.tables["ranks"]["expert_load"].null_count() == 0
    load = found.tables["ranks"]["expert_load"].to_numpy()
    assert (load.reshape(-1, 4) == load[::4, None]).all()  # dies that split experts are alike


@pytest.mark.parametrize("split", [2, 8])
def test_experts_serve_while_their_parts_are_complete(split):
    """One of 16 dies is lost for ten seconds. Two dies a rank that split experts leave together,
    and the others go on; experts in eight parts have lost some of one group's, and wait."""
    fields = ONE | {SPLIT: split, "deployment.decode.tp_dies": 2, "horizon_s": 30.0,
                    "faults": [{"element": "die 0.1.0", "at_s": 5.0, "duration_s": 10.0}],
                    "recovery.policy": "shrink", "recovery.detection_s": 1.0}  # fmt: skip
    found = run(fields)
    assert all(check["ok"] for check in found.checks)
    events = found.tables["events"]["detail"].to_list()
    assert any("14 of 16 dies" in text for text in events) == (split == 2)
    assert any("must divide the 14 dies" in text for text in events) == (split == 8)
