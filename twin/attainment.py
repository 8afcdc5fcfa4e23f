"""Which share of the requests meets its SLO at a load, by formula: TTFT from the bulk-service queue
of prefill (`model/waiting.py`) over a sample, TPOT from the time of an iteration and its swings."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING

import numpy as np

from twin.hardware.placement import place
from twin.hardware.prices import (
    all_to_all,
    exchange_overlaps,
    hand_off_bytes_per_s,
    nic,
    transfer_collision,
)
from twin.kernels.rng import exponential, stream_key
from twin.model.batch import bytes_sent
from twin.model.offload import handed_and_moved_bytes
from twin.model.waiting import (
    Pool,
    Prompts,
    mean_of_fullest,
    saturated_rate,
    variance_share_of_mean,
    waits_and_next_s,
    waits_s,
)
from twin.policies.batching import (
    SHORT_TOKENS,
    iteration_chances,
    token_variance,
    tokens_per_iteration,
)
from twin.prefill_queue import colocated_pool_by_load, front_routers, prefill_pool
from twin.scenario import Scenario
from twin.steady import Priced
from twin.workload.offered import Offered

if TYPE_CHECKING:  # a formula waits for no compiler
    from twin.stationary import Swings

FULL = 0.99  # of what prefill sustains: beyond it queues have no mean
HAND_OFF = 1.5  # full batches that a request spends in prefill: half of one waiting, one computed
CLOSE, LEAST = 0.01, 1 / 256  # of a rate; of the largest: lower ones are not tried
SAFE = 0.95  # of the rate found: what samples and passes of this size leave open, see DESIGN.md
# Requests that the queue is followed over; of them, while it fills; of a long run, as a share.
SAMPLE, BEGINS, FILLS = 4000, 200, 0.2
ROUNDS, TIMES = 10, 2  # full batches of each instance, at least; of a full sample, at most
PIECES = 600_000  # of prompts that the queue is followed over, at most
# Of the largest rate, beyond which queues last longer than the sample: more prompts are followed.
BUSY, LONGER, HALVINGS = 0.5, 64_000, 4
DIGITS = 9  # of times in seconds: the same sample for every rate of a scenario
NO_CHANCE = 1e-9  # smaller ones are neglected
NORMAL = tuple(NormalDist().inv_cdf((i + 0.5) / 32) for i in range(32))  # its law, by mean weights
TRANSFERS = 2.0  # KV transfers that share a port, at most times
MOST_ENDS = 60  # of batches in an iteration that are distinguished
# Of a simulation of instances that are chosen by load, see `Attainment._recent_share`.
RECENT, JOINING = 0.89, 2.5


@dataclass(frozen=True)
class Attainment:
    """Shares of a deployment's requests that meet their SLO."""

    scenario: Scenario
    prompts: Prompts
    answers: np.ndarray  # i4[requests] tokens, of the whole sample: its length law is even
    pool: Pool | None  # None: nothing prefills by itself
    extra_s: float  # before and after prefill
    transfer_s: float  # for a token of the prompt
    per_iteration: float  # tokens
    variance: float  # of them
    acceptance: float  # of a draft token
    passes: float  # that a first token waits for, before prefill (colocated) or after it
    after_pass: bool  # and for the end of one of its prefill instance
    colocated: Callable[[float, float], Pool] | None = None  # of (rate, seconds of an iteration)
    # Decode instances among which a request is placed by load as its wait for an iteration begins;
    # 1 with prefill in between, or where mixed instances take turns.
    choices: int = 1
    longer_prompts: int = 0  # that a queue which lasts long is followed over; 0: no more
    senders: int = 1  # dies of a prefill instance
    port_s: float = 0.0  # of a KV transfer alone at a port of decode's exchange; 0: other ports
    # Time that other exchanges add to one, over its time alone, per request/s of its instance.
    overlap_s: float = 0.0

    @cached_property
    def lengths(self) -> list[tuple[int, int]]:
        """Pairs (length, number) of the answers; lengths in tokens, rounded to two digits."""
        lengths = (round(a, 2 - len(str(a))) or 1 for a in self.answers.tolist())
        return sorted(Counter(lengths).items())

    @property
    def slo_by_tenant(self) -> list[tuple[float, float, float]]:
        """(share of the requests, TTFT SLO in seconds, TPOT SLO in seconds) of each tenant."""
        s = self.scenario
        return [
            (t.share, t.ttft_s or s.slo.ttft_s, 1e-3 * (t.tpot_ms or s.slo.tpot_ms))
            for t in s.tenants
        ] or [(1.0, s.slo.ttft_s, 1e-3 * s.slo.tpot_ms)]

    @cached_property
    def long_prompts(self) -> Prompts:
        """Prompts of a long run: copies of the sample, each in another order."""
        copies = self.longer_prompts // len(self.prompts.fresh)
        return self.prompts.shuffled(copies) if copies > 1 else self.prompts

    def _prompts_at(self, rate: float) -> Prompts:
        """Prompts that show how long queues get at `rate` requests/s; near full, of a long run."""
        return self.long_prompts if rate > BUSY * self.max_rate else self.prompts

    def _since_filled(self, waits: np.ndarray) -> np.ndarray:
        """Those of a sample's waits (s, in order of arrival) that begin once queues have filled."""
        is_long = len(waits) > TIMES * SAMPLE
        start = int(FILLS * len(waits)) if is_long else BEGINS if len(waits) > 2 * BEGINS else 0
        return waits[start:]

    def ttft_share(self, rate: float, iteration_s: float, *, is_long: bool = False) -> float:
        """Share of requests with a TTFT within the SLO at `rate` requests/s and this mean time of
        an iteration; is_long: of a long run."""
        pool = self.colocated(rate, iteration_s) if self.colocated else self.pool
        if pool is None:
            return 1.0
        if rate > self.max_rate:  # a queue that grows without end may be short in a short sample
            return 0.0
        prompts = self._prompts_at(rate) if is_long else self.prompts
        ttft_s = np.sort(self._first_tokens_s(prompts, pool, rate, iteration_s)).tolist()
        total_share = math.fsum(share for share, _, _ in self.slo_by_tenant)
        met_count = math.fsum(s * bisect_right(ttft_s, limit) for s, limit, _ in self.slo_by_tenant)
        return met_count / (total_share * len(ttft_s))

    def _first_tokens_s(
        self, prompts: Prompts, pool: Pool, rate: float, iteration_s: float
    ) -> np.ndarray:
        """TTFT (s) f8[n] of these prompts once queues have filled, at `rate` requests/s and this
        mean time of an iteration."""
        waits, next_s = waits_and_next_s(prompts, pool, rate)
        fixed_s, to_join_s = self.extra_s + pool.delay_s, iteration_s * self.passes
        # Where the router gets it from prefill, a first token comes as the next batch there ends.
        handed_on_s = self.transfer_s * (prompts.fresh + prompts.cached) + to_join_s
        first_s = waits + fixed_s + np.maximum(handed_on_s, next_s if self.after_pass else 0.0)
        return self._since_filled(first_s)

    def reserved_s(self, rate: float) -> float:
        """Mean seconds from the router to the begin of decode at `rate` requests/s, while a slot is
        reserved; 0 without a prefill pool. Of one that is full, whose queue has no mean: half a
        full batch that it waits for, and one in which it is computed. In two digits: nearly equal
        waits have equal populations."""
        if self.pool is None:
            return 0.0
        in_router_s = 1e-3 * self.scenario.front_end.service_ms
        rate = max(rate, LEAST * self.max_rate)
        if rate < FULL * self.max_rate:
            prompts = self._prompts_at(rate)
            wait_s = fmean(self._first_tokens_s(prompts, self.pool, rate, 0.0).tolist())
        else:
            batch = max(1.0, self.pool.budget / fmean(self.prompts.fresh.tolist()))
            full_s = batch * self.pool.instances / self.max_rate
            wait_s = self.extra_s + self.pool.delay_s + HAND_OFF * full_s
        return float(f"{wait_s - in_router_s:.2g}")

    def wire_factor(self, rate: float, iteration_s: float) -> float:
        """Mean factor by which other traffic prolongs an exchange of decode; rate: requests/s of
        its instance; iteration_s: mean seconds of an iteration. Instances whose exchanges share its
        links are on the wire for a part of the time only."""
        return max(1.0 + self.overlap_s * rate, self._factor_of_transfers(rate, iteration_s))

    def _factor_of_transfers(self, rate: float, iteration_s: float) -> float:
        """Mean factor by which KV transfers that arrive at the ports of an exchange of decode
        prolong it; rate: requests/s of its instance. Prompts of a batch are handed on together;
        where n share a port the exchange has 1 / (n + 1) of it, and waits for the slowest die.
        Batches of all prefill instances end together (in runs: the more the busier they are), and
        an iteration sees a Poisson number of such ends."""
        if self.port_s == 0.0 or self.pool is None:
            return 1.0
        instances = self.scenario.deployment.decode.instances
        rate *= instances
        batches_per_s = self._batches_per_s(self.pool, rate)
        prompts = rate / batches_per_s  # of a batch
        batches = batches_per_s * (1.0 - (1.0 - 1.0 / instances) ** prompts) * iteration_s
        # With those of other instances, before they are through.
        prompts *= 1.0 + batches_per_s * self.port_s
        sharing = max(1.0, mean_of_fullest(prompts, self.senders))
        most_share = sharing / (sharing + 1.0)  # that transfers have of a port
        together = self.pool.instances
        share = most_share * min(together * sharing * self.port_s / iteration_s, 1.0)  # by time
        ends = batches / together
        factor, chance, rest = 0.0, math.exp(-ends), 1.0
        for count in range(MOST_ENDS):
            factor += chance / (1.0 - min(count * share, most_share))
            rest -= chance
            chance *= ends / (count + 1)
        if rest > NO_CHANCE:  # so many ends are their mean
            factor += rest / (1.0 - min(ends * share, most_share))
        return factor

    def _batches_per_s(self, pool: Pool, rate: float) -> float:
        """Batches/s that prefill ends at `rate` requests/s, in two digits of it."""
        if rate >= FULL * self.max_rate:
            return self.max_rate / max(1.0, pool.budget / fmean(self.prompts.fresh.tolist()))
        if rate <= LEAST * self.max_rate:  # a prompt each
            return rate
        rate = float(f"{rate:.2g}")
        if rate not in self._batch_rates:
            waits = waits_s(self.prompts, pool, rate)
            ends = (self.prompts.arrival_s / rate + waits).tolist()
            self._batch_rates[rate] = rate * len({round(end, DIGITS) for end in ends}) / len(ends)
        return self._batch_rates[rate]

    @cached_property
    def _batch_rates(self) -> dict[float, float]:
        """Batches/s by requests/s, as far as they were computed."""
        return {}

    def _pass_wait_s(self, rate: float, iteration_s: float) -> float:
        """Mean seconds from joining decode to the first token, at `rate` requests/s, where the
        router gets the token from prefill at a batch's end; else 0. iteration_s: mean of decode."""
        if not self.after_pass or self.pool is None:
            return 0.0
        p, to_join_s = self.prompts, iteration_s * self.passes
        next_s = waits_and_next_s(p, self.pool, rate)[1]
        left_s = next_s - self.transfer_s * (p.fresh + p.cached) - to_join_s
        return fmean(np.maximum(left_s, 0.0).tolist())

    def mean_tpot_s(self, rate: float, iteration_s: float, joining: float = 0.0) -> float:
        """Mean seconds per token after the first, over requests, at `rate` requests/s, where decode
        has instances of its own: a few tokens take whole iterations and wait for the first one.
        joining: requests that join an instance in an iteration. The wait of a first token for a
        pass of prefill is over before the other tokens are out."""
        wait = 0.0 if self.passes else self._wait_moment(1, self._recent_share(joining))
        held_s, sum_s, answers_count = self._pass_wait_s(rate, iteration_s), 0.0, 0
        for length, count in self.lengths:
            if length > 1:
                whole_s = (self._mean_iterations(length - 1) + wait) * iteration_s
                sum_s += count * max(whole_s - held_s, 0.0) / (length - 1)
                answers_count += count
        return sum_s / answers_count if answers_count else iteration_s / self.per_iteration

    def _mean_iterations(self, tokens: int) -> float:
        """Mean iterations of an answer with this number of tokens after the first; the last
        iteration of a long answer yields tokens beyond its end."""
        mean = self.per_iteration
        if tokens > SHORT_TOKENS:
            return (tokens + 0.5 * (self.variance / mean + mean - 1.0)) / mean
        drafts = self.scenario.deployment.decode.mtp_draft_tokens
        chances = iteration_chances(tokens, drafts, self.acceptance)
        return math.fsum(k * chance for k, chance in enumerate(chances, start=1))

    def slo_share(self, waits_s: np.ndarray, tokens_s: np.ndarray, iteration_s: float) -> float:
        """Share of answers of mixed serving within the SLO. By answer, f8[n]: waits_s until the
        first token, tokens_s seconds per token after it; iteration_s: mean."""
        ttft_s = waits_s + self.extra_s + self.passes * iteration_s
        shares = [share * np.mean((ttft_s <= first) & (tokens_s <= token))
                  for share, first, token in self.slo_by_tenant]  # fmt: skip
        return float(sum(shares)) / math.fsum(share for share, _, _ in self.slo_by_tenant)

    @cached_property
    def max_rate(self) -> float:
        """Requests/s of prefill with prompts always waiting; infinite without a prefill pool."""
        return saturated_rate(self.prompts, self.pool) if self.pool else math.inf

    def mean_prefill_s(self, rate: float) -> float:
        """Mean seconds from the router to the end of prefill at `rate` requests/s."""
        assert self.pool is not None
        return fmean(self._since_filled(waits_s(self._prompts_at(rate), self.pool, rate)).tolist())

    def tpot_share(self, iteration_s: float, swings: Swings) -> float:
        """Share of requests with a TPOT within the SLO; iteration_s: mean of an iteration."""
        recent = self._recent_share(swings.joining)
        total_share = math.fsum(share for share, _, _ in self.slo_by_tenant)
        met_count = math.fsum(
            share
            * math.fsum(
                count
                * self._chance_in_tpot(
                    length, iteration_s, swings.lasting * lasting, swings.single, limit, recent
                )
                for (length, count), lasting in zip(self.lengths, self.lasting_shares, strict=True)
            )
            for share, _, limit in self.slo_by_tenant
        )
        return met_count / (total_share * len(self.answers))

    def longest_iteration_s(self, swings: Swings) -> float:
        """The longest mean iteration (s) with which `slo.share` of requests meet their TPOT SLO."""
        high_s = 2.0 * max(limit for _, _, limit in self.slo_by_tenant) * self.per_iteration
        low_s = 0.0
        while high_s - low_s > 1e-3 * high_s:
            mid_s = 0.5 * (low_s + high_s)
            meets_slo = self.tpot_share(mid_s, swings) >= self.scenario.slo.share
            low_s, high_s = (mid_s, high_s) if meets_slo else (low_s, mid_s)
        return low_s

    @cached_property
    def lasting_shares(self) -> list[float]:
        """Share of the iterations' relative standard deviation left in the mean over an answer, for
        each of `lengths`."""
        per_iteration, answers_count = self.per_iteration, len(self.answers)
        lives = [(max(a - 1, 1) / per_iteration, n / answers_count) for a, n in self.lengths]
        return [math.sqrt(variance_share_of_mean(lives, n)) for n, _ in lives]

    def _chance_in_tpot(
        self, answer: int, iteration_s: float, swing: float, single: float, limit_s: float,
        recent: float,
    ) -> float:  # fmt: skip
        """Probability that the mean time per token of an `answer` (tokens) is at most `limit_s`;
        swing: relative standard deviation of the mean iteration over the answer, of what lasts;
        single: of `Swings`; recent: of `_recent_share`. Before the first iteration it waits for
        part of one, unless its instance has just computed its prompt. The number of iterations is
        exact for short answers, which decide where a few per cent are late; for longer ones renewal
        theory gives mean and variance."""
        later_tokens, per_iteration = answer - 1, self.per_iteration
        if later_tokens < 1:
            return 1.0
        if later_tokens <= SHORT_TOKENS:
            drafts = self.scenario.deployment.decode.mtp_draft_tokens
            chances = iteration_chances(later_tokens, drafts, self.acceptance)
            return math.fsum(
                chance
                * self._chance_within(
                    k, limit_s * later_tokens / iteration_s, swing * swing + single / k, recent
                )
                for k, chance in enumerate(chances, start=1)
                if chance > NO_CHANCE
            )
        wait, wait_square = self._wait_moment(1, recent), self._wait_moment(2, recent)
        mean_s = (self._mean_iterations(later_tokens) + wait) * iteration_s / later_tokens
        spread = later_tokens * self.variance / per_iteration**3 + wait_square - wait * wait
        spread += single * later_tokens / per_iteration
        deviation_s = math.hypot(iteration_s / later_tokens * math.sqrt(spread), swing * mean_s)
        return 0.5 * math.erfc((mean_s - limit_s) / max(deviation_s, 1e-12) / math.sqrt(2.0))

    def _recent_share(self, joining: float) -> float:
        """Share of choices that fall on the instance that ended an iteration last.

        It has just released requests, so a choice by load tends to select it; the more requests
        join in an iteration (`joining`), the longer it stays the emptiest. Fitted to a simulation
        of 2 to 12 instances with random phases, Poisson arrivals and releases, and choice of the
        fewest requests (tests/laws/test_outlook.py): mean wait within 0.02 iterations."""
        choices = self.choices
        return RECENT * choices / (choices + 1) * joining / (joining + JOINING / math.sqrt(choices))

    def _chance_within(self, iterations: int, most: float, variance: float, recent: float) -> float:
        """Probability that `iterations` and the wait for the first take at most `most` iterations.
        variance: relative, of their mean length, which follows a gamma law (quantiles by Wilson and
        Hilferty, PNAS 17, 1931). The wait is uniform over an iteration, or, for a share `recent`, 1
        minus the least of `choices` uniform draws: the rest of the iteration that began last."""
        ninth = variance / 9.0
        lengths = [max(1.0 - ninth + math.sqrt(ninth) * z, 0.01) ** 3 for z in NORMAL]
        if self.colocated:
            return math.fsum(iterations * x <= most for x in lengths) / len(NORMAL)
        wait_shares = [min(max(most / x - iterations, 0.0), 1.0) for x in lengths]
        met_shares = ((1.0 - recent) * w + recent * w**self.choices for w in wait_shares)
        return math.fsum(met_shares) / len(NORMAL)

    def _wait_moment(self, power: int, recent: float) -> float:
        """Mean of a `power` of the wait for the first iteration, in iterations: uniform or, for a
        share `recent`, 1 minus the least of `choices` uniform draws; 0 in mixed serving."""
        if self.colocated:
            return 0.0
        return (1.0 - recent) / (power + 1) + recent * self.choices / (power + self.choices)

    def largest_rate(self, most: float, iteration_s: float) -> float:
        """Largest requests/s up to `most` at which `slo.share` of first tokens are in time; 0:
        none. iteration_s: mean of an iteration of decode."""
        most = min(most, SAFE * self.max_rate)
        if self.ttft_share(most, iteration_s) >= self.scenario.slo.share:
            return self._lasting_rate(most, iteration_s)
        low_rate, high = most * LEAST, most
        if self.ttft_share(low_rate, iteration_s) < self.scenario.slo.share:
            return 0.0
        while high / low_rate > 1.0 + CLOSE:
            rate = math.sqrt(low_rate * high)
            meets_slo = self.ttft_share(rate, iteration_s) >= self.scenario.slo.share
            low_rate, high = (rate, high) if meets_slo else (low_rate, rate)
        return self._lasting_rate(SAFE * low_rate, iteration_s)

    def _lasting_rate(self, rate: float, iteration_s: float) -> float:
        """The largest requests/s, up to `rate`, at which a long run meets the SLO: near its largest
        rate a queue takes thousands of requests to show how long it gets."""
        slo_share, low_rate = self.scenario.slo.share, BUSY * self.max_rate
        if rate <= low_rate or self.ttft_share(rate, iteration_s, is_long=True) >= slo_share:
            return rate
        for _ in range(HALVINGS):
            middle = 0.5 * (low_rate + rate)
            meets_slo = self.ttft_share(middle, iteration_s, is_long=True) >= slo_share
            low_rate, rate = (middle, rate) if meets_slo else (low_rate, middle)
        return SAFE * low_rate


def attainment(priced: Priced) -> Attainment:
    """The formulas of a deployment's SLO attainment, over a sample of its requests."""
    s, parts, traffic = priced.scenario, priced.parts, priced.traffic
    costs, deployed = parts.costs, s.deployment
    colocated, pool, passes = None, None, 0.0
    hit_share = traffic.hit_tokens / traffic.input_tokens
    prompts = _first_prompts(s, priced.sample, priced.seen_tokens, hit_share)
    if costs.colocated_role is not None:
        colocated = colocated_pool_by_load(parts, costs.colocated_role, traffic, front_routers(s))
        # Half of the interval at which prompts are received, and passes that are formed ahead.
        passes = 0.5 * deployed.colocated.receive_every + costs.runs_ahead
    elif costs.prefill_role is not None:
        pool = prefill_pool(s, parts, costs.prefill_role, traffic)
        passes = 0.5 * costs.first_by_decode
        batch = pool.budget / traffic.fresh_tokens * pool.instances  # requests of a batch of each
        repeats = math.ceil(ROUNDS * batch / len(prompts.fresh))
        prompts = prompts.repeated(min(max(repeats, 1), TIMES * SAMPLE // len(prompts.fresh)))
    role = costs.colocated_role
    piece = pool.chunk if pool else 0.0  # tokens of a prompt in a batch or an iteration, at most
    if role is not None:
        piece = role.prompt_tokens / role.ranks * min(role.pool.prompt_ranks, role.ranks)
    longer_prompts = LONGER if pool is not None and s.workload.arrivals != "trace" else 0
    if piece:  # fewer prompts where each is computed in thousands of pieces
        pieces = math.fsum(math.ceil(tokens / piece) for tokens in prompts.fresh)
        longer_prompts = min(longer_prompts, int(len(prompts.fresh) * PIECES / pieces))
        prompts = prompts.first(math.ceil(len(prompts.fresh) * min(PIECES / pieces, 1.0)))
    transfer_s, port_s, extra_s = 0.0, 0.0, 1e-3 * s.front_end.service_ms
    if pool is not None or colocated is not None:
        extra_s += costs.tokenise_s * traffic.input_tokens
    if costs.prefill_role is not None and costs.decode_role is not None:
        handed_bytes, _ = handed_and_moved_bytes(costs.deployed, costs.kv_bytes_per_token)
        decode_role = costs.decode_role
        receivers = math.ceil(decode_role.pool.rank_dies / costs.senders)  # of one die that sends
        handed_bytes *= decode_role.die_kv * receivers
        dies_by_role = [(i.role, i.die_of_rank) for i in place(s, parts.net).instances]
        price = nic(parts.net, dies_by_role[0][1][0], deployed.kv_transfer_plane)
        rate = hand_off_bytes_per_s(parts.net, price, dies_by_role, deployed.kv_transfer_plane)
        transfer_s = TRANSFERS * handed_bytes / costs.handed_bytes_per_s(rate)
        transfer_s *= transfer_collision(parts.net, dies_by_role, deployed.kv_transfer_plane).mean
        fixed_bytes = costs.state_bytes * decode_role.die_state
        fixed_bytes += costs.shape.window * costs.window_bytes_per_token * decode_role.die_kv
        fixed_bytes *= receivers
        fixed_s = transfer_s * fixed_bytes / handed_bytes
        extra_s += price.latency_s + fixed_s
        if deployed.kv_transfer_plane == parts.net.scale_up_plane:
            port_s = (fixed_s + transfer_s * traffic.input_tokens) / TRANSFERS
    drafts, acceptance = deployed.decode.mtp_draft_tokens, costs.mtp_acceptance
    tokens = tokens_per_iteration(drafts, acceptance)
    passes_each = max((float(priced.whole_answers.mean()) - 1.0) / tokens, 1.0)
    return Attainment(
        s, prompts, priced.whole_answers, pool, extra_s,
        transfer_s, tokens, token_variance(drafts, acceptance),
        acceptance, passes, bool(costs.first_after_pass and pool and costs.decode_role), colocated,
        deployed.decode.instances if deployed.mode == "decode_only" else 1, longer_prompts,
        costs.prefill_role.ranks if costs.prefill_role else 1, port_s,
        _overlap_s(priced, passes_each * (1.0 + drafts)),
    )  # fmt: skip


def _overlap_s(priced: Priced, verified_tokens: float) -> float:
    """Time that exchanges of other instances add to one of an instance that decodes, over its time
    alone, per request/s of it, s; verified_tokens: of an answer in all of its iterations."""
    net, role_costs = priced.parts.net, priced.parts.costs.roles
    computing = "colocated" if "colocated" in role_costs else "decode"
    seats = [i for i in place(priced.scenario, net).instances if i.dies > 1]
    overlaps = exchange_overlaps(net, tuple((i.role, i.die_of_rank) for i in seats))
    overlap_s, dies = 0.0, {i.role: i.die_of_rank for i in seats}
    for role, costs in role_costs.items():
        overlap = overlaps.get((computing, role), 0.0)
        if overlap:
            tokens = verified_tokens if role != "prefill" else priced.traffic.fresh_tokens
            tokens += priced.traffic.fresh_tokens if role == "colocated" else 0.0
            requests = role_costs[computing].pool.instances / costs.pool.instances  # of each
            bytes_per_s = costs.dies * all_to_all(net, dies[role]).bytes_per_s
            overlap_s += overlap * requests * tokens * float(bytes_sent(costs).sum()) / bytes_per_s
    return overlap_s


def _first_prompts(s: Scenario, sample: Offered, seen_tokens: np.ndarray, share: float) -> Prompts:
    """First requests of a sample, one per second; closed-loop clients arrive at random. share: mean
    hit share of prompt tokens, each in proportion to `seen_tokens` f8[requests] of earlier ones."""
    arrivals = [float(v) for v in sample.arrivals[:SAMPLE]]
    if not arrivals or math.isinf(arrivals[-1]) or arrivals[-1] <= arrivals[0]:
        draw, draws = stream_key(s.seed, "arrivals"), range(min(SAMPLE, sample.prompts.size))
        arrivals = list(accumulate(float(exponential(draw, i)) for i in draws))
    # One alone has no gap.
    span_s = (arrivals[-1] - arrivals[0]) / (len(arrivals) - 1) if len(arrivals) > 1 else 1.0
    count, tokens_seen = len(arrivals), float(seen_tokens.sum())
    per_seen = share * float(sample.prompts.sum()) / tokens_seen if tokens_seen > 0.0 else 0.0
    tokens, seen = (v[:count].tolist() for v in (sample.prompts, seen_tokens))
    hits = [min(per_seen * h, v - 1.0) for v, h in zip(tokens, seen, strict=True)]
    return Prompts(
        np.array([round((moment - arrivals[0]) / span_s, DIGITS) for moment in arrivals]),
        np.array([v - hit for v, hit in zip(tokens, hits, strict=True)]),
        np.array(hits),
    )
