"""What the twin computes for a row, by steady state or operator; calibration uses it too."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twin.facts import Facts
from twin.lab.evidence.rows import EvidenceError, Row, scenario_of
from twin.metrics.operators import names_of
from twin.model import alone, finite
from twin.model.predict import DecodePrediction, Prediction, decode_with
from twin.model.roofline import of_stack
from twin.scenario import Scenario, npus_used, with_overrides
from twin.steady import Assembly, Priced, assemble, largest_batch, steady, traffic_under_way
from twin.workload.lengths import drawn_lengths

LAYER = names_of("decode", "attention", "MoE")
PREFILL_LAYER = names_of("prefill", "attention", "MoE")
MOE_ONLY = names_of("decode", "MoE")
HOUR_S = 3600.0  # longer than any benchmark of the record
TO_UNIT = {"us": 1e6, "ms": 1e3}


@dataclass(frozen=True, slots=True)
class Ask:
    """Input of a measure: a scenario, the facts, and the row's own arguments."""

    scenario: Scenario
    facts: Facts
    args: Mapping[str, Any]

    @property
    def steady(self) -> Prediction:
        """The steady state with every slot taken."""
        hits = float(self.args.get("hit_share", 0.0))
        traffic = traffic_under_way(self.scenario, self.facts, hits)
        return steady(self.scenario, self.facts, traffic=traffic)

    @property
    def parts(self) -> Assembly:
        """The scenario's fabric, costs and expert imbalance."""
        return assemble(self.scenario, self.facts)


def answer_row(row: Row, facts: Facts) -> float:
    """The twin's figure for a row, in the row's unit."""
    row_facts = facts.replaced(row.facts)
    if row.family not in MEASURES:
        raise EvidenceError(f"row {row.id} measures {row.measure!r}: take one of {list(MEASURES)}")
    parts = row.measure.split(".")[1:]
    measure = MEASURES[row.family]
    answer = measure(parts, Ask(scenario_of(row.scenario), row_facts, row.args))
    if row.against is not None:
        other = {key.removeprefix("against_"): value for key, value in row.args.items()
                 if key.startswith("against_")}  # fmt: skip
        answer /= measure(parts, Ask(scenario_of(row.against), row_facts, other))
    return float(answer) * float(row.args.get("times", 1.0)) * TO_UNIT.get(row.unit, 1.0)


# --- Measures: (parts of its name after the family, what it reads) -> SI value -----------------


def _decode(parts: Sequence[str], ask: Ask) -> float:
    """A decode quantity of a row's scenario, in SI units."""
    if parts[0] == "slo":
        return _under_slo(ask)
    full = ask.steady
    d = _under_way(ask, full) if "requests" in ask.args else full.decode
    assert d is not None
    layers = full.costs.shape.layers
    if parts[0] == "profile":
        traffic = traffic_under_way(ask.scenario, ask.facts)
        seconds_by_operator = alone.profile_of_mean_die(full, traffic, ask.facts)
        return math.fsum(seconds_by_operator[n] for n in parts[1].split("+")) / layers
    if parts[0] == "layer":
        names = parts[1].split("+") if len(parts) > 1 else LAYER
        return math.fsum(d.operators.get(n, 0.0) for n in names) / layers
    figures = {"tpot": d.tpot_s, "iteration": d.iteration_s, "throughput": d.tokens_per_s_per_npu}
    return figures[parts[0]]


def _under_way(ask: Ask, full: Prediction) -> DecodePrediction:
    """Decode with `requests` on an instance, fewer than it has slots."""
    role = full.costs.decode_role
    assert role is not None
    traffic, hot = traffic_under_way(ask.scenario, ask.facts), ask.parts.decode_imbalance.table
    count = float(ask.args["requests"]) / role.ranks
    return decode_with(full.costs, traffic, hot, count, "clients")


def _under_slo(ask: Ask) -> float:
    """Throughput of the largest batch that meets the scenario's TPOT; 0 where none does."""
    target = largest_batch(Priced(ask.scenario, ask.facts), 1e-3 * ask.scenario.slo.tpot_ms)
    if not target.feasible:
        return 0.0
    at_batch = {"deployment.decode.batch_per_npu": target.batch_per_npu}
    full = replace(ask, scenario=with_overrides(ask.scenario, at_batch)).steady
    assert full.decode is not None
    return full.decode.tokens_per_s_per_npu


def _prefill(parts: Sequence[str], ask: Ask) -> float:
    """A prefill quantity of a row's scenario, in SI units."""
    prediction = ask.steady
    p = prediction.prefill
    assert p is not None
    if parts[0] == "layer":
        names = parts[1].split("+") if len(parts) > 1 else PREFILL_LAYER
        moe_layers, layers = alone.prefill_layers(prediction.costs)
        if len(parts) > 1 and names[0] in MOE_ONLY:
            layers = moe_layers
        return math.fsum(p.operators.get(n, 0.0) for n in names) / layers
    return {"throughput": p.tokens_per_s_per_npu, "batch": p.batch_s, "requests": p.requests_per_s}[
        parts[0]
    ]


def _exchange(parts: Sequence[str], ask: Ask) -> float:
    """Dispatch or combine alone, even load, on the first dies of the supernode; of the kernels that
    its stack calls."""
    dies, tokens, s = int(ask.args["ep"]), float(ask.args["tokens"]), ask.scenario
    facts = of_stack(ask.facts, s.deployment.stack, s.supernode.chip)
    return alone.exchange_s(s, facts, parts[0], dies, tokens)


def _stream(parts: Sequence[str], ask: Ask) -> float:
    """One of the two decode streams for one microbatch on the paper's split of cores."""
    both_streams = alone.streams_s(
        ask.parts.costs, traffic_under_way(ask.scenario, ask.facts),
        ask.parts.decode_imbalance.table,
    )  # fmt: skip
    return both_streams[0] if parts[0] == "attention" else both_streams[1]


def _kernel(parts: Sequence[str], ask: Ask) -> float:
    """One kernel alone on a die: attention core or grouped product."""
    costs = ask.parts.costs
    if parts[0] == "attention":
        return alone.attention_core_s(costs, float(ask.args["batch"]) * float(ask.args["kv"]))
    return alone.grouped_product_s(costs, float(ask.args["experts"]), float(ask.args["rows"]))


def _collective(parts: Sequence[str], ask: Ask) -> float:
    """An all-gather or reduce-scatter of decode's dies of one rank, by bytes on a die."""
    size = 1e6 * float(ask.args["megabytes"])
    return alone.collective_alone_s(ask.parts.costs, parts[0], size)


def _finite(parts: Sequence[str], ask: Ask) -> float:
    """A run that begins with `requests` per instance: `drain` decodes, `burst` prefills them."""
    full, s = ask.steady, ask.scenario
    d, role, requests = full.decode, full.costs.colocated_role, int(ask.args["requests"])
    assert d is not None and role is not None
    hot = ask.parts.decode_imbalance.table
    npus = s.deployment.colocated.npus_per_instance
    batch = role.prompt_tokens
    if parts[0] == "drain":
        prompts, answers = drawn_lengths(ask.facts, s.workload)
        level = np.modf((0.5 + np.arange(requests)) * 0.5 * (math.sqrt(5.0) - 1.0))[0]
        tokens = np.interp(level, answers.levels, answers.tokens)
        slots = int(d.batch_per_npu * npus)
        iterations = tokens / d.tokens_per_iteration
        spread = prompts.mean_square / prompts.mean**2
        drained = finite.drain(
            role, prompts.mean, iterations, slots, batch / role.ranks, hot, spread, prompts.relative
        )
    else:
        tokens = np.full(requests, float(s.workload.output_tokens))
        answer = s.workload.output_tokens / d.tokens_per_iteration
        prompt = float(s.workload.input_tokens)
        drained = finite.burst(role, prompt, answer, requests, batch, hot)
    if parts[1] == "tpot":
        return drained.tpot_s / d.tokens_per_iteration
    return float(tokens.sum()) / drained.seconds / npus


def _benchmark(parts: Sequence[str], ask: Ask) -> float:
    """A benchmark: `clients` begin at once and send `prompts`; equal answers stay in step."""
    begin = {"start": "empty", "warmup_s": 0.0, "horizon_s": HOUR_S, "memory_pool.enabled": False,
             "workload.arrivals": "closed_loop", "workload.concurrency": int(ask.args["clients"]),
             "workload.prompts": int(ask.args["prompts"])}  # fmt: skip
    from twin.engine.simulate import simulate  # a formula waits for no compiler

    finished_run = simulate(with_overrides(ask.scenario, begin), ask.facts)
    if parts[0] == "throughput":  # until the last answer has ended
        ended_s = finished_run.tables["requests"]["finish_s"].max()
        assert isinstance(ended_s, float)
        tokens = float(finished_run.tables["requests"]["output_tokens"].to_numpy().sum())
        return float(tokens / ended_s / npus_used(ask.scenario))
    summary = finished_run.summary
    seconds = summary[{"tpot": "tpot_s_mean", "ttft": "ttft_s_mean"}[parts[0]]]
    assert isinstance(seconds, float)
    return seconds


MEASURES: dict[str, Callable[[Sequence[str], Ask], float]] = {
    "decode": _decode,
    "prefill": _prefill,
    "exchange": _exchange,
    "stream": _stream,
    "kernel": _kernel,
    "collective": _collective,
    "finite": _finite,
    "benchmark": _benchmark,
    "memory": lambda parts, ask: ask.parts.costs.kv_bytes_per_token,
}
