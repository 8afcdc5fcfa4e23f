"""Experts in the loop: popularity moves on, placements follow it when the policy says so.

Popularity is a function of time and of the topics in the traffic; instances of one role and one
layout share a placement. At every decision the load of the last window is measured, layers are
chosen, weights move over the UB plane with the serving traffic (or the instance stands still),
and the new placement counts from when they are there. What a placement is worth is its hottest
die over the mean, which the cost kernels read. Policy is experts'; this file gives it time."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twin import experts as x
from twin.engine import codes as w
from twin.engine.books import record_traffic
from twin.engine.lifecycle.agenda import Agenda
from twin.engine.lifecycle.machine import Machine
from twin.metrics.events import Event, Kind

REFRESHES = 120  # looks at a popularity that moves, at most
MEASUREMENTS, SNAPSHOTS = 60, 8  # what is recorded for people
EVERY = 5  # every so many points of a table its change is computed, the others lie between
Key = tuple[str, int, int]


@dataclass(eq=False)
class Group:
    """Instances of one role and layout that share an expert placement."""

    role: str
    slots: np.ndarray  # i8[layers, dies, slots_per_die]
    nodes: int
    nearest: int  # nodes among which tokens prefer a copy on their own; 1: no preference
    moving: bool = False
    factor: np.ndarray = field(default_factory=lambda: np.ones(0))
    # Tokens of each die now over the mean, since when, and the integral over time before.
    load: np.ndarray = field(default_factory=lambda: np.zeros(1))
    since_s: float = 0.0
    load_s: np.ndarray = field(default_factory=lambda: np.zeros(1))
    noted: tuple[np.ndarray, ...] = ()  # popularity and slots noted last, and the load of dies

    def set_load(self, load: np.ndarray, t_s: float) -> None:
        """Set the load from t_s on: tokens of each die divided by their mean, f8[dies]."""
        self.load_s = self.load_s + (t_s - self.since_s) * self.load
        self.load, self.since_s = load, t_s


class Balance:
    """Expert popularity over time, and the placements that follow it."""

    def __init__(self, machine: Machine, agenda: Agenda, log: list[Event]) -> None:
        """Place the experts of all instances, unless placement is perfect, record the loads at the
        start, and enter shifts and rebalances into the agenda; events go into `log`."""
        self.machine, self.agenda, self.log = machine, agenda, log
        self.setup = machine.setup
        self.experts = self.setup.routed.experts
        self.rule = self.experts.balancing
        self.loads: list[dict[str, Any]] = []  # pieces of the table of dies' loads
        self.hottest: list[dict[str, Any]] = []  # and of hottest dies, by layer
        self.process = self.setup.process
        self.perfect = self.experts.placement == "perfect" or self.rule.policy == "oracle"
        self.groups: dict[Key, Group] = {}
        self.keys: list[Key] = [self._group_key(instance) for instance in range(len(machine.roles))]
        if self.perfect:
            return
        for instance, group_key in enumerate(self.keys):
            if group_key not in self.groups:
                self.groups[group_key] = self._new_group(instance)
        self._record_loads("start", 0.0)
        self._plan_changes()

    def _plan_changes(self) -> None:
        """Enter changes of popularity and rebalancing decisions into the agenda."""
        scenario = self.setup.scenario
        if self.process.changes or self.process.topics > 1:
            for i in range(1, REFRESHES):
                self.agenda.add(scenario.horizon_s * i / REFRESHES, self.update_imbalance)
        if self.experts.shift_every_s > 0.0:
            shift_count = int(scenario.horizon_s / self.experts.shift_every_s)
            for i in range(1, min(shift_count, 10 * REFRESHES) + 1):
                self.agenda.add(i * self.experts.shift_every_s, self._log_shift)
        if self.rule.policy != "none":
            self.agenda.add(self.rule.interval_s, self._rebalance)

    def _group_key(self, k: int) -> Key:
        """Key of instance k's group: role, number of expert places (dies), expert slots of each."""
        layout = self.machine.roles[k].layout
        return (self.setup.instances[k].role, layout.places, layout.slots_per_die)

    def _new_group(self, k: int, load: np.ndarray | None = None) -> Group:
        """A group with the layout of instance k. load f8[layers, experts]: loads by which its
        experts are placed; None: by long-run popularity."""
        role, place_count, slots_per_die = self._group_key(k)
        node_count = self.setup.expert_nodes(role, place_count)
        expert_groups = self.setup.routed.groups
        if load is None:
            sizes = place_count, slots_per_die, node_count, expert_groups
            placed_slots = x.first_slots(self.experts, self.process, *sizes)
        else:
            placed_slots = x.place(
                self.experts, load, place_count, slots_per_die, node_count, groups=expert_groups
            )
        nodes_to_prefer = node_count if self.experts.placement == "topology" else 1
        return Group(role, placed_slots, node_count, nodes_to_prefer)

    def place_experts(self, k: int, t_s: float) -> None:
        """Give instance k, whose dies changed, the placement of its new group (instances of its
        role with as many dies). A new group places experts by their load in the window before t_s.
        Raises ExpertsError if the experts do not fit."""
        group_key = self._group_key(k)
        if not self.perfect and group_key not in self.groups:
            self.groups[group_key] = self._new_group(k, self._measured_load(t_s))
        self.keys[k] = group_key
        self.update_imbalance(t_s)

    def count_experts_only_on(self, k: int, dies: set[int]) -> int:
        """Number of experts of instance k, summed over layers, that only the given dies (numbers in
        it) hold. With perfect placement there are no slots: all experts of the dies count."""
        layout = self.machine.roles[k].layout
        expert_places = {die // layout.split for die in dies}
        if self.perfect:
            return len(expert_places) * layout.slots_per_die * self.setup.costs.shape.moe_layers
        slots = self.groups[self.keys[k]].slots
        # The others hold shared experts.
        lost_places = [place for place in sorted(expert_places) if place < slots.shape[1]]
        slots_after = slots.copy()
        slots_after[:, lost_places] = x.EMPTY
        expert_count = self.process.base.shape[1]
        copies_before = x.copy_counts(slots, expert_count)
        copies_after = x.copy_counts(slots_after, expert_count)
        return int(((copies_before > 0) & (copies_after == 0)).sum())

    def topic_shares(self, t_s: float) -> np.ndarray:
        """Share of each topic in tokens that arrived in the window before t_s, f8[topics]."""
        if self.process.topics == 1:
            return np.ones(1)
        requests = self.setup.requests
        window_bounds_s = [t_s - self.rule.window_s, t_s]
        arrived_rows = slice(*np.searchsorted(requests.arrival_s, window_bounds_s))
        if arrived_rows.start == arrived_rows.stop:
            return x.mix_at(self.process, t_s)
        topic_tokens = np.zeros(self.process.topics)
        tokens_by_row = requests.input_tokens + requests.output_tokens
        arrived_tokens = tokens_by_row[arrived_rows].astype(np.float64)
        np.add.at(topic_tokens, self.setup.topics[arrived_rows], arrived_tokens)
        return topic_tokens / topic_tokens.sum()

    def _measured_load(self, t_s: float) -> np.ndarray:
        """Mean load of experts in the window before t_s, f8[layers, experts]; rows sum to top_k."""
        return x.measured_load(self.process, t_s, self.rule.window_s, mix=self.topic_shares(t_s))

    def update_imbalance(self, t_s: float) -> None:
        """Compute the expert imbalance of all instances again, by the popularity of experts at
        t_s."""
        if self.perfect:
            return
        expert_chances = x.chances_at(self.process, t_s, self.topic_shares(t_s))
        costs = self.machine.world.costs
        for group in self._used_groups():
            group.factor = self._hot_factors(group, expert_chances)
            die_load = x.die_load(expert_chances, group.slots, group.nearest)
            group.set_load(die_load.mean(axis=0), t_s)
        for instance, group_key in zip(self.setup.instances, self.keys, strict=True):
            is_prefill = instance.role == "prefill"
            hot_factors = costs.prefill_hot_factor if is_prefill else costs.decode_hot_factor
            hot_factors[instance.index] = self.groups[group_key].factor

    def _used_groups(self) -> list[Group]:
        """Groups of instances (with one expert placement each) that are in use, by their keys."""
        return [self.groups[group_key] for group_key in sorted(set(self.keys))]

    def _hot_factors(self, group: Group, chances: np.ndarray) -> np.ndarray:
        """Load of the hottest die divided by the mean, by tokens of a batch: f8[points], as in the
        table of the set-up; if that table has a row for nodes, their factors follow (f8[2 *
        points]). chances f8[layers, experts]: probability that a token selects an expert. The
        ratio of a factor to the table's is computed at every EVERY-th point, interpolated between
        them, and multiplied by the table: chances that did not change give the table itself."""
        setup, is_prefill = self.setup, group.role == "prefill"
        imbalance = setup.prefill_imbalance if is_prefill else setup.decode_imbalance
        routing_args = (
            setup.tokens_per_request[group.role], self.process.correlation,
            *setup.routed.limits, group.nearest,
        )  # fmt: skip
        indices = np.arange(imbalance.tokens.size, dtype=np.float64)
        factor_rows = []
        # One row for dies, one for nodes.
        for is_of_nodes, factors in enumerate(imbalance.factor.reshape(-1, indices.size)):
            slots = x.slots_by_node(group.slots, group.nodes) if is_of_nodes else group.slots
            point_factors = x.hot_factors(chances, slots, imbalance.tokens[::EVERY], *routing_args)
            ratio_to_row = np.interp(indices, indices[::EVERY], point_factors / factors[::EVERY])
            factor_rows.append(np.maximum(factors * ratio_to_row, 1.0))
        return np.concatenate(factor_rows)

    def _log_shift(self, t_s: float) -> None:
        """Log a shift of popularity at t_s and compute every imbalance again."""
        self.log.append(Event(t_s, Kind.SHIFT, "popularity shifts: other experts are hot"))
        self.update_imbalance(t_s)

    def _rebalance(self, t_s: float) -> None:
        """Measure expert load, choose layers, start sending weights; schedule the next call."""
        self.agenda.add(t_s + self.rule.interval_s, self._rebalance)
        expert_load = self._measured_load(t_s)
        for group_key in sorted(set(self.keys)):
            group = self.groups[group_key]
            self._record_hottest(t_s, group, x.die_load(expert_load, group.slots, group.nearest))
            if group.moving:
                continue
            chosen_layers = x.choose_layers(
                self.rule.policy, expert_load, group.slots, self.rule.threshold, self.rule.layers,
                group.nearest,
            )  # fmt: skip
            if chosen_layers.size:
                self._move_experts(group_key, group, expert_load, chosen_layers, t_s)

    def _move_experts(
        self, key: Key, group: Group, load: np.ndarray, layers: np.ndarray, t_s: float
    ) -> None:
        """Place the experts of some layers (numbers) anew by load f8[layers, experts] and send
        their weights; the placement serves once they have arrived. key: of the group."""
        role, place_count, slots_per_die = key
        new_slots = group.slots.copy()
        new_slots[layers] = x.place(
            self.experts, load[layers], place_count, slots_per_die, group.nodes,
            group.slots[layers], groups=self.setup.routed.groups,
        )  # fmt: skip
        expert_bytes, layout = self.setup.expert_bytes(role), self.setup.costs.roles[role].layout
        incoming_bytes = x.received_experts(group.slots, new_slots).sum(axis=0) * expert_bytes
        die_bytes = float(incoming_bytes.max()) / layout.split
        total_bytes = float(incoming_bytes.sum())
        if die_bytes <= 0.0:
            return
        is_background = self.rule.swap == "background"
        is_up, column_of = self.machine.world.instance.up, self.machine.column
        # One that failed or loads weights gets its experts with these.
        group_members = [k for k, group_key in enumerate(self.keys) if group_key == key]
        incoming_weights = self.machine.coming
        receivers = [k for k in group_members if is_up[column_of(k)] and k not in incoming_weights]
        transfer_s = max(
            (self._send_weights(k, die_bytes, total_bytes, t_s, is_background) for k in receivers),
            default=0.0,
        )
        group.moving = True
        hottest_texts = [
            f"{x.hottest_by_layer(load, slots, group.nearest).mean():.2f}"
            for slots in (group.slots, new_slots)
        ]
        self._record_loads("before", t_s)
        sentence = f"{layers.size} layers, hottest/mean {' -> '.join(hottest_texts)}"
        self.log.append(Event(
            t_s, Kind.REBALANCE, sentence, role=group.role, end_s=t_s + transfer_s,
            bytes=total_bytes * len(receivers),
        ))  # fmt: skip

        def serve_new_placement(now_s: float) -> None:
            """Serve with the new placement, as its weights have arrived."""
            group.moving = False
            group.slots = new_slots
            for k in receivers:
                self.machine.set_pace(self.machine.weights_flow(k), 0.0)
            self.update_imbalance(now_s)
            self._record_loads("after", now_s)

        self.agenda.add(t_s + transfer_s, serve_new_placement)

    def _send_weights(
        self, k: int, die_bytes: float, all_bytes: float, t_s: float, background: bool
    ) -> float:
        """Start a transfer of `all_bytes` bytes of weights to instance k, `die_bytes` into the
        fullest die; returns its seconds. In the background it is slower; otherwise the instance
        pauses."""
        world, instance_column = self.machine.world, self.machine.column(k)
        flow_number = self.machine.weights_flow(k)
        bytes_per_s = float(world.traffic.alone[flow_number])
        if background:
            bytes_per_s = min(bytes_per_s, self.rule.move_gb_per_s * 1e9)
            self.machine.set_pace(flow_number, bytes_per_s)
        transfer_s = die_bytes / bytes_per_s
        record_traffic(world, w.WEIGHTS, w.UB, instance_column, t_s, t_s + transfer_s, all_bytes)
        if not background:
            self._pause_instance(k, transfer_s, t_s)
        return transfer_s

    def _pause_instance(self, k: int, span_s: float, t_s: float) -> None:
        """Delay the running and next iterations of instance k by span_s (s), which counts as
        busy."""
        instances, column = self.machine.world.instance, self.machine.column(k)
        begin_s = max(float(instances.ends_s[column]), t_s)
        instances.ends_s[column] = begin_s + span_s
        if instances.running[column]:
            horizon_s = self.setup.scenario.horizon_s
            instances.busy_s[column] += max(0.0, min(begin_s + span_s, horizon_s) - begin_s)

    def _record_hottest(self, t_s: float, group: Group, load: np.ndarray) -> None:
        """Record each layer's highest load of a die (load f8[layers, dies], divided by the mean),
        at most MEASUREMENTS times for a role."""
        if sum(measurement["role"] == group.role for measurement in self.hottest) < MEASUREMENTS:
            layer_columns = {"layer": np.arange(load.shape[0]), "hottest": load.max(axis=1)}
            self.hottest.append(self._measurement_columns(t_s, group) | layer_columns)

    def _measurement_columns(self, t_s: float, group: Group) -> dict[str, Any]:
        """Columns `t_s`, `role` and `instance` (of the group's first instance) of a measurement."""
        k = next(k for k, group_key in enumerate(self.keys) if self.groups[group_key] is group)
        return {"t_s": t_s, "role": group.role, "instance": self.setup.instances[k].index}

    def _record_loads(self, moment: str, t_s: float) -> None:
        """Record each die's load in every layer at t_s. moment: "start" or "end" of the run,
        "before" or "after" a change of the placement."""
        noted_moments = {(recorded["t_s"], recorded["moment"]) for recorded in self.loads}
        if self.perfect or (len(noted_moments) >= SNAPSHOTS and moment != "end"):
            return
        chances = x.chances_at(self.process, t_s, self.topic_shares(t_s))
        for group in self._used_groups():
            if [*map(id, group.noted[:2])] != [id(chances), id(group.slots)]:  # else as before
                die_load = x.die_load(chances, group.slots, group.nearest)
                group.noted = chances, group.slots, die_load
            *_, die_load = group.noted
            if moment == "start":
                group.set_load(die_load.mean(axis=0), t_s)
            layer_of_row, die_of_row = np.indices(die_load.shape).reshape(2, -1)
            self.loads.append(self._measurement_columns(t_s, group) | {
                "moment": moment, "layer": layer_of_row, "die": die_of_row,
                "load": die_load.reshape(-1),
                "replicas": x.replicas(group.slots, chances.shape[1]).reshape(-1),
            })  # fmt: skip
            if moment in ("start", "end"):
                self._record_hottest(t_s, group, die_load)

    def record_final_loads(self, t_s: float) -> None:
        """Record the loads of dies at the end t_s of the run, and complete their sums over time."""
        self._record_loads("end", t_s)
        for group in self.groups.values():
            group.set_load(group.load, t_s)

    def tokens_of_dies(self, k: int) -> np.ndarray | None:
        """Relative tokens that the experts of each die of instance k received over the run,
        f8[dies]; dies of shared experts have the mean. None: all dies received the same."""
        layout = self.machine.roles[k].layout
        if self.perfect or layout.split > 1:
            return None
        load_integral = self.groups[self.keys[k]].load_s
        tokens_of_die = np.full(layout.dies, load_integral.mean())
        tokens_of_die[: load_integral.size] = load_integral
        return tokens_of_die if np.ptp(tokens_of_die) > 0.0 else None
