"""One composition for every answer by formula, without a compiler; the largest batch of an SLO."""

import subprocess
import sys

import pytest

from twin.hardware.chip import HardwareError
from twin.hardware.imported import make_available
from twin.lab.ask import scenario_named
from twin.lab.library import load_facts
from twin.lab.machines import read_machine
from twin.model.shape import ModelError
from twin.scenario import Scenario, with_overrides
from twin.steady import (
    Priced,
    assemble,
    largest_batch,
    predict_steady,
    predict_with_advice,
    traffic_of,
)


@pytest.fixture(scope="module")
def facts():
    return load_facts()


@pytest.fixture(scope="module")
def paper():
    return scenario_named("paper-decode-50ms-4k")


def test_an_answer_is_the_price_of_its_parts(facts, paper):
    full, parts = predict_steady(paper, facts), assemble(paper, facts)
    assert full.costs.kv_bytes_per_token == parts.costs.kv_bytes_per_token
    assert full.decode == predict_steady(paper, facts, traffic=traffic_of(paper, facts)).decode
    assert parts.decode_imbalance.factor.min() >= 1.0


def test_a_changed_fact_is_another_answer_and_the_first_stays(facts, paper):
    before = predict_steady(paper, facts).decode.tpot_s
    flat = facts.replaced({"experts.popularity.layer_scale": (0.01,) * 58})
    assert predict_steady(paper, flat).decode.tpot_s < before
    assert predict_steady(paper, facts).decode.tpot_s == before


def test_full_slots_beyond_the_slo_are_told_which_batch_keeps_it(facts, paper):
    tight = with_overrides(paper, {"slo.tpot_ms": 20.0})
    assert (
        largest_batch(Priced(tight, facts), 0.02).sentence
        in predict_with_advice(Priced(tight, facts)).advice
    )
    loose = with_overrides(paper, {"slo.tpot_ms": 200.0})
    assert predict_with_advice(Priced(loose, facts)).advice == predict_steady(loose, facts).advice


def test_a_formula_waits_for_no_compiler_no_store_and_no_tables():
    asks = (
        "import sys; from twin.lab.runs.predicted import predict_all"
        "; from twin.lab.ask import scenario_named"
        "; predict_all(scenario_named('quickstart'))"
        "; predict_all(scenario_named('mooncake-like-conversation'))"
        "; print(*{'numba', 'sqlalchemy', 'polars', 'scipy', 'streamlit'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()


def test_a_memory_pool_that_no_cpu_lends_has_no_answer_as_it_has_no_run(facts):
    ring = "".join(f"die {n}.0.0,die {(n + 1) % 4}.0.0,50,200,ub\n" for n in range(4))
    machine = read_machine(f"from,to,GB/s,ns,plane\n{ring}".encode(), "ring.csv")
    make_available(machine)
    fields = {
        "supernode.machine": machine.digest, "supernode.chip": "h800", "workload.prefix": "none",
        "deployment.mode": "prefill_only", "deployment.prefill.instances": 1,
        "deployment.prefill.npus_per_instance": 4, "deployment.model": "deepseek-v2-lite",
        "deployment.precision.weights": "bf16", "deployment.decode.mtp_draft_tokens": 0,
    }  # fmt: skip
    without_cpus = with_overrides(Scenario(), fields)
    with pytest.raises(
        HardwareError, match="no CPU is on the plane: link them, or let memory_pool"
    ):
        assemble(without_cpus, facts)
    assert assemble(with_overrides(without_cpus, {"memory_pool.enabled": False}), facts)


def test_the_batch_found_keeps_the_bound_and_one_more_a_die_does_not(facts, paper):
    found = largest_batch(Priced(paper, facts), 0.05)
    assert found.batch_per_npu and found.batch_tpot_s <= 0.05
    assert 90 <= found.batch_per_npu <= 102  # published: 96 at 49.4 ms
    again = largest_batch(Priced(paper, facts), found.batch_tpot_s * 0.9999)
    assert again.batch_per_npu == found.batch_per_npu - 2


def test_a_bound_below_the_smallest_batch_is_infeasible_and_says_what_binds(facts, paper):
    found = largest_batch(Priced(paper, facts), 0.005)
    assert found.batch_per_npu == 0
    assert 0.008 < found.best_tpot_s < 0.0149  # published: 14.9 ms at batch 8
    assert found.bottleneck == "reading weights"
    assert "No batch keeps" in found.sentence and "reading weights" in found.sentence
    assert 0.5 < sum(found.causes.values()) < 1.3  # soft roofs and barriers do not add up exactly


def test_a_long_context_binds_on_the_attention_core(facts, paper):
    long = with_overrides(paper, {"workload.input_tokens": 120_000})
    assert largest_batch(Priced(long, facts), 0.001).bottleneck == "the attention core"


def test_faster_memory_allows_what_was_infeasible(facts, paper):
    best = largest_batch(Priced(paper, facts), 0.001).best_tpot_s
    other = with_overrides(paper, {"deployment.decode.mtp_acceptance": 0.95})
    assert largest_batch(Priced(other, facts), 0.001).best_tpot_s < best
    assert largest_batch(Priced(other, facts), best).batch_per_npu


def test_what_decodes_nothing_has_no_answer(facts, paper):
    with pytest.raises(ModelError, match="decodes nothing"):
        largest_batch(
            Priced(with_overrides(paper, {"deployment.mode": "prefill_only"}), facts), 0.05
        )


def test_hits_that_take_longer_to_read_than_to_compute_are_computed():
    reused = with_overrides(
        Scenario(), {"deployment.mode": "prefill_only", "workload.prefix": "shared"}
    )
    far = {"memory_pool.plane": "vpc", "supernode.vpc_gb_per_s_per_node": 1.0}
    off = {"memory_pool.enabled": False}
    near, slow, none = (
        predict_steady(with_overrides(reused, fields), load_facts()).prefill
        for fields in ({}, far, off)
    )
    assert slow == none and near.requests_per_s > 1.2 * none.requests_per_s
