"""The stationary population of a decode instance: who is under way while arrivals never end.
Counted in iterations, requests under way are an M/G/infinity queue, so arrivals per iteration alone
decide it and seconds come in once, as the mean time of its iterations. The router chooses ranks:
requests that join a rank together also leave it together, which independent draws miss."""

import math

import numpy as np

from twin.arrivals import arrivals_of_iteration
from twin.kernels.borrowed import compile_entry
from twin.kernels.compiled import entry, kernel, stage
from twin.kernels.rng import gamma, uniform
from twin.model.decode import decode_iteration_s
from twin.model.mixed import mixed_iteration_s, prompts_by_rank
from twin.policies.batching import iterations_needed
from twin.policies.router import NO_CHOICE, choose_rank
from twin.slots import (
    COMING,
    DECODES,
    DECODING,
    DELAYED,
    DRAWS,
    FIRST_FREE,
    FREE,
    ITERATION,
    NONE,
    TAKEN,
    WAITS,
    Population,
)

LOOK_EVERY = 4  # iterations: neighbours are nearly alike, without prompts
LEAST_LOOKS = 3  # of iterations that are run at once
LEAST_QUIET = 4  # iterations with prompts that are run at once
ENDLESS = 2**40  # iterations
STRETCH = 16  # iterations with prompts: beyond it what one prolongs is over
CLUMP = 0.6  # of a life: how far requests of one rank are apart at the begin, see `add_requests`
MOST_DRAWS = 10_000  # for one request that is under way


@kernel
def refresh_loads(p: Population) -> None:
    """Set each rank's `load`, by which ranks are chosen, and its sum `total` to present tokens."""
    p.total[0] = 0.0
    for rank in range(p.load.size):
        p.load[rank] = p.context[rank] + p.reserved[rank] + p.taken[rank] * p.page_tokens
        p.total[0] += p.load[rank]


@kernel
def reserve_slot(p: Population, prompt: int, answer: int) -> int:
    """Reserve a slot for a request of `prompt` and `answer` tokens on the rank that the policy
    chooses; returns the slot's number, or NONE if no slot or rank is free."""
    if prompt >= p.refused[0]:
        return NONE
    tokens_needed = prompt + p.page_tokens
    rank = choose_rank(
        p.rank_choice, p.at[DRAWS], p.taken, p.load, p.at[TAKEN], p.total[0], p.slots,
        p.room_tokens, tokens_needed, p.price,
    )  # fmt: skip
    slot = p.at[FIRST_FREE]
    if rank == NO_CHOICE or slot == NONE:  # loads do but grow until an answer ends
        p.refused[0] = prompt
        return NONE
    p.at[FIRST_FREE] = p.following[slot]
    p.status[slot], p.rank[slot], p.prompt[slot], p.left[slot] = COMING, rank, prompt, answer - 1
    p.taken[rank] += 1
    p.reserved[rank] += prompt
    p.load[rank] += tokens_needed
    p.at[TAKEN] += 1
    p.total[0] += tokens_needed
    return slot


@kernel
def begin_decoding(p: Population, slot: int, past_share: float) -> None:
    """Start to decode the request in a slot: draw its number of iterations and schedule its end.
    past_share: completed share of these iterations, from 0 to below 1."""
    rank, tokens_left = p.rank[slot], p.left[slot]
    iterations = iterations_needed(
        tokens_left, p.draft_tokens, p.acceptance, p.accept, p.round, p.at[DRAWS]
    )
    p.at[DRAWS] += 1
    iterations_done = int(past_share * iterations)
    p.wait_s[slot] = p.now_s[0] - p.came_s[slot]
    p.reserved[rank] -= p.prompt[slot]
    p.status[slot] = DECODING
    p.joined[slot] = p.at[ITERATION] - iterations_done
    p.due[slot] = p.joined[slot] + max(iterations, iterations_done + 1)
    schedule_slot(p, slot)
    tokens_per_iteration = tokens_left / (p.due[slot] - p.joined[slot])
    p.requests[rank] += 1
    p.growth[rank] += tokens_per_iteration
    p.context[rank] += p.prompt[slot] + 1 + iterations_done * tokens_per_iteration
    p.joined_s[slot] = math.nan if iterations_done > 0 else p.now_s[0]
    p.at[DECODES] += 1


@kernel
def schedule_slot(p: Population, slot: int) -> None:
    """Add a slot to the list of slots that are due at the iteration `due[slot]`."""
    ring_index = p.due[slot] % p.ring.size
    p.following[slot] = p.ring[ring_index]
    p.ring[ring_index] = slot


@kernel
def end_answer(p: Population, slot: int) -> None:
    """End the request in a slot, which may be one without decode iterations, and free the slot."""
    rank, tpot_s, p.refused[0] = p.rank[slot], 0.0, np.inf
    if p.status[slot] == DECODING:
        p.requests[rank] -= 1
        p.growth[rank] -= p.left[slot] / (p.due[slot] - p.joined[slot])
        p.context[rank] -= p.prompt[slot] + 1 + p.left[slot]
        p.at[DECODES] -= 1
        tpot_s = (p.now_s[0] - p.joined_s[slot]) / p.left[slot]
        if p.colocated and tpot_s >= 0.0:
            p.seen[9] += 1.0
            p.seen[10] += tpot_s
        if p.requests[rank] == 0:  # no rounding outlives an empty rank
            p.growth[rank] = 0.0
            p.context[rank] = 0.0
    else:
        p.reserved[rank] -= p.prompt[slot]
        p.wait_s[slot] = p.now_s[0] - p.came_s[slot]
    if p.colocated and tpot_s >= 0.0 and p.wait_s[slot] >= 0.0:
        sample_index = p.ended[0] % p.ended_wait_s.size
        p.ended_wait_s[sample_index], p.ended_token_s[sample_index] = p.wait_s[slot], tpot_s
        p.ended[0] += 1
    p.taken[rank] -= 1
    p.at[TAKEN] -= 1
    p.status[slot] = FREE
    p.following[slot] = p.at[FIRST_FREE]
    p.at[FIRST_FREE] = slot


@kernel
def admit_arrivals(p: Population, arrivals: float, reserved_for: float, pace: float) -> None:
    """Give slots to requests that arrive in an iteration; those without a slot wait for a later
    one. arrivals: mean of an iteration; reserved_for: iterations from a slot's reservation to the
    request's first iteration; pace: expected arrivals of this iteration divided by the mean."""
    while p.ahead[0] < pace:
        p.ahead[0] += gamma(p.gap, p.at[DRAWS], p.regular) / (p.regular * arrivals)
        p.at[DRAWS] += 1
        p.at[WAITS] = min(p.at[WAITS] + 1, p.status.size)
    p.ahead[0] -= pace
    p.seen[11] += pace * arrivals
    loads_fresh = False
    while p.at[WAITS] > 0:
        request = int(uniform(p.draw, p.at[DRAWS]) * p.inputs.size)
        if not loads_fresh and p.inputs[request] < p.refused[0]:
            refresh_loads(p)
            loads_fresh = True
        slot = reserve_slot(p, p.inputs[request], p.outputs[request])
        p.at[DRAWS] += 1
        if slot == NONE:
            break
        p.at[WAITS] -= 1
        if p.colocated:
            queue_prompt(p, slot)
            continue
        wait_iterations = int(reserved_for + uniform(p.offset, p.at[DRAWS]))
        p.due[slot] = p.at[ITERATION] + max(wait_iterations, 1)
        schedule_slot(p, slot)


@kernel
def queue_prompt(p: Population, slot: int) -> None:
    """Append a slot to the queue of prompts that its group of ranks computes in order."""
    first_rank = p.rank[slot] // p.prompt_ranks * p.prompt_ranks
    last_slot, p.following[slot] = p.tail[first_rank], NONE
    p.came_s[slot] = p.now_s[0] - uniform(p.offset, p.at[DRAWS]) * p.now_s[1]
    p.to_compute[slot] = p.fresh * p.prompt[slot]
    p.seen[12] += p.prompt[slot]
    p.queued[0] += 1
    p.due[slot] = p.at[ITERATION] + 1 + int(p.to_compute[slot] / (p.chunk_most * p.prompt_ranks))
    if p.head[first_rank] == NONE:
        p.head[first_rank] = slot
    else:
        p.following[last_slot] = slot
    p.tail[first_rank] = slot


@kernel
def compute_prompts(p: Population) -> None:
    """Compute the next queued prompts of each group of ranks in this iteration, at most
    `chunk_most` tokens per rank. A request whose prompt is complete decodes from the next
    iteration."""
    may_compute = not (p.prompt_delay > 0 and must_delay_prompts(p))
    for first_rank in range(0, p.chunk.size, p.prompt_ranks):
        ranks = min(p.prompt_ranks, p.chunk.size - first_rank)
        room_tokens, group_tokens, group_pairs = p.chunk_most * ranks * may_compute, 0.0, 0.0
        while room_tokens > 0.0 and p.head[first_rank] != NONE:
            slot = p.head[first_rank]
            computed_tokens = min(room_tokens, p.to_compute[slot])
            group_tokens += computed_tokens
            group_pairs += computed_tokens * (
                p.prompt[slot] - p.to_compute[slot] + 0.5 * (computed_tokens + 1.0)
            )
            p.to_compute[slot] -= computed_tokens
            room_tokens -= computed_tokens
            if p.to_compute[slot] <= 0.0:
                p.head[first_rank] = p.following[slot]
                p.queued[0] -= 1
                p.due[slot] = p.at[ITERATION] + 1
                schedule_slot(p, slot)
        for rank in range(first_rank, first_rank + ranks):
            p.chunk[rank], p.chunk_pairs[rank] = group_tokens / ranks, group_pairs / ranks
        if group_tokens > 0.0 and p.head[first_rank] != NONE:
            p.at[DELAYED] = p.prompt_delay  # what is left of a release waits no further


@kernel
def must_delay_prompts(p: Population) -> bool:
    """Whether all groups of ranks delay their prompts in this iteration: some groups have prompts,
    others have none yet, and requests decode. Delays last at most `prompt_delay` iterations in a
    row, which `at[DELAYED]` counts."""
    waiting_groups, groups = 0, math.ceil(p.head.size / p.prompt_ranks)
    for group in range(groups):
        waiting_groups += p.head[group * p.prompt_ranks] != NONE
    must_wait = 0 < waiting_groups < groups and p.at[DECODES] > 0 and p.at[DELAYED] < p.prompt_delay
    p.at[DELAYED] = p.at[DELAYED] + 1 if must_wait else 0
    return must_wait


@kernel
def iteration_s(
    p: Population, requests: np.ndarray, context: np.ndarray, chunk: np.ndarray, pairs: np.ndarray
) -> float:
    """Seconds of an iteration, from arrays over ranks. requests i8[R]: requests that decode;
    context f8[R]: their context tokens; colocated instances only: chunk f8[R]: prompt tokens, pairs
    f8[R]: query-key pairs of these."""
    ranks = requests.size
    if p.colocated:
        return mixed_iteration_s(
            p.prices[0], requests, context, chunk, pairs, 0, ranks, p.hot_tokens, p.hot_factor,
            p.operators,
        )  # fmt: skip
    return decode_iteration_s(
        p.prices[0], requests, context, 0, ranks, p.hot_tokens, p.hot_factor, p.operators
    )


@kernel
def present_iteration_s(p: Population) -> float:
    """Seconds of an iteration with the requests and prompt chunks that the ranks now have."""
    return iteration_s(p, p.requests, p.context, p.chunk, p.chunk_pairs)


@kernel
def add_to_sums(p: Population, took_s: float, tokens: float) -> None:
    """Add an iteration of `took_s` seconds and `tokens` context tokens to the sums in `seen`."""
    p.seen[0] += 1.0
    p.seen[1] += took_s
    p.seen[2] += p.at[DECODES]
    p.seen[3] += tokens
    p.seen[4] += p.at[WAITS] > p.most_waiting
    p.seen[5] += p.at[TAKEN] - p.at[DECODES]


@kernel
def add_to_stretch(p: Population, took_s: float) -> None:
    """Add the seconds of an iteration to the present stretch of consecutive iterations. Once the
    stretch is full, add to `seen` the square of its mean and the product of its mean with that of
    the stretch before. The difference of these two sums is the variance that does not last."""
    p.stretch[1] += took_s
    p.stretch[2] += 1.0
    if p.stretch[2] < stretch_size(p):
        return
    stretch_mean_s = p.stretch[1] / p.stretch[2]
    p.seen[6] += 1.0
    p.seen[7] += stretch_mean_s * stretch_mean_s
    p.seen[8] += stretch_mean_s * (p.stretch[0] if p.stretch[0] > 0.0 else stretch_mean_s)
    p.stretch[0], p.stretch[1], p.stretch[2] = stretch_mean_s, 0.0, 0.0


@kernel
def stretch_size(p: Population) -> int:
    """Number of iterations in a stretch: 1 without prompts, where neighbours differ little."""
    return STRETCH if p.expected_s > 0.0 else 1


@kernel
def add_requests(p: Population, count: int) -> None:
    """Add up to `count` requests in the progress that a stationary stream has: long answers are in
    progress more often (length-biased law of renewal theory), and requests of one rank have similar
    shares of their answers behind them."""
    longest_tokens = 0
    for request in range(p.outputs.size):
        longest_tokens = max(longest_tokens, p.outputs[request])
    added_count = 0
    for _ in range(MOST_DRAWS * count):
        if added_count == count:
            break
        request = int(uniform(p.draw, p.at[DRAWS]) * p.outputs.size)
        is_accepted = uniform(p.gap, p.at[DRAWS]) * (longest_tokens - 1) < p.outputs[request] - 1
        past_share = CLUMP * uniform(p.round, p.at[DRAWS])
        p.at[DRAWS] += 1
        if not is_accepted:
            continue
        added_count += 1
        if added_count % p.load.size == 1:
            refresh_loads(p)
        slot = reserve_slot(p, p.inputs[request], p.outputs[request])
        if slot == NONE:
            continue
        p.came_s[slot] = math.nan
        past_share += uniform(p.offset, p.rank[slot])
        begin_decoding(p, slot, past_share - math.floor(past_share))


@kernel
def skip_iterations(p: Population, last: int) -> None:
    """Advance an instance without prompts to the iteration before the next one in which a request
    comes, joins or leaves; at most to the one before `last`. Until then contexts grow evenly, so
    the seconds of the measured iterations are interpolated between the first and the last."""
    start_iteration = p.at[ITERATION]
    is_full = p.at[WAITS] > 0
    if p.ahead[0] < 1.0 or (is_full and p.refused[0] > p.shortest):
        return
    last = min(last, start_iteration + 1 + int(p.ahead[0]))
    next_event = start_iteration + 1
    while next_event < last and p.ring[next_event % p.ring.size] == NONE:
        next_event += 1
    first_measured = start_iteration + LOOK_EVERY - start_iteration % LOOK_EVERY
    last_measured = (next_event - 1) // LOOK_EVERY * LOOK_EVERY
    if last_measured - first_measured < LEAST_LOOKS * LOOK_EVERY:
        return
    grow_contexts(p, first_measured - start_iteration)
    first_s, first_tokens = present_iteration_s(p), context_tokens(p)
    grow_contexts(p, last_measured - first_measured)
    last_s, last_tokens = present_iteration_s(p), context_tokens(p)
    intervals = (last_measured - first_measured) // LOOK_EVERY
    for interval in range(intervals + 1 if p.at[DECODES] > 0 else 0):
        took_s = first_s + (last_s - first_s) * interval / intervals
        add_to_stretch(p, took_s)
        add_to_sums(p, took_s, first_tokens + (last_tokens - first_tokens) * interval / intervals)
    grow_contexts(p, next_event - 1 - last_measured)
    p.ahead[0] -= next_event - 1 - start_iteration
    if is_full:  # one is drawn in each iteration, and finds no room
        p.at[DRAWS] += next_event - 1 - start_iteration
    p.at[ITERATION] = next_event - 1


@kernel
def skip_mixed_iterations(p: Population, last: int, pace: float, arrivals: float) -> float:
    """Advance an instance that computes prompts to the iteration before the next one in which a
    request comes, joins or leaves, or a prompt ends; at most to the one before `last`. In between
    contexts and pairs grow evenly, so seconds are interpolated between the first and the last
    iteration.
    pace: expected arrivals of the next iteration divided by the mean `arrivals`. Returns the pace
    after the skipped iterations."""
    start_iteration = p.at[ITERATION]
    if p.at[WAITS] > 0 or p.at[DECODES] == 0 or p.ahead[0] < LEAST_QUIET * pace:
        return pace
    skip_count = min(last - 1 - start_iteration, int(p.ahead[0] / pace), full_chunk_iterations(p))
    next_event = start_iteration + 1
    while next_event <= start_iteration + skip_count and p.ring[next_event % p.ring.size] == NONE:
        next_event += 1
    skip_count = next_event - 1 - start_iteration
    if skip_count < LEAST_QUIET:
        return pace
    grow_contexts(p, 1)
    compute_prompts(p)
    first_s, first_tokens = present_iteration_s(p), context_tokens(p)
    grow_contexts(p, skip_count - 1)
    for first_rank in range(0, p.chunk.size, p.prompt_ranks):
        if p.head[first_rank] != NONE:
            ranks = min(p.prompt_ranks, p.chunk.size - first_rank)
            p.to_compute[p.head[first_rank]] -= p.chunk_most * ranks * (skip_count - 2)
    compute_prompts(p)
    last_s, last_tokens = present_iteration_s(p), context_tokens(p)
    for skipped in range(skip_count):
        past_share = skipped / (skip_count - 1)
        took_s, iteration = first_s + (last_s - first_s) * past_share, start_iteration + 1 + skipped
        p.ahead[0] -= pace
        p.seen[11] += pace * arrivals
        p.now_s[0] += took_s
        is_measured = iteration % LOOK_EVERY == 0 or p.prompt_delay > 0
        if is_measured or p.expected_s > 0.0:
            add_to_stretch(p, took_s)
        if is_measured:
            add_to_sums(p, took_s, first_tokens + (last_tokens - first_tokens) * past_share)
        if p.expected_s > 0.0:
            pace = arrivals_of_iteration(p, took_s)
    p.now_s[1] = last_s
    p.at[ITERATION] = next_event - 1
    return pace


@kernel
def full_chunk_iterations(p: Population) -> int:
    """Number of next iterations in which every group with a prompt spends its whole chunk on it
    without ending it. Returns ENDLESS if no group has a prompt, 0 if prompts may be delayed."""
    if p.at[TAKEN] == p.at[DECODES]:
        return ENDLESS
    iterations = ENDLESS if p.prompt_delay == 0 else 0
    for first_rank in range(0, p.head.size, p.prompt_ranks):
        if p.head[first_rank] != NONE:
            chunk_tokens = p.chunk_most * min(p.prompt_ranks, p.head.size - first_rank)
            iterations = min(
                iterations, math.ceil(p.to_compute[p.head[first_rank]] / chunk_tokens) - 1
            )
    return iterations


@kernel
def grow_contexts(p: Population, iterations: int) -> None:
    """Add the growth of a number of iterations to the context of every rank, rounded as if the
    iterations ran one by one, so that ranks of equal loads stay equal."""
    context, growth = p.context, p.growth
    for _ in range(iterations):
        for rank in range(context.size):
            context[rank] += growth[rank]


@kernel
def context_tokens(p: Population) -> float:
    """Returns the sum of the ranks' context tokens."""
    tokens = 0.0
    for rank in range(p.context.size):
        tokens += p.context[rank]
    return tokens


@entry
def run_population(
    p: Population, residents: int, iterations: int, arrivals: float, reserved_for: float
) -> None:
    """Add `residents` requests at even stages of their answers (0: none), then run a number of
    iterations and add their measurements to `seen`.
    arrivals: requests that arrive in a mean iteration; with `expected_s` longer iterations bring
    more. reserved_for: iterations between the choice of a rank and the first iteration there."""
    if residents > 0:
        add_requests(p, residents)
    arrival_pace, last_iteration = 1.0, p.at[ITERATION] + iterations
    while p.at[ITERATION] < last_iteration:
        if p.skips and p.colocated:
            arrival_pace = skip_mixed_iterations(p, last_iteration, arrival_pace, arrivals)
        elif p.skips:
            skip_iterations(p, last_iteration)
        p.at[ITERATION] += 1
        grow_contexts(p, 1)
        ring_index = p.at[ITERATION] % p.ring.size
        slot = p.ring[ring_index]
        p.ring[ring_index] = NONE
        while slot != NONE:
            next_slot = p.following[slot]
            if p.status[slot] == COMING and p.left[slot] > 0:
                begin_decoding(p, slot, 0.0)
            else:
                end_answer(p, slot)
            slot = next_slot
        admit_arrivals(p, arrivals, reserved_for, arrival_pace)
        if p.colocated:
            compute_prompts(p)
        # Prompts that wait make iterations periodic: each is looked at.
        measure_interval = LOOK_EVERY if p.prompt_delay == 0 else 1
        is_measured = p.at[ITERATION] % measure_interval == 0 and p.at[DECODES] > 0
        if is_measured or p.colocated:
            took_s = present_iteration_s(p)
            p.now_s[0], p.now_s[1] = p.now_s[0] + took_s, took_s
            if is_measured or p.expected_s > 0.0:
                add_to_stretch(p, took_s)
            if is_measured:
                add_to_sums(p, took_s, context_tokens(p))
            if p.expected_s > 0.0:
                arrival_pace = arrivals_of_iteration(p, took_s)


@entry
def even_iteration_s(
    p: Population, requests: float, context: float, chunk: float, chunk_pairs: float,
    last_chunk: float, last_pairs: float, last_ranks: int,
) -> float:  # fmt: skip
    """Seconds of an iteration in which all ranks decode the same number of requests and context
    tokens.
    Colocated ranks also compute `chunk` prompt tokens with `chunk_pairs` query-key pairs each,
    except that the last `last_ranks` ranks compute `last_chunk` tokens with `last_pairs` pairs."""
    ranks = p.slots.size
    chunks, pairs = np.full(ranks, chunk), np.full(ranks, chunk_pairs)
    chunks[ranks - last_ranks :], pairs[ranks - last_ranks :] = last_chunk, last_pairs
    return iteration_s(p, np.full(ranks, requests), np.full(ranks, context), chunks, pairs)


@stage("population")
def compile_population() -> None:
    """Compile the functions by which Python simulates the stationary requests of an instance."""
    compile_entry(run_population, Population, int, int, float, float)
    compile_entry(even_iteration_s, Population, *(6 * [float]), int)
    prompts_by_rank(1.0, 1.0, 1.0, 1.0, 1)  # its recursion
