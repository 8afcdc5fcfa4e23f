"""The scenario of each stretch in which a supernode serves: its kind's, with its part of the
traffic.

The front router looks at nothing that runs inside, so a supernode sees a thinned stream: of a
Poisson stream again one; of a renewal stream one whose squared coefficient of variation is 1 + p
(cv2 - 1) where a share p is drawn, and cv2 / n where each n-th request is taken (Cox 1962)."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twin.extras.fleet.layout import Layout, add_burst, ahead, lay_out
from twin.extras.fleet.question import Fleet, FleetError, Named
from twin.facts import Facts
from twin.metrics.hours import DAILY
from twin.scenario import Profile, Scenario, field_info, scenario_digest, with_overrides
from twin.workload.profile import length_at, rate_at

RUNS_MAX = 150  # different scenarios of one fleet: as many can wait
OF_TRAFFIC = ("clients", "slo")  # sections that every supernode takes over, as its workload
MINUTES = 1440  # of a day: cells of a load that is no profile of its own
Left = Callable[[Scenario], int | None]  # requests inside at the end of a run; None: not run yet
Rows = list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class Life:
    """A span in which the supernodes of a unit serve, and its scenario."""

    unit: int
    begin_s: float
    end_s: float
    scenario: Scenario


@dataclass(slots=True)
class Lives:
    """All spans of a fleet; until the number of requests inside a lost supernode is known, only
    those that determine it."""

    laid: Layout
    lives: list[Life] = field(default_factory=list)

    @property
    def needs(self) -> dict[str, Scenario]:
        """The different scenarios to run, by digest."""
        return {scenario_digest(one.scenario): one.scenario for one in self.lives}


def lives_of(fleet: Fleet, named: Named, facts: Facts, left: Left, *, empty: bool = False) -> Lives:
    """Spans and scenarios of a fleet. left: from earlier runs; empty: none begins in a steady
    state. Raises FleetError, SpecError with one sentence."""
    layout = lay_out(fleet, named)
    maker = _Maker(fleet, layout, facts, empty or bool(fleet.lost))
    result = Lives(layout)
    for at_s, u in sorted((gap[0], u) for u, unit in enumerate(layout.units) for gap in unit.lost):
        begin_s = max([back_s for _, back_s in layout.units[u].lost if back_s < at_s], default=0.0)
        last = maker.life(u, begin_s, at_s)
        if (requests_inside := left(last.scenario)) is None:
            return Lives(layout, [last])
        add_burst(layout, fleet.resend_s, at_s, requests_inside)
    for u, unit in enumerate(layout.units):
        if unit.tenants == ():
            continue
        begins = [0.0, *(back_s for _, back_s in unit.lost)]
        ends = [*(at_s for at_s, _ in unit.lost), layout.traffic.horizon_s]
        spans = zip(begins, ends, strict=True)
        result.lives += [maker.life(u, begin, end) for begin, end in spans if begin < end]
    if (runs := len(result.needs)) > RUNS_MAX:
        raise FleetError(
            f"this fleet has {runs} different runs: at most {RUNS_MAX}, so take fewer seeds, kinds "
            "or losses"
        )
    return result


@dataclass(frozen=True, slots=True)
class _Maker:
    """Builder of the scenarios of a layout."""

    fleet: Fleet
    laid: Layout
    facts: Facts
    empty: bool

    def life(self, u: int, begin_s: float, end_s: float) -> Life:
        """`Life` of a unit's supernodes from one time to another."""
        unit, traffic = self.laid.units[u], self.laid.traffic
        kind, values = self.laid.kinds[unit.kind], traffic.model_dump(mode="json")
        tenants = values["tenants"]
        changed = {name: values[name] for name in OF_TRAFFIC} | {
            "seed": unit.seed,
            "horizon_s": end_s - begin_s,
            "warmup_s": 0.0 if begin_s else traffic.warmup_s,
            "start": "empty" if self.empty or begin_s else traffic.start,
            "tenants": tenants if unit.tenants is None else [tenants[t] for t in unit.tenants],
            "workload": values["workload"] | self._load(u, begin_s, end_s),
        }
        if begin_s and kind.faults:
            faults = kind.model_dump(mode="json")["faults"]
            changed["faults"] = [
                row | {"at_s": row["at_s"] - begin_s} for row in faults if row["at_s"] >= begin_s
            ]
        life_scenario = with_overrides(kind, changed)
        if life_scenario != kind:
            life_scenario = life_scenario.model_copy(
                update={"name": self._name(life_scenario, kind, begin_s, end_s)}
            )
        return Life(u, begin_s, end_s, life_scenario)

    def _name(self, made: Scenario, kind: Scenario, begin_s: float, end_s: float) -> str:
        """A name derived from the simulated contents, so that equal supernodes stay equal."""
        name_parts = [f"{made.workload.rate_req_per_s:.4g} req/s"]
        if (begin_s, end_s) != (0.0, self.laid.traffic.horizon_s):
            name_parts.append(f"{begin_s:g} to {end_s:g} s")
        elif made.workload.profile.pieces:
            name_parts.append("a share that changes")
        name_parts += [f"seed {made.seed}"] if made.seed != kind.seed else []
        return " · ".join([kind.name[:70], *name_parts])

    def _load(self, u: int, begin_s: float, end_s: float) -> dict[str, Any]:
        """Workload fields that differ from the whole fleet's."""
        layout, w = self.laid, self.laid.traffic.workload
        regions = np.flatnonzero(layout.whole[:, u] + layout.share[:, :, u].sum(axis=0))
        one_clock = len({layout.regions[r] for r in regions}) == 1
        of_one = self._scaled(u, int(regions[0]), begin_s, end_s) if one_clock else None
        rate, profile = of_one or self._tabled(u, begin_s, end_s)
        part = float(layout.region_rate @ layout.whole[:, u]) / w.rate_req_per_s
        turn = 1.0
        if self.fleet.router == "round_robin":
            turn = float(layout.whole[regions[0], u])
            part /= turn
        of_stream = _stream(w.arrivals, w.cv, part, turn)
        return {"rate_req_per_s": rate, "profile": profile} | of_stream

    def _scaled(
        self, u: int, region: int, begin_s: float, end_s: float
    ) -> tuple[float, dict[str, Any]] | None:
        """(mean rate, profile) if all traffic has the profile of one region that can be cut to the
        span; otherwise None."""
        layout, workload = self.laid, self.laid.regions[region]
        profile, whole_time = workload.profile, (begin_s, end_s) == (0.0, layout.traffic.horizon_s)
        if profile.pieces or not (whole_time or profile.shape in (*DAILY, "constant")):
            return None
        rate = float(layout.region_rate @ layout.whole[:, u])
        edges = self._edges(u, begin_s, end_s, ())
        middle = 0.5 * (edges[1:] + edges[:-1])
        more = self._again(u, middle)
        load = rate * rate_at(workload, middle, layout.traffic.horizon_s, self.facts)
        if (more[load <= 0.0] > 0.0).any():
            return None
        factor = layout.share[layout.span(middle), :, u] @ layout.region_rate / rate
        factor = factor + np.divide(more, load, out=np.zeros_like(more), where=load > 0.0)
        profile_fields = ahead(profile, begin_s / profile.period_s).model_dump(mode="json")
        return rate, profile_fields | {"pieces": _pieces(edges - begin_s, {"rate": factor})}

    def _tabled(self, u: int, begin_s: float, end_s: float) -> tuple[float, dict[str, Any]]:
        """(mean rate, profile) as a table: of several regions, or of a part of a profile."""
        layout, p = self.laid, self.laid.traffic.workload.profile
        own_edges = {piece.at_s for piece in p.pieces} | {p.at_s, p.at_s + p.lasts_s}
        edges = self._edges(u, begin_s, end_s, {*self._minutes(begin_s, end_s), *own_edges})
        middle = 0.5 * (edges[1:] + edges[:-1])
        by_region = layout.by_region(middle, self.facts).T * layout.share[layout.span(middle), :, u]
        load = by_region.sum(axis=1) + self._again(u, middle)
        rate = float((load * np.diff(edges)).sum() / (end_s - begin_s))
        rows = {"rate": load / max(rate, 1e-9)}
        for side in ("input", "output"):
            lengths = [length_at(w, middle, side, self.facts) for w in layout.regions]
            first = by_region + 1e-12  # where nothing comes, lengths are any
            rows[side] = (first * np.stack(lengths, axis=1)).sum(axis=1) / first.sum(axis=1)
        profile_fields = Profile().model_dump(mode="json")
        return rate, profile_fields | {"pieces": _pieces(edges - begin_s, rows)}

    def _edges(self, u: int, begin_s: float, end_s: float, more: Iterable[float]) -> np.ndarray:
        """Times between two times at which the load of a unit changes."""
        inner = {*self.laid.edges.tolist(), *more}
        for burst in self.laid.bursts:
            if burst.rate[u]:
                inner |= {burst.begin_s, burst.end_s, *self._minutes(burst.begin_s, burst.end_s)}
        return np.array([begin_s, *sorted(t for t in inner if begin_s < t < end_s), end_s])

    def _minutes(self, begin_s: float, end_s: float) -> list[float]:
        """Minutes of the day, or of a run without one, between two times."""
        traffic = self.laid.traffic
        p = traffic.workload.profile
        each_s = (p.period_s if p.shape in DAILY else traffic.horizon_s) / MINUTES
        minutes = range(math.ceil(begin_s / each_s), math.ceil(end_s / each_s))
        return [minute * each_s for minute in minutes]

    def _again(self, u: int, t: np.ndarray) -> np.ndarray:
        """Restarted requests per second at a supernode at times t f8[n], f8[n]."""
        rates = np.zeros_like(t)
        for burst in self.laid.bursts:
            rates += burst.rate[u] * ((t >= burst.begin_s) & (t < burst.end_s))
        return rates


def _pieces(edges: np.ndarray, factors: dict[str, np.ndarray]) -> Rows:
    """Rows of `workload.profile.pieces`, one for each change of a factor."""
    rows, last = Rows(), {name: 1.0 for name in factors}
    for k, at_s in enumerate(edges[:-1].tolist()):
        now = {name: float(values[k]) for name, values in factors.items()}
        if now != last:
            rows.append({"at_s": at_s, **now})
            last = now
    return rows


def _stream(arrivals: str, cv: float, part: float, turn: float) -> dict[str, Any]:
    """Arrivals and their burstiness in a stream of which a part is drawn, and of that every
    1/turn-th taken; nothing where they stay.

    >>> _stream("poisson", 1.0, 0.01, 1.0), _stream("poisson", 1.0, 1.0, 0.25)
    ({}, {'arrivals': 'gamma', 'cv': 0.5})"""
    before = {"poisson": 1.0, "uniform": 0.0}.get(arrivals, cv * cv)
    after = (1.0 + part * (before - 1.0)) * turn
    if after == before or (before == 0.0 and part == 1.0):
        return {}
    least = field_info("workload.cv")
    assert least is not None and least.low is not None
    return {"arrivals": "gamma", "cv": max(math.sqrt(max(after, 0.0)), least.low)}
