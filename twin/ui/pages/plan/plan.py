"""What should I deploy? Deployments priced by formula, proved by simulation, and ranked."""

import streamlit as st

from twin.lab.plan.question import Plan, PlanError, check_power
from twin.lab.runs.budget import require_known_names
from twin.lab.store import StoreError
from twin.ui import access, formulas, session, words
from twin.ui.fields import sentence
from twin.ui.link import copy_link
from twin.ui.pages.plan import found, requested
from twin.ui.runs import draw_compilation
from twin.ui.show import plain
from twin.ui.toolbar import draw_draft_link, draw_header, refusal

LOOK_S, LOOK_STOPPED_S = 0.7, 4.0  # how often a plan is looked at; one that another may resume
READS = access.mode() == access.READ_ONLY  # nothing may be begun or stopped here

session.open_link()
plans = requested.plans()
key = st.query_params.get(requested.PLAN, "")
shown_plan = plans.stored_plan(key) if key else None
if shown_plan and not session.is_edited():  # whoever opens a plan's link goes on from its scenario
    session.start_from(shown_plan.scenario)
draw_header("plan", run=False)
if key and shown_plan is None:
    st.error("This plan is not stored here.", icon=":material/link_off:")

# 1) The question.
reason, new_plan = refusal(), None
if READS:
    reason = "this server is read-only: what others have found is shown, nothing is searched here"
try:
    new_plan = requested.draw_form(shown_plan)
    check_power(new_plan, session.facts())
except PlanError as error:
    reason = reason or str(error)
if reason:
    st.warning(sentence(reason), icon=":material/error:")
    requested.draw_fit_button()


def begin_plan(plan: Plan) -> None:
    """Callback: start or continue a plan, and write its key to the address."""
    problem = formulas.answer_or_reason(lambda: require_known_names(plan.scenario, session.facts()))
    try:
        if problem:
            raise PlanError(problem)
        st.query_params.from_dict({requested.PLAN: plans.start(plan)})
    except (PlanError, StoreError, OSError) as error:
        st.toast(sentence(str(error)), icon=":material/error:")


if new_plan and not reason and st.session_state.pop(requested.NOW, False):
    begin_plan(new_plan)
    st.rerun()
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    st.button("Find what to deploy", type="primary", icon=":material/search:", key="find",
              disabled=not new_plan or bool(reason), on_click=begin_plan,
              args=(new_plan,))  # fmt: skip
    if key:
        copy_link(f"/plan?{requested.PLAN}={key}", label="Copy link of this plan")
    else:
        draw_draft_link("plan")

# 2) What it found, drawn anew while it searches.
STATUS = plans.state_of(key) if shown_plan else None
LOOKING = STATUS is not None and STATUS.working
STALE = shown_plan is not None and plans.key(shown_plan) != key  # of another engine or other facts


def draw_results() -> None:
    """Draw the progress of the plan in the address, or its answer."""
    assert shown_plan is not None
    status = plans.state_of(key)
    if status.working != LOOKING:  # begun, taken up again or ended: the page, not this part of it
        st.rerun()
    if status.answer:
        if STALE:
            st.caption(
                ":material/history: Another engine or other facts found this: “Find what to "
                "deploy” works it out anew."
            )
        found.draw_answer(shown_plan, status.answer)
        return
    if status.working:
        with st.container(horizontal=True, vertical_alignment="center"):
            progress_text = "Pricing deployments by formula"
            simulation_count = status.so_far.get("simulations", 0)
            if priced_count := status.so_far.get("deployments", 0):
                stage = status.so_far.get("stage")
                counts_text = f"{simulation_count:,} simulated, {priced_count:,} priced by formula"
                progress_text = f"{stage}: {counts_text}"
            st.progress(status.progress, progress_text)
            st.button("Stopping" if status.stopping else "Stop", icon=":material/stop_circle:",
                      key="stop-plan", disabled=READS or status.stopping, on_click=plans.stop,
                      args=(key,))  # fmt: skip
        if not simulation_count:
            draw_compilation()
    elif status.problem:
        with st.container(horizontal=True, vertical_alignment="center"):
            stale_text = "It did not end, and is of another engine or other facts: it begins anew."
            st.warning(stale_text if STALE else plain(status.problem), icon=":material/info:")
            if STALE or not status.refused:
                st.button("Go on", icon=":material/play_arrow:", key="resume-plan", disabled=READS,
                          on_click=begin_plan, args=(shown_plan,))  # fmt: skip
    if status.so_far:
        found.draw_progress(status.so_far)


if shown_plan is not None:
    if new_plan and not words.differ_in_words_only(new_plan.scenario, shown_plan.scenario):
        st.caption("The plan below is of another scenario than the draft above.")
    with session.show_damage():
        period_s = None if STATUS is None or STATUS.answer else LOOK_STOPPED_S
        st.fragment(draw_results, run_every=LOOK_S if LOOKING else period_s)()
else:
    st.caption(
        "Prices every deployment by formula, simulates the promising ones on the same requests, "
        "and ranks at most seven different ones, each with its margins."
    )
