"""Phase: requests leave an instance that fails, or that is to stop, between two steps.

What a fault does is decided in lifecycle/incidents.py at a step's border; this file moves the
requests. A request that loses its KV or its unfinished prefill is tried again, and keeps its
emitted tokens; after `retries` times it is lost, with the reason.

An instance that is to stop (life.py) runs empty, or hands its requests' KV on to others: over the
ports of its old dies to those of its new ones, as hand-offs from prefill do; it counts for the
prefill instance that computed the prompt. Such a request keeps what it has emitted."""

from collections.abc import Iterator, Sequence

import numpy as np

from twin.engine import codes as w
from twin.engine.books import record_busy
from twin.engine.clients.returns import schedule_next
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import begin_transfer, collect_unsent, undo_part
from twin.engine.in_hbm import drop_idle_blocks, first_kv_cell
from twin.engine.lists import append, list_length, pop
from twin.engine.phases.decode import end_iteration, free_reserved_slot, remove_running
from twin.engine.phases.prefill import leave_queue, note_ending_work
from twin.engine.phases.router import refresh_view, reserve_rank
from twin.engine.pool import stop_reading
from twin.engine.swap import drop_copy


def send_back(world: World, i: int, now_s: float, came_from: int, has_slot: bool = True) -> None:
    """Return request i, already removed from its list or batch, to the router, or give it up.
    came_from: code of the counter of requests that return from its phase; has_slot: whether its
    decode slot is reserved, and becomes free."""
    request, counters = world.request, world.record.counters
    if has_slot:
        free_reserved_slot(world, i)
    counters[came_from] += 1
    request.ready_s[i] = now_s
    request.retries[i] += 1
    if request.retries[i] > world.settings.retries:
        request.status[i], request.reason[i] = w.LOST, w.OUT_OF_RETRIES
        counters[w.GIVEN_UP] += 1
        schedule_next(world, i, now_s)
        return
    request.status[i] = w.WAITING
    if request.emitted[i] == 0:  # its first token comes, or comes again, with the next prefill
        request.prefill_start_s[i] = request.prefill_end_s[i] = request.transfer_end_s[i] = np.nan
    append(world.decode.returned, 0, request.following, i)


def pop_of_ranks(world: World, ends: np.ndarray, row: int, ranks: Sequence[int]) -> Iterator[int]:
    """Remove the requests of some decode ranks from list `row` of `ends`, and yield them."""
    request = world.request
    for _ in range(list_length(ends, row, request.following)):
        request_row = pop(ends, row, request.following)
        if int(request.rank[request_row]) in ranks:
            yield request_row
        else:
            append(ends, row, request.following, request_row)


def sent_back_count(world: World) -> int:
    """Number of times so far that a request left a queue, batch, transfer or slot before its end.
    What a failure sends back is the difference of this count before and after it."""
    return int(world.record.counters[w.BACK_FROM_QUEUE : w.BACK_FROM_DECODE + 1].sum())


def send_back_decoding(world: World, ranks: range, now_s: float) -> None:
    """Send back the requests on some ranks of one decode instance."""
    decode, decode_instance = world.decode, ranks[0] // world.settings.decode_ranks
    for rank in ranks:
        while decode.requests[rank] > 0:
            request_row = decode.slot_table[rank, decode.requests[rank] - 1]
            remove_running(world, decode_instance, request_row)
            send_back(world, request_row, now_s, w.BACK_FROM_DECODE, has_slot=False)
        for request_row in pop_of_ranks(world, decode.swapped, rank, ranks):
            drop_copy(world, request_row)
            send_back(world, request_row, now_s, w.BACK_FROM_DECODE)
        if world.settings.colocated:
            drop_idle_blocks(world, rank, rank + 1)
    for request_row in pop_of_ranks(world, decode.wait, decode_instance, ranks):
        send_back(world, request_row, now_s, w.BACK_FROM_DECODE)


def send_back_transfers(
    world: World, now_s: float, prefill: int = w.NONE, ranks: Sequence[int] = ()
) -> None:
    """End the KV transfers from instance `prefill` (NONE: of none) or to decode ranks `ranks`, and
    send their requests back."""
    transfers, request, part_row = world.transfer, world.request, 0

    def is_affected(request_row: int) -> bool:
        """Whether transfers of this request are to end."""
        is_from_prefill = prefill != w.NONE and request.prefill_instance[request_row] == prefill
        return is_from_prefill or int(request.rank[request_row]) in ranks

    while part_row < transfers.active[0]:
        request_row = transfers.request[part_row]
        if not is_affected(request_row):
            part_row += 1
            continue
        undo_part(world, part_row)
        if request.parts[request_row] == 0:  # else there are others, further on in the list
            send_back(world, request_row, now_s, w.BACK_FROM_TRANSFER)
    for part_row in range(collect_unsent(world)):
        request_row = transfers.fresh[part_row]
        if is_affected(request_row):
            send_back(world, request_row, now_s, w.BACK_FROM_TRANSFER)
        else:
            append(transfers.unsent, 0, request.following, request_row)


def send_back_prompts(world: World, p: int, now_s: float) -> None:
    """Send back all requests that wait or compute at prefill instance p, and stop its batch."""
    prefill, following = world.prefill, world.request.following
    while (request_row := pop(prefill.batch, p, following)) != w.NONE:
        send_from_prefill(world, p, request_row, now_s)
    while (request_row := pop(prefill.queue, p, following)) != w.NONE:
        send_from_prefill(world, p, request_row, now_s)
    world.instance.running[world.settings.prompt_row + p] = 0
    stop_reading(world, p, now_s)
    if not world.settings.colocated:
        drop_idle_blocks(world, first_kv_cell(world, p), first_kv_cell(world, p + 1))


def send_from_prefill(world: World, p: int, i: int, now_s: float) -> None:
    """Send back request i after its removal from a list of prefill instance p."""
    is_computing = world.request.progress[i] != w.NONE
    leave_queue(world, p, i)
    world.request.progress[i] = w.NONE
    send_back(world, i, now_s, w.BACK_FROM_PREFILL if is_computing else w.BACK_FROM_QUEUE)


def send_back_rank(world: World, rank: int, now_s: float) -> None:
    """Send back all requests on a lost decode rank, in transfer to it or in prefill for it."""
    send_back_decoding(world, range(rank, rank + 1), now_s)
    if world.settings.has_prefill and not world.settings.colocated:
        send_back_transfers(world, now_s, ranks=(rank,))
        send_back_prompts_of_rank(world, rank, now_s)


def send_back_prompts_of_rank(world: World, rank: int, now_s: float) -> None:
    """Send back requests in prefill with a decode slot on a lost rank."""
    prefill = world.prefill
    for prefill_instance in range(prefill.queue.shape[0]):
        for queue in (prefill.queue, prefill.batch):
            for request_row in pop_of_ranks(world, queue, prefill_instance, (rank,)):
                send_from_prefill(world, prefill_instance, request_row, now_s)
        note_ending_work(world, prefill_instance)


def is_empty_prefill(world: World, p: int) -> bool:
    """Whether no prompt of instance p waits, computes or has KV left to transfer."""
    prefill, is_running = world.prefill, world.instance.running[world.settings.prompt_row + p]
    if prefill.queued_tokens[p] or is_running or prefill.reading[p] or prefill.sending[p]:
        return False
    unsent_request = world.transfer.unsent[0, w.HEAD]
    while unsent_request != w.NONE:
        if world.request.prefill_instance[unsent_request] == p:
            return False
        unsent_request = world.request.following[unsent_request]
    return True


def is_empty_decode(world: World, d: int) -> bool:
    """Whether no slot of decode instance d is taken or reserved, and no iteration runs."""
    return not (world.decode.taken[d] or world.instance.running[world.settings.prefills + d])


def move_requests_away(world: World, d: int, now_s: float) -> None:
    """Transfer running requests of decode instance d to others with room. The running iteration
    ends now. A request that has just joined is moved at a later check."""
    decode, instance, first_column = world.decode, world.instance, world.settings.prefills
    open_instances = np.flatnonzero(instance.open[first_column:])
    free_slots = int((decode.room - decode.taken)[open_instances].sum())
    if decode.in_batch[d] == 0 or free_slots <= 0:
        return
    if instance.running[first_column + d]:
        record_busy(world, first_column + d, now_s, instance.ends_s[first_column + d], -1.0)
        end_iteration(world, d, now_s)
        instance.running[first_column + d] = 0
        instance.ends_s[first_column + d] = now_s
    refresh_view(world)
    ranks_per_instance = world.settings.decode_ranks
    for rank in range(d * ranks_per_instance, (d + 1) * ranks_per_instance):
        for slot in range(decode.requests[rank] - 1, -1, -1):
            if not hand_over_request(world, d, decode.slot_table[rank, slot], now_s):
                return


def hand_over_request(world: World, d: int, i: int, now_s: float) -> bool:
    """Start the KV transfer of running request i from instance d to another, unless the request has
    just joined; False without room for it."""
    settings, request = world.settings, world.request
    iterations_due = request.due[i] - request.joined[i]
    iterations_done = world.decode.iteration[d] - request.joined[i]
    tokens_left = request.output_tokens[i] - request.emitted[i]
    # Its new rank begins with the last.
    emitted_tokens = request.emitted[i] + int(tokens_left * iterations_done / iterations_due) - 1
    if emitted_tokens < 1:
        return True
    needed_tokens = request.input_tokens[i] + emitted_tokens + 0.5 * settings.page_tokens
    new_rank = reserve_rank(world, w.NONE, i, needed_tokens)
    if new_rank == w.NONE:
        return False
    old_rank = request.rank[i]
    remove_running(world, d, i)
    request.emitted[i] = emitted_tokens
    world.record.rounded_tokens[0] += 1.0
    request.rank[i] = new_rank
    world.decode.reserved_tokens[new_rank] += request.input_tokens[i] + emitted_tokens
    request.ready_s[i], request.status[i] = now_s, w.TRANSFERRING
    for counter_code in (w.BACK_FROM_DECODE, w.ROUTED, w.PREFILL_BEGUN, w.PREFILLED):
        world.record.counters[counter_code] += 1
    begin_transfer(world, i, old_rank)
    return True
