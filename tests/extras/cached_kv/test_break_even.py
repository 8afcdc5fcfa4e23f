"""Where reading cached KV breaks even with computing it: what a run does on either side of it."""

import pytest

from tests.engine.small import run, small
from twin.extras.cached_kv.hit_curve import reads
from twin.lab.library import load_facts
from twin.policies.batching import fetch_pays
from twin.scenario import with_overrides

REUSE = {
    "workload.prefix": "shared",
    "workload.shared_fraction": 0.9,
    "memory_pool.plane": "vpc",
    "warmup_s": 0.0,
}


def first(settings):
    return reads(small(REUSE | settings), load_facts())[0]


def pays(read, tokens):
    """Whether so many cached tokens are read, and not computed again."""
    read_s = read.latency_s + tokens * read.s_per_token
    return bool(fetch_pays(read_s, tokens * read.computed_s_per_token))


def test_a_run_reads_above_the_break_even_and_computes_below_it():
    as_built = first({})
    share = as_built.pays_above_bytes_per_s / as_built.bytes_per_s
    assert share < 1.0 and pays(as_built, 1024) and as_built.pays_from_tokens == 128
    rate = small(REUSE).supernode.vpc_gb_per_s_per_node
    hits = {}
    for factor in (1.2, 0.8):
        slow = {"supernode.vpc_gb_per_s_per_node": factor * share * rate,
                "memory_pool.ssd_gb_per_node": 0.0}  # fmt: skip
        read = first(slow)
        assert pays(read, 100_000) == (factor > 1.0) == (read.pays_from_tokens is not None)
        hits[factor] = run(REUSE | slow).summary["hit_token_ratio"]
    assert hits[1.2] > 0.3 and hits[0.8] == 0.0


def test_small_blocks_of_many_pieces_never_pay_where_copies_take_longer():
    tiny = first({"memory_pool.block_tokens": 16, "memory_pool.plane": "ub"})
    whole = first({"memory_pool.layout": "block", "memory_pool.plane": "ub"})
    assert whole.s_per_token < tiny.s_per_token
    assert whole.pays_above_bytes_per_s < (tiny.pays_above_bytes_per_s or float("inf"))


@pytest.mark.parametrize("settings", [{"memory_pool.enabled": False},
                                      {"deployment.mode": "decode_only"}])  # fmt: skip
def test_nothing_is_read_where_nothing_is_kept(settings):
    assert reads(with_overrides(small(REUSE), settings), load_facts()) == []
