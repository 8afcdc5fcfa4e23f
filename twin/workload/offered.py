"""A scenario's traffic in numbers, from a small sample of its requests, in milliseconds."""

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from twin.facts import Facts
from twin.kernels.compiled import without_compiling
from twin.scenario import Profile, Scenario, Workload
from twin.workload.chains import ranges
from twin.workload.generate import generate
from twin.workload.profile import mean_rate_factor
from twin.workload.requests import Requests, TraceTable

SAMPLE = 4000  # requests a sample holds


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
    reuse: float  # share of prompt tokens an endless memory pool would have seen before
    prompts: np.ndarray = field(compare=False, repr=False)  # i4[requests], the sample's lengths
    answers: np.ndarray = field(compare=False, repr=False)
    arrivals: np.ndarray = field(compare=False, repr=False)  # f8[requests] s
    # f8[requests]: of each prompt, tokens that earlier ones of the sample held
    seen: np.ndarray = field(compare=False, repr=False)
    blocks: int = 0  # of KV, distinct, of all of its prompts
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


def offered(scenario: Scenario, facts: Facts, trace: TraceTable | None = None) -> Offered:
    """Figures of the scenario's traffic, from its first requests, or from all of a trace. They are
    cached: one sample serves every question about the same traffic. Raises as `generate`."""
    args = scenario.workload, scenario.horizon_s, scenario.seed, scenario.memory_pool.block_tokens
    return (
        _sampled(*args, facts) if trace is None else _sampled_trace(*args, facts, _by_value(trace))
    )


def _sample(
    workload: Workload, horizon_s: float, seed: int, block_tokens: int, facts: Facts,
    trace: TraceTable | None = None,
) -> Offered:  # fmt: skip
    """Figures of a workload's traffic over `horizon_s`, by a sample in blocks of `block_tokens`."""
    factor = mean_rate_factor(workload, horizon_s, facts)
    # Lengths and reuse do not hang on when requests come.
    workload = workload.model_copy(update={"profile": Profile()})
    req_per_s: float | None = workload.rate_req_per_s * factor
    run_s, count, horizon_s = horizon_s, SAMPLE, 2.0 * SAMPLE / workload.rate_req_per_s
    if workload.arrivals == "closed_loop":
        req_per_s = None
    elif trace is not None:
        # Taken whole, for the reuse of a part is less; copies and haste change its rate only.
        count, horizon_s = len(trace), math.inf
        trace_s = trace.duration_s if trace.has_time else len(trace) / workload.rate_req_per_s
        options = workload.trace
        trace_s = trace_s or run_s * options.rate_multiplier  # all at one time: over the run
        req_per_s = len(trace) / trace_s * options.tree_copies * options.rate_multiplier * factor
        one_copy = options.model_copy(update={"tree_copies": 1, "rate_multiplier": 1.0})
        workload = workload.model_copy(update={"trace": one_copy})
    with without_compiling():
        sample = generate(workload, horizon_s, seed, block_tokens, facts, trace, count, even=True)
    prompt_tokens, answer_tokens = sample.input_tokens, sample.output_tokens
    reused_tokens = np.minimum(_seen_blocks(sample) * float(sample.block_tokens), prompt_tokens)
    input_p50, input_p95 = np.quantile(prompt_tokens, (0.5, 0.95))
    output_p50, output_p95 = np.quantile(answer_tokens, (0.5, 0.95))
    return Offered(
        requests=len(sample),
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
        arrivals=sample.arrival_s,
        seen=reused_tokens,
        blocks=sample.blocks,
        block_tokens=sample.block_tokens,
    )


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A trace that its content identifies."""

    digest: str
    table: TraceTable = field(compare=False, repr=False)


def _by_value(trace: TraceTable) -> _Recorded:
    """A trace as the key of cached answers."""
    return _Recorded(trace.digest, trace)


_sampled = lru_cache(maxsize=32)(_sample)


@lru_cache(maxsize=4)  # of traces, which are large
def _sampled_trace(
    workload: Workload, horizon_s: float, seed: int, block_tokens: int, facts: Facts,
    trace: _Recorded,
) -> Offered:  # fmt: skip
    """`_sample` of a trace."""
    return _sample(workload, horizon_s, seed, block_tokens, facts, trace.table)


@dataclass(frozen=True, slots=True)
class Caches:
    """LRU caches of KV blocks to which requests are dealt in turn."""

    count: int
    blocks: float  # that each has room for; infinite: all
    ttl_s: float = math.inf  # of a block, from its last use


def lru_hit_tokens(
    scenario: Scenario, facts: Facts, trace: TraceTable | None, caches: Caches,
    answers: bool = False,
) -> np.ndarray:  # fmt: skip
    """Tokens of each prompt of a sample that hit in LRU caches, i8[requests]; answers: whether
    caches store answers too. They are cached, as those of `offered`."""
    sample_args = scenario.workload, scenario.seed, scenario.memory_pool.block_tokens
    if trace is None:
        return _cached_lru_hit_tokens(*sample_args, facts, None, caches, answers)
    return _trace_lru_hit_tokens(*sample_args, facts, _by_value(trace), caches, answers)


def _lru_hit_tokens(
    workload: Workload, seed: int, block_tokens: int, facts: Facts, trace: TraceTable | None,
    caches: Caches, answers: bool,
) -> np.ndarray:  # fmt: skip
    """Tokens of each prompt of a sample that LRU caches hold, i8[requests]; requests are dealt to
    the caches in turn. answers: whether caches hold answers too."""
    workload = workload.model_copy(update={"profile": Profile()})
    horizon_s = 2.0 * SAMPLE / workload.rate_req_per_s if trace is None else math.inf
    with without_compiling():
        sample = generate(
            workload, horizon_s, seed, block_tokens, facts, trace, SAMPLE, answers, even=True
        )
    # Block and last touch, the oldest first; a dict would look over all that it lost before its
    # first key.
    lru_caches = [OrderedDict[int, float]() for _ in range(caches.count)]
    hits, first = np.zeros(len(sample), np.int64), sample.segment_first.tolist()
    block_counts, segment_offset = sample.segment_blocks.tolist(), sample.segment_offset.tolist()
    # Clients of a closed loop have no times.
    touches_s = np.where(np.isfinite(sample.arrival_s), sample.arrival_s, 0.0).tolist()
    for i, tokens in enumerate(sample.input_tokens.tolist()):
        lru, oldest_s = lru_caches[i % caches.count], touches_s[i] - caches.ttl_s
        segments = range(segment_offset[i], segment_offset[i + 1])
        chain = [b for s in segments for b in range(first[s], first[s] + block_counts[s])]
        looked_up = chain[: tokens // sample.block_tokens]
        hit_blocks = next(
            (k for k, b in enumerate(looked_up) if b not in lru or lru[b] < oldest_s),
            len(looked_up),
        )
        hits[i] = min(hit_blocks * sample.block_tokens, tokens - 1)
        for block in reversed(chain):
            lru[block] = touches_s[i]
            lru.move_to_end(block)
        while len(lru) > caches.blocks:
            lru.popitem(last=False)
    return hits


_cached_lru_hit_tokens = lru_cache(maxsize=32)(_lru_hit_tokens)


@lru_cache(maxsize=8)
def _trace_lru_hit_tokens(
    workload: Workload, seed: int, block_tokens: int, facts: Facts, trace: _Recorded,
    caches: Caches, answers: bool,
) -> np.ndarray:  # fmt: skip
    """`_lru_hit_tokens` of a trace."""
    return _lru_hit_tokens(workload, seed, block_tokens, facts, trace.table, caches, answers)


def _seen_blocks(sample: Requests) -> np.ndarray:
    """Number of blocks of each prompt that an earlier one has, i8[requests]."""
    requests = len(sample)
    if not sample.segment_blocks.size:
        return np.zeros(requests, np.int64)
    run_count = np.diff(sample.segment_offset)
    run_blocks = sample.segment_blocks.astype(np.int64)
    block_ids = ranges(sample.segment_first, run_blocks)
    owner_of_block = np.repeat(np.repeat(np.arange(requests), run_count), run_blocks)
    first_owner = np.empty(sample.blocks, np.int64)
    # Of equal ones the last assignment stays: the earliest prompt.
    first_owner[block_ids[::-1]] = owner_of_block[::-1]
    return np.bincount(owner_of_block[first_owner[block_ids] < owner_of_block], minlength=requests)
