"""Faults and recovery: who is out of service, from when to when, and what goes on meanwhile."""

import polars as pl
import pytest

from tests.engine.small import run, small
from tests.laws.lawful import lawful
from twin.engine.balancing import Balance
from twin.engine.build import build_world
from twin.engine.lifecycle.agenda import Agenda
from twin.engine.lifecycle.machine import Machine
from twin.engine.setup import set_up
from twin.experts import EMPTY
from twin.hardware.prices import pool_read
from twin.lab.library import load_facts
from twin.model.costs import role_costs

STEP = 0.006  # of the clock, and a little
QUICK = {
    "recovery.detection_s": 0.1,
    "recovery.in_place_s": 0.4,
    "recovery.restart_s": 0.8,
    "recovery.spares": False,
}
HIT = {"at_s": 1.5, "element": "die 1.1.0"}  # of decode 0
# Node 0 keeps sub-planes 0 to 2, node 1 the others: nothing joins them.
APART = [f"L1 0.{p}" for p in range(3, 7)] + [f"L1 1.{p}" for p in range(3)]


def hit(*faults, **settings):
    found = run(QUICK | {"faults": list(faults)} | {k.replace("__", "."): v
                                                   for k, v in settings.items()})  # fmt: skip
    lawful(found)
    return found


def spans(found, kind="instance_down"):
    rows = found.tables["events"].filter(pl.col("kind") == kind)
    return list(rows.select("role", "instance", "t_s", "end_s").iter_rows())


def lasts(found):
    (_, _, begin_s, end_s), *more = spans(found)
    assert not more
    return end_s - begin_s


@pytest.mark.parametrize(("policy", "wait_s"), [("restart", 0.9), ("in_place", 0.5)])
def test_a_policy_takes_its_time_from_detection_on(policy, wait_s):
    found = hit(HIT, recovery__policy=policy)
    assert lasts(found) == pytest.approx(wait_s, abs=2 * STEP)
    (detected,) = spans(found, "detected")
    assert detected[2] == pytest.approx(1.6, abs=STEP)


def test_shrinking_waits_for_the_lost_experts_only():
    found = hit(HIT, recovery__policy="shrink")
    assert 0.1 <= lasts(found) < 0.4
    at = found.tables["instances"].filter((pl.col("role") == "decode") & (pl.col("instance") == 0))
    assert at["dies"][0] == 8 and at["dies"][-1] == 7


def test_an_expert_with_a_copy_elsewhere_is_not_loaded():
    # Equally popular, each of the 64 has two copies.
    copies = {"experts__redundant": 64, "experts__placement": "topology", "experts__skew": 0.0}
    assert lasts(hit(HIT, recovery__policy="shrink", **copies)) == pytest.approx(0.1, abs=STEP)
    setup = set_up(small(QUICK | {"experts.redundant": 0}), load_facts(), None)
    machine = Machine(setup, load_facts(), build_world(setup))
    lone = Balance(machine, Agenda(0.005), [])
    decode = setup.instances.index(setup.of_role("decode")[0])
    held = lone.groups[lone.keys[decode]].slots
    assert lone.count_experts_only_on(decode, {0}) == (held[:, 0] != EMPTY).sum() > 0
    assert lone.count_experts_only_on(decode, set(range(held.shape[1]))) == (held != EMPTY).sum()


def test_nothing_waits_when_faults_are_noticed_and_mended_at_once():
    found = hit(HIT, recovery__detection_s=0.0, recovery__in_place_s=0.0)
    assert lasts(found) == 0.0


def test_a_fault_at_the_beginning_and_one_past_the_end():
    found = hit(HIT | {"at_s": 0.0}, HIT | {"at_s": 9.0, "element": "node 0"})
    assert spans(found)[0][2] == 0.0 and len(spans(found)) == 1
    assert found.tables["events"].filter(pl.col("kind") == "fault").height == 1


@pytest.mark.parametrize("element", ["die 1.1.0", "die 0.1.0"])
def test_a_spare_serves_and_kv_reaches_it(element):
    found = hit(HIT | {"element": element}, recovery__spares=True, supernode__nodes=4)
    assert not spans(found, "shrunk")
    rows = found.tables["requests"].filter(pl.col("arrival_s") < 3.0)
    assert (rows["status"] == "finished").all()


def test_requests_on_dies_that_are_left_go_on_without_a_new_arrival():
    found = hit(
        HIT | {"element": "die 0.1.0"}, deployment__mode="decode_only", horizon_s=8.0,
        workload__arrivals="closed_loop", workload__concurrency=8, workload__think_s=60.0,
        workload__output_tokens=150,
    )  # fmt: skip
    rows = found.tables["requests"].filter(pl.col("arrival_s") < 0.5)
    assert rows.height == 8 and (rows["status"] == "finished").all()


def load_s(dies):
    """Seconds in which a die takes in the weights that each of so many dies of decode has."""
    setup = set_up(small(QUICK), load_facts(), None)
    decode = setup.of_role("decode")[0]
    costs = role_costs(setup.costs.deployed, "decode", decode.die_of_rank[:dies], decode.name)
    read = pool_read(setup.fabric, decode.die_of_rank[:1])
    return costs.memory.weights / min(read.bytes_per_s, load_facts().si("startup.loader"))


def test_a_repaired_die_serves_again_when_it_has_its_weights():
    found = hit(HIT | {"duration_s": 1.2}, recovery__policy="shrink")
    ((_, _, back_s, end_s),) = spans(found, "rejoined")
    (shrunk,) = spans(found, "shrunk")
    assert end_s is None and shrunk[3] == back_s
    assert load_s(7) > 0.01  # as much as one of the seven dies has that went on
    assert back_s == pytest.approx(1.5 + 1.2 + load_s(7), abs=STEP)
    at = found.tables["instances"].filter((pl.col("role") == "decode") & (pl.col("instance") == 0))
    assert at["dies"].min() == 7 and at["dies"][-1] == 8
    assert len(spans(found)) == 1


def loaded(*faults):
    """Bytes of weights that decode 0 took in, and when dies came back."""
    found = hit(*faults, recovery__policy="shrink")
    moved = found.tables["traffic"].filter(pl.col("traffic") == "weights")
    assert set(moved["role"]) == {"decode"} and set(moved["instance"]) == {0}
    return moved["bytes"].sum(), [row[2] for row in spans(found, "rejoined")]


FIRST, NEXT, FREE = (
    {"at_s": 1.5, "element": name} for name in ("die 1.0.0", "die 1.1.0", "die 3.7.0")
)


def test_weights_on_their_way_to_a_die_are_not_read_again_for_what_happens_meanwhile():
    apart, at_once, close = (
        loaded(FIRST | {"duration_s": 1.2}, NEXT | {"duration_s": lasts_s})[0]
        for lasts_s in (1.7, 1.2, 1.21)
    )
    assert close == pytest.approx(at_once, rel=1e-6)
    assert apart < at_once < 1.1 * apart  # fewer dies hold more experts each
    alone, times = loaded(FIRST | {"duration_s": 1.2})
    assert len(times) == 1
    with_other, times = loaded(FIRST | {"duration_s": 1.2}, FREE | {"at_s": 2.71})
    assert with_other == pytest.approx(alone, rel=1e-6) and len(times) == 1


def test_a_die_that_fails_again_while_it_loads_does_not_hold_back_another():
    _, times = loaded(FIRST | {"duration_s": 1.2}, NEXT | {"duration_s": 1.2},
                      FIRST | {"at_s": 2.71})  # fmt: skip
    (back_s,) = times
    assert back_s == pytest.approx(2.71 + load_s(6), abs=2 * STEP)  # six dies had gone on


def test_a_repair_during_recovery_brings_the_instance_back_whole_but_not_sooner():
    found = hit(HIT | {"duration_s": 0.3})
    assert lasts(found) == pytest.approx(0.5, abs=2 * STEP)
    assert not spans(found, "shrunk")


def test_kv_of_a_die_that_flickered_is_lost_all_the_same():
    found = hit(HIT | {"duration_s": 0.05}, workload__rate_req_per_s=200.0)
    assert found.tables["requests"]["retries"].sum() > 0


def test_a_second_hit_while_down_begins_the_wait_anew():
    found = hit(HIT, {"at_s": 1.8, "element": "die 1.2.0"})
    (span,) = spans(found)
    assert span[3] == pytest.approx(1.8 + 0.5, abs=2 * STEP)
    assert spans(found, "shrunk")[0][2] == pytest.approx(span[3])


def test_an_instance_without_dies_waits_for_a_repair_and_then_as_long_as_any():
    both = {"at_s": 1.0, "element": "node 1", "duration_s": 1.5}
    found = hit(both)
    for _, _, begin_s, end_s in spans(found):
        assert (begin_s, end_s) == (pytest.approx(1.0), pytest.approx(2.5 + 0.4, abs=2 * STEP))
    assert len(spans(found)) == 2


def test_an_instance_whose_links_are_cut_stands_still_and_goes_on_when_they_are_back():
    wide = {"deployment__prefill__npus_per_instance": 16, "deployment__prefill__instances": 1,
            "supernode__nodes": 3}  # fmt: skip
    cut = [{"at_s": 1.5, "element": e, "duration_s": 0.7} for e in APART]
    found = hit(*cut, **wide)
    (span,) = spans(found)
    assert span[0] == "prefill" and span[3] - span[2] == pytest.approx(0.7, abs=2 * STEP)
    (noticed,) = spans(found, "detected")
    assert noticed[2] == pytest.approx(1.6, abs=STEP)
    ended = found.tables["requests"]["prefill_end_s"].drop_nulls()
    assert not ended.is_between(1.51, 2.19).any() and (ended > 2.2).any()


def test_a_short_cut_loses_nothing():
    wide = {"deployment__prefill__npus_per_instance": 16, "deployment__prefill__instances": 1,
            "supernode__nodes": 3}  # fmt: skip
    found = hit(*({"at_s": 1.5, "element": e, "duration_s": 0.05} for e in APART), **wide)
    assert not spans(found, "detected") and found.tables["requests"]["retries"].sum() == 0


def test_a_way_to_the_pool_that_is_gone_costs_hits_and_hangs_nobody():
    settings = {"memory_pool__plane": "vpc", "workload__prefix": "shared",
                "workload__prefix_groups": 2}  # fmt: skip
    found = hit({"at_s": 2.0, "element": "Qingtian 0"}, **settings)
    late = found.tables["requests"].filter(pl.col("arrival_s").is_between(2.05, 3.0))
    assert (late["hit_tokens"] == 0).all() and (late["status"] == "finished").all()
    before = found.tables["requests"].filter(pl.col("arrival_s").is_between(1.0, 1.8))
    assert before["hit_tokens"].sum() > 0


def test_decode_elsewhere_goes_on_while_an_instance_is_down():
    apart = {"deployment__decode__npus_per_instance": 8, "recovery__in_place_s": 2.0}
    found = hit({"at_s": 1.5, "element": "node 1"}, **apart)
    arrived = found.tables["requests"]["transfer_end_s"].drop_nulls()
    assert arrived.is_between(1.7, 3.5).sum() > 20
