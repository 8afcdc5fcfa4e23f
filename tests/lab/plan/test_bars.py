"""What a plan promises, on many small machines: its gap, its relaxations, its largest loads."""

import math
import random
import statistics
import sys

import pytest

from tests.draws import some
from tests.lab.plan.small import facts, plan, small
from tests.lab.plan.test_finish import TIGHT, finished
from tests.lab.plan.test_search import driven
from twin.lab.explain.capacity import with_load, with_longer_times, with_span
from twin.lab.plan.candidates import merit, space_of
from twin.lab.plan.drive import simulate_one
from twin.lab.plan.finish import Finish, most_missed_limit
from twin.lab.plan.search import Search
from twin.lab.plan.trial import judge, load_settings
from twin.scenario import with_overrides

SEEDS = range(101, 133)  # none that a plan takes
GAPS, RIVALS = 50, 2  # plans; of each the likeliest rivals, and others
FAR = 0.02  # of requests


@pytest.fixture
def say(capfd):
    """A function that prints a line in the middle of the tests."""

    def said(text):
        with capfd.disabled():
            sys.stdout.write(f"\n{text}\n")

    return said


def drawn(seed):
    """A plan of a small machine: any goal, load, lengths, SLO and budget."""
    r = random.Random(seed)
    lengths = r.choice(["fixed", "fixed", "sharegpt", "azure-2023-conv"])
    s = small(
        seed=r.randrange(1, 9999),
        supernode__nodes=r.choice([2, 3, 4]),
        workload__rate_req_per_s=r.choice([20.0, 40.0, 80.0, 120.0]),
        workload__lengths=lengths,
        workload__input_tokens=r.choice([256, 512, 2048]),
        workload__output_tokens=r.choice([32, 64, 200]),
        slo__ttft_s=r.choice([0.3, 1.0]),
        slo__tpot_ms=r.choice([8.0, 12.0, 20.0, 30.0]),
        slo__share=r.choice([0.9, 0.99]),
    )
    return plan(
        s, goal=r.choice(["npus", "efficiency", "rate"]), simulations=r.choice([8, 16, 40]),
        finalists=1,
    )  # fmt: skip


def carried_out(wanted):
    """The finish of a plan."""
    search = Search(space_of(wanted, facts()), facts())
    driven(search.steps())
    finish = Finish(search, facts())
    driven(finish.steps())
    return finish


def keeps(scenario, wanted):
    """Whether a deployment keeps its SLO at a load, by the mean of some seeds; one seed that is
    far from it is enough."""
    shares = []
    for seed in SEEDS[:3]:
        found = simulate_one(with_overrides(scenario, {"seed": seed}), facts())
        lost = isinstance(found, str) or found["steady_state"] == "overloaded"
        shares.append(0.0 if lost else judge(found, wanted, scenario)["share"])
        if shares[0] < scenario.slo.share - FAR:
            return False
    return statistics.fmean(shares) >= scenario.slo.share


@pytest.mark.parametrize("seed", some([], *range(GAPS)))
def test_no_deployment_that_was_priced_beats_the_first_by_more_than_the_gap(seed, say):
    wanted = drawn(seed)
    finish = carried_out(wanted)
    if not finish.finalists:
        return
    search, first = finish.search, finish.finalists[0]
    goal, rate = wanted.goal, search.space.rate
    best = merit(goal, first.rate, first.candidate.npus)
    gap = search.score_gap(best, {f.candidate.settings for f in finish.finalists})
    most, rivals = best * (1.0 + gap) * 1.0001, []
    for c in search.space.candidates:  # those that were refused for their bound too
        needs = rate or most * (1 if goal == "rate" else c.npus)
        may = c.price.bound and not c.price.refused and c.npus <= search.space.machine.npus
        if may and merit(goal, needs, c.npus) >= 0.99999 * most:
            rivals.append((c, needs))
    rivals.sort(key=lambda pair: -pair[0].price.bound / pair[1])
    r = random.Random(seed)
    chosen = rivals[:RIVALS] + r.sample(rivals[RIVALS:], min(RIVALS, len(rivals[RIVALS:])))
    say(f"gap {seed} {goal}: {100 * gap:.1f} %, {len(chosen)} of {len(rivals)} rivals")
    for c, needs in chosen:
        own = c.changes | load_settings(search.space, c.changes, needs)
        at = with_span(with_overrides(search.space.base, own), facts(), needs)
        assert not keeps(at, wanted), (c.changes, c.status, needs, best, gap)


# Limits that no deployment keeps: a millisecond is no time to a first token.
MORE = [
    {"workload__rate_req_per_s": 90.0, "slo__tpot_ms": 3.0, "supernode__nodes": 2},
    {"workload__rate_req_per_s": 30.0, "workload__output_tokens": 200, "slo__tpot_ms": 2.6,
     "supernode__nodes": 3},
    {"workload__rate_req_per_s": 50.0, "workload__input_tokens": 1024, "slo__ttft_s": 0.001,
     "supernode__nodes": 2},
    {"workload__rate_req_per_s": 20.0, "workload__lengths": "azure-2023-conv", "slo__ttft_s": 0.001,
     "supernode__nodes": 2},
    {"workload__rate_req_per_s": 300.0, "slo__tpot_ms": 1.5, "supernode__nodes": 2},
    {"workload__rate_req_per_s": 60.0, "slo__tpot_ms": 1.5, "slo__share": 0.9,
     "supernode__nodes": 2},
    {"workload__rate_req_per_s": 120.0, "workload__output_tokens": 128, "slo__tpot_ms": 3.2,
     "slo__ttft_s": 0.3, "supernode__nodes": 4},
]  # fmt: skip


def relaxed(scenario, row, part):
    """The scenario with a limit moved by a part of a relaxation."""
    path = {"load_req_per_s": "workload.rate_req_per_s"}.get(row["limit"], row["limit"])
    return with_overrides(scenario, {path: row["from"] + part * (row["to"] - row["from"])})


@pytest.mark.parametrize("tight", some([], *range(len(TIGHT) + len(MORE))))
def test_relaxed_by_it_something_fits_and_by_a_little_less_nothing_does(tight, say):
    scenario = small(**[*TIGHT, *MORE][tight])
    finish = finished(scenario)
    assert not finish.finalists and finish.relaxations
    wrong = []
    for row in finish.relaxations:
        fits = finished(relaxed(scenario, row, 1.0)).finalists
        less = finished(relaxed(scenario, row, 0.95)).finalists
        say(f"relaxation {tight}, {row['limit']}: {row['from']} to {row['to']}, {len(fits)} fit, "
            f"by 95 % of it {len(less)}")  # fmt: skip
        wrong += [row["limit"]] * (not fits or bool(less))
    assert not wrong


LARGEST = [
    {"workload__rate_req_per_s": 60.0, "supernode__nodes": 2, "slo__tpot_ms": 15.0},
    {"workload__rate_req_per_s": 90.0, "supernode__nodes": 3},
    {"workload__rate_req_per_s": 25.0, "workload__lengths": "sharegpt", "slo__tpot_ms": 10.0},
    {"workload__rate_req_per_s": 40.0, "workload__input_tokens": 2048, "slo__tpot_ms": 12.0},
    {"workload__rate_req_per_s": 200.0, "workload__output_tokens": 128, "slo__tpot_ms": 20.0},
    {"workload__rate_req_per_s": 30.0, "workload__lengths": "azure-2023-conv",
     "slo__tpot_ms": 9.0},
    {"workload__rate_req_per_s": 80.0, "slo__ttft_s": 0.2, "slo__tpot_ms": 40.0},
    {"workload__rate_req_per_s": 50.0, "slo__tpot_ms": 7.0, "workload__output_tokens": 200},
    {"workload__rate_req_per_s": 70.0, "slo__share": 0.9, "slo__tpot_ms": 10.0},
    {"workload__rate_req_per_s": 20.0, "workload__input_tokens": 4096, "slo__ttft_s": 0.5,
     "slo__tpot_ms": 15.0},
]  # fmt: skip
FINE = 0.0025  # of a load: between two of the grid
GRID = 24  # to each side of the plan's
MANY = (
    8,
    16,
    32,
)  # seeds of its own, each as long as the plan's ends: more where few may be chance


def on_a_grid(scenario, load, wanted):
    """(largest load of a fine grid around one that keeps the SLO, what the next one breaks), by the
    mean over seeds. What is kept falls with load, so the grid is halved."""
    low, high, missed, long, slo = -GRID, GRID, {}, with_longer_times(scenario), scenario.slo.share
    while high - low > 1:
        middle, trials = (low + high) // 2, []
        at = with_load(long, load * (1.0 + FINE) ** middle)
        for many in MANY:  # one of eight may fall behind for good at a load that others carry
            seeds = SEEDS[len(trials) : many]
            trials += [simulate_one(with_overrides(at, {"seed": seed}), facts()) for seed in seeds]
            shares = [t["share"] for t in trials]
            share, lost = statistics.fmean(shares), [t["steady_state"] for t in trials]
            keeps = share >= slo and 2 * lost.count("overloaded") <= len(lost)
            if share + 3.0 * statistics.stdev(shares) / math.sqrt(len(shares)) < slo:
                break
        missed[middle] = [t for t in trials if not t["holds"]]
        low, high = (middle, high) if keeps else (low, middle)
    return load * (1.0 + FINE) ** (low + 0.5), most_missed_limit(
        missed.get(high, missed[low]), wanted
    )


@pytest.mark.parametrize("load", some([], *range(len(LARGEST))))
def test_the_largest_load_is_that_of_a_fine_grid_and_breaks_the_same_first(load, say):
    wanted = plan(small(**LARGEST[load]), finalists=1)
    f = carried_out(wanted).finalists[0]
    found = f.capacity
    most, breaks = on_a_grid(f.scenario, found.load, wanted)
    say(
        f"largest {load}: {found.load:.4g} in {found.runs} runs, {found.low:.4g} to "
        f"{found.high:.4g}, {100 * (found.load / most - 1):+.2f} % off the grid, {f.breaks} "
        f"{breaks}"
    )
    assert found.low <= most <= found.high
    assert math.isclose(found.load, most, rel_tol=0.01)
    assert f.breaks == breaks
