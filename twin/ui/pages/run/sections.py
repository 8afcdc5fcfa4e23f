"""The sections of a finished run; each reads its own tables when it is chosen."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from twin.lab.explain.words import PIECES
from twin.lab.store import RunRow
from twin.metrics.latency import ttft_parts
from twin.metrics.measures import NOTHING, amount, seconds
from twin.metrics.registry import METRICS, as_text
from twin.scenario import FORMS, Scenario, field_unit, form_groups, value_of
from twin.ui import charts, formulas, record, theme, words
from twin.ui.fabric_message import draw_fabric, link_matrix, link_values
from twin.ui.fields import field_of, text_of, why_idle
from twin.ui.pages.run import explained
from twin.ui.show import draw_choice, draw_pass_times, is_dark, plain, plot, plot_all
from twin.ui.toolbar import open_run

Draw = Callable[[RunRow, Scenario], None]

SPREADS = {"TTFT": "ttft_s", "TPOT": "tpot_s", "ITL": "itl_s", "E2E": "e2e_s"}
OVER_TIME = {
    "waiting": "Waiting",
    "running": "Being served",
    "output": "Output tokens",
    "input": "Input tokens computed",
}
USES = {"Mean": "utilisation_mean", "Busiest window": "utilisation_peak"}
# The colour of a share of use by the first word of its key.
USE_COLOURS = {
    "prefill": theme.ROLE["prefill"], "decode": theme.ROLE["decode"], "kv": theme.ROLE["decode"],
    "pool": theme.ROLE["memory_pool"], "cube": theme.SERIES[2], "hbm": theme.SERIES[4],
    **theme.PLANE,
}  # fmt: skip
DIE_FIGURES = {
    "Requests held": ("requests_mean", False),
    "KV space used": ("kv_used_fraction_mean", True),
    "Expert load, of the mean": ("expert_load", False),
    "Busy, of the time": ("busy_fraction", True),
}


def draw_time_by_part(row: RunRow, scenario: Scenario) -> None:
    """Draw the time of a mean request by piece, and its TTFT by stage."""
    pieces_s = record.seconds_by_piece(row, scenario)
    stages_column, ttft_column = st.columns([3, 2], gap="large")
    with stages_column:
        st.subheader("Where the time goes", anchor=False)
        if pieces_s:
            parts_s = {PIECES[name]: piece_s for name, piece_s in pieces_s.items()}
            caption = "Stages of a mean request from arrival to its last token, in their order."
            plot(charts.waterfall(parts_s, caption, total="A mean request"), "waterfall")
            st.caption(
                "Mean over the requests that finished after the warm-up, from ideal to actual. "
                "Faults and expert imbalance: what re-runs without them save."
            )
        elif explained.can_explain(row, scenario):
            st.markdown(
                "The time of a request, from ideal to actual, is here once this run is explained: "
                "see Causes."
            )
        elif scenario.models:
            st.markdown("Runs of several models are not explained.")
        else:
            st.markdown(
                "Another engine or other facts made this run: only a new one can be explained."
            )
            if st.button("Run it again", icon=":material/replay:", key="explain-run-again"):
                open_run(scenario)
    with ttft_column:
        st.subheader("Where the TTFT went", anchor=False)
        stages_by_row = {"mean": ttft_parts(row.summary)}
        slowest_stages = record.latencies(row.id, scenario.warmup_s).slowest
        if slowest_stages:
            stages_by_row["slowest 1 %"] = slowest_stages
        plot(charts.stages(stages_by_row), "stages")
        st.caption("Mean over the requests whose first token came after the warm-up.")


def draw_latency(row: RunRow, scenario: Scenario) -> None:
    """Draw distributions of TTFT and TPOT with the SLO as a line, and a table of percentiles."""
    latencies = record.latencies(row.id, scenario.warmup_s)
    left_column, right_column = st.columns(2, gap="large")
    for column, name, times_s, colour, slo_s in (
        (left_column, "TTFT", latencies.ttft_s, theme.ROLE["prefill"], scenario.slo.ttft_s),
        (right_column, "TPOT", latencies.tpot_s, theme.ROLE["decode"], 1e-3 * scenario.slo.tpot_ms),
    ):
        with column:
            st.subheader(name, anchor=False, help=METRICS[f"{name.lower()}_s_mean"].help)
            plot(charts.distribution([charts.Curve(name, colour, times_s)], slo_s), f"cdf-{name}")
            if len(times_s):
                met_text = amount(float((times_s <= slo_s).mean()), "share")
                st.caption(f"{met_text} of requests within the SLO of {seconds(slo_s)}.")
    statistics = ("mean", "p50", "p90", "p95", "p99")
    percentile_rows = [
        {"": name} | {c: as_text(f"{key}_{c}", row.summary.get(f"{key}_{c}")) for c in statistics}
        for name, key in SPREADS.items()
        if row.summary.get(f"{key}_mean") is not None
    ]
    st.dataframe(percentile_rows, hide_index=True)
    st.caption(
        "  \n".join(f"**{title}** {METRICS[f'{key}_mean'].help}" for title, key in SPREADS.items())
    )


def draw_over_time(row: RunRow, scenario: Scenario) -> None:
    """Draw queues, requests being served and tokens per second, window by window."""
    windows, warmup_s = record.table(row.id, "windows"), scenario.warmup_s
    plot_all((title, charts.over_time(key, windows, warmup_s), key)
           for key, title in OVER_TIME.items())  # fmt: skip
    width_s = float(windows["window_s"][0]) if windows.height else 0.0
    st.caption(f"Means over windows of {words.duration_text(width_s)} each.")


def draw_pass_times_of_phases(row: RunRow, scenario: Scenario) -> None:
    """Draw mean times of decode iterations and prefill batches, and iterations over the run."""
    operators = record.table(row.id, "operators")
    timelines = record.layer_timelines(row.id, row, scenario)
    phases = [phase for phase in ("decode", "prefill") if (operators["phase"] == phase).any()]
    for phase in phases:
        timeline, operator_rows = timelines.get(phase), record.iteration_rows(row, scenario, phase)
        pass_s = float(operators.filter(operators["phase"] == phase)["per_iteration_s"].sum())
        pass_name = "iteration" if phase == "decode" else "batch"
        st.subheader(f"A mean {phase} {pass_name} takes {seconds(pass_s)}", anchor=False)
        if phase == "decode":
            _draw_per_token(row, scenario, pass_s)
        draw_pass_times(timeline, operator_rows, pass_s, pass_name, f"-{phase}", columns=2)
    if "decode" in phases:
        st.subheader("The decode iteration over time", anchor=False)
        windows = record.table(row.id, "windows")
        chart = charts.iteration_over_time(windows, scenario.warmup_s, "decode" not in timelines)
        plot(chart, "iteration")
    st.caption("Mean over all iterations of all instances; layers at the run's mean load.")


def _draw_per_token(row: RunRow, scenario: Scenario, took_s: float) -> None:
    """Draw a sentence that relates the time of an iteration (`took_s`) to the time per token."""
    prediction, tpot_s = formulas.capacity(scenario), row.summary.get("tpot_s_mean")
    if isinstance(prediction, str) or prediction.decode is None or tpot_s is None:
        return
    tokens = prediction.decode.tokens_per_iteration
    st.markdown(
        f"{seconds(took_s)} an iteration / {tokens:.2f} tokens of a request an iteration = "
        f"**{seconds(took_s / tokens)} a token**. TPOT's mean over requests is {seconds(tpot_s)}: "
        "each counts alike, and waits for its first iteration."
    )


def draw_load(row: RunRow, scenario: Scenario) -> None:
    """Draw the utilisation of pools, HBM and planes, and a map of the dies."""
    windows = record.table(row.id, "windows")
    left_column, right_column = st.columns(2, gap="large")
    with left_column:
        st.subheader("Used in the steady state", anchor=False)
        plot(charts.shares(use_shares(row.summary)), "shares")
    with right_column:
        st.subheader("Over time", anchor=False)
        plot(charts.over_time("busy", windows, scenario.warmup_s), "busy")
        plot(charts.over_time("planes", windows, scenario.warmup_s), "planes")
        if "power_w" in windows.columns and windows["power_w"].max():  # not of earlier engines
            plot(charts.over_time("power", windows, scenario.warmup_s), "power")
    st.subheader("Die by die", anchor=False)
    ranks = held_by_attention_dies(record.table(row.id, "ranks"))
    figure_names = [
        name for name, (key, _) in DIE_FIGURES.items() if not ranks[key].is_null().all()
    ]
    figure = draw_choice("Figure", figure_names, "die-figure", wrap=True)
    column, is_percent = DIE_FIGURES[figure]
    plot(charts.dies(ranks, column, figure, percent=is_percent, dark=is_dark()), "dies")
    st.caption(
        "A die is busy while it computes, however few requests it holds; how full it is, requests "
        "held and KV space say."
    )


def held_by_attention_dies(ranks: pl.DataFrame) -> pl.DataFrame:
    """The table `ranks` with requests and KV moved to the attention dies. With separate expert dies
    (AFD) a run records them evenly over all dies of an instance."""
    instance_tables = [ranks.clear()]
    for ranks_of_one in ranks.partition_by("role", "instance", maintain_order=True):
        attention_dies = np.flatnonzero(ranks_of_one["expert_load"].is_null().to_numpy())
        if 0 < attention_dies.size < ranks_of_one.height:
            ranks_per_die = ranks_of_one.height / attention_dies.size
            indices = np.arange(ranks_of_one.height)
            begins = np.arange(attention_dies.size)[:, None] * ranks_per_die
            # How much of each rank is on each attention die: ranks are dealt in order.
            overlaps = np.minimum(indices + 1, begins + ranks_per_die) - np.maximum(indices, begins)
            new_columns = {}
            for name, divisor in (("requests_mean", 1.0), ("kv_used_fraction_mean", ranks_per_die)):
                new_column = np.full(ranks_of_one.height, np.nan)
                die_values = np.maximum(overlaps, 0.0) @ ranks_of_one[name].to_numpy()
                new_column[attention_dies] = die_values / divisor
                new_columns[name] = pl.Series(new_column).fill_nan(None)
            ranks_of_one = ranks_of_one.with_columns(**new_columns)  # noqa: PLW2901
        instance_tables.append(ranks_of_one)
    return pl.concat(instance_tables)


def use_shares(summary: Mapping[str, Any]) -> list[tuple[str, float, str]]:
    """(label, share of 1, colour) of each utilisation in a run's summary that is not zero."""
    return [
        (m.label, float(summary[m.key]), USE_COLOURS.get(m.key.partition("_")[0], theme.OTHER))
        for m in METRICS.values()
        if m.group == "use" and m.kind == "share" and summary.get(m.key)
    ]


def draw_links(row: RunRow, scenario: Scenario) -> None:
    """Draw the machine, coloured by the load of its links."""
    figure = draw_choice("Figure", USES, "link-figure")
    fabric = record.fabric(row, scenario)
    percents = 100 * link_matrix(fabric, record.table(row.id, "links"), USES[figure])
    draw_fabric(
        fabric, title=f"Links used, {figure.lower()}", carried=link_values(fabric, percents),
        unit="% of capacity, busier direction", key="run-fabric",
        instances=formulas.place_instances(scenario, fabric)[0].instances,
    )  # fmt: skip
    st.caption(
        "Colours run from idle to the fullest link of this run. The load matrix shows nodes by "
        "planes."
    )


def draw_scenario(row: RunRow, scenario: Scenario) -> None:
    """Draw the scenario, and the digests that identify the result."""
    left_column, right_column = st.columns([3, 2], gap="large")
    with left_column:
        st.subheader("What was simulated", anchor=False)
        with st.grid(2, min_column_width=210):
            st.metric("NPUs that serve", words.npus_text(scenario))
            st.metric("Traffic", plain(words.traffic_text(scenario)))
            st.metric("Prompt → answer", words.lengths_text(scenario))
            st.metric(*words.pool_npus(scenario))
        if scenario.source:
            st.caption(f"Figures: {plain(scenario.source)}")
    with right_column:
        st.subheader("What pins the result", anchor=False)
        end_time = time.gmtime(row.finished_s or row.queued_s)
        identities = {
            "Run": row.id,
            "Scenario": row.scenario,
            "Result digest": row.result_digest,
            "Facts digest": row.facts_digest,
            "Engine version": row.engine_version,
            "Seed": row.seed,
            "Ended": time.strftime("%Y-%m-%d %H:%M UTC", end_time),
            "Wall time": f"{row.wall_s:.2f} s" if row.wall_s is not None else NOTHING,
        }
        identity_rows = [{"": name, "Value": f"`{value}`"} for name, value in identities.items()]
        st.table(identity_rows, border="horizontal", hide_index=True, hide_header=True)
    st.subheader("Every field", anchor=False)
    st.dataframe(field_rows(scenario), hide_index=True, height=420)


def field_rows(scenario: Scenario) -> list[dict[str, Any]]:
    """Rows of the table of all fields of a scenario: group, field, value, unit."""
    groups_and_paths = [
        group_and_paths for form in FORMS for group_and_paths in form_groups(form).items()
    ]
    rows = [
        _field_row(scenario, group, path) for group, paths in groups_and_paths for path in paths
    ]
    group_of = {
        "models": "Pools", "tenants": "Clients", "faults": "Faults", "supernode.kinds": "Machine",
        "supernode.edits": "Machine", "deployment.seats": "Pools", "elastic.schedule": "Elasticity",
        "workload.profile.pieces": "Traffic",
    }  # fmt: skip
    for path, group in group_of.items():
        rows += [_field_row(scenario, group, path, [row]) for row in value_of(scenario, path)]
    return rows if scenario.faults else [*rows, _field_row(scenario, "Faults", "faults")]


def _field_row(scenario: Scenario, group: str, path: str, value: Any = None) -> dict[str, Any]:
    """Row of a field in the table: its value (None: the scenario's), or why it has no effect."""
    idle_reason = why_idle(path, scenario)
    value = value_of(scenario, path) if value is None else value
    return {
        "Group": group,
        "Field": field_of(path).label,
        "Value": f"not used: {idle_reason}" if idle_reason else text_of(value, path),
        "Unit": "" if idle_reason else field_unit(path),
    }


SECTIONS: dict[str, Draw] = {
    "Why": draw_time_by_part,
    "Latency": draw_latency,
    "One request": explained.draw_one_request,
    "Over time": draw_over_time,
    "Iteration": draw_pass_times_of_phases,
    "Load": draw_load,
    "Fabric": draw_links,
    "Scenario": draw_scenario,
}
