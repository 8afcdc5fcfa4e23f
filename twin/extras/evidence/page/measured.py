"""Rates between two places of the draft's fabric next to the published ones."""

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.network import Network
from twin.hardware.prices import point_to_point
from twin.ui import session


def draw_rates(fabric: Network) -> None:
    """Draw an expander with rates and latencies of the first die next to the published ones."""
    expander = st.expander(
        "Point to point: this fabric next to the published measurement", key="supernode-measured",
        on_change="rerun",
    )  # fmt: skip
    with expander:
        if not expander.open:
            return
        try:
            prices = point_to_point(fabric)
        except HardwareError as error:
            st.warning(f"The first die does not reach all it is measured against: {error}.")
            return
        rates = []
        for (pair, operation, place), price in prices.items():
            measured = session.facts().group(f"fabric.measured.{pair}.{operation}.{place}")
            end_word, is_own_node = "die" if pair == "npu_npu" else "CPU", place == "intra_node"
            rates.append({
                "From a die to": f"a {end_word} of {'its own' if is_own_node else 'another'} node",
                "Operation": operation,
                "This fabric, GB/s": price.bytes_per_s / 1e9,
                "Measured, GB/s": measured["bandwidth"].value,
                "This fabric, µs": price.latency_s * 1e6,
                "Measured, µs": measured["first_512_bytes"].value,
            })  # fmt: skip
        first_row = (rates or [{}])[0]
        formats = {name: "%.4g" if "GB" in name else "%.2f" for name in first_row if "," in name}
        number = st.column_config.NumberColumn
        st.dataframe(
            rates, hide_index=True, column_config={n: number(format=f) for n, f in formats.items()}
        )
        st.caption(
            "Per die, one direction, 512 bytes for the latency. Measured on a CloudMatrix384 with "
            "Ascend 910C (arXiv 2506.12708v2, Table 1): other chips and links have no such table."
        )
