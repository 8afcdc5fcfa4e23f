"""The stationary population of a decode instance: who is under way while arrivals never end.

Counted in iterations instead of seconds, requests under way are an M/G/infinity queue: how many
iterations an answer needs does not depend on how long one takes. So arrivals per iteration alone
decide the population, and seconds come in once, as the mean time of its iterations (Little's law;
renewal theory gives elapsed and remaining lengths). Ranks are chosen as the router chooses them,
for the fullest rank sets the pace: requests that join a rank together also leave it together,
which independent draws miss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.experts import Imbalance
from twin.kernels.borrowed import prepare
from twin.kernels.buffers import Columns, column, key, number
from twin.kernels.compiled import entry, kernel, stage
from twin.kernels.rng import gamma, stream_key, uniform
from twin.model.coefficients import Decode
from twin.model.costs import RoleCosts
from twin.model.decode import decode_iteration_s
from twin.model.mixed import Chunk, mixed_iteration_s, mixed_mean_s, prompts_by_rank
from twin.model.record import dtype_of, numbers
from twin.policies.batching import iterations_needed, iterations_of
from twin.policies.router import BLOCK, NOBODY, RANK_CHOICES, choose_rank
from twin.scenario.deployment import Decode as DecodePool
from twin.workload.lengths import elapsed_tokens, mean_square, relative_lengths

NONE = -1
FREE, COMING, DECODING = range(3)  # status of a place
LOOK_EVERY = 4  # iterations: neighbours are nearly alike
CLUMP = 0.6  # of a life: how far requests of one rank are apart at the begin, see `fill`
ROUNDING = 1.0 - 1e-9  # more than sums of loads can be off
MOST_DRAWS = 10_000  # for one request that is under way


class Population(Columns):
    """One decode or colocated instance, its ranks and the requests that have a place on them."""

    prices = column(dtype_of(Decode), "1", "Prices of an iteration.", fill=None)
    colocated = number(int, "Whether prompts are computed in the same iterations.")
    pair = number(float, "Query-key pairs of a prompt, for the square of its tokens.")
    fresh = number(float, "Share of a prompt that is computed.")
    prompt_ranks = number(int, "Ranks that split a prompt.")
    chunk_most = number(float, "Prompt tokens of a rank in an iteration, at most.", unit="tokens")
    hot_tokens = column("f8", "points", "Tokens of the table below.", fill=None)
    hot_factor = column("f8", "points", "Imbalance of experts.", fill=None)
    inputs = column("i4", "sample", "Prompt lengths to draw from.", unit="tokens", fill=None)
    outputs = column("i4", "sample", "Answer lengths, of the same requests.", fill=None)
    room_tokens = number(float, "KV of one rank.", unit="tokens")
    page_tokens = number(float, "Half of a KV block: mean waste of a request.", unit="tokens")
    rank_choice = number(int, "Code of the policy that chooses a rank.")
    regular = number(float, "Shape of the gaps between arrivals: 1 is Poisson.")
    draft_tokens = number(int, "MTP drafts of an iteration.")
    acceptance = number(float, "Chance that a draft is right.")
    draw = key("Which request comes.")
    gap = key("Arrivals.")
    accept = key("Iterations that an answer needs.")
    round = key("Their rounding.")
    offset = key("When within an iteration a request comes.")
    slots = column("i8", "ranks", "Requests a rank may hold.", fill=None)
    requests = column("i8", "ranks", "Requests that decode.")
    context = column("f8", "ranks", "Their context.", unit="tokens")
    growth = column("f8", "ranks", "What an iteration adds to it.", unit="tokens")
    reserved = column("f8", "ranks", "Of requests that have a place and are in prefill.")
    taken = column("i8", "ranks", "Places taken.")
    load = column("f8", "ranks", "Tokens of a rank as the choice of one sees them.")
    total = column("f8", "1", "Of all ranks.")
    price = column("f8", "ranks", "Scratch of the choice of a rank.")
    floor = column("f8", "blocks", "Scratch of the choice of a rank.")
    operators = column("f8", "operators", "Scratch of an iteration.", unit="s")
    ring = column("i4", "ring", "First place that is due at an iteration.", fill=NONE)
    following = column("i4", "places", "Next place of a list.", fill=NONE)
    status = column("i1", "places", "Free, reserved or decoding.")
    rank = column("i4", "places", "Its rank.")
    prompt = column("i4", "places", "Prompt.", unit="tokens")
    left = column("i4", "places", "Tokens of the answer after the first.", unit="tokens")
    joined = column("i8", "places", "Iteration at which it joined.")
    due = column("i8", "places", "Iteration at which it joins or ends.")
    at = column("i8", "6", "Iteration, places taken, draws, first free place, decoding, waiting.")
    ahead = column("f8", "1", "Iterations until the next arrival.")
    backlog = column("f8", "ranks", "Prompts of a rank that wait to be computed.", unit="tokens")
    backlog_pairs = column("f8", "ranks", "Query-key pairs of these.")
    chunk = column("f8", "ranks", "Prompt tokens of a rank in this iteration.", unit="tokens")
    chunk_pairs = column("f8", "ranks", "Query-key pairs of these.")
    most_waiting = number(
        float, "Requests without a place that still get their first token in time."
    )
    last = column("f8", "1", "The iteration that was looked at before.", unit="s")
    seen = column("f8", "6", "Sums: looks, seconds, these by the last's, decoding, context, late.")


ITERATION, TAKEN, DRAWS, FIRST_FREE, DECODES, WAITS = range(6)


@kernel
def refresh(p: Population) -> None:
    """Let the choice of a rank see the loads of now."""
    p.total[0] = 0.0
    for r in range(p.load.size):
        p.load[r] = p.context[r] + p.reserved[r] + p.taken[r] * p.page_tokens
        p.total[0] += p.load[r]
    for b in range(p.floor.size):
        p.floor[b] = 0.0


@kernel
def reserve(p: Population, prompt: int, answer: int) -> int:
    """Give a request the place that the router would; its number, or NONE where there is none."""
    need = prompt + p.page_tokens
    rank = choose_rank(
        p.rank_choice, p.at[DRAWS], p.taken, p.load, p.at[TAKEN], p.total[0], p.slots,
        p.room_tokens, need, p.price, p.floor,
    )  # fmt: skip
    i = p.at[FIRST_FREE]
    if rank == NOBODY or i == NONE:
        return NONE
    p.at[FIRST_FREE] = p.following[i]
    p.status[i], p.rank[i], p.prompt[i], p.left[i] = COMING, rank, prompt, answer - 1
    slots, tokens = max(p.at[TAKEN], 1), max(p.total[0], 1.0)
    p.taken[rank] += 1
    p.reserved[rank] += prompt
    p.load[rank] += need
    p.at[TAKEN] += 1
    p.total[0] += need
    # A load counts both over their means: every load has grown by the lesser growth.
    grown = min(p.at[TAKEN] / slots, p.total[0] / tokens) * ROUNDING
    for b in range(p.floor.size):
        p.floor[b] *= max(grown, 1.0)
    return i


@kernel
def join(p: Population, i: int, past: float) -> None:
    """Let a request decode; past: the share of its iterations that is over."""
    rank, left = p.rank[i], p.left[i]
    whole = iterations_needed(left, p.draft_tokens, p.acceptance, p.accept, p.round, p.at[DRAWS])
    p.at[DRAWS] += 1
    over = int(past * whole)
    p.reserved[rank] -= p.prompt[i]
    p.status[i] = DECODING
    p.joined[i] = p.at[ITERATION] - over
    p.due[i] = p.joined[i] + max(whole, over + 1)
    enlist(p, i)
    rate = left / (p.due[i] - p.joined[i])
    p.requests[rank] += 1
    p.growth[rank] += rate
    p.context[rank] += p.prompt[i] + 1 + over * rate
    p.at[DECODES] += 1


@kernel
def enlist(p: Population, i: int) -> None:
    """Put a place into the list of the iteration at which it is due."""
    bucket = p.due[i] % p.ring.size
    p.following[i] = p.ring[bucket]
    p.ring[bucket] = i


@kernel
def leave(p: Population, i: int) -> None:
    """End a request's answer and free its place."""
    rank = p.rank[i]
    if p.status[i] == DECODING:
        p.requests[rank] -= 1
        p.growth[rank] -= p.left[i] / (p.due[i] - p.joined[i])
        p.context[rank] -= p.prompt[i] + 1 + p.left[i]
        p.at[DECODES] -= 1
        if p.requests[rank] == 0:  # no rounding outlives an empty rank
            p.growth[rank] = 0.0
            p.context[rank] = 0.0
    else:
        p.reserved[rank] -= p.prompt[i]
    p.taken[rank] -= 1
    p.at[TAKEN] -= 1
    p.status[i] = FREE
    p.following[i] = p.at[FIRST_FREE]
    p.at[FIRST_FREE] = i


@kernel
def arrive(p: Population, per_iteration: float, reserved_for: float) -> None:
    """Let an iteration's arrivals have places; those that find none wait for a later one."""
    while p.ahead[0] < 1.0:
        p.ahead[0] += gamma(p.gap, p.at[DRAWS], p.regular) / (p.regular * per_iteration)
        p.at[DRAWS] += 1
        p.at[WAITS] = min(p.at[WAITS] + 1, p.status.size)
    p.ahead[0] -= 1.0
    refresh(p)
    while p.at[WAITS] > 0:
        k = int(uniform(p.draw, p.at[DRAWS]) * p.inputs.size)
        i = reserve(p, p.inputs[k], p.outputs[k])
        p.at[DRAWS] += 1
        if i == NONE:
            break
        tokens, first = float(p.inputs[k]), p.rank[i] // p.prompt_ranks * p.prompt_ranks
        last = min(first + p.prompt_ranks, p.slots.size)
        for r in range(first, last):
            p.backlog[r] += p.fresh * tokens / (last - first)
            p.backlog_pairs[r] += p.pair * tokens * tokens / (last - first)
        p.at[WAITS] -= 1
        wait = int(reserved_for + uniform(p.offset, p.at[DRAWS]))
        p.due[i] = p.at[ITERATION] + max(wait, 1)
        enlist(p, i)


@kernel
def iterate(p: Population, iterations: int, per_iteration: float, reserved_for: float) -> None:
    """Run so many iterations; per_iteration: mean arrivals; reserved_for: iterations between the
    choice of a rank and the first iteration there. Adds up what was `seen`."""
    ranks = p.requests.size
    for _ in range(iterations):
        p.at[ITERATION] += 1
        for r in range(ranks):
            p.context[r] += p.growth[r]
        bucket = p.at[ITERATION] % p.ring.size
        i = p.ring[bucket]
        p.ring[bucket] = NONE
        while i != NONE:
            after = p.following[i]
            if p.status[i] == COMING and p.left[i] > 0:
                join(p, i, 0.0)
            else:
                leave(p, i)
            i = after
        arrive(p, per_iteration, reserved_for)
        for r in range(ranks):
            share = min(1.0, p.chunk_most / max(p.backlog[r], 1.0))
            p.chunk[r], p.chunk_pairs[r] = share * p.backlog[r], share * p.backlog_pairs[r]
            p.backlog[r] -= p.chunk[r]
            p.backlog_pairs[r] -= p.chunk_pairs[r]
        if p.at[ITERATION] % LOOK_EVERY == 0 and p.at[DECODES] > 0:
            look(p)


@kernel
def look(p: Population) -> None:
    """Add the iteration of now to what was seen; each rank computes its chunk of prompts."""
    ranks = p.requests.size
    if p.colocated:
        took_s = mixed_iteration_s(
            p.prices[0], p.requests, p.context, p.chunk, p.chunk_pairs, 0, ranks, p.hot_tokens,
            p.hot_factor, p.operators,
        )  # fmt: skip
    else:
        took_s = decode_iteration_s(
            p.prices[0], p.requests, p.context, 0, ranks, p.hot_tokens, p.hot_factor, p.operators
        )
    context = 0.0
    for r in range(ranks):
        context += p.context[r]
    p.seen[0] += 1.0
    p.seen[1] += took_s
    p.seen[2] += took_s * (p.last[0] if p.last[0] > 0.0 else took_s)
    p.last[0] = took_s
    p.seen[3] += p.at[DECODES]
    p.seen[4] += context
    p.seen[5] += p.at[WAITS] > p.most_waiting


@kernel
def fill(p: Population, count: int) -> None:
    """Give so many requests a place as a stationary stream leaves them.

    Long answers are met more often (the length-biased law of renewal theory). Requests of one rank
    are at near stages: a rank that several leave at once takes the next that come, and after some
    lives of requests this is how ranks are, so that beginning like this saves these lives.
    """
    longest = 0
    for k in range(p.outputs.size):
        longest = max(longest, p.outputs[k])
    n = 0
    for _ in range(MOST_DRAWS * count):
        if n == count:
            break
        k = int(uniform(p.draw, p.at[DRAWS]) * p.outputs.size)
        accepted = uniform(p.gap, p.at[DRAWS]) * (longest - 1) < p.outputs[k] - 1
        stage = CLUMP * uniform(p.round, p.at[DRAWS])
        p.at[DRAWS] += 1
        if not accepted:
            continue
        n += 1
        if n % p.load.size == 1:
            refresh(p)
        i = reserve(p, p.inputs[k], p.outputs[k])
        if i == NONE:
            continue
        stage += uniform(p.offset, p.rank[i])
        join(p, i, stage - math.floor(stage))


@entry
def live_through(
    p: Population, first: int, iterations: int, per_iteration: float, reserved_for: float
) -> None:
    """Begin with `first` requests at even stages (0: as it is), then run so many iterations."""
    if first > 0:
        fill(p, first)
    iterate(p, iterations, per_iteration, reserved_for)


stage("population")(lambda: prepare(live_through, Population, int, int, float, float))


BURN, MEASURED = 1.5, 2.5  # lives of a request before and while times are taken, each pass
FEWEST, MOST = 3, 24  # passes
SCATTER = 7e-3  # relative standard error of what uneven ranks add: passes end below it
HALVINGS = 40
CLOSE = 1e-2  # of the arrivals of an iteration: passes end when they change by less
LEAST_CV = 0.1  # of gaps: evener ones change nothing
OVER = 0.02  # more than full places answer, so that they stay full


@dataclass(slots=True)
class Stationary:
    """A decode instance in the steady state at a load."""

    population: Population
    iteration_s: float  # mean
    swing: float  # relative standard deviation of iterations over time, of what lasts
    late: float  # share of the time in which too many wait for a place
    rate_req_per_s: float  # what it answers
    decoding: float  # requests that decode, mean, all ranks
    life: float  # iterations that an answer needs, mean
    reserved_s: float
    overloaded: bool  # whether more come than full places answer


@dataclass(frozen=True, slots=True)
class Arriving:
    """What comes to one decode instance."""

    inputs: NDArray[np.int32]  # lengths of a sample of requests, tokens
    outputs: NDArray[np.int32]
    rate_req_per_s: float  # at most; infinite: clients alone decide
    reserved_s: float  # between the choice of a rank and the first iteration there
    clients: float = math.inf  # of a closed loop
    away_s: float = 0.0  # between an answer of theirs and the next one's first iteration
    cv: float = 1.0  # coefficient of variation of the gaps between arrivals
    most_iteration_s: float = math.inf  # of the load that is looked for
    patience_s: float = math.inf  # that a request may wait for its place


def population_of(
    role: RoleCosts, hot: Imbalance, slots: NDArray[np.int64], decode: DecodePool, seed: int,
    acceptance: float, page_tokens: int, arriving: Arriving, chunk: Chunk | None = None,
) -> Population:  # fmt: skip
    """An empty instance of a role; slots i8[ranks]; decode: the scenario's section."""
    longest = int(arriving.outputs.max(initial=1))
    ops = role.operator_sink()
    one = np.ones(1, np.int64), np.ones(1), 0, 1
    least_s = float(decode_iteration_s(role.decode, *one, *hot.table, ops))
    wait = int(arriving.reserved_s / least_s)
    places = int(slots.sum())
    following = np.arange(1, places + 1, dtype=np.int32)
    following[-1] = NONE
    prices = numbers(role.decode).view(dtype_of(Decode))
    sizes = {"ranks": role.dies, "blocks": -(-role.dies // BLOCK), "places": places,
             "operators": ops.size, "ring": 1 << (longest + wait + 4).bit_length()}  # fmt: skip
    return Population(
        sizes, prices=prices, colocated=int(chunk is not None),
        fresh=chunk.tokens / float(arriving.inputs.mean()) if chunk else 0.0,
        pair=chunk.pairs / mean_square(arriving.inputs) if chunk else 0.0,
        prompt_ranks=chunk.ranks if chunk else 1,
        chunk_most=chunk.most_tokens if chunk else 0.0, most_waiting=math.inf,
        hot_tokens=hot.tokens, hot_factor=hot.factor,
        inputs=arriving.inputs, outputs=arriving.outputs,
        room_tokens=float(role.kv_tokens_per_die), page_tokens=0.5 * page_tokens,
        regular=1.0 / max(arriving.cv, LEAST_CV) ** 2,
        rank_choice=RANK_CHOICES[decode.rank_choice], draft_tokens=decode.mtp_draft_tokens,
        acceptance=acceptance, draw=stream_key(seed, "population.who"),
        gap=stream_key(seed, "population.when"), accept=stream_key(seed, "population.mtp"),
        round=stream_key(seed, "population.rounding"),
        offset=stream_key(seed, "population.offset"), slots=slots, following=following,
    )  # fmt: skip


def stationary(population: Population, prices: Decode, arriving: Arriving) -> Stationary:
    """The steady state of an instance under a load; prices: the population's, as plain numbers.

    The time of an iteration with even ranks says how time grows with the load. What uneven ranks
    add to it is measured on the population itself, in passes that begin where the last ended.
    """
    p = population
    life = iterations_of(arriving.outputs, p.draft_tokens, p.acceptance)
    held = float(arriving.inputs.mean()) + elapsed_tokens(arriving.outputs)
    prompts = _prompts(p)
    room = math.floor(p.room_tokens / (held + p.page_tokens))
    places = float(np.minimum(p.slots, room).sum())
    uneven, factors, squares, waited = 1.0, list[float](), list[float](), list[float]()

    def took_s(each: float) -> float:
        return uneven * _even_s(p, prices, min(each * life, places), held, each, prompts)

    each = 0.0
    for n in range(MOST):
        last = each
        each, full = _arrivals(p, took_s, arriving, life, places)
        if n >= FEWEST and abs(each / last - 1.0) < CLOSE and _scatter(factors) < SCATTER:
            break
        wait = arriving.reserved_s / took_s(each)
        p.most_waiting = arriving.patience_s / took_s(each) * each
        live_through(p, 0 if n else int(each * life), int(BURN * life) + 1, each, wait)
        p.seen[:] = 0.0
        live_through(p, 0, int(MEASURED * life) + LOOK_EVERY, each, wait)
        count, seconds, square, decoding, context, late = (float(v) for v in p.seen)
        if decoding > 0.0:  # else none came: one alone is even
            held = context / decoding
            even_s = count * _even_s(p, prices, decoding / count, held, each, prompts)
            if n == 1:  # the first pass is still near where it was begun
                factors, squares, waited = [], [], []
            factors.append(seconds / even_s)
            waited.append(late / count)
            squares.append(square * count / even_s**2)
            uneven = math.fsum(factors) / len(factors)
    each, full = _arrivals(p, took_s, arriving, life, places)
    pace = (seconds / count, decoding / count) if full and count else (took_s(each), each * life)
    iteration_s, decoding = pace
    rate = decoding / life / iteration_s
    square = math.fsum(squares) / max(len(squares), 1)
    swing = math.sqrt(max(square / uneven**2 - 1.0, 0.0))
    late = math.fsum(waited) / max(len(waited), 1)
    return Stationary(p, iteration_s, swing, late, rate, decoding, life, arriving.reserved_s, full)


def _scatter(factors: list[float]) -> float:
    """Relative standard error of the mean of some passes."""
    n, mean = len(factors), math.fsum(factors) / max(len(factors), 1)
    if n < 2:
        return math.inf
    return math.sqrt(math.fsum((x / mean - 1.0) ** 2 for x in factors) / (n - 1) / n)


def _prompts(p: Population) -> tuple[float, float, tuple[float, ...]] | None:
    """(mean tokens computed of a prompt, mean query-key pairs of such a token, lengths of prompts
    over their mean); None unless prompts are computed in decode's iterations."""
    if not p.colocated:
        return None
    tokens = p.fresh * float(p.inputs.mean())
    return tokens, p.pair * mean_square(p.inputs) / tokens, relative_lengths(p.inputs)


def _even_s(
    p: Population, prices: Decode, decoding: float, held: float, each: float,
    prompts: tuple[float, float, tuple[float, ...]] | None,
) -> float:  # fmt: skip
    """Seconds of an iteration whose ranks are alike; held: tokens of a request that decodes."""
    ranks, hot, ops = p.slots.size, (p.hot_tokens, p.hot_factor), np.zeros_like(p.operators)
    requests = np.full(ranks, max(decoding, 1.0) / ranks)  # none iterates without a request
    load = (requests, requests * held)
    if prompts is None:
        return float(decode_iteration_s(prices, *load, 0, ranks, *hot, ops))
    prompt, pairs, lengths = prompts
    tokens = min(each, ranks * p.chunk_most / max(prompt, 1.0)) * prompt
    chunk = prompts_by_rank(
        tokens, tokens * pairs, prompt, p.chunk_most, ranks, p.prompt_ranks, lengths
    )
    return mixed_mean_s(prices, *load, chunk, hot, ops)


def _arrivals(
    p: Population, took_s: Callable[[float], float], arriving: Arriving, life: float, places: float
) -> tuple[float, bool]:
    """(arrivals of an iteration at the load, whether full places answer fewer)."""

    def beyond(each: float) -> float:
        took = took_s(each)
        rate = each / took
        clients = each * life + rate * arriving.away_s
        return max(
            rate / arriving.rate_req_per_s, clients / arriving.clients,
            took / arriving.most_iteration_s,
        ) - 1.0  # fmt: skip

    high = places / (life + arriving.reserved_s / took_s(places / life))
    if p.colocated:
        prompt = max(p.fresh * float(p.inputs.mean()), 1.0)
        high = min(high, p.slots.size * p.chunk_most / prompt)
    above = beyond(high)
    if above < 0.0:
        return high * (1.0 + OVER), True
    low, below = 0.0, -1.0
    for _ in range(HALVINGS):  # false position; of the end that stays half (Illinois)
        middle = high - above * (high - low) / (above - below)
        there = beyond(middle)
        if abs(there) < 0.01 * CLOSE:
            return middle, False
        if there < 0.0:
            low, below, above = middle, there, 0.5 * above
        else:
            high, above, below = middle, there, 0.5 * below
    return high, False
