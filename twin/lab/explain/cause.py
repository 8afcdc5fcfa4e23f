"""Entries for causes: functions of a `View` under `@cause` that yield changes. What a change
promises by closed forms only decides what is run first."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from twin.lab.explain.view import BEHIND, SERVED, Settings, View, finished_share, served_well
from twin.outlook import Standing, standing_at
from twin.scenario import Scenario, SpecError, field_info, read, with_overrides
from twin.steady import Priced

FAULT, CAUSE, DEMAND = 0, 1, 2  # what breaks; what limits; demand
WAITS = 0.2  # of the mean TTFT: from here on a queue is looked into


@dataclass(frozen=True)
class Change:
    """Changed fields of a scenario that would remove a cause."""

    settings: Settings
    doable: bool = True
    named: str = ""  # what is removed, where the cause is of several things
    promise: float = 0.0  # score that the run's record leaves to gain, where no formula says it


Found = Iterator[Change]


@dataclass(frozen=True)
class Cause:
    """A cause of time: its name, advice, and the changes to try."""

    key: str
    label: str
    advice: str  # imperative, for the one who operates the machine
    changes: Callable[[View], Found]
    kind: int = CAUSE


CAUSES: dict[str, Cause] = {}


def cause(
    key: str, label: str, advice: str, kind: int = CAUSE
) -> Callable[[Callable[[View], Found]], Callable[[View], Found]]:
    """Decorator that registers a function which examines a cause."""

    def register(changes: Callable[[View], Found]) -> Callable[[View], Found]:
        CAUSES[key] = Cause(key, label, advice, changes, kind)
        return changes

    return register


def possible(s: Scenario, settings: Settings) -> bool:
    """Whether the scenario can have these settings and does not have them already."""
    for path, value in settings.items():
        if "." in path and field_info(path) is None:
            return False
        if read(s, path) != value:
            break
    else:
        return False
    try:
        with_overrides(s, settings)
    except SpecError:
        return False
    return True


STEEP = 0.95  # utilisation from which on a queue grows with the time rather than with the load


@dataclass(frozen=True)
class Expected:
    """Closed-form figures of a scenario at the load of the run."""

    standing: Standing
    requests_per_s: float
    waits_s: dict[str, float]  # by part of the TTFT; only their ratios to another one's count


def promised(view: View, change: Change, base: Expected | None) -> float:
    """Expected score of a change: by formula, and at least what the record allows."""
    if base is None:
        return change.promise
    after = expected(view, with_overrides(view.scenario, change.settings))
    return change.promise if after is None else max(change.promise, _score(view, base, after))


def expected(view: View, s: Scenario) -> Expected | None:
    """Closed-form figures of a scenario under the view's load; None if there are none."""
    try:
        prices = Priced(s, view.facts, view.trace, view.counts)
        full = prices.full
        state = standing_at(prices, view.arrived_per_s or full.requests_per_s)
    except ValueError as error:
        if not type(error).__module__.startswith("twin."):
            raise
        return None
    rates = {"front_end": (full.front_end_requests_per_s, 1e-3 * s.front_end.service_ms)}
    if full.prefill is not None:
        rates["prefill_queue"] = (full.prefill.requests_per_s, state.prefill_s)
    if full.decode is not None:
        rates["router"] = (full.decode.requests_per_s, state.tpot_s)
    waits_s = {part: _wait_s(view, *rate_pair) for part, rate_pair in rates.items()}
    if state.prefill_s:
        waits_s |= {"prefill_queue": state.prefill_s, "prefill": state.prefill_s}
    return Expected(state, full.requests_per_s, waits_s)


def _wait_s(view: View, rate: float, service_s: float) -> float:
    """Seconds in the queue of one server; under overload the mean backlog of the run."""
    if view.scenario.workload.arrivals == "closed_loop":
        return 1.0 / rate
    used = view.arrived_per_s / rate
    busy, backlog_s = min(used, STEEP), 0.5 * view.scenario.horizon_s * (1.0 - 1.0 / used)
    return busy * service_s + busy / (1.0 - busy) / rate + max(0.0, backlog_s)


def _score(view: View, base: Expected, after: Expected) -> float:
    """`explain.score` of the run and of its figures scaled by the ratios of two closed forms."""
    before_s, after_s = base.waits_s, after.waits_s
    late = view.late
    for part, share in view.parts.items():
        if before_s.get(part):
            late += view.late * share * (after_s.get(part, 0.0) / before_s[part] - 1.0)
    tpot_s = base.standing.tpot_s
    slow = view.slow * (after.standing.tpot_s / tpot_s if tpot_s else 1.0)
    gain = math.log((view.late + view.slow + 1e-3) / (max(late, 0.0) + slow + 1e-3))
    if not view.held:
        lacking = 1.0 - served_well(view.summary)
        gained = min(max(after.standing.attained - base.standing.attained, 0.0), lacking)
        gain += SERVED * (lacking if late <= 1.0 and slow <= 1.0 else gained)
    if finished_share(view.summary, view.scenario) < BEHIND and view.arrived_per_s:
        rates = [min(view.arrived_per_s, prediction.requests_per_s) for prediction in (base, after)]
        gain += math.log(max(rates[1], 1e-9) / max(rates[0], 1e-9))
    return gain
