"""Phase: requests arrive, by their stamp or when a client comes back; clients that time out leave.

A client that leaves takes its request out of wherever it is: queue, batch, KV transfer or decode
slot. A batch that computes goes on, and the request leaves at its end, as in real engines.

API servers, the front end, tokenise and check, first come, first served. Each takes the same time
for every request, so request k starts when it has arrived and request k - servers is done."""

from twin.engine import codes as w
from twin.engine.clients.returns import ATTEMPTS, cancel_request, schedule_retry
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import undo_part
from twin.engine.lists import heap_pop, remove_item
from twin.engine.phases.decode import free_reserved_slot, remove_running
from twin.engine.phases.prefill import leave_queue
from twin.engine.phases.router import leave_supernode
from twin.engine.swap import drop_copy
from twin.kernels.compiled import kernel


@kernel
def add_arrivals(world: World, t0: float, t1: float) -> None:
    """Count every request with arrival_s <= t1 (s) as arrived; rows are in order of arrival. In a
    closed loop write the arrivals of clients that came back by t0, the step's begin (s)."""
    request, counters = world.request, world.record.counters
    next_row, row_count = counters[w.ARRIVED], request.arrival_s.size
    while next_row < row_count and request.arrival_s[next_row] <= t1:
        next_row += 1
    if world.settings.closed_loop:
        # A client that came back by this step's border is seen now, at its exact time.
        client_loop = world.loop
        while client_loop.size[0] > 0 and client_loop.due_s[0] <= t0:
            due_s = heap_pop(client_loop.due_s, client_loop.turn, client_loop.size)
            if next_row == row_count:
                counters[w.EXHAUSTED] += 1
                continue
            request.arrival_s[next_row] = due_s
            next_row += 1
    counters[w.ARRIVED] = next_row


@kernel
def add_requests(world: World, t0: float) -> None:
    """Make a request of every client that is due by t0, the step's begin (s), at its exact time."""
    request, client_loop, turn = world.request, world.loop, world.turn
    counters = world.record.counters
    new_row = counters[w.ARRIVED]
    while client_loop.size[0] > 0 and client_loop.due_s[0] <= t0:
        turn_and_attempt = client_loop.turn[0]
        due_s = heap_pop(client_loop.due_s, client_loop.turn, client_loop.size)
        if turn_and_attempt == w.NONE:  # a closed loop's client takes the next turn there is
            if counters[w.TURNS_TAKEN] == turn.input_tokens.size:
                counters[w.EXHAUSTED] += 1
                continue
            turn_and_attempt = counters[w.TURNS_TAKEN] * ATTEMPTS
            counters[w.TURNS_TAKEN] += 1
        turn_row, attempt = turn_and_attempt // ATTEMPTS, turn_and_attempt % ATTEMPTS
        if attempt == 0:
            turn.asked_s[turn_row] = due_s
        request.arrival_s[new_row] = due_s
        request.turn[new_row] = turn_row
        request.attempt[new_row] = attempt
        request.input_tokens[new_row] = turn.input_tokens[turn_row]
        request.output_tokens[new_row] = turn.output_tokens[turn_row]
        request.session[new_row] = turn.session[turn_row]
        new_row += 1
    counters[w.ARRIVED] = new_row


@kernel
def withdraw_expired(world: World, t0: float) -> None:
    """Withdraw the requests whose client's time-out has passed by t0, the step's begin (s)."""
    settings, request, client_loop = world.settings, world.request, world.loop
    arrived = world.record.counters[w.ARRIVED]
    for is_answer_limit in range(2):
        limit_s = settings.answer_timeout_s if is_answer_limit else settings.timeout_s
        next_row = client_loop.expired[is_answer_limit]
        while limit_s > 0.0 and next_row < arrived and request.arrival_s[next_row] + limit_s <= t0:
            is_gone = request.status[next_row] >= w.FINISHED or request.gone[next_row] == 1
            if not is_gone and (is_answer_limit == 1 or not request.transfer_end_s[next_row] <= t0):
                request.reason[next_row] = w.ANSWER_TIMED_OUT if is_answer_limit else w.TIMED_OUT
                withdraw(world, next_row, t0)
                schedule_retry(world, next_row, request.arrival_s[next_row] + limit_s, t0)
            next_row += 1
        client_loop.expired[is_answer_limit] = next_row


@kernel
def withdraw(world: World, i: int, now_s: float) -> None:
    """Remove request i from its queue or slot, or mark it as gone until its prefill batch ends."""
    request, counters, gate = world.request, world.record.counters, world.gate
    decode, following = world.decode, request.following
    if i >= counters[w.FRONTED]:  # the API server and the router pass over it
        counters[w.LEFT_EARLY] += 1
    elif i < counters[w.ROUTER_SEEN]:
        was_waiting = remove_item(gate.wait, 0, following, i) or leave_supernode(world, i)
        if not was_waiting and not remove_item(decode.returned, 0, following, i):
            counter_code = take_from_instance(world, i)
            if counter_code == w.NONE:
                request.gone[i] = 1
                return
            counters[counter_code] += 1
            delay_idle_decode(world, i, now_s)
    cancel_request(world, i, now_s)


@kernel
def delay_idle_decode(world: World, i: int, now_s: float) -> None:
    """Delay the next start of an idle decode instance, which request i has left, to now_s: KV of
    the requests behind it arrived earlier, but they become first in the queue only now."""
    settings, instance = world.settings, world.instance
    if settings.has_decode and world.request.rank[i] != w.NONE:
        instance_column = settings.prefills + world.request.rank[i] // settings.decode_ranks
        if not instance.running[instance_column] and instance.up[instance_column]:
            instance.ends_s[instance_column] = max(instance.ends_s[instance_column], now_s)


@kernel
def take_from_instance(world: World, i: int) -> int:
    """Remove request i from its queue, transfer or decode batch; returns the code of the counter of
    requests that came back from there. NONE: its prefill batch runs, and it leaves later."""
    request, following, status = world.request, world.request.following, world.request.status[i]
    settings, prefill, decode = world.settings, world.prefill, world.decode
    if status == w.TRANSFERRING:
        stop_transfer(world, i)
        free_reserved_slot(world, i)
        return w.BACK_FROM_TRANSFER
    if status == w.PREFILLING or request.prefill_instance[i] != w.NONE:
        prefill_instance = request.prefill_instance[i]
        if remove_item(prefill.queue, prefill_instance, following, i):
            is_computing = request.progress[i] != w.NONE
            leave_queue(world, prefill_instance, i)
            free_reserved_slot(world, i)
            return w.BACK_FROM_PREFILL if is_computing else w.BACK_FROM_QUEUE
    if status == w.PREFILLING or not settings.has_decode or request.rank[i] == w.NONE:
        return w.NONE
    decode_instance = request.rank[i] // settings.decode_ranks
    if remove_item(decode.wait, decode_instance, following, i):
        free_reserved_slot(world, i)
        return w.BACK_FROM_DECODE
    if status == w.DECODING and remove_item(decode.swapped, request.rank[i], following, i):
        drop_copy(world, i)
        free_reserved_slot(world, i)
        return w.BACK_FROM_DECODE
    if status == w.DECODING:
        # What the iteration under way adds is not in the sums yet.
        if world.instance.running[settings.prefills + decode_instance]:
            new_tokens = request.output_tokens[i] - request.emitted[i]
            decode.context[request.rank[i]] += new_tokens / (request.due[i] - request.joined[i])
        remove_running(world, decode_instance, i)
        return w.BACK_FROM_DECODE
    return w.NONE


@kernel
def stop_transfer(world: World, i: int) -> None:
    """End request i's KV transfer, or remove it from those that have not begun."""
    transfers = world.transfer
    if remove_item(transfers.unsent, 0, world.request.following, i):
        return
    part_row = 0
    while world.request.parts[i] > 0:
        if transfers.request[part_row] == i:
            undo_part(world, part_row)
        else:
            part_row += 1


@kernel
def front_end_end_s(arrival_s: float, server_free_s: float, service_s: float) -> float:
    """Time (s) at which an API server ends a service that begins at arrival or when it is free."""
    return max(arrival_s, server_free_s) + service_s


@kernel
def run_front_end(world: World, t1: float) -> None:
    """Stamp when each arrived request leaves its API server; count those that left by t1 (s)."""
    settings, request, counters = world.settings, world.request, world.record.counters
    server_count = settings.api_servers
    for i in range(counters[w.FRONTED], counters[w.ARRIVED]):
        server_free_s = request.front_end_s[i - server_count] if i >= server_count else 0.0
        left_at_s = front_end_end_s(request.arrival_s[i], server_free_s, settings.service_s)
        request.front_end_s[i] = left_at_s
        is_cancelled = request.status[i] == w.CANCELLED  # it takes its time here all the same
        if not is_cancelled:
            request.ready_s[i] = left_at_s
        if left_at_s > t1:  # those behind it leave no earlier
            break
        counters[w.FRONTED] = i + 1
        counters[w.LEFT_EARLY] -= is_cancelled
