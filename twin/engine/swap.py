"""KV that goes to the memory of its node and comes back: of preempted requests, and in every pass.

Preemption by swap is as in vLLM V0 (vllm/core/scheduler.py, vllm/worker/worker.py): copies run
before the pass on its stream, so that an instance waits for the rank that copies longest; requests
come back to their rank in the order in which they left, before others join, and only where a share
of the KV space stays free (`operators.swap.watermark`). Meanwhile a request keeps its slot and its
tokens stay reserved. Copies are a flow on the links between dies and the CPUs of their nodes: their
rate is found when they begin, as that of an exchange is, and what else is on these links yields to
them from the next border on.

KV that lies in host memory (model/in_host.py) is read in every pass, and new KV is written there,
both while it runs. These bytes are a flow of the same kind, which begins with the pass at the rate
that the dies have alone; where others use its links, reads take longer. None waits for writes."""

from __future__ import annotations

import numpy as np

from twin.engine import codes as w
from twin.engine.books import record_traffic
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import kv_bytes
from twin.engine.contention.traffic import begin_kv_copies_s
from twin.engine.in_hbm import release_cell, shared_tokens
from twin.engine.lists import append, fill, pop, total
from twin.kernels.compiled import kernel
from twin.metrics.operators import DECODE_OPERATORS
from twin.model.layer import attended_tokens

PLACE = DECODE_OPERATORS.index("kv_swap")


@kernel
def held_die_bytes(world: World, i: int) -> float:
    """Bytes of request i's KV, as decode holds it now, on each die of its rank."""
    settings = world.settings
    state_bytes = settings.state_bytes  # has one format
    held_bytes = (kv_bytes(world, i) - state_bytes) * settings.held_kv * settings.kv_on_die
    return held_bytes * settings.die_kv + state_bytes * settings.die_state


@kernel
def swap_out(world: World, d: int, i: int) -> bool:
    """Copy request i's KV from decode instance d to host memory; False if there is no room."""
    decode, request, rank = world.decode, world.request, world.request.rank[i]
    die_bytes = held_die_bytes(world, i)
    if decode.swapped_bytes[rank, w.HELD] + die_bytes > world.settings.swap_bytes:
        return False
    release_cell(world, i)
    kv_tokens = float(request.input_tokens[i] + request.emitted[i])
    decode.changed[d] = 1
    decode.reserved_tokens[rank] += kv_tokens
    decode.swapped_tokens[rank] += kv_tokens
    decode.swapped_out[d] += 1
    decode.swapped_bytes[rank, w.HELD] += die_bytes
    decode.swapped_bytes[rank, w.OUT] += die_bytes
    add_copy(world, d, rank, die_bytes, 1)
    append(decode.swapped, rank, request.following, i)
    return True


@kernel
def swap_in(world: World, d: int, rank: int) -> int:
    """Copy the KV of the first swapped request of a rank of decode instance d back from host
    memory, if the rank has room; returns the request or NONE. A rank without requests has room."""
    settings, decode, request = world.settings, world.decode, world.request
    request_row = decode.swapped[rank, w.HEAD]
    if request_row == w.NONE:
        return w.NONE
    kv_tokens = float(request.input_tokens[request_row] + request.emitted[request_row])
    used_tokens = decode.context[rank] + decode.reserved_tokens[rank] - decode.swapped_tokens[rank]
    half_pages_tokens = 0.5 * settings.page_tokens * (decode.requests[rank] + 1)
    used_tokens += half_pages_tokens - shared_tokens(world, rank)
    swap_limit_tokens = settings.swap_share * decode.kv_tokens[d]
    if decode.requests[rank] > 0 and used_tokens + kv_tokens > swap_limit_tokens:
        return w.NONE
    pop(decode.swapped, rank, request.following)
    die_bytes = held_die_bytes(world, request_row)
    subtract_swapped(world, request_row)
    decode.changed[d] = 1
    decode.reserved_tokens[rank] -= kv_tokens
    decode.swapped_bytes[rank, w.BACK] += die_bytes
    add_copy(world, d, rank, die_bytes, 0)
    return int(request_row)


@kernel
def add_copy(world: World, d: int, rank: int, size: float, out: int) -> None:
    """Add a copy of `size` bytes for each die of a rank before the next pass of decode instance d.
    out: 1 to host memory, 0 from it."""
    decode = world.decode
    decode.copy_s[rank] += size * decode.s_per_host_byte[d, out]
    decode.copying[d, 2 * decode.host[rank] + out] += size * world.settings.rank_dies


@kernel
def subtract_swapped(world: World, i: int) -> None:
    """Subtract request i, already removed from its list, from the sums of KV in host memory."""
    decode, request, rank = world.decode, world.request, world.request.rank[i]
    decode.swapped_bytes[rank, w.HELD] -= held_die_bytes(world, i)
    decode.swapped_tokens[rank] -= float(request.input_tokens[i] + request.emitted[i])
    decode.swapped_out[rank // world.settings.decode_ranks] -= 1
    if decode.swapped[rank, w.HEAD] == w.NONE:  # no rounding outlives the last
        decode.swapped_bytes[rank, w.HELD] = decode.swapped_tokens[rank] = 0.0


@kernel
def drop_copy(world: World, i: int) -> None:
    """Drop request i's KV in host memory; the request has been removed from the list."""
    world.decode.swapped_bytes[world.request.rank[i], w.DROPPED] += held_die_bytes(world, i)
    subtract_swapped(world, i)


@kernel
def begin_copies_s(world: World, d: int, now_s: float, operators: np.ndarray) -> float:
    """Begin and record the KV copies before the pass of decode instance d at now_s; returns their
    seconds and adds them to the operators' seconds."""
    settings, decode, longest_s = world.settings, world.decode, 0.0
    if settings.swap_bytes <= 0.0:
        return 0.0
    for rank in range(d * settings.decode_ranks, (d + 1) * settings.decode_ranks):
        longest_s = max(longest_s, decode.copy_s[rank])
        decode.copy_s[rank] = 0.0
    if longest_s <= 0.0:
        return longest_s
    longest_s = begin_kv_copies_s(world, d, decode.copying[d], longest_s)
    operators[PLACE] += longest_s
    decode.copies_end_s[d] = now_s + longest_s
    column, copied_bytes = settings.prefills + d, total(decode.copying[d])
    record_traffic(world, w.SWAP, w.UB, column, now_s, now_s + longest_s, copied_bytes)
    fill(decode.copying[d], 0.0)
    return longest_s


@kernel
def add_written_bytes(world: World, d: int, i: int) -> None:
    """Add the host part of the KV of request i, which joins instance d, to the next write."""
    request, kv_tokens = world.request, world.request.input_tokens[i] + world.request.emitted[i]
    world.decode.written[request.rank[i]] += kv_tokens * world.costs.decode[d].demand.written_bytes


@kernel
def begin_kv_streams(world: World, d: int, now_s: float) -> None:
    """Begin the reads and writes of KV in host memory during a pass of decode instance d, and set
    the price of reads by the present traffic."""
    decode, costs, prices = world.decode, world.costs, world.costs.decode[d]
    kv_demand, layout, attention_reach = prices.demand, prices.layout, prices.sequence.core.reach
    if kv_demand.written_bytes <= 0.0:
        return
    host_bytes, layers, alone_s = decode.streaming[d], prices.moe_layers + prices.dense_layers, 0.0
    fill(host_bytes, 0.0)
    for rank in range(d * world.settings.decode_ranks, (d + 1) * world.settings.decode_ranks):
        requests = prices.concentration * decode.requests[rank]
        context = prices.concentration * decode.context[rank]
        read_tokens = attended_tokens(attention_reach, prices.query_tokens * requests, context)
        read_bytes = read_tokens * kv_demand.host_bytes * layers
        written_bytes = decode.written[rank] + decode.growth[rank] * kv_demand.written_bytes
        decode.written[rank] = 0.0
        written_bytes *= prices.concentration
        alone_s = max(alone_s, read_bytes * kv_demand.host_s, written_bytes * kv_demand.written_s)
        die_factor = layout.rank_dies / prices.concentration
        host_bytes[2 * decode.host[rank]] += die_factor * read_bytes
        host_bytes[2 * decode.host[rank] + 1] += die_factor * written_bytes
    if total(host_bytes) <= 0.0:
        return
    copy_s = begin_kv_copies_s(world, d, host_bytes, alone_s)
    decode.copies_end_s[d] = now_s + copy_s
    for operator in costs.decode_copied:
        costs.decode_now[d, operator] = costs.decode_alone[d, operator] * copy_s / alone_s
