"""Drafters: one mechanism; what n-grams and a layer that is no part of the model cost, by hand."""

import pytest

from twin.model.decode import decode_flops, decode_hbm_bytes
from twin.model.shape import ModelError

QWEN = {
    "deployment__model": "qwen3-235b",
    "deployment__mode": "decode_only",
    "deployment__decode__npus_per_instance": 8,
    "deployment__decode__batch_per_npu": 16,
    "experts__redundant": 0,
}
# EAGLE-3 for Qwen3-235B: Q, K and V of two inputs, the output, a dense FFN; a head of 32,000 tokens
ATTENTION = 2 * 4_096 * (64 + 2 * 4) * 128 + 64 * 128 * 4_096
LAYER, HEAD, JOINED = ATTENTION + 3 * 4_096 * 24_576, 32_000 * 4_096, 3 * 4_096**2


def drafting(ask, drafter, drafts=3, **more):
    own = {"deployment__decode__drafter": drafter, "deployment__decode__mtp_draft_tokens": drafts}
    return ask(**(QWEN | own | more))


@pytest.mark.parametrize("drafts", [1, 3, 7])
def test_an_eagle_pass_reads_the_bytes_of_its_layer(ask, drafts):
    """In BF16 on each of 16 dies: layer and head each pass, the join once, KV of 4 heads."""
    eagle, ngram = (drafting(ask, d, drafts).costs.decode for d in ("eagle3", "ngram"))
    requests, context = 256.0, 1e6
    more = decode_hbm_bytes(eagle, requests, context, 16.0)
    more -= decode_hbm_bytes(ngram, requests, context, 16.0)
    weights = 2 * (drafts * (LAYER + HEAD) + JOINED) * 16
    cached = drafts * context * 2 * 2 * 4 * 128
    assert more == pytest.approx(weights + cached, rel=1e-3)


def test_an_eagle_pass_computes_its_layer(ask):
    """All verified positions in the first pass, one token a request in the next two."""
    eagle, ngram = (drafting(ask, d).costs.decode for d in ("eagle3", "ngram"))
    requests, context = 256.0, 1e6
    more = decode_flops(eagle, requests, context) - decode_flops(ngram, requests, context)
    by_hand = requests * 2 * ((4 + 2) * LAYER + 4 * JOINED + 3 * HEAD)
    by_hand += (4 + 2) * context * 2 * 64 * 2 * 128
    assert more == pytest.approx(by_hand, rel=1e-3)


def test_its_weights_and_kv_take_memory(ask):
    eagle, ngram = (drafting(ask, d).costs for d in ("eagle3", "ngram"))
    more = eagle.decode_role.memory.weights - ngram.decode_role.memory.weights
    assert more == pytest.approx(2 * (LAYER + HEAD + JOINED), rel=1e-3)
    assert eagle.kv_bytes_per_token - ngram.kv_bytes_per_token == 2 * 2 * 4 * 128


def test_ngrams_cost_verification_and_nothing_else(ask):
    """The iteration of three drafts without the passes that draft."""
    r1 = {"deployment__model": "deepseek-r1", "deployment__decode__npus_per_instance": 32}
    mtp, ngram = (drafting(ask, d, **r1) for d in ("mtp", "ngram"))
    none = drafting(ask, "mtp", 0, **r1)
    drafted, verified = mtp.decode.operators, ngram.decode.operators
    assert "mtp" not in verified and drafted["mtp"] > 0.0
    inside = ("mla_prolog", "attention_core", "o_proj", "gate", "experts", "dense_ffn")
    assert [verified[n] for n in inside] == [drafted[n] for n in inside]
    assert ngram.costs.decode_role.memory.weights == none.costs.decode_role.memory.weights
    assert ngram.costs.kv_bytes_per_token == none.costs.kv_bytes_per_token
    p = ngram.costs.decode
    assert p.passes == 0.0 and p.query_tokens == 4.0


def test_mtp_is_an_entry_of_the_same_table(ask):
    p = drafting(
        ask, "mtp", deployment__model="deepseek-r1", deployment__decode__npus_per_instance=32
    ).costs.decode
    assert (p.passes, p.modules, p.draft_share) == (3.0, 3.0, 1.0)
    assert p.drafter == p.sequence and p.draft_head == p.head


def test_a_prefill_instance_computes_the_drafters_layer_too(ask):
    pair = {"deployment__model": "qwen3-235b", "deployment__decode__npus_per_instance": 16,
            "deployment__decode__batch_per_npu": 16}  # fmt: skip
    eagle, ngram = (drafting(ask, d, deployment__mode="prefill_only", **pair)
                    for d in ("eagle3", "ngram"))  # fmt: skip
    more = eagle.costs.prefill.demand.token_flops - ngram.costs.prefill.demand.token_flops
    assert more == pytest.approx(2 * (LAYER + JOINED), rel=1e-3)
    assert eagle.prefill.tokens_per_s_per_npu < ngram.prefill.tokens_per_s_per_npu


def test_a_model_without_such_a_drafter_is_refused(ask):
    with pytest.raises(ModelError, match="has no layer for DeepSeek-V2-Lite .* it has one for"):
        drafting(ask, "eagle3", deployment__model="deepseek-v2-lite")
