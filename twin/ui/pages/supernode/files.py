"""Files of machines: what extras write for other tools, and a box for a machine from elsewhere."""

import streamlit as st

from twin.hardware.fabric import Fabric
from twin.hooks import drawn
from twin.ui.imports import machine_upload


def files(fabric: Fabric) -> None:
    """Downloads of the fabric, and an upload that replaces the draft's machine."""
    drawn("supernode.downloads", fabric)
    st.markdown("**Bring one in**")
    st.caption(
        "A cable list begins with the line from,to,GB/s,ns,plane and has a line a cable, as in "
        "die 0.0.0,switch 0,28,200,ub. Graphs are read as networkx writes them."
    )
    # An extra may take the file; else it is read as a machine.
    machine_upload(lambda file: any(drawn("supernode.upload", file)))
