"""Prints digests of a few runs, to be compared between processes: `python -m tests.laws.digests`.

With `--preset` a whole preset is among them; with `--brief` they are short enough for plain Python.
A number N or a range N:M adds random scenarios.
"""

import json
import sys

from tests.engine.small import MODES, small
from tests.laws.any_scenario import any_scenario
from twin.engine.simulate import Run, simulate
from twin.facts import FactError
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


BRIEF = {"horizon_s": 0.4, "warmup_s": 0.1}


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
    """Digest and summary of each run, to the last bit; the sentence where one is refused."""
    named = {name: [r.digest, repr(r.summary)] for name, r in answers(*options).items()}
    drawn = [n for o in options if o[0].isdigit() for n in _numbers(o)]
    return named | {str(number): _any(number) for number in drawn}


def _numbers(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end or int(first) + 1))


def _any(number: int) -> list[str]:
    scenario, trace = any_scenario(number)
    try:
        run = simulate(scenario, load_facts(), trace)
    except (ValueError, FactError) as refused:
        return [str(refused)]
    return [run.digest, repr(run.summary)]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(printed(*sys.argv[1:])))
