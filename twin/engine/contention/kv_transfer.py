"""Phase: KV moves from prefill dies to decode dies; concurrent transfers share their ports.

Each die of a decode rank receives its own part over its own port: the KV of its heads, of its
tokens (context parallelism) and of its layers (pipeline stages). Latents and KV heads that several
dies have go to each of them (vLLM-Ascend, mooncake_connector.py: `tp_num_need_pulls`, 1 for MLA;
SGLang, disaggregation/common/conn.py: `_resolve_rank_mapping`). A part comes from one prefill die,
by the mapping of arXiv 2506.12708v2 section 4.3.3: groups of as many prefill dies as a rank has,
from each of which consecutive decode ranks draw. A request goes on when its last part is there."""

import numpy as np

from twin.engine import codes as w
from twin.engine.books import record_traffic
from twin.engine.columns import Transfers, World
from twin.engine.lists import append, pop
from twin.kernels.compiled import kernel

OUT, IN = range(2)  # ways through a port


@kernel
def sending_die(rank: int, ranks: int, die: int, dies: int, senders: int, prefill_dies: int) -> int:
    """Number of the prefill die that sends KV to die `die` of decode rank `rank`; all numbers count
    within an instance or rank. ranks: of the decode instance; dies: of a rank; senders: prefill
    dies that send to one rank; prefill_dies: of the prefill instance. With 32 prefill dies and 320
    decode ranks of one die each prefill die feeds 10 of them."""
    return rank * (prefill_dies // senders) // ranks * senders + die * senders // dies


@kernel
def advance_transfers(world: World, t1: float) -> None:
    """Advance every KV transfer to t1 (s); new ones start at their exact times."""
    unsent_count = collect_unsent(world)
    transfers = world.transfer
    unsent_rows, ready_s = transfers.fresh, world.request.ready_s
    set_rates(transfers)  # what the ports have may have changed at the border
    begun_count = 0
    while True:
        next_start_s = ready_s[unsent_rows[begun_count]] if begun_count < unsent_count else np.inf
        next_end_s = earliest_end_s(transfers)
        event_s = min(next_start_s, next_end_s)
        if event_s > t1:
            move_bytes(transfers, t1)
            break
        move_bytes(transfers, event_s)
        if next_end_s <= event_s:
            end_transfers(world, event_s)
        while begun_count < unsent_count and ready_s[unsent_rows[begun_count]] <= event_s:
            begin_transfer(world, unsent_rows[begun_count], w.NONE)
            begun_count += 1
        set_rates(transfers)
    for unsent_index in range(begun_count, unsent_count):  # their latency reaches past this step
        append(transfers.unsent, 0, world.request.following, unsent_rows[unsent_index])


@kernel
def collect_unsent(world: World) -> int:
    """Move requests whose transfer has not begun from `unsent` into `fresh`, in order of ready_s;
    returns their number. Equal times keep their order; the input consists of sorted runs."""
    transfers = world.transfer
    unsent_rows, following = transfers.fresh, world.request.following
    ready_s = world.request.ready_s
    unsent_count = 0
    request_row = pop(transfers.unsent, 0, following)
    while request_row != w.NONE:
        position = unsent_count
        while position > 0 and ready_s[unsent_rows[position - 1]] > ready_s[request_row]:
            unsent_rows[position] = unsent_rows[position - 1]
            position -= 1
        unsent_rows[position] = request_row
        unsent_count += 1
        request_row = pop(transfers.unsent, 0, following)
    return unsent_count


@kernel
def earliest_end_s(transfers: Transfers) -> float:
    """Time of the next end of a transfer at the present rates (s); infinite without any."""
    shortest_s = np.inf
    left_bytes, bytes_per_s = transfers.left_bytes, transfers.rate
    for part in range(transfers.active[0]):
        if bytes_per_s[part] > 0.0:  # a transfer over a dead port waits
            shortest_s = min(shortest_s, left_bytes[part] / bytes_per_s[part])
    return transfers.now_s[0] + shortest_s


@kernel
def move_bytes(transfers: Transfers, time_s: float) -> None:
    """Move all transfers on to time_s: subtract the bytes that they send until then."""
    span_s = time_s - transfers.now_s[0]
    if span_s > 0.0:
        left_bytes, bytes_per_s = transfers.left_bytes, transfers.rate
        for part in range(transfers.active[0]):
            left_bytes[part] -= bytes_per_s[part] * span_s
        transfers.now_s[0] = time_s


@kernel
def set_rates(state: Transfers) -> None:
    """Set the bytes/s of all parts of transfers, max-min fair on ports. In each round, a port at
    which every part has its least share stops these parts; others get what they leave at other
    ports. Shares only grow from round to round, so a stopped part stays limited."""
    bytes_per_s, growing_parts, left_bytes_per_s = state.rate, state.growing, state.rest
    open_counts = state.open
    capacity, limited_counts = state.capacity, state.limited
    port_out, port_in = state.port_out, state.port_in
    growing_count = state.active[0]
    for part in range(growing_count):
        growing_parts[part] = part
        for way, port in ((OUT, port_out[part]), (IN, port_in[part])):
            left_bytes_per_s[way, port] = capacity[port]
            open_counts[way, port] = state.crossing[way, port]
    while growing_count > 0:
        for index in range(growing_count):
            part = growing_parts[index]
            limited_counts[OUT, port_out[part]] = limited_counts[IN, port_in[part]] = 0
        for index in range(growing_count):
            part = growing_parts[index]
            exit_port, entry_port = port_out[part], port_in[part]
            fair_out_bytes_per_s = left_bytes_per_s[OUT, exit_port] / open_counts[OUT, exit_port]
            fair_in_bytes_per_s = left_bytes_per_s[IN, entry_port] / open_counts[IN, entry_port]
            limited_counts[OUT, exit_port] += fair_out_bytes_per_s <= fair_in_bytes_per_s
            limited_counts[IN, entry_port] += fair_in_bytes_per_s <= fair_out_bytes_per_s
            bytes_per_s[part] = max(0.0, min(fair_out_bytes_per_s, fair_in_bytes_per_s))
        next_growing_count = 0
        for index in range(growing_count):
            part = growing_parts[index]
            exit_port, entry_port = port_out[part], port_in[part]
            stops_out = limited_counts[OUT, exit_port] == open_counts[OUT, exit_port]
            stops_in = limited_counts[IN, entry_port] == open_counts[IN, entry_port]
            if not (stops_out or stops_in):
                growing_parts[index] = growing_parts[next_growing_count]
                growing_parts[next_growing_count] = part
                next_growing_count += 1
        for index in range(next_growing_count, growing_count):
            part = growing_parts[index]
            for way, port in ((OUT, port_out[part]), (IN, port_in[part])):
                left_bytes_per_s[way, port] -= bytes_per_s[part]
                open_counts[way, port] -= 1
        growing_count = next_growing_count


@kernel
def sender_of(world: World, i: int, die: int) -> int:
    """Number, in its instance, of the prefill die that sends KV to this die of request i's rank."""
    settings = world.settings
    rank, rank_count = world.request.rank[i] % settings.decode_ranks, settings.decode_ranks
    rank_dies, sender_count = settings.rank_dies, settings.senders
    return sending_die(rank, rank_count, die, rank_dies, sender_count, settings.prefill_ranks)


@kernel
def token_bytes(world: World, i: int) -> float:
    """Bytes of the KV of request i's tokens so far, with the KV of its sliding windows."""
    settings = world.settings
    tokens = world.request.input_tokens[i] + world.request.emitted[i]
    window_bytes = min(tokens, settings.window) * settings.window_bytes_per_token
    return float(tokens * settings.kv_bytes_per_token + window_bytes)


@kernel
def kv_bytes(world: World, i: int) -> float:
    """Bytes of request i's KV so far, with its windows and its state of linear attention."""
    return token_bytes(world, i) + world.settings.state_bytes


@kernel
def die_bytes(world: World, i: int) -> float:
    """Bytes of request i's KV and state so far that each die of its decode rank receives."""
    settings = world.settings
    return token_bytes(world, i) * settings.die_kv + settings.state_bytes * settings.die_state


@kernel
def source_instance(world: World, i: int) -> int:
    """Prefill instance that request i's transfer counts for: the one that computed its prompt, else
    the first (a request that decoded when the run began, handed on by its instance)."""
    return max(int(world.request.prefill_instance[i]), 0)


@kernel
def undo_part(world: World, k: int) -> None:
    """End part k of the transfers early; its bytes count as not sent."""
    i = world.transfer.request[k]
    instance, sender = source_instance(world, i), sender_of(world, i, world.transfer.die[k])
    world.prefill.sent_bytes[instance, sender] -= die_bytes(world, i)
    remove_part(world, k)


@kernel
def begin_transfer(world: World, i: int, from_rank: int) -> None:
    """Start the KV transfer to each die of request i's rank, from the dies of rank `from_rank`, or
    from prefill if that is NONE."""
    request, transfers, source_row = world.request, world.transfer, source_instance(world, i)
    part_bytes = die_bytes(world, i)
    for die in range(world.settings.rank_dies):
        sender, part_row = sender_of(world, i, die), transfers.active[0]
        port_out = transfers.port_of_prefill[source_row, sender]
        if from_rank != w.NONE:
            port_out = transfers.port_of_decode[from_rank, die]
        port_in = transfers.port_of_decode[request.rank[i], die]
        transfers.active[0] += 1
        transfers.request[part_row], transfers.die[part_row] = i, die
        transfers.port_out[part_row], transfers.port_in[part_row] = port_out, port_in
        transfers.left_bytes[part_row] = part_bytes
        request.parts[i] += 1
        world.prefill.sending[source_row] += 1
        transfers.crossing[OUT, port_out] += 1
        transfers.crossing[IN, port_in] += 1
        world.prefill.sent_bytes[source_row, sender] += part_bytes


@kernel
def end_transfers(world: World, now_s: float) -> None:
    """Remove parts of transfers that are complete; hand on requests whose last part arrived."""
    transfers, part_row = world.transfer, 0
    while part_row < transfers.active[0]:
        # A nanosecond of traffic counts as arrived: rounding must not leave an endless crumb.
        if transfers.left_bytes[part_row] > transfers.rate[part_row] * 1e-9:
            part_row += 1
            continue
        request_row = transfers.request[part_row]
        remove_part(world, part_row)
        count_arrived_part(world, request_row, now_s)


@kernel
def remove_part(world: World, k: int) -> None:
    """Remove part k of the transfers from the list, after its arrival or a fault."""
    transfers = world.transfer
    world.request.parts[transfers.request[k]] -= 1
    world.prefill.sending[source_instance(world, transfers.request[k])] -= 1
    transfers.crossing[OUT, transfers.port_out[k]] -= 1
    transfers.crossing[IN, transfers.port_in[k]] -= 1
    last_part = transfers.active[0] - 1
    for index_column in (transfers.request, transfers.die, transfers.port_out, transfers.port_in):
        index_column[k] = index_column[last_part]
    for amount_column in (transfers.left_bytes, transfers.rate):
        amount_column[k] = amount_column[last_part]
    transfers.active[0] = last_part


@kernel
def count_arrived_part(world: World, i: int, now_s: float) -> None:
    """Count a part of request i's KV as arrived; after the last, let decode take the request."""
    settings, request, rank = world.settings, world.request, world.request.rank[i]
    part_bytes = die_bytes(world, i)
    begun_s, prefill_row = request.ready_s[i], source_instance(world, i)
    record_traffic(world, w.KV_HAND_OFF, settings.kv_plane, prefill_row, begun_s, now_s, part_bytes)
    world.decode.received_bytes[rank] += part_bytes
    if request.parts[i] > 0:
        return
    if request.emitted[i] == 0 and not settings.first_by_decode:
        request.transfer_end_s[i] = now_s
    request.ready_s[i], request.status[i] = now_s, w.DECODING
    world.record.counters[w.TRANSFERRED] += 1
    append(world.decode.wait, rank // settings.decode_ranks, request.following, i)
