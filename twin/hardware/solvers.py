"""Mixtures and cuts of routing problems, by the linear programs and flows of scipy."""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from twin.hardware.walks import BOOLS, FLOATS, INTS

TINY = 1e-300  # bytes/s


def mixture(uses: list[FLOATS]) -> FLOATS | None:
    """Weights (sum 1) of the tried splits whose mixture has the least load on its fullest link."""
    table = np.stack(uses, axis=1)
    table /= table.max(axis=0).min()
    rows = table[table.max(axis=1) > 0.5]
    solution = linprog(
        np.append(1.0, np.zeros(len(uses))),
        A_ub=np.hstack([np.full((len(rows), 1), -1.0), rows]),
        b_ub=np.zeros(len(rows)),
        A_eq=np.append(0.0, np.ones(len(uses)))[None, :],
        b_eq=[1.0],
    )
    if solution.x is None:  # splits that hardly differ: the solver gives up
        return None
    parts = np.maximum(solution.x[1:], 0.0)  # the solver's zeros may be a little below
    return np.asarray(parts / parts.sum())


def source_side(size: int, tail: INTS, head: INTS, capacity: FLOATS, rows: INTS) -> BOOLS:
    """Vertices, and the sink `size`, on the source side of a minimum cut between `rows` and it."""
    source, unlimited = np.full(rows.size, size + 1), np.full(rows.size, 1 << 30, np.int32)
    units = np.maximum(capacity / capacity.max(initial=TINY) * 1e6, 1.0).astype(np.int32)
    ends = np.append(tail, source), np.append(head, rows)
    graph = csr_array((np.append(units, unlimited), ends), shape=(size + 2, size + 2))
    residual = graph - maximum_flow(graph, size + 1, size).flow
    residual.eliminate_zeros()
    side = np.zeros(size + 2, bool)
    side[breadth_first_order(residual, size + 1, return_predecessors=False)] = True
    return side
