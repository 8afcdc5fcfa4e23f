"""What a client does when its request ends: it sends the next turn, tries again, or goes."""

import math

from twin.engine import codes as w
from twin.engine.columns import World
from twin.engine.lists import heap_push
from twin.kernels.compiled import kernel
from twin.kernels.rng import uniform

ATTEMPTS = 256  # a turn and an attempt are one number: turn * ATTEMPTS + attempt
SOON_S = 1e-9  # after a border: what comes on it was counted there
LET_IN, HANDED_ON, BEGUN = 1, 2, 3  # how far a request is that counts as inside
JITTER = 0.25  # of a back-off, at most (openai-python)


@kernel
def schedule_next(world: World, i: int, now_s: float) -> None:
    """After request i ended, schedule its client's next request, in a closed loop or session."""
    settings, loop = world.settings, world.loop
    if settings.gated:
        leave_gate(world, i)
    if settings.closed_loop:
        client_pause_s = 0.0
        if settings.think_s > 0.0:
            client_pause_s = -settings.think_s * math.log(uniform(settings.key_think, i))
        heap_push(loop.due_s, loop.turn, loop.size, now_s + client_pause_s, w.NONE)
    elif settings.dynamic and world.request.status[i] == w.FINISHED:
        next_turn = world.turn.following[world.request.turn[i]]
        if next_turn != w.NONE:
            next_due_s = now_s + world.turn.pause_s[next_turn]
            heap_push(loop.due_s, loop.turn, loop.size, next_due_s, next_turn * ATTEMPTS)


@kernel
def schedule_retry(world: World, i: int, left_s: float, now_s: float) -> None:
    """After request i failed at left_s, schedule a retry after a back-off, or give up."""
    settings, request, loop = world.settings, world.request, world.loop
    if settings.client_retries == 0 or request.attempt[i] >= settings.client_retries:
        schedule_next(world, i, max(left_s, now_s + SOON_S))
        return
    if settings.gated:
        leave_gate(world, i)
    back_off_s = min(settings.backoff_s * 2.0 ** request.attempt[i], settings.backoff_most_s)
    back_off_s *= 1.0 - JITTER * uniform(settings.key_backoff, i)
    turn_attempt = request.turn[i] * ATTEMPTS + request.attempt[i] + 1
    world.record.counters[w.ASKED_AGAIN] += 1
    due_s = max(left_s + back_off_s, now_s + SOON_S)
    heap_push(loop.due_s, loop.turn, loop.size, due_s, turn_attempt)


@kernel
def cancel_request(world: World, i: int, now_s: float) -> None:
    """Mark request i, already removed from its place, as cancelled by its client at now_s."""
    request, counters = world.request, world.record.counters
    request.status[i], request.ready_s[i] = w.CANCELLED, now_s
    computed_tokens = max(request.progress[i] - request.hit_tokens[i], 0)
    counters[w.WASTED_TOKENS] += computed_tokens + request.emitted[i]
    counters[w.CANCELLED_BY_CLIENT] += 1


@kernel
def leave_gate(world: World, i: int) -> None:
    """Remove request i, which has ended or failed, from the counts of requests inside."""
    gate = world.gate
    if world.request.held[i]:
        if world.settings.order == w.FAIR and world.request.held[i] != BEGUN:
            stop_waiting(world, i)
        world.request.held[i] = 0
        gate.inside[tenant_of(world, i)] -= 1
        gate.inside[gate.inside.size - 1] -= 1


@kernel
def stop_waiting(world: World, i: int) -> None:
    """Stop counting request i as waiting in the fair queues, as it begins or leaves."""
    gate, tenant = world.gate, tenant_of(world, i)
    gate.waiting[tenant] -= 1
    if world.request.held[i] == HANDED_ON:
        gate.handed[tenant] -= world.request.input_tokens[i]


@kernel
def turn_of(world: World, i: int) -> int:
    """Row of request i in the generated stream of requests (columns `Turns`)."""
    return int(world.request.turn[i]) if world.settings.dynamic else i


@kernel
def tenant_of(world: World, i: int) -> int:
    """Index of the tenant of request i; 0 without tenants."""
    return int(world.gate.tenant[turn_of(world, i)]) if world.settings.tenants > 1 else 0
