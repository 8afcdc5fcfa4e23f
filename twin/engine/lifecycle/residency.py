"""Where the weights of models are: in DRAM of the memory pool or of nodes, else in object storage.

DRAM holds whole models and evicts the least recently used one. All models of a machine share one
table, as they share its DRAM. [EMS: LRU at the granularity of models, arXiv 2506.12708v2 4.4.3]"""

import math
from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Sequence, Set

from twin.engine.setup import Setup
from twin.hardware.demands import dram


class Dram:
    """Whole models by key, the least recently used first, within `room_bytes`."""

    def __init__(self, room_bytes: float) -> None:
        self._room_bytes = room_bytes
        self.held: OrderedDict[Hashable, float] = OrderedDict()

    @property
    def bounded(self) -> bool:
        """Whether it may have to evict a model."""
        return self._room_bytes < math.inf

    def read(self, model: Hashable) -> bool:
        """Whether the model is there; it becomes the most recently used."""
        if model in self.held:
            self.held.move_to_end(model)
        return model in self.held

    def keep(self, model: Hashable, size_bytes: float) -> None:
        """Store a model and evict others for it; a model that is larger than all is not stored."""
        if self.read(model) or size_bytes > self._room_bytes:
            return
        self.held[model] = size_bytes
        while sum(self.held.values()) > self._room_bytes:
            self.held.popitem(last=False)


class Residency:
    """DRAM for weights: of the memory pool, each supernode's behind a front router, or of nodes."""

    def __init__(self, setups: Sequence[Setup]) -> None:
        lent = 0.0  # by a node
        for setup in setups:  # of the memory pool each model has a part
            pool = setup.scenario.memory_pool
            lent += pool.weights_share * pool.gb_per_node * 1e9 if pool.enabled else 0.0
        first = setups[0]
        shared = first.scenario.memory_pool.scope == "shared"
        nodes = dram(first.fabric, first.pool_nodes(0)) if lent and shared else 1
        self.pools = [Dram(lent * nodes or math.inf) for _ in range(first.apart)]
        self._nodes = first.scenario.supernode.nodes if first.apart > 1 else math.inf  # of each
        self.nodes = defaultdict[int, Dram](lambda: Dram(lent or math.inf))
        self._out: set[int] = set()

    def drams(self, source: str, nodes: Sequence[int]) -> list[Dram]:
        """DRAM that an instance on these nodes reads weights from, equal parts; or none."""
        if source == "pool":
            return [self.pools[int(nodes[0] // self._nodes)]]
        return [self.nodes[node] for node in sorted(nodes)] if source == "local" else []

    def lose(self, out: Set[int]) -> None:
        """Forget what nodes that are out held: their own models, and of every model of a bounded
        pool a part, without which it has to be fetched again."""
        for node in out:
            self.nodes.pop(node, None)
        for g in {int(node // self._nodes) for node in out - self._out}:
            if self.pools[g].bounded:
                self.pools[g].held.clear()
        self._out = set(out)
