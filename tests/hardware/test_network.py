"""The graph is the machine: prices follow its links, whoever changed them and however."""

import numpy as np
import pytest

from tests.draws import some
from tests.hardware.wired import edited, edits_of, network
from twin.hardware import demands
from twin.hardware.fabric import build_fabric
from twin.hardware.prices import (
    all_to_all,
    nic,
    pool_read,
    port_rates,
    price_between,
    uplink_matrix,
)
from twin.hardware.recipes import as_sold, recipe_names
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
FULL = build_fabric(Supernode(), FACTS)
PRICES = {
    "all-to-all": lambda f: all_to_all(f, range(320)).bytes_per_s,
    "die to die": lambda f: price_between(f, 0, 40).bytes_per_s,
    "die to CPU": lambda f: price_between(f, 0, "CPU 5.1").bytes_per_s,
    "dies of an NPU": lambda f: price_between(f, 0, 1).bytes_per_s,
    "port, UB": lambda f: nic(f, 0, "ub").bytes_per_s,
    "port, RDMA": lambda f: nic(f, 0, "rdma").bytes_per_s,
    "port, VPC": lambda f: nic(f, 0, "vpc").bytes_per_s,
    "ports": lambda f: port_rates(f, "ub").sum(),
    "pool": lambda f: pool_read(f, range(32)).bytes_per_s,
    "pool, VPC": lambda f: pool_read(f, range(32), "vpc").bytes_per_s,
    "pool, RDMA": lambda f: pool_read(f, range(32), "rdma").bytes_per_s,
    "uplinks": lambda f: uplink_matrix(f).sum(),
    "hand-off": lambda f: alone(f, demands.kv_load, range(32), range(64, 96)),
    "from storage": lambda f: alone(f, demands.storage_read, range(32)),
    "to storage": lambda f: alone(f, demands.storage_write),
}


def alone(fabric, made, *dies):
    net = network(fabric)
    return made(net, *dies).rate_alone(net)[0]


@pytest.fixture(scope="module")
def tenth():
    """The machine with a tenth of each link's capacity."""
    slow = FULL.graph()
    for _, _, link in slow.edges(data=True):
        link["capacity_bytes_per_s"] *= 0.1
    return network(slow)


@pytest.mark.parametrize("name", PRICES)
def test_every_price_is_read_from_the_links_of_the_graph(tenth, name):
    assert PRICES[name](tenth) == pytest.approx(0.1 * PRICES[name](FULL))


def test_a_hundredth_of_the_dies_links_is_a_hundredth_of_the_exchange():
    weak = FULL.graph()
    before = all_to_all(network(weak), range(320)).bytes_per_s
    for _, _, link in weak.edges(data=True):
        link["capacity_bytes_per_s"] *= 0.01 if link["kind"] == "die-L1" else 1.0
    assert all_to_all(network(weak), range(320)).bytes_per_s == pytest.approx(0.01 * before)


def test_no_price_needs_to_know_how_the_machine_was_counted():
    bare = FULL.graph()
    for known in ("supernode", "made_of", "l2_chips_per_sub_plane"):
        del bare.graph[known]
    for price in PRICES.values():
        assert price(network(bare)) == pytest.approx(price(FULL))


def test_one_direction_of_a_link_can_differ():
    lame = FULL.graph()
    for p in range(7):
        lame.edges["die 0.0.0", f"L1 0.{p}"]["capacity_bytes_per_s"] /= 2
    assert price_between(network(lame), 0, 40).bytes_per_s == pytest.approx(
        price_between(FULL, 0, 40).bytes_per_s / 2
    )
    assert price_between(network(lame), 40, 0).bytes_per_s == pytest.approx(
        price_between(FULL, 40, 0).bytes_per_s
    )


def test_an_added_link_is_used_with_the_paths_over_switches():
    wider = FULL.graph()
    link = dict(FULL.graph().edges["die 0.0.0", "L1 0.0"])
    wider.add_edge("die 0.0.0", "die 1.0.0", **link)
    before, now = (
        price_between(fabric, "die 0.0.0", "die 1.0.0") for fabric in (FULL, network(wider))
    )
    share = FACTS.si("fabric.efficiency.write") * FACTS.si("fabric.efficiency.beyond_node")
    assert now.bytes_per_s == pytest.approx(before.bytes_per_s + 28e9 * share)
    assert now.latency_s == before.latency_s


def test_arrays_are_those_of_the_graph_edited_or_not():
    changed = edited(FULL, edits_of(["NPU 1.0"], {"node 5": 0.5}, {"L2 3.12": 2.0}))
    for fabric in (FULL, changed):
        net, graph = fabric, fabric.graph()
        assert [net.edge(i) for i in range(net.tail.size)] == list(graph.edges)
        for values, name in ((net.capacity, "capacity_bytes_per_s"), (net.latency, "latency_s")):
            assert values.tolist() == [data[name] for _, _, data in graph.edges(data=True)]
    assert network(FULL).vertices == network(changed).vertices


def test_bytes_are_counted_once_where_they_leave_and_once_where_they_enter():
    net = network(FULL)
    loads = [
        demands.exchange_load(net, range(24)),
        demands.kv_load(net, range(8), range(40, 56)),
        *(demands.pool_load(net, range(20), plane)[0] for plane in ("ub", "vpc")),
    ]
    for load in loads:
        way = np.array([net.places[i].direction for i in load.places])
        out, into = (
            load.bytes_at_places[way == "out"].sum(),
            load.bytes_at_places[way == "in"].sum(),
        )
        assert out == pytest.approx(into)
        assert np.isin(load.links, np.flatnonzero(net.capacity)).all()


@pytest.mark.parametrize(
    "machine", some([m for m in recipe_names(FACTS) if m != "ub-mesh"], "ub-mesh")
)
def test_a_machine_has_the_same_arrays_with_and_without_its_graph(machine):
    sold = {name.partition(".")[2]: value for name, value in as_sold(machine, FACTS).items()}
    for edits in ((), (Edit(element="node 0", capacity_factor=0.5),)):
        s = Supernode(**sold, edits=edits)
        bare = build_fabric(s, FACTS)
        graph = bare.graph()
        read = network(graph)
        assert bare.vertices == tuple(graph)
        for name, values in vars(read).items():
            if isinstance(values, np.ndarray):
                np.testing.assert_array_equal(getattr(bare, name), values, name)
        assert bare.about == graph.graph
