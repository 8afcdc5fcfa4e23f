"""Which instances serve, and how they compute."""

from __future__ import annotations

from typing import Literal

from twin.scenario.declaration import PAPER, Section, choice, quantity


class Prefill(Section):
    """The prefill pool."""

    instances: int = quantity(
        6, "instances", "Prefill instances.", low=1, high=512, source=f"{PAPER} 5.1"
    )
    npus_per_instance: int = quantity(
        16, "NPUs", "NPUs of one prefill instance.", low=1, high=384, source=f"{PAPER} 4.1"
    )
    tokens_per_npu: int = quantity(
        16_384,
        "tokens/NPU",
        "Token budget of one prefill batch.",
        low=64,
        high=1_048_576,
        source=f"{PAPER} Table 3",
    )
    chunk_tokens: int = quantity(
        0,
        "tokens",
        "Longest piece of one prompt in one batch; 0 does not chunk.",
        low=0,
        high=1_048_576,
    )
    attention: Literal["sp_tp_sp", "tp", "dp"] = choice(
        "sp_tp_sp",
        "Staged sequence-tensor-sequence parallel attention; tensor parallel in groups of dies, "
        "which gather hidden states before it and reduce partial sums after it; or plain data "
        "parallel (each prompt on one die, so lengths skew the load).",
        source=f"{PAPER} 4.3.1",
    )
    tp_dies: int = quantity(
        8,
        "dies",
        "Dies of a tensor-parallel group, where attention is tp; groups share the prompts evenly.",
        low=2,
        high=128,
        source="SGLang on Atlas A3: tp-size 16, dp-size 2; xDeepServe: 4",
    )
    microbatch: bool = choice(
        True, "Two microbatches hide communication behind computing.", source=f"{PAPER} 4.3.2"
    )


class Decode(Section):
    """The decode pool."""

    instances: int = quantity(
        1, "instances", "Decode instances.", low=1, high=128, source=f"{PAPER} 5.1"
    )
    npus_per_instance: int = quantity(
        160, "NPUs", "NPUs of one decode instance.", low=1, high=384, source=f"{PAPER} 4.1"
    )
    batch_per_npu: int = quantity(
        96,
        "requests/NPU",
        "Most requests one NPU decodes at once; a die holds its share.",
        low=1,
        high=4096,
        source=f"{PAPER} Table 4",
    )
    microbatch: Literal["auto", "on", "off"] = choice(
        "auto",
        "Two microbatches alternate between an attention and an MoE stream; auto does what "
        "is faster for the batch at hand.",
        source=f"{PAPER} 4.2.3",
    )
    mtp_draft_tokens: int = quantity(
        1,
        "tokens",
        "Draft tokens a multi-token-prediction pass proposes; 0 switches MTP off.",
        low=0,
        high=4,
        source=f"{PAPER} 4.2.4",
    )
    mtp_acceptance: float = quantity(
        0.7,
        "",
        "Chance that a draft token is accepted, given that those before it were.",
        low=0,
        high=1,
        source=f"{PAPER} 5.2 (assumed there)",
    )
    mtp_dataset: Literal["as_stated", "c_eval", "gsm8k", "mmlu"] = choice(
        "as_stated",
        "The chance above, or the share of draft tokens that was right on a dataset "
        "(data/operators.toml).",
        source="slide deck 'CloudMatrix Ascend Super-computer'",
    )
    rank_choice: Literal["kv_and_requests", "kv_tokens", "requests", "round_robin"] = choice(
        "kv_and_requests",
        "Which die with a free slot decodes a request: the one with the least of KV tokens and "
        "requests, each over its mean (what DeepSeek evens); the fewest KV tokens (xDeepServe); "
        "the fewest requests, then KV tokens (vLLM); or the next in turn (SGLang).",
        source="DeepSeek open-infra-index day 6; xDeepServe, arXiv 2508.02520",
    )
    expert_npus: int = quantity(
        0,
        "NPUs",
        "NPUs of each instance that hold nothing but experts, while the others do attention "
        "(attention/FFN disaggregation); 0: every NPU does both.",
        low=0,
        high=383,
        source=f"{PAPER} 6.2.1; MegaScale-Infer, arXiv 2504.02263",
    )


class Colocated(Section):
    """Instances that prefill and decode in the same iterations: the contrast to disaggregation."""

    instances: int = quantity(1, "instances", "Colocated instances.", low=1, high=128)
    npus_per_instance: int = quantity(
        160, "NPUs", "NPUs of one colocated instance.", low=1, high=384
    )
    chunk_tokens_per_npu: int = quantity(
        1024,
        "tokens/NPU",
        "Prompt tokens an iteration may prefill beside the decode batch.",
        low=2,
        high=65_536,
    )


class Precision(Section):
    """Number formats."""

    weights: Literal["int8", "bf16", "fp8", "fp4"] = choice(
        "int8", "Weights and matrix products.", source=f"{PAPER} 4.5"
    )
    attention: Literal["as_weights", "bf16"] = choice(
        "as_weights",
        "Attention projections and dense FFN: in the format of the weights, or BF16 beside "
        "quantised experts.",
        source=f"{PAPER} 4.5",
    )
    kv: Literal["bf16", "int8"] = choice("bf16", "KV cache.", source=f"{PAPER} 4.2.2")


class Communication(Section):
    """How tokens travel to experts and back."""

    fused: bool = choice(
        True,
        "Fused dispatch and combine (direct remote writes); off: gate, all-to-all-v, expert, "
        "all-to-all.",
        source=f"{PAPER} 4.2.1",
    )
    early_quantisation: bool = choice(
        True, "Dispatch sends INT8 tokens with a scale instead of BF16.", source=f"{PAPER} 4.2.1"
    )
    buffer_tokens_per_die: int = quantity(
        0,
        "tokens/die",
        "Tokens of a die for which decode's static exchange buffers have room; more go in "
        "further rounds of dispatch, experts and combine. 0: room for the largest batch.",
        low=0,
        high=65_536,
        source=f"{PAPER} 4.2.1: 96",
    )


class Optimisations(Section):
    """What engines and operator libraries do to save time, each with its mechanism."""

    attention_kernel: Literal["flash_attention", "fused_mla", "amla"] = choice(
        "fused_mla",
        "Decode attention core: built on an existing FlashAttention, the fused MLA operator, or "
        "AMLA, which rescales by adding integers; they reach different shares of the peak.",
        source=f"{PAPER} 4.2.2",
    )
    fused_deep_mla: bool = choice(
        False,
        "One operator for MLA prolog, attention core and gating: fewer launches, and queries do "
        "not go through HBM between them.",
    )
    fused_deep_moe: bool = choice(
        False,
        "One operator for dispatch, experts and combine: rows are computed and sent back tile by "
        "tile while others still arrive.",
    )
    shared_expert_scheduling: bool = choice(
        True,
        "Transmissions to the dies of the shared expert are scheduled among the others; off: all "
        "dies send to them at once (in-cast), and routed tokens wait behind.",
    )
    weight_prefetch: bool = choice(
        False,
        "Weights of the next operator are read into the on-chip cache while dispatch and combine "
        "start and wait, when nothing else reads (decode without microbatches).",
    )
    multi_stream: bool = choice(
        False,
        "Decode without microbatches: the KV branch runs beside the query branch, and a shared "
        "expert on the same die beside dispatch.",
    )
    flash_comm: bool = choice(
        True,
        "FlashComm: prefill's all-gather and all-to-all carry quantised activations; off: BF16.",
    )
    layer_in_parallel: bool = choice(
        True,
        "Layer-in parallel conversion: prefill's attention goes from tensor to sequence parallel "
        "by an all-to-all before the output projection; off: partial sums of all tokens are "
        "reduced after it.",
        source=f"{PAPER} 4.3.1",
    )
    speculation: Literal["pipelined", "fusion_spec", "unfused"] = choice(
        "pipelined",
        "What speculation costs beside its passes: nothing when graphs are launched ahead and "
        "sampling stays on the NPU; about 1 ms with FusionSpec; or a launch after each graph.",
        source=f"{PAPER} 4.2.4",
    )
    host_gap_ms: float = quantity(
        0.0,
        "ms",
        "Pause of the host between iterations, beyond what the machine's own figures say.",
        low=0,
        high=100,
    )


class Deployment(Section):
    """Which instances serve, and how they compute."""

    mode: Literal["disaggregated", "colocated", "prefill_only", "decode_only"] = choice(
        "disaggregated",
        "Separate prefill and decode pools; colocated instances; or one pool alone, as benchmarks "
        "measure it (prefill_only ends at the first token, decode_only starts with KV in place).",
        source=f"{PAPER} 4.1, 5.1",
    )
    model: str = choice("deepseek-r1", "Model served, a file in data/models.")
    stack: str = choice(
        "plain",
        "Serving stack whose host and kernels replace the machine's own figures, a name in "
        "data/stacks.toml; plain: none.",
    )
    prefill: Prefill = Prefill()
    decode: Decode = Decode()
    colocated: Colocated = Colocated()
    precision: Precision = Precision()
    communication: Communication = Communication()
    optimisations: Optimisations = Optimisations()
    kv_transfer_plane: Literal["rdma", "ub", "vpc"] = choice(
        "rdma", "Plane that carries KV from prefill to decode.", source=f"{PAPER} 4.3.3"
    )
