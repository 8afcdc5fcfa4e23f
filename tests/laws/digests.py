"""Prints digests of a few runs, to be compared between processes: `python -m tests.laws.digests`.

With `--preset` a whole preset is among them; without, all are small enough for plain Python.
"""

from __future__ import annotations

import json
import sys

from tests.engine.small import MODES, small
from twin.engine.simulate import Run, simulate
from twin.lab.library import load_facts, presets

VARIED = {
    "horizon_s": 2.0,
    "warmup_s": 0.5,
    "step_s": 0.02,
    "workload.arrivals": "gamma",
    "workload.cv": 2.0,
    "workload.lengths": "azure-2023-conv",
    "workload.prefix": "sessions",
    "workload.turn_gap_s": 0.5,
    "router.policy": "power_of_two",
    "deployment.decode.batch_per_npu": 8,
}


def answers(preset: bool) -> dict[str, Run]:
    """Runs by name."""
    found = {mode: simulate(small(VARIED | {"deployment.mode": mode}), load_facts())
             for mode in MODES}  # fmt: skip
    if preset:
        first = presets()[0]
        found[first.key] = simulate(first.scenario, load_facts())
    return found


def printed(preset: bool) -> dict[str, list[str]]:
    """Digest and summary of each run, to the last bit."""
    return {name: [r.digest, repr(r.summary)] for name, r in answers(preset).items()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(printed("--preset" in sys.argv)))
