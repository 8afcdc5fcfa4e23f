"""Nodes whose DRAM is the memory pool: what they take along when they fail.

What is gone is read again from the SSD tier or lost, as the scenario says. Who fails, and when, is
engine/lifecycle/incidents.py's."""

import numpy as np

from twin.engine.lifecycle.machine import Machine
from twin.hardware.demands import dram, equal_parts
from twin.hardware.faults import servers_out
from twin.metrics.events import Event, Kind
from twin.policies.memory_pool import lose_server, resize


class MemoryServers:
    """Failed memory servers, and the memory pool on the remaining ones."""

    def __init__(self, machine: Machine, log: list[Event]) -> None:
        self._machine, self._log = machine, log
        self._out = servers_out(machine.fabric)
        if self._out:
            self._resize()

    def adjust(self, t_s: float) -> None:
        """Drop the blocks of servers that failed and resize the pool when the machine changed."""
        out = servers_out(self._machine.fabric)
        lost, back = out - self._out, self._out - out
        if self._machine.world.settings.pool_enabled:
            for node in sorted(lost):
                self._lose(node, t_s)
                self._out |= {node}
        self._out = out
        if lost or back:
            self._resize()

    def _lose(self, node: int, t_s: float) -> None:
        """Drop the KV blocks of a node that failed, and log their number."""
        machine = self._machine
        pool, ssd = machine.world.pool, machine.world.ssd
        keeps = int(machine.setup.scenario.recovery.lost_blocks == "ssd")
        count = 0
        names = machine.setup.namespaces
        for row in range(pool.capacity.size):
            parts = equal_parts(machine.fabric, machine.setup.pool_nodes(row // names))
            if node in parts:
                up = (~np.isin(parts, list(self._out))).astype(np.int8)
                for part in np.flatnonzero(parts == node).tolist():
                    count += lose_server(pool, ssd, row, part, up, keeps)
        consequence = "read again from the SSD tier" if keeps else "lost"
        sentence = f"{count:,} KV blocks of node {node} {consequence}"
        self._log.append(Event(t_s, Kind.POOL_LOST, sentence, element=f"node {node}"))

    def _resize(self) -> None:
        """Set the pool's capacity to that of the nodes whose servers run."""
        machine = self._machine
        pool = machine.world.pool
        if not machine.world.settings.pool_enabled:
            return
        quotas = machine.setup.quotas
        for row in range(pool.capacity.size):
            nodes = machine.setup.pool_nodes(row // len(quotas))
            left = dram(machine.fabric, [node for node in nodes if node not in self._out])
            part = left / max(dram(machine.fabric, nodes), 1e-9)
            resize(pool, row, int(machine.setup.pool_blocks * part * quotas[row % len(quotas)]))
