"""One routing algorithm against linear programs, closed forms and the laws of flows."""

import itertools
import random

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from tests.draws import some
from tests.hardware.wired import all_to_all, demand, fabric, network
from twin.hardware.flows import load_of


def random_machine(seed, **how):
    """A connected random wiring of 5 to 10 vertices, half of them ends."""
    draw = random.Random(seed)
    while True:
        n = draw.randint(5, 10)
        wiring = nx.gnm_random_graph(n, draw.randint(n, 3 * n), draw.randrange(10**6))
        if nx.is_connected(wiring):
            break
    capacity = [1.0, 2.0, 4.0] if seed % 2 else [draw.uniform(0.5, 4.0) for _ in range(9)]
    links = [(f"v{a}", f"v{b}", draw.choice(capacity)) for a, b in wiring.edges]
    ends = [f"v{v}" for v in draw.sample(range(n), n // 2 + 1)]
    return links, ends, draw


DEMANDS = {
    "all_to_all": lambda net, ends, draw: all_to_all(net, ends),
    "weighted": lambda net, ends, draw: demand(
        net, ends, ends, None, [draw.uniform(0.2, 2.0) for _ in ends]
    ),
    "gather": lambda net, ends, draw: demand(net, ends[1:], ends[:1]),
    "pair": lambda net, ends, draw: demand(net, ends[:1], ends[1:2]),
    "pool": lambda net, ends, draw: demand(net, ends[: len(ends) // 2], ends[len(ends) // 2 :]),
}


def fullest(net, asked):
    """Largest share of a link that the demand takes."""
    rate, _ = load_of(net, asked).rate_alone(net)
    return 1.0 / rate


def best_possible(graph, net, asked, detour=0):
    """The same of the best split over all admissible paths: a linear program, path by path."""
    of = {edge: i for i, edge in enumerate(graph.edges)}
    rows, columns, pairs, sent = [], [], [], []
    variables = itertools.count(1)
    for i, a in enumerate(asked.senders):
        for j, b in enumerate(asked.receivers):
            if a == b:
                continue
            ends = net.vertices[a], net.vertices[b]
            hops = nx.shortest_path_length(graph, *ends)
            for path in nx.all_simple_paths(graph, *ends, cutoff=hops + detour):
                v = next(variables)
                pairs.append((len(sent), v))
                for edge in itertools.pairwise(path):
                    rows.append(of[edge])
                    columns.append(v)
            sent.append(asked.out[i] * asked.into[j])
    size, count = len(of), next(variables)
    answer = linprog(
        np.append(1.0, np.zeros(count - 1)),
        A_ub=coo_matrix(
            (np.append(np.ones(len(rows)), -net.capacity),
             (rows + list(range(size)), columns + [0] * size)), (size, count),
        ),
        b_ub=np.zeros(size),
        A_eq=coo_matrix((np.ones(len(pairs)), tuple(zip(*pairs, strict=True))), (len(sent), count)),
        b_eq=sent,
    )  # fmt: skip
    return answer.x[0]


@pytest.mark.parametrize("kind", DEMANDS)
@pytest.mark.parametrize("first", some([0], 1, 2, 3))
def test_adaptive_routing_is_as_good_as_the_linear_program(kind, first):
    for seed in range(first * 15, first * 15 + 15):  # 300 machines and demands in all
        links, ends, draw = random_machine(seed)
        graph = fabric(links, ends)
        net = network(graph)
        asked = DEMANDS[kind](net, ends, draw)
        best = best_possible(graph, net, asked)
        assert best * (1 - 1e-6) <= fullest(net, asked) <= 1.03 * best, seed
        plain = network(fabric(links, ends, routing="ecmp"))
        assert fullest(plain, asked) >= best * (1 - 1e-6), seed


@pytest.mark.parametrize("seed", some([*range(3)], *range(3, 12)))
def test_detours_of_one_hop_are_used_as_far_as_they_help(seed):
    links, ends, _ = random_machine(seed)
    graph = fabric(links, ends, detour=1)
    net = network(graph)
    asked = all_to_all(net, ends)
    best = best_possible(graph, net, asked, detour=1)
    assert best * (1 - 1e-6) <= fullest(net, asked) <= 1.03 * best
    assert fullest(net, asked) <= 1.03 * fullest(network(fabric(links, ends)), asked)


@pytest.mark.parametrize("first", some([0], 1, 2, 3))
@pytest.mark.parametrize("forwarding", [True, False])
def test_a_link_that_is_added_lowers_no_rate(first, forwarding):
    for seed in range(first * 5, first * 5 + 5):  # 40 machines, three links added to each
        links, ends, draw = random_machine(seed)
        spare = [(f"v{a}", f"v{b}") for a, b in itertools.combinations(range(12), 2)]
        there = {v for link in links for v in link[:2]}
        spare = [p for p in spare if set(p) <= there and not {p, p[::-1]} & {k[:2] for k in links}]
        rates = []
        for order, (a, b) in enumerate([*draw.sample(spare, min(3, len(spare))), ("", "")], 1):
            net = network(fabric(links, ends, forwarding=forwarding, detour=seed % 2))
            pairs = [demand(net, [a], [b]) for a, b in itertools.permutations(ends, 2)]
            rates.append(
                [load_of(net, d).rate_alone(net)[0] for d in (*pairs, all_to_all(net, ends))]
            )
            links = [*links, (a, b, draw.choice([0.1, 1.0, 4.0]), order)]
        for before, after in itertools.pairwise(np.array(rates)):
            assert (after[:-1] >= 0.99 * before[:-1]).all(), seed
            assert after[-1] >= 0.97 * before[-1], seed  # the all-to-all's split is not exact


def grid(sides, wrap):
    """Links of a grid: neighbours along each dimension, or with wrap = None all along it."""
    links = []
    for at in itertools.product(*(range(s) for s in sides)):
        for d, side in enumerate(sides):
            steps = range(1, side - at[d]) if wrap is None else ([1] if side > 1 else [])
            for step in steps:
                to = list(at)
                to[d] = (at[d] + step) % side
                links.append((str(at), str(tuple(to)), 1.0))
    return links


DIRECT = {  # every link alike, so all carry the mean: links / sum of hops
    "ring of 7": grid((7,), True),
    "ring of 8": grid((8,), True),
    "torus": grid((4, 4), True),
    "torus of three dimensions": grid((3, 3, 3), True),
    "full mesh": grid((8,), None),
    "mesh of full meshes": grid((4, 4), None),
    "hypercube": grid((2, 2, 2, 2), None),
}


@pytest.mark.parametrize("name", DIRECT)
def test_all_to_all_of_a_symmetric_direct_network_is_the_closed_form(name):
    links = DIRECT[name]
    ends = sorted({v for a, b, _ in links for v in (a, b)})
    graph = fabric(links, ends)
    hops = sum(nx.single_source_shortest_path_length(graph, ends[0]).values())
    rate = graph.number_of_edges() * (len(ends) - 1) / (len(ends) * hops)
    net = network(graph)
    assert load_of(net, all_to_all(net, ends)).rate_alone(net)[0] == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize(("ends_a_leaf", "spines"), [(4, 4), (8, 2), (6, 5)])
def test_all_to_all_of_a_fat_tree_is_held_by_its_uplinks(ends_a_leaf, spines):
    links = [(f"leaf {i}", f"spine {j}", 1.0) for i in range(5) for j in range(spines)]
    links += [(f"leaf {i}", f"end {i}.{j}", 1.0) for i in range(5) for j in range(ends_a_leaf)]
    ends = [b for _, b, _ in links if b.startswith("end")]
    net = network(fabric(links, ends, forwarding=False))
    away = (len(ends) - ends_a_leaf) / (len(ends) - 1)
    rate = min(1.0, spines / (ends_a_leaf * away))
    assert load_of(net, all_to_all(net, ends)).rate_alone(net)[0] == pytest.approx(rate, rel=0.01)


def test_all_to_all_of_a_dragonfly_is_held_by_its_global_links():
    routers, hosts = 4, 2
    groups = routers + 1  # one global link a router, one between any two groups
    links = [
        (f"r{g}.{a}", f"r{g}.{b}", 8.0)
        for g in range(groups)
        for a, b in itertools.combinations(range(routers), 2)
    ]
    for g, h in itertools.combinations(range(groups), 2):
        links.append((f"r{g}.{h - 1}", f"r{h}.{g}", 1.0))
    links += [
        (f"r{g}.{a}", f"end {g}.{a}.{i}", 8.0)
        for g in range(groups) for a in range(routers) for i in range(hosts)
    ]  # fmt: skip
    ends = [b for _, b, _ in links if b.startswith("end")]
    net = network(fabric(links, ends, forwarding=False))
    rate = (len(ends) - 1) / (routers * hosts) ** 2
    assert load_of(net, all_to_all(net, ends)).rate_alone(net)[0] == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize("seed", some([*range(4)], *range(4, 20)))
def test_what_enters_a_vertex_leaves_it(seed):
    links, ends, draw = random_machine(seed)
    net = network(fabric(links, ends, detour=seed % 2))
    asked = DEMANDS["weighted"](net, ends, draw)
    load = load_of(net, asked)
    balance = np.zeros(len(net.vertices))
    np.add.at(balance, net.tail[load.links], load.amounts)
    np.add.at(balance, net.head[load.links], -load.amounts)
    sent = np.outer(asked.out, asked.into)
    np.fill_diagonal(sent, 0.0)
    for i, v in enumerate(asked.senders):
        balance[v] += sent[:, i].sum() - sent[i].sum()
    assert np.abs(balance).max() < 1e-9


@pytest.mark.parametrize("seed", some([*range(3)], *range(3, 10)))
def test_names_and_order_of_vertices_change_nothing(seed):
    links, ends, draw = random_machine(seed)
    net = network(fabric(links, ends))
    new = {v: f"w{draw.random()}" for v in net.vertices}
    mixed = [(new[b], new[a], c) for a, b, c in draw.sample(links, len(links))]
    moved = [new[v] for v in draw.sample(ends, len(ends))]
    again = network(fabric(mixed, moved))
    assert fullest(again, all_to_all(again, moved)) == pytest.approx(
        fullest(net, all_to_all(net, ends)), rel=0.011
    )


def test_dies_that_nothing_tells_apart_are_routed_as_one_without_a_difference():
    links = [(f"leaf {i}", f"spine {j}", 1.0 + j) for i in range(3) for j in range(2)]
    links += [(f"leaf {i}", f"end {i}.{j}", 1.0) for i in range(3) for j in range(4)]
    ends = [b for _, b, _ in links if b.startswith("end")]
    alike = network(fabric(links, ends, forwarding=False))
    told_apart = [(a, b, c * (1 + 1e-12 * i)) for i, (a, b, c) in enumerate(links)]
    apart = network(fabric(told_apart, ends, forwarding=False))
    one, other = (load_of(net, all_to_all(net, ends)) for net in (alike, apart))
    assert one.links.tolist() == other.links.tolist()
    assert one.rate_alone(alike)[0] == pytest.approx(other.rate_alone(apart)[0], rel=0.006)


def test_where_no_path_is_left_the_rate_is_zero_and_the_ends_are_named():
    net = network(fabric([("a", "s", 1.0), ("b", "s", 0.0)], ["a", "b"], forwarding=False))
    load = load_of(net, all_to_all(net, ["a", "b"]))
    assert load.rate_alone(net) == (0.0, -1)
    assert {net.vertices[v] for pair in load.unreached for v in pair} == {"a", "b"}
