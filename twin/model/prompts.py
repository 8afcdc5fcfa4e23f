"""The attention core of prompts: what its coefficients follow from."""

from __future__ import annotations

from dataclasses import replace

from twin.model import operators as o
from twin.model.roofline import Efficiency
from twin.model.setting import Setting

# What a die does not have less of where it computes a share of a prompt's tokens.
LENGTHS = ("window", "reach", "least", "least_from", "every")


def prompt_core_coefficients(x: Setting, layers: float) -> dict[str, float]:
    """Coefficients of the attention core of prompt tokens, by field of PromptCore, with the FLOPs
    of `layers` layers. Where prefill's dies split a model without experts, each computes its heads
    for the tokens of all these dies; figures are then per token, or pair, of one die."""
    s, split_dies = x.shape, float(x.split_dies) if x.pool.phase == "prefill" else 1.0
    is_all_latent = uses_sparse_kernel(x)
    pair_time_s = split_dies * pair_s(x)
    latent_s = x.context_s(1, prompt=True)
    # Keys that are not selected from: one kernel takes them too.
    dense_pair_s = latent_s if is_all_latent else pair_time_s
    return {
        "pair": pair_time_s * s.mean_keys,
        "latent": latent_s * s.mean_keys,
        "windowed": dense_pair_s * s.window_share,
        "window": float(s.window),
        "index": s.mean_keys * _score_s(x) + s.pool_keys * dense_pair_s,
        "select": x.prompt_copies * x.machine.index_token_s * s.index_share * bool(s.index_top_k),
        "reach": float(s.reach),
        "least": max(x.machine.sparse_prompts, x.machine.sparse_longer) * float(s.reach),
        "least_from": _longest_dense_prompt(x),
        "every": float(is_all_latent),
        "edge": split_dies * _token_s(x),
        "pair_flops": split_dies * s.prefill_core_flops * layers * s.mean_keys,
        "latent_flops": s.decode_core_flops * layers * s.mean_keys,
        "index_flops": s.all_pairs_flops * layers,
        "windowed_flops": split_dies * s.prefill_core_flops * layers * s.window_share,
    }


def mixed_core_coefficients(x: Setting) -> dict[str, float]:
    """Coefficients of the attention core of prompt tokens on a die of a mixed instance, by field of
    PromptCore, per token and pair of its rank. The dies of a rank split the heads. With FlashComm
    some engines (`sparse_split`) split a prompt's tokens instead, if the model has an indexer and
    no compressed keys: then no token is scored twice. [vLLM-Ascend, enable_dsa_cp]"""
    dies, shape, has_flash_comm = x.pool.layer_dies, x.shape, x.optimisations.flash_comm
    is_sparse = shape.index_top_k > 0 and not shape.is_compressed
    if dies == 1 or not (is_sparse and has_flash_comm and x.machine.sparse_split > 0.0):
        return prompt_core_coefficients(x, shape.layers)
    all_heads_setting = replace(x, shape=replace(shape, heads=shape.heads * dies))
    coefficients = prompt_core_coefficients(all_heads_setting, shape.layers)
    return {
        field: value if field in LENGTHS else value / dies for field, value in coefficients.items()
    }


def pair_s(x: Setting) -> float:
    """Seconds per query-key pair of all heads on one die, in multi-head form."""
    return x.shape.prefill_core_flops / _flops_per_s(x)


def uses_sparse_kernel(x: Setting) -> bool:
    """Whether prompts of any length use the sparse attention kernel: in latent form (not expanded
    to heads), over the tokens that an indexer selected."""
    return x.machine.sparse_every > 0.0 and x.shape.index_top_k > 0


def _attention_efficiency(x: Setting) -> Efficiency:
    """Efficiency of prefill's attention core, by number format of KV and kind of attention."""
    return x.machine.prompt_efficiency(x.formats.kv, x.shape.kind.kernels)


def _flops_per_s(x: Setting) -> float:
    """FLOP/s of prefill's attention core on one die, in multi-head form."""
    machine, efficiency = x.machine, _attention_efficiency(x)
    if not efficiency.peak:
        return machine.attention_peak * efficiency.compute
    return machine.chip.peak(efficiency.peak) * machine.cores * efficiency.compute


def _token_s(x: Setting) -> float:
    """Seconds per token of a prompt that do not depend on its pairs. Blocks at the diagonal compute
    masked pairs, a short row fills no block; linear attention has no pairs; a sparse kernel starts
    anew for each query token, on every die that has some of the heads."""
    shape, m = x.shape, x.machine
    if shape.index_top_k:
        has_own_core = uses_sparse_kernel(x) and x.independent_cores > 0.0
        return m.sparse_token_s * x.prompt_copies / x.independent_cores if has_own_core else 0.0
    edge_s = _attention_efficiency(x).edge * pair_s(x)
    if not shape.linear_layers:
        return edge_s
    flops_per_s = m.linear_prompts * m.chip.peak("bf16") * m.cores or _flops_per_s(x)
    state_s = m.linear_chain_s + shape.linear_kind.prompt_flops(shape) / flops_per_s
    return (1.0 - shape.linear_share) * edge_s + shape.linear_share * state_s


def _longest_dense_prompt(x: Setting) -> float:
    """Tokens of the longest prompt in which each token attends to all earlier ones, with a kernel
    that otherwise computes a fixed number of keys; 0: none, as with compressed keys."""
    is_never_dense = x.machine.sparse_prompts > 0.0 or x.shape.is_compressed
    return 0.0 if is_never_dense else float(x.shape.reach)


def _score_s(x: Setting) -> float:
    """Seconds of the indexer on a die per query-key pair; 0: the model has no indexer."""
    if not x.shape.index_top_k:
        return 0.0
    score_io_s = o.SCORE_BYTES / x.machine.vector_bytes_per_s()
    return x.prompt_copies * (x.shape.index_flops / _flops_per_s(x) + score_io_s)
