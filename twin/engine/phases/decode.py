"""Phase: decode instances run iterations; requests join_batch, grow, finish or are preempted.

An iteration touches ranks, not requests: a request that joins knows at which iteration it is due
(MTP acceptance drawn once) and waits in a calendar until then."""

import numpy as np

from twin.engine import codes as w
from twin.engine import in_hbm
from twin.engine.books import add_at, add_evenly, log_pass, record_traffic
from twin.engine.clients.fair import add_tenant_growth, charge_iteration, charge_tenant
from twin.engine.clients.returns import schedule_next, tenant_of
from twin.engine.clock import bin_of
from twin.engine.columns import World
from twin.engine.contention.traffic import price_exchange, record_exchange
from twin.engine.lists import append, fill, pop, total
from twin.engine.pool import store_answer
from twin.engine.swap import add_written_bytes, begin_copies_s, begin_kv_streams, swap_in, swap_out
from twin.kernels.compiled import kernel
from twin.model.decode import decode_flops, decode_hbm_bytes, decode_iteration_s
from twin.model.mixed import mixed_flops
from twin.policies.batching import iterations_needed


@kernel
def advance_decode(world: World, t1: float) -> None:
    """Advance every decode instance to t1 (s): iterations end and begin at their exact times."""
    decode_state, instance, first_column = world.decode, world.instance, world.settings.prefills
    for decode_row in range(decode_state.taken.size):
        while instance.up[first_column + decode_row]:
            first_waiting = decode_state.wait[decode_row, w.HEAD]
            now_s = next_action_s(world, decode_row, first_waiting)
            if now_s > t1:
                break
            if instance.running[first_column + decode_row]:
                end_iteration(world, decode_row, now_s)
            admit_ready(world, decode_row, now_s)
            make_room(world, decode_row, now_s)
            if decode_state.in_batch[decode_row] > 0:
                launch_decode(world, decode_row, now_s)
            else:
                instance.running[first_column + decode_row] = 0
                instance.ends_s[first_column + decode_row] = now_s


@kernel
def next_action_s(world: World, d: int, head: int) -> float:
    """Time (s) at which instance d ends or may begin an iteration; head: first waiting request."""
    column = world.settings.prefills + d
    ends_s = world.instance.ends_s[column]
    # A batch that a fault stopped goes on by itself, and so do requests in host memory.
    decode = world.decode
    if world.instance.running[column] or decode.in_batch[d] > 0 or decode.swapped_out[d] > 0:
        return float(ends_s)
    return np.inf if head == w.NONE else max(ends_s, world.request.ready_s[head])


@kernel
def admit_ready(world: World, d: int, now_s: float) -> None:
    """Let requests whose KV is in place by now_s join instance d's batch. Requests with KV in host
    memory come first."""
    decode, request = world.decode, world.request
    if decode.swapped_out[d] > 0:
        for rank in range(d * world.settings.decode_ranks, (d + 1) * world.settings.decode_ranks):
            returned_request = swap_in(world, d, rank)
            while returned_request != w.NONE:
                enter_batch(world, d, returned_request)
                returned_request = swap_in(world, d, rank)
    while decode.wait[d, w.HEAD] != w.NONE and request.ready_s[decode.wait[d, w.HEAD]] <= now_s:
        join_batch(world, d, pop(decode.wait, d, request.following), now_s)


@kernel
def deliver_first_token(world: World, i: int, now_s: float) -> None:
    """Deliver the first token of request i as it joins decode's loop. Where the router waits for
    prefill's own answer, it comes at the end of the prefill pass that ran when the KV arrived."""
    request = world.request
    if world.settings.colocated:
        return
    prefill_row, first_token_s = request.prefill_instance[i], now_s
    # None computed the prompt of a request that was inside when the run began.
    if world.settings.first_after_pass and prefill_row != w.NONE:
        pass_began_before = world.prefill.begin_s[prefill_row] <= request.ready_s[i]
        if world.instance.running[prefill_row] and pass_began_before:
            first_token_s = max(first_token_s, world.instance.ends_s[prefill_row])
    request.transfer_end_s[i] = first_token_s


@kernel
def join_batch(world: World, d: int, i: int, now_s: float) -> None:
    """Let request i, whose KV arrived, join the batch of instance d, or end after one token."""
    settings, request, decode = world.settings, world.request, world.decode
    rank = request.rank[i]
    kv_tokens = request.input_tokens[i] + request.emitted[i]
    if request.emitted[i] == 0 and settings.first_by_decode and settings.has_prefill:
        deliver_first_token(world, i, now_s)
    decode.changed[d] = 1
    decode.reserved_tokens[rank] -= kv_tokens
    in_hbm.end_begun_tokens(world, i)
    world.record.counters[w.JOINED] += 1
    request.emitted[i] += 1  # the token that prefill computed
    if settings.order == w.FAIR:
        charge_tenant(world, tenant_of(world, i), 1.0)
    request.status[i] = w.DECODING
    if request.output_tokens[i] <= request.emitted[i]:
        free_slot(world, d, i)
        end_request(world, i, max(now_s, request.ready_s[i]))
        return
    add_written_bytes(world, d, i)
    enter_batch(world, d, i)


@kernel
def enter_batch(world: World, d: int, i: int) -> None:
    """Put request i into its reserved slot and set the iteration of instance d at which it ends."""
    settings, request, decode = world.settings, world.request, world.decode
    rank = request.rank[i]
    answer_tokens_left = request.output_tokens[i] - request.emitted[i]
    iterations = iterations_needed(
        answer_tokens_left, settings.draft_tokens, settings.acceptance, settings.key_accept,
        settings.key_round, i * 64 + min(request.preemptions[i], 63),
    )  # fmt: skip
    due_iteration = decode.iteration[d] + iterations
    request.joined[i] = decode.iteration[d]
    request.due[i] = due_iteration
    ring_size = decode.calendar.shape[1]
    request.following[i] = decode.calendar[d, due_iteration % ring_size]
    decode.calendar[d, due_iteration % ring_size] = i
    slot = decode.requests[rank]
    decode.slot_table[rank, slot] = i
    request.slot[i] = slot
    decode.requests[rank] += 1
    decode.in_batch[d] += 1
    decode.context[rank] += request.input_tokens[i] + request.emitted[i]
    decode.growth[rank] += answer_tokens_left / iterations
    if settings.order == w.FAIR:
        add_tenant_growth(world, d, i, answer_tokens_left / iterations)


@kernel
def launch_decode(world: World, d: int, now_s: float) -> None:
    """Begin an iteration of instance d and set when it ends; the slowest rank sets the pace."""
    settings, decode, costs = world.settings, world.decode, world.costs
    first_rank = d * settings.decode_ranks
    operator_s = costs.decode_operators
    fill(operator_s, 0.0)
    price_exchange(world, settings.prefills + d)
    begin_kv_streams(world, d, now_s)
    iteration_s = decode_iteration_s(
        costs.decode[d], decode.requests, decode.context, first_rank, settings.decode_ranks,
        costs.decode_hot_tokens, costs.decode_hot_factor[d], operator_s,
    )  # fmt: skip
    iteration_s += begin_copies_s(world, d, now_s, operator_s)
    begin_iteration(world, d, now_s, now_s + iteration_s, 0.0, 0.0)


@kernel
def record_rank_load(world: World, d: int, begin_s: float, end_s: float) -> tuple[float, float]:
    """Add requests and context of each rank of instance d, times the seconds of an iteration, to
    its sums. Returns (tokens that the iteration adds, context tokens) of the instance."""
    settings, decode = world.settings, world.decode
    steady_s = max(0.0, min(end_s, settings.horizon_s) - max(begin_s, settings.warmup_s))
    growth, context, requests = decode.growth, decode.context, decode.requests
    request_s, context_s = decode.request_s, decode.context_s
    new_tokens = context_tokens = 0.0
    first_rank = d * settings.decode_ranks
    for rank in range(first_rank, first_rank + settings.decode_ranks):
        new_tokens += growth[rank]
        context_tokens += context[rank]
        request_s[rank] += requests[rank] * steady_s
        context_s[rank] += context[rank] * steady_s
    if steady_s > 0.0:
        span_s = end_s - begin_s
        world.record.gaps[bin_of(span_s)] += decode.in_batch[d] * steady_s / span_s
    return new_tokens, context_tokens


@kernel
def begin_iteration(
    world: World, d: int, begin_s: float, end_s: float, prompt_tokens: float, pairs: float
) -> None:
    """Start an iteration of instance d and record it: time, tokens, KV in use, operators, bytes of
    its exchange. prompt_tokens, pairs: prompt tokens and their query-key pairs, if colocated."""
    settings, record, operator_s = world.settings, world.record, world.costs.decode_operators
    instance, decode, decode_coefficients = world.instance, world.decode, world.costs.decode[d]
    column, span_s = settings.prefills + d, end_s - begin_s
    decode.iteration[d] += 1
    instance.running[column] = 1
    instance.ends_s[column] = end_s
    instance.busy_s[column] += min(end_s, settings.horizon_s) - begin_s
    new_tokens, context_tokens = record_rank_load(world, d, begin_s, end_s)
    requests = float(decode.in_batch[d])
    hbm_bytes = decode_hbm_bytes(
        decode_coefficients, requests, context_tokens, float(settings.decode_ranks)
    )
    flops = decode_flops(decode_coefficients, requests, context_tokens)
    if settings.colocated:
        flops = mixed_flops(decode_coefficients, requests, context_tokens, prompt_tokens, pairs)
    kv_space_tokens = settings.decode_ranks * decode.kv_tokens[d]
    record.fields[0], record.amounts[0] = w.ITERATIONS, 1.0
    record.fields[1], record.amounts[1] = w.ITERATION_S, span_s
    record.fields[2], record.amounts[2] = w.DECODE_TOKENS, new_tokens
    record.fields[3], record.amounts[3] = w.DECODE_BUSY_S, span_s
    record.fields[4], record.amounts[4] = w.KV_USED_S, context_tokens / kv_space_tokens * span_s
    record.fields[5], record.amounts[5] = w.HBM_BYTES, hbm_bytes
    record.fields[6], record.amounts[6] = w.FLOPS, flops
    for operator in range(operator_s.size):
        record.fields[7 + operator] = w.FIRST_OPERATOR + operator
        record.amounts[7 + operator] = operator_s[operator]
    add_evenly(record.windows, begin_s, end_s, record, 7 + operator_s.size, settings)
    instance_first_field = column * w.AT_FIELDS
    record.fields[0], record.amounts[0] = instance_first_field + w.AT_BUSY_S, span_s
    record.fields[1], record.amounts[1] = instance_first_field + w.AT_ITERATION_S, span_s
    record.fields[2], record.amounts[2] = instance_first_field + w.AT_ITERATIONS, 1.0
    add_evenly(record.instances, begin_s, end_s, record, 3, settings)
    log_pass(world, column, begin_s, end_s, decode.in_batch[d], new_tokens, operator_s)
    verified_tokens = requests * (settings.draft_tokens + 1)
    record_exchange(world, column, begin_s, end_s, verified_tokens + prompt_tokens)
    offloaded_bytes = verified_tokens * settings.offloaded_bytes_per_token
    record_traffic(world, w.OFFLOAD, settings.kv_plane, column, begin_s, end_s, offloaded_bytes)
    record_traffic(world, w.SWAP, w.UB, column, begin_s, end_s, total(decode.streaming[d]))


@kernel
def end_iteration(world: World, d: int, now_s: float) -> None:
    """End an iteration of instance d: contexts grow, due requests finish."""
    settings, request, decode = world.settings, world.request, world.decode
    first_rank = d * settings.decode_ranks
    ring_size = decode.calendar.shape[1]
    ring_place = decode.iteration[d] % ring_size
    context, growth = decode.context, decode.growth
    decode.changed[d] = 1
    for rank in range(first_rank, first_rank + settings.decode_ranks):
        context[rank] += growth[rank]
    if settings.order == w.FAIR:
        charge_iteration(world, d)
    due_request = decode.calendar[d, ring_place]
    decode.calendar[d, ring_place] = w.NONE
    while due_request != w.NONE:
        next_request = request.following[due_request]
        subtract_request(world, d, due_request)
        kv_tokens = request.input_tokens[due_request] + request.output_tokens[due_request]
        in_hbm.store_computed_blocks(world, due_request, kv_tokens)
        free_slot(world, d, due_request)
        request.emitted[due_request] = request.output_tokens[due_request]
        end_request(world, due_request, now_s)
        due_request = next_request


@kernel
def make_room(world: World, d: int, now_s: float) -> None:
    """Preempt requests on ranks of instance d until their KV fits; then evict idle blocks."""
    settings = world.settings
    context, requests = world.decode.context, world.decode.requests
    half_page_tokens = 0.5 * settings.page_tokens
    kv_space_tokens = world.decode.kv_tokens[d]
    first_rank = d * settings.decode_ranks
    for rank in range(first_rank, first_rank + settings.decode_ranks):
        while requests[rank] > 0:
            space_tokens = kv_space_tokens + in_hbm.shared_tokens(world, rank)
            if context[rank] + requests[rank] * half_page_tokens <= space_tokens:
                break
            preempt(world, d, rank, now_s)
        if settings.colocated:
            in_hbm.trim_cell(world, rank)


@kernel
def subtract_request(world: World, d: int, i: int) -> None:
    """Remove request i of instance d from its rank: slot, context, growth (tokens/iteration)."""
    request, decode = world.request, world.decode
    rank = request.rank[i]
    iterations_due = request.due[i] - request.joined[i]
    tokens_left = request.output_tokens[i] - request.emitted[i]
    tokens_per_pass = tokens_left / iterations_due
    iterations_done = decode.iteration[d] - request.joined[i]
    kv_tokens = request.input_tokens[i] + request.emitted[i]
    decode.changed[d] = 1
    decode.context[rank] -= kv_tokens + iterations_done * tokens_per_pass
    decode.growth[rank] -= tokens_per_pass
    decode.requests[rank] -= 1
    decode.in_batch[d] -= 1
    if world.settings.order == w.FAIR:
        add_tenant_growth(world, d, i, -tokens_per_pass)
    last_request = decode.slot_table[rank, decode.requests[rank]]
    decode.slot_table[rank, request.slot[i]] = last_request
    request.slot[last_request] = request.slot[i]
    if decode.requests[rank] == 0:  # no rounding outlives an empty rank
        decode.context[rank] = decode.growth[rank] = 0.0


@kernel
def free_slot(world: World, d: int, i: int) -> None:
    """Free the slot of request i on instance d, and its blocks in a prefix cache."""
    in_hbm.release_cell(world, i)
    world.decode.changed[d] = 1
    world.decode.taken[d] -= 1
    world.decode.taken_slots[world.request.rank[i]] -= 1
    world.decode.refused[d] = np.inf


@kernel
def free_reserved_slot(world: World, i: int) -> None:
    """Free the decode slot that request i had reserved."""
    if world.settings.has_decode:
        rank = world.request.rank[i]
        kv_tokens = world.request.input_tokens[i] + world.request.emitted[i]
        world.decode.reserved_tokens[rank] -= kv_tokens
        free_slot(world, rank // world.settings.decode_ranks, i)


@kernel
def end_request(world: World, i: int, now_s: float) -> None:
    """Finish request i after its last token."""
    request = world.request
    request.finish_s[i] = now_s
    first_token_s = request.transfer_end_s[i]
    if first_token_s > now_s:  # all of a short answer comes at once
        request.transfer_end_s[i] = now_s
    request.status[i] = w.FINISHED
    world.record.counters[w.FINISHED_DECODE] += 1
    if world.settings.keep_answers:
        store_answer(world, i, now_s)
    schedule_next(world, i, now_s)


@kernel
def preempt(world: World, d: int, rank: int, now_s: float) -> None:
    """Preempt the request that joined a full rank of instance d last. Its KV goes to host memory
    and comes back later; without room there it is lost and recomputed. A request that does not fit
    although no other is on the rank is rejected."""
    request, decode = world.request, world.decode
    victim = decode.slot_table[rank, 0]
    for slot in range(1, decode.requests[rank]):
        candidate = decode.slot_table[rank, slot]
        if (request.joined[candidate], candidate) > (request.joined[victim], victim):
            victim = candidate
    is_only_request = decode.requests[rank] == 1
    take_from_batch(world, d, victim)
    is_swapped = not is_only_request and swap_out(world, d, victim)
    if not is_swapped:
        free_slot(world, d, victim)
        request.ready_s[victim] = now_s
    if is_only_request:
        request.status[victim], request.reason[victim] = w.REJECTED, w.OUTGREW_DECODE
        world.record.counters[w.REJECTED_DECODE] += 1
        schedule_next(world, victim, now_s)
        return
    request.preemptions[victim] += 1
    add_at(world.record.windows, now_s, w.PREEMPTIONS, 1.0, world.settings)
    if not is_swapped:
        request.status[victim] = w.WAITING
        world.record.counters[w.PREEMPTED] += 1
        append(decode.returned, 0, request.following, victim)


@kernel
def remove_running(world: World, d: int, i: int) -> None:
    """Remove running request i from instance d's batch and slot; emitted tokens stay emitted."""
    take_from_batch(world, d, i)
    free_slot(world, d, i)


@kernel
def take_from_batch(world: World, d: int, i: int) -> None:
    """Remove running request i from instance d's batch and calendar, but not from its slot."""
    request, calendar = world.request, world.decode.calendar
    ring_place = request.due[i] % calendar.shape[1]
    request_before, due_request = w.NONE, calendar[d, ring_place]
    while due_request != i:
        request_before, due_request = due_request, request.following[due_request]
    if request_before == w.NONE:
        calendar[d, ring_place] = request.following[i]
    else:
        request.following[request_before] = request.following[i]
    request.following[i] = w.NONE
    iterations_done = world.decode.iteration[d] - request.joined[i]
    iterations_due = request.due[i] - request.joined[i]
    tokens_left = request.output_tokens[i] - request.emitted[i]
    subtract_request(world, d, i)
    new_tokens = tokens_left * iterations_done / iterations_due
    request.emitted[i] += int(new_tokens)
    world.record.rounded_tokens[0] += new_tokens - int(new_tokens)
