"""Time to first token under load: what merging prompts into batches does to those who wait.

Prefill is a bulk-service queue: an instance that becomes free takes all that waits for it, up to
its budget, and a batch takes longer the more it holds (Bailey, J. Roy. Stat. Soc. B 16, 1954;
Chaudhry & Templeton, A First Course in Bulk Queues, 1983). No closed form has lengths that differ
and a router that balances, so the queue's own recursion (Lindley, Proc. Camb. Phil. Soc. 48, 1952)
is followed over a sample of the requests."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace

import numpy as np

from twin.kernels.rng import stream_key, uniform, uniforms
from twin.model.prefill import next_piece

# Of a batch: tokens and query-key pairs, of all and of the die that has most.
Seconds = Callable[[float, float, float, float], float]
DEALT, SHUFFLED = stream_key(0, "prompts.die"), stream_key(0, "prompts.order")
RARE = 1e-6  # chance of more requests at an end, below which none is counted
Lives = Sequence[tuple[float, float]]  # (how long requests stay, share of the requests)


@dataclass(frozen=True, slots=True)
class Prompts:
    """A sample of requests as prefill needs them, in order of arrival."""

    arrival_s: Sequence[float]  # at one request a second
    fresh: Sequence[float]  # tokens that have to be computed
    cached: Sequence[float]  # tokens that are read instead

    def first(self, count: int) -> Prompts:
        """The first requests of the sample, two at least."""
        rows = slice(max(count, 2))
        return Prompts(self.arrival_s[rows], self.fresh[rows], self.cached[rows])

    def repeated(self, times: int) -> Prompts:
        """The sample repeated a number of times, one copy after the other."""
        gap_count = len(self.arrival_s) - 1  # one alone has none
        span_s = self.arrival_s[-1] * (1.0 + 1.0 / gap_count) if gap_count else 1.0
        arrival_s = [moment + copy * span_s for copy in range(times) for moment in self.arrival_s]
        return Prompts(arrival_s, list(self.fresh) * times, list(self.cached) * times)

    def shuffled(self, times: int) -> Prompts:
        """`times` copies of the sample, each in an order of its own, and its gaps in another."""
        count, mean_gap_s = len(self.fresh), self.arrival_s[-1] / max(len(self.fresh) - 1, 1)
        gaps_s = np.diff(np.array(self.arrival_s), append=self.arrival_s[-1] + mean_gap_s)
        draws = np.arange(2 * times * count).reshape(2, times, count)
        orders, gap_orders = np.argsort(uniforms(SHUFFLED, draws), axis=-1, kind="stable")
        arrival_s = np.cumsum(gaps_s[gap_orders])
        tokens = (np.array(column)[orders].ravel().tolist() for column in (self.fresh, self.cached))
        return Prompts((arrival_s - arrival_s[0]).tolist(), *tokens)


@dataclass(frozen=True, slots=True)
class Pool:
    """Instances that compute prompts."""

    instances: int
    budget: float  # tokens of a batch
    chunk: float  # tokens that a prompt gives to one at most; 0: whole prompts
    seconds: Seconds
    full_s: float  # of a batch whatever it holds
    token_s: float  # that a token adds
    read_s: float = 0.0  # for a cached token
    idle_s: float = 0.0  # an iteration that goes on without prompts (colocated instances)
    dies: int = 1  # of an instance that compute prompts of their own; 1: all share each prompt
    delay_s: float = 0.0  # that a prompt waits for other ranks, or for later pipeline stages
    evening: float = 0.0  # how far later pieces of a prompt are shorter, as in `next_piece`
    line: tuple[float, float] = (0.0, 0.0)  # seconds of a batch per token and attention pair
    # Of a layer's attention on a die, per token and pair: the die with most sets the pace. Tokens
    # alone: where a share is one of tokens.
    attention: tuple[float, float] = (1.0, 0.0)
    share_s: float = math.inf  # of that attention, a die's share of a full batch: it takes no more
    in_turn: bool = False  # whether the router takes turns, not the instance that is free first
    is_dealt: bool = False  # a prompt stays on the die that was drawn for it, else the emptiest
    # Routers behind a front router, each with an equal part of the instances. They get prompts in
    # turn, or all of so many seconds, where the front router knows no more in between.
    routers: int = 1
    report_s: float = 0.0


def waits_s(prompts: Prompts, pool: Pool, rate: float) -> list[float]:
    """Seconds from router to end of prefill for each request of the sample at `rate` requests/s."""
    return waits_and_next_s(prompts, pool, rate)[0]


def waits_and_next_s(prompts: Prompts, pool: Pool, rate: float) -> tuple[list[float], list[float]]:
    """(seconds from the router to the end of prefill, seconds of the batch that its instance begins
    then, 0 if no prompt waits there) for each request of the sample, at `rate` requests/s."""
    n, instances = len(prompts.arrival_s), pool.instances
    free_s, queues = [0.0] * instances, [deque[int]() for _ in range(instances)]
    waiting_tokens = [0.0] * instances
    tokens_left = list(prompts.fresh)
    waited_s, next_s, ended_prompts = [0.0] * n, [0.0] * n, [list[int]() for _ in range(instances)]
    arrivals = [arrival / rate for arrival in prompts.arrival_s]
    die_of_prompt = [int(uniform(DEALT, i) * pool.dies) for i in range(n)] if pool.is_dealt else []
    # Names of this function: a loop over a hundred thousand prompts reads them.
    budget, full_s, token_s, report_s = pool.budget, pool.full_s, pool.token_s, pool.report_s
    seconds, read_s, routers = pool.seconds, pool.read_s, pool.routers
    own_count = instances // routers
    offsets = range(1 if pool.in_turn else own_count)

    def start_batch(p: int, at_s: float) -> None:
        """Form and compute one batch of the prompts that wait at instance p from `at_s` on."""
        tokens, pairs, cached, die_tokens, die_pairs, ending_prompts = _form_batch(
            prompts, pool, queues[p], tokens_left, die_of_prompt
        )
        waiting_tokens[p] -= tokens
        batch_s = seconds(tokens, pairs, die_tokens, die_pairs) + cached * read_s
        if at_s == free_s[p]:
            for prompt in ended_prompts[p]:
                next_s[prompt] = batch_s
        free_s[p], ended_prompts[p] = at_s + batch_s, ending_prompts
        for prompt in ending_prompts:
            waited_s[prompt] = free_s[p] - arrivals[prompt]

    def start_batches(p: int, until_s: float) -> None:
        """Start all batches of instance p that begin until `until_s`."""
        while queues[p] and free_s[p] <= until_s:
            start_batch(p, free_s[p])

    def choose_instance(i: int, now_s: float) -> int:
        """Index of the instance for prompt i: the one of the next turn, or the one that is free
        first, equal ones in turn; among those of one router."""
        instance, least_s = 0, math.inf
        turn = i if report_s == 0.0 else int(now_s / report_s)
        first, own_turn = turn % routers * own_count, i // routers
        for offset in offsets:
            p = first + (own_turn + offset) % own_count
            if queues[p] and free_s[p] <= now_s:
                start_batches(p, now_s)
            if len(offsets) == 1:
                return p
            ahead_s = free_s[p] - now_s if free_s[p] > now_s else 0.0
            if waiting_tokens[p]:
                ahead_s += waiting_tokens[p] * token_s
                ahead_s += waiting_tokens[p] // budget * full_s
            if ahead_s < least_s:
                instance, least_s = p, ahead_s
        return instance

    for i, now_s in enumerate(arrivals):
        instance = choose_instance(i, now_s)
        queues[instance].append(i)
        waiting_tokens[instance] += tokens_left[i]
        if free_s[instance] <= now_s:
            if pool.idle_s:  # it ends an iteration first
                free_s[instance] += -((free_s[instance] - now_s) // pool.idle_s) * pool.idle_s
                continue
            start_batch(instance, now_s)
    for p in range(instances):
        start_batches(p, float("inf"))
    return waited_s, next_s


def _form_batch(
    prompts: Prompts, pool: Pool, queue: deque[int], tokens_left: list[float], die_of: list[int]
) -> tuple[float, float, float, float, float, list[int]]:
    """Take the next batch from `queue`; returns (tokens, query-key pairs, cached tokens, tokens and
    pairs of its fullest die, prompts completed). die_of: each prompt's die, if drawn."""
    tokens, pairs, cached_tokens, (token_s, pair_s) = 0.0, 0.0, 0.0, pool.attention
    completed, in_part, fullest_die = list[int](), list[int](), (0.0, 0.0, 0.0)  # die, by attention
    die_sums = [(0.0, 0.0, 0.0)] * pool.dies  # load, tokens, pairs of each die
    fresh, cached, budget, is_dealt = prompts.fresh, prompts.cached, pool.budget, pool.is_dealt
    shares_tokens = pool.share_s == math.inf
    takes_whole = shares_tokens and not pool.chunk
    while queue and tokens < budget:
        prompt = queue[0]
        left = tokens_left[prompt]
        earlier_tokens = cached[prompt] + fresh[prompt] - left
        sums_of_die = die_sums[die_of[prompt]] if is_dealt else die_sums[0]
        if takes_whole:
            piece_tokens = left if left <= budget - tokens or not tokens else 0.0
        else:
            piece_tokens = _piece_tokens(pool, left, earlier_tokens, tokens, sums_of_die)
        if piece_tokens <= 0.0 and not is_dealt:
            break
        if piece_tokens <= 0.0:  # others may be on dies that have room
            in_part.append(queue.popleft())
            continue
        if left == fresh[prompt]:
            cached_tokens += cached[prompt]
        new_pairs = piece_tokens * (earlier_tokens + 0.5 * (piece_tokens + 1.0))
        tokens += piece_tokens
        pairs += new_pairs
        die_tokens, die_pairs = sums_of_die[1] + piece_tokens, sums_of_die[2] + new_pairs
        attention_s = token_s * die_tokens + pair_s * die_pairs
        die = (attention_s, die_tokens, die_pairs)
        fullest_die = max(fullest_die, die)
        load = die_tokens if shares_tokens else attention_s
        if is_dealt:
            die_sums[die_of[prompt]] = load, die_tokens, die_pairs
        else:
            heapreplace(die_sums, (load, die_tokens, die_pairs))
        tokens_left[prompt] = left = left - piece_tokens
        (in_part if left > 0.0 else completed).append(queue.popleft())
    queue.extendleft(reversed(in_part))
    return tokens, pairs, cached_tokens, *fullest_die[1:], completed


def _piece_tokens(
    pool: Pool, left: float, earlier: float, taken: float, die_load: tuple[float, float, float]
) -> float:
    """Tokens of a prompt with `left` tokens after `earlier` ones that join a batch of `taken`
    tokens, where a batch may have part of a prompt; 0: none. die_load: load, tokens and pairs of
    the die that would compute them."""
    room, piece_tokens = pool.budget - taken, left
    if pool.chunk:
        piece_tokens = min(left, float(next_piece(pool.chunk, pool.evening, *pool.line, earlier)))
    if pool.share_s == math.inf:
        return min(piece_tokens, room)
    (token_s, pair_s), left_s = pool.attention, pool.share_s - die_load[0]
    if left_s <= 0.0:
        return 0.0
    next_token_s = token_s + earlier * pair_s  # of the piece's first token
    if pair_s > 0.0:
        root_s = math.sqrt(next_token_s**2 + 2.0 * pair_s * left_s)
        fitting_tokens = (root_s - next_token_s) / pair_s
    else:
        fitting_tokens = left_s / token_s
    return min(piece_tokens, room, max(fitting_tokens, 1.0))


def saturated_rate(prompts: Prompts, pool: Pool) -> float:
    """Requests/s of a pool that always has waiting prompts: by what a second copy of the sample
    adds, so that batches before its first and after its last long prompt do not count."""
    one_instance = replace(pool, instances=1, routers=1)
    one_copy_s, two_copies_s = (
        max(waits_s(Prompts([0.0] * len(one.fresh), one.fresh, one.cached), one_instance, 1.0))
        for one in (prompts, prompts.repeated(2))
    )
    return pool.instances * len(prompts.fresh) / (two_copies_s - one_copy_s)


def mean_of_fullest(requests: float, ends: int) -> float:
    """Mean number of requests at the end that has most, where each of `ends` has a Poisson number
    and all together `requests`."""
    mean = requests / ends
    chance = total_chance = math.exp(-mean)
    fullest, count = 0.0, 0
    while (more_chance := 1.0 - total_chance**ends) > RARE:
        fullest, count = fullest + more_chance, count + 1
        chance *= mean / count
        total_chance += chance
    return fullest


def relative_variance_in_progress(lives: Lives, mean_requests: float, cv: float) -> float:
    """Variance of the number of requests in progress over its squared mean. lives: (life, share of
    requests); mean_requests: mean number in progress; cv: coefficient of variation of the gaps
    between arrivals. The variance of an infinite-server queue is z times its mean, with peakedness
    z = 1 + (cv^2 - 1) E[min(S, S')] / E[S] (A. E. Eckberg, "Generalized peakedness of teletraffic
    processes", 1983; W. Whitt, Bell Syst. Tech. J. 63, 1984)."""
    longer_chance, lesser_mean, mean_life = 1.0, 0.0, 0.0
    for life, share in sorted(lives):
        lesser_mean += life * share * (2.0 * longer_chance - share)
        mean_life += life * share
        longer_chance -= share
    return max(1.0 + (cv * cv - 1.0) * lesser_mean / mean_life, 0.0) / mean_requests


def variance_share_of_mean(lives: Lives, window: float) -> float:
    """Variance of the mean number of requests in progress over a `window`, as a share of the
    variance at one instant; window and lives in one unit of time. An M/G/infinity queue's
    autocorrelation at a distance d is E[(life - d)+] / E[life] (Cox & Miller, 1965)."""
    mean, variance_parts = math.fsum(life * share for life, share in lives), []
    for life, share in lives:
        overlap = min(window, life)
        square = 0.5 * (window + life) * overlap * overlap
        variance_parts.append(share * (window * life * overlap - square + overlap**3 / 3.0))
    return 2.0 * math.fsum(variance_parts) / (window * window * mean)
