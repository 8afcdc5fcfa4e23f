"""A finished run played back: the machine over time, from the moment that the address names."""

import streamlit as st

from twin.lab import share
from twin.lab.store import StoreError
from twin.spec import SpecError
from twin.ui import playback, progress, record, session
from twin.ui.comparison import plain
from twin.ui.fields import sentence
from twin.ui.toolbar import RUN_PAGE, open_run

session.open_link()
row = share.open_run(st.query_params.to_dict(), session.store())

# 1) No run to play, or nothing in it to play.
if row is None:
    progress.nothing_chosen("Playback", playback.PAGE)
    st.stop()
if isinstance(row, share.NotHere):
    progress.absent(row)
    st.stop()
try:
    scenario = record.scenario(row.scenario)
except (StoreError, SpecError) as error:
    progress.unreadable(row, str(error))
    st.stop()
st.title(plain(row.name), anchor=False)
if not row.ended or not row.summary:
    st.markdown("A run can be played back when it has ended with results.")
    st.page_link(RUN_PAGE, label="See how far it is", query_params={"run": row.id})
    st.stop()
if playback.missing(row.id):
    st.markdown("This run was made by an earlier engine, which did not record what moved when.")
    if st.button("Run it again", type="primary", icon=":material/play_arrow:", key="again"):
        open_run(scenario)
    st.stop()

# 2) The player, and what happened as words.
st.page_link(
    RUN_PAGE, label="Results of this run", icon=":material/query_stats:",
    query_params={"run": row.id},
)  # fmt: skip
try:
    playback.player(row, scenario)
    st.subheader("What happened", anchor=False)
    playback.happened(record.table(row.id, "events"))
except StoreError as error:
    st.error(sentence(str(error)), icon=":material/broken_image:")
