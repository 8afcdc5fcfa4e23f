"""Number formats: the bytes of a layer by hand, and what a chip does before a product."""

import pytest

from twin.model.formats import FORMATS
from twin.model.roofline import load_machine

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
def test_the_time_to_read_experts_is_that_of_their_bytes(ask, weights):
    """Of routed experts with 4 bits, and of shared ones in their own format."""
    costs = decode(ask, weights, supernode__chip="h200", deployment__decode__npus_per_instance=64)
    p, own = costs.decode.sequence.experts, FORMATS[weights]
    plain = decode(
        ask, own.computes, supernode__chip="h200", deployment__decode__npus_per_instance=64
    ).decode.sequence.experts
    share = own.weight_bytes / FORMATS[own.computes].weight_bytes
    assert p.weight == pytest.approx(share * plain.weight, rel=1e-9)
    assert p.weight + p.shared == pytest.approx(plain.weight, rel=1e-9)
    assert (p.flop, p.vector) == (plain.flop, plain.vector)  # unpacked while it reads


def test_ascend_splits_activations_and_adds_two_halves_for_w4a8(ask, facts):
    """Bytes on vector cores, by hand: an activation of 7,168 and 2,048 numbers in halves; sums of
    4,096 and 7,168 numbers as two halves in FP16, the latter added up to BF16."""
    costs = decode(ask, "w4a8")
    own, m = costs.decode.sequence.experts, load_machine(facts, costs.chip)
    seconds = m.slowest(16) / m.vector_bytes_per_s()
    moved = 2 * (7_168 + 2_048) + 4 * 4_096 + 2_048 + (4 + 2) * 7_168
    assert own.vector == pytest.approx(moved * seconds, rel=1e-3)
    eight = decode(ask, "int8", deployment__decode__npus_per_instance=16).decode.sequence.experts
    assert own.flop == pytest.approx(eight.flop, rel=1e-2)  # two 4-bit rows at twice the rate


def test_ascend_writes_w4a16_weights_out_before_the_product(ask, facts):
    """4 bits and scales are read; vector cores write 2 B a weight, and matrix cores read these."""
    costs = decode(ask, "w4a16", deployment__decode__npus_per_instance=32)
    m = load_machine(facts, costs.chip)
    seconds = 0.5625 / m.stream_bytes_per_s(1.0, "bf16", "grouped") + 4.0 / m.vector_bytes_per_s()
    own = costs.decode.sequence.experts.weight
    assert own == pytest.approx(EXPERT * seconds * m.slowest(64), rel=1e-3)
