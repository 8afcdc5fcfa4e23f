"""What a sample of the requests says before a run."""

import pytest

from twin.lab.library import load_facts
from twin.scenario import Scenario
from twin.workload.generate import generate
from twin.workload.offered import offered
from twin.workload.reuse_curve import reuse_curve


def test_each_prompt_says_what_earlier_ones_held():
    scenario = Scenario(workload={"prefix": "shared"})
    asked = offered(scenario, load_facts())
    stream = generate(
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
    assert asked.reuse == pytest.approx(reuse_curve(stream).ideal)
