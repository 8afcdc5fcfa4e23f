"""Set-up: what a scenario comes to before time starts.

Prices the scenario once (fabric, costs, expert imbalance) and makes its requests. Nothing here
lays out state or moves time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from twin.facts import Facts
from twin.hardware.chip import Chip, load_chip
from twin.hardware.fabric import Fabric, build_fabric
from twin.hardware.placement import Instance, place_instances
from twin.model.costs import Costs, build_costs
from twin.model.decode import DECODE_OPERATORS, decode_iteration_s
from twin.model.prefill import PREFILL_OPERATORS, prefill_batch_s
from twin.serving.batching import tokens_per_iteration
from twin.serving.experts import Imbalance, imbalance
from twin.serving.workload import Requests, TraceTable, generate, mean_lengths
from twin.spec import Scenario

MOST_REQUESTS = 30_000_000
MOST_BYTES = 8e9  # of columns and memory pool, about
BYTES_PER_REQUEST, BYTES_PER_BLOCK = 300, 8  # see build_world; a block stands in every pool
EVEN = Imbalance(np.ones(1), np.ones(1), np.ones((1, 1)))  # of a role that is not deployed


class ScenarioError(ValueError):
    """A scenario that is well formed but cannot be run; one sentence says why."""


@dataclass(frozen=True)
class Setup:
    """What a scenario comes to before time starts."""

    scenario: Scenario
    chip: Chip
    fabric: Fabric
    instances: list[Instance]
    costs: Costs
    prefill_imbalance: Imbalance
    decode_imbalance: Imbalance
    requests: Requests
    dies_per_npu: int
    notes: list[str]

    def of_role(self, role: str) -> list[Instance]:
        """Instances of a role; colocated ones count as both."""
        return [i for i in self.instances if i.role in (role, "colocated")]


def set_up(scenario: Scenario, facts: Facts, trace: TraceTable | None) -> Setup:
    """Price the scenario and make its requests.

    Raises the rooms' own errors (HardwareError, ModelError, ExpertsError, WorkloadError,
    ScenarioError), each with one sentence.
    """
    if scenario.workload.arrivals == "trace" and trace is None:
        raise ScenarioError(
            f"the trace {scenario.workload.trace.name or scenario.workload.trace.digest[:12]} "
            "is not here: import its file first"
        )
    chip = load_chip(facts, scenario.supernode.chip)
    fabric = build_fabric(scenario.supernode, facts)
    costs = build_costs(scenario, facts, fabric)
    instances = place_instances(scenario, chip.dies_per_npu)
    prefill_hot, decode_hot = imbalances(scenario, facts, costs, trace)
    partial = Setup(
        scenario, chip, fabric, instances, costs, prefill_hot, decode_hot,
        requests=None, dies_per_npu=chip.dies_per_npu, notes=[],  # type: ignore[arg-type]
    )  # fmt: skip
    count = None
    if scenario.workload.arrivals == "closed_loop":
        count = closed_loop_count(partial, facts)
    requests = generate(
        scenario.workload,
        scenario.horizon_s,
        scenario.seed,
        scenario.memory_pool.block_tokens,
        facts,
        trace,
        count,
    )
    if requests.arrival_s.size == 0:
        raise ScenarioError(
            f"no request arrives within horizon_s = {scenario.horizon_s:g} s: "
            "raise workload.rate_req_per_s or the horizon"
        )
    _refuse_too_large(scenario, requests)
    notes = [f"{n:,} requests: {reason}" for reason, n in sorted(requests.counts.items()) if n]
    notes += requests.notes
    return Setup(
        scenario, chip, fabric, instances, costs, prefill_hot, decode_hot,
        requests, chip.dies_per_npu, notes,
    )  # fmt: skip


def _refuse_too_large(s: Scenario, requests: Requests) -> None:
    """Raise ScenarioError, naming what weighs most, before memory runs out."""
    pools = 1 if s.memory_pool.scope == "shared" else s.deployment.prefill.instances
    columns = BYTES_PER_REQUEST * requests.arrival_s.size
    blocks = BYTES_PER_BLOCK * requests.blocks * pools * int(s.memory_pool.enabled)
    if columns + blocks <= MOST_BYTES:
        return
    most = f"{requests.arrival_s.size:,} requests"
    if blocks > columns:
        most = f"{requests.blocks:,} distinct KV blocks in {pools} memory pool(s)"
    raise ScenarioError(
        f"this run would need about {(columns + blocks) / 1e9:.0f} GB of memory, more than "
        f"{MOST_BYTES / 1e9:.0f} GB, mostly for {most}: shorten horizon_s, lower the request rate "
        "or take larger blocks"
    )


def imbalances(
    s: Scenario, facts: Facts, costs: Costs, trace: TraceTable | None = None
) -> tuple[Imbalance, Imbalance]:
    """Expert imbalance of a prefill and of a decode instance (the same when colocated)."""
    shape = costs.shape
    mean_input, _ = mean_lengths(s.workload, facts, trace)
    found = []
    drafts = s.deployment.decode.mtp_draft_tokens
    for role, tokens_per_request in (
        (costs.prefill_role, max(mean_input, 1.0)),
        (costs.colocated_role or costs.decode_role, 1.0 + drafts),
    ):
        if role is None:
            found.append(EVEN)
            continue
        layout = role.layout
        found.append(
            _imbalance(
                s.experts,
                shape.routed_experts,
                shape.moe_layers,
                shape.top_k,
                layout.routed_dies,
                layout.slots_per_die,
                facts,
                s.seed,
                tokens_per_request,
            )
        )
    return found[0], found[1]


@lru_cache(maxsize=64)
def _imbalance(*question: Any) -> Imbalance:
    """One answer for one question: an edit elsewhere in a form need not find it again."""
    return imbalance(*question)


def closed_loop_count(setup: Setup, facts: Facts) -> int:
    """Requests that a closed loop cannot use up within the horizon.

    No client turns faster than its answer takes in an otherwise empty instance.
    """
    s = setup.scenario
    mean_input, mean_output = mean_lengths(s.workload, facts)
    clients = s.workload.concurrency
    fastest_s = s.workload.think_s + s.front_end.service_ms * 1e-3
    if s.deployment.mode == "prefill_only":
        took_s = prefill_batch_s(
            setup.costs.prefill, mean_input, mean_input**2 / 2, mean_input, mean_input**2 / 2,
            setup.prefill_imbalance.tokens, np.ones(setup.prefill_imbalance.tokens.size),
            np.zeros(len(PREFILL_OPERATORS)),
        )  # fmt: skip
        fastest_s += 0.5 * took_s
    else:
        vector = setup.costs.mixed if setup.costs.colocated_role else setup.costs.decode
        one = np.ones(1, np.int64)
        took_s = decode_iteration_s(
            vector, one, np.array([mean_input]), 0, 1,
            setup.decode_imbalance.tokens, np.ones(setup.decode_imbalance.tokens.size),
            np.zeros(len(DECODE_OPERATORS)),
        )  # fmt: skip
        d = s.deployment.decode
        per_iteration = tokens_per_iteration(d.mtp_draft_tokens, d.mtp_acceptance)
        fastest_s += took_s * mean_output / per_iteration
    turns = math.ceil(s.horizon_s / max(fastest_s, 1e-3)) + 2
    count = clients * turns
    if count > MOST_REQUESTS:
        raise ScenarioError(
            f"a closed loop of {clients:,} clients over {s.horizon_s:g} s may make {count:,} "
            f"requests, more than {MOST_REQUESTS:,}: shorten horizon_s"
        )
    return count
