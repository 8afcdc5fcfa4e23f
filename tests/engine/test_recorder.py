"""The record: tables agree with each other and with what the requests did."""

import numpy as np
import polars as pl
import pytest

from tests.engine.small import MODES, end_of, machine_at_end, run, small, tables_of

BUSY = {
    "workload.prefix": "shared",
    "workload.rate_req_per_s": 60.0,
    "warmup_s": 0.0,
    "deployment.kv_transfer_plane": "vpc",
}


@pytest.fixture(params=MODES)
def answer(request):
    return run(BUSY | {"deployment.mode": request.param})


def test_windows_cut_the_horizon_evenly(answer):
    windows = answer.tables["windows"]
    assert windows["t_s"][0] == 0
    assert windows["window_s"].sum() == pytest.approx(answer.scenario.horizon_s)
    assert windows["t_s"].diff().drop_nulls().to_numpy() == pytest.approx(windows["window_s"][0])


def test_the_middle_of_the_machine_is_counted_as_the_stamps_say(answer):
    rows, windows = answer.tables["requests"], answer.tables["windows"]
    for name, begin, end in (
        ("prefill_running", "prefill_start_s", "prefill_end_s"),
        ("decode_running", "transfer_end_s", "finish_s"),
    ):
        horizon_s = answer.scenario.horizon_s
        stays = rows.select(pl.col(end).fill_null(horizon_s) - pl.col(begin)).to_series().sum()
        counted = windows[name].mean() * horizon_s
        assert counted == pytest.approx(stays, abs=0.02 * stays + 0.05), name


def test_operators_share_out_the_time(answer):
    operators = answer.tables["operators"]
    for phase, part in operators.group_by("phase"):
        total = part["total_s"].sum()
        assert part["share"].sum() == pytest.approx(1.0 if total else 0.0), phase
        if total:
            per = part["per_iteration_s"].sum() * part["iterations"][0]
            assert per == pytest.approx(total)


def test_the_operators_of_decode_are_its_iterations(answer):
    mode = answer.scenario.deployment.mode
    if mode in ("disaggregated", "decode_only"):
        decode = answer.tables["operators"].filter(pl.col("phase") == "decode")
        per_iteration_s = decode["per_iteration_s"].sum()
        assert per_iteration_s == pytest.approx(answer.summary["decode_iteration_s_mean"])


def test_ranks_are_the_dies_of_the_instances(answer):
    ranks, s = answer.tables["ranks"], answer.scenario
    assert ranks["die"].n_unique() == ranks.height == 2 * answer.summary["npus"]
    assert (ranks["npu"] == ranks["die"] // 2).all()
    assert (ranks["node"] == ranks["npu"] // s.supernode.npus_per_node).all()
    assert ranks["busy_fraction"].is_between(0, 1 + 1e-9).all()
    held = ranks["requests_mean"].sum()
    assert held <= answer.tables["windows"]["decode_running"].mean() * 1.02 + 0.05


def test_links_carry_what_the_planes_carried(answer):
    links, windows = answer.tables["links"], answer.tables["windows"]
    for plane in ("ub", "rdma", "vpc"):
        mine = links.filter(pl.col("plane") == plane)
        out = mine.filter(pl.col("direction") == "out")  # reads of the SSD tier come from outside
        assert mine["node"].n_unique() == answer.scenario.supernode.nodes
        assert (mine["utilisation_peak"] >= mine["utilisation_mean"] - 1e-12).all()
        assert (mine["utilisation_peak"] <= np.maximum(1.0, mine["utilisation_mean"])).all()
        capacity = out["capacity_bytes_per_s"].sum()
        used = windows[f"{plane}_utilisation"].mean()
        assert out["bytes"].sum() == pytest.approx(
            used * capacity * answer.scenario.horizon_s, rel=0.02, abs=1.0
        ), plane


def test_kv_that_moved_is_tokens_times_bytes():
    _, world = end_of(small(BUSY))
    r = world.request
    there = r.transfer_end_s <= world.settings.horizon_s
    size = world.settings.kv_bytes_per_token
    moved = float(r.input_tokens[there].astype(np.int64).sum()) * size
    assert world.decode.received_bytes.sum() == pytest.approx(moved)


def test_what_never_happened_is_null_not_a_number():
    rows = run({"workload.rate_req_per_s": 3000.0}).tables["requests"]
    waiting = rows.filter(pl.col("status") == "queued")
    assert waiting.height > 100
    assert waiting["finish_s"].null_count() == waiting.height
    assert rows["decode_rank"].null_count() == rows["decode_instance"].null_count()


def test_the_tables_know_no_request_that_never_arrived():
    loop = small({"workload.arrivals": "closed_loop", "workload.concurrency": 7})
    setup, machine = machine_at_end(loop)
    found = tables_of(setup, machine)
    assert found["requests"].height < len(setup.requests)
    assert found["requests"]["arrival_s"].is_finite().all()
