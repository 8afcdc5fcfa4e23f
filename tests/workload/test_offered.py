"""What a sample of the requests says before a run."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from tests.made_trace import made_trace
from tests.workload.test_reuse_curve import lru_hits
from twin.lab.library import load_facts, preset
from twin.scenario import Scenario
from twin.workload.generate import generate_requests
from twin.workload.offered import Caches, lru_hit_tokens, offered_load
from twin.workload.reuse_curve import reuse_curve


def test_each_prompt_says_what_earlier_ones_held():
    rate = Scenario().workload.rate_req_per_s
    scenario = Scenario(workload={"prefix": "shared"}, horizon_s=4000 / rate, warmup_s=0.0)
    asked = offered_load(scenario, load_facts())
    stream = generate_requests(
        scenario.workload, 2.0 * len(asked.prompts) / scenario.workload.rate_req_per_s,
        scenario.seed, scenario.memory_pool.block_tokens, load_facts(), None, len(asked.prompts),
        even=True,
    )  # fmt: skip
    known: set[int] = set()
    for i in range(200):
        own = [
            block
            for k in range(stream.segment_offset[i], stream.segment_offset[i + 1])
            for block in range(
                stream.segment_first[k], stream.segment_first[k] + stream.segment_blocks[k]
            )
        ]
        assert asked.seen[i] == len(known & {*own}) * stream.block_tokens
        known |= {*own}
    assert asked.reuse == pytest.approx(asked.seen.sum() / asked.prompts.sum())
    assert asked.reuse == pytest.approx(reuse_curve(stream).ideal_hit_ratio)


def test_reuse_of_a_trace_counts_the_blocks_that_the_trace_has():
    tokens = np.full(40, 4096)
    table = replace(  # each second prompt is the one before
        made_trace(np.arange(40.0), tokens, tokens),
        segment_offset=np.arange(41), segment_first=np.arange(40) // 2 * 8,
        segment_blocks=np.full(40, 8, np.int32), blocks=160, block_tokens=512, has_prefix=True,
    )  # fmt: skip
    scenario = Scenario(
        workload={"arrivals": "trace", "trace": {"digest": table.digest, "name": table.name}},
        memory_pool={"block_tokens": 128},
    )
    asked = offered_load(scenario, load_facts(), table)
    assert asked.reuse == 0.5 == pytest.approx(reuse_curve(table).ideal_hit_ratio)
    assert list(asked.seen) == [0.0, 4096.0] * 20


def test_the_reuse_of_a_trace_is_simulated_once_for_equal_traces():
    tokens = np.full(40, 4096)
    table = replace(
        made_trace(np.arange(40.0), tokens, tokens),
        segment_offset=np.arange(41), segment_first=np.arange(40) // 2 * 8,
        segment_blocks=np.full(40, 8, np.int32), blocks=160, block_tokens=512, has_prefix=True,
    )  # fmt: skip
    other = replace(table, segment_first=np.arange(40) // 4 * 8)
    scenario = Scenario(
        workload={"arrivals": "trace", "trace": {"digest": table.digest, "name": table.name}}
    )

    def answers(trace):
        hits = lru_hit_tokens(scenario, load_facts(), trace, Caches(1, 100.0))
        return hits, offered_load(scenario, load_facts(), trace)

    first, again, third = map(
        answers, (table, replace(table, source_row=table.source_row + 1), other)
    )
    assert again[0] is first[0] and again[1] is first[1]
    assert third[0].sum() > first[0].sum() and third[1].reuse > first[1].reuse


def test_a_trace_whose_requests_come_at_one_time_offers_them_over_the_run():
    table = made_trace(np.zeros(5), np.full(5, 100), np.full(5, 10))
    scenario = Scenario(
        workload={"arrivals": "trace", "trace": {"digest": table.digest, "name": table.name}},
        horizon_s=2.0, warmup_s=0.0,
    )  # fmt: skip
    assert offered_load(scenario, load_facts(), table).rate_req_per_s == pytest.approx(2.5)


def test_lru_caches_hit_more_the_larger_they_are_and_never_more_than_there_is():
    scenario = Scenario(
        workload={"prefix": "sessions", "follow_up_probability": 0.8, "input_tokens": 600}
    )
    sample = offered_load(scenario, load_facts())
    most, tokens = sample.reuse, float(sample.prompts.sum())
    caches = [Caches(1, float(n)) for n in (1, 100, 1000, 10**9)]
    hits = [lru_hit_tokens(scenario, load_facts(), None, one).sum() / tokens for one in caches]
    assert hits == sorted(hits)
    assert hits[0] < 0.5 * hits[-1] <= 0.5 * most


def chains_of(stream):
    """Ids of the blocks of each request of a stream."""
    runs = zip(stream.segment_first.tolist(), stream.segment_blocks.tolist(), strict=True)
    ids = [list(range(first, first + blocks)) for first, blocks in runs]
    spans = zip(stream.segment_offset[:-1], stream.segment_offset[1:], strict=True)
    return [sum(ids[low:high], []) for low, high in spans]


def hits_block_by_block(stream, size):
    """Tokens of each prompt that one LRU cache of `size` blocks holds."""
    tokens = stream.input_tokens
    counts = tokens // stream.block_tokens
    prompts = [chain[:n] for chain, n in zip(chains_of(stream), counts, strict=True)]
    return np.minimum(np.array(lru_hits(prompts, size)) * stream.block_tokens, tokens - 1).tolist()


@pytest.mark.parametrize("size", [3, 40, 400, 4000])
@pytest.mark.parametrize("prefix", ["shared", "sessions"])
def test_caches_lose_the_same_blocks_as_one_that_moves_block_by_block(prefix, size):
    scenario = Scenario(workload={
        "arrivals": "closed_loop", "prefix": prefix, "prefix_groups": 20, "concurrency": 30,
        "lengths": "sharegpt", "follow_up_probability": 0.7,
    })  # fmt: skip
    hits = lru_hit_tokens(scenario, load_facts(), None, Caches(1, float(size)))
    count = 2 * hits.size
    stream = generate_requests(
        scenario.workload, 2.0 * count / scenario.workload.rate_req_per_s, scenario.seed,
        scenario.memory_pool.block_tokens, load_facts(), None, count, even=True,
    )  # fmt: skip
    assert hits.tolist() == hits_block_by_block(stream, size)[hits.size :]


def test_a_sample_of_prompts_of_a_million_tokens_takes_little_memory():
    """It has 31 million blocks; counted one by one they took 2 GB and half a minute."""
    scenario = preset("million-tokens").model_copy(update={"seed": 31})
    tracemalloc.start()
    hits = lru_hit_tokens(scenario, load_facts(), None, Caches(1, 1e6))
    assert offered_load(scenario, load_facts()).reuse == 0.0 == hits.sum()
    assert tracemalloc.get_traced_memory()[1] < 30e6
    tracemalloc.stop()
