"""What one layer has to do: FLOPs, weight bytes and activation bytes of every operator.

Counts follow from the model's `Shape` and the number formats, per die and token. Vector bytes are
those of element-wise kernels (norms, quantisation, rotary embedding, activation), which run on
vector cores and do not hide behind a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from twin.model.shape import Shape
from twin.scenario import Precision

FORMAT_BYTES = {"int8": 1.0, "fp8": 1.0, "bf16": 2.0, "fp16": 2.0, "fp4": 0.5625}
ACTIVATION_BYTES = 2.0  # BF16 between operators
SCORE_BYTES = 8.0  # of an indexer's score, in FP32: written and read


@dataclass(frozen=True, slots=True)
class Work:
    """An operator's demand on one die."""

    format: str  # number format of its matrix products
    weight_bytes: float  # read once a pass
    flops_per_token: float
    io_bytes_per_token: float  # activations a matrix product reads and writes
    vector_bytes_per_token: float


@dataclass(frozen=True, slots=True)
class Formats:
    """Number formats of the parts of a model."""

    linear: str  # attention projections, dense FFN
    expert: str
    kv: str
    sum_bytes: float = ACTIVATION_BYTES  # of a number of an FFN's first product, as written

    @property
    def activation_bytes(self) -> float:
        """Bytes of one activation that enters a matrix product."""
        return min(ACTIVATION_BYTES, max(1.0, FORMAT_BYTES[self.linear]))


def formats(precision: Precision, sum_bytes: float = ACTIVATION_BYTES) -> Formats:
    """Formats by precision: FP4 is for experts only, attention projections then stay FP8.

    sum_bytes: of a number of an FFN's first product in INT8. With 8-bit KV the product itself
    scales it and writes BF16.
    """
    linear = "fp8" if precision.weights == "fp4" else precision.weights
    if precision.attention == "bf16":
        linear = "bf16"
    sums = precision.weights == "int8" and precision.kv != "int8"
    return Formats(linear, precision.weights, precision.kv, sum_bytes if sums else ACTIVATION_BYTES)


def linear(fmt: str, weights: float, read: float, write: float, vector: float = 0.0) -> Work:
    """A matrix product over `weights` parameters; `read`/`write` are activation bytes a token."""
    return Work(fmt, weights * FORMAT_BYTES[fmt], 2.0 * weights, read + write, vector)


def decode_prolog(s: Shape, f: Formats) -> Work:
    """Norm, Q and KV projections, rotary embedding; the key half of kv_up absorbed (MLA).

    What absorption writes comes from the matrix product; only its rotary part is element-wise.
    """
    weights = s.down_weights + s.q_up_weights + s.kv_lora * s.heads * s.nope_dim
    weights += s.index_weights
    hidden = ACTIVATION_BYTES * s.hidden
    query = ACTIVATION_BYTES * s.query_width
    absorbed = ACTIVATION_BYTES * s.core_query_width
    rotated = ACTIVATION_BYTES * s.heads * s.rope_dim if s.attention == "mla" else query
    vector = 3 * hidden + f.activation_bytes * s.hidden + 2 * query + rotated
    return linear(
        f.linear, weights, f.activation_bytes * s.hidden + query, query + absorbed, vector
    )


def decode_output(s: Shape, f: Formats) -> Work:
    """Value half of kv_up (MLA), output projection, residual and norm."""
    value_up = s.kv_lora * s.heads * s.value_dim
    gathered = ACTIVATION_BYTES * s.core_value_width
    values = ACTIVATION_BYTES * s.heads * s.value_dim
    hidden = ACTIVATION_BYTES * s.hidden
    vector = values + f.activation_bytes * s.heads * s.value_dim + 5 * hidden
    return linear(f.linear, value_up + s.o_weights, gathered + values, values + hidden, vector)


def prefill_down(s: Shape, f: Formats) -> Work:
    """Norm and down-projections of a prompt token (all of QKV without MLA)."""
    out = s.down_weights / s.hidden
    hidden = ACTIVATION_BYTES * s.hidden
    vector = 3 * hidden + f.activation_bytes * s.hidden
    weights = s.down_weights + s.index_weights
    return linear(f.linear, weights, f.activation_bytes * s.hidden, 2.0 * out, vector)


def prefill_up(s: Shape, f: Formats) -> Work:
    """Up-projections of query, keys and values to all heads (multi-head form), and RoPE."""
    heads_out = s.query_width + s.heads * (s.nope_dim + s.value_dim) if s.attention == "mla" else 0
    read = f.activation_bytes * (s.q_lora + s.kv_lora)
    return linear(
        f.linear, s.q_up_weights + s.kv_up_weights, read, 2.0 * heads_out, 2.0 * s.query_width
    )


def cached_up(s: Shape, f: Formats) -> Work:
    """Up-projection of a cached token's latent to keys and values of all heads (MLA)."""
    if s.attention != "mla":
        return Work(f.linear, 0.0, 0.0, 0.0, 0.0)
    out_bytes = ACTIVATION_BYTES * s.heads * (s.nope_dim + s.value_dim)
    return linear(f.linear, s.kv_up_weights, f.activation_bytes * s.kv_lora, out_bytes)


def prefill_output(s: Shape, f: Formats) -> Work:
    """Output projection, residual and norm of a prompt token."""
    values = ACTIVATION_BYTES * s.heads * s.value_dim
    hidden = ACTIVATION_BYTES * s.hidden
    vector = values + f.activation_bytes * s.heads * s.value_dim + 5 * hidden
    return linear(f.linear, s.o_weights, f.activation_bytes * s.heads * s.value_dim, hidden, vector)


def gate(s: Shape, f: Formats) -> Work:
    """Router scores in FP32 (weights in BF16) over all routed experts."""
    hidden = ACTIVATION_BYTES * s.hidden
    return linear("bf16", s.hidden * s.routed_experts, hidden, 4.0 * s.routed_experts)


def expert(s: Shape, f: Formats) -> Work:
    """One expert for one token assigned to it: gate and up, SwiGLU, down."""
    return _ffn(s.hidden, s.expert_intermediate, f.expert, f.sum_bytes)


def dense_ffn(s: Shape, f: Formats) -> Work:
    """The dense FFN of a first layer for one token."""
    return _ffn(s.hidden, s.dense_intermediate, f.linear, f.sum_bytes)


def _ffn(hidden: int, inner: int, fmt: str, sum_bytes: float) -> Work:
    entry = min(ACTIVATION_BYTES, max(1.0, FORMAT_BYTES[fmt]))
    grown = (sum_bytes if fmt == "int8" else ACTIVATION_BYTES) * 2 * inner
    return linear(
        fmt,
        3.0 * hidden * inner,
        entry * (hidden + inner),
        grown + ACTIVATION_BYTES * hidden,
        grown + entry * inner,
    )


def mtp_projection(s: Shape, f: Formats) -> Work:
    """The MTP module's own projection of hidden state and embedding, with their norms."""
    hidden = ACTIVATION_BYTES * s.hidden
    return linear(f.linear, 2.0 * s.hidden * s.hidden, 2 * hidden, hidden, 4 * hidden)


def lm_head(s: Shape) -> Work:
    """Logits in BF16 over the vocabulary."""
    return linear("bf16", float(s.vocabulary * s.hidden), 2.0 * s.hidden, 4.0 * s.vocabulary)


def sampling(s: Shape) -> Work:
    """Sort, cumulative sum and filter on the NPU: passes over FP32 logits (paper 4.2.4)."""
    return Work("bf16", 0.0, 0.0, 0.0, 4 * 4.0 * s.vocabulary)


def dispatch_bytes(s: Shape, early_quantisation: bool, scale_bytes: float) -> float:
    """One message to one expert, bytes: 8-bit with its scales, or BF16 (paper 4.2.1)."""
    return s.hidden + scale_bytes if early_quantisation else ACTIVATION_BYTES * s.hidden


def combine_bytes(s: Shape) -> float:
    """One expert's answer for one token, bytes: BF16, unquantised (paper 4.2.1)."""
    return ACTIVATION_BYTES * s.hidden


@dataclass(frozen=True, slots=True)
class Plain:
    """An operator that every token passes in every layer, other than the attention core.

    Its words are an entry of `twin.metrics.operators`.
    """

    name: str
    where: Literal["before", "after"]  # the attention core
    launches: int  # kernels
    work: Callable[[Shape, Formats], Work]
    phases: tuple[str, ...] = ("decode",)


PLAIN = [
    Plain("mla_prolog", "before", 2, decode_prolog),
    Plain("o_proj", "after", 3, decode_output),
]  # prefill's own projections are split over dies in three ways: prefill_costs.py


def plain_operators(phase: str, where: str) -> list[Plain]:
    """The plain operators of a phase before or after the attention core."""
    return [entry for entry in PLAIN if phase in entry.phases and entry.where == where]
