"""The checks: each holds on a sound world and fails when its law is broken."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tests.engine.small import facts_with_kv_space, machine_at_end, small, tables_of
from twin.engine import codes as w
from twin.engine import invariants

# A run that ends in the middle of everything.
CROWDED = small(
    {
        "horizon_s": 2.0,
        "warmup_s": 0.5,
        "workload.rate_req_per_s": 300.0,
        "workload.output_tokens": 400,
        "workload.prefix": "shared",
        "deployment.prefill.tokens_per_npu": 1024,
        "deployment.kv_transfer_plane": "vpc",
    }
)


@pytest.fixture
def state():
    return machine_at_end(CROWDED, facts_with_kv_space(CROWDED, 9000))


def running(world):
    return int(np.flatnonzero(world.request.status == w.DECODING)[0])


def lose_a_request(world):
    world.request.status[running(world)] = w.FINISHED


def stamp_too_late(world):
    done = np.flatnonzero(world.request.finish_s > 0)
    world.request.finish_s[done] += 0.3


def book_a_token_more(world):
    world.record.windows[3, w.DECODE_TOKENS] += 2000.0


def hold_more_than_fits(world):
    world.decode.context[0] += 1e5


def two_in_a_slot(world):
    world.request.slot[running(world)] += 1


def forget_a_block(world):
    world.pool.used[0] -= 1


def receive_what_was_not_sent(world):
    world.decode.received_bytes[0] += 1e7


def stand_idle(world):
    world.prefill.queue[0, w.HEAD] = 0
    world.instance.running[0] = 0


def work_after_the_end(world):
    world.instance.busy_s[0] += 5.0


CHECKS = {
    invariants.requests_conserved: lose_a_request,
    invariants.little_law: stamp_too_late,
    invariants.busy_within_time: work_after_the_end,
    invariants.bytes_conserved: receive_what_was_not_sent,
    invariants.pool_consistent: forget_a_block,
    invariants.work_conserving: stand_idle,
    invariants.tokens_conserved: book_a_token_more,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_a_check_holds_until_its_law_is_broken(state, check):
    world = state[1].world
    assert check(world).ok, check(world)
    CHECKS[check](world)
    broken = check(world)
    assert not broken.ok and any(c.isdigit() for c in broken.detail)


@pytest.mark.parametrize("fault", [hold_more_than_fits, two_in_a_slot])
def test_kv_space_and_slots_are_checked(state, fault):
    setup, machine = state
    assert invariants.kv_space_fits(setup, machine.world).ok
    fault(machine.world)
    assert not invariants.kv_space_fits(setup, machine.world).ok


def test_stamps_out_of_order_or_missing_are_found(state):
    rows = tables_of(*state)["requests"]
    assert invariants.stamps_in_order(rows).ok
    early = pl.col("finish_s") - 100.0
    gap = pl.when(pl.col("finish_s").is_not_null()).then(None).otherwise(pl.col("routed_s"))
    assert not invariants.stamps_in_order(rows.with_columns(finish_s=early)).ok
    assert not invariants.stamps_in_order(rows.with_columns(routed_s=gap)).ok


def test_a_plane_above_its_capacity_is_found(state):
    windows = tables_of(*state)["windows"]
    assert invariants.within_capacity(windows).ok
    above = windows.with_columns(rdma_utilisation=pl.lit(1.01))
    assert not invariants.within_capacity(above).ok


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1e-3])
def test_one_bad_figure_anywhere_is_found(state, bad):
    found = tables_of(*state)
    assert invariants.figures_finite(found).ok
    links = found["links"].with_columns(bytes=pl.lit(bad))
    assert not invariants.figures_finite(found | {"links": links}).ok


def test_expert_load_that_does_not_add_up_is_found(state):
    setup, _ = state
    assert invariants.experts_conserved(setup).ok
    hot = setup.decode_imbalance
    lost = replace(hot, die_load=hot.die_load * 0.99)
    assert not invariants.experts_conserved(replace(setup, decode_imbalance=lost)).ok


def test_the_crowded_world_is_crowded(state):
    world = state[1].world
    c = world.record.counters
    assert c[w.PREEMPTED] > 10 and c[w.FINISHED_DECODE] > 10
    assert c[w.FRONTED] > c[w.ROUTED] and world.decode.requests.sum() > 10
