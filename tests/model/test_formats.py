"""Number formats: the bytes of a layer by hand, and what a chip does before a product."""

import pytest

from twin.hardware.chip import load_chip
from twin.model.formats import FORMATS, format_on_chip
from twin.model.memory import whole_model_bytes
from twin.model.operators import formats
from twin.model.roofline import load_machine
from twin.model.shape import load_shape
from twin.scenario import Precision

EXPERT, ATTENTION = 3 * 7_168 * 2_048, 187_105_280  # parameters of R1
SMALL = {
    "deployment__mode": "decode_only",
    "deployment__decode__npus_per_instance": 8,
    "deployment__decode__batch_per_npu": 8,
    "deployment__decode__mtp_draft_tokens": 0,
    "experts__redundant": 0,
}


def decode(ask, weights, **more):
    return ask(**(SMALL | {"deployment__precision__weights": weights} | more)).costs


def test_w4a8_routed_experts_take_half_and_their_scales(ask):
    """16 routed experts of R1 on a die with 4 bits and 8 bytes of scale for 256 weights; attention,
    the dense FFN and the shared expert with 8 bits."""
    layer = 16 * EXPERT * (0.5 + 8 / 256) + EXPERT
    rest = 61 * ATTENTION + 3 * 3 * 7_168 * 18_432
    rest += 2 * (58 * 7_168 * 256 + 2 * 129_280 * 7_168)
    held = decode(ask, "w4a8").decode_role.memory.weights
    assert held == pytest.approx(58 * layer + rest, rel=1e-3)


def test_w4a16_leaves_all_but_routed_experts_in_bf16(ask):
    layer = 4 * EXPERT * (0.5 + 2 / 32) + 2 * EXPERT
    rest = 2 * (61 * ATTENTION + 3 * 3 * 7_168 * 18_432)
    rest += 2 * (58 * 7_168 * 256 + 2 * 129_280 * 7_168)
    held = decode(ask, "w4a16", deployment__decode__npus_per_instance=32).decode_role
    assert held.memory.weights == pytest.approx(58 * layer + rest, rel=1e-3)


@pytest.mark.parametrize("weights", ["w4a8", "w4a16"])
def test_the_time_to_read_experts_is_that_of_their_bytes(ask, facts, weights):
    """Of routed experts with 4 bits, and of shared ones in their own format, at the rates of the
    kernel that reads packed weights, where it was measured."""
    costs = decode(ask, weights, supernode__chip="h200", deployment__decode__npus_per_instance=64)
    p, own = costs.decode.sequence.experts, FORMATS[weights]
    plain = decode(
        ask, own.computes, supernode__chip="h200", deployment__decode__npus_per_instance=64
    ).decode.sequence.experts
    share = own.weight_bytes / FORMATS[own.computes].weight_bytes
    m = load_machine(facts, load_chip(facts, "h200"))
    packed, wide = (m.product_efficiency(each, "grouped") for each in (weights, own.computes))
    slower = wide.bandwidth / packed.bandwidth
    assert p.weight == pytest.approx(share * slower * plain.weight, rel=1e-9)
    assert p.weight + p.shared == pytest.approx(slower * plain.weight, rel=1e-9)
    assert p.flop == pytest.approx(plain.flop * wide.compute / packed.compute, rel=1e-9)
    assert p.vector == plain.vector  # unpacked while it reads


def test_ascend_splits_activations_and_adds_two_halves_for_w4a8(ask, facts):
    """Bytes on vector cores, by hand: an activation of 7,168 and 2,048 numbers in halves; sums of
    4,096 and 7,168 numbers as two halves in FP16, the latter added up to BF16."""
    costs = decode(ask, "w4a8")
    own, m = costs.decode.sequence.experts, load_machine(facts, costs.decoding_role.chip)
    seconds = m.slowest_over_mean(16) / m.vector_bytes_per_s()
    moved = 2 * (7_168 + 2_048) + 4 * 4_096 + 2_048 + (4 + 2) * 7_168
    assert own.vector == pytest.approx(moved * seconds, rel=1e-3)
    eight = decode(ask, "int8", deployment__decode__npus_per_instance=16).decode.sequence.experts
    assert own.flop == pytest.approx(eight.flop, rel=1e-2)  # two 4-bit rows at twice the rate


def test_ascend_writes_w4a16_weights_out_before_the_product(ask, facts):
    """4 bits and scales are read; vector cores write 2 B a weight, and matrix cores read these."""
    costs = decode(ask, "w4a16", deployment__decode__npus_per_instance=32)
    m = load_machine(facts, costs.decoding_role.chip)
    seconds = 0.5625 / m.stream_bytes_per_s(1.0, "bf16", "grouped") + 4.0 / m.vector_bytes_per_s()
    own = costs.decode.sequence.experts.weight
    assert own == pytest.approx(EXPERT * seconds * m.slowest_over_mean(64), rel=1e-3)


def test_mxfp4_of_gpt_oss_is_as_heavy_as_its_checkpoint(facts):
    """128 experts of 36 layers with 4 bits and a byte for 32 weights, all else in BF16, by hand;
    its model card says 60.8 GiB."""
    experts = 36 * 128 * 3 * 2_880 * 2_880 * (0.5 + 1 / 32)
    attention = 36 * (2_880 * (64 + 2 * 8) * 64 + 64 * 64 * 2_880)
    rest = 2 * (attention + 36 * 2_880 * 128 + 2 * 201_088 * 2_880)
    held = whole_model_bytes(load_shape(facts, "gpt-oss-120b"), formats(Precision(weights="mxfp4")))
    assert held == pytest.approx(experts + rest, rel=1e-6)
    assert held == pytest.approx(60.8 * 2**30, rel=0.01)


@pytest.mark.parametrize(
    "weights, wide, native",
    [("fp4", "fp8", "fp4"), ("mxfp4", "bf16", "fp8"), ("mxfp4_fp8", "fp8", "fp8")],
)
def test_only_chips_with_a_peak_of_fp4_read_4_bits_in_their_products(
    ask, facts, weights, wide, native
):
    """Blackwell computes as the format says; Hopper unpacks to BF16 while it reads, the same
    bytes; the rest of the model is the same on both."""
    found = {}
    for chip in ("b200", "h200"):
        costs = decode(
            ask, weights, supernode__chip=chip, deployment__decode__npus_per_instance=64
        ).decode
        m = load_machine(facts, load_chip(facts, chip))
        own, slower = costs.sequence.experts, m.slowest_over_mean(64) * m.in_decode
        there = format_on_chip(weights, m.chip.flops)
        at = FORMATS[there]
        assert at.computes == (native if chip == "b200" else "bf16") and at.linear == wide
        rate = m.gemm_flops(there, operator="grouped")
        assert own.flop == pytest.approx(2 * EXPERT / rate * slower, rel=1e-6)
        read = EXPERT * at.weight_bytes / m.stream_bytes_per_s(1.0, there, "grouped")
        assert own.weight == pytest.approx(read * slower, rel=1e-6)
        found[chip] = costs.demand
    assert found["b200"].expert_bytes == found["h200"].expert_bytes
    assert found["b200"].attention_bytes == found["h200"].attention_bytes


def test_ascend_writes_mxfp4_weights_out_before_the_product(ask, facts):
    costs = decode(ask, "mxfp4", deployment__model="gpt-oss-120b")
    m, expert = load_machine(facts, costs.decoding_role.chip), 3 * 2_880 * 2_880
    seconds = (0.5 + 1 / 32) / m.stream_bytes_per_s(1.0, "bf16", "grouped")
    seconds += 4.0 / m.vector_bytes_per_s()
    own = costs.decode.sequence.experts.weight
    assert own == pytest.approx(expert * seconds * m.slowest_over_mean(16), rel=1e-3)
