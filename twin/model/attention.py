"""Attention kinds: what a layer of each projects, caches and computes, as formulas of its sizes. A
kind is an entry of KINDS; a model's file names the one it has (`attention`), and Shape, operators
and memory ask the entry. Of hybrid models some layers are of a kind of LINEAR instead (`linear`),
which caches no tokens. Counts are those of one layer and one token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Sizes of a model that its attention follows from, names as in data/models."""

    hidden: int
    heads: int
    kv_heads: int
    q_lora: int = 0  # 0: no low-rank query
    kv_lora: int = 0
    nope_dim: int
    rope_dim: int = 0
    value_dim: int
    linear_key_heads: int = 0
    linear_value_heads: int = 0
    linear_key_dim: int = 0
    linear_value_dim: int = 0
    linear_conv: int = 0  # tokens that its convolution reads

    @property
    def query_width(self) -> int:
        """Number of query values of all heads."""
        return self.heads * (self.nope_dim + self.rope_dim)


Count = Callable[[Widths], int]


@dataclass(frozen=True, slots=True)
class Kind:
    """Sizes of one attention kind."""

    meaning: str
    core_query: Count  # query values that enter decode's attention core
    core_value: Count  # values that leave it
    down_values: Count  # that the first projection of a hidden state gives
    split: bool  # whether dies that split the heads split the first projection too
    q_up_weights: Count  # parameters of the query's up-projection
    up_values: Count  # keys and values of all heads that a cached token is projected up to
    rotated: Count  # query values that a rotary embedding writes in decode
    cached: Count  # key plus value numbers cached of a token
    small_bytes: Count  # of these in 8 bits
    core_products: Count  # multiply-adds of decode's core for a query and a cached token
    kernels: str = "mla"  # whose table of a chip it has, mla or gqa
    normed: Count = lambda s: 0  # query values that a norm over each head reads and writes


GQA = Kind(
    "grouped-query attention",
    core_query=lambda s: s.query_width,
    core_value=lambda s: s.heads * s.value_dim,
    down_values=lambda s: s.query_width + 2 * s.kv_heads * s.value_dim,
    split=True,
    q_up_weights=lambda s: 0,
    up_values=lambda s: 0,
    rotated=lambda s: s.query_width,
    cached=lambda s: s.kv_heads * (s.nope_dim + s.rope_dim + s.value_dim),
    small_bytes=lambda s: s.kv_heads * (s.nope_dim + s.rope_dim + s.value_dim),
    core_products=lambda s: s.heads * (s.nope_dim + s.rope_dim + s.value_dim),
    kernels="gqa",
)

KINDS = {
    "mla": Kind(
        "multi-head latent attention",
        # Queries have absorbed the key weights, and values are still latent.
        core_query=lambda s: s.heads * (s.kv_lora + s.rope_dim),
        core_value=lambda s: s.heads * s.kv_lora,
        down_values=lambda s: (s.q_lora or s.query_width) + s.kv_lora + s.rope_dim,
        split=False,
        q_up_weights=lambda s: s.q_lora * s.query_width,
        up_values=lambda s: s.heads * (s.nope_dim + s.value_dim),
        rotated=lambda s: s.heads * s.rope_dim,
        cached=lambda s: s.kv_lora + s.rope_dim,
        small_bytes=lambda s: s.kv_lora + 2 * s.rope_dim,  # the positional part stays in BF16
        # Every head meets the latent and gathers its first part; arXiv 2405.04434 section 2.1.
        core_products=lambda s: s.heads * (2 * s.kv_lora + s.rope_dim),
    ),
    "shared_kv": Kind(
        "one vector of a token is key and value of all heads (compressed attention, DeepSeek-V4)",
        core_query=lambda s: s.query_width,
        core_value=lambda s: s.heads * s.value_dim,
        down_values=lambda s: s.q_lora + s.value_dim,
        split=False,
        q_up_weights=lambda s: s.q_lora * s.query_width,
        up_values=lambda s: 0,
        rotated=lambda s: s.heads * s.rope_dim,
        cached=lambda s: s.value_dim,
        small_bytes=lambda s: s.nope_dim + 2 * s.rope_dim,  # the positional part stays in BF16
        core_products=lambda s: 2 * s.heads * s.value_dim,
        normed=lambda s: s.query_width,
    ),
    "gqa": GQA,
    "gated_gqa": replace(
        GQA,
        meaning="grouped-query attention whose heads have an output gate of the hidden state",
        down_values=lambda s: s.query_width + (s.heads + 2 * s.kv_heads) * s.value_dim,
    ),
}


CHUNK = 64  # tokens of a prompt that linear attention computes at once (flash-linear-attention)
STATE_BYTES = 4  # of a number of a state: FP32 (SGLang, mamba-ssm-dtype)


def _key_width(s: Widths) -> int:
    """Numbers in the keys of a token in linear attention, all heads together."""
    return s.linear_key_heads * s.linear_key_dim


def _value_width(s: Widths) -> int:
    """Numbers in the values of a token in linear attention, all heads."""
    return s.linear_value_heads * s.linear_value_dim


@dataclass(frozen=True, slots=True)
class Linear:
    """Sizes of one kind of linear attention, whose state replaces all earlier tokens."""

    meaning: str
    in_weights: Count  # parameters that take a hidden state to all that enters the core
    in_values: Count  # that these give
    # Of these, that a short convolution mixes with those of the tokens before.
    mixed: Count = lambda s: 2 * _key_width(s) + _value_width(s)
    out_values: Count = _value_width  # output values of the core

    @staticmethod
    def state_size(s: Widths) -> int:
        """Count of numbers in a request's state: for each value head a matrix of keys by values."""
        return s.linear_value_heads * s.linear_key_dim * s.linear_value_dim

    def core_flops(self, s: Widths) -> float:
        """FLOPs of a token in decode: the state decays, is multiplied by the key, changed by an
        outer product and multiplied by the query (arXiv 2412.06464 equation 10)."""
        return 7.0 * self.state_size(s)

    def prompt_flops(self, s: Widths) -> float:
        """FLOPs of a prompt's token in chunks: as in decode for products with the state, and
        products with the keys and values of its chunk in WY form (arXiv 2412.06464 section 3.3)."""
        chunk_flops = 2 * CHUNK * (3 * s.linear_key_dim + 2 * s.linear_value_dim) + CHUNK**2
        return 6.0 * self.state_size(s) + float(s.linear_value_heads * chunk_flops)


def _kda_weights(s: Widths) -> int:
    """Parameters before the core of Kimi Delta Attention: projections with a low-rank decay and
    gate, and a convolution (arXiv 2510.26692 section 4)."""
    low_rank, mixed_values = s.linear_key_dim, 2 * _key_width(s) + _value_width(s)
    direct_weights = s.hidden * (mixed_values + s.linear_value_heads + 2 * low_rank)
    return (
        direct_weights + low_rank * (_key_width(s) + _value_width(s)) + s.linear_conv * mixed_values
    )


LINEAR = {
    "gated_deltanet": Linear(
        "Gated DeltaNet: a decay and a step of each head (arXiv 2412.06464; Qwen3-Next)",
        in_weights=lambda s: (
            s.hidden * (2 * _key_width(s) + 2 * _value_width(s) + 2 * s.linear_value_heads)
            + s.linear_conv * (2 * _key_width(s) + _value_width(s))
        ),
        in_values=lambda s: 2 * _key_width(s) + 2 * _value_width(s) + 2 * s.linear_value_heads,
    ),
    "kda": Linear(
        "Kimi Delta Attention: a decay of each channel of a key (arXiv 2510.26692; Kimi-Linear)",
        in_weights=_kda_weights,
        in_values=lambda s: 3 * _key_width(s) + 2 * _value_width(s) + s.linear_value_heads,
    ),
}
