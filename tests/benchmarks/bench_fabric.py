"""The fabric of a full CloudMatrix384: built, edited, and read back from a file."""

import itertools

import pytest

from twin.hardware.exchange_format import read_fabric, write_fabric
from twin.hardware.fabric import build_fabric, edited
from twin.lab.library import load_facts
from twin.scenario import Supernode

FACTS = load_facts()


def bench_build(benchmark):
    sizes = itertools.count(2)  # equal supernodes share one graph
    benchmark.pedantic(
        build_fabric, setup=lambda: ((Supernode(nodes=48 - next(sizes)), FACTS), {}), rounds=10
    )


def bench_edit(benchmark):
    built = build_fabric(Supernode(), FACTS)
    benchmark(lambda: edited(built, remove=["node 5", "L2 2.1"], scale={"sub-plane 3": 0.5}))


@pytest.mark.parametrize("kind", ["json", "graphml"])
def bench_read(benchmark, kind):
    changed = edited(
        build_fabric(Supernode(), FACTS), remove=["node 5", "L2 2.1"], scale={"sub-plane 3": 0.5}
    )
    written = write_fabric(changed, kind)
    benchmark(lambda: read_fabric(written, kind, FACTS))
