"""A hand-over to a decode rank of several dies: each receives its own part over its own port."""

from typing import Any

import pytest

from tests.engine.small import end_of, recorded, run, small
from tests.engine.test_swap import SWAP
from twin.attainment import TRANSFERS, attainment
from twin.engine import codes as w
from twin.engine.build import build_world
from twin.engine.clients.arrivals import stop_transfer
from twin.engine.contention.kv_transfer import begin_transfer, die_bytes, end_transfers, set_rates
from twin.engine.invariants import bytes_conserved
from twin.engine.lifecycle.machine import Machine
from twin.engine.setup import set_up
from twin.engine.swap import held_die_bytes
from twin.hardware.prices import nic
from twin.lab.ask import with_trace
from twin.lab.library import load_facts
from twin.steady import Priced

FACTS = load_facts()
MODEL, DECODE = "deployment.model", "deployment.decode"
ALONE = {"memory_pool.enabled": False, "horizon_s": 2.0, "warmup_s": 0.0,
         "deployment.prefill.attention": "tp"}  # fmt: skip
ONE_DIE = {"deployment.prefill.attention": "dp"}  # has a prompt's KV
DENSE, FEW_HEADS, LATENTS = "qwen3-32b", "qwen3-30b-a3b", "deepseek-v2-lite"
# Bytes of a token in BF16: 8 KV heads, 4 KV heads, latents.
KV = {DENSE: 64 * 2 * 8 * 128 * 2, FEW_HEADS: 48 * 2 * 4 * 128 * 2, LATENTS: 27 * (512 + 64) * 2}
BY_HAND = {  # model, dies that split heads, stages; share over the fullest port; whole copies
    "heads": (DENSE, 4, 1, {}, 1 / 4, 1),
    "heads that two dies have": (FEW_HEADS, 8, 1, {}, 1 / 4, 2),
    "latents": (LATENTS, 2, 1, {}, 1, 2),
    "stages": (DENSE, 1, 4, {}, 1 / 4, 1),
    "heads in stages": (DENSE, 2, 2, {}, 1 / 4, 1),
    "tokens": (LATENTS, 4, 1, {f"{DECODE}.cp_dies": 4}, 1 / 4, 1),
    "one die": (DENSE, 1, 1, {}, 1, 1),
    "latents of one die": (LATENTS, 2, 1, ONE_DIE, 2, 2),
    "heads of one die": (DENSE, 4, 1, ONE_DIE, 1, 1),
}


def layout(model: str, tp: int, stages: int, more: dict[str, Any]) -> dict[str, Any]:
    """Settings of a decode rank of some dies, alone on the ports."""
    return ALONE | {MODEL: model, f"{DECODE}.tp_dies": tp, f"{DECODE}.pp_stages": stages} | more


@pytest.mark.parametrize("name", BY_HAND)
def test_a_lone_hand_over_takes_its_bytes_over_the_fullest_port_by_hand(name):
    model, tp, stages, more, share, copies = BY_HAND[name]
    trace, s = recorded([0.1], [3000], [4]), small(layout(model, tp, stages, more))
    setup, world = end_of(with_trace(s, trace), FACTS, trace)
    assert setup.costs.kv_bytes_per_token == KV[model]
    port, each_s = nic(setup.fabric, 0, "rdma"), KV[model] * share
    took_s = world.request.transfer_end_s[0] - world.request.prefill_end_s[0]
    assert took_s == pytest.approx(port.latency_s + 3000 * each_s / port.bytes_per_s, rel=1e-6)
    carried = pytest.approx(3000 * KV[model] * copies, rel=1e-9)
    assert world.prefill.sent_bytes.sum() == world.decode.received_bytes.sum() == carried
    assert (world.prefill.sent_bytes > 0.0).sum() == (1 if "one die" in name else tp * stages)
    law = attainment(Priced(s, FACTS))
    assert law.transfer_s == pytest.approx(TRANSFERS * each_s / port.bytes_per_s, rel=1e-9)


@pytest.mark.parametrize("name", ["heads", "latents", "heads in stages", "latents of one die"])
def test_parts_of_hand_overs_are_conserved_on_the_links(name):
    model, tp, stages, more, _, copies = BY_HAND[name]
    busy = layout(model, tp, stages, more) | {"workload.rate_req_per_s": 20.0}
    made, (_, world) = run(busy), end_of(small(busy), FACTS)
    assert made.valid and bytes_conserved(world).ok
    rows = made.tables["requests"]
    tokens = rows.filter(rows["transfer_end_s"].is_not_null())["input_tokens"].sum()
    traffic = made.tables["traffic"]
    moved = traffic.filter(traffic["traffic"] == "kv_hand_off")["bytes"].sum()
    whole = tokens * KV[model] * copies
    assert whole * (1 - 1e-9) <= moved <= whole + world.transfer.active[0] * KV[model] * 1000


def test_a_hand_over_that_is_stopped_leaves_no_part_behind():
    setup = set_up(small(layout(*BY_HAND["heads"][:4])), FACTS, None)
    world = Machine(setup, FACTS, build_world(setup)).world
    request = world.request
    request.rank[:2], request.prefill_instance[:2], request.ready_s[:2] = 1, 0, 0.0
    for i in range(2):
        begin_transfer(world, i, w.NONE)
    state, size = world.transfer, die_bytes(world, 1)
    assert state.active[0] == 8 and world.request.parts[:2].tolist() == [4, 4]
    set_rates(state)
    state.left_bytes[2] = 0.0  # a part of the first has arrived
    end_transfers(world, 0.0)
    assert world.request.parts[0] == 3 and world.request.status[0] != w.DECODING
    stop_transfer(world, 0)
    assert state.active[0] == 4 and set(state.request[:4]) == {1} and world.request.parts[0] == 0
    assert world.prefill.sent_bytes.sum() == pytest.approx(5 * size)
    assert bytes_conserved(world).ok and (state.crossing >= 0).all()
    assert sorted(state.die[:4]) == [0, 1, 2, 3] and state.crossing.sum(axis=1).tolist() == [4, 4]


@pytest.mark.parametrize("name", ["heads", "heads that two dies have", "latents", "stages"])
def test_a_die_swaps_what_it_has_of_a_request(name):
    model, tp, stages, more, share, _ = BY_HAND[name]
    _, world = end_of(small(layout(model, tp, stages, more) | {SWAP: 1.0}), FACTS)
    tokens = world.request.input_tokens[0] + world.request.emitted[0]
    assert held_die_bytes(world, 0) == pytest.approx(tokens * KV[model] * share)
