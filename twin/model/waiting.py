"""Time to first token under load: what merging prompts into batches does to those who wait. Prefill
is a bulk-service queue: a free instance takes all that waits for it, up to its budget, and a batch
takes longer the more it holds (Bailey, J. Roy. Stat. Soc. B 16, 1954; Chaudhry & Templeton, A First
Course in Bulk Queues, 1983). With unequal lengths and a router there is no closed form, so the
queue's own recursion (Lindley, Proc. Camb. Phil. Soc. 48, 1952) is followed over a sample of
requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from twin.kernels.compiled import stage
from twin.kernels.rng import stream_key, uniforms
from twin.model.prompt_queue import BatchPrice, PromptQueue, run_queue

DEALT, SHUFFLED = stream_key(0, "prompts.die"), stream_key(0, "prompts.order")
RARE = 1e-6  # chance of more requests at an end, below which none is counted
Lives = Sequence[tuple[float, float]]  # (how long requests stay, share of the requests)


@dataclass(frozen=True, slots=True)
class Prompts:
    """A sample of requests as prefill needs them, in order of arrival."""

    arrival_s: NDArray[np.float64]  # at one request a second
    fresh: NDArray[np.float64]  # tokens that have to be computed
    cached: NDArray[np.float64]  # tokens that are read instead

    def first(self, count: int) -> Prompts:
        """The first `count` requests of the sample, at least two."""
        first_rows = slice(max(count, 2))
        return Prompts(self.arrival_s[first_rows], self.fresh[first_rows], self.cached[first_rows])

    def repeated(self, times: int) -> Prompts:
        """`times` copies of the sample in one, one after the other."""
        gap_count = len(self.arrival_s) - 1  # one alone has none
        span_s = self.arrival_s[-1] * (1.0 + 1.0 / gap_count) if gap_count else 1.0
        copy_begins_s = np.repeat(np.arange(times) * span_s, gap_count + 1)
        return Prompts(
            np.tile(self.arrival_s, times) + copy_begins_s,
            np.tile(self.fresh, times), np.tile(self.cached, times),
        )  # fmt: skip

    def shuffled(self, times: int) -> Prompts:
        """`times` copies of the sample in one; requests and gaps of each are in another order."""
        requests, mean_gap_s = len(self.fresh), self.arrival_s[-1] / max(len(self.fresh) - 1, 1)
        gaps_s = np.diff(self.arrival_s, append=self.arrival_s[-1] + mean_gap_s)
        draw_indices = np.arange(2 * times * requests).reshape(2, times, requests)
        orders, gap_orders = np.argsort(uniforms(SHUFFLED, draw_indices), axis=-1, kind="stable")
        arrival_s = np.cumsum(gaps_s[gap_orders])
        tokens = (column[orders].ravel() for column in (self.fresh, self.cached))
        return Prompts(arrival_s - arrival_s[0], *tokens)


@dataclass(frozen=True, slots=True)
class Pool:
    """Instances that compute prompts."""

    instances: int
    budget: float  # tokens of a batch
    chunk: float  # tokens that a prompt gives to one at most; 0: whole prompts
    price: BatchPrice  # of a batch
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


def waits_s(prompts: Prompts, pool: Pool, rate: float) -> NDArray[np.float64]:
    """Seconds from router to the end of prefill of each request, f8[n], at `rate` requests/s."""
    return waits_and_next_s(prompts, pool, rate)[0]


def waits_and_next_s(
    prompts: Prompts, pool: Pool, rate: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(seconds from router to the end of prefill of each request of the sample, f8[n]; seconds of
    the batch that its instance begins then, 0 if no prompt waits, f8[n]), at `rate` requests/s."""
    count = len(prompts.arrival_s)
    die_of_prompt = (
        uniforms(DEALT, np.arange(count)) * pool.dies if pool.is_dealt else np.zeros(count)
    )
    price = {member.name: getattr(pool.price, member.name) for member in fields(pool.price)}
    queue = PromptQueue(
        {"prompts": count, "instances": pool.instances, "dies": pool.dies},
        **price, budget=pool.budget, chunk=pool.chunk, full_s=pool.full_s, token_s=pool.token_s,
        read_s=pool.read_s, idle_s=pool.idle_s, evening=pool.evening, line_token_s=pool.line[0],
        line_pair_s=pool.line[1], attention_token_s=pool.attention[0],
        attention_pair_s=pool.attention[1], share_s=pool.share_s, in_turn=pool.in_turn,
        is_dealt=pool.is_dealt, routers=pool.routers, report_s=pool.report_s,
        arrival_s=np.asarray(prompts.arrival_s) / rate, fresh=prompts.fresh, cached=prompts.cached,
        left=np.array(prompts.fresh, np.float64), die=die_of_prompt.astype(np.int32),
    )  # fmt: skip
    run_queue(queue)
    return queue.waited_s, queue.next_s


@stage("prompts")
def compile_queue() -> None:
    """Compile the functions that follow a queue of prompts, by one call of them."""
    waits_s(Prompts(*np.ones((3, 1))), Pool(1, 1.0, 0.0, BatchPrice(), 0.0, 0.0), 1.0)


def saturated_rate(prompts: Prompts, pool: Pool) -> float:
    """Requests/s of a pool in which prompts always wait: from the time that a second copy of the
    sample adds, so batches before its first and after its last long prompt do not count."""
    one_instance = replace(pool, instances=1, routers=1)
    one_copy_s, two_copies_s = (
        waits_s(replace(sample, arrival_s=np.zeros(sample.fresh.size)), one_instance, 1.0).max()
        for sample in (prompts, prompts.repeated(2))
    )
    return float(pool.instances * len(prompts.fresh) / (two_copies_s - one_copy_s))


def mean_of_fullest(requests: float, ends: int) -> float:
    """Mean number of requests at the busiest of `ends` (of transfers), if each end has a Poisson
    number of requests and all ends together have `requests` on average."""
    mean_per_end = requests / ends
    chance_of_count = p_at_most = math.exp(-mean_per_end)
    mean_most, request_count = 0.0, 0
    while (p_any_more := 1.0 - p_at_most**ends) > RARE:
        mean_most, request_count = mean_most + p_any_more, request_count + 1
        chance_of_count *= mean_per_end / request_count
        p_at_most += chance_of_count
    return mean_most


def relative_variance_in_progress(lives: Lives, mean_requests: float, cv: float) -> float:
    """Variance of the number of requests in progress, divided by its squared mean. lives: (how long
    requests stay, share of requests); mean_requests: mean number in progress; cv: coefficient of
    variation of gaps between arrivals. The variance of an infinite-server queue is z times its
    mean, with peakedness z = 1 + (cv^2 - 1) E[min(S, S')] / E[S] (A. E. Eckberg, "Generalized
    peakedness of teletraffic processes", 1983; W. Whitt, Bell Syst. Tech. J. 63, 1984)."""
    p_longer, mean_of_lesser, mean_life = 1.0, 0.0, 0.0
    for life, request_share in sorted(lives):
        mean_of_lesser += life * request_share * (2.0 * p_longer - request_share)
        mean_life += life * request_share
        p_longer -= request_share
    return max(1.0 + (cv * cv - 1.0) * mean_of_lesser / mean_life, 0.0) / mean_requests


def variance_share_of_mean(lives: Lives, window: float) -> float:
    """Variance of the mean number of requests in progress over a `window`, divided by the variance
    at one instant. window and lives have the same unit of time. The autocorrelation of an
    M/G/infinity queue at a distance d is E[(life - d)+] / E[life] (Cox & Miller, 1965)."""
    mean_life, variance_terms = math.fsum(life * request_share for life, request_share in lives), []
    for life, request_share in lives:
        overlap = min(window, life)
        square_term = 0.5 * (window + life) * overlap * overlap
        variance_terms.append(
            request_share * (window * life * overlap - square_term + overlap**3 / 3.0)
        )
    return 2.0 * math.fsum(variance_terms) / (window * window * mean_life)
