"""What cached KV brings by formula, on the Workload and the Deployment page."""

from collections.abc import Mapping, Sequence

import streamlit as st

from twin.extras.cached_kv.hit_curve import Read, hit_curve, read_costs
from twin.metrics.measures import amount
from twin.scenario import Scenario
from twin.ui import session, theme
from twin.ui.charts.base import Chart, add_bars, add_line, chart, empty_chart, figure, mark_at
from twin.ui.fields import sentence
from twin.ui.formulas import cached_formula, files_of, missing_file_text, replayed_trace
from twin.ui.show import plot
from twin.workload.offered import Offered

# Hit ratio against the size of the memory pool (HitCurve).
curve_of = cached_formula(
    "hit curve", lambda s: hit_curve(s, session.facts(), replayed_trace(s)), missing_file_text,
    spinner="Following the blocks of every prompt", entries=20,
)  # fmt: skip
# What reading cached KV takes against computing it (list[Read]).
reads_of = cached_formula("reads", lambda s: read_costs(
    s, session.facts(), *files_of(s)), missing_file_text)  # fmt: skip


def draw_hit_curve(draft: Scenario, demand: Offered) -> None:
    """Draw, if prompts share blocks, a switch and behind it the hit ratio by size of the pool."""
    if demand.reuse > 0.0 and st.toggle(
        "Hit ratio by size of the memory pool", key="hit-curve",
        help="One pass over the prompts of the run, an LRU of every size at once. In a run "
        "prompts wait and blocks are stored when they are computed: it mostly hits less.",
    ):  # fmt: skip
        curve = curve_of(draft)
        if isinstance(curve, str):
            st.caption(sentence(curve))
        else:
            bytes_by_tier = {"DRAM": curve.dram_bytes, "with SSD": curve.pool_bytes}
            point_by_tier = {
                tier: (size, curve.hit_ratio(size)) for tier, size in bytes_by_tier.items()
            }
            plot(hit_ratio_chart(curve.points(), point_by_tier), "hit-curve-chart")
            st.caption(
                f"Of {curve.requests:,} requests. The pool's DRAM "
                f"({amount(curve.dram_bytes, 'bytes')}) hits "
                f"{amount(curve.hit_ratio(curve.dram_bytes), 'share')}; from "
                f"{amount(curve.knee_bytes, 'bytes')} on it is 95\u00a0% of an endless pool's."
            )


def draw_reads(draft: Scenario) -> None:
    """Draw the ms that reading 1,000 cached tokens takes, by place, and where it breaks even."""
    kv_reads = reads_of(draft)
    if not kv_reads:
        return
    st.subheader("Read or compute again", anchor=False)
    if isinstance(kv_reads, str):
        st.caption(sentence(kv_reads))
        return
    plot(break_even_chart(kv_reads), "break-even")
    cost_rows = [
        {"Read from": read.place, "Rate, one instance": amount(read.bytes_per_s, "bytes", "B/s"),
         "Breaks even at": amount(read.pays_above_bytes_per_s, "bytes", "B/s"),
         "Pays from": amount(read.break_even_tokens, "count", "tokens")}
        for read in kv_reads
    ]  # fmt: skip
    st.dataframe(cost_rows, hide_index=True)
    st.caption(
        "By formula, for the first instance, all memory servers alike. A run reads cached blocks "
        "where that takes no longer than computing them again: at rates above the break-even. Over "
        "UB every die that shares out a prompt's heads reads its blocks, over VPC every node of "
        "such dies; copies into HBM can take longer than the plane, and SSD comes by way of DRAM."
    )


def break_even_chart(reads: Sequence[Read]) -> Chart:
    """Chart of ms to read 1,000 cached tokens by place; a line marks computing them again."""
    fig = figure(height=110 + 34 * len(reads))
    compute_ms_per_1000 = 1e6 * reads[0].computed_s_per_token
    read_ms_per_1000 = [1e6 * read.s_per_token + 1e3 * read.latency_s for read in reads]
    read_texts = [amount(1e-3 * ms, "time") for ms in read_ms_per_1000]
    places = [read.place for read in reads]
    colour = theme.ROLE["memory_pool"]
    add_bars(fig, places, read_ms_per_1000, colour, text=read_texts, textposition="outside")
    mark_at(fig, "computed again", "top left", x=compute_ms_per_1000)
    summary = "; ".join(f"{place} {text}" for place, text in zip(places, read_texts, strict=True))
    compute_text = amount(1e-3 * compute_ms_per_1000, "time")
    axis_end_ms = 1.25 * max(compute_ms_per_1000, *read_ms_per_1000)
    return chart(
        fig, f"Reading a thousand cached tokens: {summary}; computing them again: {compute_text}.",
        "Reading pays where its bar is shorter than computing the same tokens again.",
        x={"title_text": "ms for 1,000 cached tokens", "range": [0, axis_end_ms]},
        columns={"y": "read from"}, hovermode="closest",
    )  # fmt: skip


def hit_ratio_chart(
    points: Sequence[tuple[float, float]], tiers: Mapping[str, tuple[float, float]]
) -> Chart:
    """Chart of the hit ratio by size of the memory pool; points: (bytes, hit ratio) of the curve;
    tiers: the same of the scenario's pool, by name of the tier (DRAM, with SSD)."""
    if not points or points[-1][1] <= 0.0:
        return empty_chart("No prompt shares a block with another")
    fig = figure(height=260)
    sizes_gb = [size / 1e9 for size, _ in points]
    hit_percents = [100 * ratio for _, ratio in points]
    hover_text = "%{y:.1f} % with %{x:,.3~g} GB<extra></extra>"
    add_line(fig, sizes_gb, hit_percents, theme.ROLE["prefill"], hover_text, width=2.4)
    for tier, (size, ratio) in tiers.items():
        if size > 0.0:
            fig.add_scatter(
                x=[size / 1e9], y=[100 * ratio], mode="markers+text", text=[tier],
                textposition="bottom center", marker={"color": theme.OTHER, "size": 9},
                hovertemplate=f"{tier} {amount(size, 'bytes')}: %{{y:.1f}} %<extra></extra>",
            )  # fmt: skip
    size, ratio = points[-1]
    return chart(
        fig, "Hit ratio against the size of the memory pool, at most "
        f"{amount(ratio, 'share')} with {amount(size, 'bytes')}.",
        "More room hits more until the reused blocks fit; beyond, only more reuse helps.",
        showlegend=False,
        x={"type": "log", "title_text": "memory pool (GB)", "showgrid": True},
        y={"range": [0, 101], "ticksuffix": " %", "title_text": "hit ratio"},
        columns={"y": "hit ratio (%)"},
    )  # fmt: skip
