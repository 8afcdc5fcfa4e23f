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
from twin.workload.generate import generate_requests
from twin.workload.profile import NO_LOAD, mean_rate_factor
from twin.workload.requests import Requests, TraceTable, WorkloadError

SAMPLE = 4000  # requests a sample holds
MOST_WARM = 0.75  # share of what is drawn that comes before them and fills caches, at most
_generate = partial(
    without_compiling()(generate_requests), even=True
)  # few requests: not worth compiling
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


def offered_load(scenario: Scenario, facts: Facts, trace: TraceTable | None = None) -> Offered:
    """Figures of the scenario's traffic: from a sample of its first requests (after the warm-up, if
    prompts share blocks), or from all requests of a trace. Figures are cached: one sample serves
    every question about the same traffic. Raises as `generate_requests`."""
    rate_factor = mean_rate_factor(scenario.workload, scenario.horizon_s, facts)
    if rate_factor <= 0.0:
        raise WorkloadError(NO_LOAD)
    if trace is None:
        return _sample_figures(_sample_question(scenario, rate_factor), rate_factor, facts)
    return _trace_figures(
        scenario.workload, scenario.horizon_s, rate_factor, scenario.seed,
        scenario.memory_pool.block_tokens, facts, trace,
    )  # fmt: skip


def _sample_question(scenario: Scenario, rate_factor: float) -> _Question:
    """The inputs on which a scenario's sample depends. rate_factor: the profile's mean factor."""
    # Lengths and reuse do not hang on when requests come.
    workload = scenario.workload.model_copy(update={"profile": Profile()})
    memory_pool = scenario.memory_pool
    run_requests, warm_share, shares_blocks = 0.0, 0.0, workload.prefix != "none"
    if shares_blocks and workload.prompts:  # a finite benchmark counts from its first one
        run_requests = float(workload.prompts)
    elif shares_blocks and workload.arrivals != "closed_loop":
        run_requests = workload.rate_req_per_s * rate_factor * scenario.horizon_s
        warm_share = min(scenario.warmup_s / scenario.horizon_s, MOST_WARM)
    answers = memory_pool.answers and shares_blocks
    return _Question(
        workload, run_requests, warm_share, scenario.seed, memory_pool.block_tokens, answers
    )


@lru_cache(maxsize=4)  # for what is offered, and for caches
def _sample_of(question: _Question, facts: Facts) -> _Sample:
    """Sample of a run's requests. Where prompts share blocks, it stands for a run of any length:
    pauses between turns, the number of prefixes and the caches (`Caches.scaled`) are smaller in
    proportion. A closed loop's number of requests depends on the system, so there the sample starts
    once most turns and prefixes have been seen."""
    workload, run_requests, warm_share, seed, block_tokens, answers = question
    first_counted, sample_size, weight = 0, SAMPLE, 1.0
    if workload.prefix != "none":
        if run_requests > 0.0:
            sample_size = min(round(SAMPLE / (1.0 - warm_share)), 2 * SAMPLE)
            first_counted, weight = int(warm_share * sample_size), run_requests / sample_size
        else:
            first_counted, sample_size = SAMPLE, 2 * SAMPLE
            has_sessions = workload.prefix == "sessions"
            turn_distance = workload.concurrency if has_sessions else workload.prefix_groups
            weight = max(1.0, turn_distance / APART)
        if workload.prompts:
            weight = max(1.0, weight)
        workload = workload.model_copy(update={
            "turn_gap_s": workload.turn_gap_s / weight, "tool_gap_s": workload.tool_gap_s / weight,
            "prefix_groups": max(1, round(workload.prefix_groups / weight)),
            "concurrency": max(1, round(workload.concurrency / weight)),
        })  # fmt: skip
    horizon_s = 2.0 * sample_size / workload.rate_req_per_s
    requests = _generate(workload, horizon_s, seed, block_tokens, facts, None, sample_size, answers)
    return _Sample(requests, first_counted, weight)


@lru_cache(maxsize=32)
def _sample_figures(question: _Question, rate_factor: float, facts: Facts) -> Offered:
    """Figures of the traffic of `question`. rate_factor: the profile's mean factor."""
    is_closed = question.workload.arrivals == "closed_loop"
    req_per_s = None if is_closed else question.workload.rate_req_per_s * rate_factor
    return _figures(_sample_of(question, facts), req_per_s)


def _figures(sample: _Sample, req_per_s: float | None) -> Offered:
    """Figures of a sample's requests that arrive at req_per_s; None if the rate is unknown."""
    requests, first_counted = sample.requests, sample.first
    prompt_tokens = requests.input_tokens[first_counted:]
    answer_tokens = requests.output_tokens[first_counted:]
    seen_tokens = _seen_blocks(requests)[first_counted:] * float(requests.block_tokens)
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
        arrivals=requests.arrival_s[first_counted:],
        seen=reused_tokens,
        blocks=math.ceil(requests.blocks * sample.weight),
        block_tokens=requests.block_tokens,
    )


@lru_cache(maxsize=4)  # of traces, which are large
def _trace_figures(
    workload: Workload, run_s: float, rate_factor: float, seed: int, block_tokens: int,
    facts: Facts, trace: TraceTable,
) -> Offered:  # fmt: skip
    """Figures of a whole trace, as a part of it has less reuse. Copies and the rate multiplier
    change its rate only. run_s: length of the run; rate_factor: the profile's mean factor."""
    options = workload.trace
    trace_s = trace.duration_s if trace.has_time else len(trace) / workload.rate_req_per_s
    trace_s = trace_s or run_s * options.rate_multiplier  # all at one time: over the run
    req_per_s = len(trace) / trace_s * options.tree_copies * options.rate_multiplier * rate_factor
    single_copy = options.model_copy(update={"tree_copies": 1, "rate_multiplier": 1.0})
    workload = workload.model_copy(update={"profile": Profile(), "trace": single_copy})
    requests = _generate(workload, math.inf, seed, block_tokens, facts, trace, len(trace))
    return _figures(_Sample(requests, 0, 1.0), req_per_s)


@dataclass(frozen=True, slots=True)
class Caches:
    """LRU caches of KV blocks to which requests are dealt in turn."""

    count: int
    blocks: float  # that each has room for; infinite: all
    ttl_s: float = math.inf  # of a block, from its last use

    def scaled(self, weight: float) -> Caches:
        """The caches for a sample in which each request stands for `weight` requests of the run."""
        return Caches(self.count, self.blocks / weight, self.ttl_s / weight)


def lru_hit_tokens(
    scenario: Scenario, facts: Facts, trace: TraceTable | None, caches: Caches,
    answers: bool = False,
) -> np.ndarray:  # fmt: skip
    """Tokens of each prompt that hit in LRU caches, i8[requests]: of the sample's prompts, or a
    trace's first ones. answers: whether caches store answers too. Cached like `offered_load`."""
    if trace is not None:
        trace_args = scenario.workload, scenario.seed, scenario.memory_pool.block_tokens
        return _trace_lru_hit_tokens(*trace_args, facts, trace, caches, answers)
    rate_factor = mean_rate_factor(scenario.workload, scenario.horizon_s, facts)
    return _sample_lru_hit_tokens(_sample_question(scenario, rate_factor), facts, caches, answers)


@lru_cache(maxsize=32)
def _sample_lru_hit_tokens(
    question: _Question, facts: Facts, caches: Caches, answers: bool
) -> np.ndarray:
    """Tokens of each prompt of a sample that hit in LRU caches, i8[requests]. answers: whether
    caches store answers too."""
    sample = _sample_of(question, facts)
    hit_tokens = _lru_hit_tokens(sample.requests, caches.scaled(sample.weight), answers)
    return hit_tokens[sample.first :]


@lru_cache(maxsize=8)
def _trace_lru_hit_tokens(
    workload: Workload, seed: int, block_tokens: int, facts: Facts, trace: TraceTable,
    caches: Caches, answers: bool,
) -> np.ndarray:  # fmt: skip
    """Tokens of a trace's first prompts that hit in LRU caches, i8[requests]. answers: whether
    caches store answers too."""
    workload = workload.model_copy(update={"profile": Profile()})
    requests = _generate(workload, math.inf, seed, block_tokens, facts, trace, SAMPLE, answers)
    return _lru_hit_tokens(requests, caches, answers)


def _lru_hit_tokens(sample: Requests, caches: Caches, answers: bool) -> np.ndarray:
    """Tokens of each prompt that hit in LRU caches, i8[requests]; requests are dealt to the caches
    in turn. answers: whether caches store answers too."""
    block_tokens = sample.block_tokens
    if caches.count == 1 and sample.blocks <= caches.blocks and math.isinf(caches.ttl_s):
        seen_tokens = _seen_blocks(sample, answers) * block_tokens
        return np.minimum(seen_tokens, sample.input_tokens - 1)
    piece_chains = _chain_pieces(sample)
    # (blocks held of a piece, its first ones, and last touch) by piece, the oldest first; a dict
    # would look over all that it lost before its first key.
    lru_caches = [OrderedDict[int, tuple[int, float]]() for _ in range(caches.count)]
    cached_blocks, hit_tokens = [0] * caches.count, np.zeros(len(sample), np.int64)
    pieces, in_prompt = piece_chains.piece.tolist(), piece_chains.in_prompt.tolist()
    piece_offset, piece_blocks = piece_chains.offset.tolist(), piece_chains.blocks.tolist()
    # Clients of a closed loop have no times.
    touches_s = np.where(np.isfinite(sample.arrival_s), sample.arrival_s, 0.0).tolist()
    for request, tokens in enumerate(sample.input_tokens.tolist()):
        cache_number = request % caches.count
        cache, now_s = lru_caches[cache_number], touches_s[request]
        piece_range = range(piece_offset[request], piece_offset[request + 1])
        prompt_pieces, hit_blocks = [pieces[k] for k in piece_range if in_prompt[k]], 0
        for piece in prompt_pieces:
            held_blocks, touch_s = cache.get(piece, (0, now_s))
            hit_blocks += held_blocks if touch_s >= now_s - caches.ttl_s else 0
            if held_blocks < piece_blocks[piece] or touch_s < now_s - caches.ttl_s:
                break
        hit_tokens[request] = min(hit_blocks * block_tokens, tokens - 1)
        for piece in reversed([pieces[k] for k in piece_range] if answers else prompt_pieces):
            cached_blocks[cache_number] += piece_blocks[piece] - cache.get(piece, (0, 0.0))[0]
            cache[piece] = (piece_blocks[piece], now_s)
            cache.move_to_end(piece)
        while cached_blocks[cache_number] > caches.blocks:  # the oldest piece loses its last blocks
            piece, (held_blocks, touch_s) = cache.popitem(last=False)
            lost_blocks = min(held_blocks, math.ceil(cached_blocks[cache_number] - caches.blocks))
            cached_blocks[cache_number] -= lost_blocks
            if lost_blocks < held_blocks:
                cache[piece] = (held_blocks - lost_blocks, touch_s)
                cache.move_to_end(piece, last=False)
    return hit_tokens


def _seen_blocks(sample: Requests, answers: bool = False) -> np.ndarray:
    """Number of each prompt's blocks that an earlier prompt (answers: or its answer) has, i8[n]."""
    chains, requests = _chain_pieces(sample), len(sample)
    requests_of_pieces = np.repeat(np.arange(requests), np.diff(chains.offset))
    first_owners = np.full(chains.blocks.size, requests)
    # Of equal ones the last assignment stays: the earliest prompt.
    counted_pieces = slice(None) if answers else chains.in_prompt
    first_owners[chains.piece[counted_pieces][::-1]] = requests_of_pieces[counted_pieces][::-1]
    is_seen = (first_owners[chains.piece] < requests_of_pieces) & chains.in_prompt
    seen_sizes = chains.blocks[chains.piece[is_seen]]
    return np.bincount(requests_of_pieces[is_seen], seen_sizes, minlength=requests).astype(np.int64)


class _Chains(NamedTuple):
    """Chains as pieces: runs of blocks that every prompt and every chain has whole or not at all.
    There are few of them, where a sample of long prompts has millions of blocks."""

    offset: np.ndarray  # i8[n + 1], of each request's pieces
    piece: np.ndarray  # i8[m], number of a piece, in the order of each chain
    in_prompt: np.ndarray  # b[m]; the others are of the answer
    blocks: np.ndarray  # i8[pieces], of a piece


def _chain_pieces(sample: Requests) -> _Chains:
    """The chains of a sample's requests, cut where any run of blocks or prompt begins or ends."""
    first_id, blocks = sample.segment_first, sample.segment_blocks.astype(np.int64)
    block_offset = np.concatenate(([0], np.cumsum(blocks)))
    chain_begin = block_offset[sample.segment_offset[:-1]]
    prompt_end = np.minimum(chain_begin + sample.input_tokens // sample.block_tokens,
                            block_offset[sample.segment_offset[1:]])  # fmt: skip
    cut_runs = np.searchsorted(block_offset, prompt_end[prompt_end > chain_begin] - 1, "right") - 1
    cut_ids = first_id[cut_runs] + prompt_end[prompt_end > chain_begin] - block_offset[cut_runs]
    piece_edges = np.unique(np.concatenate((first_id, first_id + blocks, cut_ids)))
    begin_piece = np.searchsorted(piece_edges, first_id)
    piece_count = np.searchsorted(piece_edges, first_id + blocks) - begin_piece  # of each run
    pieces, run_offset = ranges(begin_piece, piece_count), np.append(0, np.cumsum(piece_count))
    offset, piece_blocks = run_offset[sample.segment_offset], np.diff(piece_edges)
    piece_end_block = np.cumsum(piece_blocks[pieces])
    in_prompt = piece_end_block <= np.repeat(prompt_end, np.diff(offset))
    return _Chains(offset, pieces, in_prompt, piece_blocks)
