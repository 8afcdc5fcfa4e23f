"""A run while it runs, and its results: the same address for both."""

import streamlit as st

from twin.ui import runs, session
from twin.ui.pages.run import explained, own_sections, results, sections
from twin.ui.show import draw_choice

# 1) The run, or why there is none to show, or none yet.
row, scenario = runs.named_run("run")
place = st.empty()  # there when the run has ended too: what follows keeps its place, and its state
if not row.ended:
    ended_row = runs.follow_run(place, row, scenario)
    if ended_row is None:
        st.stop()
    row = ended_row
if not row.summary:
    runs.draw_failure(row, scenario)
    st.stop()

# 2) The headline, and what it is worth.
results.draw_header(row, scenario)
if explained.can_explain(row, scenario):
    explained.draw_card(row, scenario)
results.draw_tiles(row, scenario, explained.HEAD if explained.can_explain(row, scenario) else ())
results.draw_validity(row, scenario)

# 3) One section at a time: only the chosen one reads its tables.
some = own_sections.SECTIONS.items()
own = {name: draw for name, (applies, draw) in some if applies(row, scenario)}
last = {name: own.pop(name) for name in ("Memory pool",) if name in own}
causes = {"Causes": explained.draw_explanation} if explained.can_explain(row, scenario) else {}
shown = causes | own | sections.SECTIONS | last
if scenario.models:  # a formula's layers are those of one model
    del shown["Iteration"]
section = draw_choice("Section", shown, "section", bind="query-params", wrap=True)
with session.show_damage():
    shown[section](row, scenario)
