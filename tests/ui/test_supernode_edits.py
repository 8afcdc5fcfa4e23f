"""Edits by name: which elements there are, what a sentence means, what is taken back, prices."""

import numpy as np
import pytest

from twin.hardware.fabric import build_fabric
from twin.hardware.placement import place_instances
from twin.hardware.prices import all_to_all, pool_read
from twin.lab.library import load_facts
from twin.scenario import Edit, Scenario, Supernode
from twin.ui.pages.supernode.edit_words import parse
from twin.ui.pages.supernode.edits import change, effect, restore
from twin.ui.pages.supernode.elements import EditError, every, expand
from twin.ui.pages.supernode.prices import headlines

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)
TWO = build_fabric(Supernode(supernodes=2), FACTS)


def fabric(*edits: Edit):
    return build_fabric(Supernode(edits=edits), FACTS)


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("NPU 20.1", ["NPU 20.1"]),
        ("npu-20-1", ["NPU 20.1"]),
        ("sub-plane 3", ["sub-plane 3"]),
        ("Plane 3", ["sub-plane 3"]),
        ("L2 3.*", [f"L2 3.{i}" for i in range(16)]),
        ("nodes 4-6", ["node 4", "node 5", "node 6"]),
        ("L1 2-3.6", ["L1 2.6", "L1 3.6"]),
        ("node 3, 5 and CPU 0.1", ["node 3", "node 5", "CPU 0.1"]),
        ("die 0.0.0, die 0.0.*", ["die 0.0.0", "die 0.0.1"]),
        ("die 0.0", ["die 0.0.0", "die 0.0.1"]),
        ("L2 3", [f"L2 3.{i}" for i in range(16)]),
    ],
)
def test_names_stand_for_the_elements_a_person_means(typed, names):
    assert every(FULL, typed) == names


@pytest.mark.parametrize("typed", ["gpu 3", "node 48", "L2 7.0", "NPU", "*", "node 3.1", ".."])
def test_a_name_of_nothing_is_refused_with_names_that_exist(typed):
    if typed == "NPU":
        assert len(every(FULL, typed)) == 384
        return
    with pytest.raises(EditError, match=r"no element|not in this machine"):
        every(FULL, typed)


def test_a_second_supernode_has_chips_of_its_own():
    assert expand(TWO, "L2 1:3.12") == ["L2 1:3.12"]
    assert expand(TWO, "L2 3.12") == ["L2 3.12"]
    assert len(expand(TWO, "L2 3.*")) == 32
    assert expand(TWO, "sub-plane 1:3") == ["sub-plane 1:3"]
    assert expand(TWO, "node 95") == ["node 95"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("sub-plane 3 at half speed", "sub-plane 3: 50 % of capacity"),
        ("L2 3.* off", "16 elements, L2 3.0 to L2 3.15: off"),
        ("NPU 20.1, 20.2 latency x2", "NPU 20.1 and NPU 20.2: latency ×2"),
        ("node 3 to 25 % of its capacity, latency 3x", "node 3: 25 % of capacity, latency ×3"),
        ("L1 20.3 – L2 3.12 at 0.25x", "L1 20.3 – L2 3.12: 25 % of capacity"),
        ("restore node 7", "node 7: as built"),
        ("disable Qingtian 5", "Qingtian 5: off"),
        ("die 0.0.0 twice the latency", "die 0.0.0: latency ×2"),
        ("UB plane at half", "UB plane: 50 % of capacity"),
    ],
)
def test_a_sentence_says_what_to_change_and_how(typed, said):
    assert parse(typed, FULL).told() == said


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("", "for example"),
        ("half speed", "for example"),
        ("node 3", "off, restored, at 50 %"),
        ("node 3 at 20000 %", "out of range"),
        ("node 3 latency x5000", "out of range"),
        ("node 3 at 1.2.3 %", "not a number"),
        ("everything off", "no element"),
    ],
)
def test_a_sentence_that_is_not_understood_is_answered_by_one(typed, why):
    with pytest.raises(EditError, match=why):
        parse(typed, FULL)


def test_an_element_has_one_edit_and_none_when_it_is_as_built_again():
    edits = change((), ["node 3", "L1 0.0"], capacity=0.5)
    edits = change(edits, ["node 3"], latency=2.0)
    assert edits == (
        Edit(element="node 3", capacity_factor=0.5, latency_factor=2.0),
        Edit(element="L1 0.0", capacity_factor=0.5),
    )
    assert change(edits, ["Node-3"], capacity=1.0, latency=1.0) == edits[1:]
    link = change((), [("L1 0.0", "L2 0.0")], capacity=0.5)
    turned = change(link, [("L2 0.0", "L1 0.0")], capacity=0.25)
    assert [(e.element, e.capacity_factor) for e in turned] == [("L2 0.0", 0.25)]


def test_too_many_edits_are_refused():
    with pytest.raises(EditError, match="2,000"):
        change((), [f"x {i}" for i in range(2001)], capacity=0.5)


def test_restoring_takes_back_what_is_within_and_names_what_is_around():
    edits = change((), ["node 3", "die 3.0.0", ("L1 3.0", "L2 0.0"), "sub-plane 1"], capacity=0.5)
    left, wider = restore(edits, ["node 3"], FULL)
    assert [e.element for e in left] == ["sub-plane 1"]
    assert [e.element for e in wider] == ["sub-plane 1"]
    left, wider = restore(edits, ["die 3.0.0"], FULL)
    assert "die 3.0.0" not in {e.element for e in left}
    assert [e.element for e in wider] == ["node 3"]


def test_an_effect_in_words():
    assert effect(0.0, 2.0) == "off"
    assert effect(0.5, 2.0) == "50 % of capacity, latency ×2"
    assert effect(1.0, None) == "as built"


def rates(s: Scenario, graph) -> dict[str, float | None]:
    return {h.label: h.bytes_per_s for h in headlines(s, graph)}


@pytest.mark.parametrize(
    "edits",
    [
        (),
        (Edit(element="sub-plane 3", capacity_factor=0.5),),
        (Edit(element="L2 2.3", capacity_factor=0),),
        (
            Edit(element="NIC 14.0.0", capacity_factor=0.5),
            Edit(element="CPU 9.1", capacity_factor=0),
        ),
        (Edit(element="L1 20.3", capacity_factor=0.1),),
    ],
)
def test_headline_prices_are_those_of_the_slowest_instance(edits):
    """Instances that lie alike share an answer, and none is told wrong by it."""
    s, graph = Scenario(), fabric(*edits)
    placed = place_instances(s, graph)
    told = rates(s, graph)

    def slowest(role, price):
        return min(price(graph, i.die_of_rank).bytes_per_s for i in placed if i.role == role)

    assert told["All-to-all, decode die"] == pytest.approx(slowest("decode", all_to_all))
    assert told["Pool read, instance · UB"] == pytest.approx(slowest("prefill", pool_read))
    nics = [21.5e9 * (0.5 if e.element.startswith("NIC") else 1.0) for e in edits] or [21.5e9]
    assert told["KV hand-off, die · RDMA"] == pytest.approx(min(nics))


def test_a_cut_off_price_says_so():
    stays = Scenario.model_validate({"deployment": {"when_off": "refuse"}})
    broken = fabric(Edit(element="node 5", capacity_factor=0))
    assert all(h.bytes_per_s for h in headlines(Scenario(), broken))  # prefill 0 moves away
    told = headlines(stays, broken)
    cut = {h.label: h for h in told if h.bytes_per_s is None}
    assert set(cut) == {"KV hand-off, die · RDMA", "Pool read, instance · UB"}
    assert all("5" in h.where for h in cut.values())


@pytest.mark.parametrize("mode", ["colocated", "prefill_only", "decode_only"])
def test_every_mode_has_prices(mode):
    s = Scenario.model_validate({"deployment": {"mode": mode}})
    found = headlines(s, FULL)
    assert found
    assert all(np.isfinite(h.bytes_per_s) for h in found)
