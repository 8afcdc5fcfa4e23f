"""Which supernode of a fleet takes which part of the traffic when: supernodes that are alike as
one, and shares over the spans between two losses; and the scenario of each stretch in which one
serves, which is its kind's with its part of the traffic.

The front router looks at nothing that runs inside, so a supernode sees a thinned stream: of a
Poisson stream again one; of a renewal stream one whose squared coefficient of variation is 1 + p
(cv2 - 1) where a share p is drawn, and cv2 / n where each n-th request is taken (Cox 1962)."""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twin.extras.fleet.question import Fleet, FleetError, Named
from twin.facts import Facts
from twin.metrics.hours import DAILY
from twin.scenario import (
    Profile,
    Scenario,
    Workload,
    field_info,
    require_one_model,
    scenario_digest,
    with_overrides,
)
from twin.workload.profile import length_factor_at, rate_factor_at


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
        """Number of supernodes in the unit."""
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
    """Units of a fleet, and `share`: what one supernode of each unit gets of each region's traffic,
    f8[spans, regions, units]; `whole`, f8[regions, units], is the same while none is lost."""

    traffic: Scenario  # at the rate of the whole fleet
    kinds: tuple[Scenario, ...]
    units: tuple[Unit, ...]
    edges: np.ndarray  # f8[spans + 1] s
    share: np.ndarray
    whole: np.ndarray
    region_rate: np.ndarray  # f8[regions] req/s, mean
    regions: tuple[Workload, ...]  # the traffic as the clocks of each region have it
    bursts: list[Burst] = field(default_factory=list)

    def span_at(self, t: np.ndarray | float) -> Any:
        """Index of the span of `edges` that contains a time t (s), or each of several, i8[n]."""
        return np.searchsorted(self.edges[1:-1], t, "right")

    def req_per_s_by_region(self, t: np.ndarray, facts: Facts) -> np.ndarray:
        """Expected arrivals per second in each region, f8[regions, n], at times t f8[n] (s)."""
        horizon_s = self.traffic.horizon_s
        return np.stack([
            mean_per_s * rate_factor_at(workload, t, horizon_s, facts)
            for mean_per_s, workload in zip(self.region_rate, self.regions, strict=True)
        ])  # fmt: skip


def lay_out_fleet(fleet: Fleet, named: Named) -> Layout:
    """Layout of a fleet: its units of equal supernodes, and their shares of traffic; named: finds a
    scenario by name. Raises FleetError, SpecError with one sentence."""
    kinds = tuple(named(kind.scenario) for kind in fleet.kinds)
    traffic = _fleet_traffic(fleet, named(fleet.traffic) if fleet.traffic else kinds[0])
    _refuse_contradictions(fleet, traffic, kinds)
    units = tuple(_units_of_fleet(fleet, traffic))
    loss_times_s = {time_s for unit in units for gap in unit.lost for time_s in gap}
    edges_s = np.array(sorted({0.0, traffic.horizon_s} | loss_times_s))
    live_by_span = [
        np.array([not any(lost_s <= edge_s < back_s for lost_s, back_s in unit.lost)
                  for unit in units]) for edge_s in edges_s[:-1]
    ]  # fmt: skip
    region_weights = np.array([region.share for region in fleet.regions] or [1.0])
    workload = traffic.workload
    return Layout(
        traffic, kinds, units, edges_s,
        share=np.stack([_traffic_shares(fleet, units, traffic, alive) for alive in live_by_span]),
        whole=_traffic_shares(fleet, units, traffic, np.ones(len(units), bool)),
        region_rate=workload.rate_req_per_s * (region_weights / region_weights.sum()),
        regions=tuple(
            workload.model_copy(update={"profile": shift_profile(workload.profile, shift_h / 24)})
            for shift_h in [region.shift_h for region in fleet.regions] or [0.0]),
    )  # fmt: skip


def shift_profile(profile: Profile, days: float) -> Profile:
    """A daily profile shifted by a number of days; other profiles are unchanged."""
    if not days or profile.shape not in DAILY:
        return profile
    shifted_begins_s = (profile.begins_s + days * profile.period_s) % profile.period_s
    return profile.model_copy(update={"begins_s": shifted_begins_s})


def _fleet_traffic(fleet: Fleet, base: Scenario) -> Scenario:
    """The scenario `base` with request rate, horizon and seed of the whole fleet; raises FleetError
    for traffic that a front router cannot split."""
    workload = base.workload
    if workload.arrivals in ("closed_loop", "trace"):
        raise FleetError(
            f"a front router cannot split workload.arrivals = {workload.arrivals}: take poisson, "
            "gamma or uniform arrivals"
        )
    if workload.prompts:
        raise FleetError("workload.prompts of the traffic must be 0: a fleet serves to its horizon")
    if workload.prefix == "sessions" and fleet.router != "hash":
        raise FleetError(
            f"router = {fleet.router} sends the turns of a session to different supernodes, whose "
            "pools lack the turns before: take hash"
        )
    req_per_s = fleet.rate_req_per_s or workload.rate_req_per_s * fleet.supernodes
    horizon_s = fleet.horizon_s or base.horizon_s
    # Not through validation: the rate of a fleet may be beyond that of one scenario.
    scenario = with_overrides(base, {"horizon_s": horizon_s, "seed": fleet.seed})
    fleet_workload = scenario.workload.model_copy(update={"rate_req_per_s": req_per_s})
    return scenario.model_copy(update={"workload": fleet_workload})


def _refuse_contradictions(fleet: Fleet, traffic: Scenario, scenarios: Sequence[Scenario]) -> None:
    """Raise FleetError for rows that contradict the traffic or a kind's scenario (one of each)."""
    kind_names = [kind.name for kind in fleet.kinds]
    scenario_of = dict(zip(kind_names, scenarios, strict=True))
    for scenario in (traffic, *scenarios):
        require_one_model(scenario, "a fleet")
    if traffic.workload.profile.shape not in DAILY and any(r.shift_h for r in fleet.regions):
        raise FleetError("regions whose clocks are ahead need a traffic whose profile is a day")
    if fleet.sticky == "tenant" and fleet.router == "hash" and not traffic.tenants:
        raise FleetError("sticky = tenant needs tenants in the traffic's scenario: take session")
    for i, loss in enumerate(fleet.lost):
        if not traffic.warmup_s < loss.from_s < traffic.horizon_s:
            raise FleetError(
                f"lost.{i}.from_s = {loss.from_s:g} s must lie between the end of the warm-up "
                f"at {traffic.warmup_s:g} s and the end of the run at {traffic.horizon_s:g} s"
            )
        if scenario_of[loss.kind].elastic.schedule:
            raise FleetError(
                f"lost.{i}: instances of {loss.kind} follow elastic.schedule, whose times would "
                "be others after a start: take another controller"
            )


def _units_of_fleet(fleet: Fleet, traffic: Scenario) -> list[Unit]:
    """Units of a fleet: supernodes of the same kind, seed, times lost and tenants."""
    units, end_s = list[Unit](), traffic.horizon_s
    tenants_of = _tenants_of(fleet, traffic)
    for k, kind in enumerate(fleet.kinds):
        numbers_by_unit: dict[tuple[Any, ...], list[int]] = {}
        losses_by_number: dict[int, list[tuple[float, float]]] = {}  # by number
        for loss in sorted(fleet.lost, key=lambda loss: loss.from_s):
            if loss.kind == kind.name:
                back_s = min(loss.to_s or end_s, end_s)
                losses_by_number.setdefault(loss.number, []).append((loss.from_s, back_s))
        for number in range(kind.count):
            tenants = None if tenants_of is None else tuple(tenants_of.get((k, number), ()))
            seed = 0 if tenants == () else number % fleet.seeds
            unit_key = seed, tuple(losses_by_number.get(number, ())), tenants
            numbers_by_unit.setdefault(unit_key, []).append(number)
        units += [
            Unit(k, tuple(numbers), fleet.seed + seed, lost, tenants)
            for (seed, lost, tenants), numbers in numbers_by_unit.items()
        ]
    return units


def _tenants_of(fleet: Fleet, traffic: Scenario) -> dict[tuple[int, int], list[int]] | None:
    """Indices of the tenants that each supernode (kind, number) serves, by weighted rendezvous
    hashing; None if every supernode serves all."""
    if fleet.router != "hash" or fleet.sticky != "tenant":
        return None
    tenants_of: dict[tuple[int, int], list[int]] = {}
    for region in [area.name for area in fleet.regions] or [""]:
        for tenant_index, tenant in enumerate(traffic.tenants):
            best_supernode = max(
                ((_hash_score(tenant.name, kind.name, number, kind.weight), -k, -number)
                 for k, kind in enumerate(fleet.kinds) if kind.region in ("", region)
                 for number in range(kind.count))
            )  # fmt: skip
            tenants_of.setdefault((-best_supernode[1], -best_supernode[2]), []).append(tenant_index)
    return tenants_of


def _hash_score(tenant: str, kind: str, number: int, weight: float) -> float:
    """Score of a supernode for a tenant in weighted rendezvous hashing: the highest serves it;
    tenant, kind: names; number: of the supernode in its kind."""
    digest = hashlib.sha256(f"{tenant}\n{kind}\n{number}".encode()).digest()
    return -weight / math.log((int.from_bytes(digest[:8], "big") + 0.5) / 2.0**64)


def _traffic_shares(
    fleet: Fleet, units: Sequence[Unit], traffic: Scenario, alive: np.ndarray
) -> np.ndarray:
    """Share of each region's traffic that one supernode of each unit gets, f8[regions, units];
    alive: bool[units], False for lost ones."""
    region_names = [region.name for region in fleet.regions] or [""]
    may_take = np.array([[fleet.kinds[unit.kind].region in ("", name) for unit in units]
                      for name in region_names])  # fmt: skip
    if any(unit.tenants is not None for unit in units):
        tenant_weights = np.array([tenant.share for tenant in traffic.tenants])
        unit_tenant_weights = [tenant_weights[list(unit.tenants or ())].sum() for unit in units]
        return np.where(may_take, np.array(unit_tenant_weights) / tenant_weights.sum(), 0.0)
    weights = np.array([fleet.kinds[unit.kind].weight for unit in units])
    supernode_counts = np.array([unit.count for unit in units])
    total_weights = (may_take * weights * supernode_counts).sum(axis=1, keepdims=True)
    traffic_shares: np.ndarray = np.where(may_take, weights / total_weights, 0.0)
    lost_shares = (traffic_shares * supernode_counts)[:, ~alive].sum(axis=1, keepdims=True)
    traffic_shares[:, ~alive] = 0.0
    live_weights = weights * alive
    spill = np.where(may_take & alive, weights, 0.0) if fleet.spill == "region" else live_weights
    has_spill = (spill * supernode_counts).sum(axis=-1, keepdims=True) > 0.0
    spill_weights = np.where(has_spill, spill, live_weights)
    if not alive.any():
        raise FleetError("lost: at one time every supernode is lost, and nothing takes the traffic")
    spill_totals = (spill_weights * supernode_counts).sum(axis=-1, keepdims=True)
    return traffic_shares + lost_shares * spill_weights / spill_totals


RUNS_MAX = 150  # different scenarios of one fleet: as many can wait
OF_TRAFFIC = ("clients", "slo")  # sections that every supernode takes over, as its workload
MINUTES = 1440  # of a day: the resolution of a load that is given as a table
Left = Callable[[Scenario], int | None]  # unfinished requests at the end of a run; None: not run


@dataclass(frozen=True, slots=True)
class Span:
    """A span in which the supernodes of a unit serve, and its scenario."""

    unit: int
    begin_s: float
    end_s: float
    scenario: Scenario


@dataclass(slots=True)
class Spans:
    """Spans of a fleet; or one alone, on whose unfinished requests the others depend."""

    layout: Layout
    spans: list[Span] = field(default_factory=list)

    @property
    def scenario_by_digest(self) -> dict[str, Scenario]:
        """The different scenarios of the spans, by digest."""
        return {scenario_digest(span.scenario): span.scenario for span in self.spans}


def spans_of(
    fleet: Fleet, named: Named, facts: Facts, requests_left: Left, *, starts_empty: bool = False
) -> Spans:
    """The spans in which supernodes of a fleet serve, each with its scenario; named: finds a
    scenario by name; requests_left: unfinished ones at the end of a scenario's run (None: not run
    yet); starts_empty: no run begins in a steady state. Raises FleetError, SpecError."""
    layout = lay_out_fleet(fleet, named)
    builder, spans = _SpanBuilder(fleet, layout, facts, starts_empty or bool(fleet.lost)), []
    for lost_s, unit_index in sorted(
        (gap[0], unit_index) for unit_index, unit in enumerate(layout.units) for gap in unit.lost
    ):
        begin_s = max(
            [back_s for _, back_s in layout.units[unit_index].lost if back_s < lost_s], default=0.0
        )
        span = builder.span(unit_index, begin_s, lost_s)
        if (unfinished := requests_left(span.scenario)) is None:
            return Spans(layout, [span])
        # They are spread over those that take the share of the lost one.
        span_index = int(layout.span_at(lost_s))
        added_shares = np.maximum(layout.share[span_index] - layout.share[span_index - 1], 0.0)
        added_per_s = layout.region_rate @ added_shares
        total_per_s = added_per_s @ [unit.count for unit in layout.units]
        end_s = min(lost_s + fleet.resend_s, float(layout.edges[span_index + 1]))
        restarts_per_s = unfinished * added_per_s / (total_per_s * (end_s - lost_s))
        layout.bursts.append(Burst(lost_s, end_s, unfinished, restarts_per_s))
    for unit_index, unit in enumerate(layout.units):
        if unit.tenants == ():
            continue
        begins_s = [0.0, *(back_s for _, back_s in unit.lost)]
        ends_s = [*(lost_s for lost_s, _ in unit.lost), layout.traffic.horizon_s]
        for from_s, to_s in zip(begins_s, ends_s, strict=True):
            spans += [builder.span(unit_index, from_s, to_s)] if from_s < to_s else []
    all_spans = Spans(layout, spans)
    if (run_count := len(all_spans.scenario_by_digest)) > RUNS_MAX:
        raise FleetError(
            f"this fleet has {run_count} different runs: at most {RUNS_MAX}, so take fewer seeds, "
            "kinds or losses"
        )
    return all_spans


@dataclass(frozen=True, slots=True)
class _SpanBuilder:
    """Builder of the spans of a layout, with their scenarios."""

    fleet: Fleet
    layout: Layout
    facts: Facts
    starts_empty: bool

    def span(self, unit_index: int, begin_s: float, end_s: float) -> Span:
        """Span in which the supernodes of the unit with this index serve, with its scenario."""
        unit, traffic = self.layout.units[unit_index], self.layout.traffic
        base_scenario = self.layout.kinds[unit.kind]
        traffic_fields = traffic.model_dump(mode="json")
        tenants = traffic_fields["tenants"]
        overrides = {name: traffic_fields[name] for name in OF_TRAFFIC} | {
            "seed": unit.seed, "horizon_s": end_s - begin_s,
            "warmup_s": 0.0 if begin_s else traffic.warmup_s,
            "start": "empty" if self.starts_empty or begin_s else traffic.start,
            "tenants": tenants if unit.tenants is None else [tenants[i] for i in unit.tenants],
            "workload":
                traffic_fields["workload"] | self._workload_fields(unit_index, begin_s, end_s),
        }  # fmt: skip
        if begin_s and base_scenario.faults:
            faults = (
                row.model_dump(mode="json") for row in base_scenario.faults if row.at_s >= begin_s
            )
            overrides["faults"] = [row | {"at_s": row["at_s"] - begin_s} for row in faults]
        scenario = with_overrides(base_scenario, overrides)
        if scenario != base_scenario:  # its name follows from its contents: equal ones stay equal
            name_parts = [base_scenario.name[:70], f"{scenario.workload.rate_req_per_s:.4g} req/s"]
            if (begin_s, end_s) != (0.0, traffic.horizon_s):
                name_parts.append(f"{begin_s:g} to {end_s:g} s")
            elif scenario.workload.profile.pieces:
                name_parts.append("a share that changes")
            name_parts += [f"seed {scenario.seed}"] if scenario.seed != base_scenario.seed else []
            scenario = scenario.model_copy(update={"name": " · ".join(name_parts)})
        return Span(unit_index, begin_s, end_s, scenario)

    def _workload_fields(self, u: int, begin_s: float, end_s: float) -> dict[str, Any]:
        """Fields of `workload` in a span of unit number u that differ from the whole fleet's."""
        layout, workload = self.layout, self.layout.traffic.workload
        region_indices = np.flatnonzero(layout.whole[:, u] + layout.share[:, :, u].sum(axis=0))
        has_one_clock = len({layout.regions[index] for index in region_indices}) == 1
        region = int(region_indices[0])
        scaled_profile = self._scaled_profile(u, region, begin_s, end_s) if has_one_clock else None
        mean_per_s, profile = scaled_profile or self._table_profile(u, begin_s, end_s)
        drawn_share = float(layout.region_rate @ layout.whole[:, u]) / workload.rate_req_per_s
        taken_share = 1.0
        if self.fleet.router == "round_robin":
            taken_share = float(layout.whole[region, u])
            drawn_share /= taken_share
        stream_fields = _thinned_stream(workload.arrivals, workload.cv, drawn_share, taken_share)
        return {"rate_req_per_s": mean_per_s, "profile": profile} | stream_fields

    def _scaled_profile(
        self, u: int, region: int, begin_s: float, end_s: float
    ) -> tuple[float, dict[str, Any]] | None:
        """(mean req/s, profile) of a span of unit u, cut out of a region's; None if impossible."""
        layout, workload = self.layout, self.layout.regions[region]
        profile, is_whole = workload.profile, (begin_s, end_s) == (0.0, layout.traffic.horizon_s)
        if profile.pieces or not (is_whole or profile.shape in (*DAILY, "constant")):
            return None
        mean_per_s = float(layout.region_rate @ layout.whole[:, u])
        edges_s = self._load_edges(u, begin_s, end_s, ())
        middle_s = 0.5 * (edges_s[1:] + edges_s[:-1])
        restarts_per_s = self._restarts_per_s(u, middle_s)
        rate_factors = rate_factor_at(workload, middle_s, layout.traffic.horizon_s, self.facts)
        load_per_s = mean_per_s * rate_factors
        if (restarts_per_s[load_per_s <= 0.0] > 0.0).any():
            return None
        restart_factors = np.zeros_like(restarts_per_s)
        np.divide(restarts_per_s, load_per_s, out=restart_factors, where=load_per_s > 0.0)
        factors = layout.share[layout.span_at(middle_s), :, u] @ layout.region_rate / mean_per_s
        profile_fields = shift_profile(profile, begin_s / profile.period_s).model_dump(mode="json")
        return mean_per_s, profile_fields | {
            "pieces": _piece_rows(edges_s - begin_s, {"rate": factors + restart_factors})
        }

    def _table_profile(self, u: int, begin_s: float, end_s: float) -> tuple[float, dict[str, Any]]:
        """(mean req/s, fields of the profile) of a span of unit number u, with its load as rows."""
        layout, profile = self.layout, self.layout.traffic.workload.profile
        changes_s = [piece.at_s for piece in profile.pieces]
        changes_s += [profile.at_s, profile.at_s + profile.lasts_s]
        edges_s = self._load_edges(u, begin_s, end_s, {*self._minutes(begin_s, end_s), *changes_s})
        middle_s = 0.5 * (edges_s[1:] + edges_s[:-1])
        unit_shares = layout.share[layout.span_at(middle_s), :, u]
        req_per_s_by_region = layout.req_per_s_by_region(middle_s, self.facts).T * unit_shares
        load_per_s = req_per_s_by_region.sum(axis=1) + self._restarts_per_s(u, middle_s)
        mean_per_s = float((load_per_s * np.diff(edges_s)).sum() / (end_s - begin_s))
        factors = {"rate": load_per_s / max(mean_per_s, 1e-9)}
        weights = req_per_s_by_region + 1e-12  # where nothing comes, lengths are any
        for token_kind in ("input", "output"):
            length_factors = np.stack([
                length_factor_at(workload, middle_s, token_kind, self.facts)
                for workload in layout.regions
            ], axis=1)  # fmt: skip
            factors[token_kind] = (weights * length_factors).sum(axis=1) / weights.sum(axis=1)
        profile_fields = Profile().model_dump(mode="json")
        return mean_per_s, profile_fields | {"pieces": _piece_rows(edges_s - begin_s, factors)}

    def _load_edges(
        self, unit_index: int, begin_s: float, end_s: float, other_times_s: Iterable[float]
    ) -> np.ndarray:
        """Times f8[n] (s) at which a unit's load may change: also both ends, `other_times_s`."""
        times_s = {*self.layout.edges.tolist(), *other_times_s}
        for burst in self.layout.bursts:
            if burst.rate[unit_index]:
                times_s |= {burst.begin_s, burst.end_s, *self._minutes(burst.begin_s, burst.end_s)}
        return np.array([begin_s, *sorted(t for t in times_s if begin_s < t < end_s), end_s])

    def _minutes(self, begin_s: float, end_s: float) -> list[float]:
        """Times (s) in [begin_s, end_s) that are multiples of 1/1,440 of the traffic's day, or of
        the run without a daily profile."""
        traffic = self.layout.traffic
        profile = traffic.workload.profile
        minute_s = (profile.period_s if profile.shape in DAILY else traffic.horizon_s) / MINUTES
        minutes = range(math.ceil(begin_s / minute_s), math.ceil(end_s / minute_s))
        return [minute * minute_s for minute in minutes]

    def _restarts_per_s(self, u: int, t: np.ndarray) -> np.ndarray:
        """Restarted requests per second at each supernode of unit u at times t f8[n] (s), f8[n]."""
        bursts = self.layout.bursts
        rates = (burst.rate[u] * ((t >= burst.begin_s) & (t < burst.end_s)) for burst in bursts)
        return sum(rates, np.zeros_like(t))


def _piece_rows(edges_s: np.ndarray, factors: dict[str, np.ndarray]) -> list[dict[str, float]]:
    """Rows of `workload.profile.pieces`, one for each change; edges_s: f8[n + 1], of n pieces;
    factors: f8[n] by column (rate, input, output)."""
    rows, row_before = list[dict[str, float]](), dict.fromkeys(factors, 1.0)
    for k, at_s in enumerate(edges_s[:-1].tolist()):
        row_now = {name: float(values[k]) for name, values in factors.items()}
        if row_now != row_before:
            rows.append({"at_s": at_s, **row_now})
            row_before = row_now
    return rows


def _thinned_stream(arrivals: str, cv: float, drawn_share: float, taken: float) -> dict[str, Any]:
    """Fields `arrivals` and `cv` (coefficient of variation of the gaps) of the stream that is left
    if of a stream a share is drawn at random, and then every 1/taken-th request is taken; {} if
    both fields stay the same.

    >>> _thinned_stream("poisson", 1.0, 0.01, 1.0), _thinned_stream("poisson", 1.0, 1.0, 0.25)
    ({}, {'arrivals': 'gamma', 'cv': 0.5})"""
    cv2 = {"poisson": 1.0, "uniform": 0.0}.get(arrivals, cv * cv)
    thinned_cv2 = (1.0 + drawn_share * (cv2 - 1.0)) * taken
    if thinned_cv2 == cv2 or (cv2 == 0.0 and drawn_share == 1.0):
        return {}
    cv_field = field_info("workload.cv")
    assert cv_field is not None and cv_field.low is not None
    return {"arrivals": "gamma", "cv": max(math.sqrt(max(thinned_cv2, 0.0)), cv_field.low)}
