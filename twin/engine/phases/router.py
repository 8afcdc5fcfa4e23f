"""Phase: the router reserves decode room first, then chooses a prefill instance (section 4.3.3).

Requests leave in order, or as admission lines them up; the first that finds no decode room holds
those behind it until a later step's border shows room. Requests that decode preempted go first.

A front router sends a request to a supernode before, by what the supernodes last reported. One that
finds no room there waits there and holds no request of another. Whether a supernode serves at all
is known at once, for it would refuse the request."""

import numpy as np

from twin.engine import codes as w
from twin.engine.clients.admission import admit_arrivals, lone_transfer_s, prefill_end_in_s, refuse
from twin.engine.clients.fair import bring_forward, charge_prompt, count_handed_on
from twin.engine.clients.returns import tenant_of, turn_of
from twin.engine.columns import World
from twin.engine.in_hbm import expected_blocks, lightest_cell, shared_tokens
from twin.engine.lists import any_at_least, append, insert_by_place, pop, remove_item, total
from twin.engine.pool import pool_row
from twin.kernels.compiled import kernel
from twin.kernels.rng import uniform
from twin.policies.memory_pool import matched_blocks
from twin.policies.router import (
    SEES_HITS,
    SEES_WAITS,
    choose_instance,
    choose_rank,
    choose_supernode,
)

ROUNDING_S = 1e-9  # of times of steps


@kernel
def route_requests(world: World, t0: float, t1: float) -> None:
    """Route the requests that left the front end by t1; t0, t1: begin and end of the step (s)."""
    request, decode, counters = world.request, world.decode, world.record.counters
    settings, gate = world.settings, world.gate
    if settings.gated:
        admit_arrivals(world, t0, t1)
    if settings.front:
        update_reports(world, t0)
    has_requests = counters[w.ROUTER_SEEN] < counters[w.FRONTED] or gate.wait[0, w.HEAD] != w.NONE
    has_requests = has_requests or (settings.front > 0 and any_at_least(world.front.waiting, 1))
    if decode.returned[0, w.HEAD] == w.NONE and not has_requests:
        return
    refresh_view(world)
    if settings.front:
        route_waiting(world, t0)
    now_s = t0
    while True:
        returned_request = decode.returned[0, w.HEAD]
        if returned_request != w.NONE:
            request_row = returned_request
        elif settings.gated:
            request_row = gate.wait[0, w.HEAD]
            if request_row == w.NONE:
                break
            if settings.order == w.FAIR:
                ready_until_s = max(now_s, request.ready_s[request_row])
                request_row = bring_forward(world, gate.wait, 0, w.NONE, ready_until_s, True)
        elif counters[w.ROUTER_SEEN] < counters[w.FRONTED]:
            request_row = counters[w.ROUTER_SEEN]
            if request.status[request_row] == w.CANCELLED:
                counters[w.ROUTER_SEEN] += 1
                continue
        else:
            break
        if request.ready_s[request_row] > t1:
            break
        now_s = max(now_s, request.ready_s[request_row])
        reason_code, must_wait = unservable_reason(world, request_row), False
        if settings.front and reason_code == 0:
            send_to_supernode(world, request_row)
            must_wait = world.front.wait[request.supernode[request_row], w.HEAD] != w.NONE
        if reason_code == 0 and settings.shed_at > 0.0 and misses_ttft(world, request_row, now_s):
            reason_code = w.TOO_LATE
        must_wait = reason_code == 0 and (must_wait or not place_request(world, request_row, now_s))
        if must_wait and not settings.front:
            break
        if returned_request != w.NONE:
            pop(decode.returned, 0, request.following)
        elif settings.gated:
            pop(gate.wait, 0, request.following)
        else:
            counters[w.ROUTER_SEEN] += 1
        if must_wait:
            enqueue_at_supernode(world, request_row)
        elif reason_code != 0:
            refuse(world, request_row, reason_code, now_s, reason_code != w.TOO_LATE)
        else:
            enqueue_routed(world, request_row, now_s)


@kernel
def route_waiting(world: World, t0: float) -> None:
    """Route at t0 the requests that wait at each supernode, in order; those of a closed supernode
    are sent to another one."""
    front = world.front
    for supernode in range(front.waiting.size):
        for _ in range(front.waiting[supernode]):
            request_row = front.wait[supernode, w.HEAD]
            now_s = max(t0, world.request.ready_s[request_row])
            if front.opened[supernode]:
                is_late = world.settings.shed_at > 0.0 and misses_ttft(world, request_row, now_s)
                if not is_late and not place_request(world, request_row, now_s):
                    break
                dequeue_at_supernode(world, supernode)
                if is_late:
                    refuse(world, request_row, w.TOO_LATE, now_s, False)
                else:
                    enqueue_routed(world, request_row, now_s)
            elif any_at_least(front.opened, 1):
                dequeue_at_supernode(world, supernode)
                send_to_supernode(world, request_row)
                enqueue_at_supernode(world, request_row)
            else:
                break


@kernel
def update_reports(world: World, t0: float) -> None:
    """Note at t0 which supernodes serve and, if a report is due, the number of requests in each."""
    front, settings, decode = world.front, world.settings, world.decode
    is_open = world.instance.open
    for supernode in range(front.opened.size):
        has_prefills, has_decodes = not settings.has_prefill, not settings.has_decode
        for prefill_instance in range(settings.prefills):
            if settings.has_prefill and front.of_prefill[prefill_instance] == supernode:
                has_prefills = has_prefills or is_open[settings.prompt_row + prefill_instance] == 1
        for decode_instance in range(decode.taken.size):
            if settings.has_decode and front.of_decode[decode_instance] == supernode:
                has_decodes = has_decodes or is_open[settings.prefills + decode_instance] == 1
        front.opened[supernode] = has_prefills and has_decodes
    if t0 + ROUNDING_S < front.due_s[0]:
        return
    for supernode in range(front.inside.size):
        front.inside[supernode] = front.waiting[supernode]
    for decode_instance in range(decode.taken.size):
        front.inside[front.of_decode[decode_instance]] += decode.taken[decode_instance]
    if settings.front_report_s > 0.0:
        report_count = (t0 + ROUNDING_S) // settings.front_report_s
        front.due_s[0] = (report_count + 1.0) * settings.front_report_s


@kernel
def send_to_supernode(world: World, i: int) -> None:
    """Choose a supernode for request i. One that was chosen before stays while it serves. If
    supernodes report at every step the front router counts the requests that it has sent since."""
    front, request = world.front, world.request
    supernode = int(request.supernode[i])
    if supernode == w.NONE or not front.opened[supernode]:
        supernode = choose_supernode(
            world.settings.front, front.opened, front.inside, front.sent[0]
        )
        if supernode == w.NONE:  # none serves: it waits for the one whose turn it is
            supernode = front.sent[0] % front.opened.size
        request.supernode[i] = supernode
        front.sent[0] += 1
    if world.settings.front_report_s == 0.0:
        front.inside[supernode] += 1.0


@kernel
def enqueue_at_supernode(world: World, i: int) -> None:
    """Put request i at the end of its supernode's list of waiting requests."""
    supernode = int(world.request.supernode[i])
    append(world.front.wait, supernode, world.request.following, i)
    world.front.waiting[supernode] += 1


@kernel
def dequeue_at_supernode(world: World, supernode: int) -> None:
    """Take the first request that waits at a supernode out of its list."""
    world.front.waiting[supernode] -= 1
    pop(world.front.wait, supernode, world.request.following)


@kernel
def leave_supernode(world: World, i: int) -> bool:
    """Take request i, whose client left, out of its supernode's list; False if it is in none."""
    if not world.settings.front or world.request.supernode[i] == w.NONE:
        return False
    supernode = int(world.request.supernode[i])
    is_waiting = remove_item(world.front.wait, supernode, world.request.following, i)
    if is_waiting:
        world.front.waiting[supernode] -= 1
    return is_waiting


@kernel
def may_serve(world: World, is_open: int, supernode: int, i: int) -> bool:
    """Whether an instance is open and, behind a front router, in the supernode of request i."""
    return is_open == 1 and (not world.settings.front or supernode == world.request.supernode[i])


@kernel
def refresh_view(world: World) -> None:
    """Set the tokens on decode ranks that the router sees to their present values, at the end of a
    simulation step."""
    decode, ranks = world.decode, world.settings.decode_ranks
    taken_tokens, context = decode.taken_tokens, decode.context
    reserved_tokens, slots = decode.reserved_tokens, decode.taken_slots
    half_page = 0.5 * world.settings.page_tokens
    for instance in range(decode.taken.size):
        if not decode.changed[instance]:
            continue
        decode.changed[instance], decode.refused[instance] = 0, np.inf
        for rank in range(instance * ranks, (instance + 1) * ranks):
            taken_tokens[rank] = context[rank] + reserved_tokens[rank] + slots[rank] * half_page
        if world.settings.in_hbm:  # apart, so that the sums above run on vectors
            for rank in range(instance * ranks, (instance + 1) * ranks):
                taken_tokens[rank] -= shared_tokens(world, rank)
        decode.all_tokens[instance] = total(taken_tokens[instance * ranks : (instance + 1) * ranks])


@kernel
def unservable_reason(world: World, i: int) -> int:
    """Reason code if request i can never be served; 0 otherwise."""
    settings = world.settings
    prompt_tokens = world.request.input_tokens[i] + world.request.emitted[i]
    needed_tokens = prompt_tokens + settings.page_tokens
    if settings.has_decode and not any_at_least(world.decode.kv_tokens, needed_tokens):
        return w.OUTGREW_DECODE if world.request.emitted[i] > 0 else w.TOO_LONG_FOR_DECODE
    if settings.has_prefill and prompt_tokens > settings.prompt_kv_tokens:
        return w.TOO_LONG_FOR_PREFILL
    return 0


@kernel
def place_request(world: World, i: int, now_s: float) -> bool:
    """Reserve a decode rank and choose a prefill instance for request i; False: no room."""
    settings, request = world.settings, world.request
    first_column = settings.prompt_row
    is_open = world.instance.open[first_column : first_column + settings.prefills]
    if settings.front and not world.front.opened[request.supernode[i]]:
        return False
    instance = w.NONE
    if settings.has_prefill and (settings.colocated or not settings.has_decode):
        instance = choose_prefill(world, i, now_s)
        if instance == w.NONE:
            return False
    if settings.has_decode:
        if instance == w.NONE and settings.has_prefill and not any_at_least(is_open, 1):
            return False
        kv_tokens = float(request.input_tokens[i] + request.emitted[i]) + 0.5 * settings.page_tokens
        rank = reserve_rank(world, instance, i, kv_tokens)
        if rank == w.NONE:
            return False
        request.rank[i] = rank
        world.decode.reserved_tokens[rank] += kv_tokens - 0.5 * settings.page_tokens
        if instance == w.NONE and settings.has_prefill:
            instance = choose_prefill(world, i, now_s)
    request.prefill_instance[i] = instance
    return True


@kernel
def reserve_rank(world: World, instance: int, i: int, tokens: float) -> int:
    """Reserve a slot and `tokens` of KV space for request i on a rank of `instance` (NONE: of the
    open one with fewest requests, else the next with room); returns the rank, or NONE."""
    settings, decode = world.settings, world.decode
    ranks_per_instance, is_open = settings.decode_ranks, world.instance.open[settings.prefills :]
    supernode_of_decode = world.front.of_decode
    best_instance = instance
    if instance == w.NONE:
        best_instance = 0
        for d in range(1, decode.taken.size):  # of those that are open
            fewer_requests = decode.taken[d] < decode.taken[best_instance]
            is_worse = fewer_requests or not may_serve(
                world, is_open[best_instance], supernode_of_decode[best_instance], i
            )
            if is_worse and may_serve(world, is_open[d], supernode_of_decode[d], i):
                best_instance = d
    for offset in range(decode.taken.size):
        d = (best_instance + offset) % decode.taken.size
        if offset > 0 and settings.colocated:
            break
        if (
            not may_serve(world, is_open[d], supernode_of_decode[d], i)
            or decode.taken[d] >= decode.room[d]
        ):
            continue
        if tokens >= decode.refused[d]:
            continue
        first_rank, end_rank = d * ranks_per_instance, (d + 1) * ranks_per_instance
        if settings.in_hbm and settings.colocated and settings.router_policy in SEES_HITS:
            for rank in range(first_rank, end_rank):
                has_room = decode.taken_slots[rank] < decode.slots[rank]
                has_room = has_room and decode.taken_tokens[rank] + tokens <= decode.kv_tokens[d]
                decode.price[rank] = decode.taken_tokens[rank] if has_room else np.inf
            rank_index = lightest_cell(world, d, i, decode.price[first_rank:end_rank])
        else:
            rank_index = choose_rank(
                settings.rank_choice, world.record.counters[w.ROUTED],
                decode.taken_slots[first_rank:end_rank], decode.taken_tokens[first_rank:end_rank],
                decode.taken[d], decode.all_tokens[d], decode.slots[first_rank:end_rank],
                decode.kv_tokens[d], tokens, decode.price[first_rank:end_rank],
            )  # fmt: skip
            if rank_index == w.NONE:
                decode.refused[d] = tokens
        if rank_index != w.NONE:
            rank = first_rank + rank_index
            decode.changed[d] = 1
            decode.taken[d] += 1
            decode.taken_slots[rank] += 1
            decode.taken_tokens[rank] += tokens
            decode.all_tokens[d] += tokens
            return rank
    return w.NONE


@kernel
def update_queue_view(world: World, i: int, now_s: float) -> None:
    """Set in the router's view whether each instance takes request i, its queued tokens now, and
    the seconds until they are computed. A batch that ended in this step no longer counts, or the
    view would depend on the step. A new request still joins a batch that is not full, so only full
    ones add time."""
    prefill, settings, router_view = world.prefill, world.settings, world.seen
    instance, first_column, budget = world.instance, settings.prompt_row, settings.prefill_budget
    is_open, is_running = instance.open[first_column:], instance.running[first_column:]
    ends_s = instance.ends_s[first_column:]
    for row in range(router_view.wait_s.size):
        router_view.opened[row] = may_serve(world, is_open[row], world.front.of_prefill[row], i)
        queued_tokens, work_s, ahead_s = prefill.queued_tokens[row], prefill.queued_s[row], 0.0
        pass_s, waiting_tokens = prefill.pass_s[row], queued_tokens
        if prefill.reading[row]:
            waiting_tokens -= prefill.ending_tokens[row]
            ahead_s = max(0.0, prefill.read_end_s[row] - now_s) + pass_s  # its work is in queued_s
        elif is_running[row]:
            waiting_tokens -= prefill.ending_tokens[row]
            work_s -= prefill.ending_s[row]
            ahead_s = ends_s[row] - now_s
            if settings.colocated:  # the next iterations decode as this one does
                pass_s = max(pass_s, ends_s[row] - prefill.begin_s[row])
            if ahead_s <= 0.0:  # the next batch has begun since
                queued_tokens = waiting_tokens
                is_decoding = settings.colocated and world.decode.in_batch[row] > 0
                has_work = waiting_tokens > 0 or is_decoding
                ahead_s = max(0.0, ahead_s + pass_s + work_s) if has_work else 0.0
                waiting_tokens, work_s = max(0, waiting_tokens - budget), 0.0
        router_view.queued_tokens[row] = queued_tokens
        full_batches = waiting_tokens // budget if waiting_tokens >= budget else 0  # batches ahead
        router_view.wait_s[row] = ahead_s + max(0.0, work_s) + full_batches * pass_s


@kernel
def cached_tokens_at(world: World, p: int, i: int) -> tuple[int, int]:
    """(cached tokens of request i's prompt at instance p, how many of them are in its HBM)."""
    settings = world.settings
    hbm_blocks = int(expected_blocks(world, p, i))
    hit_blocks = hbm_blocks
    if settings.pool_enabled:
        ssd_open, table_row = world.prefill.ssd_bytes_per_s[p] > 0.0, pool_row(world, p, i)
        hit_blocks = matched_blocks(
            world.pool, world.ssd, ssd_open, table_row, world.request, turn_of(world, i), hbm_blocks
        )
    return settings.block_tokens * hit_blocks, settings.block_tokens * hbm_blocks


@kernel
def misses_ttft(world: World, i: int, now_s: float) -> bool:
    """Whether request i would miss its TTFT limit at the instance that it would get now."""
    settings, request = world.settings, world.request
    if request.emitted[i] > 0 or not np.isnan(request.routed_s[i]):
        return False  # it has been let in
    ahead_s = 0.0
    if settings.has_prefill:
        prefill_row = choose_prefill(world, i, now_s)
        if prefill_row != w.NONE:  # else it waits, as in `place_request`
            hit_tokens, hbm_tokens = cached_tokens_at(world, prefill_row, i)
            added_s = prefill_work_s(world, prefill_row, i, hit_tokens, hbm_tokens)
            ahead_s = prefill_end_in_s(world, prefill_row, i, hit_tokens, added_s, now_s)
            ahead_s += lone_transfer_s(world, prefill_row, i)
    ttft_limit_s = settings.shed_at * world.gate.ttft_s[tenant_of(world, i)]
    return now_s - request.arrival_s[i] + ahead_s > ttft_limit_s


@kernel
def prefill_work_s(world: World, p: int, i: int, hit_tokens: int, hbm_tokens: int) -> float:
    """Seconds that request i adds to a batch of instance p. hit_tokens: cached tokens of the
    prompt; hbm_tokens: how many of them are in HBM."""
    prefill = world.prefill
    tokens = float(world.request.input_tokens[i] + world.request.emitted[i])
    cached_tokens = min(float(hit_tokens), tokens - 1.0)
    pairs = 0.5 * (tokens * tokens - cached_tokens * cached_tokens)
    computing_s = (tokens - cached_tokens) * prefill.s_per_token[p] + pairs * prefill.s_per_pair[p]
    read_tokens = max(cached_tokens - hbm_tokens, 0.0)
    if read_tokens <= 0.0:
        return computing_s
    reading_s = prefill.read_bytes_per_token[p] / prefill.read_bytes_per_s[p]
    reading_s += prefill.ahead_s_per_token[p]
    return computing_s + read_tokens * reading_s


@kernel
def update_hit_view(world: World, i: int) -> None:
    """Set the cached tokens of request i and the seconds to its first token at each instance."""
    router_view, request = world.seen, world.request
    settings, pass_s = world.settings, world.prefill.pass_s
    hit_tokens, hbm_tokens = 0, 0
    for p in range(router_view.hit_tokens.size):
        if p == 0 or settings.pools_differ or settings.in_hbm:  # else alike everywhere
            hit_tokens, hbm_tokens = cached_tokens_at(world, p, i)
        router_view.hit_tokens[p], router_view.here_tokens[p] = hit_tokens, hbm_tokens
        router_view.hit_share[p] = hit_tokens / (request.input_tokens[i] + request.emitted[i])
        serve_s = pass_s[p] + prefill_work_s(world, p, i, hit_tokens, hbm_tokens)
        router_view.ttft_s[p] = router_view.wait_s[p] + serve_s


@kernel
def join_queue(world: World, p: int, i: int) -> None:
    """Add request i to instance p's waiting work: tokens, and seconds if a policy uses them."""
    prefill, request, policy = world.prefill, world.request, world.settings.router_policy
    prefill.queued_tokens[p] += request.input_tokens[i] + request.emitted[i]
    if policy in SEES_WAITS or world.settings.shed_at > 0.0:
        hit_tokens, hbm_tokens = world.seen.hit_tokens[p], world.seen.here_tokens[p]
        if policy not in SEES_HITS:
            hit_tokens, hbm_tokens = cached_tokens_at(world, p, i)
        request.work_s[i] = prefill_work_s(world, p, i, hit_tokens, hbm_tokens)
        prompt_tokens = request.input_tokens[i] + request.emitted[i]
        request.fresh_tokens[i] = max(prompt_tokens - hit_tokens, 1)
        prefill.queued_s[p] += request.work_s[i]
    if world.settings.order == w.PRIORITY:
        insert_by_place(prefill.queue, p, request.following, request.place, request.progress, i)
    else:
        append(prefill.queue, p, request.following, i)


@kernel
def update_kv_view(world: World) -> None:
    """Set the used share of each instance's KV space in the router's view."""
    settings, router_view, decode = world.settings, world.seen, world.decode
    for prefill_row in range(router_view.kv_used.size):
        queued_tokens = float(router_view.queued_tokens[prefill_row])
        kv_space = settings.batch_kv_tokens
        if settings.colocated:
            queued_tokens = decode.all_tokens[prefill_row]
            kv_space = decode.kv_tokens[prefill_row] * settings.decode_ranks
        router_view.kv_used[prefill_row] = min(1.0, queued_tokens / kv_space)


@kernel
def choose_prefill(world: World, i: int, now_s: float) -> int:
    """The prefill (or colocated) instance that the policy selects for request i; NONE: none is
    open."""
    settings = world.settings
    policy = settings.router_policy
    update_queue_view(world, i, now_s)
    if policy in SEES_HITS:
        update_hit_view(world, i)
        update_kv_view(world)
    turn_number = world.record.counters[w.ROUTED]
    if settings.shed_at > 0.0:  # a turn that was refused is over: else it would refuse all
        turn_number += world.record.counters[w.REJECTED_ROUTER]
    return choose_instance(
        policy, world.seen, turn_number, world.request.session[i],
        uniform(settings.key_route_a, i), uniform(settings.key_route_b, i),
    )  # fmt: skip


@kernel
def enqueue_routed(world: World, i: int, now_s: float) -> None:
    """Stamp request i as routed; add it to its prefill instance's queue (or directly to decode)."""
    settings, request = world.settings, world.request
    is_first_pass = request.emitted[i] == 0
    if is_first_pass:
        request.routed_s[i] = now_s
    request.ready_s[i] = now_s
    world.record.counters[w.ROUTED] += 1
    if settings.has_prefill:
        prefill_instance = request.prefill_instance[i]
        if is_first_pass:  # in the instance's tokeniser, one prompt after another
            tokenise_begin_s = max(now_s, world.prefill.tokenised_s[prefill_instance])
            request.ready_s[i] = tokenise_begin_s + settings.tokenise_s * request.input_tokens[i]
            world.prefill.tokenised_s[prefill_instance] = request.ready_s[i]
        request.progress[i] = w.NONE
        if settings.order == w.FAIR:
            count_handed_on(world, i)
        join_queue(world, prefill_instance, i)
        return
    # decode_only: the KV is in place.
    if settings.order == w.FAIR:
        charge_prompt(world, i)
    if is_first_pass:
        request.prefill_start_s[i] = request.prefill_end_s[i] = request.transfer_end_s[i] = now_s
    world.record.counters[w.TRANSFERRED] += 1
    append(world.decode.wait, request.rank[i] // settings.decode_ranks, request.following, i)
