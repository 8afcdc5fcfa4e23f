import json
import shutil
import tomllib
from dataclasses import replace

import pytest

from twin.extras.model_import.reader import ConfigError, import_model, write_model
from twin.lab.library import DATA, load_facts
from twin.model.shape import load_shape
from twin.scenario import Scenario, with_overrides
from twin.steady import predict_steady

# The published figures of DeepSeek-V3, and those of Qwen3-235B.
V3 = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "first_k_dense_replace": 3,
    "hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "intermediate_size": 18432, "vocab_size": 129280,
    "num_nextn_predict_layers": 1, "max_position_embeddings": 163840, "n_group": 8,
    "topk_group": 4, "moe_layer_freq": 1, "rope_scaling": {"type": "yarn"},
}  # fmt: skip
QWEN3 = {
    "model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096, "head_dim": 128,
    "num_attention_heads": 64, "num_key_value_heads": 4, "num_experts": 128,
    "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "intermediate_size": 12288,
    "vocab_size": 151936, "max_position_embeddings": 131072, "mlp_only_layers": [],
    "decoder_sparse_step": 1, "use_sliding_window": False, "sliding_window": None,
}  # fmt: skip

V32 = V3 | {
    "model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048,
}  # fmt: skip
GLM5 = {
    "model_type": "glm_moe_dsa", "num_hidden_layers": 78, "first_k_dense_replace": 3,
    "hidden_size": 6144, "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 2048,
    "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "intermediate_size": 12288, "vocab_size": 154880,
    "num_nextn_predict_layers": 1, "max_position_embeddings": 202752, "n_group": 1,
    "topk_group": 1, "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048,
}  # fmt: skip
GLM47 = {
    "model_type": "glm4_moe", "num_hidden_layers": 92, "first_k_dense_replace": 3,
    "hidden_size": 5120, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
    "n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536, "intermediate_size": 12288, "vocab_size": 151552,
    "num_nextn_predict_layers": 1, "max_position_embeddings": 202752, "n_group": 1,
    "topk_group": 1,
}  # fmt: skip
MINIMAX = {
    "model_type": "minimax_m2", "num_hidden_layers": 62, "hidden_size": 3072,
    "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256,
    "num_experts_per_tok": 8, "intermediate_size": 1536, "vocab_size": 200064,
    "num_mtp_modules": 3, "max_position_embeddings": 196608,
}  # fmt: skip
QWEN3_DENSE = {
    "model_type": "qwen3", "num_hidden_layers": 64, "hidden_size": 5120, "head_dim": 128,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 25600,
    "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": False,
    "use_sliding_window": False, "sliding_window": None, "max_window_layers": 64,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
    "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
    "rope_scaling": {"rope_type": "llama3"},
}  # fmt: skip
OSS = {
    "model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880, "head_dim": 64,
    "num_attention_heads": 64, "num_key_value_heads": 8, "num_local_experts": 128,
    "num_experts_per_tok": 4, "intermediate_size": 2880, "vocab_size": 201088,
    "max_position_embeddings": 131072, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}  # fmt: skip
NEXT = {  # how many modules draft the published config does not state
    "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "head_dim": 256,
    "num_attention_heads": 16, "num_key_value_heads": 2, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 512, "intermediate_size": 5632,
    "shared_expert_intermediate_size": 512, "vocab_size": 151936, "mlp_only_layers": [],
    "max_position_embeddings": 262144, "decoder_sparse_step": 1, "full_attention_interval": 4,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_nextn_predict_layers": 1,
}  # fmt: skip
KIMI_LINEAR = {
    "model_type": "kimi_linear", "num_hidden_layers": 27, "first_k_dense_replace": 1,
    "hidden_size": 2304, "num_attention_heads": 32, "num_key_value_heads": 32,
    "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "num_experts": 256, "num_shared_experts": 1, "num_experts_per_token": 8,
    "moe_intermediate_size": 1024, "intermediate_size": 9216, "vocab_size": 163840,
    "max_position_embeddings": 1048576, "num_expert_group": 1, "topk_group": 1,
    "num_nextn_predict_layers": 0, "moe_layer_freq": 1,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
        "kda_layers": [k for k in range(1, 27) if k % 4], "short_conv_kernel_size": 4,
    },
}  # fmt: skip
V4 = {
    "model_type": "deepseek_v4", "num_hidden_layers": 43, "hidden_size": 4096,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
    "q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8, "sliding_window": 128,
    "compress_ratios": [0, 0, 4, *[128, 4] * 20, 0], "index_n_heads": 64, "index_head_dim": 128,
    "index_topk": 512, "hc_mult": 4, "num_hash_layers": 3, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 6, "moe_intermediate_size": 2048,
    "vocab_size": 129280, "num_nextn_predict_layers": 1, "max_position_embeddings": 1048576,
}  # fmt: skip
KNOWN = [
    (V3, "deepseek-r1"), (QWEN3, "qwen3-235b"), (V32, "deepseek-v3-2"), (GLM5, "glm-5"),
    (GLM47, "glm-4-7"), (MINIMAX, "minimax-m2-5"), (QWEN3_DENSE, "qwen3-32b"),
    (LLAMA, "llama-3-3-70b"), (OSS, "gpt-oss-120b"), (NEXT, "qwen3-next-80b"),
    (KIMI_LINEAR, "kimi-linear-48b"), (V4, "deepseek-v4-flash"),
]  # fmt: skip


@pytest.fixture
def config(tmp_path):
    def write(content, name="config.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return path

    return write


@pytest.mark.parametrize(("given", "known"), KNOWN)
def test_a_config_gives_the_shape_that_is_already_in_data(config, given, known):
    found = import_model(config(given), known)
    expected = load_shape(load_facts(), known)
    assert replace(found.shape, title="") == replace(expected, title="")


@pytest.mark.parametrize(("given", "model"), [(V3, "deepseek-r1"), (QWEN3, "qwen3-235b")])
def test_a_written_model_is_read_back_and_served_like_its_twin(config, tmp_path, given, model):
    folder = shutil.copytree(
        DATA, tmp_path / "data", ignore=shutil.ignore_patterns("*.db*", "artifacts*")
    )
    made = import_model(config(given), "mine")
    write_model(made, folder / "models")
    facts = load_facts(folder)
    assert load_shape(facts, "mine") == made.shape
    asked = {"deployment.model": "mine"}
    if model == "deepseek-r1":
        mine, known = (predict_steady(with_overrides(Scenario(), {"deployment.model": name}), facts)
                       for name in ("mine", model))  # fmt: skip
        assert mine.requests_per_s == known.requests_per_s > 0
    assert with_overrides(Scenario(), asked).deployment.model == "mine"


def test_every_figure_says_where_it_stands(config):
    tables = tomllib.loads(import_model(config(V3), "mine").toml)
    units = {k: v["unit"] for k, v in tomllib.loads(
        (DATA / "models" / "deepseek-r1.toml").read_text("utf-8")).items()}  # fmt: skip
    assert {k: v["unit"] for k, v in tables.items()} == units
    assert tables["layers"]["source"] == "num_hidden_layers of config.json"
    assert tables["layers"]["mark"] == "a"
    assert tables["most_nodes"]["mark"] == "d"


def test_a_model_without_a_name_takes_that_of_its_file_or_folder(config, tmp_path):
    assert import_model(config(V3, "DeepSeek-V3.1_Base.json")).name == "deepseek-v3-1-base"
    (tmp_path / "My Model").mkdir()
    assert import_model(config(V3, "My Model/config.json")).name == "my-model"


def test_an_existing_model_is_never_replaced(config, tmp_path):
    made = import_model(config(V3), "mine")
    path = write_model(made, tmp_path)
    path.write_text("kept", "utf-8")
    with pytest.raises(ConfigError, match=r"mine\.toml is already in .*--name"):
        write_model(made, tmp_path)
    assert path.read_text("utf-8") == "kept"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("model_type", None, "model_type is missing: it must be one of deepseek_v2"),
        ("model_type", "gemma3", "model_type is 'gemma3': it must be one of"),
        ("kv_lora_rank", None, "kv_lora_rank is missing: it must be a whole number, 1 or more"),
        ("hidden_size", "7168", "hidden_size is '7168': it must be a whole number"),
        ("hidden_size", True, "hidden_size is 'True'"),
        ("hidden_size", 10**12, "hidden_size is '1000000000000'"),
        ("vocab_size", 0, "vocab_size is '0'"),
        ("num_experts_per_tok", 300, "num_experts_per_tok = 300 must be at most"),
        ("num_key_value_heads", 8, "num_key_value_heads = 8 must equal"),
        ("first_k_dense_replace", 62, "first_k_dense_replace is more than num_hidden_layers"),
        ("topk_group", 9, "topk_group = 9 must be at most n_group, 8"),
        ("moe_layer_freq", 2, "moe_layer_freq = 2 must be 1"),
        ("index_topk", 2048, "index_n_heads is missing"),
    ],
)  # fmt: skip
def test_a_field_at_fault_is_named_with_what_would_be_right(config, field, value, said):
    given = {k: v for k, v in (V3 | {field: value}).items() if v is not None}
    with pytest.raises(ConfigError, match=f"^config.json: {said}") as caught:
        import_model(config(given), "mine")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("num_key_value_heads", 5, "num_key_value_heads = 5 must divide"),
        ("mlp_only_layers", [3], "mlp_only_layers .* must name the first layers"),
        ("mlp_only_layers", 3, "mlp_only_layers = 3 must name the first layers"),
        ("use_sliding_window", True, "use_sliding_window = True must be off"),
        ("index_topk", 2048, "index_topk = 2048 must be absent"),
        ("shared_expert_intermediate_size", 1000, "shared_expert_intermediate_size = 1000 must be"),
    ],
)
def test_what_a_shape_cannot_say_is_refused(config, field, value, said):
    with pytest.raises(ConfigError, match=said):
        import_model(config(QWEN3 | {field: value}), "mine")


@pytest.mark.parametrize("kinds", [["linear_attention"] * 36, ["full_attention"] * 35, "full"])
def test_layers_of_another_kind_or_number_are_refused_by_name(config, kinds):
    with pytest.raises(ConfigError, match="layer_types .*must name each of the 36 layers"):
        import_model(config(OSS | {"layer_types": kinds}), "mine")
    with pytest.raises(ConfigError, match="model_type is 'jamba'"):
        import_model(config(OSS | {"model_type": "jamba"}), "mine")


@pytest.mark.parametrize(
    ("given", "changed", "said"),
    [
        (V4, {"compress_ratios": [4] * 43}, "compress_ratios = .* must give each of the 43 layers"),
        (V4, {"compress_ratios": [4, 128]}, "compress_ratios = .* must give each of the 43 layers"),
        (V4, {"compress_ratios": ["4"] * 43}, "compress_ratios = .* must give each of the 43"),
        (V4, {"num_key_value_heads": 8}, "num_key_value_heads = 8 must be 1"),
        (V4, {"qk_rope_head_dim": 512}, "qk_rope_head_dim = 512 must be less than head_dim, 512"),
        (NEXT, {"layer_types": ["full_attention"] * 47}, "must name each of the 48 layers"),
        (NEXT, {"full_attention_interval": 1}, "must be a whole number, 2 or more"),
        (NEXT, {"linear_num_key_heads": None}, "linear_num_key_heads is missing"),
        (KIMI_LINEAR, {"linear_attn_config": {"kda_layers": []}}, "must list some of the 27"),
        (KIMI_LINEAR, {"num_experts_per_token": 257}, "must be at most num_experts, 256"),
    ],
)
def test_a_hybrid_that_does_not_say_its_linear_layers_is_refused(config, given, changed, said):
    with pytest.raises(ConfigError, match=said):
        import_model(config(given | changed), "mine")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "one JSON object"),
        ("{", "not valid JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        (" " * 1_048_577, "larger than 1 MiB"),
    ],
    ids=["list", "cut", "digits", "nested", "large"],
)
def test_a_file_that_is_no_config_is_one_sentence(config, text, said):
    with pytest.raises(ConfigError, match=said):
        import_model(config(text), "mine")


def test_a_missing_file_and_a_name_out_of_bounds_are_sentences(config, tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be read"):
        import_model(tmp_path / "nowhere.json", "mine")
    with pytest.raises(ConfigError, match="lower-case letters"):
        import_model(config(V3), "../mine")


def test_the_command_says_one_sentence_of_a_file_that_is_not_there(twin):
    done = twin("import-model", "nowhere/config.json")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"config.json cannot be read" in done.stderr
