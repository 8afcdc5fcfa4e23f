"""No plane carries more than it has, however slow one of them is, and nothing where it is gone."""

import pytest

from twin.engine.simulate import simulate
from twin.lab.library import load_facts, presets
from twin.scenario import with_overrides

SMALL = {
    "horizon_s": 40.0,
    "warmup_s": 10.0,
    "deployment.prefill.instances": 1,
    "deployment.decode.npus_per_instance": 16,
}
NODE = {"supernode.scale_up": "node"}
SLOW_UB = NODE | {"supernode.ub_link_gb_per_s": 0.3}
MACHINES = {
    "storage network gone": {
        "supernode.nodes": 8,
        "supernode.edits": [{"element": "VPC network", "capacity_factor": 0.0}],
    },
    "UB slower than RDMA": SLOW_UB | {"supernode.nodes": 4},
    "UB a third of RDMA": NODE | {"supernode.nodes": 8, "supernode.ub_link_gb_per_s": 1.0},
    "colocated on a slow UB": SLOW_UB
    | {
        "supernode.nodes": 4,
        "deployment.mode": "colocated",
        "deployment.colocated.instances": 1,
        "deployment.colocated.npus_per_instance": 16,
    },
    "hardly any RDMA": NODE
    | {"supernode.nodes": 8, "supernode.rdma_gb_per_s_per_npu": 0.1}
    | {
        "deployment.model": "deepseek-v2-lite",
        "deployment.decode.mtp_draft_tokens": 0,
        "deployment.prefill.npus_per_instance": 5,
    },
}


@pytest.mark.parametrize("name", MACHINES)
def test_no_plane_carries_more_than_it_has(name):
    asked = with_overrides(presets()[0].scenario, SMALL | MACHINES[name])
    run = simulate(asked, load_facts())
    assert [check for check in run.checks if not check["ok"]] == []
    if name == "storage network gone":
        assert run.tables["windows"]["vpc_utilisation"].sum() == 0.0
