"""A machine comes back from its file as it was; what is no machine is told why in one sentence."""

import json

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.hardware.wired import edited, edits_of, network
from twin.hardware.fabric import build_fabric, network_as_built
from twin.hardware.graph_text import FabricFileError, forms
from twin.hardware.imported import set_source
from twin.hardware.machine_file import MOST_VERTICES, fabric_text, read_machine
from twin.hardware.prices import all_to_all, nic, pool_read, port_rates, summary
from twin.hardware.recipes import as_sold
from twin.lab.library import load_facts
from twin.scenario import Supernode

FACTS = load_facts()
SMALL = {
    "cloudmatrix384": {"nodes": 3},
    "cloudmatrix-unified": {"nodes": 2},
    "gb200-nvl72": {"nodes": 4},
    "dragonfly": {"nodes": 6, "dimensions": "3x2"},
    "torus-3d": {"nodes": 2, "dimensions": "4x2x2"},
    "hgx-h20": {"nodes": 3},
    "ub-mesh": {"nodes": 8},
}
HEAD = "from,to,GB/s,ns,plane\n"


def small(recipe):
    sold = as_sold(recipe, FACTS) | {f"supernode.{k}": v for k, v in SMALL[recipe].items()}
    return Supernode(**{path.split(".")[1]: value for path, value in sold.items()})


def imported(text, chip="ascend-910c"):
    machine = read_machine(text, "machine")
    set_source({machine.digest: machine}.__getitem__)
    return build_fabric(Supernode(machine=machine.digest, chip=chip), FACTS)


def prices(fabric):
    return [
        all_to_all(fabric, range(12)).bytes_per_s,
        pool_read(fabric, range(8)).bytes_per_s,
        nic(fabric, 3, "rdma").bytes_per_s,
        nic(fabric, 3, "vpc").bytes_per_s,
        *(float(port_rates(fabric, plane).sum()) for plane in ("ub", "rdma", "vpc")),
    ]


@pytest.mark.parametrize("kind", [kind for kind in forms() if kind != "csv"])
@pytest.mark.parametrize("recipe", SMALL)
def test_a_recipe_comes_back_as_it_was_built(recipe, kind):
    s = small(recipe)
    fabric = edited(build_fabric(s, FACTS), edits_of(scale={"node 1": 0.5}))
    back = imported(fabric_text(fabric, kind), s.chip)
    assert prices(back) == pytest.approx(prices(fabric))
    assert summary(back) == pytest.approx(summary(fabric))
    assert back.about["layout"] == fabric.about["layout"]
    assert network_as_built(back) is back


@pytest.mark.parametrize("recipe", ["cloudmatrix384", "gb200-nvl72", "hgx-h20"])
def test_a_cable_list_says_enough_to_price_a_machine(recipe):
    s = small(recipe)
    fabric = build_fabric(s, FACTS)
    back = imported(fabric_text(fabric, "csv"), s.chip)
    lossless = fabric.graph()
    lossless.graph["beyond_node"] = 1.0  # a cable list knows no loss on the way out of a node
    assert prices(back) == pytest.approx(prices(network(lossless)))


def test_the_order_of_a_file_and_its_name_are_not_part_of_the_machine():
    lines = [f"die {n}.0.0,switch {k},{10 + k},100,ub" for n in range(4) for k in range(2)]
    one, other = (read_machine(HEAD + "\n".join(rows), name)
                  for rows, name in ((lines, "a"), (lines[::-1], "b")))  # fmt: skip
    assert one.digest == other.digest
    assert one.digest != read_machine(HEAD + "\n".join(lines[1:]), "a").digest


def test_edits_and_names_work_on_an_imported_machine():
    lines = [f"die {n}.0.0,switch {k},10,100,ub" for n in range(4) for k in range(2)]
    fabric = imported(HEAD + "\n".join(lines), "h800")
    before = all_to_all(fabric, range(4)).bytes_per_s
    assert all_to_all(edited(fabric, edits_of(["switch 1"])), range(4)).bytes_per_s == before / 2


def test_dies_joined_without_a_switch_pass_on_what_is_for_others():
    ring = [f"die {n}.0.0,die {(n + 1) % 6}.0.0,10,100,ub" for n in range(6)]
    price = all_to_all(imported(HEAD + "\n".join(ring), "h800"), range(6))
    # On average 1.8 hops of 6 links of both ways: (2 * 6 * 10) / (6 * 1.8) GB/s a die.
    assert price.bytes_per_s == pytest.approx(0.8 * 120e9 / 10.8, rel=0.01)


def test_uneven_nodes_and_missing_parts_are_legal():
    lines = [
        f"die {n}.{i}.0,L1 {n}.0,20,100,ub" for n, npus in enumerate((4, 2, 1)) for i in range(npus)
    ]
    lines += [f"L1 {n}.0,L2 0.0,{rate},100,ub" for n, rate in enumerate((80, 40, 20))]
    fabric = imported(HEAD + "\n".join(lines), "h800")
    assert summary(fabric)["npus"] == 7
    assert network(fabric).node[network(fabric).dies].tolist() == [0, 0, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_cable_list_may_have_semicolons_or_tabs(separator):
    text = HEAD + "die 0.0.0,switch,10.5,100,ub\ndie 1.0.0,switch,10.5,100,ub\n"
    machine = read_machine(text, "file")
    assert read_machine(text.replace(",", separator), "file").digest == machine.digest
    with pytest.raises(FabricFileError, match=r"Line 2 is not .* written like 28.5"):
        read_machine(text.replace(",", ";").replace(".5", ",5"), "file")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("from,to\na,b", "no column GB/s, ns, plane"),
        (HEAD, "The machine has no dies"),
        (HEAD + "die 0.0.0,die 1.0.0,-3,1,ub", "needs a rate of 0 to"),
        (HEAD + "die 0.0.0,die 1.0.0,inf,1,ub", "needs a rate of 0 to"),
        (HEAD + "die 0.0.0,die 1.0.0,fast,1,ub", "Line 2 is not from, to"),
        (HEAD + "die 0.0.0,die 1.0.0,3,1,ether", "is on no plane"),
        (HEAD + "die 0.0.0,die 1.0.0,3,1,ub\n" * 2, "stands there twice"),
        (HEAD + "die 0.0.0,die 0.0.0,3,1,ub", "does not join two vertices"),
        (HEAD + "die 0.0.0,die 1.0.0,0,1,ub", "No path of links joins any two dies"),
        (HEAD + "die 0.3.0,s,1,1,ub\ndie 0.3.0,RDMA network,1,1,rdma", "cable it to 'NIC 0.3.0'"),
        (HEAD + "die 0.0.0,s,1,1,ub\ndie 1.0.0,t,1,1,ub", "No path of links joins any two dies"),
        (HEAD + "die 0.0.0,die 0.0.1,1,1,ub\ndie 0.0.0,die 1.0.0,1,1,ub", "every NPU needs"),
        (HEAD + "die 99999.0.0,die 1.0.0,1,1,ub", "node must be a whole number"),
        ("{", "The file is not JSON"),
        ('{"graph": ' + "[" * 100_000, "The file is not JSON that can be read: it is nested too"),
        ('{"graph": NaN}', "NaN is no number"),
        ('{"graph": {}, "nodes": []}', "lists `nodes` and `edges`"),
        ('{"graph": {}, "nodes": [1], "edges": []}', "must be an object"),
        ("{" + "[[]," * 500_001, "more than 1,000,000 parts"),
        (" " * 48_000_001, "longer than 48 million"),
        (json.dumps({"graph": {}, "nodes": [{"id": "die 0.0.0"}, {"id": "die 1.0.0"}], "edges": [
            {"source": "die 0.0.0", "target": "die 1.0.0", "capacity_bytes_per_s": 1,
             "latency_s": 0, "plane": {}}]}), "is on no plane"),
        (json.dumps({"graph": {}, "nodes": [{"id": "die 0.0.0"}, {"id": "die 1.0.0"}], "edges": [
            {"source": "die 0.0.0", "target": "die 1.0.0", "capacity_bytes_per_s": 10**4000,
             "latency_s": 0}]}), "needs a rate of 0 to"),
        (json.dumps({"graph": {}, "nodes": [{"id": "die 0.0.0"}, {"id": "die 1.0.0"}], "edges": [
            {"source": "die 0.0.0", "target": "die 1.0.0"}]}), "capacity_bytes_per_s of a graph's"),
        ('{"graph": {}, "nodes": [{"id": "die 0.0.0"}, {"id": "die 0.0.0"}], "edges": []}', "tw"),
        (HEAD + "\n" * 1_000_001, "more than 1,000,000 parts"),
    ],
)  # fmt: skip
def test_what_is_no_machine_is_told_why(text, sentence):
    with pytest.raises(FabricFileError, match=sentence) as refused:
        read_machine(text, "file")
    assert "\n" not in str(refused.value)


def test_every_fault_has_its_sentence_up_to_a_screenful():
    cables = [f"die {n}.0.0,switch 0,-1,1,ub" for n in range(25)]
    with pytest.raises(FabricFileError) as refused:
        read_machine(HEAD + "\n".join(cables), "file")
    assert len(refused.value.faults) == 21
    assert refused.value.faults[-1] == "And 5 faults more."


def test_faults_alike_are_one_sentence():
    cables = [f"die {n}.0.0,switch 0,1,1,UB" for n in range(25)] + ["die 0.0.0,switch 0,1,1,ub"]
    with pytest.raises(FabricFileError) as refused:
        read_machine(HEAD + "\n".join(cables), "file")
    assert str(refused.value.named("a.csv")) == (
        "a.csv: The link of 'die 0.0.0' and 'switch 0' is on no plane: take one of ub, rdma, vpc, "
        "package. 24 faults more like this. The link of 'die 0.0.0' and 'switch 0' stands there "
        "twice: add up parallel cables in one line."
    )


def test_other_tools_read_what_is_written():
    fabric = build_fabric(small("cloudmatrix384"), FACTS)
    graph = nx.node_link_graph(json.loads(fabric_text(fabric, "json")), edges="edges")
    assert {*graph} == {*fabric.graph()} and {*graph.edges} == {*fabric.graph().edges}


def test_a_million_vertices_are_refused_at_once():
    nodes = ",".join(f'{{"id": "switch {i}"}}' for i in range(MOST_VERTICES + 1))
    with pytest.raises(FabricFileError, match=r"100,001 vertices .* at most 100,000"):
        read_machine(f'{{"graph": {{}}, "nodes": [{nodes}], "edges": []}}', "file")


NODES = st.dictionaries(
    st.sampled_from(["id", "kind", "node", "npu", "die", "domain", "forwards", "rack", "grid"]),
    st.sampled_from(["die 0.0.0", "die 1.0.0", "l2", "die", 0, -1, 1.5, None, True, [], "x" * 99]),
)
LINKS = st.dictionaries(
    st.sampled_from(
        [
            "source",
            "target",
            "capacity_bytes_per_s",
            "latency_s",
            "plane",
            "serves",
            "links",
            "sub_plane",
            "kind",
            "read_efficiency",
        ]
    ),  # fmt: skip
    st.sampled_from(
        ["die 0.0.0", "die 1.0.0", "ub", "rdma", 1e9, 0, -1, 10**400, None, True, [], 1]
    ),
)


@given(nodes=st.lists(NODES, max_size=4), links=st.lists(LINKS, max_size=4))
@draws(150)
def test_a_file_is_a_machine_or_refused(nodes, links):
    base = [{"id": "die 0.0.0"}, {"id": "die 1.0.0"}]
    text = json.dumps({"graph": {}, "nodes": base + nodes, "edges": links})
    try:
        machine = read_machine(text, "file")
    except FabricFileError as refused:
        assert refused.faults
        return
    set_source({machine.digest: machine}.__getitem__)
    network(build_fabric(Supernode(machine=machine.digest, chip="h800"), FACTS))


def test_routing_is_the_machines_own_and_weighted_ecmp_does_not_see_other_pairs():
    ends = [(f"die {n}.0.{d}", f"switch {n}", 500) for n in range(3) for d in (0, 1)]
    middle = [(f"switch {n}", "switch 3", rate) for n, rate in enumerate((100, 100, 400))]
    middle += [(f"switch {n}", "switch 4", 100) for n in range(2)]  # node 2 has one way only
    lines = "".join(f"{a},{b},{rate},100,ub\n" for a, b, rate in ends + middle)
    best = read_machine(HEAD + lines, "machine")
    even = best.with_routing("ecmp")
    assert best.with_routing("adaptive") is best and even.digest != best.digest
    rates = []
    for machine in (best, even):
        set_source({machine.digest: machine}.__getitem__)
        fabric = build_fabric(Supernode(machine=machine.digest), FACTS)
        assert read_machine(fabric_text(fabric, "json"), "again").routing == machine.routing
        rates.append(all_to_all(fabric, range(6)).bytes_per_s)
    # a die of node 0 sends 2/5 to node 1 and 2/5 to node 2: at best over one switch each, 0.8 r on
    # a link of 100; else half of the first lies on the link of the second, 1.2 r
    assert rates[0] == pytest.approx(1.5 * rates[1], rel=0.02)
