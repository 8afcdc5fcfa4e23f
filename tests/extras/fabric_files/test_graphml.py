"""GraphML of machines: read as the core reads other graphs, read by other tools, or refused."""

import io
import random

import networkx as nx
import pytest

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.graph_text import FabricFileError
from twin.hardware.machine_file import fabric_text, read_machine
from twin.lab.library import load_facts
from twin.scenario import Supernode

SMALL = Supernode(nodes=3, npus_per_node=2, sub_planes=2, l1_uplinks=4, supernodes=2)
FABRIC = build_fabric(SMALL, load_facts())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<graphml><graph/></graphml>", "The machine has no dies"),
        ('<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><graphml>&b;</graphml>', "DOCTYPE"),
        ("<graphml>", "no GraphML"),
        ("<a>\x00</a>", "no GraphML"),
        ("<graphml/>", "no GraphML"),
        ("<a/>" * 4_000_001, "more than 4,000,000 parts"),
    ],
)
def test_what_is_no_machine_is_told_why(text, sentence):
    with pytest.raises(FabricFileError, match=sentence):
        read_machine(text, "file")


def test_other_tools_read_what_is_written():
    graph = nx.read_graphml(io.BytesIO(fabric_text(FABRIC, "graphml").encode()))
    assert {*graph} == {*FABRIC.vertices} and {*graph.edges} == {*FABRIC.graph().edges}
    assert graph.edges["L1 0.1", "L2 1.2"]["capacity_bytes_per_s"] == 28e9


def test_what_networkx_writes_is_read():
    graph = nx.read_graphml(io.BytesIO(fabric_text(FABRIC, "graphml").encode()))
    graph.remove_edge("L1 0.1", "L2 1.2")
    read = read_machine("\n".join(nx.generate_graphml(graph)), "file")
    links = {(a, b) for a, b, _ in read.links}
    assert links == {*FABRIC.graph().edges} - {("L1 0.1", "L2 1.2")}


def test_a_file_with_a_hole_anywhere_is_refused_or_read_and_nothing_else():
    text, rng = fabric_text(FABRIC, "graphml"), random.Random(7)
    for _ in range(60):
        at = rng.randrange(len(text))
        spoiled = text[:at] + rng.choice(["", "x", '"', "<", "9", "{"]) + text[at + 1 :]
        try:
            read_machine(spoiled, "file")
        except HardwareError as error:
            assert str(error)
