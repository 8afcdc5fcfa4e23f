"""The flat parameter vectors that cost kernels read: one name for every place.

Kernels take a vector of float64 instead of objects because numba compiles that once and calls it
fast. Names are the contract between costs.py, which fills vectors, and the kernels, which read
them. Times are seconds. This module knows no formula.
"""

from __future__ import annotations

import numpy as np

DECODE_OPERATORS = (
    "mla_prolog",
    "attention_core",
    "o_proj",
    "gate",
    "dispatch",
    "experts",
    "combine",
    "dense_ffn",
    "mtp",
    "lm_head",
    "sampling",
    "launch_gaps",
    "prefill_chunk",
)
(
    OP_PROLOG,
    OP_CORE,
    OP_O_PROJ,
    OP_GATE,
    OP_DISPATCH,
    OP_EXPERTS,
    OP_COMBINE,
    OP_DENSE,
    OP_MTP,
    OP_LM_HEAD,
    OP_SAMPLING,
    OP_GAPS,
    OP_CHUNK,
) = range(len(DECODE_OPERATORS))

# What a layer costs in one of two modes: in sequence on all cores, or one of two microbatches
# on its stream's share of them. A block of MODE numbers each.
(
    PROLOG_FIXED,  # launch
    PROLOG_WEIGHT,  # weights from HBM
    PROLOG_FLOP,  # matrix product, per token
    PROLOG_IO,  # its activations, per token
    PROLOG_VECTOR,  # element-wise work, per token
    CORE_FIXED,
    CORE_CONTEXT,  # per context token with all query tokens of a verification pass
    CORE_CONTEXT_ONE,  # the same with one query token
    OUTPUT_FIXED,
    OUTPUT_WEIGHT,
    OUTPUT_FLOP,
    OUTPUT_IO,
    OUTPUT_VECTOR,
    GATE_FIXED,
    GATE_TOKEN,
    DISPATCH_FIXED,
    DISPATCH_MESSAGE,  # per token of the busiest sender
    DISPATCH_SEND,
    DISPATCH_RECEIVE,  # per token an expert die receives
    EXPERT_FIXED,
    EXPERT_AHEAD,  # of the weights' reading, done before dispatch ends
    EXPERT_WEIGHT,  # one expert
    EXPERT_FLOP,  # per token assigned
    EXPERT_IO,
    EXPERT_VECTOR,
    COMBINE_FIXED,
    COMBINE_SEND,  # per token an expert die sends back
    COMBINE_RECEIVE,
    MODE,
) = range(29)

SEQUENCE = 0  # all cores, one operator after the other
SPLIT = MODE  # the first of SPLITS ways to share the cores between the two streams
SPLITS = 9
(
    QUERY_TOKENS,  # tokens of a request in one pass: 1 + draft tokens
    DRAFTS,
    MOE_LAYERS,
    DENSE_LAYERS,
    MICROBATCH,  # 0 off, 1 on, 2 auto
    WAYS,  # how many of the SPLITS blocks are filled
    HIDES,  # 0: attention beside MoE on split cores; 1: computing beside communication
    TOP_K,
    ROUTED_DIES,
    SLOTS,  # routed expert slots of a die
    SHARED_EXPERTS,
    SHARED_DIES,  # 0: shared experts sit on every die
    IN_CAST,  # 1: transmissions to shared experts are not scheduled
    TILES,  # of dispatch, experts and combine in one operator; 0: one after the other
    BESIDE,  # 1: a shared expert on the same die computes beside dispatch
    DENSE_FIXED,
    DENSE_WEIGHT,
    DENSE_FLOP,
    DENSE_IO,
    DENSE_VECTOR,
    MTP_FIXED,
    MTP_WEIGHT,
    MTP_FLOP,
    MTP_VECTOR,
    HEAD_FIXED,
    HEAD_WEIGHT,
    HEAD_FLOP,
    SAMPLE_FIXED,
    SAMPLE_TOKEN,
    GRAPH_LAUNCH,
    HOST_GAP,
    HOST_ANSWER,  # host time for one request's token of an iteration
    ATTENTION_BYTES,  # weight bytes a die reads for attention in one layer
    EXPERT_BYTES,
    DENSE_BYTES,
    HEAD_BYTES,
    CONTEXT_BYTES,  # KV bytes of one context token, one layer
    ATTENTION_FLOPS,  # per token
    CONTEXT_FLOPS,  # per query token and context token
    EXPERT_FLOPS,
    DENSE_FLOPS,
    HEAD_FLOPS,
    MTP_FLOPS,  # of the MTP module's own projection
    BUFFER_TOKENS,  # of a die in one round of the exchange; 0: all at once
    EXPERT_DIES,  # that hold experts alone; 0: every die does attention and experts
    CROWD,  # requests of a die that does attention, per request of a rank
    DECODE_SIZE,
) = range((1 + SPLITS) * MODE, (1 + SPLITS) * MODE + 47)

# A colocated instance's vector: decode's, then what a prompt chunk's attention costs.
CHUNK_PAIR = DECODE_SIZE  # per query-key pair and layer
CHUNK_PAIR_FLOPS = DECODE_SIZE + 1
CHUNK_HIT = DECODE_SIZE + 2  # up-projection of one cached token, all layers
MIXED_SIZE = DECODE_SIZE + 3

PREFILL_OPERATORS = (
    "attention_input",
    "all_gather",
    "attention_core",
    "all_to_all",
    "o_proj",
    "gate",
    "dispatch",
    "experts",
    "combine",
    "dense_ffn",
    "lm_head",
    "launch_gaps",
)
(
    PO_INPUT,
    PO_GATHER,
    PO_CORE,
    PO_EXCHANGE,
    PO_OUTPUT,
    PO_GATE,
    PO_DISPATCH,
    PO_EXPERTS,
    PO_COMBINE,
    PO_DENSE,
    PO_HEAD,
    PO_GAPS,
) = range(len(PREFILL_OPERATORS))

(
    F_MOE_LAYERS,
    F_DENSE_LAYERS,
    F_MICROBATCH,
    F_CONTENTION,  # share of the copy work on vector cores that slows the other microbatch
    F_COMPUTE_SHARE,  # of the cores, while two microbatches overlap
    F_DIES,
    F_TOP_K,
    F_ROUTED_DIES,
    F_SLOTS,
    F_SHARED_EXPERTS,
    F_SHARED_DIES,
    F_INPUT_FIXED,
    F_INPUT_WEIGHT,
    F_INPUT_TOKEN,  # per token of the most loaded die, all cores
    F_GATHER_FIXED,
    F_GATHER_TOKEN,  # per token of the batch
    F_HIT_TOKEN,  # up-projection of one cached token of the batch
    F_CORE_FIXED,
    F_CORE_PAIR,  # per query-key pair on the die
    F_EXCHANGE_FIXED,
    F_EXCHANGE_TOKEN,
    F_OUTPUT_FIXED,
    F_OUTPUT_WEIGHT,
    F_OUTPUT_TOKEN,
    F_GATE_FIXED,
    F_GATE_TOKEN,
    F_DISPATCH_FIXED,
    F_DISPATCH_CORE,  # reorder and quantise on vector cores, per token of a die
    F_DISPATCH_WIRE,  # per token sent
    F_DISPATCH_RECEIVE,  # per token received by an expert die
    F_DISPATCH_ORDER,  # reorder on vector cores, per token received
    F_EXPERT_FIXED,
    F_EXPERT_WEIGHT,
    F_EXPERT_TOKEN,
    F_EXPERT_VECTOR,
    F_COMBINE_FIXED,
    F_COMBINE_CORE,
    F_COMBINE_WIRE,
    F_COMBINE_RECEIVE,
    F_DENSE_FIXED,
    F_DENSE_WEIGHT,
    F_DENSE_TOKEN,
    F_DENSE_VECTOR,
    F_HEAD,
    F_GAP,
    F_WEIGHT_BYTES,  # weight bytes a die reads in one batch, without experts
    F_EXPERT_BYTES,  # of one expert, all MoE layers
    F_TOKEN_BYTES,
    F_TOKEN_FLOPS,  # per token of the die, without attention pairs
    F_PAIR_FLOPS,
    F_HIT_GATHER,  # latent of one cached token of the batch
    PREFILL_SIZE,
) = range(52)


def operator_sink(names: tuple[str, ...]) -> np.ndarray:
    """Zeros of f8[len(names)] for a kernel to add seconds per operator to."""
    return np.zeros(len(names), np.float64)
