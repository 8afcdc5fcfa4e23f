"""Faults and recovery: what a scenario's events do to the instances, and when they are back.

A die that fails takes its instance with it: the iteration under way ends, nothing follows, and
after the detection time the policy decides (`Recovery.policy`): start anew, recover in place, or
go on with fewer dies. Links that fail or lose capacity only change prices; a memory server that
fails takes its blocks. Requests are moved by engine/phases/faults.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from twin.engine import world as w
from twin.engine.agenda import Agenda
from twin.engine.events import Event
from twin.engine.machine import Machine
from twin.engine.phases import faults as phase
from twin.engine.phases.decode import settle
from twin.hardware.chip import HardwareError
from twin.hardware.faults import servers_out
from twin.hardware.routes import pool_read
from twin.model.shape import ModelError
from twin.serving.experts import ExpertsError
from twin.serving.memory_pool import lose_server, resize
from twin.spec import Fault

Changed = Callable[[int, float], None]  # an instance got other dies, at a time


class Incidents:
    """The scenario's faults, entered into the agenda."""

    def __init__(
        self, machine: Machine, agenda: Agenda, log: list[Event], changed: Changed
    ) -> None:
        self.machine = machine
        self.agenda = agenda
        self.log = log
        self.changed = changed
        self.out: frozenset[int] = frozenset()
        self.servers: frozenset[int] = frozenset()
        self.down: dict[int, Event] = {}  # instances out of service
        self.turn = [0] * len(machine.members)  # counts recoveries, so that an old one is void
        self.pending: set[int] = set()  # instances whose next turn is on the agenda
        for fault in machine.setup.scenario.faults:
            agenda.at(fault.at_s, self._begin(fault))

    def _begin(self, fault: Fault) -> Callable[[float], None]:
        def action(t_s: float) -> None:
            where = f"{fault.element} - {fault.to}" if fault.to else fault.element
            word = {"fail": "fails", "derate": f"at {fault.factor:g} x of its capacity",
                    "slow": f"computes at {fault.factor:g} x of its speed"}[fault.kind]  # fmt: skip
            event = Event(t_s, "fault", f"{where} {word}", element=where)
            self.log.append(event)
            self._adjust([*self.machine.in_force, fault], t_s)
            if fault.duration_s > 0.0:
                self.agenda.at(t_s + fault.duration_s, self._end(fault, event))

        return action

    def _end(self, fault: Fault, event: Event) -> Callable[[float], None]:
        def action(t_s: float) -> None:
            event.end_s = t_s
            left = list(self.machine.in_force)
            left.remove(fault)
            self._adjust(left, t_s)

        return action

    def _adjust(self, in_force: list[Fault], t_s: float) -> None:
        """The machine changed: who is hit, who gets a die back, what everything costs now."""
        machine = self.machine
        before = self.out
        self.out = machine.change(in_force)
        self._servers(servers_out(machine.fabric), t_s)
        lost, back = self.out - before, before - self.out
        machine.spare = sorted((set(machine.spare) | (back - self._held())) - self.out)
        for k, members in enumerate(machine.members):
            if any(die in lost for die in members):
                self._hit(k, t_s)
            elif k not in self.down:
                if not self._refill(k, back, t_s):
                    self._reprice(k, t_s)
            elif k not in self.pending:  # nothing else will wake it
                self._recover_at(k, t_s)
        machine.lay_flows(t_s)

    def _held(self) -> set[int]:
        """Dies that belong to an instance, in service or as the place of a rank without one."""
        held = {die for members in self.machine.members for die in members if die is not None}
        for k, i in enumerate(self.machine.setup.instances):
            vacant = [r for r, die in enumerate(self.machine.members[k]) if die is None]
            held |= {i.first_die + r for r in vacant}
        return held

    def _refill(self, k: int, back: frozenset[int], t_s: float) -> bool:
        """Dies that are repaired take up the ranks that were theirs."""
        i = self.machine.setup.instances[k]
        members = self.machine.members[k]
        vacant = [r for r, die in enumerate(members) if die is None and i.first_die + r in back]
        for r in vacant:
            members[r] = i.first_die + r
        if vacant:
            self._reprice(k, t_s)
            self.changed(k, t_s)
        return bool(vacant)

    def _reprice(self, k: int, t_s: float) -> None:
        """Other links or slower dies: the same instance at another price."""
        machine = self.machine
        try:
            machine.adopt(k, machine.price(k))
        except (HardwareError, ModelError) as error:
            self._stop(k, t_s, str(error))

    def _hit(self, k: int, t_s: float) -> None:
        """A die of the instance is gone: nothing moves until somebody notices."""
        self._stop(k, t_s, "")
        self.turn[k] += 1
        self.pending.add(k)
        turn = self.turn[k]
        wait = self.machine.setup.scenario.recovery.detection_s

        def detected(now_s: float) -> None:
            if turn == self.turn[k]:
                self._detected(k, now_s)

        self.agenda.at(t_s + wait, detected)

    def _stop(self, k: int, t_s: float, why: str) -> None:
        """Nothing of the instance moves any more; the iteration under way ends now."""
        i = self.machine.setup.instances[k]
        world = self.machine.world
        if k not in self.down:
            event = Event(t_s, "instance_down", why, element=i.name, role=i.role, instance=i.index)
            event.end_s = math.inf
            self.down[k] = event
            self.log.append(event)
        self.down[k].detail = why
        if i.role != "decode" and world.prefill.up[i.index]:
            world.prefill.up[i.index] = 0
            if world.prefill.running[i.index]:
                world.prefill.busy_s[i.index] -= self._cut_short(world.prefill.ends_s[i.index], t_s)
        if i.role != "prefill" and world.decode.up[i.index]:
            decode = world.decode
            decode.up[i.index] = 0
            if decode.running[i.index]:
                decode.busy_s[i.index] -= self._cut_short(decode.ends_s[i.index], t_s)
                settle(self.machine.shared, i.index, t_s)
                decode.running[i.index] = 0
            decode.ends_s[i.index] = t_s

    def _cut_short(self, ends_s: float, t_s: float) -> float:
        """Time booked for what does not take place, seconds."""
        return max(0.0, min(ends_s, self.machine.setup.scenario.horizon_s) - t_s)

    def _detected(self, k: int, t_s: float) -> None:
        """The policy's answer: who is thrown out, and when the instance is back."""
        i = self.machine.setup.instances[k]
        rule = self.machine.setup.scenario.recovery
        world, shared = self.machine.world, self.machine.shared
        members = self.machine.members[k]
        gone = [r for r, die in enumerate(members) if die in self.out or die is None]
        thrown = 0
        if i.role != "decode":
            world.prefill.open[i.index] = 0
            thrown += phase.empty_prefill(shared, i.index, t_s)
            if i.role == "prefill" and world.settings.has_decode:
                thrown += phase.empty_transfers(shared, i.index, w.NONE, w.NONE, t_s)
        if i.role != "prefill":
            world.decode.open[i.index] = 0
            if rule.policy == "restart":
                thrown += phase.empty_decode(shared, i.index, w.NONE, t_s)
                if i.role == "decode" and world.settings.has_prefill:
                    thrown += phase.empty_transfers(shared, w.NONE, i.index, w.NONE, t_s)
            for r in gone:
                if members[r] is not None:
                    thrown += phase.free_rank(shared, i.index * i.dies + r, t_s)
        name = {"restart": "starts anew", "in_place": "recovers in place",
                "shrink": "goes on with fewer dies"}[rule.policy]  # fmt: skip
        self.log.append(
            Event(t_s, "detected", f"{i.name} {name}", element=i.name, role=i.role,
                  instance=i.index, requests=thrown)
        )  # fmt: skip
        self.down[k].requests += thrown
        wait = {"restart": rule.restart_s, "in_place": rule.in_place_s,
                "shrink": self._reload_s(k, gone)}[rule.policy]  # fmt: skip
        self._recover_at(k, t_s + wait)

    def _reload_s(self, k: int, gone: list[int]) -> float:
        """Seconds to load the experts of the dies that are gone onto those that are left.

        All slots of a lost die count: which of them had a copy elsewhere is not looked at. Every
        die left reads its share from the memory pool over UB.
        """
        machine = self.machine
        left = [d for d in machine.members[k] if d is not None and d not in self.out]
        if not left or not gone:
            return 0.0
        layout, shape = machine.roles[k].layout, machine.setup.costs.shape
        expert = machine.setup.crowd.expert_bytes
        size = len(gone) * layout.slots_per_die * shape.moe_layers * expert
        try:
            rate = pool_read(machine.fabric, left).bytes_per_s
        except HardwareError:
            return 0.0
        return size / rate

    def _recover_at(self, k: int, when_s: float) -> None:
        self.turn[k] += 1
        self.pending.add(k)
        turn = self.turn[k]

        def recovered(t_s: float) -> None:
            if turn == self.turn[k]:
                self.pending.discard(k)
                self._recovered(k, t_s)

        self.agenda.at(when_s, recovered)

    def _recovered(self, k: int, t_s: float) -> None:
        """The instance takes requests again, with spares or with fewer dies; or it cannot."""
        machine = self.machine
        i = machine.setup.instances[k]
        rule = machine.setup.scenario.recovery
        members = machine.members[k]
        for r, die in enumerate(members):
            home = i.first_die + r
            if die is None and home not in self.out:
                members[r] = home
            elif die is None or die in self.out:
                takes = rule.spares and rule.policy != "shrink" and machine.spare
                members[r] = machine.spare.pop(0) if takes else None
        if not machine.serving(k):
            self.down[k].detail = NO_DIES
            return
        try:
            machine.adopt(k, machine.price(k))
            self.changed(k, t_s)
        except (HardwareError, ModelError, ExpertsError) as error:
            self.down[k].detail = f"cannot serve: {error}"
            return
        self._go_on(k, t_s)

    def _go_on(self, k: int, t_s: float) -> None:
        machine = self.machine
        i = machine.setup.instances[k]
        world = machine.world
        if i.role != "decode":
            world.prefill.open[i.index] = world.prefill.up[i.index] = 1
            world.prefill.free_s[i.index] = t_s
        if i.role != "prefill":
            decode = world.decode
            decode.open[i.index] = decode.up[i.index] = 1
            decode.ends_s[i.index] = t_s
        event = self.down.pop(k)
        event.end_s = t_s
        if len(machine.serving(k)) < i.dies:
            words = f"{i.name} serves with {len(machine.serving(k))} of {i.dies} dies"
            self.log.append(
                Event(t_s, "shrunk", words, element=i.name, role=i.role, instance=i.index)
            )
        machine.lay_flows(t_s)

    def _servers(self, out: frozenset[int], t_s: float) -> None:
        """Memory servers that went or came back: their blocks, and what the pool holds."""
        lost, back = out - self.servers, self.servers - out
        self.servers = out
        machine = self.machine
        world, s = machine.world, machine.setup.scenario
        if not world.settings.pool_enabled or not (lost or back):
            return
        keeps = int(s.recovery.lost_blocks == "ssd")
        homes = [machine.pool_nodes(row) for row in range(world.pool.capacity.size)]
        for node in sorted(lost):
            count = 0
            for row, nodes in enumerate(homes):
                if node in nodes:
                    at = nodes.index(node)
                    count += lose_server(world.pool, row, at, len(nodes), keeps)
            what = "read again from the SSD tier" if keeps else "lost"
            words = f"{count:,} KV blocks of node {node} {what}"
            self.log.append(Event(t_s, "pool_lost", words, element=f"node {node}"))
        for row, nodes in enumerate(homes):
            part = sum(node not in out for node in nodes) / len(nodes)
            resize(world.pool, row, int(machine.setup.pool_blocks * part))


NO_DIES = "no die is left to serve"
