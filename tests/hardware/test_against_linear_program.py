"""All-to-all against the best any routing could do: a linear program over every path.

The price supposes that a die sprays all its bytes alike, wherever they go; so no routing may be
worse, and where nothing stays in the node none may be better.
"""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric, edited
from twin.hardware.routes import all_to_all
from twin.hardware.tables import tables
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
BARE = build_fabric(Supernode(nodes=3, npus_per_node=2, sub_planes=3, l1_uplinks=4), FACTS)
EVERY, ONE_A_NODE = range(12), [1, 6, 11]

FAULTS = [
    {},
    {"element": "L2 1.2"},
    {"element": "sub-plane 2"},
    {"element": "L1 1.0"},
    {"element": "L1 1.0", "to": "L2 0.3"},
    {"element": "L1 1.0", "to": "sub-plane 0"},
    {"element": "die 1.1.0", "to": "L1 1.2"},
    {"element": "sub-plane 0", "capacity_factor": 0.4},
    {"element": "L1 2.1", "capacity_factor": 0.3},
    {"element": "die 1.1.0", "capacity_factor": 0.7},
    {"element": "L2 0.0", "capacity_factor": 0.1},
]


def best_rate(fabric, dies):
    """Most bytes/s every die can send to all others when any path may carry any bytes."""
    t = tables(fabric)
    nodes, planes, chips = t.uplinks.shape
    rows, columns, sums = [], [], []  # (constraint, variable)
    limits = {}
    variable = itertools.count(1)  # 0 is the rate

    def over(link, capacity, v):
        limits.setdefault(link, (len(limits), capacity))
        rows.append(limits[link][0])
        columns.append(v)

    for pair, (i, j) in enumerate(itertools.permutations(dies, 2)):
        a, b = i // t.dies_per_node, j // t.dies_per_node
        ways = range(1) if a == b else range(chips)
        for p, c in itertools.product(range(planes), ways):
            v = next(variable)
            sums.append((pair, v))
            over(("out", i, p), t.die_links[i, p], v)
            over(("in", j, p), t.die_links[j, p], v)
            if a != b:
                over(("up", a, p, c), t.uplinks[a, p, c], v)
                over(("down", b, p, c), t.uplinks[b, p, c], v)
    count = next(variable)
    pairs = len(dies) * (len(dies) - 1)
    share = [(pair, 0, -1.0 / (len(dies) - 1)) for pair in range(pairs)]
    each, at, weight = zip(*share, *((k, v, 1.0) for k, v in sums), strict=True)
    found = linprog(
        np.append(-1.0, np.zeros(count - 1)),
        A_ub=coo_matrix((np.ones(len(rows)), (rows, columns)), (len(limits), count)),
        b_ub=np.array([capacity for _, capacity in limits.values()]) / 1e9,
        A_eq=coo_matrix((weight, (each, at)), (pairs, count)),
        b_eq=np.zeros(pairs),
    )
    return found.x[0] * 1e9


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_one_fault_costs_what_the_best_routing_loses(fault):
    fabric = edited(BARE, edits=[Edit(**{"capacity_factor": 0.0} | fault)] if fault else [])
    price = all_to_all(fabric, ONE_A_NODE, operation="nominal").bytes_per_s
    assert price == pytest.approx(best_rate(fabric, ONE_A_NODE), rel=1e-6)
    whole = all_to_all(fabric, EVERY, operation="nominal").bytes_per_s
    assert 0.6 * best_rate(fabric, EVERY) <= whole <= best_rate(fabric, EVERY) * (1 + 1e-6)


def test_what_no_routing_can_do_is_refused():
    fabric = edited(BARE, remove=[f"L1 1.{p}" for p in range(3)])
    assert best_rate(fabric, EVERY) == pytest.approx(0.0)
    with pytest.raises(HardwareError, match="cut off"):
        all_to_all(fabric, EVERY)
