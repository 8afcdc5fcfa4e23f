"""Hits of a run against an LRU of its own: a dictionary that gets the run's lookups and stores."""

from collections import OrderedDict

import numpy as np
import pytest

from tests.engine.small import recorded, small
from twin.engine.build import build_world
from twin.engine.setup import set_up
from twin.engine.simulate import simulate
from twin.hardware.demands import dram_ratio
from twin.lab.ask import with_trace
from twin.lab.library import load_facts
from twin.model.fetch import node_dram_bytes
from twin.scenario import Scenario, with_overrides
from twin.steady import assemble
from twin.workload.generate import TraceTable

BLOCK, ROOM, TURNS = 128, 60, 12  # tokens; blocks of the pool; turns of a conversation


def conversations() -> list[list[int]]:
    """Chains of block ids: twelve conversations that take turns, each prompt extends the last."""
    rng, said, chains, next_id = np.random.default_rng(3), {}, [], 0
    for _ in range(12 * TURNS):
        who = int(rng.integers(12))
        new = int(rng.integers(1, 5))
        said[who] = [*said.get(who, []), *range(next_id, next_id + new)]
        next_id += new
        chains.append(said[who])
    return chains


class Lru:
    """Blocks in a dictionary, the least recently used first."""

    def __init__(self) -> None:
        self.held: OrderedDict[int, None] = OrderedDict()

    def hit_blocks(self, chain: list[int]) -> int:
        """Blocks of a chain before the first that is not held."""
        return next((k for k, block in enumerate(chain) if block not in self.held), len(chain))

    def keep(self, chain: list[int]) -> None:
        """Store a chain, its end first."""
        for block in reversed(chain):
            self.held.pop(block, None)
            self.held[block] = None
            while len(self.held) > ROOM:
                self.held.popitem(last=False)


def question(chains: list[list[int]]) -> tuple[Scenario, TraceTable]:
    """A replay of conversations on one prefill instance, with room for ROOM blocks in DRAM."""
    lengths = [BLOCK * len(chain) + 1 for chain in chains]
    arrivals = np.cumsum(np.random.default_rng(4).exponential(0.004, len(chains))).tolist()
    trace = recorded(arrivals, lengths, [1] * len(chains), chains, BLOCK)
    one_gb = {
        "deployment.mode": "prefill_only", "memory_pool.ssd_gb_per_node": 0.0,
        "memory_pool.gb_per_node": 1.0, "deployment.prefill.instances": 1,
    }  # fmt: skip
    s, facts = with_trace(small(one_gb), trace), load_facts()
    parts = assemble(s, facts, trace)
    node_bytes = node_dram_bytes(s.memory_pool, facts, parts.net.dies_per_node)
    pool_bytes = node_bytes * dram_ratio(parts.net, range(parts.net.nodes))
    gb = (ROOM + 0.5) * parts.costs.held_bytes(BLOCK) / pool_bytes
    s = with_trace(small(one_gb | {"memory_pool.gb_per_node": gb}), trace)
    return with_overrides(s, {"horizon_s": arrivals[-1] + 1.0}), trace  # all end


def test_each_prompt_hits_what_an_lru_has_when_its_prefill_begins():
    """Blocks are stored when a prefill ends. In order of arrival, each stored at once, the same
    LRU hits otherwise: that is the hit curve, and it bounds no run."""
    chains = conversations()
    s, trace = question(chains)
    made = simulate(s, load_facts(), trace)
    rows = made.tables["requests"].sort("request_id")
    assert made.valid and set(rows["status"].cast(str)) == {"finished"}
    assert rows.height == len(chains)
    begin_s, end_s = rows["prefill_start_s"], rows["prefill_end_s"]
    events = sorted(
        [(end_s[i], 0, i) for i in range(len(chains))]
        + [(begin_s[i], 1, i) for i in range(len(chains))]
    )
    lru, hits = Lru(), np.zeros(len(chains), np.int64)
    for _, looks_up, i in events:
        if looks_up:
            hits[i] = BLOCK * lru.hit_blocks(chains[i])
        else:
            lru.keep(chains[i])
    assert rows["hit_tokens"].to_list() == hits.tolist()
    at_once, in_order = Lru(), 0
    for chain in chains:
        in_order += BLOCK * at_once.hit_blocks(chain)
        at_once.keep(chain)
    assert in_order > 0 and hits.sum() not in (0, in_order)


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_a_machine_without_a_memory_pool_has_an_empty_row_for_all_that_look_one_up(scope):
    """Instances look up how many blocks their pool has, also where there is none: no row may lie
    outside the columns."""
    settings = {
        "supernode.supernodes": 2, "router.front": "least_loaded", "memory_pool.scope": scope,
        "memory_pool.enabled": False,
    }  # fmt: skip
    world = build_world(set_up(small(settings), load_facts(), None))
    rows = (int(world.prefill.pool.max()) + 1) * world.settings.namespaces
    assert rows == 2
    assert world.pool.used.size == world.ssd.used.size == rows
    assert not world.pool.capacity.any()
