"""Small scenarios that run in tens of milliseconds, and facts bent to corner them."""

from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from twin.engine.balancing import Balance
from twin.engine.build import build_world
from twin.engine.clock import steps_in
from twin.engine.codes import ARRIVED
from twin.engine.columns import World
from twin.engine.lifecycle.agenda import Agenda
from twin.engine.lifecycle.machine import Machine
from twin.engine.lifecycle.present import Present
from twin.engine.loop import advance, record_unfinished
from twin.engine.recorder import capacities, stamps_of, tables
from twin.engine.setup import Setup, set_up
from twin.engine.simulate import Run, simulate
from twin.facts import Facts
from twin.hardware.fabric import build_fabric
from twin.lab.library import load_facts
from twin.model.costs import build_costs
from twin.scenario import Scenario, json_text, parse_scenario, with_overrides
from twin.workload.requests import TraceTable

BASE = parse_scenario(
    {
        "horizon_s": 4.0,
        "warmup_s": 1.0,
        "start": "empty",
        "supernode": {"nodes": 4},
        "workload": {"rate_req_per_s": 40, "input_tokens": 1000, "output_tokens": 40},
        "deployment": {
            "model": "deepseek-v2-lite",
            "prefill": {"instances": 2, "npus_per_instance": 4},
            "decode": {
                "instances": 2,
                "npus_per_instance": 4,
                "batch_per_npu": 16,
                "mtp_draft_tokens": 0,
            },
            "colocated": {"instances": 2, "npus_per_instance": 4},
        },
    }
)
MODES = ("disaggregated", "colocated", "prefill_only", "decode_only")


def small(settings: dict[str, Any] | None = None) -> Scenario:
    """A machine of 32 NPUs that serves a 16B model; fields replaced by dotted path."""
    return with_overrides(BASE, settings or {})


def run(settings: dict[str, Any] | None = None, facts: Facts | None = None) -> Run:
    """The run of a small scenario; the same question is answered from memory."""
    scenario = small(settings)
    return simulate(scenario, facts) if facts else _answer(json_text(scenario), scenario)


@lru_cache(maxsize=64)
def _remembered(key: str) -> list[Run]:
    return []


def _answer(key: str, scenario: Scenario) -> Run:
    kept = _remembered(key)
    if not kept:
        kept.append(simulate(scenario, load_facts()))
    return kept[0]


def end_of(
    scenario: Scenario, facts: Facts | None = None, trace: TraceTable | None = None
) -> tuple[Setup, World]:
    """The set-up and the world at the horizon, for tests that look inside."""
    setup, machine = machine_at_end(scenario, facts, trace)
    return setup, machine.world


def machine_at_end(
    scenario: Scenario, facts: Facts | None = None, trace: TraceTable | None = None
) -> tuple[Setup, Machine]:
    """The set-up and the machine at the horizon; nothing breaks and nobody rebalances."""
    facts = facts or load_facts()
    setup = set_up(scenario, facts, trace)
    machine = Machine(setup, facts, build_world(setup))
    steps = steps_in(scenario.horizon_s, scenario.step_s)
    advance(machine.world, 0, steps)
    record_unfinished(machine.world)
    return setup, machine


def tables_of(setup: Setup, machine: Machine) -> dict[str, pl.DataFrame]:
    """The tables of a machine at its horizon."""
    balance = Balance(machine, Agenda(setup.scenario.step_s), [])
    stamps = stamps_of(machine.world, int(machine.world.record.counters[ARRIVED]))
    return tables(setup, machine, balance, [], capacities(setup), stamps, Present(setup, None))


def facts_with(changes: dict[str, Any]) -> Facts:
    """The facts with some values replaced, by dotted name."""
    return load_facts().replaced(changes)


def facts_with_kv_space(scenario: Scenario, tokens: int) -> Facts:
    """Facts whose dies have just enough HBM for so many KV tokens in decode."""
    facts = load_facts()
    name = f"chips.{scenario.supernode.chip}.hbm_capacity"
    costs = build_costs(scenario, facts, build_fabric(scenario.supernode, facts))
    role = costs.colocated_role or costs.decode_role or costs.prefill_role
    assert role is not None
    spare_gb = (role.memory.kv - tokens * costs.kv_bytes_per_token) / 1e9
    return facts_with({name: facts[name].value - spare_gb})


def recorded(
    arrival_s: list[float],
    input_tokens: list[int],
    output_tokens: list[int],
    chains: list[list[int]] | None = None,
    block_tokens: int = 128,
) -> TraceTable:
    """A recorded stream; chains: each prompt's block ids, numbered in order of first use."""
    n = len(arrival_s)
    rows = chains if chains is not None else [[] for _ in range(n)]
    offset = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    first = np.array([b for row in rows for b in row], np.int64)
    return TraceTable(
        arrival_s=np.array(arrival_s, np.float64),
        input_tokens=np.array(input_tokens, np.int32),
        output_tokens=np.array(output_tokens, np.int32),
        session=np.arange(n, dtype=np.int32),
        segment_offset=offset,
        segment_first=first,
        segment_blocks=np.ones(first.size, np.int32),
        blocks=int(first.max()) + 1 if first.size else 0,
        block_tokens=block_tokens if chains is not None else 0,
        has_prefix=chains is not None,
        has_time=True,
        source_row=np.arange(1, n + 1, dtype=np.int32),
        think_s=np.full(n, np.nan),
        counts={},
        name="recorded",
        format="test",
    )
