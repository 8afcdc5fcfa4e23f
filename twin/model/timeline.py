"""An iteration of two microbatches over time: what each of two streams does, from when to when. The
layers stand as schedule.py arranges them; seconds are the kernels' own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from twin.metrics.operators import operator_names
from twin.model.coefficients import DecodeCosts, LayerCosts, PrefillCosts
from twin.model.decode import add_attention, best_split, decode_iteration_s, half_pass
from twin.model.layer import PassLoad, layer_s, moe_stages_s, pipeline_groups
from twin.model.prefill import prefill_batch_s
from twin.model.schedule import Operators, Piece, decode_pieces, pipeline_pieces, stage_seconds


@dataclass(frozen=True, slots=True)
class PlacedPiece:
    """One piece in an iteration, with start and end as shares of it from 0 to 1."""

    stream: int
    layer: int
    microbatch: int
    low: float
    high: float
    operators: list[tuple[str, float, float]]  # with begin and end


@dataclass(frozen=True, slots=True)
class Timeline:
    """Timeline of one layer, and the position of the layers in the iteration."""

    streams: tuple[str, str]
    layers: int
    begin: float  # share of the iteration before the layers
    end: float
    pieces: tuple[Piece, ...]

    def placed_pieces(self) -> Iterator[PlacedPiece]:
        """Yield every piece of every layer; layers are a little shorter than their time, so that
        the last layer's overhang fits."""
        overhang_layers = max(piece.high for piece in self.pieces) - 1.0
        layer_share = (self.end - self.begin) / (self.layers + max(overhang_layers, 0.0))
        for layer in range(self.layers):
            for piece in self.pieces:
                piece_begin = self.begin + (layer + piece.low) * layer_share
                piece_end = self.begin + (layer + piece.high) * layer_share
                piece_s = sum(seconds for _, seconds in piece.operators)
                operators, begin = [], piece_begin
                for name, seconds in piece.operators:
                    end = min(begin + seconds / piece_s * (piece_end - piece_begin), piece_end)
                    operators.append((name, begin, end))
                    begin = end
                yield PlacedPiece(
                    piece.stream, layer, piece.microbatch, piece_begin, piece_end, operators
                )


def decode_timeline(
    p: DecodeCosts, requests: float, context: float, hot: float, wire: float
) -> Timeline | None:
    """Decode's streams over time with `requests` and `context` tokens per rank. hot, wire: load of
    hottest die and fullest link, over the mean. None if layers run in sequence, or no requests."""
    if p.microbatch == 0.0 or not requests > 0.0:
        return None
    groups = pipeline_groups(p, requests * p.layout.dies / p.layout.rank_dies)
    tokens, rank_dies = p.query_tokens * requests / groups, p.layout.rank_dies
    load = PassLoad(
        p.concentration * tokens, p.concentration * context / groups,
        p.concentration * tokens / rank_dies, tokens * (p.layout.dies / rank_dies), p.layout.dies,
        hot, wire,
    )  # fmt: skip
    half_load = half_pass(load, p.layout.domains, hot, wire)
    split_index, split_s = best_split(p, half_load)
    if p.microbatch == 2.0 and sum(layer_s(p, p.sequence, load)) <= split_s:
        return None
    layer_costs = p.splits[split_index]
    stage_names = ("gate", "dispatch", "experts", "combine")
    moe_stages = tuple(zip(stage_names, moe_stages_s(p, layer_costs, half_load), strict=True))
    streams, pieces = decode_pieces(
        p, stage_seconds(p, layer_costs, half_load),
        _attention_operators(layer_costs, half_load), moe_stages,
    )  # fmt: skip
    moe_begin_and_end = _moe_layers_position(p, requests, context, hot, wire, split_s)
    return Timeline(streams, int(p.moe_layers), *moe_begin_and_end, pieces)


def _attention_operators(m: LayerCosts, half_load: PassLoad) -> Operators:
    """(name, seconds) of each operator of a microbatch's attention, in order; a wait for selected
    KV from host memory stands before the core."""
    operator_s = np.zeros(len(operator_names("decode")))
    add_attention(m, 1.0, half_load, operator_s)
    seconds_by_operator = dict(zip(operator_names("decode"), operator_s.tolist(), strict=True))
    kv_fetch = ("kv_swap", seconds_by_operator.pop("kv_swap"))
    operators = [(name, seconds) for name, seconds in seconds_by_operator.items() if seconds > 0.0]
    if kv_fetch[1] > 0.0:
        operators.insert([name for name, _ in operators].index("attention_core"), kv_fetch)
    return tuple(operators)


def _moe_layers_position(
    p: DecodeCosts, requests: float, context: float, hot: float, wire: float, layer_s: float
) -> tuple[float, float]:
    """(begin, end) of the MoE layers as shares of an iteration: after the dense layers, before MTP
    and head. requests, context: of a rank; hot, wire: load of the hottest die and of the fullest
    link, divided by the mean; layer_s: seconds of one MoE layer."""
    operators = operator_names("decode")
    operator_s = np.zeros(len(operators))
    rank_count = max(1, int(p.layout.dies / p.layout.rank_dies))
    rank_load = np.full(rank_count, max(1, round(requests))), np.full(rank_count, context)
    imbalance = _constant_imbalance(hot, wire)
    iteration_s = decode_iteration_s(p, *rank_load, 0, rank_count, *imbalance, operator_s)
    layers_s = p.moe_layers * layer_s
    seconds_by_name = dict(zip(operators, operator_s.tolist(), strict=True))
    after_s = sum(
        seconds_by_name[name] for name in ("mtp", "lm_head", "sampling", "launch_gaps", "pipeline")
    )
    before_s = max(0.0, iteration_s - layers_s - after_s)
    iteration_s = before_s + layers_s + after_s
    return float(before_s / iteration_s), float((before_s + layers_s) / iteration_s)


def _constant_imbalance(hot: float, wire: float) -> tuple[np.ndarray, np.ndarray]:
    """(hot_tokens, hot_factor) with which `die_and_link_load` always returns `hot` and `wire`."""
    return np.array([1.0, 2.0]), np.array([hot, hot, wire, wire])


def prefill_timeline(
    p: PrefillCosts, tokens: float, pairs: float, hot: float, wire: float
) -> Timeline | None:
    """Prefill's streams over time for a batch of tokens and query-key pairs. hot, wire: load of
    hottest die and fullest link, over the mean. None if layers run in sequence, or no tokens."""
    if p.microbatch == 0.0 or not tokens > 0.0:
        return None
    moe_costs = replace(p, microbatch=0.0, dense_layers=0.0, head=0.0, launch=0.0)
    operators = operator_names("prefill")
    operator_s = np.zeros(len(operators))
    half_tokens, half_die_share = 0.5 * tokens, 0.5 / p.layout.dies
    imbalance = _constant_imbalance(hot, wire)
    die_load = half_die_share * tokens, half_die_share * pairs
    prefill_batch_s(moe_costs, half_tokens, *die_load, *imbalance, operator_s)
    seconds_by_operator = dict(zip(operators, (operator_s / p.moe_layers).tolist(), strict=True))
    attention_names = (*operator_names("prefill", "attention"), "gate")
    for name in (*attention_names, "experts"):
        seconds_by_operator[name] /= p.compute_share
    pieces = pipeline_pieces(
        tuple((name, seconds_by_operator[name]) for name in attention_names),
        (("dispatch", seconds_by_operator["dispatch"]),),
        (("experts", seconds_by_operator["experts"]),),
        (("combine", seconds_by_operator["combine"]),),
    )
    # Dense layers before, head after: as many layers' worth as there are dense ones.
    dense_share = p.dense_layers / (p.moe_layers + p.dense_layers)
    return Timeline(("cores", "copy engine"), int(p.moe_layers), dense_share, 1.0, pieces)
