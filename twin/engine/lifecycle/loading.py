"""Weights: where those of models are, and their way into instances that start or get dies back.

They are in DRAM of the memory pool or of nodes, else in object storage. DRAM holds whole models and
evicts the least recently used one. All models of a machine share one table, as they share its DRAM.
[EMS: LRU at the granularity of models, arXiv 2506.12708v2 4.4.3] Transfers are flows like others.

Object storage sends a whole model over the VPC plane into the DRAM of an instance's nodes, at the
rate of a bucket that all who fetch share evenly; DRAM sends dies their weights over the memory
pool's plane, no faster than the loaders of their processes take them in. What else is on the links
slows a transfer, and a transfer slows what else is there."""

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, replace

from twin.engine import codes as w
from twin.engine.books import record_traffic
from twin.engine.contention.flows import IDLE, Coming
from twin.engine.lifecycle.agenda import Agenda
from twin.engine.lifecycle.machine import Machine
from twin.engine.setup import Setup
from twin.hardware.chip import HardwareError
from twin.hardware.demands import dram_ratio

LOOK_S = 0.05  # between two looks at the rate of a transfer, at most
DONE = 1e-9  # share of a transfer that rounding may leave

Then = Callable[[float], None]


class Dram:
    """Whole models by key, the least recently used first, within room_bytes of DRAM."""

    def __init__(self, room_bytes: float) -> None:
        """Begin without a model; room_bytes infinite: models are never evicted."""
        self._room_bytes = room_bytes
        self.held: OrderedDict[Hashable, float] = OrderedDict()

    @property
    def is_bounded(self) -> bool:
        """Whether models may have to be evicted."""
        return self._room_bytes < math.inf

    def touch(self, model: Hashable) -> bool:
        """Whether a model is stored; if so, it becomes the most recently used."""
        if model in self.held:
            self.held.move_to_end(model)
        return model in self.held

    def store(self, model: Hashable, size_bytes: float) -> None:
        """Store a model and evict others for it; one larger than this DRAM is not stored."""
        if self.touch(model) or size_bytes > self._room_bytes:
            return
        self.held[model] = size_bytes
        while sum(self.held.values()) > self._room_bytes:
            self.held.popitem(last=False)


class Residency:
    """DRAM that stores weights: a part of each memory pool (one per supernode), or of each node."""

    def __init__(self, setups: Sequence[Setup]) -> None:
        """Begin with empty DRAM, as much as all these models lend in each pool or node."""
        lent_bytes = 0.0  # by a node
        for setup in setups:  # of the memory pool each model has a part
            pool = setup.scenario.memory_pool
            lent_bytes += pool.weights_share * pool.gb_per_node * 1e9 if pool.enabled else 0.0
        first_setup = setups[0]
        is_shared = first_setup.scenario.memory_pool.scope == "shared"
        dram_nodes = dram_ratio(first_setup.fabric, first_setup.pool_nodes(0)) if is_shared else 1
        supernodes = first_setup.supernodes
        self.pools = [Dram(lent_bytes * dram_nodes or math.inf) for _ in range(supernodes)]
        # Of each supernode.
        self._nodes = first_setup.scenario.supernode.nodes if supernodes > 1 else math.inf
        self.nodes = defaultdict[int, Dram](lambda: Dram(lent_bytes or math.inf))
        self._out: set[int] = set()

    def drams(self, weights_from: str, nodes: Sequence[int]) -> list[Dram]:
        """DRAMs for weights of an instance on these nodes. weights_from: a value of
        `elastic.weights`; object storage has no DRAM ([])."""
        if weights_from == "pool":
            return [self.pools[int(nodes[0] // self._nodes)]]
        return [self.nodes[node] for node in sorted(nodes)] if weights_from == "local" else []

    def lose_nodes(self, failed_nodes: Set[int]) -> None:
        """Delete the models of failed nodes, and all models of bounded pools that contain a failed
        node, since each model has lost a part."""
        for node in failed_nodes:
            self.nodes.pop(node, None)
        for supernode in {int(node // self._nodes) for node in failed_nodes - self._out}:
            if self.pools[supernode].is_bounded:
                self.pools[supernode].held.clear()
        self._out = set(failed_nodes)


@dataclass(slots=True)
class _Transfer:
    """A transfer of weights: total bytes, bytes left at since_s, and the action at its end."""

    total_bytes: float
    left_bytes: float
    since_s: float
    then: Then


class Loading:
    """All transfers of weights in progress, at most one per instance."""

    def __init__(self, machine: Machine, agenda: Agenda) -> None:
        """Begin without a transfer; checks of transfers are entered into the agenda."""
        self._machine, self._agenda = machine, agenda
        self.bucket_bytes_per_s = machine.facts.si("startup.bucket")
        self.loader_bytes_per_s = machine.facts.si("startup.loader")  # of a die
        self.together: list[Loading] = [self]  # of all models: they share the bucket
        self._under_way: dict[int, _Transfer] = {}
        self._plane = w.PLANES.index(machine.setup.scenario.memory_pool.read_plane)

    def fetch(self, k: int, dies: Sequence[int], size: float, t_s: float, then: Then) -> None:
        """Fetch `size` bytes from object storage for instance k and call `then` at the end. Raises
        HardwareError without a path."""
        self._begin_transfer(k, Coming(True, tuple(dies)), size, t_s, then)

    def load(self, k: int, dies: Sequence[int], size: float, t_s: float, then: Then) -> None:
        """Send `size` bytes from DRAM of nodes into dies of instance k, with the rest of an earlier
        transfer to it, and call `then` at the end. Raises HardwareError without a path."""
        setup = self._machine.setup
        incoming = Coming(False, tuple(dies), setup.nodes_with_weights(setup.instances[k]))
        if (earlier_transfer := self._under_way.get(k)) is not None:
            self._record_arrived(k, t_s)
            size += earlier_transfer.left_bytes
            incoming = replace(incoming, dies=(*self._machine.coming[k].dies, *dies))
        self._begin_transfer(k, incoming, size, t_s, then)

    def stop(self, k: int, t_s: float) -> None:
        """Cancel the transfer to instance k."""
        if k in self._under_way:
            self._record_arrived(k, t_s)
            self._end_transfer(k)

    def _begin_transfer(self, k: int, coming: Coming, size: float, t_s: float, then: Then) -> None:
        """Begin the transfer `coming` of `size` bytes to instance k; call `then` at its end."""
        if k in self._under_way:
            self._record_arrived(k, t_s)
        self._under_way[k] = _Transfer(size, size, t_s, then)
        self._machine.coming[k] = coming
        self._machine.lay_flows(t_s)
        if self._machine.world.traffic.alone[self._machine.weights_flow(k)] >= IDLE:
            self._end_transfer(k)
            self._machine.lay_flows(t_s)
            raise HardwareError(f"no weights reach {self._machine.setup.instances[k].name}")
        self._set_paces()
        self._plan_check(k, t_s)

    def _set_paces(self) -> None:
        """Set rate limits: loads get the loaders' rate, fetches of all models share the
        bucket's."""
        loading_instances = [
            (loading._machine, k) for loading in self.together for k in loading._under_way
        ]
        fetch_count = sum(machine.coming[k].stored for machine, k in loading_instances)
        for machine, k in loading_instances:
            bytes_per_s = self.loader_bytes_per_s * len(machine.coming[k].dies)
            if machine.coming[k].stored:
                bytes_per_s = self.bucket_bytes_per_s / fetch_count
            machine.set_pace(machine.weights_flow(k), bytes_per_s)

    def _bytes_per_s(self, k: int) -> float:
        """Present bytes/s of the transfer to instance k; until links are shared, its limit."""
        traffic, flow = self._machine.world.traffic, self._machine.weights_flow(k)
        if traffic.alone[flow] >= IDLE:  # the way is gone: a fault
            return 0.0
        return float(traffic.alone[flow] * (traffic.level[flow] or traffic.wish[flow]))

    def _record_arrived(self, k: int, t_s: float) -> None:
        """Record the bytes that arrived at instance k since they were last recorded."""
        transfer, bytes_per_s = self._under_way[k], self._bytes_per_s(k)
        moved_bytes = min(transfer.left_bytes, bytes_per_s * (t_s - transfer.since_s))
        end_s = transfer.since_s + moved_bytes / bytes_per_s if bytes_per_s > 0.0 else t_s
        plane = w.VPC if self._machine.coming[k].stored else self._plane
        world, column = self._machine.world, self._machine.column(k)
        record_traffic(world, w.WEIGHTS, plane, column, transfer.since_s, end_s, moved_bytes)
        transfer.left_bytes, transfer.since_s = transfer.left_bytes - moved_bytes, t_s

    def _plan_check(self, k: int, t_s: float) -> None:
        """Plan the next check of the transfer to k: at its end, or earlier if rates may change."""
        transfer, bytes_per_s = self._under_way[k], self._bytes_per_s(k)
        check_after_s = (
            min(LOOK_S, transfer.left_bytes / bytes_per_s) if bytes_per_s > 0.0 else LOOK_S
        )

        def check_transfer(now_s: float) -> None:
            """Record arrived bytes, then end the transfer or plan the next check."""
            if self._under_way.get(k) is not transfer:
                return
            self._record_arrived(k, now_s)
            if transfer.left_bytes > DONE * transfer.total_bytes:
                self._set_paces()  # a rebalance may have stopped the flow
                self._plan_check(k, now_s)
                return
            self._end_transfer(k)
            transfer.then(now_s)
            self._machine.lay_flows(now_s)

        self._agenda.add(t_s + check_after_s, check_transfer)

    def _end_transfer(self, k: int) -> None:
        """End the transfer to instance k; the other transfers share its bandwidth."""
        self._machine.set_pace(self._machine.weights_flow(k), 0.0)
        del self._under_way[k], self._machine.coming[k]
        self._set_paces()
