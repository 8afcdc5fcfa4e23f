"""The paper's table of model caching (arXiv 2506.12708v2 Table 2), as runs have it.

The table is a calculation: 671 GB at 2.1 GB/s from a bucket, one link from DRAM, no processes.
So a small model is served here, its bucket as fast as makes a fetch take as long.
"""

from functools import cache

import polars as pl
import pytest

from tests.engine.small import BASE, facts_with, small
from twin.engine.lifecycle.loading import Dram
from twin.engine.simulate import Run, simulate
from twin.facts import Facts
from twin.hardware.fabric import build_fabric
from twin.hardware.prices import pool_read
from twin.lab.ask import scenario_named
from twin.model.costs import build_costs
from twin.scenario import Scenario, with_overrides

FACTS = facts_with({})
COLD_S = FACTS.si("startup.table.cold")
MODELS = INSTANCES = 8
MODEL_GB = 15.7  # of the small model
SCALE = 100.0  # the table's seconds pass so much faster: waits are seconds, and runs minutes
NO_START = {"startup.process": 0.0, "startup.regroup": 0.0, "startup.loader": 1e6,
            "startup.bucket": MODEL_GB / (COLD_S / SCALE)}  # fmt: skip
QUICK = facts_with(NO_START)
ONE = {
    "deployment.mode": "colocated", "deployment.colocated.instances": 1, "warmup_s": 0.0,
    "deployment.colocated.npus_per_instance": 8, "supernode.nodes": INSTANCES,
    "elastic.least_instances": 0, "elastic.idle_s": 0.0, "memory_pool.gb_per_node": 20.0,
    "memory_pool.weights_share": 0.9, "step_s": 0.05,
}  # fmt: skip


def run_of(s: Scenario, facts: Facts = QUICK) -> Run:
    """A run with every law checked."""
    made = simulate(s, facts)
    assert made.valid, [check for check in made.checks if not check["ok"]]
    return made


def took_s(made: Run, *states: str) -> list[float]:
    """Seconds of each state that an instance was in, at the table's pace."""
    lives = made.tables["lives"].filter(pl.col("state").is_in(states))
    return ((lives["end_s"] - lives["t_s"]) * SCALE).to_list()


@pytest.mark.parametrize(
    ("source", "cold_s"), [("object_storage", 2560.0), ("local", 2560.0), ("pool", 320.0)]
)
def test_a_cold_start_of_eight_instances(source: str, cold_s: float) -> None:
    rows = [{"at_s": 0.0, "prefill": 0, "decode": 0},
            {"at_s": 2.0, "prefill": INSTANCES, "decode": INSTANCES}]  # fmt: skip
    # A node without an instance fails and takes what the pool had of the model along.
    empty = {"faults": [{"at_s": 1.0, "element": f"node {INSTANCES}"}]}
    made = run_of(small(ONE | empty | {
        "elastic.controller": "schedule", "elastic.schedule": rows, "elastic.weights": source,
        "elastic.npus": 8 * INSTANCES, "supernode.nodes": INSTANCES + 1, "horizon_s": 40.0,
        "workload.rate_req_per_s": 1.0,
    }))  # fmt: skip
    fetches = took_s(made, "fetch")
    # One node's own DRAM has the model: that of the instance that served at the start.
    assert len(fetches) == INSTANCES - (source == "local")
    assert max(fetches) == pytest.approx(cold_s * len(fetches) / INSTANCES, rel=0.1)


@cache
def switches(source: str) -> Run:
    """Eight models in turns on one instance's NPUs; every request finds them free."""
    one = small(ONE | {"elastic.controller": "queue", "elastic.weights": source, "step_s": 0.1,
                       "workload.rate_req_per_s": 0.01, "horizon_s": 1500.0})  # fmt: skip
    row = {"deployment": one.deployment.model_dump(mode="json"), "elastic":
           one.elastic.model_dump(mode="json"), "workload": one.workload.model_dump(mode="json"),
           "npus_of": BASE.deployment.model}  # fmt: skip
    several = [row | {"name": f"model {k}"} for k in range(1, MODELS)]
    room = 0.0 if source == "object_storage" else 1.2 * MODEL_GB / 20.0
    return run_of(with_overrides(one, {"models": several, "memory_pool.weights_share": room}))


@pytest.mark.parametrize(
    ("source", "hit_ratio", "switch_s"),
    [
        pytest.param("object_storage", 0.0, 320.0, marks=pytest.mark.long),
        ("local", 0.125, 281.0),
        pytest.param("pool", 1.0, 5.0, marks=pytest.mark.long),
    ],
)
def test_switches_between_eight_models(source: str, hit_ratio: float, switch_s: float) -> None:
    made = switches(source)
    loads, fetches = took_s(made, "load"), took_s(made, "fetch")
    # Of the first start of each model the table does not speak.
    loads_counted = len(loads) - (MODELS - 1 if source == "pool" else 0)
    first = min(len(fetches), MODELS - 1) if source == "pool" else 0
    hits = 1.0 - (len(fetches) - first) / loads_counted
    assert len(loads) > 80
    error = 2.5 * (hit_ratio * (1.0 - hit_ratio) / len(loads)) ** 0.5
    assert hits == pytest.approx(hit_ratio, abs=error + 1e-9)
    # What DRAM takes is one NPU's link in the table, and all links of an instance here.
    fetched_s = sum(fetches[first:]) / loads_counted
    assert fetched_s == pytest.approx(switch_s - 5.0 * hit_ratio, rel=0.1, abs=1.0)


ONE_NPU = ONE | {
    "deployment.colocated.npus_per_instance": 1, "elastic.controller": "queue",
    "workload.rate_req_per_s": 0.2, "horizon_s": 60.0, "step_s": 0.002,
}  # fmt: skip


def test_a_warm_start_is_bytes_over_the_links_of_its_dies_where_loaders_are_no_limit() -> None:
    """The table's 5 s are 671 GB over about one die's link; here all dies of an instance read."""
    s = small(ONE_NPU)
    loads = took_s(run_of(s), "load")
    net = build_fabric(s.supernode, QUICK)
    role = build_costs(s, QUICK, net).colocated_role
    assert loads and role is not None
    rate = role.memory.weights * role.dies / (sum(loads) / len(loads) / SCALE)
    assert rate == pytest.approx(pool_read(net, range(role.dies), "ub").bytes_per_s, rel=0.1)


@pytest.mark.parametrize("gb_per_s", [1.0, 4.0])
def test_a_warm_start_takes_no_less_than_the_loaders_of_its_dies(gb_per_s: float) -> None:
    s = small(ONE_NPU)
    loads = took_s(run_of(s, QUICK.replaced({"startup.loader": gb_per_s})), "load")
    loads = loads[:-1]  # the end of the run may cut off the last one
    role = build_costs(s, QUICK, build_fabric(s.supernode, QUICK)).colocated_role
    assert loads and role is not None
    of_die_s = role.memory.weights / (1e9 * gb_per_s)
    assert loads == pytest.approx([of_die_s * SCALE] * len(loads), rel=0.01)


def test_a_warm_start_of_the_papers_instance_takes_seconds_as_in_its_table() -> None:
    """16 NPUs of prefill (section 5.1), 671 GB; the loaders' rate is from another machine's log."""
    s = scenario_named("quickstart")
    role = build_costs(s, FACTS, build_fabric(s.supernode, FACTS)).prefill_role
    assert role is not None
    assert role.memory.weights / FACTS.si("startup.loader") == pytest.approx(5.0, rel=0.25)


def test_dram_of_eight_instances_has_one_copy_in_the_pool_and_one_each_without() -> None:
    size = 671e9
    pool, nodes = Dram(2.0 * size), [Dram(2.0 * size) for _ in range(INSTANCES)]
    for node in nodes:
        pool.store(0, size)
        node.store(0, size)
    assert sum(pool.held.values()) == size
    assert sum(sum(node.held.values()) for node in nodes) == INSTANCES * size
