"""Attention offloaded to prefill NPUs: what travels, what computes it, and where its KV lies."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.engine.small import run, small
from twin.hardware.fabric import build_fabric
from twin.lab.library import presets
from twin.model.coefficients import DecodeCore
from twin.model.costs import build_costs
from twin.model.decode import decode_iteration_s
from twin.model.offload import core_message_bytes, handed_and_moved_bytes, offload
from twin.model.predict import EVEN
from twin.model.record import map_numbers
from twin.model.shape import ModelError, load_shape
from twin.scenario import SpecError, pools_by_role, with_overrides
from twin.steady import assemble

SHARE, LENT = "deployment.decode.attention_offload", "deployment.prefill.lent_cores"


def costs_of(facts, **fields):
    s = small({name.replace("__", "."): value for name, value in fields.items()})
    return build_costs(s, facts, build_fabric(s.supernode, facts))


def offloading(facts, share, lent=0.25, **more):
    return costs_of(facts, **{SHARE: share, LENT: lent}, **more)


def moved_of(costs, share):
    """Bytes of a token that are handed to decode, and that its attention moves."""
    at = replace(costs.deployed, pools=pools_by_role(small({SHARE: share})))
    return handed_and_moved_bytes(at, costs.kv_bytes_per_token)


def test_nothing_offloaded_is_as_if_there_were_no_such_thing(facts):
    plain = costs_of(facts)
    for fields in ({LENT: 0.6}, {SHARE: 0.5, "deployment.mode": "decode_only"}):
        asked = costs_of(facts, **fields)
        assert asked.decode is plain.decode or asked.decode == plain.decode
        assert asked.decode_role.kv_tokens_per_rank == plain.decode_role.kv_tokens_per_rank
    assert moved_of(plain, 0.0) == (plain.kv_bytes_per_token, 0.0)
    assert plain.decode.sequence.core.away_start == 0.0


def test_absorbed_queries_are_large_and_grouped_ones_small(facts):
    r1, qwen = (load_shape(facts, name) for name in ("deepseek-r1", "qwen3-235b"))
    assert core_message_bytes(r1, "bf16") == (2 * 128 * (512 + 64) + 2 * 576, 2 * 128 * 512)
    assert core_message_bytes(qwen, "bf16") == (2 * 64 * 128 + 2 * 2 * 4 * 128, 2 * 64 * 128)
    there_and_back = [sum(core_message_bytes(s, "bf16")) for s in (r1, qwen)]
    kv = [s.kv_bytes_per_token_layer("bf16") for s in (r1, qwen)]
    assert there_and_back[0] > 200 * kv[0] and there_and_back[1] < 20 * kv[1]


def test_the_way_has_the_ports_of_the_busier_side(facts):
    """Where few prefill dies serve many decode dies, their ports hold it, and the core waits."""
    ways = []
    for prefills in (1, 2):
        s = small({SHARE: 0.3, "deployment.prefill.instances": prefills})
        ways.append(offload(build_costs(s, facts, build_fabric(s.supernode, facts)).deployed))
    assert [way.served for way in ways] == [2.0, 1.0]
    assert ways[0].out_bytes_per_s == pytest.approx(0.5 * ways[1].out_bytes_per_s)
    cores = [offloading(facts, 0.3, **{"deployment.prefill.instances": n}).decode.sequence.core
             for n in (1, 2)]  # fmt: skip
    assert cores[0].away_context == pytest.approx(2.0 * cores[1].away_context)


@given(st.floats(0.01, 0.44), st.floats(0.05, 0.9))
@draws(8)
def test_more_offloaded_is_less_at_home_and_more_on_the_way(facts, share, lent):
    less, more = (offloading(facts, x, lent) for x in (share, 2.0 * share))
    for costs, x in ((less, share), (more, 2.0 * share)):
        assert moved_of(costs, x)[0] == pytest.approx((1.0 - x) * costs.kv_bytes_per_token)
        held = costs.decode_role.kv_tokens_per_rank
        served = costs.decode_role.dies / costs.prefill_role.dies
        assert x * held * served <= costs.prefill_role.kv_tokens_lent
        assert (1.0 - x) * held <= costs_of(facts).decode_role.kv_tokens_per_rank
    assert moved_of(less, share)[1] < moved_of(more, 2.0 * share)[1]
    a, b = (costs.decode.sequence.core for costs in (less, more))
    assert a.away_token < b.away_token and a.away_context < b.away_context
    assert a.context > b.context and a.away_start == b.away_start > 0.0


def test_prefill_that_lends_less_space_than_decode_gives_up_says_so(facts):
    def remarks(**fields):
        quick = next(p.scenario for p in presets() if p.key == "quickstart")
        return assemble(with_overrides(quick, fields), facts).costs.remarks

    assert not remarks(**{SHARE: 0.0})
    (remark,) = remarks(**{SHARE: 0.35})
    assert "leaves a decode die 7,426 KV tokens of the 558,771" in remark
    assert "deployment.prefill.tokens_per_npu" in remark
    # Below the longest prompt a smaller batch gives decode 1 to 2 % and no advice.
    (remark,) = remarks(**{SHARE: 0.35, "deployment.prefill.tokens_per_npu": 8192})
    assert remark.endswith("Lower the share.")
    assert not offloading(facts, 0.3).remarks


@pytest.mark.parametrize("lent", [0.25, 0.5])
def test_prefill_computes_on_the_cores_that_are_left(facts, lent):
    plain, costs = costs_of(facts), offloading(facts, 0.3, lent)
    assert costs.prefill.core.pair == pytest.approx(plain.prefill.core.pair / (1.0 - lent))
    role = costs.prefill_role
    assert role.kv_tokens_per_rank + role.kv_tokens_lent == plain.prefill_role.kv_tokens_per_rank
    whole, core = plain.decode.sequence.core, costs.decode.sequence.core
    assert core.away_context > 0.3 * whole.context / (1.2 * lent)  # a share draws a bit more


def test_an_attention_takes_as_long_as_the_slower_part(facts):
    role = offloading(facts, 0.3).decode_role
    requests, context = np.full(role.dies, 8), np.full(role.dies, 8 * 3000.0)

    def took(costs):
        ops = role.operator_sink()
        whole_s = decode_iteration_s(costs, requests, context, 0, role.dies, *EVEN, ops)
        assert whole_s == pytest.approx(ops.sum())
        return whole_s, ops[role.operators.index("offloaded_core")]

    p = replace(role.decode, microbatch=0.0)
    at_home = DecodeCore(p.sequence.core.fixed, p.sequence.core.context)
    near_s, none_s = took(replace(p, sequence=replace(p.sequence, core=at_home)))
    whole_s, waited_s = took(p)
    assert waited_s > 0.0 == none_s
    assert whole_s == pytest.approx(near_s + waited_s)


def test_what_crowds_the_exchange_does_not_stretch_the_way_to_prefill(facts):
    """Other links, or no rule for those that both use: shared with nobody."""
    core = offloading(facts, 0.3).decode.sequence.core
    assert map_numbers(core, lambda c, v: 2.0 * v if c.scale == "carried" else v) == core
    assert core.away_token > 0.0


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_kv_that_stays_does_not_cross_and_every_token_asks_for_it(facts, share):
    answer = run({SHARE: share})
    handed, asked = moved_of(offloading(facts, share), share)
    moved = answer.tables["traffic"].group_by("traffic").agg(pl.col("bytes").sum())
    moved = dict(moved.rows())
    begun = answer.tables["requests"].filter(pl.col("transfer_end_s").is_not_null())
    prompts, windows = begun["input_tokens"].sum(), answer.tables["windows"]
    answers = (windows["output_tokens_per_s"] * windows["window_s"]).sum()
    assert moved["kv_hand_off"] == pytest.approx(prompts * handed)
    assert moved.get("offload", 0.0) == pytest.approx(answers * asked, rel=1e-3)
    told = "decode_offloaded_core_s" in windows.columns
    assert told == (share > 0.0) == ("offloaded_core" in answer.tables["operators"]["operator"])
    placed = answer.tables["shares"].filter(pl.col("traffic") == "offload")["share"].sum()
    assert placed == pytest.approx(4.0 * (share > 0.0))  # two instances, what leaves and enters


@pytest.mark.parametrize(
    ("field", "value"),
    [("faults", [{"at_s": 0.6, "element": "die 1.1.0"}]), ("elastic.controller", "queue")],
)
def test_what_is_not_modelled_beside_it_is_refused(field, value):
    with pytest.raises(SpecError, match=f"attention_offload beside {field}"):
        small({SHARE: 0.3, field: value})


def test_nothing_is_offloaded_to_prefill_on_the_same_npus():
    with pytest.raises(SpecError, match="needs prefill NPUs that are not decode's own"):
        small({SHARE: 0.3, "deployment.prefill.on": "decode_npus"})


def test_a_capped_pool_computes_what_it_is_sent_at_its_own_clock(facts):
    """The core is bound by its products where its keys are read at the full rate all the same."""
    s = small({SHARE: 0.3})
    net = build_fabric(s.supernode, facts)
    slow, full = (
        build_costs(s, facts, net, {"prefill": clock}).decode.sequence.core for clock in (0.5, 1.0)
    )
    assert full.away_context < slow.away_context <= 2.0 * full.away_context
    assert slow.context == full.context and slow.away_token == full.away_token


def test_only_attention_dies_offload(facts):
    """Expert dies hold no KV: each attention die has more requests, and sends them alone."""
    apart = offloading(facts, 0.3, **{"deployment.decode.expert_npus": 1})
    every = offloading(facts, 0.3)
    p = apart.decode
    part = 1.0 / p.concentration
    a, b = (costs.decode.sequence.core for costs in (apart, every))
    assert part < 1.0 and a.away_context == pytest.approx(part * b.away_context)
    ranks_per_lender = 2 * apart.decode_role.dies / apart.prefill_role.dies
    held = apart.decode_role.kv_tokens_per_rank
    assert 0.3 * held * ranks_per_lender <= 2 * apart.prefill_role.kv_tokens_lent


def test_prefill_that_has_no_kv_space_to_lend_is_refused(facts):
    with pytest.raises(
        ModelError, match=r"none to lend: lower deployment\.prefill\.tokens_per_npu"
    ):
        offloading(facts, 0.3, **{"deployment.prefill.tokens_per_npu": 1_000_000})
