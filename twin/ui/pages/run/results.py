"""The head of a finished run's page: what was asked, the headline figures, what they are worth."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import streamlit as st

from twin.lab import share, sweep
from twin.lab.evidence.envelope import outside_evidence
from twin.lab.evidence.judge import near
from twin.lab.store import RunRow
from twin.metrics.registry import placed, shown
from twin.scenario import Scenario
from twin.ui import formulas, listed, progress, session, words
from twin.ui.fields import glossed, sentence
from twin.ui.link import copy_link, go_to, page_link
from twin.ui.pages.playback import player as playback
from twin.ui.pages.run import download
from twin.ui.show import plain
from twin.ui.tiles import against_slo

OFFERED = 30  # runs to compare with


def header(row: RunRow, scenario: Scenario) -> None:
    """Title and question, and what can be done with the run."""
    progress.heading(row, scenario.question or words.brief(scenario))
    for line in listed.of(scenario):
        st.markdown(f":material/bolt: {plain(line)}")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if st.button("Edit a copy", icon=":material/tune:", key="edit-copy"):
            session.start_from(scenario)
            go_to("workload")
        if not playback.missing(row.id):
            page_link("playback", "Play back", {share.RUN: row.id})
        with st.popover("Compare with", icon=":material/compare_arrows:"):
            _compare(row)
        with st.popover("Download", icon=":material/download:"):
            download.downloads(row, scenario)
        copy_link(
            share.run_url(row.id, scenario), on_copy=lambda: session.store().runs.publish(row.id)
        )
    if row.state == "failed":
        st.error(
            f"The engine's own laws do not hold in this run, so do not rely on its figures. "
            f"{sentence(row.message)}",
            icon=":material/error:",
        )
    elif row.message:
        st.warning(sentence(row.message), icon=":material/warning:")


def _compare(row: RunRow) -> None:
    finished = session.store().runs.search(states=["done"], limit=OFFERED + 1).rows
    others = {other.id: other for other in finished if other.id != row.id}
    titles = dict(zip(others, session.titles([*others.values()]), strict=True))
    if not others:
        st.markdown("There is no other finished run yet: edit a copy and run it.")
        return

    def label(run: str) -> str:
        return f"{titles[run]} · {words.run_line(others[run])[1]}"

    chosen = st.selectbox("Baseline", list(others), format_func=label, key="baseline")
    if st.button("Compare", type="primary", key="compare"):
        runs = ",".join((chosen, row.id))
        go_to("compare", {share.RUNS: runs})


def tiles(row: RunRow, scenario: Scenario, besides: Sequence[str] = ()) -> None:
    """The headline figures this run has, each with its unit and its basis.

    besides: figures that stand elsewhere.
    """
    with st.grid(5, min_column_width=165, key="headline"):
        for tile in headline(row.summary, scenario, [k for k in row.summary if k not in besides]):
            st.metric(**tile)


def headline(
    summary: Mapping[str, Any], s: Scenario, keys: Container[str] | None = None
) -> list[dict[str, Any]]:
    """Arguments of one tile a figure, of all or of some; what the run has not is left out.

    The unit's basis is in the label, never in a footnote.
    """
    tiles = []
    for metric in placed("tile"):
        value = summary.get(metric.key) if keys is None or metric.key in keys else None
        if value is None or not metric.shows("tile", value, s):
            continue
        tile: dict[str, Any] = {
            "label": metric.tile,
            "value": shown(metric.key, value).removesuffix(" per NPU").removesuffix(" requests"),
            "help": glossed(f"{metric.tile} {metric.term}", metric.help),
        }
        if metric.slo is not None and sweep.one_slo(s):
            tile |= against_slo(float(value), metric.slo(s))
        beside, words_around = metric.note
        if summary.get(beside) is not None:
            tile |= _plain(words_around.format(shown(beside, summary[beside])))
        tiles.append(tile)
    return tiles


def _plain(text: str) -> dict[str, Any]:
    return {"delta": text, "delta_color": "off", "delta_arrow": "off"}


def validity(row: RunRow, scenario: Scenario) -> None:
    """Whether the laws held, what was left out, and what a reader must know."""
    broken = [check for check in row.checks if not check["ok"]]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if broken:
            laws, icon = f"{len(broken)} of {len(row.checks)} laws broken", ":material/gpp_bad:"
        else:
            laws, icon = f"All {len(row.checks)} laws held", ":material/verified:"
        with st.popover(laws, icon=icon, type="tertiary"):
            for check in sorted(row.checks, key=lambda c: bool(c["ok"])):
                sign = ":green[:material/check:]" if check["ok"] else ":red[:material/close:]"
                detail = f" :gray[{check['detail']}]" if check.get("detail") else ""
                st.markdown(f"{sign} **{check['id']}** {check['statement']}{detail}")
        st.caption(_counted(scenario), width="content")
    for note in row.notes:
        if not note.startswith("Steady-state figures leave out"):
            st.caption(f":material/info: {sentence(note)}")
    if (row.summary.get("tpot_s_mean") or 0.0) > scenario.slo.tpot_ms * 1e-3:
        st.caption(f":material/timer: {formulas.bound(scenario)}")
    beyond_evidence(scenario)


def beyond_evidence(scenario: Scenario) -> None:
    """Say how far off published rows near the figures are, and where none reaches as far."""
    told = " ".join(each.sentence for each in near(scenario, session.facts()))
    st.caption(f":material/target: How far off the twin is near these figures. {told}")
    beyond = outside_evidence(scenario, session.facts())
    if beyond:
        respects = "1 respect" if len(beyond) == 1 else f"{len(beyond)} respects"
        label = f"Outside the published evidence in {respects}"
        with st.popover(label, icon=":material/explore:", type="tertiary"):
            for sentence in beyond:
                st.markdown(f"- {sentence}")
            page_link("evidence", "How far the evidence reaches")


def _counted(s: Scenario) -> str:
    end = words.duration(s.horizon_s)
    if not s.warmup_s:
        return f"Figures are of all {end} simulated; no warm-up was left out."
    return (
        f"Figures are of the steady state, {words.duration(s.warmup_s)} to {end}: the warm-up "
        "before it is left out. Counts are of the whole run."
    )
