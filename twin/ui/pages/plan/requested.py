"""The form of a plan: goal, limits, what may vary, and how long to search."""

from typing import Any

import streamlit as st

from twin.hardware.imported import npus_of
from twin.lab.machines import fit_to_npus
from twin.lab.plan.drive import Plans, plans_of
from twin.lab.plan.question import GOALS, LOSSES, Plan, default_goal, plan_from
from twin.lab.plan.space import CHOICES, TICKED
from twin.scenario import SpecError, npus_used
from twin.scenario.words import numbered
from twin.ui import forms, session, words
from twin.ui.fields import why_idle

NOW = "plan-now"  # session state: whoever led here wants it searched at once
PLAN = "plan"  # of the address: the plan that is shown
BY = {"share": "That share", "mean": "The means"}  # TTFT and TPOT
USUAL = 96
BUDGETS = {48: "Quick look", USUAL: "Usual", 240: "Thorough"}  # simulations of the search


def plans() -> Plans:
    """Access to the plans of this visitor's store, running and stored ones."""
    return plans_of(session.store().artefacts.folder, session.facts())


def draw_fit_button() -> None:
    """Draw a button that scales the deployment to the NPUs of the machine. Draws nothing unless the
    draft is refused and a scaled deployment fits."""
    if not session.refusal():
        return
    draft = session.draft_with_pending()
    try:
        fitted_draft = fit_to_npus(draft, npus_of(draft.supernode))
    except SpecError:
        return
    st.button(
        f"Fit the deployment: {numbered(npus_used(fitted_draft), 'NPU')}",
        icon=":material/fit_screen:", key="plan-fitting", on_click=session.set_draft,
        args=(fitted_draft,),
        help="The machine stays as you set it; a plan finds number and size of instances.",
    )  # fmt: skip


def draw_form(shown: Plan | None) -> Plan:
    """Draw the form of a plan; returns the new plan. shown: the plan on the page, whose limits fill
    the form if it is of the same scenario. Raises PlanError."""
    draft = session.draft()
    previous_plan = shown if shown and words.differ_in_words_only(shown.scenario, draft) else None
    previous: dict[str, Any] = (
        previous_plan.model_dump(exclude={"scenario"}) if previous_plan else {}
    )
    with st.container(border=True):
        goal = st.radio(
            "Find", list(GOALS), format_func=GOALS.__getitem__, horizontal=True, key="plan-goal",
            index=list(GOALS).index(previous.get("goal") or default_goal(draft)),
        )  # fmt: skip
        with st.container(horizontal=True, vertical_alignment="bottom"):
            for path in ("slo.ttft_s", "slo.tpot_ms", "slo.share"):
                if not why_idle(path, draft):
                    with st.container(width=150):
                        forms.draw_field(path)
            most_npus = npus_of(draft.supernode)
            met_by = st.selectbox(
                "Met by", list(BY), list(BY).index(previous.get("by", "share")), key="plan-by",
                format_func=BY.__getitem__, width=150,
                help="Published figures are often means; an SLO is about each request.",
            )  # fmt: skip
            npus = st.number_input("NPUs at most", 1, max(most_npus, 1),
                                   min(previous.get("npus") or most_npus, most_npus),
                                   key="plan-npus", width=150)  # fmt: skip
            search_size = previous.get("simulations", USUAL)
            budgets = sorted({*BUDGETS, search_size})
            simulation_budget = st.selectbox(
                "Simulations of the search", budgets, budgets.index(search_size), key="plan-budget",
                width=190,
                format_func=lambda n: f"{BUDGETS.get(n, 'As before')} ({n})",
                help="Short simulations of the search. Making sure of what it found takes 30 to 60 "
                "more for each of at most seven deployments, and some 15 for each loss. Where "
                "nothing fits, it searches anew for each limit: up to thirty times as many.",
            )  # fmt: skip
        survived_losses = st.pills(
            "The SLO holds after the loss of", list(LOSSES), default=previous.get("survives", ()),
            format_func=LOSSES.__getitem__, selection_mode="multi", key="plan-survives",
            help="Judged once the machine has recovered from it. What requests meet until then "
            "shows a run with the fault: Fail a node on Start.",
        )  # fmt: skip
        with st.expander("What may vary, and more limits"):
            varied_choices = st.pills(
                "May vary", list(CHOICES), default=previous.get("vary", TICKED), key="plan-vary",
                format_func=lambda key: CHOICES[key].label, selection_mode="multi",
            )  # fmt: skip
            with st.container(horizontal=True, vertical_alignment="bottom"):
                more_percent = st.number_input(
                    "Load beyond the scenario's (%)", -90, 1000,
                    round(100 * previous.get("more", 0.0)), key="plan-more", width=200,
                )  # fmt: skip
                power_kw = st.number_input(
                    "Power at most (kW)", 0.0, None, previous.get("power_kw", 0.0),
                    key="plan-power", width=170, help="0: no limit.",
                )  # fmt: skip
                cost_limit = st.number_input(
                    "Cost per million tokens at most", 0.0, None,
                    previous.get("cost_per_million_tokens", 0.0), key="plan-cost", width=220,
                    help="0: no limit. It needs a price of an NPU-hour, set on Workload.",
                )  # fmt: skip
    return plan_from(
        session.named_draft(),
        {
            "goal": goal, "by": met_by, "npus": 0 if npus == most_npus else npus,
            "simulations": simulation_budget, "survives": survived_losses, "vary": varied_choices,
            "more": more_percent / 100, "power_kw": power_kw, "cost_per_million_tokens": cost_limit,
        },
    )  # fmt: skip
