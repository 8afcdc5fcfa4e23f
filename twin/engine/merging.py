"""Tables of several models on one machine as tables of one run.

Rows of requests and instances are those of all models, with a column `model`; instances are
numbered through, so that a number of a role is of one model. What is of the whole machine (windows,
links, memory servers, operators) is summed, or a mean by what each model has of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from twin.engine import codes as w
from twin.engine.columns import Record
from twin.engine.invariants import Check
from twin.engine.setup import Setup
from twin.engine.tabling import sums_by_window
from twin.metrics.latency import ratio
from twin.metrics.observed import Observed
from twin.metrics.registry import Summary
from twin.scenario import Scenario, first_numbers

Tables = dict[str, pl.DataFrame]
Offsets = Sequence[dict[str, int]]  # number of the first instance of each role, for each model

OF_INSTANCES = (
    "ranks", "instances", "traffic", "shares", "seats", "hottest", "die_load", "lives", "decisions",
)  # fmt: skip
# Means of a window, by what they are a mean of; all other columns are sums.
MEANS = {
    "ttft_s_mean": "first_tokens", "tpot_s_mean": "answers", "decode_iteration_s": "iterations",
    "hit_token_ratio": "prompt_tokens", "prefill_busy": "prefills", "decode_busy": "decodes",
    "kv_used_fraction": "decodes", "pool_used_fraction": "pool", "hbm_utilisation": "hbm",
    "cube_utilisation": "cube",
}  # fmt: skip
AXIS = ("t_s", "window_s")


@dataclass(frozen=True)
class ModelResult:
    """Results of one model at the horizon."""

    name: str
    setup: Setup
    record: Record
    limits: dict[str, float]
    tables: Tables
    instances: tuple[np.ndarray | float, np.ndarray | float]  # that prefill, decode; by window
    observed: Observed
    summary: Summary
    checks: list[Check]
    notes: list[str]

    @property
    def pool_gb_per_node(self) -> float:
        """GB of each node's DRAM in the model's memory pool."""
        return self.setup.scenario.memory_pool.gb_per_node

    def unrecorded_value(self, name: str) -> float:
        """Value for a column of the windows table that this model lacks: NPUs for `<role>_npus`,
        else 0."""
        role = name.removesuffix("_npus")
        instances = (i for i in self.setup.instances if i.role == role)
        return float(self.setup.fabric.npus_of(die for i in instances for die in i.die_of_rank))

    def mean_weights(self, windows: int) -> dict[str, np.ndarray]:
        """Weights of this model, by name, in means over all models, f8[windows] each."""
        window_sums, requests = self.record.windows[:-1], self.tables["requests"]
        arrived_requests = requests[self.setup.at_start :]
        long_answers = requests.filter(pl.col("output_tokens") > 1)
        horizon_s, ones = self.setup.scenario.horizon_s, np.ones(windows)
        return {
            "first_tokens": _count_by_window(arrived_requests["first_token_s"], horizon_s, windows),
            "answers": _count_by_window(long_answers["finish_s"], horizon_s, windows),
            "iterations": window_sums[:, w.ITERATIONS],
            "prompt_tokens": window_sums[:, w.PROMPT_TOKENS],
            "prefills": ones * self.instances[0], "decodes": ones * self.instances[1],
            "pool": ones * self.pool_gb_per_node,
            "hbm": ones * self.limits["hbm"], "cube": ones * self.limits["cube"],
        }  # fmt: skip


def _count_by_window(times_s: pl.Series, horizon_s: float, windows: int) -> np.ndarray:
    """Number of times in each of `windows` equal windows up to the horizon, f8[windows]."""
    known_times_s = times_s.drop_nulls().to_numpy()
    known_times_s = known_times_s[known_times_s <= horizon_s]
    return sums_by_window(known_times_s, horizon_s, windows).astype(float)


def merge_tables(s: Scenario, results: Sequence[ModelResult]) -> Tables:
    """The tables of one run, made from the tables of all its models."""
    number_offsets = first_numbers(s)
    tables = {
        name: _stack_tables(results, name, number_offsets)
        for name in OF_INSTANCES
        if any(name in result.tables for result in results)
    }
    tables["requests"] = _merge_requests(results, number_offsets)
    events = pl.concat(map(_renumber_events, results, number_offsets)).unique(maintain_order=True)
    tables["events"] = events.sort("t_s", maintain_order=True)
    tables["windows"] = merge_windows(results)
    tables["operators"] = _merge_operators([result.tables["operators"] for result in results])
    tables["links"] = _sum_links([result.tables["links"] for result in results], tables["traffic"])
    if results_with_servers := [result for result in results if "servers" in result.tables]:
        server_tables = [result.tables["servers"] for result in results_with_servers]
        group_keys = ["t_s", "window_s", "node"]
        tables["servers"] = pl.concat(server_tables).group_by(group_keys, maintain_order=True).sum()
    return tables


def _model_column(result: ModelResult, results: Sequence[ModelResult]) -> pl.Expr:
    """Column `model`: the model's name in every row; type: names of all models (`results`)."""
    name_type = pl.Enum([model.name for model in results])
    return pl.lit(pl.Series([result.name], dtype=name_type)).first().alias("model")


def _stack_tables(results: Sequence[ModelResult], name: str, offsets: Offsets) -> pl.DataFrame:
    """Tables `name` of all models as one, instance numbers shifted by `offsets` of their role."""
    tables = []
    for result, first_by_role in zip(results, offsets, strict=True):
        if name not in result.tables:  # of models whose instances come and go
            continue
        table = result.tables[name]
        if "instance" in table.columns:
            role_column, dtype = pl.col("role"), pl.Int32
            first_number = role_column.replace_strict(first_by_role, default=0, return_dtype=dtype)
            table = table.with_columns((pl.col("instance") + first_number).alias("instance"))
        tables.append(table.with_columns(_model_column(result, results)))
    return pl.concat(tables, how="diagonal")


def _renumber_events(result: ModelResult, first: dict[str, int]) -> pl.DataFrame:
    """Events of a model with the numbers that its instances have in the whole run, also in texts.
    first: number of the first instance of each role. Events of the machine stay unchanged."""
    event_rows = result.tables["events"].to_dicts()
    for event_row in event_rows:
        if event_row["instance"] is not None:
            name_pattern = rf"\b{event_row['role']} {event_row['instance']}\b"
            event_row["instance"] += first[event_row["role"]]
            for column in ("element", "detail"):
                new_name = f"{event_row['role']} {event_row['instance']}"
                event_row[column] = re.sub(name_pattern, new_name, event_row[column])
    return pl.DataFrame(event_rows, schema=result.tables["events"].schema)


def _merge_requests(results: Sequence[ModelResult], offsets: Offsets) -> pl.DataFrame:
    """Requests of all models in order of arrival; sessions and instances are numbered through."""
    tables, session_count = [], 0
    for result, first_by_role in zip(results, offsets, strict=True):
        table = result.tables["requests"]
        table = table.with_columns(
            pl.col("session") + session_count,
            pl.col("prefill_instance") + first_by_role["prefill"],
            pl.col("decode_instance") + first_by_role["decode"],
            _model_column(result, results),
        )
        session_count = int(table["session"].max() or 0) + 1  # type: ignore[arg-type]
        tables.append(table)
    requests = pl.concat(tables, how="diagonal").sort("arrival_s", maintain_order=True)
    return requests.with_columns(pl.int_range(requests.height, dtype=pl.Int32).alias("request_id"))


def merge_windows(results: Sequence[ModelResult]) -> pl.DataFrame:
    """Windows of the whole machine: sums of the models' columns, or means by their weights."""
    tables = [result.tables["windows"] for result in results]
    window_count = tables[0].height
    weights_of_models = [result.mean_weights(window_count) for result in results]
    columns = {name: tables[0][name] for name in AXIS}
    for name in dict.fromkeys(name for table in tables for name in table.columns):
        if name in AXIS:
            continue
        model_values = [
            result.tables["windows"][name].fill_null(0).to_numpy()
            if name in result.tables["windows"].columns
            else np.full(window_count, result.unrecorded_value(name))
            for result in results
        ]
        weight_name = MEANS.get(name) or ("iterations" if name.startswith("decode_") and
                                 name.endswith("_s") else "")  # fmt: skip
        if not weight_name:
            columns[name] = pl.Series(values=sum(model_values[1:], model_values[0]))
            continue
        model_weights = [model_weight[weight_name] for model_weight in weights_of_models]
        total_weight = sum(model_weights[1:], model_weights[0])
        weighted = [
            value * weight for value, weight in zip(model_values, model_weights, strict=True)
        ]
        weighted_sums = sum(weighted, np.zeros(window_count))
        columns[name] = pl.Series(values=ratio(weighted_sums, total_weight), nan_to_null=True)
    if any(table["power_w"].null_count() for table in tables):
        columns["power_w"] = tables[0]["power_w"].clear(window_count)
    return pl.DataFrame(columns)


def _merge_operators(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Seconds by operator of all models; iterations are those of models that have the operator."""
    sums_by_operator = pl.concat(tables).group_by("phase", "operator", maintain_order=True).agg(
        pl.col("total_s").sum(), pl.col("iterations").sum()
    )  # fmt: skip
    phase_s = pl.col("total_s").sum().over("phase")
    return sums_by_operator.select(
        "phase", "operator", "total_s",
        share=pl.when(phase_s > 0).then(pl.col("total_s") / phase_s).otherwise(0.0),
        per_iteration_s=pl.when(pl.col("iterations") > 0)
        .then(pl.col("total_s") / pl.col("iterations")).otherwise(0.0),
        iterations="iterations",
    )  # fmt: skip


def _sum_links(tables: Sequence[pl.DataFrame], traffic: pl.DataFrame) -> pl.DataFrame:
    """Traffic of every node, bytes summed over models. Peak utilisation is the mean, multiplied by
    the ratio of peak to mean of all traffic on the plane."""
    first_table, *other_tables = tables  # rows are the machine's: of each model the same ones
    summed_links = first_table.with_columns(
        sum((table[name] for table in other_tables), first_table[name]).alias(name)
        for name in ("bytes", "utilisation_mean")
    )
    mean_use = pl.col("utilisation_mean")
    bytes_by_time = traffic.group_by("plane", "t_s").agg(pl.col("bytes").sum())
    peak_share = bytes_by_time.group_by("plane").agg(pl.col("bytes").max() / pl.col("bytes").sum())
    last_window = traffic.select((pl.col("t_s") / pl.col("window_s")).max()).item() or 0.0
    peak_ratios = {plane: share * (round(last_window) + 1) for plane, share in peak_share.rows()}
    peak_ratio = pl.col("plane").replace_strict(peak_ratios, default=0.0, return_dtype=pl.Float64)
    peak_use = pl.min_horizontal(mean_use * peak_ratio, pl.max_horizontal(mean_use, pl.lit(1.0)))
    return summed_links.with_columns(peak_use.alias("utilisation_peak"))


def models_table(results: Sequence[ModelResult]) -> pl.DataFrame:
    """A row for each model, with the summary figures of its requests and instances."""
    model_names = [result.name for result in results]
    columns = {"model": pl.Series(model_names, dtype=pl.Enum(model_names))}
    for name in results[0].summary:
        figures = [result.summary[name] for result in results]
        is_text = any(isinstance(figure, str) for figure in figures)
        columns[name] = pl.Series(figures, dtype=pl.String if is_text else pl.Float64, strict=False)
    return pl.DataFrame(columns)
