"""Admission: who waits for the router in which order, and who is refused.

Prefill queues keep the same order. Fair queues are in order of arrival, and who is next is chosen
when there is room (engine/clients/fair.py). Shedding refuses by a TTFT that the router predicts."""

from twin.engine import codes as w
from twin.engine.clients.fair import begin_waiting, line_up
from twin.engine.clients.returns import LET_IN, ask_again, tenant_of
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import kv_bytes
from twin.engine.lists import append, insert
from twin.kernels.compiled import kernel

BURST_S = 1.0  # a token bucket holds what comes in so long
CLASS = 1e9  # places between two priorities: longer than any run, in seconds


@kernel
def take_in(world: World, t0: float, t1: float) -> None:
    """Queue requests that left the front end by t1, or refuse them."""
    request, counters, gate = world.request, world.record.counters, world.gate
    while counters[w.ROUTER_SEEN] < counters[w.FRONTED]:
        i = counters[w.ROUTER_SEEN]
        if request.status[i] != w.CANCELLED:
            now_s = max(t0, request.ready_s[i])
            if now_s > t1:
                return
            reason = beyond_limits(world, i, now_s)
            if reason:
                refuse(world, i, reason, now_s)
            else:
                hold(world, i)
                if world.settings.order == w.PRIORITY:
                    insert(gate.wait, 0, request.following, request.place, request.progress, i)
                else:
                    append(gate.wait, 0, request.following, i)
        counters[w.ROUTER_SEEN] += 1


@kernel
def beyond_limits(world: World, i: int, now_s: float) -> int:
    """Reason code for refusing a request that arrives now; 0: it is not refused."""
    gate, tenant = world.gate, tenant_of(world, i)
    all_tenants = gate.inside.size - 1
    for row in (tenant, all_tenants):
        if gate.most[row] > 0 and gate.inside[row] >= gate.most[row]:
            return w.ABOVE_CONCURRENCY
        if gate.rate[row] > 0.0:
            most_tokens = max(1.0, BURST_S * gate.rate[row])
            refilled_tokens = gate.tokens[row] + (now_s - gate.filled_s[row]) * gate.rate[row]
            gate.tokens[row], gate.filled_s[row] = min(refilled_tokens, most_tokens), now_s
            if gate.tokens[row] < 1.0:
                return w.ABOVE_RATE
    for row in (tenant, all_tenants):
        gate.tokens[row] -= gate.rate[row] > 0.0
    return 0


@kernel
def hold(world: World, i: int) -> None:
    """Admit a request and set its position in the queues."""
    settings, request, gate = world.settings, world.request, world.gate
    tenant = tenant_of(world, i)
    request.held[i] = LET_IN
    gate.inside[tenant] += 1
    gate.inside[gate.inside.size - 1] += 1
    if settings.order == w.PRIORITY:
        request.place[i] = request.arrival_s[i] - gate.priority[tenant] * CLASS
    elif settings.order == w.FAIR:
        begin_waiting(world, i)


@kernel
def refuse(world: World, i: int, reason: int, now_s: float) -> None:
    """Refuse a request; its client may retry."""
    request = world.request
    request.status[i] = w.REJECTED
    request.reason[i] = reason
    request.ready_s[i] = now_s
    world.record.counters[w.REJECTED_ROUTER] += 1
    ask_again(world, i, now_s, now_s)


@kernel
def prefilled_in_s(world: World, p: int, i: int, hit: int, own_s: float, now_s: float) -> float:
    """Seconds until the end of the batch of instance p that a new request would join last: the
    running batch, the batches ahead, and its own batch, which later requests may fill up."""
    settings, request, prefill = world.settings, world.request, world.prefill
    column = settings.prompt_row + p
    ends_s, is_running = world.instance.ends_s[column], world.instance.running[column]
    budget, pass_s = settings.prefill_budget, prefill.pass_s[p]
    batch_tokens, left_s = int(prefill.batch_tokens[p]), 0.0
    batch_s = batch_tokens * prefill.s_per_token[p] + prefill.batch_pairs[p] * prefill.s_per_pair[p]
    if prefill.reading[p]:
        left_s = max(0.0, prefill.read_end_s[p] - now_s) + pass_s + batch_s
    elif is_running:
        left_s = ends_s - now_s
        if settings.colocated:  # the next iterations decode as this one does
            pass_s = max(pass_s, ends_s - prefill.begin_s[p] - batch_s)
    else:
        batch_tokens = 0
    own_tokens = max(request.input_tokens[i] + request.emitted[i] - hit, 1)
    ahead_tokens, kv_tokens, ahead_s = waiting_before(world, p, i)
    tokens, kv_tokens = ahead_tokens + own_tokens, kv_tokens + hit + own_tokens
    # A batch is full by what it computes, or by the KV that it holds.
    budget = max(1, min(budget, settings.batch_kv_tokens * tokens // kv_tokens))
    batches = -(-tokens // budget)  # batches, its own the last
    if batches > 1:
        batch_tokens = budget
    elif left_s <= 0.0 and ahead_tokens > 0:  # the batch of those ahead has begun within this step
        batches, batch_tokens = 2, ahead_tokens
    ahead_s += own_s
    later_tokens = max(0, min(budget, batch_tokens) - (tokens - (batches - 1) * budget))
    return max(0.0, left_s + batches * pass_s + ahead_s * (1.0 + later_tokens / tokens))


@kernel
def waiting_before(world: World, p: int, i: int) -> tuple[int, int, float]:
    """Work at instance p ahead of a request: uncached tokens, all tokens, seconds."""
    settings, request = world.settings, world.request
    if settings.order == w.FAIR:
        line_up(world, p, i)
    new_tokens, all_tokens, work_s = 0, 0, 0.0
    item = world.prefill.queue[p, w.HEAD]
    while item != w.NONE:
        length = request.input_tokens[item] + request.emitted[item]
        if request.progress[item] != w.NONE:  # a part of it is computed
            tokens_left = length - request.progress[item]
            new_tokens += tokens_left
            all_tokens += length
            work_s += request.work_s[item] * tokens_left / request.fresh_tokens[item]
        elif settings.order == w.FIFO or request.place[item] <= request.place[i]:
            new_tokens += request.fresh_tokens[item]
            all_tokens += length
            work_s += request.work_s[item]
        item = request.following[item]
    return new_tokens, all_tokens, work_s


@kernel
def handed_over_in_s(world: World, p: int, i: int) -> float:
    """Seconds of a request's KV transfer to decode if its ports carry nothing else."""
    settings, state = world.settings, world.transfer
    if settings.colocated or not settings.has_decode:
        return 0.0
    port_rate = state.capacity[state.port_of_prefill[p, 0]]
    sent_bytes = kv_bytes(world, i) * settings.through_port
    return 0.0 if port_rate <= 0.0 else settings.transfer_latency_s + sent_bytes / port_rate
