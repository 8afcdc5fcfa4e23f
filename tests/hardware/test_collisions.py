"""Whole flows on equal paths, against balls thrown into bins one by one.

The oracle knows a graph and who sends to whom. It lists every shortest path of a pair, throws each
flow on one of them and on one cable of every link, and reads off the fullest cable: no groups, no
levels, another generator.
"""

import json
import random
from functools import cache

import networkx as nx
import numpy as np
import pytest

from tests.draws import some
from tests.hardware.wired import all_to_all, demand, fabric, network
from twin.hardware.fabric import build_fabric
from twin.hardware.flows import Demand, load_of
from twin.hardware.imported import set_source
from twin.hardware.machine_file import read_machine
from twin.hardware.prices import all_to_all as price_of
from twin.hardware.prices import nic, pool_read, transfer_collision
from twin.hardware.recipes import as_sold
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
FAT = 1e9
TOLERANCE = 0.02


class Oracle:
    """Placements of flows on a graph whose ends pass nothing on."""

    def __init__(self, graph, ends):
        self.graph, self.ends, self.draw = graph, set(ends), random.Random(20261126)
        self.paths = cache(self._paths)

    def _paths(self, a, b):
        """Shortest paths of a pair and the chance of each: its narrowest link over that of all."""
        inner = self.graph.subgraph(v for v in self.graph if v in (a, b) or v not in self.ends)
        paths = list(nx.all_shortest_paths(inner, a, b))
        wide = [min(self.graph.edges[e]["capacity_bytes_per_s"] for e in nx.utils.pairwise(p))
                for p in paths]  # fmt: skip
        return paths, wide

    def seconds(self, flows):
        """Seconds of every cable's flows (a, b, bytes), each thrown whole; and what each takes."""
        full, taken = {}, []
        for a, b, size in flows:
            paths, wide = self.paths(a, b)
            (path,) = self.draw.choices(paths, wide)
            cables = []
            for link in nx.utils.pairwise(path):
                data = self.graph.edges[link]
                cables.append((link, self.draw.randrange(data["links"])))
                rate = data["capacity_bytes_per_s"] / data["links"]
                full[cables[-1]] = full.get(cables[-1], 0.0) + size / rate
            taken.append(cables)
        return max(full.values()), [max(full[c] for c in cables) for cables in taken]

    def even_s(self, flows):
        """Seconds of the fullest link when each flow is split over its paths."""
        full = {}
        for a, b, size in flows:
            paths, wide = self.paths(a, b)
            for path, share in zip(paths, wide, strict=True):
                for link in nx.utils.pairwise(path):
                    rate = self.graph.edges[link]["capacity_bytes_per_s"]
                    full[link] = full.get(link, 0.0) + size * share / sum(wide) / rate
        return max(full.values())

    def factors(self, flows, count):
        even = self.even_s(flows)
        return [self.seconds(flows)[0] / even for _ in range(count)]


def is_p99(found, some):
    """Whether it lies between the percentiles 98.3 and 99.5 of placements, to 2 %: these are whole
    balls, so percentiles are steps."""
    low, high = np.quantile(some, (0.983, 0.995))
    return low * (1.0 - TOLERANCE) <= found <= high * (1.0 + TOLERANCE)


def every_pair(senders, receivers):
    return [(a, b, 1.0) for a in senders for b in receivers if a != b]


def star(flows, paths, each=1.0):
    """One sender, as many receivers as flows, equal paths between their two switches."""
    links = [("a", "from", FAT)]
    links += [(x, f"path {k}", each) for k in range(paths) for x in ("from", "to")]
    links += [("to", f"b{j}", FAT) for j in range(flows)]
    return links, ["a"], [f"b{j}" for j in range(flows)]


def clos(leaves, ends, spines, cores=0):
    """Leaves on all spines; with cores two pods of them, whose spines meet at all cores."""
    links, names = [], []
    for pod in range(2 if cores else 1):
        for leaf in range(leaves):
            mine = [f"die {pod}.{leaf}.{e}" for e in range(ends)]
            names += mine
            links += [(die, f"leaf {pod}.{leaf}", FAT) for die in mine]
            links += [(f"leaf {pod}.{leaf}", f"spine {pod}.{k}", 1.0) for k in range(spines)]
        links += [(f"spine {pod}.{k}", f"core {c}", 0.5) for k in range(spines)
                  for c in range(cores)]  # fmt: skip
    return links, names


def hashed(links, ends, routing="hashed"):
    return network(fabric(links, ends, forwarding=False, routing=routing))


def factor(net, one):
    ((_, found),) = load_of(net, one).collisions
    return found


def rate(net, one):
    return load_of(net, one).rate_alone(net)[0]


@pytest.mark.parametrize(
    "case",
    some([(7, 7), (32, 8), (3, 40), (1, 7)], (14, 7), (384, 7), (3072, 7), (900, 64)),
    ids=str,
)
def test_flows_of_one_pair_of_switches_fall_as_balls_into_bins(case):
    flows, paths = case
    links, senders, receivers = star(flows, paths)
    net = hashed(links, senders + receivers)
    found = factor(net, demand(net, senders, receivers))
    thrown = np.random.default_rng(7)
    some = [np.bincount(thrown.integers(paths, size=flows), minlength=paths).max()
            for _ in range(20_000)]  # fmt: skip
    assert found.mean == pytest.approx(np.mean(some) / (flows / paths), rel=TOLERANCE)
    assert is_p99(found.p99, np.array(some) * paths / flows)
    assert found.flows == flows


def test_seven_flows_on_seven_paths_have_two_and_a_half_on_the_fullest():
    links, senders, receivers = star(7, 7)
    net = hashed(links, senders + receivers)
    assert factor(net, demand(net, senders, receivers)).mean == pytest.approx(2.52, rel=TOLERANCE)


@pytest.mark.parametrize(
    "shape", some([(3, 2, 2, 2)], (6, 2, 3), (4, 4, 4), (3, 8, 5), (2, 3, 3, 4)),
    ids=lambda shape: "x".join(map(str, shape)),
)  # fmt: skip
def test_an_exchange_over_one_and_two_stages_of_switches(shape):
    links, ends = clos(*shape)
    graph = fabric(links, ends, forwarding=False, routing="hashed")
    found = factor(network(graph), all_to_all(network(graph), ends))
    some = Oracle(graph, ends).factors(every_pair(ends, ends), 600)
    assert found.mean == pytest.approx(np.mean(some), rel=TOLERANCE)
    assert is_p99(found.p99, some)
    assert found.flows == len(ends) * (len(ends) - 1)


def irregular(routing):
    """A file's tree: leaves of unlike size, uplinks of one to six cables to three roots."""
    dies = {"leaf 0": [0, 1], "leaf 1": [2], "leaf 2": [3, 4, 5]}
    cables = {("leaf 0", 0): 3, ("leaf 0", 1): 2, ("leaf 1", 0): 1, ("leaf 1", 1): 4,
              ("leaf 2", 0): 6, ("leaf 2", 1): 2, ("leaf 2", 2): 5, ("leaf 0", 2): 1}  # fmt: skip

    def link(a, b, gb, count=1):
        return {"source": a, "target": b, "capacity_bytes_per_s": 1e9 * gb, "latency_s": 1e-7,
                "plane": "ub", "links": count, "read_efficiency": 1.0,
                "write_efficiency": 1.0}  # fmt: skip

    edges = [link(f"die {n}.0.{d}", leaf, 900.0) for leaf, nodes in dies.items()
             for n in nodes for d in range(2)]  # fmt: skip
    edges += [link(leaf, f"root {k}", 10.0 * c, c) for (leaf, k), c in cables.items()]
    names = {x for e in edges for x in (e["source"], e["target"])}
    text = json.dumps({"directed": False, "graph": {"routing": routing}, "edges": edges,
                       "nodes": [{"id": v} for v in sorted(names)]})  # fmt: skip
    machine = read_machine(text, "irregular tree")
    set_source({machine.digest: machine}.__getitem__)
    return Supernode(machine=machine.digest, chip="ascend-910c")


def test_an_imported_irregular_tree():
    net = build_fabric(irregular("hashed"), FACTS)
    ends = [net.vertices[v] for v in net.dies]
    found = price_of(net, range(len(ends))).collision
    some = Oracle(net.graph(), ends).factors(every_pair(ends, ends), 1500)
    assert found.mean == pytest.approx(np.mean(some), rel=TOLERANCE)
    assert is_p99(found.p99, some)
    even = build_fabric(irregular("ecmp"), FACTS)
    assert price_of(net, range(12)).bytes_per_s == pytest.approx(
        price_of(even, range(12)).bytes_per_s / found.mean
    )


@pytest.mark.parametrize("case", some([(8, 8)], (4, 8), (16, 4)), ids=str)
def test_single_transfers_wait_for_their_own_path_only(case):
    senders, spines = case
    links = [(f"a{i}", "from", 1.0) for i in range(senders)]
    links += [(x, f"spine {k}", 1.0) for k in range(spines) for x in ("from", "to")]
    links += [("to", f"b{j}", 1.0) for j in range(16)]
    out, into = [f"a{i}" for i in range(senders)], [f"b{j}" for j in range(16)]
    graph = fabric(links, out + into, forwarding=False, routing="hashed")
    net, oracle = network(graph), Oracle(graph, out + into)
    one = Demand(
        net_of(net, out), net_of(net, into), (1 / senders,) * senders, (1 / 16,) * 16, ("ub",),
        "nominal", "each",
    )  # fmt: skip
    found, each = factor(net, one), []
    for _ in range(4000):
        to = oracle.draw.sample(into, senders)
        each += oracle.seconds([(a, b, 1.0) for a, b in zip(out, to, strict=True)])[1]
    even = max(1.0, senders / spines)
    each = np.maximum(np.array(each) / even, 1.0)
    assert found.mean == pytest.approx(each.mean(), rel=TOLERANCE)
    assert found.p99 == pytest.approx(np.quantile(each, 0.99), rel=TOLERANCE)


def net_of(net, names):
    return tuple(net.number[name] for name in names)


@pytest.mark.parametrize("flows", some([7], 3, 40))
def test_more_paths_never_hurt_in_the_mean(flows):
    rates = []
    for paths in range(1, 13):
        links, senders, receivers = star(flows, paths)
        net = hashed(links, senders + receivers)
        rates.append(rate(net, demand(net, senders, receivers)))
    assert all(b >= a for a, b in zip(rates, rates[1:], strict=False))


@pytest.mark.parametrize("ends", some([2], 5))
def test_more_spines_never_hurt_in_the_mean(ends):
    rates = []
    for spines in range(1, 9):
        links, names = clos(3, ends, spines)
        net = hashed(links, names)
        rates.append(rate(net, all_to_all(net, names)))
    assert all(b >= a for a, b in zip(rates, rates[1:], strict=False))


@pytest.mark.parametrize("machines", some([10], 60))
def test_hashed_is_never_faster_than_the_even_split(machines):
    draw = random.Random(5)
    for _ in range(machines):
        links, names = clos(draw.randint(1, 4), draw.randint(1, 4), draw.randint(1, 5),
                            draw.choice((0, 0, 2, 3)))  # fmt: skip
        links = [(a, b, c * draw.choice((0.5, 1.0, 2.0))) for a, b, c in links]
        if len(names) < 3:
            continue
        out = draw.sample(names, draw.randint(1, len(names) - 1))
        into = [name for name in names if name not in out] if draw.random() < 0.5 else names
        whole, even = hashed(links, names), hashed(links, names, "ecmp")
        for flows in ("pairs", "each"):
            one = Demand(
                net_of(whole, out), net_of(whole, into), (1.0,) * len(out),
                (1.0 / len(into),) * len(into), ("ub",), "nominal", flows,
            )  # fmt: skip
            assert rate(whole, one) <= rate(even, one)


def test_only_flows_that_have_equal_paths_collide():
    """A port alone is as fast as by the even split; so are ends on one switch."""
    links = [(f"e{i}", "s", 1.0) for i in range(9)]
    net = hashed(links, [f"e{i}" for i in range(9)])
    assert factor(net, all_to_all(net, [f"e{i}" for i in range(9)])).mean == 1.0


def supernode(**fields):
    return build_fabric(Supernode(nodes=6, **fields), FACTS)


def test_an_answer_does_not_hang_on_what_was_asked_before():
    places = [range(0, 24), range(16, 40), range(40, 64), range(1, 25)]
    one, other = (supernode(ub_routing="hashed", l1_uplinks=u) for u in (16, 16))
    first = [price_of(one, dies).bytes_per_s for dies in places]
    one.memo.clear()
    assert [price_of(other, dies).bytes_per_s for dies in places[::-1]] == first[::-1]


def test_each_plane_routes_as_the_scenario_chose_for_it():
    built = supernode()
    assert [built.routing(p) for p in ("ub", "rdma", "host", "vpc")] == ["adaptive"] * 4
    net = supernode(rdma_routing="hashed", ub_routing="ecmp")
    assert [net.routing(p) for p in ("ub", "rdma", "host", "vpc")] == [
        "ecmp", "hashed", "hashed", "adaptive",
    ]  # fmt: skip


def test_prices_of_a_hashed_plane_are_those_of_the_even_split_over_the_factor():
    whole, even, dies = supernode(ub_routing="hashed"), supernode(ub_routing="ecmp"), range(32)
    for price in (price_of, pool_read):
        found = price(whole, dies)
        assert found.collision.mean > 1.05
        assert found.bytes_per_s == pytest.approx(
            price(even, dies).bytes_per_s / found.collision.mean
        )
    assert nic(whole, 0, "ub") == nic(even, 0, "ub")  # a port; transfers are priced apart
    both = [("prefill", range(16)), ("prefill", range(16, 32)), ("decode", range(32, 96))]
    found = transfer_collision(whole, both, "ub")
    assert 7.0 <= found.mean < 12.0  # of seven sub-planes a transfer takes one
    assert transfer_collision(whole, both[1:], "rdma").flows == 0


def test_of_a_bundle_flows_take_the_cables_that_are_left():
    """Seven of eight cables out: one of whole rate is left, and no flow gets a slower one."""
    sold = as_sold("hgx-h800", FACTS) | {"supernode.nodes": 8, "supernode.rdma_routing": "hashed"}
    whole = Supernode(**{path.split(".")[1]: value for path, value in sold.items()})
    cut = Edit(element="leaf 0.0", to="spine 0.0", links_out=7)
    net = build_fabric(whole.model_copy(update={"edits": (cut,)}), FACTS)
    (link, *_) = net.links_at("leaf 0.0", "spine 0.0")
    assert (net.cables[link], net.bundle[link]) == (1, 8)
    assert net.capacity[link] / net.cables[link] == pytest.approx(50e9)
    both = ("prefill", range(0, 32, 8)), ("decode", range(33, 64, 8))
    found = transfer_collision(net, both, "rdma")
    draw, some = random.Random(3), []
    for _ in range(20_000):  # rail 0 to rail 1: the cable up and the cable down of each flow
        takes = [draw.randrange(4) for _ in range(4)]
        up = [(k, draw.randrange(8 if k else 1)) for k in takes]
        down = [(k, draw.randrange(8)) for k in takes]
        some += [max(up.count(a), down.count(b)) for a, b in zip(up, down, strict=True)]
    assert found.mean == pytest.approx(np.mean(some), rel=TOLERANCE)


def test_an_even_split_takes_vertices_that_are_alike_one_by_one():
    """One of four paths is narrower, and still wider than its sender: all four carry the same,
    though nothing tells the other three apart."""
    links = [("a", "from", 1.0), ("to", "b", 1.0)]
    links += [(x, f"spine {k}", 3.0 if k else 2.0) for k in range(4) for x in ("from", "to")]
    for routing in ("ecmp", "hashed"):
        net = hashed(links, ["a", "b"], routing)
        load = load_of(net, demand(net, ["a"], ["b"]))
        carried = dict(zip(load.links.tolist(), load.amounts.tolist(), strict=True))
        up = [carried[int(net.links_at("from", f"spine {k}")[0])] for k in range(4)]
        assert up == pytest.approx([up[0]] * 4)
