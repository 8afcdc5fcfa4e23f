"""The fabric of a full CloudMatrix384: built, edited, priced, and read back from a file."""

import itertools

import pytest

from tests.hardware.wired import edited, edits_of, network
from twin.hardware.fabric import build_fabric, with_edits
from twin.hardware.graph_text import forms
from twin.hardware.machine_file import fabric_text, read_machine
from twin.hardware.prices import all_to_all
from twin.hardware.recipes import as_sold
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
CHANGES = edits_of(["node 5", "L2 2.1"], {"sub-plane 3": 0.5})


def bench_build(benchmark):
    sizes = itertools.count(2)  # equal supernodes share one graph
    benchmark.pedantic(
        build_fabric, setup=lambda: ((Supernode(nodes=48 - next(sizes)), FACTS), {}), rounds=10
    )


def bench_edit(benchmark):
    built = build_fabric(Supernode(), FACTS)
    benchmark(lambda: edited(built, CHANGES))


MACHINES = [
    *(("cloudmatrix384", dies) for dies in (32, 320, 768)),
    *(("ub-mesh", dies) for dies in (64, 256, 512, 1024)),
    ("dragonfly", 320),
    ("torus-3d", 320),
]


@pytest.mark.parametrize(("recipe", "dies"), MACHINES)
def bench_price(benchmark, recipe, dies):
    """Cost against ranks."""
    sold = {path.split(".")[1]: value for path, value in as_sold(recipe, FACTS).items()}
    net = network(build_fabric(Supernode(**sold), FACTS))

    def fresh():  # a network that has answered nothing yet
        return (net.with_rates(net.capacity, net.latency), range(dies)), {}

    benchmark.pedantic(all_to_all, setup=fresh, rounds=3)


def bench_price_after_an_edit(benchmark):
    net = network(build_fabric(Supernode(), FACTS))
    edits = [Edit(element="L1 20.3", to="L2 3.12", capacity_factor=0.5), Edit(element="CPU 7.1")]
    benchmark(lambda: all_to_all(with_edits(net, edits), range(768)))


@pytest.mark.parametrize("kind", ["json", "graphml"])
def bench_read(benchmark, kind):
    if kind not in forms():
        pytest.skip("a form of an extra that is absent")
    written = fabric_text(edited(build_fabric(Supernode(), FACTS), CHANGES), kind)
    benchmark(lambda: read_machine(written, "machine"))
