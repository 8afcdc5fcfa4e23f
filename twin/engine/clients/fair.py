"""Weighted fair queueing by tokens served, as VTC (Sheng et al. 2024) counts them.

A tenant has a counter of tokens over its weight: its prompts are charged when their prefill begins,
its answers as they are given, so that no length of an answer need be known. Next is the oldest
request of the tenant with the lowest counter. The router counts what it handed on as charged."""

import math

import numpy as np

from twin.engine.clients.returns import BEGUN, HANDED_ON, LET_IN, stop_waiting, tenant_of
from twin.engine.codes import HEAD, NONE
from twin.engine.columns import World
from twin.engine.lists import fill, put_after, remove_after
from twin.kernels.compiled import kernel


@kernel
def begin_waiting(world: World, i: int) -> None:
    """Count request i as waiting. If its tenant had none, raise the tenant's counter of tokens to
    the lowest of tenants with waiting requests: idleness earns no credit."""
    gate, tenant = world.gate, tenant_of(world, i)
    if gate.waiting[tenant] == 0:
        least_served_tokens = math.inf
        for other_tenant in range(gate.served.size):
            if gate.waiting[other_tenant] > 0:
                least_served_tokens = min(least_served_tokens, gate.served[other_tenant])
        if least_served_tokens == math.inf:
            least_served_tokens = gate.served[gate.last[0]]
        gate.served[tenant] = max(gate.served[tenant], least_served_tokens)
    gate.waiting[tenant] += 1


@kernel
def count_handed_on(world: World, i: int) -> None:
    """Add the prompt of request i to its tenant's tokens that the router handed on, only once."""
    if world.request.held[i] == LET_IN:
        world.request.held[i] = HANDED_ON
        world.gate.handed[tenant_of(world, i)] += world.request.input_tokens[i]


@kernel
def charge_prompt(world: World, i: int) -> None:
    """Charge request i's tenant for its prompt as prefill begins; recomputing costs nothing."""
    if world.request.held[i] != BEGUN:
        tenant = tenant_of(world, i)
        stop_waiting(world, i)
        charge_tenant(world, tenant, float(world.request.input_tokens[i]))
        world.request.held[i] = BEGUN
        world.gate.last[0] = tenant


@kernel
def charge_tenant(world: World, t: int, tokens: float) -> None:
    """Add `tokens` served tokens, divided by the tenant's weight, to the counter of tenant t."""
    world.gate.served[t] += tokens / world.gate.weight[t]


@kernel
def charge_iteration(world: World, d: int) -> None:
    """Charge each tenant for its tokens of an iteration of decode instance d."""
    tokens_of_tenant = world.decode.tenant_growth[d]
    for tenant in range(tokens_of_tenant.size):
        charge_tenant(world, tenant, tokens_of_tenant[tenant])


@kernel
def add_tenant_growth(world: World, d: int, i: int, tokens: float) -> None:
    """Add `tokens` per iteration of request i to its tenant's sum on instance d; they are negative
    as the request leaves."""
    tokens_of_tenant = world.decode.tenant_growth[d]
    tokens_of_tenant[tenant_of(world, i)] += tokens
    if world.decode.in_batch[d] == 0:  # no rounding outlives an empty batch
        fill(tokens_of_tenant, 0.0)


@kernel
def bring_forward(
    world: World, ends: np.ndarray, row: int, before: int, now_s: float, is_router: bool
) -> int:
    """Move the next request by fairness in list `row` of `ends` (head, tail) directly behind
    request `before` (NONE: to the head); returns it. The list is in order of arrival; requests not
    ready by now_s stay. is_router: whether prompts that the router handed on count as charged."""
    request, gate = world.request, world.gate
    following = request.following
    previous_request, candidate = before, ends[row, HEAD] if before == NONE else following[before]
    chosen_request, chosen_before, least_tokens = candidate, before, math.inf
    while candidate != NONE and request.ready_s[candidate] <= now_s:
        tenant = tenant_of(world, candidate)
        handed_tokens = gate.handed[tenant] / gate.weight[tenant] if is_router else 0.0
        charged_tokens = gate.served[tenant] + handed_tokens
        if charged_tokens < least_tokens:
            least_tokens, chosen_request = charged_tokens, candidate
            chosen_before = previous_request
        previous_request, candidate = candidate, following[candidate]
    if chosen_before != before:
        remove_after(ends, row, following, chosen_before, chosen_request)
        put_after(ends, row, following, before, chosen_request)
    return int(chosen_request)


@kernel
def set_fair_places(world: World, p: int, i: int) -> None:
    """Set the place in the queue (tokens served divided by weight) of each request that waits at
    instance p, and of request i, which arrives now."""
    request, gate = world.request, world.gate
    for tenant in range(gate.served.size):
        gate.reached[tenant] = gate.served[tenant]
    waiting_request = world.prefill.queue[p, HEAD]
    while waiting_request != NONE:
        if request.progress[waiting_request] == NONE:
            tenant = tenant_of(world, waiting_request)
            request.place[waiting_request] = gate.reached[tenant]
            gate.reached[tenant] += request.input_tokens[waiting_request] / gate.weight[tenant]
        waiting_request = request.following[waiting_request]
    request.place[i] = gate.reached[tenant_of(world, i)]
