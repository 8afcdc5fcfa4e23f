"""Every optimisation is a mechanism: it moves its own figure, the right way, and nothing else."""

import math
from dataclasses import replace

import numpy as np
import pytest

from twin.facts import FactError
from twin.metrics.operators import PREFILL_OPERATORS
from twin.model.layer import PassLoad, moe_s, moe_stages_s
from twin.model.predict import EVEN, Traffic, shares_by_cause
from twin.model.prefill import prefill_batch_s
from twin.model.schedule import pipeline
from twin.model.switches import SWITCHES, Switch
from twin.scenario import Optimisations, Scenario
from twin.scenario.declaration import choice
from twin.scenario.fields import _fields_of as declared_fields
from twin.steady import predict_steady

SEQUENCE = {"deployment__decode__microbatch": "off"}


def iteration(ask, **fields):
    return ask(**SEQUENCE, **fields).decode.iteration_s


def switch(name, value):
    return {f"deployment__optimisations__{name}": value}


@pytest.mark.parametrize(
    ("name", "slow", "fast"),
    [
        ("attention_kernel", "flash_attention", "fused_mla"),
        ("attention_kernel", "fused_mla", "amla"),
        ("fused_deep_mla", False, True),
        ("fused_deep_moe", False, True),
        ("shared_expert_scheduling", False, True),
        ("weight_prefetch", False, True),
        ("multi_stream", False, True),
        ("speculation", "unfused", "fusion_spec"),
        ("speculation", "fusion_spec", "pipelined"),
        ("host_gap_ms", 2.0, 0.0),
    ],
)
def test_a_switch_makes_a_decode_iteration_shorter_and_leaves_prefill_alone(ask, name, slow, fast):
    with_it, without = (ask(**SEQUENCE, **switch(name, v)) for v in (fast, slow))
    assert 0.5 < with_it.decode.iteration_s / without.decode.iteration_s < 1.0
    assert with_it.prefill.batch_s == without.prefill.batch_s


@pytest.mark.parametrize("name", ["flash_comm", "layer_in_parallel"])
def test_a_switch_makes_a_prefill_batch_shorter_and_leaves_decode_alone(ask, name):
    with_it, without = (ask(**switch(name, v)) for v in (True, False))
    assert with_it.prefill.batch_s < without.prefill.batch_s
    assert with_it.decode.iteration_s == without.decode.iteration_s


def test_the_host_gap_is_added_once_an_iteration(ask):
    more = iteration(ask, **switch("host_gap_ms", 3.0)) - iteration(ask)
    assert more == pytest.approx(3e-3)


def test_unfused_speculation_costs_a_launch_after_each_graph(ask, facts):
    launch = facts.si("operators.ascend.graph_launch")
    more = iteration(ask, **switch("speculation", "unfused")) - iteration(ask)
    assert more == pytest.approx(2 * launch)
    off = {"deployment__decode__mtp_draft_tokens": 0}
    assert iteration(ask, **off, **switch("speculation", "unfused")) == iteration(ask, **off)


def test_in_cast_adds_what_the_dies_of_the_shared_expert_receive(ask):
    # 320 dies, 32 with the shared expert, 96 tokens each: 960 rows of 7,680 B and 14,336 B
    found = [ask(**SEQUENCE, **switch("shared_expert_scheduling", v)) for v in (True, False)]
    role = found[0].costs.decode_role
    rows = 96 * 320 / 32
    for name, size in (("dispatch", 7_680), ("combine", 14_336)):
        more = (found[1].decode.operators[name] - found[0].decode.operators[name]) / 58
        whole = rows * size * (319 / 320) / role.exchange_bytes_per_s
        assert 0.5 * whole < more <= whole * (1 + 1e-9)


def test_a_shared_expert_beside_dispatch_is_hidden_only_where_it_is_on_the_same_die(ask):
    small = {"deployment__decode__npus_per_instance": 16}
    gain = iteration(ask, **small) - iteration(ask, **small, **switch("multi_stream", True))
    assert gain > iteration(ask) - iteration(ask, **switch("multi_stream", True)) > 0.0


def test_bf16_attention_beside_quantised_experts_costs_weights_and_products(ask):
    assert iteration(ask, deployment__precision__attention="bf16") > 1.05 * iteration(ask)


def test_a_kernel_without_a_figure_for_the_machine_is_refused(ask):
    with pytest.raises(FactError, match=r"attention_kernel = 'amla' has no figure for H800"):
        ask(supernode__chip="h800", deployment__precision__weights="fp8", **switch(
            "attention_kernel", "amla"))  # fmt: skip


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ((10.0, 1.0, 5.0, 1.0), 30.0),  # all communication hides: 2 x (10 + 5)
        ((1.0, 10.0, 1.0, 10.0), 40.0),  # copy engines are always busy: 2 x (10 + 10)
        ((0.0, 3.0, 0.0, 4.0), 14.0),
        ((4.0, 0.0, 6.0, 0.0), 20.0),
    ],
)
def test_a_pipeline_of_two_microbatches_is_as_long_as_its_busiest_stage(stages, expected):
    assert pipeline(*stages).period == pytest.approx(expected)


def test_a_pipeline_near_balance_stalls_but_never_more_than_in_sequence():
    before, sent, experts, answered = 12.2, 7.75, 7.55, 8.5
    found = pipeline(before, sent, experts, answered).period
    assert 2 * (before + experts) < found < 2 * math.fsum((before, sent, experts, answered))


def test_the_hottest_die_is_waited_for_in_experts_and_exchange_not_in_attention(ask):
    costs = ask().costs
    tokens = 8_192.0 * 32

    def batch(factor):
        ops = np.zeros(len(PREFILL_OPERATORS))
        hot = np.array([1.0]), np.array([factor])
        pairs = tokens * 2_048
        time = prefill_batch_s(costs.prefill, tokens, tokens / 32, pairs / 32, *hot, ops)
        return time, dict(zip(PREFILL_OPERATORS, ops.tolist(), strict=True))

    (even, one), (uneven, other) = batch(1.0), batch(1.3)
    assert 0.3 < (uneven / even - 1.0) / 0.3 < 1.0
    assert other["experts"] / one["experts"] == pytest.approx(1.3, rel=0.11)
    assert other["dispatch"] + other["combine"] > one["dispatch"] + one["combine"]
    assert other["attention_core"] == one["attention_core"]


def test_a_fused_attention_operator_still_reads_the_weights_of_the_gate(ask):
    p = ask(**SEQUENCE, **switch("fused_deep_mla", True)).costs.decode
    assert p.sequence.gate.fixed > 2 * 7_168 * 256 / 1.6e12
    assert p.sequence.before[0].fixed == 0.0


@pytest.mark.parametrize(
    "machine",
    [
        {"supernode__chip": "h800", "deployment__precision__weights": "fp8"},
        {"deployment__decode__expert_npus": 48},
    ],
)
def test_tiles_do_not_shorten_what_two_microbatches_in_turn_already_fill(ask, machine):
    alone = {**machine, "deployment__mode": "decode_only"}
    plain, tiled = (ask(**alone, **switch("fused_deep_moe", v)).costs for v in (False, True))
    load = PassLoad(48.0, 0.0, 48.0, 48.0 * 320, float(tiled.decode_role.dies), 1.0, 1.0)
    parts = [moe_stages_s(c.decode, c.decode.splits[0], load) for c in (plain, tiled)]
    assert parts[0] == parts[1]
    one, three = (moe_s(c.decode, c.decode.sequence, load) for c in (tiled, plain))
    assert one < three


def test_every_switch_of_a_scenario_has_its_entry():
    assert set(SWITCHES) == set(Optimisations.model_fields)


class Optimisations2(Optimisations):
    """Optimisations with one that nobody knows."""

    naps: bool = choice(False, "Naps")
    """The host sleeps for a millisecond in every iteration."""


def test_a_switch_that_is_declared_is_priced_told_and_compared(facts, monkeypatch):
    def nap(costs, x, on):
        return replace(costs, host=replace(costs.host, gap=costs.host.gap + 1e-3 * on))

    monkeypatch.setitem(SWITCHES, "naps", Switch(decode=nap))
    full = {}
    for on in (False, True):
        d = Scenario().deployment.model_copy(update={"optimisations": Optimisations2(naps=on)})
        s = Scenario().model_copy(update={"deployment": d})
        full[on] = predict_steady(s, facts, traffic=Traffic(4096.0, 1024.0))
    assert full[True].decode.iteration_s - full[False].decode.iteration_s == pytest.approx(1e-3)
    hosts = [
        shares_by_cause(full[on].costs, Traffic(4096.0, 1024.0), EVEN)["launches and the host"]
        for on in (False, True)
    ]
    assert hosts[0] < hosts[1]
    told = {f.path: f for f in declared_fields(Optimisations2, "optimisations.", "", (), 1)}
    assert told["optimisations.naps"].label == "Naps"
    assert told["optimisations.naps"].help.startswith("The host sleeps for a millisecond")
