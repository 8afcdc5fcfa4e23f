"""The default router is not beaten: TTFT of every router at five loads of four workloads.

`python -m tests.laws.test_routers` writes the whole comparison, the table of
docs/studies/ROUTERS.md.
"""

import sys
from functools import cache
from typing import Any

import pytest

from tests.draws import some
from twin.engine.simulate import simulate
from twin.lab.library import load_facts
from twin.policies.router import ROUTERS
from twin.scenario import Scenario, parse_scenario, with_overrides

LEVEL = 1.03  # a router that is this close is as good
LOADS = (0.2, 0.35, 0.5, 0.65, 0.8)
FEW, MANY = 5000, 20_000  # requests; prompts of Mooncake need many: of few, means differ by 10 %
SEEDS = 5
# Requests per second that six prefill instances of 16 NPUs sustain, and the traffic.
WORKLOADS: dict[str, tuple[float, dict[str, Any]]] = {
    "fixed lengths": (130.0, {"input_tokens": 4096, "output_tokens": 8}),
    "Azure conversation": (460.0, {"lengths": "azure-2023-conv"}),
    "Mooncake sessions": (
        24.0,
        {"lengths": "mooncake-conversation", "prefix": "sessions", "turn_gap_s": 3.0},
    ),
    "popular prefixes": (190.0, {"input_tokens": 4096, "prefix": "shared", "shared_fraction": 0.6}),
}


def asked(workload: str, load: float, requests: int = FEW, **router: Any) -> Scenario:
    sustained, traffic = WORKLOADS[workload]
    rate = load * sustained
    horizon_s = round(requests / rate)
    base = parse_scenario(
        {
            "horizon_s": horizon_s, "warmup_s": 0.1 * horizon_s,
            "workload": {"rate_req_per_s": rate} | traffic,
            "deployment": {
                "mode": "prefill_only", "prefill": {"instances": 6, "npus_per_instance": 16},
            },
        }
    )  # fmt: skip
    return with_overrides(base, {f"router.{name}": value for name, value in router.items()})


@cache
def ttft_s(workload: str, load: float, policy: str, requests: int, seeds: int) -> float:
    scenario = asked(workload, load, requests, policy=policy)
    runs = [simulate(with_overrides(scenario, {"seed": k}), load_facts()) for k in range(seeds)]
    return sum(run.summary["ttft_s_mean"] for run in runs) / seeds


@pytest.mark.parametrize(
    "point", some([(0.65, FEW, 1)], *((load, MANY, SEEDS) for load in LOADS)), ids=str
)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_default_router_is_not_beaten(workload, point):
    default = Scenario().router.policy
    load, requests, seeds = point
    measured = {name: ttft_s(workload, load, name, requests, seeds) for name in ROUTERS}
    best = min(measured, key=measured.__getitem__)
    assert measured[default] <= LEVEL * measured[best], (best, measured)


def test_with_caches_of_their_own_instances_are_chosen_by_what_they_hold():
    """Local caches are where the stateless default loses: it does not go where the prefix lies."""
    local = {
        policy: simulate(
            with_overrides(
                asked("Mooncake sessions", 0.65, policy=policy), {"memory_pool.scope": "local"}
            ),
            load_facts(),
        ).summary
        for policy in ("least_loaded", "predicted_ttft")
    }
    blind, aware = local["least_loaded"], local["predicted_ttft"]
    assert aware["hit_token_ratio"] > 1.2 * blind["hit_token_ratio"]
    assert aware["ttft_s_mean"] < blind["ttft_s_mean"] / LEVEL


def comparison() -> None:
    """Print a row per workload and load: the default's mean TTFT, and the others against it."""
    default = Scenario().router.policy
    others = [name for name in ROUTERS if name != default]
    rows = [["workload", "load", default, *others], ["---"] * (3 + len(others))]
    for workload in WORKLOADS:
        for load in LOADS:
            s = {name: ttft_s(workload, load, name, MANY, SEEDS) for name in ROUTERS}
            cells = [f"{100 * (s[name] / s[default] - 1):+.1f} %" for name in others]
            rows.append([workload, str(load), f"{1e3 * s[default]:.0f} ms", *cells])
    sys.stdout.writelines(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    comparison()
