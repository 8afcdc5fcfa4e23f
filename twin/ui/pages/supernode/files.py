"""Files of machines: what extras write for other tools, and a box for a machine from elsewhere."""

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from twin.hardware.fabric import Fabric
from twin.hooks import Section, found
from twin.ui.imports import machine_upload


def files(fabric: Fabric) -> None:
    """Downloads of the fabric, and an upload that replaces the draft's machine."""
    for part in found(Section, "supernode.downloads").values():
        part.load()(fabric)
    st.markdown("**Bring one in**")
    st.caption(
        "A cable list begins with the line from,to,GB/s,ns,plane and has a line a cable, as in "
        "die 0.0.0,switch 0,28,200,ub. Graphs are read as networkx writes them."
    )
    machine_upload(_taken)


def _taken(file: UploadedFile) -> bool:
    """Whether an extra took the file; else it is read as a machine."""
    return any(part.load()(file) for part in found(Section, "supernode.upload").values())
