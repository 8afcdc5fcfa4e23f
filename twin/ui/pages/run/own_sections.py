"""Sections of some runs only: changing instances, days, clients, tenants, pool, faults."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from twin.lab.store import RunRow
from twin.metrics.clients import tenant_rows
from twin.metrics.hours import DAILY, hit_ratio_table, hour_s, hours_table
from twin.metrics.measures import NOTHING, amount, numbered, seconds, three_figures
from twin.metrics.observed import Observed, turns_wait
from twin.metrics.registry import METRICS, Place, as_text, metrics_at
from twin.metrics.resilience import Dip, dips_of_faults
from twin.scenario import Scenario, is_elastic, split_models
from twin.scenario.elastic import PRESSURES
from twin.ui import charts, record, session, theme, words
from twin.ui.charts import history
from twin.ui.fields import choice_label, sentence
from twin.ui.link import link_page
from twin.ui.show import is_dark, plot, plot_all

BINS = 60  # of a run, in which hits are counted by tenant
SHOWN = 6  # dips shown in full; the rest is one sentence each
COLUMNS = ["arrival_s", "first_token_s", "finish_s", "output_tokens", "status", "retries"]
# The column of what a controller goes by, of both pools.
GOES_BY = PRESSURES | {"rebalance": "needed"}
SAW = {"serving": "serving", "in hand": "in_hand", "busy": "busy", "latency / SLO": "latency",
       "needed": "needed", "wanted": "wanted"}  # fmt: skip
DECIDED = {"Started": "started", "Stopped": "stopped", "Changed role": "changed_role",
           "Held back by": "held_back"}  # fmt: skip
HOURLY = {
    "prefill_npus": "Prefill NPUs", "decode_npus": "Decode NPUs",
    "colocated_npus": "Colocated NPUs", "changing_npus": "Starting or draining",
    "npu_hours": "NPU-hours", "npu_hours_idle": "Without work", "energy_kwh": "Energy, kWh",
    "hit_percent": "Hit ratio, %", "pool_percent": "Memory pool used, %", "arrived": "Requests",
}  # fmt: skip
TENANT = {
    "asked_req_per_s": "Offered", "goodput_req_per_s": "Goodput",
    "slo_attainment": "SLO attainment", "ttft_s_p50": "TTFT p50", "ttft_s_p99": "TTFT p99",
    "tpot_s_mean": "TPOT mean", "tokens_per_s": "Tokens served", "hit_token_ratio": "Hit ratio",
    "fair_share_ratio": "Of its fair share", "refused": "Refused", "cancelled": "Cancelled",
}  # fmt: skip
OF_A_MODEL = ("requests", "slo_attainment", "goodput_req_per_s", "ttft_s_p50", "ttft_s_p99",
              "tpot_s_mean", "npus", "npu_hours", "tokens_per_s_per_npu", "hit_token_ratio",
              "prefill_utilisation", "decode_utilisation", "power_kw", "steady_state")  # fmt: skip


def _draw_figures(summary: Mapping[str, Any], place: Place) -> None:
    """Draw a summary's figures in one line: the metrics that belong to a place of the page."""
    known_metrics = [metric for metric in metrics_at(place) if summary.get(metric.key) is not None]
    st.markdown(
        " · ".join(f"{m.label}: **{as_text(m.key, summary[m.key])}**" for m in known_metrics)
    )


def draw_instances(row: RunRow, scenario: Scenario) -> None:
    """Draw when instances start, serve and end, NPUs by pool, and the controller's decisions."""
    lives, windows = record.table(row.id, "lives"), record.table(row.id, "windows")
    _draw_figures(row.summary, "instances")
    st.subheader("Lives of the instances", anchor=False)
    plot(history.lives(lives, scenario.horizon_s, scenario.warmup_s), "lives")
    st.caption(
        "Rows are sorted by first NPU: rows that never overlap share NPUs, and pass them from pool "
        "to pool, or from model to model. "
        + starts_sentence(lives, int(row.summary.get("role_changes") or 0))
    )
    npus_over_time = charts.over_time("npus", windows, scenario.warmup_s)
    npus_picture = "NPUs by pool", npus_over_time, "npus-by-pool"
    if not _has_table(row, "decisions") or scenario.models:  # each model's controller decides alone
        plot_all([npus_picture])
        return
    decisions, rules = record.table(row.id, "decisions"), scenario.elastic
    metric_name = GOES_BY.get(rules.controller, "busy")
    thresholds = (rules.high, rules.low) if rules.controller in PRESSURES else None
    metric_chart = history.pressures(decisions, metric_name, thresholds)
    plot_all([npus_picture, ("What the controller saw", metric_chart, "pressures")])
    st.subheader("Decisions", anchor=False)
    change_count = pl.col("started") + pl.col("stopped") + pl.col("changed_role")
    changes = decisions.filter((change_count > 0) | (pl.col("held_back") != "")).head(500)
    seen_columns = {f"{role.capitalize()}: {label}": pl.col(f"{role}_{metric_name}")
           for role in history.ROLES for label, metric_name in SAW.items()
           if f"{role}_{metric_name}" in decisions.columns}  # fmt: skip
    time_text = pl.col("t_s").map_elements(words.duration_text, return_dtype=pl.String)
    number_column = st.column_config.NumberColumn(format="%.2f")
    st.dataframe(
        changes.select(At=time_text, **{n: pl.col(c) for n, c in DECIDED.items()}, **seen_columns),
        hide_index=True, placeholder="–",
        column_config={label: number_column for label in seen_columns
                       if label.endswith(("in hand", "busy", "SLO", "needed"))},
    )  # fmt: skip
    st.caption(
        f"{choice_label('elastic.controller', rules.controller)}: "
        f"{numbered(decisions.height, 'decision')}, each on metrics {rules.metrics_age_s:g} s old; "
        "shown are those that moved something or were held back."
    )


def starts_sentence(lives: pl.DataFrame, role_changes: int) -> str:
    """Sentence on where starting instances found weights and NPUs; '' if none loaded weights."""
    count_by_state = dict(lives["state"].value_counts().iter_rows())
    load_count, fetch_count = count_by_state.get("load", 0), count_by_state.get("fetch", 0)
    # With one model graphs are also made anew where an instance goes on with other dies.
    switch_count = count_by_state.get("graphs", 0) - role_changes if "model" in lives.columns else 0
    if not load_count:
        return ""
    loads_text, dram_count = numbered(load_count, "load"), max(load_count - fetch_count, 0)
    starts_text = f"Of {loads_text} of weights {dram_count} found them in DRAM"
    if fetch_count:
        mean_fetch_s = lives.filter(state="fetch").select((pl.col("end_s") - pl.col("t_s")).mean())
        mean_text = words.duration_text(mean_fetch_s.item())
        starts_text += f"; object storage sent them to the others in {mean_text} on average"
    if switch_count > 0:
        starts_text += f"; {numbered(switch_count, 'start')} took the NPUs of another model"
    return f"{starts_text}."


def draw_day(row: RunRow, scenario: Scenario) -> None:
    """Draw NPUs, their use and waste, energy and cache hits of each hour of the day."""
    hour_length_s = hour_s(scenario)
    assert hour_length_s is not None
    hours = hours_table(record.table(row.id, "windows"), scenario, hour_length_s).with_columns(
        hit_percent=100.0 * pl.col("hit_token_ratio"),
        pool_percent=100.0 * pl.col("pool_used_fraction"),
        npu_hours_used=pl.col("npu_hours") - pl.col("npu_hours_idle"),
    )
    filled = {name for name in hours.columns if hours[name].max()}
    npu_hours, idle_hours = float(hours["npu_hours"].sum()), float(hours["npu_hours_idle"].sum())
    idle_share = amount(idle_hours / npu_hours if npu_hours else None, "share")
    day_texts = [f"**{amount(npu_hours, 'rate', 'NPU-hours')}**", f"without work: **{idle_share}**"]
    if "energy_kwh" in filled:
        day_texts.append(f"energy: **{amount(float(hours['energy_kwh'].sum()), 'rate', 'kWh')}**")
    busiest_hour = hours.sort("arrived", descending=True)["hour"][0]
    st.markdown(" · ".join([*day_texts, f"busiest hour: **{busiest_hour}**"]))
    plot_all((title, history.hourly_bars(hours, series, unit), f"day-{next(iter(series))}")
           for title, (series, unit) in history.DAY.items() if filled & set(series))  # fmt: skip
    hourly_rows = hours.select(Hour="hour", **{HOURLY[c]: c for c in HOURLY if c in filled})
    st.dataframe(hourly_rows.with_columns(pl.col(pl.Float64).round(1)), hide_index=True)
    is_daily = scenario.workload.profile.shape in DAILY
    caption = "Hours of the day that the rate follows." if is_daily else "Hours of simulated time."
    if hour_length_s != 3600.0:
        caption += f" An hour lasts {words.duration_text(hour_length_s)} of simulated time."
    st.caption(f"{caption} Without work: an instance has no request, starts or drains.")


def _has_clients(scenario: Scenario) -> bool:
    """Whether the run has tenants, clients that leave or are refused, or sessions."""
    clients, admission = scenario.clients, scenario.admission
    may_leave = clients.timeout_s or clients.answer_timeout_s
    may_refuse = admission.shed_at or admission.rate_req_per_s or admission.in_flight
    return bool(scenario.tenants or may_leave or may_refuse or turns_wait(scenario))


def draw_clients(row: RunRow, scenario: Scenario) -> None:
    """Draw clients' figures: of all, by tenant, reasons of unanswered requests, session times."""
    if count_metrics := [metric for metric in metrics_at("clients") if row.summary.get(metric.key)]:
        with st.container(horizontal=True):
            for metric in count_metrics:
                value_text = as_text(metric.key, row.summary[metric.key])
                st.metric(metric.label, value_text, help=metric.help, border=True)
    tenants, reason_counts, session_times_s = _client_figures(row.id, scenario)
    if tenants:
        st.subheader("Tenants", anchor=False)
        plot(charts.tenants(tenants), "tenants")
        tenant_table = [{"": tenant["tenant"]}
                 | {label: _cell_text(key, tenant[key]) for key, label in TENANT.items()}
                 for tenant in tenants]  # fmt: skip
        st.dataframe(tenant_table, hide_index=True)
        st.caption(
            "Steady state; SLO attainment is of requests that finished. A retried request "
            "counts from its first try. A fair share: of what all were served, by weight, to no "
            "tenant more than it offered."
        )
    curve = charts.Curve("Session", theme.ROLE["memory_pool"], session_times_s)
    reasons_picture = "Why requests came to nothing", charts.reasons(reason_counts), "reasons"
    sessions_picture = "Sessions", charts.distribution([curve], noun="sessions"), "session-times"
    plot_all(
        [reasons_picture] * bool(reason_counts) + [sessions_picture] * bool(session_times_s.size)
    )
    if not reason_counts:
        st.caption("Every request that ended was answered.")
    if session_times_s.size:
        st.caption(METRICS["session_s_mean"].help)


def _cell_text(key: str, value: Any) -> str:
    """A tenant's figure as text with its unit. key: of the metric, as in TENANT."""
    if value is None or isinstance(value, int):
        return NOTHING if value is None else f"{value:,}"
    return amount(value, "rate", "tokens/s") if key == "tokens_per_s" else as_text(key, value)


@st.cache_data(show_spinner="Looking at the clients", max_entries=50)
def _client_figures(
    run: str, _scenario: Scenario
) -> tuple[list[dict[str, Any]], dict[str, int], np.ndarray]:
    """(figures of each tenant, unanswered requests by reason, durations of sessions in s,
    f8[n])."""
    observed = Observed.by_requests(_scenario, session.store().runs.table(run, "requests"))
    end_reasons = observed.requests.filter(pl.col("reason") != "")["reason"].cast(str)
    tenants = tenant_rows(observed) if _scenario.tenants else []
    reason_counts = dict(end_reasons.value_counts(sort=True).iter_rows())
    return tenants, reason_counts, np.sort(observed.session_times)


def draw_models(row: RunRow, scenario: Scenario) -> None:
    """Draw the load and the goodput of each model, and its figures next to those of all."""
    model_rows = record.table(row.id, "models").to_dicts()
    arrived_by_model = _arrivals_by_model(row.id, scenario.warmup_s)
    per_steady_s = 1.0 / (scenario.horizon_s - scenario.warmup_s)
    load_rows = [{"tenant": item["model"], "goodput_req_per_s": item["goodput_req_per_s"],
                "asked_req_per_s": per_steady_s * arrived_by_model.get(item["model"], 0)}
               for item in model_rows]  # fmt: skip
    st.subheader("Models", anchor=False)
    plot(charts.tenants(load_rows), "models")
    metrics = [
        METRICS[key] for key in OF_A_MODEL if any(item[key] is not None for item in model_rows)
    ]
    table_rows = [{"": item["model"], **{m.label: as_text(m.key, item.get(m.key)) for m in metrics}}
            for item in (*model_rows, {"model": "all", **row.summary})]  # fmt: skip
    st.dataframe(table_rows, hide_index=True)
    st.caption("Steady state; each request is judged by the SLO of its own model.")


@st.cache_data(show_spinner=False, max_entries=50)
def _arrivals_by_model(run: str, warmup_s: float) -> dict[str, int]:
    """Number of requests by model that arrived after the warm-up, without those present at
    start."""
    requests = session.store().runs.table(run, "requests", ["model", "arrival_s", "prefill_end_s"])
    is_at_start = (pl.col("arrival_s") == 0.0) & (pl.col("prefill_end_s") == 0.0)
    is_counted = (pl.col("arrival_s") >= warmup_s) & ~is_at_start.fill_null(value=False)
    models = requests.filter(is_counted)["model"].cast(pl.String)
    return dict(models.value_counts().iter_rows())


def draw_pool(row: RunRow, scenario: Scenario) -> None:
    """Draw the memory pool over time: hits, fill, bytes by tier, a map of the servers' reads."""
    table_names, warmup_s = ("windows", "servers", "traffic"), scenario.warmup_s
    windows, servers, traffic = (record.table(row.id, name) for name in table_names)
    _draw_figures(row.summary, "memory pool")
    traffic_kinds = set(traffic.filter(pl.col("bytes") > 0.0)["traffic"])
    tier_names = [name for tier, (name, _) in history.TIERS.items() if tier in traffic_kinds]
    pictures = [
        ("Hit ratio and fill", charts.over_time("pool", windows, warmup_s), "pool-hits"),
        (f"Read from {' and '.join(tier_names)}" if tier_names else "Nothing was read",
         history.tiers(windows, traffic, warmup_s), "pool-tiers"),
    ]  # fmt: skip
    if scenario.tenants and scenario.memory_pool.namespaces:
        tenants = [tenant.name for tenant in scenario.tenants]
        chart = history.namespaces(_hit_ratio(row.id, scenario.horizon_s / BINS), tenants, warmup_s)
        pictures.append(("Hit ratio by namespace", chart, "pool-namespaces"))
    plot_all(pictures)
    st.subheader("Memory servers", anchor=False)
    plot(history.servers(servers, warmup_s, dark=is_dark()), "pool-servers")
    steady_rows = servers.filter(pl.col("t_s") >= warmup_s).group_by("node")
    reads_by_node = steady_rows.agg(pl.col("read_bytes", "held_s").sum()).sort("read_bytes", "node")
    read_bytes, top_bytes = reads_by_node["read_bytes"].sum(), reads_by_node["read_bytes"][-1]
    if read_bytes > 0:
        st.caption(
            "A block lies on the node that its key hashes to, and counts once for each prompt that "
            "reads it; above, on the plane, each die that shares out a prompt's heads reads it "
            f"again. Node {reads_by_node['node'][-1]} served {amount(top_bytes, 'bytes')}, "
            f"{top_bytes * reads_by_node.height / read_bytes:.2f} x the mean; the least "
            f"{amount(reads_by_node['read_bytes'][0], 'bytes')}. {_hold_sentence(reads_by_node)}"
        )


@st.cache_data(show_spinner="Looking at the tenants", max_entries=50)
def _hit_ratio(run: str, width_s: float) -> pl.DataFrame:
    """Hit ratio of prompts in every `width_s` of simulated time, with a column for each tenant."""
    columns = ["tenant", "prefill_start_s", "hit_tokens", "input_tokens"]
    return hit_ratio_table(session.store().runs.table(run, "requests", columns), width_s)


def _hold_sentence(by_node: pl.DataFrame) -> str:
    """Sentence on reads that busy memory servers delayed. by_node: delay `held_s` by node, in s."""
    held_s = float(by_node["held_s"].sum())
    if held_s <= 0:
        return "No read waited for a hot server: their ports had room for all."
    worst_node = by_node.sort("held_s", "node").row(-1, named=True)
    return (
        f"Batches read {seconds(held_s)} longer in all than from servers with equal load; node "
        f"{worst_node['node']} held them back most, by {seconds(worst_node['held_s'])}."
    )


def _has_table(row: RunRow, table: str) -> bool:
    """Whether a run has a stored table of this name."""
    return table in session.store().runs.tables(row.id)


def draw_faults(row: RunRow, scenario: Scenario) -> None:
    """Draw what each fault cost, and the run's figures over time with events marked."""
    dips = dips_of_run(row.id, scenario.slo.ttft_s, 1e-3 * scenario.slo.tpot_ms)
    windows, events = record.table(row.id, "windows"), record.table(row.id, "events")
    if not dips:
        st.markdown("Every fault of this scenario comes after the end of the run.")
        return
    for number, dip in enumerate(dips[:SHOWN]):
        _draw_dip(row, dip, number)
    if dips[SHOWN:]:
        with st.expander(f"{len(dips) - SHOWN} more"):
            for dip in dips[SHOWN:]:
                st.markdown(f"- {dip.sentences}")
    token_column = (f"{dips[0].phase.capitalize()} tokens", f"{dips[0].phase}_tokens_per_s")
    time_columns = ("Time to first token", "ttft_s_mean"), ("Time per output token", "tpot_s_mean")
    faults, warmup_s = scenario.faults, scenario.warmup_s
    plot_all((title, history.around_faults(windows, events, faults, warmup_s, column),
              f"fault-{column}")
             for title, column in (token_column, *time_columns))  # fmt: skip
    st.caption(
        "✕ something breaks · ⇄ experts rebalanced · ≈ popularity shifts. Before: the minute "
        "before the fault, or 20 windows if shorter. Back: within 5 % of that and staying there."
    )


@st.cache_data(show_spinner="Looking at the faults", max_entries=100)
def dips_of_run(run: str, ttft_limit_s: float, tpot_limit_s: float) -> list[Dip]:
    """Lost throughput, recovery and goodput of each fault. Limits: TTFT and TPOT of the SLO."""
    requests: pl.DataFrame = session.store().runs.table(run, "requests", COLUMNS)
    tables = {name: record.table(run, name) for name in ("events", "windows")}
    return dips_of_faults(tables | {"requests": requests}, ttft_limit_s, tpot_limit_s)


def _draw_dip(row: RunRow, dip: Dip, number: int) -> None:
    """Draw what one fault cost, and which instances were out of service for how long."""
    rate_before, lowest_rate = dip.before_tokens_per_s, dip.lowest_tokens_per_s
    drop_share = 1 - lowest_rate / rate_before if rate_before and lowest_rate is not None else 0.0
    drop_text = f"-{amount(drop_share, 'share')}" if drop_share > 0 else None
    recovery_text = "did not fall" if dip.recovery_s == 0.0 else seconds(dip.recovery_s or 0.0)
    if dip.recovery_s is None:
        recovery_text = f"not in {seconds(dip.until_s - dip.at_s)}"
    goodput_before, goodput_during = dip.goodput_before_req_per_s, dip.goodput_during_req_per_s
    goodput_text = NOTHING if goodput_before is None else three_figures(goodput_before)
    if goodput_during is not None:
        goodput_text = f"{goodput_text} → {three_figures(goodput_during)}"
    with st.container(border=True):
        head_column, link_column = st.columns([5, 1], vertical_alignment="center")
        head_column.markdown(f"**{dip.detail or dip.element}** at {seconds(dip.at_s)}")
        with link_column:
            name = dip.down[0][0] if dip.down else dip.element
            link_page("playback", "Watch it", {"run": row.id, "at": f"{dip.at_s:.6g}", "see": name})
        with st.grid(5, min_column_width=170, key=f"dip-{number}"):
            st.metric(f"{dip.phase.capitalize()} before", amount(rate_before, "rate", "tokens/s"))
            st.metric("Lowest", amount(lowest_rate, "rate", "tokens/s"), drop_text)
            st.metric(
                "Back after", recovery_text,
                help="From the fault until output was back within 5 % of before and stayed there; "
                "where it was not: how long was looked, to the next fault or the end of the run.",
            )  # fmt: skip
            st.metric(
                "Goodput before → then", f"{goodput_text} req/s",
                help="Requests per second that met the SLO, before the fault and from it until "
                "output was back.",
            )  # fmt: skip
            st.metric("Requests retried · lost", f"{dip.retried:,} · {dip.lost:,}",
                      help="Thrown out by this fault and tried again; given up.")  # fmt: skip
        down_texts = [f"{name} was out of service for {seconds(s)}" for name, s in dip.down[:SHOWN]]
        if dip.down[SHOWN:]:
            down_texts.append(f"{len(dip.down) - SHOWN} more were out of service for less")
        if down_texts:
            st.caption(sentence("; ".join(down_texts)))


# Whether a run has each section, and what draws it.
SECTIONS = {
    "Faults": (lambda row, s: bool(s.faults) and _has_table(row, "events"), draw_faults),
    "Instances": (
        lambda row, s: any(map(is_elastic, split_models(s))) and _has_table(row, "lives"),
        draw_instances,
    ),
    "Models": (lambda row, s: bool(s.models) and _has_table(row, "models"), draw_models),
    "Day": (lambda row, s: hour_s(s) is not None, draw_day),
    "Clients": (lambda row, s: _has_clients(s), draw_clients),
    "Memory pool": (lambda row, s: s.memory_pool.enabled and _has_table(row, "servers"), draw_pool),
}
