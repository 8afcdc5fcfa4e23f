"""How the two microbatches of an iteration share an instance: what each stream does, and when.

A run books only what is on the critical path; what runs beside it is asked of the model's own
kernels, at the mean load of the run. Decode alternates between an attention and an MoE stream
(arXiv 2506.12708v2 section 4.2.3), prefill between cores and copy engines (section 4.3.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from twin.facts import Facts
from twin.hardware.fabric import build_fabric
from twin.model import params as q
from twin.model.costs import build_costs
from twin.model.decode import best_split, decode_iteration_s
from twin.model.layer import attention_s, moe_parts, moe_s, output_s, prolog_s
from twin.model.prefill import prefill_batch_s
from twin.scenario import Scenario

Tables = Mapping[str, pl.DataFrame]
Operators = tuple[tuple[str, float], ...]  # names with seconds, in order

SETTLE = 6  # layers after which the pipeline of prefill repeats itself
ATTENTION = ("attention_input", "all_gather", "attention_core", "all_to_all", "o_proj", "gate")


@dataclass(frozen=True, slots=True)
class Piece:
    """What a stream does for one microbatch of one layer, in units of a layer's time."""

    stream: int
    microbatch: int
    low: float  # from the layer's begin; at 1 the next layer has begun
    high: float
    operators: Operators


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """One layer of an iteration, and where in the iteration the layers are."""

    streams: tuple[str, str]
    layers: int
    begin: float  # share of the iteration before the layers
    end: float
    pieces: tuple[Piece, ...]


# One pass: stream, layer, microbatch, begin, end, operators with begin and end; shares of the
# iteration from 0 to 1.
Pass = tuple[int, int, int, float, float, list[tuple[str, float, float]]]


def passes(plan: StreamPlan) -> Iterator[Pass]:
    """Every pass of an iteration. The last layer's answers run over, so all are squeezed a bit."""
    over = max(piece.high for piece in plan.pieces) - 1.0
    unit = (plan.end - plan.begin) / (plan.layers + max(over, 0.0))
    for layer in range(plan.layers):
        for piece in plan.pieces:
            low = plan.begin + (layer + piece.low) * unit
            high = plan.begin + (layer + piece.high) * unit
            total = sum(time for _, time in piece.operators)
            inner, at = [], low
            for name, time in piece.operators:
                until = min(at + time / total * (high - low), high)
                inner.append((name, at, until))
                at = until
            yield piece.stream, layer, piece.microbatch, low, high, inner


def stream_plans(scenario: Scenario, facts: Facts, tables: Tables) -> dict[str, StreamPlan]:
    """Plans of the roles that run in microbatches at the run's mean load; may be empty."""
    costs = build_costs(scenario, facts, build_fabric(scenario.supernode, facts))
    plans: dict[str, StreamPlan] = {}
    if costs.decode_role is not None:
        role = costs.decode_role
        plan = _decode_plan(role.vector, role.dies, tables)
        if plan is not None:
            plans["decode"] = plan
    if costs.prefill_role is not None:
        role = costs.prefill_role
        plan = _prefill_plan(role.vector, role.dies, tables, scenario.warmup_s)
        if plan is not None:
            plans["prefill"] = plan
    return plans


def _mean_hot(tables: Tables, role: str) -> float:
    """The hottest die's expert load over the mean, as the run's dies had it."""
    ranks = tables["ranks"].filter(pl.col("role") == role)
    hottest = ranks["expert_load"].max() if "expert_load" in ranks.columns else None
    return max(1.0, float(hottest)) if isinstance(hottest, int | float) else 1.0


def _decode_plan(p: np.ndarray, dies: int, tables: Tables) -> StreamPlan | None:
    """Decode's streams; None when the layers run in sequence or nothing was decoded."""
    ranks = tables["ranks"].filter(pl.col("role") == "decode")
    per_die = float(ranks["requests_mean"].fill_null(0.0).mean() or 0.0)  # type: ignore[arg-type]
    context = float(ranks["context_tokens_mean"].fill_null(0.0).mean() or 0.0)  # type: ignore[arg-type]
    if p[q.MICROBATCH] == 0.0 or not per_die > 0:
        return None
    hot, count, query = _mean_hot(tables, "decode"), float(dies), p[q.QUERY_TOKENS]
    m, split = best_split(p, per_die, context, per_die, per_die * count, count, hot)
    tokens, core = query * per_die, p[q.SEQUENCE + q.CORE_CONTEXT] * context
    plain = attention_s(p, q.SEQUENCE, tokens, core)
    plain += moe_s(p, q.SEQUENCE, tokens, tokens * count, count, hot)
    if p[q.MICROBATCH] == 2.0 and plain <= split:
        return None
    begin, end = _decode_section(p, per_die, context, dies, hot, split)
    layers, half = int(p[q.MOE_LAYERS]), 0.5 * tokens
    attention: Operators = (
        ("mla_prolog", prolog_s(p, m, half)),
        ("attention_core", p[m + q.CORE_FIXED] + 0.5 * p[m + q.CORE_CONTEXT] * context),
        ("o_proj", output_s(p, m, half)),
    )
    parts = moe_parts(p, m, half, half * count, count, hot)
    moe: Operators = tuple(zip(("gate", "dispatch", "experts", "combine"), parts, strict=True))
    if p[q.HIDES] == 0.0:
        pieces = _in_turn(attention, moe)
        return StreamPlan(("attention", "MoE"), layers, begin, end, pieces)
    # What an exchange takes beside its bytes, the cores are busy with (model.decode).
    gate, dispatch, experts, combine = parts
    sends = p[m + q.DISPATCH_FIXED] + p[m + q.DISPATCH_MESSAGE] * half
    back = p[m + q.COMBINE_FIXED]
    pieces = _pipeline(
        (*attention, ("gate", gate), ("dispatch", sends)),
        (("dispatch", dispatch - sends),),
        (("experts", experts), ("combine", back)),
        (("combine", combine - back),),
    )
    return StreamPlan(("computing", "communication"), layers, begin, end, pieces)


def _in_turn(one: Operators, other: Operators) -> tuple[Piece, ...]:
    """Two streams that swap two microbatches every half layer; the longer stream sets the pace."""
    first, second = sum(t for _, t in one), sum(t for _, t in other)
    half = max(first, second)
    a, b = 0.5 * first / half, 0.5 * second / half
    return (
        Piece(0, 0, 0.0, a, one),
        Piece(1, 0, 0.5, 0.5 + b, other),
        Piece(0, 1, 0.5, 0.5 + a, one),
        Piece(1, 1, 1.0, 1.0 + b, other),
    )


def _decode_section(
    p: np.ndarray, per_die: float, context_each: float, dies: int, hot: float, layer_s: float
) -> tuple[float, float]:
    """Where the MoE layers lie in an iteration: after the dense ones, before MTP and the head."""
    operators = np.zeros(len(q.DECODE_OPERATORS))
    requests, context = np.full(dies, max(1, round(per_die))), np.full(dies, context_each)
    # One point is enough of a curve: the load is the mean one.
    curve = np.array([1.0, 2.0]), np.array([hot, hot])
    total = decode_iteration_s(p, requests, context, 0, dies, *curve, operators)
    layers = p[q.MOE_LAYERS] * layer_s
    after = sum(operators[k] for k in (q.OP_MTP, q.OP_LM_HEAD, q.OP_SAMPLING, q.OP_GAPS))
    before = max(0.0, total - layers - after)
    whole = before + layers + after
    return float(before / whole), float((before + layers) / whole)


def _prefill_plan(p: np.ndarray, dies: int, tables: Tables, warmup_s: float) -> StreamPlan | None:
    """Prefill's streams; None when it runs in sequence or nothing was prefilled."""
    tokens = _mean_batch(tables, warmup_s)
    if p[q.F_MICROBATCH] == 0.0 or not tokens > 0:
        return None
    alone = p.copy()
    alone[q.F_MICROBATCH] = alone[q.F_DENSE_LAYERS] = alone[q.F_HEAD] = alone[q.F_GAP] = 0.0
    operators = np.zeros(len(q.PREFILL_OPERATORS))
    length = float(tables["requests"]["input_tokens"].mean() or 1.0)  # type: ignore[arg-type]
    half, hot = 0.5 * tokens, _mean_hot(tables, "prefill")
    pairs = half * 0.5 * min(length, tokens)
    curve = np.array([1.0, 2.0]), np.array([hot, hot])
    prefill_batch_s(alone, half, half / dies, pairs / dies, *curve, operators)
    each = dict(zip(q.PREFILL_OPERATORS, operators / p[q.F_MOE_LAYERS], strict=True))
    for name in (*ATTENTION, "experts"):
        each[name] /= p[q.F_COMPUTE_SHARE]
    pieces = _pipeline(
        tuple((name, each[name]) for name in ATTENTION),
        (("dispatch", each["dispatch"]),),
        (("experts", each["experts"]),),
        (("combine", each["combine"]),),
    )
    # Dense layers before, head after: as many layers' worth as there are dense ones.
    dense = float(p[q.F_DENSE_LAYERS]) / (float(p[q.F_MOE_LAYERS]) + float(p[q.F_DENSE_LAYERS]))
    return StreamPlan(("cores", "copy engine"), int(p[q.F_MOE_LAYERS]), dense, 1.0, pieces)


def _mean_batch(tables: Tables, warmup_s: float) -> float:
    """Tokens of a mean prefill batch in the steady state."""
    rows = tables["operators"].filter(pl.col("phase") == "prefill")
    batches = float(rows["iterations"].max() or 0.0) if rows.height else 0.0  # type: ignore[arg-type]
    windows = tables["windows"].filter(pl.col("t_s") >= warmup_s)
    tokens = float((windows["input_tokens_per_s"] * windows["window_s"]).sum() or 0.0)
    return tokens / batches if batches > 0 else 0.0


def _pipeline(
    before: Operators, sent: Operators, experts: Operators, answered: Operators
) -> tuple[Piece, ...]:
    """One layer once the pipeline repeats itself: the recursion of `model.overlap.pipeline_s`."""
    work = {"before": before, "sent": sent, "experts": experts, "answered": answered}
    long = {name: sum(t for _, t in part) for name, part in work.items()}
    ready = [0.0, 0.0]  # when each microbatch may begin a layer
    free = [0.0, 0.0]  # when cores and copy engine are
    begun: list[float] = []
    layers: list[list[tuple[int, int, float, str]]] = []
    for _ in range(SETTLE):
        begun.append(max(free[0], ready[0]))
        done = []
        for name, stream in (("before", 0), ("sent", 1), ("experts", 0), ("answered", 1)):
            for microbatch in (0, 1):
                low = max(free[stream], ready[microbatch])
                free[stream] = ready[microbatch] = low + long[name]
                done.append((stream, microbatch, low, name))
        layers.append(done)
    period, origin = begun[-1] - begun[-2], begun[-2]
    return tuple(
        Piece(s, m, (low - origin) / period, (low + long[name] - origin) / period, work[name])
        for s, m, low, name in layers[-2]
        if long[name] > 0
    )
