"""Laws of runs in which things break: nobody is forgotten, nothing hangs, prices come back."""

import random

import numpy as np
import polars as pl
import pytest

from tests.draws import seeds
from tests.engine.small import run, small
from tests.laws.lawful import lawful
from twin.engine.build import build_world
from twin.engine.lifecycle.agenda import Agenda
from twin.engine.lifecycle.incidents import Incidents
from twin.engine.lifecycle.life import Life
from twin.engine.lifecycle.machine import Machine
from twin.engine.setup import set_up
from twin.engine.simulate import simulate
from twin.lab.library import load_facts

BATCH = 4  # schedules of one test
QUICK = {"recovery.detection_s": 0.1, "recovery.in_place_s": 0.4, "recovery.restart_s": 0.8}


def element(draw):
    node, npu, die = draw.randrange(4), draw.randrange(8), draw.randrange(2)
    return draw.choice(
        [f"die {node}.{npu}.{die}", f"NPU {node}.{npu}", f"node {node}", f"CPU {node}.1",
         f"L1 {node}.{draw.randrange(7)}", f"L2 {draw.randrange(7)}.0", "sub-plane 3",
         f"NIC {node}.{npu}.{die}", f"Qingtian {node}", "RDMA network", "rack 0"]
    )  # fmt: skip


def draw_fault(draw):
    name = element(draw)
    slow = ["slow"] if name.startswith(("die", "NPU", "node")) else []
    return {
        "at_s": round(draw.uniform(0.0, 3.5), 3),
        "element": name,
        "kind": draw.choice(["fail", "fail", "derate", "flap", *slow]),
        "period_s": draw.choice([0.2, 1.0]),
        "factor": draw.choice([0.05, 0.5, 0.9]),
        "duration_s": draw.choice([0.0, 0.3, 1.5]),
    }


def schedule(number):
    """Fields of a run in which one to five things happen, drawn from the schedule's number."""
    draw = random.Random(number)
    faults = [draw_fault(draw) for _ in range(draw.randint(1, 5))]
    return QUICK | {
        "faults": faults,
        "seed": number,
        "recovery.policy": draw.choice(["restart", "in_place", "shrink"]),
        "recovery.spares": draw.random() < 0.5,
        "recovery.retries": draw.choice([0, 1, 5]),
        "recovery.lost_blocks": draw.choice(["ssd", "lost"]),
        "supernode.nodes": draw.choice([4, 4, 5]),
        "workload.rate_req_per_s": draw.choice([40.0, 200.0]),
        "workload.prefix": draw.choice(["none", "shared"]),
        "memory_pool.scope": draw.choice(["shared", "local"]),
        "deployment.mode": draw.choice(
            ["disaggregated", "disaggregated", "colocated", "prefill_only", "decode_only"]
        ),
        "deployment.kv_transfer_plane": draw.choice(["rdma", "ub", "vpc"]),
        "router.policy": draw.choice(["least_loaded", "round_robin", "session_sticky"]),
        "experts.balancing.policy": draw.choice(["none", "periodic"]),
        "experts.balancing.interval_s": 1.0,
        "memory_pool.enabled": draw.random() < 0.9,
        "experts.balancing.swap": draw.choice(["background", "stall"]),
        "supernode.supernodes": draw.choice([1, 1, 2]),
        "deployment.prefill.attention": draw.choice(["sp_tp_sp", "dp"]),
        "deployment.prefill.npus_per_instance": draw.choice([4, 6, 8]),
        "deployment.decode.npus_per_instance": draw.choice([4, 6, 8]),
        "workload.arrivals": draw.choice(["poisson", "poisson", "closed_loop"]),
        "memory_pool.plane": draw.choice(["ub", "vpc"]),
    }


def only_lives(found):
    """Every request is finished, rejected, lost with a reason, or still inside."""
    rows = found.tables["requests"]
    gone = rows.filter(pl.col("status").is_in(["rejected", "lost"]))
    assert (gone["reason"] != "").all()
    lost = rows.filter(pl.col("status") == "lost")
    assert (lost["retries"] > found.scenario.recovery.retries).all()
    kept = rows.filter(pl.col("status") != "lost")
    assert (kept["retries"] <= found.scenario.recovery.retries).all()


@pytest.mark.parametrize("batch", seeds(2))
def test_random_faults_forget_nobody(batch):
    for number in range(BATCH * batch, BATCH * (batch + 1)):
        found = simulate(small(schedule(number)), load_facts())
        lawful(found)
        only_lives(found)


def test_a_die_of_a_decode_instance_takes_it_down_and_it_comes_back():
    hit = {"faults": [{"at_s": 1.5, "element": "die 1.1.0"}], "recovery.spares": False}
    found = run(QUICK | hit)
    lawful(found)
    down = found.tables["events"].filter(pl.col("kind") == "instance_down").row(0, named=True)
    assert down["role"] == "decode"
    assert down["end_s"] - down["t_s"] == pytest.approx(0.1 + 0.4, abs=0.011)
    shrunk = found.tables["events"].filter(pl.col("kind") == "shrunk")
    assert shrunk["detail"][0] == "decode 0 serves with 7 of 8 dies"
    at = found.tables["instances"].filter((pl.col("role") == "decode") & (pl.col("instance") == 0))
    out = at.filter((pl.col("t_s") > down["t_s"]) & (pl.col("t_s") < down["end_s"] - 0.05))
    assert (out["up"] < 1e-9).all() and (at["up"].head(80) == 1).all()


def test_policies_throw_out_what_they_must():
    hit = {"faults": [{"at_s": 2.0, "element": "die 1.1.0"}], "workload.rate_req_per_s": 200.0}
    thrown = {
        policy: int(
            run(QUICK | hit | {"recovery.policy": policy}).tables["requests"]["retries"].sum()
        )
        for policy in ("restart", "in_place", "shrink")
    }
    assert thrown["restart"] > 4 * thrown["in_place"] > 0
    assert thrown["in_place"] == thrown["shrink"]


def test_links_that_come_back_leave_no_trace_in_prices():
    hit = {"faults": [{"at_s": 1.0, "element": "sub-plane 3", "duration_s": 0.5}]}
    broken, whole = run(hit), run({})

    def iterations(found):
        at = found.tables["instances"].filter(pl.col("role") == "decode")
        return at.filter(pl.col("t_s") < 0.95)["iteration_s"].to_numpy()

    np.testing.assert_array_equal(iterations(broken), iterations(whole))
    slow = (
        broken.tables["instances"]
        .filter((pl.col("role") == "decode") & pl.col("t_s").is_between(1.1, 1.4))["iteration_s"]
        .mean()
    )
    usual = (
        whole.tables["instances"]
        .filter((pl.col("role") == "decode") & pl.col("t_s").is_between(1.1, 1.4))["iteration_s"]
        .mean()
    )
    assert slow > usual


def test_a_straggler_slows_its_instance_and_no_other():
    hit = {"faults": [{"at_s": 1.0, "element": "die 1.1.0", "kind": "slow", "factor": 0.5}]}
    at = run(hit).tables["instances"].filter((pl.col("role") == "decode") & (pl.col("t_s") > 1.2))
    pace = {i: at.filter(pl.col("instance") == i)["iteration_s"].mean() for i in (0, 1)}
    assert pace[0] > 1.4 * pace[1]


def test_a_memory_server_that_fails_costs_hits_or_time():
    hit = {
        "faults": [{"at_s": 2.0, "element": "node 3"}],
        "workload.prefix": "shared",
        "workload.prefix_groups": 4,
        "workload.rate_req_per_s": 60.0,
    }
    base = {k: v for k, v in hit.items() if k != "faults"}
    lost = run(QUICK | hit | {"recovery.lost_blocks": "lost"})
    read_again = run(QUICK | hit | {"recovery.lost_blocks": "ssd"})
    whole = run(QUICK | base)

    def hits(found):
        return found.tables["requests"]["hit_tokens"].sum()

    assert hits(lost) < hits(whole)
    ssd = read_again.tables["traffic"].filter(pl.col("traffic") == "ssd_read")["bytes"].sum()
    assert ssd > 0
    assert whole.tables["traffic"].filter(pl.col("traffic") == "ssd_read").height == 0


def test_a_flapping_link_returns_prices_to_the_last_bit_each_time():
    flap = {"at_s": 1.0, "element": "sub-plane 3", "kind": "flap", "period_s": 1.0,
            "down_share": 0.5, "duration_s": 2.0}  # fmt: skip
    setup = set_up(small({"faults": [flap]}), load_facts(), None)
    machine = Machine(setup, load_facts(), build_world(setup))
    agenda, log = Agenda(0.005), []
    Incidents(Life(machine, agenda, lambda k, t_s: None), log, lambda k, dies: 0)
    usual = [role.coefficients for role in machine.roles]
    alike = []
    for step in range(180, 700, 20):
        agenda.run(step)
        alike.append([role.coefficients for role in machine.roles] == usual)
        assert alike[-1] == (machine.in_force == [])
    spans = np.flatnonzero(np.diff(alike)).size
    assert spans == 4 and alike[0] and alike[-1]  # down twice, up twice
    (event,) = (e for e in log if e.kind == "fault")
    assert (event.t_s, event.end_s) == (1.0, 2.5)


def test_a_run_with_a_flapping_die_and_a_rack_that_fails_forgets_nobody():
    hits = [
        {"at_s": 1.0, "element": "die 1.1.0", "kind": "flap", "period_s": 0.8, "duration_s": 2.0},
        {"at_s": 2.0, "element": "rack 0", "duration_s": 0.5},
    ]
    found = run(QUICK | {"faults": hits, "supernode.nodes": 5})
    lawful(found)
    only_lives(found)
    down = found.tables["events"].filter(pl.col("kind") == "instance_down")
    assert down.filter(pl.col("t_s") >= 2.0).height >= 3  # all that the rack held
    assert (found.tables["requests"]["finish_s"].drop_nulls() > 3.0).any()
