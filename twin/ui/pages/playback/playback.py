"""A finished run played back: the machine over time, from the moment that the address names."""

import streamlit as st

from twin.metrics.measures import amount
from twin.ui import record, runs, session
from twin.ui.pages.playback import player as playback
from twin.ui.toolbar import open_run

row, scenario = runs.ended_run("playback")
if playback.missing_tables(row.id):
    st.markdown("This run was made by an earlier engine, which did not record what moved when.")
    if st.button("Run it again", type="primary", icon=":material/play_arrow:", key="again"):
        open_run(scenario)
    st.stop()

# 1) The player, and what happened as words.
with session.show_damage():
    playback.draw_player(row, scenario)
    st.subheader("What happened", anchor=False)
    rows = [
        {
            "Time": f"{event['t_s']:.4g} s",
            "What": playback.KINDS.get(event["kind"], event["kind"].replace("_", " ").capitalize()),
            "Where": event["element"] or "",
            "Lasted": "" if event["end_s"] is None else f"{event['end_s'] - event['t_s']:.4g} s",
            "Moved": amount(event["bytes"], "bytes") if event["bytes"] else "",
            "Requests": f"{event['requests']:,}" if event["requests"] else "",
            "Detail": (event["detail"] or "").replace("->", "→"),
        }
        for event in record.table(row.id, "events").sort("t_s").iter_rows(named=True)
    ]
    if rows:
        st.dataframe(rows, hide_index=True)
    else:
        st.caption("Nothing broke in this run and no expert was moved.")
