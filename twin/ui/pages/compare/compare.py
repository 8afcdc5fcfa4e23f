"""Two to six runs side by side: which settings differ, then which results differ."""

from functools import partial

import streamlit as st

from twin.lab.share import links
from twin.lab.store import StoreError
from twin.lab.sweep.compare import compare
from twin.metrics.latency import ttft_parts
from twin.ui import charts, record, session, theme
from twin.ui import runs as lists
from twin.ui.charts.sweep import differences
from twin.ui.fields import sentence
from twin.ui.link import copy_link
from twin.ui.pages import PAGES
from twin.ui.pages.compare import comparison
from twin.ui.show import draw_choice, draw_download, plain, plot

# 1) Gather: the address says which runs.
runs, problems = comparison.open_runs()

st.title(PAGES["compare"].title, anchor=False)
for problem in problems:
    st.error(problem, icon=":material/link_off:")
if problems:
    comparison.draw_missing_runs(runs)
if len(runs) < links.COMPARED_MIN:
    st.caption("Which settings differ, and which results. " + (
        "Add another run to the one in the address." if runs else "Choose two to six runs."
    ))  # fmt: skip
    comparison.draw_choice(runs)
    st.stop()

base = comparison.baseline_index(runs)
st.set_page_config(page_title=" / ".join(lists.titles(runs)) + " · Compare")
scenarios = [session.store().scenarios.load(run.scenario) for run in runs]
compared = compare(runs, scenarios, base, comparison.letter_names(lists.titles(runs)))
compared, missing_seeds = comparison.with_seeds(compared, runs, scenarios)
titles = compared.names

# 2) Which runs, and what to take away.
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    st.caption(f"Against {plain(titles[base])}", width="content")
    st.space("stretch")
    with st.popover("Change runs", icon=":material/tune:", width="content"):
        comparison.draw_choice(runs)
    with st.popover("Download", icon=":material/download:", width="content"):
        for form, make in (("csv", comparison.as_csv), ("json", comparison.as_json)):
            file = f"comparison.{form}"
            draw_download(form.upper(), partial(make, compared), file, file, width="stretch")
    link = links.compare_url(compared.runs, compared.runs[base], scenarios)
    copy_link(link, on_copy=partial(comparison.publish_ended, runs))
for note in compared.notes:
    st.warning(plain(note), icon=":material/info:")

# 3) The differences: what they come to, and as a picture.
st.subheader(plain(comparison.conclusion(compared, scenarios)), anchor=False)
ratios_by_run = comparison.ratio_errors(runs, scenarios, base)
for text in comparison.equality_sentences(ratios_by_run):
    st.caption(f":material/balance: {text}")
comparison.draw_seeds_button(compared, missing_seeds)
other_titles = [title for i, title in enumerate(titles) if i != base]
left, right = st.columns([2, 3], gap="large")
with left:
    st.markdown("**Settings that differ**")
    settings = comparison.settings_that_differ(compared, scenarios)
    bars = [row for row in settings if row.change]
    if bars or not settings:
        chart = differences(bars, other_titles, "differs in settings")
        plot(chart._replace(reads=""), "settings")
    for row in settings:
        if not row.change:
            who = f" ({plain(other_titles[row.run])})" if other_titles[1:] else ""
            st.markdown(f"{row.label}: **{plain(row.whole)}**{who}")
with right:
    st.markdown("**Results that differ**")
    results = comparison.results_that_differ(compared)
    plot(differences(results, other_titles, "differs in results"), "came")

# 4) The runs, every field and every figure.
comparison.draw_cards(runs, scenarios, base)
if unfinished := [run.id for run in runs if not run.ended]:
    lists.watch_runs(unfinished)
if table := comparison.input_table(compared, scenarios):
    with st.expander(f"Fields that differ: {len(table)}"):
        st.table(table, border="horizontal", hide_index=True)
st.subheader("What came out", anchor=False)
group = draw_choice("Figures", comparison.GROUPS, "figures", bind="query-params")
if figures := comparison.metric_table(compared, group, ratios_by_run):
    st.table(figures, border="horizontal", hide_index=True)
    with st.expander("What these figures count"):
        st.markdown(comparison.meanings_text(compared, group))
    lists.draw_error_bands(dict(zip(titles, scenarios, strict=True)))
else:
    st.caption("None of these figures is in the runs.")

# 5) The same as pictures, of the runs that have a result.
done = [i for i, run in enumerate(runs) if run.state == "done"]
try:
    times = {i: record.latencies(runs[i].id, scenarios[i].warmup_s) for i in done}
    operators = {titles[i]: (theme.SERIES[i], comparison.decode_busy_s(runs[i], scenarios[i]))
                 for i in done}  # fmt: skip
except StoreError as error:
    st.error(sentence(str(error)), icon=":material/broken_image:")
    st.stop()
slos = {(s.slo.ttft_s, 1e-3 * s.slo.tpot_ms) for s in scenarios}
slo_limits = dict(zip(("ttft_s", "tpot_s"), slos.pop(), strict=True)) if len(slos) == 1 else {}
left, right = st.columns(2, gap="large")
for place, name, heading in (
    (left, "ttft_s", "Time to first token"),
    (right, "tpot_s", "Time per output token"),
):
    with place:
        st.markdown(f"**{heading}**")
        lines = [charts.Curve(titles[i], theme.SERIES[i], getattr(times[i], name)) for i in done]
        plot(charts.distribution(lines, slo_limits.get(name)), name)
with left:
    st.markdown("**Where the time to first token goes**")
    plot(charts.stages({titles[i]: ttft_parts(runs[i].summary) for i in done}), "stages")
with right:
    st.markdown("**One decode iteration, by operator**")
    plot(charts.operators_by_run(operators), "operators")
