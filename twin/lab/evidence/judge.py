"""What the twin computes for a row, by steady state or operator (calibration uses it too), and the
errors of these answers, by row and group; groups never mix kinds of rows (`rows.KINDS`)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import tomli_w

from twin.facts import Facts
from twin.lab.evidence.rows import (
    KINDS,
    OTHER,
    SUPERNODE,
    UNJUDGED,
    UNSEEN,
    EvidenceError,
    Row,
    error_limits,
    load_first_answers,
    load_published,
    rows_digest,
    scenario_of,
)
from twin.lab.files import write_text
from twin.lab.library import RECORD, published_table
from twin.metrics.measures import numbered
from twin.metrics.operators import operator_names
from twin.model import alone, finite
from twin.model.costs import Costs
from twin.model.predict import Prediction, predict_decode
from twin.model.roofline import facts_of_stack
from twin.scenario import Scenario, npus_used, with_overrides
from twin.steady import Assembly, Priced, assemble, full_traffic, largest_batch, predict_steady
from twin.workload.lengths import drawn_lengths

LAYER = operator_names("decode", "attention", "MoE")
PREFILL_LAYER = operator_names("prefill", "attention", "MoE")
MOE_ONLY = operator_names("decode", "MoE")
HOUR_S = 3600.0  # longer than any benchmark of the record
TO_UNIT = {"us": 1e6, "ms": 1e3}


@dataclass(frozen=True, slots=True)
class MeasureInput:
    """Input of a measure: a scenario, the facts, and the row's own arguments."""

    scenario: Scenario
    facts: Facts
    args: Mapping[str, Any]

    @property
    def steady_state(self) -> Prediction:
        """Steady state of the scenario by formula, every slot taken, with the row's `hit_share`."""
        traffic = full_traffic(self.scenario, self.facts, float(self.args.get("hit_share", 0.0)))
        return predict_steady(self.scenario, self.facts, traffic=traffic)

    @property
    def assembly(self) -> Assembly:
        """The scenario's fabric, costs and expert imbalance."""
        return assemble(self.scenario, self.facts)

    @property
    def costs_alone(self) -> Costs:
        """Costs with the times of kernels that run alone, outside a forward pass."""
        return assemble(self.scenario, self.facts.replaced(alone.ALONE)).costs


def answer_row(row: Row, facts: Facts) -> float:
    """The twin's figure for a row, in its unit. Raises EvidenceError for an unknown measure."""
    row_facts = facts.replaced(row.facts)
    if row.family not in MEASURES:
        raise EvidenceError(f"row {row.id} measures {row.measure!r}: take one of {list(MEASURES)}")
    measure_parts = row.measure.split(".")[1:]
    compute = MEASURES[row.family]
    figure = compute(measure_parts, MeasureInput(scenario_of(row.scenario), row_facts, row.args))
    if row.against is not None:
        against_args = {name.removeprefix("against_"): value for name, value in row.args.items()
                 if name.startswith("against_")}  # fmt: skip
        against = MeasureInput(scenario_of(row.against), row_facts, against_args)
        figure /= compute(measure_parts, against)
    return float(figure) * float(row.args.get("times", 1.0)) * TO_UNIT.get(row.unit, 1.0)


# --- Measures: (parts of its name after the family, what it reads) -> SI value -----------------


def _decode_figure(parts: Sequence[str], case: MeasureInput) -> float:
    """Decode figure by name (`parts`): TPOT or time of an iteration, a layer or some operators, in
    seconds; or tokens/s per NPU."""
    if parts[0] == "slo":
        return _throughput_under_slo(case)
    prediction = case.steady_state
    decode, traffic = prediction.decode, full_traffic(case.scenario, case.facts)
    if "requests" in case.args:  # on an instance: fewer than it has slots
        decode_role, imbalance = prediction.costs.decode_role, case.assembly.decode_imbalance.table
        assert decode_role is not None
        rank_requests = float(case.args["requests"]) / decode_role.ranks
        decode = predict_decode(prediction.costs, traffic, imbalance, rank_requests, "clients")
    assert decode is not None
    layer_count = prediction.costs.shape.layers
    if parts[0] == "profile":
        seconds_by_operator = alone.profile_of_mean_die(prediction, traffic, case.facts)
        return (
            math.fsum(seconds_by_operator[operator] for operator in parts[1].split("+"))
            / layer_count
        )
    if parts[0] == "layer":
        operator_names = parts[1].split("+") if len(parts) > 1 else LAYER
        return math.fsum(decode.operators.get(name, 0.0) for name in operator_names) / layer_count
    return {"tpot": decode.tpot_s, "iteration": decode.iteration_s,
            "throughput": decode.tokens_per_s_per_npu}[parts[0]]  # fmt: skip


def _throughput_under_slo(case: MeasureInput) -> float:
    """Decode tokens/s per NPU of the largest batch that meets the scenario's TPOT; 0 for none."""
    slo_batch = largest_batch(Priced(case.scenario, case.facts), 1e-3 * case.scenario.slo.tpot_ms)
    if not slo_batch.batch_per_npu:
        return 0.0
    batch_override = {"deployment.decode.batch_per_npu": slo_batch.batch_per_npu}
    prediction = replace(case, scenario=with_overrides(case.scenario, batch_override)).steady_state
    assert prediction.decode is not None
    return prediction.decode.tokens_per_s_per_npu


def _prefill_figure(parts: Sequence[str], case: MeasureInput) -> float:
    """Prefill figure by its name parts[0]: "throughput" in tokens/s per NPU, "batch" in s,
    "requests" in requests/s, or "layer": s of a mean layer (parts[1]: of these operators)."""
    prediction = case.steady_state
    prefill = prediction.prefill
    assert prefill is not None
    if parts[0] == "layer":
        operator_names = parts[1].split("+") if len(parts) > 1 else PREFILL_LAYER
        layer_count = prediction.costs.prefill.moe_layers  # the MTP module's included
        if len(parts) == 1 or operator_names[0] not in MOE_ONLY:
            layer_count += prediction.costs.prefill.dense_layers
        return math.fsum(prefill.operators.get(name, 0.0) for name in operator_names) / layer_count
    return {"throughput": prefill.tokens_per_s_per_npu, "batch": prefill.batch_s,
            "requests": prefill.requests_per_s}[parts[0]]  # fmt: skip


def _exchange_s(parts: Sequence[str], case: MeasureInput) -> float:
    """Seconds of dispatch or combine (parts[0]) alone under even load, with the row's stack."""
    dies, tokens, scenario = int(case.args["ep"]), float(case.args["tokens"]), case.scenario
    facts = facts_of_stack(case.facts, scenario.deployment.stack, scenario.supernode.chip)
    return alone.exchange_alone_s(scenario, facts, parts[0], dies, tokens)


def _stream_s(parts: Sequence[str], case: MeasureInput) -> float:
    """Seconds of one of the two streams of a decode microbatch, as the paper splits them: of
    attention if `parts` is ['attention'], else of the rest."""
    traffic, assembly = full_traffic(case.scenario, case.facts), case.assembly
    streams_s = alone.decode_streams_s(assembly.costs, traffic, assembly.decode_imbalance.table)
    return streams_s[0] if parts[0] == "attention" else streams_s[1]


def _kernel_s(parts: Sequence[str], case: MeasureInput) -> float:
    """Seconds of one kernel alone on a die: 'attention' core, or grouped product (parts[0])."""
    costs, args = case.costs_alone, case.args
    if parts[0] == "attention":
        return alone.attention_core_s(costs, float(args["batch"]) * float(args["kv"]))
    return alone.grouped_product_s(costs, float(args["experts"]), float(args["rows"]))


def _finite_figure(parts: Sequence[str], case: MeasureInput) -> float:
    """Mean TPOT in s ('tpot') or tokens/s per NPU (parts[1]) of requests that begin together on a
    colocated instance: parts[0] is 'drain' (a queue whose answers drain) or 'burst'."""
    decode, role = case.steady_state.decode, case.steady_state.costs.colocated_role
    scenario, requests = case.scenario, int(case.args["requests"])
    assert decode is not None and role is not None
    imbalance = case.assembly.decode_imbalance.table
    npus = scenario.deployment.colocated.npus_per_instance
    batch_tokens = role.prompt_tokens
    if parts[0] == "drain":
        prompt_lengths, answer_lengths = drawn_lengths(case.facts, scenario.workload)
        quantiles = np.modf((0.5 + np.arange(requests)) * 0.5 * (math.sqrt(5.0) - 1.0))[0]
        answer_tokens = np.interp(quantiles, answer_lengths.levels, answer_lengths.tokens)
        slots = int(decode.batch_per_npu * npus)
        iterations_by_answer = answer_tokens / decode.tokens_per_iteration
        relative_square = prompt_lengths.moment(2) / prompt_lengths.mean**2
        rank_tokens = batch_tokens / role.ranks
        run = finite.queue_run(
            role, prompt_lengths.mean, iterations_by_answer, slots, rank_tokens, imbalance,
            relative_square, prompt_lengths.multiples,
        )  # fmt: skip
    else:
        answer_tokens = np.full(requests, float(scenario.workload.output_tokens))
        answer_iterations = scenario.workload.output_tokens / decode.tokens_per_iteration
        prompt_tokens = float(scenario.workload.input_tokens)
        run = finite.burst_run(
            role, prompt_tokens, answer_iterations, requests, batch_tokens, imbalance
        )
    if parts[1] == "tpot":
        return run.tpot_s / decode.tokens_per_iteration
    return float(answer_tokens.sum()) / run.seconds / npus


def _benchmark_figure(parts: Sequence[str], case: MeasureInput) -> float:
    """Mean TPOT or TTFT (s), or tokens/s per NPU, of a simulated benchmark from its first request
    on. The row's arguments: `clients` or an even `rate` (requests/s), for `seconds` or
    `prompts`."""
    overrides: dict[str, Any] = {"start": "empty", "warmup_s": 0.0, "memory_pool.enabled": False,
                             "horizon_s": float(case.args.get("seconds", HOUR_S))}  # fmt: skip
    if "rate" in case.args:
        overrides |= {"workload.arrivals": "uniform",
                  "workload.rate_req_per_s": float(case.args["rate"])}  # fmt: skip
    else:
        overrides |= {"workload.arrivals": "closed_loop",
                  "workload.concurrency": int(case.args["clients"])}  # fmt: skip
    if "prompts" in case.args:
        overrides["workload.prompts"] = int(case.args["prompts"])
    end_s, output_tokens, summary = _benchmark_run(
        with_overrides(case.scenario, overrides), case.facts
    )
    if parts[0] == "throughput":  # until the last answer has ended
        return output_tokens / end_s / npus_used(case.scenario)
    latency_s = summary[{"tpot": "tpot_s_mean", "ttft": "ttft_s_mean"}[parts[0]]]
    assert isinstance(latency_s, float)
    return latency_s


@lru_cache(maxsize=256)
def _benchmark_run(scenario: Scenario, facts: Facts) -> tuple[float, float, Mapping[str, Any]]:
    """(s until the last answer ends, output tokens, summary) of a benchmark, run once."""
    from twin.engine.simulate import simulate  # a formula waits for no compiler

    run = simulate(scenario, facts)
    end_s = run.tables["requests"]["finish_s"].max()
    assert isinstance(end_s, float)
    return end_s, float(run.tables["requests"]["output_tokens"].to_numpy().sum()), run.summary


MEASURES: dict[str, Callable[[Sequence[str], MeasureInput], float]] = {
    "decode": _decode_figure,
    "prefill": _prefill_figure,
    "exchange": _exchange_s,
    "stream": _stream_s,
    "kernel": _kernel_s,
    "collective": lambda parts, case: alone.collective_alone_s(  # by bytes on a die
        case.costs_alone, parts[0], 1e6 * float(case.args["megabytes"])
    ),
    "finite": _finite_figure,
    "benchmark": _benchmark_figure,
    "memory": lambda parts, case: case.assembly.costs.kv_bytes_per_token,
}

JUDGED = tuple(kind for kind in KINDS if kind not in UNJUDGED)
# What of a row stands next to its answer.
SAID = ("id", "system", "group", "regime", "quantity", "unit", "basis", "kind", "because",
        "source", "mark", "note")  # fmt: skip
HONEST = (*UNSEEN, "seen")  # kinds of row that no fit and no arithmetic helped
GROUPS = (SUPERNODE, OTHER)

Judged = Sequence[Mapping[str, Any]]
_PUBLISHED_ANSWERS: dict[Facts, list[dict[str, Any]]] = {}  # of the facts judged last


def evidence(facts: Facts, rows: Sequence[Row] | None = None) -> list[dict[str, Any]]:
    """Published rows (None: all) with the twin's answers: `twin` in the row's unit, `error` = twin
    / published - 1, `judged_error` (an unseen row's first error; None for a circular or unstated
    row) and `outside`: whether that exceeds the row's `bar`."""
    if rows is None:
        if (judged_rows := _PUBLISHED_ANSWERS.get(facts)) is None:
            _PUBLISHED_ANSWERS.clear()
            judged_rows = _PUBLISHED_ANSWERS[facts] = evidence(facts, load_published())
        return [dict(answer) for answer in judged_rows]
    first_answers = load_first_answers()
    others_of_row: dict[str, list[list[Any]]] = {}
    for other_answer in published_table(RECORD / "others.toml")["answer"]:  # by other simulators
        others_of_row.setdefault(other_answer["row"], []).append(
            [other_answer["simulator"], other_answer["error"]]
        )
    answered_rows = []
    for row in rows:
        twin_value = answer_row(row, facts)
        error_today = twin_value / row.value - 1.0
        first_answer = first_answers.get(row.id)
        counted_error = (
            first_answer.error if first_answer is not None and row.kind in UNSEEN else error_today
        )
        is_within_bound = row.at_most and counted_error <= 0.0
        judged_error = None if row.kind in UNJUDGED or is_within_bound else counted_error
        error_limit = error_limits().limit(row)
        answered_rows.append({field_name: getattr(row, field_name) for field_name in SAID} | {
            "published": row.value, "twin": twin_value, "error": error_today,
            "judged_error": judged_error,
            "first_error": None if first_answer is None else first_answer.error,
            "first_commit": "" if first_answer is None else first_answer.commit, "bar": error_limit,
            "outside": judged_error is not None and abs(judged_error) > error_limit,
            "others": others_of_row.get(row.id, []),
        })  # fmt: skip
    return answered_rows


@dataclass(frozen=True, slots=True)
class Score:
    """Absolute errors of one kind of rows, as fractions."""

    group: str  # which rows: a group of machines, or a system
    kind: str
    rows: int
    mean: float
    median: float
    worst: float

    @property
    def text(self) -> str:
        """Mean, worst and number of rows: '7.5 % (22.5 %, 15 rows)'."""
        return f"{100 * self.mean:.1f} % ({100 * self.worst:.1f} %, {numbered(self.rows, 'row')})"


def score(rows: Judged, group: str, kind: str) -> Score | None:
    """Mean, median and worst absolute error of the judged rows of a kind; None without such rows.
    group: name of the rows for the score."""
    row_errors = [row["judged_error"] for row in rows if row["kind"] == kind]
    if not (errors := [abs(error) for error in row_errors if error is not None]):
        return None
    return Score(group, kind, len(errors), fmean(errors), median(errors), max(errors))


def headline_score(rows: Judged, group: str) -> Score | None:
    """The worse of a group's scores of kinds `unseen` and `seen`; None without such rows."""
    group_rows = [row for row in rows if row["group"] == group]
    scores = (score(group_rows, group, kind) for kind in ("unseen", "seen"))
    return max(filter(None, scores), key=lambda group_score: group_score.mean, default=None)


def headlines(rows: Judged) -> list[str]:
    """Sentences on the errors of each group of rows, and of its unseen rows of known families."""
    group_scores = [headline_score(rows, group) for group in GROUPS]
    group_scores += [
        score([row for row in rows if row["group"] == group], group, UNSEEN[1]) for group in GROUPS
    ]
    return [
        f"{result.group[0].upper()}{result.group[1:]}: {100 * result.mean:.1f} % off on average, "
        f"{100 * result.median:.1f} % in the median, {100 * result.worst:.0f} % at worst "
        f"({result.rows} {result.kind} rows{_skew_clause(result.group)})."
        for result in group_scores
        if result is not None
    ]


def now_text(rows: Judged) -> str:
    """Sentence on today's errors of unseen rows, which say less than their first errors."""
    errors = [abs(row["error"]) for row in rows if row["kind"] in UNSEEN]
    return (
        f"Today the same {len(errors)} unseen rows are {100 * fmean(errors):.1f} % off on average, "
        f"{100 * median(errors):.1f} % in the median: mechanisms were built with their errors "
        "known, so a new row may be as far off as a first answer."
    )


def _skew_clause(group: str) -> str:
    """End of a sentence: expert skew of the supernode's rows; '' for other rows or default skew."""
    if group != SUPERNODE:
        return ""
    skews = {scenario_of(row.scenario).experts.skew for row in load_published()
             if row.group == group} - {Scenario().experts.skew}  # fmt: skip
    if not skews:
        return ""
    skew_text = " and ".join(f"{skew:g}" for skew in sorted(skews))
    return f"; the paper's rows at benchmark balance: skew {skew_text}, a calibrating constant"


def score_table(rows: Judged, by: str = "group") -> list[dict[str, str]]:
    """A line for each group or system (`by`): mean, worst and number of rows of every kind."""
    table_rows = []
    for row_group in dict.fromkeys(row[by] for row in rows):
        group_rows = [row for row in rows if row[by] == row_group]
        score_by_kind = {kind: score(group_rows, row_group, kind) for kind in JUDGED}
        table_rows.append(
            {"rows of": row_group}
            | {
                kind: "" if kind_score is None else kind_score.text
                for kind, kind_score in score_by_kind.items()
            }
            | {kind: str(sum(row["kind"] == kind for row in group_rows) or "") for kind in UNJUDGED}
        )
    return table_rows


ERRORS = RECORD / "errors.toml"


@lru_cache(maxsize=1)
def stored_errors() -> dict[str, Any]:
    """The last stored errors, with the digests of their facts and rows."""
    return published_table(ERRORS)


def write_errors(facts: Facts, answers: Judged, path: Path = ERRORS) -> None:
    """Write the errors of unseen and seen rows, and today's, to a TOML file; raises NotWritten."""
    toml_table = {
        "facts": facts.digest,
        "rows": rows_digest(load_published()),
        "error": {row["id"]: round(row["judged_error"], 4) for row in answers
                  if row["kind"] in HONEST and row["judged_error"] is not None},
        "today": {row["id"]: round(row["error"], 4) for row in answers
                  if row["kind"] == "seen" or row["first_error"] is not None},
    }  # fmt: skip
    file_header = (
        "# Errors of rows that no fit helped (`error`: of unseen rows the first), and of these\n"
        "# and of all with a first error `today`: by `python -m twin evidence --write`.\n\n"
    )
    write_text(path, file_header + tomli_w.dumps(toml_table))
