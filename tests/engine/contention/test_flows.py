"""Flows and links: leaving out and merging links changes no rate; who meets whom shares."""

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.draws import seeds
from tests.engine.small import small
from tests.hardware.max_min import max_min_rates
from tests.hardware.wired import settled
from twin.engine import codes as w
from twin.engine.build import build_world
from twin.engine.contention.flows import lay_out, storage_load
from twin.engine.contention.traffic import apply_changed_flows, price_exchange, set_slowdown
from twin.engine.lifecycle.machine import Machine
from twin.engine.setup import set_up
from twin.hardware import demands
from twin.hardware.network import cached_answer
from twin.hardware.prices import all_to_all, pool_read
from twin.lab.library import load_facts
from twin.scenario import Fault

UNALIGNED = {
    "supernode.nodes": 5,
    "deployment.prefill.npus_per_instance": 12,
    "deployment.decode.npus_per_instance": 6,
}


def machine(settings=None, faults=()):
    setup = set_up(small(settings), load_facts(), None)
    found = Machine(setup, load_facts(), build_world(setup))
    if faults:
        found.put_in_force([Fault(**f) for f in faults])
        found.lay_flows()
    return found


def number(found, traffic, role, instance=0):
    who = (traffic, role, instance)
    return next(f.number for f in found.flows if (f.traffic, f.role, f.instance) == who)


def rates(found, active):
    """Rates of the flows in `active`, over the links as they were merged; exchanges never rest."""
    t = found.world.traffic
    t.duty[:], t.wish[t.first[w.WEIGHTS] : t.last[w.WEIGHTS]] = 1.0, 1.0
    t.active[:] = active
    apply_changed_flows(found.world)
    return t.level * t.alone


def plain_rates(found, active):
    """The same over every single link, nothing left out."""
    t = found.world.traffic
    rows = {f.number: f.load for f in found.flows}
    start, links, takes = [0], [], []
    for k in range(t.alone.size):
        if k in rows:
            links += rows[k].links.tolist()
            takes += rows[k].amounts.tolist()
        start.append(len(links))
    penalty, bound = 1.0 / t.alone, t.most * t.alone
    return max_min_rates(
        np.array(start), np.array(links), np.array(takes), penalty, bound, found.fabric.capacity
    )


@pytest.mark.parametrize("seed", seeds(2))
def test_merged_links_give_the_rates_of_all_links(seed):
    draw = random.Random(seed)
    names = [f"L1 {n}.{p}" for n in range(5) for p in range(7)] + [f"die {n}.2.0" for n in range(5)]
    names += ["sub-plane 3", "NIC 3.1.0", "Qingtian 2", "CPU 0.1"]
    faults = [
        {"element": name, "kind": "derate", "factor": draw.choice([0.1, 0.3, 0.7])}
        for name in draw.sample(names, 8)
    ]
    plane = {"deployment.kv_transfer_plane": draw.choice(["ub", "rdma", "vpc"]),
             "memory_pool.plane": draw.choice(["ub", "vpc"]),
             "deployment.decode.swap_gb_per_die": seed % 2}  # fmt: skip
    found = machine(UNALIGNED | plane, faults)
    there = np.isin(np.arange(found.world.traffic.alone.size), [f.number for f in found.flows])
    for _ in range(5):
        active = there & (np.array([draw.random() for _ in there]) < 0.6)
        # A link that wants to carry a hundredth too much holds nobody.
        np.testing.assert_allclose(rates(found, active), plain_rates(found, active), rtol=0.011)


def test_a_lone_flow_gets_the_price_of_its_route():
    found = machine()
    dies = found.serving_dies(0)
    prices = {
        number(found, "pool_read", "prefill"): pool_read(found.fabric, dies),
        number(found, "experts", "prefill"): all_to_all(found.fabric, dies),
        number(found, "experts", "decode"): all_to_all(found.fabric, found.serving_dies(2)),
    }
    reads = number(found, "pool_read", "prefill")
    for f, price in prices.items():
        alone = np.arange(found.world.traffic.alone.size) == f
        # The starts of copies hold reads below what the links would give them.
        held = found.world.traffic.pace[f] if f == reads else np.inf
        assert rates(found, alone)[f] == pytest.approx(min(price.bytes_per_s, held), rel=1e-8)


def test_two_exchanges_that_meet_on_a_node_share_its_uplinks():
    narrow = [
        {"element": "L1 1.0", "to": f"L2 0.{c}", "kind": "derate", "factor": 0.5} for c in range(4)
    ]
    found = machine(UNALIGNED, narrow)
    both = np.zeros(found.world.traffic.alone.size, bool)
    one, other = (number(found, "experts", "prefill", k) for k in (0, 1))
    both[[one, other]] = True
    got, alone = rates(found, both), found.world.traffic.alone
    assert 0.4 < got[one] / alone[one] < 0.95
    crowding = found.world.traffic.crowding
    assert crowding[0] == pytest.approx(alone[one] / got[one])
    price_exchange(found.world, 0)
    places = found.world.costs.prefill_carried
    ratio = found.world.costs.prefill_now[0, places] / found.world.costs.prefill_alone[0, places]
    assert np.nanmax(np.abs(ratio - crowding[0])) < 1e-9


def test_an_exchange_is_prolonged_for_the_share_of_time_that_the_other_one_sends():
    narrow = [
        {"element": "L1 1.0", "to": f"L2 0.{c}", "kind": "derate", "factor": 0.5} for c in range(4)
    ]
    found = machine(UNALIGNED, narrow)
    traffic, both = found.world.traffic, np.zeros(found.world.traffic.alone.size, bool)
    both[[number(found, "experts", "prefill", k) for k in (0, 1)]] = True
    rates(found, both)
    always = traffic.crowding[0] - 1.0
    assert always > 0.05
    for duty in (0.0, 0.25, 0.8):
        traffic.duty[1] = duty
        set_slowdown(traffic, 0)
        assert traffic.crowding[0] - 1.0 == pytest.approx(duty * always)


def test_a_dead_server_or_die_holds_nobody_else_up():
    apart = {"deployment.decode.npus_per_instance": 8}
    whole = machine(apart)
    hurt = machine(apart, [{"element": "node 1"}])
    f = number(whole, "kv_hand_off", "prefill")
    assert hurt.world.traffic.alone[f] == pytest.approx(whole.world.traffic.alone[f], rel=0.51)
    assert hurt.world.traffic.alone[number(hurt, "ssd_write", "prefill")] > 1e9


def test_what_cannot_be_reached_is_no_flow():
    vpc = {"memory_pool.plane": "vpc", "deployment.prefill.instances": 1}
    apart = {"deployment.prefill.npus_per_instance": 8}
    found = machine(vpc | apart, [{"element": "Qingtian 0"}])
    assert not [f for f in found.flows if f.traffic == "pool_read"]
    assert not found.world.prefill.pool_open.any()
    assert storage_load(found.fabric, found.serving_dies(0)) is not None  # through other nodes
    gone = machine(vpc, [{"element": "VPC network"}])
    assert storage_load(gone.fabric, gone.serving_dies(0)) is None


def test_a_cache_of_an_instance_is_read_in_its_own_nodes():
    found = machine({"memory_pool.scope": "local", "memory_pool.plane": "vpc"})
    load = next(f.load for f in found.flows if f.traffic == "pool_read")
    assert found.world.traffic.alone[number(found, "pool_read", "prefill")] > 0
    assert {found.fabric.places[i].node for i in load.places} == {0}


@pytest.mark.parametrize("settings", [{}, UNALIGNED, {"memory_pool.scope": "local"}])
def test_flows_that_share_a_pattern_are_laid_out_as_if_each_had_its_own(settings):
    found = machine({"deployment.prefill.instances": 2, "supernode.nodes": 6} | settings)
    traffic, net = found.world.traffic, found.fabric
    shared = {f.load.pattern for f in found.flows if f.kind != w.WEIGHTS}
    assert len(shared) < len([f for f in found.flows if f.kind != w.WEIGHTS])
    names = ("alone", "start", "links", "server", "parts", "whole", "way", "end")
    before = {name: getattr(traffic, name).copy() for name in names}
    plane = found.setup.scenario.memory_pool.plane

    def apart(flow):
        load = settled(flow.load)
        if flow.port is None:
            return replace(flow, load=load)
        port, side = demands.server_ports(net, load.pattern, plane)
        return replace(flow, load=load, port=port, beyond=~side)

    own = [apart(flow) for flow in found.flows]
    lay_out(own, net, traffic)
    for name in names:
        np.testing.assert_array_equal(getattr(traffic, name), before[name], name)


def test_recent_answers_are_remembered_and_the_oldest_forgotten():
    known, numbers = {}, []

    def squared(n):
        return cached_answer(known, n, lambda: numbers.append(n) or n * n, max_answers=2)

    assert [squared(n) for n in (1, 2, 2, 1, 3, 3, 1)] == [1, 4, 4, 1, 9, 9, 1]
    assert numbers == [1, 2, 3, 1]
