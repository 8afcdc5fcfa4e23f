"""Stack distances against an ordered dictionary: every capacity at once, to the token."""

import gzip
import json
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.engine.small import recorded
from twin.lab.library import ROOT, load_facts
from twin.lab.traces.reader import read_trace
from twin.policies.memory_pool import empty_pool, matched_blocks, use_chain
from twin.scenario import Scenario, with_overrides
from twin.workload.generate import generate_requests
from twin.workload.reuse_curve import reuse_curve

TRACES = ROOT.parent / "shared" / "traces"
MOONCAKE = TRACES / "mooncake" / "conversation_trace.jsonl.gz"
needs_traces = pytest.mark.skipif(
    not MOONCAKE.exists(), reason="NO REAL TRACES beside the project: golden curve not checked"
)


def lru_hits(chains, capacity):
    """Blocks that each chain hits of an LRU, by an ordered dictionary; chains touched end first."""
    held, hits = OrderedDict(), []
    for chain in chains:
        matched = next((k for k, block in enumerate(chain) if block not in held), len(chain))
        hits.append(matched)
        for block in reversed(chain):
            held[block] = None
            held.move_to_end(block)
            if len(held) > capacity:
                held.popitem(last=False)
    return hits


@st.composite
def forests(draw):
    """Chains as they are numbered: a block stands for itself and all before it."""
    known, chains = {}, []
    for _ in range(draw(st.integers(1, 25))):
        words = draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))
        keys = [tuple(words[: k + 1]) for k in range(len(words))]
        chains.append([known.setdefault(key, len(known)) for key in keys])
    return chains


@draws(60)
@given(forests(), st.integers(1, 30))
def test_every_capacity_hits_what_an_ordered_dictionary_would(chains, capacity):
    lengths = [16 * len(chain) - 3 for chain in chains]
    table = recorded([0.0] * len(chains), lengths, [1] * len(chains), chains, 16)
    hits = np.minimum(16 * np.array(lru_hits(chains, capacity)), lengths)
    curve = reuse_curve(table)
    assert curve.sampled == 1.0
    assert curve.hit_ratio(capacity) * sum(lengths) == pytest.approx(hits.sum(), abs=1e-6)
    assert curve.hit_ratio(0) == 0.0 and curve.hit_ratio(capacity) <= curve.ideal_hit_ratio
    if curve.ideal_hit_ratio:
        assert curve.hit_ratio(curve.knee_blocks()) >= 0.95 * curve.ideal_hit_ratio


def test_a_sample_of_the_blocks_tells_what_all_tell():
    s = with_overrides(Scenario(), {"workload.prefix": "sessions", "workload.lengths":
                                    "mooncake-conversation"})  # fmt: skip
    stream = generate_requests(s.workload, 60.0, 1, 128, load_facts())
    whole, part = reuse_curve(stream), reuse_curve(stream, 60_000)
    assert part.sampled < 0.3
    for capacity in (3_000, 30_000, 1e9):
        assert part.hit_ratio(capacity) == pytest.approx(whole.hit_ratio(capacity), abs=0.03)


@needs_traces
@pytest.mark.parametrize("share", ["0.01", "0.1", "0.5", "1.0"])
def test_the_memory_pool_hits_the_golden_curve_of_a_real_trace_to_the_block(share):
    golden = json.loads((TRACES / "trace_stats.json").read_text())["mooncake/conversation_trace"]
    expected = golden["prefix"]["lru"][share]
    with gzip.open(MOONCAKE, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    reference = np.array(lru_hits([row["hash_ids"] for row in rows], expected["blocks"]))
    t = read_trace(MOONCAKE)
    pool, ssd = (empty_pool(1, t.blocks, size) for size in (expected["blocks"], 0))
    many = np.add.reduceat(t.segment_blocks.astype(np.int64), t.segment_offset[:-1])
    hits = np.zeros(len(t), np.int64)
    for i in range(len(t)):
        hits[i] = matched_blocks(pool, ssd, False, 0, t, i, 0)
        use_chain(pool, 0, t, i, many[i])
    assert np.array_equal(hits, reference)
    ratio = np.minimum(512 * hits, t.input_tokens).sum() / t.input_tokens.sum(dtype=np.int64)
    assert ratio == pytest.approx(expected["token_hit_ratio"], rel=1e-6)
    assert reuse_curve(t).hit_ratio(expected["blocks"]) == pytest.approx(ratio, rel=1e-12)
