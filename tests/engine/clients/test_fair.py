"""Fair queueing: bounded service, no knowledge of answers, and charges for what was served."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from tests.engine.small import end_of, recorded, small
from tests.laws.lawful import lawful
from twin.engine import codes as w
from twin.engine.build import tenants_of
from twin.engine.clients.returns import HANDED_ON, LET_IN
from twin.engine.simulate import simulate
from twin.lab.library import load_facts

WEIGHTS = {"one": 3.0, "other": 1.0}
LONGEST = 1500  # prompt
FLOODED = {
    "horizon_s": 3.0,
    "workload.arrivals": "trace",
    "workload.trace.digest": "0" * 64,
    "tenants": [{"name": name, "weight": weight} for name, weight in WEIGHTS.items()],
    "admission.order": "fair",
    "deployment.decode.instances": 1,
    "deployment.decode.batch_per_npu": 2,
    "memory_pool.enabled": False,
}
MODES = {
    "disaggregated": {},
    "colocated": {},
    "prefill_only": {"deployment.prefill.npus_per_instance": 1},
}


def flood(asked, requests=6000, seed=3):
    """Far more than is served, all within a second; the first tenant gets long answers."""
    random = np.random.default_rng(seed)
    first = tenants_of(asked, np.arange(requests)) == 0
    arrival_s = np.sort(random.uniform(0.0, 1.0, requests))
    arrival_s[:20] = 0.0  # both are there before anything is served
    return recorded(
        arrival_s.tolist(),
        random.integers(100, LONGEST, requests).tolist(),
        np.where(
            first, random.integers(60, 180, requests), random.integers(2, 20, requests)
        ).tolist(),
    )


def served_by(requests, tenant, t_s):
    """Tokens that a tenant was served by t_s: prompts begun and answers as they were given."""
    own = requests.filter(pl.col("tenant") == tenant)
    begun = own.filter(pl.col("prefill_start_s") <= t_s)
    out = own.filter((pl.col("first_token_s") <= t_s) & pl.col("decode_instance").is_not_null())
    spent = t_s - out["first_token_s"]
    share = (spent / (out["finish_s"].fill_null(np.inf) - out["first_token_s"])).clip(0.0, 1.0)
    return begun["input_tokens"].sum() + (share.fill_nan(1.0) * out["output_tokens"]).sum()


@pytest.mark.parametrize("mode", MODES)
def test_two_who_always_wait_differ_by_a_bounded_service(mode):
    """2 max(longest prompt, tokens of a running batch), whatever the time (VTC, theorem 4.4)."""
    asked = small(FLOODED | MODES[mode] | {"deployment.mode": mode})
    run = simulate(asked, load_facts(), flood(asked))
    lawful(run)
    rows = run.tables["requests"]
    waiting = rows.filter(pl.col("prefill_start_s").is_null())
    assert waiting.group_by("tenant").len()["len"].min() > 100  # to the end
    apart = [
        served_by(rows, "one", t_s) / WEIGHTS["one"] - served_by(rows, "other", t_s)
        for t_s in np.arange(0.2, 3.0, 0.2)
    ]
    assert np.ptp(apart) < 2 * LONGEST, apart
    assert served_by(rows, "other", 3.0) > 10 * LONGEST


def test_nobody_knows_an_answer_s_length_before_it_ends():
    """Answers swapped: the same order of admission until the shortest of them is out."""
    asked = small(FLOODED | {"horizon_s": 1.5, "deployment.decode.batch_per_npu": 16})
    trace = flood(asked, 2000)
    swapped = trace.output_tokens.copy()
    long = np.flatnonzero(swapped >= 60)[:60]  # one tenant's
    swapped[long] = swapped[long][::-1]
    first, second = (
        simulate(asked, load_facts(), table).tables["requests"]
        for table in (trace, dataclasses.replace(trace, output_tokens=swapped))
    )
    moved = first["output_tokens"] != second["output_tokens"]
    ends_s = min(rows.filter(moved)["finish_s"].min() for rows in (first, second))
    stamps = ["prefill_start_s", "prefill_instance", "routed_s"]
    before = first["prefill_start_s"] < ends_s
    assert before.sum() > 40 and moved.sum() > 50
    assert first.filter(before)[stamps].equals(second.filter(before)[stamps])
    assert not first[stamps].equals(second[stamps])  # but later it matters


def test_a_tenant_pays_for_what_it_was_served_and_nothing_else():
    """Prompts that began and answers as they were given, to the token; what waits is counted."""
    asked = small(FLOODED)
    _, world = end_of(asked, trace=flood(asked))
    request, gate, decode = world.request, world.gate, world.decode
    begun = ~np.isnan(request.prefill_start_s)
    given = request.emitted.astype(float)
    running = request.status == w.DECODING
    under_way = world.instance.running[world.settings.prefills]
    past = decode.iteration[0] - under_way - request.joined[running]
    left = request.output_tokens[running] - request.emitted[running]
    given[running] += left * past / (request.due - request.joined)[running]
    for t, weight in enumerate(WEIGHTS.values()):
        own = gate.tenant == t
        charged = (begun * request.input_tokens + given)[own].sum()
        assert gate.served[t] * weight == pytest.approx(charged, rel=1e-3)
        waiting = own & ((request.held == LET_IN) | (request.held == HANDED_ON))
        assert gate.waiting[t] == waiting.sum() > 1000
        assert gate.handed[t] == request.input_tokens[own & (request.held == HANDED_ON)].sum()


def test_who_is_refused_does_not_pay():
    """All of one tenant's requests are shed; it is not ahead of the one that is served."""
    tenants = [{"name": "one", "ttft_s": 3600.0}, {"name": "other", "ttft_s": 0.001}]
    asked = small(FLOODED | {"admission.shed_at": 1.0, "tenants": tenants})
    _, world = end_of(asked, trace=flood(asked))
    gate, refused = world.gate, world.request.status == w.REJECTED
    assert refused[gate.tenant == 1].all() and not refused[gate.tenant == 0].any()
    assert gate.waiting[1] == gate.handed[1] == 0 and gate.waiting[0] > 1000
    assert gate.served[1] <= gate.served[0]


def test_the_rest_of_a_prompt_that_comes_forward_is_computed_and_the_prompt_not_begun_again():
    settings = {
        "seed": 14, "start": "steady", "horizon_s": 2.5, "warmup_s": 0.5,
        "workload.rate_req_per_s": 80.0, "workload.output_tokens": 60,
        "deployment.mode": "colocated", "admission.order": "fair",
        "tenants": [{"name": "a", "share": 0.7}, {"name": "b", "share": 0.3, "weight": 2.0}],
    }  # fmt: skip
    run = simulate(small(settings | {"deployment.colocated.instances": 2}), load_facts())
    lawful(run)  # begun twice, fewer than none would wait
    assert run.tables["windows"]["prefill_running"].max() > 1.0
