"""How much traffic keeps the SLO: found by bisection over simulated runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twin.facts import Facts
from twin.lab.explain.runs import Runs
from twin.lab.explain.view import at_load, holds
from twin.scenario import Scenario, SpecError
from twin.steady import outlook

PROBES = 4
CLOSE = 1.12  # between what holds and what does not: near enough
STEP = 0.9  # the square root of the first step down
FAR = 32.0  # times the traffic: beyond it nobody asks
LEAST = 1 / 64


@dataclass(frozen=True)
class Headroom:
    """The most traffic that was seen to keep the SLO, as a factor of what is asked; 0: none."""

    factor: float
    bounded: bool  # whether a little more was seen to break it


def headroom(runs: Runs, scenario: Scenario, held: bool) -> Headroom:
    """The largest factor that holds, to within some per cent; every end of it is a run."""
    low, high = (1.0, math.inf) if held else (0.0, 1.0)
    guess, step = _formula(scenario, runs.facts), STEP
    for _ in range(PROBES):
        if low >= FAR or (low > 0 and high / low < CLOSE):
            break
        if not low < guess < high:
            guess = 2 * low if math.isinf(high) else math.sqrt(max(low, LEAST) * high)
        if guess <= LEAST:
            break
        guess = float(f"{min(guess, FAR):.3g}")
        if _holds(runs, scenario, guess):
            low = guess
            guess = 1.1 * low if math.isinf(high) else math.sqrt(low * high)
        else:
            high = guess
            step *= step  # the further what holds is, the longer the steps
            guess = step * high if step * high > low else math.sqrt(low * high)
    return Headroom(low, not math.isinf(high))


def _holds(runs: Runs, scenario: Scenario, factor: float) -> bool:
    try:
        asked = at_load(scenario, factor)
    except SpecError:
        return False
    summary = runs.of(asked)
    return summary is not None and holds(summary, asked)


def _formula(s: Scenario, facts: Facts) -> float:
    """Where to look first: the rate that keeps the SLO's TPOT by formula, over what is offered."""
    if s.workload.arrivals in ("closed_loop", "trace"):
        return 1.0
    try:
        known = outlook(s, facts)
    except ValueError:
        return 1.0
    return 0.9 * known.slo_req_per_s / s.workload.rate_req_per_s
