"""A finished run played back: the machine over time, from the moment that the address names."""

import streamlit as st

from twin.ui import progress, record, session
from twin.ui.link import page_link
from twin.ui.pages.playback import player as playback
from twin.ui.toolbar import open_run

session.open_link()
row, scenario = progress.ended_run("playback")
page_link("run", "Results of this run", {"run": row.id}, ":material/query_stats:")
if playback.missing(row.id):
    st.markdown("This run was made by an earlier engine, which did not record what moved when.")
    if st.button("Run it again", type="primary", icon=":material/play_arrow:", key="again"):
        open_run(scenario)
    st.stop()

# 1) The player, and what happened as words.
with session.damage_shown():
    playback.player(row, scenario)
    st.subheader("What happened", anchor=False)
    playback.happened(record.table(row.id, "events"))
