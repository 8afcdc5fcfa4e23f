"""One life cycle of every instance: start, load weights, make graphs, serve, drain, fail, stop.

A schedule or controller (elastic.py) starts and drains instances, faults (incidents.py) fail them
and let them recover; here are the states, and what each step does to the instance table. Which
instances there may be is settled before time starts (`placement.further_instances`): they share
NPUs, and an NPU belongs to one of them at a time. What a step of a start takes is bytes over a rate
or a published figure (data/startup.toml)."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from twin.engine.in_hbm import drop_idle_blocks, first_kv_cell
from twin.engine.lifecycle.agenda import Agenda
from twin.engine.lifecycle.faults import is_empty_decode, is_empty_prefill, move_requests_away
from twin.engine.lifecycle.loading import Dram, Loading, Residency, Then
from twin.engine.lifecycle.machine import Machine
from twin.engine.loop import requests_inside
from twin.hardware.chip import HardwareError
from twin.hardware.faults import nodes_without_dram
from twin.hardware.prices import pool_read
from twin.model.memory import whole_model_bytes
from twin.model.operators import formats
from twin.scenario import is_elastic, pools_by_role

LOOK_S = 0.25  # between two looks at what drains
STARTS = ("process", "fetch", "load", "graphs")
STATES = (*STARTS, "serve", "drain", "down")  # else it is off

Over = Literal["", "role", "model"]  # on free NPUs, or on those of another role or model
Send = Callable[[int, Sequence[int], float, float, Then], None]
Restored = Callable[[int, float], None]  # an instance that had failed has all its dies, at a time


@dataclass(slots=True)
class Span:
    """One state of one instance; `end_s` is infinite while it lasts."""

    instance: int  # its place in setup.instances
    state: str
    t_s: float
    end_s: float = np.inf


class Life:
    """State of every instance in its life cycle, and the transitions between states. restored(k,
    t_s) is called when instance k, which had failed, has all its dies again."""

    def __init__(self, machine: Machine, agenda: Agenda, restored: Restored) -> None:
        """Let declared instances serve, all others are off; restored: see the class."""
        self.machine, self.agenda, self.restored = machine, agenda, restored
        self.setup = machine.setup
        self.moves = is_elastic(self.setup.scenario)  # whether instances come and go
        self.rule, facts = self.setup.scenario.elastic, machine.facts
        self._process_s = facts.si("startup.process")
        if self.rule.graphs == "compiled":
            self._process_s += facts.si("startup.compile")
        self._regroup_s = facts.si("startup.regroup")
        self.loading = Loading(machine, agenda)
        self._weights_of = {  # format of the stored model that a pool reads, and its bytes
            role: (pool.precision.weights,
                   whole_model_bytes(self.setup.costs.shape, formats(pool.precision)))
            for role, pool in pools_by_role(self.setup.scenario).items()
        }  # fmt: skip
        self.dies = [frozenset(instance.die_of_rank) for instance in self.setup.instances]
        self.state = ["off"] * len(self.dies)
        self.spans: list[Span] = []
        self._span: dict[int, Span] = {}
        self._then: dict[int, Then | None] = {}  # what follows a drain
        self.together: list[Life] = [self]  # of each model one
        self.planned: dict[int, int] = {}  # for how many that drain an instance waits
        self.residency, self._model = Residency([self.setup]), 0
        self.supernode = [self.setup.supernode_of(instance) for instance in self.setup.instances]
        # By supernode and stored model: who loads what the first of them fetches.
        self._fetching = defaultdict[Hashable, dict[int, Then]](dict)
        self._begun = [0] * len(self.dies)  # starts of each instance: what an aborted one left over
        self.stops: set[int] = set()  # instances that failed while they drained
        self._failed: set[int] = set()  # instances that have failed since they were built
        for k in range(len(self.dies)):
            if k < self.setup.declared:
                self._enter_state(k, "serve", 0.0)
            else:
                self.set_open(k, 0, up=0)
                self._enter_state(k, "off", 0.0)
                machine.members[k] = [None] * len(self.dies[k])
        self.share_dram(self.residency, 0)
        if self.moves:
            machine.lay_flows()

    def share_dram(self, residency: Residency, model: int) -> None:
        """Use the table of DRAM `residency` with other models, as model number `model`. Store there
        the weights of serving instances and, in pools without a bound, those of all roles."""
        self.residency, self._model = residency, model
        for pool in residency.pools:
            for precision, weight_bytes in self._weights_of.values() if not pool.is_bounded else ():
                pool.store((model, precision), weight_bytes)
        for k, state in enumerate(self.state):
            if state == "serve":
                self._store_model(k)

    def in_state(self, role: str, *states: str, at: int | None = None) -> list[int]:
        """Numbers of the instances of a role in one of these states; at: only in that supernode."""
        return [
            k for k, instance in enumerate(self.setup.instances)
            if instance.role == role and self.state[k] in states and at in (None, self.supernode[k])
        ]  # fmt: skip

    def held_dies(self) -> set[int]:
        """Dies that belong to any instance now."""
        dies = {die for k, state in enumerate(self.state) if state != "off" for die in self.dies[k]}
        return dies | self.machine.dies_in_use()  # spare dies too

    def may_yield(self, k: int, *, urgent: bool) -> bool:
        """Whether another model may take instance k: more than the minimum serve, and no request is
        inside unless `urgent`."""
        serving = self.in_state(self.setup.instances[k].role, "serve", at=self.supernode[k])
        is_spare = k in serving and len(serving) > self.rule.least_instances
        return is_spare and (urgent or not requests_inside(self.machine.world))

    def dies_of(self, k: int) -> set[int]:
        """Dies of instance k: its original ones, and spares that replace some of them."""
        return set(self.machine.serving_dies(k)) | self.dies[k]

    def lose_dies(self, dies: Set[int], t_s: float) -> None:
        """After dies failed: stop instances that start on them, delete models in failed DRAM."""
        self.residency.lose_nodes(nodes_without_dram(self.machine.fabric))
        for k, state in enumerate(self.state):
            if state in STARTS and self.dies[k] & dies:
                self._begun[k] += 1
                self.loading.stop(k, t_s)
                self._enter_state(k, "off", t_s)
                self._stop_waiting(k, t_s)

    def fail(self, k: int, t_s: float) -> None:
        """Stop instance k at t_s, as dies or links failed; the router is informed later."""
        self.machine.world.instance.up[self.machine.column(k)] = 0
        if self.state[k] == "drain":
            self.stops.add(k)
        self._failed.add(k)
        self._enter_state(k, "down", t_s)

    def recover(self, k: int, t_s: float) -> None:
        """Let failed instance k serve again, or drain if it failed while it drained."""
        if k in self.stops:
            self.stops.discard(k)
            self.drain(k, t_s, self._then.get(k))
        else:
            self.set_open(k, 1, up=1)
            self._enter_state(k, "serve", t_s)

    def end(self, k: int, t_s: float) -> None:
        """Take instance k off its dies, drop its blocks in HBM, run the action that waits for
        it."""
        instance, world = self.setup.instances[k], self.machine.world
        if instance.role != "decode":
            cell = first_kv_cell(world, instance.index)
            drop_idle_blocks(world, cell, first_kv_cell(world, instance.index + 1))
        self.stops.discard(k)
        self.set_open(k, 0, up=0)
        self.machine.members[k] = [None] * len(self.dies[k])
        self._enter_state(k, "off", t_s)
        self.machine.lay_flows(t_s)
        if (next_action := self._then.pop(k, None)) is not None:
            next_action(t_s)

    def held_intervals(self) -> dict[int, list[tuple[float, float]]]:
        """Intervals (from s, to s) in which each instance held its dies, by instance."""
        intervals: dict[int, list[tuple[float, float]]] = {}
        for span in self.spans:  # in order of time
            held_spans = intervals.setdefault(span.instance, [])
            if held_spans and held_spans[-1][1] == span.t_s:
                held_spans[-1] = held_spans[-1][0], span.end_s
            else:
                held_spans.append((span.t_s, span.end_s))
        return intervals

    def _enter_state(self, k: int, state: str, t_s: float) -> None:
        """Change instance k's state and begin the span of the new one."""
        if k in self._span:
            self._span[k].end_s = t_s
        machine, self.state[k] = self.machine, state
        machine.off = machine.off | {k} if state == "off" else machine.off - {k}
        is_absent = state == "off" or state in STARTS
        machine.absent = machine.absent | {k} if is_absent else machine.absent - {k}
        if state == "off":
            self._span.pop(k, None)
        else:
            self._span[k] = Span(k, state, t_s)
            self.spans.append(self._span[k])

    def set_open(self, k: int, opened: int, *, up: int) -> None:
        """Open (1) or close (0) instance k to the router; with `up` 0 it also stops computing."""
        instance, column = self.machine.world.instance, self.machine.column(k)
        instance.open[column], instance.up[column] = opened, up

    def start(self, k: int, t_s: float, over: Over = "") -> None:
        """Start instance k on its dies; it stays off if some have failed or are spares of another
        instance. over: it replaces instances of another role ("role") or model ("model") on the
        same NPUs, and uses their processes; "": the NPUs are free. If all roles read one stored
        model, "role" means that the weights are already in DRAM."""
        machines = self.machine.together
        if self.dies[k] & self.machine.out.union(*(machine.dies_in_use() for machine in machines)):
            return
        self._enter_state(k, "process", t_s)
        self._begun[k] += 1
        start_number = self._begun[k]

        def void_if_aborted(action: Then) -> Then:
            """An action that calls `action` unless this start has been aborted since."""
            return lambda now_s: action(now_s) if start_number == self._begun[k] else None

        if over == "role" and len({*self._weights_of.values()}) == 1:
            self._store_model(k)
        graph_capture_s, process_s = (self._regroup_s, 0.0) if over else (0.0, self._process_s)

        def make_graphs(now_s: float) -> None:
            """Capture graphs, where that takes time, then serve."""
            if graph_capture_s:
                self._enter_state(k, "graphs", now_s)
                self.agenda.add(now_s + graph_capture_s, void_if_aborted(partial(self._serve, k)))
            else:
                self._serve(k, now_s)

        def load_weights(now_s: float) -> None:
            """Load the instance's weights from DRAM to HBM, then capture graphs."""
            self._store_model(k)
            self._enter_state(k, "load", now_s)
            self._send_weights(self.loading.load, k, self._weight_load(k)[0], now_s, make_graphs)

        def find_weights(now_s: float) -> None:
            """Load the weights from DRAM if they are there, otherwise from object storage first."""
            model, model_bytes = self._stored_model(k)
            is_in_dram = [dram.touch(model) for dram in self._weight_sources(k)]
            if is_in_dram and all(is_in_dram):
                return load_weights(now_s)
            self._enter_state(k, "fetch", now_s)
            if self.rule.weights != "pool":
                self._send_weights(self.loading.fetch, k, model_bytes, now_s, load_weights)
                return None
            waiting_loads = self._fetching[self.supernode[k], model]
            waiting_loads[k] = load_weights
            if len(waiting_loads) == 1:
                self._fetch_model(waiting_loads, now_s)
            return None

        if process_s:
            self.agenda.add(t_s + process_s, void_if_aborted(find_weights))
        else:
            find_weights(t_s)

    def _fetch_model(self, waiting: dict[int, Then], t_s: float) -> None:
        """Fetch a model for the first instance that can; then all instances load it. waiting: the
        action that loads, by number of an instance."""

        def load_all(now_s: float) -> None:
            """Let every instance that waits load the model."""
            load_actions = [*waiting.values()]
            waiting.clear()
            for begin_load in load_actions:
                begin_load(now_s)

        while waiting:
            fetching_instance = next(iter(waiting))
            _, model_bytes = self._stored_model(fetching_instance)
            self._send_weights(self.loading.fetch, fetching_instance, model_bytes, t_s, load_all)
            if self.state[fetching_instance] == "fetch":
                return
            del waiting[fetching_instance]

    def _stop_waiting(self, k: int, t_s: float) -> None:
        """Remove instance k from those that wait for their model. If k was fetching it, the next
        one that waits fetches it instead."""
        waiting_loads = self._fetching[self.supernode[k], self._stored_model(k)[0]]
        was_first = next(iter(waiting_loads), None) == k
        if waiting_loads.pop(k, None) is not None and was_first:
            self._fetch_model(waiting_loads, t_s)

    def _weight_sources(self, k: int) -> list[Dram]:
        """DRAMs from which instance k reads its weights; empty if it reads from object storage."""
        nodes = self.machine.fabric.nodes_of(self.setup.instances[k].die_of_rank)
        return self.residency.drams(self.rule.weights, nodes)

    def _stored_model(self, k: int) -> tuple[Hashable, float]:
        """(key of the stored model in the format that instance k's pool reads, its bytes)."""
        model_name, size_bytes = self._weights_of[self.setup.instances[k].role]
        return (self._model, model_name), size_bytes

    def _store_model(self, k: int) -> None:
        """Store the model in the DRAM from which instance k reads."""
        drams, (model_name, size_bytes) = self._weight_sources(k), self._stored_model(k)
        for dram in drams:
            dram.store(model_name, size_bytes / len(drams))

    def is_warm(self, k: int) -> bool:
        """Whether the DRAM from which instance k reads contains the model."""
        drams = self._weight_sources(k)
        return bool(drams) and all(self._stored_model(k)[0] in dram.held for dram in drams)

    def full_start_s(self) -> float:
        """Seconds from a start on free NPUs to serving, of the slowest role."""
        fetch_s = 0.0
        if self.rule.weights == "object_storage":
            largest_bytes = max(model_bytes for _, model_bytes in self._weights_of.values())
            fetch_s = largest_bytes / self.loading.bucket_bytes_per_s
        first_of_role = {i.role: k for k, i in reversed(list(enumerate(self.setup.instances)))}
        load_s = max(self._weight_load(k)[1] for k in first_of_role.values())
        return self._process_s + fetch_s + load_s

    def _weight_load(self, k: int) -> tuple[float, float]:
        """(bytes of instance k's weights, seconds to load them over its links and loaders)."""
        i, plane = self.setup.instances[k], self.setup.scenario.memory_pool.read_plane
        weight_bytes = float(self.machine.roles[k].memory.weights * i.dies)
        nodes = self.setup.nodes_with_weights(i)
        bytes_per_s = float(pool_read(self.machine.fabric, i.die_of_rank, plane, nodes).bytes_per_s)
        bytes_per_s = min(bytes_per_s, self.loading.loader_bytes_per_s * i.dies)
        return weight_bytes, weight_bytes / bytes_per_s

    def _send_weights(self, transfer: Send, k: int, size: float, t_s: float, then: Then) -> None:
        """Start a transfer of `size` bytes to instance k by `transfer`, a method of `Loading`, and
        call `then` at its end; without a path the instance stays off."""
        try:
            transfer(k, self.setup.instances[k].die_of_rank, size, t_s, then)
        except HardwareError:
            self._enter_state(k, "off", t_s)

    def _serve(self, k: int, t_s: float) -> None:
        """Put instance k in service on its own dies, with prices of the present network."""
        instance, machine = self.setup.instances[k], self.machine
        machine.members[k] = list(instance.die_of_rank)
        try:
            machine.adopt_costs(k, machine.price(k))
        except HardwareError:  # links have failed since it began to start
            machine.members[k] = [None] * instance.dies
            self._enter_state(k, "off", t_s)
            return
        self.set_open(k, 1, up=1)
        machine.world.instance.ends_s[machine.column(k)] = t_s
        self._enter_state(k, "serve", t_s)
        if k in self._failed:  # it may have served with fewer dies
            self._failed.discard(k)
            self.restored(k, t_s)
        machine.lay_flows(t_s)

    def drain(self, k: int, t_s: float, then: Then | None = None) -> None:
        """Close instance k to new requests; when it is empty, stop it and call `then`."""
        self.set_open(k, 0, up=1)
        self._enter_state(k, "drain", t_s)
        self._then[k] = then
        self.agenda.add(t_s + LOOK_S, partial(self._end_if_empty, k, self._span[k]))

    def reopen(self, k: int, t_s: float) -> bool:
        """Let draining instance k serve again; False if another instance waits for its dies."""
        if self._then[k] is not None:
            return False
        self.set_open(k, 1, up=1)
        self._enter_state(k, "serve", t_s)
        return True

    def _end_if_empty(self, k: int, span: Span, t_s: float) -> None:
        """End instance k once its last request has left, if its drain (`span`) still lasts."""
        if self._span.get(k) is not span:
            return  # it has been opened again
        seat, world = self.setup.instances[k], self.machine.world
        if seat.role == "decode" and self.rule.drain == "hand_on":
            move_requests_away(world, seat.index, t_s)
        has_prompts = seat.role != "decode" and not is_empty_prefill(world, seat.index)
        if has_prompts or (seat.role != "prefill" and not is_empty_decode(world, seat.index)):
            self.agenda.add(t_s + LOOK_S, partial(self._end_if_empty, k, span))
        else:
            self.end(k, t_s)
