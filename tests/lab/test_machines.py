"""An imported machine is kept by its digest, named by a scenario, and missed in a sentence."""

import json
import random

import pytest
from typer.testing import CliRunner

from twin.__main__ import app
from twin.hardware.fabric import build_fabric
from twin.hardware.graph_text import FabricFileError
from twin.hardware.imported import set_source
from twin.hardware.machine_file import fabric_text
from twin.hardware.prices import summary
from twin.hardware.recipes import recipe_names
from twin.lab.ask import scenario_and_trace
from twin.lab.library import load_facts
from twin.lab.machines import fit_to_npus, read_machine, supernode_of
from twin.lab.runs.runner import add_run
from twin.lab.share import links
from twin.lab.store import StoreError, open_store
from twin.scenario import Scenario, SpecError, Supernode, npus_used, pools, with_overrides

FACTS = load_facts()
LARGE = {"supernode.nodes": 125}  # no deployment is drawn that this machine cannot hold
RING = "from,to,GB/s,ns,plane\n" + "\n".join(
    f"die {n}.0.0,die {(n + 1) % 8}.0.0,50,200,ub" for n in range(8)
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("TWIN_DB_URL", f"sqlite:///{tmp_path / 'twin.db'}")
    opened = open_store()
    yield opened
    opened.close()


def test_a_kept_machine_is_built_again_from_the_store(store):
    machine = read_machine(RING.encode(), "ring.csv")
    digest = store.machines.save(machine)
    assert store.machines.load(digest).digest == digest == machine.digest
    assert summary(build_fabric(supernode_of("ring.csv", FACTS, store), FACTS))["npus"] == 8
    assert store.machines.get(digest).about["npus"] == 8


def test_a_scenario_of_a_machine_that_is_not_here_says_what_to_ask_for(store):
    machine = read_machine(RING.encode(), "ring.csv")
    asked, _ = scenario_and_trace("quickstart")
    own = with_overrides(asked, {"supernode.machine": machine.digest, "supernode.chip": "h800"})
    with pytest.raises(StoreError, match=r"is not stored here: ask for its file"):
        add_run(store, own, engine="tests.lab.fake_engine")
    with pytest.raises(ValueError, match="is not stored here: ask for its file"):
        build_fabric(own.supernode, FACTS)
    store.machines.save(machine)
    assert add_run(store, own, engine="tests.lab.fake_engine")


def test_a_setting_that_names_a_machine_brings_it_as_it_is_sold(store):
    asked, _ = scenario_and_trace("gb200-nvl72-decode", ["supernode.machine=gb200-nvl72"])
    assert (asked.supernode.nodes, asked.supernode.sub_planes) == (18, 18)
    mixed, _ = scenario_and_trace(
        "quickstart", ["supernode.machine=dragonfly", "supernode.l1_uplinks=20"]
    )
    assert (mixed.supernode.machine, mixed.supernode.l1_uplinks) == ("dragonfly", 20)
    store.machines.save(read_machine(RING.encode(), "ring.csv"))
    ring, _ = scenario_and_trace("gb200-nvl72-decode", ["supernode.machine=ring.csv"])
    assert ring.supernode.imported and ring.supernode.chip == "gb200"


def test_a_link_carries_a_machine_that_fits_and_names_one_that_does_not(store, tmp_path):
    machine = read_machine(RING.encode(), "ring.csv")
    store.machines.save(machine)
    asked, _ = scenario_and_trace("gb200-nvl72-decode", ["supernode.machine=ring.csv"])
    link = {"s": links.pack_scenario(asked)}
    elsewhere = open_store(f"sqlite:///{tmp_path / 'elsewhere.db'}")
    held = []
    for store_ in (elsewhere, elsewhere.for_visitor("", writes=False)):
        assert links.open_scenario(link, store_, held.append) == asked
        assert store_.machines.search().total == 0
        assert store_.missing_text(asked) == ""  # for as long as the session holds it
    add_run(elsewhere, asked, engine="tests.lab.fake_engine")
    assert elsewhere.machines.load(machine.digest).digest == machine.digest
    rng = random.Random(1)
    wide = "from,to,GB/s,ns,plane\n" + "\n".join(
        f"die {n}.0.0,switch {k},{rng.random():.9f},200,ub" for n in range(64) for k in range(64)
    )
    large = read_machine(wide.encode(), "wide.csv")
    store.machines.save(large)
    set_source(store.machines.load)
    named = with_overrides(asked, {"supernode.machine": large.digest})
    opened = links.open_scenario({"s": links.pack_scenario(named)}, elsewhere, held.append)
    assert opened == named
    assert elsewhere.missing_text(opened) == (
        f"the machine {large.digest} is not stored here: ask for its file and import that first"
    )
    elsewhere.close()


@pytest.mark.parametrize("name", recipe_names(FACTS))
def test_a_recipe_is_sold_with_fields_of_a_scenario(name):
    assert supernode_of(name, FACTS).machine == name


def command(*words):
    answer = CliRunner().invoke(app, list(words))
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_the_command_line_lists_shows_takes_and_gives_machines(store, tmp_path):
    rows = json.loads(command("machine", "list", "--json"))
    assert rows["ub-mesh"]["npus"] == 8192
    file = tmp_path / "two.csv"
    command("machine", "export", "atlas-800-a2", "--format", "csv", "--out", str(file))
    digest = json.loads(command("machine", "import", str(file), "--json"))["machine"]
    assert digest in json.loads(command("machine", "list", "--json"))
    even = json.loads(command("machine", "import", str(file), "--routing", "ecmp", "--json"))
    assert even["machine"] != digest
    shown = json.loads(command("machine", "show", digest[:12], "--json"))
    assert shown["npus"] == 32


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(ValueError, match="is not text in UTF-8"):
        read_machine(b"\xff\xfe\x00", "x.bin")
    with pytest.raises(FabricFileError, match="has no dies"):
        text = fabric_text(build_fabric(Supernode(nodes=1), FACTS), "json")
        read_machine(text.replace("die 0", "part 0").replace('"die"', '"part"').encode(), "x")


@pytest.mark.parametrize("seed", range(4))
def test_a_fitted_deployment_uses_no_more_than_the_machine_has_and_keeps_its_shape(seed):
    drawn = random.Random(seed)
    for _ in range(50):
        sizes = {
            f"deployment.{role}.{what}": drawn.randint(1, most)
            for role in ("prefill", "decode", "colocated")
            for what, most in (("instances", 9), ("npus_per_instance", 24))
        }
        mode = drawn.choice(("disaggregated", "colocated", "prefill_only", "decode_only"))
        own = with_overrides(Scenario(), {**LARGE, **sizes, "deployment.mode": mode})
        npus = drawn.randint(2, 900)
        fits = fit_to_npus(own, npus)
        assert [role for role, *_ in pools(fits)] == [role for role, *_ in pools(own)]
        smallest = min(each for _, _, each in pools(fits))
        assert 0 < npus_used(fits) <= npus and smallest >= 1


def test_the_paper_s_deployment_fits_a_machine_of_a_twelfth_and_one_of_twice_its_size():
    assert pools(fit_to_npus(Scenario(), 32)) == [("prefill", 1, 12), ("decode", 1, 20)]
    assert pools(fit_to_npus(with_overrides(Scenario(), LARGE), 768)) == [
        ("prefill", 24, 16),
        ("decode", 1, 384),
    ]
    with pytest.raises(SpecError, match="1 NPU cannot hold 2 pools"):
        fit_to_npus(Scenario(), 1)
