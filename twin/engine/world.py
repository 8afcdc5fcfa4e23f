"""The world: all state of a run as arrays, one row per request, rank, instance, die or window.

Each column has exactly one phase that writes it (named in the comments) once the world is built.
Stamps are seconds, NaN until the event happens. The world knows nothing about how it is filled or
how it moves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twin.policies.memory_pool import BlockPool

NONE = -1  # no request, no instance, end of a list

# Where a request is; written by the phase that moves it on.
WAITING, PREFILLING, TRANSFERRING, DECODING, FINISHED, REJECTED, LOST = range(7)
STATUS_NAMES = ("queued", "running", "running", "running", "finished", "rejected", "lost")

# Why a request was turned away.
REASONS = (
    "",
    "prompt longer than the KV space of a decode die",
    "prompt longer than the KV space of a prefill instance",
    "answer outgrew the KV space of its decode die",
    "thrown out by faults more often than it may be retried",
)
TOO_LONG_FOR_DECODE, TOO_LONG_FOR_PREFILL, OUTGREW_DECODE, OUT_OF_RETRIES = 1, 2, 3, 4

# Counters of events so far; one writer each.
ARRIVED, FRONTED, ROUTED, PREFILL_BEGUN, PREFILLED, TRANSFERRED, JOINED = range(7)
FINISHED_DECODE, PREEMPTED, REJECTED_ROUTER, REJECTED_DECODE, FINISHED_PREFILL = range(7, 12)
EXHAUSTED = 12
# Requests that a fault sent back to the router, by where they were, and those given up.
BACK_FROM_QUEUE, BACK_FROM_PREFILL, BACK_FROM_TRANSFER, BACK_FROM_DECODE, GIVEN_UP = range(13, 18)
COUNTERS = 18

# Planes, and classes of traffic on them.
UB, RDMA, VPC = range(3)
PLANES = ("ub", "rdma", "vpc")
EXPERTS, ATTENTION, KV_HAND_OFF, POOL_READ, POOL_WRITE, WEIGHTS, SSD_READ, SSD_WRITE = range(8)
TRAFFIC = (
    "experts", "attention", "kv_hand_off", "pool_read", "pool_write", "weights",
    "ssd_read", "ssd_write",
)  # fmt: skip

# Fields of an instance's record: sampled sums, then what iterations and batches book.
(
    AT_QUEUE, AT_RUNNING, AT_HOT, AT_CROWDED, AT_SAMPLES, AT_BUSY_S, AT_ITERATION_S,
    AT_ITERATIONS, AT_FIELDS,
) = range(9)  # fmt: skip

# Fields of the record, one column each.
(
    ITERATIONS,
    ITERATION_S,
    DECODE_TOKENS,
    DECODE_BUSY_S,
    KV_USED_S,
    PREFILL_BATCHES,
    PREFILL_BUSY_S,
    PREFILL_TOKENS,
    PROMPT_TOKENS,
    HIT_TOKENS,
    HBM_BYTES,
    FLOPS,
    IN_FRONT_END,
    IN_ROUTER,
    IN_PREFILL_QUEUE,
    IN_PREFILL,
    IN_TRANSFER,
    IN_DECODE,
    SAMPLES,
    POOL_USED,
    PREEMPTIONS,
    FIRST_OPERATOR,
) = range(22)


class Settings(NamedTuple):
    """Scalars of a run; ints and floats only, so that one compiled engine serves all scenarios."""

    horizon_s: float
    warmup_s: float
    step_s: float
    closed_loop: int
    think_s: float
    has_prefill: int
    has_decode: int
    colocated: int
    api_servers: int
    service_s: float
    router_policy: int
    rank_choice: int
    pool_enabled: int
    pool_local: int
    block_tokens: int
    prefill_ranks: int
    prefill_budget: int
    chunk_tokens: int
    data_parallel_attention: int
    prompt_kv_tokens: float  # longest prompt a prefill instance can hold
    batch_kv_tokens: float  # KV tokens of one prefill batch
    decode_ranks: int
    page_tokens: int
    draft_tokens: int
    acceptance: float
    kv_bytes_per_token: float
    fetch_latency_s: float
    transfer_latency_s: float
    kv_plane: int  # plane that carries KV hand-off
    pool_plane: int  # plane that the memory pool is read and written over
    kv_among_experts: int  # KV hand-off uses the ports that dispatch and combine use
    sample_every: int  # steps between two looks at the instances
    retries: int  # how often a request that a fault threw out is tried again
    block_bytes: float
    ssd_write_bytes_per_s: float  # pace at which an instance's new blocks go to the SSD tier
    # Dispatch and combine bytes of a token, by the plane that carries them.
    prefill_ub_bytes_per_token: float
    prefill_rdma_bytes_per_token: float
    decode_ub_bytes_per_token: float
    decode_rdma_bytes_per_token: float
    attention_bytes_per_token: float  # all-gather and all-to-all of prefill's attention
    attention_plane: int
    key_route_a: np.uint64
    key_route_b: np.uint64
    key_accept: np.uint64
    key_round: np.uint64
    key_think: np.uint64


class RequestColumns(NamedTuple):
    """One row per request, in order of arrival."""

    arrival_s: np.ndarray  # f8, arrivals (closed loop) or given
    input_tokens: np.ndarray  # i4, given
    output_tokens: np.ndarray  # i4, given
    session: np.ndarray  # i4, given
    segment_offset: np.ndarray  # i8[n + 1], given
    segment_first: np.ndarray  # i8[m], given
    segment_blocks: np.ndarray  # i4[m], given
    front_end_s: np.ndarray  # f8, front end
    routed_s: np.ndarray  # f8, router
    prefill_start_s: np.ndarray  # f8, prefill
    prefill_end_s: np.ndarray  # f8, prefill
    transfer_end_s: np.ndarray  # f8, KV transfer
    finish_s: np.ndarray  # f8, decode (prefill in prefill_only)
    ready_s: np.ndarray  # f8, hand-off: when the next phase may take it
    hit_tokens: np.ndarray  # i4, prefill: prompt tokens found in the memory pool, first pass
    progress: np.ndarray  # i4, prefill: tokens of this pass that are cached or computed
    emitted: np.ndarray  # i4, decode: output tokens out so far
    prefill_instance: np.ndarray  # i2, router
    rank: np.ndarray  # i4, router: decode rank, over all instances
    slot: np.ndarray  # i4, decode: row of the rank's slot table
    joined: np.ndarray  # i4, decode: iteration at which it joined
    due: np.ndarray  # i4, decode: iteration at which it finishes
    preemptions: np.ndarray  # i2, decode
    retries: np.ndarray  # i2, faults
    status: np.ndarray  # i1, the phase that holds it
    reason: np.ndarray  # i1, router, decode or faults
    following: np.ndarray  # i4, link of the list that holds it


class PrefillState(NamedTuple):
    """One row per prefill (or colocated) instance."""

    queue_head: np.ndarray  # i4
    queue_tail: np.ndarray  # i4
    batch_head: np.ndarray  # i4, requests whose last piece is in the running batch
    batch_tail: np.ndarray  # i4
    running: np.ndarray  # i1
    ends_s: np.ndarray  # f8, end of the running batch
    free_s: np.ndarray  # f8, end of the last batch
    queued_tokens: np.ndarray  # i8, tokens waiting or in prefill
    ending_tokens: np.ndarray  # i8, of those, what leaves with the running batch
    queue_view: np.ndarray  # i8, scratch: what a router sees of queued_tokens
    hit_view: np.ndarray  # i8, scratch of prefix_affinity
    open: np.ndarray  # i1, faults: the router may choose it
    up: np.ndarray  # i1, faults: its dies serve
    reading: np.ndarray  # i1, the next batch is formed and reads its cached KV
    begin_s: np.ndarray  # f8, when the batch was formed
    read_end_s: np.ndarray  # f8, when it has its cached KV, at the rate of now
    batch_tokens: np.ndarray  # f8, what it computes
    batch_hits: np.ndarray  # f8, cached tokens
    batch_pairs: np.ndarray  # f8, pairs of tokens in attention
    most_tokens: np.ndarray  # f8, tokens of the die that has most of them
    most_pairs: np.ndarray  # f8, pairs of the die that has most of them
    pool_open: np.ndarray  # i1, faults: some of the pool's memory can be reached
    ssd_bytes_per_s: np.ndarray  # f8, reads from the SSD tier into the instance, faults
    cold_tokens: np.ndarray  # i8[1], scratch: cached tokens that only the SSD tier holds
    sending: np.ndarray  # i8, transfers under way, KV transfer
    die_tokens: np.ndarray  # f8[ranks], scratch of data-parallel attention
    die_pairs: np.ndarray  # f8[ranks], scratch of data-parallel attention
    busy_s: np.ndarray  # f8
    fetched_bytes: np.ndarray  # f8
    sent_bytes: np.ndarray  # f8[instances, ranks], KV handed over by each die


class TransferState(NamedTuple):
    """KV transfers in flight, and the ports they share."""

    request: np.ndarray  # i4[capacity]
    port_out: np.ndarray  # i4[capacity]
    port_in: np.ndarray  # i4[capacity]
    left_bytes: np.ndarray  # f8[capacity]
    rate: np.ndarray  # f8[capacity]
    active: np.ndarray  # i8[1]
    now_s: np.ndarray  # f8[1]
    fresh_head: np.ndarray  # i4[1], prefilled, not yet under way
    fresh_tail: np.ndarray  # i4[1]
    flows_out: np.ndarray  # i4[ports]
    flows_in: np.ndarray  # i4[ports]
    capacity: np.ndarray  # f8[ports], bytes/s, traffic: what is left beside expert traffic
    granted: np.ndarray  # f8[ports], bytes/s, faults: with nobody else on the plane
    port_of_prefill: np.ndarray  # i4[instances, ranks]
    port_of_decode: np.ndarray  # i4[ranks of all instances]


class DecodeState(NamedTuple):
    """One row per decode (or colocated) instance, and one per decode rank."""

    running: np.ndarray  # i1
    ends_s: np.ndarray  # f8, end of the running iteration
    iteration: np.ndarray  # i8, iterations begun
    wait_head: np.ndarray  # i4, KV in place, not yet in the batch
    wait_tail: np.ndarray  # i4
    in_batch: np.ndarray  # i8, requests in the running batch
    taken: np.ndarray  # i8, slots running or reserved in the instance
    room: np.ndarray  # i8, faults: slots of the instance's ranks in service
    kv_tokens: np.ndarray  # f8, faults: KV tokens that one rank of the instance holds
    open: np.ndarray  # i1, faults: the router may choose it
    up: np.ndarray  # i1, faults: its ranks serve
    calendar: np.ndarray  # i4[instances, ring], first request due at an iteration
    requests: np.ndarray  # i8[ranks]
    context: np.ndarray  # f8[ranks], tokens of context of running requests
    growth: np.ndarray  # f8[ranks], tokens an iteration adds
    slots: np.ndarray  # i8[ranks], faults: 0 while the rank is out of service
    taken_slots: np.ndarray  # i8[ranks], running + reserved
    reserved_tokens: np.ndarray  # f8[ranks], of requests on their way
    taken_tokens: np.ndarray  # f8[ranks], what the router sees: running as of the border + own
    slot_table: np.ndarray  # i4[ranks, slots]
    busy_s: np.ndarray  # f8[instances]
    request_s: np.ndarray  # f8[ranks], integral of requests over busy time
    context_s: np.ndarray  # f8[ranks], integral of context over busy time
    received_bytes: np.ndarray  # f8[ranks]
    returned_head: np.ndarray  # i4[1], preempted, back to the router
    returned_tail: np.ndarray  # i4[1]


class Costs(NamedTuple):
    """What the cost kernels read, one row per instance; `now` is `alone` with crowded links."""

    prefill: np.ndarray  # f8[instances, PREFILL_SIZE], traffic
    decode: np.ndarray  # f8[instances, DECODE_SIZE], traffic
    mixed: np.ndarray  # f8[instances, MIXED_SIZE], traffic
    prefill_alone: np.ndarray  # faults
    decode_alone: np.ndarray  # faults
    mixed_alone: np.ndarray  # faults
    prefill_carried: np.ndarray  # i8, places of the wire's coefficients
    decode_carried: np.ndarray  # i8
    prefill_hot_tokens: np.ndarray  # f8[G]
    prefill_hot_factor: np.ndarray  # f8[instances, G], balance
    decode_hot_tokens: np.ndarray  # f8[G]
    decode_hot_factor: np.ndarray  # f8[instances, G], balance
    prefill_operators: np.ndarray  # f8, scratch of one batch
    decode_operators: np.ndarray  # f8, scratch of one iteration


class Traffic(NamedTuple):
    """Flows of instances that may meet on a link, and what they get of it.

    A flow is a class of an instance's traffic (engine/flows.py numbers them). Links are those on
    which flows can meet. `column` is an instance over both roles.
    """

    start: np.ndarray  # i8[flows + 1], rows of `links` and `parts`, faults
    links: np.ndarray  # i8, faults
    parts: np.ndarray  # f8, share of a link that the flow takes with nobody else there, faults
    link_start: np.ndarray  # i8[links + 1], rows of `entries` and `owners`, faults
    entries: np.ndarray  # i8, places in `parts`, link by link, faults
    owners: np.ndarray  # i8, the flows they belong to, faults
    alone: np.ndarray  # f8[flows], bytes/s with nobody else there, faults
    active: np.ndarray  # i1[flows]
    most: np.ndarray  # f8[flows], share of `alone` that it would take, 0 when it is not there
    load: np.ndarray  # f8[links], sum of parts times most
    level: np.ndarray  # f8[flows], share of `alone` that it gets
    scratch: np.ndarray  # f8[links]
    held: np.ndarray  # i8[1], 1 while a flow gets less than it would take
    duty: np.ndarray  # f8[columns], share of time an instance's exchange is on the wire
    crowding: np.ndarray  # f8[columns], how much longer it takes there; 1 alone
    moves: np.ndarray  # f8[columns], bytes/s of expert weights moving into it, balance


class Streams(NamedTuple):
    """Bytes on their way to or from the memory pool, at a rate that others' coming and going moves.

    Three rows of prefill (or colocated) instances: reads, writes, and what goes on to the SSD tier.
    """

    flow: np.ndarray  # i8[3 * instances], its number among the flows
    left_bytes: np.ndarray  # f8, still to go at `since_s`
    rate: np.ndarray  # f8, bytes/s since then
    since_s: np.ndarray  # f8


class Loop(NamedTuple):
    """A closed loop's clients: when each comes back, as a binary heap."""

    due_s: np.ndarray  # f8[clients]
    size: np.ndarray  # i8[1]


class Record(NamedTuple):
    """What is summarised while running."""

    windows: np.ndarray  # f8[windows + 1, fields], last row: steady state
    counters: np.ndarray  # i8[COUNTERS]
    fields: np.ndarray  # i8[fields], scratch: which fields an event books
    amounts: np.ndarray  # f8[fields], scratch: how much
    gaps: np.ndarray  # f8[bins], steady-state request-iterations by iteration time
    traffic: np.ndarray  # f8[windows + 1, (class, plane, column)], bytes
    instances: np.ndarray  # f8[windows + 1, (column, field)]


class World(NamedTuple):
    """Everything a step reads and writes."""

    settings: Settings
    request: RequestColumns
    prefill: PrefillState
    transfer: TransferState
    decode: DecodeState
    pool: BlockPool
    costs: Costs
    traffic: Traffic
    streams: Streams
    loop: Loop
    record: Record
