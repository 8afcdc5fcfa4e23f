"""Mixtures and cuts of routing problems, by the linear programs and flows of scipy."""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from twin.hardware.walks import BOOLS, FLOATS, INTS

TINY = 1e-300  # bytes/s


def best_mixture(link_loads: list[FLOATS]) -> FLOATS | None:
    """Weights f8[splits], sum 1, of the mixture of splits whose fullest link is least full; None if
    the solver fails. A split divides bytes over links; link_loads: f8[links] for each split."""
    split_loads = np.stack(link_loads, axis=1)
    split_loads /= split_loads.max(axis=0).min()
    loaded_links = split_loads[split_loads.max(axis=1) > 0.5]
    solution = linprog(
        np.append(1.0, np.zeros(len(link_loads))),
        A_ub=np.hstack([np.full((len(loaded_links), 1), -1.0), loaded_links]),
        b_ub=np.zeros(len(loaded_links)),
        A_eq=np.append(0.0, np.ones(len(link_loads)))[None, :],
        b_eq=[1.0],
    )
    if solution.x is None:  # splits that hardly differ: the solver gives up
        return None
    split_weights = np.maximum(solution.x[1:], 0.0)  # the solver's zeros may be a little below
    return np.asarray(split_weights / split_weights.sum())


def min_cut_source_side(sink: int, tail: INTS, head: INTS, capacity: FLOATS, starts: INTS) -> BOOLS:
    """Whether each vertex is on the source side of a minimum cut, bool[sink + 2], between vertices
    `starts` and `sink`, the highest number. tail, head, capacity: ends and bytes/s of links."""
    source_tails, no_limit = np.full(starts.size, sink + 1), np.full(starts.size, 1 << 30, np.int32)
    integer_capacity = np.maximum(capacity / capacity.max(initial=TINY) * 1e6, 1.0).astype(np.int32)
    link_ends = np.append(tail, source_tails), np.append(head, starts)
    link_capacities = np.append(integer_capacity, no_limit)
    graph = csr_array((link_capacities, link_ends), shape=(sink + 2, sink + 2))
    residual = graph - maximum_flow(graph, sink + 1, sink).flow
    residual.eliminate_zeros()
    on_source_side = np.zeros(sink + 2, bool)
    on_source_side[breadth_first_order(residual, sink + 1, return_predecessors=False)] = True
    return on_source_side
