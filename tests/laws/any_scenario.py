"""Any valid scenario that a small number names: short, on a small machine, of any field.

Values come from the declarations, so a new field is drawn as soon as it is declared. What costs
time is kept small; every other bound is the declared one. `python -m tests.laws.any_scenario 5000`
runs so many, prints the numbers of those that break a law, and goes on.
"""

import math
import random
import sys
import time
import traceback
from typing import Any

from tests.engine.small import BASE, recorded
from tests.laws.lawful import lawful
from twin.engine.simulate import simulate
from twin.facts import FactError
from twin.lab.library import DATA, load_facts
from twin.scenario import Scenario, SpecError, fields, with_overrides
from twin.scenario.fields import ScenarioField
from twin.workload.requests import TraceTable

# Bounds of what costs time; everything else is drawn within its declared ones.
CHEAP: dict[str, tuple[float, float]] = {
    "horizon_s": (0.3, 4.0),
    "warmup_s": (0.0, 1.0),
    "step_s": (0.002, 0.5),
    "supernode.supernodes": (1, 2),
    "supernode.nodes": (1, 12),
    "supernode.npus_per_node": (1, 16),
    "supernode.sub_planes": (1, 9),
    "supernode.l1_uplinks": (1, 24),
    "workload.rate_req_per_s": (1.0, 400.0),
    "workload.concurrency": (1, 300),
    "workload.think_s": (0.0, 2.0),
    "workload.ramp_s": (0.0, 2.0),
    "workload.input_tokens": (1, 30_000),
    "workload.output_tokens": (1, 2_000),
    "workload.turn_gap_s": (0.1, 4.0),
    "workload.tool_gap_s": (0.05, 2.0),
    "workload.trace.tree_copies": (1, 4),
    "clients.timeout_s": (0.0, 2.0),
    "clients.answer_timeout_s": (0.0, 3.0),
    "clients.retries": (0, 3),
    "clients.backoff_s": (0.0, 1.0),
    "admission.rate_req_per_s": (0.0, 300.0),
    "admission.in_flight": (0, 200),
    "tenants[].rate_req_per_s": (0.0, 300.0),
    "tenants[].in_flight": (0, 200),
    "tenants[].pool_share": (0.0, 0.33),
    "deployment.first_npu": (0, 8),
    "deployment.prefill.instances": (1, 6),
    "deployment.prefill.npus_per_instance": (1, 24),
    "deployment.decode.instances": (1, 6),
    "deployment.decode.npus_per_instance": (1, 48),
    "deployment.colocated.instances": (1, 6),
    "deployment.colocated.npus_per_instance": (1, 24),
    "experts.shift_every_s": (0.2, 4.0),
    "experts.balancing.interval_s": (0.2, 3.0),
    "experts.balancing.window_s": (0.1, 3.0),
    "faults[].at_s": (0.0, 4.0),
    "faults[].duration_s": (0.0, 3.0),
    "faults[].period_s": (0.1, 2.0),
    "recovery.detection_s": (0.0, 2.0),
    "recovery.restart_s": (0.0, 3.0),
    "recovery.in_place_s": (0.0, 2.0),
}
LEFT_ALONE = ("experts.counts.digest", "workload.trace.digest", "supernode.dimensions")
ELEMENTS = (
    "die {n}.{k}.0", "die {n}.{k}.1", "NPU {n}.{k}", "node {n}", "L1 {n}.{p}", "L2 {p}.{k}",
    "sub-plane {p}", "NIC {n}.{k}.0", "CPU {n}.{c}", "RDMA network", "VPC network", "rack 0",
)  # fmt: skip
BROUGHT = "0" * 64
MOST_CHANGED = 14


def any_scenario(number: int) -> tuple[Scenario, TraceTable | None]:
    """The scenario of a number, and the recorded stream if it replays one."""
    draw = random.Random(f"scenario {number}")
    while True:
        try:
            scenario = with_overrides(BASE, _settings(draw))
        except SpecError:  # fields that cannot hold together: others then
            continue
        return scenario, _trace(draw) if scenario.workload.arrivals == "trace" else None


def _settings(draw: random.Random) -> dict[str, Any]:
    known = {p: f for p, f in fields().items() if "[]" not in p and p not in LEFT_ALONE}
    chosen = draw.sample(sorted(known), draw.randint(1, MOST_CHANGED))
    settings = {path: _value(draw, known[path]) for path in chosen}
    settings["horizon_s"] = _value(draw, known["horizon_s"])
    settings["warmup_s"] = draw.uniform(0.0, 0.9) * settings["horizon_s"]
    settings["start"] = draw.choice(("steady", "empty"))
    if settings.get("workload.arrivals") == "trace":
        settings["workload.trace.digest"] = BROUGHT
    return settings


def _model(draw: random.Random, number: int) -> dict[str, Any]:
    """A further model with small instances and traffic of its own."""
    deployment = BASE.deployment.model_dump(mode="json") | {
        "mode": draw.choice(("disaggregated", "colocated", "prefill_only", "decode_only")),
        "kv_transfer_plane": draw.choice(("rdma", "ub", "vpc")),
    }
    workload = {
        "rate_req_per_s": draw.uniform(1.0, 200.0), "input_tokens": draw.randint(1, 8000),
        "output_tokens": draw.randint(1, 200),
        "prefix": draw.choice(("none", "shared", "sessions")),
        "arrivals": draw.choice(("poisson", "gamma", "closed_loop")),
        "concurrency": draw.randint(1, 100),
    }  # fmt: skip
    elastic = {
        "controller": draw.choice(("fixed", "queue", "kv", "rebalance")),
        "npus": draw.choice((0, draw.randint(16, 40))), "interval_s": draw.uniform(0.5, 5.0),
        "high": draw.uniform(0.2, 1.0), "low": 0.1,
    }  # fmt: skip
    return {"name": f"further {number}", "deployment": deployment, "workload": workload,
            "elastic": elastic,
            "pool_share": draw.choice((0.0, draw.uniform(0.0, 0.4)))}  # fmt: skip


def _value(draw: random.Random, field: ScenarioField) -> Any:
    if field.path == "models":
        return [_model(draw, number) for number in range(draw.randint(1, 2))]
    if field.kind is tuple:
        rows = {p.partition("[].")[2]: f for p, f in fields().items()
                if p.startswith(field.path + "[].")}  # fmt: skip
        return [_row(draw, rows) for _ in range(draw.randint(1, 3))]
    if field.files:
        names = [path.stem for path in (DATA / field.files).glob("*.toml")]
        return draw.choice(sorted(names) or [field.default])
    if field.options:
        return draw.choice(sorted(field.options))
    if field.kind is bool:
        return draw.random() < 0.5
    if field.low is None or field.high is None:
        return field.default
    low, high = CHEAP.get(field.path, (field.low, field.high))
    if draw.random() < 0.15:
        number = draw.choice((low, high))
    else:  # around the default, more often than far away
        middle = min(max(field.default or 1.0, low, 1e-3), high)
        number = middle * math.exp(draw.gauss(0.0, 1.5))
    number = min(max(number, low), high)
    return round(number) if field.kind is int else number


def _row(draw: random.Random, rows: dict[str, ScenarioField]) -> dict[str, Any]:
    row = {n: _value(draw, f) for n, f in rows.items() if f.required or draw.random() < 0.4}
    for name in ("element", "to"):
        if name in row:
            row[name] = draw.choice(ELEMENTS).format(
                n=draw.randint(0, 4), k=draw.randint(0, 7), p=draw.randint(0, 6),
                c=draw.randint(0, 3),
            )  # fmt: skip
    if "name" in row:
        row["name"] = f"{draw.randint(0, 99)}"
    return row


def _trace(draw: random.Random) -> TraceTable:
    count = draw.randint(1, 80)
    arrivals, now = [], 0.0
    for _ in range(count):
        now += draw.choice((0.0, draw.expovariate(40.0)))
        arrivals.append(now)
    inputs = [draw.randint(1, 6000) for _ in range(count)]
    outputs = [draw.randint(1, 300) for _ in range(count)]
    return recorded(arrivals, inputs, outputs)


def outcome(number: int) -> str:
    """'' where a run keeps every law; the sentence where the question is refused.

    Whatever else it raises is a fault of the twin.
    """
    scenario, trace = any_scenario(number)
    try:
        run = simulate(scenario, load_facts(), trace)
    except (ValueError, FactError) as error:
        if not type(error).__module__.startswith("twin.") or "\n" in str(error):
            raise
        return str(error)
    lawful(run)
    return ""


def main(count: int, first: int = 0) -> None:
    """Run scenarios by number, and print what breaks."""
    kept = refused = 0
    broken: list[int] = []
    start_s = time.perf_counter()
    for number in range(first, first + count):
        begun_s = time.perf_counter()
        try:
            sentence = outcome(number)
            kept += not sentence
            refused += bool(sentence)
        except Exception:  # reported, and the next one is tried
            broken.append(number)
            print(number, traceback.format_exc(limit=-3), flush=True)  # noqa: T201
        taken_s = time.perf_counter() - begun_s
        if taken_s > 20.0:
            print(f"{number} took {taken_s:.0f} s", flush=True)  # noqa: T201
        if number % 100 == 99 or number == first + count - 1:
            counts = f"{kept} ran, {refused} refused, {len(broken)} broken {broken[-9:]}"
            print(f"{number + 1}: {counts}, {time.perf_counter() - start_s:.0f} s", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
