"""Which supernode of a fleet takes which part of the traffic when: supernodes that are alike as
one, and shares over the spans between two losses."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twin.extras.fleet.question import Fleet, FleetError, Named
from twin.facts import Facts
from twin.metrics.hours import DAILY
from twin.scenario import Profile, Scenario, Workload, require_one_model, with_overrides
from twin.workload.profile import rate_at


@dataclass(frozen=True, slots=True)
class Unit:
    """Equal supernodes: of one kind, with one seed, lost at the same times."""

    kind: int
    numbers: tuple[int, ...]
    seed: int
    lost: tuple[tuple[float, float], ...] = ()  # from, to, within the run
    tenants: tuple[int, ...] | None = None  # None: all

    @property
    def count(self) -> int:
        """Number of supernodes."""
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class Burst:
    """Requests that restart elsewhere because a supernode was lost."""

    begin_s: float
    end_s: float
    requests: int
    rate: np.ndarray  # f8[units], at each supernode


@dataclass
class Layout:
    """Shares of traffic of each supernode of a fleet. Each supernode of a unit has a share of a
    region's traffic: f8[spans, regions, units], and f8[regions, units] while none is lost."""

    traffic: Scenario  # at the rate of the whole fleet
    kinds: tuple[Scenario, ...]
    units: tuple[Unit, ...]
    edges: np.ndarray  # f8[spans + 1] s
    share: np.ndarray
    whole: np.ndarray
    region_rate: np.ndarray  # f8[regions] req/s, mean
    regions: tuple[Workload, ...]  # the traffic as the clocks of each region have it
    bursts: list[Burst] = field(default_factory=list)

    def span(self, t: np.ndarray | float) -> Any:
        """Index of the span that contains a time."""
        return np.searchsorted(self.edges[1:-1], t, "right")

    def by_region(self, t: np.ndarray, facts: Facts) -> np.ndarray:
        """Expected arrivals per second of each region at times f8[n], f8[regions, n]."""
        horizon_s = self.traffic.horizon_s
        rates = zip(self.region_rate, self.regions, strict=True)
        return np.stack([rate * rate_at(w, t, horizon_s, facts) for rate, w in rates])

    def offered(self, t: np.ndarray, facts: Facts) -> np.ndarray:
        """Expected arrivals per second at each supernode of a unit, f8[n, units], no restarts."""
        shares = self.share[self.span(t)]
        result: np.ndarray = (self.by_region(t, facts).T[:, :, None] * shares).sum(axis=1)
        return result


def lay_out(fleet: Fleet, named: Named) -> Layout:
    """Units and shares of a fleet. Raises FleetError, SpecError with one sentence."""
    kinds = tuple(named(kind.scenario) for kind in fleet.kinds)
    traffic = _traffic(fleet, named(fleet.traffic) if fleet.traffic else kinds[0])
    _check(fleet, traffic, kinds)
    units = tuple(_units(fleet, traffic))
    times = {t for unit in units for gap in unit.lost for t in gap}
    edges = np.array(sorted({0.0, traffic.horizon_s} | times))
    live = [np.array([not _lost(u, begin_s) for u in units]) for begin_s in edges[:-1]]
    parts = np.array([region.share for region in fleet.regions] or [1.0])
    profile = traffic.workload.profile
    clocks = [
        traffic.workload.model_copy(update={"profile": ahead(profile, hours / 24.0)})
        for hours in [r.shift_h for r in fleet.regions] or [0.0]
    ]
    return Layout(
        traffic, kinds, units, edges,
        share=np.stack([_shares(fleet, units, traffic, now) for now in live]),
        whole=_shares(fleet, units, traffic, np.ones(len(units), bool)),
        region_rate=traffic.workload.rate_req_per_s * (parts / parts.sum()),
        regions=tuple(clocks),
    )  # fmt: skip


def ahead(profile: Profile, days: float) -> Profile:
    """A daily profile shifted by a number of days; other profiles are unchanged."""
    if not days or profile.shape not in DAILY:
        return profile
    begins_s = (profile.begins_s + days * profile.period_s) % profile.period_s
    return profile.model_copy(update={"begins_s": begins_s})


def _traffic(fleet: Fleet, base: Scenario) -> Scenario:
    """The scenario whose traffic all share, at the rate of the whole fleet."""
    w = base.workload
    if w.arrivals in ("closed_loop", "trace"):
        raise FleetError(
            f"a front router cannot split workload.arrivals = {w.arrivals}: take poisson, gamma or "
            "uniform arrivals"
        )
    if w.prompts:
        raise FleetError("workload.prompts of the traffic must be 0: a fleet serves to its horizon")
    if w.prefix == "sessions" and fleet.router != "hash":
        raise FleetError(
            f"router = {fleet.router} sends the turns of a session to different supernodes, whose "
            "pools lack the turns before: take hash"
        )
    rate = fleet.rate_req_per_s or w.rate_req_per_s * fleet.supernodes
    horizon_s = fleet.horizon_s or base.horizon_s
    # Not through validation: the rate of a fleet may be beyond that of one scenario.
    scenario = with_overrides(base, {"horizon_s": horizon_s, "seed": fleet.seed})
    workload = scenario.workload.model_copy(update={"rate_req_per_s": rate})
    return scenario.model_copy(update={"workload": workload})


def _check(fleet: Fleet, traffic: Scenario, scenarios: Sequence[Scenario]) -> None:
    """Raise FleetError for rows that contradict the traffic or a kind's scenario."""
    kinds = {kind.name: s for kind, s in zip(fleet.kinds, scenarios, strict=True)}
    for one in (traffic, *scenarios):
        require_one_model(one, "a fleet")
    if traffic.workload.profile.shape not in DAILY and any(r.shift_h for r in fleet.regions):
        raise FleetError("regions whose clocks are ahead need a traffic whose profile is a day")
    if fleet.sticky == "tenant" and fleet.router == "hash" and not traffic.tenants:
        raise FleetError("sticky = tenant needs tenants in the traffic's scenario: take session")
    for i, row in enumerate(fleet.lost):
        if not traffic.warmup_s < row.from_s < traffic.horizon_s:
            raise FleetError(
                f"lost.{i}.from_s = {row.from_s:g} s must lie between the end of the warm-up at "
                f"{traffic.warmup_s:g} s and the end of the run at {traffic.horizon_s:g} s"
            )
        if kinds[row.kind].elastic.schedule:
            raise FleetError(
                f"lost.{i}: instances of {row.kind} follow elastic.schedule, whose times would be "
                "others after a start: take another controller"
            )


def _units(fleet: Fleet, traffic: Scenario) -> list[Unit]:
    """Supernodes of a fleet, equal ones as one unit."""
    units, end_s = list[Unit](), traffic.horizon_s
    homes = _homes(fleet, traffic)
    for k, kind in enumerate(fleet.kinds):
        units_by_key: dict[tuple[Any, ...], list[int]] = {}
        gaps: dict[int, list[tuple[float, float]]] = {}
        for row in sorted((r for r in fleet.lost if r.kind == kind.name), key=lambda r: r.from_s):
            gaps.setdefault(row.number, []).append((row.from_s, min(row.to_s or end_s, end_s)))
        for number in range(kind.count):
            theirs = None if homes is None else tuple(homes.get((k, number), ()))
            seed = 0 if theirs == () else number % fleet.seeds
            units_by_key.setdefault((seed, tuple(gaps.get(number, ())), theirs), []).append(number)
        units += [
            Unit(k, tuple(numbers), fleet.seed + seed, lost, theirs)
            for (seed, lost, theirs), numbers in units_by_key.items()
        ]
    return units


def _homes(fleet: Fleet, traffic: Scenario) -> dict[tuple[int, int], list[int]] | None:
    """Tenants of each supernode (kind, number) by weighted rendezvous hashing; None: by none."""
    if fleet.router != "hash" or fleet.sticky != "tenant":
        return None
    homes: dict[tuple[int, int], list[int]] = {}
    for region in [r.name for r in fleet.regions] or [""]:
        for t, tenant in enumerate(traffic.tenants):
            best = max(
                ((_score(tenant.name, kind.name, number, kind.weight), -k, -number)
                 for k, kind in enumerate(fleet.kinds) if kind.region in ("", region)
                 for number in range(kind.count))
            )  # fmt: skip
            homes.setdefault((-best[1], -best[2]), []).append(t)
    return homes


def _score(tenant: str, kind: str, number: int, weight: float) -> float:
    """Score of a supernode for a tenant: the largest is its home, in proportion to weights."""
    digest = hashlib.sha256(f"{tenant}\n{kind}\n{number}".encode()).digest()
    point = (int.from_bytes(digest[:8], "big") + 0.5) / 2.0**64
    return -weight / math.log(point)


def _lost(unit: Unit, at_s: float) -> bool:
    return any(begin_s <= at_s < end_s for begin_s, end_s in unit.lost)


def _shares(fleet: Fleet, units: Sequence[Unit], traffic: Scenario, live: np.ndarray) -> np.ndarray:
    """Share of each region's traffic that each supernode takes, f8[regions, units]."""
    regions = [r.name for r in fleet.regions] or [""]
    takes = np.array([[fleet.kinds[u.kind].region in ("", name) for u in units]
                      for name in regions])  # fmt: skip
    if any(u.tenants is not None for u in units):
        part = np.array([t.share for t in traffic.tenants])
        tenant_shares = [part[list(u.tenants or ())].sum() / part.sum() for u in units]
        return np.where(takes, np.array(tenant_shares), 0.0)
    weight = np.array([fleet.kinds[u.kind].weight for u in units])
    count = np.array([u.count for u in units])
    share = np.where(takes, weight / (takes * weight * count).sum(axis=1, keepdims=True), 0.0)
    missing = (share * count)[:, ~live].sum(axis=1, keepdims=True)
    share[:, ~live] = 0.0
    others = np.where(takes & live, weight, 0.0) if fleet.spill == "region" else weight * live
    others = np.where((others * count).sum(axis=-1, keepdims=True) > 0.0, others, weight * live)
    if not live.any():
        raise FleetError("lost: at one time every supernode is lost, and nothing takes the traffic")
    total = (others * count).sum(axis=-1, keepdims=True)
    result: np.ndarray = share + missing * others / total
    return result


def add_burst(laid: Layout, resend_s: float, at_s: float, inside: int) -> None:
    """Spread the requests inside a lost supernode over those that take its share."""
    span = int(laid.span(at_s))
    rate_per_share = laid.region_rate @ np.maximum(laid.share[span] - laid.share[span - 1], 0.0)
    count = np.array([unit.count for unit in laid.units])
    end_s = min(at_s + resend_s, float(laid.edges[span + 1]))
    rate = inside * rate_per_share / ((rate_per_share @ count) * (end_s - at_s))
    laid.bursts.append(Burst(at_s, end_s, inside, rate))
