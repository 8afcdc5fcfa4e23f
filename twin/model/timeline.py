"""A layer of two microbatches over time: what each of two streams does, and from when to when.

Decode alternates between attention and MoE (arXiv 2506.12708v2 section 4.2.3) or between computing
and the wire; prefill between cores and copy engines (section 4.3.2). Seconds are the kernels' own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from twin.metrics.operators import names_of
from twin.model.coefficients import Decode, Mode, Prefill
from twin.model.decode import best_split, decode_iteration_s, half_of, stages
from twin.model.layer import Pass, core_s, layer_s, moe_parts, product_s
from twin.model.overlap import apart_stages, ring_s, staged_s
from twin.model.prefill import prefill_batch_s

Operators = tuple[tuple[str, float], ...]  # names with seconds, in order

SETTLE = 6  # layers after which the pipeline of two microbatches repeats itself


@dataclass(frozen=True, slots=True)
class Piece:
    """What a stream does for one microbatch of one layer, in units of a layer's time."""

    stream: int
    microbatch: int
    low: float  # from the layer's begin; at 1 the next layer has begun
    high: float
    operators: Operators


@dataclass(frozen=True, slots=True)
class Turn:
    """One piece as it stands in an iteration, in shares of it from 0 to 1."""

    stream: int
    layer: int
    microbatch: int
    low: float
    high: float
    operators: list[tuple[str, float, float]]  # with begin and end


@dataclass(frozen=True, slots=True)
class Timeline:
    """One layer of an iteration, and where in the iteration the layers are."""

    streams: tuple[str, str]
    layers: int
    begin: float  # share of the iteration before the layers
    end: float
    pieces: tuple[Piece, ...]

    def turns(self) -> Iterator[Turn]:
        """Every piece of every layer. The last layer's answers run over: all are squeezed a bit."""
        over = max(piece.high for piece in self.pieces) - 1.0
        unit = (self.end - self.begin) / (self.layers + max(over, 0.0))
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


def decode_timeline(p: Decode, requests: float, context: float, hot: float) -> Timeline | None:
    """Decode's streams with so many requests and context tokens on every rank; hot: hottest die's
    expert load over the mean. None when the layers run in sequence or nothing is decoded."""
    if p.microbatch == 0.0 or not requests > 0.0:
        return None
    tokens = p.query_tokens * requests
    dies = p.layout.dies
    load = Pass(
        p.concentration * tokens,
        p.concentration * context,
        p.concentration * tokens,
        tokens * dies,
        dies,
        hot,
    )
    half = half_of(load, p.layout.domains, hot)
    k, split_s = best_split(p, half)
    if p.microbatch == 2.0 and sum(layer_s(p, p.sequence, load)) <= split_s:
        return None
    streams, pieces = _decode_pieces(p, p.splits[k], half)
    section = _decode_section(p, requests, context, hot, split_s)
    return Timeline(streams, int(p.moe_layers), *section, pieces)


def _decode_pieces(p: Decode, m: Mode, half: Pass) -> tuple[tuple[str, str], tuple[Piece, ...]]:
    attention = _attention(m, half)
    parts = moe_parts(p, m, half)
    moe: Operators = tuple(zip(("gate", "dispatch", "experts", "combine"), parts, strict=True))
    if p.layout.expert_dies > 0.0:
        pieces = _ring((*attention, moe[0]), (moe[2],), apart_stages(p, m, half))
        return ("attention dies", "expert dies"), pieces
    if p.hides == 0.0:
        return ("attention", "MoE"), _swapped(attention, moe)
    return ("computing", "communication"), _staged(attention, moe, stages(p, m, half))


def _attention(m: Mode, half: Pass) -> Operators:
    names = names_of("decode")
    before, after = (
        tuple((names[int(w.place)], product_s(w, half.tokens)) for w in products)
        for products in (m.before, m.after)
    )
    core, local = m.core, m.core.context * half.context
    both = [("attention_core", core.fixed + local)]
    if (waited := core_s(core, half.tokens, half.context) - local) > 0.0:
        both.append(("offloaded_core", waited))
    return (*before, *both, *after)


def _decode_section(
    p: Decode, requests: float, context: float, hot: float, layer_s: float
) -> tuple[float, float]:
    """Where the MoE layers lie in an iteration: after the dense ones, before MTP and the head."""
    names = names_of("decode")
    operators = np.zeros(len(names))
    dies = int(p.layout.dies)
    ranks = np.full(dies, max(1, round(requests))), np.full(dies, context)
    whole = decode_iteration_s(p, *ranks, 0, dies, *_curve(hot), operators)
    layers = p.moe_layers * layer_s
    booked = dict(zip(names, operators.tolist(), strict=True))
    after = sum(booked[name] for name in ("mtp", "lm_head", "sampling", "launch_gaps"))
    before = max(0.0, whole - layers - after)
    whole = before + layers + after
    return float(before / whole), float((before + layers) / whole)


def _curve(hot: float) -> tuple[np.ndarray, np.ndarray]:
    """One point is enough of a curve of imbalance: the load is the mean one."""
    return np.array([1.0, 2.0]), np.array([hot, hot])


def prefill_timeline(p: Prefill, tokens: float, pairs: float, hot: float) -> Timeline | None:
    """Prefill's streams for a batch of so many tokens and query-key pairs; None when it runs in
    sequence or nothing is prefilled."""
    if p.microbatch == 0.0 or not tokens > 0.0:
        return None
    alone = replace(p, microbatch=0.0, dense_layers=0.0, head=0.0, launch=0.0)
    names = names_of("prefill")
    operators = np.zeros(len(names))
    half, share = 0.5 * tokens, 0.5 / p.layout.dies
    prefill_batch_s(alone, half, share * tokens, share * pairs, *_curve(hot), operators)
    each = dict(zip(names, (operators / p.moe_layers).tolist(), strict=True))
    before = (*names_of("prefill", "attention"), "gate")
    for name in (*before, "experts"):
        each[name] /= p.compute_share
    pieces = _pipeline(
        tuple((name, each[name]) for name in before),
        (("dispatch", each["dispatch"]),),
        (("experts", each["experts"]),),
        (("combine", each["combine"]),),
    )
    # Dense layers before, head after: as many layers' worth as there are dense ones.
    dense = p.dense_layers / (p.moe_layers + p.dense_layers)
    return Timeline(("cores", "copy engine"), int(p.moe_layers), dense, 1.0, pieces)


def _seconds(operators: Operators) -> float:
    return sum(seconds for _, seconds in operators)


def _swapped(one: Operators, other: Operators) -> tuple[Piece, ...]:
    """Two streams that swap two microbatches every half layer; the longer stream sets the pace."""
    half = max(_seconds(one), _seconds(other))
    a, b = 0.5 * _seconds(one) / half, 0.5 * _seconds(other) / half
    return (
        Piece(0, 0, 0.0, a, one),
        Piece(1, 0, 0.5, 0.5 + b, other),
        Piece(0, 1, 0.5, 0.5 + a, one),
        Piece(1, 1, 1.0, 1.0 + b, other),
    )


def _staged(attention: Operators, moe: Operators, times: tuple[float, ...]) -> tuple[Piece, ...]:
    """Stages of two microbatches in a fixed order, the second half a layer after the first."""
    prepare, core, sends, sent, shared, routed, answered = times
    waits = max(sent, shared + prepare)
    layer = staged_s(*times)
    projections = next(k for k, (name, _) in enumerate(attention) if name == "attention_core")
    gate, (_, dispatch), (_, experts), (_, combine) = moe
    # Seconds from the begin of the half in which this microbatch prepares, the other dispatches.
    dispatched = 0.5 * layer
    computed = dispatched + sends + waits
    starts = (
        (0, sends + shared, attention[:projections]),
        (0, sends + waits + routed, (*attention[projections:], gate)),
        (0, dispatched, (("dispatch", sends), ("experts", shared))),
        (1, dispatched + sends, (("dispatch", dispatch - sends),)),
        (0, computed, (("experts", experts - shared), ("combine", combine - answered))),
        (1, computed + routed, (("combine", answered),)),
    )
    return tuple(
        Piece(stream, m, at / layer + 0.5 * m, (at + _seconds(done)) / layer + 0.5 * m, done)
        for stream, at, done in starts
        for m in (0, 1)
        if _seconds(done) > 0.0
    )


def _ring(
    attention: Operators, experts: Operators, stages: tuple[float, float, float, float, float]
) -> tuple[Piece, ...]:
    """Two sides of an instance that hand two microbatches to each other, half a layer apart; of
    several domains, what one sees."""
    layer_s = ring_s(*stages, 2.0)
    a, b, c = (stages[k] / layer_s for k in range(3))
    return tuple(
        piece
        for microbatch, at in ((0, 0.0), (1, 0.5))
        for piece in (
            Piece(0, microbatch, at, at + a, attention),
            Piece(1, microbatch, at + a + b, at + a + b + c, experts),
        )
    )


def _pipeline(
    before: Operators, sent: Operators, experts: Operators, answered: Operators
) -> tuple[Piece, ...]:
    """One layer once the pipeline repeats itself: the recursion of `model.overlap.pipeline_s`."""
    stages = ((before, 0), (sent, 1), (experts, 0), (answered, 1))
    ready = [0.0, 0.0]  # when each microbatch may begin a layer
    free = [0.0, 0.0]  # when cores and copy engine are
    begun: list[float] = []
    layers: list[list[Piece]] = []
    for _ in range(SETTLE):
        begun.append(max(free[0], ready[0]))
        layer = []
        for operators, stream in stages:
            for microbatch in (0, 1):
                low = max(free[stream], ready[microbatch])
                free[stream] = ready[microbatch] = low + _seconds(operators)
                layer.append(Piece(stream, microbatch, low, ready[microbatch], operators))
        layers.append(layer)
    period, origin = begun[-1] - begun[-2], begun[-2]
    return tuple(
        replace(piece, low=(piece.low - origin) / period, high=(piece.high - origin) / period)
        for piece in layers[-2]
        if _seconds(piece.operators) > 0
    )
