"""The fabric of a full CloudMatrix384: built, edited, priced, and read back from a file."""

import itertools

import pytest

from twin.hardware.exchange_format import read_fabric, write_fabric
from twin.hardware.fabric import build_fabric, edited, with_edits
from twin.hardware.network import network
from twin.hardware.prices import all_to_all
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()


def bench_build(benchmark):
    sizes = itertools.count(2)  # equal supernodes share one graph
    benchmark.pedantic(
        build_fabric, setup=lambda: ((Supernode(nodes=48 - next(sizes)), FACTS), {}), rounds=10
    )


def bench_edit(benchmark):
    built = build_fabric(Supernode(), FACTS)
    benchmark(lambda: edited(built, remove=["node 5", "L2 2.1"], scale={"sub-plane 3": 0.5}))


@pytest.mark.parametrize("dies", [32, 320, 768])
def bench_price(benchmark, dies):
    net = network(build_fabric(Supernode(), FACTS))

    def fresh():  # a network that has answered nothing yet
        return (net.changed(net.capacity, net.latency), range(dies)), {}

    benchmark.pedantic(all_to_all, setup=fresh, rounds=10)


def bench_price_after_an_edit(benchmark):
    net = network(build_fabric(Supernode(), FACTS))
    edits = [Edit(element="L1 20.3", to="L2 3.12", capacity_factor=0.5), Edit(element="CPU 7.1")]
    benchmark(lambda: all_to_all(with_edits(net, edits), range(768)))


@pytest.mark.parametrize("kind", ["json", "graphml"])
def bench_read(benchmark, kind):
    changed = edited(
        build_fabric(Supernode(), FACTS), remove=["node 5", "L2 2.1"], scale={"sub-plane 3": 0.5}
    )
    written = write_fabric(changed, kind)
    benchmark(lambda: read_fabric(written, kind, FACTS))
