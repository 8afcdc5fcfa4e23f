"""Attention kinds: what a layer of each projects, caches and computes, as formulas of its sizes.

A kind is an entry of KINDS; a model's file names the one it has (`attention`), and Shape,
operators and memory ask the entry. Counts are those of one layer and one token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twin.model.shape import Shape

Count = Callable[["Shape"], int]


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
    "gqa": Kind(
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
    ),
}
