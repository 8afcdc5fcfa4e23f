"""What the canvas is told: a shape that never changes by itself, and small live colours."""

import json

import numpy as np
import polars as pl

from twin.hardware.fabric import build_fabric, edited
from twin.hardware.placement import place_instances
from twin.lab.library import load_facts
from twin.scenario import Scenario, Supernode
from twin.ui.fabric_view import capacities, cells_of_links, live, shape_of

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)


def test_the_shape_of_a_fabric_is_constant_and_small():
    placed = place_instances(Scenario(), 2)
    text = json.dumps(shape_of(FULL, placed))
    assert text == json.dumps(shape_of(build_fabric(Supernode(), FACTS), placed))
    assert len(text) < 2000


def test_an_edited_link_travels_alone():
    slow = edited(FULL, capacity={("die 0.0.0", "L1 0.0"): 14e9}, remove=["NIC 3.1.0"])
    assert shape_of(slow)["changed"] == {
        "die 0.0.0|L1 0.0": 14.0,
        "die 3.1.0|NIC 3.1.0": 0.0,
        "NIC 3.1.0|RDMA network": 0.0,
    }


def test_cells_show_the_planes_of_each_node():
    cells = capacities(FULL)
    assert cells.shape == (48, 9)
    assert cells[7].tolist() == [448e9] * 7 + [400e9, 50e9]


def test_the_version_changes_with_the_colours_only():
    values = np.full((2, 3), 0.25)
    first = live(values, {}, (0.0, 1.0))
    assert first == live(values.copy(), {}, (0.0, 1.0))
    values[1, 2] = np.nan
    assert live(values, {}, (0.0, 1.0))["version"] != first["version"]
    assert live(values, {}, (0.0, 1.0))["cells"][-1] is None


def test_a_runs_links_become_cells_by_their_busier_direction():
    links = pl.DataFrame(
        {
            "plane": ["ub", "ub", "rdma", "vpc"],
            "node": [3, 3, 3, 0],
            "sub_plane": [5, 5, None, None],
            "utilisation_mean": [0.2, 0.6, 0.1, 0.9],
        }
    )
    cells = cells_of_links(FULL, links)
    assert (cells[3, 5], cells[3, -2], cells[0, -1]) == (0.6, 0.1, 0.9)
    assert np.isnan(cells).sum() == 48 * 9 - 3
