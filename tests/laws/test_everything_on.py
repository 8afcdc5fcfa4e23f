"""Everything at once that can be on together.

Sessions of tenants whose clients lose patience and ask again, fair queues that shed, a memory pool
of namespaces, tiers and answers, weighted scorers, experts that move and are balanced, a load that
rises, instances that change role, a power cap and a price: laws, determinism and step convergence.
"""

from functools import cache

import polars as pl
import pytest

from tests.engine.small import facts_with, small
from tests.laws.lawful import lawful
from twin.engine import balancing
from twin.engine.simulate import simulate

QUICK = facts_with({"startup.process": 0.6, "startup.compile": 0.8, "startup.regroup": 0.3})
ON = {
    "horizon_s": 24.0,
    "warmup_s": 2.0,
    "workload.arrivals": "gamma",
    "workload.cv": 2.0,
    "workload.rate_req_per_s": 60.0,
    "workload.lengths": "azure-2023-conv",
    "workload.prefix": "sessions",
    "workload.turns": "wait",
    "workload.follow_up_probability": 0.7,
    "workload.turn_gap_s": 0.5,
    "workload.tool_share": 0.5,
    "workload.tool_gap_s": 0.2,
    "workload.profile.shape": "step",
    "workload.profile.at_s": 8.0,
    "workload.profile.low": 0.5,
    "workload.profile.high": 8.0,
    "clients.timeout_s": 1.0,
    "clients.answer_timeout_s": 8.0,
    "clients.retries": 2,
    "clients.backoff_s": 0.2,
    "tenants": [
        {"name": "chat", "weight": 2.0, "pool_share": 0.5, "ttft_s": 0.5, "tpot_ms": 30.0},
        {"name": "batch", "share": 3.0, "pool_share": 0.3, "in_flight": 300},
        {"name": "rest", "priority": 1, "rate_req_per_s": 60.0},
    ],
    "admission.order": "fair",
    "admission.shed_at": 0.5,
    "admission.rate_req_per_s": 400.0,
    "admission.in_flight": 2000,
    "router.policy": "weighted",
    "router.prefix_weight": 3.0,
    "memory_pool.policy": "s3_fifo",
    "memory_pool.store": "yuanrong",
    "memory_pool.gb_per_node": 0.3,
    "memory_pool.ssd_gb_per_node": 2.0,
    "memory_pool.answers": True,
    "experts.drift_s": 5.0,
    "experts.redundant": 16,
    "experts.balancing.policy": "periodic",
    "experts.balancing.interval_s": 4.0,
    "experts.balancing.window_s": 2.0,
    "deployment.prefill.tokens_per_npu": 512,
    "elastic.controller": "rebalance",
    "elastic.npus": 32,
    "elastic.interval_s": 1.0,
    "elastic.metrics_age_s": 0.2,
    "elastic.cool_down_s": 1.0,
    "elastic.shrink_after_s": 1.0,
    "elastic.changes_per_hour": 600,
    "elastic.drain": "hand_on",
    "cost.price_per_npu_hour": 2.0,
    "cost.cap_w": 330.0,
}
# A load that the machine takes, and nobody who decides by what was seen: a controller of so few
# instances takes another course with another step, as with another seed (test_elastic asks one).
STEADY = ON | {
    "workload.rate_req_per_s": 40.0,
    "workload.profile.high": 4.0,
    "elastic.controller": "schedule",
    "elastic.npus": 16,
    "elastic.schedule": [
        {"at_s": 4.0, "prefill": 1, "decode": 3},
        {"at_s": 10.0, "prefill": 2, "decode": 2},
    ],
}
WITHIN = {"ttft_s_mean": 0.03, "hit_token_ratio": 0.02, "tpot_s_mean": 0.01, "npu_hours": 0.01,
          "throughput_req_per_s": 0.01, "output_tokens_per_s": 0.01, "power_kw": 0.01}  # fmt: skip
SEEDS = (1, 2, 3, 4, 5, 6)


@pytest.fixture(autouse=True)
def few_looks(monkeypatch):
    """Popularity that moves is looked at a dozen times a run, a tenth as often as else."""
    monkeypatch.setattr(balancing, "REFRESHES", 12)


@cache
def answer():
    return simulate(small(ON), QUICK)


def test_everything_happens_and_every_law_holds():
    run = answer()
    lawful(run)
    counts = ("cancelled", "asked_again", "rejected", "rebalances", "sessions_finished", "starts",
              "role_changes", "hit_token_ratio", "cost_per_million_tokens")  # fmt: skip
    assert {key: run.summary[key] for key in counts if not run.summary[key]} == {}
    assert run.summary["prefill_clock"] < 1.0 and run.summary["fairness"] < 1.0
    moved = dict(run.tables["traffic"].group_by("traffic").agg(pl.col("bytes").sum()).iter_rows())
    assert min(moved[kind] for kind in ("pool_read", "pool_write", "ssd_read", "ssd_write")) > 0
    reasons = set(run.tables["requests"]["reason"].cast(str))
    assert {text.partition(":")[2] for text in reasons if text.startswith("refused")} == {
        " predicted time to first token too long", " above the concurrency limit",
        " above the rate limit",
    }  # fmt: skip


def test_the_same_question_has_the_same_bytes():
    assert simulate(small(ON), QUICK).digest == answer().digest


def test_headline_figures_do_not_depend_on_the_step():
    means = []
    for step_s in (0.005, 0.00125):
        runs = [simulate(small(STEADY | {"seed": k, "step_s": step_s}), QUICK) for k in SEEDS]
        assert all(run.summary["cancelled"] and run.summary["role_changes"] for run in runs)
        means.append({key: sum(r.summary[key] for r in runs) / len(runs) for key in WITHIN})
    usual, finer = means
    assert {k: finer[k] / usual[k] - 1.0 for k in WITHIN if abs(finer[k] / usual[k] - 1.0)
            > WITHIN[k]} == {}  # fmt: skip
