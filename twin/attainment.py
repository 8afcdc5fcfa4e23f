"""Which share of the requests meets its SLO at a load, by formula: TTFT from the bulk-service queue
of prefill (`model/waiting.py`) over a sample, TPOT from the time of an iteration and its swings."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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
from twin.prefill_queue import (
    DIGITS,
    SAMPLE,
    colocated_pool_by_load,
    first_prompts,
    front_routers,
    prefill_pool,
)
from twin.scenario import Scenario
from twin.steady import Priced

if TYPE_CHECKING:  # a formula waits for no compiler
    from twin.stationary import Swings

FULL = 0.99  # of what prefill sustains: beyond it queues have no mean
HAND_OFF = 1.5  # full batches that a request spends in prefill: half of one waiting, one computed
CLOSE, LEAST = 0.01, 1 / 256  # of a rate; of the largest: lower ones are not tried
SAFE = 0.95  # of the rate found: what samples and passes of this size leave open, see DESIGN.md
# Requests of a sample while the queue fills; of a long run, as a share.
BEGINS, FILLS = 200, 0.2
ROUNDS, TIMES = 10, 2  # full batches of each instance, at least; of a full sample, at most
PIECES = 600_000  # of prompts that the queue is followed over, at most
# Of the largest rate, beyond which queues last longer than the sample: more prompts are followed.
BUSY, LONGER, HALVINGS = 0.5, 64_000, 4
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
        """Pairs (answer tokens, rounded to two digits; number of such answers), shortest first."""
        lengths = (round(tokens, 2 - len(str(tokens))) or 1 for tokens in self.answers.tolist())
        return sorted(Counter(lengths).items())

    @property
    def slo_by_tenant(self) -> list[tuple[float, float, float]]:
        """For each tenant (share of the requests, TTFT SLO in seconds, TPOT SLO in seconds); one
        entry for all requests if there are no tenants."""
        slo = self.scenario.slo
        return [
            (tenant.share, tenant.ttft_s or slo.ttft_s, 1e-3 * (tenant.tpot_ms or slo.tpot_ms))
            for tenant in self.scenario.tenants
        ] or [(1.0, slo.ttft_s, 1e-3 * slo.tpot_ms)]

    @cached_property
    def long_prompts(self) -> Prompts:
        """Prompts of a long run: copies of `prompts`, each in a different random order."""
        copy_count = self.longer_prompts // len(self.prompts.fresh)
        return self.prompts.shuffled(copy_count) if copy_count > 1 else self.prompts

    def _queue_prompts(self, rate: float) -> Prompts:
        """Prompts for computing the prefill queue at `rate` requests/s: more near saturation."""
        return self.long_prompts if rate > BUSY * self.max_rate else self.prompts

    def _after_filling(self, waits_s: np.ndarray) -> np.ndarray:
        """Waits (s) of a sample, in order of arrival, without those while queues still fill."""
        is_long = len(waits_s) > TIMES * SAMPLE
        skip = int(FILLS * len(waits_s)) if is_long else BEGINS if len(waits_s) > 2 * BEGINS else 0
        return waits_s[skip:]

    def ttft_share(self, rate: float, iteration_s: float, *, is_long: bool = False) -> float:
        """Share of requests whose TTFT is within the SLO at `rate` requests/s. iteration_s: mean of
        a decode iteration; is_long: whether to use `long_prompts` near saturation."""
        pool = self.colocated(rate, iteration_s) if self.colocated else self.pool
        if pool is None:
            return 1.0
        if rate > self.max_rate:  # a queue that grows without end may be short in a short sample
            return 0.0
        prompts = self._queue_prompts(rate) if is_long else self.prompts
        ttfts_s = np.sort(self._ttfts_s(prompts, pool, rate, iteration_s)).tolist()
        slos = self.slo_by_tenant
        met_sum = math.fsum(share * bisect_right(ttfts_s, limit_s) for share, limit_s, _ in slos)
        return met_sum / (math.fsum(share for share, _, _ in slos) * len(ttfts_s))

    def _ttfts_s(self, prompts: Prompts, pool: Pool, rate: float, iteration_s: float) -> np.ndarray:
        """TTFT (s) f8[n] of the prompts that arrive after queues have filled, at `rate` requests/s.
        pool: prefill instances and their queue; iteration_s: mean seconds of a decode iteration."""
        queue_s, next_end_s = waits_and_next_s(prompts, pool, rate)
        fixed_s, joining_s = self.extra_s + pool.delay_s, iteration_s * self.passes
        # Where the router gets it from prefill, a first token comes as the next batch there ends.
        hand_over_s = self.transfer_s * (prompts.fresh + prompts.cached) + joining_s
        ttft_s = queue_s + fixed_s + np.maximum(hand_over_s, next_end_s if self.after_pass else 0.0)
        return self._after_filling(ttft_s)

    def reserved_s(self, rate: float) -> float:
        """Mean seconds that a decode slot is reserved, from the router to the begin of decode, at
        `rate` requests/s; 0 without a prefill pool. If prefill is full its queue has no mean: a
        prompt waits half a full batch and is computed in one. Rounded to two digits, as nearly
        equal waits have equal populations."""
        if self.pool is None:
            return 0.0
        front_end_s = 1e-3 * self.scenario.front_end.service_ms
        rate = max(rate, LEAST * self.max_rate)
        if rate < FULL * self.max_rate:
            prompts = self._queue_prompts(rate)
            mean_ttft_s = fmean(self._ttfts_s(prompts, self.pool, rate, 0.0).tolist())
        else:
            batch_prompts = max(1.0, self.pool.budget / fmean(self.prompts.fresh.tolist()))
            batch_s = batch_prompts * self.pool.instances / self.max_rate
            mean_ttft_s = self.extra_s + self.pool.delay_s + HAND_OFF * batch_s
        return float(f"{mean_ttft_s - front_end_s:.2g}")

    def wire_factor(self, rate: float, iteration_s: float) -> float:
        """Mean factor by which other traffic, present for a part of the time, prolongs an exchange
        of decode. rate: requests/s of the decode instance; iteration_s: mean of its iterations."""
        return max(1.0 + self.overlap_s * rate, self._transfer_factor(rate, iteration_s))

    def _transfer_factor(self, rate: float, iteration_s: float) -> float:
        """Mean factor by which KV transfers that arrive at the ports of a decode exchange prolong
        it. rate: requests/s of the decode instance; iteration_s: mean seconds of its iterations.
        Prompts of a batch are handed over together. Where n transfers share a port the exchange has
        1 / (n + 1) of it, and waits for the slowest die. Batches of all prefill instances end
        together (in runs: the more the busier they are); an iteration sees a Poisson number of
        these ends."""
        if self.port_s == 0.0 or self.pool is None:
            return 1.0
        decoders = self.scenario.deployment.decode.instances
        rate *= decoders
        batches_per_s = self._batches_per_s(self.pool, rate)
        batch_prompts = rate / batches_per_s  # of a batch
        batches_seen = batches_per_s * (1.0 - (1.0 - 1.0 / decoders) ** batch_prompts) * iteration_s
        # With those of other instances, before they are through.
        batch_prompts *= 1.0 + batches_per_s * self.port_s
        port_transfers = max(1.0, mean_of_fullest(batch_prompts, self.senders))
        port_share = port_transfers / (port_transfers + 1.0)  # that transfers have of a port
        prefills = self.pool.instances
        busy_share = port_share * min(prefills * port_transfers * self.port_s / iteration_s, 1.0)
        mean_ends = batches_seen / prefills
        mean_factor, count_chance, remaining_chance = 0.0, math.exp(-mean_ends), 1.0
        for end_count in range(MOST_ENDS):
            mean_factor += count_chance / (1.0 - min(end_count * busy_share, port_share))
            remaining_chance -= count_chance
            count_chance *= mean_ends / (end_count + 1)
        if remaining_chance > NO_CHANCE:  # so many ends are their mean
            mean_factor += remaining_chance / (1.0 - min(mean_ends * busy_share, port_share))
        return mean_factor

    def _batches_per_s(self, pool: Pool, rate: float) -> float:
        """Batches/s that all prefill instances end at `rate` requests/s (taken to two digits)."""
        if rate >= FULL * self.max_rate:
            return self.max_rate / max(1.0, pool.budget / fmean(self.prompts.fresh.tolist()))
        if rate <= LEAST * self.max_rate:  # a prompt each
            return rate
        rate = float(f"{rate:.2g}")
        if rate not in self._batch_rates:
            queue_s = waits_s(self.prompts, pool, rate)
            ends_s = (self.prompts.arrival_s / rate + queue_s).tolist()
            batches = len({round(end_s, DIGITS) for end_s in ends_s})  # prompts of one end together
            self._batch_rates[rate] = rate * batches / len(ends_s)
        return self._batch_rates[rate]

    @cached_property
    def _batch_rates(self) -> dict[float, float]:
        """Earlier results of `_batches_per_s`: batches/s by requests/s."""
        return {}

    def _pass_wait_s(self, rate: float, iteration_s: float) -> float:
        """Mean seconds that a first token waits for the end of a prefill batch after its request
        joined decode; 0 unless prefill delivers it. iteration_s: mean of decode iterations."""
        if not self.after_pass or self.pool is None:
            return 0.0
        prompts, joining_s = self.prompts, iteration_s * self.passes
        next_end_s = waits_and_next_s(prompts, self.pool, rate)[1]
        remaining_s = next_end_s - self.transfer_s * (prompts.fresh + prompts.cached) - joining_s
        return fmean(np.maximum(remaining_s, 0.0).tolist())

    def mean_tpot_s(self, rate: float, iteration_s: float, joining: float = 0.0) -> float:
        """Mean seconds per token after the first, over requests of decode instances, at `rate`
        requests/s. A short answer takes whole iterations and waits for its first one; the wait of a
        first token for a prefill batch is subtracted. joining: requests that join an instance in an
        iteration."""
        wait_iterations = 0.0 if self.passes else self._wait_moment(1, self._recent_share(joining))
        pass_wait_s, tpot_sum_s, counted_answers = self._pass_wait_s(rate, iteration_s), 0.0, 0
        for tokens, answers in self.lengths:
            if tokens > 1:
                answer_s = (self._mean_iterations(tokens - 1) + wait_iterations) * iteration_s
                tpot_sum_s += answers * max(answer_s - pass_wait_s, 0.0) / (tokens - 1)
                counted_answers += answers
        return tpot_sum_s / counted_answers if counted_answers else iteration_s / self.per_iteration

    def _mean_iterations(self, tokens: int) -> float:
        """Mean iterations of an answer with this number of tokens after the first. The last
        iteration of a long answer computes some tokens that the answer does not need."""
        pass_tokens = self.per_iteration
        if tokens > SHORT_TOKENS:
            return (tokens + 0.5 * (self.variance / pass_tokens + pass_tokens - 1.0)) / pass_tokens
        draft_tokens = self.scenario.deployment.decode.mtp_draft_tokens
        chances = iteration_chances(tokens, draft_tokens, self.acceptance)
        return math.fsum(iterations * chance for iterations, chance in enumerate(chances, start=1))

    def slo_share(self, waits_s: np.ndarray, tpots_s: np.ndarray, iteration_s: float) -> float:
        """Share of a colocated instance's answers that meet both SLOs. waits_s, tpots_s f8[n]: wait
        and TPOT of each answer; TTFT = wait + extra_s + `passes` x iteration_s (a mean)."""
        ttft_s = waits_s + self.extra_s + self.passes * iteration_s
        met_shares = [share * np.mean((ttft_s <= ttft_limit_s) & (tpots_s <= tpot_limit_s))
                  for share, ttft_limit_s, tpot_limit_s in self.slo_by_tenant]  # fmt: skip
        return float(sum(met_shares)) / math.fsum(share for share, _, _ in self.slo_by_tenant)

    @cached_property
    def max_rate(self) -> float:
        """The largest requests/s that prefill can compute; infinite without a prefill pool."""
        return saturated_rate(self.prompts, self.pool) if self.pool else math.inf

    def mean_prefill_s(self, rate: float) -> float:
        """Mean seconds of a prompt from the router to the end of prefill at `rate` requests/s."""
        assert self.pool is not None
        queue_s = waits_s(self._queue_prompts(rate), self.pool, rate)
        return fmean(self._after_filling(queue_s).tolist())

    def tpot_share(self, iteration_s: float, swings: Swings) -> float:
        """Share of requests whose TPOT is within the SLO at a mean iteration of `iteration_s`
        seconds. swings: how single iterations differ from it."""
        recent_share = self._recent_share(swings.joining)
        share_sum = math.fsum(share for share, _, _ in self.slo_by_tenant)
        deviations = [swings.lasting * lasting_share for lasting_share in self.lasting_shares]
        met_sum = math.fsum(
            share
            * math.fsum(
                count
                * self._chance_in_tpot(
                    tokens, iteration_s, deviation, swings.single, limit_s, recent_share
                )
                for (tokens, count), deviation in zip(self.lengths, deviations, strict=True)
            )
            for share, _, limit_s in self.slo_by_tenant
        )
        return met_sum / (share_sum * len(self.answers))

    def longest_iteration_s(self, swings: Swings) -> float:
        """The longest mean iteration (s) with which `slo.share` of requests meet their TPOT SLO."""
        high_s = 2.0 * max(limit_s for _, _, limit_s in self.slo_by_tenant) * self.per_iteration
        low_s = 0.0
        while high_s - low_s > 1e-3 * high_s:
            mid_s = 0.5 * (low_s + high_s)
            meets_slo = self.tpot_share(mid_s, swings) >= self.scenario.slo.share
            low_s, high_s = (mid_s, high_s) if meets_slo else (low_s, mid_s)
        return low_s

    @cached_property
    def lasting_shares(self) -> list[float]:
        """For each answer length of `lengths`: standard deviation of the mean iteration of such an
        answer, divided by that of single iterations over time."""
        pass_tokens, answers = self.per_iteration, len(self.answers)
        lives = [
            (max(tokens - 1, 1) / pass_tokens, count / answers) for tokens, count in self.lengths
        ]
        return [math.sqrt(variance_share_of_mean(lives, life)) for life, _ in lives]

    def _chance_in_tpot(
        self, tokens: int, iteration_s: float, deviation: float, single_variance: float,
        limit_s: float, recent_share: float,
    ) -> float:  # fmt: skip
        """Probability that an answer of `tokens` tokens has a TPOT of at most `limit_s` seconds.
        deviation: relative standard deviation, between answers, of an answer's mean iteration;
        single_variance: relative variance between consecutive iterations; recent_share: as
        `_recent_share` returns. The number of iterations is exact for short answers, which decide
        where a few per cent are late; for longer ones renewal theory gives mean and variance."""
        later_tokens, pass_tokens = tokens - 1, self.per_iteration
        if later_tokens < 1:
            return 1.0
        if later_tokens <= SHORT_TOKENS:
            draft_tokens = self.scenario.deployment.decode.mtp_draft_tokens
            chances = iteration_chances(later_tokens, draft_tokens, self.acceptance)
            limit_iterations = limit_s * later_tokens / iteration_s
            slow_variance = deviation * deviation
            return math.fsum(
                chance
                * self._chance_within(
                    iterations,
                    limit_iterations,
                    slow_variance + single_variance / iterations,
                    recent_share,
                )
                for iterations, chance in enumerate(chances, start=1)
                if chance > NO_CHANCE
            )
        wait_mean, wait_square = (self._wait_moment(power, recent_share) for power in (1, 2))
        tpot_s = (self._mean_iterations(later_tokens) + wait_mean) * iteration_s / later_tokens
        variance = later_tokens * self.variance / pass_tokens**3 + wait_square
        variance -= wait_mean * wait_mean
        variance += single_variance * later_tokens / pass_tokens
        single_deviation_s = iteration_s / later_tokens * math.sqrt(variance)
        tpot_deviation_s = math.hypot(single_deviation_s, deviation * tpot_s)
        return 0.5 * math.erfc((tpot_s - limit_s) / max(tpot_deviation_s, 1e-12) / math.sqrt(2.0))

    def _recent_share(self, joining: float) -> float:
        """Share of requests that choose the decode instance whose iteration ended last. It has just
        released requests, so a choice by load tends to select it; the more requests join in an
        iteration (`joining`), the longer it has the fewest requests. Fitted to a simulation of 2 to
        12 instances with random phases, Poisson arrivals and releases, and choice of the fewest
        requests (tests/laws/test_outlook.py): mean wait within 0.02 iterations."""
        choices = self.choices
        return RECENT * choices / (choices + 1) * joining / (joining + JOINING / math.sqrt(choices))

    def _chance_within(
        self, iterations: int, limit: float, variance: float, recent: float
    ) -> float:
        """Probability that a wait and then `iterations` iterations last at most `limit` mean
        iterations. variance: relative variance of the mean length of these iterations, which
        follows a gamma law (quantiles by Wilson and Hilferty, PNAS 17, 1931); recent: see
        `_wait_moment`."""
        ninth = variance / 9.0  # a term of Wilson's and Hilferty's formula
        ratios = [max(1.0 - ninth + math.sqrt(ninth) * z, 0.01) ** 3 for z in NORMAL]
        if self.colocated:
            return math.fsum(iterations * ratio <= limit for ratio in ratios) / len(NORMAL)
        wait_shares = [min(max(limit / ratio - iterations, 0.0), 1.0) for ratio in ratios]
        met_shares = ((1.0 - recent) * wait + recent * wait**self.choices for wait in wait_shares)
        return math.fsum(met_shares) / len(NORMAL)

    def _wait_moment(self, power: int, recent: float) -> float:
        """Moment of order `power` of the wait for the first iteration, in iterations; 0 if
        colocated. The wait is uniform over an iteration; for a share `recent` of the requests it is
        1 minus the least of `choices` uniform draws (the rest of the iteration that began last)."""
        if self.colocated:
            return 0.0
        return (1.0 - recent) / (power + 1) + recent * self.choices / (power + self.choices)

    def largest_rate(self, rate_limit: float, iteration_s: float) -> float:
        """The largest requests/s, up to `rate_limit`, at which `slo.share` of the requests meet the
        TTFT SLO; 0 if no rate does. iteration_s: mean seconds of a decode iteration."""
        rate_limit = min(rate_limit, SAFE * self.max_rate)
        if self.ttft_share(rate_limit, iteration_s) >= self.scenario.slo.share:
            return self._long_run_rate(rate_limit, iteration_s)
        low_rate, high_rate = rate_limit * LEAST, rate_limit
        if self.ttft_share(low_rate, iteration_s) < self.scenario.slo.share:
            return 0.0
        while high_rate / low_rate > 1.0 + CLOSE:
            mid_rate = math.sqrt(low_rate * high_rate)
            meets_slo = self.ttft_share(mid_rate, iteration_s) >= self.scenario.slo.share
            low_rate, high_rate = (mid_rate, high_rate) if meets_slo else (low_rate, mid_rate)
        return self._long_run_rate(SAFE * low_rate, iteration_s)

    def _long_run_rate(self, rate: float, iteration_s: float) -> float:
        """The largest requests/s, up to `rate`, at which a long run meets the TTFT SLO: near
        saturation only thousands of requests show how long a queue gets. iteration_s: as in
        `largest_rate`."""
        required_share, low_rate = self.scenario.slo.share, BUSY * self.max_rate
        if rate <= low_rate or self.ttft_share(rate, iteration_s, is_long=True) >= required_share:
            return rate
        for _ in range(HALVINGS):
            mid_rate = 0.5 * (low_rate + rate)
            meets_slo = self.ttft_share(mid_rate, iteration_s, is_long=True) >= required_share
            low_rate, rate = (mid_rate, rate) if meets_slo else (low_rate, mid_rate)
        return SAFE * low_rate


def attainment(priced: Priced) -> Attainment:
    """The formulas of a deployment's SLO attainment, from its prices and a sample of requests."""
    s, assembly, traffic = priced.scenario, priced.parts, priced.traffic
    costs, deployment = assembly.costs, s.deployment
    pool_by_load, prefill, passes = None, None, 0.0
    hit_share = traffic.hit_tokens / traffic.input_tokens
    prompts = first_prompts(s, priced.sample, priced.seen_tokens, hit_share)
    if costs.colocated_role is not None:
        pool_by_load = colocated_pool_by_load(
            assembly, costs.colocated_role, traffic, front_routers(s)
        )
        # Half of the interval at which prompts are received, and passes that are formed ahead.
        passes = 0.5 * deployment.colocated.receive_every + costs.runs_ahead
    elif costs.prefill_role is not None:
        prefill = prefill_pool(s, assembly, costs.prefill_role, traffic)
        passes = 0.5 * costs.first_by_decode
        requests_per_round = prefill.budget / traffic.fresh_tokens * prefill.instances
        repeats = math.ceil(ROUNDS * requests_per_round / len(prompts.fresh))
        prompts = prompts.repeated(min(max(repeats, 1), TIMES * SAMPLE // len(prompts.fresh)))
    mixed = costs.colocated_role
    piece_tokens = prefill.chunk if prefill else 0.0  # of a prompt in one batch, at most
    if mixed is not None:
        piece_tokens = mixed.prompt_tokens / mixed.ranks * min(mixed.pool.prompt_ranks, mixed.ranks)
    longer_prompts = LONGER if prefill is not None and s.workload.arrivals != "trace" else 0
    if piece_tokens:  # fewer prompts where each is computed in thousands of pieces
        piece_count = math.fsum(math.ceil(fresh / piece_tokens) for fresh in prompts.fresh)
        longer_prompts = min(longer_prompts, int(len(prompts.fresh) * PIECES / piece_count))
        prompts = prompts.first(math.ceil(len(prompts.fresh) * min(PIECES / piece_count, 1.0)))
    transfer_s_per_token, port_s, extra_s = 0.0, 0.0, 1e-3 * s.front_end.service_ms
    if prefill is not None or pool_by_load is not None:
        extra_s += costs.tokenise_s * traffic.input_tokens
    if costs.prefill_role is not None and costs.decode_role is not None:
        bytes_per_token, _ = handed_and_moved_bytes(costs.deployed, costs.kv_bytes_per_token)
        decode = costs.decode_role
        receivers = math.ceil(decode.pool.rank_dies / costs.senders)  # of one die that sends
        bytes_per_token *= decode.die_kv * receivers
        role_dies = [(seat.role, seat.die_of_rank) for seat in place(s, assembly.net).instances]
        plane = deployment.kv_transfer_plane
        nic_price = nic(assembly.net, role_dies[0][1][0], plane)
        bytes_per_s = hand_off_bytes_per_s(assembly.net, nic_price, role_dies, plane)
        transfer_s_per_token = TRANSFERS * bytes_per_token / costs.handed_bytes_per_s(bytes_per_s)
        transfer_s_per_token *= transfer_collision(assembly.net, role_dies, plane).mean
        fixed_bytes = costs.state_bytes * decode.die_state
        fixed_bytes += costs.shape.window * costs.window_bytes_per_token * decode.die_kv
        fixed_bytes *= receivers
        fixed_s = transfer_s_per_token * fixed_bytes / bytes_per_token
        extra_s += nic_price.latency_s + fixed_s
        if plane == assembly.net.scale_up_plane:
            port_s = (fixed_s + transfer_s_per_token * traffic.input_tokens) / TRANSFERS
    draft_tokens, acceptance = deployment.decode.mtp_draft_tokens, costs.mtp_acceptance
    pass_tokens = tokens_per_iteration(draft_tokens, acceptance)
    answer_passes = max((float(priced.whole_answers.mean()) - 1.0) / pass_tokens, 1.0)
    return Attainment(
        s, prompts, priced.whole_answers, prefill, extra_s,
        transfer_s_per_token, pass_tokens, token_variance(draft_tokens, acceptance),
        acceptance, passes, bool(costs.first_after_pass and prefill and costs.decode_role),
        pool_by_load,
        deployment.decode.instances if deployment.mode == "decode_only" else 1, longer_prompts,
        costs.prefill_role.ranks if costs.prefill_role else 1, port_s,
        _overlap_s(priced, answer_passes * (1.0 + draft_tokens)),
    )  # fmt: skip


def _overlap_s(priced: Priced, verified_tokens: float) -> float:
    """Seconds x such that exchanges of other instances prolong one of a decoding instance by the
    factor 1 + x times its requests/s. verified_tokens: of all iterations of an answer."""
    net, role_costs = priced.parts.net, priced.parts.costs.roles
    decoding_role = "colocated" if "colocated" in role_costs else "decode"
    seats = [seat for seat in place(priced.scenario, net).instances if seat.dies > 1]
    overlaps = exchange_overlaps(net, tuple((seat.role, seat.die_of_rank) for seat in seats))
    overlap_s, dies_of_role = 0.0, {seat.role: seat.die_of_rank for seat in seats}
    for role, costs in role_costs.items():
        overlap = overlaps.get((decoding_role, role), 0.0)
        if overlap:
            request_tokens = verified_tokens if role != "prefill" else priced.traffic.fresh_tokens
            request_tokens += priced.traffic.fresh_tokens if role == "colocated" else 0.0
            instance_ratio = role_costs[decoding_role].pool.instances / costs.pool.instances
            bytes_per_s = costs.dies * all_to_all(net, dies_of_role[role]).bytes_per_s
            sent_bytes = float(bytes_sent(costs).sum())  # of a token
            overlap_s += overlap * instance_ratio * request_tokens * sent_bytes / bytes_per_s
    return overlap_s
