"""Faults and recovery: what a scenario's events do to the instances, and when they are back.

A die that fails takes its instance with it: the iteration under way ends, nothing follows, and
after the detection time the policy decides (`Recovery.policy`): start anew, recover in place, or go
on with fewer dies. Links that fail or lose capacity only change prices, until an instance cannot
work over what is left: then it stands still until they are back, and the router learns of it after
the detection time. A memory server that fails takes its blocks with it. Requests are moved by
lifecycle/faults.py.

Where instances come and go (lifecycle/life.py), one that fails while it starts is off at once; one
that fails while it drains is off from its detection, one that cannot serve again from the end of
its recovery."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from twin.engine.books import log_pass, record_busy
from twin.engine.lifecycle import faults as phase
from twin.engine.lifecycle.life import Life
from twin.engine.lifecycle.loading import Then
from twin.engine.lifecycle.machine import Machine
from twin.engine.phases.colocated import finish_chunks
from twin.engine.phases.decode import end_iteration
from twin.experts import ExpertsError
from twin.hardware.chip import HardwareError
from twin.hardware.demands import dram_ratio, equal_parts
from twin.hardware.faults import nodes_without_dram
from twin.metrics.events import Event, Kind
from twin.model.parallel import place_in_stage
from twin.model.shape import ModelError
from twin.policies.memory_pool import lose_server, resize_pool
from twin.scenario import KINDS, Fault
from twin.scenario.faults import Spans
from twin.scenario.words import numbered

Missing = Callable[[int, set[int]], int]  # expert weights that only these dies of it held


class Incidents:
    """The scenario's faults, entered into the agenda. missing(k, dies): number of expert weights
    that only these dies of instance k hold."""

    def __init__(self, life: Life, log: list[Event], missing: Missing) -> None:
        """Enter the scenario's faults into the agenda; events go into `log`; missing: see class."""
        machine, agenda = life.machine, life.agenda
        self.life, self.machine, self.agenda, self.log = life, machine, agenda, log
        self.missing = missing
        self.servers = MemoryServers(machine, log)
        self.down: dict[int, Event] = {}  # instances out of service
        self.shrunk: dict[int, Event] = {}  # instances that serve with fewer dies than built
        self.hit: list[set[int]] = [set() for _ in machine.members]  # ranks lost since it served
        self.turn = [0] * len(machine.members)  # counts recoveries, so that an old one is void
        self.pending: set[int] = set()  # instances whose recovery is on the agenda
        for fault in machine.setup.scenario.faults:
            agenda.add(fault.at_s, partial(self._begin_fault, fault))

    def _begin_fault(self, fault: Fault, t_s: float) -> None:
        """Log a fault as it begins, and put it in force during its spans."""
        sentence = f"{fault.where} {KINDS[fault.kind].says(fault)}"
        self.log.append(Event(t_s, Kind.FAULT, sentence, element=fault.where))
        self._apply_spans(fault, KINDS[fault.kind].spans(fault), self.log[-1])

    def _apply_spans(self, fault: Fault, spans: Spans, event: Event) -> None:
        """Apply a fault during each of its spans (begin and end, s after its event), in turn."""
        begin_s, end_s = next(spans, (math.inf, math.inf))

        def begin_span(t_s: float) -> None:
            """Add the fault to those in force, and plan its end."""
            event.end_s = None
            self._apply_faults([*self.machine.in_force, fault], t_s)
            if end_s < math.inf:
                self.agenda.add(event.t_s + end_s, end_span)

        def end_span(t_s: float) -> None:
            """End a span of the fault: what it broke works again; plan the next span."""
            event.end_s = t_s
            other_faults = list(self.machine.in_force)
            other_faults.remove(fault)
            self._apply_faults(other_faults, t_s)
            self._apply_spans(fault, spans, event)

        if begin_s == 0.0:
            begin_span(event.t_s)
        elif begin_s < math.inf:
            self.agenda.add(event.t_s + begin_s, begin_span)

    def _apply_faults(self, in_force: list[Fault], t_s: float) -> None:
        """Put these faults in force: stop instances, bring repaired dies back, set prices."""
        machine = self.machine
        dies_out_before = machine.out
        machine.put_in_force(in_force)
        self.servers.adjust_pools(t_s)
        lost_dies = machine.out - dies_out_before
        self.life.lose_dies(lost_dies, t_s)
        for instance_number, member_dies in enumerate(machine.members):
            if instance_number in machine.absent:
                continue
            lost_ranks = {rank for rank, die in enumerate(member_dies) if die in lost_dies}
            if lost_ranks:
                self._stop_instance(instance_number, t_s, "")  # until the failure is detected
                self.hit[instance_number] |= lost_ranks
                self.pending.add(instance_number)
            elif instance_number not in self.down:
                self._update_costs(instance_number, False, t_s)
                self._load_repaired_dies(instance_number, t_s)
            elif instance_number not in self.pending:  # nothing else will wake it
                self._begin_recovery(instance_number, t_s)
        machine.lay_flows(t_s)

    def _repaired_ranks(self, k: int) -> list[int]:
        """Ranks of instance k without a die, for which the original die works and is not in use."""
        machine = self.machine
        home_dies = enumerate(machine.setup.instances[k].die_of_rank)
        used_dies = machine.dies_in_use() | machine.out
        return [rank for rank, die in home_dies
                if machine.members[k][rank] is None and die not in used_dies]  # fmt: skip

    def _return_dies(self, k: int) -> bool:
        """Return repaired dies of instance k to their ranks; returns whether there were any."""
        vacant_ranks = self._repaired_ranks(k)
        for rank in vacant_ranks:
            self.machine.members[k][rank] = self.machine.setup.instances[k].die_of_rank[rank]
        return bool(vacant_ranks)

    def _load_repaired_dies(self, k: int, t_s: float) -> None:
        """Let repaired dies of instance k read their weights from the DRAM of nodes, then serve. A
        transfer that has begun is not repeated, unless one of its dies has failed meanwhile."""
        machine = self.machine
        incoming = machine.coming.get(k)
        if incoming is not None and not machine.out.isdisjoint(incoming.dies):
            self.life.loading.stop(k, t_s)
            incoming = None
        original_dies = machine.setup.instances[k].die_of_rank
        repaired_dies = [original_dies[rank] for rank in self._repaired_ranks(k)]
        new_dies = [die for die in repaired_dies if incoming is None or die not in incoming.dies]
        if not new_dies:
            return
        rejoin_action = partial(self._rejoin_repaired_dies, k)
        weight_bytes = machine.roles[k].memory.weights * len(new_dies)
        try:
            self.life.loading.load(k, new_dies, weight_bytes, t_s, rejoin_action)
        except HardwareError:
            self.agenda.add(t_s, rejoin_action)

    def _rejoin_repaired_dies(self, k: int, t_s: float) -> None:
        """Return the repaired dies of instance k to their ranks, unless it is down or absent."""
        if k not in self.down and k not in self.machine.absent and self._return_dies(k):
            self._update_costs(k, True, t_s)
            self._log_die_count(k, Kind.REJOINED, t_s)
            self.machine.lay_flows(t_s)

    def _update_costs(self, k: int, grown: bool, t_s: float) -> None:
        """Compute instance k's cost coefficients again after links or dies changed; stop it if it
        cannot serve. grown: whether dies returned to it."""
        machine = self.machine
        try:
            machine.adopt_costs(k, machine.price(k))
            if grown:
                self.life.restored(k, t_s)
        except (HardwareError, ModelError, ExpertsError) as error:
            self._stop_instance(k, t_s, str(error))

    def _void_if_superseded(self, k: int, action: Then) -> Then:
        """An action that calls `action` unless another recovery of instance k has begun since."""
        self.turn[k] += 1
        recovery_turn = self.turn[k]
        return lambda now_s: action(now_s) if recovery_turn == self.turn[k] else None

    def _stop_instance(self, k: int, t_s: float, why: str) -> None:
        """Stop everything of instance k (why: text for its event), and plan the detection of its
        failure. Its running iteration ends now."""
        detected_s = t_s + self.machine.setup.scenario.recovery.detection_s
        self.agenda.add(detected_s, self._void_if_superseded(k, partial(self._handle_detection, k)))
        instance, column = self.machine.setup.instances[k], self.machine.column(k)
        world, instances = self.machine.world, self.machine.world.instance
        if k in self.down:
            self.down[k].detail = why
            return
        self.down[k] = self._log_event(k, Kind.INSTANCE_DOWN, t_s, why)
        self.down[k].end_s = math.inf
        self.life.fail(k, t_s)
        if instances.running[column]:
            record_busy(world, column, t_s, instances.ends_s[column], -1.0)
        if instance.role == "prefill":  # its batch goes on if its dies come back in time
            return
        if instances.running[column]:
            end_iteration(world, instance.index, t_s)
            instances.running[column] = 0
            if instance.role == "colocated":
                finish_chunks(world, instance.index, t_s)
        instances.ends_s[column] = t_s

    def _handle_detection(self, k: int, t_s: float) -> None:
        """Apply the recovery policy: remove requests and plan when instance k serves again. A
        failed die has lost its KV even if it works again by now. If only links are missing, the
        instance goes on when they are repaired, at a time that is not known."""
        instance, recovery = self.machine.setup.instances[k], self.machine.setup.scenario.recovery
        request_count = self._remove_requests(k, t_s)
        recovery_text = {"restart": "starts anew", "in_place": "recovers in place",
                "shrink": "goes on with fewer dies"}[recovery.policy]  # fmt: skip
        if not self.hit[k]:
            recovery_text = "waits for its links"
        sentence = f"{instance.name} {recovery_text}"
        self._log_event(k, Kind.DETECTED, t_s, sentence).requests = request_count
        self.down[k].requests += request_count
        if k in self.life.stops:
            self._free_instance(k, t_s)
        elif self.hit[k]:
            self._begin_recovery(k, t_s)

    def _remove_requests(self, k: int, t_s: float) -> int:
        """Close instance k to new requests, and send those that its failure or the recovery policy
        forces out back to the router; returns how many. t_s: now."""
        instance, recovery = self.machine.setup.instances[k], self.machine.setup.scenario.recovery
        world, rank_rows = self.machine.world, self.machine.rank_rows(k)
        count_before = phase.sent_back_count(world)
        self.life.set_open(k, 0, up=0)
        if instance.role != "decode":
            phase.send_back_prompts(world, instance.index, t_s)
            if instance.role == "prefill" and world.settings.has_decode:
                phase.send_back_transfers(world, t_s, prefill=instance.index)
        if instance.role != "prefill":
            if recovery.policy == "restart":
                phase.send_back_decoding(world, rank_rows, t_s)
                if instance.role == "decode" and world.settings.has_prefill:
                    phase.send_back_transfers(world, t_s, ranks=rank_rows)
            rank_dies = self.machine.setup.rank_dies
            for rank in sorted({die // rank_dies for die in self.hit[k]}):
                phase.send_back_rank(world, rank_rows[rank], t_s)
        return phase.sent_back_count(world) - count_before

    def _begin_recovery(self, k: int, t_s: float) -> None:
        """Let instance k serve again: at once if it lost no die, otherwise after its policy's
        seconds or, if it shrinks, after it loaded the experts of lost dies."""
        recovery = self.machine.setup.scenario.recovery
        if not self.hit[k]:
            self.agenda.add(t_s, self._recovery_end_action(k))
        elif recovery.policy == "shrink":
            self._reload_lost_experts(k, t_s)
        else:
            wait_s = recovery.restart_s if recovery.policy == "restart" else recovery.in_place_s
            self.agenda.add(t_s + wait_s, self._recovery_end_action(k))

    def _reload_lost_experts(self, k: int, t_s: float) -> None:
        """Load from DRAM, from t_s on, the experts that only lost dies had, onto the remaining dies
        of instance k; then it serves again."""
        machine = self.machine
        self.life.loading.stop(k, t_s)  # a failure before this one
        serving_dies, role_pool = machine.serving_dies(k), machine.roles[k].pool
        live_dies = [die for die in serving_dies if die not in machine.out]
        lost_places = {
            place_in_stage(role_pool, index, len(serving_dies))
            for index, die in enumerate(serving_dies)
            if die in machine.out
        }
        expert_bytes = machine.setup.expert_bytes(machine.setup.instances[k].role)
        expert_bytes /= role_pool.own.pp_stages  # a die has those of its stage
        reload_bytes_per_die = self.missing(k, lost_places) * expert_bytes if live_dies else 0.0
        end_recovery = self._recovery_end_action(k)
        if reload_bytes_per_die > 0.0:
            with suppress(HardwareError):  # no DRAM is left to read from
                return self.life.loading.load(k, live_dies, reload_bytes_per_die, t_s, end_recovery)
        return self.agenda.add(t_s, end_recovery)

    def _recovery_end_action(self, k: int) -> Then:
        """The action that ends a recovery of instance k, void once another recovery begins."""
        self.pending.add(k)
        return self._void_if_superseded(k, partial(self._finish_recovery, k))

    def _finish_recovery(self, k: int, t_s: float) -> None:
        """End the recovery of instance k: complete it with repaired and spare dies, or go on with
        fewer, and let it serve if it can."""
        self.pending.discard(k)
        machine = self.machine
        recovery, member_dies = machine.setup.scenario.recovery, machine.members[k]
        self._return_dies(k)
        may_replace, spares_taken = recovery.spares and recovery.policy != "shrink", []
        for rank, die in enumerate(member_dies):
            if die is None or die in machine.out:
                member_dies[rank] = None
                if may_replace and (spare_dies := machine.spares(k)):
                    spares_taken.append(spare_dies[0])
                    member_dies[rank] = spares_taken[-1]
        self._log_spares(k, spares_taken, t_s)
        if not machine.serving_dies(k):
            self.down[k].detail = "no die is left to serve"
            return self._free_instance(k, t_s)
        try:
            machine.adopt_costs(k, machine.price(k))
            self.life.restored(k, t_s)
        except (HardwareError, ModelError, ExpertsError) as error:
            self.down[k].detail = f"cannot serve: {error}"
            return self._free_instance(k, t_s)
        self._resume_instance(k, t_s)
        return None

    def _free_instance(self, k: int, t_s: float) -> None:
        """If instances come and go, take instance k, which will not serve again, off its NPUs."""
        if not self.life.moves:
            return
        world, instance = self.machine.world, self.machine.setup.instances[k]
        rank_rows = self.machine.rank_rows(k)
        if instance.role != "prefill":
            phase.send_back_decoding(world, rank_rows, t_s)
        if instance.role == "decode" and world.settings.has_prefill:
            phase.send_back_transfers(world, t_s, ranks=rank_rows)
            for rank in rank_rows:
                phase.send_back_prompts_of_rank(world, rank, t_s)
        self.turn[k] += 1
        self.pending.discard(k)
        self.hit[k].clear()
        self.down.pop(k).end_s = t_s
        if k in self.shrunk:
            self.shrunk.pop(k).end_s = t_s
        self.life.end(k, t_s)

    def _log_spares(self, k: int, spares: Sequence[int], t_s: float) -> None:
        """Log an event for each node with spare dies (`spares`) that instance k takes."""
        fabric, instance = self.machine.fabric, self.machine.setup.instances[k]
        node_of_spare = fabric.node[fabric.dies[list(spares)]].tolist()
        for node, die_count in sorted(Counter(node_of_spare).items()):
            sentence = f"{instance.name} goes on with spare dies: {die_count}"
            self._log_event(k, Kind.SPARE, t_s, sentence).element = f"node {node}"

    def _resume_instance(self, k: int, t_s: float) -> None:
        """Let instance k serve after a recovery; a prefill batch goes on where it was."""
        machine = self.machine
        instance, column = machine.setup.instances[k], machine.column(k)
        world, instances = machine.world, machine.world.instance
        down_event = self.down.pop(k)
        down_event.end_s = t_s
        self.hit[k].clear()
        if instance.role != "decode" and world.prefill.reading[instance.index]:
            world.prefill.begin_s[instance.index] += t_s - down_event.t_s  # so long it was not busy
        if instances.running[column]:  # a batch of prefill goes on where it was
            instances.ends_s[column] += t_s - down_event.t_s
            record_busy(world, column, t_s, instances.ends_s[column], 1.0)
            no_operators = world.costs.prefill_operators[:0]
            log_pass(world, column, t_s, instances.ends_s[column], 0, 0.0, no_operators)
        else:
            instances.ends_s[column] = t_s
        self.life.recover(k, t_s)
        self._log_die_count(k, Kind.SHRUNK, t_s)
        machine.lay_flows(t_s)

    def _log_die_count(self, k: int, kind: Kind, t_s: float) -> None:
        """Log (as `kind`) how many dies of instance k serve, if some are or were missing."""
        instance, die_count = self.machine.setup.instances[k], len(self.machine.serving_dies(k))
        if k in self.shrunk:
            self.shrunk.pop(k).end_s = t_s
        elif die_count == instance.dies:
            return
        sentence = f"{instance.name} serves with {die_count} of {numbered(instance.dies, 'die')}"
        event = self._log_event(k, kind, t_s, sentence)
        if die_count < instance.dies:
            event.end_s = math.inf
            self.shrunk[k] = event

    def _log_event(self, k: int, kind: Kind, t_s: float, sentence: str) -> Event:
        """Log an event of instance k; returns it."""
        seat = self.machine.setup.instances[k]
        event = Event(t_s, kind, sentence, element=seat.name, role=seat.role, instance=seat.index)
        self.log.append(event)
        return event


class MemoryServers:
    """Memory servers that failed, and the memory pool on the remaining ones."""

    def __init__(self, machine: Machine, log: list[Event]) -> None:
        """Count servers that the fabric lacks as failed; losses of KV blocks are added to `log`."""
        self._machine, self._log = machine, log
        self._out = nodes_without_dram(machine.fabric)
        if self._out:
            self._resize_pools()

    def adjust_pools(self, t_s: float) -> None:
        """After a change of the machine, drop blocks of failed servers and resize the pools."""
        failed_nodes = nodes_without_dram(self._machine.fabric)
        lost_nodes, repaired_nodes = failed_nodes - self._out, self._out - failed_nodes
        if self._machine.world.settings.pool_enabled:
            for node in sorted(lost_nodes):
                self._lose_blocks(node, t_s)
                self._out |= {node}
        self._out = failed_nodes
        if lost_nodes or repaired_nodes:
            self._resize_pools()

    def _lose_blocks(self, node: int, t_s: float) -> None:
        """Drop the KV blocks of a node that failed, and log their number."""
        machine = self._machine
        pool, ssd = machine.world.pool, machine.world.ssd
        ssd_stays = int(machine.setup.scenario.recovery.lost_blocks == "ssd")
        lost_blocks = 0
        namespaces = machine.setup.namespaces
        for pool_row in range(pool.capacity.size):
            nodes = machine.setup.pool_nodes(pool_row // namespaces)
            node_of_part = equal_parts(machine.fabric, nodes)
            if node in node_of_part:
                is_up = (~np.isin(node_of_part, list(self._out))).astype(np.int8)
                for part_number in np.flatnonzero(node_of_part == node).tolist():
                    lost_blocks += lose_server(pool, ssd, pool_row, part_number, is_up, ssd_stays)
        consequence = "read again from the SSD tier" if ssd_stays else "lost"
        sentence = f"{lost_blocks:,} KV blocks of node {node} {consequence}"
        self._log.append(Event(t_s, Kind.POOL_LOST, sentence, element=f"node {node}"))

    def _resize_pools(self) -> None:
        """Set the capacity of memory pools to the DRAM of the nodes whose servers work."""
        machine = self._machine
        pool = machine.world.pool
        if not machine.world.settings.pool_enabled:
            return
        quotas = machine.setup.quotas
        for pool_row in range(pool.capacity.size):
            nodes = machine.setup.pool_nodes(pool_row // len(quotas))
            nodes_left = [node for node in nodes if node not in self._out]
            dram_nodes_left = dram_ratio(machine.fabric, nodes_left)
            dram_share = dram_nodes_left / max(dram_ratio(machine.fabric, nodes), 1e-9)
            pool_blocks = machine.setup.pool_blocks * dram_share * quotas[pool_row % len(quotas)]
            resize_pool(pool, pool_row, int(pool_blocks))
