"""Traces on the Run page: a span of the run as a download, and the command for a request."""

import io

import streamlit as st

from twin.extras.perfetto.writer import SPAN_S, gzip_file, write_trace
from twin.lab.runs.watched import is_repeatable, stored_source
from twin.lab.store import RunRow, Store
from twin.scenario import Scenario
from twin.ui.pages.run.results import file_stem
from twin.ui.show import draw_download
from twin.ui.toolbar import open_run

LONGEST_TRACE_S = 60.0  # what a viewer still turns over at ease


def draw_trace_download(store: Store, row: RunRow, scenario: Scenario) -> None:
    """Draw the choice of a span of the run, and a button that downloads its trace; or, for a run of
    another engine version, a button that runs it again."""
    if not is_repeatable(row):
        st.caption(
            "A trace repeats the run, and another version of the engine made this one: its "
            "scenario can be run again and that run traced."
        )
        if st.button("Run it again", icon=":material/replay:", key="trace-run-again"):
            open_run(scenario)
        return
    st.caption(
        "Iterations, operators, requests, faults and loads of a span, to open in "
        "ui.perfetto.dev or chrome://tracing. The run is repeated up to the span's end."
    )
    horizon_s = scenario.horizon_s
    default_begin_s = min(scenario.warmup_s, 0.9 * horizon_s)
    default_length_s = min(SPAN_S, 0.1 * horizon_s)
    with st.container(horizontal=True):
        begin_s = st.number_input(
            "From, s", 0.0, 0.99 * horizon_s, default_begin_s, key="trace-from"
        )
        length_s = st.number_input(
            "Length, s", 0.01, LONGEST_TRACE_S, default_length_s, key="trace-length"
        )
    draw_download(
        "JSON, gzip", lambda: trace_bytes(store, row.id, begin_s, begin_s + length_s),
        f"{file_stem(row)}-{begin_s:g}s.json.gz", "download-trace",
    )  # fmt: skip


def trace_bytes(store: Store, run: str, begin_s: float, end_s: float) -> bytes:
    """A span of a stored run as trace-event JSON, compressed by gzip; the same bytes each time."""
    source, buffer = stored_source(store, run), io.BytesIO()
    with gzip_file(buffer) as compressor:
        write_trace(source, compressor, begin_s, end_s, may_be_empty=True)
    return buffer.getvalue()


def draw_trace_command(row: RunRow, number: int) -> None:
    """Draw the command that writes a trace of the request which the page explains."""
    st.caption(f"`python -m twin trace {row.id} --request {number}` draws the same stages.")
