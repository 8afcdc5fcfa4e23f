"""Expert load: speed of what the loop asks, and how far formulas are from brute force.

Reported, never asserted; `make bench` runs this.
"""

import numpy as np
import pytest
from numba import njit

from tests.experts.routing import best_peak, popularity, rebalance, simulated
from twin import experts as x
from twin.lab.library import load_facts
from twin.model.roofline import interpolate
from twin.scenario import Experts

SIZES = (
    (8, 36, 32), (16, 18, 32), (32, 9, 32), (64, 5, 64),
    (128, 2, 0), (256, 1, 0), (288, 1, 32), (320, 1, 64),
)  # dies, slots, redundant  # fmt: skip


def batch_grid(points):
    """Batch sizes of a table, f8[points]: from 1 to 2**20 tokens, evenly spaced in logarithm."""
    return 2.0 ** np.linspace(0.0, 20.0, points)


@pytest.fixture(scope="module")
def process():
    fields = {"drift_s": 600.0, "shift_every_s": 900.0, "topics": 4}
    return x.start_process(x.Routed(Experts(**fields), 256, 58, 8, load_facts(), 1))


def bench_now(benchmark, process):
    benchmark(x.chances_at, process, 1000.0)


def bench_measured(benchmark, process):
    benchmark(x.measured_load, process, 1000.0, 60.0, 1e4)


@pytest.mark.parametrize("placement", ["round_robin", "eplb", "eplb_groups", "greedy", "topology"])
def bench_place_on_320_dies(benchmark, process, placement):
    load = x.measured_load(process, 1000.0, 60.0)
    current = x.place(Experts(placement=placement, redundant=64), load, 320, 1, 20, groups=8)
    question = (Experts(placement=placement, redundant=64), load, 320, 1, 20, current)
    benchmark(x.place, *question, groups=8)


@pytest.mark.parametrize("points", [6, 11])
def bench_hot_factors_of_320_dies(benchmark, process, points):
    chances = x.chances_at(process, 1000.0)
    slots = x.place(Experts(redundant=64), x.long_run_chances(process), 320, 1)
    benchmark(x.hot_factors, chances, slots, batch_grid(points), 2.0, process.correlation)


def bench_factor_of_an_iteration(benchmark):
    """What an iteration asks of the table, as it asks it, for batches in no order."""
    table = np.linspace(3.0, 1.0, 41)
    grid = batch_grid(41)
    tokens = np.random.default_rng(1).uniform(1.0, 40_960.0, 4096)

    @njit
    def many(times):
        total = 0.0
        for i in range(times):
            total += interpolate(tokens[i % 4096], grid, table)
        return total

    many(1)
    benchmark.extra_info["us per iteration"] = None
    benchmark(many, 10_000)
    benchmark.extra_info["us per iteration"] = benchmark.stats["median"] / 10_000 * 1e6


@pytest.mark.parametrize("shape", ["skewed", "power_law", "uniform"])
@pytest.mark.parametrize("batch", [1, 2, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize(("dies", "room", "redundant"), SIZES)
def bench_finite_batches(benchmark, shape, batch, dies, room, redundant):
    """Said over simulated, less 1: mean of the hottest die, layer 20 of 40."""
    tokens = dies * batch
    rounds = 12_000 if batch < 8 else 3000 if batch < 64 else 1000
    law = popularity(Experts(popularity=shape), 256, 40, load_facts(), 1)
    load, now = (part[20:21] for part in law)
    slots = x.place(Experts(redundant=redundant), load, dies, room)
    grid = np.array([float(tokens)])
    benchmark(x.hot_factors, now, slots, grid)
    for name, distinct in (("distinct", True), ("multinomial", False)):
        rng = np.random.default_rng(1)
        mean, _ = simulated(now[0], slots[0], tokens, rounds, rng, distinct)
        said = x.hot_factors(now, slots, grid, distinct=distinct)[0]
        benchmark.extra_info[f"{name} mean"] = round(said / mean - 1, 4)


@pytest.mark.parametrize(("experts", "slots", "dies"), [(6, 8, 4), (8, 12, 4), (10, 12, 4)])
def bench_eplb_over_the_optimum(benchmark, experts, slots, dies):
    weights = [
        np.round(np.random.default_rng(seed).lognormal(0, 1, experts) * 20) + 1
        for seed in range(30)
    ]

    def greedy(weight):
        got = rebalance(weight[None], slots, 1, 1, dies)
        share = (weight / got.copies[0])[got.expert[0]]
        return float(share.reshape(dies, -1).sum(axis=1).max())

    over = [greedy(w) / best_peak(w, slots, dies, greedy(w)) for w in weights]
    benchmark.extra_info["mean over optimum"] = round(float(np.mean(over)), 4)
    benchmark.extra_info["worst over optimum"] = round(float(np.max(over)), 4)
    benchmark.extra_info["optimal"] = int(sum(o < 1 + 1e-9 for o in over))
    benchmark(greedy, weights[0])
