"""I12: a run's requests, written down as a trace and replayed, get the same answers."""

import numpy as np
import pytest

from tests.engine.small import MODES, small
from twin.engine.setup import set_up
from twin.engine.simulate import simulate
from twin.lab.library import load_facts
from twin.scenario import with_overrides
from twin.workload.requests import TraceTable

WORKLOADS = {
    "poisson": {"workload.lengths": "azure-2023-conv"},
    "sessions": {"workload.prefix": "sessions", "workload.turn_gap_s": 0.4},
    "bursts": {"workload.arrivals": "gamma", "workload.cv": 4.0, "workload.prefix": "shared"},
}
# A trace's times are taken as they are; which experts are hot follows from the workload's mean
# lengths, which a fitted distribution and its sample do not share to the last digit.
SAME = {
    "workload.trace.dequantise": False,
    "experts.popularity": "uniform",
    "router.policy": "power_of_two",
}


def written_down(scenario):
    """The scenario's requests as a recorded stream."""
    r = set_up(scenario, load_facts(), None).requests
    n = len(r)
    return TraceTable(
        arrival_s=r.arrival_s,
        input_tokens=r.input_tokens,
        output_tokens=r.output_tokens,
        session=r.session,
        segment_offset=r.segment_offset,
        segment_first=r.segment_first,
        segment_blocks=r.segment_blocks,
        blocks=r.blocks,
        block_tokens=r.block_tokens,
        has_prefix=True,
        has_time=True,
        source_row=np.arange(1, n + 1, dtype=np.int32),
        think_s=np.full(n, np.nan),
        counts={},
        name="written down",
        format="test",
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_replayed_run_is_the_run(mode, workload):
    scenario = small(WORKLOADS[workload] | SAME | {"deployment.mode": mode})
    table = written_down(scenario)
    replay = with_overrides(
        scenario, {"workload.arrivals": "trace", "workload.trace.digest": table.digest}
    )
    first = simulate(scenario, load_facts())
    again = simulate(replay, load_facts(), table)
    assert again.tables["requests"].equals(first.tables["requests"])
    assert again.valid


def test_copies_and_squeezing_ask_more_of_the_same_machine():
    scenario = small(WORKLOADS["sessions"])
    table = written_down(scenario)
    asked = {
        "workload.arrivals": "trace",
        "workload.trace.digest": table.digest,
        "workload.turns": "timed",  # pauses keep their length
        "horizon_s": 10.0,
    }
    once, thrice, fast = (
        simulate(with_overrides(scenario, asked | more), load_facts(), table)
        for more in ({}, {"workload.trace.tree_copies": 3}, {"workload.trace.rate_multiplier": 4})
    )
    assert thrice.summary["requests"] == 3 * once.summary["requests"]
    assert fast.summary["requests"] == once.summary["requests"]
    last = (run.tables["requests"]["arrival_s"].max() for run in (fast, once))
    assert 4 * next(last) == pytest.approx(next(last))
    # A copy has block ids of its own: it shares nothing with another.
    hits = [run.tables["requests"]["hit_tokens"].sum() for run in (once, thrice)]
    assert hits[1] == pytest.approx(3 * hits[0], rel=0.05)
