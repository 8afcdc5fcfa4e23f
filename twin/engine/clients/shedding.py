"""Load shedding: what the router predicts of a request's TTFT before it lets it in."""

from twin.engine import codes as w
from twin.engine.clients.fair import line_up
from twin.engine.columns import World
from twin.engine.contention.kv_transfer import kv_bytes
from twin.kernels.compiled import kernel


@kernel
def prefilled_in_s(world: World, p: int, i: int, hit: int, own_s: float, now_s: float) -> float:
    """Seconds until the end of the batch of instance p that a new request would join last: the
    running batch, the batches ahead, and its own batch, which later requests may fill up."""
    settings, request, prefill = world.settings, world.request, world.prefill
    column = settings.prompt_row + p
    ends_s, running = world.instance.ends_s[column], world.instance.running[column]
    budget, pass_s = settings.prefill_budget, prefill.pass_s[p]
    batch_tokens, left_s = int(prefill.batch_tokens[p]), 0.0
    begun_s = batch_tokens * prefill.s_per_token[p] + prefill.batch_pairs[p] * prefill.s_per_pair[p]
    if prefill.reading[p]:
        left_s = max(0.0, prefill.read_end_s[p] - now_s) + pass_s + begun_s
    elif running:
        left_s = ends_s - now_s
        if settings.colocated:  # the next iterations decode as this one does
            pass_s = max(pass_s, ends_s - prefill.begin_s[p] - begun_s)
    else:
        batch_tokens = 0
    own_tokens = max(request.input_tokens[i] + request.emitted[i] - hit, 1)
    ahead, waiting_requests, ahead_s = waiting_before(world, p, i)
    tokens, waiting_requests = ahead + own_tokens, waiting_requests + hit + own_tokens
    # A batch is full by what it computes, or by the KV that it holds.
    budget = max(1, min(budget, settings.batch_kv_tokens * tokens // waiting_requests))
    last = -(-tokens // budget)  # batches, its own the last
    if last > 1:
        batch_tokens = budget
    elif left_s <= 0.0 and ahead > 0:  # the batch of those ahead has begun within this step
        last, batch_tokens = 2, ahead
    ahead_s += own_s
    later = max(0, min(budget, batch_tokens) - (tokens - (last - 1) * budget))
    return max(0.0, left_s + last * pass_s + ahead_s * (1.0 + later / tokens))


@kernel
def waiting_before(world: World, p: int, i: int) -> tuple[int, int, float]:
    """Work at instance p ahead of a request: uncached tokens, all tokens, seconds."""
    settings, request = world.settings, world.request
    if settings.order == w.FAIR:
        line_up(world, p, i)
    tokens, requests, seconds = 0, 0, 0.0
    item = world.prefill.queue[p, w.HEAD]
    while item != w.NONE:
        length = request.input_tokens[item] + request.emitted[item]
        if request.progress[item] != w.NONE:  # a part of it is computed
            tokens_left = length - request.progress[item]
            tokens += tokens_left
            requests += length
            seconds += request.work_s[item] * tokens_left / request.fresh_tokens[item]
        elif settings.order == w.FIFO or request.place[item] <= request.place[i]:
            tokens += request.fresh_tokens[item]
            requests += length
            seconds += request.work_s[item]
        item = request.following[item]
    return tokens, requests, seconds


@kernel
def handed_over_in_s(world: World, p: int, i: int) -> float:
    """Seconds of a request's KV transfer to decode if its ports carry nothing else."""
    settings, state = world.settings, world.transfer
    if settings.colocated or not settings.has_decode:
        return 0.0
    pace = state.capacity[state.port_of_prefill[p, 0]]
    size = kv_bytes(world, i) * settings.through_port
    return 0.0 if pace <= 0.0 else settings.transfer_latency_s + size / pace
