"""The machine's page shows machines that are not CloudMatrix384: recipes and imported ones."""

import pytest

from twin.hardware.recipes import as_sold
from twin.lab.library import load_facts
from twin.lab.machines import read_machine
from twin.scenario import Scenario, with_overrides
from twin.ui import session
from twin.ui.pages import PAGES

RING = "from,to,GB/s,ns,plane\n" + "\n".join(
    line
    for n in range(8)
    for line in (
        f"die {n}.0.0,die {(n + 1) % 8}.0.0,50,200,ub",
        f"CPU {n}.0,die {n}.0.0,20,300,ub",
        f"die {n}.0.0,NIC {n}.0.0,25,300,rdma",
        f"NIC {n}.0.0,RDMA network,25,300,rdma",
    )
)
SMALL = {
    "deployment.prefill.instances": 1,
    "deployment.prefill.npus_per_instance": 4,
    "deployment.decode.npus_per_instance": 4,
    "deployment.model": "deepseek-v2-lite",
    "deployment.precision.weights": "bf16",
}


def shown(app, fields):
    at = app.run()
    at.session_state["history"] = [with_overrides(Scenario(), SMALL | fields)]
    at.session_state["position"] = 0
    at = at.switch_page(PAGES["supernode"].script).run()
    assert not at.exception
    assert not at.error, at.error[0].value
    return {metric.label: metric.value for metric in at.metric}


@pytest.mark.parametrize("recipe", ["dragonfly", "gb200-nvl72", "hgx-h20", "torus-3d"])
def test_a_recipe_has_a_page(app, recipe):
    tiles = shown(app, as_sold(recipe, load_facts()))
    assert int(tiles["NPUs"].replace(",", "")) in (384, 72, 256)


def test_an_imported_machine_has_a_page(app):
    digest = session.store().machines.save(read_machine(RING.encode(), "ring.csv"))
    tiles = shown(app, {"supernode.machine": digest, "supernode.chip": "h800"})
    assert tiles["NPUs"] == "8"
