"""Clients: turns wait for answers, time-outs free everything, retries come back."""

import numpy as np
import polars as pl
import pytest

from tests.draws import seeds
from tests.engine.small import MODES, end_of, recorded, small
from tests.laws.lawful import lawful
from twin.engine import codes as w
from twin.engine.simulate import simulate
from twin.lab.library import load_facts

SESSIONS = {
    "horizon_s": 6.0,
    "workload.prefix": "sessions",
    "workload.turn_gap_s": 0.3,
    "workload.follow_up_probability": 0.8,
    "workload.rate_req_per_s": 80.0,
    "workload.turns": "wait",
}
# More than the machine serves, of clients that wait for a fraction of a second.
HASTY = {
    "horizon_s": 6.0,
    "workload.rate_req_per_s": 600.0,
    "workload.lengths": "azure-2023-conv",
    "workload.prompts": 1500,
    "deployment.prefill.tokens_per_npu": 512,
    "deployment.prefill.chunk_tokens": 300,
    "deployment.decode.batch_per_npu": 4,
    "clients.timeout_s": 0.2,
    "clients.answer_timeout_s": 0.6,
    "clients.retries": 2,
    "clients.backoff_s": 0.1,
}


def of_sessions(requests):
    """Rows of sessions with several turns, in order of their turns."""
    return requests.sort("session", "arrival_s").filter(pl.len().over("session") > 1)


@pytest.mark.parametrize("mode", ["disaggregated", "colocated"])
def test_a_turn_comes_a_pause_after_the_answer_it_extends(mode):
    setup, world = end_of(small(SESSIONS | {"deployment.mode": mode}))
    r, asked = world.request, setup.requests
    arrived = int(world.record.counters[w.ARRIVED])
    row_of = {int(turn): i for i, turn in enumerate(r.turn[:arrived])}
    waited = 0
    for i in range(arrived):
        before = asked.waits_for[r.turn[i]]
        if before >= 0:
            parent = row_of[int(before)]
            assert r.arrival_s[i] == r.finish_s[parent] + asked.pause_s[r.turn[i]]
            assert r.input_tokens[i] > r.input_tokens[parent] + r.output_tokens[parent]
            waited += 1
    assert waited > 50
    # What waits for an answer that is not out has not come.
    ended = {int(t) for t in r.turn[:arrived][r.status[:arrived] == w.FINISHED]}
    assert all(asked.waits_for[t] < 0 or int(asked.waits_for[t]) in ended for t in row_of)


def test_a_trace_s_turns_wait_for_answers_and_keep_their_think_times():
    trace = recorded([0.0, 0.1, 0.2, 0.3], [500, 700, 900, 400], [20, 20, 20, 20])
    trace = trace.__class__(**{
        **{name: getattr(trace, name) for name in trace.__dataclass_fields__},
        "session": np.array([0, 0, 0, 1], np.int32),
        "think_s": np.array([np.nan, 0.5, np.nan, np.nan]),
    })  # fmt: skip
    asked = {"workload.arrivals": "trace", "workload.trace.digest": "0" * 64}
    asked |= {"workload.turns": "wait", "warmup_s": 0.0}
    run = simulate(small(asked), load_facts(), trace)
    lawful(run)
    own = run.tables["requests"].filter(pl.col("session") == 0)
    gaps = own["arrival_s"].to_numpy()[1:] - own["finish_s"].to_numpy()[:-1]
    assert gaps == pytest.approx([0.5, 0.1])
    assert run.summary["sessions_finished"] == 2
    whole_s = own["finish_s"][-1] - own["arrival_s"][0]
    assert run.summary["session_s_p99"] == pytest.approx(whole_s, rel=0.02)


def test_turns_that_wait_come_later_than_timed_ones_and_no_sooner():
    timed, waiting = (
        simulate(small(SESSIONS | {"workload.turns": turns}), load_facts())
        for turns in ("timed", "wait")
    )
    assert len(of_sessions(waiting.tables["requests"])) > 100
    assert waiting.summary["requests"] <= timed.summary["requests"]
    assert timed.summary["session_s_p50"] is None and waiting.summary["session_s_p50"] > 0


def test_the_kv_of_answers_is_read_by_the_next_turn():
    """Gaps are longer than answers take, so every follow-up finds its parent's answer."""
    without, kept = (
        simulate(small(SESSIONS | {"memory_pool.answers": answers}), load_facts())
        for answers in (False, True)
    )
    hits = [
        run.tables["requests"].filter(pl.col("hit_tokens") > 0)["hit_tokens"].sum()
        for run in (without, kept)
    ]
    assert kept.summary["requests"] == pytest.approx(without.summary["requests"], rel=0.02)
    assert hits[1] > hits[0]
    block = kept.scenario.memory_pool.block_tokens
    before = {}
    for row in of_sessions(kept.tables["requests"]).iter_rows(named=True):
        parent = before.get(row["session"])
        if parent and row["prefill_start_s"] is not None:
            whole = (parent["input_tokens"] + parent["output_tokens"]) // block * block
            assert row["hit_tokens"] == whole
        before[row["session"]] = row


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["fifo", "fair"])
def test_a_cancelled_request_leaves_nothing_behind(mode, order, seed):
    """Clients leave from queues, batches, transfers and slots; when all are gone, nothing is."""
    asked = HASTY | {"deployment.mode": mode, "seed": seed + 1, "admission.order": order}
    if mode == "prefill_only":
        asked |= {"clients.answer_timeout_s": 0.0, "workload.rate_req_per_s": 2000.0}
    if mode == "decode_only":
        asked |= {"clients.timeout_s": 0.05}
    if mode == "colocated":  # else nearly all give up: ranks wait for the one with a whole prompt
        asked |= {"deployment.colocated.prompt_dies": 8}
    if order == "fair":
        asked |= {"tenants": [{"name": "a"}, {"name": "b", "weight": 3.0}]}
    _, world = end_of(small(asked))
    r, p, d, t, c = (
        world.request,
        world.prefill,
        world.decode,
        world.transfer,
        world.record.counters,
    )
    arrived = int(c[w.ARRIVED])
    status = r.status[:arrived]
    assert c[w.CANCELLED_BY_CLIENT] == (status == w.CANCELLED).sum() > 100
    assert (status >= w.FINISHED).all() and (status == w.FINISHED).sum() > 5
    assert (p.queue == w.NONE).all() and (p.batch == w.NONE).all()
    assert (p.queued_tokens == 0).all() and np.abs(p.queued_s).max() < 1e-6
    assert (d.wait[:, w.HEAD] == w.NONE).all() and (d.calendar == w.NONE).all()
    assert (d.taken == 0).all() and (d.taken_slots == 0).all() and (d.requests == 0).all()
    assert (d.in_batch == 0).all() and (d.context == 0).all() and (d.growth == 0).all()
    assert np.abs(d.reserved_tokens).max() == 0
    assert t.active[0] == 0 and t.unsent[0, w.HEAD] == w.NONE and (p.sending == 0).all()
    assert (t.crossing == 0).all()
    assert p.sent_bytes.sum() == pytest.approx(d.received_bytes.sum())
    assert d.returned[0, w.HEAD] == w.NONE and world.gate.wait[0, w.HEAD] == w.NONE
    assert (world.gate.inside == 0).all() and c[w.LEFT_EARLY] == 0
    assert (world.gate.waiting == 0).all() and (world.gate.handed == 0).all()
    assert np.abs(d.tenant_growth).max() == 0
    assert world.loop.size[0] == 0
    # Nobody waits longer than its client does; a batch under way ends first.
    late = r.ready_s[:arrived][status == w.CANCELLED] - r.arrival_s[:arrived][status == w.CANCELLED]
    assert late.min() >= min(asked["clients.timeout_s"], 0.6) - 1e-9


def test_a_retry_is_a_new_attempt_at_the_same_turn_after_a_growing_pause():
    run = simulate(small(HASTY), load_facts())
    lawful(run)
    requests = run.tables["requests"]
    attempts = requests.sort("asked_s", "attempt").group_by(
        "asked_s", "session", maintain_order=True
    ).agg(pl.all())  # fmt: skip
    assert attempts["attempt"].list.max().max() == 2
    again = 0
    for row in attempts.iter_rows(named=True):
        assert row["attempt"] == list(range(len(row["attempt"])))
        assert len(set(row["input_tokens"])) == 1
        for k in range(1, len(row["attempt"])):
            assert row["status"][k - 1] == "cancelled"
            limit_s = {"no first": 0.2, "no whole": 0.6}[row["reason"][k - 1][:8]]
            pause_s = row["arrival_s"][k] - row["arrival_s"][k - 1] - limit_s
            assert 0.75 * 0.1 * 2 ** (k - 1) - 1e-9 <= pause_s <= 0.1 * 2 ** (k - 1) + 1e-9
            again += 1
    assert again == run.summary["asked_again"] > 100 and run.summary["wasted_tokens"] > 0


def test_what_no_client_uses_changes_nothing():
    """Fields without a use leave every byte: nobody waits so long, nobody asks again."""
    plain = {"horizon_s": 2.0, "workload.rate_req_per_s": 60.0}
    patient = plain | {"clients.timeout_s": 1000.0}
    first, second = (
        simulate(small(asked), load_facts()).tables["requests"].drop("status", "reason")
        for asked in (plain, patient)
    )
    assert first.equals(second)
    third = simulate(small(plain | {"clients.retries": 3}), load_facts())
    assert third.digest == simulate(small(plain), load_facts()).digest


def test_a_prompt_whose_client_has_left_goes_through_no_further_pipeline_stage():
    settings = {
        "horizon_s": 3.0, "workload.input_tokens": 20000, "workload.rate_req_per_s": 20.0,
        "deployment.prefill.pp_stages": 2, "clients.answer_timeout_s": 0.05,
    }  # fmt: skip
    run = simulate(small(settings), load_facts())
    lawful(run)  # counted inside until the first stage ends, as its stamps say
    assert (run.tables["requests"]["status"] == "cancelled").all()
