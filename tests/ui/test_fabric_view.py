"""The colours of the moment, and the cells of a run's links."""

import numpy as np
import polars as pl

from twin.hardware.fabric import build_fabric
from twin.lab.library import load_facts
from twin.scenario import Supernode
from twin.ui.fabric_view import cells_of_links, live

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)


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
