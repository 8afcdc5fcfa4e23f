"""Named stores: what is left of a node's DRAM, and in how many pieces a block is read."""

import numpy as np
import pytest

from tests.engine.small import small
from twin.engine.setup import set_up
from twin.hardware.fabric import build_fabric
from twin.lab.library import load_facts
from twin.model.costs import build_costs
from twin.model.fetch import fetch_figures, fullest_server_share, node_dram_bytes
from twin.scenario import Scenario, with_overrides

FACTS = load_facts()
GIB = 1024.0**3


def kept(store, gb=512.0, dies=16):
    asked = with_overrides(Scenario(), {"memory_pool.store": store, "memory_pool.gb_per_node": gb})
    return node_dram_bytes(asked.memory_pool, FACTS, dies)


def test_ems_keeps_blocks_in_all_that_is_lent():
    assert kept("ems") == 512e9 and kept("ems", 0.001) == 1e6


def test_segments_are_whole_and_stores_evict_before_they_are_full():
    """512 GB are 29 segments of 1 GiB on each of 16 dies; 92.5 and 65 % of them hold blocks."""
    lent = 29 * 16 * GIB
    assert kept("mooncake") == pytest.approx(0.925 * lent)
    assert kept("memcache") == pytest.approx(0.65 * lent)
    assert kept("yuanrong") == pytest.approx(512e9, rel=1e-4)
    assert kept("mooncake", gb=16 * GIB / 1e9 - 0.001) == 0.0


@pytest.mark.parametrize(("store", "pieces"), [("ems", 61), ("mooncake", 61), ("memcache", 122)])
def test_a_block_of_r1_is_read_in_as_many_pieces_as_were_published(store, pieces):
    asked = with_overrides(Scenario(), {"memory_pool.store": store})
    read = fetch_figures(asked.memory_pool, FACTS, 32, 32, 16, 70_272.0, 61)
    size = asked.memory_pool.block_tokens * 70_272.0 / pieces
    start_s, in_flight = FACTS.si("operators.pool_copy.start"), 4
    assert read.copies_bytes_per_s == pytest.approx(32 * in_flight * size / start_s)
    whole = with_overrides(asked, {"memory_pool.layout": "block"})
    assert fetch_figures(whole.memory_pool, FACTS, 32, 32, 16, 70_272.0, 61).copies_bytes_per_s == (
        pytest.approx(pieces * read.copies_bytes_per_s)
    )


def test_a_run_s_pool_has_the_blocks_that_fit():
    few, many = (
        set_up(small({"memory_pool.store": store}), FACTS, None).pool_blocks
        for store in ("memcache", "ems")
    )
    assert few / many == pytest.approx(0.65 * 29 * 16 * GIB / 512e9, rel=1e-3)


@pytest.mark.parametrize("servers", [2, 3, 8, 48, 96])
def test_the_fullest_server_has_what_draws_say(servers):
    draw = np.random.default_rng(7)
    for blocks in (1, 4, 16, 64, 700, 5_000):
        drawn = draw.multinomial(blocks, [1 / servers] * servers, 2_000).max(axis=1).mean() / blocks
        off = 0.045 if blocks >= 16 else 0.1
        assert fullest_server_share(blocks, servers) == pytest.approx(drawn, rel=off)


def test_more_servers_or_more_blocks_never_make_the_fullest_one_fuller():
    for blocks in (2.5, 16.0, 100.0, 3_000.0):
        shares = [fullest_server_share(blocks, servers) for servers in (1, 2, 4, 8, 16, 48, 96)]
        assert shares[0] == 1.0 and shares == sorted(shares, reverse=True)
    shares = [fullest_server_share(blocks, 48) for blocks in (1.0, 8.0, 64.0, 512.0, 4_096.0)]
    assert shares == sorted(shares, reverse=True) and shares[-1] < 1.4 / 48


def test_prompts_of_a_trace_read_no_popular_prefix_that_was_asked_for_before():
    """The field is kept when a trace is chosen, and says nothing of it."""

    def reads(**fields):
        s = small({name.replace("__", "."): value for name, value in fields.items()})
        costs = build_costs(s, FACTS, build_fabric(s.supernode, FACTS))
        read, servers = costs.prefill_role.fetch, costs.servers
        return servers.read_s(read, 2048.0, 8.0), servers.hottest_server_s(read, 2048.0, 8.0, 24)

    trace = {"workload__arrivals": "trace", "workload__trace__digest": "0" * 64}
    shared = {"workload__prefix": "shared", "workload__prefix_groups": 1}
    assert reads(**trace, **shared) == reads(**trace) == (pytest.approx(reads()[0]), 0.0)
    assert reads(**shared)[1] > 0.0
