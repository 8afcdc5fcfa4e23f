"""One decoder layer of decode on one die: seconds of its operators, in one of its modes: all cores
in sequence, or a microbatch on its stream's share of cores. schedule.py has what runs at once."""

import math
from typing import NamedTuple

import numpy as np

from twin.kernels.compiled import kernel
from twin.metrics.operators import DECODE_OPERATORS
from twin.model import coefficients as c
from twin.model.roofline import interpolate, roofline_s

_PIPELINE, _HOST = map(DECODE_OPERATORS.index, ("pipeline", "kv_swap"))


class PassLoad(NamedTuple):
    """Tokens and context of one pass through a layer."""

    tokens: float  # of the slowest rank, in attention
    context: float  # context tokens there
    busiest: float  # tokens of the die that sends most
    total: float  # tokens of all dies
    dies: float
    hot: float  # hottest die's routed load over the mean
    wire: float  # as `hot`, of what the fullest link of the exchange carries


@kernel
def product_s(w: c.Product, rows: float) -> float:
    """Seconds of a matrix product over `rows`, with launch and element-wise work around it."""
    compute_s = w.flop * whole_tile_rows(w, rows)
    return w.fixed + roofline_s(compute_s, w.weight + w.io * rows) + w.vector * rows


@kernel
def collective_s(w: c.Collective | c.Gate, tokens: float) -> float:
    """Seconds of a collective of a rank's dies (0 with one die), or of the choice of experts."""
    return w.fixed + w.token * tokens - w.saved * max(0.0, tokens - w.beyond)


@kernel
def tile_rows(w: c.Product, rows: float) -> float:
    """Rows per tile of a product over `rows` rows; 0: the product has no tiles."""
    return w.tile_small if rows <= w.tile_small else w.tile_large


@kernel
def whole_tile_rows(w: c.Product, rows: float) -> float:
    """Rows that a product computes: `rows`, rounded up to whole tiles."""
    rows_per_tile = tile_rows(w, rows)
    return rows_per_tile * math.ceil(rows / rows_per_tile) if rows_per_tile > 0.0 else rows


@kernel
def grouped_tile_rows(w: c.Product, experts: float, rows: float) -> float:
    """Rows that the product of `experts` computes if they share `rows`. Experts differ in
    popularity and every pass is a draw, so the rows of an expert are taken as exponential about
    their mean: tiles of g rows then compute g / (1 - exp(-g / mean)) rows of an expert."""
    mean_rows = rows / experts
    tile_size = tile_rows(w, mean_rows)
    return (
        experts * tile_size / (1.0 - math.exp(-tile_size / mean_rows)) if tile_size > 0.0 else rows
    )


@kernel
def die_and_link_load(
    layout: c.Layout, tokens: float, hot_tokens: np.ndarray, hot_factor: np.ndarray
) -> tuple[float, float]:
    """(load of the hottest die divided by the mean, load of an exchange's fullest link divided by
    that of an even exchange) when `tokens` enter an MoE layer. A port carries its die's tokens, so
    the hottest die's is that much fuller. Links between nodes carry a node's tokens; where they are
    fuller than ports the hottest node decides, unless the hottest die's port takes longer.
    hot_tokens, hot_factor f8[G]: hottest die's load by tokens; [2 G]: then the hottest node's."""
    point_count, hot_load = hot_tokens.shape[0], interpolate(tokens, hot_tokens, hot_factor)
    if layout.ports >= 1.0 or len(hot_factor) == point_count:
        return hot_load, hot_load
    return hot_load, max(
        layout.ports * hot_load, interpolate(tokens, hot_tokens, hot_factor, point_count)
    )


@kernel
def exchange_s(p: c.DecodeCosts, w: c.Transfer, sent: float, routed: float, shared: float) -> float:
    """Seconds on the wire if a die exchanges `sent` tokens, and the fullest link is as full as if
    the hottest die had `routed` rows and a die with a shared expert `shared` rows. With
    `p.in_cast`, unscheduled, the shared rows arrive first and the routed ones wait."""
    if p.in_cast > 0.0:
        wire_s = max(w.token * sent, w.row * routed) + w.row * shared
    else:
        wire_s = max(w.token * sent, w.row * max(routed, shared))
    return wire_s - w.saved * max(0.0, sent - w.beyond)


@kernel
def routed_rows(layout: c.Layout, tokens: float) -> float:
    """Mean rows of a die with routed experts when `tokens` enter an MoE layer."""
    return tokens * layout.top_k * layout.split / layout.routed_dies


@kernel
def used_experts(experts: float, rows: float) -> float:
    """Expected number of `experts` that have any of `rows`, each sent to one of them at random."""
    return experts * (1.0 - math.exp(-rows / experts)) if experts > 0.0 else 0.0


@kernel
def used_experts_by_class(layout: c.Layout, experts: float, rows: float) -> float:
    """Expected number of a die's `experts` that have any of `rows`, by class of popularity."""
    if layout.classed <= 0.0 or experts <= 0.0:
        return used_experts(experts, rows)
    idle_experts = 0.0
    for class_index in range(len(layout.classes)):
        idle_experts += math.exp(-rows / experts * layout.classes[class_index].load)
    return experts * (1.0 - idle_experts / len(layout.classes))


@kernel
def expert_ffn_s(w: c.Experts, read: float, shared: float, rows: float) -> float:
    """Seconds of the grouped product over `rows` of `read` experts, of which `shared` are shared
    ones; only experts with rows have their weights read."""
    if read <= 0.0 or rows <= 0.0:
        return 0.0
    weight_s = max(0.0, w.weight * read + w.shared * shared - w.ahead)
    compute_s = w.flop * grouped_tile_rows(w, read, rows)
    return w.fixed + roofline_s(compute_s, weight_s + w.io * rows) + w.vector * rows


@kernel
def shared_experts_s(layout: c.Layout, w: c.Experts, rows: float) -> float:
    """Seconds of a die's shared experts over `rows`."""
    shared_count = layout.shared_experts
    return expert_ffn_s(w, used_experts(shared_count, rows), shared_count, rows)


@kernel
def moe_stages_s(
    p: c.DecodeCosts, m: c.LayerCosts, load: PassLoad
) -> tuple[float, float, float, float]:
    """Seconds of (gate, dispatch, experts, combine) of a pass through an MoE layer. Tokens beyond
    the buffers go in further rounds; where stages overlap in tiles the longest counts whole."""
    gate_s = collective_s(m.gate, load.busiest)
    rounds = max(1.0, math.ceil(load.busiest / p.buffer_tokens)) if p.buffer_tokens > 0.0 else 1.0
    busiest_tokens, total_tokens = load.busiest / rounds, load.total / rounds
    dispatch_s, experts_s, combine_s = _exchange_round_s(p, m, busiest_tokens, total_tokens, load)
    return gate_s, dispatch_s * rounds, experts_s * rounds, combine_s * rounds


@kernel
def _exchange_round_s(
    p: c.DecodeCosts, m: c.LayerCosts, busiest: float, tokens: float, load: PassLoad
) -> tuple[float, float, float]:
    """(dispatch, experts, combine) seconds of one round with `tokens` of all dies, of which
    `busiest` are on the die that sends most."""
    start_s = m.dispatch.fixed + m.dispatch.message * busiest
    layout = p.layout
    receiving_dies = layout.expert_dies if layout.expert_dies > 0.0 else load.dies
    mean_rows = routed_rows(layout, tokens)
    hot_rows, link_rows = mean_rows * load.hot, mean_rows * load.wire
    has_shared_dies = layout.shared_experts > 0.0 and layout.shared_dies > 0.0
    shared_dies = layout.shared_dies if has_shared_dies else receiving_dies
    shared_rows = layout.shared_experts * tokens * layout.split / shared_dies
    sent_shared_rows = shared_rows if has_shared_dies else 0.0
    dispatch_s = exchange_s(p, m.dispatch, busiest, link_rows, sent_shared_rows)
    combine_s = exchange_s(p, m.combine, busiest, link_rows, sent_shared_rows)
    if has_shared_dies or p.shared_early > 0.0:
        shared_compute_s = shared_experts_s(layout, m.experts, shared_rows)
        used_experts = used_experts_by_class(layout, layout.slots, hot_rows)
        routed_s = expert_ffn_s(m.experts, used_experts, 0.0, hot_rows)
        shared_late_s = max(0.0, shared_compute_s - start_s - dispatch_s)
        experts_s = max(routed_s, shared_compute_s) if has_shared_dies else routed_s + shared_late_s
    else:
        slots_per_die = layout.slots + layout.shared_experts
        used_experts = used_experts_by_class(layout, slots_per_die, hot_rows + shared_rows)
        experts_s = expert_ffn_s(
            m.experts, used_experts, layout.shared_experts, hot_rows + shared_rows
        )
    # Two microbatches in turn fill what a tile would: a stage keeps its resource for all its rows.
    if p.tiles > 0.0 and m.in_turn == 0.0:  # the longest stage, and one tile of the others
        longest_s = max(dispatch_s, experts_s, combine_s)
        dispatch_s = dispatch_s if dispatch_s == longest_s else dispatch_s / p.tiles
        experts_s = experts_s if experts_s == longest_s else experts_s / p.tiles
        combine_s = combine_s if combine_s == longest_s else combine_s / p.tiles
    return start_s + dispatch_s, experts_s, m.combine.fixed + combine_s


@kernel
def moe_s(p: c.DecodeCosts, m: c.LayerCosts, load: PassLoad) -> float:
    """Seconds of gate, dispatch, experts and combine of a pass through an MoE layer, together."""
    gate_s, dispatch_s, experts_s, combine_s = moe_stages_s(p, m, load)
    return gate_s + dispatch_s + experts_s + combine_s


@kernel
def before_core_s(m: c.LayerCosts, tokens: float) -> float:
    """Seconds of a layer's attention before its core, for `tokens` of a rank."""
    before_s = collective_s(m.gather, tokens)
    for index in range(len(m.before)):
        before_s += product_s(m.before[index], tokens)
    return before_s


@kernel
def attention_s(m: c.LayerCosts, tokens: float, core: float) -> float:
    """Seconds of a layer's attention for `tokens` of a rank; core: of its core,
    launch not counted."""
    total_s = before_core_s(m, tokens) + m.core.fixed + core + collective_s(m.context, tokens)
    for index in range(len(m.after)):
        total_s += product_s(m.after[index], tokens)
    return total_s + collective_s(m.scatter, tokens)


@kernel
def attended_tokens(reach: float, tokens: float, context: float) -> float:
    """Context tokens that the core reads for `tokens`: up to `reach` for each; 0: all of them."""
    return min(context, reach * tokens) if reach > 0.0 else context


@kernel
def idle_factor(w: c.DecodeCore, tokens: float) -> float:
    """Factor by which attention takes longer because cores are idle: each core has one token at a
    time, and the last round may not fill all cores."""
    if w.independent_cores <= 0.0 or tokens <= 0.0:
        return 1.0
    return math.ceil(tokens / w.independent_cores - 1e-9) * w.independent_cores / tokens


@kernel
def local_core_s(w: c.DecodeCore, tokens: float, context: float) -> float:
    """Seconds of decode's attention core on the die itself, without its launch. tokens: query
    tokens of a pass; context: context tokens."""
    selected_s = w.context * attended_tokens(w.reach, tokens, context)
    window_s = w.windowed * attended_tokens(w.window, tokens, context)
    select_s = w.select if 0.0 < w.reach * tokens < context else 0.0
    scoring_s = w.index * context + select_s
    core_time_s = (selected_s + window_s) * idle_factor(w, tokens) + scoring_s + w.state * tokens
    return core_time_s + fetch_wait_s(w, tokens, context)


@kernel
def fetch_wait_s(w: c.DecodeCore, tokens: float, context: float) -> float:
    """Seconds until selected KV has come from host memory to the core; 0 if no KV is there."""
    if w.fetch <= 0.0 or context <= 0.0:
        return 0.0
    return w.fetch_start + w.fetch * attended_tokens(w.reach, tokens, context)


@kernel
def add_host_waits(
    p: c.DecodeCosts, dense_layers_s: float, moe_layers_s: float, context: float, ops: np.ndarray
) -> tuple[float, float]:
    """(seconds of layers without experts, with experts), including waits for KV that is read from
    host memory while earlier layers compute. Waits are also added to ops f8[operators]."""
    read_s = p.sequence.core.ahead * context
    dense_wait_s = max(0.0, p.dense_layers * read_s - dense_layers_s)
    moe_wait_s = max(0.0, p.moe_layers * read_s - moe_layers_s)
    ops[_HOST] += dense_wait_s + moe_wait_s
    return dense_layers_s + dense_wait_s, moe_layers_s + moe_wait_s


@kernel
def core_s(w: c.DecodeCore, tokens: float, context: float) -> float:
    """Seconds of decode's attention core for all query `tokens` of a pass, without its launch: the
    longer of the die's own time and that of the dies to which attention is offloaded."""
    offloaded_s = w.away_start + w.away_token * tokens + w.away_context * context
    return max(local_core_s(w, tokens, context), offloaded_s)


@kernel
def prompt_pairs(w: c.PromptCore, tokens: float, pairs: float) -> tuple[float, float, float]:
    """(pairs in multi-head form, in latent form, pairs that an indexer scores) of a prompt's
    `tokens` with `pairs` query-key pairs. A token attends to earlier ones: to pairs / tokens on
    average, evenly spread from 0 to twice as many; of these an indexer selects reach - reach^2 / (4
    pairs / tokens). Short prompts attend to all. For longer ones the faster form counts: all pairs
    in multi-head form with a mask, or selected ones in latent form, which costs more per pair
    (DeepSeek-V3.2 report, section 2.1). A kernel with `w.least` computes so many keys for every
    token of a prompt longer than `w.least_from`. With `w.every` none is in multi-head form."""
    reach_tokens, least_keys = w.reach, w.least
    if least_keys > 0.0:
        pairs_per_token = pairs / tokens if tokens > 0.0 else 0.0
        # Whole prompts, or a later piece of one: it ends half of itself beyond its mean.
        prompt_tokens = min(2.0 * pairs_per_token - 1.0, pairs_per_token + 0.5 * (tokens - 1.0))
        return (
            (0.0, least_keys * tokens, pairs) if prompt_tokens > w.least_from else (pairs, 0.0, 0.0)
        )
    if reach_tokens <= 0.0 or 2.0 * pairs <= (reach_tokens + 1.0) * tokens:
        return (0.0, pairs, pairs) if w.every > 0.0 else (pairs, 0.0, 0.0)
    selected_pairs = tokens * (reach_tokens - 0.25 * reach_tokens * reach_tokens * tokens / pairs)
    if w.every > 0.0:
        return 0.0, selected_pairs, pairs
    if w.pair * pairs < w.latent * selected_pairs:
        return pairs, 0.0, pairs
    return 0.0, selected_pairs, pairs


@kernel
def window_pairs(window: float, tokens: float, pairs: float) -> float:
    """Query-key pairs within a `window` (tokens) among the `pairs` of a prompt's `tokens`."""
    if 2.0 * pairs <= (window + 1.0) * tokens:
        return pairs
    return tokens * (window - 0.25 * window * window * tokens / pairs)


@kernel
def prompt_core_flops(w: c.PromptCore, tokens: float, pairs: float) -> float:
    """FLOPs of the attention core, all layers, of prompt `tokens` with `pairs` query-key pairs."""
    head_pairs, selected_pairs, indexed_pairs = prompt_pairs(w, tokens, pairs)
    flops = (
        head_pairs * w.pair_flops + selected_pairs * w.latent_flops + indexed_pairs * w.index_flops
    )
    if w.window > 0.0:
        flops += window_pairs(w.window, tokens, pairs) * w.windowed_flops
    return flops


@kernel
def prompt_core_s(w: c.PromptCore, tokens: float, pairs: float) -> float:
    """Seconds of the attention core for a prompt's `tokens` with `pairs` query-key pairs, without
    its launch and the time per token (`w.edge`)."""
    full_pairs, selected_pairs, indexed_pairs = prompt_pairs(w, tokens, pairs)
    index_s = w.index * indexed_pairs + (w.select * tokens if indexed_pairs > 0.0 else 0.0)
    window_s = w.windowed * window_pairs(w.window, tokens, pairs) if w.window > 0.0 else 0.0
    return w.pair * full_pairs + w.latent * selected_pairs + index_s + window_s


@kernel
def layer_s(p: c.DecodeCosts, m: c.LayerCosts, load: PassLoad) -> tuple[float, float]:
    """Seconds of (attention, MoE) of one pass through a layer with experts."""
    core_time_s = core_s(m.core, load.tokens, load.context)
    return attention_s(m, load.tokens, core_time_s), moe_s(p, m, load)


@kernel
def rank_loads(
    p: c.DecodeCosts, requests: np.ndarray, context: np.ndarray, first: int, count: int
) -> tuple[int, int, int]:
    """(slowest rank, most requests of a rank, sum of requests) of ranks first..first + count - 1.
    requests i8[R], context f8[R]: requests and context tokens of each rank. The slowest rank is the
    one whose attention takes longest in sequence: on split cores nearly the same. A rank with no
    more of either than the slowest so far needs no price."""
    slowest_rank, maximum_requests, total_requests = first, 0, 0
    slowest_s, slowest_requests, slowest_context = -1.0, -1, -1.0
    for rank in range(first, first + count):
        rank_requests, context_tokens = requests[rank], context[rank]
        total_requests += rank_requests
        if rank_requests > maximum_requests:  # noqa: PLR1730 - as in mixed_iteration_s
            maximum_requests = rank_requests
        if rank_requests > slowest_requests or context_tokens > slowest_context:
            tokens = p.query_tokens * rank_requests
            core_time_s = core_s(p.sequence.core, tokens, context_tokens)
            rank_s = attention_s(p.sequence, tokens, core_time_s)
            if rank_s > slowest_s:
                slowest_s, slowest_requests, slowest_context = rank_s, rank_requests, context_tokens
                slowest_rank = rank
    return slowest_rank, maximum_requests, total_requests


@kernel
def pipeline_groups(p: c.DecodeCosts, requests: float) -> float:
    """Number of groups of an instance's requests, each in another pipeline stage at a time."""
    return max(1.0, min(p.pipeline.stages, requests))


@kernel
def share_in_pass(requests: float, groups: float, ranks: int) -> float:
    """Share of a rank's requests in one pass, if they are dealt evenly to `groups`, one per pass. A
    remainder goes to some groups: the more `ranks`, the more passes have one request more."""
    if groups <= 1.0 or requests <= 0.0:
        return 1.0
    least_requests = requests // groups
    return (least_requests + min(1.0, (requests / groups - least_requests) * ranks)) / requests


@kernel
def pipeline_extra_s(
    p: c.DecodeCosts, dense: float, moe: float, outside: float, gap: float, groups: float,
    tokens: float, ops: np.ndarray,
) -> float:  # fmt: skip
    """Seconds, also added to ops f8[operators], of an iteration beyond one pass through all
    pipeline stages: `dense` and `moe` s in its layers, then `outside` s in the last stage, and
    `gap` s of the host. Hidden states go from stage to stage, and a stage serves all `groups` in
    turn."""
    pipeline = p.pipeline
    if pipeline.stages <= 1.0:
        return 0.0
    longest_stage_s = pipeline.last_moe * moe + pipeline.last_dense * dense + outside
    longest_stage_s = max(longest_stage_s, pipeline.most_moe * moe + pipeline.most_dense * dense)
    hops_s = (pipeline.stages - 1.0) * collective_s(pipeline.hop, tokens)
    extra_s = max(hops_s, groups * longest_stage_s - (dense + moe + outside + gap))
    ops[_PIPELINE] += extra_s
    return extra_s


@kernel
def dense_s(p: c.DecodeCosts, tokens: float) -> float:
    """Seconds of a layer's dense FFN for `tokens` of a rank; 0 if the model has none."""
    if p.dense.weight <= 0.0:
        return 0.0
    sent_s = collective_s(p.sequence.gather, tokens) + collective_s(p.sequence.scatter, tokens)
    return product_s(p.dense, tokens) + sent_s
