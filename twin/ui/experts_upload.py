"""Routing counts of one's own into the draft: choose a table kept here, or drop a file."""

from __future__ import annotations

from typing import Any

import streamlit as st

from twin.lab.counts import CountsError, CountsTable, read_counts
from twin.lab.runner import lacking_counts
from twin.lab.store import ImportRow, StoreError
from twin.ui import session
from twin.ui.fields import sentence
from twin.ui.forget import distinct, forget
from twin.ui.show import plain

KEPT = 50  # tables offered for choice
HELP = (
    "How often each expert of each layer was picked: a NumPy array [layers, experts] or [steps, "
    "layers, experts] (.npy, .npz), a JSON with SGLang's logical_count, a CSV of layer, expert, "
    "count, or a placement pattern of omni-infer; plain or gzip. Found by content."
)


def counts_upload() -> None:
    """The counts the draft uses, and two ways to others."""
    used = session.draft().experts.counts
    lacks = lacking_counts(session.store(), session.draft())
    if lacks:
        st.error(sentence(lacks), icon=":material/link_off:")
    elif used.digest:
        name = plain(used.name) or "imported counts"
        st.markdown(f":material/description: Popularity of **{name}**")
    _choose(used.digest)
    file = st.file_uploader("File of routing counts", help=HELP, key="counts-file")
    if file is None:
        return
    try:
        table = _read(file.getvalue(), file.name)
    except CountsError as error:
        st.error(sentence(str(error)), icon=":material/error:")
        return
    if table.digest == used.digest and not lacks:
        return
    _look(table)
    if st.button("Use these counts", type="primary", icon=":material/check:", key="use-counts"):
        try:
            session.store().counts.save(table)
        except StoreError as error:
            st.error(sentence(str(error)), icon=":material/error:")
        else:
            _use(table.name, table.digest)


def _choose(digest: str) -> None:
    rows = {row.digest: row for row in session.store().counts.search(limit=KEPT).rows}
    kept = distinct({digest: _called(row) for digest, row in rows.items()})
    if not kept:
        return
    chosen = st.selectbox(
        "Counts kept here",
        list(kept),
        index=list(kept).index(digest) if digest in kept else None,
        format_func=lambda d: kept.get(d, d),
        placeholder="Choose a table, or drop a file below",
        key=f"kept-counts:{digest}",
    )
    if chosen and chosen != digest:
        _use(rows[chosen].name, chosen)
    forget("counts", "counts", kept, digest, session.store().counts)


def _called(row: ImportRow) -> str:
    return f"{row.name} ({row.about.get('layers', '?')} × {row.about.get('experts', '?')})"


def _use(name: str, digest: str) -> None:
    """Make the draft's experts as popular as counted, or say why not."""
    refused = session.propose(
        {
            "experts.popularity": "imported",
            "experts.counts.name": name,
            "experts.counts.digest": digest,
        }
    )
    if refused:
        st.error(sentence(refused), icon=":material/error:")
    else:
        st.rerun()


@st.cache_data(show_spinner="Reading the counts", max_entries=4)
def _read(data: bytes, name: str) -> Any:
    return read_counts(data, name)


def _look(table: CountsTable) -> None:
    """What the file holds, before it is used."""
    layers, experts = table.counts.shape
    hottest = table.counts.max(axis=1) / table.counts.mean(axis=1)
    with st.container(border=True):
        st.markdown(f"**{plain(table.name)}** · {table.format}")
        with st.grid(4, min_column_width=130):
            st.metric("MoE layers", f"{layers:,}")
            st.metric("Experts", f"{experts:,}")
            st.metric("Picks counted", f"{table.counts.sum():,.4g}")
            st.metric(
                "Hottest expert", f"{hottest.mean():.2f} × mean",
                help="Of its layer's mean expert, averaged over layers.",
            )  # fmt: skip
        if table.note:
            st.caption(plain(table.note))
