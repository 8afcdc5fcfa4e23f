"""Every recipe, and a machine from a file, serves a small run that keeps the engine's laws."""

import pytest

from tests.engine.small import small
from twin.engine.setup import set_up
from twin.engine.simulate import result_digest, simulate
from twin.hardware.fabric import build_fabric
from twin.hardware.imported import set_source
from twin.hardware.machine_file import fabric_text, read_machine
from twin.hardware.recipes import as_sold, recipe_names
from twin.lab.library import load_facts
from twin.scenario import Supernode

FACTS = load_facts()
SIZE = {
    "dragonfly": {"nodes": 6, "dimensions": "3x2"},
    "full-mesh": {"nodes": 4, "dimensions": "2x2"},
    "torus-3d": {"nodes": 4, "dimensions": "4x4x2"},
    "ub-mesh": {"nodes": 8},
}
SHORT = {"horizon_s": 2.0, "warmup_s": 0.5, "deployment.precision.weights": "bf16"}


def of_recipe(name):
    size = SIZE.get(name, {"nodes": 4})
    return as_sold(name, FACTS) | {f"supernode.{key}": value for key, value in size.items()}


@pytest.mark.parametrize("name", recipe_names(FACTS))
def test_a_recipe_serves(name):
    run = simulate(small(SHORT | of_recipe(name)), FACTS)
    assert run.valid, [c for c in run.checks if not c["ok"]]
    assert run.summary["finished"] > 20
    links = run.tables["links"]
    assert links["bytes"].sum() > 0.0 and links["utilisation_mean"].max() <= 1.01


@pytest.mark.parametrize(("name", "kind"), [("full-mesh", "json"), ("gb200-nvl72", "csv")])
def test_a_machine_serves_as_well_from_its_file(name, kind):
    overrides = SHORT | of_recipe(name)
    text = fabric_text(build_fabric(small(overrides).supernode, FACTS), kind)
    machine = read_machine(text, "file")
    set_source({machine.digest: machine}.__getitem__)
    again = small(overrides | {"supernode.machine": machine.digest})
    one, other = (simulate(s, FACTS) for s in (small(overrides), again))
    assert result_digest({"requests": one.tables["requests"]}) == result_digest(
        {"requests": other.tables["requests"]}
    )


def test_counts_of_an_imported_machine_are_its_own():
    lines = ["from,to,GB/s,ns,plane"]
    lines += [f"die {n}.{i}.0,switch {n % 2},100,300,ub" for n in range(5) for i in range(4)]
    lines += ["switch 0,switch 1,400,300,ub"]
    machine = read_machine("\n".join(lines), "own.csv")
    set_source({machine.digest: machine}.__getitem__)
    overrides = SHORT | {
        "supernode": Supernode(machine=machine.digest, chip="h800", nodes=1).model_dump(),
        "deployment.kv_transfer_plane": "ub",
        "memory_pool.enabled": False,
    }
    run = simulate(small(overrides), FACTS)
    assert run.valid and run.tables["links"].filter(plane="ub").height == 2 * 5
    with pytest.raises(ValueError, match="needs 24 NPUs but the machine has 20"):
        simulate(small(overrides | {"deployment.prefill.npus_per_instance": 8}), FACTS)


def test_the_memory_pool_is_the_dram_of_nodes_with_cpus_with_or_without_npus():
    """Nodes 0 and 1 have CPUs; node 5 is one of CPUs alone, a pooled one (paper, section 6.2)."""
    lines = ["from,to,GB/s,ns,plane"]
    lines += [f"die {n}.{i}.0,switch {n % 2},100,300,ub" for n in range(5) for i in range(4)]
    lines += [f"CPU {n}.0,switch {n % 2},100,300,ub" for n in (0, 1, 5)]
    lines += ["switch 0,switch 1,400,300,ub"]
    machine = read_machine("\n".join(lines), "pooled.csv")
    set_source({machine.digest: machine}.__getitem__)
    overrides = SHORT | {
        "supernode": Supernode(machine=machine.digest, chip="h800", nodes=1).model_dump(),
        "deployment.kv_transfer_plane": "ub",
        "workload.prefix": "shared",
        "memory_pool.gb_per_node": 1.0,
    }
    setup = set_up(small(overrides), FACTS, None)
    assert setup.pool_nodes(0) == (0, 1, 5)
    block_bytes = setup.requests.block_tokens * setup.costs.kv_bytes_per_token
    assert setup.pool_blocks == int(3e9 / block_bytes)
    run = simulate(small(overrides), FACTS)
    assert run.valid and run.summary["hit_token_ratio"] > 0.1


def test_a_node_taken_out_lends_no_dram():
    overrides = SHORT | {"workload.prefix": "shared", "memory_pool.gb_per_node": 1.0}
    taken_out = overrides | {"supernode.edits": [{"element": "node 3", "capacity_factor": 0.0}]}
    whole, left = (set_up(small(settings), FACTS, None) for settings in (overrides, taken_out))
    assert (whole.pool_nodes(0), left.pool_nodes(0)) == ((0, 1, 2, 3), (0, 1, 2))
    assert left.pool_blocks == pytest.approx(0.75 * whole.pool_blocks, abs=1)
    run = simulate(small(taken_out), FACTS)
    assert run.valid and set(run.tables["servers"]["node"]) == {0, 1, 2}
