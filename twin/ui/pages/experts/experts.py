"""The experts of a finished run: how even their load was, what balancing did, and what it costs."""

import streamlit as st

from twin.ui import progress, session
from twin.ui.link import page_link
from twin.ui.pages.experts import load as experts
from twin.ui.pages.experts import views as experts_views
from twin.ui.show import choice
from twin.ui.toolbar import open_run

session.open_link()
row, scenario = progress.ended_run("experts")
experts_views.conclusion(row, scenario)
page_link("run", "Results of this run", {"run": row.id}, ":material/query_stats:")

view = choice("View", experts_views.VIEWS, "experts-view", bind="query-params", wrap=True)
with session.damage_shown():
    load = experts.table(row.id, "die_load")
    if load is None or not load.height:
        st.markdown("This run did not record the load of its experts: an earlier engine made it.")
        if st.button("Run it again", type="primary", icon=":material/play_arrow:", key="again"):
            open_run(scenario)
        st.stop()
    role, instance = experts_views.chosen_instance(row)
    experts_views.tiles(row, role, instance)
    experts_views.VIEWS[view](row, scenario, role, instance)
