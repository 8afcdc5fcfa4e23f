"""What one layer has to do: FLOPs, weight bytes and activation bytes of every operator per die and
token, from the model's `Shape` and number formats. Vector bytes are those of element-wise kernels
(norms, quantisation, rotary embedding, activation), which run on vector cores, not behind a matrix
product."""

from collections.abc import Callable, Collection
from dataclasses import astuple, dataclass, replace
from typing import Literal

from twin.model.formats import ACTIVATION_BYTES, FORMATS, Steps, format_on_chip
from twin.model.shape import Shape
from twin.scenario import Precision

SCORE_BYTES = 8.0  # of an indexer's score, in FP32: written and read


@dataclass(frozen=True, slots=True)
class Work:
    """An operator's demand on one die."""

    format: str  # number format of its weights
    weight_bytes: float  # read once a pass
    flops_per_token: float
    io_bytes_per_token: float  # activations a matrix product reads and writes
    vector_bytes_per_token: float
    unpack_bytes: float = 0.0  # that vector cores move to write its weights out, once a pass


@dataclass(frozen=True, slots=True)
class Formats:
    """Number formats of the parts of a model."""

    linear: str  # attention projections, dense FFN
    expert: str  # routed experts
    shared: str  # shared experts
    kv: str
    sum_bytes: float = ACTIVATION_BYTES  # of a number of an FFN's first product, as written
    steps: Steps = Steps()  # of the routed experts' products

    @property
    def activation_bytes(self) -> float:
        """Bytes of one activation that enters a matrix product."""
        return FORMATS[self.linear].entry

    @property
    def shared_more_bytes(self) -> float:
        """Bytes of one weight of a shared expert minus those of a routed expert's weight."""
        return FORMATS[self.shared].weight_bytes - FORMATS[self.expert].weight_bytes


def formats(
    precision: Precision, sum_bytes: float = ACTIVATION_BYTES, family: str = "",
    peaks: Collection[str] | None = None,
) -> Formats:  # fmt: skip
    """Number formats of a model's parts, with the vector work that a chip family needs around the
    experts' products. peaks: formats in which a chip computes, which decide whether it unpacks
    weights; None: weights stay packed. sum_bytes: bytes per number of an FFN's first INT8 product;
    with 8-bit KV it is scaled and written in BF16."""
    weight_name = precision.weights if peaks is None else format_on_chip(precision.weights, peaks)
    weight_format = FORMATS[weight_name]
    linear_format = "bf16" if precision.attention == "bf16" else weight_format.linear or weight_name
    keeps_sums = weight_format.computes == "int8" and precision.kv != "int8"
    return Formats(
        linear_format, weight_name, weight_format.shared or weight_name, precision.kv,
        sum_bytes if keeps_sums else ACTIVATION_BYTES, weight_format.steps.get(family, Steps()),
    )  # fmt: skip


def matmul(fmt: str, weights: float, read: float, write: float, vector: float = 0.0) -> Work:
    """Work per token of a product with `weights` parameters in number format `fmt`. read, write:
    bytes of activations; vector: bytes that element-wise work moves."""
    return Work(fmt, weights * FORMATS[fmt].weight_bytes, 2.0 * weights, read + write, vector)


def _weighted_sum(a: float, work: Work, b: float, other: Work) -> Work:
    """Work a * work + b * other, with the number format of `work`."""
    (fmt, *amounts), (_, *other_amounts) = astuple(work), astuple(other)
    return Work(fmt, *(a * x + b * y for x, y in zip(amounts, other_amounts, strict=True)))


def _mean_layer(s: Shape, cached: Work, linear: Work | None = None) -> Work:
    """Work of an operator per token in a mean layer. cached: work in layers that cache tokens;
    linear: in layers with linear attention, None: no work there."""
    if not s.linear_layers:
        return cached
    linear_work = linear or Work(cached.format, 0.0, 0.0, 0.0, 0.0)
    return _weighted_sum(1.0 - s.linear_share, cached, s.linear_share, linear_work)


def _linear_input(s: Shape, f: Formats) -> Work | None:
    """Work of linear attention's norm, projections and convolution; None: there is none."""
    if not s.linear_layers:
        return None
    kind, hidden_bytes = s.linear_kind, ACTIVATION_BYTES * s.hidden
    vector_bytes = 3 * hidden_bytes + f.activation_bytes * s.hidden
    vector_bytes += 2 * ACTIVATION_BYTES * kind.mixed(s)
    read_bytes, written_bytes = f.activation_bytes * s.hidden, ACTIVATION_BYTES * kind.in_values(s)
    return matmul(f.linear, kind.in_weights(s), read_bytes, written_bytes, vector_bytes)


def _linear_output(s: Shape, f: Formats) -> Work | None:
    """Work of linear attention's gated norm, output projection, residual, norm; None without it."""
    if not s.linear_layers:
        return None
    value_count, hidden_bytes = s.linear_kind.out_values(s), ACTIVATION_BYTES * s.hidden
    read_bytes = f.activation_bytes * value_count
    vector_bytes = (2 * ACTIVATION_BYTES + f.activation_bytes) * value_count + 5 * hidden_bytes
    return matmul(f.linear, value_count * s.hidden, read_bytes, hidden_bytes, vector_bytes)


def decode_prolog(s: Shape, f: Formats) -> Work:
    """Work of norm, Q and KV projections, rotary embedding; key half of kv_up absorbed (MLA). What
    absorption writes comes from the matrix product; only its rotary part is element-wise."""
    weights = s.down_weights + s.q_up_weights + s.kv_lora * s.heads * s.nope_dim + s.index_weights
    hidden_bytes = ACTIVATION_BYTES * s.hidden
    query_bytes = ACTIVATION_BYTES * s.query_width
    written_bytes = query_bytes + ACTIVATION_BYTES * s.core_query_width
    rotated_bytes = ACTIVATION_BYTES * s.kind.rotated(s)
    read_bytes = f.activation_bytes * s.hidden + query_bytes
    vector_bytes = 3 * hidden_bytes + f.activation_bytes * s.hidden + 2 * query_bytes
    vector_bytes += rotated_bytes
    kv_layer_work = matmul(f.linear, weights, read_bytes, written_bytes, vector_bytes)
    return _mean_layer(s, kv_layer_work, _linear_input(s, f))


def decode_output(s: Shape, f: Formats) -> Work:
    """Work of the value half of kv_up (MLA), output projection, residual and norm in decode."""
    weights = s.kv_lora * s.heads * s.value_dim + s.o_weights
    value_bytes = ACTIVATION_BYTES * s.heads * s.value_dim
    read_bytes = ACTIVATION_BYTES * s.core_value_width + value_bytes
    hidden_bytes = ACTIVATION_BYTES * s.hidden
    vector_bytes = value_bytes + f.activation_bytes * s.heads * s.value_dim + 5 * hidden_bytes
    vector_bytes += residual_bytes(s)
    layer_work = matmul(f.linear, weights, read_bytes, value_bytes + hidden_bytes, vector_bytes)
    return _mean_layer(s, layer_work, _linear_output(s, f))


def residual_bytes(s: Shape) -> float:
    """Bytes per token that a layer's two residuals move beyond those of one hidden state: each
    reads and writes all streams (hyper-connections, arXiv 2409.19606)."""
    return 2.0 * 2.0 * ACTIVATION_BYTES * s.hidden * (s.residual_streams - 1)


def mixing_bytes(s: Shape, reads: int) -> float:
    """Bytes per token of kernels that mix all residual streams to one hidden state before each of a
    layer's two sublayers. reads: how often they read the streams: 2 for two kernels, for weights
    and sum (SGLang `mhc.py`, mhc_pre_gemm_sqrsum, mhc_pre_big_fuse), 1 for one (HcPre)."""
    return 2.0 * ACTIVATION_BYTES * s.hidden * (reads * s.residual_streams + 1)


def prefill_down(s: Shape, f: Formats) -> Work:
    """Work of norm and down-projections for a prompt token (all of QKV without MLA)."""
    output_values = s.down_weights / s.hidden
    hidden_bytes = ACTIVATION_BYTES * s.hidden
    read_bytes = f.activation_bytes * s.hidden
    vector_bytes = 3 * hidden_bytes + read_bytes
    weights = s.down_weights + s.index_weights
    kv_layer_work = matmul(f.linear, weights, read_bytes, 2.0 * output_values, vector_bytes)
    return _mean_layer(s, kv_layer_work, _linear_input(s, f))


def prefill_up(s: Shape, f: Formats) -> Work:
    """Work of up-projections of query, keys and values to all heads (multi-head form), and RoPE."""
    up_values = s.kind.up_values(s)
    output_values = s.query_width + up_values if up_values or s.q_up_weights else 0
    weights = s.q_up_weights + s.kv_up_weights
    read_bytes = f.activation_bytes * (s.q_lora + s.kv_lora)
    vector_bytes = 2.0 * s.query_width + 2.0 * ACTIVATION_BYTES * s.kind.normed(s)
    kv_layer_work = matmul(f.linear, weights, read_bytes, 2.0 * output_values, vector_bytes)
    return _mean_layer(s, kv_layer_work)


def cached_up(s: Shape, f: Formats) -> Work:
    """Work of the up-projection of a cached token's latent to keys and values, all heads (MLA)."""
    out_bytes = ACTIVATION_BYTES * s.kind.up_values(s)
    kv_layer_work = matmul(f.linear, s.kv_up_weights, f.activation_bytes * s.kv_lora, out_bytes)
    return _mean_layer(s, kv_layer_work)


def prefill_output(s: Shape, f: Formats) -> Work:
    """Work of output projection, residual and norm for a prompt token."""
    value_bytes = ACTIVATION_BYTES * s.heads * s.value_dim
    hidden_bytes = ACTIVATION_BYTES * s.hidden
    read_bytes = f.activation_bytes * s.heads * s.value_dim
    vector_bytes = value_bytes + read_bytes + 5 * hidden_bytes + residual_bytes(s)
    kv_layer_work = matmul(f.linear, s.o_weights, read_bytes, hidden_bytes, vector_bytes)
    return _mean_layer(s, kv_layer_work, _linear_output(s, f))


def gate(s: Shape, f: Formats) -> Work:
    """Work of router scores in FP32 (weights in BF16) over all routed experts."""
    hidden_bytes, experts = ACTIVATION_BYTES * s.hidden, s.routed_experts
    return matmul("bf16", s.hidden * experts, hidden_bytes, 4.0 * experts)


def expert(s: Shape, f: Formats) -> Work:
    """Work of one expert for one token that is sent to it: gate and up, SwiGLU, down."""
    return _ffn_work(s.hidden, s.expert_intermediate, f.expert, f.sum_bytes, f.steps)


def dense_ffn(s: Shape, f: Formats) -> Work:
    """Work of the dense FFN of a layer without experts for one token."""
    return _ffn_work(s.hidden, s.dense_intermediate, f.linear, f.sum_bytes, Steps())


def _ffn_work(hidden: int, inner: int, fmt: str, product_bytes: float, steps: Steps) -> Work:
    """Work per token of a feed-forward network: FLOPs, weights and bytes. inner: its middle width;
    product_bytes: per number of its first product, if in INT8; steps: vector work around it."""
    weight_format = FORMATS[fmt]
    sum_bytes = product_bytes if weight_format.computes == "int8" else ACTIVATION_BYTES
    inner_bytes = sum_bytes * 2 * inner
    output_bytes, extra_bytes = ACTIVATION_BYTES * hidden, 0.0
    if steps.halves:
        extra_bytes = (steps.halves + ACTIVATION_BYTES) * hidden
        inner_bytes, output_bytes = steps.halves * 2 * inner, steps.halves * hidden
    work = matmul(
        fmt,
        3.0 * hidden * inner,
        weight_format.entry * (hidden + inner),
        inner_bytes + output_bytes,
        inner_bytes + weight_format.entry * inner + extra_bytes + steps.split * (hidden + inner),
    )
    return replace(work, unpack_bytes=steps.unpack * 3.0 * hidden * inner)


def mtp_projection(s: Shape, f: Formats) -> Work:
    """Work of the MTP module's projection of hidden state and embedding, with their norms."""
    state_bytes = ACTIVATION_BYTES * s.hidden
    return matmul(f.linear, 2.0 * s.hidden**2, 2 * state_bytes, state_bytes, 4 * state_bytes)


def joining_product(s: Shape, f: Formats, states: int) -> Work:
    """Work of a product that joins the hidden states of `states` layers to one (EAGLE-3)."""
    hidden_bytes = ACTIVATION_BYTES * s.hidden
    return matmul(f.linear, float(states) * s.hidden**2, states * hidden_bytes, hidden_bytes)


def with_further_inputs(w: Work, s: Shape, f: Formats, more: float) -> Work:
    """Work `w` of the first projections of decode or prefill, plus that of `more` parameters for
    further inputs (EAGLE-3: an embedding and a hidden state), with their norm."""
    hidden_bytes = ACTIVATION_BYTES * s.hidden
    return _weighted_sum(1.0, w, 1.0, matmul(f.linear, more, hidden_bytes, 0.0, 2 * hidden_bytes))


def lm_head(s: Shape) -> Work:
    """Work of the LM head for one position: logits in BF16 over the vocabulary."""
    return matmul("bf16", float(s.vocabulary * s.hidden), 2.0 * s.hidden, 4.0 * s.vocabulary)


def sampling(s: Shape) -> Work:
    """Work of sort, sum and filter of FP32 logits on the NPU (arXiv 2506.12708v2 section 4.2.4)."""
    return Work("bf16", 0.0, 0.0, 0.0, 4 * 4.0 * s.vocabulary)


def dispatch_bytes(s: Shape, early_quantisation: bool, scale_bytes: float) -> float:
    """Bytes of a message to one expert: 8-bit with scales, or BF16 (arXiv 2506.12708v2 4.2.1)."""
    return s.hidden + scale_bytes if early_quantisation else ACTIVATION_BYTES * s.hidden


def combine_bytes(s: Shape) -> float:
    """Bytes of an expert's answer for one token, in BF16 (arXiv 2506.12708v2 section 4.2.1)."""
    return ACTIVATION_BYTES * s.hidden


def gathered_bytes(s: Shape, dies: int) -> float:
    """Bytes per token that `dies` dies exchange in a gather and a reduce-scatter: the hidden state
    to the other dies, and their sums back."""
    return 2.0 * (dies - 1) * ACTIVATION_BYTES * s.hidden


def rank_bytes(s: Shape, dies: int) -> float:
    """Bytes per token between the `dies` of a rank, all layers: a gather and a reduce-scatter in
    each layer, two of each in dense layers."""
    return gathered_bytes(s, dies) * (s.layers + s.dense_layers)


@dataclass(frozen=True, slots=True)
class Plain:
    """An operator that every token passes in every layer, other than the attention core. Its words
    are an entry of `twin.metrics.operators`."""

    name: str
    where: Literal["before", "after"]  # the attention core
    launches: int  # kernels
    work: Callable[[Shape, Formats], Work]
    phases: tuple[str, ...] = ("decode",)


PLAIN = [
    Plain("mla_prolog", "before", 2, decode_prolog),
    Plain("o_proj", "after", 3, decode_output),
]  # prefill's own projections are split over dies in three ways: prefill_costs.py


def operators_outside_core(phase: str, where: str = "") -> list[Plain]:
    """Operators of a phase that every token passes in each layer, except the attention core. where:
    "before" or "after" that core; "" for both."""
    return [entry for entry in PLAIN if phase in entry.phases and where in ("", entry.where)]
