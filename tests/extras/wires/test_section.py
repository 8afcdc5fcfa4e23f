"""The same chips and deployment on other wires."""

import pytest

from tests.draws import some
from tests.ui.conftest import patient
from twin.extras.wires import section
from twin.lab.library import presets
from twin.scenario import Scenario, with_overrides

QUICK = presets()[0].scenario


@pytest.mark.parametrize("machine", section.WIRINGS)
def test_only_the_wires_differ(machine):
    edited = with_overrides(
        QUICK, {"supernode.edits": [{"element": "node 3", "capacity_factor": 0.0}]}
    )
    asked = section.on(edited, machine)
    assert asked.supernode.machine == machine
    assert asked.supernode.chip == QUICK.supernode.chip
    assert not asked.supernode.edits
    assert (asked.deployment, asked.workload) == (QUICK.deployment, QUICK.workload)


def page(body: str):
    from twin.extras.wires.section import other_wires
    from twin.scenario import scenario_from_canonical

    other_wires(scenario_from_canonical(body))


def shown(scenario: Scenario):
    from twin.scenario import canonical

    return patient(page, args=(canonical(scenario),)).run()


@pytest.mark.parametrize(
    "wirings", some([("cloudmatrix384", "torus-3d")], section.WIRINGS), ids=len
)
def test_a_torus_gives_experts_less_than_switches_do(store, monkeypatch, wirings):
    monkeypatch.setattr(section, "WIRINGS", wirings)
    app = shown(QUICK)
    assert not app.exception
    rows = app.dataframe[0].value
    paces = dict(zip(rows["Wiring"], rows[section.TPOT], strict=True))
    rates = dict(zip(rows["Wiring"], rows[section.RATE], strict=True))
    assert len(paces) == len(section.WIRINGS)
    assert paces["3-D torus"] > paces["CloudMatrix384"]
    assert rates["3-D torus"] < rates["CloudMatrix384"]
    assert any("link" in where for where in rows["Full first"])


@pytest.mark.parametrize(
    "wirings", some([("cloudmatrix384", "torus-3d")], section.WIRINGS), ids=len
)
def test_a_deployment_that_does_not_fit_says_so(store, monkeypatch, wirings):
    monkeypatch.setattr(section, "WIRINGS", wirings)
    large = with_overrides(QUICK, {"supernode.supernodes": 2, "deployment.prefill.instances": 30})
    app = shown(large)
    assert not app.exception
    # UB-Mesh as it is sold is the only one that is large enough.
    small = [name for name in wirings if name != "ub-mesh"]
    assert len([c for c in app.caption if "NPUs" in c.value]) >= len(small)
