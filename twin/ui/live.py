"""Answers to every edit: by formula at once (`strip`), by simulation (`answer`, called last), then
the capacity; the next edit interrupts them. A badge says which one is on screen."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from twin.attainment import SAFE
from twin.hardware.imported import npus_of
from twin.lab.explain.view import has_one_slo, load_of
from twin.lab.runs.live import Live, Status, shortened_draft
from twin.lab.runs.warm import is_compiled as ready  # before that a live run delays a stored one
from twin.lab.sweep import sweep
from twin.metrics.measures import amount, numbered, seconds
from twin.metrics.registry import as_text
from twin.outlook import Outlook
from twin.scenario import Scenario, left_out_by_formulas, remarks, scenario_digest
from twin.ui import access, formulas, session, words
from twin.ui.fields import sentence
from twin.workload.profile import rate_factors

STATE = "live"  # session state: digest of the question that is on screen, its run, simulated time
PATIENCE_S = 2.0  # the script shows a run's progress for this long, then a fragment does
LOOK_S, AGAIN_S = 0.05, 1.0
GREY: Any = {"icon": ":material/function:", "color": "gray", "width": "content"}  # of a badge
LINE: Any = {"horizontal": True, "vertical_alignment": "center", "gap": "small"}


class Strip(NamedTuple):
    """Containers at the head of a page: verdict, simulated answer, progress of the live run. They
    are separate, so that drawing into them cannot fail after an interrupted script."""

    verdict: DeltaGenerator
    simulated: DeltaGenerator
    progress: DeltaGenerator


@st.cache_resource(show_spinner=False, on_release=lambda live: live.close())
def _live() -> Live:
    """The live runs of this process, shared by all visitors."""
    return Live()


def draw_strip(draft: Scenario) -> Strip:
    """Draw the verdict by formula; returns the containers for the simulation's answer."""
    _begin_run(draft)  # concurrent with the formulas, which take as long
    verdict_place, npus = st.container(key="verdict"), npus_of(draft.supernode)
    if not session.refusal():  # 8,192 NPUs take 10 s at first
        with verdict_place, st.spinner(f"Pricing {numbered(npus, 'NPU')}, their links and experts"):
            formulas.outlook(formulas.without_faults(draft))
    verdict = _draw_verdict(verdict_place, draft)  # replaced, and never empty between two answers
    outlook = formulas.outlook(formulas.without_faults(draft))
    for remark in () if session.refusal() or isinstance(outlook, str) else remarks(draft):
        verdict_place.warning(sentence(remark), icon=":material/event_busy:")
    if left_out_text := left_out_by_formulas(draft):
        verdict_place.caption(left_out_text)
    with st.container(key="second-answer"), st.container(key="simulated", **LINE):
        return Strip(verdict, st.empty(), st.container(width="content"))


def draw_answer(strip: Strip, draft: Scenario) -> str:
    """Simulate the draft, drawing it in `strip`; returns the run's id, or '' if it did not end."""
    container = strip.simulated
    run, horizon_s = _begin_run(draft)
    status = _await_run(container, run) if run else None
    if status is None or not status.ended:
        if status is not None:
            container.empty()
            with strip.progress:
                _redraw_progress(run)
        elif not session.refusal():
            container.badge("By formula", **GREY)
        return ""
    with container.container(width="content", **LINE):
        badge_text = f"Simulated: {words.duration_text(horizon_s)}"
        st.badge(badge_text, icon=":material/check:", color="green", width="content")
        has_later_faults = any(horizon_s <= fault.at_s < draft.horizon_s for fault in draft.faults)
        fault_hint = " · what fails later is not in it: press Run" if has_later_faults else ""
        misses_swings = horizon_s < draft.horizon_s and not draft.workload.profile.flat
        swing_hint = " · how the load swings later is not in it: press Run" if misses_swings else ""
        steady_state = status.summary.get("steady_state")
        fill_hint = (
            " · still filling: press Run for a longer one" if steady_state == "filling" else ""
        )
        hints = fault_hint + swing_hint + fill_hint
        st.markdown(_slo_figures(status.summary, draft) + hints, width="content")
    if status.searching:
        with strip.progress:
            _redraw_progress(run, until_found=True)
    summary = {} if steady_state == "filling" or misses_swings else status.summary
    _draw_verdict(strip.verdict, draft, summary, status.capacity)
    return run


def tables(run: str) -> Mapping[str, Any]:
    """Tables by name of a live run (its id); empty if the run is gone."""
    status = _live().status(run)
    return status.tables if status else {}


def _begin_run(draft: Scenario) -> tuple[str, float]:
    """Start the draft's live run unless it exists; returns (id, simulated s), ('', 0) if
    refused."""
    if session.refusal() or access.mode() == access.READ_ONLY or not ready():
        return "", 0.0
    if (live_scenario := shortened_draft(draft, session.facts())) is None:
        return "", 0.0
    digest, run_id = st.session_state.get(STATE, ("", ""))
    if digest != scenario_digest(live_scenario) or _live().status(run_id) is None:
        run_id = _live().begin(live_scenario, superseded=run_id)
        st.session_state[STATE] = (scenario_digest(live_scenario), run_id)
    return run_id, live_scenario.horizon_s


def _await_run(place: DeltaGenerator, run: str) -> Status | None:
    """Draw a run's progress until its end or for PATIENCE_S; returns its state, None if gone."""
    deadline_s, drawn_status = time.monotonic() + PATIENCE_S, None
    while (status := _live().status(run, LOOK_S)) is not None and not status.ended:
        if status != drawn_status:
            _draw_progress(place, drawn_status := status)
        st.session_state.get(STATE)  # as drawing does, it lets an edit interrupt the wait
        if time.monotonic() > deadline_s:
            break
    return status


@st.fragment(run_every=AGAIN_S)
def _redraw_progress(run: str, *, until_found: bool = False) -> None:
    """Draw a run's progress, or (if `until_found`) its search for capacity, until that ends."""
    status = _live().status(run)
    if status is None or (not status.searching if until_found else status.ended):
        st.rerun()
    if until_found:
        st.caption("Searching the largest load that keeps the SLO …")
    else:
        _draw_progress(st.container(), status)


def _draw_progress(place: DeltaGenerator, status: Status) -> None:
    """Draw a badge with the progress of a live run in %, and the requests that it served."""
    answer_count = status.live.get("finished")
    served_text = f" · {numbered(int(answer_count), 'request')} served" if answer_count else ""
    place.badge(f"By formula; simulating {100 * status.progress:.0f} %{served_text}", **GREY)


def _slo_figures(summary: Mapping[str, Any], draft: Scenario) -> str:
    """Figures of a run next to the limits of the SLO, as Markdown; those that break it are red."""
    broken_keys = [metric.key for metric, _ in sweep.broken_limits(draft, dict(summary))]
    figure_texts = []
    for metric in sweep.SLOS:
        if (value := summary.get(metric.key)) is not None:
            text = f"{metric.label} {as_text(metric.key, value)}"
            if metric.slo and has_one_slo(draft):
                text += f" of {as_text(metric.key, metric.slo(draft))}"
            figure_texts.append(f":red[{text}]" if metric.key in broken_keys else text)
    if (attained_share := summary.get("slo_attainment")) is not None:
        text = f"{as_text('slo_attainment', attained_share)} within the SLO"
        figure_texts.append(f":red[{text}]" if broken_keys else text)
    return " · ".join(figure_texts) or "too short for a figure: press Run"


def _draw_verdict(
    place: DeltaGenerator, draft: Scenario, summary: Mapping[str, Any] = {},
    capacity: Mapping[str, Any] = {},
) -> DeltaGenerator:  # fmt: skip
    """Draw a sentence on speed, load and idle NPUs; returns its element. summary, capacity: figures
    and largest load of the live run; the formulas' answers are used where these are empty."""
    if refusal := session.refusal():  # older answers would mislead
        text = f"No answer with these settings. {sentence(refusal)} Undo goes back."
        st.warning(text, icon=":material/error:")
        return place.empty()
    outlook = formulas.outlook(formulas.without_faults(draft))
    if isinstance(outlook, str):
        return place.markdown(f":red[:material/error: {sentence(outlook)}]")
    model_text = f"First of {1 + len(draft.models)} models: " if draft.models else ""
    if model_text:  # formulas are of one model
        summary, capacity = {}, {}
    meets_slo = sweep.meets_slo(draft, dict(summary))
    if summary.get("steady_state") == "overloaded":
        load_text = f":red[**overloaded**]: queues grow above {_rate(outlook.sustained_req_per_s)}"
    elif capacity:
        load_text = _simulation_clause(draft, capacity, meets_slo)
    else:
        load_text = _formula_clause(draft, outlook, meets_slo)
    idle_npus = words.idle_npus(draft)
    idle_text = f"**{numbered(idle_npus, 'NPU')} idle**" if idle_npus else "no NPU idle"
    verdict_text = f"{model_text}{_speed_clause(outlook, summary)}; {load_text}; {idle_text}."
    return place.subheader(verdict_text, anchor=False)


def _speed_clause(outlook: Outlook, summary: Mapping[str, Any]) -> str:
    """Clause on the time per token, from `summary` or else by formula, and on the load."""
    tpot_s = summary.get("tpot_s_mean") or outlook.tpot_s
    if tpot_s is None:
        return "Prompts only"
    load_text = "" if outlook.rate_req_per_s is None else f" at {_rate(outlook.rate_req_per_s)}"
    return f"**{seconds(tpot_s)} a token**{load_text}"


def _formula_clause(draft: Scenario, outlook: Outlook, meets_slo: bool | None) -> str:
    """Clause on the largest load within the SLO by formula. meets_slo: whether the live run meets
    the SLO; None: not known."""
    if not outlook.slo_req_per_s:
        tpot_text = f"no batch keeps its SLO of {draft.slo.tpot_ms:g} ms"
        ttft_text = f"by formula no load keeps its TTFT SLO of {draft.slo.ttft_s:g} s"
        return f":red[**{ttft_text if outlook.limit == 'prefill' else tpot_text}**]"
    load_req_per_s, rate_text = outlook.rate_req_per_s, _rate(outlook.slo_req_per_s)
    if load_req_per_s is not None and load_req_per_s > outlook.slo_req_per_s:
        if meets_slo:
            return f"**holds its SLO in this run**; by formula up to **{rate_text}**"
        limit_text = f"by formula its SLO holds up to **{rate_text}** ({outlook.limit} is full)"
        if meets_slo is None and SAFE * load_req_per_s <= outlook.slo_req_per_s:
            reserve_text = f"{100 * (1 - SAFE):.0f} % in reserve"
            return f":orange[**at its limit**]: {limit_text}, with {reserve_text}; a run decides"
        return f":red[**too much load**]: {limit_text}"
    rate_text = f"**{rate_text}**{_swing_text(draft, outlook, is_simulated=meets_slo is not None)}"
    if meets_slo is False:
        return f":red[**misses its SLO**], which by formula it holds up to {rate_text}"
    return f"by formula holds its SLO up to {rate_text}"


def _swing_text(draft: Scenario, outlook: Outlook, *, is_simulated: bool) -> str:
    """Text for a load that varies: formulas assume a constant one, and the peak of the offered
    load. '' for a constant load. is_simulated: whether the live run has judged the SLO."""
    if draft.workload.profile.flat or outlook.rate_req_per_s is None:
        return ""
    edges_s, rate_ratios = rate_factors(draft.workload, draft.horizon_s, session.facts())
    peak_over_mean = float(rate_ratios.max() / np.average(rate_ratios, weights=np.diff(edges_s)))
    peak_req_per_s = outlook.rate_req_per_s * peak_over_mean
    needs_run = not is_simulated and peak_req_per_s > outlook.slo_req_per_s
    hint_text = ": :orange[**a run decides**]" if needs_run else ""
    return f" of even load; it peaks at {_rate(peak_req_per_s)}{hint_text}"


def _simulation_clause(draft: Scenario, capacity: Mapping[str, Any], meets_slo: bool | None) -> str:
    """Clause on the largest load within the SLO by simulation. capacity: load that keeps the SLO
    (`low`) and load that misses it (`high`). meets_slo: whether the live run meets the SLO."""
    unit, offered_load = capacity["unit"], load_of(draft)[1]
    if not capacity["load"]:
        return ":red[**no load keeps its SLO**]"
    load_text = f"**{amount(capacity['low'], 'rate', unit)}**"
    if capacity["high"] is None:
        return f"holds its SLO up to {load_text} at least"
    load_text += f" and misses it from {amount(capacity['high'], 'rate', '').strip()} (simulated)"
    if offered_load >= capacity["high"]:
        return f":red[**too much load**]: it holds its SLO up to {load_text}"
    if meets_slo is False:
        return f":red[**misses its SLO**], which it holds up to {load_text}"
    if offered_load > capacity["low"]:
        return f":orange[**at its limit**]: it holds its SLO for sure up to {load_text}"
    return f"holds its SLO up to {load_text}"


def _rate(req_per_s: float) -> str:
    """A request rate with its unit, as text."""
    return amount(req_per_s, "rate", "req/s")
