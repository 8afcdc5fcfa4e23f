"""Mixtures and cuts of routing problems, by the linear programs and flows of scipy."""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from twin.hardware.walks import BOOLS, FLOATS, INTS

TINY = 1e-300  # bytes/s


def mixture(link_loads: list[FLOATS]) -> FLOATS | None:
    """Weights f8[splits], sum 1, with which splits together load the fullest link least;
    link_loads: load f8[links] of each split, in one unit. None: the solver finds none."""
    loads = np.stack(link_loads, axis=1)
    loads /= loads.max(axis=0).min()
    loaded_links = loads[loads.max(axis=1) > 0.5]
    solution = linprog(
        np.append(1.0, np.zeros(len(link_loads))),
        A_ub=np.hstack([np.full((len(loaded_links), 1), -1.0), loaded_links]),
        b_ub=np.zeros(len(loaded_links)),
        A_eq=np.append(0.0, np.ones(len(link_loads)))[None, :],
        b_eq=[1.0],
    )
    if solution.x is None:  # splits that hardly differ: the solver gives up
        return None
    weights = np.maximum(solution.x[1:], 0.0)  # the solver's zeros may be a little below
    return np.asarray(weights / weights.sum())


def source_side(size: int, tail: INTS, head: INTS, capacity: FLOATS, rows: INTS) -> BOOLS:
    """Whether each vertex is on the source side of a minimum cut from the vertices `rows` to the
    sink, vertex `size`, bool[size + 2]; tail, head, capacity: ends and bytes/s of each link."""
    source, unlimited = np.full(rows.size, size + 1), np.full(rows.size, 1 << 30, np.int32)
    integer_capacity = np.maximum(capacity / capacity.max(initial=TINY) * 1e6, 1.0).astype(np.int32)
    tails_heads = np.append(tail, source), np.append(head, rows)
    capacities = np.append(integer_capacity, unlimited)
    graph = csr_array((capacities, tails_heads), shape=(size + 2, size + 2))
    residual = graph - maximum_flow(graph, size + 1, size).flow
    residual.eliminate_zeros()
    on_source_side = np.zeros(size + 2, bool)
    on_source_side[breadth_first_order(residual, size + 1, return_predecessors=False)] = True
    return on_source_side
