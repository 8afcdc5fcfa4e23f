"""The faults of a finished run: how deep output fell, when it was back, who paid for it."""

import polars as pl
import streamlit as st

from twin.lab.store import RunRow
from twin.metrics.measures import NOTHING, amount, seconds, three_figures
from twin.metrics.resilience import Dip, resilience
from twin.scenario import Scenario
from twin.ui import record, session
from twin.ui.charts.faults import around
from twin.ui.fields import sentence
from twin.ui.link import page_link
from twin.ui.show import beside

SHOWN = 6  # dips told in full; the rest is one sentence each
COLUMNS = ["arrival_s", "first_token_s", "finish_s", "output_tokens", "status", "retries"]


def applies(row: RunRow, scenario: Scenario) -> bool:
    """Whether there is anything to tell: something broke, and the run wrote it down."""
    return bool(scenario.faults) and "events" in session.store().runs.tables(row.id)


def section(row: RunRow, scenario: Scenario) -> None:
    """Every dip with its figures, and the run's figures over time with what happened marked."""
    fallen = dips(row.id, scenario.slo.ttft_s, 1e-3 * scenario.slo.tpot_ms)
    windows, events = record.table(row.id, "windows"), record.table(row.id, "events")
    if not fallen:
        st.markdown("Every fault of this scenario comes after the end of the run.")
        return
    for number, dip in enumerate(fallen[:SHOWN]):
        _dip(row, dip, number)
    if fallen[SHOWN:]:
        with st.expander(f"{len(fallen) - SHOWN} more"):
            for dip in fallen[SHOWN:]:
                st.markdown(f"- {dip.what}")
    tokens = (f"{fallen[0].phase.capitalize()} tokens", f"{fallen[0].phase}_tokens_per_s")
    times = ("Time to first token", "ttft_s_mean"), ("Time per output token", "tpot_s_mean")
    beside((title, around(windows, events, scenario.faults, scenario.warmup_s, column),
            f"fault-{column}") for title, column in (tokens, *times))  # fmt: skip
    st.caption(
        "✕ something breaks · ⇄ experts rebalanced · ≈ popularity shifts; shaded while a fault is "
        "in force, darker while an instance was out of service. Before: the minute before the "
        "fault, or 20 windows if shorter. Back: "
        "within 5 % of that and staying there."
    )


@st.cache_data(show_spinner="Looking at the faults", max_entries=100)
def dips(run: str, ttft_limit_s: float, tpot_limit_s: float) -> list[Dip]:
    """What each fault cost; a run never changes, so the answer is kept."""
    requests: pl.DataFrame = session.store().runs.table(run, "requests", COLUMNS)
    tables = {name: record.table(run, name) for name in ("events", "windows")}
    return resilience(tables | {"requests": requests}, ttft_limit_s, tpot_limit_s)


def _dip(row: RunRow, dip: Dip, number: int) -> None:
    with st.container(border=True):
        head, link = st.columns([5, 1], vertical_alignment="center")
        head.markdown(f"**{dip.detail or dip.element}** at {seconds(dip.at_s)}")
        with link:
            see = dip.down[0][0] if dip.down else dip.element
            page_link("playback", "Watch it", {"run": row.id, "at": f"{dip.at_s:.6g}", "see": see})
        with st.grid(5, min_column_width=170, key=f"dip-{number}"):
            _tiles(dip)
        # Who was out of service and for how long: what no tile says.
        down = [f"{name} was out of service for {seconds(t)}" for name, t in dip.down[:SHOWN]]
        if dip.down[SHOWN:]:
            down.append(f"{len(dip.down) - SHOWN} more were out of service for less")
        if down:
            st.caption(sentence("; ".join(down)))


def _tiles(dip: Dip) -> None:
    """A tile a figure of a dip, each with its unit."""

    def rate(value: float | None) -> str:
        return NOTHING if value is None else amount(value, "rate", "tokens/s")

    fall = None
    if dip.before_tokens_per_s and dip.lowest_tokens_per_s is not None:
        lower = 1 - dip.lowest_tokens_per_s / dip.before_tokens_per_s
        fall = f"-{amount(lower, 'share')}" if lower > 0 else None
    back = "did not fall" if dip.recovery_s == 0.0 else seconds(dip.recovery_s or 0.0)
    if dip.recovery_s is None:
        back = f"not in {seconds(dip.until_s - dip.at_s)}"
    before, during = dip.goodput_before_req_per_s, dip.goodput_during_req_per_s
    good = NOTHING if before is None else three_figures(before)
    if during is not None:
        good = f"{good} → {three_figures(during)}"
    st.metric(f"{dip.phase.capitalize()} before", rate(dip.before_tokens_per_s))
    st.metric("Lowest", rate(dip.lowest_tokens_per_s), fall)
    st.metric(
        "Back after", back,
        help="From the fault until output was back within 5 % of before and stayed there; "
        "where it was not: how long was looked, to the next fault or the end of the run.",
    )  # fmt: skip
    st.metric(
        "Goodput before → then", f"{good} req/s",
        help="Requests per second that met the SLO, before the fault and from it until output was "
        "back.",
    )  # fmt: skip
    st.metric(
        "Requests retried · lost", f"{dip.retried:,} · {dip.lost:,}",
        help="Thrown out by this fault and tried again; given up.",
    )  # fmt: skip
