"""The second answer of every edit: the draft simulated in place, a moment after the formula's.

The script of a page draws everything else first and calls `answer` last: it shows the simulation as
it comes, and the next edit interrupts it and takes its place. A chip says which of the two is on
screen.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from twin.lab.live import Live, Look, question_of, ready
from twin.lab.store import StoreError
from twin.metrics.registry import METRICS, shown
from twin.scenario import Scenario, scenario_digest
from twin.ui import access, session, words

STATE = "live"  # session state: digest of the question that is on screen, and its run
PATIENCE_S = 6.0  # for so long the script shows how a run goes; a longer one is left to Run
LOOK_S, TELL_S, AGAIN_S = 0.02, 0.1, 1.0
SLOS = [metric for metric in METRICS.values() if metric.slo is not None]


@st.cache_resource(show_spinner=False, on_release=lambda live: live.close())
def _live() -> Live:
    """The live runs of this server, made when somebody first looks."""
    return Live(session.library_store())


def answer(place: DeltaGenerator, draft: Scenario) -> tuple[str, Mapping[str, Any]]:
    """Simulate the draft into `place`; returns the run and its figures, '' where there are none."""
    question = (
        None
        if session.refusal() or access.mode() == access.READ_ONLY
        else (question_of(draft, session.facts()) if ready() else None)
    )
    if question is None:
        _chip(place, "By formula")
        return "", {}
    try:
        run = _asked(question)
        seen = _awaited(place, run)
    except StoreError:  # its folder is full or gone: the formula's answer stands
        run, seen = "", None
    if seen is None or not seen.ended:
        _chip(place, "By formula")
        if seen is not None:
            _look_again(run)
        return "", {}
    with place.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(
            f"Simulated: {words.duration(question.horizon_s)}", icon=":material/check:",
            color="green", width="content",
        )  # fmt: skip
        st.markdown(_said(seen.summary, draft), width="content")
    return run, seen.summary


def tables(run: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Tables of the live run on screen; raises StoreError."""
    return _live().tables(run, names)


def _asked(question: Scenario) -> str:
    """The run of a question: the one on screen, or a new one that takes its place."""
    digest, run = st.session_state.get(STATE, ("", ""))
    if digest == scenario_digest(question) and _live().look(run) is not None:
        return run
    run = _live().ask(question, superseded=run)
    st.session_state[STATE] = (scenario_digest(question), run)
    return run


def _awaited(place: DeltaGenerator, run: str) -> Look | None:
    """The run once it has ended, shown as it comes; each look is a moment to be interrupted."""
    until_s = time.monotonic() + PATIENCE_S
    told_s = 0.0
    while (seen := _live().look(run)) is not None and not seen.ended:
        if time.monotonic() > until_s:
            return seen
        if time.monotonic() - told_s > TELL_S:  # also the moment at which an edit interrupts
            told_s = time.monotonic()
            served = seen.live.get("finished")
            text = f" · {served:,.0f} requests served" if served else ""
            _chip(place, f"By formula; simulating {seen.progress:.0%}{text}")
        time.sleep(LOOK_S)
    return seen


@st.fragment(run_every=AGAIN_S)
def _look_again(run: str) -> None:
    """Draw the page anew when a run has ended that took longer than the script waits."""
    seen = _live().look(run)
    if seen is None or seen.ended:
        st.rerun()


def _chip(place: DeltaGenerator, text: str) -> None:
    place.badge(text, icon=":material/function:", color="gray", width="content")


def _said(summary: Mapping[str, Any], draft: Scenario) -> str:
    """What a run says of the SLO, in figures."""
    told = []
    for metric in SLOS:
        value, limit = summary.get(metric.key), metric.slo(draft) if metric.slo else 0.0
        if value is not None:
            text = f"{metric.label} {shown(metric.key, value)} of {shown(metric.key, limit)}"
            told.append(f":red[{text}]" if value > limit else text)
    kept = summary.get("slo_attainment")
    if kept is not None:
        told.append(f"{shown('slo_attainment', kept)} within the SLO")
    return " · ".join(told) or "too short for a figure: press Run"
