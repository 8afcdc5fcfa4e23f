"""Admission: who waits for the router in which order, and who is refused.

Prefill queues keep the same order. Fair queues are in order of arrival, and who is next is chosen
when there is room (engine/clients/fair.py). Shedding refuses by a TTFT that the router predicts."""

from twin.engine import codes as w
from twin.engine.clients.fair import begin_waiting, set_fair_places
from twin.engine.clients.returns import LET_IN, schedule_next, schedule_retry, tenant_of
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import kv_bytes
from twin.engine.lists import append, insert_by_place
from twin.kernels.compiled import kernel

BURST_S = 1.0  # a token bucket holds what comes in so long
CLASS = 1e9  # places between two priorities: longer than any run, in seconds


@kernel
def admit_arrivals(world: World, t0: float, t1: float) -> None:
    """Queue or refuse requests that left the front end by t1; t0, t1: the step's begin and end."""
    request, counters, gate = world.request, world.record.counters, world.gate
    while counters[w.ROUTER_SEEN] < counters[w.FRONTED]:
        next_row = counters[w.ROUTER_SEEN]
        if request.status[next_row] != w.CANCELLED:
            now_s = max(t0, request.ready_s[next_row])
            if now_s > t1:
                return
            reason_code = check_limits(world, next_row, now_s)
            if reason_code:
                refuse(world, next_row, reason_code, now_s, False)
            else:
                admit_request(world, next_row)
                if world.settings.order == w.PRIORITY:
                    insert_by_place(
                        gate.wait, 0, request.following, request.place, request.progress, next_row
                    )
                else:
                    append(gate.wait, 0, request.following, next_row)
        counters[w.ROUTER_SEEN] += 1


@kernel
def check_limits(world: World, i: int, now_s: float) -> int:
    """Code of the limit that refuses request i at now_s (s); 0 if none does. Then it takes a token
    of the buckets that limit the rates of its tenant and of the machine."""
    gate, tenant = world.gate, tenant_of(world, i)
    machine_row = gate.inside.size - 1
    for limit in (tenant, machine_row):
        if gate.most[limit] > 0 and gate.inside[limit] >= gate.most[limit]:
            return w.ABOVE_CONCURRENCY
        if gate.rate[limit] > 0.0:
            bucket_capacity = max(1.0, BURST_S * gate.rate[limit])
            bucket_level = gate.tokens[limit] + (now_s - gate.filled_s[limit]) * gate.rate[limit]
            gate.tokens[limit], gate.filled_s[limit] = min(bucket_level, bucket_capacity), now_s
            if gate.tokens[limit] < 1.0:
                return w.ABOVE_RATE
    for limit in (tenant, machine_row):
        gate.tokens[limit] -= gate.rate[limit] > 0.0
    return 0


@kernel
def admit_request(world: World, i: int) -> None:
    """Let request i in: count it in its tenant's requests inside, set its place in the queues."""
    settings, request, gate = world.settings, world.request, world.gate
    tenant_index = tenant_of(world, i)
    request.held[i] = LET_IN
    gate.inside[tenant_index] += 1
    gate.inside[gate.inside.size - 1] += 1
    if settings.order == w.PRIORITY:
        request.place[i] = request.arrival_s[i] - gate.priority[tenant_index] * CLASS
    elif settings.order == w.FAIR:
        begin_waiting(world, i)


@kernel
def refuse(world: World, i: int, reason: int, now_s: float, is_final: bool) -> None:
    """Refuse request i for the reason with this code; its client may retry unless that is_final."""
    request = world.request
    request.status[i], request.reason[i], request.ready_s[i] = w.REJECTED, reason, now_s
    world.record.counters[w.REJECTED_ROUTER] += 1
    if is_final:
        schedule_next(world, i, now_s)
    else:
        schedule_retry(world, i, now_s, now_s)


@kernel
def prefill_end_in_s(world: World, p: int, i: int, hits: int, own_s: float, now_s: float) -> float:
    """Seconds from now_s until the end of the batch of instance p that a new request i would join
    last: the running batch, the batches ahead and its own, which later requests may fill up. hits:
    cached tokens of i; own_s: the seconds that i adds to a batch."""
    settings, request, prefill = world.settings, world.request, world.prefill
    column = settings.prompt_row + p
    ends_s, is_running = world.instance.ends_s[column], world.instance.running[column]
    budget, pass_s = settings.prefill_budget, prefill.pass_s[p]
    batch_tokens, busy_s = int(prefill.batch_tokens[p]), 0.0
    batch_s = batch_tokens * prefill.s_per_token[p] + prefill.batch_pairs[p] * prefill.s_per_pair[p]
    if prefill.reading[p]:
        busy_s = max(0.0, prefill.read_end_s[p] - now_s) + pass_s + batch_s
    elif is_running:
        busy_s = ends_s - now_s
        if settings.colocated:  # the next iterations decode as this one does
            pass_s = max(pass_s, ends_s - prefill.begin_s[p] - batch_s)
    else:
        batch_tokens = 0
    uncached_tokens = max(request.input_tokens[i] + request.emitted[i] - hits, 1)
    tokens_ahead, kv_tokens, ahead_s = work_ahead(world, p, i)
    tokens_to_end, kv_tokens = tokens_ahead + uncached_tokens, kv_tokens + hits + uncached_tokens
    # A batch is full by what it computes, or by the KV that it holds.
    budget = max(1, min(budget, settings.batch_kv_tokens * tokens_to_end // kv_tokens))
    batch_count = -(-tokens_to_end // budget)  # batches, its own the last
    if batch_count > 1:
        batch_tokens = budget
    elif busy_s <= 0.0 and tokens_ahead > 0:  # the batch of those ahead has begun within this step
        batch_count, batch_tokens = 2, tokens_ahead
    ahead_s += own_s
    fill_tokens = max(0, min(budget, batch_tokens) - (tokens_to_end - (batch_count - 1) * budget))
    return max(0.0, busy_s + batch_count * pass_s + ahead_s * (1.0 + fill_tokens / tokens_to_end))


@kernel
def work_ahead(world: World, p: int, i: int) -> tuple[int, int, float]:
    """(uncached tokens, all tokens, seconds) of work queued at instance p ahead of request i."""
    settings, request = world.settings, world.request
    if settings.order == w.FAIR:
        set_fair_places(world, p, i)
    uncached_tokens, prompt_token_sum, work_s = 0, 0, 0.0
    request_row = world.prefill.queue[p, w.HEAD]
    while request_row != w.NONE:
        prompt_tokens = request.input_tokens[request_row] + request.emitted[request_row]
        if request.progress[request_row] != w.NONE:  # a part of it is computed
            tokens_left = prompt_tokens - request.progress[request_row]
            uncached_tokens += tokens_left
            prompt_token_sum += prompt_tokens
            work_s += request.work_s[request_row] * tokens_left / request.fresh_tokens[request_row]
        elif settings.order == w.FIFO or request.place[request_row] <= request.place[i]:
            uncached_tokens += request.fresh_tokens[request_row]
            prompt_token_sum += prompt_tokens
            work_s += request.work_s[request_row]
        request_row = request.following[request_row]
    return uncached_tokens, prompt_token_sum, work_s


@kernel
def lone_transfer_s(world: World, p: int, i: int) -> float:
    """Seconds of request i's KV transfer from instance p with free ports; 0: none, or a dead
    port."""
    settings, transfers = world.settings, world.transfer
    if settings.colocated or not settings.has_decode:
        return 0.0
    bytes_per_s = transfers.capacity[transfers.port_of_prefill[p, 0]]
    port_bytes = kv_bytes(world, i) * settings.through_port
    return 0.0 if bytes_per_s <= 0.0 else settings.transfer_latency_s + port_bytes / bytes_per_s
