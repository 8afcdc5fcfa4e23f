"""Prints digests of a few runs, to be compared between processes: `python -m tests.laws.digests`.

With `--preset` a whole preset is among them; with `--brief` they are short enough for plain Python.
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


BRIEF = {"horizon_s": 0.8, "warmup_s": 0.2}


def answers(*options: str) -> dict[str, Run]:
    """Runs by name."""
    asked = VARIED | (BRIEF if "--brief" in options else {})
    runs = {mode: simulate(small(asked | {"deployment.mode": mode}), load_facts())
            for mode in MODES}  # fmt: skip
    if "--preset" in options:
        first = presets()[0]
        runs[first.key] = simulate(first.scenario, load_facts())
    return runs


def printed(*options: str) -> dict[str, list[str]]:
    """Digest and summary of each run, to the last bit."""
    return {name: [r.digest, repr(r.summary)] for name, r in answers(*options).items()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(printed(*sys.argv[1:])))
