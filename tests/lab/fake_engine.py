"""An engine of a few lines, so that runs can be watched, stopped and killed without physics.

It has what `job` asks of `twin.engine.simulate`: a version, `simulate`, `Cancelled`. The question
of a scenario says how it behaves; its horizon how long it takes (a hundredth of it).
"""

import hashlib
import os
import time
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from twin.scenario import Scenario, json_text

ENGINE_VERSION = "fake-1"
STEP_S = 0.01


class Cancelled(Exception):  # noqa: N818 - named as the engine names it
    """The caller asked to stop."""


@dataclass(frozen=True)
class FakeRun:
    digest: str
    summary: dict[str, Any]
    tables: dict[str, pl.DataFrame]
    checks: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=lambda: ["a fake run"])
    valid: bool = True


def answer(scenario: Scenario, requests: int = 100) -> FakeRun:
    """What the fake engine says; the same for the same scenario."""
    key = int(hashlib.sha256(json_text(scenario).encode()).hexdigest()[:8], 16)
    table = pl.DataFrame(
        {"request_id": range(requests), "ttft_s": [key / (i + 1) for i in range(requests)]}
    )
    ok = scenario.question != "broken"
    return FakeRun(
        digest=hashlib.sha256(str(key).encode()).hexdigest(),
        summary={"requests": requests, "ttft_s_p50": key / 7, "seed": scenario.seed},
        tables={"requests": table, "windows": table.head(3)},
        checks=[
            {"id": "I1", "statement": "requests are conserved", "ok": ok, "detail": "99 of 100"}
        ],
        valid=ok,
    )


def simulate(scenario, facts, trace=None, progress=None):
    deadline = time.monotonic() + scenario.horizon_s / 100
    if scenario.question == "impossible":
        raise ValueError("this cannot be")
    if scenario.question == "killed":
        os.kill(os.getpid(), 9)
    if scenario.question == "busy":
        end_s = time.process_time() + scenario.horizon_s / 100
        while time.process_time() < end_s:
            pass
        return answer(scenario)
    if scenario.question == "greedy":
        taken = []
        for _ in range(40):  # 4 GB, written, so that they are resident
            taken.append(b"x" * 100_000_000)
            time.sleep(10 * STEP_S)  # so that little is taken until it is noticed
        raise MemoryError(len(taken))
    if scenario.question == "deaf":
        time.sleep(60)
    while (left := deadline - time.monotonic()) > 0:
        fraction = 1 - left / (scenario.horizon_s / 100)
        if progress and not progress(fraction, {"t_s": fraction * scenario.horizon_s}):
            raise Cancelled
        time.sleep(STEP_S)
    return answer(scenario, requests=100 if trace is None else len(trace))
