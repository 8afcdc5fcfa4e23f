"""Findings of what happened while a run went on: faults, moved experts, shared ports."""

import numpy as np
import polars as pl
import pytest

from tests.metrics.test_resilience import events
from tests.ui.fake_run import fake_summary, fake_tables
from twin.metrics.explain import explain
from twin.metrics.measures import amount
from twin.scenario import Scenario, with_overrides


@pytest.fixture(scope="module")
def run():
    scenario = Scenario(warmup_s=10)
    tables = fake_tables(scenario)
    return scenario, fake_summary(scenario, tables), tables


def findings(scenario, summary, tables, topic):
    return [f for f in explain(scenario, summary, tables) if f.topic == topic]


def instances(scenario, **columns):
    """Two decode instances and a prefill instance in ten windows, all columns known."""
    n = 10
    base = {"queue": 1.0, "running": 9.0, "busy": 0.8, "iteration_s": 0.05, "hot_factor": 1.0,
            "contention": 1.0, "up": 1.0}  # fmt: skip
    frames = []
    for role, index in (("decode", 0), ("decode", 1), ("prefill", 0)):
        values = base | ({k: v for k, v in columns.items()} if role == "decode" else {})
        frames.append(
            pl.DataFrame(
                {
                    "t_s": np.arange(n) * scenario.horizon_s / n,
                    "window_s": np.full(n, scenario.horizon_s / n),
                    "role": [role] * n,
                    "instance": np.full(n, index, np.int32),
                    **{k: np.broadcast_to(np.asarray(v, float), n) for k, v in values.items()},
                }
            )
        )
    return pl.concat(frames)


def traffic(*rows):
    names = ["plane", "traffic", "role", "instance", "bytes"]
    return pl.DataFrame(rows, schema=names, orient="row")


def test_a_run_in_which_nothing_happened_has_none_of_these(run):
    calm = run[2] | {"events": events(), "instances": instances(run[0]), "traffic": traffic()}
    for topic in ("fault", "moves", "contention"):
        assert not findings(*run, topic)
        assert not findings(run[0], run[1], calm, topic)


def test_contention_names_the_traffic_in_the_way_and_the_plane_that_is_free(run):
    scenario = with_overrides(run[0], {"deployment.kv_transfer_plane": "ub"})
    more = {
        "instances": instances(scenario, contention=1.18),
        "traffic": traffic(
            ("ub", "experts", "decode", 0, 9e9), ("ub", "kv_hand_off", "prefill", 0, 5e9),
            ("ub", "pool_read", "prefill", 0, 1e9), ("rdma", "ssd_read", "decode", 0, 8e9),
        ),
    }  # fmt: skip
    (found,) = findings(scenario, run[1], run[2] | more, "contention")
    assert "decode wait for the KV hand-off on the same ports of the UB plane" in found.what
    assert "1.18x on the wire" in found.what
    share = (3 + 4) / 31  # dispatch and combine of the made-up iteration
    assert amount(share * (1 - 1 / 1.18), "share") in found.what
    assert found.settings == {"deployment.kv_transfer_plane": "rdma"}


def test_the_mean_weighs_windows_by_work_and_the_worst_is_told(run):
    slow = [1.0] * 8 + [1.5, 3.0]
    busy = [1.0] * 9 + [0.0]
    more = {"instances": instances(run[0], contention=slow, busy=busy)}
    (found,) = findings(run[0], run[1], run[2] | more, "contention")
    # After the warm-up of 10 s of 120: nine windows count, the idle last one weighs nothing.
    assert f"{(7 + 1.5) / 8:.2f}x on the wire, 1.50x in the worst window" in found.what


def test_uneven_experts_are_judged_by_what_the_iterations_met(run):
    drifting = with_overrides(run[0], {"experts.drift_s": 600.0})
    more = {"instances": instances(run[0], hot_factor=[1.5] * 9 + [2.4])}
    (found,) = findings(drifting, run[1], run[2] | more, "experts")
    mean = (8 * 1.5 + 2.4) / 9
    assert f"carries {mean:.2f} times the mean expert load (2.40 in the worst window)" in found.what
    assert amount(5 / 31 * (1 - 1 / mean), "share") in found.what
    assert found.settings == {"experts.balancing.policy": "periodic"}
    steady = findings(run[0], run[1], run[2] | more, "experts")[0]
    assert steady.settings == {"experts.placement": "perfect"}


def test_faults_tell_the_dip_and_offer_what_would_shorten_it(run):
    scenario = with_overrides(run[0], {"recovery.policy": "restart"})
    windows = run[2]["windows"].with_columns(
        output_tokens_per_s=pl.when(pl.col("t_s").is_between(60.0, 101.0))
        .then(40_000.0)
        .otherwise(100_000.0)
    )
    more = {
        "windows": windows,
        "events": events(
            {"t_s": 60.0, "kind": "fault", "element": "NPU 20.1", "detail": "failed"},
            {"t_s": 61.0, "end_s": 101.2, "kind": "instance_down", "role": "decode",
             "instance": 0},
        ),
    }  # fmt: skip
    (found,) = findings(scenario, run[1], run[2] | more, "fault")
    assert found.what.startswith("NPU 20.1 (failed) at 60.0 s: output fell from 100,000 tokens/s")
    assert "Decode 0 was down for 40.2 s." in found.what
    assert found.settings == {"recovery.policy": "in_place"}
    assert found.weight > 0.6


def test_many_faults_are_told_by_the_worst_of_them(run):
    rows = [{"t_s": 20.0 + 10 * k, "kind": "fault", "element": f"node {k}"} for k in range(6)]
    found = findings(run[0], run[1] | {"down_s": 7.0}, run[2] | {"events": events(*rows)}, "fault")
    assert len(found) == 4 and any("6 faults in all" in f.what for f in found)


def test_moved_experts_are_counted_and_weighed(run):
    scenario = with_overrides(run[0], {"experts.balancing.policy": "periodic",
                                       "experts.balancing.swap": "stall"})  # fmt: skip
    rows = [
        {"t_s": t, "end_s": t + 3.0, "kind": "rebalance", "bytes": 2e11,
         "detail": "12 layers, hottest/mean 1.84 -> 1.21"}
        for t in (30.0, 90.0)
    ]  # fmt: skip
    (found,) = findings(scenario, run[1], run[2] | {"events": events(*rows)}, "moves")
    assert "moved 2 times, 400 GB in all, in 3.00 s each" in found.what
    assert "1.84 -> 1.21" in found.what
    assert found.settings == {"experts.balancing.swap": "background"}


def test_every_offer_is_a_scenario_that_can_be(run):
    scenario = with_overrides(run[0], {"deployment.kv_transfer_plane": "ub"})
    more = {
        "instances": instances(scenario, contention=1.5, hot_factor=2.0),
        "traffic": traffic(
            ("ub", "experts", "decode", 0, 1.0), ("ub", "weights", "decode", 0, 9.0)
        ),
        "events": events({"t_s": 60.0, "kind": "fault", "element": "die 0.0.0"}),
    }
    offers = [f for f in explain(scenario, run[1], run[2] | more) if f.settings]
    assert offers
    for finding in offers:
        assert with_overrides(scenario, dict(finding.settings)) != scenario
