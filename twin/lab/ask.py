"""From a person's words to a question: a preset's key or a file, settings, a trace file, and what
the scheduler of a serving stack sets by default (data/schedulers.toml): token budgets, chunks,
batch sizes, the choice of a rank."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.lab.files import printable, toml_table
from twin.lab.library import load_facts, load_scenario_file, preset, presets
from twin.model.roofline import stack_facts
from twin.scenario import Scenario, SpecError, fields, with_overrides
from twin.scenario.fields import value_of, value_text
from twin.scenario.groups import Pool, pools_by_role
from twin.scenario.words import condition_text, no_field_sentence, quoted

if TYPE_CHECKING:
    from twin.lab.kinds import CountsTable
    from twin.workload.generate import TraceTable

SCHEDULER, AS_STACK = "scheduler", "stack"  # `--set scheduler=stack` on the command line
LARGE = ("token_budget", "sequences")  # figures that devices with much memory have others of


class UnknownScenario(SpecError):
    """No preset and no file has that name."""


def scenario_and_trace(
    name: str, settings: Sequence[str] = (), trace: Path | None = None,
    rate_multiplier: float = 1.0, tree_copies: int = 1,
) -> "tuple[Scenario, TraceTable | None]":  # fmt: skip
    """The scenario of a preset's key or TOML file, with a trace as its workload if a file is named
    and with settings (`path=value`); and the trace's table or None. rate_multiplier: speed of the
    trace; tree_copies: copies of it under other block ids. Raises SpecError."""
    scenario, trace_table = scenario_named(name), None
    if trace is None and (rate_multiplier, tree_copies) != (1.0, 1):
        raise SpecError("a rate multiplier and tree copies are of a trace: name its file too")
    if trace is not None:
        from twin.lab.traces.reader import read_trace

        trace_table = read_trace(trace)
        scenario = with_trace(scenario, trace_table, rate_multiplier, tree_copies)
    return with_settings(scenario, settings_from(settings)), trace_table


def with_settings(scenario: Scenario, settings: dict[str, Any]) -> Scenario:
    """The scenario with settings by field path. Those that set many fields come first: a named
    machine, and `scheduler=stack`, the defaults of the stack's scheduler. Raises SpecError."""
    settings = dict(settings)
    if (scheduler := settings.pop(SCHEDULER, None)) is not None:
        if scheduler != AS_STACK:
            raise SpecError(f"{SCHEDULER} is {AS_STACK} or not set, not {quoted(str(scheduler))}")
        scenario = with_scheduler(with_settings(scenario, settings), load_facts())
    if (machine_name := settings.get("supernode.machine")) is not None:
        from twin.lab.machines import machine_fields

        new_fields = machine_fields(str(machine_name), load_facts(), scenario.supernode.chip)
        settings = new_fields | settings | {"supernode.machine": new_fields["supernode.machine"]}
    new_scenario = with_overrides(scenario, settings)
    if new_scenario.supernode.imported:
        from twin.lab.store import open_store

        open_store()  # prices ask the store that was opened last
    return new_scenario


def scenario_named(name: str) -> Scenario:
    """The scenario of a TOML file, or of a preset by its key; raises SpecError."""
    if name.endswith(".toml"):
        return load_scenario_file(Path(name))
    if (scenario := preset(name)) is not None:
        return scenario
    similar_keys = difflib.get_close_matches(name, [entry.key for entry in presets()], n=1)
    hint = f", perhaps {similar_keys[0]}" if similar_keys else "; the command presets lists them"
    raise UnknownScenario(f"{printable(name)} is neither a .toml file nor a preset{hint}")


def fields_like(text: str) -> list[dict[str, str]]:
    """The settable fields whose name, label or synonyms contain a text, as rows. Raises SpecError.

    >>> [row["field"] for row in fields_like("draft acc")]
    ['deployment.decode.mtp_acceptance']
    """
    field_rows = [
        {
            "field": path, "default": value_text(field.default), "unit": field.unit,
            "accepts": field.accepted_text(), "label": field.label,
            "applies": "; ".join(condition_text(condition) for condition in field.conditions),
        }
        for path, field in fields().items()
        if field.kind is not tuple and "[]" not in path
        and text.lower() in f"{path} {field.label} {field.also}".lower()
    ]  # fmt: skip
    if not field_rows:
        raise SpecError(no_field_sentence(text))
    return field_rows


def settings_from(words: Sequence[str]) -> dict[str, Any]:
    """Settings by dotted path from `a.b=value` words; a value is read as TOML, else as text.

    >>> settings_from(["deployment.prefill.instances=4", "router.policy=round_robin"])
    {'deployment.prefill.instances': 4, 'router.policy': 'round_robin'}
    """
    settings: dict[str, Any] = {}
    for setting_text in words:
        path, equals_sign, value = setting_text.partition("=")
        if not equals_sign or not path.strip():
            raise SpecError(f"a setting is written field=value, not {quoted(setting_text)}")
        value_text = value.strip()
        try:
            value_table = toml_table(f"value = {value_text}", "a setting", SpecError)
        except SpecError:
            value_table = {}
        settings[path.strip()] = value_table["value"] if len(value_table) == 1 else value_text
    return settings


def with_trace(
    scenario: Scenario, table: "TraceTable", rate_multiplier: float = 1.0, tree_copies: int = 1
) -> Scenario:
    """The scenario with a trace as workload, `rate_multiplier` times as fast, `tree_copies` times
    at once, and a horizon up to its last arrival if it has times. Raises SpecError if too long."""
    from twin.workload.replay import COPY_SPREAD_REQUESTS, timestamp_quantum

    trace_settings: dict[str, Any] = {
        "workload.arrivals": "trace", "workload.trace.name": table.name,
        "workload.trace.digest": table.digest, "workload.trace.rate_multiplier": rate_multiplier,
        "workload.trace.tree_copies": tree_copies,
    }  # fmt: skip
    # Bounds first: what follows divides by the multiplier.
    scenario = with_overrides(scenario, trace_settings)
    if table.has_time:
        longest_trace_s = (fields()["horizon_s"].high or 0.0) * rate_multiplier
        if table.duration_s > longest_trace_s:
            raise SpecError(
                f"{table.name} lasts {table.duration_s:,.6g} s, but a run at {rate_multiplier:g} "
                f"times its speed takes at most {longest_trace_s:,.6g} s of it: are its times in "
                "the unit of its format?"
            )
        copy_spread_s = table.duration_s * min(1.0, COPY_SPREAD_REQUESTS / max(len(table), 1))
        spread_s = timestamp_quantum(table.arrival_s) + (copy_spread_s if tree_copies > 1 else 0.0)
        # A step more, so that the last arrival lies inside even when nothing is spread.
        horizon_s = (table.duration_s + spread_s) / rate_multiplier + scenario.step_s
        trace_settings = {"horizon_s": max(horizon_s, 1.0), "warmup_s": 0.0}
        scenario = with_overrides(scenario, trace_settings)
    return scenario


def with_counts(scenario: Scenario, table: "CountsTable") -> Scenario:
    """The scenario with expert popularity from an imported table of counts."""
    reference = {"name": table.name, "digest": table.digest}
    return with_overrides(scenario, {"experts.popularity": "imported", "experts.counts": reference})


def scheduler_defaults(s: Scenario, facts: Facts) -> dict[str, Any]:
    """Defaults of the stack's scheduler, by field path, that differ from the values in `s`; {} if
    none are known. Token budgets and batches of ranks are converted to one NPU, within fields'
    bounds."""
    new_settings: dict[str, Any] = {}
    for role, pool in pools_by_role(s).items():
        scheduler_figures, section = _scheduler_figures(facts, s.deployment.stack, pool), pool.own
        instance_dies = section.npus * load_chip(facts, pool.chip).dies_per_npu
        is_one_batch = role == "prefill" and section.attention == "sp_tp_sp"  # one over all dies
        rank_dies = section.tp_dies * pool.prompt_ranks
        rank_dies *= section.pp_stages * (section.cp_dies if role == "prefill" else 1)
        rank_count = 1 if is_one_batch else instance_dies // rank_dies
        if budget_tokens := scheduler_figures.get("token_budget"):
            budget_count = 1 if scheduler_figures.get("budget_of") == "instance" else rank_count
            tokens_per_npu = budget_tokens * budget_count // section.npus
            if role == "colocated":  # the budget is that of one of the passes of an iteration
                tokens_per_npu *= section.pp_stages
                new_settings["deployment.colocated.chunk_tokens_per_npu"] = tokens_per_npu
            elif role == "prefill":
                new_settings["deployment.prefill.tokens_per_npu"] = tokens_per_npu
                new_settings["deployment.prefill.chunk_tokens"] = (
                    budget_tokens * budget_count // rank_count
                )
        if role != "prefill":
            if rank_sequences := scheduler_figures.get("sequences"):
                new_settings["deployment.decode.batch_per_npu"] = (
                    rank_sequences * rank_count // section.npus
                )
            if "swap_gb" in scheduler_figures:
                new_settings["deployment.decode.swap_gb_per_die"] = float(
                    scheduler_figures["swap_gb"]
                )
            if rank_choice := scheduler_figures.get("rank_choice"):
                new_settings["deployment.decode.rank_choice"] = rank_choice
    bounded_values = {path: _within_bounds(path, value) for path, value in new_settings.items()}
    return {path: value for path, value in bounded_values.items() if value_of(s, path) != value}


def with_scheduler(s: Scenario, facts: Facts) -> Scenario:
    """The scenario with the defaults of its stack's scheduler."""
    return with_overrides(s, scheduler_defaults(s, facts))


def _scheduler_figures(facts: Facts, stack: str, pool: Pool) -> dict[str, Any]:
    """Figures of a stack's scheduler by name (token_budget, sequences, ...), for a pool's chip."""
    figures = {name: fact.value for name, fact in stack_facts(facts, stack, "schedulers").items()}
    if "large_device" in figures:
        large_hbm_bytes = figures["large_device"] * 2**30
        figures["large"] = load_chip(facts, pool.chip).hbm_bytes_per_die >= large_hbm_bytes
    return figures | {
        name: figures[f"large_{name}"]
        for name in LARGE if figures.get("large") and f"large_{name}" in figures
    }  # fmt: skip


def _within_bounds(path: str, value: Any) -> Any:
    """The value for the field at `path`; a whole number is moved within the field's bounds."""
    field = fields()[path]
    if not isinstance(value, int):
        return value
    lowest, highest = field.low or 0, field.high
    return max(int(lowest), value if highest is None else min(int(highest), value))
