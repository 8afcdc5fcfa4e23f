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
NEAR_SLO = 0.95  # of the SLO: mean TPOT above it leaves too many requests beyond
BACKLOG = 2.0  # no backlog asks for more than twice what serves


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
    """The split of the NPUs whose pools would both be below the high mark with the fewest NPUs;
    where none is, the one whose greater pressure is the least.

    A pressure moves with one over the number of instances. What serves now stays while both
    pressures are below the high mark and giving some back would bring one above the middle of the
    marks, so that noise changes nobody's role.
    """
    p, d = seen.prefill, seen.decode
    need_p = p.serving * max(p.busy, min(p.in_hand, BACKLOG))
    # Slots are reserved before prefill: while its queue is a batch long, what waits waits for it.
    behind = p.in_hand > 1.0
    slow = d.latency * rule.high / NEAR_SLO  # above the high mark where TPOT nears its SLO
    full = d.busy if behind else max(d.busy, min(d.in_hand, BACKLOG))
    need_d = d.serving * max(full, min(slow, BACKLOG))
    now = (p.committed, d.committed)

    def worst(split: Wanted) -> float:
        return max(need_p / max(split[0], 1), need_d / max(split[1], 1))

    splits = [
        (a, b)
        for a in range(rule.least, seen.npus // p.npus_per_instance + 1)
        for b in range(rule.least, seen.npus // d.npus_per_instance + 1)
        if a * p.npus_per_instance + b * d.npus_per_instance <= seen.npus
    ]
    if not splits:
        return now
    middle = 0.5 * (rule.low + rule.high)
    held = worst(now) <= rule.high

    def npus(split: Wanted) -> int:
        return split[0] * p.npus_per_instance + split[1] * d.npus_per_instance

    if rule.keep:
        best = min(splits, key=lambda split: (worst(split), -npus(split), split))
        return now if held or worst(best) > 0.9 * worst(now) else best
    fits = [split for split in splits if worst(split) <= middle]
    if fits:
        best = min(fits, key=lambda split: (npus(split), worst(split), split))
        return best if not held or npus(best) < npus(now) else now
    if held:
        return now
    return min(splits, key=lambda split: (worst(split), npus(split), split))


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
