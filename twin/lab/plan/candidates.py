"""The deployments of a plan, each with its price, and those that cannot be with the reason."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from twin.facts import Facts
from twin.lab.explain.view import load_of
from twin.lab.plan.price import LUCK, Pool, Price, Prices
from twin.lab.plan.question import Plan, PlanError, base_scenario, check_power, freed_paths
from twin.lab.plan.space import (
    BATCH,
    CHOICES,
    COUNTED,
    COUNTS,
    DRAFTS,
    DRAFTS_CROSSED,
    MODE,
    OFFLOAD,
    SIZED,
    Machine,
    Settings,
    next_values,
    pool_size,
    products,
    roles_of,
    varied_values,
)
from twin.scenario import Scenario, value_of
from twin.scenario.deployment import AS_MACHINE
from twin.scenario.words import numbered

MOST = 12_000  # deployments of a ledger: of more, those with the best bound
MATCHED = (0.75, 1.6)  # what prefill sustains over what decode does, or over the load
FINER = (-16, -8, -4, 4, 8, 16)  # requests per NPU, around a batch
STARTED = 0.2  # share of the TTFT limit that requests take, about
SPARE = 3.0  # decode sustains at most so many times a given load
ALONG = {path: c.along for c in CHOICES.values() for path in c.values if c.along}
Status = Literal["untested", "feasible", "infeasible", "unsupported", "failed"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A deployment: its differences from the scenario, and its price by formula."""

    settings: tuple[tuple[str, Any], ...]  # paths of fields and values, in order of paths
    npus: int
    price: Price
    status: Status = "untested"
    reason: str = ""

    @property
    def key(self) -> str:
        """Digest of the deployment's settings: 12 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.settings).encode()).hexdigest()[:12]

    @property
    def kind(self) -> tuple[tuple[str, Any], ...]:
        """The deployment's settings as (path, value) pairs, without numbers of instances;
        candidates of one kind differ only in these numbers."""
        return tuple(setting for setting in self.settings if setting[0] not in COUNTED.values())

    @property
    def family(self) -> tuple[tuple[str, Any], ...]:
        """The deployment's serving mode, sizes of instances and draft tokens as (path, value)
        pairs; finalists are of different families."""
        return tuple(pair for pair in self.settings if pair[0] in (MODE, DRAFTS, *SIZED.values()))

    @property
    def changes(self) -> Settings:
        """The deployment's settings by field path, as overrides of the scenario."""
        return dict(self.settings)


def merit(goal: str, rate: float, npus: int) -> float:
    """Score of a deployment with a rate (requests/s), higher is better: 1/NPUs for the goal 'npus',
    requests/s for 'rate', requests/s per NPU for 'efficiency'."""
    return {"npus": 1.0, "rate": rate * npus}.get(goal, rate) / max(npus, 1)


@dataclass
class Space:
    """The deployments of a plan."""

    plan: Plan
    base: Scenario  # what settings are relative to
    machine: Machine
    prices: Prices
    notes: tuple[str, ...]
    candidates: list[Candidate] = field(default_factory=list)  # the best bound first
    left_out: int = 0  # beyond `MOST`, each with a lower bound
    life_s: float = 0.0  # of a request, about: how long runs last
    _known: set[tuple[Any, ...]] = field(default_factory=set)

    @property
    def rate(self) -> float | None:
        """Requests/s that every deployment has to carry; None if each has its own load."""
        return self.prices.rate

    @property
    def open_candidates(self) -> list[Candidate]:
        """Candidates that the formula does not exclude."""
        return [candidate for candidate in self.candidates if candidate.status == "untested"]

    def is_own(self, c: Candidate) -> bool:
        """Whether a candidate is the scenario's present deployment."""
        varying_paths = freed_paths(self.plan)
        settings = {path: value_of(self.base, path) for path in varying_paths} | c.changes
        return all(
            value_of(self.plan.scenario if path in varying_paths else self.base, path) == value
            for path, value in settings.items()
        )

    def differing_settings(self, c: Candidate, other: Candidate) -> Settings:
        """Settings of `c` that differ from another candidate's, without numbers of instances."""
        if c.kind == other.kind:
            return {}
        tied_paths = set().union(*ALONG.values())
        paths = [path for path in dict(c.kind + other.kind) if path not in tied_paths]
        defaults = {path: value_of(self.base, path) for path in paths}
        settings, other_settings = defaults | dict(c.kind), defaults | dict(other.kind)
        return {path: settings[path] for path in paths if settings[path] != other_settings[path]}

    def add_crossed(self) -> None:
        """Add candidates: every combination of crossed choices, and the present deployment; only
        the MOST best by bound stay."""
        base, choice_keys = self.base, [key for key in self.plan.vary if CHOICES[key].crossed]
        values_by_path, candidates = varied_values(base, tuple(choice_keys), self.machine), []
        kind_settings = [
            {MODE: mode, **choice}
            for mode in values_by_path.get(MODE, [base.deployment.mode])
            for choice in products(_mode_values(values_by_path, mode))
        ]
        for settings in kind_settings:
            candidates += self._with_counts(settings, values_by_path.get(BATCH, []))
        mode = base.deployment.mode
        paths = (
            MODE,
            *_mode_values(values_by_path, mode),
            *(COUNTED[role] for role in roles_of(mode)),
        )
        present_settings = {path: value_of(base, path) for path in paths}
        for path in _mode_values(dict.fromkeys(freed_paths(self.plan), []), mode):
            if (plan_value := value_of(self.plan.scenario, path)) != value_of(base, path):
                present_settings[path] = plan_value
        candidates += self._new_candidate(present_settings)
        goal = self.plan.goal
        candidates.sort(key=lambda c: (
            c.status != "untested", -merit(goal, c.price.bound, c.npus),
            -merit(goal, c.price.expected, c.npus), c.settings,
        ))  # fmt: skip
        self.candidates, self.left_out = candidates[:MOST], len(candidates[MOST:])

    def add_neighbours(self, c: Candidate) -> None:
        """Add candidates that differ from `c` in one choice, with counts at which pools match."""
        choice_keys = tuple(key for key in self.plan.vary if not CHOICES[key].crossed)
        kind = dict(c.kind)
        values_by_path = varied_values(self.base, choice_keys, self.machine)
        if self.prices.offered is None and BATCH in kind:  # the batch is the load: finer steps
            values_by_path[BATCH] = [
                batch for batch_step in FINER if (batch := kind[BATCH] + batch_step) > 0
            ]
        if kind.get(DRAFTS, 0) >= DRAFTS_CROSSED:
            values_by_path[DRAFTS] = next_values(DRAFTS, kind[DRAFTS])
        for path, new_values in _mode_values(values_by_path, kind[MODE]).items():
            for new_value in new_values:
                for tied_settings in self._tied_settings(path, new_value, kind):
                    changed_settings = kind | {path: new_value} | tied_settings
                    if changed_settings.get(OFFLOAD):
                        self.candidates += self._with_offload(changed_settings, c)
                    else:
                        self.candidates += self._with_counts(changed_settings, [])

    def _tied_settings(self, path: str, value: Any, kind: Settings) -> Iterator[Settings]:
        """Combinations of settings of the fields that vary along with a field (ALONG): all their
        values if the field gets a new `value`, else finer steps around their values in `kind`."""
        present_values = {
            p: kind.get(p, value_of(self.base, p)) for p in (path, *ALONG.get(path, ()))
        }
        if value != present_values[path]:
            value_functions = (ALONG.get(path, {}) if value else {}).items()
            yield from products(
                {p: values_of(self.base, self.machine) for p, values_of in value_functions}
            )
        elif value and path in ALONG:
            yield from products({p: next_values(p, present_values[p]) for p in ALONG[path]})

    def _new_candidate(
        self, settings: Settings, pools: Mapping[str, Pool] | None = None
    ) -> list[Candidate]:
        """List of one new candidate with its price, or with the reason why it is impossible; empty
        if it was added before. pools: curves of its instances, if known."""
        settings_key = tuple(sorted(settings.items()))
        if settings_key in self._known:
            return []
        self._known.add(settings_key)
        npus, most_npus, prices = (npus_taken(self.base, settings), self.machine.npus, self.prices)
        price, rate = Price(0.0, 0.0, "", 0.0), prices.rate
        if npus > most_npus:
            reason = f"needs {numbered(npus, 'NPU')}, and {most_npus:,} may be taken"
        elif not (reason := chip_shortage(self.base, settings)):
            price = prices.price(settings, pools)
            reason = price.refused
            if not reason and rate and prices.offered is not None and price.bound < rate:
                reason = (
                    f"{price.limit} sustains at most {price.bound:.4g} of {rate:.4g} requests/s"
                )
        return [
            Candidate(settings_key, npus, price, "infeasible" if reason else "untested", reason)
        ]

    def _with_counts(self, settings: Settings, batches: list[int]) -> list[Candidate]:
        """New candidates of a kind (`settings`) with numbers of instances at which pools sustain
        equal rates, or the plan's load. batches: all that vary, so that one that is never full is
        skipped."""
        base, machine, prices = self.base, self.machine, self.prices
        roles = roles_of(settings[MODE])
        role, other_roles = roles[-1], roles[:-1]
        pools = prices.pools(settings)
        if not prices.batch_matters(role, settings, batches, pools[role][0]):
            return []
        if "instances" not in self.plan.vary:
            return self._new_candidate(settings, pools)
        npus_by_role = {pool: pool_size(base, settings, pool)[1] for pool in roles}
        one_of_each = settings | {COUNTED[pool]: 1 for pool in roles}
        price = prices.price(one_of_each, pools)
        if price.refused or price.expected <= 0.0 or sum(npus_by_role.values()) > machine.npus:
            return self._new_candidate(one_of_each, pools)
        candidates, load_per_s = [], prices.rate or math.inf
        batch = float(settings.get(BATCH, base.deployment.decode.batch_per_npu))
        instance_rates = {  # requests/s of one instance, by role
            pool: pools[pool][0].rates[0] if pool == "prefill"
            else pools[pool][0].largest_rate_point(batch, prices.tpot_s)[0]
            for pool in roles
        }  # fmt: skip
        for count in _counts_with(load_per_s / instance_rates[role]):
            if count * npus_by_role[role] > machine.npus - sum(
                npus_by_role[pool] for pool in other_roles
            ):
                break
            rate_per_s = count * instance_rates[role]
            curve, instance_load_per_s = pools[role][0], load_per_s / count
            if math.isfinite(curve.batches[-1]) and math.isfinite(
                instance_load_per_s
            ):  # prefill has none
                mean_requests = curve.requests_at(instance_load_per_s) * npus_by_role[role]
                largest_batch = (mean_requests + 3.0 * math.sqrt(mean_requests)) / npus_by_role[
                    role
                ]
                # A smaller batch would never be full either (Poisson, three deviations).
                if any(largest_batch <= smaller < settings.get(BATCH, 0) for smaller in batches):
                    continue
            # Fewer cannot carry a load that is given, and many more are never the fewest NPUs.
            if (
                math.isfinite(load_per_s)
                and not load_per_s / LUCK <= rate_per_s <= SPARE * load_per_s
                and count > 1
            ):
                continue
            count_choices: list[Settings] = [{COUNTED[role]: count}]
            for pool in other_roles:
                needed_count = min(rate_per_s, load_per_s) / instance_rates[pool]
                lowest_count, highest_count = MATCHED[0] * needed_count, MATCHED[1] * needed_count
                near_counts = [
                    near_count
                    for near_count in _counts_with(needed_count)
                    if lowest_count <= near_count <= highest_count
                ]
                near_counts = near_counts or [min(COUNTS, key=lambda n: abs(n - needed_count))]
                count_choices = [
                    counts | {COUNTED[pool]: near_count}
                    for counts in count_choices
                    for near_count in near_counts
                ]
            for counts in count_choices:
                if npus_taken(base, settings | counts) <= machine.npus:
                    candidates += self._new_candidate(settings | counts, pools)
        return candidates

    def _with_offload(self, settings: Settings, c: Candidate) -> list[Candidate]:
        """New candidates with attention offload: with the numbers of instances of `c`, with one
        prefill instance more, with one decode instance less, and with both."""
        prefills, decodes = (
            pool_size(self.base, c.changes, role)[0] for role in ("prefill", "decode")
        )
        count_step = 1 if "instances" in self.plan.vary else 0
        candidates, both_counts = (
            [],
            ((prefills, prefills + count_step), (decodes, decodes - count_step)),
        )
        for prefills, decodes in product(*both_counts):
            counts = {COUNTED["prefill"]: prefills, COUNTED["decode"]: decodes}
            if decodes > 0 and npus_taken(self.base, settings | counts) <= self.machine.npus:
                candidates += self._new_candidate(settings | counts)  # empty for what is known
        return candidates


def space_of(
    plan: Plan, facts: Facts, old: Space | None = None, beat: Callable[[], None] = lambda: None
) -> Space:
    """The space of a plan's priced candidates. old: a space whose prices and length of runs are
    reused; beat: called before each price. Raises PlanError."""
    check_power(plan, facts)
    base, notes = base_scenario(plan)
    prices = Prices(base, facts, None, old.prices.pool_by_key if old else {}, beat=beat)
    machine = Machine.of(base, facts, plan.npus)
    output_tokens = prices.traffic.output_tokens
    if plan.is_load_fixed:
        load_per_s = prices.offered
        if load_per_s is None:  # a closed loop: the most that its clients can send
            longest_decode_s = prices.tpot_s * max(output_tokens - 1.0, 1.0)
            load_per_s = load_of(base)[1] / (longest_decode_s + base.slo.ttft_s)
        prices.rate = load_per_s * (1.0 + plan.more)
    life_s = base.slo.ttft_s * STARTED + prices.tpot_s * output_tokens
    space = Space(plan, base, machine, prices, tuple(notes), life_s=old.life_s if old else life_s)
    space.add_crossed()
    if not space.candidates:
        raise PlanError("no deployment fits the NPUs of this plan: raise the limit or vary sizes")
    return space


def npus_taken(base: Scenario, settings: Settings) -> int:
    """NPUs that the instances of a deployment take; settings: overrides of the base scenario."""
    roles = roles_of(settings.get(MODE, base.deployment.mode))
    return sum(math.prod(pool_size(base, settings, role)) for role in roles)


def chip_shortage(base: Scenario, settings: Settings) -> str:
    """Sentence on a chip of which a deployment needs more NPUs than the machine has; '' if none."""
    npus_by_chip: Counter[str] = Counter()
    for role in roles_of(settings.get(MODE, base.deployment.mode)):
        chip_name = getattr(base.deployment, role).chip
        chip = base.supernode.chip if chip_name == AS_MACHINE else chip_name
        npus_by_chip[chip] += math.prod(pool_size(base, settings, role))
    for chip, npus in npus_by_chip.items() if base.supernode.kinds else ():
        if npus > (available_npus := base.supernode.npus_with(chip)):
            return (
                f"needs {numbered(npus, 'NPU')} of {chip}, and the machine has {available_npus:,}"
            )
    return ""


def _mode_values(values: dict[str, list[Any]], mode: str) -> dict[str, list[Any]]:
    """The entries of `values` (by field path) whose field has an effect in a serving mode."""
    roles = roles_of(mode)
    absent_prefixes = tuple(f"deployment.{role}." for role in COUNTED if role not in roles)
    has_batch = roles != ("prefill",)  # the batch and the drafts are of colocated instances too
    return {
        path: options
        for path, options in values.items()
        if (has_batch and path in (BATCH, DRAFTS))
        or (path != MODE and not path.startswith(absent_prefixes))
    }


def _counts_with(need: float) -> list[int]:
    """Numbers of instances to try: COUNTS, and the needed number (`need`) rounded up; sorted."""
    return sorted({*COUNTS, math.ceil(need)} if 0.0 < need < math.inf else COUNTS)
