"""Loading and switching models: object storage, local DRAM and the pooled DRAM, block by block.

Weights are blocks that come from a bucket of object storage, from the DRAM of the instance's own
nodes, or from the memory pool, over the links of the scenario's machine. What the paper tabulates
(arXiv 2506.12708v2 Table 2: illustrative latencies) follows from bytes and rates. Local DRAM keeps
the models an instance used last, the pool those that anybody used last.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from twin.facts import Facts
from twin.hardware.network import Network
from twin.hardware.prices import pool_read
from twin.model.costs import RoleCosts
from twin.model.fetch import pool_plane
from twin.model.memory import whole_model_bytes
from twin.model.operators import formats
from twin.model.shape import ModelError
from twin.scenario import Scenario
from twin.steady import assemble

BUCKET_BYTES_PER_S = 2.5e9  # of object storage, arXiv 2506.12708v2 section 4.4.3
SWITCHES = 20_000  # that the hit ratio is counted over


@dataclass(frozen=True, slots=True)
class Asked:
    """How many models and instances, how popular, and what is there to hold them."""

    models: int = 8
    instances: int = 8
    skew: float = 0.0  # exponent of popularity by rank; 0: all alike
    local_models: int = 1  # that the DRAM of an instance's nodes holds
    pool_models: int = 16  # that the memory pool holds
    bucket_bytes_per_s: float = BUCKET_BYTES_PER_S


@dataclass(frozen=True, slots=True)
class Store:
    """One way to keep models."""

    name: str
    cold_s: float  # until every instance has its first model, from nothing
    warm_s: float | None  # DRAM to NPU; None: nothing is kept
    hit_ratio: float  # of switches
    switch_s: float  # mean
    dram_models: float  # copies of a model in DRAM, over all instances that serve the same one


def model_bytes(scenario: Scenario, facts: Facts) -> float:
    """Weights of the whole model, once, in the precision it is served in."""
    shape = assemble(scenario, facts).costs.shape
    return whole_model_bytes(shape, formats(scenario.deployment.precision))


def model_stores(scenario: Scenario, facts: Facts, asked: Asked) -> list[Store]:
    """No cache, local DRAM and the memory pool for one scenario; raises the rooms' own errors."""
    parts = assemble(scenario, facts)
    roles = (parts.costs.decode_role, parts.costs.colocated_role, parts.costs.prefill_role)
    role: RoleCosts | None = next((r for r in roles if r is not None), None)
    if role is None:
        raise ModelError("a deployment without an instance loads no model")
    whole = model_bytes(scenario, facts)
    from_bucket_s = whole / asked.bucket_bytes_per_s
    warm_s = role.dies * role.memory.weights / _rate(scenario, parts.net, role.dies)
    local = hit_ratio(asked, asked.local_models)
    pooled = hit_ratio(asked, asked.pool_models)

    def switch_s(hits: float) -> float:
        return hits * warm_s + (1.0 - hits) * from_bucket_s

    every = asked.instances * from_bucket_s  # they share the bucket
    return [
        Store("object storage", every, None, 0.0, from_bucket_s, 0.0),
        Store("local DRAM", every, warm_s, local, switch_s(local), float(asked.instances)),
        Store("memory pool", from_bucket_s + warm_s, warm_s, pooled, switch_s(pooled), 1.0),
    ]


def beside_the_paper(facts: Facts) -> str:
    """What the seconds of the paper's table take for granted, in a sentence."""
    size, cold_s = facts.si("startup.table.model"), facts.si("startup.table.cold")
    stated, implied = facts.si("startup.bucket"), size / cold_s
    return (
        f"The paper has {cold_s:.0f} s for {size / 1e9:.0f} GB: {implied / 1e9:.1f} GB/s. "
        f"The {stated / 1e9:g} GB/s of a bucket that it states give {size / stated:.0f} s, and it "
        f"does not say what takes the rest: with {implied / 1e9:.1f} GB/s its other seconds follow."
    )


def _rate(scenario: Scenario, net: Network, dies: int) -> float:
    """Bytes/s from the DRAM of the pool into all dies of an instance."""
    return pool_read(net, range(dies), pool_plane(scenario)).bytes_per_s


def hit_ratio(asked: Asked, room: int) -> float:
    """Share of switches whose model an LRU of `room` models holds, once it is full.

    Exact where all models are as popular as each other; else counted over drawn switches.
    """
    if room >= asked.models:
        return 1.0
    if asked.skew == 0.0 or room <= 0:
        return max(room, 0) / asked.models
    weight = np.arange(1, asked.models + 1) ** -asked.skew
    drawn = np.random.default_rng(0).choice(asked.models, SWITCHES, p=weight / weight.sum())
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for model in drawn.tolist():
        hits += model in held
        held[model] = None
        held.move_to_end(model)
        if len(held) > room:
            held.popitem(last=False)
    return hits / SWITCHES
