import pytest

from twin.model.shape import ModelError


def test_weights_that_do_not_fit_are_refused_with_the_sums(ask):
    with pytest.raises(ModelError, match="does not fit: a die of .* has 64.0 GB, weights"):
        ask(deployment__decode__npus_per_instance=8)


def test_more_formats_of_fewer_bytes_leave_more_room(ask):
    wide = ask(deployment__decode__mtp_draft_tokens=0).costs.decode_role.kv_tokens_per_rank
    int8 = ask(deployment__precision__kv="int8").costs.decode_role
    assert int8.kv_tokens_per_rank > 1.5 * wide


@pytest.mark.parametrize(
    ("chip", "precision", "message"),
    [
        ("ascend-910c", "int8", 7_168 + 512),  # arXiv 2506.12708v2 section 4.2.1: 645 MiB in all
        ("h800", "fp8", 7_168 + 4 * 56),  # DeepEP: one FP32 scale for 128 values
    ],
)
def test_buffers_hold_the_messages_that_are_sent(ask, chip, precision, message):
    found = ask(
        supernode__chip=chip,
        deployment__precision__weights=precision,
        deployment__decode__npus_per_instance=160,
        deployment__mode="decode_only",
    ).costs.decode_role
    tokens = 96 if chip == "ascend-910c" else 192
    per_peer = tokens * min(8, found.layout.slots_per_die) * (message + 2 * 7_168)
    assert found.memory.buffers == found.dies * per_peer


def test_all_weights_of_a_model_are_somewhere(ask):
    """DeepSeek-R1 has 671 billion parameters without its MTP module (arXiv 2412.19437 section 4.2).

    On 320 dies the shared expert and what is not an expert are copied.
    """
    one_each = {"experts__redundant": 0, "deployment__decode__mtp_draft_tokens": 0}
    role = ask(**one_each, deployment__mode="decode_only").costs.decode_role
    expert = 3 * 7_168 * 2_048
    everywhere = role.memory.weights - 58 * expert
    embedding = 2 * 129_280 * 7_168  # in BF16, like the gates; the rest has a byte a parameter
    gates = 58 * 7_168 * 256
    parameters = everywhere - embedding - gates + 58 * 257 * expert
    assert parameters == pytest.approx(671.03e9, rel=1e-3)
    assert everywhere == 61 * 187_105_280 + 3 * 3 * 7_168 * 18_432 + 2 * (embedding + gates)


@pytest.mark.parametrize("mode", ["disaggregated", "colocated"])
def test_experts_that_arrive_in_the_background_take_the_kv_space_of_one_layer_of_them(ask, mode):
    """A 58th of what experts take on a die, for DeepSeek-R1; the rates by formula have no more."""
    fields = {
        "deployment__mode": mode, "deployment__decode__npus_per_instance": 16,
        "deployment__colocated__npus_per_instance": 16, "experts__balancing__policy": "periodic",
    }  # fmt: skip
    stalled, swapped = (
        ask(**fields, experts__balancing__swap=swap).costs.decoding_role
        for swap in ("stall", "background")
    )
    layer_bytes = stalled.layout.slots_per_die * 3 * 7168 * 2048  # INT8
    token_bytes = stalled.memory.kv / stalled.kv_tokens_per_rank
    fewer = stalled.kv_tokens_per_rank - swapped.kv_tokens_per_rank
    assert fewer == pytest.approx(layer_bytes / token_bytes, rel=0.01)
    assert fewer > 0.02 * stalled.kv_tokens_per_rank
