"""The phases against naive simulations of one request and one iteration at a time.

Only the cost kernels are shared; who waits, who joins, who is done is worked out anew.
"""

import numpy as np
import polars as pl
import pytest

from tests.draws import some
from tests.engine.small import end_of, facts_with_kv_space, run, small
from twin.engine import codes as w
from twin.engine.build import build_world
from twin.engine.phases.decode import deliver_first_token
from twin.engine.phases.router import refresh_view, reserve_rank
from twin.engine.setup import set_up
from twin.engine.simulate import simulate
from twin.hardware.prices import pool_read
from twin.lab.library import load_facts
from twin.metrics.operators import DECODE_OPERATORS, PREFILL_OPERATORS
from twin.model.decode import decode_iteration_s
from twin.model.prefill import prefill_batch_s, prefill_hits_s
from twin.steady import predict_steady

MIXED_LENGTHS = {
    "workload.lengths": "azure-2023-conv",
    "workload.rate_req_per_s": 100.0,
    "horizon_s": 3.0,
}


def decoded(world, instance):
    """Finish of every request of a decode instance, iteration by iteration, token by token."""
    r, s, costs = world.request, world.settings, world.costs
    n = s.decode_ranks
    waiting = [int(i) for i in np.flatnonzero(r.rank // n == instance) if r.transfer_end_s[i] >= 0]
    waiting.sort(key=lambda i: (r.transfer_end_s[i], i))
    running, finish, now = {}, {}, 0.0
    while waiting or running:
        if not running:
            now = max(now, r.transfer_end_s[waiting[0]])
        while waiting and r.transfer_end_s[waiting[0]] <= now:
            i = waiting.pop(0)
            if r.output_tokens[i] == 1:
                finish[i] = now
            else:
                running[i] = 1  # the first token came with the KV
        if not running:
            continue
        requests, context = np.zeros(n, np.int64), np.zeros(n)
        for i, out in running.items():
            requests[r.rank[i] % n] += 1
            context[r.rank[i] % n] += r.input_tokens[i] + out
        now += decode_iteration_s(
            costs.decode[instance], requests, context, 0, n, costs.decode_hot_tokens,
            costs.decode_hot_factor[instance], np.zeros(len(DECODE_OPERATORS)),
        )  # fmt: skip
        if now > s.horizon_s:
            break
        running = {i: out + 1 for i, out in running.items()}
        for i in [i for i, out in running.items() if out == r.output_tokens[i]]:
            finish[i] = now
            del running[i]
    return finish


@pytest.mark.parametrize("mode", some(["disaggregated"], "decode_only"))
def test_decode_is_what_a_token_by_token_simulation_finds(mode):
    _, world = end_of(small(MIXED_LENGTHS | {"deployment.mode": mode, "horizon_s": 2.2}))
    finished = 0
    for instance in range(2):
        for i, at in decoded(world, instance).items():
            assert world.request.finish_s[i] == pytest.approx(at, abs=1e-9)
            finished += 1
    assert finished == world.record.counters[w.FINISHED_DECODE] > 100


def prefilled(world, instance):
    """Start and end of prefill of every request of an instance, batch by batch."""
    r, s, costs = world.request, world.settings, world.costs
    queue = [int(i) for i in np.flatnonzero(r.prefill_instance == instance)]
    queue.sort(key=lambda i: (r.routed_s[i], i))
    done, begin, end, now = dict.fromkeys(queue, 0), {}, {}, 0.0
    token_s = world.prefill.attention_s_per_token[instance]
    per, seen = np.array([token_s, costs.prefill[instance].core.pair]), (1.0, 0.0)
    while queue:
        now = max(now, r.routed_s[queue[0]])
        if now > s.horizon_s:
            break
        batch, room, pairs, dies = {}, s.prefill_budget, 0.0, np.zeros((s.prefill_ranks, 2))
        for i in queue:
            left = int(r.input_tokens[i]) - done[i]
            take = min(left, s.chunk_tokens, room) if s.chunk_tokens else left
            die = np.argmin(dies @ per if s.even_attention else dies[:, 0])
            if s.even_attention:
                share = s.prefill_budget / s.prefill_ranks * (per[0] + seen[1] / seen[0] * per[1])
                given = share - dies[die] @ per
                pieces = np.arange(1, max(take, 1) + 1)
                fits = pieces * (per[0] + per[1] * (done[i] + 0.5 * pieces)) <= given
                take = min(max(int(fits.sum()), int(given > 0)), room)
            if (
                (s.even_attention and not take)
                or r.routed_s[i] > now
                or room <= 0
                or (take > room and batch)
            ):
                break
            begin.setdefault(i, now)
            batch[i] = take
            context = take * (done[i] + (take + 1) / 2)
            pairs += context
            dies[die] += (take, context)
            room -= take
        tokens = float(sum(batch.values()))
        seen = seen[0] * (seen[1] > 0) + tokens, seen[1] + pairs
        die_tokens, die_pairs = tokens / s.prefill_ranks, pairs / s.prefill_ranks
        if s.data_parallel_attention:
            die_tokens, die_pairs = dies[np.argmax(dies @ per)]
        now += prefill_batch_s(
            costs.prefill[instance], tokens, die_tokens, die_pairs, costs.prefill_hot_tokens,
            costs.prefill_hot_factor[instance], np.zeros(len(PREFILL_OPERATORS)),
        )  # fmt: skip
        for i, take in batch.items():
            done[i] += take
            if done[i] == r.input_tokens[i]:
                end[i] = now
                queue.remove(i)
    return begin, end


@pytest.mark.parametrize("attention", ["sp_tp_sp", "dp", "dp even"])
@pytest.mark.parametrize("chunk", [0, 300])
def test_prefill_is_what_a_batch_by_batch_simulation_finds(attention, chunk):
    asked = MIXED_LENGTHS | {
        "deployment.mode": "prefill_only",
        "deployment.prefill.tokens_per_npu": 512,
        "deployment.prefill.attention": attention.split()[0],
        "deployment.prefill.dp_balance": "attention" if "even" in attention else "tokens",
        "deployment.prefill.chunk_tokens": chunk,
        "workload.rate_req_per_s": 200.0,
        "memory_pool.enabled": False,
    }
    _, world = end_of(small(asked))
    r, horizon_s, ended = world.request, world.settings.horizon_s, 0
    for instance in range(2):
        begin, end = prefilled(world, instance)
        for i, at in begin.items():
            assert r.prefill_start_s[i] == pytest.approx(at, abs=1e-9)
        for i, at in end.items():
            if at <= horizon_s:
                assert r.prefill_end_s[i] == pytest.approx(at, abs=1e-9)
                ended += 1
    assert ended == world.record.counters[w.FINISHED_PREFILL] > 100


def test_hits_are_fetched_before_the_rest_is_computed():
    setup, world = end_of(
        small(
            {
                "workload.prefix": "shared",
                "workload.prefix_groups": 1,
                "workload.rate_req_per_s": 2.0,
                "workload.arrivals": "uniform",
                "deployment.mode": "prefill_only",
                "deployment.prefill.instances": 1,
            }
        )
    )
    r, s = world.request, world.settings
    hits = r.hit_tokens[:8]
    assert hits[0] == 0 and (hits[1:] == hits[1]).all() and hits[1] > 0
    # Each die reads the latents of the whole batch.
    reads = setup.costs.prefill_role.fetch
    assert reads.bytes_per_token == setup.instances[0].dies * s.kv_bytes_per_token
    moved = hits[1:].sum() * reads.bytes_per_token
    assert world.prefill.fetched_bytes[0] == pytest.approx(moved)
    took = (r.prefill_end_s - r.prefill_start_s)[:8]
    rate = pool_read(setup.fabric, range(setup.instances[0].dies)).bytes_per_s
    fetch_s = reads.seconds(float(hits[1]), s.fetch_latency_s, rate)
    assert took[1:] == pytest.approx(np.full(7, took[1]), abs=1e-9)
    # A batch of one prompt: what the formula says of the same batch, nobody else on the way.
    costs, hot = setup.costs.prefill_role, setup.prefill_imbalance.table
    prompt = float(r.input_tokens[1])
    fresh = prompt - hits[1]
    share = 1.0 / setup.instances[0].dies
    pairs = fresh * (hits[1] + 0.5 * (fresh + 1.0))
    ops = costs.operator_sink()
    compute_s = prefill_batch_s(costs.prefill, fresh, fresh * share, pairs * share, *hot, ops)
    compute_s += prefill_hits_s(costs.prefill, float(hits[1]), ops)
    assert took[1] == pytest.approx(fetch_s + compute_s, rel=1e-6)


def test_preempted_requests_are_computed_again_and_still_finish():
    scenario = small(
        {
            "workload.input_tokens": 300,
            "workload.output_tokens": 300,
            "workload.rate_req_per_s": 60.0,
            "horizon_s": 12.0,
            "deployment.decode.batch_per_npu": 64,
            "deployment.prefill.tokens_per_npu": 1024,
        }
    )
    answer = simulate(scenario, facts_with_kv_space(scenario, 3000))
    rows = answer.tables["requests"]
    hit = rows.filter(pl.col("preemptions") > 0)
    assert answer.valid and hit.height > 8
    finished = hit.filter(pl.col("status") == "finished")
    assert finished.height > 8
    # One stamp of the first token, whatever came after.
    assert (finished["first_token_s"] < finished["finish_s"]).all()
    spared = rows.filter((pl.col("preemptions") == 0) & (pl.col("status") == "finished"))
    stay = [(part["finish_s"] - part["first_token_s"]).mean() for part in (finished, spared)]
    assert stay[0] > stay[1]


def test_an_answer_that_outgrows_its_die_alone_is_rejected_with_the_reason():
    scenario = small(
        {
            "workload.output_tokens": 2000,
            "workload.rate_req_per_s": 1.0,
            "horizon_s": 30.0,
            "deployment.mode": "decode_only",
        }
    )
    answer = simulate(scenario, facts_with_kv_space(scenario, 2000))
    turned_away = answer.tables["requests"].filter(pl.col("status") == "rejected")
    assert answer.valid and turned_away.height > 5
    assert turned_away["first_token_s"].null_count() == 0
    reasons = set(turned_away["reason"].cast(str))
    assert reasons == {"answer outgrew the KV space of its decode die"}


def test_tokens_of_answers_that_outgrow_their_die_are_conserved():
    scenario = small(
        {
            "workload.output_tokens": 2000,
            "workload.rate_req_per_s": 2.0,
            "workload.prompts": 40,
            "horizon_s": 60.0,
            "deployment.mode": "decode_only",
            "deployment.decode.mtp_draft_tokens": 2,
            "deployment.decode.drafter": "ngram",
        }
    )
    answer = simulate(scenario, facts_with_kv_space(scenario, 2000))
    rows = answer.tables["requests"]
    assert (rows["status"] == "rejected").sum() > 20
    assert answer.valid, [check for check in answer.checks if not check["ok"]]


def test_a_colocated_chunk_delays_the_tokens_of_everyone():
    asked = {"deployment.mode": "colocated", "workload.rate_req_per_s": 30.0}
    fine, coarse = (
        simulate(small(asked | {"deployment.colocated.chunk_tokens_per_npu": n}), load_facts())
        for n in (32, 1024)
    )
    assert fine.summary["itl_s_p99"] < coarse.summary["itl_s_p99"]


def test_prompts_that_wait_for_ranks_shorten_iterations_and_come_later():
    asked = {"deployment.mode": "colocated", "workload.rate_req_per_s": 30.0}
    at_once, waited = (
        simulate(small(asked | {"deployment.colocated.prompt_delay": n}), load_facts()).summary
        for n in (0, 12)
    )
    assert waited["decode_iteration_s_mean"] < at_once["decode_iteration_s_mean"]
    assert waited["tpot_s_mean"] < at_once["tpot_s_mean"]
    later = waited["ttft_s_mean"] - at_once["ttft_s_mean"]
    assert 0.0 < later < 13.0 * at_once["decode_iteration_s_mean"]


LOOPS = "operators.ascend."


def test_prompts_are_received_once_in_so_many_iterations():
    """The wait grows by half of the iterations between two looks; what is computed is the same."""
    asked = {"deployment.mode": "colocated", "workload.rate_req_per_s": 10.0,
             "workload.output_tokens": 400}  # fmt: skip
    every = {
        n: run(asked | {"deployment.colocated.receive_every": n}).summary for n in (1, 9)
    }  # fmt: skip
    later = every[9]["ttft_s_mean"] - every[1]["ttft_s_mean"]
    iteration = every[9]["decode_iteration_s_mean"]
    assert 1.0 * iteration < later < 6.0 * iteration
    assert every[9]["output_tokens_per_s"] == pytest.approx(
        every[1]["output_tokens_per_s"], rel=0.1
    )


def test_a_pass_that_is_formed_ahead_makes_a_prompt_wait_for_one_more():
    asked = {"deployment.mode": "colocated", "workload.rate_req_per_s": 30.0}
    ahead = load_facts().replaced({f"{LOOPS}runs_ahead": 1})
    at_once, later = (run(asked, facts).summary for facts in (load_facts(), ahead))
    gap = later["ttft_s_mean"] - at_once["ttft_s_mean"]
    assert 0.3 * at_once["decode_iteration_s_mean"] < gap < 3.0 * at_once["decode_iteration_s_mean"]


@pytest.mark.parametrize("mode", ["disaggregated", "decode_only"])
def test_decode_s_loop_gives_the_first_token_as_a_request_joins(mode):
    asked = {"deployment.mode": mode}
    plain = run(asked).tables["requests"]
    facts = load_facts().replaced({f"{LOOPS}first_by_decode": 1})
    loop = run(asked, facts).tables["requests"]
    waits = (loop["first_token_s"] - plain["first_token_s"]).drop_nulls()
    if mode == "decode_only":  # its KV is there from the start, and nothing hands it over
        assert waits.abs().max() == 0.0
        return
    assert waits.min() >= -1e-9 and waits.mean() > 0.0
    assert waits.max() < 3.0 * run(asked).summary["decode_iteration_s_mean"]
    after = load_facts().replaced({f"{LOOPS}first_by_decode": 1, f"{LOOPS}first_after_pass": 1})
    last = run(asked, after).tables["requests"]
    both = (last["first_token_s"] - loop["first_token_s"]).drop_nulls()
    assert both.min() >= -1e-9 and both.max() > 0.0  # some prefill pass was under way
    assert (last["finish_s"] >= last["first_token_s"]).all()
    assert last["finish_s"].equals(loop["finish_s"])  # decode itself goes on


def test_the_first_token_of_a_request_from_before_the_run_waits_for_no_pass():
    """It names no prefill instance; the last one, and what lies before a column, are not its."""
    loops = {f"{LOOPS}first_by_decode": 1, f"{LOOPS}first_after_pass": 1}
    world = build_world(set_up(small(), load_facts().replaced(loops), None))
    world.instance.running[:] = 1
    world.instance.ends_s[:] = 9.0
    for prefill_instance, first_s in ((w.NONE, 2.0), (1, 9.0)):
        world.request.prefill_instance[0], world.request.ready_s[0] = prefill_instance, 1.0
        deliver_first_token(world, 0, 2.0)
        assert world.request.transfer_end_s[0] == first_s


@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "prefill_only"])
def test_an_instance_tokenises_one_prompt_after_another(mode):
    slow = load_facts().replaced({f"{LOOPS}tokenise": 40.0})  # 40 ms for 1,000 tokens
    requests = (
        run({"deployment.mode": mode}, slow)
        .tables["requests"]
        .sort("routed_s", maintain_order=True)
    )
    free_s = [0.0, 0.0]
    waits = []
    for p, routed, began in requests.drop_nulls("prefill_start_s").select(
        "prefill_instance", "routed_s", "prefill_start_s"
    ).iter_rows():  # fmt: skip
        free_s[p] = max(free_s[p], routed) + 0.040
        waits.append(free_s[p] - routed)
        assert began >= free_s[p] - 1e-9
    assert max(waits) > 0.080  # some prompts wait for another's


@pytest.mark.parametrize("mode", ["disaggregated", "colocated"])
def test_tokenisers_limit_a_deployment_in_the_formula_and_in_a_run(mode):
    slow = load_facts().replaced({f"{LOOPS}tokenise": 100.0})  # ten prompts/s of an instance
    asked = {"deployment.mode": mode, "horizon_s": 12.0, "warmup_s": 4.0}
    prediction = predict_steady(small(asked), slow)
    assert (prediction.limit, prediction.requests_per_s) == ("front end", pytest.approx(20.0))
    if mode == "disaggregated":
        assert prediction.advice.startswith("The tokenisers limit")
    tokens_per_s = run(asked, slow).summary["output_tokens_per_s"]
    assert tokens_per_s == pytest.approx(20.0 * 40, rel=0.08)


def test_a_prompt_waits_for_no_iteration_where_nothing_decodes():
    asked = {"deployment.mode": "colocated", "workload.rate_req_per_s": 0.5,
             "workload.output_tokens": 2}  # fmt: skip
    at_once, waited = (
        simulate(small(asked | {"deployment.colocated.prompt_delay": n}), load_facts()).tables[
            "requests"
        ]
        for n in (0, 500)
    )
    assert waited.equals(at_once)


def test_a_need_without_room_is_looked_for_again_only_when_there_may_be_room():
    _, world = end_of(small({"horizon_s": 1.5}))
    decode = world.decode
    decode.changed[:] = 1
    refresh_view(world)
    decode.kv_tokens[:] = decode.taken_tokens.min() + 100.0
    assert reserve_rank(world, w.NONE, 0, 101.0) == w.NONE
    assert (decode.refused == 101.0).all()
    rank = reserve_rank(world, w.NONE, 0, 99.0)  # what needs less is looked for
    assert decode.taken_tokens[rank] <= decode.kv_tokens[0]
    decode.kv_tokens[:] = np.inf
    assert reserve_rank(world, w.NONE, 0, 101.0) == w.NONE
    decode.changed[:] = 1
    refresh_view(world)
    assert (decode.refused == np.inf).all()
    assert reserve_rank(world, w.NONE, 0, 101.0) != w.NONE
