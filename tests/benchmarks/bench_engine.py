"""Speed of the whole stack on one core: reported, never asserted. `make bench` runs this.

`python -m tests.benchmarks.whole_runs` measures the same scenarios in processes of their own,
with memory.
"""

import pytest

from tests.benchmarks.whole_runs import BRIEF, COPIES, Benchmark, benchmarks
from twin.engine.simulate import simulate
from twin.lab.ask import with_trace
from twin.lab.library import load_facts
from twin.scenario import with_overrides


@pytest.mark.parametrize("chosen", benchmarks(), ids=lambda b: b.name)
def bench_simulate(benchmark, chosen: Benchmark):
    scenario, trace = chosen.scenario, None
    if chosen.trace is not None:
        from twin.lab.traces.reader import read_trace

        trace = read_trace(chosen.trace)
        scenario = with_trace(scenario, trace, tree_copies=COPIES)
    facts = load_facts()
    simulate(with_overrides(scenario, BRIEF), facts, trace)  # compile
    run = benchmark.pedantic(simulate, (scenario, facts, trace), rounds=1)
    benchmark.extra_info["requests"] = run.summary["requests"]
    benchmark.extra_info["requests_per_s"] = run.summary["requests"] / benchmark.stats["mean"]
    assert run.valid
