"""Preemption by swap: KV goes to host memory and comes back, and that takes its time."""

import re
from typing import Any

import numpy as np
import pytest

from tests.engine.contention.test_flows import machine
from tests.engine.small import end_of, facts_with_kv_space, recorded, run, small
from twin.engine import codes as w
from twin.engine.contention.traffic import apply_changed_flows, mark_active, set_server_loads
from twin.engine.invariants import swapped_conserved
from twin.engine.simulate import simulate
from twin.engine.swap import add_copy, begin_copies_s
from twin.hardware.prices import host_copy_rates
from twin.lab.ask import scheduler_defaults, with_trace
from twin.lab.library import load_facts
from twin.metrics.operators import DECODE_OPERATORS
from twin.scenario import with_overrides

SWAP = "deployment.decode.swap_gb_per_die"
ONE_RANK = {
    "deployment.mode": "decode_only", "deployment.decode.instances": 1,
    "deployment.decode.npus_per_instance": 1, "deployment.decode.tp_dies": 2, "warmup_s": 0.0,
    "horizon_s": 6.0,
}  # fmt: skip
FULL = {
    "workload.rate_req_per_s": 120.0,
    "workload.output_tokens": 300,
    "horizon_s": 3.0,
    "memory_pool.enabled": False, "deployment.prefill.instances": 1,
    "deployment.prefill.npus_per_instance": 16,
}  # fmt: skip
SPACE = 6000  # tokens of a die: five prompts


def two_on_one_rank(gb: float, more: dict[str, Any] | None = None):
    """Two requests that outgrow the KV space of one rank together, and neither alone."""
    trace = recorded([0.001, 0.002], [1000, 1000], [400, 300])
    s = with_trace(small(ONE_RANK | {SWAP: gb} | (more or {})), trace)
    s = with_overrides(s, {"horizon_s": 6.0, "warmup_s": 0.0})
    facts = facts_with_kv_space(s, 2300)
    return simulate(s, facts, trace), end_of(s, facts, trace)


def test_a_swap_takes_its_bytes_over_the_rate_of_the_host_link():
    made, (setup, world) = two_on_one_rank(5.0)
    rows = made.tables["requests"].sort("request_id")
    assert made.valid and set(rows["status"].cast(str)) == {"finished"}
    assert rows["preemptions"].to_list() == [0, 1]
    # Latents are whole on both dies. Each layer's part of a block is a copy of its own, four of
    # which are in flight, 23.7 us each.
    deployed, die_bytes = setup.costs.deployed, world.decode.swapped_bytes[0]
    layer_bytes = 128 * (512 + 64) * 2.0
    layers = deployed.shape.layers
    assert setup.costs.kv_bytes_per_token == layers * (512 + 64) * 2
    links = [rate / 2.0 for rate in host_copy_rates(setup.fabric, [0, 1], "ub")]
    expected_s = sum(
        size / min(rate, 4 * layer_bytes / 23.7e-6)
        for size, rate in zip((die_bytes[w.OUT], die_bytes[w.BACK]), links, strict=True)
    )
    operators = made.tables["operators"]
    took_s = operators.filter(operators["operator"] == "kv_swap")["total_s"].sum()
    assert took_s == pytest.approx(expected_s, rel=1e-9)
    traffic = made.tables["traffic"]
    moved = traffic.filter(traffic["traffic"] == "swap")["bytes"].sum()
    assert moved == pytest.approx(2.0 * (die_bytes[w.OUT] + die_bytes[w.BACK]), rel=1e-9)
    held = rows["input_tokens"][1] + world.request.output_tokens[1]
    assert 0.8 * held < die_bytes[w.OUT] / setup.costs.kv_bytes_per_token < held


def test_a_swapped_request_waits_for_room_and_no_longer():
    """It is out until the other ends, whose iterations take as long as alone meanwhile."""
    made, _ = two_on_one_rank(5.0)
    ends_s = made.tables["requests"].sort("request_id")["finish_s"]
    assert ends_s[1] > ends_s[0]
    lost, _ = two_on_one_rank(0.0)
    assert lost.tables["requests"].sort("request_id")["finish_s"][0] == pytest.approx(
        ends_s[0], rel=0.01
    )


def test_without_room_in_host_memory_requests_are_computed_again():
    made, (_, world) = two_on_one_rank(1e-6)
    assert world.decode.swapped_bytes.sum() == 0.0
    assert made.summary == two_on_one_rank(0.0)[0].summary


@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "decode_only"])
def test_bytes_out_are_bytes_back_dropped_or_there(mode):
    asked = FULL | {"deployment.mode": mode}
    s = small(asked | {SWAP: 5.0})
    facts = facts_with_kv_space(s, SPACE)
    made, (_, world) = simulate(s, facts), end_of(s, facts)
    assert made.valid, [check for check in made.checks if not check["ok"]]
    assert made.summary["preemptions"] > 3 and swapped_conserved(world).ok
    assert world.decode.swapped_bytes[:, w.BACK].sum() > 0.0
    # No prompt is computed twice.
    assert world.record.counters[w.PREEMPTED] == 0
    world.decode.swapped_bytes[0, w.OUT] += 100.0
    assert not swapped_conserved(world).ok


@pytest.mark.parametrize("cause", ["clients leave", "a die fails"])
def test_swapped_requests_leave_with_their_clients_and_their_dies(cause):
    alone, _ = two_on_one_rank(5.0)
    # The second is out from when both have a few tokens until the first ends.
    at_s = 0.5 * alone.tables["requests"]["finish_s"].min()
    more: dict[str, Any] = {"clients.answer_timeout_s": at_s}
    if cause == "a die fails":
        fault = {"element": "die 0.0.0", "at_s": at_s, "duration_s": 0.5}
        more = {"faults": [fault], "recovery.policy": "restart", "recovery.restart_s": 0.5,
                "recovery.detection_s": 0.1}  # fmt: skip
    made, _ = two_on_one_rank(5.0, more)
    assert made.valid, [check for check in made.checks if not check["ok"]]
    law = next(check["detail"] for check in made.checks if check["id"] == "I5d")
    out, back, there = (float(size) for size in re.findall(r"(\S+) B ", law))
    assert out > 0.0 == back + there  # the rest was dropped


def test_space_without_preemptions_changes_no_figure():
    plain, spare = run(), run({SWAP: 5.0})
    assert plain.summary == spare.summary
    assert plain.tables["requests"].equals(spare.tables["requests"])


def test_stacks_say_whether_they_swap():
    s = small({SWAP: 5.0, "deployment.stack": "vllm-0-24", "supernode.chip": "h200"})
    facts = load_facts()
    assert scheduler_defaults(s, facts)[SWAP] == 0.0
    assert any("has no swap" in note for note in simulate(s, facts).notes)
    mindie = with_overrides(s, {"deployment.stack": "mindie", "supernode.chip": "ascend-910c"})
    assert scheduler_defaults(mindie, facts)[SWAP] == 0.0
    assert not any("has no swap" in note for note in simulate(mindie, facts).notes)


# Prefill on node 0, decode on nodes 1 and 2, of which some links are a hundredth as fast.
NARROW = {
    SWAP: 5.0, "deployment.prefill.instances": 1, "deployment.prefill.npus_per_instance": 8,
    "deployment.decode.instances": 2, "deployment.decode.npus_per_instance": 8,
    "deployment.kv_transfer_plane": "ub",
}  # fmt: skip
CPUS = [f"CPU {n}.{c}" for n in (1, 2) for c in range(4)]
DIES = [f"die {n}.{npu}.{die}" for n in (1, 2) for npu in range(8) for die in (0, 1)]
SIZE = 1e8  # bytes of a die


def narrow(elements, factor: float = 0.01):
    faults = [{"element": name, "kind": "derate", "factor": factor} for name in elements]
    return machine(NARROW, faults)


def copied_s(found, d: int, ranks, out: int) -> float:
    """Seconds that these ranks' copies of SIZE bytes take before a pass."""
    for r in ranks:
        add_copy(found.world, d, 16 * d + r, SIZE, out)
    return begin_copies_s(found.world, d, 0.0, np.zeros(len(DECODE_OPERATORS)))


@pytest.mark.parametrize("factor", [0.01, 1.0])
@pytest.mark.parametrize("out", [0, 1])
def test_ranks_of_a_node_that_copy_at_once_share_the_links_of_its_cpus(out, factor):
    """As the machine is built, the start of copies holds all sixteen back."""
    found = narrow(CPUS, factor)
    alone_s = SIZE * found.world.decode.s_per_host_byte[0, out]  # as built
    rate = host_copy_rates(found.fabric, found.serving_dies(1), "ub")[
        1 - out
    ]  # in and out of memory
    for ranks in ([3], range(4), range(16)):
        links_s = len(ranks) * SIZE / rate
        expected_s = max(alone_s, links_s)
        assert copied_s(found, 0, ranks, out) == pytest.approx(expected_s, rel=0.011)
        assert (links_s > alone_s) == (factor < 1.0)


def at(found, t_s: float):
    """Flows and links as at a border at this time; no link has more than it can carry."""
    flows = found.world.traffic
    mark_active(found.world, t_s)
    apply_changed_flows(found.world)
    use = np.zeros(flows.load.size)
    for f in np.flatnonzero(flows.active):
        part = slice(flows.start[f], flows.end[f])
        use[flows.links[part]] += flows.parts[part] * flows.level[f]
    assert use.max() < 1.011
    return flows


@pytest.mark.parametrize(
    ("elements", "other"), [(CPUS, w.POOL_READ), (DIES, w.KV_HAND_OFF)], ids=["reads", "hand-off"]
)
def test_copies_and_other_traffic_slow_each_other_down(elements, other):
    """A prompt's cached KV from the CPUs of node 1, or KV handed to the dies of both instances."""
    found = narrow(elements)
    flows, world = found.world.traffic, found.world
    quiet_s = copied_s(found, 0, range(16), 0)
    f = flows.first[other]
    if other == w.KV_HAND_OFF:
        world.prefill.sending[0] = 1
    else:
        flows.active[f] = 1
        world.streams.requested[0, 1] = 7
        set_server_loads(world, 0)
    alone = float(at(found, 2.0 * quiet_s).level[f])
    assert copied_s(found, 0, range(16), 0) > 1.1 * quiet_s
    assert at(found, 0.5 * quiet_s).level[f] < 0.9 * alone
    assert at(found, 9.0 * quiet_s).level[f] == pytest.approx(alone, rel=0.011)
