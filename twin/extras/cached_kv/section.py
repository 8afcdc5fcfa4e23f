"""What cached KV brings by formula, on the Workload and the Deployment page."""

import streamlit as st

from twin.extras.cached_kv import charts
from twin.extras.cached_kv.break_even import reads as all_reads
from twin.extras.cached_kv.hit_curve import hit_curve
from twin.metrics.measures import amount
from twin.scenario import Scenario
from twin.ui import session
from twin.ui.fields import sentence
from twin.ui.formulas import files, formula, no_file, replayed
from twin.ui.show import plot
from twin.workload.offered import Offered

# Hit ratio against the size of the memory pool (HitCurve).
curve_of = formula(
    "hit curve", lambda s: hit_curve(s, session.facts(), replayed(s)), no_file,
    spinner="Following the blocks of every prompt", entries=20,
)  # fmt: skip
# What reading cached KV takes against computing it (list[Read]).
reads_of = formula("reads", lambda s: all_reads(s, session.facts(), *files(s)), no_file)


def hits(draft: Scenario, demand: Offered) -> None:
    """The hit ratio by size of the memory pool, where prompts share blocks and it is wanted."""
    if demand.reuse > 0.0 and st.toggle(
        "Hit ratio by size of the memory pool", key="hit-curve",
        help="One pass over the prompts of the run, an LRU of every size at once. In a run "
        "prompts wait and blocks are stored when they are computed: it mostly hits less.",
    ):  # fmt: skip
        curve = curve_of(draft)
        if isinstance(curve, str):
            st.caption(sentence(curve))
        else:
            sizes = {"DRAM": curve.dram_bytes, "with SSD": curve.pool_bytes}
            tiers = {name: (size, curve.hit_ratio(size)) for name, size in sizes.items()}
            plot(charts.hit_curve(curve.points(), tiers), "hit-curve-chart")
            st.caption(
                f"Of {curve.requests:,} requests. The pool's DRAM "
                f"({amount(curve.dram_bytes, 'bytes')}) hits "
                f"{amount(curve.hit_ratio(curve.dram_bytes), 'share')}; from "
                f"{amount(curve.knee_bytes, 'bytes')} on it is 95\u00a0% of an endless pool's."
            )


def reading(draft: Scenario) -> None:
    """Seconds of a thousand cached tokens by where they lie, and where reading them breaks even."""
    reads = reads_of(draft)
    if not reads:
        return
    st.subheader("Read or compute again", anchor=False)
    if isinstance(reads, str):
        st.caption(sentence(reads))
        return
    plot(charts.break_even(reads), "break-even")
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
