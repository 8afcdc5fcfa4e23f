"""The world: all state of a run as arrays, one row per request, rank, instance, die or window.

Each column has exactly one phase that writes it (named in the comments) once the world is built.
Stamps are seconds, NaN until the event happens. The world knows nothing about how it is filled or
how it moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import config, njit, types
from numba.experimental import structref

from twin.serving.memory_pool import BlockPool

NONE = -1  # no request, no instance, end of a list

# Where a request is; written by the phase that moves it on.
WAITING, PREFILLING, TRANSFERRING, DECODING, FINISHED, REJECTED = range(6)
STATUS_NAMES = ("queued", "running", "running", "running", "finished", "rejected")

# Why a request was turned away.
REASONS = (
    "",
    "prompt longer than the KV space of a decode die",
    "prompt longer than the KV space of a prefill instance",
    "answer outgrew the KV space of its decode die",
)
TOO_LONG_FOR_DECODE, TOO_LONG_FOR_PREFILL, OUTGREW_DECODE = 1, 2, 3

# Counters of events so far; one writer each.
ARRIVED, FRONTED, ROUTED, PREFILL_BEGUN, PREFILLED, TRANSFERRED, JOINED = range(7)
FINISHED_DECODE, PREEMPTED, REJECTED_ROUTER, REJECTED_DECODE, FINISHED_PREFILL = range(7, 12)
EXHAUSTED = 12
COUNTERS = 13

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
    UB_BYTES,
    RDMA_BYTES,
    VPC_BYTES,
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
) = range(25)


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
    instance_slots: int
    decode_kv_tokens: float
    page_tokens: int
    draft_tokens: int
    acceptance: float
    kv_bytes_per_token: float
    fetch_latency_s: float
    transfer_latency_s: float
    kv_plane: int  # record field of the plane that carries KV hand-off
    pool_plane: int  # record field of the plane that the memory pool is read over
    # Dispatch and combine bytes of a token, by the plane that carries them.
    prefill_ub_bytes_per_token: float
    prefill_rdma_bytes_per_token: float
    decode_ub_bytes_per_token: float
    decode_rdma_bytes_per_token: float
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
    status: np.ndarray  # i1, the phase that holds it
    reason: np.ndarray  # i1, router or decode
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
    queued_tokens: np.ndarray  # i8, tokens waiting or in prefill: what a router sees
    hit_view: np.ndarray  # i8, scratch of prefix_affinity
    fetch_bytes_per_s: np.ndarray  # f8, memory pool reads into the instance
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
    capacity: np.ndarray  # f8[ports], bytes/s
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
    calendar: np.ndarray  # i4[instances, ring], first request due at an iteration
    requests: np.ndarray  # i8[ranks]
    context: np.ndarray  # f8[ranks], tokens of context of running requests
    growth: np.ndarray  # f8[ranks], tokens an iteration adds
    slots: np.ndarray  # i8[ranks], given
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
    """Parameter vectors of the cost kernels and the expert imbalance they need."""

    prefill: np.ndarray
    decode: np.ndarray
    mixed: np.ndarray
    prefill_hot_tokens: np.ndarray
    prefill_hot_factor: np.ndarray
    decode_hot_tokens: np.ndarray
    decode_hot_factor: np.ndarray
    prefill_operators: np.ndarray  # f8, scratch of one batch
    decode_operators: np.ndarray  # f8, scratch of one iteration


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
    prefill_bytes: np.ndarray  # f8[windows + 1, instances], UB bytes of experts and attention
    decode_bytes: np.ndarray  # f8[windows + 1, instances]


class World(NamedTuple):
    """Everything a step reads and writes."""

    settings: Settings
    request: RequestColumns
    prefill: PrefillState
    transfer: TransferState
    decode: DecodeState
    pool: BlockPool
    costs: Costs
    loop: Loop
    record: Record


# Compiled code gets the world by reference: passed by value, its hundred arrays would be copied at
# every call and make compilation take minutes. Each class above has a reference type of its own
# with the same fields over the same arrays.


class _Reference(structref.StructRefProxy):
    """Python's handle on a reference; only compiled code looks inside."""


@structref.register
class SettingsType(types.StructRef):
    """Type of a `Settings` by reference."""


class SettingsReference(_Reference):
    """A `Settings` by reference."""


@structref.register
class RequestColumnsType(types.StructRef):
    """Type of a `RequestColumns` by reference."""


class RequestColumnsReference(_Reference):
    """A `RequestColumns` by reference."""


@structref.register
class PrefillStateType(types.StructRef):
    """Type of a `PrefillState` by reference."""


class PrefillStateReference(_Reference):
    """A `PrefillState` by reference."""


@structref.register
class TransferStateType(types.StructRef):
    """Type of a `TransferState` by reference."""


class TransferStateReference(_Reference):
    """A `TransferState` by reference."""


@structref.register
class DecodeStateType(types.StructRef):
    """Type of a `DecodeState` by reference."""


class DecodeStateReference(_Reference):
    """A `DecodeState` by reference."""


@structref.register
class CostsType(types.StructRef):
    """Type of a `Costs` by reference."""


class CostsReference(_Reference):
    """A `Costs` by reference."""


@structref.register
class LoopType(types.StructRef):
    """Type of a `Loop` by reference."""


class LoopReference(_Reference):
    """A `Loop` by reference."""


@structref.register
class RecordType(types.StructRef):
    """Type of a `Record` by reference."""


class RecordReference(_Reference):
    """A `Record` by reference."""


@structref.register
class WorldType(types.StructRef):
    """Type of a `World` by reference."""


class WorldReference(_Reference):
    """A `World` by reference."""


structref.define_constructor(SettingsReference, SettingsType, list(Settings._fields))
structref.define_boxing(SettingsType, SettingsReference)
structref.define_constructor(
    RequestColumnsReference, RequestColumnsType, list(RequestColumns._fields)
)
structref.define_boxing(RequestColumnsType, RequestColumnsReference)
structref.define_constructor(PrefillStateReference, PrefillStateType, list(PrefillState._fields))
structref.define_boxing(PrefillStateType, PrefillStateReference)
structref.define_constructor(TransferStateReference, TransferStateType, list(TransferState._fields))
structref.define_boxing(TransferStateType, TransferStateReference)
structref.define_constructor(DecodeStateReference, DecodeStateType, list(DecodeState._fields))
structref.define_boxing(DecodeStateType, DecodeStateReference)
structref.define_constructor(CostsReference, CostsType, list(Costs._fields))
structref.define_boxing(CostsType, CostsReference)
structref.define_constructor(LoopReference, LoopType, list(Loop._fields))
structref.define_boxing(LoopType, LoopReference)
structref.define_constructor(RecordReference, RecordType, list(Record._fields))
structref.define_boxing(RecordType, RecordReference)
structref.define_constructor(WorldReference, WorldType, list(World._fields))
structref.define_boxing(WorldType, WorldReference)


@njit(cache=True)
def _refer(world: Any) -> Any:
    return WorldReference(
        SettingsReference(*world.settings),
        RequestColumnsReference(*world.request),
        PrefillStateReference(*world.prefill),
        TransferStateReference(*world.transfer),
        DecodeStateReference(*world.decode),
        world.pool,
        CostsReference(*world.costs),
        LoopReference(*world.loop),
        RecordReference(*world.record),
    )


def by_reference(world: World) -> Any:
    """The same arrays as a reference, for compiled code; plain Python takes the world itself."""
    return world if getattr(config, "DISABLE_JIT", False) else _refer(world)
