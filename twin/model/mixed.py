"""One iteration of a colocated instance: a decode batch and a prompt chunk in the same pass. The
chunk's tokens join the decode batch in matrix products and exchange, so weights are read once; its
attention comes on top. Colocated instances run operators in sequence. Attention is data-parallel: a
prompt is computed whole by the rank that decodes its answer, and all ranks wait for the slowest
before they share experts."""

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
    """Seconds of one colocated iteration on ranks first..first + count - 1.

    By rank, [R]: requests i8, the running ones; context f8, sum of their context tokens; chunk f8,
    prompt tokens; pairs f8, their query-key pairs. hot_tokens, hot_factor: load of the hottest die
    divided by the mean, by tokens. ops f8[len(DECODE_OPERATORS)]: gets the seconds of decode's
    operators without the chunk added, and the chunk's further seconds as `prefill_chunk`. Where
    prompts have own passes (`chunk.apart`), it is one pass of the chunk, then one of decode."""
    has_prompts = has_answers = False
    if p.chunk.apart > 0.0:
        for rank in range(first, first + count):
            has_prompts = has_prompts or chunk[rank] > 0.0
            has_answers = has_answers or requests[rank] > 0
    prompt_pass_s, with_prompts = 0.0, 1.0
    if has_prompts and has_answers:
        with_prompts = 0.0
        prompt_pass_s = _pass_s(
            p, 0.0, 1.0, requests, context, chunk, pairs, first, count, hot_tokens, hot_factor, ops
        )
    return prompt_pass_s + _pass_s(
        p, 1.0, with_prompts, requests, context, chunk, pairs, first, count, hot_tokens, hot_factor,
        ops,
    )  # fmt: skip


@kernel
def _pass_s(
    p: DecodeCosts, answers: float, prompts: float, requests: np.ndarray, context: np.ndarray,
    chunk: np.ndarray, pairs: np.ndarray, first: int, count: int, hot_tokens: np.ndarray,
    hot_factor: np.ndarray, ops: np.ndarray,
) -> float:  # fmt: skip
    """Seconds, also added to ops f8[operators], of a pass on ranks first..first + count - 1.
    answers, prompts: 1: with, 0: without. By rank: requests in decode, their context tokens; prompt
    tokens (chunk), their query-key pairs. hot_*: load of the hottest die over the mean."""
    slow_rank, max_requests, all_requests = first, 0, 0
    if answers > 0.0:
        slow_rank, max_requests, all_requests = layer.rank_loads(p, requests, context, first, count)
    rank_dies, query, layer_costs = p.layout.rank_dies, p.query_tokens, p.sequence
    groups, piece_tokens = layer.pipeline_groups(p, all_requests), p.pipeline.piece
    has_moe, pass_size, dies = p.moe_layers > 0.0, all_requests / groups, count * rank_dies
    most_pass_requests = layer.share_in_pass(max_requests, groups, count) * max_requests
    tokens, max_tokens = _pass_tokens(
        p, answers, prompts, requests, chunk, first, count, groups, query * pass_size,
        query * most_pass_requests,
    )  # fmt: skip
    if tokens <= 0.0:
        return 0.0
    hot, wire = layer.die_and_link_load(p.layout, tokens, hot_tokens, hot_factor)
    pass_share = answers * layer.share_in_pass(requests[slow_rank], groups, count)
    rank_requests, rank_context = pass_share * requests[slow_rank], pass_share * context[slow_rank]
    decode_s = attention_s = dense_s = most_rows = most_core_s = 0.0
    if all_requests > 0:
        load = layer.PassLoad(
            query * rank_requests, rank_context, query * most_pass_requests / rank_dies,
            query * pass_size, dies, hot, wire,
        )  # fmt: skip
        if has_moe:  # a decode batch is booked in layers with experts, or in all
            decode_s += decode.layers_in_sequence_s(p, p.moe_layers, load, ops)
        else:
            decode_s += decode.dense_layers_s(p, load, ops)
    for rank in range(first, first + count):
        if (
            first < rank != slow_rank
            and chunk[rank] == chunk[rank - 1]
            and pairs[rank] == pairs[rank - 1]
            and requests[rank] == requests[rank - 1]
            and context[rank] == context[rank - 1]
        ):
            continue  # as long as the rank before it
        prompt_piece, piece_share = prompts * chunk[rank], prompts
        if 0.0 < piece_tokens < prompt_piece:
            prompt_piece, piece_share = piece_tokens, piece_tokens / chunk[rank]
        if prompt_piece > 0.0 or rank == slow_rank:
            if groups > 1.0:
                pass_share = answers * layer.share_in_pass(requests[rank], groups, count)
            answer_tokens = query * (pass_share * requests[rank])
            rows = answer_tokens + prompt_piece
            core_s = layer.local_core_s(layer_costs.core, answer_tokens, pass_share * context[rank])
            core_s += layer.prompt_core_s(p.chunk, prompt_piece, piece_share * pairs[rank])
            core_s += p.chunk.edge * prompt_piece
            if rows > most_rows or core_s > most_core_s:  # else one before it has no less of either
                rank_s = layer.attention_s(layer_costs, rows, core_s)
                if rank_s > attention_s:
                    attention_s, most_rows, most_core_s = rank_s, rows, core_s
                dense_s = max(dense_s, layer.dense_s(p, rows))
    load = layer.PassLoad(max_tokens, rank_context, max_tokens / rank_dies, tokens, dies, hot, wire)
    moe_s = (attention_s + _moe_s(p, load, tokens > query * pass_size)) * p.moe_layers
    dense_s = p.dense_layers * (attention_s + dense_s)
    ops[_CHUNK] += max(0.0, (moe_s if has_moe else dense_s) - decode_s)  # but for rounding >= 0
    ops[_DENSE] += dense_s if has_moe else 0.0
    dense_s, moe_s = layer.add_host_waits(p, dense_s, moe_s, rank_context, ops)
    after_s = decode.after_layers_s(p, rank_requests, rank_context, pass_size, dies, hot, wire, ops)
    busy_s = moe_s + dense_s + after_s
    gap_s = decode.launch_gap_s(p, busy_s, pass_size, max_tokens, tokens > query * pass_size, ops)
    pipeline_s = layer.pipeline_extra_s(p, dense_s, moe_s, after_s, gap_s, groups, max_tokens, ops)
    return busy_s + gap_s + pipeline_s


@kernel
def _moe_s(p: DecodeCosts, load: layer.PassLoad, has_prompts: bool) -> float:
    """Seconds of gate, dispatch, experts and combine of a layer. With prompts, all-reduces may
    replace dispatch and combine."""
    gate_s, dispatch_s, experts_s, combine_s = layer.moe_stages_s(p, p.sequence, load)
    if has_prompts and p.chunk.sums.fixed > 0.0:
        dispatch_s, combine_s = 0.0, layer.collective_s(p.chunk.sums, load.total / load.dies)
    return gate_s + dispatch_s + experts_s + combine_s


@kernel
def _pass_tokens(
    p: DecodeCosts, answers: float, prompts: float, requests: np.ndarray, chunk: np.ndarray,
    first: int, count: int, groups: float, decoding: float, busiest: float,
) -> tuple[float, float]:  # fmt: skip
    """(tokens of a pass, tokens of its fullest rank). answers, prompts: 1: the pass has some, 0:
    none; decoding, busiest: decode tokens of all ranks, and of the rank with most; requests, chunk:
    requests and prompt tokens by rank, of which ranks first..first + count - 1 count; groups:
    number of groups of requests, one for each pass."""
    all_tokens, most_tokens, piece_tokens, pass_share = decoding, busiest, p.pipeline.piece, 1.0
    for rank in range(first, first + count):
        prompt_piece = prompts * chunk[rank]
        if 0.0 < piece_tokens < prompt_piece:
            prompt_piece = piece_tokens
        if groups > 1.0:
            pass_share = layer.share_in_pass(requests[rank], groups, count)
        all_tokens += prompt_piece
        rank_tokens = p.query_tokens * (answers * (pass_share * requests[rank])) + prompt_piece
        if rank_tokens > most_tokens:  # noqa: PLR1730 - a call of max takes several times as long in plain Python
            most_tokens = rank_tokens
    return all_tokens, most_tokens


@kernel
def mixed_hits_s(p: DecodeCosts, hit_tokens: float, ops: np.ndarray) -> float:
    """Seconds, also added to ops f8[operators], that `hit_tokens` cached prompt tokens add to an
    iteration: dies that share prompts project latents up to keys and values of all heads."""
    hits_s = p.chunk.hit * hit_tokens
    ops[_CHUNK] += hits_s
    return hits_s


@kernel
def mixed_flops(
    p: DecodeCosts, requests: float, context: float, chunk: float, pairs: float
) -> float:
    """FLOPs of one colocated iteration on all dies, from sums over ranks: requests, their context
    tokens, prompt tokens (chunk), query-key pairs of these. Prompts skip MTP module and head."""
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
    prompt tokens. The mean of the kinds is that of all iterations. Where requests are dealt, the
    fullest rank comes first, so one rank rarely has most requests and most prompt tokens.

    tokens, pairs: sums over ranks in a mean iteration; prompt: mean number of tokens that a prompt
    has to compute; lengths: equally likely lengths of a prompt, divided by the mean; most: tokens
    that a rank computes in an iteration; group: number of ranks that split a prompt evenly. A
    prompt goes to the group in which an answer has ended, in pieces of at most `most` per rank."""
    no_tokens = np.zeros(ranks)
    if tokens <= 0.0:
        return [(1.0, no_tokens, no_tokens)]
    group = min(group, ranks)
    group_count = -(-ranks // group)
    promptless_share, largest_tokens, largest_pairs = _largest_prompt_loads(
        tokens / group_count, pairs / tokens, prompt, most * group, group_count, lengths
    )
    if promptless_share == 1.0 or largest_tokens[-1] <= 0.0:  # next to none
        return [(1.0, no_tokens, no_tokens)]
    iteration_kinds = [(promptless_share, no_tokens, no_tokens)]
    kind_share = (1.0 - promptless_share) / largest_tokens.size
    mean_loads = np.array((tokens, pairs)) / (1.0 - promptless_share)  # of iterations with prompts
    fullest_loads = np.array((largest_tokens, largest_pairs))
    fullest_loads *= np.minimum(1.0, mean_loads / fullest_loads.mean(axis=1))[:, None]
    other_loads = (mean_loads - fullest_loads.mean(axis=1)) / max(ranks - group, 1)
    return iteration_kinds + [
        (kind_share, *_loads_by_rank(fullest, other_loads, ranks, group))
        for fullest in fullest_loads.T
    ]


def _loads_by_rank(
    largest: NDArray[np.float64], others: NDArray[np.float64], ranks: int, group: int
) -> NDArray[np.float64]:
    """(tokens, query-key pairs) of each rank, f8[2, R]. The last `group` ranks share `largest`
    (tokens, pairs) evenly; each other rank has `others`."""
    rank_loads = np.repeat(others[:, None], ranks, axis=1)
    rank_loads[:, -group:] = largest[:, None] / group
    return rank_loads


@lru_cache(maxsize=64)
def delayed_prompts_by_rank(
    tokens: float, pairs: float, prompt: float, most: float, ranks: int, group: int = 1,
    lengths: tuple[float, ...] = ALIKE, delay: int = 1,
) -> tuple[Prompts, float]:  # fmt: skip
    """(kinds of iterations as of `prompts_by_rank`, mean iterations in which a prompt is there but
    not computed) if prompts wait at most `delay` iterations for ranks without one. Further
    arguments as of `prompts_by_rank`. `RELEASES` Poisson prompts of each group are simulated: they
    wait until every group has one or the longest wait is over, and are then computed completely. No
    prompt waits where every group has one in each iteration."""
    no_tokens, group = np.zeros(ranks), min(group, ranks)
    groups, group_tokens = -(-ranks // group), most * group
    rate = min(tokens, FULL * group_tokens * groups) / prompt  # prompts per iteration, all groups
    if not delay or rate <= 0.0 or groups * math.exp(-rate / groups) < RARE:
        return prompts_by_rank(tokens, pairs, prompt, most, ranks, group, lengths), 0.0
    arrival_key, prompt_key = stream_key(0, "mixed.arrivals"), stream_key(0, "mixed.prompts")
    mean_square = math.fsum(fraction * fraction for fraction in lengths) / len(lengths)
    tokens_left, pairs_left = np.zeros(groups), np.zeros(groups)
    next_arrival_iteration = exponential(arrival_key, 0) / rate
    samples = list[tuple[float, float, float, float]]()
    waited, waiting_prompts, arrived_prompts = 0, 0.0, 0
    passes = min(int(RELEASES / min(rate, 1.0) * groups), MOST_FOLLOWED, int(MOST_PROMPTS / rate))
    for pass_index in range(passes):
        while next_arrival_iteration <= pass_index:
            home_group, length_fraction = divmod(uniform(prompt_key, arrived_prompts) * groups, 1.0)
            length = lengths[int(length_fraction * len(lengths))]
            tokens_left[int(home_group)] += length * prompt
            pairs_left[int(home_group)] += length * length / mean_square * prompt * pairs / tokens
            arrived_prompts += 1
            next_arrival_iteration += exponential(arrival_key, arrived_prompts) / rate
        busy_groups = int((tokens_left > 0.0).sum())
        if 0 < busy_groups < groups and waited < delay:
            waited += 1
            waiting_prompts += float(tokens_left.sum()) / prompt
            continue
        waited = 0
        if not busy_groups:
            continue
        released_share = np.minimum(1.0, group_tokens / np.maximum(tokens_left, 1.0))  # by group
        chunk, chunk_pairs = released_share * tokens_left, released_share * pairs_left
        tokens_left, pairs_left = tokens_left - chunk, pairs_left - chunk_pairs
        waited = delay if tokens_left.any() else 0  # what is left of a release waits no further
        fullest = int(np.lexsort((chunk_pairs, chunk))[-1])
        samples.append(
            (float(chunk[fullest]), float(chunk_pairs[fullest]), chunk.sum(), chunk_pairs.sum())
        )
    if not samples:  # next to none
        return [(1.0, no_tokens, no_tokens)], 0.0
    sample_rows = np.array(sorted(samples))
    expected_sums = passes * rate * prompt * np.array((1.0, pairs / tokens))
    scale = expected_sums / sample_rows[:, 2:].sum(axis=0)
    sample_rows *= np.concatenate((scale, scale))  # what was drawn scatters about its mean
    sample_rows[:, 0] = np.minimum(sample_rows[:, 0], group_tokens)
    iteration_kinds = [(1.0 - len(samples) / passes, no_tokens, no_tokens)]
    for slice_rows in np.array_split(sample_rows, min(SLICES, len(sample_rows))):
        largest_load, total_load = np.split(slice_rows.mean(axis=0), 2)
        other_loads = (total_load - largest_load) / max(groups - 1, 1) / group
        iteration_kinds.append(
            (len(slice_rows) / passes, *_loads_by_rank(largest_load, other_loads, ranks, group))
        )
    return iteration_kinds, waiting_prompts / max(arrived_prompts, 1)


def first_prompt_wait(arriving: float, groups: int, delay: int) -> float:
    """Mean iterations that a first prompt waits until each of `groups` groups of ranks has one, at
    most `delay`. arriving: prompts per iteration. [The coupon collector's problem]"""
    if arriving <= 0.0:
        return float(delay)
    return min(float(delay), groups / arriving * math.fsum(1.0 / k for k in range(1, groups + 1)))


def prompt_iterations(prompt: float, room: float, lengths: tuple[float, ...] = ALIKE) -> float:
    """Mean iterations in which a prompt is computed, by ranks that together compute `room` tokens
    in each. prompt: mean tokens; lengths: equally likely lengths, divided by the mean."""
    full_pieces = _prompt_pieces(max(prompt, GRID / MOST_BINS * room), room, lengths)[1]
    return 1.0 + float(full_pieces.mean())


def mixed_mean_s(
    p: DecodeCosts, requests: NDArray[np.int64], context: NDArray[np.float64], prompts: Prompts,
    hot: tuple[NDArray[np.float64], NDArray[np.float64]], ops: NDArray[np.float64],
) -> float:  # fmt: skip
    """Mean seconds of a colocated iteration over kinds of iterations (`prompts`: share, prompt
    tokens and query-key pairs of each rank). Mean seconds by operator are added to ops
    f8[operators]. requests, context: requests and context tokens by rank; hot: load of the
    hottest die by tokens."""
    mean_iteration_s = 0.0
    rank_lists = requests.tolist(), context.tolist()  # Python reads lists several times as fast
    for kind_share, chunk, pairs in prompts:
        kind_ops = np.zeros_like(ops)
        iteration_s = mixed_iteration_s(
            p, *rank_lists, chunk.tolist(), pairs.tolist(), 0, len(chunk), *hot, kind_ops
        )  # fmt: skip
        ops += kind_share * kind_ops
        mean_iteration_s += kind_share * iteration_s
    return mean_iteration_s


def _largest_prompt_loads(
    tokens: float, pairs_per_token: float, prompt: float, room: float, groups: int,
    lengths: tuple[float, ...],
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """(share of iterations without a prompt; in the others the largest prompt tokens of a group,
    and their query-key pairs, as means of equally likely slices, f8[SLICES] each). Prompts come to
    each of `groups` as a Poisson process: `tokens` tokens per iteration, with `pairs_per_token`
    pairs per token. A piece of a prompt, which attends to all earlier tokens, fills the group's
    `room` (tokens); the rest of the prompt is another piece. Pieces beyond the room come later as
    full ones, so the mean stays `tokens`."""
    tokens = min(tokens, FULL * room)
    prompt = max(prompt, GRID / MOST_BINS * room)  # very short ones come together
    bin_count, full_pieces, last_bins = _prompt_pieces(prompt, room, lengths)
    prompt_rate, bin_tokens = tokens / prompt, room / bin_count
    prompt_tokens = bin_tokens * (full_pieces * bin_count + last_bins)
    own_pairs_per_token = (
        0.5 * float((prompt_tokens * prompt_tokens).sum()) / float(prompt_tokens.sum())
    )
    partial_bins = np.where(last_bins < bin_count, last_bins, 0)  # what fills no group by itself
    partial_pairs = (
        bin_tokens * partial_bins * (full_pieces * room + 0.5 * bin_tokens * partial_bins)
    )
    partial_pairs /= last_bins.size
    chances = np.bincount(last_bins, minlength=bin_count)[:bin_count] / last_bins.size
    pairs_by_partial = np.bincount(partial_bins, partial_pairs, bin_count).astype(np.float64)
    chance_of_sum, pairs_of_sum = _poisson_sums(prompt_rate, chances, pairs_by_partial)
    chances_below = math.exp(-prompt_rate * float(full_pieces.mean())) * np.cumsum(chance_of_sum)
    # Of what comes, before what met is put off.
    used_tokens = float((1.0 - chances_below).mean()) * room
    chances_below *= min(1.0, (room - tokens) / max(room - used_tokens, 1e-12 * room))
    largest_chances = np.append(chances_below**groups, 1.0)
    promptless_share = float(largest_chances[0])
    quantiles = promptless_share + (np.arange(SLICES * POINTS) + 0.5) * (1.0 - promptless_share) / (
        SLICES * POINTS
    )
    sum_bins = np.searchsorted(largest_chances, quantiles)
    # Several rests of prompts fill one.
    room_pairs = (
        room * float(partial_pairs.sum()) / max(bin_tokens * float(partial_bins.mean()), bin_tokens)
    )
    largest_pairs, is_full = np.append(pairs_of_sum, room_pairs)[sum_bins], sum_bins == bin_count
    filling_pieces = full_pieces + (last_bins == bin_count)
    if most_pieces := int(filling_pieces.max()):  # of those that fill a group: the farthest of all
        # Share of prompts with piece k, and pieces after it in an iteration.
        share_with_piece = np.array([(filling_pieces > k).mean() for k in range(most_pieces)])
        later_pieces = groups * prompt_rate * (share_with_piece.sum() - np.cumsum(share_with_piece))
        chance_none_later = [math.exp(-later_count) for later_count in later_pieces.tolist()]
        farthest_piece = np.searchsorted(chance_none_later, quantiles[is_full]).astype(np.float64)
        farthest_pairs = room * (np.minimum(farthest_piece, most_pieces - 1.0) + 0.5) * room
        largest_pairs[is_full] = np.maximum(largest_pairs[is_full], farthest_pairs)
    largest_pairs *= pairs_per_token / own_pairs_per_token  # cached tokens too
    largest_tokens = (bin_tokens * sum_bins).reshape(SLICES, POINTS).mean(axis=1)
    return promptless_share, largest_tokens, largest_pairs.reshape(SLICES, POINTS).mean(axis=1)


@lazy_entry
def _poisson_sums(
    rate: float, chances: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(probability of each sum of a Poisson number of sizes, by Panjer's recursion; mean total
    value of these sizes by sum), f8[B] each. rate: mean number of sizes; chances f8[B]: chance of a
    size of b bins, 0 for b = 0; values f8[B]: value of a size times its chance."""
    bin_count = chances.size
    possible_sizes = np.flatnonzero(chances)
    chance_of_sum, value_of_sum = np.zeros(bin_count), np.zeros(bin_count)
    chance_of_sum[0] = math.exp(-rate)
    for total in range(1, bin_count):  # in bins
        for size in possible_sizes:  # in bins
            if size > total:
                break
            chance_of_sum[total] += (
                rate * size * chances[size] * chance_of_sum[total - size] / total
            )
            value_of_sum[total] += rate * values[size] * chance_of_sum[total - size]
        if chance_of_sum[total] > 0.0:
            value_of_sum[total] /= chance_of_sum[total]
    return chance_of_sum, value_of_sum


@lru_cache(maxsize=512)
def _prompt_pieces(
    prompt: float, room: float, lengths: tuple[float, ...]
) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """(number of bins into which a group's `room` of tokens is divided, at least GRID; full pieces
    of each prompt, i8[L]; bins of its last piece, at least 1, i8[L]). prompt: mean tokens of a
    prompt; lengths: L equally likely ones, divided by the mean."""
    bin_count = int(min(max(round(GRID * room / prompt), GRID), MOST_BINS))
    bins = np.maximum(np.rint(np.array(lengths) * (prompt / room * bin_count)).astype(np.int64), 1)
    full_pieces = (bins - 1) // bin_count
    return bin_count, full_pieces, bins - full_pieces * bin_count
