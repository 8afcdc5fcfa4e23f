"""Levels found only where something began or ended are those of sharing every link anew."""

import random

import numpy as np
import pytest

from tests.draws import seeds
from tests.engine.contention.test_flows import UNALIGNED, machine, number
from twin.engine.contention.levels import (
    ALL,
    FULL,
    GROUP_FLOWS,
    MOVERS,
    NONE_OF_THEM,
    clear_notes,
    find_levels,
    list_groups,
    note_demand,
)
from twin.engine.contention.traffic import set_server_loads

NARROW = [
    {"element": f"L1 {n}.0", "to": f"L2 0.{c}", "kind": "derate", "factor": 0.3}
    for n in (0, 1, 3) for c in range(4)
] + [{"element": "Qingtian 2", "kind": "derate", "factor": 0.05}]  # fmt: skip
VPC = UNALIGNED | {"memory_pool.plane": "vpc"}


def share(flows):
    """Levels with all exchanges and with none."""
    list_groups(flows)
    find_levels(flows, ALL, 0, 0)
    find_levels(flows, NONE_OF_THEM, 0, flows.duty.size)
    clear_notes(flows)
    return flows.levels[[ALL, NONE_OF_THEM]].copy()


def at_once(wants):
    """A machine that has all these flows from the start; exchanges are in no second view."""
    flows = machine(VPC, NARROW).world.traffic
    for f in np.flatnonzero(wants):
        note_demand(flows, f, wants[f])
    return flows, share(flows)


@pytest.mark.parametrize("seed", seeds(1))
def test_flows_that_come_and_go_have_the_levels_of_those_that_were_always_there(seed):
    draw = random.Random(seed)
    found = machine(VPC, NARROW)
    flows = found.world.traffic
    there = [f.number for f in found.flows if f.number >= 0]
    held = 0
    for _ in range(30):
        for f in draw.sample(there, draw.randint(1, 4)):
            note_demand(flows, f, draw.choice([0.0, 0.4, 1.0]))
        levels = share(flows)
        whole, expected = at_once(flows.most)
        other = np.arange(flows.most.size) >= flows.duty.size
        np.testing.assert_array_equal(levels[0], expected[0])
        np.testing.assert_array_equal(levels[1][other], expected[1][other])
        assert flows.counts[FULL] == whole.counts[FULL] == (whole.load > 1.0 + 1e-12).sum()
        movers = flows.movers[: flows.counts[MOVERS]]
        np.testing.assert_array_equal(movers, np.flatnonzero((flows.most > 0.0) & other))
        np.testing.assert_allclose(flows.load, whole.load, rtol=1e-12)
        held += (levels[0] < flows.most).any()
    assert held > 5


def test_a_flow_that_meets_nobody_on_a_full_link_costs_nobody_else_a_look():
    found = machine(VPC, NARROW)
    flows = found.world.traffic
    found.world.streams.requested[0] = [0, 0, 4, 0, 0]  # node 2's way is narrow
    set_server_loads(found.world, 0)
    note_demand(flows, number(found, "pool_read", "prefill", 0), 1.0)
    share(flows)
    assert flows.counts[FULL] > 0 and flows.counts[GROUP_FLOWS] == 1
    note_demand(flows, number(found, "experts", "decode", 0), 1e-3)
    share(flows)
    assert flows.counts[FULL] > 0 and flows.counts[GROUP_FLOWS] == 0


def test_a_full_server_holds_only_those_that_read_from_it():
    found = machine(VPC, NARROW)
    flows, requested = found.world.traffic, found.world.streams.requested
    one, other = (number(found, "pool_read", "prefill", k) for k in (0, 1))
    requested[0], requested[1] = [0, 0, 4, 0, 0], [4, 0, 0, 0, 0]
    for p in (0, 1):
        set_server_loads(found.world, p)
    note_demand(flows, other, 1.0)
    alone = share(flows)[0][other]
    note_demand(flows, one, 1.0)
    both = share(flows)[0]
    assert both[one] < 0.2
    assert both[other] == alone > both[one]
