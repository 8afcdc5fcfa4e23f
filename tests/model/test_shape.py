import pytest

from twin.model.shape import ModelError, load_shape


def test_deepseek_r1_has_the_published_parameters(facts):
    s = load_shape(facts, "deepseek-r1")
    routed = s.expert_weights * (s.routed_experts + s.shared_experts) * s.moe_layers
    whole = routed + s.attention_weights * s.layers + s.dense_weights * s.dense_layers
    whole += 2 * s.vocabulary * s.hidden
    assert whole == pytest.approx(671e9, rel=0.01)
    active = whole - s.expert_weights * (s.routed_experts - s.top_k) * s.moe_layers
    assert active - s.vocabulary * s.hidden == pytest.approx(36.7e9, rel=0.02)


def test_kv_bytes_of_a_token_are_the_published_ones(facts):
    s = load_shape(facts, "deepseek-r1")
    assert s.kv_bytes_per_token_layer("bf16") * s.layers == 70_272
    assert s.kv_bytes_per_token_layer("int8") * s.layers == 39_040


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen3-235b", 235e9),
        ("kimi-k2", 1.03e12),
        ("deepseek-v2-lite", 15.7e9),
        ("deepseek-v3-2", 671e9),
        ("glm-5", 744e9),
        ("glm-4-7", 355e9),
        ("minimax-m2-5", 229e9),
        ("pangu-ultra-moe", 718e9),
    ],
)
def test_other_shapes_add_up_to_their_names(facts, name, parameters):
    s = load_shape(facts, name)
    whole = s.expert_weights * (s.routed_experts + s.shared_experts) * s.moe_layers
    whole += s.attention_weights * s.layers + s.dense_weights * s.dense_layers
    whole += 2 * s.vocabulary * s.hidden
    assert whole == pytest.approx(parameters, rel=0.03)


def test_an_unknown_model_is_named_with_the_known_ones(facts):
    with pytest.raises(ModelError, match="'gpt'.*deepseek-r1"):
        load_shape(facts, "gpt")
