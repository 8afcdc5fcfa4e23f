"""simulate: progress, cancelling, refusals in one sentence, remarks, closed loops."""

import polars as pl
import pytest

from tests.engine.small import facts_with_kv_space, recorded, run, small
from twin.engine.setup import ScenarioError, set_up
from twin.engine.simulate import Cancelled, simulate
from twin.lab.library import load_facts

LOOP = {"workload.arrivals": "closed_loop", "workload.concurrency": 50, "horizon_s": 6.0}


def test_progress_rises_to_one_and_does_not_touch_the_result():
    seen = []

    def watch(share, numbers):
        seen.append((share, numbers["arrived"]))
        return True

    watched = simulate(small(), load_facts(), progress=watch)
    assert watched.digest == run().digest
    assert seen == sorted(seen) and seen[-1] == (1.0, watched.summary["requests"])


def test_a_run_stops_when_its_watcher_says_so():
    with pytest.raises(Cancelled):
        simulate(small(), load_facts(), progress=lambda share, _: share < 0.5)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"workload.arrivals": "trace", "workload.trace.digest": "a" * 64}, "import its file"),
        ({"workload.arrivals": "gamma", "workload.rate_req_per_s": 0.001}, "no request arrives"),
        (
            {
                "workload.arrivals": "closed_loop",
                "workload.concurrency": 2_000_000,
                "deployment.mode": "prefill_only",
                "horizon_s": 6000.0,
            },
            "shorten horizon_s",
        ),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ScenarioError, match=sentence):
        simulate(small(settings), load_facts())


def test_a_closed_loop_keeps_its_clients_in_the_machine():
    answer = run(LOOP)
    inside = answer.tables["windows"].select(
        "front_end_queue", "router_queue", "prefill_queue", "prefill_running", "transfer_running",
        "decode_running",
    )  # fmt: skip
    assert inside.sum_horizontal().to_numpy() == pytest.approx(50.0)
    assert answer.summary["requests"] > 200


@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "prefill_only", "decode_only"])
def test_a_closed_loop_has_requests_enough(mode):
    scenario = small(LOOP | {"deployment.mode": mode, "workload.output_tokens": 5})
    answer = simulate(scenario, load_facts())
    prepared = set_up(scenario, load_facts(), None).requests.arrival_s.size
    assert answer.summary["requests"] < prepared
    assert not [n for n in answer.notes if "ran out" in n]


def test_clients_that_are_turned_away_come_back():
    scenario = small(LOOP | {"workload.input_tokens": 20_000, "deployment.mode": "decode_only"})
    answer = simulate(scenario, facts_with_kv_space(scenario, 9000))
    assert answer.valid
    assert answer.summary["rejected"] > 50 and answer.summary["finished"] == 0
    assert set(answer.tables["requests"]["reason"].cast(str)) == {
        "prompt longer than the KV space of a decode die"
    }


def test_overload_is_said_and_ends():
    notes = run({"workload.rate_req_per_s": 3000.0}).notes
    assert any("Overloaded" in n for n in notes)
    assert not any("Overloaded" in n for n in run().notes)


def test_what_a_trace_leaves_out_is_among_the_notes():
    trace = recorded([0.0, 1.0, 99.0], [100] * 3, [5] * 3)
    settings = {"workload.arrivals": "trace", "workload.trace.digest": trace.digest}
    answer = simulate(small(settings), load_facts(), trace)
    assert answer.summary["requests"] == 2
    assert "1 request: after the horizon" in answer.notes


def test_a_silent_stretch_is_passed_over_and_still_counted():
    quiet = run({"workload.rate_req_per_s": 0.05, "horizon_s": 400.0, "warmup_s": 0.0})
    assert quiet.valid
    windows = quiet.tables["windows"]
    held = sum(windows[f"{place}"].sum() for place in ("decode_running", "prefill_running"))
    inside = quiet.summary["concurrency_mean"] * windows.height
    assert held <= inside  # an empty stretch weighs as much as a busy one
    assert quiet.summary["concurrency_mean"] < 1


def test_a_run_that_would_not_fit_in_memory_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr("twin.engine.setup.MOST_BYTES", 1e3)
    with pytest.raises(ScenarioError, match="GB of memory"):
        simulate(small(), load_facts())


@pytest.mark.parametrize(
    ("weight", "what"),
    [("REQUEST", "requests"), ("BLOCK", "KV blocks"), ("PORT", "memory servers"),
     ("INSTANCE", "instances"), ("DIE", "a graph of")],
)  # fmt: skip
def test_the_refusal_of_a_large_run_names_what_weighs_most(monkeypatch, weight, what):
    monkeypatch.setattr(f"twin.engine.setup.BYTES_PER_{weight}", 1e12)
    with pytest.raises(ScenarioError, match=f"mostly for .*{what}"):
        simulate(small({"memory_pool.enabled": True}), load_facts())


def test_a_horizon_shorter_than_the_stays_is_said():
    notes = run({"workload.output_tokens": 4000, "horizon_s": 4.0, "warmup_s": 1.0}).notes
    assert any("still inside" in note or "No request finished" in note for note in notes)


def test_a_steady_start_has_long_stays_too():
    short = {"workload.output_tokens": 4000, "horizon_s": 20.0, "warmup_s": 1.0}
    begun = {start: run(short | {"start": start}) for start in ("empty", "steady")}
    for result in begun.values():
        assert result.summary["running"] > result.summary["finished"]
    assert begun["steady"].summary["finished"] > 0
    said = {start: " ".join(result.notes) for start, result in begun.items()}
    assert "short stays" in said["empty"] and "short stays" not in said["steady"]


def test_clients_that_begin_one_after_the_other_stay_out_of_step():
    asked = LOOP | {
        "workload.concurrency": 40, "workload.output_tokens": 400, "deployment.mode": "decode_only"
    }  # fmt: skip
    burst, ramp = (run(asked | {"workload.ramp_s": s}) for s in (0.0, 0.4))
    assert burst.valid and ramp.valid
    begun = ramp.tables["requests"]["arrival_s"].head(40)
    assert begun.to_list() == pytest.approx([k / 100 for k in range(40)])
    ends = [
        r.tables["requests"].drop_nulls("finish_s").filter(pl.col("finish_s") > 3.0)["finish_s"]
        for r in (burst, ramp)
    ]
    together, apart = (e.round(3).n_unique() / e.len() for e in ends)
    assert together < 0.5 < apart


def test_a_cache_of_prefill_instances_is_no_matter_where_nothing_prefills():
    asked = {"deployment.mode": "decode_only", "memory_pool.scope": "local", "horizon_s": 2.0}
    assert run(asked).valid
