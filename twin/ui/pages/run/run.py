"""A run while it runs, and its results: the same address for both."""

import streamlit as st

from twin.lab import share
from twin.lab.store import StoreError
from twin.scenario import SpecError
from twin.ui import progress, record, session
from twin.ui.fields import sentence
from twin.ui.pages.run import experts_cost, results, sections

session.open_link()
row = share.open_run(st.query_params.to_dict(), session.store())

# 1) No run to show, or none yet.
if row is None:
    progress.nothing_chosen()
    st.stop()
if isinstance(row, share.NotHere):
    progress.absent(row)
    st.stop()
try:
    scenario = record.scenario(row.scenario)
except (StoreError, SpecError) as error:  # damaged, or asked in words this twin does not know
    progress.unreadable(row, str(error))
    st.stop()
if not row.ended:
    row = progress.live(row, scenario)
    if row is None:
        st.stop()
if not row.summary:
    progress.ended_without_results(row, scenario)
    st.stop()

# 2) The headline, and what it is worth.
results.header(row, scenario)
results.tiles(row, scenario)
experts_cost.tile(row, scenario)
results.validity(row, scenario)

# 3) One section at a time: only the chosen one reads its tables.
shown = sections.of(row, scenario)
section = st.segmented_control(
    "Section", list(shown), default=next(iter(shown)), required=True,
    label_visibility="collapsed", key="section", bind="query-params", wrap=True,
)  # fmt: skip
try:
    shown[section](row, scenario)
except StoreError as error:
    st.error(sentence(str(error)), icon=":material/broken_image:")
