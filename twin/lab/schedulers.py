"""What the scheduler of a serving stack does by default, as fields of a scenario: token budgets,
chunks, batch sizes, the choice of a rank, where no flag sets them (data/schedulers.toml)."""

from typing import Any

from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.model.roofline import stack_facts
from twin.scenario import Scenario, fields, with_overrides
from twin.scenario.fields import read
from twin.scenario.groups import Pool, serving

SCHEDULER, AS_STACK = "scheduler", "stack"  # `--set scheduler=stack` on the command line
LARGE = ("token_budget", "sequences")  # figures that devices with much memory have others of


def default_fields(s: Scenario, facts: Facts) -> dict[str, Any]:
    """Fields by path that the scheduler of `deployment.stack` sets otherwise than `s`; empty
    without figures of it. Token budgets and batches of ranks scale to one NPU, within bounds."""
    changes: dict[str, Any] = {}
    for role, pool in serving(s).items():
        traits, settings = _scheduler_figures(facts, s.deployment.stack, pool), pool.own
        instance_dies = settings.npus * load_chip(facts, pool.chip).dies_per_npu
        is_one_batch = role == "prefill" and settings.attention == "sp_tp_sp"  # one over all dies
        rank_dies = settings.tp_dies * pool.prompt_ranks
        rank_dies *= settings.pp_stages * (settings.cp_dies if role == "prefill" else 1)
        rank_count = 1 if is_one_batch else instance_dies // rank_dies
        if budget_tokens := traits.get("token_budget"):
            budgets = 1 if traits.get("budget_of") == "instance" else rank_count
            tokens_per_npu = budget_tokens * budgets // settings.npus
            if role == "colocated":  # the budget is that of one of the passes of an iteration
                tokens_per_npu *= settings.pp_stages
                changes["deployment.colocated.chunk_tokens_per_npu"] = tokens_per_npu
            elif role == "prefill":
                changes["deployment.prefill.tokens_per_npu"] = tokens_per_npu
                changes["deployment.prefill.chunk_tokens"] = budget_tokens * budgets // rank_count
        if role != "prefill":
            if sequences := traits.get("sequences"):
                changes["deployment.decode.batch_per_npu"] = sequences * rank_count // settings.npus
            if "swap_gb" in traits:
                changes["deployment.decode.swap_gb_per_die"] = float(traits["swap_gb"])
            if rank_choice := traits.get("rank_choice"):
                changes["deployment.decode.rank_choice"] = rank_choice
    bounded_values = {path: _within_bounds(path, value) for path, value in changes.items()}
    return {path: value for path, value in bounded_values.items() if read(s, path) != value}


def with_scheduler(s: Scenario, facts: Facts) -> Scenario:
    """The scenario with the defaults of its stack's scheduler."""
    return with_overrides(s, default_fields(s, facts))


def _scheduler_figures(facts: Facts, stack: str, pool: Pool) -> dict[str, Any]:
    """Figures by name of a stack's scheduler on the dies of a pool."""
    table = {name: fact.value for name, fact in stack_facts(facts, stack, "schedulers").items()}
    if "large_device" in table:
        least_hbm_bytes = table["large_device"] * 2**30
        table["large"] = load_chip(facts, pool.chip).hbm_bytes_per_die >= least_hbm_bytes
    return table | {
        name: table[f"large_{name}"]
        for name in LARGE if table.get("large") and f"large_{name}" in table
    }  # fmt: skip


def _within_bounds(path: str, value: Any) -> Any:
    """A value, or the nearest that its field accepts if it is a whole number."""
    field = fields()[path]
    if not isinstance(value, int):
        return value
    low, high = field.low or 0, field.high
    return max(int(low), value if high is None else min(int(high), value))
