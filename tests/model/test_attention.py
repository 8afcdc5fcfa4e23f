"""Attention kinds: each is an entry whose formulas give a whole layer."""

from dataclasses import replace

import pytest

from twin.model.attention import KINDS
from twin.model.shape import ModelError, load_shape

MODELS = {
    "mla": "deepseek-r1", "shared_kv": "deepseek-v4-flash", "gqa": "qwen3-32b",
    "gated_gqa": "qwen3-next-80b",
}  # fmt: skip


@pytest.mark.parametrize("name", list(KINDS))
def test_a_kind_gives_every_size_of_a_layer(facts, name):
    s = load_shape(facts, MODELS[name])
    assert s.kind is KINDS[name]
    for size in (s.core_query_width, s.core_value_width, s.down_weights, s.kv_width):
        assert size > 0
    assert s.kv_bytes_per_token_layer("int8") < s.kv_bytes_per_token_layer("bf16")


@pytest.mark.parametrize("name", list(KINDS))
def test_twice_the_heads_is_twice_the_core(facts, name):
    s = load_shape(facts, MODELS[name])
    double = replace(s, heads=2 * s.heads, kv_heads=2 * s.kv_heads)
    assert double.decode_core_flops == 2.0 * s.decode_core_flops
    assert double.kv_width == (s.kv_width if name in ("mla", "shared_kv") else 2 * s.kv_width)
    assert s.kind.split == (double.kv_width > s.kv_width)


def test_an_unknown_kind_is_refused_by_name(facts):
    name = "models.qwen3-32b.attention"
    wrong = facts.replaced({name: replace(facts[name], value="linear")})
    kinds = "'mla' or 'shared_kv' or 'gqa' or 'gated_gqa'"
    with pytest.raises(ModelError, match=f"attention = 'linear' must be {kinds}"):
        load_shape(wrong, "qwen3-32b")
