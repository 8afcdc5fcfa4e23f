"""The experts of a finished run: how even their load was, what balancing did, and what it costs."""

import streamlit as st

from twin.lab.store import RunRow
from twin.metrics.measures import amount, seconds
from twin.model.shape import load_shape
from twin.scenario import Scenario
from twin.ui import record, runs, session
from twin.ui.pages.experts import views as experts_views
from twin.ui.pages.run import explained
from twin.ui.show import draw_choice


def draw_cost_of_imbalance(row: RunRow, scenario: Scenario) -> None:
    """Draw what imbalance costs, by a re-run with even experts. For a dense model, end the page."""
    shape = load_shape(session.facts(), scenario.deployment.model)
    if "experts" not in shape.stages:
        st.subheader(f"{shape.title} has no routed experts: nothing to balance.", anchor=False)
        st.stop()
    if scenario.experts.popularity == "uniform":
        text = "Every expert is as popular as the others: imbalance costs nothing."
        st.subheader(text, anchor=False)
        return
    pieces_s = record.seconds_by_piece(row, scenario)
    if not pieces_s:
        if not scenario.models:  # runs of several are not explained
            text = "What imbalance costs is measured when the run is explained, on its results."
            if not explained.can_explain(row, scenario):
                text = ("What imbalance costs is measured when a run is explained. Another engine "
                        "or other facts made this one: run it again, on its results.")  # fmt: skip
            st.markdown(text)
        return
    imbalance_s, request_s = pieces_s["imbalance"], sum(pieces_s.values())
    text = "A re-run with perfectly even experts is no faster: imbalance is free."
    if imbalance_s > 0:
        share_text = f"{seconds(request_s)}: {amount(imbalance_s / request_s, 'share')}"
        text = f"Expert imbalance costs {seconds(imbalance_s)} of a mean request's {share_text}."
    st.subheader(text, anchor=False)
    st.caption(
        "What a re-run with perfectly even experts saves; the same piece of “Where the time goes” "
        "on the results of this run."
    )


row, scenario = runs.ended_run("experts")
draw_cost_of_imbalance(row, scenario)

view = draw_choice("View", experts_views.VIEWS, "experts-view", bind="query-params", wrap=True)
with session.show_damage():
    role, instance = experts_views.choose_instance(row)
    experts_views.draw_tiles(row, role, instance)
    experts_views.VIEWS[view](row, scenario, role, instance)
