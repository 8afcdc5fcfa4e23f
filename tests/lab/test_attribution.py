"""The ladder from a benchmark to a deployment: one cause a rung, nothing lost, nothing twice."""

import pytest

from twin.lab import attribution
from twin.lab.attribution import (
    SLO,
    THROUGHPUT,
    AttributionError,
    alone,
    climb,
    even_benchmark,
    ladder,
    parts,
)
from twin.lab.compare import changed
from twin.lab.library import load_facts, presets
from twin.scenario import with_overrides
from twin.workload.generate import length_means

PRESETS = {p.key: p.scenario for p in presets()}
BENCHMARK, PRODUCTION, BALANCED = (
    PRESETS[f"canary-{name}"] for name in ("benchmark", "production", "balanced")
)
CAPACITY = 100.0  # req/s that the formulas would allow


def machine(sustains: float, tokens_per_request: float = 10.0):
    """Answers of a made-up machine that keeps its SLO up to a rate."""

    def answers(s):
        rate = CAPACITY if s.workload.arrivals == "closed_loop" else s.workload.rate_req_per_s
        return {
            "slo_attainment": 1.0 if rate <= sustains else 0.2,
            "decode_tokens_per_s_per_npu": rate * tokens_per_request,
        }

    return answers


def test_rungs_change_one_cause_each_and_end_at_production():
    rungs = ladder(BENCHMARK, PRODUCTION, BALANCED, SLO)
    assert [r.key for r in rungs] == [
        "benchmark", "means", "context", "lengths", "queueing", "acceptance", "experts", "static",
        "balancing",
    ]  # fmt: skip
    seen = [path for rung in rungs[3:7] for path in rung.changed]
    assert {path for path in seen if seen.count(path) > 1} <= {"workload.arrivals"}
    words = ("name", "question", "source")
    last = next(r for r in rungs if r.key == "experts").scenario
    assert changed(last, PRODUCTION).keys() <= set(words)
    assert changed(rungs[-1].scenario, BALANCED).keys() <= set(words)


def test_each_rung_changes_only_what_it_says():
    rungs = ladder(BENCHMARK, PRODUCTION, BALANCED, SLO)
    for before, rung in zip(rungs[1:], rungs[2:], strict=False):
        found = changed(before.scenario, rung.scenario).keys()
        idle = {"workload.input_tokens", "workload.output_tokens"}  # lengths are not fixed any more
        assert found - {"name", "question", "source"} - idle == set(rung.changed) - idle


def test_a_difference_without_a_cause_of_its_own_is_a_rung_too():
    odd = with_overrides(PRODUCTION, {"deployment.precision.kv": "int8"})
    rungs = ladder(BENCHMARK, odd)
    assert [r.changed for r in rungs if r.key == "other"] == [("deployment.precision.kv",)]
    assert rungs[-1].key == "experts"


def test_a_trace_and_a_pool_that_decodes_nothing_are_refused_in_a_sentence():
    trace = {"workload.arrivals": "trace", "workload.trace.digest": "0" * 64}
    with pytest.raises(AttributionError, match="no rate to look for"):
        ladder(BENCHMARK, with_overrides(PRODUCTION, trace))
    with pytest.raises(AttributionError, match="decodes nothing"):
        ladder(BENCHMARK, with_overrides(PRODUCTION, {"deployment.mode": "prefill_only"}))


@pytest.mark.parametrize("sustains", [3.0, 37.0, 82.0, 99.0, 250.0])
def test_the_search_finds_the_highest_rate_that_keeps_the_slo(sustains):
    rung = next(r for r in ladder(BENCHMARK, PRODUCTION) if r.searched)
    step = climb(rung, machine(sustains), CAPACITY)
    most = min(sustains, CAPACITY)
    assert step.done
    assert most - 1.2 * CAPACITY / 128 - 0.05 <= step.rate_req_per_s <= most + 0.05
    assert step.tokens_per_s_per_npu == pytest.approx(10 * step.rate_req_per_s, rel=0.01)
    assert len(step.asked) <= attribution.PROBES


def test_an_slo_kept_at_no_rate_is_worth_nothing():
    rung = next(r for r in ladder(BENCHMARK, PRODUCTION) if r.searched)
    step = climb(rung, machine(0.0), CAPACITY)
    assert (step.tokens_per_s_per_npu, step.summary) == (0.0, None)


def test_a_ladder_is_climbed_one_question_at_a_time_and_again_for_nothing():
    known, asked = {}, 0
    simulate = machine(40.0)
    rungs = ladder(BENCHMARK, PRODUCTION, BALANCED)
    while True:
        steps = [climb(r, known.get, CAPACITY) for r in rungs]
        wanted = [s.wanted for s in steps if s.wanted is not None]
        if not wanted:
            break
        for question in wanted:
            assert question not in known
            known[question] = simulate(question)
            asked += 1
    assert asked <= 3 + attribution.PROBES * (len(rungs) - 3)
    assert all(climb(r, known.get, CAPACITY).done for r in rungs)


def test_parts_add_up_to_what_is_left():
    rungs = ladder(BENCHMARK, PRODUCTION, BALANCED)
    worths = dict(zip([r.key for r in rungs], (100, 95, 85, 80, 70, 65, 30, 50, 60), strict=True))
    steps = [climb(r, lambda s: None, CAPACITY) for r in rungs]
    assert parts(steps) == []
    known = [
        attribution.Step(s.rung, float(worths[s.rung.key]), None, (), None, None) for s in steps
    ]
    found = parts(known)
    assert sum(p.change for p in found) == found[-1].tokens_per_s_per_npu == 60
    assert found[2].share_of_benchmark == pytest.approx(-0.10)
    assert [p.alone for p in found] == [None] * len(found)
    apart = [
        attribution.Step(r, 38.0, None, (), None, None)
        for r in alone(rungs) if r.key == "alone:experts"
    ]  # fmt: skip
    put = {p.key: p.alone for p in parts(known + apart)}
    assert put.pop("experts") == pytest.approx(-0.57)  # from the 95 of mean lengths
    assert set(put.values()) == {None}


def test_throughput_asks_for_no_time_per_token_and_the_slo_does():
    for measure, tpot_ms in ((THROUGHPUT, attribution.ANY_TPOT_MS), (SLO, 80.0)):
        rungs = [r for r in ladder(BENCHMARK, PRODUCTION, BALANCED, measure) if r.searched]
        assert {r.scenario.slo.tpot_ms for r in rungs} == {tpot_ms}
        assert {r.scenario.slo.ttft_s for r in rungs} == {2.0}
    with pytest.raises(AttributionError, match="throughput and slo"):
        ladder(BENCHMARK, PRODUCTION, measure="goodput")


def test_requests_of_the_longer_context_have_as_much_to_read_as_productions_tokens():
    rungs = {r.key: r.scenario for r in ladder(BENCHMARK, PRODUCTION)}
    facts = load_facts()
    means, context, real = (
        length_means(rungs[key].workload, facts) for key in ("means", "context", "lengths")
    )
    assert context.context_tokens == pytest.approx(real.context_tokens, rel=1e-3)
    assert context.context_tokens > 1.5 * means.context_tokens  # long answers last longer
    for found in (means, context):
        assert found.output_tokens == pytest.approx(real.output_tokens, rel=1e-3)
    assert means.input_tokens == pytest.approx(real.input_tokens, rel=1e-3)


def test_bursts_are_told_from_uneven_lengths():
    rungs = {r.key: r.scenario for r in ladder(BENCHMARK, PRODUCTION)}
    assert rungs["lengths"].workload.arrivals == "uniform"
    assert rungs["queueing"].workload == PRODUCTION.workload


def test_a_cause_alone_changes_nothing_else_of_the_benchmark():
    rungs = ladder(BENCHMARK, PRODUCTION, BALANCED)
    found = {r.key: r for r in alone(rungs)}
    assert set(found) == {"alone:acceptance", "alone:experts"}
    base = next(r for r in rungs if r.key == "means")
    for rung in found.values():
        fields = changed(base.scenario, rung.scenario).keys()
        assert fields - {"name", "question", "source"} == set(rung.changed)
        assert (rung.base, rung.searched) == ("means", False)


def test_a_benchmark_can_be_made_of_any_deployment():
    made = even_benchmark(PRESETS["quickstart"], BENCHMARK)
    assert made.workload.arrivals == "closed_loop"
    assert made.workload.concurrency == 160 * 96
    assert made.experts.placement == "perfect"
    assert made.deployment.prefill == PRESETS["quickstart"].deployment.prefill
    assert ladder(made, PRESETS["quickstart"])[-1].key == "experts"
