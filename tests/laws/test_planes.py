"""What the planes of the network are worth in runs: pricing says it, and runs show it.

The identity is that of a small machine; the other two are runs of the machine of the paper.
"""

from dataclasses import replace

import numpy as np
import pytest

from tests.engine.small import run, small
from tests.laws.lawful import lawful
from twin.engine.setup import set_up
from twin.engine.simulate import simulate
from twin.hardware.faults import with_faults
from twin.lab.library import load_facts
from twin.metrics.operators import DECODE_OPERATORS
from twin.model.costs import role_costs
from twin.model.decode import decode_iteration_s
from twin.scenario import Fault, parse_scenario

ALONE = {
    "deployment.mode": "decode_only",
    "workload.arrivals": "closed_loop",
    "workload.concurrency": 1,
    "experts.placement": "perfect",
}
HALF_THE_NODE = {"deployment.decode.npus_per_instance": 16, "deployment.decode.instances": 1}
FULL = {  # the machine of the paper, every prefill and decode slot taken
    "horizon_s": 14.0,
    "warmup_s": 7.0,
    "workload": {
        "rate_req_per_s": 1150, "input_tokens": 4096, "output_tokens": 256, "prefix": "shared",
        "shared_fraction": 0.95,
    },
    "memory_pool": {"layout": "block"},
}  # fmt: skip


def answer(settings, **deployment):
    found = simulate(parse_scenario(settings | deployment), load_facts())
    lawful(found)
    return found


def priced(settings, faults):
    """Seconds from a lone request's first token to its last, iteration by iteration."""
    setup = set_up(small(settings), load_facts(), None)
    fabric = with_faults(setup.fabric, faults)
    (i,) = setup.instances
    at = replace(setup.costs.deployed, net=fabric)
    role = role_costs(at, i.role, i.die_of_rank, i.name)
    requests, sink = np.zeros(i.dies, np.int64), np.zeros(len(DECODE_OPERATORS))
    requests[0], context, took_s = 1, np.zeros(i.dies), 0.0
    w = setup.scenario.workload
    for out in range(1, w.output_tokens):
        context[0] = w.input_tokens + out
        took_s += decode_iteration_s(
            role.decode, requests, context, 0, i.dies, setup.decode_imbalance.tokens,
            setup.decode_imbalance.factor, sink,
        )  # fmt: skip
    return took_s


@pytest.mark.parametrize("faults", [[], [{"element": "sub-plane 3"}], [{"element": "L1 0.3"}]])
def test_a_lost_sub_plane_lengthens_iterations_exactly_as_pricing_says(faults):
    settings = ALONE | HALF_THE_NODE
    found = run(settings | {"faults": [f | {"at_s": 0.0} for f in faults]})
    lawful(found)
    stays = (found.tables["requests"]["finish_s"] - found.tables["requests"]["first_token_s"])[0]
    assert stays == pytest.approx(priced(settings, [Fault(**f) for f in faults]), rel=1e-9)
    if faults:
        assert stays > priced(settings, [])


def test_kv_hand_off_on_the_ports_of_dispatch_and_combine_lengthens_iterations():
    """Both runs begin empty: the formula has more requests in progress with KV on these ports."""
    paces, slowdowns = {}, {}
    for plane in ("rdma", "ub"):
        run = answer(FULL | {"start": "empty"}, deployment={"kv_transfer_plane": plane})
        paces[plane] = run.summary["decode_iteration_s_mean"]
        slowdowns[plane] = run.tables["instances"].filter(role="decode")["contention"].mean()
    assert 1.01 < paces["ub"] / paces["rdma"] < 1.08
    assert slowdowns["ub"] > 1.05 * slowdowns["rdma"]


def test_a_memory_pool_over_vpc_lowers_prompt_throughput():
    reused = FULL["workload"] | {"shared_fraction": 0.875, "output_tokens": 2}
    rates = {}
    for plane in ("ub", "vpc"):
        found = answer(
            FULL | {"workload": reused}, deployment={"mode": "prefill_only"},
            memory_pool={"plane": plane, "layout": "block"},
        )  # fmt: skip
        ended = found.tables["requests"]["prefill_end_s"].drop_nulls()
        rates[plane] = (ended > 7.0).sum() / 7.0
    assert 1.15 < rates["ub"] / rates["vpc"] < 1.6


@pytest.mark.parametrize("plane", ["ub", "rdma"])
def test_a_plane_that_hashes_is_slower_for_what_takes_it_and_for_nothing_else(plane):
    """KV over UB: hashed, exchange and hand-off are slower; RDMA, one switch, has none to hash."""
    kv = {"deployment.kv_transfer_plane": "ub"} | HALF_THE_NODE
    even, hashed = (small(kv | {f"supernode.{plane}_routing": way}) for way in ("ecmp", "hashed"))
    (a, b) = (simulate(s, load_facts()) for s in (even, hashed))
    lawful(b)
    keys = "tpot_s_mean", "ttft_s_mean", "e2e_s_mean"
    slower = [b.summary[key] > a.summary[key] for key in keys]
    assert slower == [plane == "ub"] * 3, [(a.summary[k], b.summary[k]) for k in keys]
