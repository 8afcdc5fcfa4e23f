"""The head of a finished run's page: what was asked, the headline figures, what they are worth."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

import streamlit as st

from twin.lab.evidence.envelope import outside_evidence
from twin.lab.evidence.judge import near
from twin.lab.explain.view import one_slo
from twin.lab.share import links
from twin.lab.store import RunRow
from twin.metrics.registry import placed, shown
from twin.metrics.summary import UNSTEADY
from twin.scenario import Scenario
from twin.ui import formulas, listed, progress, session, words
from twin.ui.fields import glossed, sentence
from twin.ui.link import copy_link, go_to, page_link
from twin.ui.pages import PAGES
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
            page_link("playback", "Play back", {links.RUN: row.id})
        with st.popover("Compare with", icon=":material/compare_arrows:"):
            _compare(row, scenario)
        with st.popover("Download", icon=":material/download:"):
            download.downloads(row, scenario)
        copy_link(
            links.run_url(row.id, scenario), on_copy=lambda: session.store().runs.publish(row.id)
        )
    if row.state == "failed":
        why = "The engine's own laws do not hold in this run, so do not rely on its figures."
        st.error(f"{why} {sentence(row.message)}", icon=":material/error:")
    elif row.message:
        st.warning(sentence(row.message), icon=":material/warning:")


def _compare(row: RunRow, scenario: Scenario) -> None:
    """Runs to compare with: first what this one was edited from, then other edits of it."""
    finished = session.store().runs.search(states=["done"], limit=OFFERED + 1).rows
    others = {other.id: other for other in finished if other.id != row.id}
    titles = dict(zip(others, session.titles([*others.values()]), strict=True))
    origin = scenario.name.partition(words.BETWEEN)[0]
    near = {run: (title != origin, not title.startswith(origin)) for run, title in titles.items()}
    others = dict(sorted(others.items(), key=lambda item: near[item[0]]))
    if not others:
        st.markdown("There is no other finished run yet: edit a copy and run it.")
        return
    chosen = st.selectbox(
        "Baseline", list(others), key="baseline",
        format_func=lambda run: f"{titles[run]} · {words.run_line(others[run])[1]}",
    )  # fmt: skip
    if st.button("Compare", type="primary", key="compare"):
        go_to("compare", {links.RUNS: f"{chosen},{row.id}"})


def tiles(row: RunRow, scenario: Scenario, besides: Sequence[str] = ()) -> None:
    """The headline figures this run has, but for those in `besides`, each with its unit and its
    basis; before them whether they are those of a steady state."""
    if (state := row.summary.get("steady_state")) in UNSTEADY:
        st.warning(UNSTEADY[str(state)], icon=":material/trending_up:")
    with st.grid(5, min_column_width=165, key="headline"):
        for tile in headline(row.summary, scenario, [k for k in row.summary if k not in besides]):
            st.metric(**tile)


def headline(
    summary: Mapping[str, Any], s: Scenario, keys: Container[str] | None = None
) -> list[dict[str, Any]]:
    """Arguments of one tile a figure, of all or of some; what the run has not is left out. The
    unit's basis is in the label."""
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
        if metric.slo is not None and one_slo(s):
            tile |= against_slo(float(value), metric.slo(s))
        beside, words_around = metric.note
        if summary.get(beside) is not None:
            told = words_around.format(shown(beside, summary[beside]))
            tile |= {"delta": told, "delta_color": "off", "delta_arrow": "off"}
        tiles.append(tile)
    return tiles


def validity(row: RunRow, scenario: Scenario) -> None:
    """Whether the laws held, what was left out, and what a reader must know."""
    broken = [check for check in row.checks if not check["ok"]]
    laws, icon = f"All {len(row.checks)} laws held", ":material/verified:"
    if broken:
        laws, icon = f"{len(broken)} of {len(row.checks)} laws broken", ":material/gpp_bad:"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if row.summary.get("steady_state") == "steady":
            st.badge("Steady state", icon=":material/trending_flat:", color="green")
        with st.popover(laws, icon=icon, type="tertiary"):
            for check in sorted(row.checks, key=lambda c: bool(c["ok"])):
                sign = ":green[:material/check:]" if check["ok"] else ":red[:material/close:]"
                detail = f" :gray[{check['detail']}]" if check.get("detail") else ""
                st.markdown(f"{sign} **{check['id']}** {check['statement']}{detail}")
        st.caption(_counted(scenario), width="content")
    for note in row.notes:
        if note not in UNSTEADY.values() and not note.startswith("Steady-state figures leave out"):
            st.caption(f":material/info: {sentence(note)}")
    if (row.summary.get("tpot_s_mean") or 0.0) > scenario.slo.tpot_ms * 1e-3:
        st.caption(f":material/timer: {formulas.bound(scenario)}")
    told = " ".join(each.sentence for each in near(scenario, session.facts()))
    st.caption(f":material/target: How far off the twin is near these figures. {told}")
    if beyond := outside_evidence(scenario, session.facts()):
        respects = f"{len(beyond)} respect{'s' if beyond[1:] else ''}"
        label = f"Outside the published evidence in {respects}"
        with st.popover(label, icon=":material/explore:", type="tertiary"):
            for respect in beyond:
                st.markdown(f"- {respect}")
            if "evidence" in PAGES:  # an extra's
                page_link("evidence", "How far the evidence reaches")


def _counted(s: Scenario) -> str:
    end = words.duration(s.horizon_s)
    if not s.warmup_s:
        return f"Figures are of all {end} simulated; no warm-up was left out."
    return (
        f"Figures are of the steady state, {words.duration(s.warmup_s)} to {end}: the warm-up "
        "before it is left out. Counts are of the whole run."
    )
