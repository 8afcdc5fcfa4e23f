"""An iteration of two microbatches over time: what each of two streams does, from when to when.

The layers stand as schedule.py arranges them; seconds are the kernels' own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from twin.metrics.operators import names_of
from twin.model.coefficients import Decode, Mode, Prefill
from twin.model.decode import add_attention, best_split, decode_iteration_s, half_of
from twin.model.layer import Pass, groups_of, layer_s, moe_parts
from twin.model.prefill import prefill_batch_s
from twin.model.schedule import Operators, Piece, decode_pieces, pipeline_pieces, stages


@dataclass(frozen=True, slots=True)
class Turn:
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

    def turns(self) -> Iterator[Turn]:
        """Every piece of every layer, compressed slightly as the last layer's results run over."""
        overhang = max(piece.high for piece in self.pieces) - 1.0
        unit = (self.end - self.begin) / (self.layers + max(overhang, 0.0))
        for layer in range(self.layers):
            for piece in self.pieces:
                low = self.begin + (layer + piece.low) * unit
                high = self.begin + (layer + piece.high) * unit
                total = sum(seconds for _, seconds in piece.operators)
                operators, begin = [], low
                for name, seconds in piece.operators:
                    end = min(begin + seconds / total * (high - low), high)
                    operators.append((name, begin, end))
                    begin = end
                yield Turn(piece.stream, layer, piece.microbatch, low, high, operators)


def decode_timeline(
    p: Decode, requests: float, context: float, hot: float, wire: float
) -> Timeline | None:
    """Timeline of decode's streams with a number of requests and context tokens on every rank; hot:
    hottest die's expert load over the mean, wire: that of the fullest link. None when the layers
    run in sequence or nothing is decoded."""
    if p.microbatch == 0.0 or not requests > 0.0:
        return None
    groups = groups_of(p, requests * p.layout.dies / p.layout.rank_dies)
    tokens, each = p.query_tokens * requests / groups, p.layout.rank_dies
    load = Pass(
        p.concentration * tokens,
        p.concentration * context / groups,
        p.concentration * tokens / each,
        tokens * (p.layout.dies / each),
        p.layout.dies,
        hot,
        wire,
    )
    half = half_of(load, p.layout.domains, hot, wire)
    k, split_s = best_split(p, half)
    if p.microbatch == 2.0 and sum(layer_s(p, p.sequence, load)) <= split_s:
        return None
    m = p.splits[k]
    moe = tuple(zip(("gate", "dispatch", "experts", "combine"), moe_parts(p, m, half), strict=True))
    streams, pieces = decode_pieces(p, stages(p, m, half), _attention(m, half), moe)
    section = _decode_section(p, requests, context, hot, wire, split_s)
    return Timeline(streams, int(p.moe_layers), *section, pieces)


def _attention(m: Mode, half: Pass) -> Operators:
    """Operators of attention in order; selected KV comes from host memory before its core."""
    operators = np.zeros(len(names_of("decode")))
    add_attention(m, 1.0, half, operators)
    booked = dict(zip(names_of("decode"), operators.tolist(), strict=True))
    fetched = ("kv_swap", booked.pop("kv_swap"))
    done = [(name, seconds) for name, seconds in booked.items() if seconds > 0.0]
    if fetched[1] > 0.0:
        done.insert([name for name, _ in done].index("attention_core"), fetched)
    return tuple(done)


def _decode_section(
    p: Decode, requests: float, context: float, hot: float, wire: float, layer_s: float
) -> tuple[float, float]:
    """Position of the MoE layers in an iteration: after the dense ones, before MTP and the head."""
    names = names_of("decode")
    operators = np.zeros(len(names))
    count = max(1, int(p.layout.dies / p.layout.rank_dies))
    ranks = np.full(count, max(1, round(requests))), np.full(count, context)
    iteration_time = decode_iteration_s(p, *ranks, 0, count, *_curve(hot, wire), operators)
    layers = p.moe_layers * layer_s
    booked = dict(zip(names, operators.tolist(), strict=True))
    after = sum(booked[name] for name in ("mtp", "lm_head", "sampling", "launch_gaps", "pipeline"))
    before = max(0.0, iteration_time - layers - after)
    iteration_time = before + layers + after
    return float(before / iteration_time), float((before + layers) / iteration_time)


def _curve(hot: float, wire: float) -> tuple[np.ndarray, np.ndarray]:
    """A curve of imbalance with one point, at the mean load."""
    return np.array([1.0, 2.0]), np.array([hot, hot, wire, wire])


def prefill_timeline(
    p: Prefill, tokens: float, pairs: float, hot: float, wire: float
) -> Timeline | None:
    """Timeline of prefill's streams for a batch of tokens and query-key pairs; None when it runs in
    sequence or nothing is prefilled."""
    if p.microbatch == 0.0 or not tokens > 0.0:
        return None
    layer_only = replace(p, microbatch=0.0, dense_layers=0.0, head=0.0, launch=0.0)
    names = names_of("prefill")
    operators = np.zeros(len(names))
    half, share = 0.5 * tokens, 0.5 / p.layout.dies
    prefill_batch_s(layer_only, half, share * tokens, share * pairs, *_curve(hot, wire), operators)
    each = dict(zip(names, (operators / p.moe_layers).tolist(), strict=True))
    before = (*names_of("prefill", "attention"), "gate")
    for name in (*before, "experts"):
        each[name] /= p.compute_share
    pieces = pipeline_pieces(
        tuple((name, each[name]) for name in before),
        (("dispatch", each["dispatch"]),),
        (("experts", each["experts"]),),
        (("combine", each["combine"]),),
    )
    # Dense layers before, head after: as many layers' worth as there are dense ones.
    dense = p.dense_layers / (p.moe_layers + p.dense_layers)
    return Timeline(("cores", "copy engine"), int(p.moe_layers), dense, 1.0, pieces)
