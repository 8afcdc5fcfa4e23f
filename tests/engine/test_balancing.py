"""Experts in the loop: what a decision costs and brings; idle policies do nothing."""

import numpy as np
import polars as pl
import pytest

from tests.engine.small import run, small
from tests.laws.lawful import lawful
from twin import experts as x
from twin.engine.balancing import Balance
from twin.engine.build import build_world
from twin.engine.lifecycle.agenda import Agenda
from twin.engine.lifecycle.machine import Machine
from twin.engine.setup import set_up
from twin.lab.library import load_facts

SHIFTS = {
    "workload.rate_req_per_s": 100.0,
    "experts.popularity": "skewed",
    "experts.placement": "eplb",
    "experts.redundant": 16,
    "experts.shift_every_s": 1.0,
    "experts.balancing.interval_s": 1.25,
    "experts.balancing.window_s": 0.2,
    "experts.balancing.move_gb_per_s": 100.0,
}
PERIODIC = SHIFTS | {"experts.balancing.policy": "periodic"}


def balance(settings):
    setup = set_up(small(settings), load_facts(), None)
    machine, agenda = Machine(setup, load_facts(), build_world(setup)), Agenda(0.005)
    return Balance(machine, agenda, []), agenda


def rebalances(found):
    lawful(found)
    return found.tables["events"].filter(pl.col("kind") == "rebalance")


def hot(found, after_s, before_s, role="decode"):
    at = found.tables["instances"].filter((pl.col("role") == role) & (pl.col("instance") == 0))
    return at.filter(pl.col("t_s").is_between(after_s, before_s))["hot_factor"].mean()


@pytest.mark.parametrize("perfect", [{"experts.placement": "perfect"},
                                     {"experts.balancing.policy": "oracle"}])  # fmt: skip
def test_perfect_balance_costs_and_schedules_nothing(perfect):
    found, agenda = balance(SHIFTS | perfect)
    costs = found.machine.world.costs
    assert (costs.decode_hot_factor == 1.0).all() and (costs.prefill_hot_factor == 1.0).all()
    assert agenda.next_step() is None


def test_nothing_is_on_the_agenda_when_nothing_moves():
    found, agenda = balance(SHIFTS | {"experts.shift_every_s": 0.0})
    assert agenda.next_step() is None


def test_looking_again_at_what_has_not_changed_changes_nothing():
    found, _ = balance(SHIFTS | {"experts.shift_every_s": 0.0})
    costs = found.machine.world.costs
    before = costs.decode_hot_factor.copy(), costs.prefill_hot_factor.copy()
    found.update_imbalance(3.0)
    np.testing.assert_array_equal(costs.decode_hot_factor, before[0])
    np.testing.assert_array_equal(costs.prefill_hot_factor, before[1])


def test_a_table_after_a_shift_is_near_what_every_point_of_it_would_say():
    found, _ = balance(SHIFTS)
    for group in found._used_groups():
        now = x.chances_at(found.process, 2.5)
        first = found.setup.decode_imbalance
        if group.role == "prefill":
            first = found.setup.prefill_imbalance
        every = x.hot_factors(
            now, group.slots, first.tokens, found.setup.tokens_per_request[group.role],
            found.process.correlation,
        )  # fmt: skip
        np.testing.assert_allclose(found._hot_factors(group, now), every, rtol=0.03)


def test_a_periodic_balancer_lowers_what_a_shift_has_raised():
    never, found = run(SHIFTS), run(PERIODIC)
    events = rebalances(found)
    done_s = events.filter(pl.col("role") == "decode")["end_s"][0]
    assert 1.25 < done_s < 1.9
    assert hot(found, 1.05, 1.2) == hot(never, 1.05, 1.2) > hot(never, 0.5, 0.95)
    assert hot(found, done_s + 0.02, 1.97) < hot(never, done_s + 0.02, 1.97)


def test_weights_on_the_wire_are_what_the_events_say():
    found = run(PERIODIC)
    events = rebalances(found).filter(pl.col("end_s").is_not_null())
    moved = found.tables["traffic"].filter(pl.col("traffic") == "weights")["bytes"].sum()
    assert moved == pytest.approx(events["bytes"].sum(), rel=1e-9)
    _, expert = balance(PERIODIC)[0], balance(PERIODIC)[0].setup.expert_bytes("decode")
    copies = events["bytes"].to_numpy() / expert / 2  # two instances of each role
    np.testing.assert_allclose(copies, np.round(copies), rtol=1e-9)


def test_a_stall_stops_the_instance_for_as_long_as_weights_move():
    found = run(PERIODIC | {"experts.balancing.swap": "stall"})
    events = rebalances(found).filter(pl.col("role") == "decode")
    begin_s, end_s = events["t_s"][0], events["end_s"][0]
    rows = found.tables["requests"]
    finished = rows["finish_s"].drop_nulls()
    assert end_s > begin_s and not finished.is_between(begin_s + 0.03, end_s - 1e-9).any()


def test_a_threshold_above_everything_moves_nothing():
    high = {"experts.balancing.policy": "threshold", "experts.balancing.threshold": 100.0}
    found = run(SHIFTS | high)
    assert rebalances(found).height == 0
    assert "weights" not in set(found.tables["traffic"]["traffic"])
    layers = run(SHIFTS | {"experts.balancing.policy": "layer_budget",
                           "experts.balancing.layers": 3})  # fmt: skip
    assert all(d.startswith("3 layers") for d in rebalances(layers)["detail"])


def test_kv_gives_way_to_weights_that_arrive_in_the_background():
    def room(policy, swap="background"):
        asked = {"experts.balancing.policy": policy, "experts.balancing.swap": swap}
        return balance(SHIFTS | asked)[0].machine.world.decode.kv_tokens[0]

    found = balance(PERIODIC)[0]
    layer = found.machine.roles[2].layout.slots_per_die * found.setup.expert_bytes("decode")
    fewer = room("none") - room("periodic")
    assert fewer == pytest.approx(layer / found.setup.costs.kv_bytes_per_token, abs=1)
    assert room("periodic", "stall") == room("none") == room("oracle")


def test_no_weights_move_into_an_instance_that_is_down():
    down = {
        "faults": [{"at_s": 1.1, "element": "die 1.1.0"}],
        "recovery.detection_s": 0.1,
        "recovery.in_place_s": 2.0,
        "recovery.spares": False,
    }
    found = run(PERIODIC | down)
    rebalances(found)
    moved = found.tables["traffic"].filter(
        (pl.col("traffic") == "weights") & (pl.col("role") == "decode") & (pl.col("t_s") < 3.0)
    )
    assert set(moved["instance"]) == {1}
