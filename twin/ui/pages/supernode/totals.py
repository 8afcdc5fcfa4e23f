"""What a machine adds up to, and what one die gets from it beside what was measured."""

from functools import lru_cache
from typing import Any

import streamlit as st

from twin.hardware.chip import Chip, HardwareError
from twin.hardware.fabric import Fabric
from twin.hardware.prices import point_to_point, summary
from twin.metrics.measures import NOTHING
from twin.scenario import MemoryPool
from twin.ui import session

ROUTED = {
    "adaptive": "Rates are for traffic that is balanced over its paths to keep the fullest link "
    "low (adaptive routing).",
    "ecmp": "Rates are for traffic that splits by the capacity of its paths, whatever "
    "else is under way (weighted ECMP).",
}
ADDED = {
    "adaptive": "An added link comes on top of the paths that the machine has as built: no pair "
    "loses bandwidth by it.",
    "ecmp": "ECMP takes the paths of fewest hops only: an added link that shortens a pair's path "
    "carries all of that pair's traffic, also where the longer paths are wider.",
}


@lru_cache(maxsize=8)
def _summary(fabric: Fabric) -> dict[str, float]:
    return summary(fabric)


def in_all(fabric: Fabric, chip: Chip, pool: MemoryPool) -> None:
    """Counts and capacities of the whole machine, each with its unit."""
    st.subheader("In all", anchor=False)
    total, uneven = _summary(fabric), bool(fabric.graph["supernode"].edits)
    with st.grid(5, min_column_width=160):
        for name, (text, says) in (_chips(total, chip, pool) | _rates(total, uneven)).items():
            st.metric(name, text, help=says)
    st.caption(ROUTED[fabric.graph["routing"]])
    if any(edit.add == "link" for edit in fabric.graph["supernode"].edits):
        st.caption(ADDED[fabric.graph["routing"]])


def _chips(total: dict[str, float], chip: Chip, pool: MemoryPool) -> dict[str, tuple[str, str]]:
    """Value and meaning of what the chips add up to."""
    dies, nodes, parts = total["dies"], total["nodes"], total["supernodes"]
    best = max(chip.flops, key=lambda p: (chip.flops[p], p))
    beyond = f" in {parts} supernodes" if parts > 1 else ""
    l1, l2, switches = total["l1_chips"], total["l2_chips"], total["switches"]
    a_plane, ports = total["l2_chips_per_sub_plane"], total["l2_port_utilisation"]
    lent = pool.gb_per_node * nodes / 1e3 if pool.enabled else 0.0
    peak = f"{dies * chip.flops[best] / 1e15:,.0f} P{'OPS' if best[:3] == 'int' else 'FLOPS'}"
    kept = f"{pool.gb_per_node:,.4g} GB of every node." if lent else "No blocks are kept."
    chips = f"{switches:,}", "Of every level, scale-up and scale-out."
    if l1 + l2 == switches > 0:
        says = f"L1 in the nodes + L2 between them, {a_plane} a sub-plane; {ports:.0%} of the L2 "
        chips = f"{l1:,} + {l2:,}", f"{says}ports are used."
    return {
        "NPUs": (f"{total['npus']:,}", f"{chip.title}, {dies:,} dies, in {nodes:,} nodes{beyond}."),
        "HBM": (f"{dies * chip.hbm_bytes_per_die / 1e12:,.1f} TB", "Of all dies."),
        "Memory pool, DRAM": (f"{lent:,.4g} TB" if lent else NOTHING, kept),
        f"Peak, {best.upper()}": (
            peak, "Dense, of all dies; what operators reach of it is the model's work.",
        ),
        "Switch chips": chips,
    }  # fmt: skip


def _rates(total: dict[str, float], uneven: bool) -> dict[str, tuple[str, str]]:
    """Value and meaning of what the links add up to; uneven: some are edited."""
    over = total["oversubscription"]
    leaves = "." if over else ", and none of it leaves the node over UB."
    rdma, vpc = (total[f"{plane}_bytes_per_s"] / 1e12 for plane in ("rdma", "vpc"))
    return {
        "UB of an NPU": (
            f"{total['npu_bytes_per_s'] / 1e9:,.4g} GB/s",
            "One direction, nominal, both dies together.",
        ),
        "UB out of the weakest node" if uneven else "UB out of a node": (
            f"{total['node_uplink_bytes_per_s'] / 1e9:,.4g} GB/s",
            "One direction, of the weakest node. A node's NPUs can send "
            f"{total['node_npu_bytes_per_s'] / 1e9:,.4g} GB/s{leaves}",
        ),
        "Oversubscription": (
            f"{over:.3g} : 1" if over else NOTHING,
            "What the NPUs of a node can send over what leaves the weakest node over UB; "
            "1 : 1 holds nothing back.",
        ),
        "UB bisection": (
            f"{total['bisection_bytes_per_s'] / 1e12:,.4g} TB/s",
            "What one half of the nodes can send to the other half, one direction.",
        ),
        "RDMA · VPC": (
            f"{rdma:,.3g} · {vpc:,.3g} TB/s",
            "All NICs together · all nodes' Qingtian DPUs together, one direction.",
        ),
    }


def measured(fabric: Fabric) -> None:
    """What the first die gets, pair by pair, beside the published table; asked when opened."""
    fold = st.expander(
        "Point to point: this fabric beside the published measurement", key="supernode-measured",
        on_change="rerun",
    )  # fmt: skip
    with fold:
        if not fold.open:
            return
        try:
            rows = _rows(fabric)
        except HardwareError as error:
            st.warning(f"The first die does not reach all it is measured against: {error}.")
            return
        number = st.column_config.NumberColumn
        st.dataframe(
            rows, hide_index=True,
            column_config={name: number(format="%.4g" if "GB" in name else "%.2f")
                           for name in (rows or [{}])[0] if "," in name},
        )  # fmt: skip
        st.caption(
            "Per die, one direction, 512 bytes for the latency. Measured on a CloudMatrix384 with "
            "Ascend 910C (arXiv 2506.12708v2, Table 1): other chips and links have no such table."
        )


def _rows(fabric: Fabric) -> list[dict[str, Any]]:
    rows = []
    for (pair, operation, where), price in point_to_point(fabric).items():
        seen = session.facts().group(f"fabric.measured.{pair}.{operation}.{where}")
        end, home = "die" if pair == "npu_npu" else "CPU", where == "intra_node"
        rows.append(
            {
                "From a die to": f"a {end} of {'its own' if home else 'another'} node",
                "Operation": operation,
                "This fabric, GB/s": price.bytes_per_s / 1e9,
                "Measured, GB/s": seen["bandwidth"].value,
                "This fabric, µs": price.latency_s * 1e6,
                "Measured, µs": seen["first_512_bytes"].value,
            }
        )
    return rows
