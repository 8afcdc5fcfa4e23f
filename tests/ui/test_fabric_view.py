"""The cells of a run's links."""

import numpy as np
import polars as pl

from twin.hardware.fabric import build_fabric
from twin.lab.library import load_facts
from twin.scenario import Supernode
from twin.ui.fabric_message import link_matrix

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)


def test_a_runs_links_become_cells_by_their_busier_direction():
    links = pl.DataFrame(
        {
            "plane": ["ub", "ub", "rdma", "vpc"],
            "node": [3, 3, 3, 0],
            "sub_plane": [5, 5, None, None],
            "utilisation_mean": [0.2, 0.6, 0.1, 0.9],
        }
    )
    cells = link_matrix(FULL, links)
    assert (cells[3, 5], cells[3, -2], cells[0, -1]) == (0.6, 0.1, 0.9)
    assert np.isnan(cells).sum() == 48 * 9 - 3
