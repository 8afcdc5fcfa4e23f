"""The answer by formula, as the command line gives it: neither engine nor store is loaded."""

import time
from typing import Any

from twin.attainment import attainment
from twin.lab.evidence.near import figure_bands
from twin.lab.library import load_facts
from twin.scenario import Scenario, left_out_by_formulas, model_names, scenario_digest, split_models
from twin.steady import Counts, Priced, largest_batch
from twin.workload.requests import TraceTable


def predict_all(
    scenario: Scenario, trace: TraceTable | None = None, counts: Counts | None = None
) -> dict[str, Any]:
    """Steady state by formula as one object: a flat summary with a run's keys, seconds by operator,
    advice. With several models these are the first model's, and `models` has each model's by name.
    counts: imported expert counts, f8[layers, experts]."""
    if not scenario.models:
        return _predict_one(scenario, trace, counts)
    named_scenarios = zip(model_names(scenario), split_models(scenario), strict=True)
    answer_by_model = {name: _predict_one(model, trace, counts) for name, model in named_scenarios}
    first_answer = next(iter(answer_by_model.values()))
    wall_s = sum(model_answer["wall_s"] for model_answer in answer_by_model.values())
    head_fields = {"scenario": scenario_digest(scenario), "wall_s": wall_s}
    return first_answer | head_fields | {"models": answer_by_model}


def _predict_one(
    scenario: Scenario, trace: TraceTable | None, counts: Counts | None
) -> dict[str, Any]:
    """The formulas' answer for one model, as a dict for JSON, with sentences on known errors."""
    facts = load_facts()
    start_s = time.perf_counter()
    priced = Priced(scenario, facts, trace, counts)
    prediction = priced.prediction
    req_per_s, limiter = prediction.requests_per_s, prediction.limit
    if prediction.prefill is not None and scenario.deployment.prefill.attention == "dp":
        # By a sample of prompts: a long one on one die leaves the others without work.
        req_per_s, limiter = min((req_per_s, limiter), (attainment(priced).max_rate, "prefill"))
    summary: dict[str, Any] = {"throughput_req_per_s": req_per_s, "limit": limiter}
    operators_by_role = {}
    advice = " ".join(filter(None, (prediction.advice, left_out_by_formulas(scenario))))
    if scenario.deployment.mode != "prefill_only":
        batch_at_slo = largest_batch(priced, scenario.slo.tpot_ms * 1e-3)
        advice += f" {batch_at_slo.sentence}"
        summary |= {
            "slo_tpot_s": batch_at_slo.tpot_s, "slo_batch_per_npu": batch_at_slo.batch_per_npu,
            "slo_best_tpot_s": batch_at_slo.best_tpot_s, "slo_binds": batch_at_slo.bottleneck,
        }  # fmt: skip
    if (prefill := prediction.prefill) is not None:
        operators_by_role["prefill"] = prefill.operators
        summary |= {
            "prefill_tokens_per_s_per_npu": prefill.tokens_per_s_per_npu,
            "prefill_batch_s_mean": prefill.batch_s,
            "prefill_limit": f"{prefill.longest_operator}: {prefill.resource}",
        }
    if (decode := prediction.serving) is not None:  # as what limits it feeds it
        operators_by_role["decode"] = decode.operators
        summary |= {
            "decode_tokens_per_s_per_npu": decode.tokens_per_s_per_npu,
            "decode_iteration_s_mean": decode.iteration_s, "tpot_s_mean": decode.tpot_s,
            "decode_batch_per_npu": decode.batch_per_npu, "decode_batch_limit": decode.limited_by,
            "decode_limit": f"{decode.longest_operator}: {decode.resource}",
            "hbm_utilisation": decode.hbm_utilisation, "cube_utilisation": decode.cube_utilisation,
        }  # fmt: skip
    wall_s = time.perf_counter() - start_s
    return {
        "scenario": scenario_digest(scenario), "name": scenario.name, "wall_s": wall_s,
        "summary": summary, "operators": operators_by_role, "advice": advice,
        "errors": [band.sentence for band in figure_bands(scenario, facts)],
    }  # fmt: skip
