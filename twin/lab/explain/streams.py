"""The streams of instances by the model at the mean load; a run has only the critical path."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from twin.facts import Facts
from twin.hardware.fabric import build_fabric
from twin.model.costs import Costs, build_costs
from twin.model.layer import die_and_link_load
from twin.model.predict import rank_load
from twin.model.timeline import Timeline, decode_timeline, prefill_timeline
from twin.scenario import Scenario, with_overrides
from twin.steady import Priced, assemble

Tables = Mapping[str, pl.DataFrame]


def mean_load_timelines(scenario: Scenario, facts: Facts, tables: Tables) -> dict[str, Timeline]:
    """Timelines by role of the instances that run in microbatches, at the run's mean load; may be
    empty. A run has only the hottest die's load: that die's port stands for the fullest link of the
    exchange."""
    costs = _costs_of_run(scenario, facts, tables)
    timelines: dict[str, Timeline | None] = {}
    if costs.decode_role is not None:
        ranks = tables["ranks"].filter(pl.col("role") == "decode")
        column_names = ("requests_mean", "context_tokens_mean")
        requests, context_tokens = (_mean(ranks[column].fill_null(0.0)) for column in column_names)
        hottest_load = _hottest_load(tables, "decode")
        timelines["decode"] = decode_timeline(
            costs.decode, requests, context_tokens, hottest_load, hottest_load
        )
    if costs.prefill_role is not None:
        operators = tables["operators"].filter(pl.col("phase") == "prefill")
        batch_count = float(operators["iterations"].max() or 0.0) if operators.height else 0.0  # type: ignore[arg-type]
        windows = tables["windows"].filter(pl.col("t_s") >= scenario.warmup_s)
        run_tokens = float((windows["input_tokens_per_s"] * windows["window_s"]).sum() or 0.0)
        batch_tokens = run_tokens / batch_count if batch_count > 0 else 0.0  # of a mean batch
        prompt_tokens = _mean(tables["requests"]["input_tokens"]) or 1.0
        attention_pairs = batch_tokens * 0.5 * min(prompt_tokens, batch_tokens)
        hottest_load = _hottest_load(tables, "prefill")
        timelines["prefill"] = prefill_timeline(
            costs.prefill, batch_tokens, attention_pairs, hottest_load, hottest_load
        )
    return {role: timeline for role, timeline in timelines.items() if timeline is not None}


def full_load_timelines(
    scenario: Scenario, facts: Facts, trace: Any = None, counts: Any = None
) -> dict[str, Timeline]:
    """Timelines by role, by formula at full load, for the rank with the longest context. Raises
    ValueError if the deployment does not fit."""
    priced = Priced(scenario, facts, trace, counts)
    prediction, traffic, assembly = priced.prediction, priced.traffic, priced.parts
    costs, timelines = assembly.costs, dict[str, Timeline | None]()
    if costs.decode_role is not None and prediction.decode is not None:
        ranks, query_tokens = costs.decode_role.ranks, costs.decode.query_tokens
        rank_batch = costs.decode_role.slots(prediction.decode.batch_per_npu)
        rank_loads = rank_load(rank_batch, ranks, traffic)
        requests, context_tokens = (float(loads[0]) for loads in rank_loads)
        tokens = 0.5 * query_tokens * rank_batch * ranks / costs.decode.layout.domains
        hottest_loads = die_and_link_load(
            costs.decode.layout, tokens, *assembly.decode_imbalance.table
        )
        timelines["decode"] = decode_timeline(
            costs.decode, requests, context_tokens, *hottest_loads
        )
    if costs.prefill_role is not None and prediction.prefill is not None:
        tokens = prediction.prefill.batch_tokens
        hottest_loads = die_and_link_load(
            costs.prefill.layout, 0.5 * tokens, *assembly.prefill_imbalance.table
        )
        attention_pairs = tokens / traffic.fresh_tokens * traffic.fresh_pairs
        timelines["prefill"] = prefill_timeline(
            costs.prefill, tokens, attention_pairs, *hottest_loads
        )
    return {role: timeline for role, timeline in timelines.items() if timeline is not None}


def _costs_of_run(scenario: Scenario, facts: Facts, tables: Tables) -> Costs:
    """Costs of a scenario; for a trace under a power cap, those at the run's mean lengths."""
    if scenario.cost.cap_w <= 0.0:
        return build_costs(scenario, facts, build_fabric(scenario.supernode, facts))
    if scenario.workload.arrivals == "trace":
        mean_lengths = {
            f"workload.{column}": max(1, round(_mean(tables["requests"][column])))
            for column in ("input_tokens", "output_tokens")
        }
        fixed_settings = {"workload.arrivals": "poisson", "workload.lengths": "fixed"}
        scenario = with_overrides(scenario, fixed_settings | mean_lengths)
    return assemble(scenario, facts).costs


def _mean(column: pl.Series) -> float:
    """Mean of a column; 0 for an empty one."""
    return float(column.mean() or 0.0)  # type: ignore[arg-type]


def _hottest_load(tables: Tables, role: str) -> float:
    """Expert load of a role's hottest die in the run, divided by the mean load; at least 1."""
    ranks = tables["ranks"].filter(pl.col("role") == role)
    hottest_load = ranks["expert_load"].max() if "expert_load" in ranks.columns else None
    return max(1.0, float(hottest_load)) if isinstance(hottest_load, int | float) else 1.0
