"""A recorded trace into the draft: choose one kept here, or drop a file and look at it first."""

from __future__ import annotations

from typing import Any

import streamlit as st

from twin.lab import ask, traces
from twin.lab.runner import lacking_trace
from twin.lab.store import ImportRow, StoreError
from twin.metrics.measures import amount
from twin.ui import forms, session, words
from twin.ui.fields import sentence
from twin.ui.forget import distinct, forget
from twin.ui.show import plain

KEPT = 50  # traces offered for choice
NO_SHARING = "nothing: no prefixes in the file"


def trace_upload() -> None:
    """The trace the draft replays, and two ways to another one."""
    used = session.draft().workload.trace
    lacks = lacking_trace(session.store(), session.draft())
    if lacks:
        st.error(sentence(lacks), icon=":material/link_off:")
    elif used.digest:
        st.markdown(f":material/description: Replays **{plain(used.name) or 'a recorded trace'}**")
        if not session.trace_has_time(used.digest):
            forms.field("workload.rate_req_per_s")
    _choose(used.digest)
    file = st.file_uploader(
        "Trace file",
        help=f"{traces.known()}; plain or gzip. Found by content.",
    )
    if file is None:
        return
    try:
        table = _read(file.getvalue(), file.name)
    except traces.TraceError as error:
        st.error(plain(str(error)), icon=":material/error:")
        return
    if table.digest == used.digest and not lacks:
        return
    _look(traces.preview(table))
    if st.button("Use this trace", type="primary", icon=":material/check:", key="use-trace"):
        _use(table)


def _choose(digest: str) -> None:
    rows = session.store().traces.search(limit=KEPT).rows
    kept = distinct({row.digest: _called(row) for row in rows})
    if not kept:
        return
    chosen = st.selectbox(
        "Traces kept here",
        list(kept),
        index=list(kept).index(digest) if digest in kept else None,
        format_func=lambda d: kept.get(d, d),
        placeholder="Choose a trace, or drop a file below",
        key=f"kept-trace:{digest}",
    )
    if chosen and chosen != digest:
        try:
            table = session.store().traces.load(chosen)
        except StoreError as error:  # another visitor deleted it just now
            st.error(sentence(str(error)), icon=":material/error:")
        else:
            _use(table)
    forget("trace", "traces", kept, digest, session.store().traces)


def _called(row: ImportRow) -> str:
    return f"{row.name} ({row.rows:,} requests, {amount(row.bytes, 'bytes')})"


def _use(table: Any) -> None:
    """Store the trace and make the draft replay it, or say why not."""
    try:
        session.store().traces.save(table)
        session.set_draft(ask.replayed(session.draft(), table))
    except (StoreError, ValueError) as error:
        st.error(plain(str(error)), icon=":material/error:")
    else:
        st.rerun()


@st.cache_data(show_spinner="Reading the trace", max_entries=2)
def _read(data: bytes, name: str) -> Any:
    return traces.read_trace(data, name, limits=traces.UPLOAD)


def _look(seen: dict[str, Any]) -> None:
    """What the file holds, before it is used: figures, rows left out by reason, warnings."""
    with st.container(border=True):
        st.markdown(f"**{seen['format'].capitalize()}** · {seen['rows']:,} requests")
        with st.grid(3, min_column_width=140):
            for name, text in _figures(seen):
                st.metric(name, text)
        for reason, count in seen["counts"].items():
            st.caption(plain(f"{count:,} rows: {reason.replace('_', ' ')}"))
        for warning in seen["warnings"]:
            st.caption(f":material/warning: {plain(warning)}")


def _figures(seen: dict[str, Any]) -> list[tuple[str, str]]:
    hit = seen["ideal_hit_token_ratio"]
    duration_s = seen["duration_s"]
    return [
        ("Lasts", words.duration(duration_s) if duration_s else "no times in the file"),
        ("Requests", amount(seen["rate_req_per_s"], "rate", "req/s")),
        ("Prompt : output tokens", f"{seen['prefill_decode_ratio']:,.3g} : 1"),
        ("Prompt, half under", f"{seen['input_tokens']['p50']:,.0f} tokens"),
        ("Output, half under", f"{seen['output_tokens']['p50']:,.0f} tokens"),
        ("Reusable prompt tokens", NO_SHARING if hit is None else amount(hit, "share")),
    ]
