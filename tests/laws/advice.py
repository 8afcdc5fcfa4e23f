"""Scenarios to judge advice by, and the judge; small machines, so that hundreds of runs are cheap.

`varied(n)` draws scenario n: load, lengths, policies, faults, traces, machine. `PLANTED` holds
scenarios that are well but for one cause. Nothing here knows how causes are found.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.made_trace import made_trace
from twin.engine.simulate import simulate
from twin.facts import Facts
from twin.lab.explain.explain import Explanation
from twin.lab.explain.runs import Gain
from twin.metrics.registry import METRICS
from twin.outlook import outlook
from twin.scenario import Scenario, parse_scenario, with_overrides
from twin.steady import Priced
from twin.workload.generate import TraceTable

HELD_OUT = (910_001, 910_003, 910_007)  # seeds that no explanation uses
T_95 = 4.303  # two-sided 95 %, two degrees of freedom
REQUESTS = 1500  # of a drawn scenario, about

LITE: dict[str, Any] = {  # 24 NPUs that serve a small model: 8 prefill, 8 decode, 8 are idle
    "supernode": {"nodes": 3},
    "deployment": {
        "model": "deepseek-v2-lite",
        "prefill": {"instances": 2, "npus_per_instance": 4},
        "decode": {"instances": 1, "npus_per_instance": 8, "mtp_draft_tokens": 0,
                   "batch_per_npu": 48},
    },
    "experts": {"redundant": 8},
    "workload": {"input_tokens": 2048, "output_tokens": 256},
    "slo": {"ttft_s": 1.0, "tpot_ms": 20.0},
}  # fmt: skip
R1: dict[str, Any] = {  # 64 NPUs that serve DeepSeek-R1: 16 prefill, 32 decode, 16 are idle
    "supernode": {"nodes": 8},
    "deployment": {
        "prefill": {"instances": 1, "npus_per_instance": 16},
        "decode": {"instances": 1, "npus_per_instance": 32, "batch_per_npu": 48},
    },
    "workload": {"input_tokens": 4096, "output_tokens": 256},
    "slo": {"ttft_s": 2.5, "tpot_ms": 40.0},
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A question, with the trace that it replays."""

    scenario: Scenario
    trace: TraceTable | None = None


def at_share(s: Scenario, facts: Facts, share: float, requests: int = REQUESTS) -> Scenario:
    """The scenario at a share of the rate that the formulas say it can serve, and long enough."""
    most = outlook(Priced(s, facts))
    rate = float(f"{share * (most.slo_req_per_s or most.sustained_req_per_s):.3g}")
    horizon_s = float(f"{min(120.0, max(12.0, requests / rate)):.3g}")
    times = {"horizon_s": horizon_s, "warmup_s": round(0.3 * horizon_s, 1)}
    return with_overrides(s, {"workload.rate_req_per_s": rate, **times})


def varied(number: int, facts: Facts) -> Case:
    """Scenario `number` of any count: the same every time."""
    draw = random.Random(f"advice {number}")
    lite = draw.random() < 0.75
    s = parse_scenario(LITE if lite else R1)
    pick: Callable[..., Any] = draw.choice
    wishes: dict[str, Any] = {
        "name": f"varied {number}",
        "seed": number + 1,
        "workload.arrivals": pick(["poisson", "poisson", "gamma", "uniform"]),
        "workload.cv": pick([1.5, 3.0]),
        "workload.prefix": pick(["none", "none", "shared", "sessions"]),
        "router.policy": pick(
            ["round_robin", "least_loaded", "power_of_two", "prefix_affinity", "session_sticky"]
        ),
        "experts.placement": pick(
            ["round_robin", "eplb", "eplb", "eplb_groups", "greedy", "topology", "perfect"]
        ),
        "experts.skew": pick([0.5, 1.0, 1.0, 1.6]),
        "experts.balancing.policy": pick(["none", "none", "periodic", "threshold", "layer_budget"]),
        "experts.balancing.interval_s": 10.0,
        "experts.balancing.window_s": 10.0,
        "deployment.decode.batch_per_npu": pick([24, 48, 96, 128]),
        "deployment.decode.rank_choice": pick(
            ["kv_and_requests", "kv_tokens", "requests", "round_robin"]
        ),
        "deployment.prefill.attention": pick(["sp_tp_sp", "sp_tp_sp", "dp"]),
        "deployment.prefill.dp_balance": pick(["tokens", "attention"]),
        "deployment.prefill.chunk_tokens": pick([0, 0, 4096]),
        "deployment.precision.kv": pick(["bf16", "int8"]),
        "deployment.kv_transfer_plane": pick(["rdma", "ub"]),
        "memory_pool.scope": pick(["shared", "local"]),
        "memory_pool.plane": pick(["ub", "vpc"]),
        "front_end.api_servers": pick([2, 4, 16]),
        "slo.ttft_s": pick([0.5, 1.0, 2.0, 4.0]),
        "slo.tpot_ms": pick([12.0, 20.0, 40.0]) if lite else pick([25.0, 40.0, 60.0]),
        "workload.input_tokens": pick([512, 2048, 4096, 8192]),
        "workload.output_tokens": pick([64, 256, 512]),
    }
    if draw.random() < 0.2:
        wishes["workload.lengths"] = pick(["azure-2023-conv", "sharegpt"])
    if draw.random() < 0.15:
        wishes |= {"deployment.mode": "colocated", "deployment.colocated.npus_per_instance":
                   8 if lite else 32}  # fmt: skip
    share = draw.uniform(0.1, 2.0)
    s = at_share(with_overrides(s, wishes), facts, share)
    if draw.random() < 0.25:
        element, kind = pick([("die 0.1.0", "fail"), ("NPU 1.0", "fail"), ("die 1.1.0", "slow"),
                              ("node 1", "derate"), ("NPU 0.2", "fail")])  # fmt: skip
        broken = {"at_s": round(0.5 * s.horizon_s, 1), "element": element, "kind": kind,
                  "factor": 0.4}  # fmt: skip
        s = with_overrides(s, {"faults": [broken], "recovery.policy":
                               pick(["in_place", "restart", "shrink"])})  # fmt: skip
    if number % 8 == 7:
        return _recorded(s, draw)
    return Case(s)


def _recorded(s: Scenario, draw: random.Random) -> Case:
    """The scenario with a recorded stream of as many requests, bursts and all, for its arrivals."""
    noise = np.random.default_rng(draw.randrange(2**31))
    count = max(50, round(s.workload.rate_req_per_s * s.horizon_s))
    gaps = noise.gamma(0.5, 2.0, count) * (0.98 * s.horizon_s / count)
    arrival = np.cumsum(gaps) * (0.97 * s.horizon_s / max(gaps.sum(), 1e-9))
    tokens = np.minimum(noise.lognormal(7.0, 0.8, count), 16_000).astype(np.int32) + 1
    answers = np.minimum(noise.lognormal(5.0, 0.6, count), 2000).astype(np.int32) + 2
    table = made_trace(arrival - arrival[0], tokens, answers, conversations=False, name="drawn")
    wishes = {"workload.arrivals": "trace", "workload.prefix": "none",
              "workload.trace.digest": table.digest}  # fmt: skip
    return Case(with_overrides(s, wishes), table)


@dataclass(frozen=True)
class Judged:
    """What became of a suggestion on seeds that it did not know."""

    key: str
    metric: str
    promise: float
    gains: tuple[float, ...]  # improvement of the metric, a seed each
    attained: tuple[tuple[float, float], ...]  # SLO attainment without and with it

    @property
    def mean(self) -> float:
        """Mean improvement."""
        return float(np.mean(self.gains))

    @property
    def margin(self) -> float:
        """Half of the 95 % interval of the mean improvement."""
        return T_95 * float(np.std(self.gains, ddof=1)) / len(self.gains) ** 0.5

    @property
    def kept(self) -> bool:
        """Whether half of what was promised lies in or below the 95 % interval of what came."""
        return self.mean > 0 and self.mean + self.margin >= 0.5 * self.promise

    @property
    def surely_kept(self) -> bool:
        """Whether the whole 95 % interval lies above half of what was promised."""
        return self.mean - self.margin >= 0.5 * self.promise

    @property
    def harmless(self) -> bool:
        """Whether no SLO attainment is lower on average."""
        before, after = np.mean(self.attained, axis=0)
        return bool(after >= before)


def judged(case: Case, gain: Gain, key: str, facts: Facts, befores: list[dict[str, Any]]) -> Judged:
    """A suggestion over the full horizon, on seeds of its own; the summaries without it."""
    better = with_overrides(case.scenario, gain.settings)
    sign = 1.0 if METRICS[gain.metric].better == "higher" else -1.0
    gains, kept = [], []
    for seed, before in zip(HELD_OUT, befores, strict=True):
        after = simulate(with_overrides(better, {"seed": seed}), facts, case.trace).summary
        figures = [float(x[gain.metric] or 0.0) for x in (before, after)]
        gains.append(sign * (figures[1] - figures[0]))
        kept.append((float(before["slo_attainment"] or 0), float(after["slo_attainment"] or 0)))
    return Judged(key, gain.metric, gain.promise, tuple(gains), tuple(kept))


def top_three(case: Case, explained: Explanation, facts: Facts) -> list[Judged]:
    """The three first suggestions, judged."""
    suggested = [m for m in explained.causes if m.suggestion is not None]
    befores = [
        simulate(with_overrides(case.scenario, {"seed": seed}), facts, case.trace).summary
        for seed in HELD_OUT
    ]
    return [judged(case, m.suggestion, m.cause.key, facts, befores) for m in suggested[:3]]


@dataclass(frozen=True)
class Planted:
    """A scenario that is well but for one cause, and the entries that name it."""

    base: dict[str, Any]
    share: float  # of what the base sustains
    wishes: dict[str, Any]  # the cause
    named: tuple[str, ...]
    scaled: dict[str, float] | None = None  # facts times a factor


def planted(name: str, known: Planted, facts: Facts) -> tuple[Case, Facts]:
    """The scenario of a planted cause, and the facts it is asked with."""
    s = at_share(parse_scenario(known.base), facts, known.share)
    s = with_overrides(s, {"name": name, **known.wishes})
    changes = {key: facts[key].value * factor for key, factor in (known.scaled or {}).items()}
    return Case(s), facts.replaced(changes) if changes else facts


def _fault(element: str, kind: str = "fail", **more: Any) -> dict[str, Any]:
    return {"faults": [{"at_s": 10.0, "element": element, "kind": kind, **more}],
            "horizon_s": 40.0, "warmup_s": 6.0}  # fmt: skip


SKEWED = {"experts.skew": 1.8}
PLANTED: dict[str, Planted] = {
    "tiny UB links": Planted(R1, 0.5, {"supernode.ub_link_gb_per_s": 0.5}, ("links",)),
    "tiny RDMA": Planted(LITE, 0.5, {"supernode.rdma_gb_per_s_per_npu": 0.1},
                         ("links", "kv_transfer")),
    "tiny HBM": Planted(LITE, 0.6, {"workload.output_tokens": 1024}, ("kv_space",),
                        {"chips.ascend-910c.hbm_capacity": 0.13}),
    "small KV space": Planted(
        {**R1, "workload": {"input_tokens": 16_384, "output_tokens": 2048}}, 0.8, {},
        ("kv_space",), {"chips.ascend-910c.hbm_capacity": 0.74}),
    "hot experts": Planted(R1, 0.6, {"experts.skew": 2.0, "experts.placement": "round_robin",
                                     "experts.redundant": 0}, ("imbalance",)),
    "bad placement": Planted(LITE, 0.7, {**SKEWED, "experts.placement": "round_robin"},
                             ("imbalance",)),
    "popularity that shifts": Planted(R1, 0.6, {**SKEWED, "experts.shift_every_s": 8.0},
                                      ("imbalance",)),
    "one prefill instance too few": Planted(
        LITE, 0.8, {"deployment.prefill.instances": 1}, ("prefill",)),
    "decode too small": Planted(
        LITE, 0.6, {"deployment.decode.npus_per_instance": 2, "workload.output_tokens": 512},
        ("decode",)),
    "too much offloaded": Planted(
        R1, 0.6, {"deployment.decode.attention_offload": 0.8, "deployment.prefill.lent_cores": 0.05,
                  "deployment.prefill.tokens_per_npu": 4096}, ("offload",)),
    "slow front end": Planted(LITE, 0.5, {"front_end.api_servers": 1, "front_end.service_ms": 12.0},
                              ("front_end",)),
    "failed die": Planted(LITE, 0.5, _fault("die 1.0.0"), ("fault",)),
    "failed node": Planted(R1, 0.5, _fault("node 1"), ("fault",)),
    "straggler": Planted(LITE, 0.6, _fault("die 1.0.0", "slow", factor=0.15), ("fault",)),
    "derated node": Planted(R1, 0.5, _fault("node 3", "derate", factor=0.01), ("fault",)),
    "links out of order": Planted(
        R1, 0.5, {"supernode.edits": [{"element": "node 3", "capacity_factor": 0.01}]},
        ("edits",)),
    "long prompts": Planted(LITE, 0.02, {"workload.input_tokens": 120_000}, ("prompts",)),
    "low acceptance": Planted(R1, 0.6, {"deployment.decode.mtp_acceptance": 0.02,
                                        "slo.tpot_ms": 26.0}, ("acceptance",)),
    "host gap": Planted(LITE, 0.5, {"deployment.optimisations.host_gap_ms": 20.0}, ("host",)),
    "exchange as it was": Planted(
        R1, 0.5, {"deployment.communication.fused": False,
                  "deployment.communication.early_quantisation": False,
                  "slo.tpot_ms": 26.0}, ("switches",)),
    "no memory pool": Planted(
        LITE, 0.9, {"memory_pool.enabled": False, "workload.prefix": "shared",
                    "workload.shared_fraction": 0.9, "supernode.nodes": 2},
        ("memory_pool",)),
    "overload": Planted({**LITE, "supernode": {"nodes": 2}}, 1.8, {}, ("load",)),
    "batch too small": Planted(R1, 0.6, {"deployment.decode.batch_per_npu": 2}, ("batch",)),
    "batch too large": Planted(
        {**R1, "supernode": {"nodes": 6}}, 0.5,
        {"workload.arrivals": "closed_loop", "workload.concurrency": 4000,
         "deployment.decode.batch_per_npu": 128, "slo.ttft_s": 60.0, "slo.tpot_ms": 32.0},
        ("batch", "load")),
    "KV over the data centre's network": Planted(
        LITE, 0.5, {"deployment.kv_transfer_plane": "vpc",
                    "supernode.vpc_gb_per_s_per_node": 1.0}, ("kv_transfer", "links")),
}  # fmt: skip
