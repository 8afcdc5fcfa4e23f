"""The prefix cache in HBM: its hits against a dictionary, its room, and the memory pool below."""

from collections import Counter, OrderedDict

import numpy as np
import pytest

from tests.engine.small import end_of, facts_with_kv_space, recorded, run, small
from tests.engine.test_pool import BLOCK, conversations
from twin.engine.invariants import prefix_cache_fits
from twin.engine.simulate import simulate
from twin.lab.ask import with_trace
from twin.lab.library import load_facts
from twin.scenario import with_overrides

ALONE = {"memory_pool.enabled": False, "memory_pool.in_hbm": True}
ROOM = 90  # blocks
MIXED = {
    "deployment.mode": "colocated", "deployment.colocated.instances": 2,
    "deployment.colocated.npus_per_instance": 2, "workload.prefix": "sessions",
    "workload.turn_gap_s": 0.5, "workload.rate_req_per_s": 12.0, "workload.input_tokens": 600,
    "workload.follow_up_probability": 0.8, "horizon_s": 6.0, "step_s": 0.02,
}  # fmt: skip


class Hbm:
    """Blocks of running requests, with their users, and idle ones, the least recently used first;
    tokens of prompts under way count until they are blocks."""

    def __init__(self, room_tokens: float) -> None:
        self.room_tokens, self.own_tokens = room_tokens, 0
        self.users: Counter[int] = Counter()
        self.idle: OrderedDict[int, None] = OrderedDict()

    def begin(self, chain: list[int], tokens: int) -> list[int]:
        """The blocks that hit; the prompt uses them and has room for the rest."""
        held = [block in self.users or block in self.idle for block in chain]
        hits = chain[: held.index(False) if False in held else len(chain)]
        self.own_tokens += tokens - BLOCK * len(hits)
        self._use(hits)
        return hits

    def compute(self, chain: list[int], hits: list[int], tokens: int) -> None:
        """A prompt ends: all its blocks are there, then idle, the last one first."""
        self.own_tokens -= tokens - BLOCK * len(hits)
        self._use(chain[len(hits) :])
        for block in reversed(chain):
            self.users[block] -= 1
            if not self.users[block]:
                del self.users[block]
                self.idle[block] = None

    def _use(self, blocks: list[int]) -> None:
        for block in blocks:
            self.idle.pop(block, None)
            self.users[block] += 1
        while self.idle and self._full():
            self.idle.popitem(last=False)

    def _full(self) -> bool:
        blocks = len(self.users) + len(self.idle)
        return self.own_tokens + BLOCK * blocks > self.room_tokens


def test_each_prompt_hits_what_a_dictionary_with_users_has():
    chains = conversations()
    lengths = [BLOCK * len(chain) + 1 for chain in chains]
    arrivals = np.cumsum(np.random.default_rng(4).exponential(0.004, len(chains))).tolist()
    trace = recorded(arrivals, lengths, [1] * len(chains), chains, BLOCK)
    s = with_trace(
        small(ALONE | {"deployment.mode": "prefill_only", "deployment.prefill.instances": 1}), trace
    )
    s = with_overrides(s, {"horizon_s": arrivals[-1] + 1.0, "step_s": 0.02})
    made = simulate(s, facts := facts_with_kv_space(s, ROOM * BLOCK + 64), trace)
    rows = made.tables["requests"].sort("request_id")
    assert made.valid and set(rows["status"].cast(str)) == {"finished"}
    begin_s, end_s = rows["prefill_start_s"], rows["prefill_end_s"]
    # Prompts of one batch begin in order of arrival, and end so.
    events = sorted(
        [(end_s[i], 0, i) for i in range(len(chains))]
        + [(begin_s[i], 1, i) for i in range(len(chains))]
    )
    _, world = end_of(s, facts, trace)
    hbm, hits = Hbm(world.settings.prompt_kv_tokens), {}
    for _, begins, i in events:
        if begins:
            hits[i] = hbm.begin(chains[i], lengths[i])
        else:
            hbm.compute(chains[i], hits[i], lengths[i])
    assert rows["hit_tokens"].to_list() == [BLOCK * len(hits[i]) for i in range(len(chains))]
    endless = simulate(s, load_facts(), trace).summary["hit_token_ratio"]
    assert 0.0 < made.summary["hit_token_ratio"] < endless
    assert made.summary["pool_read_bytes_per_s"] == 0.0


def test_prompts_that_share_nothing_run_as_without_it():
    for mode in ("colocated", "prefill_only"):
        plain = {"deployment.mode": mode, "memory_pool.enabled": False}
        off, on = run(plain), run(plain | {"memory_pool.in_hbm": True})
        assert all(off.tables[name].equals(on.tables[name]) for name in off.tables)


@pytest.mark.parametrize("tokens", [20_000, 2500])
def test_blocks_stay_only_where_requests_leave_room(tokens):
    s = small(MIXED | ALONE)
    setup, world = end_of(s, facts_with_kv_space(s, tokens))
    assert setup.in_hbm and prefix_cache_fits(world).ok
    assert world.hbm.used.sum() > 0 and (tokens > 5000 or world.hbm.evicted.sum() > 0)
    world.hbm.used[0] += 1
    assert not prefix_cache_fits(world).ok


def test_a_router_that_looks_for_hits_finds_more_of_them():
    hits = {
        policy: run(MIXED | ALONE | {"router.policy": policy}).summary["hit_token_ratio"]
        for policy in ("round_robin", "prefix_affinity")
    }
    assert hits["prefix_affinity"] > 1.5 * hits["round_robin"] > 0.0


def test_the_memory_pool_is_read_for_what_hbm_lacks():
    """With round robin the same prompts go to the same instances, with and without."""
    settings = MIXED | {"router.policy": "round_robin", "workload.turns": "timed"}
    pool, both = run(settings), run(settings | {"memory_pool.in_hbm": True})
    assert both.valid and 0.0 < both.summary["hbm_token_ratio"] < both.summary["hit_token_ratio"]
    assert both.summary["pool_read_bytes_per_s"] < pool.summary["pool_read_bytes_per_s"]
    assert both.summary["hit_token_ratio"] >= 0.95 * pool.summary["hit_token_ratio"]


@pytest.mark.parametrize("policy", ["restart", "in_place", "shrink"])
@pytest.mark.parametrize("mode", ["colocated", "disaggregated"])
def test_a_failed_die_takes_its_blocks_along(mode, policy):
    fault = {"element": "die 0.1.0", "at_s": 3.0, "duration_s": 1.0}
    changed = {"faults": [fault], "recovery.policy": policy, "recovery.restart_s": 1.0,
               "recovery.in_place_s": 0.5, "deployment.mode": mode}  # fmt: skip
    made = run(MIXED | ALONE | changed)
    assert made.valid, [check for check in made.checks if not check["ok"]]
    assert made.summary["hbm_token_ratio"] == made.summary["hit_token_ratio"] > 0.0
