"""One layer's schedule: which stages of a layer run at the same time, on what.

A layer is attention (projections, core, projections), gate, dispatch, experts and combine; layer.py
and prefill.py say how long each takes. One microbatch runs them in sequence. Two microbatches, half
a layer apart, hide the stages of one behind those of the other, and what they share decides how:

| schedule | two microbatches share | who |
|---|---|---|
| streams | an attention and an MoE stream, each with cores of its own | decode on split cores |
| turns | all cores, in a fixed order, while the wire carries the other's | decode on whole cores |
| ring | attention dies and expert dies, which hand them to each other | decode with AFD |
| pipeline | cores and copy engines, first come first served | prefill |

Each has its seconds (compiled), and its pieces: where the stages lie in a layer, for timelines."""

from dataclasses import dataclass
from typing import NamedTuple

from twin.kernels.compiled import kernel
from twin.model import layer
from twin.model.coefficients import DecodeCosts, LayerCosts
from twin.model.layer import PassLoad

SETTLE = 6  # layers after which the pipeline repeats itself

Operators = tuple[tuple[str, float], ...]  # names with seconds, in order


class StageSeconds(NamedTuple):
    """Seconds of the stages of a layer, for one microbatch of decode."""

    prepare: float = 0.0  # of attention, before its core
    attention: float = 0.0
    gate: float = 0.0
    start: float = 0.0  # of dispatch, before anything travels: nothing hides it
    dispatch: float = 0.0
    shared: float = 0.0  # of the experts: a shared one on the same die, which waits for no dispatch
    experts: float = 0.0
    answer: float = 0.0  # of combine, before anything travels
    combine: float = 0.0
    taken: float = 0.0  # an expert die is busy with one microbatch of every domain (AFD)


@kernel
def stage_seconds(p: DecodeCosts, m: LayerCosts, load: PassLoad) -> StageSeconds:
    """Seconds of the stages of one microbatch in a layer; `shared` and `taken` are 0 if the
    schedule does not need them."""
    prepare_s = layer.before_core_s(m, load.tokens)
    core_s = layer.core_s(m.core, load.tokens, load.context)
    attention_s = layer.attention_s(m, load.tokens, core_s)
    gate_s, dispatch_s, experts_s, combine_s = layer.moe_stages_s(p, m, load)
    shared_s = expert_die_s = 0.0
    layout = p.layout
    if p.hides > 0.0 and layout.shared_dies <= 0.0:
        die_rows = layout.shared_experts * load.total * layout.split / load.dies
        shared_s = min(experts_s, layer.shared_experts_s(layout, m.experts, die_rows))
    if layout.expert_dies > 0.0:
        die_rows = layer.routed_rows(layout, load.total) * load.wire
        port_s = die_rows * max(m.dispatch.row, m.combine.row)
        expert_die_s = layout.domains * max(experts_s, port_s)
    start_s = m.dispatch.fixed + m.dispatch.message * load.busiest
    return StageSeconds(prepare_s, attention_s, gate_s, start_s, dispatch_s, shared_s, experts_s,
                  m.combine.fixed, combine_s, expert_die_s)  # fmt: skip


@kernel
def two_microbatches_s(p: DecodeCosts, x: StageSeconds) -> float:
    """Seconds of a layer of two microbatches with the stages `x`, in the schedule that `p` selects:
    a ring, turns, or streams on split cores."""
    if p.layout.expert_dies > 0.0:
        return ring_s(x, 2.0)
    if p.hides > 0.0:
        return turns_s(x)
    return 2.0 * max(x.attention, x.gate + x.dispatch + x.experts + x.combine)


@kernel
def turns_s(x: StageSeconds) -> float:
    """Seconds of a layer if a graph launches the stages `x` of two microbatches in turn: while one
    dispatches, the other is in its projections and the shared expert is computed; while one
    combines, the other is in its core (SGLang: operations_strategy.py). Cores wait idle."""
    routed_s = x.experts - x.shared + x.answer
    core_part_s = x.attention - x.prepare + x.gate
    dispatch_s = max(x.dispatch - x.start, x.shared + x.prepare)
    return 2.0 * (x.start + dispatch_s + routed_s + max(x.combine - x.answer, core_part_s))


@kernel
def ring_s(x: StageSeconds, microbatches: float) -> float:
    """Seconds of a layer between attention and expert dies: its longest stage for all
    `microbatches`, or, if longer, one microbatch's whole round (ping-pong: MegaScale-Infer, arXiv
    2504.02263; domains that take turns: xDeepServe, arXiv 2508.02520 section 5.2)."""
    attention_s = x.attention + x.gate
    longest_s = max(attention_s, x.dispatch, x.experts, x.combine, x.taken)
    return max(microbatches * longest_s, attention_s + x.dispatch + x.experts + x.combine)


class Pipeline(NamedTuple):
    """A layer of the pipeline in its steady state, seconds: its length, its start, and the end of
    each stage of the two microbatches."""

    period: float
    begun: float
    before: tuple[float, float]
    sent: tuple[float, float]
    experts: tuple[float, float]
    answered: tuple[float, float]


@kernel
def pipeline(before: float, sent: float, experts: float, answered: float) -> Pipeline:
    """Settled schedule of two microbatches that share cores and wire in turn, from the seconds of
    their four stages: before dispatch, dispatch (sent), experts, combine (answered). Cores compute
    attention and gate of both, then experts of both; the wire carries dispatch and combine of each
    in between. Every exchange waits for the hottest die."""
    start_s = period_s = 0.0
    before_1_end_s = before_2_end_s = sent_1_end_s = sent_2_end_s = 0.0
    experts_1_end_s = experts_2_end_s = answered_1_end_s = answered_2_end_s = 0.0
    for _ in range(SETTLE):
        next_start_s = max(experts_2_end_s, answered_1_end_s)
        period_s = next_start_s - start_s
        start_s = next_start_s
        before_1_end_s = next_start_s + before
        sent_1_end_s = max(before_1_end_s, answered_2_end_s) + sent
        before_2_end_s = max(before_1_end_s, answered_2_end_s) + before
        sent_2_end_s = max(before_2_end_s, sent_1_end_s) + sent
        experts_1_end_s = max(before_2_end_s, sent_1_end_s) + experts
        experts_2_end_s = max(experts_1_end_s, sent_2_end_s) + experts
        answered_1_end_s = max(experts_1_end_s, sent_2_end_s) + answered
        answered_2_end_s = max(experts_2_end_s, answered_1_end_s) + answered
    return Pipeline(
        period_s, start_s, (before_1_end_s, before_2_end_s), (sent_1_end_s, sent_2_end_s),
        (experts_1_end_s, experts_2_end_s), (answered_1_end_s, answered_2_end_s),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """Work of a stream for one microbatch of one layer, in units of a layer's time."""

    stream: int
    microbatch: int
    low: float  # from the layer's begin; at 1 the next layer has begun
    high: float
    operators: Operators


def decode_pieces(
    p: DecodeCosts, x: StageSeconds, attention: Operators, moe: Operators
) -> tuple[tuple[str, str], tuple[Piece, ...]]:
    """(names of decode's two streams, pieces of two microbatches on them). x: seconds of stages;
    attention: (operator, seconds) in order; moe: of gate, dispatch, experts, combine."""
    layer_s = two_microbatches_s(p, x)
    if p.layout.expert_dies > 0.0:
        gate_operator, _, experts_operator, _ = moe
        experts_begin_s = x.attention + x.gate + x.dispatch
        stages = [(0, 0.0, (*attention, gate_operator)), (1, experts_begin_s, (experts_operator,))]
        return ("attention dies", "expert dies"), _pieces_of_microbatches(layer_s, stages)
    if p.hides == 0.0:
        stages = [(0, 0.0, attention), (1, 0.5 * layer_s, moe)]
        return ("attention", "MoE"), _pieces_of_microbatches(layer_s, stages)
    stages = _turn_stages(layer_s, x, attention, moe)
    return ("computing", "communication"), _pieces_of_microbatches(layer_s, stages)


def _pieces_of_microbatches(
    layer_s: float, stages: list[tuple[int, float, Operators]]
) -> tuple[Piece, ...]:
    """Pieces of two microbatches of which the second runs half a layer later. stages: (stream,
    begin in s, operators) of the first."""
    return tuple(
        Piece(stream, microbatch, begin_s / layer_s + 0.5 * microbatch,
              (begin_s + _total_s(operators)) / layer_s + 0.5 * microbatch, operators)
        for stream, begin_s, operators in stages
        for microbatch in (0, 1)
        if _total_s(operators) > 0.0
    )  # fmt: skip


def _turn_stages(
    layer_s: float, x: StageSeconds, attention: Operators, moe: Operators
) -> list[tuple[int, float, Operators]]:
    """Stages (stream, begin in s, operators) of one microbatch. They begin with its projections,
    during which the other microbatch dispatches. Arguments: as of `decode_pieces`."""
    gate_operator, (_, dispatch_s), (_, experts_s), (_, combine_s) = moe
    dispatch_part_s = max(x.dispatch - x.start, x.shared + x.prepare)
    core_index = next(k for k, (name, _) in enumerate(attention) if name == "attention_core")
    half_layer_s = 0.5 * layer_s
    experts_begin_s = half_layer_s + x.start + dispatch_part_s
    answers_begin_s = experts_begin_s + experts_s - x.shared + x.answer
    return [
        (0, x.start + x.shared, attention[:core_index]),
        (0, answers_begin_s - half_layer_s, (*attention[core_index:], gate_operator)),
        (0, half_layer_s, (("dispatch", x.start), ("experts", x.shared))),
        (1, half_layer_s + x.start, (("dispatch", dispatch_s - x.start),)),
        (0, experts_begin_s, (("experts", experts_s - x.shared), ("combine", x.answer))),
        (1, answers_begin_s, (("combine", combine_s - x.answer),)),
    ]


def pipeline_pieces(
    before: Operators, sent: Operators, experts: Operators, answered: Operators
) -> tuple[Piece, ...]:
    """Pieces of two microbatches on prefill's cores (stream 0) and copy engines (stream 1), from
    (operator, seconds) of their four stages: before dispatch, dispatch, experts, combine."""
    stages_s = [_total_s(operators) for operators in (before, sent, experts, answered)]
    settled = pipeline(*stages_s)
    return tuple(
        Piece(stream, microbatch, (end_s - stage_s - settled.begun) / settled.period,
              (end_s - settled.begun) / settled.period, operators)
        for stream, operators, stage_s, ends_s in zip(
            (0, 1, 0, 1), (before, sent, experts, answered), stages_s, settled[2:], strict=True
        )
        for microbatch, end_s in enumerate(ends_s)
        if stage_s > 0.0
    )  # fmt: skip


def _total_s(operators: Operators) -> float:
    """Sum of the seconds of operators (name, seconds)."""
    return sum(seconds for _, seconds in operators)
