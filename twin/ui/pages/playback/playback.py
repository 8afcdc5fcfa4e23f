"""A finished run played back: the machine over time, from the moment that the address names."""

import polars as pl
import streamlit as st

from twin.metrics.measures import amount
from twin.ui import progress, record, session
from twin.ui.pages.playback import player as playback
from twin.ui.toolbar import open_run


def draw_events(events: pl.DataFrame) -> None:
    """Draw the table of the events that the player marks."""
    if not events.height:
        st.caption("Nothing broke in this run and no expert was moved.")
        return
    rows = [
        {
            "Time": f"{row['t_s']:.4g} s",
            "What": playback.KINDS.get(row["kind"], row["kind"].replace("_", " ").capitalize()),
            "Where": row["element"] or "",
            "Lasted": "" if row["end_s"] is None else f"{row['end_s'] - row['t_s']:.4g} s",
            "Moved": amount(row["bytes"], "bytes") if row["bytes"] else "",
            "Requests": f"{row['requests']:,}" if row["requests"] else "",
            "Detail": (row["detail"] or "").replace("->", "→"),
        }
        for row in events.sort("t_s").iter_rows(named=True)
    ]
    st.dataframe(rows, hide_index=True)


row, scenario = progress.ended_run("playback")
if playback.missing_tables(row.id):
    st.markdown("This run was made by an earlier engine, which did not record what moved when.")
    if st.button("Run it again", type="primary", icon=":material/play_arrow:", key="again"):
        open_run(scenario)
    st.stop()

# 1) The player, and what happened as words.
with session.show_damage():
    playback.draw_player(row, scenario)
    st.subheader("What happened", anchor=False)
    draw_events(record.table(row.id, "events"))
