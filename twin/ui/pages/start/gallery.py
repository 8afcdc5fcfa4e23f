"""The presets as cards: the question, the answer where one is known, and what to do with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from twin.lab import shipped
from twin.metrics.registry import shown
from twin.scenario import Scenario, scenario_digest
from twin.ui import session, words
from twin.ui.link import go_to
from twin.ui.show import plain
from twin.ui.toolbar import open_run

Named = tuple[str, Scenario]


def chosen(presets: Iterable[Named], shelf: Iterable[str], sought: str) -> list[Named]:
    """The presets of a shelf; with words to look for, all that hold every one of them."""
    shelf, wanted = tuple(shelf), sought.lower().split()
    if not wanted:
        return [one for one in presets if any(word in one[0] for word in shelf)]
    return [
        (key, s)
        for key, s in presets
        if all(word in f"{key} {s.name} {s.question} {s.source}".lower() for word in wanted)
    ]


def card(key: str, scenario: Scenario) -> None:
    """One preset: its question, its answer, Run and Edit."""
    called = plain(scenario.name)
    st.markdown(f"**{called}**")
    st.markdown(plain(scenario.question))
    if said := _answer(scenario):
        st.markdown(f":small[:material/speed: {said}]")
    st.caption(words.brief(scenario))
    st.space("stretch")
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button(f"Run {called}", icon=":material/play_arrow:", key=f"run-{key}"):
            session.start_from(scenario)
            open_run(scenario)
        st.space("stretch")
        if st.button(
            "Edit", icon=":material/tune:", key=f"edit-{key}", type="tertiary",
            help=f"Edit a copy of “{called}”",
        ):  # fmt: skip
            session.start_from(scenario)
            go_to("workload")
        st.caption("Source", help=plain(scenario.source), width="content")


def _answer(scenario: Scenario) -> str:
    """What came of it last, or of the run that came with the project; '' where nobody ran it."""
    digest = scenario_digest(scenario)
    rows = session.store().runs.search(states=["done"], scenario=digest, limit=1).rows
    summary = rows[0].summary if rows else _shipped().get(digest, {})
    return said(summary)


def said(summary: Mapping[str, Any]) -> str:
    """A run in three figures, those that it has.

    >>> said({"tpot_s_mean": 0.0261, "ttft_s_p99": 0.677, "slo_attainment": 0.993})
    'TPOT 26.1 ms, TTFT p99 677 ms, 99.3 % within the SLO'
    """
    wanted = {"tpot_s_mean": "TPOT {}", "ttft_s_p99": "TTFT p99 {}"}
    wanted["slo_attainment"] = "{} within the SLO"
    return ", ".join(
        text.format(shown(key, summary[key]))
        for key, text in wanted.items()
        if summary.get(key) is not None
    )


@st.cache_data(show_spinner=False, max_entries=1)
def _shipped() -> dict[str, dict[str, Any]]:
    return shipped.summaries()
