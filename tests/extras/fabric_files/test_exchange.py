"""A fabric goes out as a file and comes back the same; what is no fabric is told why."""

import io
import json
import random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.hardware.test_additions import LINK, machine
from tests.hardware.wired import edits_of
from twin.extras.fabric_files.exchange import read_fabric, write_fabric
from twin.hardware.additions import additions
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric, edited, element_names
from twin.hardware.graph_text import FabricFileError
from twin.hardware.network import network
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)
SMALL = Supernode(nodes=3, npus_per_node=2, sub_planes=2, l1_uplinks=4, supernodes=2)
BARE = build_fabric(SMALL, FACTS)
KINDS = pytest.mark.parametrize("kind", ["json", "graphml"])


def same_links(one, other):
    a, b = network(one), network(other)
    open_ = a.capacity > 0
    return np.allclose(a.capacity, b.capacity, rtol=1e-12, atol=0) and np.allclose(
        a.latency[open_], b.latency[open_], rtol=1e-12, atol=0
    )


def random_edits(seed):
    rng = random.Random(seed)
    names, links = element_names(BARE), list(BARE.edges)
    for _ in range(rng.randrange(8)):
        a, b = rng.choice(links)
        element, to = (a, b) if rng.random() < 0.5 else (rng.choice(names), "")
        yield Edit(
            element=element,
            to=to,
            capacity_factor=rng.choice([0.0, 0.5, 1.0, 1.7]),
            latency_factor=rng.choice([1.0, 1.3]),
        )


@KINDS
@given(seed=st.integers(0, 10**6))
@draws(40)
def test_links_changed_anywhere_come_back(kind, seed):
    fabric = edited(BARE, edits=random_edits(seed))  # the supernode does not list these
    back = read_fabric(write_fabric(fabric, kind), kind, FACTS)
    assert back.model_copy(update={"edits": ()}) == SMALL
    assert same_links(fabric, build_fabric(back, FACTS))


@KINDS
def test_a_supernodes_own_edits_come_back_as_they_were_written(kind):
    edits = (
        Edit(element="sub-plane 1:0", capacity_factor=0.5),
        Edit(element="L1 1.1", to="L2 1.3", capacity_factor=0, latency_factor=2),
        Edit(element="node 2", latency_factor=3),
    )
    s = SMALL.model_copy(update={"edits": edits})
    assert read_fabric(write_fabric(build_fabric(s, FACTS), kind), kind, FACTS) == s


@KINDS
def test_changes_alike_are_told_by_element(kind):
    changed = edited(FULL, edits_of(["node 5", "L2 2.1"], {"sub-plane 3": 0.5}, {"NPU 1.1": 2.0}))
    edits = read_fabric(write_fabric(changed, kind), kind, FACTS).edits
    assert {"node 5", "L2 2.1"} <= {e.element for e in edits if e.capacity_factor == 0}
    assert len(edits) < 30  # of some 1,800 links
    assert same_links(changed, edited(FULL, edits=edits))


@KINDS
def test_a_healthy_fabric_has_no_edits(kind):
    assert read_fabric(write_fabric(BARE, kind), kind, FACTS) == SMALL


def test_other_tools_read_what_is_written():
    for graph in (
        nx.node_link_graph(json.loads(write_fabric(BARE, "json")), edges="edges"),
        nx.read_graphml(io.BytesIO(write_fabric(BARE, "graphml").encode())),
    ):
        assert set(graph) == set(BARE)
        assert {frozenset(e) for e in graph.edges} == {frozenset(e) for e in BARE.edges}
        assert graph.edges["L1 0.1", "L2 1.2"]["capacity_bytes_per_s"] == 28e9
        assert graph.graph["nodes"] == 3


def test_what_networkx_writes_is_read():
    graph = nx.Graph(BARE)
    graph.graph = {"nodes": 3, "npus_per_node": 2, "sub_planes": 2, "l1_uplinks": 4,
                   "supernodes": 2}  # fmt: skip
    graph.remove_edge("L1 0.1", "L2 1.2")
    wanted = (Edit(element="L1 0.1", to="L2 1.2", capacity_factor=0),)
    told = json.dumps(nx.node_link_data(graph, edges="links"))
    assert read_fabric(told, "json", FACTS).edits == wanted
    for _, _, data in graph.edges(data=True):
        data.pop("sub_plane", None)
    text = "\n".join(nx.generate_graphml(graph))
    assert read_fabric(text, "graphml", FACTS).edits == wanted


def as_json(change):
    told = json.loads(write_fabric(BARE, "json"))
    change(told)
    return json.dumps(told)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda t: t["edges"][0].update(target="die 9.9.9"), "No link .* joins"),
        (lambda t: t["nodes"].append({"id": "node x"}), "'node x' is no element"),
        (lambda t: t["edges"][0].pop("latency_s"), "needs capacity_bytes_per_s and latency_s"),
        (lambda t: t["edges"][0].update(capacity_bytes_per_s=-1), "numbers of at least 0"),
        (lambda t: t["edges"][0].update(capacity_bytes_per_s=10**400), "numbers of at least 0"),
        (lambda t: t["edges"][0].update(capacity_bytes_per_s=1e14), "0 to 100"),
        (lambda t: t["edges"].append(t["edges"][0]), "stands there twice"),
        (lambda t: t["graph"].update(nodes="many"), "Attribute nodes of the graph"),
        (lambda t: t["graph"].update(nodes=96), "could not be reached"),
        (lambda t: t.update(graph={}), "does not say of which supernode"),
        (
            lambda t: t["graph"].update(nodes=384, l2_ports_per_chip=384, npus_per_node=72),
            "too large",
        ),
        (lambda t: t["graph"].update(chip="abacus"), "abacus"),
        (lambda t: t.update(nodes=[1]), "must be an object"),
        (lambda t: t.pop("edges"), "lists `nodes` and `edges`"),
    ],
)
def test_a_fault_in_a_file_is_told_in_a_sentence(change, fault):
    with pytest.raises(HardwareError, match=fault) as caught:
        read_fabric(as_json(change), "json", FACTS)
    assert "\n" not in str(caught.value)


def test_every_fault_has_its_sentence_up_to_a_screenful():
    def spoil(told):
        for edge in told["edges"][:25]:
            edge.pop("latency_s")

    with pytest.raises(FabricFileError) as caught:
        read_fabric(as_json(spoil), "json", FACTS)
    assert len(caught.value.faults) == 21
    assert caught.value.faults[-1] == "And 5 faults more."


BOMB = """<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>
<graphml><graph><data key="x">&b;</data></graph></graphml>"""


@pytest.mark.parametrize(
    ("text", "kind", "fault"),
    [
        (BOMB, "graphml", "DOCTYPE or entities"),
        ("<graphml>", "graphml", "not XML"),
        ("<a>\x00</a>", "graphml", "not XML"),
        ("<graphml/>", "graphml", "no element `graph`"),
        ("<graphml><graph/></graphml>", "graphml", "which supernode"),
        ("", "json", "not JSON"),
        ("[" * 100_000, "json", "not JSON"),
        ('{"graph": NaN}', "json", "NaN is no number"),
        ("[1]", "json", "no node-link JSON"),
        ("[[]," * 500_001, "json", "more than 1,000,000 parts"),
        ("<a/>" * 4_000_001, "graphml", "more than 4,000,000 parts"),
        (" " * 48_000_001, "json", "longer than 48 million"),
    ],
)
def test_what_is_no_fabric_is_refused(text, kind, fault):
    with pytest.raises(FabricFileError, match=fault):
        read_fabric(text, kind, FACTS)


@KINDS
def test_a_file_with_a_hole_anywhere_is_refused_or_read_and_nothing_else(kind):
    text = write_fabric(BARE, kind)
    rng = random.Random(7)
    for _ in range(60):
        at = rng.randrange(len(text))
        spoiled = text[:at] + rng.choice(["", "x", '"', "<", "9", "{"]) + text[at + 1 :]
        try:
            read_fabric(spoiled, kind, FACTS)
        except HardwareError as error:
            assert str(error)


@KINDS
def test_what_is_added_is_in_a_file_and_comes_back(kind):
    drawn = machine(
        {"element": "Spine 1", "add": "switch"},
        {"element": "L1 1.3", "to": "Spine 1", "add": "link"},
        LINK,
        {"element": "L1 1.3", "capacity_factor": 0.5},
    )
    text = write_fabric(drawn, kind)
    assert read_fabric(text, kind, FACTS) == drawn.graph["supernode"]
    other = text.replace("400000000000.0", "100000000000.0")  # a rate that its edits do not tell
    assert other != text
    read = read_fabric(other, kind, FACTS)
    assert additions(read.edits) == additions(drawn.graph["supernode"].edits)
    again = build_fabric(read, FACTS).edges["die 0.0.0", "die 3.0.0"]
    assert again["capacity_bytes_per_s"] == pytest.approx(100e9)
