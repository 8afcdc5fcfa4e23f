"""One or two fields over a range: where the SLO breaks, and throughput against latency."""

import streamlit as st

from twin.lab.sweep import sweep
from twin.metrics.measures import numbered
from twin.scenario import SpecError
from twin.ui import session, words
from twin.ui.charts import sweep as charts
from twin.ui.fields import sentence
from twin.ui.link import copy_link
from twin.ui.pages.sweep import points as pts
from twin.ui.runs import draw_compilation, draw_error_bands
from twin.ui.show import draw_download, is_dark, plain, plot, table_csv
from twin.ui.toolbar import draw_header

LOOK_S = 0.7
OVER = "over"  # of the address, once for each field
REFUSED_SHOWN = 2  # points that cannot be, with their reasons

draw_header("sweep", run=False)

# 1) Which fields over which values; the address has what was simulated last.
try:
    url_axes = [sweep.parse_axis(text) for text in st.query_params.get_all(OVER)[: sweep.AXES_MAX]]
except SpecError as error:
    st.error(sentence(str(error)), icon=":material/link_off:")
    url_axes = []
first_url_axis, second_url_axis, *_ = [*url_axes, None, None]
first_field, second_field = st.columns(2, gap="large")
try:
    with first_field:
        x_axis = pts.draw_axis_choice(0, first_url_axis, "workload.rate_req_per_s")
    with second_field:
        second_axis = pts.draw_axis_choice(1, second_url_axis, other_axis=x_axis)
    axes = [axis for axis in (x_axis, second_axis) if axis is not None]
    # Each point under the name that its own run would bear.
    points = sweep.points(session.draft(), axes, lambda s: words.name_draft(s, session.preset()))
except SpecError as error:
    st.warning(sentence(str(error)), icon=":material/error:")
    st.stop()

rows = pts.runs_of_points(points)
if st.session_state.pop(pts.NOW, False):
    pts.simulate(points, rows)
    rows = pts.runs_of_points(points)
if [axis.text for axis in axes] != st.query_params.get_all(OVER):
    st.query_params[OVER] = [axis.text for axis in axes]
missing_count = len(pts.scenarios_without_run(points, rows))
is_running = any(row is not None and not row.ended for row in rows)
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    st.button(
        f"Simulate {numbered(missing_count, 'point')}" if missing_count else
        "Points are being simulated" if is_running else "All points are simulated",
        type="primary", icon=":material/play_arrow:", disabled=not missing_count, key="simulate",
        on_click=pts.simulate, args=(points, rows),
    )  # fmt: skip
    address = f"{session.draft_url('sweep')}&" + "&".join(f"{OVER}={axis.text}" for axis in axes)
    copy_link(address, label="Copy link of this sweep", save=session.is_edited())
    st.caption("Each point is a full simulation and stays in the library.", width="content")
refused_points = [p for p in points if p.scenario is None]
for point in refused_points[:REFUSED_SHOWN]:
    values = zip(axes, point.values, strict=True)
    text = ", ".join(f"{axis.label} {axis.text_of(value)}" for axis, value in values)
    st.caption(f":material/block: {plain(text)}: {sentence(point.refusal)}")
if hidden_points := refused_points[REFUSED_SHOWN:]:
    st.caption(f"And {numbered(len(hidden_points), 'point')} more that cannot be: see the table.")


# 2) What came out, drawn anew while points are still to come.
def draw_results() -> None:
    """Draw the sweep's conclusion, charts and table, of the points that have ended."""
    rows = pts.runs_of_points(points)
    open_rows = [row for row in rows if row is not None and not row.ended]
    if not open_rows and LOOKING:
        st.rerun()
    if open_rows:
        with st.container(horizontal=True, vertical_alignment="center"):
            done_count = sum(row is not None and row.ended for row in rows)
            st.progress(done_count / len(rows), f"{done_count} of {len(rows)} points")
            st.button("Stop the sweep", icon=":material/stop_circle:", key="stop-sweep",
                      on_click=pts.stop_points, args=(rows,))  # fmt: skip
        if not done_count and not any(row.live for row in open_rows):
            draw_compilation()
    series_by_name = pts.series(axes, points, rows)
    if not series_by_name or not any(rows):
        return
    possible_points = [
        (p.values[0], p.scenario, row) for p, row in zip(points, rows, strict=True) if p.scenario
    ]
    if len(axes) == 1 and not open_rows and len(possible_points) > 1:
        first_values, scenarios, point_runs = zip(*possible_points, strict=True)
        summaries = [row.summary if row else {} for row in point_runs]
        if conclusion := sweep.conclusion(
            sweep.Axis(axes[0].path, first_values), scenarios, summaries
        ):
            st.subheader(plain(conclusion), anchor=False)
    grid = st.grid(2, min_column_width=330, gap="medium")
    for key in pts.metric_keys("panel", rows):
        with grid.cell():  # how they are read stands below all of them
            chart = charts.metric_over_field(axes[0], key, series_by_name, dark=is_dark())
            plot(chart._replace(reads=""), f"sweep-{key}")
    frontier = charts.frontier(axes[0], series_by_name, sweep.published_points(), dark=is_dark())
    plot(frontier, "sweep-frontier")
    st.caption(
        "Filled: the SLO is met. Hollow: it is broken. x: overloaded or still filling, so the "
        "figure depends on the horizon. Thin crosses: published operating points. Bars: where four "
        "of five measurements are expected."
    )
    draw_error_bands(pts.scenarios(axes, points))
    with st.expander("Points as a table, each with its run"):
        st.dataframe(
            pts.table_rows(axes, points, rows), hide_index=True, placeholder="–",
            column_config={"Run": st.column_config.LinkColumn(display_text="Open")},
        )  # fmt: skip
        result_rows = sweep.result_rows(axes, points, rows)
        draw_download("CSV", lambda: table_csv(result_rows), "sweep.csv", "sweep-csv")


LOOKING = any(row is not None and not row.ended for row in rows)
with session.show_damage():
    st.fragment(draw_results, run_every=LOOK_S if LOOKING else None)()
