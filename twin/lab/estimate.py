"""What a scenario asks for and what its machine can give, before anything is simulated.

`offered` draws a small sample of the very requests a run would see; `capacity` puts the steady
state by formula beside it. Both answer in milliseconds, for forms that show consequences while
they are edited. Queues, warm-up and reuse of a filling memory pool are a run's business.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twin.engine.setup import imbalances
from twin.facts import Facts
from twin.hardware.fabric import build_fabric
from twin.lab.target import largest_batch
from twin.model.costs import build_costs
from twin.model.predict import Prediction, predict
from twin.scenario import Scenario
from twin.workload.generate import generate, mean_lengths
from twin.workload.requests import TraceTable

SAMPLE = 4000  # requests a sample holds


@dataclass(frozen=True, slots=True)
class Offered:
    """The traffic in numbers; rates are None in a closed loop, which takes what it is given."""

    requests: int  # in the sample, or in the whole trace
    rate_req_per_s: float | None
    input_tokens_mean: float
    input_tokens_p50: float
    input_tokens_p95: float
    output_tokens_mean: float
    output_tokens_p50: float
    output_tokens_p95: float
    reuse: float  # share of prompt tokens an endless memory pool would have seen before

    @property
    def input_per_output(self) -> float:
        """Prompt tokens for one answer token: what prefill and decode pools are sized by."""
        return self.input_tokens_mean / self.output_tokens_mean

    @property
    def input_tokens_per_s(self) -> float | None:
        """Prompt tokens offered per second."""
        return None if self.rate_req_per_s is None else self.rate_req_per_s * self.input_tokens_mean

    @property
    def output_tokens_per_s(self) -> float | None:
        """Answer tokens asked for per second."""
        if self.rate_req_per_s is None:
            return None
        return self.rate_req_per_s * self.output_tokens_mean


def offered(scenario: Scenario, facts: Facts, trace: TraceTable | None = None) -> Offered:
    """The scenario's traffic, from its first requests; raises the workload's own error."""
    workload = scenario.workload
    rate: float | None = workload.rate_req_per_s
    count, horizon_s = SAMPLE, 2.0 * SAMPLE / workload.rate_req_per_s
    if workload.arrivals == "closed_loop":
        rate = None
    elif trace is not None:
        # Taken whole, for the reuse of a part is less; copies and haste change its rate only.
        count, horizon_s = len(trace), math.inf
        timed_s = trace.duration_s if trace.has_time else len(trace) / workload.rate_req_per_s
        rate = (
            len(trace)
            / max(timed_s, 1e-9)
            * workload.trace.tree_copies
            * workload.trace.rate_multiplier
        )
        once = workload.trace.model_copy(update={"tree_copies": 1, "rate_multiplier": 1.0})
        workload = workload.model_copy(update={"trace": once})
    block_tokens = scenario.memory_pool.block_tokens
    sample = generate(workload, horizon_s, scenario.seed, block_tokens, facts, trace, count)
    prompts, answers = sample.input_tokens, sample.output_tokens
    whole = int(sample.segment_blocks.sum())
    p50_in, p95_in = np.quantile(prompts, (0.5, 0.95))
    p50_out, p95_out = np.quantile(answers, (0.5, 0.95))
    return Offered(
        requests=len(sample),
        rate_req_per_s=rate,
        input_tokens_mean=float(prompts.mean()),
        input_tokens_p50=float(p50_in),
        input_tokens_p95=float(p95_in),
        output_tokens_mean=float(answers.mean()),
        output_tokens_p50=float(p50_out),
        output_tokens_p95=float(p95_out),
        # Blocks are prefix-chained: a block seen twice was a hit the second time.
        reuse=(whole - sample.blocks) * block_tokens / float(prompts.sum()) if whole else 0.0,
    )


def capacity(
    scenario: Scenario,
    facts: Facts,
    trace: TraceTable | None = None,
    counts: NDArray[np.float64] | None = None,
) -> Prediction:
    """The steady state by formula, for the traffic's mean lengths and its reuse.

    With full slots beyond the SLO's TPOT the advice says which batch keeps it, or that none does
    and why. counts f8[layers, experts]: imported routing. Takes milliseconds once compiled. Raises
    ModelError when the model or a request does not fit.
    """
    fabric = build_fabric(scenario.supernode, facts)
    hot = imbalances(scenario, facts, build_costs(scenario, facts, fabric), trace, counts)
    given, answer = mean_lengths(scenario.workload, facts, trace)
    reuse = 0.0
    if scenario.memory_pool.enabled and scenario.deployment.mode != "decode_only":
        reuse = offered(scenario, facts, trace).reuse
    found = predict(
        scenario,
        facts,
        fabric,
        input_tokens=given,
        output_tokens=answer,
        hit_tokens=reuse * given,
        prefill_hot=(hot[0].tokens, hot[0].factor),
        decode_hot=(hot[1].tokens, hot[1].factor),
    )
    bound_s = scenario.slo.tpot_ms * 1e-3
    if found.decode is None or found.decode.tpot_s <= bound_s:
        return found
    target = largest_batch(scenario, facts, bound_s, trace, counts)
    return replace(found, advice=f"{found.advice} {target.sentence}")
