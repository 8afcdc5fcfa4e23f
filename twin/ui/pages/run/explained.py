"""The head of a result: a verdict, four tiles against the SLO, and causes with what to do. All of
it comes from re-runs (`lab/explain`), made in the background and found again."""

from typing import Any, Literal

import streamlit as st

from twin.lab.explain.words import change, effect
from twin.lab.runs.job import EXPLAIN, load_engine
from twin.lab.runs.runner import find_run
from twin.lab.share import links
from twin.lab.store import RunRow
from twin.lab.sweep.compare import change as changed_by
from twin.metrics.measures import three_figures
from twin.metrics.registry import metric_of, shown
from twin.scenario import Scenario, with_overrides
from twin.ui import access, record, session
from twin.ui.fields import glossed, sentence
from twin.ui.link import page_link
from twin.ui.pages.run import results
from twin.ui.show import plain

TILES = ("ttft_s_p99", "tpot_s_p99", "tokens_per_s_per_npu")
COMPARED = ("slo_attainment", "ttft_s_p99", "tpot_s_p99", "goodput_req_per_s",
            "tokens_per_s_per_npu")  # fmt: skip
AT_ONCE_S = 3.0  # wall time of a run up to which it is explained unasked
FIRST = 3  # causes that are open
HEADROOM = (
    "How many times this traffic keeps the SLO in steady state, found by short simulations at "
    "other loads; below 1 the traffic has to shrink so far."
)
COLOURS: dict[str, Literal["red", "green"]] = {"worse": "red", "better": "green"}


def applies(row: RunRow) -> bool:
    """Whether today's engine and facts made the run: others cannot be re-run."""
    today = row.engine_version == load_engine().version
    return row.state == "done" and today and row.facts_digest == session.facts().digest


def card(row: RunRow, scenario: Scenario) -> None:
    """Verdict and tiles; what is below them keeps its place when the explanation comes."""
    known = _known(row, scenario)
    told = known is not None and known.state == "done"
    with st.container(border=True, key="explained"):
        if known is not None and told:
            st.subheader(plain(str(known.summary["verdict"])), anchor=False)
        elif known is not None and not known.ended:
            st.subheader("Looking for what limits this run …", anchor=False)
        else:
            st.subheader("This run is not explained yet.", anchor=False)
        _tiles(row, scenario, known if told else None)


def causes(row: RunRow, scenario: Scenario) -> None:
    """What limits a run and what would help; while it is looked for, how far that is."""
    known = _known(row, scenario)
    if known is None:
        _offer(row, scenario, "What limits this run, and what would help?")
    elif not known.ended:
        _watch(known.id, "Looking for causes by removing one at a time.")
    elif known.state == "done":
        _causes(row, scenario, known)
    else:
        why = sentence(known.message) if known.state == "failed" else "It made way for a run."
        _offer(row, scenario, f"This run is not explained yet. {why}")


def _known(row: RunRow, scenario: Scenario) -> RunRow | None:
    """The explanation: one asked for here, else a stored one, else one that is begun now."""
    key = f"explained:{row.id}"
    if asked := st.session_state.get(key):
        return session.store().runs.get(asked)
    known = find_run(session.store(), scenario, engine=EXPLAIN)
    quick = (row.wall_s or 0.0) <= AT_ONCE_S and access.mode() != access.READ_ONLY
    if known is None and quick and _ask(row, scenario):
        known = session.store().runs.get(st.session_state[key])
    return known


def _ask(row: RunRow, scenario: Scenario) -> bool:
    with session.refusals_toasted():
        st.session_state[f"explained:{row.id}"] = session.explain(scenario)
        return True
    return False


def _offer(row: RunRow, scenario: Scenario, why: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(plain(why))
        wanted = st.button("Explain this run", icon=":material/troubleshoot:", key="explain")
        if wanted and _ask(row, scenario):
            st.rerun()


@st.fragment(run_every=0.5)
def _watch(run: str, text: str) -> None:
    """How far a run is; it ended: draw the page anew."""
    row = session.store().runs.get(run)
    if row is None or row.ended:
        st.rerun()
    assert row is not None
    made = row.live.get("runs")
    told = f" {made:.0f} re-runs made" if made else ""
    if row.state == "queued":
        told = " Waiting for a free process"
    st.progress(row.progress, text + told)


def _tiles(row: RunRow, scenario: Scenario, known: RunRow | None) -> None:
    """TTFT, TPOT and throughput, and how much more traffic would keep the SLO."""
    with st.grid(4, min_column_width=135):
        for tile in results.headline(row.summary, scenario, TILES):
            st.metric(**tile)
        st.metric("Headroom", **_headroom(known), help=glossed("SLO", HEADROOM))


def _headroom(known: RunRow | None) -> dict[str, Any]:
    """How many times its traffic the deployment takes, and up to which load."""
    if known is None:
        return {"value": "not known yet"}
    summary = known.summary
    if not summary["headroom_factor"]:
        return {"value": "none"}
    load = f"up to {three_figures(summary['capacity'])} {summary['capacity_unit']}"
    if summary["capacity_high"] is not None:
        ends = (three_figures(summary[end]) for end in ("capacity_low", "capacity_high"))
        load += f" ({' to '.join(ends)})"
    return {"value": f"{three_figures(summary['headroom_factor'])} x traffic",
            "delta": load, "delta_color": "off", "delta_arrow": "off"}  # fmt: skip


def _causes(row: RunRow, scenario: Scenario, known: RunRow) -> None:
    causes = record.explanation(known.id, known)["causes"]
    if not causes:
        st.markdown("No cause was found whose removal changes these figures on every seed.")
        return
    st.markdown(
        "**Causes**, the weightiest first; each is removed in re-runs on seeds of their own, so "
        "figures differ a little from those above"
    )
    whole = st.container()
    if causes[FIRST:]:
        rest = st.expander(f"{len(causes) - FIRST} more that weigh less")
    for number, cause in enumerate(causes):
        with whole if number < FIRST else rest:
            _cause(row, scenario, cause, number)


def _cause(row: RunRow, scenario: Scenario, cause: dict[str, Any], number: int) -> None:
    """What its removal brings, and what can be done with what that brings."""
    named = f": {plain(cause['named'])}" if cause["named"] else ""
    with st.container(border=True, key=f"cause-{number}"):
        left, right = st.columns([2, 3], gap="medium")
        with left:
            st.markdown(f"**{number + 1} · {plain(cause['label'])}**{named}")
            st.markdown(f"Without it: {plain(effect(cause['removal']))}")
        gain = cause.get("suggestion")
        with right:
            if gain is None:
                st.markdown("None of the changes that were tried helps on every seed.")
                return
            st.markdown(f"{plain(cause['advice'])} {plain(change(gain['settings'], scenario))}")
            st.markdown(f":green[:material/trending_up:] {plain(effect(gain))}")
            _apply(row, scenario, gain["settings"], number)


def _apply(row: RunRow, scenario: Scenario, settings: dict[str, Any], number: int) -> None:
    """One click runs the scenario with a suggestion; its figures then stand here."""
    key = f"applied:{row.id}:{number}"
    if asked := st.session_state.get(key):
        applied = session.store().runs.get(asked)
        if applied is not None and not applied.ended:
            _watch(applied.id, "Running it with this change.")
            return
        if applied is not None and applied.state == "done":
            _compared(row, applied)
            return
    if st.button("Apply and compare", icon=":material/science:", key=f"apply-{number}"):
        name = f"{scenario.name[:100]} · suggestion {number + 1}"
        with session.refusals_toasted():
            changed = with_overrides(scenario, {**settings, "name": name})
            st.session_state[key] = session.run(changed)
            st.rerun()


def _compared(row: RunRow, applied: RunRow) -> None:
    with st.grid(3, min_column_width=140):
        for key in COMPARED:
            before, after = row.summary.get(key), applied.summary.get(key)
            if before is None or after is None:
                continue
            text, standing = changed_by(key, float(after), float(before))
            st.metric(
                metric_of(key).tile, shown(key, after).removesuffix(" per NPU"), text,
                delta_color=COLOURS.get(standing, "off"), delta_arrow="off",
            )  # fmt: skip
    with st.container(horizontal=True):
        page_link("run", "Open that run", {links.RUN: applied.id})
        page_link("compare", "Side by side", {links.RUNS: f"{row.id},{applied.id}"})
