"""One iteration of a colocated instance: a decode batch and a prompt chunk in the same pass.

The chunk's tokens join the matrix products and the exchange of the decode batch, so weights are
read once for both; its attention comes on top. Colocated instances run operators in sequence.
Attention is data-parallel: a prompt is computed whole by the rank that decodes its answer, and all
ranks wait for the slowest before they share experts."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from twin.kernels.compiled import kernel, lazy_entry
from twin.kernels.rng import exponential, stream_key, uniform
from twin.metrics.operators import DECODE_OPERATORS
from twin.model import decode, layer
from twin.model.coefficients import DecodeCosts

RELEASES, MOST_FOLLOWED = 64, 20_000  # prompts of a group; iterations that they are followed over
MOST_PROMPTS, RARE = 200_000, 1e-3  # followed in all; chance that a group has none, negligible
GRID, MOST_BINS = 16, 1024  # bins of a mean prompt; of what a group computes in an iteration
SLICES, POINTS = 6, 64  # of equally likely iterations; of each slice
FULL = 0.999  # of a group's room, at most: all of it would wait without end
ALIKE = (1.0,)  # prompts of one length

_DENSE = DECODE_OPERATORS.index("dense_ffn")
_CHUNK = DECODE_OPERATORS.index("prefill_chunk")


@kernel
def mixed_iteration_s(
    p: DecodeCosts, requests: np.ndarray, context: np.ndarray, chunk: np.ndarray, pairs: np.ndarray,
    first: int, count: int, hot_tokens: np.ndarray, hot_factor: np.ndarray, ops: np.ndarray,
) -> float:  # fmt: skip
    """Seconds of one colocated iteration on ranks first..first+count.

    requests i8[R] running requests of each rank; context f8[R] their context tokens summed; chunk
    f8[R] prompt tokens of each rank and pairs f8[R] their query-key pairs; hot_*: load of the
    hottest die over the mean by tokens; ops f8[len(DECODE_OPERATORS)] gets the seconds of decode's
    operators as if alone added, and what the chunk adds as `prefill_chunk`. Where prompts have
    passes of their own (`chunk.apart`), the iteration is one of the chunk, then one of decode."""
    has_prompts = has_answers = False
    if p.chunk.apart > 0.0:
        for rank in range(first, first + count):
            has_prompts = has_prompts or chunk[rank] > 0.0
            has_answers = has_answers or requests[rank] > 0
    prompts_s, overlap = 0.0, 1.0
    if has_prompts and has_answers:
        overlap = 0.0
        prompts_s = _pass_s(
            p, 0.0, 1.0, requests, context, chunk, pairs, first, count, hot_tokens, hot_factor, ops
        )
    return prompts_s + _pass_s(
        p, 1.0, overlap, requests, context, chunk, pairs, first, count, hot_tokens, hot_factor, ops
    )


@kernel
def _pass_s(
    p: DecodeCosts, answers: float, prompts: float, requests: np.ndarray, context: np.ndarray,
    chunk: np.ndarray, pairs: np.ndarray, first: int, count: int, hot_tokens: np.ndarray,
    hot_factor: np.ndarray, ops: np.ndarray,
) -> float:  # fmt: skip
    """Seconds, also added to `ops` by operator, of a pass on ranks first..first + count - 1.
    answers, prompts: 1 with, else 0. By rank: requests in decode, their context tokens, tokens of
    the prompt chunk, its query-key pairs. hot_*: hottest die's tokens over the mean, by tokens."""
    fullest_rank, busiest, total_requests = first, 0, 0
    if answers > 0.0:
        fullest_rank, busiest, total_requests = layer.rank_loads(p, requests, context, first, count)
    width, query, mode, has_moe = p.layout.rank_dies, p.query_tokens, p.sequence, p.moe_layers > 0.0
    groups, piece_tokens, dies = layer.groups_of(p, total_requests), p.pipeline.piece, count * width
    running = total_requests / groups  # requests of a group
    fullest = layer.share_in_group(busiest, groups, count) * busiest
    entering_tokens, most = _pass_tokens(
        p, answers, prompts, requests, chunk, first, count, groups, query * running, query * fullest
    )  # fmt: skip
    if entering_tokens <= 0.0:
        return 0.0
    hot, wire = layer.die_and_link_load(p.layout, entering_tokens, hot_tokens, hot_factor)
    own_share = answers * layer.share_in_group(requests[fullest_rank], groups, count)
    rank_requests = own_share * requests[fullest_rank]
    rank_context = own_share * context[fullest_rank]
    alone_s = attention_s = dense_s = most_rows = most_core_s = 0.0
    if total_requests > 0:
        load = layer.PassLoad(
            query * rank_requests, rank_context, query * fullest / width, query * running, dies,
            hot, wire,
        )  # fmt: skip
        if has_moe:  # a decode batch is booked in layers with experts, or in all
            alone_s += decode.layers_in_sequence_s(p, p.moe_layers, load, ops)
        else:
            alone_s += decode.dense_layers_s(p, load, ops)
    for rank in range(first, first + count):
        if (
            first < rank != fullest_rank
            and chunk[rank] == chunk[rank - 1]
            and pairs[rank] == pairs[rank - 1]
            and requests[rank] == requests[rank - 1]
            and context[rank] == context[rank - 1]
        ):
            continue  # as long as the rank before it
        prompt_piece, piece_share = prompts * chunk[rank], prompts
        if 0.0 < piece_tokens < prompt_piece:
            prompt_piece, piece_share = piece_tokens, piece_tokens / chunk[rank]
        if prompt_piece > 0.0 or rank == fullest_rank:
            if groups > 1.0:
                own_share = answers * layer.share_in_group(requests[rank], groups, count)
            own_tokens = query * (own_share * requests[rank])
            rows = own_tokens + prompt_piece
            core_s = layer.local_core_s(mode.core, own_tokens, own_share * context[rank])
            core_s += layer.prompt_core_s(p.chunk, prompt_piece, piece_share * pairs[rank])
            core_s += p.chunk.edge * prompt_piece
            if rows > most_rows or core_s > most_core_s:  # else one before it has no less of either
                rank_s = layer.attention_s(mode, rows, core_s)
                if rank_s > attention_s:
                    attention_s, most_rows, most_core_s = rank_s, rows, core_s
                dense_s = max(dense_s, layer.dense_s(p, rows))
    load = layer.PassLoad(most, rank_context, most / width, entering_tokens, dies, hot, wire)
    moe_s = (attention_s + _moe_s(p, load, entering_tokens > query * running)) * p.moe_layers
    dense_s = p.dense_layers * (attention_s + dense_s)
    # Without a chunk the two are equal but for rounding, and a time is never negative.
    ops[_CHUNK] += max(0.0, (moe_s if has_moe else dense_s) - alone_s)
    ops[_DENSE] += dense_s if has_moe else 0.0
    dense_s, moe_s = layer.add_host_waits(p, dense_s, moe_s, rank_context, ops)
    after_s = decode.after_layers_s(p, rank_requests, rank_context, running, dies, hot, wire, ops)
    busy_s = moe_s + dense_s + after_s
    gap_s = decode.launch_gap_s(p, busy_s, running, most, entering_tokens > query * running, ops)
    return busy_s + gap_s + layer.pipeline_s(p, dense_s, moe_s, after_s, gap_s, groups, most, ops)


@kernel
def _moe_s(p: DecodeCosts, load: layer.PassLoad, has_prompts: bool) -> float:
    """Seconds of gate, dispatch, experts and combine of a pass."""
    gate_s, dispatch_s, experts_s, combine_s = layer.moe_stages_s(p, p.sequence, load)
    if has_prompts and p.chunk.sums.fixed > 0.0:
        dispatch_s, combine_s = 0.0, layer.collective_s(p.chunk.sums, load.total / load.dies)
    return gate_s + dispatch_s + experts_s + combine_s


@kernel
def _pass_tokens(
    p: DecodeCosts, answers: float, prompts: float, requests: np.ndarray, chunk: np.ndarray,
    first: int, count: int, groups: float, decoding: float, busiest: float,
) -> tuple[float, float]:  # fmt: skip
    """(tokens of a pass, tokens of its fullest rank) with answers and prompts (1; 0: none):
    `decoding` tokens of all ranks, `busiest` of the rank with most, and the prompt pieces (chunk)
    of ranks first..first+count."""
    entering_tokens, most, piece_tokens, group_share = decoding, busiest, p.pipeline.piece, 1.0
    for rank in range(first, first + count):
        prompt_piece = prompts * chunk[rank]
        if 0.0 < piece_tokens < prompt_piece:
            prompt_piece = piece_tokens
        if groups > 1.0:
            group_share = layer.share_in_group(requests[rank], groups, count)
        entering_tokens += prompt_piece
        rows = p.query_tokens * (answers * (group_share * requests[rank])) + prompt_piece
        if rows > most:  # noqa: PLR1730 - a call of max takes several times as long in plain Python
            most = rows
    return entering_tokens, most


@kernel
def mixed_hits_s(p: DecodeCosts, hit_tokens: float, ops: np.ndarray) -> float:
    """Seconds, also added to `ops`, that `hit_tokens` cached tokens of prompts add to an iteration:
    latents are projected up to keys and values of all heads, on dies that share the prompts."""
    hits_s = p.chunk.hit * hit_tokens
    ops[_CHUNK] += hits_s
    return hits_s


@kernel
def mixed_flops(
    p: DecodeCosts, requests: float, context: float, chunk: float, pairs: float
) -> float:
    """FLOPs of one colocated iteration on all dies, by sums over ranks: requests, context tokens,
    prompt tokens (chunk) and their query-key pairs. No token of a chunk goes through the MTP module
    or the head."""
    demand, layout = p.demand, p.layout
    layers = p.moe_layers + p.dense_layers
    token_flops = demand.attention_flops * layers + demand.dense_flops * p.dense_layers
    token_flops *= layout.rank_dies
    token_flops += (
        demand.expert_flops * (layout.top_k + layout.shared_experts) * layout.split * p.moe_layers
    )
    core_flops = layout.rank_dies * layer.prompt_core_flops(p.chunk, chunk, pairs)
    return decode.decode_flops(p, requests, context) + chunk * token_flops + core_flops


# (how often, tokens of each rank, their query-key pairs) of kinds of iterations.
Prompts = list[tuple[float, NDArray[np.float64], NDArray[np.float64]]]


def prompts_by_rank(
    tokens: float, pairs: float, prompt: float, most: float, ranks: int, group: int = 1,
    lengths: tuple[float, ...] = ALIKE,
) -> Prompts:  # fmt: skip
    """Kinds of iterations by the prompts in them: (share of iterations, prompt tokens f8[R],
    query-key pairs f8[R]). The first kind has no prompt; in the others the last rank has most
    prompt tokens. Their mean is that of all iterations. Where requests are dealt, the fullest rank
    comes first, so one rank rarely has most requests and most prompt tokens.

    tokens, pairs: of all ranks in a mean iteration; prompt: mean tokens to compute of a prompt;
    lengths: equally likely ones, over the mean; most: tokens that a rank computes in an iteration;
    group: ranks that split a prompt evenly. A prompt goes to the group in which an answer has
    ended, in pieces of at most `most` per rank."""
    no_tokens = np.zeros(ranks)
    if tokens <= 0.0:
        return [(1.0, no_tokens, no_tokens)]
    group = min(group, ranks)
    group_count = -(-ranks // group)
    idle_share, largest_tokens, largest_pairs = _largest_prompt_loads(
        tokens / group_count, pairs / tokens, prompt, most * group, group_count, lengths
    )
    if idle_share == 1.0 or largest_tokens[-1] <= 0.0:  # next to none
        return [(1.0, no_tokens, no_tokens)]
    passes = [(idle_share, no_tokens, no_tokens)]
    pass_share = (1.0 - idle_share) / largest_tokens.size
    busy_means = np.array((tokens, pairs)) / (1.0 - idle_share)  # of iterations with prompts
    fullest_means = np.array((largest_tokens, largest_pairs))
    fullest_means *= np.minimum(1.0, busy_means / fullest_means.mean(axis=1))[:, None]
    other_means = (busy_means - fullest_means.mean(axis=1)) / max(ranks - group, 1)
    return passes + [
        (pass_share, *_loads_by_rank(fullest, other_means, ranks, group))
        for fullest in fullest_means.T
    ]


def _loads_by_rank(
    largest: NDArray[np.float64], others: NDArray[np.float64], ranks: int, group: int
) -> NDArray[np.float64]:
    """Tokens and query-key pairs of each rank, f8[2, R]: the last `group` ranks share `largest`,
    all other ranks have `others` each, f8[2]."""
    rank_loads = np.repeat(others[:, None], ranks, axis=1)
    rank_loads[:, -group:] = largest[:, None] / group
    return rank_loads


@lru_cache(maxsize=64)
def delayed_prompts_by_rank(
    tokens: float, pairs: float, prompt: float, most: float, ranks: int, group: int = 1,
    lengths: tuple[float, ...] = ALIKE, delay: int = 1,
) -> tuple[Prompts, float]:  # fmt: skip
    """(kinds of iterations, as (share of iterations, prompt tokens f8[R], query-key pairs f8[R]),
    when prompts wait at most `delay` iterations for ranks without one; mean iterations of a prompt
    in which it is not computed). Arguments as of `prompts_by_rank`. Simulated over `RELEASES`
    Poisson prompts of each group, which wait until every group has one or the longest wait is over,
    and are then computed completely. None waits where every group has one in each iteration."""
    no_tokens, group = np.zeros(ranks), min(group, ranks)
    groups, group_tokens = -(-ranks // group), most * group
    rate = min(tokens, FULL * group_tokens * groups) / prompt
    if not delay or rate <= 0.0 or groups * math.exp(-rate / groups) < RARE:
        return prompts_by_rank(tokens, pairs, prompt, most, ranks, group, lengths), 0.0
    arrival_key, prompt_key = stream_key(0, "mixed.arrivals"), stream_key(0, "mixed.prompts")
    mean_square = math.fsum(fraction * fraction for fraction in lengths) / len(lengths)
    tokens_left, pairs_left = np.zeros(groups), np.zeros(groups)
    next_arrival = exponential(arrival_key, 0) / rate
    samples, waited, waiting_sum, arrivals = list[tuple[float, float, float, float]](), 0, 0.0, 0
    steps = min(int(RELEASES / min(rate, 1.0) * groups), MOST_FOLLOWED, int(MOST_PROMPTS / rate))
    for pass_index in range(steps):
        while next_arrival <= pass_index:
            home_group, length_fraction = divmod(uniform(prompt_key, arrivals) * groups, 1.0)
            length = lengths[int(length_fraction * len(lengths))]
            tokens_left[int(home_group)] += length * prompt
            pairs_left[int(home_group)] += length * length / mean_square * prompt * pairs / tokens
            arrivals += 1
            next_arrival += exponential(arrival_key, arrivals) / rate
        busy_groups = int((tokens_left > 0.0).sum())
        if 0 < busy_groups < groups and waited < delay:
            waited += 1
            waiting_sum += float(tokens_left.sum()) / prompt
            continue
        waited = 0
        if not busy_groups:
            continue
        released_share = np.minimum(1.0, group_tokens / np.maximum(tokens_left, 1.0))
        chunk, chunk_pairs = released_share * tokens_left, released_share * pairs_left
        tokens_left, pairs_left = tokens_left - chunk, pairs_left - chunk_pairs
        waited = delay if tokens_left.any() else 0  # what is left of a release waits no further
        top = int(np.lexsort((chunk_pairs, chunk))[-1])
        samples.append((float(chunk[top]), float(chunk_pairs[top]), chunk.sum(), chunk_pairs.sum()))
    if not samples:  # next to none
        return [(1.0, no_tokens, no_tokens)], 0.0
    sample_rows = np.array(sorted(samples))
    scale = steps * rate * prompt * np.array((1.0, pairs / tokens)) / sample_rows[:, 2:].sum(axis=0)
    sample_rows *= np.concatenate((scale, scale))  # what was drawn scatters about its mean
    sample_rows[:, 0] = np.minimum(sample_rows[:, 0], group_tokens)
    pass_loads = [(1.0 - len(samples) / steps, no_tokens, no_tokens)]
    for slice_rows in np.array_split(sample_rows, min(SLICES, len(sample_rows))):
        largest_load, total_load = np.split(slice_rows.mean(axis=0), 2)
        others = (total_load - largest_load) / max(groups - 1, 1) / group
        pass_loads.append(
            (len(slice_rows) / steps, *_loads_by_rank(largest_load, others, ranks, group))
        )
    return pass_loads, waiting_sum / max(arrivals, 1)


def longest_wait(arriving: float, groups: int, delay: int) -> float:
    """Mean iterations that the first prompt waits until every group of ranks has one, at most
    `delay`; arriving: prompts per iteration. [The coupon collector's problem]"""
    if arriving <= 0.0:
        return float(delay)
    return min(float(delay), groups / arriving * math.fsum(1.0 / k for k in range(1, groups + 1)))


def prompt_iterations(prompt: float, room: float, lengths: tuple[float, ...] = ALIKE) -> float:
    """Mean iterations of a prompt of `prompt` tokens on average whose ranks together compute `room`
    tokens in each; lengths: of prompts, equally likely, over the mean."""
    return 1.0 + float(
        _prompt_pieces(max(prompt, GRID / MOST_BINS * room), room, lengths)[1].mean()
    )


def mixed_mean_s(
    p: DecodeCosts, requests: NDArray[np.int64], context: NDArray[np.float64], prompts: Prompts,
    hot: tuple[NDArray[np.float64], NDArray[np.float64]], ops: NDArray[np.float64],
) -> float:  # fmt: skip
    """Mean seconds of a colocated iteration over kinds of iterations (`prompts`: share, prompt
    tokens and query-key pairs of each rank); adds the mean seconds by operator to `ops`."""
    mean_s = 0.0
    rank_lists = requests.tolist(), context.tolist()  # Python reads lists several times as fast
    for pass_share, chunk, pairs in prompts:
        pass_ops = np.zeros_like(ops)
        iteration_time = mixed_iteration_s(
            p, *rank_lists, chunk.tolist(), pairs.tolist(), 0, len(chunk), *hot, pass_ops
        )  # fmt: skip
        ops += pass_share * pass_ops
        mean_s += pass_share * iteration_time
    return mean_s


def _largest_prompt_loads(
    share: float, each: float, prompt: float, room: float, groups: int, lengths: tuple[float, ...]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """(share of iterations without a prompt, for the others the largest prompt tokens of a group
    and their query-key pairs, as means of equally likely slices, f8[SLICES] each). Prompts come to
    a group as a Poisson process: `share` tokens per iteration, with `each` pairs per token. A
    piece, which attends to all earlier tokens, fills the group's `room` (tokens), the rest of the
    prompt is another piece. Pieces beyond it come later as full ones, so the mean stays `share`."""
    share = min(share, FULL * room)
    prompt = max(prompt, GRID / MOST_BINS * room)  # very short ones come together
    bin_count, full, piece_left = _prompt_pieces(prompt, room, lengths)
    rate, bin_tokens = share / prompt, room / bin_count
    prompt_tokens = bin_tokens * (full * bin_count + piece_left)
    own_pairs = 0.5 * float((prompt_tokens * prompt_tokens).sum()) / float(prompt_tokens.sum())
    rest = np.where(piece_left < bin_count, piece_left, 0)  # what fills no group by itself
    rest_pairs = bin_tokens * rest * (full * room + 0.5 * bin_tokens * rest) / piece_left.size
    chances = np.bincount(piece_left, minlength=bin_count)[:bin_count] / piece_left.size
    pairs_by_rest = np.bincount(rest, rest_pairs, bin_count).astype(np.float64)
    sum_chances, sum_pairs = _poisson_sums(rate, chances, pairs_by_rest)
    chances_below = math.exp(-rate * float(full.mean())) * np.cumsum(sum_chances)
    mean = float((1.0 - chances_below).mean()) * room  # of what comes, before what met is put off
    chances_below *= min(1.0, (room - share) / max(room - mean, 1e-12 * room))
    largest_chances = np.append(chances_below**groups, 1.0)
    p_idle = float(largest_chances[0])
    quantiles = p_idle + (np.arange(SLICES * POINTS) + 0.5) * (1.0 - p_idle) / (SLICES * POINTS)
    sum_index = np.searchsorted(largest_chances, quantiles)
    # Several rests of prompts fill one.
    room_pairs = room * float(rest_pairs.sum()) / max(bin_tokens * float(rest.mean()), bin_tokens)
    paired = np.append(sum_pairs, room_pairs)[sum_index]
    fillers = full + (piece_left == bin_count)
    if pieces := int(fillers.max()):  # of those that fill a group: the farthest of all
        with_piece = np.array([(fillers > k).mean() for k in range(pieces)])  # prompts with piece k
        later_pieces = groups * rate * (with_piece.sum() - np.cumsum(with_piece))  # pieces after it
        none_beyond = [math.exp(-later_count) for later_count in later_pieces.tolist()]
        k = np.searchsorted(none_beyond, quantiles[sum_index == bin_count]).astype(np.float64)
        farthest_pairs = room * (np.minimum(k, pieces - 1.0) + 0.5) * room
        paired[sum_index == bin_count] = np.maximum(paired[sum_index == bin_count], farthest_pairs)
    paired *= each / own_pairs  # cached tokens too
    tokens = (bin_tokens * sum_index).reshape(SLICES, POINTS).mean(axis=1)
    return p_idle, tokens, paired.reshape(SLICES, POINTS).mean(axis=1)


@lazy_entry
def _poisson_sums(
    rate: float, chances: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(probabilities of the sum of a Poisson number of sizes, by Panjer's recursion; mean total
    value of these sizes by sum), f8[B] each; rate: mean number. chances f8[B]: of a size of b bins,
    none of size 0; values f8[B]: value of a size times its chance."""
    bin_count = chances.size
    jump_sizes = np.flatnonzero(chances)
    sums, value_sums = np.zeros(bin_count), np.zeros(bin_count)
    sums[0] = math.exp(-rate)
    for bin_sum in range(1, bin_count):
        for size in jump_sizes:
            if size > bin_sum:
                break
            sums[bin_sum] += rate * size * chances[size] * sums[bin_sum - size] / bin_sum
            value_sums[bin_sum] += rate * values[size] * sums[bin_sum - size]
        if sums[bin_sum] > 0.0:
            value_sums[bin_sum] /= sums[bin_sum]
    return sums, value_sums


@lru_cache(maxsize=512)
def _prompt_pieces(
    prompt: float, room: float, lengths: tuple[float, ...]
) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """(bins of a group's tokens per iteration, at least GRID; full pieces of prompts of equally
    likely lengths, bins of their last piece, which is never empty, i8[L] each)."""
    bin_count = int(min(max(round(GRID * room / prompt), GRID), MOST_BINS))
    sizes = np.maximum(np.rint(np.array(lengths) * (prompt / room * bin_count)).astype(np.int64), 1)
    full_pieces = (sizes - 1) // bin_count
    return bin_count, full_pieces, sizes - full_pieces * bin_count
