"""Phase: KV moves from prefill dies to decode dies; concurrent transfers share their ports.

Each die of a decode rank receives its own part over its own port: the KV of its heads, of its
tokens (context parallelism) and of its layers (pipeline stages). Latents and KV heads that several
dies have go to each of them (vLLM-Ascend, mooncake_connector.py: `tp_num_need_pulls`, 1 for MLA;
SGLang, disaggregation/common/conn.py: `_resolve_rank_mapping`). A part comes from one prefill die,
by the mapping of arXiv 2506.12708v2 section 4.3.3: groups of as many prefill dies as a rank has,
from each of which consecutive decode ranks draw. A request goes on when its last part is there."""

import numpy as np

from twin.engine import codes as w
from twin.engine.books import book_traffic
from twin.engine.columns import Transfers, World
from twin.engine.lists import append, pop
from twin.kernels.compiled import kernel

OUT, IN = range(2)  # ways through a port


@kernel
def sending_die(rank: int, ranks: int, die: int, dies: int, senders: int, of: int) -> int:
    """The prefill die (0-based, of so many in its instance) that sends to a die of a decode rank of
    so many; senders: dies that send to one rank. With 32 prefill dies and 320 decode ranks of one
    die each prefill die feeds 10 of them."""
    return rank * (of // senders) // ranks * senders + die * senders // dies


@kernel
def kv_transfer(world: World, t1: float) -> None:
    """Advance every KV transfer to t1; new ones start at their exact times."""
    fresh_count = collect(world)
    state = world.transfer
    fresh, ready_s = state.fresh, world.request.ready_s
    set_rates(state)  # what the ports have may have changed at the border
    begun_count = 0
    while True:
        next_start_s = ready_s[fresh[begun_count]] if begun_count < fresh_count else np.inf
        next_end_s = earliest_end(state)
        event_s = min(next_start_s, next_end_s)
        if event_s > t1:
            move_to(state, t1)
            break
        move_to(state, event_s)
        if next_end_s <= event_s:
            end_transfers(world, event_s)
        while begun_count < fresh_count and ready_s[fresh[begun_count]] <= event_s:
            begin_transfer(world, fresh[begun_count], w.NONE)
            begun_count += 1
        set_rates(state)
    for k in range(begun_count, fresh_count):  # their latency reaches past this step
        append(state.unsent, 0, world.request.following, fresh[k])


@kernel
def collect(world: World) -> int:
    """Put requests whose transfer is due into `fresh` in order of time; returns their number. Equal
    times keep their order; the input consists of sorted runs."""
    state = world.transfer
    fresh, following, ready_s = state.fresh, world.request.following, world.request.ready_s
    count = 0
    i = pop(state.unsent, 0, following)
    while i != w.NONE:
        k = count
        while k > 0 and ready_s[fresh[k - 1]] > ready_s[i]:
            fresh[k] = fresh[k - 1]
            k -= 1
        fresh[k] = i
        count += 1
        i = pop(state.unsent, 0, following)
    return count


@kernel
def earliest_end(state: Transfers) -> float:
    """Time of the next end of a transfer at the present rates (s); infinite without any."""
    soonest_s = np.inf
    left_bytes, rate = state.left_bytes, state.rate
    for k in range(state.active[0]):
        if rate[k] > 0.0:  # a transfer over a dead port waits
            soonest_s = min(soonest_s, left_bytes[k] / rate[k])
    return state.now_s[0] + soonest_s


@kernel
def move_to(state: Transfers, time_s: float) -> None:
    """Advance all transfers to time_s."""
    span_s = time_s - state.now_s[0]
    if span_s > 0.0:
        left_bytes, rate = state.left_bytes, state.rate
        for k in range(state.active[0]):
            left_bytes[k] -= rate[k] * span_s
        state.now_s[0] = time_s


@kernel
def set_rates(state: Transfers) -> None:
    """Share the ports max-min fairly. In each round a port whose parts all get least there stops
    them at its equal share. What they leave of their other ports is for those that go on: shares
    only grow from round to round, so who was limited by such a port stays limited by it."""
    rate, growing, rest, open_parts = state.rate, state.growing, state.rest, state.open
    capacity, limited = state.capacity, state.limited
    port_out, port_in = state.port_out, state.port_in
    count = state.active[0]
    for k in range(count):
        growing[k] = k
        for way, port in ((OUT, port_out[k]), (IN, port_in[k])):
            rest[way, port], open_parts[way, port] = capacity[port], state.crossing[way, port]
    while count > 0:
        for j in range(count):
            k = growing[j]
            limited[OUT, port_out[k]] = limited[IN, port_in[k]] = 0
        for j in range(count):
            k = growing[j]
            a, b = port_out[k], port_in[k]
            share_out, share_in = rest[OUT, a] / open_parts[OUT, a], rest[IN, b] / open_parts[IN, b]
            limited[OUT, a] += share_out <= share_in
            limited[IN, b] += share_in <= share_out
            rate[k] = max(0.0, min(share_out, share_in))
        still_growing = 0
        for j in range(count):
            k = growing[j]
            a, b = port_out[k], port_in[k]
            stops = limited[OUT, a] == open_parts[OUT, a] or limited[IN, b] == open_parts[IN, b]
            if not stops:
                growing[j], growing[still_growing] = growing[still_growing], k
                still_growing += 1
        for j in range(still_growing, count):
            k = growing[j]
            for way, port in ((OUT, port_out[k]), (IN, port_in[k])):
                rest[way, port] -= rate[k]
                open_parts[way, port] -= 1
        count = still_growing


@kernel
def sender_of(world: World, i: int, die: int) -> int:
    """Prefill die that the mapping names for what a die of a request's rank receives."""
    settings = world.settings
    rank, ranks = world.request.rank[i] % settings.decode_ranks, settings.decode_ranks
    dies, senders = settings.rank_dies, settings.senders
    return sending_die(rank, ranks, die, dies, senders, settings.prefill_ranks)


@kernel
def token_bytes(world: World, i: int) -> float:
    """Bytes of the KV of a request's tokens now, with the KV of its windows."""
    settings = world.settings
    length = world.request.input_tokens[i] + world.request.emitted[i]
    window_tokens = min(length, settings.window) * settings.window_bytes_per_token
    return float(length * settings.kv_bytes_per_token + window_tokens)


@kernel
def kv_bytes(world: World, i: int) -> float:
    """Bytes of a request's KV now, with its windows and its state of linear attention."""
    return token_bytes(world, i) + world.settings.state_bytes


@kernel
def die_bytes(world: World, i: int) -> float:
    """Bytes of a request's KV and state now that each die of its decode rank receives."""
    settings = world.settings
    return token_bytes(world, i) * settings.die_kv + settings.state_bytes * settings.die_state


@kernel
def take_back(world: World, k: int) -> None:
    """End a part of a transfer early and undo its counts: it counts as not sent."""
    i = world.transfer.request[k]
    p, sender = world.request.prefill_instance[i], sender_of(world, i, world.transfer.die[k])
    world.prefill.sent_bytes[p, sender] -= die_bytes(world, i)
    forget(world, k)


@kernel
def begin_transfer(world: World, i: int, from_rank: int) -> None:
    """Start the transfer of KV to each die of a request's rank, from prefill (NONE) or a rank."""
    request, state, p = world.request, world.transfer, world.request.prefill_instance[i]
    part_bytes = die_bytes(world, i)
    for die in range(world.settings.rank_dies):
        sender, part = sender_of(world, i, die), state.active[0]
        port_out = state.port_of_prefill[p, sender]
        if from_rank != w.NONE:
            port_out = state.port_of_decode[from_rank, die]
        state.active[0] += 1
        state.request[part] = i
        state.die[part] = die
        state.port_out[part] = port_out
        state.port_in[part] = state.port_of_decode[request.rank[i], die]
        state.left_bytes[part] = part_bytes
        request.parts[i] += 1
        world.prefill.sending[p] += 1
        state.crossing[OUT, state.port_out[part]] += 1
        state.crossing[IN, state.port_in[part]] += 1
        world.prefill.sent_bytes[p, sender] += part_bytes


@kernel
def end_transfers(world: World, now_s: float) -> None:
    """Hand requests whose KV has arrived to their decode instances."""
    state = world.transfer
    part = 0
    while part < state.active[0]:
        # A nanosecond of traffic counts as arrived: rounding must not leave an endless crumb.
        if state.left_bytes[part] > state.rate[part] * 1e-9:
            part += 1
            continue
        i = state.request[part]
        forget(world, part)
        arrive(world, i, now_s)


@kernel
def forget(world: World, k: int) -> None:
    """Remove a part of a transfer from the list, after its arrival or a fault."""
    state = world.transfer
    world.request.parts[state.request[k]] -= 1
    world.prefill.sending[world.request.prefill_instance[state.request[k]]] -= 1
    state.crossing[OUT, state.port_out[k]] -= 1
    state.crossing[IN, state.port_in[k]] -= 1
    last_part = state.active[0] - 1
    state.request[k] = state.request[last_part]
    state.die[k] = state.die[last_part]
    state.port_out[k] = state.port_out[last_part]
    state.port_in[k] = state.port_in[last_part]
    state.left_bytes[k] = state.left_bytes[last_part]
    state.rate[k] = state.rate[last_part]
    state.active[0] = last_part


@kernel
def arrive(world: World, i: int, now_s: float) -> None:
    """Count a part of a request's KV as arrived; after the last, let decode take the request."""
    settings, request, record = world.settings, world.request, world.record
    rank = request.rank[i]
    part_bytes = die_bytes(world, i)
    begun_s, p = request.ready_s[i], request.prefill_instance[i]
    book_traffic(world, w.KV_HAND_OFF, settings.kv_plane, p, begun_s, now_s, part_bytes)
    world.decode.received_bytes[rank] += part_bytes
    if request.parts[i] > 0:
        return
    if request.emitted[i] == 0 and not settings.first_by_decode:
        request.transfer_end_s[i] = now_s
    request.ready_s[i] = now_s
    request.status[i] = w.DECODING
    record.counters[w.TRANSFERRED] += 1
    d = rank // settings.decode_ranks
    append(world.decode.wait, d, request.following, i)
