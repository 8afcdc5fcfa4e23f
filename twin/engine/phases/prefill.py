"""Phase: prefill instances look up the memory pool, form batches, compute, and store new blocks."""

import math

from twin.engine import codes as w
from twin.engine import in_hbm, pool
from twin.engine.books import add_at, add_evenly, log_pass, record_amount
from twin.engine.clients.fair import bring_forward, charge_prompt
from twin.engine.clients.returns import cancel_request, schedule_next
from twin.engine.columns import World
from twin.engine.contention.traffic import price_exchange, record_exchange, restore_ports
from twin.engine.lists import append, fill, list_length, pop, remove_after
from twin.engine.phases.decode import free_reserved_slot
from twin.kernels.compiled import kernel
from twin.model import prefill as physics
from twin.policies.batching import tokens_to_take
from twin.policies.router import SEES_HITS


@kernel
def advance_prefill(world: World, t1: float) -> None:
    """Advance every prefill instance to t1 (s): batches end and begin at their exact times."""
    prefill_state, instance = world.prefill, world.instance
    for p in range(prefill_state.queue.shape[0]):
        while instance.up[p]:
            if prefill_state.reading[p]:
                read_end_s = max(prefill_state.read_end_s[p], instance.ends_s[p])
                if read_end_s > t1:
                    break
                compute_batch(world, p, read_end_s)
            if instance.running[p]:
                if instance.ends_s[p] > t1:
                    break
                finish_batch(world, p)
            first_waiting = prefill_state.queue[p, w.HEAD]
            if first_waiting == w.NONE:
                break
            start_s = max(instance.ends_s[p], world.request.ready_s[first_waiting])
            if start_s > t1:
                break
            form_batch(world, p, start_s)
            if prefill_state.batch_reads[p] > 0.0:
                pool.begin_reading(world, p, start_s)
            else:
                compute_batch(world, p, start_s)
    if world.settings.stages > 1 and not world.settings.has_decode:
        end_after_last_stage(world, t1)


@kernel
def begin_prefill(world: World, i: int, hits: int, reads: int, now_s: float) -> None:
    """Stamp the begin of request i's prefill. hits: cached tokens; reads: of these, not in HBM."""
    settings, request = world.settings, world.request
    prompt_tokens = request.input_tokens[i] + request.emitted[i]
    request.progress[i] = hits
    if request.emitted[i] == 0:
        request.hit_tokens[i], request.prefill_start_s[i] = hits, now_s
    if request.emitted[i] == 0 and request.retries[i] == 0:
        add_at(world.record.windows, now_s, w.PROMPT_TOKENS, float(prompt_tokens), settings)
        add_at(world.record.windows, now_s, w.HIT_TOKENS, float(hits), settings)
        if hits > reads:
            add_at(world.record.windows, now_s, w.HBM_HIT_TOKENS, float(hits - reads), settings)
    request.status[i] = w.PREFILLING
    if settings.order == w.FAIR:
        charge_prompt(world, i)
    world.record.counters[w.PREFILL_BEGUN] += 1


@kernel
def form_batch(world: World, p: int, now_s: float) -> int:
    """Add chunks of queued prompts to instance p's batch in order of arrival until its token budget
    or KV space is full; returns tokens to compute. Notes tokens to read and attention pairs."""
    settings, request, prefill = world.settings, world.request, world.prefill
    fill(prefill.die_tokens, 0.0)
    fill(prefill.die_pairs, 0.0)
    if settings.colocated:
        for rank in range(p * settings.decode_ranks, (p + 1) * settings.decode_ranks):
            world.decode.prompt_tokens[rank] = world.decode.prompt_pairs[rank] = 0.0
    prefill.cold_blocks[0] = 0
    pool.clear_servers(world, p)
    pool.set_pool_clock(world, p, now_s)
    batch_tokens, kv_tokens, hit_tokens, read_tokens, batch_pairs, hbm_blocks = 0, 0, 0, 0, 0.0, 0
    previous_request = w.NONE  # the last prompt that stays in the queue with a part of it
    latest_s = latest_arrival_s(world, p, now_s)
    i = w.NONE if must_wait_for_ranks(world, p, latest_s) else prefill.queue[p, w.HEAD]
    while i != w.NONE and request.ready_s[i] <= latest_s and batch_tokens < settings.prefill_budget:
        if settings.order == w.FAIR and request.progress[i] == w.NONE:
            i = bring_forward(world, prefill.queue, p, previous_request, latest_s, False)
        is_first_chunk = request.progress[i] == w.NONE  # who came forward may be computed in part
        if settings.colocated and rank_room_tokens(world, p, i) <= 0:  # ranks of others have room
            previous_request, i = i, request.following[i]
            continue
        die = die_for_chunk(world, p, i, is_first_chunk) if settings.data_parallel_attention else 0
        kv_cell = request.rank[i] if settings.colocated else in_hbm.first_kv_cell(world, p) + die
        cached_tokens = request.progress[i]
        if is_first_chunk:
            hbm_blocks = in_hbm.blocks_in_cell(world, kv_cell, i) if settings.in_hbm else 0
            cached_tokens = pool.cached_tokens(world, p, i, hbm_blocks)
        tokens_left = request.input_tokens[i] + request.emitted[i] - cached_tokens
        chunk_tokens = next_chunk_tokens(world, p, i, die, cached_tokens, tokens_left, batch_tokens)
        new_kv_tokens = kv_tokens + cached_tokens + chunk_tokens
        is_kv_full = batch_tokens > 0 and new_kv_tokens > settings.batch_kv_tokens
        if chunk_tokens <= 0 or is_kv_full:
            break
        if is_first_chunk:
            pool_tokens = max(cached_tokens - hbm_blocks * settings.block_tokens, 0)
            begin_prefill(world, i, cached_tokens, pool_tokens, now_s)
            in_hbm.claim_cell(world, kv_cell, i, hbm_blocks)
            hit_tokens += cached_tokens
            read_tokens += pool_tokens
            if pool_tokens > 0:
                prefill.cold_blocks[0] += pool.count_reads(world, p, i, cached_tokens, hbm_blocks)
        # Each token attends to all before it.
        attention_pairs = chunk_tokens * (cached_tokens + 0.5 * (chunk_tokens + 1))
        prefill.die_tokens[die] += chunk_tokens
        prefill.die_pairs[die] += attention_pairs
        if settings.colocated:
            add_chunk_to_ranks(world, p, i, float(chunk_tokens), attention_pairs)
        batch_tokens += chunk_tokens
        kv_tokens = new_kv_tokens
        batch_pairs += attention_pairs
        request.progress[i] += chunk_tokens
        next_request = request.following[i]
        if chunk_tokens == tokens_left:
            remove_after(prefill.queue, p, request.following, previous_request, i)
            append(prefill.batch, p, request.following, i)
        else:
            previous_request = i
        i = next_request
    first_request = prefill.queue[p, w.HEAD]
    if batch_tokens > 0 and first_request != w.NONE and request.ready_s[first_request] <= latest_s:
        prefill.delayed[p] = settings.prompt_delay  # what is left of a release waits no further
    prefill.batch_reads[p] = read_tokens
    note_batch(world, p, now_s, float(batch_tokens), float(hit_tokens), batch_pairs)
    note_ending_work(world, p)
    return batch_tokens


@kernel
def latest_arrival_s(world: World, p: int, now_s: float) -> float:
    """Latest arrival (s) of prompts that a pass of instance p beginning now can include. A
    colocated instance that decodes receives prompts every receive_every iterations and after one
    with prompts; if passes are formed ahead, only those that arrived before the running pass."""
    settings, prefill = world.settings, world.prefill
    if not settings.colocated:
        return now_s
    prefill.unseen[p] += 1
    if world.decode.in_batch[p] == 0:
        prefill.unseen[p], prefill.seen_s[p] = 0, now_s
    elif prefill.unseen[p] >= settings.receive_every or prefill.batch_tokens[p] > 0.0:
        prefill.unseen[p] = 0
        prefill.seen_s[p] = prefill.begin_s[p] if settings.runs_ahead else now_s
    return float(prefill.seen_s[p])


@kernel
def must_wait_for_ranks(world: World, p: int, now_s: float) -> bool:
    """Whether prompts of colocated instance p wait until all groups of ranks have prompts; counts
    such waits. They never wait while nothing decodes, as no iteration would run."""
    settings, prefill = world.settings, world.prefill
    if not settings.colocated or settings.prompt_delay == 0 or world.decode.in_batch[p] == 0:
        return False
    count_with_prompts = groups_with_prompts(world, p, now_s)
    group_count = math.ceil(settings.decode_ranks / settings.prompt_ranks)
    if count_with_prompts in (0, group_count) or prefill.delayed[p] == settings.prompt_delay:
        prefill.delayed[p] = 0
        return False
    prefill.delayed[p] += 1
    return True


@kernel
def groups_with_prompts(world: World, p: int, now_s: float) -> int:
    """Number of groups of prompt-sharing ranks of instance p in which a prompt waits at now_s."""
    rank_marks, first_rank = world.decode.prompt_tokens, p * world.settings.decode_ranks
    group_count, queued_request = 0, world.prefill.queue[p, w.HEAD]
    while queued_request != w.NONE and world.request.ready_s[queued_request] <= now_s:
        sharing_rank, _ = ranks_of_prompt(world, p, queued_request)
        group_count += rank_marks[sharing_rank] == 0.0
        rank_marks[sharing_rank] = 1.0
        queued_request = world.request.following[queued_request]
    for rank in range(first_rank, first_rank + world.settings.decode_ranks):
        rank_marks[rank] = 0.0
    return group_count


@kernel
def attention_s(world: World, p: int, die: int) -> float:
    """Seconds of attention in a layer on a die (or die group) of instance p, without launches."""
    prefill, s_per_pair = world.prefill, world.costs.prefill[p].core.pair
    token_work_s = prefill.attention_s_per_token[p] * prefill.die_tokens[die]
    return float(token_work_s + s_per_pair * prefill.die_pairs[die])


@kernel
def die_for_chunk(world: World, p: int, i: int, is_first_chunk: bool) -> int:
    """Die of instance p, or group of dies that split prompts, that takes request i's next chunk:
    with the fewest tokens (with `even_attention` the least attention work) or, for a first chunk
    where the router looks for hits in HBM, the fewest minus hits."""
    if is_first_chunk and world.settings.in_hbm and world.settings.router_policy in SEES_HITS:
        return in_hbm.lightest_cell(world, p, i, world.prefill.die_tokens)
    prefill, lightest_die, layout = world.prefill, 0, world.costs.prefill[p].layout
    for die in range(1, int(layout.dies / layout.context_dies)):
        is_lighter = prefill.die_tokens[die] < prefill.die_tokens[lightest_die]
        if world.settings.even_attention:
            is_lighter = attention_s(world, p, die) < attention_s(world, p, lightest_die)
        if is_lighter:
            lightest_die = die
    return lightest_die


@kernel
def tokens_to_even_share(world: World, p: int, die: int, tokens_before: int) -> int:
    """Prompt tokens, following `tokens_before` of the prompt, until a die of instance p has its
    even share of attention seconds."""
    prefill, prices = world.prefill, world.costs.prefill[p]
    token_s, pair_s = prefill.attention_s_per_token[p], prices.core.pair
    mean_context_tokens = prefill.computed_pairs[p] / max(prefill.computed_tokens[p], 1.0)
    group_count = prices.layout.dies / prices.layout.context_dies
    group_s = world.settings.prefill_budget / group_count * (token_s + mean_context_tokens * pair_s)
    seconds_left = group_s - attention_s(world, p, die)
    if seconds_left <= 0.0:
        return 0
    next_s = token_s + tokens_before * pair_s
    return max(1, int((math.sqrt(next_s**2 + 2.0 * pair_s * seconds_left) - next_s) / pair_s))


@kernel
def next_chunk_tokens(
    world: World, p: int, i: int, die: int, held: int, remaining: int, taken: int
) -> int:
    """Tokens of request i that join instance p's batch now. held: its tokens computed or cached so
    far; remaining: its other tokens; taken: tokens of other prompts in the batch. With equal
    attention a die gets at most its share, a rank of a colocated instance its chunk."""
    settings = world.settings
    budget_left = settings.prefill_budget - taken
    if settings.colocated:
        return min(remaining, budget_left, rank_room_tokens(world, p, i))
    if not (settings.data_parallel_attention and settings.even_attention):
        return tokens_to_take(remaining, budget_left, max_chunk_tokens(world, p, held), taken == 0)
    limit_tokens = max_chunk_tokens(world, p, held) if settings.chunk_tokens > 0 else remaining
    return min(remaining, budget_left, tokens_to_even_share(world, p, die, held), limit_tokens)


@kernel
def max_chunk_tokens(world: World, p: int, tokens_before: int) -> int:
    """Most tokens of a prompt's next chunk at instance p after `tokens_before`; 0: no limit."""
    settings = world.settings
    if settings.chunk_evening <= 0.0:
        return settings.chunk_tokens
    s_per_token, s_per_pair = world.prefill.s_per_token[p], world.prefill.s_per_pair[p]
    next_tokens = physics.next_piece(
        settings.chunk_tokens, settings.chunk_evening, s_per_token, s_per_pair, tokens_before
    )
    return max(1, int(next_tokens))


@kernel
def ranks_of_prompt(world: World, p: int, i: int) -> tuple[int, int]:
    """Ranks (first, one after the last) that share request i's prompt on colocated instance p."""
    ranks, group_size = world.settings.decode_ranks, world.settings.prompt_ranks
    group_start = (world.request.rank[i] - p * ranks) // group_size * group_size
    return p * ranks + group_start, p * ranks + min(group_start + group_size, ranks)


@kernel
def rank_room_tokens(world: World, p: int, i: int) -> int:
    """Prompt tokens that request i's ranks on instance p can still compute in this iteration."""
    first_rank, end_rank = ranks_of_prompt(world, p, i)
    chunk_tokens_left = world.settings.chunk_tokens - world.decode.prompt_tokens[first_rank]
    return int(chunk_tokens_left * (end_rank - first_rank))


@kernel
def add_chunk_to_ranks(world: World, p: int, i: int, tokens: float, pairs: float) -> None:
    """Add the tokens and query-key pairs of a chunk of request i's prompt, in equal parts, to the
    ranks of instance p that share the request."""
    first_rank, end_rank = ranks_of_prompt(world, p, i)
    for rank in range(first_rank, end_rank):
        world.decode.prompt_tokens[rank] += tokens / (end_rank - first_rank)
        world.decode.prompt_pairs[rank] += pairs / (end_rank - first_rank)


@kernel
def note_ending_work(world: World, p: int) -> None:
    """Store the tokens and predicted seconds that leave instance p's queue when its batch ends."""
    prefill, request = world.prefill, world.request
    ending_tokens, ending_work_s = 0, 0.0
    batch_request = prefill.batch[p, w.HEAD]
    while batch_request != w.NONE:
        ending_tokens += request.input_tokens[batch_request] + request.emitted[batch_request]
        ending_work_s += request.work_s[batch_request]
        batch_request = request.following[batch_request]
    prefill.ending_tokens[p], prefill.ending_s[p] = ending_tokens, ending_work_s


@kernel
def leave_queue(world: World, p: int, i: int) -> None:
    """Subtract request i, no longer waiting or computing there, from instance p's queued work."""
    prefill, request = world.prefill, world.request
    if not world.settings.colocated:
        in_hbm.release_cell(world, i)
    prefill.queued_tokens[p] -= request.input_tokens[i] + request.emitted[i]
    prefill.queued_s[p] -= request.work_s[i]


@kernel
def note_batch(world: World, p: int, now_s: float, taken: float, hits: float, pairs: float) -> None:
    """Store tokens (`taken`), cached tokens (`hits`) and attention pairs of instance p's batch, and
    tokens and pairs of its slowest die."""
    prefill = world.prefill
    prefill.begin_s[p], prefill.batch_tokens[p] = now_s, taken
    prefill.batch_hits[p], prefill.batch_pairs[p] = hits, pairs
    if world.settings.colocated:  # priced over all its dies
        return
    prefill.computed_tokens[p] += taken
    prefill.computed_pairs[p] += pairs
    die_count = world.costs.prefill[p].layout.dies
    prefill.most_tokens[p] = taken / die_count
    prefill.most_pairs[p] = pairs / die_count
    if world.settings.data_parallel_attention:
        slowest_die, dies_per_prompt = 0, world.costs.prefill[p].layout.context_dies
        for die in range(1, int(die_count / dies_per_prompt)):
            if attention_s(world, p, die) > attention_s(world, p, slowest_die):
                slowest_die = die
        prefill.most_tokens[p] = prefill.die_tokens[slowest_die] / dies_per_prompt
        prefill.most_pairs[p] = prefill.die_pairs[slowest_die] / dies_per_prompt


@kernel
def compute_batch(world: World, p: int, now_s: float) -> None:
    """Set the end of instance p's batch, whose cached KV has been read, and record it from the time
    it was formed. With layer-wise reads computing begins when the first layer has arrived."""
    settings, state, costs = world.settings, world.prefill, world.costs
    operator_s = costs.prefill_operators
    fill(operator_s, 0.0)
    price_exchange(world, p)
    prices = costs.prefill[p]
    compute_s = physics.prefill_batch_s(
        prices, state.batch_tokens[p], state.most_tokens[p], state.most_pairs[p],
        costs.prefill_hot_tokens, costs.prefill_hot_factor[p], operator_s,
    )  # fmt: skip
    if state.batch_hits[p] > 0.0:
        compute_s += physics.prefill_hits_s(prices, state.batch_hits[p], operator_s)
    end_s = now_s + compute_s
    if settings.layerwise:
        end_s = state.begin_s[p] + physics.layerwise_s(prices, now_s - state.begin_s[p], compute_s)
    pool.record_read_delay(world, p)
    state.reading[p], world.instance.running[p], world.instance.ends_s[p] = 0, 1, end_s
    set_stage_ends(world, p, end_s, compute_s)
    world.instance.busy_s[p] += min(end_s, settings.horizon_s) - state.begin_s[p]
    if 2.0 * state.batch_tokens[p] >= settings.prefill_budget:
        state.full_s[p] += end_s - state.begin_s[p]
        state.full_line_s[p] += state.pass_s[p] + state.batch_tokens[p] * state.s_per_token[p]
        state.full_line_s[p] += state.batch_pairs[p] * state.s_per_pair[p]
    record_batch(world, p, state.begin_s[p], end_s, max(0.0, end_s - compute_s - state.begin_s[p]))


@kernel
def end_after_last_stage(world: World, t1: float) -> None:
    """Without a decode pool: end requests whose batch has left its last pipeline stage by t1."""
    request, unsent = world.request, world.transfer.unsent
    for _ in range(list_length(unsent, 0, request.following)):
        request_row = pop(unsent, 0, request.following)
        if request.ready_s[request_row] <= t1:
            end_prefill_only(world, request_row, request.ready_s[request_row])
        else:
            append(unsent, 0, request.following, request_row)


@kernel
def end_prefill_only(world: World, i: int, now_s: float) -> None:
    """Without a decode pool: end request i with its first token."""
    request = world.request
    request.transfer_end_s[i] = request.finish_s[i] = now_s
    request.status[i] = w.FINISHED
    world.record.counters[w.FINISHED_PREFILL] += 1
    schedule_next(world, i, now_s)


@kernel
def record_batch(world: World, p: int, begin_s: float, end_s: float, fetch_s: float) -> None:
    """Record instance p's batch: time, tokens, operators, collectives; fetch_s: its read of KV."""
    settings = world.settings
    tokens, attention_pairs = world.prefill.batch_tokens[p], world.prefill.batch_pairs[p]
    record, operator_s, prices = world.record, world.costs.prefill_operators, world.costs.prefill[p]
    record.fields[0], record.amounts[0] = w.PREFILL_BATCHES, 1.0
    record.fields[1], record.amounts[1] = w.PREFILL_BUSY_S, end_s - begin_s
    record.fields[2], record.amounts[2] = w.PREFILL_TOKENS, tokens
    record.fields[3], record.amounts[3] = w.HBM_BYTES, physics.prefill_hbm_bytes(prices, tokens)
    flops = physics.prefill_flops(prices, tokens, attention_pairs)
    record.fields[4], record.amounts[4] = w.FLOPS, flops
    record.fields[5], record.amounts[5] = w.PREFILL_FLOPS, flops
    first_operator = w.FIRST_OPERATOR + world.costs.decode_operators.size
    for operator in range(operator_s.size):
        record.fields[6 + operator] = first_operator + operator
        record.amounts[6 + operator] = operator_s[operator]
    record.fields[6 + operator_s.size] = first_operator + operator_s.size
    record.amounts[6 + operator_s.size] = fetch_s
    add_evenly(record.windows, begin_s, end_s, record, 7 + operator_s.size, settings)
    busy_field = p * w.AT_FIELDS + w.AT_BUSY_S
    record_amount(world, record.instances, begin_s, end_s, busy_field, end_s - begin_s)
    log_pass(world, p, begin_s, end_s, 0, tokens, operator_s)
    record_exchange(world, p, begin_s + fetch_s, end_s, tokens)


@kernel
def take_computed_request(world: World, p: int, now_s: float, last_stage_end_s: float) -> int:
    """Take the next request of p's batch, which ended at now_s, out of the queue and store its
    blocks; returns it or NONE. Its prefill ends at last_stage_end_s, the end of the last pipeline
    stage. Requests whose client has left are dropped, and go through no further stage."""
    request, prefill = world.request, world.prefill
    while True:
        request_row = pop(prefill.batch, p, request.following)
        if request_row == w.NONE:
            return request_row
        in_hbm.store_computed_blocks(world, request_row, request.input_tokens[request_row])
        leave_queue(world, p, request_row)
        if world.settings.patient and request.gone[request_row]:
            free_reserved_slot(world, request_row)
            world.record.counters[w.BACK_FROM_PREFILL] += 1
            cancel_request(world, request_row, now_s)
            continue
        if world.settings.pool_enabled and prefill.pool_open[p]:
            pool.store_blocks(world, p, request_row, request.input_tokens[request_row])
        if request.emitted[request_row] == 0:
            request.prefill_end_s[request_row] = last_stage_end_s
        world.record.counters[w.PREFILLED] += 1
        return request_row


@kernel
def finish_batch(world: World, p: int) -> None:
    """End the running batch of instance p: store its blocks and hand its requests on."""
    settings, request, end_s = world.settings, world.request, world.instance.ends_s[p]
    last_stage_end_s = world.prefill.stage_s[p, settings.stages - 1]
    world.instance.running[p] = 0
    restore_ports(world, p)
    pool.set_pool_clock(world, p, end_s)
    blocks_before = pool.blocks_stored(world, p)
    while True:
        request_row = take_computed_request(world, p, end_s, last_stage_end_s)
        if request_row == w.NONE:
            break
        request.ready_s[request_row] = last_stage_end_s
        if settings.has_decode:
            request.ready_s[request_row] += settings.transfer_latency_s
            request.status[request_row] = w.TRANSFERRING
        if settings.has_decode or settings.stages > 1:
            append(world.transfer.unsent, 0, request.following, request_row)
        else:
            end_prefill_only(world, request_row, end_s)
    pool.write_blocks(world, p, end_s, blocks_before)


@kernel
def set_stage_ends(world: World, p: int, end_s: float, compute_s: float) -> None:
    """Set when each pipeline stage of instance p ends the batch; the first ends at `end_s`. Each
    takes compute_s; it begins when it is free and the batch has come from the one before."""
    stage_s, stage_hop = world.prefill.stage_s, world.costs.prefill[p].hop
    hop_s = stage_hop.fixed + stage_hop.token * world.prefill.most_tokens[p]
    stage_s[p, 0] = end_s
    for stage in range(1, world.settings.stages):
        stage_s[p, stage] = max(stage_s[p, stage], stage_s[p, stage - 1] + hop_s) + compute_s
