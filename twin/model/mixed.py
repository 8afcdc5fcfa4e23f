"""One iteration of a colocated instance: a decode batch and a prompt chunk in the same pass.

The chunk's tokens join the matrix products and the exchange of the decode batch, so weights are
read once for both; its attention comes on top. Colocated instances run operators in sequence.
Attention is data-parallel: a prompt is computed whole by the rank that decodes its answer, and all
ranks wait for the slowest before they share experts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from twin.kernels.compiled import kernel
from twin.model.coefficients import DECODE_OPERATORS, Decode
from twin.model.decode import decode_flops, launch_gap_s, layers_in_sequence_s, outside_s
from twin.model.layer import Pass, attention_s, dense_s, moe_s, survey
from twin.model.roofline import interpolate

__all__ = ["Chunk", "DECODE_OPERATORS", "mixed_iteration_s", "mixed_mean_s", "prompts_by_rank"]

GRID, MOST_BINS = 16, 1024  # bins of a mean prompt; of what a group computes in an iteration
SLICES = 6  # of equally likely iterations
LENGTHS = 256  # quantiles of prompts of unequal length

_DENSE = DECODE_OPERATORS.index("dense_ffn")
_CHUNK = DECODE_OPERATORS.index("prefill_chunk")


@kernel
def mixed_iteration_s(
    p: Decode,
    requests: np.ndarray,
    context: np.ndarray,
    chunk: np.ndarray,
    pairs: np.ndarray,
    first: int,
    count: int,
    hot_tokens: np.ndarray,
    hot_factor: np.ndarray,
    ops: np.ndarray,
) -> float:
    """Seconds of one colocated iteration on ranks first..first+count.

    requests i8[R], context f8[R] as in decode; chunk f8[R] prompt tokens of each rank and pairs
    f8[R] their query-key pairs; ops f8[len(DECODE_OPERATORS)]: decode's operators as if alone, and
    what the chunk adds as `prefill_chunk`.
    """
    who, busiest, total = survey(p, requests, context, first, count)
    dies = float(count)
    query = p.query_tokens
    entering, most = query * total, query * busiest
    for r in range(first, first + count):
        entering += chunk[r]
        most = max(most, query * requests[r] + chunk[r])
    if entering <= 0.0:
        return 0.0
    hot = interpolate(entering, hot_tokens, hot_factor)
    rank_requests, rank_context = float(requests[who]), context[who]
    tokens = query * rank_requests
    alone = 0.0
    if total > 0:
        load = Pass(tokens, rank_context, query * busiest, query * total, dies, hot)
        alone += layers_in_sequence_s(p, p.moe_layers, load, ops)
    m = p.sequence
    attention = dense = most_rows = most_core = 0.0
    for r in range(first, first + count):
        if chunk[r] > 0.0 or r == who:
            rows = query * requests[r] + chunk[r]
            core = m.core.context * context[r] + p.chunk.pair * pairs[r]
            if rows > most_rows or core > most_core:  # else a rank before it has no less of either
                took = attention_s(m, rows, core)
                if took > attention:
                    attention, most_rows, most_core = took, rows, core
                dense = max(dense, dense_s(p, rows))
    layer = attention + moe_s(p, m, Pass(most, rank_context, most, entering, dies, hot))
    # Without a chunk the two are equal but for rounding, and a time is never negative.
    ops[_CHUNK] += max(0.0, layer * p.moe_layers - alone)
    dense = p.dense_layers * (attention + dense)
    ops[_DENSE] += dense
    time = layer * p.moe_layers + dense
    time += outside_s(p, rank_requests, rank_context, float(total), dies, hot, ops)
    return time + launch_gap_s(p, time, total, ops)


@kernel
def mixed_hits_s(p: Decode, hit_tokens: float, ops: np.ndarray) -> float:
    """Seconds an iteration takes longer for `hit_tokens` cached tokens that its prompts attend to.

    As prefill_hits_s: their latents are projected up to keys and values of all heads, on the
    dies that share the prompts. Comes on top of mixed_iteration_s; ops as there.
    """
    time = p.chunk.hit * hit_tokens
    ops[_CHUNK] += time
    return time


@kernel
def mixed_flops(p: Decode, requests: float, context: float, chunk: float, pairs: float) -> float:
    """FLOPs of one colocated iteration on all dies; sums over ranks as in decode_flops.

    Of a chunk's tokens none goes through the MTP module or the head.
    """
    demand, at = p.demand, p.layout
    layers = p.moe_layers + p.dense_layers
    token = demand.attention_flops * layers + demand.dense_flops * p.dense_layers
    token += demand.expert_flops * (at.top_k + at.shared_experts) * p.moe_layers
    return decode_flops(p, requests, context) + chunk * token + pairs * p.chunk.pair_flops


@dataclass(frozen=True, slots=True)
class Chunk:
    """What an iteration of a colocated instance prefills."""

    tokens: float  # of a request
    pairs: float
    most_tokens: float  # of a rank in an iteration
    ranks: int = 1  # that split it


Prompts = list[tuple[NDArray[np.float64], NDArray[np.float64]]]


def prompts_by_rank(
    tokens: float,
    pairs: float,
    prompt: float,
    most: float,
    ranks: int,
    group: int = 1,
    spread: float = 1.0,
) -> Prompts:
    """(tokens, query-key pairs) of prompts on each rank, f8[R], the rank with most of them first:
    of iterations that are equally likely and together have the mean.

    tokens, pairs: of all ranks in a mean iteration; prompt: tokens that a mean one has to compute;
    spread: their mean square over the square of their mean; most: what a rank computes in an
    iteration; group: ranks that split a prompt evenly. A prompt comes to the group where an answer
    has ended, in pieces of at most `most` a rank.
    """
    if tokens <= 0.0:
        return [(np.zeros(ranks), np.zeros(ranks))]
    group = min(group, ranks)
    groups = -(-ranks // group)
    loads = []
    largest = _largest(tokens / groups, prompt, most * group, groups, spread)
    if tokens < float(largest.mean()):
        largest *= tokens / float(largest.mean())
    others = (tokens - float(largest.mean())) / max(ranks - group, 1)
    for load in largest:
        chunk = np.full(ranks, others)
        chunk[:group] = load / group
        loads.append((chunk, chunk * (pairs / tokens)))
    return loads


def prompt_iterations(prompt: float, room: float, spread: float = 1.0) -> float:
    """Mean iterations that a prompt takes whose ranks together compute `room` tokens in each."""
    prompt = max(prompt, GRID / MOST_BINS * room)
    bins = _bins(prompt, room)
    return 1.0 + _pieces(prompt / room * bins, spread, bins)[0]


def _bins(prompt: float, room: float) -> int:
    """Bins of what a group computes in an iteration, GRID to a mean prompt where it is smaller."""
    return int(min(max(round(GRID * room / prompt), GRID), MOST_BINS))


def mixed_mean_s(
    p: Decode,
    requests: NDArray[np.int64],
    context: NDArray[np.float64],
    prompts: Prompts,
    hot: tuple[NDArray[np.float64], NDArray[np.float64]],
    ops: NDArray[np.float64],
) -> float:
    """Mean seconds of mixed_iteration_s over equally likely prompts; ops: their mean, added."""
    sink, seconds = np.zeros_like(ops), 0.0
    load = requests.tolist(), context.tolist()  # Python reads lists several times as fast
    for chunk, pairs in prompts:
        seconds += mixed_iteration_s(
            p, *load, chunk.tolist(), pairs.tolist(), 0, len(chunk), *hot, sink
        )  # fmt: skip
    ops += sink / len(prompts)
    return seconds / len(prompts)


def _largest(
    share: float, prompt: float, room: float, groups: int, spread: float
) -> NDArray[np.float64]:
    """Largest prompt tokens of a group in an iteration: means of equally likely slices, f8[SLICES].

    Prompts come to a group as a Poisson process, `share` tokens an iteration; a piece fills the
    group's room, what is left of the prompt is another piece. Pieces that meet beyond the room come
    later, as full ones, so that the mean stays `share`.
    """
    if share >= room:
        return np.array([room])
    prompt = max(prompt, GRID / MOST_BINS * room)  # very short ones come together
    bins = _bins(prompt, room)
    full, left = _pieces(prompt / room * bins, spread, bins)
    rate = share / prompt
    sums = _poisson_sums(rate, left)[:bins]
    below = math.exp(-rate * full) * np.cumsum(sums)
    mean = float((1.0 - below).mean()) * room  # of what comes, before what met is put off
    below *= min(1.0, (room - share) / max(room - mean, 1e-12 * room))
    chance = np.diff(np.minimum(below, 1.0) ** groups, prepend=0.0, append=1.0)
    # Slices of equal chance: the sum of sizes up to each level, interpolated between levels.
    levels = np.concatenate(([0.0], np.cumsum(chance)))
    sizes = np.concatenate(([0.0], np.cumsum(chance * np.linspace(0.0, room, bins + 1))))
    at = np.interp(np.linspace(0.0, 1.0, SLICES + 1), levels, sizes)
    return np.asarray(np.diff(at) * SLICES)


def _poisson_sums(rate: float, chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Chances of the sum of a Poisson number of sizes, f8[B]: Panjer's recursion.

    chances f8[B]: of a size of so many bins, none of size 0.
    """
    sizes = np.flatnonzero(chances)
    weight = rate * sizes * chances[sizes]
    sums = np.zeros(chances.size)
    sums[0] = math.exp(-rate)
    for n in range(1, chances.size):
        some = int(np.searchsorted(sizes, n, side="right"))
        sums[n] = float((weight[:some] * sums[n - sizes[:some]]).sum()) / n
    return sums


@lru_cache(maxsize=512)
def _pieces(prompt: float, spread: float, bins: int) -> tuple[float, NDArray[np.float64]]:
    """(full pieces of a prompt, chances of the rest by size, f8[bins + 1]) in bins of the room.

    Lengths are lognormal with that mean and spread; prompt: bins of a mean one.
    """
    if spread < 1.0 + 1e-3:
        lengths, chance = np.array([max(round(prompt), 1)], np.int64), np.ones(1)
    else:
        sigma = math.sqrt(math.log(spread))
        levels = (np.arange(LENGTHS) + 0.5) / LENGTHS
        drawn = np.array([math.exp(sigma * NormalDist().inv_cdf(level)) for level in levels])
        drawn *= prompt / drawn.mean()
        lengths, chance = np.maximum(np.rint(drawn).astype(np.int64), 1), np.full(LENGTHS, 1.0)
        chance /= LENGTHS
    full = (lengths - 1) // bins  # the last piece is never empty
    left = np.bincount(lengths - full * bins, chance, bins + 1).astype(np.float64)
    return float((full * chance).sum()), left
