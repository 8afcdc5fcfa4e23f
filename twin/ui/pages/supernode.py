"""The machine: its fabric as a matrix that opens into chips, beside the spec it is built from."""

import streamlit as st

from twin.hardware.chip import HardwareError, load_chip
from twin.hardware.fabric import build_fabric
from twin.hardware.placement import place_instances
from twin.hardware.survey import point_to_point, summary
from twin.ui import forms, session
from twin.ui.fabric_view import fabric_matrix
from twin.ui.fields import SUPERNODE
from twin.ui.spec_table import spec_table
from twin.ui.toolbar import header

CHOICES = ("supernode.chip", "supernode.scale_up")
NUMBERS = [path for paths in SUPERNODE.values() for path in paths if path not in CHOICES]

header("Supernode", "The machine: nodes, chips and the three network planes.", "supernode")
picture, spec = st.columns([5, 3], gap="large")
draft, facts = session.draft(), session.facts()

# 1) The spec: two choices and a table of numbers, each with its unit and the preset's value.
with spec:
    forms.group(CHOICES)
    spec_table(NUMBERS, "supernode-table")

# 2) The same machine as a picture, with the instances that the deployment places on it.
with picture:
    try:
        chip = load_chip(facts, draft.supernode.chip)
        fabric = build_fabric(draft.supernode, facts)
    except HardwareError as error:
        st.error(f"{error}.", icon=":material/device_hub:")
        st.stop()
    placed = place_instances(draft, chip.dies_per_npu)
    fabric_matrix(fabric, instances=placed, title="Capacity", key="supernode-matrix")

# 3) What it adds up to.
total = summary(fabric)
st.subheader("In all", anchor=False)
npus, dies, over = draft.supernode.npus, total["dies"], total["oversubscription"]
best = max(chip.flops, key=lambda p: (chip.flops[p], p))
with st.grid(4, min_column_width=160):
    st.metric("NPUs", f"{npus:,}", help=f"{chip.title}, {dies:,} dies, in {total['nodes']} nodes.")
    st.metric("HBM", f"{dies * chip.hbm_bytes_per_die / 1e12:,.1f} TB", help="Of all dies.")
    st.metric(
        f"Peak, {best.upper()}",
        f"{dies * chip.flops[best] / 1e15:,.0f} P{'OPS' if best[:3] == 'int' else 'FLOPS'}",
        help="Dense, of all dies; what operators reach of it is the model's work.",
    )
    st.metric(
        "Switch chips",
        f"{total['l1_chips']:,} + {total['l2_chips']:,}",
        help=f"L1 in the nodes + L2 between them, {total['l2_chips_per_sub_plane']} a sub-plane; "
        f"{total['l2_port_utilisation']:.0%} of the L2 ports are used.",
    )
    st.metric(
        "UB of an NPU",
        f"{total['npu_bytes_per_s'] / 1e9:,.4g} GB/s",
        help="One direction, nominal, both dies together.",
    )
    st.metric(
        "UB out of a node",
        f"{total['node_uplink_bytes_per_s'] / 1e9:,.4g} GB/s",
        help=f"One direction. Its NPUs can send {total['node_npu_bytes_per_s'] / 1e9:,.4g} GB/s: "
        + (f"{over:.3g} to 1." if over else "none of it leaves the node over UB."),
    )
    st.metric(
        "UB bisection",
        f"{total['bisection_bytes_per_s'] / 1e12:,.4g} TB/s",
        help="What one half of the nodes can send to the other half, one direction.",
    )
    st.metric(
        "RDMA · VPC",
        f"{total['rdma_bytes_per_s'] / 1e12:,.3g} · {total['vpc_bytes_per_s'] / 1e12:,.3g} TB/s",
        help="All NICs together · all nodes' Qingtian DPUs together, one direction.",
    )

# 4) What one die gets from it, beside what was measured on the real machine.
with st.expander("Point to point: this fabric beside the published measurement"):
    rows = []
    for (pair, operation, where), price in point_to_point(fabric).items():
        seen = facts.group(f"fabric.measured.{pair}.{operation}.{where}")
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
    formats = {
        name: "%.4g" if "GB" in name else "%.2f" for name in (rows or [{}])[0] if "," in name
    }
    st.dataframe(
        rows,
        hide_index=True,
        column_config={n: st.column_config.NumberColumn(format=f) for n, f in formats.items()},
    )
    st.caption(
        "Per die, one direction, 512 bytes for the latency. Measured on a CloudMatrix384 with "
        "Ascend 910C (arXiv 2506.12708v2, Table 1): other chips and links have no such table."
    )
