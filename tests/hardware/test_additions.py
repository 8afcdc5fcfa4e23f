"""Links and switches that are added: paths take them, and nothing else is moved by them."""

import numpy as np
import pytest

from tests.hardware.wired import changed_bytes_per_s, edited, network
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import additions, build_fabric, network_as_built
from twin.hardware.prices import all_to_all, price_between
from twin.hardware.validation import problems
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
SMALL = {"nodes": 4, "l1_uplinks": 8}  # fewer uplinks than dies: they are what is full first


def machine(*rows):
    return build_fabric(Supernode(**SMALL, edits=tuple(Edit(**row) for row in rows)), FACTS)


WHOLE = machine()
LINK = {"element": "die 0.0.0", "to": "die 3.0.0", "add": "link", "gb_per_s": 400.0}


@pytest.mark.parametrize("gb_per_s", [19.0, 400.0])
def test_a_direct_link_comes_on_top_of_the_paths_over_switches(gb_per_s):
    joined = machine({**LINK, "gb_per_s": gb_per_s, "latency_ns": 50})
    before, now = (price_between(m, "die 0.0.0", "die 3.0.0", "nominal") for m in (WHOLE, joined))
    assert now.bytes_per_s == pytest.approx(before.bytes_per_s + gb_per_s * 1e9, rel=0.01)
    assert now.latency_s == before.latency_s  # the last bytes come over the switches
    other = price_between(joined, "die 0.1.0", "die 3.1.0")
    assert other == price_between(WHOLE, "die 0.1.0", "die 3.1.0")


def test_a_link_beside_others_joins_their_bundle():
    up = {"element": "L1 1.3", "to": "L2 3.0", "add": "link", "gb_per_s": 28.0}
    before, after = (
        WHOLE.graph().edges["L1 1.3", "L2 3.0"],
        machine(up).graph().edges["L1 1.3", "L2 3.0"],
    )
    assert after["links"] == before["links"] + 1
    assert after["capacity_bytes_per_s"] == before["capacity_bytes_per_s"] + 28e9
    assert network(machine(up)).capacity.size == network(WHOLE).capacity.size


def test_re_wiring_is_to_take_one_out_and_add_another():
    """The uplinks of a node go over a new switch instead of an L2 chip."""
    chips = sum(v.startswith("L2 3.") for v in WHOLE.vertices)
    rows = [{"element": "Spine 1", "add": "switch"}]
    for n in range(4):
        for i in range(chips):
            rate = WHOLE.graph().edges[f"L1 {n}.3", f"L2 3.{i}"]["capacity_bytes_per_s"] / 1e9
            rows += [
                {"element": f"L1 {n}.3", "to": "Spine 1", "add": "link", "gb_per_s": rate},
                {"element": f"L1 {n}.3", "to": f"L2 3.{i}", "capacity_factor": 0.0},
            ]
    price = all_to_all(machine(*rows), range(64))
    whole = all_to_all(WHOLE, range(64))
    assert price.bytes_per_s == pytest.approx(whole.bytes_per_s, rel=0.01)
    cut = [row for row in rows if "add" not in row]
    assert all_to_all(machine(*cut), range(64)).bytes_per_s < 0.95 * whole.bytes_per_s


def test_what_is_added_can_be_edited_and_taken_back_and_counts_as_built():
    slowed = machine(LINK, {**LINK, "add": "nothing", "capacity_factor": 0.25})
    assert slowed.graph().edges["die 0.0.0", "die 3.0.0"]["capacity_bytes_per_s"] == 100e9
    assert changed_bytes_per_s(slowed) == {("die 0.0.0", "die 3.0.0"): 100e9}
    assert changed_bytes_per_s(machine(LINK)) == {}
    assert network_as_built(slowed).graph().has_edge("die 3.0.0", "die 0.0.0")


def test_a_link_that_joins_a_bundle_leaves_all_links_and_the_original_stays():
    before = network(WHOLE).capacity.copy()
    up = Edit(element="L1 1.3", to="L2 3.0", add="link")
    assert edited(WHOLE, [up]).tail.size == WHOLE.tail.size
    np.testing.assert_array_equal(network(WHOLE).capacity, before)
    assert additions([up, Edit(element="node 0")]) == (up,)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"element": "die 0.0.0", "add": "link"}, "name the other end"),
        ({"element": "node 0", "to": "die 1.0.0", "add": "link"}, "joins single ones"),
        ({"element": "die 0.0.0", "to": "die 0.0.0", "add": "link"}, "needs no link"),
        ({"element": "die 0.0.0", "to": "Spine 9", "add": "link"}, "no element is named"),
        ({"element": "L2 3.0", "add": "switch"}, "call the added switch otherwise"),
        (
            {"element": "die 0.0.0", "to": "NIC 0.0.0", "add": "link", "plane": "ub"},
            "joined on the rdma plane already",
        ),
    ],
)
def test_what_cannot_be_added_is_one_sentence(row, why):
    with pytest.raises(HardwareError, match=why):
        machine(row)
    (said,) = problems(Supernode(**SMALL, edits=(Edit(**row),)), FACTS)
    assert why in said.lower()


def test_a_machine_with_more_in_it_has_no_problem():
    assert problems(Supernode(**SMALL, edits=(Edit(**LINK),)), FACTS) == []
