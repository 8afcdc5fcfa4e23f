"""The machine's page shows machines that are not CloudMatrix384: recipes and imported ones."""

import gc

import pytest

from tests.ui.conftest import patient
from twin.hardware.imported import make_available, set_source
from twin.hardware.recipes import as_sold
from twin.lab.library import load_facts
from twin.lab.machines import read_machine
from twin.lab.runs.runner import add_run
from twin.lab.share import links
from twin.scenario import Scenario, with_overrides
from twin.ui import access, imports, session
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


def test_the_memory_pool_tile_leaves_out_the_dram_of_a_node_that_was_taken_out(app):
    edits = [{"element": "node 3", "capacity_factor": 0.0}]
    tiles = shown(app, {"supernode.nodes": 4, "supernode.edits": edits})
    assert tiles["Memory pool, DRAM"] == "1.536 TB"
    tile = next(metric for metric in app.metric if metric.label == "Memory pool, DRAM")
    assert tile.help.endswith("1 node without a UB link of a CPU: nothing of these.")


@pytest.mark.parametrize("recipe", ["dragonfly", "gb200-nvl72", "hgx-h20", "torus-3d"])
def test_a_recipe_has_a_page(app, recipe):
    tiles = shown(app, as_sold(recipe, load_facts()))
    assert int(tiles["NPUs"].replace(",", "")) in (384, 72, 256)


def test_a_recipe_that_is_too_small_is_refused_below_its_own_field_alone(app):
    app.switch_page(PAGES["supernode"].script).run()
    key = session.field_key("supernode.machine").rpartition(":")[0]
    wiring = next(box for box in app.selectbox if box.key.startswith(key))
    wiring.set_value("gb200-nvl72").run()
    assert not app.exception
    said = [each.value for each in app.markdown if "needs 256 NPUs" in each.value]
    assert len(said) == 1


def test_an_imported_machine_has_a_page(app):
    digest = session.store().machines.save(read_machine(RING.encode(), "ring.csv"))
    tiles = shown(app, {"supernode.machine": digest, "supernode.chip": "h800"})
    assert tiles["NPUs"] == "8"
    wiring = next(box for box in app.selectbox if box.label == "Wiring")
    assert "Imported: ring.csv" in wiring.options
    assert not {"Nodes", "UB link (GB/s)"} & {number.label for number in app.number_input}


def used(app, cables, **fields):
    """The page of a draft that uses a cable list, with its File tab open."""
    machine = read_machine(cables.encode(), "mine.csv")
    session.store().machines.save(machine)
    app.run()
    base = with_overrides(Scenario(), SMALL | {"supernode.chip": "h800"} | fields)
    app.session_state["history"] = [imports.MACHINES.put_into(base, machine)]
    app.session_state["position"] = 0
    app.session_state["supernode-tab"] = "File"
    return app.switch_page(PAGES["supernode"].script).run()


def without(cables, *parts):
    """A cable list without lines that hold one of these parts."""
    return "\n".join(line for line in cables.split("\n") if not any(p in line for p in parts))


def test_a_machine_without_cpus_is_used_without_a_memory_pool(app):
    at = used(app, without(RING, "CPU"))
    assert not at.exception and not at.error
    assert at.session_state["history"][-1].memory_pool.enabled is False
    assert not [metric for metric in at.metric if metric.value == "cut off"]
    assert used(app, RING).session_state["history"][-1].memory_pool.enabled is True


def test_a_deployment_is_fitted_to_the_npus_that_can_serve(app):
    at = used(app, without(RING, "die 3.0.0,die 4.0.0", "die 4.0.0,die 5.0.0", "CPU 4.0"))
    assert "only 7 of 8 are on (node 4 off): take fewer" in at.error[0].value
    fit = next(button for button in at.button if button.key == "fit-deployment")
    assert "7 of its 8 NPUs" in fit.label
    fit.click().run()
    assert not at.exception and not at.error


@pytest.mark.parametrize("mode", ["", access.READ_ONLY])
def test_a_link_with_a_machine_opens_and_stores_nothing(app, store, monkeypatch, mode):
    monkeypatch.setenv(access.VARIABLE, mode)
    machine = read_machine(RING.encode(), "ring.csv")
    make_available(machine)
    named = {"supernode.machine": machine.digest, "supernode.chip": "h800"}
    packed = links.pack_scenario(with_overrides(Scenario(), SMALL | named))
    del machine  # it is in the link alone
    gc.collect()
    set_source(store.machines.load)
    for page in ("start", "supernode"):
        app.switch_page(PAGES[page].script)
        app.query_params["s"] = packed
        app.run()
        assert not app.exception and not app.error
        gc.collect()
    assert next(m.value for m in app.metric if m.label == "NPUs") == "8"
    assert store.machines.search().total == 0
    draft = app.session_state["history"][-1]
    if not mode:
        add_run(store, draft)
        assert store.machines.search().total == 1


def upload_form() -> None:
    """The script under test: the uploader of the Supernode page alone."""
    from twin.ui import imports

    imports.draw_upload(imports.MACHINES)


def test_a_machines_file_is_read_by_a_process_apart(store, monkeypatch):
    read, seen = imports.read_in_process, []
    monkeypatch.setattr(
        imports, "read_in_process", lambda *asked: seen.append(asked[-1]) or read(*asked)
    )
    at = patient(upload_form).run()
    at.file_uploader[0].upload("apart.csv", RING.encode(), "text/csv").run()
    assert not at.exception and not at.error
    assert seen == ["apart.csv"]
