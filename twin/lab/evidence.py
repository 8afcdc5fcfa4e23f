"""Every published result beside what the twin computes for it, with the signed error.

Rows stand in data/published.toml; each names what to measure and how the scenario differs from
the default. A row is answered by the closed steady state (model.predict) or by the operator's own
cost, never by a table. Which rows calibrate is said there; calibrate.py uses the same measures.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from twin.engine.setup import imbalances
from twin.facts import Fact, Facts
from twin.hardware.chip import load_chip
from twin.hardware.fabric import build_fabric
from twin.lab.library import DATA
from twin.model import params as q
from twin.model.collectives import direct, exchange, moe_traffic
from twin.model.costs import build_costs
from twin.model.decode import decode_iteration_s, streams
from twin.model.finite import Finite, burst, drain
from twin.model.layer import ffn_rows_s
from twin.model.params import DECODE_OPERATORS, operator_sink
from twin.model.predict import EVEN, Held, Hot, Prediction, predict, rank_load
from twin.model.roofline import interpolate, load_machine
from twin.model.shape import load_shape
from twin.scenario import Scenario, with_overrides
from twin.workload.lengths import Quantiles, fitted_lengths

PUBLISHED = DATA / "published.toml"
LAYER = ("mla_prolog", "attention_core", "o_proj", "gate", "dispatch", "experts", "combine")
PREFILL_LAYER = ("attention_input", "all_gather", "attention_core", "all_to_all", "o_proj",
                 "gate", "dispatch", "experts", "combine")  # fmt: skip
MOE_ONLY = ("gate", "dispatch", "experts", "combine")  # operators of MoE layers alone
TO_UNIT = {"us": 1e6, "ms": 1e3}
IMBALANCE_FACTS = ("experts", "models", "workloads")
PAPER_SPLIT = q.SPLIT + 4 * q.MODE  # 16 of 24 cube cores for attention


class EvidenceError(ValueError):
    """A published row that cannot be answered: one sentence naming the row and the reason."""


@dataclass(frozen=True)
class Row:
    """One published result; see the head of data/published.toml."""

    id: str
    system: str
    regime: str
    quantity: str
    unit: str
    value: float
    basis: str
    measure: str
    calibrates: bool
    source: str
    mark: str
    note: str = ""
    scenario: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    against: Mapping[str, Any] | None = None


def load_published(path: Path = PUBLISHED) -> list[Row]:
    """All published rows in the order of the file; raises EvidenceError for a malformed one."""
    rows = []
    for entry in tomllib.loads(path.read_text("utf-8"))["row"]:
        try:
            rows.append(Row(**entry))
        except TypeError as error:
            raise EvidenceError(f"{path.name}: row {entry.get('id', '?')}: {error}") from None
    if len({row.id for row in rows}) < len(rows):
        raise EvidenceError(f"{path.name}: two rows share an id")
    return rows


def evidence(facts: Facts, rows: list[Row] | None = None) -> list[dict[str, Any]]:
    """Each published row with `twin` in the row's unit and `error` = twin / published - 1."""
    found = []
    for row in load_published() if rows is None else rows:
        answer = answer_row(row, facts)
        found.append(
            {
                "id": row.id,
                "system": row.system,
                "regime": row.regime,
                "quantity": row.quantity,
                "unit": row.unit,
                "basis": row.basis,
                "published": row.value,
                "twin": answer,
                "error": answer / row.value - 1.0,
                "calibrates": row.calibrates,
                "source": row.source,
                "mark": row.mark,
                "note": row.note,
            }
        )
    return found


def answer_row(row: Row, facts: Facts) -> float:
    """What the twin says for a row, in the row's unit."""
    known = with_facts(facts, row.facts)
    kind = row.measure.split(".")[0]
    if kind not in MEASURES:
        raise EvidenceError(f"row {row.id} measures {row.measure!r}: take one of {list(MEASURES)}")
    measure = MEASURES[kind]
    found = measure(row.measure, row.scenario, known, row.args)
    if row.against is not None:
        other = {key.removeprefix("against_"): value for key, value in row.args.items()
                 if key.startswith("against_")}  # fmt: skip
        found /= measure(row.measure, row.against, known, other)
    return found * float(row.args.get("times", 1.0)) * TO_UNIT.get(row.unit, 1.0)


def with_facts(facts: Facts, values: Mapping[str, Any]) -> Facts:
    """Facts with some values replaced; unit, source and mark stay.

    Facts are equal by their digest, and answers on expert imbalance are kept by it: where such a
    fact changes, so does the digest.
    """
    if not values:
        return facts
    digest = facts.digest
    if any(name.split(".", 1)[0] in IMBALANCE_FACTS for name in values):
        digest = sha256(f"{digest}{sorted(values.items())}".encode()).hexdigest()
    changed = dict(facts.by_name)
    for name, value in values.items():
        old = facts[name]
        changed[name] = Fact(value, old.unit, old.source, old.mark, old.note)
    return Facts(changed, digest)


def scenario_of(overrides: Mapping[str, Any]) -> Scenario:
    """The default scenario with a row's overrides."""
    return with_overrides(Scenario(), dict(overrides))


def hot_tables(scenario: Scenario, facts: Facts) -> tuple[Hot, Hot]:
    """(prefill, decode) tables of the hottest die's load, as a run of the scenario has them."""
    return _hot_tables(scenario.model_dump_json(), scenario, _Key(facts))


class _Key:
    """Facts by what expert imbalance depends on, so that calibration does not compute it anew."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        parts = (*IMBALANCE_FACTS, "chips")
        self.key = hash(tuple((k, str(v.value)) for k, v in facts.by_name.items()
                              if k.split(".", 1)[0] in parts))  # fmt: skip

    def __hash__(self) -> int:
        return self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.key == self.key


@lru_cache(maxsize=128)
def _hot_tables(text: str, scenario: Scenario, key: _Key) -> tuple[Hot, Hot]:
    facts = key.facts
    costs = build_costs(scenario, facts, build_fabric(scenario.supernode, facts))
    prefill, decode = imbalances(scenario, facts, costs)
    return (prefill.tokens, prefill.factor), (decode.tokens, decode.factor)


def steady(overrides: Mapping[str, Any], facts: Facts, hit_share: float = 0.0) -> Prediction:
    """The steady state of a row's scenario with its own expert imbalance."""
    s = scenario_of(overrides)
    prefill, decode = hot_tables(s, facts)
    given, answer = float(s.workload.input_tokens), float(s.workload.output_tokens)
    held = None
    if s.workload.lengths != "fixed":
        prompts, answers = fitted_lengths(facts, s.workload.lengths)
        given, answer, held = prompts.mean, answers.mean, held_of(prompts, answers)
    return predict(
        s,
        facts,
        build_fabric(s.supernode, facts),
        input_tokens=given,
        output_tokens=answer,
        hit_tokens=hit_share * given,
        prefill_hot=prefill,
        decode_hot=decode,
        held=held,
    )


def held_of(prompts: Quantiles, answers: Quantiles) -> Held:
    """What a request under way holds beyond a mean prompt: the age of a renewal process.

    Mean E[a^2] / (2 E[a]); second moment E[a^3] / (3 E[a]); prompts vary beside it.
    """
    a, b = answers.tokens[:-1], answers.tokens[1:]
    cube = float((np.diff(answers.levels) * (a**3 + a * a * b + a * b * b + b**3) / 4).sum())
    age = answers.mean_square / (2.0 * answers.mean)
    variance = cube / (3.0 * answers.mean) - age * age
    variance += prompts.mean_square - prompts.mean**2
    return Held(age, math.sqrt(variance))


# --- Measures: (name, scenario overrides, facts, args) -> SI value ----------------------------


def _decode(name: str, overrides: Mapping[str, Any], facts: Facts, args: Any) -> float:
    found = steady(overrides, facts)
    d = found.decode
    assert d is not None
    part = name.split(".", 2)[1:]
    if part[0] == "profile":
        seen = _profile(scenario_of(overrides), found, facts)
        return math.fsum(seen[n] for n in part[1].split("+")) / found.costs.shape.layers
    if part[0] == "layer":
        names = part[1].split("+") if len(part) > 1 else LAYER
        return math.fsum(d.operators.get(n, 0.0) for n in names) / found.costs.shape.layers
    return {
        "tpot": d.tpot_s,
        "iteration": d.iteration_s,
        "throughput": d.tokens_per_s_per_npu,
    }[part[0]]


def _profile(s: Scenario, found: Prediction, facts: Facts) -> dict[str, float]:
    """Seconds of an iteration by operator as a die of mean load sees them, without microbatches.

    Its own attention and experts take their mean time; until the slowest die has sent, and the
    hottest has computed, it stands in dispatch and in combine.
    """
    d = found.decode
    assert d is not None and found.costs.decode_role is not None
    role, w = found.costs.decode_role, s.workload
    count = int(d.batch_per_npu) // found.costs.chip.dies_per_npu
    requests, context = rank_load(count, role.dies, w.input_tokens, w.output_tokens)
    context[0] = context[-1]
    mean = operator_sink(DECODE_OPERATORS)
    decode_iteration_s(role.vector, requests, context, 0, role.dies, *EVEN, mean)
    seen = dict(zip(DECODE_OPERATORS, mean.tolist(), strict=True))
    slowest = load_machine(facts, found.costs.chip).slowest(role.dies)
    for name in (*LAYER[:4], "experts"):
        seen[name] /= slowest
    for waiting, slow in (("dispatch", LAYER[:4]), ("combine", ("experts",))):
        wait = math.fsum(d.operators[n] - seen[n] for n in slow)
        seen[waiting] = d.operators[waiting] + wait
    return seen


def _prefill(name: str, overrides: Mapping[str, Any], facts: Facts, args: Any) -> float:
    found = steady(overrides, facts, float(args.get("hit_share", 0.0)))
    p = found.prefill
    assert p is not None
    part = name.split(".", 2)[1:]
    if part[0] == "layer":
        names = part[1].split("+") if len(part) > 1 else PREFILL_LAYER
        vector = found.costs.prefill
        layers = vector[q.F_MOE_LAYERS] + vector[q.F_DENSE_LAYERS]
        if len(part) > 1 and part[1].split("+")[0] in MOE_ONLY:
            layers = vector[q.F_MOE_LAYERS]
        return math.fsum(p.operators.get(n, 0.0) for n in names) / float(layers)
    return {
        "throughput": p.tokens_per_s_per_npu,
        "batch": p.batch_s,
        "requests": p.requests_per_s,
    }[part[0]]


def _exchange(name: str, overrides: Mapping[str, Any], facts: Facts, args: Any) -> float:
    """Dispatch or combine alone, even load, on the first dies of the supernode."""
    s = scenario_of(overrides)
    shape = load_shape(facts, s.deployment.model)
    machine = load_machine(facts, load_chip(facts, s.supernode.chip))
    found = exchange(build_fabric(s.supernode, facts), range(int(args["ep"])))
    if machine.family == "nvidia":
        found = direct(found, facts)
    t = moe_traffic(shape, s.deployment.communication, machine, facts, found)
    tokens, rows = float(args["tokens"]), float(args["tokens"]) * shape.top_k
    if name.endswith("dispatch"):
        wire = max(tokens * t.dispatch_send_s, rows * t.dispatch_receive_s)
        return t.dispatch_fixed_s + tokens * t.dispatch_message_s + wire
    wire = max(rows * t.combine_send_s, tokens * t.combine_receive_s)
    return t.combine_fixed_s + wire


def _stream(name: str, overrides: Mapping[str, Any], facts: Facts, args: Any) -> float:
    """One of the two decode streams for one microbatch on the paper's split of cores."""
    s = scenario_of(overrides)
    costs = build_costs(s, facts, build_fabric(s.supernode, facts))
    role = costs.decode_role
    assert role is not None
    _, hot = hot_tables(s, facts)
    per_die = s.deployment.decode.batch_per_npu // costs.chip.dies_per_npu
    w = s.workload
    _, context = rank_load(per_die, role.dies, w.input_tokens, w.output_tokens)
    total = float(per_die * role.dies)
    factor = interpolate(0.5 * costs.decode[q.QUERY_TOKENS] * total, *hot)
    both = streams(
        costs.decode, PAPER_SPLIT, float(per_die), float(context[0]), float(per_die), total,
        float(role.dies), factor,
    )  # fmt: skip
    return float(both[0] if name.endswith("attention") else both[1])


def _kernel(name: str, overrides: Mapping[str, Any], facts: Facts, args: Any) -> float:
    """One kernel on a die that shares its cores with nothing: attention core, grouped product."""
    s = scenario_of(overrides)
    p = build_costs(s, facts, build_fabric(s.supernode, facts)).decode
    alone = q.SPLIT if p[q.HIDES] > 0.0 else q.SEQUENCE  # the former waits for no other die
    if name.endswith("attention"):
        context = float(args["batch"]) * float(args["kv"])
        return float(p[alone + q.CORE_FIXED] + p[alone + q.CORE_CONTEXT_ONE] * context)
    return float(ffn_rows_s(p, alone, float(args["experts"]), float(args["rows"])))


def _finite(name: str, overrides: Mapping[str, Any], facts: Facts, args: Any) -> float:
    """A run that begins with `requests` per instance waiting and ends with the last answer.

    `drain` deals answers of the workload's lengths to the slots, in an order that is even at every
    scale (multiples of the golden ratio); `burst` computes all prompts before anyone decodes.
    """
    s = scenario_of(overrides)
    found = steady(overrides, facts)
    d, role, requests = found.decode, found.costs.colocated_role, int(args["requests"])
    assert d is not None and role is not None
    _, hot = hot_tables(s, facts)
    npus = s.deployment.colocated.npus_per_instance
    kind, figure = name.split(".")[1:]
    ran: Finite
    if kind == "drain":
        prompts, answers = fitted_lengths(facts, s.workload.lengths)
        level = np.modf((0.5 + np.arange(requests)) * 0.5 * (math.sqrt(5.0) - 1.0))[0]
        tokens = np.interp(level, answers.levels, answers.tokens)
        slots = int(d.batch_per_npu * npus)
        ran = drain(role, prompts.mean, tokens / d.tokens_per_iteration, slots, hot)
    else:
        tokens = np.full(requests, float(s.workload.output_tokens))
        batch = float(s.deployment.colocated.chunk_tokens_per_npu * npus)
        iterations = s.workload.output_tokens / d.tokens_per_iteration
        ran = burst(role, float(s.workload.input_tokens), iterations, requests, batch, hot)
    if figure == "tpot":
        return ran.tpot_s / d.tokens_per_iteration
    return float(tokens.sum()) / ran.seconds / npus


def _memory(name: str, overrides: Mapping[str, Any], facts: Facts, args: Any) -> float:
    s = scenario_of(overrides)
    return build_costs(s, facts, build_fabric(s.supernode, facts)).kv_bytes_per_token


MEASURES: dict[str, Callable[[str, Mapping[str, Any], Facts, Any], float]] = {
    "decode": _decode,
    "prefill": _prefill,
    "exchange": _exchange,
    "stream": _stream,
    "kernel": _kernel,
    "finite": _finite,
    "memory": _memory,
}


def summary(found: list[dict[str, Any]]) -> dict[str, float]:
    """Mean and worst absolute error of calibration rows and of predictions."""
    result = {}
    for name, calibrates in (("calibration", True), ("prediction", False)):
        errors = np.array([abs(e["error"]) for e in found if e["calibrates"] == calibrates])
        if errors.size:
            result[f"{name}_error_mean"] = float(errors.mean())
            result[f"{name}_error_worst"] = float(errors.max())
    return result


__all__ = ["EVEN", "EvidenceError", "Row", "answer_row", "evidence", "load_published", "summary"]
