"""Several models on one machine: a world for each, one clock, one table of flows.

A model is served by a world of its own: its instances, prices, requests and namespace of the memory
pool. What models share is the clock and the links. So their flows are numbered in one table, whose
columns all worlds borrow: exchanges of all models first, then each model's other flows. Where no
two models can fill a link together, each keeps a table of its own, and runs as if it were alone.
They also share the DRAM and the bucket that weights come from, and NPUs where they take turns."""

from collections.abc import Sequence

import numpy as np

from twin.engine import codes as w
from twin.engine.contention.flows import can_meet, number_flows
from twin.engine.lifecycle.life import Life
from twin.engine.lifecycle.loading import Residency
from twin.engine.lifecycle.machine import Machine
from twin.scenario import is_elastic


def share_npus(lives: Sequence[Life]) -> None:
    """Let models see each other's instances, weights in DRAM and loads from object storage. Of
    models that take turns the first one serves; others begin without an instance."""
    shared_dram = Residency([life.setup for life in lives])
    taken_dies: set[int] = set()
    for model_number, life in enumerate(lives):
        life.together = list(lives)
        life.loading.together = [other_life.loading for other_life in lives]
        for k, dies in enumerate(life.dies):
            if life.state[k] == "serve" and dies & taken_dies:
                life.end(k, 0.0)
        taken_dies |= life.held_dies()
        life.share_dram(shared_dram, model_number)


def share_links(machines: Sequence[Machine]) -> bool:
    """Let models share links if their flows can cross; returns whether they do. With faults or
    scaling they share from the start, since flows may cross later."""
    first_machine = machines[0]
    may_change = any(m.setup.scenario.faults or is_elastic(m.setup.scenario) for m in machines)
    flows_of_models = [machine.flows for machine in machines]
    if len(machines) == 1 or not (may_change or can_meet(flows_of_models, first_machine.fabric)):
        return False
    worlds = [machine.world for machine in machines]
    sizes_of_models = [
        (world.settings.prefills, world.instance.running.size, world.settings.copies_kv > 0)
        for world in worlds
    ]
    exchange_count = sum(instances for _, instances, _ in sizes_of_models)
    flow_numbers, next_exchange_flow, next_other = [], 0, exchange_count
    for prefills, instance_count, has_swaps in sizes_of_models:
        first_numbers = next_exchange_flow, next_other
        flow_numbers.append(number_flows(prefills, instance_count, has_swaps, *first_numbers))
        next_exchange_flow += instance_count
        next_other = int(flow_numbers[-1][1].max(initial=next_other))
    pace_bytes_per_s, is_active = np.full(next_other, np.inf), np.zeros(next_other, np.int8)
    exchange_duty, exchange_slowdown = np.zeros(exchange_count), np.ones(exchange_count)
    for world, (first_flow, end_flow) in zip(worlds, flow_numbers, strict=True):
        flows = world.traffic
        for kind in w.FLOWS:
            pace_of_kind = flows.pace[flows.first[kind] : flows.last[kind]]
            pace_bytes_per_s[first_flow[kind] : end_flow[kind]] = pace_of_kind
        stream_flows = [first_flow[kind] + np.arange(world.settings.prefills) for kind in w.STREAMS]
        world.streams.flow = np.concatenate(stream_flows)
        flows.assign(
            first=first_flow, last=end_flow, pace=pace_bytes_per_s, active=is_active,
            duty=exchange_duty, crowding=exchange_slowdown, alone=np.ones(next_other),
            wish=np.ones(next_other),
        )  # fmt: skip
    for machine in machines:
        machine.number_flows(machines)
    first_machine.lay_flows()
    return True
