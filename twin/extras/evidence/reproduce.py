"""A published row as a closed loop that fills every slot, and its layer by operator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twin.facts import Facts
from twin.lab.evidence.judge import LAYER, PREFILL_LAYER, TO_UNIT, answer_row
from twin.lab.evidence.rows import Row, scenario_of
from twin.scenario import Scenario, pools

RUNNABLE = {
    "decode.tpot": "tpot_s_mean",
    "decode.iteration": "decode_iteration_s_mean",
    "decode.throughput": "decode_tokens_per_s_per_npu",
    "prefill.throughput": "prefill_tokens_per_s_per_npu",
}  # measure -> figure of a run's summary that is the same quantity


def closed_loop(row: Row, *, against: bool = False) -> Scenario | None:
    """Scenario of a row's configuration with as many clients as fill every slot; None: it cannot
    run. against: of the configuration that the row compares to."""
    pool = row.measure.split(".")[0]
    overrides = row.against if against else row.scenario
    if pool not in ("decode", "prefill") or overrides is None:
        return None
    hit_share = float(row.args.get("against_hit_share" if against else "hit_share", 0.0))
    s = scenario_of(overrides)
    input_tokens, output_tokens = s.workload.input_tokens, s.workload.output_tokens
    loop: dict[str, Any]
    if pool == "decode":  # as many clients as slots, for three turnovers of each slot
        batch, answer_s = s.deployment.decode.batch_per_npu, 1e-3 * s.slo.tpot_ms * output_tokens
        npus = sum(count * npus_each for role, count, npus_each in pools(s) if role != "prefill")
        name = f"decode, batch {batch}, {input_tokens:,} → {output_tokens:,} tokens"
        loop = {"workload.concurrency": batch * npus, "warmup_s": max(25.0, round(answer_s)),
                "horizon_s": max(80.0, round(3.2 * answer_s))}  # fmt: skip
    else:  # twice the requests that fill every batch, with reuse from a popular prefix if stated
        prefill, fresh = s.deployment.prefill, max(1.0, (1.0 - hit_share) * input_tokens)
        batch_tokens = prefill.tokens_per_npu * prefill.npus_per_instance * prefill.instances
        name = f"prefill, {input_tokens:,}-token prompts"
        loop = {"workload.concurrency": max(1, round(2 * batch_tokens / fresh)), "warmup_s": 20.0,
                "memory_pool.enabled": hit_share > 0}  # fmt: skip
        if hit_share:
            loop |= {"workload.prefix": "shared", "workload.shared_fraction": hit_share}
    return scenario_of({
        **overrides,
        "name": f"{row.system}: {name}"[:120],  # of one configuration: its rows share one run
        "question": "Does the full simulation reproduce what was published of this configuration?",
        "source": row.source[:600],
        "workload.arrivals": "closed_loop",
        "start": "empty",  # all clients of a benchmark begin at once
        **loop,
    })  # fmt: skip


def matching_preset(target: Scenario, presets: Sequence[tuple[str, Scenario]]) -> Scenario:
    """The first preset that equals `target` but for name, question, source, SLO, seed, step,
    horizon and warm-up; `target` itself if none does."""
    ignored_fields = {
        "name": "", "question": "", "source": "", "horizon_s": 1.0, "warmup_s": 0.0, "seed": 1,
        "step_s": 0.05,
    }  # fmt: skip

    def without_ignored(s: Scenario) -> Scenario:
        """A scenario with the fields that may differ from the wanted one set alike."""
        return s.model_copy(update={**ignored_fields, "slo": target.slo})

    return next((s for _, s in presets if without_ignored(s) == without_ignored(target)), target)


def simulated_value(row: Row, summary: Mapping[str, Any]) -> float | None:
    """The row's quantity in a run's summary, in the row's unit; None if a run does not have it."""
    key = RUNNABLE.get(row.measure, "")
    if row.against is not None or summary.get(key) is None:
        return None
    return float(summary[key]) * TO_UNIT.get(row.unit, 1.0)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a layer, seconds; published is None without a published figure."""

    operators: tuple[str, ...]
    published_s: float | None
    twin_s: float


OPERATORS = {"decode": LAYER, "prefill": PREFILL_LAYER}


def layer_parts(row: Row, rows: Sequence[Row], facts: Facts) -> list[Part]:
    """Seconds of the operators of one layer in the row's deployment, as published and by the twin.
    Empty if the row is not of decode or prefill."""
    pool = row.measure.split(".")[0]
    if pool not in OPERATORS:
        return []
    prefixes = (f"{pool}.layer.", f"{pool}.profile.")
    siblings = [
        sibling for sibling in rows
        if sibling.measure.startswith(prefixes) and sibling.against is None
        and sibling.scenario == row.scenario and sibling.facts == row.facts
    ]  # fmt: skip
    head = prefixes[any(sibling.measure.startswith(prefixes[1]) for sibling in siblings)]
    operator_order = list(OPERATORS[pool])
    names_left, parts = set(operator_order), list[tuple[list[str], float | None]]()
    for sibling in sorted(siblings, key=lambda r: r.measure.count("+")):  # single operators first
        names = sibling.measure.removeprefix(head).split("+")
        if names_left.issuperset(names):
            names_left -= set(names)
            parts.append((names, sibling.value / TO_UNIT.get(sibling.unit, 1.0)))
    parts += [([name], None) for name in names_left]
    parts.sort(key=lambda part: operator_order.index(part[0][0]))
    layer = replace(row, unit="s", against=None, args={})
    return [
        Part(tuple(names), value, answer_row(replace(layer, measure=head + "+".join(names)), facts))
        for names, value in parts
    ]
