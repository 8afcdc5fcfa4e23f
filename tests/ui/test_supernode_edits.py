"""Edits as values: set, taken back, told; and what a fabric costs with them."""

import numpy as np
import pytest

from twin.hardware.fabric import build_fabric
from twin.hardware.placement import place
from twin.hardware.prices import all_to_all, pool_read
from twin.lab.library import load_facts
from twin.scenario import Edit, Scenario, Supernode, with_overrides
from twin.ui import fields
from twin.ui.fields import edit_effect
from twin.ui.pages import PAGES
from twin.ui.pages.supernode.editor import changed_edits, edits_without
from twin.ui.pages.supernode.panels import TRAFFIC, headlines, link_shares

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)


def fabric(*edits: Edit):
    return build_fabric(Supernode(edits=edits), FACTS)


def test_an_element_has_one_edit_and_none_when_it_is_as_built_again():
    edits = changed_edits((), ["node 3", "L1 0.0"], capacity=0.5)
    edits = changed_edits(edits, ["node 3"], latency=2.0)
    assert edits == (
        Edit(element="node 3", capacity_factor=0.5, latency_factor=2.0),
        Edit(element="L1 0.0", capacity_factor=0.5),
    )
    assert changed_edits(edits, ["Node-3"], capacity=1.0, latency=1.0) == edits[1:]
    link = changed_edits((), [("L1 0.0", "L2 0.0")], capacity=0.5)
    turned = changed_edits(link, [("L2 0.0", "L1 0.0")], capacity=0.25)
    assert [(e.element, e.capacity_factor) for e in turned] == [("L2 0.0", 0.25)]


def test_too_many_edits_are_refused():
    with pytest.raises(ValueError, match="2,000"):
        changed_edits((), [f"x {i}" for i in range(2001)], capacity=0.5)


def test_restoring_takes_back_what_is_within_and_names_what_is_around():
    edits = changed_edits(
        (), ["node 3", "die 3.0.0", ("L1 3.0", "L2 0.0"), "sub-plane 1"], capacity=0.5
    )
    left, wider = edits_without(edits, ["node 3"], FULL)
    assert [e.element for e in left] == ["sub-plane 1"]
    assert [e.element for e in wider] == ["sub-plane 1"]
    left, wider = edits_without(edits, ["die 3.0.0"], FULL)
    assert "die 3.0.0" not in {e.element for e in left}
    assert [e.element for e in wider] == ["node 3"]


def test_an_effect_in_words():
    assert edit_effect(0.0, 2.0) == "off"
    assert edit_effect(0.5, 2.0) == "50 % of capacity, latency ×2"
    assert edit_effect(1.0, None) == "as built"


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
    placed = place(s, graph).instances
    told = rates(s, graph)

    def slowest(role, price):
        return min(price(graph, i.die_of_rank).bytes_per_s for i in placed if i.role == role)

    assert told["All-to-all, decode die"] == pytest.approx(slowest("decode", all_to_all))
    assert told["Pool read, instance · UB"] == pytest.approx(slowest("prefill", pool_read))
    nics = [21.5e9 * (0.5 if e.element.startswith("NIC") else 1.0) for e in edits] or [21.5e9]
    assert told["KV transfer, die · RDMA"] == pytest.approx(min(nics))


def test_a_cut_off_price_says_so():
    stays = Scenario.model_validate({"deployment": {"when_off": "refuse"}})
    broken = fabric(Edit(element="node 5", capacity_factor=0))
    assert all(h.bytes_per_s for h in headlines(Scenario(), broken))  # prefill 0 moves away
    told = headlines(stays, broken)
    cut = {h.label: h for h in told if h.bytes_per_s is None}
    assert set(cut) == {"KV transfer, die · RDMA", "Pool read, instance · UB"}
    assert all("5" in h.bottleneck for h in cut.values())


@pytest.mark.parametrize("mode", ["colocated", "prefill_only", "decode_only"])
def test_every_mode_has_prices(mode):
    s = Scenario.model_validate({"deployment": {"mode": mode}})
    found = headlines(s, FULL)
    assert found
    assert all(np.isfinite(h.bytes_per_s) for h in found)


@pytest.mark.parametrize("traffic", TRAFFIC)
def test_a_class_that_moves_as_fast_as_it_can_fills_a_link_and_none_more(traffic):
    shares = link_shares(Scenario(), FULL, traffic)
    assert shares.max() == pytest.approx(1.0)
    assert shares.min() == 0.0


def test_what_a_deployment_does_not_move_loads_no_link():
    s = Scenario.model_validate({"deployment": {"mode": "decode_only"}})
    assert not link_shares(s, FULL, "kv_hand_off").any()


def test_a_machine_with_an_added_switch_and_links_opens_and_is_told(app):
    rows = [
        {"element": "Spine 1", "add": "switch"},
        {"element": "L1 0.3", "to": "Spine 1", "add": "link"},
        {"element": "die 0.0.0", "to": "die 3.0.0", "add": "link", "gb_per_s": 50},
        {"element": "die 0.0.0", "to": "die 3.0.0", "capacity_factor": 0.5},
    ]
    at = app.run()
    drawn = with_overrides(Scenario(), {"supernode.edits": rows})
    at.session_state["history"], at.session_state["position"] = [drawn], 0
    at.switch_page(PAGES["supernode"].script).run()
    assert not at.exception and not at.error
    said = fields.rows_in_words("supernode.edits", drawn.supernode.edits, 4)
    assert "die 0.0.0 – die 3.0.0: a link of 50 GB/s that is added" in said
    assert said.startswith("Spine 1: a switch that is added")
