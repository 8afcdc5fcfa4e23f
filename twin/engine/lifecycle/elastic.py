"""Who starts and stops instances while a run goes on: a controller's looks, decisions and bounds.

At every interval the pools are measured; when the metrics have aged, the controller
(policies/controllers.py) says how many instances it wants, and as many begin to start, change role
or drain as cool-down and the hourly bound allow. A schedule is followed at once. What an instance
then goes through is engine/lifecycle/life.py's.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass
from functools import partial

from twin.engine.lifecycle.life import STARTS, Life
from twin.engine.lifecycle.loading import Then
from twin.engine.lifecycle.looks import Look
from twin.policies.controllers import (
    CONTROLLERS,
    PoolSeen,
    Rule,
    Seen,
    Wanted,
    own_controller,
)

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of a controller: its input, its target, and the part of it that was begun."""

    t_s: float
    seen: Seen
    wanted: Wanted
    started: int
    stopped: int
    changed_role: int
    held_back: str  # why not all of it


class Elastic:
    """The controller of a run and its decisions."""

    def __init__(self, life: Life) -> None:
        self.life, self.machine, self.agenda = life, life.machine, life.agenda
        self.setup = self.machine.setup
        self.rule, self.roles = self.setup.scenario.elastic, self.setup.roles
        self.decisions: list[Decision] = []
        self.role_changes = 0
        self._npus = max(self.rule.npus, len(self.life.held()) // self.setup.dies_per_npu)
        self._planned: dict[int, set[int]] = {}  # instances that wait for others to drain
        self._changed_s: deque[float] = deque()
        self._calm_s = dict.fromkeys(self.roles, 0.0)  # until when a pool is left alone
        self._lately = deque([(0.0, self._all_committed())])
        self._size = {role: next(i.dies for i in self.setup.of_role(role)) for role in self.roles}
        for row in self.rule.schedule if self.rule.controller == "schedule" else ():
            scheduled = tuple(row.wanted(role) for role in self.roles)
            self.agenda.at(row.at_s, partial(self._follow, scheduled))
        if self.rule.controller != "schedule":
            rules = self.rule
            lead_s = rules.metrics_age_s + self.life.start_s()
            self._look = Look(
                self.machine, lead_s, forecasts=rules.controller in ("rebalance", "own")
            )
            if rules.controller == "own":
                self._choose = own_controller(rules.own.digest)
            else:
                self._choose = CONTROLLERS[rules.controller]
            self._limits = Rule(rules.high, rules.low, rules.least_instances, rules.idle == "keep")
            self.agenda.at(rules.interval_s, self._measure)

    def _count(self, role: str, *states: str) -> int:
        return len(self.life.of(role, *states))

    def _committed(self, role: str) -> int:
        """Instances of a pool that serve, start or recover, or start once others have drained."""
        planned = sum(self.setup.instances[k].role == role for k in self._planned)
        return self._count(role, *STARTS, "serve", "down") + planned

    def _all_committed(self) -> Wanted:
        return tuple(self._committed(role) for role in self.roles)

    def _measure(self, t_s: float) -> None:
        """Measure the pools at every interval; the controller decides `metrics_age_s` later."""
        self.agenda.at(t_s + self.rule.interval_s, self._measure)
        columns, starting = {}, {}
        for role in self.roles:
            serving = self.life.of(role, "serve")
            columns[role] = [self.setup.instances[k].index for k in serving]
            starting[role] = self._committed(role) - len(serving)
        measured = self._look.at(columns, starting, t_s)
        pools = {
            role: PoolSeen(
                len(columns[role]), starting[role], self._count(role, "drain"),
                self._size[role] // self.setup.dies_per_npu, *measured[role],
            )
            for role in self.roles
        }  # fmt: skip
        view = Seen(t_s, self._npus, self._look.arrivals_per_s, pools)
        self.agenda.at(t_s + self.rule.metrics_age_s, lambda now_s: self._decide(view, now_s))

    def _decide(self, seen: Seen, t_s: float) -> None:
        """Choose sizes of pools from an observation and start moving towards them."""
        targets = self._choose(seen, self._limits)
        calm = {role: t_s >= self._calm_s[role] for role in self.roles}
        self._reach(targets, t_s, calm, seen, self._patient(targets, t_s))

    def _patient(self, wanted: Wanted, t_s: float) -> Wanted:
        """Targets no smaller than recent ones of the stabilisation window, as far as NPUs
        suffice."""
        self._lately.append((t_s, wanted))
        while self._lately[0][0] < t_s - self.rule.shrink_after_s:
            self._lately.popleft()
        lately = zip(*(each for _, each in self._lately), strict=True)
        most = tuple(
            max(now, min(max(pool), committed))
            for now, pool, committed in zip(wanted, lately, self._all_committed(), strict=True)
        )
        dies = sum(count * self._size[role] for count, role in zip(most, self.roles, strict=True))
        return most if dies <= self._npus * self.setup.dies_per_npu else wanted

    def _follow(self, wanted: Wanted, t_s: float) -> None:
        """Apply a row of the schedule; changes that cannot begin yet are retried until the next
        row."""
        self._goal = wanted
        self._reach(wanted, t_s, dict.fromkeys(self.roles, True), None, wanted)
        least = self.rule.least_instances
        targets = tuple(max(least, count) for count in wanted)
        if targets != self._all_committed():
            again_s = t_s + self.rule.interval_s

            def again(now_s: float) -> None:
                if self._goal is wanted:
                    self._follow(wanted, now_s)

            self.agenda.at(again_s, again)

    def _may(self, t_s: float) -> bool:
        """Whether the hourly limit allows another change."""
        while self._changed_s and self._changed_s[0] <= t_s - HOUR_S:
            self._changed_s.popleft()
        return self.rule.controller == "schedule" or (
            len(self._changed_s) < self.rule.changes_per_hour
        )

    def _note(self, t_s: float, *roles: str) -> None:
        """Note a change of these roles; their cool-down begins."""
        self._changed_s.append(t_s)
        for role in roles:
            self._calm_s[role] = t_s + self.rule.cool_down_s

    def _reach(
        self, wanted: Wanted, t_s: float, calm: dict[str, bool], seen: Seen | None, now: Wanted
    ) -> None:
        """Begin the changes that lead to the target counts `now`: starts and role changes before
        stops."""
        least = self.rule.least_instances
        goal = {role: max(least, count) for role, count in zip(self.roles, now, strict=True)}
        gap = {role: goal[role] - self._committed(role) for role in self.roles}
        started = stopped = changed = 0
        why = ""
        for role in self.roles:
            others = [other for other in self.roles if other != role]
            while gap[role] > 0 and calm[role]:
                if not self._may(t_s):
                    why = "bound of changes per hour"
                    break
                spare = {other: max(0, -gap[other]) for other in others if calm[other]}
                started_counts = self._grow(role, spare, t_s)
                if started_counts is None:
                    why = "no NPUs are free"
                    break
                gap[role] -= 1
                for other in started_counts:
                    gap[other] += 1
                changed += bool(started_counts)
                started += not started_counts
        for role in self.roles:
            while gap[role] < 0 and calm[role] and self._may(t_s):
                serving = self.life.of(role, "serve")
                if len(serving) <= least:
                    break
                self.life.drain(min(serving, key=self._load), t_s)
                self._note(t_s, role)
                gap[role] += 1
                stopped += 1
        if any(gap.values()) and not why:
            why = "cool-down" if not all(calm.values()) else "bound of changes per hour"
        self.role_changes += changed
        if seen is not None:
            self.decisions.append(Decision(t_s, seen, wanted, started, stopped, changed, why))

    def _load(self, k: int) -> tuple[int, int]:
        """(queued tokens or taken slots, -index) of an instance; the least drains first."""
        i, world = self.setup.instances[k], self.machine.world
        if i.role == "prefill":
            return int(world.prefill.queued_tokens[i.index]), -i.index
        return int(world.decode.taken[i.index]), -i.index

    def _grow(self, role: str, spare: dict[str, int], t_s: float) -> list[str] | None:
        """Add an instance to a pool; returns the pools that give up instances for it, None if it is
        impossible. A draining instance without a successor serves again; otherwise one starts on
        free NPUs, preferring places that other pools need least; otherwise at most `spare` of each
        other pool drain for it."""
        life = self.life
        for k in life.of(role, "drain"):
            if life.may_reopen(k):
                life.reopen(k, t_s)
                self._note(t_s, role)
                return []
        held_dies = life.held()
        claimed = {die for k in self._planned for die in life.dies[k]}
        free = [life.dies[j] for other in self.roles if other != role
                for j in life.of(other, "off") if not life.dies[j] & held_dies]  # fmt: skip
        candidates = []
        for k in life.of(role, "off"):
            if k in self._planned or life.dies[k] & (claimed | self.machine.out):
                continue
            stopping = [j for j, state in enumerate(life.state)
                      if state != "off" and life.has(j) & life.dies[k]]  # fmt: skip
            giving = Counter(self.setup.instances[j].role for j in stopping)
            if any(life.state[j] != "serve" for j in stopping) or any(
                count > spare.get(other, 0) for other, count in giving.items()
            ):
                continue
            blocked = sum(not dies.isdisjoint(life.dies[k]) for dies in free)
            load = sum(self._load(j)[0] for j in stopping)
            candidates.append((len(stopping), blocked, load, k, stopping))
        if not candidates:
            return None
        _, _, _, k, stopping = min(candidates)
        if not stopping:
            self.life.start(k, t_s, changes_role=False)
            self._note(t_s, role)
            return []
        all_held = life.dies[k] <= held_dies
        self._planned[k] = set(stopping)
        for j in stopping:
            life.drain(j, t_s, self._drained(j, k, all_held))
        self._note(t_s, *self.roles)
        return [self.setup.instances[j].role for j in stopping]

    def _drained(self, j: int, k: int, whole: bool) -> Then:
        """Start instance k once j, the last instance that it waits for, has drained."""

        def then(t_s: float) -> None:
            """Start the planned instance once every instance that it replaces has drained."""
            self._planned[k].discard(j)
            if not self._planned[k]:
                del self._planned[k]
                self.life.start(k, t_s, changes_role=whole)

        return then


def decision_rows(elastic: Elastic) -> list[dict[str, object]]:
    """One row per decision: time, inputs with their age, target, and the changes begun."""
    rows = []
    for one in elastic.decisions:
        row: dict[str, object] = {
            "t_s": one.t_s, "seen_s": one.seen.t_s, "arrivals_per_s": one.seen.arrivals_per_s,
        }  # fmt: skip
        for (role, pool), wanted in zip(one.seen.pools.items(), one.wanted, strict=True):
            needed = {} if math.isnan(pool.needed) else {f"{role}_needed": pool.needed}
            row |= {
                f"{role}_serving": pool.serving, f"{role}_starting": pool.starting,
                f"{role}_draining": pool.draining, f"{role}_waiting": pool.waiting,
                f"{role}_in_hand": pool.in_hand, f"{role}_busy": pool.busy,
                f"{role}_latency": pool.latency, **needed, f"{role}_wanted": wanted,
            }  # fmt: skip
        rows.append(
            row
            | {"started": one.started, "stopped": one.stopped,
               "changed_role": one.changed_role, "held_back": one.held_back}
        )  # fmt: skip
    return rows
