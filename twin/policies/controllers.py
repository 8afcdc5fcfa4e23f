"""Controllers: wanted instances of each pool from stale metrics (`Seen`). A pool's pressure is 1 at
its limit; autoscalers keep it between two marks (Knative, Dynamo), re-balancing sees all pools."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from operator import attrgetter
from typing import Any

from twin.scenario.elastic import PRESSURES

ROUNDING = 1e-9  # marks are met within rounding
GAIN = 0.9  # an instance is away while it changes role: NPUs that are too few move for less only


class ControllerError(ValueError):
    """An operator's own controller that cannot be called or returns an invalid answer."""


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """One pool at the time of measurement; shares and rates are means since the one before."""

    serving: int  # instances that take requests
    starting: int
    draining: int
    npus_per_instance: int
    waiting: int  # requests that wait for it
    in_hand: float  # work waiting or running over what its instances hold at once
    busy: float  # tokens computed, or slots and KV taken, over what is possible
    latency: float  # mean TTFT, or TPOT, over its SLO; 0: nothing was measured
    # Instances that keep the SLO when one that starts now would serve; nan: not computed.
    needed: float

    @property
    def committed_count(self) -> int:
        """Number of instances that serve or start."""
        return self.serving + self.starting


@dataclass(frozen=True, slots=True)
class Seen:
    """Input of a controller."""

    t_s: float  # when it was measured
    npus: int  # that instances may take up in all
    arrivals_per_s: float
    pools: dict[str, PoolSeen]  # prefill and decode, or the one pool that there is


@dataclass(frozen=True, slots=True)
class Rule:
    """Limits and targets of a controller."""

    high: float
    low: float
    least: int
    keep: bool  # every NPU in a pool


Wanted = tuple[int, ...]  # instances of each pool
Controller = Callable[[Seen, Rule], Wanted]


def _count_for_pressure(pool: PoolSeen, pressure: float, rule: Rule) -> int:
    """Number of instances with which a pool's pressure would be at the high mark; the present
    number if the pressure is between both marks. pressure: 1 at the pool's limit."""
    count_now = pool.committed_count
    if rule.low <= pressure <= rule.high:
        return count_now
    needed_count = math.ceil(pool.serving * pressure / rule.high - ROUNDING)
    if pressure > rule.high:
        return max(count_now, needed_count)
    return max(rule.least, min(count_now, needed_count))


def pool_scaler(pressure: Callable[[PoolSeen], float]) -> Controller:
    """A controller that scales each pool by one of its measurements, `pressure` (1: its limit)."""
    return lambda seen, rule: tuple(
        _count_for_pressure(pool, pressure(pool), rule) for pool in seen.pools.values()
    )


def rebalance(seen: Seen, rule: Rule) -> Wanted:
    """Number of instances that each pool needs. If NPUs do not suffice, the split with the lowest
    `worst_need`, provided that it is clearly better than the present split."""
    pools = tuple(seen.pools.values())
    split_now = tuple(pool.committed_count for pool in pools)

    def npus(split: Wanted) -> int:
        """NPUs that the instances of a split take up."""
        return sum(count * pool.npus_per_instance for count, pool in zip(split, pools, strict=True))

    def worst_need(split: Wanted) -> float:
        """Highest ratio, over pools, of instances needed to those in `split`; above 1: too few."""
        return max(pool.needed / max(count, 1) for count, pool in zip(split, pools, strict=True))

    needed_split = tuple(max(rule.least, math.ceil(pool.needed - ROUNDING)) for pool in pools)
    if not rule.keep and npus(needed_split) <= seen.npus:
        return needed_split
    *npus_each, last_npus = (pool.npus_per_instance for pool in pools)
    first_counts = list(product(*(range(rule.least, seen.npus // size + 1) for size in npus_each)))
    last_counts = ((seen.npus - npus((*counts, 0))) // last_npus for counts in first_counts)
    pool_counts = zip(first_counts, last_counts, strict=True)
    splits = [(*counts, last) for counts, last in pool_counts if last >= rule.least]
    best_split = min(splits, key=lambda s: (worst_need(s), -npus(s), s), default=split_now)
    is_larger = all(best >= present for best, present in zip(best_split, split_now, strict=True))
    need_now = worst_need(split_now)
    is_better = need_now > 1.0 and worst_need(best_split) <= GAIN * need_now
    return best_split if is_larger or is_better else split_now


# Controllers that read one measurement of each pool: for them `needed` is not computed.
BY_PRESSURE: dict[str, Controller] = {
    name: pool_scaler(attrgetter(measurement)) for name, measurement in PRESSURES.items()
}
CONTROLLERS: dict[str, Controller] = BY_PRESSURE | {"rebalance": rebalance}

Loader = Callable[[str], Callable[[dict[str, Any]], Mapping[str, int]]]
_LOADERS: list[Loader] = []


def set_controller_loader(load: Loader) -> None:
    """Set the function that loads an operator's own controller by the SHA-256 of its file. That
    function raises ControllerError for an unknown file."""
    _LOADERS[:] = [load]


def controller_named(name: str, digest: str) -> Controller:
    """The controller of this name; that of the operator's file with SHA-256 `digest` for the name
    "own". Raises ControllerError."""
    return own_controller(digest) if name == "own" else CONTROLLERS[name]


def own_controller(digest: str) -> Controller:
    """The controller in the operator's file with this SHA-256; raises ControllerError."""
    if not _LOADERS:
        raise ControllerError("no folder of own controllers is named: set TWIN_CONTROLLERS")
    decide = _LOADERS[0](digest)

    def choose_counts(seen: Seen, rule: Rule) -> Wanted:
        """Number of instances of each pool that the operator's function wants."""
        try:
            seen_values = asdict(seen)
            pools = seen_values.pop("pools")
            count_of_role = decide(seen_values | pools | {"rule": asdict(rule)})
            counts = tuple(int(count_of_role[role]) for role in seen.pools)
        except Exception as error:  # whatever a stranger's function does, a sentence says it
            raise ControllerError(f"the own controller failed: {error!r}") from error
        if min(counts) < 0:
            raise ControllerError(f"the own controller wants {counts} instances: none may be < 0")
        return counts

    return choose_counts
