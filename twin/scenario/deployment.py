"""Which instances serve, and how they compute."""

from typing import Any, Literal

from twin.scenario.declaration import (
    Section,
    When,
    choice,
    element_name,
    quantity,
    rows,
    section,
    unless,
    when,
)

DECODES = unless("deployment.mode", "prefill_only")
DECODE_POOL = when("deployment.mode", "disaggregated", "decode_only")
OFFLOADS = unless("deployment.decode.attention_offload", 0)
IN_HOST = unless("deployment.decode.kv_offload", 0)
MTP = unless("deployment.decode.mtp_draft_tokens", 0)
BY_HAND = when("deployment.placement", "by_hand")
DISAGGREGATED = when("deployment.mode", "disaggregated")
AS_MACHINE = "as_machine"
EP = "EP degree, ep_degree, expert parallelism, DP, data parallelism"  # that NPUs stand for
Weights = Literal["int8", "bf16", "fp8", "fp4", "mxfp4", "mxfp4_fp8", "w4a8", "w4a16"]
WEIGHTS = {
    "fp4": "NVFP4",
    "mxfp4": "MXFP4 routed experts",
    "mxfp4_fp8": "MXFP4 routed experts, FP8 elsewhere",
    "w4a8": "W4A8: INT4 routed experts, INT8 products",
    "w4a16": "W4A16: INT4 routed experts, BF16 products",
}


def pool_chip(label: str, applies: tuple[When, ...] = ()) -> Any:
    """A field that holds the chip of a pool's NPUs."""
    return choice(
        AS_MACHINE, label, files="chips", group="Pools", applies=applies, since=4,
        options={AS_MACHINE: "The machine's first"}, also="heterogeneous, mixed chips, kind",
    )  # fmt: skip


class Prefill(Section):
    """The prefill pool."""

    instances: int = quantity(6, "instances", "Prefill instances", (1, 512), group="Pools")
    """Prefill instances. [arXiv 2506.12708v2 5.1]"""
    npus_per_instance: int = quantity(
        16, "NPUs", "NPUs per prefill instance", (1, 384), step=8, group="Pools", also=EP
    )
    """NPUs per prefill instance. [arXiv 2506.12708v2 4.1]"""
    chip: str = pool_chip("Chip of prefill")
    """Chip of the nodes on which its instances sit: `supernode.chip`, or that of a row of
    `supernode.kinds`."""
    on: Literal["own_npus", "decode_npus"] = choice(
        "own_npus", "Prefill runs on",
        options={"own_npus": "NPUs of its own", "decode_npus": "NPUs of decode (spatial sharing)"},
        group="Pools", applies=DISAGGREGATED, since=2,
    )  # fmt: skip
    """Whether prefill instances have NPUs of their own, or lie over the first NPUs of decode
    instances, as many on each: both compute at the same time on their own cores of a die, and
    share its HBM and its ports. [hybrid co-location: arXiv 2506.12708v2 6.2.2; MuxServe, Bullet
    (arXiv 2504.19516), Nexus (arXiv 2507.06608), semi-PD (arXiv 2504.19867)]"""
    core_share: float = quantity(
        0.5, "", "Prefill's share of the cores", (0.05, 0.95), step=0.05, group="Pools",
        applies=(DISAGGREGATED, when("deployment.prefill.on", "decode_npus")), since=2,
    )  # fmt: skip
    """Share of a die's cube and vector cores that prefill has; decode has the others. [limits of a
    stream's cores: CANN aclrtSetStreamResLimit]"""
    tokens_per_npu: int = quantity(16_384, "tokens/NPU", "Prefill batch", (64, 1_048_576))
    """Token budget of one prefill batch. [arXiv 2506.12708v2 Table 3]"""
    chunk_tokens: int = quantity(0, "tokens", "Prefill chunk", (0, 1_048_576), step=512)
    """Longest piece of one prompt in one batch; 0 does not chunk."""
    chunk_evening: float = quantity(
        0.0, "", "Shorter later chunks", (0, 1), step=0.05, since=4,
        applies=unless("deployment.prefill.chunk_tokens", 0), also="dynamic chunking",
    )  # fmt: skip
    """Later pieces of a prompt attend to more. 0: all have the length of the first; 1: they take
    its time, and are a quarter of its length at least. What lies between is taken of the
    difference. [SGLang: enable-dynamic-chunking, SGLANG_DYNAMIC_CHUNKING_SMOOTH_FACTOR]"""
    attention: Literal["sp_tp_sp", "tp", "dp"] = choice(
        "sp_tp_sp", "Prefill attention",
        options={"sp_tp_sp": "SP-TP-SP", "tp": "Tensor parallel", "dp": "Data parallel"},
    )  # fmt: skip
    """Staged sequence-tensor-sequence parallel attention; tensor parallel in groups of dies, which
    gather hidden states before it and reduce partial sums after it; or plain data parallel (each
    prompt on one die, so lengths skew the load). [arXiv 2506.12708v2 4.3.1]"""
    tp_dies: int = quantity(
        8, "dies", "Tensor-parallel group", (2, 128),
        applies=when("deployment.prefill.attention", "tp"),
    )  # fmt: skip
    """Dies of a tensor-parallel group; groups share the prompts evenly. [SGLang on Atlas A3:
    tp-size 16, dp-size 2; xDeepServe: 4]"""
    cp_dies: int = quantity(
        1, "", "Context parallelism in prefill", (1, 128), since=4,
        applies=when("deployment.prefill.attention", "tp", "dp"),
        also="CP, PCP, prefill-context-parallel-size, ring attention, long context",
    )  # fmt: skip
    """Dies, or tensor-parallel groups, that split a prompt by its tokens, in pieces with equal
    attention. In every layer each gathers the KV of the others; each stores its share. [vLLM-
    Ascend: prefill-context-parallel-size; ring attention, arXiv 2310.01889]"""
    pp_stages: int = quantity(
        1, "stages", "Pipeline stages in prefill", (1, 64), since=4,
        also="PP, pipeline parallelism, pipeline-parallel-size, pp-size",
    )  # fmt: skip
    """Parts of an instance's NPUs that each have as many of the layers, with their experts and KV.
    A batch goes through them one after the other, and a stage takes the next meanwhile: pieces of
    one prompt (`chunk_tokens`) or of several. [SGLang: pp-size, chunked pipeline; vLLM: pipeline-
    parallel-size; GPipe, arXiv 1811.06965]"""
    experts_tp: int = quantity(
        1, "dies", "Experts split over dies (prefill)", (1, 128), since=4, also="MoE TP, moe_tp"
    )
    """Dies that hold a part of each of their experts, as `deployment.decode.experts_tp` says; 1:
    experts are whole."""
    dp_balance: Literal["tokens", "attention"] = choice(
        "tokens", "Prompts over dies",
        options={"tokens": "Fewest tokens", "attention": "Even attention, long prompts in pieces"},
        applies=when("deployment.prefill.attention", "dp"), since=2,
    )  # fmt: skip
    """Which die takes a prompt, and how much of it: the die with the fewest tokens, all of it; or
    the one with least attention to compute, and no more of it than a die has in a full batch: the
    rest waits for the next. [DeepSeek open-infra-index day 6: prefill load balancer]"""
    microbatch: bool = choice(True, "Prefill microbatches")
    """Two microbatches hide communication behind computing. [arXiv 2506.12708v2 4.3.2]"""
    lent_cores: float = quantity(
        0.25, "", "Cores lent to decode", (0.05, 0.9), step=0.05, group="Pools",
        applies=(DISAGGREGATED, OFFLOADS), since=2,
    )  # fmt: skip
    """Share of each prefill die's cores that is set aside for offloaded attention, whether there is
    any or not; prompts are computed on the others. [static partition: Adrenaline, arXiv 2503.20552;
    the share is an assumption]"""


class Decode(Section):
    """The decode pool."""

    instances: int = quantity(
        1, "instances", "Decode instances", (1, 512), step=1, group="Pools", applies=DECODE_POOL
    )
    """Decode instances. [arXiv 2506.12708v2 5.1]"""
    npus_per_instance: int = quantity(
        160, "NPUs", "NPUs per decode instance", (1, 384), step=16, group="Pools",
        applies=DECODE_POOL, also=EP,
    )  # fmt: skip
    """NPUs per decode instance. [arXiv 2506.12708v2 4.1]"""
    chip: str = pool_chip("Chip of decode", (DECODE_POOL,))
    """Chip of the nodes on which its instances sit, as `deployment.prefill.chip` says."""
    expert_npus: int = quantity(
        0, "NPUs", "Expert-only NPUs per decode instance (AFD)", (0, 383), group="Pools",
        applies=DECODE_POOL,
    )  # fmt: skip
    """NPUs of each instance that hold nothing but experts, while the others do attention
    (attention/FFN disaggregation); 0: every NPU does both. [arXiv 2506.12708v2 6.2.1;
    MegaScale-Infer, arXiv 2504.02263]"""
    domains: int = quantity(
        1, "domains", "Attention domains (AFD)", (1, 16), group="Pools",
        applies=(DECODE_POOL, unless("deployment.decode.expert_npus", 0)), since=2,
    )  # fmt: skip
    """Domains of attention NPUs that take turns at the expert NPUs, so that these have a part of
    the batch at a time and are never idle. [xDeepServe, arXiv 2508.02520 section 5.2: three, of 160
    dies each]"""
    attention_offload: float = quantity(
        0.0, "", "Attention offload to prefill NPUs", (0, 0.9), step=0.05, group="Pools",
        applies=DISAGGREGATED, since=2,
    )  # fmt: skip
    """Share of the requests that decode whose KV stays on prefill NPUs, with the attention core
    over it: queries go there in every layer and values come back, over the plane of the KV
    transfer. [Adrenaline, arXiv 2503.20552; arXiv 2506.12708v2 6.2.1]"""
    batch_per_npu: int = quantity(
        96, "requests/NPU", "Decode batch", (1, 4096), applies=DECODES, also="slots, max_num_seqs"
    )
    """Most requests one NPU decodes at once; a die holds its share. [arXiv 2506.12708v2 Table 4]"""
    tp_dies: int = quantity(
        1, "dies", "Attention TP in decode", (1, 128), applies=DECODES, since=4,
        also="TP, tensor-parallel-size, attention TP"
    )  # fmt: skip
    """Dies that split the heads of a request's attention, dense FFN and LM head, and so are one
    rank: each reads all of the request's latents (MLA), or its heads' KV (GQA). Experts stay spread
    over all dies. 1: attention is data-parallel, every die is a rank. [SGLang: tp-size over
    dp-size; vLLM: tensor-parallel-size; arXiv 1909.08053]"""
    cp_dies: int = quantity(
        1, "dies", "Context parallelism in decode", (1, 128), applies=DECODES, since=4,
        also="CP, DCP, decode-context-parallel-size, dcp-size, Helix, long context",
    )  # fmt: skip
    """Dies among the `tp_dies` of a rank that share out the tokens of a request's KV in place of a
    copy each. Queries are gathered before the attention core, partial values and their log-sum-exp
    exchanged after it. At most as many as a rank has copies: `tp_dies`, over the KV heads where
    there are some. [vLLM: decode-context-parallel-size; SGLang: dcp-size; Helix, arXiv
    2507.07120]"""
    pp_stages: int = quantity(
        1, "stages", "Pipeline stages in decode", (1, 64), applies=DECODES, since=4,
        also="PP, pipeline parallelism, pipeline-parallel-size, pp-size",
    )  # fmt: skip
    """Parts of an instance's NPUs that each have as many of the layers, with their experts and KV.
    As many groups of requests are in different stages at the same time; an iteration is one pass of
    each. [vLLM: pipeline-parallel-size; SGLang: pp-size, pp-max-micro-batch-size; TensorRT-LLM:
    pp_size]"""
    experts_tp: int = quantity(
        1, "dies", "Experts split over dies", (1, 128), applies=DECODES, since=4,
        also="MoE TP, moe_tp, tensor-parallel-size without expert parallelism"
    )  # fmt: skip
    """Dies that hold a part of each of their experts: 1/n of the inner width of every one. All
    tokens are gathered on all dies of the instance, and the parts' sums reduced and scattered after
    the experts. 1: experts are whole, and tokens are sent to the dies of theirs. [vLLM: tensor-
    parallel-size without enable-expert-parallel; TensorRT-LLM: moe_tp; arXiv 1909.08053]"""
    rank_choice: Literal["kv_and_requests", "kv_tokens", "requests", "round_robin"] = choice(
        "kv_and_requests", "Decode rank choice", options={
            "kv_and_requests": "Fewest KV tokens and requests",
            "kv_tokens": "Fewest KV tokens",
            "requests": "Fewest requests",
        }, applies=DECODES,
    )  # fmt: skip
    """Which die with a free slot decodes a request: the one with the least of KV tokens and
    requests, each over its mean (what DeepSeek evens); the fewest KV tokens (xDeepServe); the
    fewest requests, then KV tokens (vLLM); or the next in turn (SGLang). [DeepSeek open-infra-index
    day 6; xDeepServe, arXiv 2508.02520]"""
    swap_gb_per_die: float = quantity(
        0.0, "GB/die", "Host memory for swapped KV", (0, 1024), applies=DECODES, since=4,
        also="preemption, swap space, swap_space, cpuMemSize, maxPreemptCount",
    )  # fmt: skip
    """Memory of its node for KV of requests that a full die preempts. Their blocks are copied there
    before the next pass and come back, first of all, when there is room. What has no room there is
    computed again, as everything is with 0. [vLLM V0, preemption-mode swap with swap-space of 4
    GiB; MindIE, maxPreemptCount with cpuMemSize of 5 GB; vLLM V1 computes again]"""
    kv_offload: float = quantity(
        0.0, "", "KV in host memory", (0, 0.95), step=0.05, applies=DECODES, since=4,
        also="KV offload, CPU offload, HiSparse, long context, host memory",
    )  # fmt: skip
    """Share of the KV of requests that decode which lies in the DRAM of their node, and is read
    from there in every pass, layer by layer: all of it while the layers before compute, or what an
    indexer selected and the die does not have. An indexer's keys, windows, states and the KV of a
    layer that drafts stay on the die. [FlexGen, arXiv 2303.06865; SGLang: enable-hisparse; vLLM
    pull request 53781; vLLM-Ascend pull request 13026; ESS, arXiv 2512.10576]"""
    kv_offload_gb_per_die: float = quantity(
        32.0, "GB/die", "Host memory for KV", (0.001, 4096), applies=(DECODES, IN_HOST), since=4,
        also="host_pool_gib, host_to_device_ratio",
    )  # fmt: skip
    """DRAM of its node for a die's part of that KV, besides what the node lends to the memory pool.
    A die holds no more tokens than it has room for. [assumption: 512 GB for a node of 16 dies, as
    of the memory pool; 160 GiB a rank: vLLM pull request 46326]"""
    kv_offload_hits: float = quantity(
        0.6, "", "Selected tokens on the die", (0, 1), step=0.05, applies=(DECODES, IN_HOST),
        since=4, also="hot buffer, device_buffer_size, hit rate",
    )  # fmt: skip
    """With an indexer, share of the tokens that it selects which the die has from passes before;
    at least the share of all KV that lies there. [ShadowKV, arXiv 2410.21465: 60 % of what is
    selected was selected in the step before]"""
    microbatch: Literal["auto", "on", "off"] = choice(
        "auto", "Decode microbatches", applies=DECODE_POOL
    )
    """Two microbatches alternate between an attention and an MoE stream; auto does what is faster
    for the batch at hand. [arXiv 2506.12708v2 4.2.3]"""
    mtp_draft_tokens: int = quantity(
        1, "tokens", "Draft tokens", (0, 7), also="speculative decoding, MTP"
    )
    """Draft tokens that a decode pass verifies; 0 switches drafting off, in prefill too. At most 7,
    the most that a published deployment on Ascend drafts. [arXiv 2506.12708v2 4.2.4]"""
    drafter: Literal["mtp", "eagle3", "ngram"] = choice(
        "mtp", "Drafter", options={"mtp": "MTP module", "eagle3": "EAGLE-3", "ngram": "n-gram"},
        applies=MTP, since=4, also="speculative decoding",
    )  # fmt: skip
    """What proposes the draft tokens: the model's multi-token-prediction module, a pass each; a
    dense layer that is no part of the model (EAGLE-3, data/drafters.toml), a pass each; or the
    context itself, without a pass. [arXiv 2503.01840]"""
    mtp_dataset: Literal["as_stated", "c_eval", "gsm8k", "mmlu"] = choice(
        "as_stated", "Acceptance dataset",
        options={"c_eval": "C-Eval", "gsm8k": "GSM8K", "mmlu": "MMLU"}, applies=(DECODES, MTP),
    )  # fmt: skip
    """The acceptance as stated, or the share of draft tokens that was right on a dataset
    (data/operators.toml). [slide deck 'CloudMatrix Ascend Super-computer']"""
    mtp_acceptance: float = quantity(
        0.7, "", "Draft acceptance", (0, 1),
        applies=(DECODES, MTP, when("deployment.decode.mtp_dataset", "as_stated")),
    )  # fmt: skip
    """Chance that a draft token, of any drafter, is accepted, given that those before it were.
    [arXiv 2506.12708v2 5.2 (assumed there)]"""


class Colocated(Section):
    """Instances that prefill and decode in the same iterations: the contrast to disaggregation."""

    instances: int = quantity(1, "instances", "Colocated instances", (1, 1024), group="Pools")
    npus_per_instance: int = quantity(
        160, "NPUs", "NPUs per colocated instance", (1, 384), step=16, group="Pools", also=EP
    )
    chip: str = pool_chip("Chip of colocated instances")
    """Chip of the nodes on which its instances sit, as `deployment.prefill.chip` says."""
    chunk_tokens_per_npu: int = quantity(
        1024, "tokens/NPU", "Prefill chunk beside decode", (2, 65_536)
    )
    """Prompt tokens an iteration may prefill beside the decode batch; a rank takes its share."""
    prompt_dies: int = quantity(
        1, "dies", "Dies that share a prompt's attention", (1, 768), since=4
    )
    """Ranks with tensor-parallel attention, which split a prompt evenly; 1: attention is
    data-parallel, and the rank that decodes the answer computes the whole prompt."""
    prompt_delay: int = quantity(
        0, "iterations", "Longest wait of prompts for other ranks", (0, 1000), since=4
    )
    """A prompt on one rank makes all ranks wait. Prompts therefore wait until every rank has one,
    for so many iterations at most, and are computed together; decode goes on meanwhile. 0: each
    prompt begins at once. SGLang's prefill delayer (30 iterations by default, sgl-project/sglang
    pull requests 14201 and 16269); TensorRT-LLM's attention_dp_config.timeout_iters (50)."""
    receive_every: int = quantity(
        1, "iterations", "Iterations between looks for prompts", (1, 1000), since=4,
        also="scheduler-recv-interval",
    )  # fmt: skip
    """New prompts are received once in so many iterations without a prompt; after one with a prompt
    always. SGLang's --scheduler-recv-interval (sgl-project/sglang scheduler_recv_skipper.py)."""


class Precision(Section):
    """Number formats."""

    weights: Weights = choice(
        "int8", "Weights", options=WEIGHTS, also="quantisation, precision, int4"
    )
    """Weights and matrix products. With 4-bit weights all but the routed experts is 8-bit (NVFP4:
    projections; MXFP4 with FP8, W4A8: projections and shared experts) or BF16 (MXFP4, W4A16). Chips
    without a peak of FP4 unpack NVFP4 and MXFP4 to BF16. [arXiv 2506.12708v2 4.5; MindIE 2.3, W4A8
    mixed quantisation; OCP Microscaling Formats 1.0]"""
    prefill_weights: Literal["as_decode", Weights] = choice(
        "as_decode", "Weights of prefill", options={"as_decode": "As in decode"} | WEIGHTS,
        applies=DISAGGREGATED, since=4,
    )  # fmt: skip
    """Weights and matrix products of the prefill pool, where its chip computes in another format
    than decode's."""
    attention: Literal["as_weights", "bf16"] = choice("as_weights", "Attention")
    """Attention projections and dense FFN: in the format of the weights, or BF16 beside quantised
    experts. [arXiv 2506.12708v2 4.5]"""
    kv: Literal["bf16", "int8"] = choice("bf16", "KV cache")
    """KV cache. [arXiv 2506.12708v2 4.2.2]"""
    prefill_kv: Literal["as_decode", "bf16", "int8"] = choice(
        "as_decode", "KV cache of prefill", options={"as_decode": "As in decode"},
        applies=DISAGGREGATED, since=4,
    )  # fmt: skip
    """KV cache of the prefill pool, which is handed over and stored in the memory pool as it is;
    dies of decode convert what they receive. [mechanism: docs/SERVING.md]"""


class Communication(Section):
    """How tokens travel to experts and back."""

    fused: bool = choice(True, "Fused dispatch and combine")
    """Fused dispatch and combine (direct remote writes); off: gate, all-to-all-v, expert, all-to-
    all; off on NVIDIA: ranks gather all tokens on all dies and sum what their experts return
    (SGLang without --moe-a2a-backend). [arXiv 2506.12708v2 4.2.1]"""
    early_quantisation: bool = choice(True, "Early quantisation")
    """Dispatch sends INT8 tokens with a scale instead of BF16. [arXiv 2506.12708v2 4.2.1]"""
    buffer_tokens_per_die: int = quantity(
        0, "tokens/die", "Exchange buffers", (0, 65_536), applies=DECODES
    )
    """Tokens of a die for which decode's static exchange buffers have room; more go in further
    rounds of dispatch, experts and combine. 0: room for the largest batch. [arXiv 2506.12708v2
    4.2.1: 96]"""


class Optimisations(Section):
    """What engines and operator libraries do to save time, each with its mechanism."""

    attention_kernel: Literal["flash_attention", "fused_mla", "amla"] = choice(
        "fused_mla", "Attention kernel",
        options={"flash_attention": "FlashAttention", "fused_mla": "Fused MLA", "amla": "AMLA"},
    )  # fmt: skip
    """Decode attention core: built on an existing FlashAttention, the fused MLA operator, or AMLA,
    which rescales by adding integers; they reach different shares of the peak. [arXiv 2506.12708v2
    4.2.2]"""
    fused_deep_mla: bool = choice(False, "FusedDeepMLA")
    """One operator for MLA prolog, attention core and gating: fewer launches, and queries do not
    go through HBM between them."""
    fused_deep_moe: bool = choice(False, "FusedDeepMoE")
    """One operator for dispatch, experts and combine: rows are computed and sent back tile by
    tile while others still arrive."""
    shared_expert_scheduling: bool = choice(True, "Shared expert scheduling")
    """Transmissions to the dies of the shared expert are scheduled among the others; off: all
    dies send to them at once (in-cast), and routed tokens wait behind."""
    weight_prefetch: bool = choice(False, "Weight prefetch")
    """Weights of the next operator are read into the on-chip cache while dispatch and combine
    start and wait, when nothing else reads (decode without microbatches)."""
    multi_stream: bool = choice(False, "Multi-stream")
    """Decode without microbatches: the KV branch runs beside the query branch, and a shared
    expert on the same die beside dispatch."""
    flash_comm: bool = choice(True, "FlashComm")
    """FlashComm: prefill's all-gather and all-to-all carry quantised activations; off: BF16. Under
    vLLM-Ascend (VLLM_ASCEND_ENABLE_FLASHCOMM1) the dies of a mixed rank also split the tokens of
    prompts of models with an indexer."""
    layer_in_parallel: bool = choice(True, "Layer-in parallel")
    """Layer-in parallel conversion: prefill's attention goes from tensor to sequence parallel by an
    all-to-all before the output projection; off: partial sums of all tokens are reduced after it.
    [arXiv 2506.12708v2 4.3.1]"""
    speculation: Literal["pipelined", "fusion_spec", "unfused"] = choice(
        "pipelined", "Speculation", options={"fusion_spec": "FusionSpec"}
    )
    """What speculation costs beside its passes: nothing when graphs are launched ahead and sampling
    stays on the NPU; about 1 ms with FusionSpec; or a launch after each graph. [arXiv 2506.12708v2
    4.2.4]"""
    host_gap_ms: float = quantity(0.0, "ms", "Host gap", (0, 100))
    """Pause of the host between iterations, beyond what the machine's own figures say."""


class Seat(Section):
    """Where one instance sits: an element whose NPUs it takes, and those that follow."""

    role: Literal["prefill", "decode", "colocated"] = choice("prefill", "Pool")
    index: int = quantity(0, "", "Instance", (0, 511))
    """Number of the instance in its pool."""
    element: str = element_name("Element")
    """Element with NPUs, as people name it: 'node 20', 'NPU 20.4'. An instance that needs more
    goes on with its next row, then with the NPUs that follow."""


class Deployment(Section):
    """Which instances serve, and how they compute."""

    mode: Literal["disaggregated", "colocated", "prefill_only", "decode_only"] = choice(
        "disaggregated", "Serving mode"
    )
    """Separate prefill and decode pools; colocated instances; or one pool alone, as benchmarks
    measure it (prefill_only ends at the first token, decode_only starts with KV in place). [arXiv
    2506.12708v2 4.1, 5.1]"""
    model: str = choice("deepseek-r1", "Model", files="models")
    """Model served, a file in data/models."""
    stack: str = choice(
        "plain", "Serving stack", files="stacks", options={
            "plain": "As the machine alone",
            "cann-recipes": "cann-recipes-infer on Ascend, unknown release",
            "chitu": "Chitu on Ascend, unknown release", "mindie": "MindIE on Ascend, 1.0 to 2.3",
            "sglang-npu": "SGLang on Ascend, 0.5.6 to 0.5.10",
            "vllm-ascend-0-11": "vLLM-Ascend 0.11, graphs in pieces",
            "vllm-ascend-0-13": "vLLM-Ascend 0.13 to 0.18, whole decode passes as graphs",
            "sglang-0-4-3": "SGLang on NVIDIA, 0.4.1 to 0.4.3, winter of 2025",
            "sglang-0-4": "SGLang on NVIDIA, 0.4.6, spring of 2025",
            "sglang-0-5-6": "SGLang on NVIDIA, 0.5.6 and 0.5.7, winter of 2026",
            "sglang-0-5": "SGLang on NVIDIA, 0.5.10 to 0.5.14",
            "vllm-0-10": "vLLM on NVIDIA, 0.8 to 0.13, before it scheduled ahead",
            "vllm-0-24": "vLLM on NVIDIA, 0.24",
            "vllm-0-24-flashinfer-int4": "vLLM on Blackwell, 0.24, FlashInfer's INT4 experts",
            "tensorrt-llm-1-3": "TensorRT-LLM, 1.3",
            "tensorrt-llm": "TensorRT-LLM, unknown release, summer of 2025",
            "tensorrt-llm-streaming": "TensorRT-LLM, streaming, unknown release, summer of 2025",
        },  # fmt: skip
    )  # fmt: skip
    """Serving stack whose host and kernels replace the machine's own figures, a name in
    data/stacks.toml, where each says of which release its figures are; plain: none, and answers
    are farther from what engines are measured at. What its scheduler sets where no flag does is in
    data/schedulers.toml; a button takes it."""
    prefill: Prefill = section(
        Prefill, group="Batching", applies=when("deployment.mode", "disaggregated", "prefill_only")
    )
    decode: Decode = section(Decode, group="Batching")
    colocated: Colocated = section(
        Colocated, group="Batching", applies=when("deployment.mode", "colocated")
    )
    precision: Precision = section(Precision, group="Precision")
    communication: Communication = section(Communication, group="Precision")
    optimisations: Optimisations = section(Optimisations, group="Optimisations")
    kv_transfer_plane: Literal["rdma", "ub", "vpc"] = choice(
        "rdma", "KV transfer plane", applies=DISAGGREGATED
    )
    """Plane that carries KV from prefill to decode. [arXiv 2506.12708v2 4.3.3]"""
    placement: Literal["packed", "spread", "racks", "around_off", "by_hand"] = choice(
        "packed", "Instance placement", options={
            "spread": "Spread over nodes",
            "racks": "Rack by rack",
            "around_off": "Around what is off",
        }, since=2,
    )  # fmt: skip
    """Where instances sit: one after the other from the first NPU on; each over as many nodes as
    it can touch; each within one rack where it fits; one after the other over the NPUs that are
    on; or where `deployment.seats` puts them."""
    when_off: Literal["move", "refuse"] = choice(
        "move", "Seats on NPUs that are off", options={"refuse": "Stay, or refuse to run"},
        applies=when("deployment.placement", "packed", "by_hand"), since=2,
    )  # fmt: skip
    """An instance on NPUs that an edit of the supernode switched off moves to free ones, and the
    result says so; or it stays, serves with the dies that are left, and is refused where none
    is."""
    first_npu: int = quantity(0, "", "First NPU of its instances", (0, 1_000_000), since=4)
    """Instances sit on NPUs from this number on, in the order of the machine; those before it are
    left free, behind a front router an equal part of them in each supernode. Of a further model 0
    is the first NPU behind the model before it."""
    seats: tuple[Seat, ...] = rows("Seats", most=1000, applies=BY_HAND, since=2)
    """Where instances sit that are placed by hand; the others are packed around them."""
