"""Controllers: how many prefill and decode instances are wanted, from metrics that are stale.

Pure choices: what a controller sees is a value (`Seen`), its answer two numbers. A pool's pressure
is 1 at its limit. An autoscaler keeps each pool's pressure between two marks by itself, as Knative
and Dynamo do; re-balancing looks at both at once, because the NPUs that one gives up are those
that the other may take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

HELD = 1e-9  # marks are met within rounding
GAIN = 0.9  # an instance is away while it changes role: NPUs that are too few move for less only


class ControllerError(ValueError):
    """A controller of the operator's own that cannot be asked, or whose answer is none."""


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """One pool at the time of the look; shares and rates are means since the look before."""

    serving: int  # instances that take requests
    starting: int
    draining: int
    npus_per_instance: int
    waiting: int  # requests that wait for it
    in_hand: float  # work waiting or running over what its instances hold at once
    busy: float  # tokens computed, or slots and KV taken, over what is possible
    latency: float  # mean TTFT, or TPOT, over its SLO; 0: nothing was measured
    # Instances that keep the SLO when one that starts now would serve; nan: nobody asked.
    needed: float

    @property
    def committed(self) -> int:
        """Instances that serve or will."""
        return self.serving + self.starting


@dataclass(frozen=True, slots=True)
class Seen:
    """What a controller sees."""

    t_s: float  # when it was measured
    npus: int  # that instances may take up in all
    arrivals_per_s: float
    prefill: PoolSeen
    decode: PoolSeen


@dataclass(frozen=True, slots=True)
class Rule:
    """What a controller may and shall do."""

    high: float
    low: float
    least: int
    keep: bool  # every NPU in a pool


Wanted = tuple[int, int]  # prefill and decode instances
Controller = Callable[[Seen, Rule], Wanted]


def _scaled(pool: PoolSeen, pressure: float, rule: Rule) -> int:
    """As many instances as bring the pressure below the high mark; fewer below the low one."""
    count = pool.committed
    if rule.low <= pressure <= rule.high:
        return count
    wanted = math.ceil(pool.serving * pressure / rule.high - HELD)
    if pressure > rule.high:
        return max(count, wanted)
    return max(rule.least, min(count, wanted))


def by_queues(seen: Seen, rule: Rule) -> Wanted:
    """Each pool by the work it has in hand over what it holds at once (KPA's concurrency)."""
    p, d = seen.prefill, seen.decode
    return _scaled(p, p.in_hand, rule), _scaled(d, d.in_hand, rule)


def by_slo(seen: Seen, rule: Rule) -> Wanted:
    """Prefill by mean TTFT, decode by mean TPOT, each over its SLO."""
    p, d = seen.prefill, seen.decode
    return _scaled(p, p.latency, rule), _scaled(d, d.latency, rule)


def by_kv(seen: Seen, rule: Rule) -> Wanted:
    """Prefill by busy time, decode by slots and KV space taken (Dynamo's load-based planner)."""
    p, d = seen.prefill, seen.decode
    return _scaled(p, p.busy, rule), _scaled(d, d.busy, rule)


def rebalanced(seen: Seen, rule: Rule) -> Wanted:
    """As many instances as each pool is expected to need, whatever it does now.

    Where there are too few NPUs for both, and where all are to be kept in a pool, the split whose
    pool that lacks most lacks least.
    """
    p, d = seen.prefill, seen.decode
    now = (p.committed, d.committed)

    def npus(split: Wanted) -> int:
        return split[0] * p.npus_per_instance + split[1] * d.npus_per_instance

    def lack(split: Wanted) -> float:
        return max(p.needed / max(split[0], 1), d.needed / max(split[1], 1))

    wanted = [max(rule.least, math.ceil(pool.needed - HELD)) for pool in (p, d)]
    enough = (wanted[0], wanted[1])
    if not rule.keep and npus(enough) <= seen.npus:
        return enough
    full = [(a, (seen.npus - a * p.npus_per_instance) // d.npus_per_instance)
            for a in range(rule.least, seen.npus // p.npus_per_instance + 1)]  # fmt: skip
    splits = [split for split in full if split[1] >= rule.least]
    best = min(splits, key=lambda split: (lack(split), -npus(split), split), default=now)
    if min(best[0] - now[0], best[1] - now[1]) >= 0:
        return best
    return best if lack(now) > 1.0 and lack(best) <= GAIN * lack(now) else now


CONTROLLERS: dict[str, Controller] = {
    "queue": by_queues,
    "slo": by_slo,
    "kv": by_kv,
    "rebalance": rebalanced,
}

Source = Callable[[str], Callable[[dict[str, Any]], Mapping[str, int]]]
_SOURCES: list[Source] = []


def look_in(source: Source) -> None:
    """From now on ask `source` for the controllers of the operator's own, by digest.

    It raises ControllerError for a digest that is not in the operator's folder. The digest is that
    of the content, so it cannot matter who answers.
    """
    _SOURCES[:] = [source]


def own_controller(digest: str) -> Controller:
    """The operator's function as a controller; raises ControllerError."""
    if not _SOURCES:
        raise ControllerError("no folder of own controllers is named: set TWIN_CONTROLLERS")
    decide = _SOURCES[0](digest)

    def controller(seen: Seen, rule: Rule) -> Wanted:
        try:
            answer = decide(asdict(seen) | {"rule": asdict(rule)})
            wanted = int(answer["prefill"]), int(answer["decode"])
        except Exception as error:  # whatever a stranger's function may do is told in a sentence
            raise ControllerError(f"the own controller failed: {error!r}") from error
        if min(wanted) < 0:
            raise ControllerError(f"the own controller wants {wanted} instances: none may be < 0")
        return wanted

    return controller
