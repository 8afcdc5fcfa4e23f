"""Capacity: the largest load at which `slo.share` of the requests meet TTFT and TPOT in steady
state. Bisection over simulations that begin steady, first where the formula (`outlook`) says. A
load is judged by the mean over the same seeds as every other, as many as it takes to tell it from
the share."""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

from twin.engine.start import begins_steady
from twin.facts import Facts
from twin.lab.explain.view import Summary, load_of, served_well
from twin.outlook import outlook, times
from twin.scenario import Scenario, SpecError, with_overrides

SEEDS = 8  # at most for one load: the scenario's own, and such that nothing else is judged by
OTHERS = 60_027  # the first of these
FIRST = 5  # at the first load: how far seeds differ is not known before
CLOSE = 1.015  # between a load that keeps the SLO and one that does not
STEP = 1.06  # off the formula's answer
LEAST, MOST = 1 / 64, 32.0  # of the load where the search begins: no load beyond is tried
SURE = 2.0  # standard errors
CLUSTERED = 4.0  # standard errors that a share of requests has at least: they share iterations
FIGURES = 4  # of a load
TINY = 1e-9
RUNS = 24  # of a search, about: for a bar of progress
UNITS = {"workload.rate_req_per_s": "req/s", "workload.concurrency": "clients"}

Simulated = Callable[[Scenario], Summary | None]  # None where it cannot run
Search = Generator[Scenario, Summary | None, "Capacity"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The largest load that keeps the SLO, in the unit of its field (`load_of`)."""

    path: str  # the field
    load: float  # 0: no load keeps it
    low: float  # the largest load that keeps it beyond chance
    high: float  # the least that misses it beyond chance; infinite: all that were tried keep it
    runs: int
    held: float = 0.0  # the largest load tried that keeps the SLO

    @property
    def unit(self) -> str:
        """What the load counts."""
        return UNITS.get(self.path, "times the trace's speed")


def capacity(s: Scenario, facts: Facts, simulated: Simulated) -> Capacity:
    """The capacity of a scenario. Raises what `simulated` raises."""
    search = searching(s, facts)
    wanted = next(search)
    while True:
        try:
            wanted = search.send(simulated(wanted))
        except StopIteration as found:
            return found.value


def searching(s: Scenario, facts: Facts, begin: float | None = None) -> Search:
    """The search: it gives scenarios, is sent their summaries and returns the capacity. From
    `begin`, or else the formula's answer, each step is the square of the one before until the SLO
    changes between met and missed; then it halves, and takes the share as linear between the last
    two loads."""
    path, own = load_of(s)
    first = load = begin or first_load(s, facts) or own
    judged, step, runs = at_steady(s, facts, first), STEP, 0
    low, high, surely, surely_not = 0.0, math.inf, 0.0, math.inf
    over, under = 1.0, 0.0  # of low and high, the share of requests beyond and short of the SLO's
    variances: list[float] = []
    apart = 1.0 if path == "workload.concurrency" else 0.0
    while first * LEAST <= load <= first * MOST:
        keeps, sure, made, beyond = yield from _judged(judged, load, variances)
        runs += made
        if keeps:
            low, over, surely = load, beyond, load if sure else surely
        else:
            high, under, surely_not = load, max(-beyond, 0.0), load if sure else surely_not
        if low and not math.isinf(high):
            if high / low <= CLOSE or high - low <= apart:
                break
            load = math.sqrt(low * high)
        else:
            load = load * step if keeps else load / step
            step *= step
    if not low or math.isinf(high):
        return Capacity(path, low, low, high, runs, low)
    most = low if apart else low + (high - low) * over / max(over + (under or over), TINY)
    surely_not = high if math.isinf(surely_not) else surely_not
    return Capacity(path, most, (surely or low) / CLOSE, surely_not * CLOSE, runs, low)


def first_load(s: Scenario, facts: Facts) -> float | None:
    """The capacity by formula; None where it has none to give in the load's unit."""
    if load_of(s)[0] != "workload.rate_req_per_s":
        return None
    try:
        return outlook(s, facts).slo_req_per_s or None
    except ValueError:
        return None


def at_steady(s: Scenario, facts: Facts, load: float) -> Scenario:
    """The scenario as the search simulates it: long enough for a steady state to show. Where a run
    does not begin in the steady state, or something is to happen in it, its own times stay."""
    if not steady_by_itself(s):
        return s
    try:
        horizon_s, warmup_s = times(with_load(s, load), facts)
    except ValueError:
        return s
    return with_overrides(s, {"horizon_s": horizon_s, "warmup_s": warmup_s})


def steady_by_itself(s: Scenario) -> bool:
    """Whether a run begins in the steady state and nothing is to happen that changes it."""
    return begins_steady(s) and not s.faults and s.elastic.controller == "fixed"


def with_load(s: Scenario, load: float) -> Scenario:
    """The scenario at a load, to four figures. Raises SpecError where no such load can be."""
    path, _ = load_of(s)
    rounded = float(f"{load:.{FIGURES}g}")
    whole = path == "workload.concurrency"
    return with_overrides(s, {path: max(1, round(rounded)) if whole else rounded})


def _judged(
    s: Scenario, load: float, variances: list[float]
) -> Generator[Scenario, Summary | None, tuple[bool, bool, int, float]]:
    """(whether the SLO holds at a load, whether that is beyond chance, runs, by how much the share
    of requests that meet it exceeds `slo.share`). variances: of that share between seeds, at the
    loads before; this one's is added, so that two seeds that agree by luck do not decide."""
    shares: list[float] = []
    overloaded, holds, sure = 0, False, False
    try:
        wanted = with_load(s, load)
    except SpecError:
        return False, True, 0, -1.0
    while len(shares) < SEEDS and not sure:
        seed = OTHERS + len(shares) if shares else s.seed
        summary = yield with_overrides(wanted, {"seed": seed})
        if summary is None:
            return False, True, len(shares) + 1, -1.0
        shares.append(served_well(summary))
        overloaded += summary.get("steady_state") == "overloaded"
        many, mean = len(shares), sum(shares) / len(shares)
        holds = mean >= s.slo.share and 2 * overloaded <= many
        if many < (2 if variances else FIRST):
            continue
        own = sum((x - mean) ** 2 for x in shares) / (many - 1)
        between = (sum(variances) + own) / (len(variances) + 1)
        judged = max(float(summary.get("requests_steady") or 0), 1.0)
        least = CLUSTERED**2 * s.slo.share * (1.0 - s.slo.share) / judged
        off = SURE * math.sqrt(max(between, least) / many)
        sure = overloaded == many or (not overloaded and abs(mean - s.slo.share) > off)
    if not overloaded and len(shares) > 2:
        variances.append(own)
    return holds, sure, len(shares), mean - s.slo.share
