"""A model of data/models from a Hugging Face `config.json`; unknown families are refused."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import tomli_w
import typer
from rich.markup import escape

from twin.commands.terminal import AsJson, out, print_json
from twin.facts import Fact
from twin.lab.files import read_text, write_text
from twin.lab.library import DATA, load_facts
from twin.model.attention import KINDS, LINEAR
from twin.model.shape import Shape

CONFIG_BYTES_MAX = 1024 * 1024
SIZE_MAX = 10**8  # of any count in a config: more is a slip of the pen
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
NOTES = {
    "attention": "; ".join(f"{name}: {kind.meaning}" for name, kind in KINDS.items()),
    "layers": "all decoder layers, the dense ones first",
    "q_lora": "0: the query has no low-rank step",
    "nope_dim": "query and key dimension of a head, without position in MLA",
    "rope_dim": "query and key dimension of a head with position, of its own in MLA alone",
    "value_dim": "value dimension of a head",
    "mtp_layers": "multi-token-prediction modules that were released",
    "most_nodes": "nodes that the router lets a token's experts be on; top_k: no limit",
    "expert_groups": "groups of routed experts that the router chooses first; 1: none",
    "router": "noaux_tc: experts are chosen by a sigmoid with a bias, groups first",
    "index_top_k": "tokens that sparse attention selects for a token to attend to",
    "o_groups": "groups of heads whose values are projected down before the output",
    "o_lora": "values of such a group",
    "residual_streams": "hidden states that each layer reads and writes (hyper-connections)",
    "select_layers": "layers whose indexer selects among compressed tokens",
    "select_ratio": "tokens in one of these",
    "pool_layers": "layers that attend to all compressed tokens",
    "pool_ratio": "tokens in one of these",
    "window_layers": "layers in which a token attends to a window, alone or besides",
    "window": "last tokens that these attend to",
    "linear": "; ".join(f"{name}: {kind.meaning}" for name, kind in LINEAR.items()),
    "linear_layers": "layers that have it in place of attention",
    "linear_conv": "tokens that its short convolution reads",
    "norm_sums": "norms of queries and keys go over all heads, which dies of a rank share",
}


@dataclass(frozen=True, slots=True)
class Family:
    """Meaning of the fields of a model_type."""

    attention: str  # a kind of twin/model/attention.py
    experts: bool = True
    width: str = "moe_intermediate_size"  # of an expert
    drafting: str = "num_nextn_predict_layers"
    windows: bool = False  # `layer_types` says which layers attend to a window
    linear: str = ""  # a kind of LINEAR that some layers have
    router: str = ""  # as `Shape.router`
    norm_sums: int = 0  # as `Shape.norm_sums`: that of queries and keys goes over all heads


FAMILIES = {
    "deepseek_v2": Family("mla"),
    **dict.fromkeys(("deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa"),
                    Family("mla", router="noaux_tc")),
    "deepseek_v4": Family("shared_kv"), "qwen3_moe": Family("gqa"), "qwen2_moe": Family("gqa"),
    "glm4_moe": Family("gqa", router="noaux_tc"),
    "mixtral": Family("gqa", width="intermediate_size"),
    "minimax_m2": Family("gqa", width="intermediate_size", drafting="num_mtp_modules", norm_sums=1),
    "gpt_oss": Family("gqa", width="intermediate_size", windows=True),
    "qwen3_next": Family("gated_gqa", linear="gated_deltanet"),
    "kimi_linear": Family("mla", linear="kda"),
    **dict.fromkeys(("llama", "qwen2", "qwen3"), Family("gqa", experts=False)),
}  # fmt: skip


class ConfigError(ValueError):
    """A config that cannot be imported: one sentence naming the field and what is right."""


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model read from a config: its name in data/models, and every figure with its source."""

    name: str
    figures: Mapping[str, Fact]  # by field of Shape, in its order

    @property
    def shape(self) -> Shape:
        """The model's Shape (its dimensions and counts) of these figures."""
        return Shape(**{field: fact.value for field, fact in self.figures.items()})

    @property
    def toml(self) -> str:
        """The text of data/models/<name>.toml."""
        fact_keys = ("value", "unit", "source", "mark", "note")
        table_by_field = {
            name: {key: getattr(fact, key) for key in fact_keys if key != "note" or fact.note}
            for name, fact in self.figures.items()}  # fmt: skip
        comment = "# Shape of a model, made by `python -m twin import-model`; all sizes are counts."
        return f"{comment}\n\n{tomli_w.dumps(table_by_field)}"


def import_model(path: Path, name: str | None = None) -> ImportedModel:
    """The model of a config file, by default named as file or folder. Raises ConfigError."""
    if name is None:
        path_name = path.resolve().parent.name if path.stem == "config" else path.stem
        name = re.sub(r"[^a-z0-9]+", "-", path_name.lower()).strip("-")[:64].strip("-")
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"--name {name!r} must be lower-case letters, digits and hyphens, like deepseek-r1"
        )
    config_text = read_text(path, CONFIG_BYTES_MAX, ConfigError, "config.json of a model")
    try:
        config = json.loads(config_text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of too many digits
        raise ConfigError(f"{path.name} is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{path.name} must hold one JSON object, as a model's config.json does")
    return ImportedModel(name, _Config(config, path.name).shape_facts(name))


def write_model(model: ImportedModel, folder: Path = DATA / "models") -> Path:
    """Write the model as a new file of data/models; raises ConfigError for an existing one."""
    path = folder / f"{model.name}.toml"
    if path.exists():
        raise ConfigError(
            f"{path.name} is already in {folder.name}: choose another --name, or delete it first"
        )
    write_text(path, model.toml)
    return path


class _Config:
    """Reader of a config: each field is checked when read."""

    def __init__(self, table: Mapping[str, Any], file: str) -> None:
        """Read a config's table; file: its name. Raises ConfigError for an unknown model_type."""
        self.table, self.file = table, file
        self.named = table.get("model_type")
        if not isinstance(self.named, str) or self.named not in FAMILIES:
            problem = f"model_type is {self.named!r}" if self.named else "model_type is missing"
            raise ConfigError(f"{file}: {problem}: it must be one of {', '.join(FAMILIES)}")
        self.family = FAMILIES[self.named]

    def shape_facts(self, title: str) -> dict[str, Fact]:
        """Facts of the model `title`, by those fields of Shape that it has. Raises ConfigError."""
        self._refuse_unsupported()
        attention_readers = {"mla": self._mla_facts, "shared_kv": self._compressed_facts}
        facts = {"title": Fact(title, "", f"name given to {self.file}", "e")}
        facts["attention"] = self._derive(self.family.attention, f"model_type {self.named}")
        facts |= attention_readers.get(self.family.attention, self._gqa_facts)()
        if self.family.experts:
            facts |= self._expert_facts()
        config_keys = {"layers": "num_hidden_layers", "hidden": "hidden_size",
                       "vocabulary": "vocab_size",
                       "max_context": "max_position_embeddings"}  # fmt: skip
        facts |= {name: self._count(key) for name, key in config_keys.items()} | {
            "mtp_layers": self._count(self.family.drafting, low=0, absent=0),
            "dense_layers": self._dense_layers(),
        }
        if self.family.windows:
            window_layers = self._count_layers("sliding_attention", facts["layers"].value)
            window = (
                self._count("sliding_window") if window_layers else self._derive(0, "no such layer")
            )
            layers_fact = self._derive(window_layers, f"layer_types of {self.file}")
            facts |= {"window_layers": layers_fact, "window": window}
        if self.family.linear:
            facts |= self._linear_facts(facts["layers"].value)
        if self.family.norm_sums:
            facts["norm_sums"] = self._derive(self.family.norm_sums, f"model_type {self.named}")
        if facts["dense_layers"].value > facts["layers"].value:
            self._fail("first_k_dense_replace", "is more than num_hidden_layers")
        dense_layers = facts["dense_layers"].value
        no_ffn = self._derive(0, "no layer is dense")
        facts["dense_intermediate"] = self._count("intermediate_size") if dense_layers else no_ffn
        # The models that are here have every field, each with its unit.
        unit_of = {name.rpartition(".")[2]: fact.unit for name, fact in load_facts().items()
                 if name.startswith("models.")}  # fmt: skip
        return {
            field.name: replace(facts[field.name], unit=unit_of[field.name],
                                note=NOTES.get(field.name, ""))
            for field in fields(Shape) if field.name in facts
        }  # fmt: skip

    def _mla_facts(self) -> dict[str, Fact]:
        """Facts of multi-head latent attention (MLA), by field of Shape. Raises ConfigError."""
        heads = self._count("num_attention_heads")
        kv_heads = self._count("num_key_value_heads", absent=heads.value)
        if kv_heads.value != heads.value:
            self._fail("num_key_value_heads", f"must equal num_attention_heads, {heads.value}: "
                       "in latent attention every head has keys of its own")  # fmt: skip
        config_keys = {"kv_lora": "kv_lora_rank", "nope_dim": "qk_nope_head_dim",
                       "rope_dim": "qk_rope_head_dim", "value_dim": "v_head_dim"}  # fmt: skip
        if self.table.get("index_topk") is not None:
            config_keys |= {"index_heads": "index_n_heads", "index_dim": "index_head_dim",
                            "index_top_k": "index_topk"}  # fmt: skip
        return {
            "heads": heads, "kv_heads": kv_heads,
            "q_lora": self._count("q_lora_rank", low=0, absent=0),
            **{name: self._count(key) for name, key in config_keys.items()},
        }  # fmt: skip

    def _compressed_facts(self) -> dict[str, Fact]:
        """Facts of attention over compressed tokens, by field of Shape. Raises ConfigError."""
        layers, ratios = self._count("num_hidden_layers").value, self.table.get("compress_ratios")
        ratios = ratios[:layers] if isinstance(ratios, list) and len(ratios) >= layers else []
        used_ratios = [ratio for ratio in ratios if type(ratio) is not int or ratio > 1]
        are_counts = all(type(ratio) is int for ratio in used_ratios)
        two_ratios = sorted({*used_ratios}) if are_counts else []
        if len(two_ratios) != 2:
            self._fail("compress_ratios", f"must give each of the {layers} layers a number, two of "
                       "them above 1, like [0, 4, 128, 4]")  # fmt: skip
        low_ratio, high_ratio = two_ratios
        if self._count("num_key_value_heads").value != 1:
            self._fail("num_key_value_heads", "must be 1: all heads share one key and value")
        head_dim, rope_dim = self._count("head_dim"), self._count("qk_rope_head_dim")
        if rope_dim.value >= head_dim.value:
            self._fail("qk_rope_head_dim", f"must be less than head_dim, {head_dim.value}")
        derive, source = self._derive, f"compress_ratios of {self.file}"
        config_keys = {"heads": "num_attention_heads", "q_lora": "q_lora_rank",
                       "o_groups": "o_groups", "o_lora": "o_lora_rank",
                       "index_heads": "index_n_heads", "index_dim": "index_head_dim",
                       "index_top_k": "index_topk", "residual_streams": "hc_mult",
                       "window": "sliding_window"}  # fmt: skip
        return {
            "kv_heads": self._count("num_key_value_heads"), "value_dim": head_dim,
            "rope_dim": rope_dim,
            "nope_dim": derive(head_dim.value - rope_dim.value, "head_dim - qk_rope_head_dim"),
            **{name: self._count(key) for name, key in config_keys.items()},
            "select_ratio": derive(low_ratio, source), "pool_ratio": derive(high_ratio, source),
            "select_layers": derive(used_ratios.count(low_ratio), source),
            "pool_layers": derive(used_ratios.count(high_ratio), source),
            "window_layers": derive(layers, "every layer has a window besides"),
        }  # fmt: skip

    def _gqa_facts(self) -> dict[str, Fact]:
        """Facts of grouped-query attention (GQA), by field of Shape. Raises ConfigError."""
        heads, hidden = self._count("num_attention_heads"), self._count("hidden_size")
        kv_heads = self._count("num_key_value_heads", absent=heads.value)
        if heads.value % kv_heads.value:
            self._fail("num_key_value_heads", f"must divide num_attention_heads, {heads.value}")
        if self.table.get("head_dim") is None and hidden.value % heads.value:
            self._fail("head_dim", "is missing, and hidden_size is no multiple of the heads")
        head_dim = self._count("head_dim", absent=hidden.value // heads.value)
        no_lora = self._derive(0, f"{self.named} has no latent attention")
        return {
            "heads": heads, "kv_heads": kv_heads, "q_lora": no_lora, "kv_lora": no_lora,
            "nope_dim": head_dim, "value_dim": head_dim,
            "rope_dim": self._derive(0, "the positional part is within the head's dimension"),
        }  # fmt: skip

    def _expert_facts(self) -> dict[str, Fact]:
        """Facts of routed and shared experts and of the router, by field of Shape."""
        experts_key = self._first_of("n_routed_experts", "num_experts", "num_local_experts")
        top_k_key = self._first_of("num_experts_per_tok", "num_experts_per_token")
        routed_experts, top_k = self._count(experts_key), self._count(top_k_key)
        if top_k.value > routed_experts.value:
            self._fail(top_k_key, f"must be at most {experts_key}, {routed_experts.value}")
        expert_width = self._count(width_key := self.family.width)
        shared_key = self._first_of("n_shared_experts", "num_shared_experts")
        shared_experts = self._count(shared_key, low=0, absent=0)
        if self.table.get("shared_expert_intermediate_size"):
            shared_width = self._count("shared_expert_intermediate_size").value
            if shared_width % expert_width.value:
                self._fail("shared_expert_intermediate_size",
                           f"must be a multiple of {width_key}, {expert_width.value}: shared "
                           "experts are as wide as routed ones")  # fmt: skip
            source_text = f"shared_expert_intermediate_size / {width_key} of {self.file}"
            shared_experts = self._derive(shared_width // expert_width.value, source_text)
        return {
            "routed_experts": routed_experts, "top_k": top_k, "expert_intermediate": expert_width,
            "shared_experts": shared_experts, "most_nodes": self._most_nodes(top_k.value),
            "expert_groups": self._count(self._first_of("n_group", "num_expert_group"), absent=1),
            "router": self._derive(self.family.router, f"model_type {self.named}"),
        }  # fmt: skip

    def _count_layers(self, layer_type: str, layers: int) -> int:
        """Number of layers that `layer_types` of the config lists as `layer_type`; layers: number
        of all layers. Raises ConfigError if another layer does not attend to all tokens."""
        layer_types = self.table.get("layer_types")
        listed_types = layer_types if isinstance(layer_types, list) else []
        allowed_types = ("full_attention", layer_type)
        if len(listed_types) != layers or {*map(str, listed_types)} - {*allowed_types}:
            names_text = " or ".join(allowed_types)
            self._fail("layer_types", f"must name each of the {layers} layers {names_text}")
        return listed_types.count(layer_type)

    def _linear_facts(self, layers: int) -> dict[str, Fact]:
        """Facts of linear attention by field of Shape; layers: of all kinds. Raises ConfigError."""
        linear_config = self.table.get("linear_attn_config")
        if isinstance(linear_config, dict):  # Kimi-Linear: heads of keys and values alike
            inner_fields = linear_config | {"model_type": self.named}
            heads_config = _Config(inner_fields, f"linear_attn_config of {self.file}")
            layer_list = linear_config.get("kda_layers")
            if not isinstance(layer_list, list) or not 0 < len(layer_list) < layers:
                heads_config._fail("kda_layers", f"must list some of the {layers} layers, not all")
            heads, head_dim = heads_config._count("num_heads"), heads_config._count("head_dim")
            layers_fact = self._derive(len(layer_list), f"kda_layers of {self.file}")
            conv_tokens = heads_config._count("short_conv_kernel_size")
            size_facts = [heads, heads, head_dim, head_dim, conv_tokens]
        else:
            if self.table.get("layer_types") is None:
                layer_count = layers - layers // self._count("full_attention_interval", low=2).value
            else:
                layer_count = self._count_layers("linear_attention", layers)
            layers_fact = self._derive(layer_count, f"layers of {self.file}")
            size_names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim",
                     "conv_kernel_dim")  # fmt: skip
            size_facts = [self._count(f"linear_{name}") for name in size_names]
        field_names = ("key_heads", "value_heads", "key_dim", "value_dim", "conv")
        return {
            "linear": self._derive(self.family.linear, f"model_type {self.named}"),
            "linear_layers": layers_fact,
            **{f"linear_{name}": fact for name, fact in zip(field_names, size_facts, strict=True)},
        }

    def _first_of(self, *names: str) -> str:
        """The first of these field names that the config has; if it has none, the first name."""
        return next((key for key in names if self.table.get(key) is not None), names[0])

    def _most_nodes(self, top_k: int) -> Fact:
        """Fact of the most nodes that the experts of a token may be on, as each group of experts is
        on one node (arXiv 2412.19437, 2.1.2); top_k: experts of a token. Raises ConfigError."""
        expert_groups = self._count(self._first_of("n_group", "num_expert_group"), absent=1).value
        token_groups = self._count("topk_group", absent=expert_groups).value
        if token_groups > expert_groups:
            self._fail("topk_group", f"must be at most n_group, {expert_groups}")
        if token_groups == expert_groups:
            return self._derive(top_k, "the router limits no groups: num_experts_per_tok")
        source = f"topk_group of {self.file}, a group to a node"
        return self._derive(min(token_groups, top_k), source)

    def _dense_layers(self) -> Fact:
        """Fact of the number of first layers without routed experts. Raises ConfigError."""
        if not self.family.experts:
            return replace(self._count("num_hidden_layers"), mark="d")
        if "first_k_dense_replace" in self.table:
            return self._count("first_k_dense_replace", low=0)
        dense_layers = self.table.get("mlp_only_layers") or []
        if dense_layers != list(range(len(dense_layers) if isinstance(dense_layers, list) else 0)):
            self._fail("mlp_only_layers", "must name the first layers, like [0, 1], or none")
        if self.family.attention == "mla":
            self._fail("first_k_dense_replace", "is missing: it must be a whole number, 0 or more")
        return self._derive(len(dense_layers), f"mlp_only_layers of {self.file}")

    def _refuse_unsupported(self) -> None:
        """Raise ConfigError for what no Shape can express: mixed layers, tied embeddings."""
        for key in ("moe_layer_freq", "decoder_sparse_step"):
            if self.table.get(key) not in (None, 1):
                self._fail(key, "must be 1: every layer after the dense ones has experts")
        has_mixtral_window = self.named == "mixtral" and self.table.get("sliding_window")
        if self.table.get("use_sliding_window") or has_mixtral_window:
            key = "use_sliding_window" if "use_sliding_window" in self.table else "sliding_window"
            self._fail(key, "must be off: attention over part of the context is not modelled")
        if "gqa" in self.family.attention and self.table.get("index_topk") is not None:
            problem = "must be absent: no indexer of grouped-query attention is known"
            self._fail("index_topk", problem)
        if not self.family.experts and self.table.get("tie_word_embeddings"):
            self._fail("tie_word_embeddings", "must be false: embedding and LM head count apart")

    def _count(self, name: str, low: int = 1, absent: int | None = None) -> Fact:
        """Fact of the config's field `name`, a whole number of `low` or more; absent: its value if
        the config lacks it (None: it must be there). Raises ConfigError."""
        entry = self.table.get(name)
        if entry is None and absent is not None:
            return self._derive(absent, f"{self.file} has no {name}")
        if isinstance(entry, bool) or not isinstance(entry, int) or not low <= entry <= SIZE_MAX:
            problem = "is missing" if entry is None else f"is {str(entry)[:40]!r}"
            self._fail(name, f"{problem}: it must be a whole number, {low} or more")
        return Fact(entry, "", f"{name} of {self.file}", "a")

    def _derive(self, value: int | str, source: str) -> Fact:
        """A fact that follows from other fields of the config (mark d); source: their names."""
        return Fact(value, "", source, "d")

    def _fail(self, name: str, problem: str) -> NoReturn:
        """Raise ConfigError with the field, its value and the problem, like 'must be 1'."""
        entry = self.table.get(name)
        value_text = "" if entry is None or problem.startswith("is ") else f" = {str(entry)[:40]}"
        raise ConfigError(f"{self.file}: {name}{value_text} {problem}")


def show_model(
    config: Annotated[Path, typer.Argument(help="A config.json of Hugging Face.")],
    name: Annotated[str | None, typer.Option(help="What deployment.model will call it.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Add it to data/models.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read a model's config.json and show it as a file of data/models."""
    model = import_model(config, name)
    path = write_model(model) if write else None
    if as_json:
        print_json(asdict(model) | {"written": str(path) if path else None})
    elif path:
        out.print(escape(f"{path.name} is written: ask for it as deployment.model={model.name}"))
    else:
        out.file.write(model.toml)
