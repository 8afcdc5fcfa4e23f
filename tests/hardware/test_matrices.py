"""Traffic matrices over their lower bounds: what everybody may expect of a plane.

Each matrix sends one byte a second from whoever sends. Its bound is the busiest port of an end,
which no routing can relieve; on a plane that does not block, routing must reach it.
"""

import random

import numpy as np
import pytest

from tests.hardware.wired import all_to_all, demand, fabric, network
from twin.hardware.flows import load_of


def switch(ends=64):
    """All ends on one switch."""
    names = [f"e{i}" for i in range(ends)]
    return [(name, "s", 1.0) for name in names], names


def leaves_and_spines(leaves=8, ends=4, spines=4):
    """Every end has one link to its leaf, every leaf one to each spine."""
    names = [f"e{i}" for i in range(leaves * ends)]
    links = [(name, f"leaf {i // ends}", 1.0) for i, name in enumerate(names)]
    links += [(f"leaf {i}", f"spine {j}", 1.0) for i in range(leaves) for j in range(spines)]
    return links, names


def pairs(net, names, to):
    """One flow from each end to another."""
    return [demand(net, [name], [other]) for name, other in zip(names, to, strict=True)]


def permutation(names, seed):
    """Everyone sends to one other, and receives from one."""
    others = names[:]
    while any(a == b for a, b in zip(names, others, strict=True)):
        random.Random(seed).shuffle(others)
        seed += 1
    return others


# Demands of a matrix, and the busiest port of an end in bytes a second.
MATRICES = {
    "one flow": lambda net, e: ([demand(net, e[:1], e[-1:])], 1.0),
    "both ways": lambda net, e: (pairs(net, [e[0], e[-1]], [e[-1], e[0]]), 1.0),
    "8-to-1 incast": lambda net, e: ([demand(net, e[1:9], e[:1])], 8.0),
    "all-to-1 incast": lambda net, e: ([demand(net, e[1:], e[:1])], len(e) - 1.0),
    "ring": lambda net, e: (pairs(net, e, e[1:] + e[:1]), 1.0),
    "permutation": lambda net, e: (pairs(net, e, permutation(e, 1)), 1.0),
    "all-to-all": lambda net, e: ([all_to_all(net, e)], 1.0),
}
# Machine, and how many times its bound a matrix between its leaves takes at most.
PLANES = {
    "one switch": (switch(), 1.0),
    "leaf and spine": (leaves_and_spines(), 1.0),
    "a spine is gone": (leaves_and_spines(spines=3), 4 / 3),
    "half of the spines": (leaves_and_spines(spines=2), 2.0),
}


def fullest(net, demands):
    """Seconds in which the busiest link carries what is sent in one."""
    taken = np.zeros(net.capacity.size)
    for one in demands:
        load = load_of(net, one)
        assert load.unreached == ()
        taken[load.links] += load.amounts
    return float((taken / net.capacity).max())


@pytest.mark.parametrize("routing", ["adaptive", "ecmp"])
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("plane", PLANES)
def test_a_matrix_takes_its_bound_and_no_more_than_the_spines_lack(plane, matrix, routing):
    (links, names), most = PLANES[plane]
    net = network(fabric(links, names, forwarding=False, routing=routing))
    demands, bound = MATRICES[matrix](net, names)
    ratio = fullest(net, demands) / bound
    assert 1.0 - 1e-9 <= ratio <= most * (1.0 + 1e-9)
    if "incast" in matrix or matrix in ("one flow", "both ways"):
        assert ratio == pytest.approx(1.0)  # the receiver's port, however few spines there are
    if most > 1.0 and matrix == "all-to-all":  # 28 of 31 bytes leave their leaf
        assert ratio == pytest.approx(max(1.0, most * 28 / 31))
