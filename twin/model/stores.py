"""What a named store of KV blocks makes of a node's DRAM (data/stores.toml)."""

from __future__ import annotations

import math

from twin.facts import Facts
from twin.scenario import Scenario


def node_dram_bytes(s: Scenario, facts: Facts, dies_per_node: int) -> float:
    """Bytes of a node's DRAM that hold blocks once the store is full.

    Its dies lend whole segments; between two evictions it is half of one below its watermark.
    """
    stated, lent = f"stores.{s.memory_pool.store}", s.memory_pool.gb_per_node * 1e9
    if f"{stated}.segment" in facts:
        segments = facts.si(f"{stated}.segment") * dies_per_node
        lent = math.floor(lent / segments) * segments
    if f"{stated}.full_at" not in facts:
        return lent
    return lent * (facts.si(f"{stated}.full_at") - 0.5 * facts.si(f"{stated}.evicts"))
