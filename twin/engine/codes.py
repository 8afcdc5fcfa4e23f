"""Codes: integers that stand for statuses, reasons, counters, planes, fields of the record."""

NONE = -1  # no request, no instance, end of a list
HEAD, TAIL = 0, 1  # ends of a list (engine/lists.py)

# Where a request is; written by the phase that moves it on.
WAITING, PREFILLING, TRANSFERRING, DECODING, FINISHED, REJECTED, LOST, CANCELLED = range(8)
STATUS_NAMES = (
    "queued", "running", "running", "running", "finished", "rejected", "lost", "cancelled",
)  # fmt: skip

# Why a request was turned away.
REASONS = (
    "",
    "prompt longer than the KV space of a decode die",
    "prompt longer than the KV space of a prefill instance",
    "answer outgrew the KV space of its decode die",
    "thrown out by faults more often than it may be retried",
    # Only where clients leave or are refused:
    "no first token within the client's time-out",
    "no whole answer within the client's time-out",
    "refused: above the rate limit",
    "refused: above the concurrency limit",
    "refused: predicted time to first token too long",
)
TOO_LONG_FOR_DECODE, TOO_LONG_FOR_PREFILL, OUTGREW_DECODE, OUT_OF_RETRIES = 1, 2, 3, 4
TIMED_OUT, ANSWER_TIMED_OUT, ABOVE_RATE, ABOVE_CONCURRENCY, TOO_LATE = range(5, 10)

# Who goes first in a queue.
FIFO, PRIORITY, FAIR = range(3)
ORDERS = {"fifo": FIFO, "priority": PRIORITY, "fair": FAIR}

# Counters of events so far; one writer each.
ARRIVED, FRONTED, ROUTED, PREFILL_BEGUN, PREFILLED, TRANSFERRED, JOINED = range(7)
FINISHED_DECODE, PREEMPTED, REJECTED_ROUTER, REJECTED_DECODE, FINISHED_PREFILL = range(7, 12)
EXHAUSTED = 12
# Requests that a fault sent back to the router, by where they were, and those given up.
BACK_FROM_QUEUE, BACK_FROM_PREFILL, BACK_FROM_TRANSFER, BACK_FROM_DECODE, GIVEN_UP = range(13, 18)
ROUTER_SEEN = 18  # requests that the router has looked at
# Requests whose clients left; of these, still in the front end; tokens computed for them in vain;
# turns that a closed loop's clients have taken; requests that were tried again.
CANCELLED_BY_CLIENT, LEFT_EARLY, WASTED_TOKENS, TURNS_TAKEN, ASKED_AGAIN = range(19, 24)
COUNTERS = 24

UB, RDMA, VPC = range(3)
PLANES = ("ub", "rdma", "vpc")

# Classes of traffic. Those of FLOWS share links (contention/flows.py), in this order: a class of
# PER_INSTANCE has a flow for every instance, the others for every one that computes prompts.
TRAFFIC = (
    "experts", "attention", "kv_hand_off", "pool_read", "pool_write", "weights",
    "ssd_read", "ssd_write", "offload", "swap",
)  # fmt: skip
(
    EXPERTS, ATTENTION, KV_HAND_OFF, POOL_READ, POOL_WRITE, WEIGHTS, SSD_READ, SSD_WRITE, OFFLOAD,
    SWAP,
) = range(10)  # fmt: skip
FLOWS = (EXPERTS, POOL_READ, POOL_WRITE, KV_HAND_OFF, SWAP, WEIGHTS, SSD_WRITE, SSD_READ)
PER_INSTANCE = (EXPERTS, SWAP, WEIGHTS)
# Classes whose bytes are streams (contention/streams.py): rows of instances in this order.
STREAMS = (POOL_READ, POOL_WRITE, SSD_WRITE, SSD_READ)
READS, WRITES, ARCHIVES, RECALLS = range(4)

# Bytes of swapped KV (engine/swap.py): in host memory now; copied there; copied back; dropped.
HELD, OUT, BACK, DROPPED = range(4)

# Fields of an instance's record: sampled sums, then what iterations and batches add.
(
    AT_QUEUE, AT_RUNNING, AT_HOT, AT_CROWDED, AT_SAMPLES, AT_BUSY_S, AT_ITERATION_S,
    AT_ITERATIONS, AT_FIELDS,
) = range(9)  # fmt: skip

# Fields of the record, one column each, with the names of their sums; the operators follow.
FIELDS = (
    "iterations", "iteration_s", "decode_tokens", "decode_busy_s", "kv_used_s", "prefill_batches",
    "prefill_busy_s", "prefill_tokens", "prompt_tokens", "hit_tokens", "hbm_hit_tokens",
    "hbm_amount", "cube_amount", "prefill_cube_amount", "in_front_end", "in_router",
    "in_prefill_queue", "in_prefill", "in_transfer", "in_decode", "samples", "pool_used",
    "preemptions",
)  # fmt: skip
ITERATIONS, ITERATION_S, DECODE_TOKENS, DECODE_BUSY_S, KV_USED_S = range(5)
PREFILL_BATCHES, PREFILL_BUSY_S, PREFILL_TOKENS, PROMPT_TOKENS = range(5, 9)
HIT_TOKENS, HBM_HIT_TOKENS, HBM_BYTES, FLOPS, PREFILL_FLOPS = range(9, 14)
IN_FRONT_END, IN_ROUTER, IN_PREFILL_QUEUE, IN_PREFILL, IN_TRANSFER, IN_DECODE = range(14, 20)
SAMPLES, POOL_USED, PREEMPTIONS, FIRST_OPERATOR = range(20, 24)
