"""The least that the fullest link can carry, by a linear program over flows of single senders."""

import networkx as nx
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix


def least_fullest(net, asked, plane="ub", *, free=False):
    """Smallest possible largest share of a link, for paths of fewest hops or, `free`, for any.

    A sender's shortest paths are the walks of its breadth-first levels, so flows by sender and link
    are all that is needed. Ends that forward nothing are neither passed nor looked into.
    """
    bit = net.bit(plane)
    usable = np.flatnonzero((net.serves & bit > 0) & (net.capacity > 0.0))
    tail, head = net.tail[usable], net.head[usable]
    rate = (net.capacity * net.efficiency[asked.operation])[usable]
    unit = float(rate.max())  # a solver wants numbers near 1
    rate = rate / unit
    passes = net.forwards & bit > 0
    graph = nx.DiGraph(zip(tail.tolist(), head.tolist(), strict=True))
    blocked = {v for v in graph if not passes[v]}
    rows, columns, values, right = [], [], [], []
    loads, count = [], 1
    for i, source in enumerate(asked.senders):
        inner = graph.subgraph(set(graph) - blocked | {source} | set(asked.receivers))
        wanted = {t: asked.out[i] * asked.into[j] for j, t in enumerate(asked.receivers)
                  if t != source}  # fmt: skip
        hops = nx.single_source_shortest_path_length(
            inner.edge_subgraph((a, b) for a, b in inner.edges if a == source or a not in blocked),
            source,
        )
        place = {v: len(right) + k for k, v in enumerate(v for v in hops if v != source)}
        right += [wanted.get(v, 0.0) for v in hops if v != source]
        for link, (a, b) in enumerate(zip(tail.tolist(), head.tolist(), strict=True)):
            if a not in hops or b not in hops or b == source or (a in blocked and a != source):
                continue
            if not free and hops[b] != hops[a] + 1:
                continue
            for v, sign in ((b, 1.0), (a, -1.0)):
                if v != source:
                    rows.append(place[v])
                    columns.append(count)
                    values.append(sign)
            loads.append((link, count))
            count += 1
    links, flows = (np.array(x) for x in zip(*loads, strict=True))
    shape = (usable.size, count)
    upper = coo_matrix(
        (np.append(np.ones(links.size), -rate),
         (np.append(links, np.arange(usable.size)), np.append(flows, np.zeros(usable.size, int)))),
        shape,
    )  # fmt: skip
    answer = linprog(
        np.append(1.0, np.zeros(count - 1)), A_ub=upper, b_ub=np.zeros(usable.size),
        A_eq=coo_matrix((values, (rows, columns)), (len(right), count)), b_eq=right,
    )  # fmt: skip
    return answer.x[0] / unit
