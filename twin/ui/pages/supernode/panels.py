"""What stands around the picture of the fabric: prices, what came of a change, differences."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
import streamlit as st

from twin.facts import Facts
from twin.hardware.chip import Chip, HardwareError, load_chip
from twin.hardware.demands import dram, lending_nodes
from twin.hardware.graph_text import forms
from twin.hardware.machine_file import fabric_text
from twin.hardware.network import Network
from twin.hardware.prices import summary
from twin.hardware.validation import problems
from twin.metrics.measures import NOTHING, numbered
from twin.scenario import MemoryPool, Scenario
from twin.ui import session
from twin.ui.fields import sentence
from twin.ui.imports import draw_machine_upload
from twin.ui.pages.supernode import editor
from twin.ui.pages.supernode.prices import PLANES, Headline, headlines
from twin.ui.show import download, file_name

# A sentence for everything about a machine that cannot work.
cannot_work = lru_cache(maxsize=16)(problems)
totals = lru_cache(maxsize=8)(summary)  # of a fabric, each with its unit in its name
ROUTED = {
    "adaptive": "Rates are for traffic that is balanced over its paths to keep the fullest link "
    "low (adaptive routing).",
    "ecmp": "Rates are for traffic that splits by the capacity of its paths, whatever "
    "else is under way (weighted ECMP).",
    "hashed": "Rates are for flows that are hashed to their paths as a whole, the mean over where "
    "the hash puts them.",
}
ADDED = {
    "adaptive": "An added link comes on top of the paths that the machine has as built: no pair "
    "loses bandwidth by it.",
    "ecmp": "ECMP takes the paths of fewest hops only: an added link that shortens a pair's path "
    "carries all of that pair's traffic, also where the longer paths are wider.",
}
ADDED["hashed"] = ADDED["ecmp"]


def draw_prices(draft: Scenario, fabric: Network) -> None:
    """Draw the deployment's prices on this fabric, and their change since the draft began."""
    preset_machine = session.preset().supernode
    draft_on_preset = draft.model_copy(update={"supernode": preset_machine})
    try:
        preset_prices = headlines(draft_on_preset, editor.fabric_of(preset_machine))
    except HardwareError:
        preset_prices = []
    rate_before = {price.label: price.bytes_per_s for price in preset_prices}
    with st.grid(3, min_column_width=150, gap="small"):
        for price in headlines(draft, fabric):
            _draw_price(price, rate_before.get(price.label))


def _draw_price(price: Headline, bytes_per_s_before: float | None) -> None:
    """Draw one rate, and its change since before the edits."""
    # Always a line below the figure: the picture must not move when the first edit is priced.
    delta, is_changed, rate_text, help_text = "now", False, "cut off", sentence(price.where)
    if price.bytes_per_s is None:
        delta = f"was {_rate_text(bytes_per_s_before)}" if bytes_per_s_before else delta
    else:
        change = price.bytes_per_s / bytes_per_s_before - 1 if bytes_per_s_before else 0.0
        if is_changed := abs(change) >= 5e-5:
            delta = f"{100 * change:+.3g} % of {_rate_text(bytes_per_s_before or 0.0)}"
        elif bytes_per_s_before:
            delta = "unchanged"
        latency_text = f" Latency {1e6 * price.latency_s:.3g} µs." if price.latency_s else ""
        rate_text = _rate_text(price.bytes_per_s)
        help_text = (
            f"A {price.per} gets this, one direction, with no other traffic on the way; the "
            f"slowest one. Full first: {price.where}.{latency_text} The change is against the "
            "machine that this draft began with."
        )
    st.metric(price.label, rate_text, delta, delta_color="normal" if is_changed else "off",
              delta_arrow="auto" if is_changed else "off", help=help_text)  # fmt: skip


def _rate_text(bytes_per_s: float) -> str:
    """A rate in bytes/s as text, in GB/s or TB/s.

    >>> _rate_text(2.15e10), _rate_text(5.24e12)
    ('21.5 GB/s', '5.24 TB/s')
    """
    if bytes_per_s >= 1e12:
        return f"{bytes_per_s / 1e12:,.4g} TB/s"
    return f"{bytes_per_s / 1e9:,.4g} GB/s"


def draw_outcome() -> None:
    """Draw the sentence on the fabric's last change, if any, in red if it was refused."""
    outcome_text, is_refused = editor.take_outcome()
    if outcome_text:
        colour, icon = ("red", "error") if is_refused else ("green", "check")
        st.markdown(f":small[:{colour}[:material/{icon}: {outcome_text}]]")


def draw_totals(net: Network, facts: Facts, draft: Scenario) -> None:
    """Draw counts and capacities of the whole machine, each with its unit."""
    pool = draft.memory_pool
    chip_of_npu = net.chips(draft.supernode.chip)
    dies_by_chip = Counter(chip_of_npu[npu] for npu in net.npu.tolist())
    chips = [(load_chip(facts, name), die_count) for name, die_count in dies_by_chip.items()]
    st.subheader("In all", anchor=False)
    figures, edits = totals(net), net.about["supernode"].edits
    tiles = _chip_tiles(figures, chips, pool, net) | _rate_tiles(figures, bool(edits))
    with st.grid(5, min_column_width=160):
        for name, (value_text, note) in tiles.items():
            st.metric(name, value_text, help=note)
    ub_routing, rdma_routing = net.routing("ub"), net.routing("rdma")
    both_text = f"{PLANES['ub']}: {ROUTED[ub_routing]}  \n{PLANES['rdma']}: {ROUTED[rdma_routing]}"
    st.caption(ROUTED[ub_routing] if ub_routing == rdma_routing else both_text)
    if any(edit.add == "link" for edit in edits):
        st.caption(ADDED[ub_routing])


def _chip_tiles(
    totals: dict[str, float], dies: Sequence[tuple[Chip, int]], pool: MemoryPool, net: Network
) -> dict[str, tuple[str, str]]:
    """Tiles (value, meaning) of the totals of chips by title; dies: number of each chip's."""
    nodes, supernodes = totals["nodes"], totals["supernodes"]
    shared_formats = set.intersection(*(set(chip.flops) for chip, _ in dies))  # that all compute
    peaks = {p: sum(die_count * chip.flops[p] for chip, die_count in dies) for p in shared_formats}
    best_format = max(peaks, key=lambda p: (peaks[p], p))
    hbm_tb = sum(die_count * chip.hbm_bytes_per_die for chip, die_count in dies) / 1e12
    chips_text = " and ".join(f"{chip.title}, {numbered(n, 'die')}" for chip, n in dies)
    nodes_text = numbered(int(nodes), "node")
    supernodes_text = f" in {supernodes} supernodes" if supernodes > 1 else ""
    l1_chips, l2_chips, chip_count = totals["l1_chips"], totals["l2_chips"], totals["switches"]
    l2_per_plane, port_share = totals["l2_chips_per_sub_plane"], totals["l2_port_utilisation"]
    lenders = lending_nodes(net)
    pool_tb = pool.gb_per_node * dram(net, lenders) / 1e3 if pool.enabled else 0.0
    unit = "OPS" if best_format[:3] == "int" else "FLOPS"
    node_text = "a node with NPUs, of others by their CPUs" if np.ptp(net.cpus) else "every node"
    tooltip = f"{pool.gb_per_node:,.4g} GB of {node_text}." if pool_tb else "No blocks are stored."
    if pool_tb and (cut_off := int(np.count_nonzero(net.cpus)) - len(lenders)):
        tooltip += f" {numbered(cut_off, 'node')} without a UB link of a CPU: nothing of these."
    chips_tile = f"{chip_count:,}", "Of every level, scale-up and scale-out."
    if l1_chips + l2_chips == chip_count > 0:
        ports_text = f"{100 * port_share:.0f} % of the L2 ports are used"
        note = f"L1 in the nodes + L2 between them, {l2_per_plane} a sub-plane; {ports_text}."
        chips_tile = f"{l1_chips:,} + {l2_chips:,}", note
    return {
        "NPUs": (f"{totals['npus']:,}", f"{chips_text}, in {nodes_text}{supernodes_text}."),
        "HBM": (f"{hbm_tb:,.1f} TB", "Of all dies."),
        "Memory pool, DRAM": (f"{pool_tb:,.4g} TB" if pool_tb else NOTHING, tooltip),
        f"Peak, {best_format.upper()}": (
            f"{peaks[best_format] / 1e15:,.0f} P{unit}",
            "Dense, of all dies; what operators reach of it is the model's work.",
        ),
        "Switch chips": chips_tile,
    }  # fmt: skip


def _rate_tiles(totals: dict[str, float], is_edited: bool) -> dict[str, tuple[str, str]]:
    """Tiles (value, meaning) of the totals of links by title; is_edited: some are."""
    oversubscription = totals["oversubscription"]
    local_text = "." if oversubscription else ", and none of it leaves the node over UB."
    rdma_tbps, vpc_tbps = (totals[f"{plane}_bytes_per_s"] / 1e12 for plane in ("rdma", "vpc"))
    return {
        "UB of an NPU": (
            f"{totals['npu_bytes_per_s'] / 1e9:,.4g} GB/s",
            "One direction, nominal, its dies together; of kinds that differ the most.",
        ),
        "UB out of the weakest node" if is_edited else "UB out of a node": (
            f"{totals['node_uplink_bytes_per_s'] / 1e9:,.4g} GB/s",
            "One direction, of the weakest node. A node's NPUs can send "
            f"{totals['node_npu_bytes_per_s'] / 1e9:,.4g} GB/s{local_text}",
        ),
        "Oversubscription": (
            f"{oversubscription:.3g} : 1" if oversubscription else NOTHING,
            "What the NPUs of a node can send over what leaves the weakest node over UB; "
            "1 : 1 holds nothing back.",
        ),
        "UB bisection": (
            f"{totals['bisection_bytes_per_s'] / 1e12:,.4g} TB/s",
            "What one half of the nodes can send to the other half, one direction.",
        ),
        "RDMA · VPC": (
            " · ".join(f"{tbps:,.3g} TB/s" if tbps else NOTHING for tbps in (rdma_tbps, vpc_tbps)),
            "All NICs together · all nodes' Qingtian DPUs together, one direction.",
        ),
    }


def draw_files(fabric: Network) -> None:
    """Draw downloads of the fabric, and an upload that replaces the draft's machine."""
    st.markdown("**Take it elsewhere**")
    with st.container(horizontal=True):
        for kind, form in forms().items():
            file = file_name(session.draft().name, f"-fabric.{kind}")
            download(form.title, partial(fabric_text, fabric, kind), file, f"fabric-{kind}")
    st.caption(
        "Every link with its rate and latency, edits included: bytes/s and s in the graphs, which "
        "networkx, Gephi and yEd read, GB/s and ns in the cable list. The box below takes each "
        "back as a machine."
    )
    st.markdown("**Bring one in**")
    st.caption(
        "A cable list begins with the line from,to,GB/s,ns,plane and has a line a cable, as in "
        "die 0.0.0,switch 0,28,200,ub; semicolons or tabs may stand for the commas. Graphs are "
        "read as networkx writes them; an edge has capacity_bytes_per_s, latency_s and plane."
    )
    draw_machine_upload()
