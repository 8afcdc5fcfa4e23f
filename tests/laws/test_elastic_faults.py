"""Instances come and go while parts of the machine fail: no law of either is broken."""

import random

import pytest

from tests.draws import some
from tests.engine.lifecycle.test_elastic import BUSY, RULED, SWAP
from tests.engine.small import facts_with, small
from twin.engine.simulate import Run, simulate

QUICK = facts_with(
    {"startup.process": 0.6, "startup.compile": 0.8, "startup.regroup": 0.3, "startup.loader": 1e3}
)
FAST = {"recovery.detection_s": 0.2, "recovery.restart_s": 1.0, "recovery.in_place_s": 0.5}


def run(settings) -> Run:
    found = simulate(small(settings), QUICK)
    assert found.valid, [c for c in found.checks if not c["ok"]]
    return found


def broken(element, at_s, duration_s=0.0, **more):
    return {"element": element, "at_s": at_s, "duration_s": duration_s} | more


def lives(found, role, index):
    table = found.tables["lives"].filter(role=role, instance=index).sort("t_s")
    return list(zip(table["state"], table["t_s"].round(2), table["end_s"].round(2), strict=True))


def drawn(seed):
    """A controller or a schedule, and some faults, at random."""
    d = random.Random(seed)
    base = d.choice((RULED, SWAP))
    if base is RULED:
        base = RULED | {"elastic.controller": d.choice(("queue", "slo", "kv", "rebalance"))}
    node, npu, die = d.randrange(4), d.randrange(8), d.randrange(2)
    elements = (f"node {node}", f"NPU {node}.{npu}", f"die {node}.{npu}.{die}", "L1 0.0",
                "UB plane")  # fmt: skip
    faults = [
        broken(d.choice(elements), d.uniform(0.5, 11.0), d.choice((0.0, d.uniform(0.1, 4.0))))
        for _ in range(d.randint(1, 4))
    ]
    return base | FAST | {
        "seed": seed, "faults": faults, "recovery.spares": d.random() < 0.5,
        "recovery.policy": d.choice(("restart", "in_place", "shrink")),
        "elastic.drain": d.choice(("finish", "hand_on")),
        "elastic.idle": d.choice(("keep", "release")),
        "deployment.decode.pp_stages": d.choice((1, 2, 4)),
    }  # fmt: skip


@pytest.mark.parametrize("seed", some([0], 1, 2))
def test_random_faults_and_controllers_keep_every_law(seed):
    assert run(drawn(seed)).digest == run(drawn(seed)).digest


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 60))
def test_more_random_faults_and_controllers_keep_every_law(seed):
    run(drawn(seed))


def lost_for_good(controller, **more):
    return run(RULED | FAST | {"elastic.controller": controller, "recovery.spares": False,
                               "faults": [broken("node 1", 3.0)]} | more)  # fmt: skip


def test_an_instance_without_a_die_left_gives_its_npus_back_and_another_takes_its_place():
    found = lost_for_good("queue")
    down, end_s = next((s, e) for s, b, e in lives(found, "decode", 1) if b == 3.0)
    assert (down, end_s) == ("down", 3.7)  # detected after 0.2 s, and 0.5 s in place
    assert lives(found, "decode", 1)[-1][0] == "down"  # its node stays broken
    again = found.tables["lives"].filter(role="decode", state="serve")
    assert (again["t_s"] > 3.7).any()


def test_a_start_on_dies_that_fail_ends_and_the_instance_is_off():
    found = run(SWAP | FAST | {"faults": [broken("node 0", 2.4)]})
    assert [state for state, *_ in lives(found, "decode", 2)] == ["load", "graphs"]
    assert lives(found, "decode", 2)[-1][2] == 2.4


def test_an_instance_that_fails_while_it_drains_is_off_from_its_detection():
    found = run(SWAP | FAST | {"faults": [broken("NPU 1.0", 6.2)]})
    assert lives(found, "decode", 0)[1:] == [("drain", 6.0, 6.2), ("down", 6.2, 6.4)]


def test_a_controller_that_does_nothing_leaves_the_faults_as_they_are():
    asked = BUSY | FAST | {"faults": [broken("NPU 1.0", 3.0, 2.0)]}
    idle = {"elastic.controller": "kv", "elastic.interval_s": 1000.0}
    fixed, watched = run(asked), run(asked | idle)
    for key in ("requests", "ttft_s_p99", "tpot_s_p99", "output_tokens_per_s", "retries"):
        assert fixed.summary.get(key) == watched.summary.get(key), key
    assert watched.tables["events"]["kind"].to_list() == fixed.tables["events"]["kind"].to_list()
