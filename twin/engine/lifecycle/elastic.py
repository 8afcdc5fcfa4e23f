"""Who starts and stops instances while a run goes on: a controller's looks, decisions and bounds.

At every interval the pools are measured; when the metrics have aged, the controller
(policies/controllers.py) says how many instances it wants, and as many begin to start, change role
or drain as cool-down and the hourly bound allow. A schedule is followed at once. What an instance
then goes through is in life.py. Behind a front router supernodes have equal parts."""

import math
from collections import Counter, deque
from functools import partial

from twin.engine import codes as w
from twin.engine.lifecycle.life import LOOK_S, STARTS, Life, Over
from twin.engine.lifecycle.looks import PoolMeter
from twin.engine.loop import requests_inside
from twin.policies.controllers import BY_PRESSURE, PoolSeen, Rule, Seen, Wanted, controller_named

HOUR_S = 3600.0
# Columns of a decision: of what was seen of each pool; changes begun, and why not all of them.
SHOWN = ("serving", "starting", "draining", "waiting", "in_hand", "busy", "latency")
CHANGES = ("started", "stopped", "changed_role", "held_back")
Pool = tuple[str, int]  # role and supernode


class Elastic:
    """The controller of a run and its decisions; `life` starts and drains instances for it."""

    def __init__(self, life: Life) -> None:
        """Begin the schedule, or the measurements of the controller, for instances of `life`."""
        self.life, self.machine, self.agenda = life, life.machine, life.agenda
        self.setup = self.machine.setup
        self.rule, self.roles = self.setup.scenario.elastic, self.setup.roles
        supernodes = range(self.setup.supernodes)
        self.pools = [(role, supernode) for supernode in supernodes for role in self.roles]
        self.decisions: list[dict[str, object]] = []  # rows of their table
        self.role_changes = 0
        self._npus = max(self.rule.npus, self.setup.fabric.npus_of(self.life.held_dies()))
        self._changed_s: deque[float] = deque()
        self._calm_s = dict.fromkeys(self.pools, 0.0)  # until when a pool is left alone
        self._lately = deque([(0.0, self._committed_by_role())])
        # Only a schedule may stop the last one; a controller leaves that to `_watch_requests`.
        has_controller = self.rule.controller != "schedule"
        self._least = max(self.rule.least_instances, int(has_controller))
        self._arrived, self._idle_since_s = 0, 0.0
        if has_controller and self.rule.least_instances == 0:
            self.agenda.add(LOOK_S, self._watch_requests)
        self._size = {  # NPUs of an instance
            role: self.setup.of_role(role)[0].dies // self.setup.dies_per_npu(role)
            for role in self.roles
        }
        if not has_controller:
            for schedule_entry in self.rule.schedule:
                wanted_counts = tuple(schedule_entry.wanted_instances(role) for role in self.roles)
                self.agenda.add(schedule_entry.at_s, partial(self._follow_schedule, wanted_counts))
            return
        rule, lead_s = self.rule, self.rule.metrics_age_s + self.life.full_start_s()
        self._meter = PoolMeter(self.machine, lead_s, forecasts=rule.controller not in BY_PRESSURE)
        self._choose = controller_named(rule.controller, rule.own.digest)
        least_instances = self._least * self.setup.supernodes
        self._limits = Rule(rule.high, rule.low, least_instances, rule.idle == "keep")
        self.agenda.add(rule.interval_s, self._measure_pools)

    def _committed_count(self, pool: Pool) -> int:
        """Number of a pool's instances that serve, start, recover, or are planned to start."""
        planned_count = sum(_pool_of(self.life, instance) == pool for instance in self.life.planned)
        present_instances = self.life.in_state(pool[0], *STARTS, "serve", "down", at=pool[1])
        return len(present_instances) + planned_count

    def _committed_by_role(self) -> Wanted:
        """Number of instances of each role that serve, start or recover, of all supernodes."""
        count_of_pool = {pool: self._committed_count(pool) for pool in self.pools}
        by_role = [(pool[0], count) for pool, count in count_of_pool.items()]
        return tuple(sum(n for name, n in by_role if name == role) for role in self.roles)

    def _targets(self, wanted: Wanted) -> dict[Pool, int]:
        """Number of instances wanted in each pool: equal parts of counts by role, at least the
        minimum."""
        counts, supernodes = dict(zip(self.roles, wanted, strict=True)), self.setup.supernodes
        return {
            (role, supernode): max(
                self._least, (counts[role] + supernodes - 1 - supernode) // supernodes
            )
            for role, supernode in self.pools
        }

    def _measure_pools(self, t_s: float) -> None:
        """Measure the pools at each interval; the controller gets each result once it has aged."""
        self.agenda.add(t_s + self.rule.interval_s, self._measure_pools)
        columns_of_role, starting_count = {}, {}
        for role, committed_count in zip(self.roles, self._committed_by_role(), strict=True):
            serving = self.life.in_state(role, "serve")
            columns_of_role[role] = [self.setup.instances[instance].index for instance in serving]
            starting_count[role] = committed_count - len(serving)
        measurements = self._meter.measure(columns_of_role, starting_count, t_s)
        pools_seen = {
            role: PoolSeen(
                len(columns_of_role[role]), starting_count[role],
                len(self.life.in_state(role, "drain")), self._size[role], *measurements[role],
            )
            for role in self.roles
        }  # fmt: skip
        seen = Seen(t_s, self._npus, self._meter.arrivals_per_s, pools_seen)
        self.agenda.add(t_s + self.rule.metrics_age_s, lambda now_s: self._size_pools(seen, now_s))

    def _watch_requests(self, t_s: float) -> None:
        """Stop all instances of an idle model; when a request comes, start one per empty pool."""
        self.agenda.add(t_s + LOOK_S, self._watch_requests)
        world, idle_s = self.machine.world, self.rule.idle_s
        arrived_count, inside_count = int(world.record.counters[w.ARRIVED]), requests_inside(world)
        if inside_count or arrived_count > self._arrived:
            self._arrived, self._idle_since_s = arrived_count, t_s
        for pool in self.pools:
            if inside_count and not self._committed_count(pool):
                self._grow_pool(pool, {}, t_s, urgent=True)
            elif not inside_count and t_s >= self._idle_since_s + idle_s:
                for instance in self.life.in_state(pool[0], "serve", at=pool[1]):
                    self.life.drain(instance, t_s)

    def _size_pools(self, seen: Seen, t_s: float) -> None:
        """Let the controller choose sizes of pools from an observation; begin the changes."""
        if not self.rule.least_instances and 0 in self._committed_by_role():
            return  # until a request comes
        targets = self._choose(seen, self._limits)
        cool_down_over = {pool: t_s >= self._calm_s[pool] for pool in self.pools}
        self._begin_changes(targets, t_s, cool_down_over, seen, self._delay_shrinking(targets, t_s))

    def _delay_shrinking(self, wanted: Wanted, t_s: float) -> Wanted:
        """The counts `wanted` by role, raised so that no pool shrinks below the largest count that
        was wanted in the last shrink_after_s; unchanged if the NPUs do not suffice for that."""
        self._lately.append((t_s, wanted))
        while self._lately[0][0] < t_s - self.rule.shrink_after_s:
            self._lately.popleft()
        recent_counts = zip(*(counts for _, counts in self._lately), strict=True)
        raised_targets = tuple(
            max(target, min(max(counts_of_role), committed))
            for target, counts_of_role, committed in zip(
                wanted, recent_counts, self._committed_by_role(), strict=True
            )
        )
        npus = sum(n * self._size[role] for n, role in zip(raised_targets, self.roles, strict=True))
        return raised_targets if npus <= self._npus else wanted

    def _follow_schedule(self, wanted: Wanted, t_s: float) -> None:
        """Apply a row of the schedule, counts by role; what cannot begin yet is retried later."""
        self._goal = wanted
        self._begin_changes(wanted, t_s, dict.fromkeys(self.pools, True), None, wanted)
        if any(n != self._committed_count(pool) for pool, n in self._targets(wanted).items()):

            def follow_again(now_s: float) -> None:
                """Follow the row once more, unless another row has begun."""
                if self._goal is wanted:
                    self._follow_schedule(wanted, now_s)

            self.agenda.add(t_s + self.rule.interval_s, follow_again)

    def _may_change(self, t_s: float) -> bool:
        """Whether the limit of changes in an hour allows another one at t_s."""
        while self._changed_s and self._changed_s[0] <= t_s - HOUR_S:
            self._changed_s.popleft()
        is_below_limit = len(self._changed_s) < self.rule.changes_per_hour
        return self.rule.controller == "schedule" or is_below_limit

    def _note_change(self, t_s: float, *pools: Pool) -> None:
        """Note a change of these pools at t_s; their cool-down begins."""
        self._changed_s.append(t_s)
        for pool in pools:
            self._calm_s[pool] = t_s + self.rule.cool_down_s

    def _begin_changes(
        self, wanted: Wanted, t_s: float, is_calm: dict[Pool, bool], view: Seen | None, goal: Wanted
    ) -> None:
        """Begin changes to the counts `goal` by role, starts and role changes before stops.
        is_calm: whether a pool's cool-down is over. view, wanted: what the controller saw and
        wanted, for the table of decisions; view None: no row."""
        lacking = {pool: n - self._committed_count(pool) for pool, n in self._targets(goal).items()}
        start_count = stop_count = role_changes = 0
        why_not = ""
        for pool in self.pools:
            other_pools = self._other_pools(pool)
            while lacking[pool] > 0 and is_calm[pool]:
                if not self._may_change(t_s):
                    why_not = "bound of changes per hour"
                    break
                spares = {other: max(0, -lacking[other]) for other in other_pools if is_calm[other]}
                giving_pools = self._grow_pool(pool, spares, t_s)
                if giving_pools is None:
                    why_not = "no NPUs are free"
                    break
                lacking[pool] -= 1
                for other in giving_pools:
                    lacking[other] += 1
                role_changes += bool(giving_pools)
                start_count += not giving_pools
        for pool in self.pools:
            while lacking[pool] < 0 and is_calm[pool] and self._may_change(t_s):
                serving_instances = self.life.in_state(pool[0], "serve", at=pool[1])
                if len(serving_instances) <= self._least:
                    break
                self.life.drain(min(serving_instances, key=partial(_drain_key, self.life)), t_s)
                self._note_change(t_s, pool)
                lacking[pool] += 1
                stop_count += 1
        if any(lacking.values()) and not why_not:
            why_not = "cool-down" if not all(is_calm.values()) else "bound of changes per hour"
        self.role_changes += role_changes
        if view is not None:
            changes = start_count, stop_count, role_changes, why_not
            decision = _decision_row(t_s, view, wanted) | dict(zip(CHANGES, changes, strict=True))
            self.decisions.append(decision)

    def _other_pools(self, pool: Pool) -> list[Pool]:
        """The other pools of the supernode of a pool."""
        return [other for other in self.pools if other != pool and other[1] == pool[1]]

    def _grow_pool(
        self, pool: Pool, spare: dict[Pool, int], t_s: float, *, urgent: bool = False
    ) -> list[Pool] | None:
        """Add an instance to a pool; returns the pools that give up instances for it, None if it is
        impossible. A draining instance without a successor serves again; otherwise one starts on
        free NPUs, preferring NPUs that other pools need least; otherwise at most `spare` of each
        other pool drain for it, or instances of other models (busy ones only if `urgent`)."""
        life, (role, supernode) = self.life, pool
        for k in life.in_state(role, "drain", at=supernode):
            if life.reopen(k, t_s):
                self._note_change(t_s, pool)
                return []
        held_dies, failed_dies = life.held_dies(), self.machine.out
        claimed_dies = {die for peer in life.together for k in peer.planned for die in peer.dies[k]}
        off_instances = [j for other, _ in self._other_pools(pool)
                     for j in life.in_state(other, "off", at=supernode)]  # fmt: skip
        idle_die_sets = [life.dies[j] for j in off_instances if not life.dies[j] & held_dies]
        possible_starts = []
        for k in life.in_state(role, "off", at=supernode):
            if k in life.planned or life.dies[k] & (claimed_dies | failed_dies):
                continue
            to_stop = [(peer, j) for peer in life.together for j, state in enumerate(peer.state)
                        if state != "off" and peer.dies_of(j) & life.dies[k]]  # fmt: skip
            drain_counts = Counter(_pool_of(peer, j) for peer, j in to_stop if peer is life)
            if any(peer.state[j] != "serve" for peer, j in to_stop) or any(
                drain_count > spare.get(other, 0) for other, drain_count in drain_counts.items()
            ):
                continue
            if not all(peer is life or peer.may_yield(j, urgent=urgent) for peer, j in to_stop):
                continue
            blocked_count = sum(not dies.isdisjoint(life.dies[k]) for dies in idle_die_sets)
            work_to_drain = sum(_drain_key(peer, j)[0] for peer, j in to_stop)
            possible_starts.append(
                (len(to_stop), blocked_count, work_to_drain, not life.is_warm(k), k, to_stop)
            )
        if not possible_starts:
            return None
        *_, k, to_stop = min(possible_starts, key=lambda start: start[:-1])
        if not to_stop:
            self.life.start(k, t_s)
            self._note_change(t_s, pool)
            return []
        replaced: Over = "role" if life.dies[k] <= held_dies else "model"
        is_all_held = life.dies[k] <= set().union(*(peer.held_dies() for peer in life.together))
        life.planned[k] = len(to_stop)
        for peer, j in to_stop:
            peer.drain(j, t_s, partial(self._start_after_drain, k, replaced if is_all_held else ""))
        self._note_change(t_s, pool, *self._other_pools(pool))
        return [_pool_of(life, j) for peer, j in to_stop if peer is life]

    def _start_after_drain(self, k: int, over: Over, t_s: float) -> None:
        """Note that one instance for which instance k waits has drained; after the last one start
        k. over: see `Life.start`."""
        self.life.planned[k] -= 1
        if not self.life.planned[k]:
            del self.life.planned[k]
            self.life.start(k, t_s, over)


def _pool_of(life: Life, k: int) -> Pool:
    """Role and supernode of instance k."""
    return life.setup.instances[k].role, life.supernode[k]


def _drain_key(life: Life, k: int) -> tuple[int, int]:
    """(queued tokens or taken slots, -index) of instance k; the least key drains first."""
    instance, world = life.setup.instances[k], life.machine.world
    if instance.role == "prefill":
        return int(world.prefill.queued_tokens[instance.index]), -instance.index
    return int(world.decode.taken[instance.index]), -instance.index


def _decision_row(t_s: float, seen: Seen, wanted: Wanted) -> dict[str, object]:
    """Time of a decision, what was observed (and when), instances wanted, by name of column."""
    decision: dict[str, object] = {"t_s": t_s, "seen_s": seen.t_s}
    decision["arrivals_per_s"] = seen.arrivals_per_s
    for (role, pool_seen), wanted_count in zip(seen.pools.items(), wanted, strict=True):
        for field in SHOWN:
            decision[f"{role}_{field}"] = getattr(pool_seen, field)
        if not math.isnan(pool_seen.needed):
            decision[f"{role}_needed"] = pool_seen.needed
        decision[f"{role}_wanted"] = wanted_count
    return decision
