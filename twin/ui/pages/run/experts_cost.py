"""What expert imbalance costs: the same run with perfectly even experts beside it, one click.

The answer is a run like any other, found again when it is stored, and never started unasked.
"""

from __future__ import annotations

from typing import Literal

import streamlit as st

from twin.lab import share
from twin.lab.compare import change
from twin.lab.store import RunRow, StoreError
from twin.metrics.measures import amount
from twin.metrics.registry import metric_of, shown
from twin.scenario import Scenario
from twin.ui import session
from twin.ui.fields import sentence
from twin.ui.link import page_link
from twin.ui.pages.experts import load as experts

KEEPS_UP = "A machine that keeps up with its arrivals loses time, not throughput."
FIGURES = (
    "tpot_s_mean", "ttft_s_p50", "decode_tokens_per_s_per_npu", "prefill_tokens_per_s_per_npu",
    "goodput_req_per_s",
)  # fmt: skip

COLOURS: dict[str, Literal["red", "green"]] = {"worse": "red", "better": "green"}


def tile(row: RunRow, scenario: Scenario) -> None:
    """One line that asks, then runs, then answers; nothing where experts are even already."""
    if row.state != "done" or experts.is_even(scenario):
        return
    even = _even(row, scenario)
    with st.container(border=True, key="imbalance-cost"):
        if even is None:
            _ask(row, scenario)
        elif not even.ended:
            _watch(even.id)
        elif even.state == "done":
            _answer(row, even)
        else:
            st.markdown("**What does expert imbalance cost?**")
            why = sentence(even.message) if even.message else f"That run was {even.state}."
            st.error(why, icon=":material/error:")
            _ask(row, scenario)


def _even(row: RunRow, scenario: Scenario) -> RunRow | None:
    """The run with even experts: one asked for here, else a stored one."""
    asked = st.session_state.get(f"even:{row.id}")
    run = session.store().runs.get(asked) if asked else None
    return run or experts.twin_of(row, scenario)


def _ask(row: RunRow, scenario: Scenario) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if st.button(
            "What does expert imbalance cost?", icon=":material/balance:", key="ask-even",
            help="Runs the same scenario again with the load of every expert perfectly even.",
        ):  # fmt: skip
            try:
                st.session_state[f"even:{row.id}"] = session.run(experts.perfect(scenario))
            except StoreError as error:
                st.toast(sentence(str(error)), icon=":material/error:", duration="long")
            else:
                st.rerun()
        st.caption("The same run with perfectly even experts beside this one.", width="content")
        st.space("stretch")
        _experts_link(row)


def _experts_link(row: RunRow) -> None:
    page_link("experts", "Experts of this run", {share.RUN: row.id})


@st.fragment(run_every=1.0)
def _watch(run: str) -> None:
    row = session.store().runs.get(run)
    if row is None or row.ended:
        st.rerun()
    assert row is not None
    text = "Waiting to start" if row.state == "queued" else f"Running: {row.progress:.0%} done"
    st.progress(row.progress, f"The same run with even experts. {text}")


def _answer(row: RunRow, even: RunRow) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown("**What expert imbalance costs**")
        st.space("stretch")
        _experts_link(row)
        page_link("compare", "Side by side", {share.RUNS: f"{even.id},{row.id}"})
    with st.grid(5, min_column_width=165):
        for key in FIGURES:
            here, best = row.summary.get(key), even.summary.get(key)
            if here is None or not best:
                continue
            text, standing = change(key, here, best)
            st.metric(
                metric_of(key).tile,
                text,
                f"{_short(key, here)}, even {_short(key, best)}",
                delta_color=COLOURS.get(standing, "off"),
                delta_arrow="off",
                help=f"This run against the same run with even experts. {metric_of(key).help}",
            )
    if even.engine_version != row.engine_version or even.facts_digest != row.facts_digest:
        st.caption(
            ":material/info: This run was made by another version of the engine or the facts: "
            "run it again to compare like with like."
        )
    gap = _met(row, even)
    if gap:
        st.caption(gap)


def _short(key: str, value: float) -> str:
    return shown(key, value).removesuffix(" per NPU")


def _met(row: RunRow, even: RunRow) -> str:
    """How many more requests would have met the SLO."""
    here, best = row.summary.get("slo_attainment"), even.summary.get("slo_attainment")
    if here is None or best is None:
        return ""
    if amount(here, "share") == amount(best, "share"):
        return f"Either way {amount(here, 'share')} of requests met the SLO. {KEEPS_UP}"
    return (
        f"{amount(here, 'share')} of requests met the SLO; with even experts "
        f"{amount(best, 'share')}. {KEEPS_UP}"
    )
