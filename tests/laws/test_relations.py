"""What must follow when a question is changed: true relations only.

Never asserted, because they are false: more bandwidth slows no flow, a bigger cache under
concurrency misses no more, another instance delays nobody.
"""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given

from tests.draws import draws
from tests.engine.small import MODES, recorded, run, small
from tests.laws.test_invariants_hold import recorded_streams
from tests.workload.test_reuse_curve import lru_hits
from twin.engine.setup import set_up
from twin.engine.simulate import simulate
from twin.lab.ask import with_trace
from twin.lab.library import load_facts, presets
from twin.lab.traces.reader import EVERY, read_trace
from twin.scenario import Scenario, with_overrides
from twin.workload.reuse_curve import reuse_curve

SHIFT_S = 1.0
STAMPS = (
    "arrival_s", "frontend_s", "routed_s", "prefill_start_s", "prefill_end_s", "transfer_end_s",
    "finish_s",
)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_a_shift_of_all_arrivals_shifts_everything(mode):
    gaps = np.array([0.05, 0.0, 0.3, 0.01, 0.02, 0.2] * 10) / 4
    lengths = [700 + 31 * k for k in range(60)]
    asked = {
        "workload.arrivals": "trace",
        "workload.trace.digest": "0" * 64,
        "workload.trace.dequantise": False,
        "deployment.mode": mode,
        "step_s": 2.0**-6,  # so that borders shift by whole steps
        "horizon_s": 8.0,
    }
    now, later = (
        simulate(small(asked), load_facts(), recorded(list(shift + np.cumsum(gaps)), lengths,
                                                      [40] * 60)).tables["requests"]
        for shift in (0.0, SHIFT_S)
    )  # fmt: skip
    assert now["finish_s"].null_count() == 0
    for stamp in STAMPS:
        assert (later[stamp] - now[stamp]).to_numpy() == pytest.approx(SHIFT_S, abs=1e-9), stamp


@draws(25)
@given(recorded_streams())
def test_no_request_hits_more_than_all_prompts_before_it_hold(trace):
    # One instance serves in order, so what is stored when a request is looked up came before it.
    asked = {
        "workload.arrivals": "trace",
        "workload.trace.digest": "0" * 64,
        "deployment.mode": "prefill_only",
        "deployment.prefill.instances": 1,
        "horizon_s": 30.0,
    }
    rows = simulate(small(asked), load_facts(), trace).tables["requests"]
    seen, ideal = set(), []
    for i in range(len(trace)):
        chain = trace.segment_first[trace.segment_offset[i] : trace.segment_offset[i + 1]]
        held = 0
        while held < chain.size and chain[held] in seen:
            held += 1
        ideal.append(min(128 * held, int(trace.input_tokens[i]) - 1))
        seen |= set(chain.tolist())
    assert (rows["hit_tokens"].to_numpy() <= ideal[: rows.height]).all()


def test_hits_shorten_prefill_and_never_the_answer():
    asked = {"workload.prefix": "shared", "workload.shared_fraction": 0.8}
    with_pool, without = (
        run(asked | {"memory_pool.enabled": on}).tables["requests"] for on in (True, False)
    )
    assert with_pool["hit_tokens"].sum() > 0 == without["hit_tokens"].sum()
    computed = (with_pool["input_tokens"] - with_pool["hit_tokens"]).sum()
    assert computed < without["input_tokens"].sum()
    assert with_pool["output_tokens"].equals(without["output_tokens"])


def test_an_idle_machine_gives_every_request_the_same_latency():
    asked = {"workload.arrivals": "uniform", "workload.rate_req_per_s": 2.0, "horizon_s": 8.0}
    rows = run(asked).tables["requests"].drop_nulls("finish_s")
    ttft = (rows["first_token_s"] - rows["arrival_s"]).to_numpy()
    assert rows.height > 10 and ttft == pytest.approx(np.full(rows.height, ttft[0]))


def test_twice_the_servers_at_half_the_pace_delay_by_one_service_at_most():
    # One server at 2 S works at the pace of two at 4 S, so the queue drains alike; a request
    # itself is longer in service.
    base = {"deployment.mode": "decode_only", "workload.output_tokens": 1, "horizon_s": 30.0}
    one, two = (
        run(base | {"front_end.api_servers": n, "front_end.service_ms": 20.0 * n}) for n in (1, 2)
    )
    one, two = one.tables["requests"], two.tables["requests"]
    assert one["arrival_s"].equals(two["arrival_s"])
    later = (two["frontend_s"] - one["frontend_s"]).drop_nulls()
    assert later.min() >= -1e-9 and later.max() <= 0.02 + 1e-9


@pytest.fixture(scope="module")
def mooncake(traces):
    table = read_trace(traces / "mooncake" / "conversation_trace.jsonl.gz")
    golden = json.loads((traces / "trace_stats.json").read_text())
    return table, golden["mooncake/conversation_trace"]["prefix"]


def test_mooncake_hits_on_the_preset_stay_below_the_lru_bound_of_the_trace(mooncake):
    table, golden = mooncake
    answer = simulate(with_trace(presets()[0].scenario, table), load_facts(), table)
    assert answer.valid
    # The preset's DRAM holds more than all blocks of the trace: the ideal is the bound.
    bound = golden["lru"]["1.0"]["token_hit_ratio"]
    assert reuse_curve(table, EVERY).ideal_hit_ratio == bound == golden["ideal_token_hit_ratio"]
    assert 0.99 * bound < answer.summary["hit_token_ratio"] <= bound


@pytest.mark.parametrize("share", ["0.01", "0.1"])
def test_a_small_pool_hits_as_an_lru_of_whole_blocks_in_trace_order(mooncake, share):
    # Not a bound: concurrent prompts store later than they look, so blocks live a little longer,
    # and a trace's partial last blocks take no room here.
    table, golden = mooncake
    scenario = with_trace(presets()[0].scenario, table)
    setup = set_up(scenario, load_facts(), table)
    r, blocks = setup.requests, golden["lru"][share]["blocks"]
    runs = [
        range(begin, begin + n) for begin, n in zip(r.segment_first, r.segment_blocks, strict=True)
    ]
    spans = itertools.pairwise(r.segment_offset)
    hits = np.array(lru_hits([[*itertools.chain(*runs[a:b])] for a, b in spans], blocks))
    expected = np.minimum(hits * r.block_tokens, r.input_tokens - 1).sum() / r.input_tokens.sum()
    room_gb = blocks * r.block_tokens * setup.costs.kv_bytes_per_token / 1e9
    room = {
        "memory_pool.gb_per_node": room_gb / scenario.supernode.nodes * (1 + 1e-9),
        "memory_pool.ssd_gb_per_node": 0.0,
    }
    answer = simulate(with_overrides(scenario, room), load_facts(), table)
    assert answer.summary["hit_token_ratio"] == pytest.approx(expected, rel=0.03)


def test_dies_chosen_by_what_they_hold_keep_each_other_waiting_for_less():
    # Attention waits for the die with the most KV to read; requests of uneven lengths make one.
    asked = {
        "workload.arrivals": "closed_loop",
        "workload.concurrency": 1280,
        "workload.lengths": "servegen-deepseek-r1",
        "deployment.mode": "decode_only",
        "deployment.decode.instances": 1,
        "deployment.decode.npus_per_instance": 32,
        "deployment.decode.batch_per_npu": 48,
        "experts.placement": "perfect",
        "horizon_s": 1500.0,
        "warmup_s": 300.0,
    }
    took_s = {}
    for choice in ("kv_tokens", "kv_and_requests", "requests"):
        question = with_overrides(Scenario(), asked | {"deployment.decode.rank_choice": choice})
        took_s[choice] = simulate(question, load_facts()).summary["decode_iteration_s_mean"]
    assert took_s["kv_tokens"] < 0.95 * took_s["requests"]
    assert took_s["kv_and_requests"] < 0.95 * took_s["requests"]


def test_what_dram_evicts_comes_back_as_fast_as_the_vpc_plane_is():
    asked = {
        "workload.prefix": "shared",
        "workload.shared_fraction": 0.9,
        "workload.input_tokens": 4000,
        "workload.prefix_groups": 40,
        "deployment.mode": "prefill_only",
        "memory_pool.layout": "block",
    }
    little = asked | {"memory_pool.gb_per_node": 0.2}
    whole, fast, slow, lost = (
        run(fields).tables["requests"].drop_nulls("finish_s")
        for fields in (
            asked,
            little | {"supernode.vpc_gb_per_s_per_node": 100.0},
            little | {"supernode.vpc_gb_per_s_per_node": 20.0},
            little | {"memory_pool.ssd_gb_per_node": 0.0},
        )
    )
    hits, took_s = zip(*(
        (rows["hit_tokens"].mean(), (rows["prefill_end_s"] - rows["prefill_start_s"]).mean())
        for rows in (whole, fast, slow, lost)
    ), strict=True)  # fmt: skip
    assert hits[0] == pytest.approx(hits[1], rel=0.02) and hits[3] < 0.8 * hits[1]
    assert took_s[0] <= took_s[1] < took_s[2]
