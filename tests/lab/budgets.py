"""What runs take beside what `twin.lab.runs.budget` said: `python -m tests.lab.budgets`.

Each of eleven varied runs has a process of its own; memory is its peak, time its processor's, with
kernels and facts loaded before. The estimate decides who is turned away, so it must be of the right
size.
"""

import json
import subprocess
import sys
import time
from typing import Any

from tests.conftest import ROOT
from twin.lab.library import load_facts, preset
from twin.lab.runs.budget import estimate_budget
from twin.scenario import Scenario, with_overrides

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "quick start": ("quickstart", {}),
    "a million short requests": ("quickstart", {
        "workload.rate_req_per_s": 4000.0, "workload.input_tokens": 64,
        "workload.output_tokens": 4, "horizon_s": 250.0}),
    "requests that wait": ("quickstart", {"workload.rate_req_per_s": 1500.0}),
    "a closed loop": ("quickstart", {"workload.arrivals": "closed_loop",
                                     "workload.concurrency": 4000}),
    "an hour": ("quickstart", {"horizon_s": 3600.0, "workload.rate_req_per_s": 5.0}),
    "fine steps": ("quickstart", {"step_s": 0.001}),
    "experts that move": ("quickstart", {"experts.drift_s": 60.0}),
    "balancing every second": ("experts-shift-balanced", {"experts.balancing.interval_s": 1.0}),
    "sessions": ("quickstart", {"workload.prefix": "sessions", "workload.turn_gap_s": 5.0}),
    "prompts of a million tokens": ("million-tokens", {}),
    "32 small instances": ("quickstart", {
        "deployment.decode.instances": 12, "deployment.decode.npus_per_instance": 16,
        "horizon_s": 600.0}),
}  # fmt: skip


def asked(name: str) -> Scenario:
    """The scenario of a run."""
    key, changes = RUNS[name]
    scenario = preset(key)
    assert scenario is not None
    return with_overrides(scenario, changes)


def ratios(name: str) -> tuple[float, float]:
    """Measured over estimated: memory, and processor time."""
    command = [sys.executable, "-m", "tests.lab.budgets", name]
    told = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    said = estimate_budget(asked(name), load_facts())
    return told["bytes"] / said.memory_bytes, told["seconds"] / max(said.seconds, 1.0)


def _measure(name: str) -> None:
    from twin.engine.simulate import simulate
    from twin.lab.runs.process import peak_bytes

    facts = load_facts()
    short = {"horizon_s": 1.0, "warmup_s": 0.0}
    simulate(with_overrides(asked(name), short), facts)
    begun_s = time.process_time()
    simulate(asked(name), facts)
    told = {"bytes": peak_bytes(), "seconds": time.process_time() - begun_s}
    sys.stdout.write(json.dumps(told))


def main() -> None:
    """Print the table."""
    for name in RUNS:
        memory, seconds = ratios(name)
        said = estimate_budget(asked(name), load_facts())
        sys.stdout.write(f"| {name} | {said.requests:,.0f} | {said.memory_bytes / 1e6:,.0f} | "
                         f"{memory:.2f} | {said.seconds:.1f} | {seconds:.2f} |\n")  # fmt: skip
        sys.stdout.flush()


if __name__ == "__main__":
    _measure(sys.argv[1]) if len(sys.argv) > 1 else main()
