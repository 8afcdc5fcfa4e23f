"""The whole fabric as a file for other tools, and in again as the draft's machine with edits."""

from functools import partial

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from twin.extras.fabric_files.exchange import FABRIC, UNNAMED, write_fabric
from twin.hardware.fabric import Fabric
from twin.lab.runs.apart import Refused, apart
from twin.ui import session, words
from twin.ui.fields import sentence
from twin.ui.pages.supernode import editor
from twin.ui.show import download, file_name, plain

READ = "fabric-file-read"  # session state: of the file read last, and what is wrong with it
FORMATS = {"json": "Node-link JSON", "graphml": "GraphML"}


def downloads(fabric: Fabric) -> None:
    """Downloads of the fabric in both forms."""
    st.markdown("**Take it elsewhere**")
    with st.container(horizontal=True):
        for kind, name in FORMATS.items():
            file = file_name(session.draft().name, f"-fabric.{kind}")
            download(name, partial(write_fabric, fabric, kind), file, f"fabric-{kind}")
    st.caption(
        "Every element and link with its capacity in bytes/s and its latency in s, edits included. "
        "networkx, Gephi and yEd read them."
    )


def take_file(file: UploadedFile) -> bool:
    """Make an uploaded fabric the draft's machine once, or show its faults; False: it is no
    fabric."""
    read, faults = st.session_state.get(READ, ("", None))
    if read != file.file_id:
        faults = None
        if file.getvalue()[:99].lstrip()[:1] in (b"{", b"<"):
            faults = take_text(file.getvalue(), file.name)
            faults = None if faults == [sentence(UNNAMED)] else faults
        st.session_state[READ] = file.file_id, faults
        if faults == []:
            st.rerun()
    for fault in faults or ():
        st.markdown(f":small[:red[:material/error: {plain(fault)}]]")
    return faults is not None


def take_text(raw: bytes, name: str) -> list[str]:
    """Read a fabric into the draft, in a separate process; returns a sentence for every fault."""
    try:
        supernode = apart(FABRIC, raw, name).supernode
    except Refused as error:
        return [sentence(fault) for fault in str(error).split("\n")]
    if not editor.replace_machine(supernode):
        return [editor.outcome()[0]]
    count = len(supernode.edits)
    count_text = f"{count:,} edit{'s' if count != 1 else ''}" if count else "no edits"
    editor.say(f"The machine of the file: {words.npus(supernode.npus)}, {count_text}.")
    return []
