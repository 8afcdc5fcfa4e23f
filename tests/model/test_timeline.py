"""Two microbatches over time: no resource does two things at once, and the pace is the model's."""

import pytest

from twin.model.coefficients import DecodeCosts, Layout
from twin.model.schedule import (
    Piece,
    StageSeconds,
    decode_pieces,
    pipeline_pieces,
    ring_s,
    turns_s,
)
from twin.model.schedule import pipeline as of_model
from twin.model.timeline import Timeline, decode_timeline


def pipeline(before, sent, experts, answered):
    return pipeline_pieces(
        (("attention_core", 0.75 * before), ("gate", 0.25 * before)),
        (("dispatch", sent),),
        (("experts", experts),),
        (("combine", answered),),
    )


def test_a_stream_never_does_two_things_and_a_microbatch_never_overtakes_itself():
    plan = Timeline(("cores", "copy engine"), 9, 0.1, 0.9, pipeline(6.0, 4.0, 5.0, 7.0))
    turns = list(plan.placed_pieces())
    for stream in (0, 1):
        spans = sorted((t.low, t.high) for t in turns if t.stream == stream)
        assert all(b[0] >= a[1] - 1e-9 for a, b in zip(spans[:-1], spans[1:], strict=True))
    for m in (0, 1):
        spans = sorted((t.layer, t.low, t.high) for t in turns if t.microbatch == m)
        assert all(b[1] >= a[2] - 1e-9 for a, b in zip(spans[:-1], spans[1:], strict=True))
    assert min(t.low for t in turns) >= 0.1 and max(t.high for t in turns) <= 0.9 + 1e-9


@pytest.mark.parametrize("parts", [(3, 4, 2, 3), (9, 1, 5, 1), (1, 6, 1, 7), (2, 2, 2, 2)])
def test_the_pipeline_keeps_the_pace_of_the_model(parts):
    pieces = pipeline(*map(float, parts))
    cores = sum(p.high - p.low for p in pieces if p.stream == 0)
    assert 2 * (parts[0] + parts[2]) / cores == pytest.approx(of_model(*map(float, parts)).period)
    assert all(isinstance(p, Piece) for p in pieces)


@pytest.mark.parametrize(
    "times", [(1.0, 4.0, 0.5, 3.0, 0.5, 2.0, 1.0), (2.0, 1.0, 0.2, 1.0, 0.3, 5.0, 6.0)]
)
def test_stages_in_a_fixed_order_keep_the_pace_of_the_model(times):
    prepare, core, sends, sent, shared, routed, answered = times
    attention = (("mla_prolog", prepare), ("attention_core", core))
    moe = (
        ("gate", 0.0), ("dispatch", sends + sent), ("experts", shared + 0.75 * routed),
        ("combine", 0.25 * routed + answered),
    )  # fmt: skip
    x = StageSeconds(
        prepare,
        prepare + core,
        0.0,
        sends,
        sends + sent,
        shared,
        moe[2][1],
        0.25 * routed,
        moe[3][1],
    )
    streams, pieces = decode_pieces(DecodeCosts(hides=1.0), x, attention, moe)
    plan = Timeline(streams, 5, 0.0, 1.0, pieces)
    layer = 2 * (sends + max(sent, shared + prepare) + routed + max(answered, core))
    assert turns_s(x) == pytest.approx(layer)
    cores = sum(p.high - p.low for p in plan.pieces if p.stream == 0)
    assert cores * layer == pytest.approx(2 * (prepare + core + sends + shared + routed))
    for stream in (0, 1):
        spans = sorted((t.low, t.high) for t in plan.placed_pieces() if t.stream == stream)
        assert all(b[0] >= a[1] - 1e-9 for a, b in zip(spans[:-1], spans[1:], strict=True))


def test_two_sides_of_an_instance_keep_the_pace_of_their_ring():
    x = StageSeconds(attention=3.0, dispatch=0.5, experts=4.0, combine=0.5, taken=4.0)
    moe = ("gate", 0.0), ("dispatch", 0.5), ("experts", 4.0), ("combine", 0.5)
    p = DecodeCosts(layout=Layout(expert_dies=1.0))
    pieces = decode_pieces(p, x, (("attention_core", 3.0),), moe)[1]
    pieces = sorted(pieces, key=lambda piece: (piece.microbatch, piece.stream))
    assert ring_s(x, 2.0) == 8.0
    assert [p.high - p.low for p in pieces if p.stream == 1] == [0.5, 0.5]  # never idle
    assert pieces[0].high + 0.5 / 8.0 == pieces[1].low


@pytest.mark.parametrize(
    ("fields", "streams"),
    [
        ({}, ("attention", "MoE")),
        ({"deployment__decode__expert_npus": 48}, ("attention dies", "expert dies")),
        (
            {"supernode__chip": "h800", "deployment__precision__weights": "fp8",
             "supernode__scale_up": "node", "supernode__sub_planes": 1},
            ("computing", "communication"),
        ),
    ],
)  # fmt: skip
def test_a_layer_of_decode_is_as_long_as_its_operators_say(ask, fields, streams):
    modes = {"deployment__mode": "decode_only", "deployment__decode__microbatch": "on"}
    p = ask(**modes, **fields).costs.decode
    plan = decode_timeline(p, 40.0, 160_000.0, 1.2, 1.2)
    assert plan.streams == streams
    assert 0.0 <= plan.begin < plan.end < 1.0
    named = {name for piece in plan.pieces for name, _ in piece.operators}
    assert {"mla_prolog", "attention_core", "o_proj", "gate", "experts"} <= named
    for stream in (0, 1):
        busy = sum(piece.high - piece.low for piece in plan.pieces if piece.stream == stream)
        assert 0.0 < busy <= 1.0 + 1e-9
