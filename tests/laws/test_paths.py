"""Every byte that is booked is on a path: it leaves and enters where links are, once."""

import polars as pl
import pytest

from tests.draws import some
from tests.engine.lifecycle.test_elastic import BUSY, SWAP
from tests.engine.lifecycle.test_elastic import run as run_elastic
from tests.engine.small import MODES, facts_with_kv_space, run, small
from tests.engine.test_movement import HURT
from tests.engine.test_swap import FULL, SPACE
from tests.engine.test_swap import SWAP as SWAPS
from tests.laws.any_scenario import any_scenario
from tests.laws.lawful import lawful
from twin.engine.simulate import simulate
from twin.facts import FactError
from twin.lab.library import load_facts

STORED = {
    "workload.prefix": "sessions",
    "workload.turn_gap_s": 0.3,
    "workload.rate_req_per_s": 60.0,
    "memory_pool.answers": True,
}
WHO = ["plane", "traffic", "role", "instance"]
COMES = BUSY | {
    "elastic.controller": "schedule",
    "elastic.npus": 32,
    "elastic.schedule": [{"at_s": 2.0, "prefill": 2, "decode": 4}],
}
FROM_STORAGE = COMES | {"elastic.weights": "object_storage", "horizon_s": 40.0}
# Ends within the supernode of what comes from beyond it or goes there.
ONE_END = {"ssd_read": ["in"], "ssd_write": ["out"]}


def off_the_paths(tables):
    """Counters of bytes without a path, as (plane, class, role) with the ends that are missing."""
    booked = tables["traffic"].group_by(WHO).agg(pl.col("bytes").sum())
    ends = tables["shares"].group_by(WHO).agg(pl.col("direction").unique().sort())
    found = []
    for plane, traffic, role, _, _, have in booked.join(ends, on=WHO, how="left").rows():
        ends_here = ONE_END.get(traffic, ["in", "out"])
        if (plane, traffic) == ("vpc", "weights"):  # of object storage
            ends_here = ["in"]
        missing = sorted({*ends_here} - {*(have or [])})
        if missing:
            found.append((plane, traffic, role, missing))
    return found


def astray(tables):
    """By plane and direction, how far the bytes on links are off those that are booked."""
    booked = tables["traffic"].group_by(WHO).agg(pl.col("bytes").sum())
    ends = tables["shares"].select(*WHO, "direction").unique()
    by = ["plane", "direction"]
    expected = booked.join(ends, on=WHO).group_by(by).agg(pl.col("bytes").sum())
    carried = tables["links"].group_by(by).agg(pl.col("bytes").sum().alias("carried"))
    both = expected.join(carried, on=by, how="left")
    return both.select((pl.col("carried") / pl.col("bytes") - 1.0).abs().max()).item() or 0.0


# The first decode instance lies in two supernodes, the second within one.
ACROSS = {
    "supernode.supernodes": 2,
    "supernode.nodes": 2,
    "deployment.decode.npus_per_instance": 12,
}
# Storage is reached by the NICs of dies, not by DPUs, and blocks overflow to SSD.
BY_NICS = STORED | {"supernode.machine": "cloudmatrix-unified", "memory_pool.ssd_gb_per_node": 4.0}


@pytest.mark.parametrize(
    "settings",
    [STORED | {"deployment.mode": mode} for mode in MODES]
    + [STORED | {"memory_pool.plane": "vpc"}, HURT, ACROSS, BY_NICS]
    + [BY_NICS | {"memory_pool.plane": "vpc", "deployment.kv_transfer_plane": "vpc"}],
    ids=str,
)
def test_every_counter_of_bytes_is_on_a_path(settings):
    tables = run(settings).tables
    assert off_the_paths(tables) == []
    assert astray(tables) < 1e-9


@pytest.mark.parametrize("plane", ["ub", "vpc"])
@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "decode_only"])
def test_bytes_of_swapped_kv_are_on_paths(mode, plane):
    """Also of an instance that has a node and a half."""
    s = small(
        FULL | STORED | {"workload.rate_req_per_s": 200.0, "workload.turn_gap_s": 5.0}
        | {"deployment.mode": mode, SWAPS: 5.0, "memory_pool.plane": plane}
        | {"supernode.nodes": 6, "deployment.decode.npus_per_instance": 12}
    )  # fmt: skip
    made = simulate(s, facts_with_kv_space(s, SPACE))
    lawful(made)
    assert off_the_paths(made.tables) == []
    assert astray(made.tables) < 1e-9
    assert made.tables["traffic"]["traffic"].is_in(["swap"]).any()


@pytest.mark.parametrize(
    "settings",
    [SWAP, COMES, FROM_STORAGE, FROM_STORAGE | {"supernode.machine": "cloudmatrix-unified"}],
)
def test_bytes_of_instances_that_come_and_go_are_on_paths(settings):
    """Also the weights that one loads before it serves."""
    tables = run_elastic(settings).tables
    assert off_the_paths(tables) == []
    assert astray(tables) < 1e-9
    assert tables["traffic"]["traffic"].is_in(["weights"]).any()


@pytest.mark.parametrize("number", some([3, 17], *range(100, 300)))
def test_bytes_of_any_scenario_are_on_paths(number):
    scenario, trace = any_scenario(number)
    try:
        tables = simulate(scenario, load_facts(), trace).tables
    except (ValueError, FactError):
        return  # refused in a sentence, which other tests read
    assert off_the_paths(tables) == []
    assert astray(tables) < 1e-9
