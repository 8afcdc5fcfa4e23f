"""Large problems end at the same optimum as small ones, and soon where links are gone."""

import numpy as np
import pytest

from tests.hardware.test_flows import DEMANDS, best_possible, fullest, random_machine
from tests.hardware.wired import fabric, network
from twin.hardware import demands, quotient, spread
from twin.hardware.fabric import build_fabric, with_edits
from twin.hardware.walks import Walks
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()


@pytest.fixture
def large(monkeypatch):
    """Every problem counts as a large one."""
    monkeypatch.setattr(spread, "LARGE", 0)
    monkeypatch.setattr(quotient, "MANY", 0)


@pytest.mark.parametrize("bound", ["LARGE", "SLOW", "MANY"])
@pytest.mark.parametrize("kind", DEMANDS)
def test_a_large_problem_is_as_good_as_the_linear_program(monkeypatch, kind, bound):
    monkeypatch.setattr(quotient if bound == "MANY" else spread, bound, 0)  # all count as one
    for seed in range(100, 106):
        links, ends, draw = random_machine(seed)
        graph = fabric(links, ends)
        net = network(graph)
        asked = DEMANDS[kind](net, ends, draw)
        best = best_possible(graph, net, asked)
        assert best * (1 - 1e-6) <= fullest(net, asked) <= 1.03 * best, seed


def test_a_dead_link_of_a_mesh_costs_few_slow_turns(monkeypatch):
    mesh = Supernode(nodes=256, machine="ub-mesh", chip="ascend-950dt", sub_planes=4)
    wired = network(build_fabric(mesh, FACTS))
    turns, rates, real = {0: 0, np.inf: 0}, [], Walks.split_by_weight
    for bound in turns:

        def counted(*of, bound=bound):
            turns[bound] += 1
            return real(*of)

        monkeypatch.setattr(Walks, "split_by_weight", counted)
        monkeypatch.setattr(spread, "SLOW", bound)
        net = with_edits(wired, [Edit(element="port 1.3", to="port 1.4", capacity_factor=0.0)])
        rates.append(demands.pool_load(net, range(64), operation="write")[0].rate_alone(net)[0])
    assert rates[0] == pytest.approx(rates[1], rel=spread.GAP)
    assert 0 < turns[0] <= 2 * spread.MIX < turns[np.inf]


@pytest.mark.parametrize("to", ["L1 1.2", "L2 2.1", ""])
@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_dead_link_costs_few_turns_of_a_large_problem(large, monkeypatch, to, operation):
    turns = []
    real = Walks.split_by_weight
    monkeypatch.setattr(Walks, "split_by_weight", lambda *of: turns.append(1) or real(*of))
    wired = network(build_fabric(Supernode(nodes=12, l2_levels=2, l2_ports_per_chip=8), FACTS))
    element = "L1 1.2" if to.startswith("L2") else "die 1.3.1"
    net = with_edits(wired, [Edit(element=element, to=to, capacity_factor=0.5)])
    rate, _ = demands.pool_load(net, range(32), operation=operation)[0].rate_alone(net)
    whole, _ = demands.pool_load(wired, range(32), operation=operation)[0].rate_alone(wired)
    assert 0.0 < rate <= whole and len(turns) < spread.MIX
    monkeypatch.setattr(spread, "LARGE", np.inf)
    monkeypatch.setattr(quotient, "MANY", np.inf)
    small = with_edits(wired, [Edit(element=element, to=to, capacity_factor=0.5)])
    assert rate == pytest.approx(
        demands.pool_load(small, range(32), operation=operation)[0].rate_alone(small)[0],
        rel=spread.GAP,
    )
