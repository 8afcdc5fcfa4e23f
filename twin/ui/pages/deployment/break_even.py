"""Whether cached KV is read or computed again, and how slow reads may be until it is computed."""

import streamlit as st

from twin.metrics.measures import amount
from twin.ui import formulas, session
from twin.ui.charts.memory import break_even
from twin.ui.fields import sentence
from twin.ui.show import plot


def section() -> None:
    """Seconds of a thousand cached tokens by where they lie, and where reading them breaks even."""
    reads = formulas.reads(session.draft())
    if not reads:
        return
    st.subheader("Read or compute again", anchor=False)
    if isinstance(reads, str):
        st.caption(sentence(reads))
        return
    plot(break_even(reads), "break-even")
    table = [
        {
            "Read from": read.place,
            "Rate, one instance": amount(read.bytes_per_s, "bytes", "B/s"),
            "Breaks even at": amount(read.pays_above_bytes_per_s, "bytes", "B/s"),
            "Pays from": amount(read.pays_from_tokens, "count", "tokens"),
        }
        for read in reads
    ]
    st.dataframe(table, hide_index=True)
    st.caption(
        "By formula, for the first instance, all memory servers alike. A run reads cached blocks "
        "where that takes no longer than computing them again: at rates above the break-even. Over "
        "UB every die that shares out a prompt's heads reads its blocks, over VPC every node of "
        "such dies; copies into HBM can take longer than the plane, and SSD comes by way of DRAM."
    )
