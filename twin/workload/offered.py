"""A scenario's traffic in numbers, from a small sample of its requests, in milliseconds."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from twin.facts import Facts
from twin.kernels.compiled import without_compiling
from twin.scenario import Profile, Scenario, Workload
from twin.workload.chains import ranges
from twin.workload.generate import generate
from twin.workload.profile import mean_rate_factor
from twin.workload.requests import Requests, TraceTable

SAMPLE = 4000  # requests a sample holds
MOST_WARM = 0.75  # share of what is drawn that comes before them and fills caches, at most
_generate = partial(without_compiling()(generate), even=True)  # few requests: not worth compiling
APART = SAMPLE // 5  # requests between turns, or prefixes, of what is drawn of a closed loop


@dataclass(frozen=True, slots=True)
class Offered:
    """Figures of the traffic; rates are None in a closed loop, whose rate depends on the system."""

    requests: int  # in the sample, or in the whole trace
    rate_req_per_s: float | None
    input_tokens_mean: float
    input_tokens_p50: float
    input_tokens_p95: float
    output_tokens_mean: float
    output_tokens_p50: float
    output_tokens_p95: float
    reuse: float  # share of prompt tokens that an endless memory pool has seen before in the run
    prompts: np.ndarray = field(compare=False, repr=False)  # i4[requests], the sample's lengths
    answers: np.ndarray = field(compare=False, repr=False)
    arrivals: np.ndarray = field(compare=False, repr=False)  # f8[requests] s
    # f8[requests]: of each prompt, tokens that earlier ones held
    seen: np.ndarray = field(compare=False, repr=False)
    blocks: int = 0  # of KV, distinct, of all prompts that it stands for
    block_tokens: int = 128

    @property
    def input_per_output(self) -> float:
        """Prompt tokens per output token, by which prefill and decode pools are sized."""
        return self.input_tokens_mean / self.output_tokens_mean

    @property
    def input_tokens_per_s(self) -> float | None:
        """Prompt tokens offered per second; None in a closed loop."""
        return None if self.rate_req_per_s is None else self.rate_req_per_s * self.input_tokens_mean

    @property
    def output_tokens_per_s(self) -> float | None:
        """Output tokens requested per second; None in a closed loop."""
        req_per_s = self.rate_req_per_s
        return None if req_per_s is None else req_per_s * self.output_tokens_mean


class _Question(NamedTuple):
    """What a sample depends on."""

    workload: Workload
    run_requests: float  # of a run where prompts share blocks; 0: unknown, or of no effect
    warm_share: float  # of these, before those that count
    seed: int
    block_tokens: int
    answers: bool  # whether chains have the blocks of answers too


@dataclass(frozen=True, slots=True)
class _Sample:
    """Requests that stand for those of a run."""

    requests: Requests
    first: int  # that counts; those before fill caches
    weight: float  # requests of the run that one stands for


def offered(scenario: Scenario, facts: Facts, trace: TraceTable | None = None) -> Offered:
    """Figures of the scenario's traffic, from its first requests, where prompts share blocks from
    those after the warm-up, or from all of a trace. They are cached: one sample serves every
    question about the same traffic. Raises as `generate`."""
    rate_factor = mean_rate_factor(scenario.workload, scenario.horizon_s, facts)
    if trace is None:
        return _sample_figures(_question(scenario, rate_factor), rate_factor, facts)
    return _trace_figures(
        scenario.workload, scenario.horizon_s, rate_factor, scenario.seed,
        scenario.memory_pool.block_tokens, facts, trace,
    )  # fmt: skip


def _question(scenario: Scenario, rate_factor: float) -> _Question:
    """What a scenario's sample depends on; rate_factor: the profile's mean one."""
    # Lengths and reuse do not hang on when requests come.
    workload = scenario.workload.model_copy(update={"profile": Profile()})
    pool = scenario.memory_pool
    run_requests, warm_share, shares_blocks = 0.0, 0.0, workload.prefix != "none"
    if shares_blocks and workload.prompts:  # a finite benchmark counts from its first one
        run_requests = float(workload.prompts)
    elif shares_blocks and workload.arrivals != "closed_loop":
        run_requests = workload.rate_req_per_s * rate_factor * scenario.horizon_s
        warm_share = min(scenario.warmup_s / scenario.horizon_s, MOST_WARM)
    answers = pool.answers and shares_blocks
    return _Question(workload, run_requests, warm_share, scenario.seed, pool.block_tokens, answers)


@lru_cache(maxsize=4)  # for what is offered, and for caches
def _sample_of(question: _Question, facts: Facts) -> _Sample:
    """Requests of a run. Where prompts share blocks, these stand for a run of any length: pauses
    between turns, the number of prefixes and (`Caches.scaled`) caches are smaller in proportion. Of
    a closed loop, whose number of requests depends on the system, those are drawn that come once
    most turns and prefixes have been seen."""
    workload, run_requests, warm_share, seed, block_tokens, answers = question
    first, count, weight = 0, SAMPLE, 1.0
    if workload.prefix != "none":
        if run_requests > 0.0:
            count = min(round(SAMPLE / (1.0 - warm_share)), 2 * SAMPLE)
            first, weight = int(warm_share * count), run_requests / count
        else:
            first, count = SAMPLE, 2 * SAMPLE
            is_session = workload.prefix == "sessions"
            distance = workload.concurrency if is_session else workload.prefix_groups
            weight = max(1.0, distance / APART)
        if workload.prompts:
            weight = max(1.0, weight)
        workload = workload.model_copy(update={
            "turn_gap_s": workload.turn_gap_s / weight, "tool_gap_s": workload.tool_gap_s / weight,
            "prefix_groups": max(1, round(workload.prefix_groups / weight)),
            "concurrency": max(1, round(workload.concurrency / weight)),
        })  # fmt: skip
    horizon_s = 2.0 * count / workload.rate_req_per_s
    requests = _generate(workload, horizon_s, seed, block_tokens, facts, None, count, answers)
    return _Sample(requests, first, weight)


@lru_cache(maxsize=32)
def _sample_figures(question: _Question, rate_factor: float, facts: Facts) -> Offered:
    """Figures of the traffic of `question`; rate_factor: the profile's mean one."""
    is_closed = question.workload.arrivals == "closed_loop"
    rate = None if is_closed else question.workload.rate_req_per_s * rate_factor
    return _figures(_sample_of(question, facts), rate)


def _figures(sample: _Sample, req_per_s: float | None) -> Offered:
    """Figures of requests that come at this rate (None: unknown)."""
    requests, first = sample.requests, sample.first
    prompt_tokens, answer_tokens = requests.input_tokens[first:], requests.output_tokens[first:]
    seen_tokens = _seen_blocks(requests)[first:] * float(requests.block_tokens)
    reused_tokens = np.minimum(seen_tokens, prompt_tokens)
    input_p50, input_p95 = np.quantile(prompt_tokens, (0.5, 0.95))
    output_p50, output_p95 = np.quantile(answer_tokens, (0.5, 0.95))
    return Offered(
        requests=prompt_tokens.size,
        rate_req_per_s=req_per_s,
        input_tokens_mean=float(prompt_tokens.mean()),
        input_tokens_p50=float(input_p50),
        input_tokens_p95=float(input_p95),
        output_tokens_mean=float(answer_tokens.mean()),
        output_tokens_p50=float(output_p50),
        output_tokens_p95=float(output_p95),
        # Blocks are prefix-chained: a block seen twice was a hit the second time.
        reuse=float(reused_tokens.sum()) / float(prompt_tokens.sum()),
        prompts=prompt_tokens,
        answers=answer_tokens,
        arrivals=requests.arrival_s[first:],
        seen=reused_tokens,
        blocks=math.ceil(requests.blocks * sample.weight),
        block_tokens=requests.block_tokens,
    )


@lru_cache(maxsize=4)  # of traces, which are large
def _trace_figures(
    workload: Workload, run_s: float, factor: float, seed: int, block_tokens: int, facts: Facts,
    trace: TraceTable,
) -> Offered:  # fmt: skip
    """Figures of a trace, whole: the reuse of a part is less, and copies and haste change its rate
    only. run_s: of the run; factor: mean one on its rate."""
    options = workload.trace
    trace_s = trace.duration_s if trace.has_time else len(trace) / workload.rate_req_per_s
    trace_s = trace_s or run_s * options.rate_multiplier  # all at one time: over the run
    req_per_s = len(trace) / trace_s * options.tree_copies * options.rate_multiplier * factor
    one_copy = options.model_copy(update={"tree_copies": 1, "rate_multiplier": 1.0})
    workload = workload.model_copy(update={"profile": Profile(), "trace": one_copy})
    requests = _generate(workload, math.inf, seed, block_tokens, facts, trace, len(trace))
    return _figures(_Sample(requests, 0, 1.0), req_per_s)


@dataclass(frozen=True, slots=True)
class Caches:
    """LRU caches of KV blocks to which requests are dealt in turn."""

    count: int
    blocks: float  # that each has room for; infinite: all
    ttl_s: float = math.inf  # of a block, from its last use

    def scaled(self, weight: float) -> Caches:
        """Caches for a sample each of whose requests stands for `weight` of the run."""
        return Caches(self.count, self.blocks / weight, self.ttl_s / weight)


def lru_hit_tokens(
    scenario: Scenario, facts: Facts, trace: TraceTable | None, caches: Caches,
    answers: bool = False,
) -> np.ndarray:  # fmt: skip
    """Tokens of each prompt of the sample that hit in LRU caches, i8[requests], of a trace those of
    its first ones; answers: whether caches store answers too. Cached like `offered`."""
    if trace is not None:
        trace_args = scenario.workload, scenario.seed, scenario.memory_pool.block_tokens
        return _trace_lru_hit_tokens(*trace_args, facts, trace, caches, answers)
    rate_factor = mean_rate_factor(scenario.workload, scenario.horizon_s, facts)
    return _sample_lru_hit_tokens(_question(scenario, rate_factor), facts, caches, answers)


@lru_cache(maxsize=32)
def _sample_lru_hit_tokens(
    question: _Question, facts: Facts, caches: Caches, answers: bool
) -> np.ndarray:
    """Tokens of each prompt of a sample that LRU caches hold, i8[requests]."""
    sample = _sample_of(question, facts)
    hits = _lru_hit_tokens(sample.requests, caches.scaled(sample.weight), answers)
    return hits[sample.first :]


@lru_cache(maxsize=8)
def _trace_lru_hit_tokens(
    workload: Workload, seed: int, block_tokens: int, facts: Facts, trace: TraceTable,
    caches: Caches, answers: bool,
) -> np.ndarray:  # fmt: skip
    """Tokens of the first prompts of a trace that LRU caches hold, i8[requests]."""
    workload = workload.model_copy(update={"profile": Profile()})
    requests = _generate(workload, math.inf, seed, block_tokens, facts, trace, SAMPLE, answers)
    return _lru_hit_tokens(requests, caches, answers)


def _lru_hit_tokens(sample: Requests, caches: Caches, answers: bool) -> np.ndarray:
    """Tokens of each prompt that LRU caches hold, i8[requests]; requests are dealt to the caches in
    turn. answers: whether caches hold answers too."""
    block_tokens = sample.block_tokens
    if caches.count == 1 and sample.blocks <= caches.blocks and math.isinf(caches.ttl_s):
        seen_tokens = _seen_blocks(sample, answers) * block_tokens
        return np.minimum(seen_tokens, sample.input_tokens - 1)
    # Block and last touch, the oldest first; a dict would look over all that it lost before its
    # first key.
    lru_caches = [OrderedDict[int, float]() for _ in range(caches.count)]
    hit_tokens, first_ids = np.zeros(len(sample), np.int64), sample.segment_first.tolist()
    block_counts, segment_offset = sample.segment_blocks.tolist(), sample.segment_offset.tolist()
    # Clients of a closed loop have no times.
    touches_s = np.where(np.isfinite(sample.arrival_s), sample.arrival_s, 0.0).tolist()
    for request, tokens in enumerate(sample.input_tokens.tolist()):
        cache, oldest_s = lru_caches[request % caches.count], touches_s[request] - caches.ttl_s
        segments = range(segment_offset[request], segment_offset[request + 1])
        chain = [b for s in segments for b in range(first_ids[s], first_ids[s] + block_counts[s])]
        prompt_chain = chain[: tokens // block_tokens]
        misses = (k for k, b in enumerate(prompt_chain) if b not in cache or cache[b] < oldest_s)
        hit_blocks = next(misses, len(prompt_chain))
        hit_tokens[request] = min(hit_blocks * block_tokens, tokens - 1)
        for block in reversed(chain if answers else prompt_chain):
            cache[block] = touches_s[request]
            cache.move_to_end(block)
        while len(cache) > caches.blocks:
            cache.popitem(last=False)
    return hit_tokens


def _seen_blocks(sample: Requests, answers: bool = False) -> np.ndarray:
    """Number of blocks of each prompt that an earlier one has, i8[n]; answers: or its answer."""
    requests = len(sample)
    if not sample.segment_blocks.size:
        return np.zeros(requests, np.int64)
    segment_counts = np.diff(sample.segment_offset)
    segment_blocks = sample.segment_blocks.astype(np.int64)
    block_ids = ranges(sample.segment_first, segment_blocks)
    owner_of_block = np.repeat(np.repeat(np.arange(requests), segment_counts), segment_blocks)
    prompt_blocks = sample.input_tokens // sample.block_tokens
    chain_blocks = np.bincount(owner_of_block, minlength=requests)
    in_prompt = ranges(np.zeros(requests, np.int64), chain_blocks) < prompt_blocks[owner_of_block]
    first_owner = np.full(sample.blocks, requests)
    # Of equal ones the last assignment stays: the earliest prompt.
    is_counted = slice(None) if answers else in_prompt
    first_owner[block_ids[is_counted][::-1]] = owner_of_block[is_counted][::-1]
    is_seen = (first_owner[block_ids] < owner_of_block) & in_prompt
    return np.bincount(owner_of_block[is_seen], minlength=requests)
