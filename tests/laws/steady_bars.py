"""Steady start, capacity and overload of random deployments, each against hours of simulation.

`python -m tests.laws.steady_bars steady 0 30` measures draws 0 to 29 and prints a line for each:
`steady` compares minutes that begin steady with two hours that begin empty, `capacity` the two
capacities with runs of an hour, `overload` says how runs beyond the capacity are called.
"""

import json
import math
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from twin.engine.simulate import simulate
from twin.lab.explain.capacity import capacity, load_by_formula, with_load, with_span
from twin.lab.explain.view import share_met
from twin.lab.library import load_facts
from twin.scenario import Scenario, SpecError, with_overrides
from twin.steady import Priced

FACTS = load_facts()
LENGTHS = (
    "fixed", "fixed", "sharegpt", "azure-2023-conv", "servegen-deepseek-r1", "mlperf-deepseek-r1",
    "mooncake-conversation", "arxiv-summarisation",
)  # fmt: skip
LEAST_RATE = 28.0  # 5,000 requests in three minutes
MINUTES = {"start": "steady", "horizon_s": 200.0, "warmup_s": 20.0}
HOURS = {"start": "empty", "horizon_s": 7200.0, "warmup_s": 1800.0}
NEAR = {"tpot_s_p50": 0.02, "ttft_s_p50": 0.05, "ttft_s_p99": 0.05}
SEEDS = 8
T95 = 2.365  # Student's t of eight values


def deployment(number: int) -> tuple[Scenario, float]:
    """(a random deployment with a random SLO, its capacity by formula in requests/s)."""
    draw = random.Random(f"steady {number}")
    while True:
        try:
            s = with_overrides(Scenario(), _settings(draw))
        except SpecError:
            continue
        most = load_by_formula(s, FACTS)
        if most and 0.3 * most >= LEAST_RATE:
            return s, most


def _settings(draw: random.Random) -> dict[str, Any]:
    mode = draw.choice(("disaggregated",) * 3 + ("colocated", "decode_only", "prefill_only"))
    fields: dict[str, Any] = {
        "deployment.mode": mode,
        "deployment.prefill.instances": draw.randint(2, 12),
        "deployment.prefill.npus_per_instance": draw.choice((8, 16)),
        "deployment.prefill.tokens_per_npu": draw.choice((2048, 4096, 8192)),
        "deployment.prefill.attention": draw.choice(("sp_tp_sp", "dp")),
        "deployment.decode.instances": draw.randint(1, 3),
        "deployment.decode.npus_per_instance": draw.choice((32, 64, 96, 160)),
        "deployment.decode.batch_per_npu": draw.choice((16, 32, 48, 96)),
        "deployment.decode.mtp_draft_tokens": draw.randint(0, 2),
        "deployment.colocated.instances": draw.randint(1, 8),
        "deployment.colocated.npus_per_instance": draw.choice((16, 32)),
        "deployment.colocated.prompt_dies": draw.choice((1, 4)),
        "workload.lengths": draw.choice(LENGTHS),
        "workload.input_tokens": round(2 ** draw.uniform(8.0, 13.0)),
        "workload.output_tokens": round(2 ** draw.uniform(6.0, 10.5)),
        "workload.arrivals": draw.choice(("poisson", "poisson", "gamma")),
        "workload.cv": draw.uniform(0.5, 2.0),
        "slo.tpot_ms": draw.uniform(20.0, 80.0),
        "slo.ttft_s": 2 ** draw.uniform(-1.0, 2.6),
        "seed": draw.randint(1, 999),
    }
    if mode == "prefill_only":
        fields["workload.output_tokens"] = 1
        fields["workload.lengths"] = "fixed"
    return fields


def steady_start(number: int) -> dict[str, Any]:
    """Minutes from the steady state against two hours from an empty machine, at a random load."""
    s, most = deployment(number)
    load = random.Random(f"load {number}").uniform(0.3, 0.97)
    s = with_load(s, load * most)
    long = simulate(with_overrides(s, HOURS), FACTS).summary
    runs = [
        simulate(with_overrides(s, MINUTES | {"seed": seed}), FACTS).summary
        for seed in range(1, SEEDS + 1)
    ]
    found: dict[str, Any] = {
        "load": load,
        "mode": s.deployment.mode,
        "requests": runs[0]["requests"],
    }
    misses = []
    for name, near in NEAR.items():
        if not long.get(name):
            continue
        values = np.array([run[name] for run in runs])
        off = float(values.mean() / long[name] - 1.0)
        half = T95 * float(values.std(ddof=1)) / math.sqrt(SEEDS) / long[name]
        found[name] = [round(off, 4), round(half, 4)]
        if abs(off) > max(near, half):
            misses.append(name)
    share = float(np.mean([share_met(run) for run in runs]))
    found["kept"] = [round(share_met(long), 4), round(share, 4)]
    if (share >= s.slo.share) != (share_met(long) >= s.slo.share):
        misses.append("kept")
    called = [run.get("steady_state") for run in runs]
    found["called"] = {name: called.count(name) for name in sorted(set(map(str, called)))}
    return found | {"misses": misses}


def one_capacity(number: int) -> dict[str, Any]:
    """The capacity by search and by formula against runs of an hour, of three seeds each."""
    s, most = deployment(1000 + number)
    found = capacity(s, FACTS, lambda one: simulate(one, FACTS).summary)
    low, high, share = 0.0, math.inf, s.slo.share

    def keeps(load: float) -> bool:
        hour = with_overrides(with_load(s, load), {"horizon_s": 4500.0, "warmup_s": 900.0})
        runs = [
            simulate(with_overrides(hour, {"seed": seed}), FACTS).summary for seed in (71, 72, 73)
        ]
        overloaded = sum(run.get("steady_state") == "overloaded" for run in runs)
        return 2 * overloaded <= 3 and float(np.mean([share_met(r) for r in runs])) >= share

    load = found.load or most
    while not (low and high < 1.006 * low) and 0.05 * most < load < 20 * most:
        if keeps(load):
            low = load
        else:
            high = load
        load = low * 1.03 if math.isinf(high) else high / 1.03 if not low else math.sqrt(low * high)
    true = math.sqrt(low * high)
    return {
        "mode": s.deployment.mode, "lengths": s.workload.lengths, "true": true,
        "search": found.load / true - 1.0, "formula": most / true - 1.0, "runs": found.runs,
        "misses": [name for name, off, near in (
            ("search", found.load / true - 1.0, 0.03), ("formula", most / true - 1.0, 0.12),
        ) if abs(off) > near],
    }  # fmt: skip


def overload(number: int) -> dict[str, Any]:
    """What runs beyond what all pools sustain are called, eight seeds at each of three loads."""
    from twin.outlook import outlook

    s, _ = deployment(2000 + number)
    most = outlook(Priced(s, FACTS)).sustained_req_per_s
    found: dict[str, Any] = {"mode": s.deployment.mode, "misses": []}
    for factor in (1.05, 1.15, 1.3):
        beyond = with_span(s, FACTS, factor * most)
        beyond = with_load(beyond, factor * most)
        called = [
            simulate(with_overrides(beyond, {"seed": seed}), FACTS).summary.get("steady_state")
            for seed in range(1, SEEDS + 1)
        ]
        found[str(factor)] = called.count("overloaded")
        if called.count("overloaded") < SEEDS:
            found["misses"].append(factor)
    return found


BARS: dict[str, Callable[[int], dict[str, Any]]] = {
    "steady": steady_start,
    "capacity": one_capacity,
    "overload": overload,
}

if __name__ == "__main__":
    for draw in range(int(sys.argv[2]), int(sys.argv[3])):
        sys.stdout.write(json.dumps({"draw": draw} | BARS[sys.argv[1]](draw)) + "\n")
        sys.stdout.flush()
