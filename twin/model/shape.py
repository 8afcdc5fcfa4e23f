"""The shape of a model: what a layer is made of, as counts (data/models/<name>.toml). From it
follow parameters of weight matrices, KV bytes of a token and FLOPs of attention."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache

from twin.facts import Facts
from twin.model.attention import KINDS, LINEAR, STATE_BYTES, Kind, Linear, Widths
from twin.scenario import Stage

OVERLAP = 2  # sets of values of a compressed token that overlaps with its neighbour


class ModelError(ValueError):
    """A model or deployment that cannot run: one sentence naming what, where and what is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(Widths):
    """Sizes of a transformer, names as in data/models; `stages` follow from them."""

    title: str
    attention: str  # of KINDS
    layers: int
    dense_layers: int  # the first ones, with one dense FFN and no experts; all: a dense model
    routed_experts: int = 0
    shared_experts: int = 0
    top_k: int = 0
    expert_intermediate: int = 0
    dense_intermediate: int
    vocabulary: int
    mtp_layers: int = 0
    max_context: int
    most_nodes: int = 0  # nodes a token's experts may be on, by the router's limit
    expert_groups: int = 1  # groups that the router chooses first; 1: it chooses experts only
    router: str = ""  # noaux_tc: by a sigmoid with a bias, groups first (DeepSeek-V3); else plain
    norm_sums: int = 0  # all-reduces of a layer for norms over the queries and keys of all heads
    index_heads: int = 0  # of the indexer that selects what a token attends to (sparse attention)
    index_dim: int = 0
    index_top_k: int = 0  # tokens that it selects; 0: no indexer, a token attends to all
    o_groups: int = 0  # groups of heads whose values are projected down before the output; 0: none
    o_lora: int = 0  # values of such a group
    residual_streams: int = 1  # hidden states that layers read and write (hyper-connections)
    select_layers: int = 0  # layers whose indexer selects among compressed tokens
    select_ratio: int = 1  # tokens in one of these
    pool_layers: int = 0  # layers that attend to all compressed tokens
    pool_ratio: int = 1  # tokens in one of these
    window_layers: int = 0  # layers that attend to the last `window` tokens, alone or besides
    window: int = 0
    linear: str = ""  # of LINEAR, in `linear_layers` in place of `attention`
    linear_layers: int = 0

    def split(self, dies: int) -> Shape:
        """The part of the model on one of `dies` that split attention by heads: its share of the
        heads, of the dense FFN and of the vocabulary. Latents (MLA), the indexer and, if fewer than
        dies, KV heads are on every die (arXiv 1909.08053 section 3). Raises ModelError."""
        if dies == 1:
            return self
        if self.heads % dies:
            raise ModelError(
                f"deployment.decode.tp_dies = {dies} must divide the {self.heads} heads of "
                f"{self.title}"
            )
        return replace(
            self,
            heads=self.heads // dies,
            kv_heads=self._kv_heads_of(dies),
            o_groups=math.ceil(self.o_groups / dies),
            dense_intermediate=math.ceil(self.dense_intermediate / dies),
            vocabulary=math.ceil(self.vocabulary / dies),
            linear_key_heads=math.ceil(self.linear_key_heads / dies),
            linear_value_heads=math.ceil(self.linear_value_heads / dies),
        )

    def _kv_heads_of(self, dies: int) -> int:
        """Number of KV heads on one of `dies` that split the heads."""
        return max(1, math.ceil(self.kv_heads / dies))

    def kv_width_of(self, dies: int) -> int:
        """Numbers in a token's key and value, one layer, on one of `dies` that split the heads."""
        return replace(self, kv_heads=self._kv_heads_of(dies)).kv_width

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stages of the model's layers: attention, and a dense FFN, experts, or some of each."""
        count_of_stage: dict[Stage, int] = {
            "attention": self.layers, "dense": self.dense_layers, "experts": self.routed_experts
        }  # fmt: skip
        return tuple(stage for stage, count in count_of_stage.items() if count)

    @property
    def kind(self) -> Kind:
        """Formulas of the model's kind of attention, which give sizes from its widths."""
        return KINDS[self.attention]

    @property
    def window_share(self) -> float:
        """Share of the layers that attend to a window."""
        return self.window_layers / self.layers

    def window_bytes(self, kv: str) -> float:
        """KV bytes of a request's last tokens, all layers with a window; kv: number format."""
        return self.window_layers * self.window * self.core_bytes_per_token_layer(kv)

    @property
    def linear_kind(self) -> Linear:
        """Formulas of the model's linear attention; raises KeyError if it has none."""
        return LINEAR[self.linear]

    @property
    def linear_share(self) -> float:
        """Share of the layers with linear attention."""
        return self.linear_layers / self.layers

    @property
    def mean_keys(self) -> float:
        """Keys cached per context token in a mean layer, without windows: 1 if all layers cache
        every token. An indexer, if there is one, selects from them."""
        return self.all_layer_keys / self.layers

    @property
    def all_layer_keys(self) -> float:
        """Number of keys cached per context token in all layers; an indexer may select some."""
        if self.is_compressed:
            return self.select_layers / self.select_ratio
        return float(self.layers - self.window_layers - self.linear_layers)

    @property
    def is_compressed(self) -> bool:
        """Whether layers cache compressed tokens, and a window of the last ones besides."""
        return self.select_layers + self.pool_layers > 0

    @property
    def pool_keys(self) -> float:
        """Keys cached per context token, mean layer, without selection (`pool_layers`)."""
        return self.pool_layers / self.pool_ratio / self.layers

    @property
    def index_share(self) -> float:
        """Share of the layers that have an indexer; 1 unless the model caches compressed tokens."""
        return self.select_layers / self.layers if self.is_compressed else 1.0

    @property
    def reach(self) -> int:
        """Number of context tokens for which the selected keys stand; 0: no indexer."""
        return self.index_top_k * self.select_ratio

    def cached_bytes_per_token(self, kv: str) -> float:
        """KV bytes of a context token, all layers, no windows or states; kv: number format."""
        pooled_bytes = self.layers * self.pool_keys * self.core_bytes_per_token_layer(kv)
        return self.all_layer_keys * self.kv_bytes_per_token_layer(kv) + pooled_bytes

    @property
    def state_bytes(self) -> float:
        """Bytes of a request's state in a layer of linear attention, with the last values that its
        convolution reads, in BF16; 0: there is none."""
        if not self.linear_layers:
            return 0.0
        kind = self.linear_kind
        return STATE_BYTES * kind.state_size(self) + 2.0 * kind.mixed(self) * (self.linear_conv - 1)

    @property
    def linear_weights(self) -> int:
        """Parameters of a layer's linear attention."""
        kind = self.linear_kind
        return kind.in_weights(self) + kind.out_values(self) * self.hidden

    @property
    def moe_layers(self) -> int:
        """Number of layers with routed experts."""
        return self.layers - self.dense_layers

    @property
    def core_query_width(self) -> int:
        """Number of query values into decode's core, all heads; MLA's have absorbed key weights."""
        return self.kind.core_query(self)

    @property
    def core_value_width(self) -> int:
        """Number of values that leave decode's attention core, all heads; MLA's are latent."""
        return self.kind.core_value(self)

    @property
    def down_weights(self) -> int:
        """Parameters that take the hidden state to latents (MLA) or to Q, K and V (GQA)."""
        return self.hidden * self.kind.down_values(self)

    @property
    def q_up_weights(self) -> int:
        """Parameters of the query's up-projection (MLA with a low-rank query)."""
        return self.kind.q_up_weights(self)

    @property
    def kv_up_weights(self) -> int:
        """Parameters of the KV up-projection; absorbed into query and output in decode (MLA)."""
        return self.kv_lora * self.heads * (self.nope_dim + self.value_dim)

    @property
    def o_weights(self) -> int:
        """Parameters of the output projection; with `o_groups`, groups of heads are first projected
        to `o_lora` values each."""
        head_values = self.heads * self.value_dim
        if not self.o_groups:
            return head_values * self.hidden
        return head_values * self.o_lora + self.o_groups * self.o_lora * self.hidden

    @property
    def attention_weights(self) -> int:
        """All attention parameters of a mean layer."""
        projection_weights = (
            self.down_weights + self.q_up_weights + self.kv_up_weights + self.o_weights
        )
        return projection_weights + self.index_weights

    @property
    def index_weights(self) -> int:
        """Parameters of a mean layer's indexer: queries from the query's latent, one key, weights
        of heads. If tokens are compressed, also the projections to a compressed token's values and
        to their weights in the mean, two of each where groups of tokens overlap, as in layers that
        select (Megatron-LM, deepseek_v4_hybrid_attention)."""
        query_weights = (self.q_lora or self.hidden) * self.index_heads * self.index_dim
        if not self.is_compressed:
            return query_weights + self.hidden * (self.index_dim + self.index_heads)
        selecting_weights = query_weights + self.hidden * (
            self.index_heads + OVERLAP * 2 * self.index_dim
        )
        selecting_weights += self.hidden * OVERLAP * 2 * self.kv_width
        pooling_weights = self.hidden * 2 * self.kv_width
        return round(
            (self.select_layers * selecting_weights + self.pool_layers * pooling_weights)
            / self.layers
        )

    @property
    def index_flops(self) -> float:
        """FLOPs of the indexer for one query token and one cached token, one layer: a product for
        each head, and their weighted sum (DeepSeek-V3.2 report, equation 1)."""
        return 2.0 * self.index_heads * (self.index_dim + 1)

    @property
    def all_pairs_flops(self) -> float:
        """FLOPs per query token and context token, mean layer, that selection does not avoid: of
        the indexer, and of the core over keys that are always attended to."""
        return self.mean_keys * self.index_flops + self.pool_keys * self.decode_core_flops

    @property
    def expert_weights(self) -> int:
        """Parameters of one expert (gate, up, down)."""
        return 3 * self.hidden * self.expert_intermediate

    @property
    def dense_weights(self) -> int:
        """Parameters of the dense FFN of a layer without experts."""
        return 3 * self.hidden * self.dense_intermediate

    @property
    def kv_width(self) -> int:
        """Numbers in the key and value that a layer caches for a token, all KV heads."""
        return self.kind.cached(self)

    def kv_bytes_per_token_layer(self, kv: str) -> float:
        """KV bytes per token in one layer, with the indexer's key; kv: number format of KV."""
        return self.core_bytes_per_token_layer(kv) + self.index_bytes_per_token_layer(kv)

    def index_bytes_per_token_layer(self, kv: str) -> float:
        """Bytes of a token's indexer key in a layer; kv: number format (8 bits: with scales)."""
        return self.index_dim * (2.0 if kv == "bf16" else 1.0 + 4.0 / 128.0)

    def core_bytes_per_token_layer(self, kv: str) -> float:
        """Bytes per token that the core reads in one layer. kv: number format of KV; 8-bit KV of
        some kinds has its positional part in BF16."""
        return 2.0 * self.kv_width if kv == "bf16" else float(self.kind.small_bytes(self))

    @property
    def decode_core_flops(self) -> float:
        """FLOPs of the attention core for one query token and one cached token, one layer."""
        return 2.0 * self.kind.core_products(self)

    @property
    def prefill_core_flops(self) -> float:
        """FLOPs of the attention core for one query-key pair, one layer, multi-head form."""
        return 2.0 * self.heads * (self.nope_dim + self.rope_dim + self.value_dim)


@lru_cache(maxsize=16)
def load_shape(facts: Facts, name: str) -> Shape:
    """The model of that name; raises ModelError listing the known ones."""
    model_names = facts.names("models")
    if name not in model_names:
        known_models = ", ".join(model_names)
        raise ModelError(f"deployment.model = {name!r} is not known: take one of {known_models}")
    size_values = {
        field.name: facts[f"models.{name}.{field.name}"].value
        for field in fields(Shape)
        if field.default is MISSING or f"models.{name}.{field.name}" in facts
    }
    shape = Shape(**size_values)
    if shape.attention not in KINDS:
        known_kinds = " or ".join(map(repr, KINDS))
        raise ModelError(f"models.{name}.attention = {shape.attention!r} must be {known_kinds}")
    most_window_layers = shape.layers - (not shape.is_compressed)
    if shape.window_layers and not (shape.window > 0 and shape.window_layers <= most_window_layers):
        raise ModelError(
            f"models.{name}.window_layers = {shape.window_layers} must be fewer than its "
            f"{shape.layers} layers, with a window of 1 token or more"
        )
    if shape.linear_layers and not (
        shape.linear in LINEAR and shape.linear_layers < shape.layers - shape.window_layers
    ):
        raise ModelError(
            f"models.{name}.linear_layers = {shape.linear_layers} must be fewer than its "
            f"{shape.layers} layers, of a kind linear = {' or '.join(map(repr, LINEAR))}"
        )
    if "experts" not in shape.stages and shape.dense_layers != shape.layers:
        raise ModelError(
            f"models.{name}.dense_layers = {shape.dense_layers} must be all {shape.layers}: "
            "the model has no routed experts"
        )
    return shape
