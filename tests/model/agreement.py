"""What tests of several parallelisms ask alike: an iteration by ranks, formula against run."""

import numpy as np
import pytest

from twin.engine.simulate import simulate
from twin.facts import Facts
from twin.model.costs import RoleCosts
from twin.model.decode import decode_iteration_s
from twin.model.predict import EVEN
from twin.scenario import Scenario, with_overrides
from twin.steady import full_traffic, predict_steady

MODES = ("decode_only", "colocated")
# Full slots; clients begin one after the other, with answers of unequal length.
FULL = {
    "deployment.decode.batch_per_npu": 16, "workload.concurrency": 128,
    "workload.arrivals": "closed_loop", "workload.ramp_s": 20.0, "workload.lengths": "sharegpt",
    "horizon_s": 260.0, "warmup_s": 60.0, "experts.placement": "perfect",
    "deployment.decode.instances": 1, "deployment.colocated.instances": 1,
}  # fmt: skip


def agree(own: Scenario, mode: str, facts: Facts) -> None:
    """Demand that the TPOT of full slots is the formula's within 2 %, and that all laws hold."""
    scenario = with_overrides(own, FULL | {"deployment.mode": mode})
    found = simulate(scenario, facts)
    assert all(check["ok"] for check in found.checks)
    full = predict_steady(scenario, facts, traffic=full_traffic(scenario, facts)).decode
    assert found.summary["tpot_s_mean"] == pytest.approx(full.tpot_s, rel=0.02)


def iteration_s(role: RoleCosts, requests: int, context: float) -> float:
    """Seconds of an iteration of so many requests, evenly over the ranks, each with so much
    context; its operators add up to it."""
    count = np.array([len(part) for part in np.array_split(np.arange(requests), role.ranks)])
    ops = role.operator_sink()
    took = float(decode_iteration_s(role.decode, count, count * context, 0, role.ranks, *EVEN, ops))
    assert took == pytest.approx(ops.sum())
    return took
