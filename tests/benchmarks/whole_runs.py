"""The benchmarks: how fast the twin answers, and how much memory an answer takes.

Each is a scenario run whole in a fresh process: first briefly, so that compilation and imports are
paid before the clock starts, then in full. Figures are reported, never judged.

`python -m tests.benchmarks.whole_runs [NAME]` prints those whose name holds NAME, a JSON object
a line.
"""

import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twin.lab.library import ROOT
from twin.lab.runs.process import peak_bytes
from twin.lab.traces.source import TraceError
from twin.scenario import Scenario, SpecError, parse_scenario, with_overrides

# Real traces are not part of the project; they are looked for beside it.
MOONCAKE = ROOT.parent / "shared" / "traces" / "mooncake" / "conversation_trace.jsonl.gz"
COPIES = 32  # of the trace: squeezing its time alone would add no new block
BRIEF = {"horizon_s": 5.0, "warmup_s": 1.0}  # enough to compile and to touch every phase

# Full load of one CloudMatrix384: 14 prefill instances (224 NPUs) and one decode instance (160),
# short prompts and answers, so that an hour holds more than two million requests.
FULL_LOAD: dict[str, Any] = {
    "name": "Benchmark: full load",
    "horizon_s": 3600.0,
    "warmup_s": 300.0,
    "workload": {
        "arrivals": "poisson",
        "rate_req_per_s": 600.0,
        "input_tokens": 1024,
        "output_tokens": 512,
        "prefix": "shared",
        "shared_fraction": 0.25,
        "prefix_groups": 1000,
    },
    "deployment": {"prefill": {"instances": 14}, "decode": {"batch_per_npu": 128}},
}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark: what it shows, its scenario, and the trace it replays, if any."""

    name: str
    shows: str
    scenario: Scenario
    trace: Path | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What one benchmark took on this machine."""

    name: str
    shows: str
    requests: int
    simulated_s: float
    wall_s: float
    cpu_s: float  # the same work by the processor's clock: steadier on a busy machine
    requests_per_s: float
    base_rss_bytes: int
    peak_rss_bytes: int
    bytes_per_request: float
    digest: str

    def as_json(self) -> dict[str, Any]:
        """The figures by name."""
        return asdict(self)


def benchmarks(trace: Path | None = None) -> list[Benchmark]:
    """Every benchmark; `trace` replaces the Mooncake conversation hour looked for by default.
    Raises TraceError for a trace that is not there."""
    if trace is not None and not trace.exists():
        raise TraceError(f"{trace} is not a file or a folder")
    full = parse_scenario(FULL_LOAD)
    suite = [
        Benchmark("full-load-hour", "The full-load hour on 384 NPUs.", full),
        _conversation_hour(trace or MOONCAKE),
    ]
    for minutes in (5, 10, 20):
        longer = with_overrides(full, {"horizon_s": 60.0 * minutes, "warmup_s": 60.0})
        suite.append(Benchmark(f"minutes-{minutes:02d}", "Cost against requests.", longer))
    suite += [
        Benchmark(f"supernodes-{n}", "Cost against supernodes.", _wider(full, n)) for n in (1, 2, 4)
    ]
    return suite


def chosen(part: str, trace: Path | None = None) -> list[Benchmark]:
    """The benchmarks whose name holds a text; raises SpecError when there is none."""
    every = benchmarks(trace)
    matching = [b for b in every if part in b.name]
    if not matching:
        names = ", ".join(b.name for b in every)
        raise SpecError(f"--only {part}: no benchmark is called so: name a part of one of {names}")
    return matching


def _conversation_hour(trace: Path) -> Benchmark:
    """The Mooncake conversation hour 32 times over; without the file, its fitted statistics."""
    deployment = {"prefill": {"instances": 14}}
    if trace.exists():
        base = parse_scenario({"deployment": deployment})
        return Benchmark("conversation-hour-32", "32 tree copies of a real trace.", base, trace)
    fitted = {
        "name": "Benchmark: conversations",
        "horizon_s": 3600.0,
        "warmup_s": 600.0,
        "workload": {
            "rate_req_per_s": COPIES * 3.4,  # as the trace: 3.4 requests/s a copy
            "lengths": "mooncake-conversation",
            "prefix": "sessions",
        },
        "deployment": deployment,
    }
    return Benchmark(
        "conversation-hour-32", "A real trace's statistics, 32 times.", parse_scenario(fitted)
    )


def _wider(full: Scenario, supernodes: int) -> Scenario:
    """Two minutes of full load on a machine `supernodes` times as large."""
    deployment = full.deployment
    return with_overrides(
        full,
        {
            "horizon_s": 120.0,
            "warmup_s": 60.0,
            "supernode.nodes": full.supernode.nodes * supernodes,
            # An L2 switch chip needs a port for every node.
            "supernode.l2_ports_per_chip": full.supernode.l2_ports_per_chip * supernodes,
            "workload.rate_req_per_s": full.workload.rate_req_per_s * supernodes,
            "deployment.prefill.instances": deployment.prefill.instances * supernodes,
            "deployment.decode.instances": deployment.decode.instances * supernodes,
            "front_end.api_servers": full.front_end.api_servers * supernodes,
        },
    )


def measure(
    selected: list[Benchmark], progress: Callable[[Benchmark], None] = lambda _: None
) -> Iterator[Measured]:
    """Run benchmarks one after another, each in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    for benchmark in selected:
        progress(benchmark)
        # An executor, not a pool: it says so when its process dies, a pool waits for ever.
        with ProcessPoolExecutor(1, mp_context=spawn) as process:
            yield process.submit(_measure, benchmark).result()


def _measure(benchmark: Benchmark) -> Measured:
    """Warm up, then run once against the clock; runs in its own process."""
    from twin.engine.simulate import simulate
    from twin.lab.ask import with_trace
    from twin.lab.library import load_facts
    from twin.lab.traces.reader import read_trace

    scenario, trace = benchmark.scenario, None
    if benchmark.trace is not None:
        trace = read_trace(benchmark.trace)
        scenario = with_trace(scenario, trace, tree_copies=COPIES)
    facts = load_facts()
    simulate(with_overrides(scenario, BRIEF), facts, trace)
    gc.freeze()  # as a job and the command line do
    base = peak_bytes()

    start, cpu = time.perf_counter(), time.process_time()
    run = simulate(scenario, facts, trace)
    wall_s = time.perf_counter() - start
    cpu_s = time.process_time() - cpu
    peak = peak_bytes()
    requests = int(run.summary["requests"] or 0)
    return Measured(
        name=benchmark.name,
        shows=benchmark.shows,
        requests=requests,
        simulated_s=scenario.horizon_s,
        wall_s=wall_s,
        cpu_s=cpu_s,
        requests_per_s=requests / wall_s,
        base_rss_bytes=base,
        peak_rss_bytes=peak,
        bytes_per_request=(peak - base) / max(requests, 1),
        digest=run.digest,
    )


if __name__ == "__main__":
    for measured in measure(chosen("".join(sys.argv[1:2]))):
        sys.stdout.write(json.dumps(measured.as_json()) + "\n")
