"""Launch files, below the pools of the Deployment page."""

import io
import tarfile
from functools import partial

import streamlit as st

from twin.extras.launch.engines import ENGINES, Launch, launch_files
from twin.facts import FactError
from twin.scenario import Scenario
from twin.ui import session
from twin.ui.show import draw_choice, draw_download, plain


def draw_launch_files(draft: Scenario) -> None:
    """Draw a switch, and behind it the files that start this deployment and a start check."""
    if not st.toggle("Launch files of this deployment", key="launch-files"):
        return
    engine = draw_choice("Engine", ENGINES, "launch-engine")
    try:
        launch = launch_files(draft, session.facts(), engine)
    except (ValueError, FactError) as refusal:
        st.warning(plain(str(refusal)))
        return
    for name, file_text in launch.files.items():
        st.caption(name)
        st.code(
            file_text, "json" if name.endswith(".json") else "bash", wrap_lines=True, height=320
        )
    draw_download(
        "All files", partial(tar_bytes, launch), f"launch-{engine}.tar", "launch-download"
    )
    for title, sentences in (("Start check", launch.checks), ("Not expressed", launch.left_out)):
        st.markdown(f"**{title}**")
        st.markdown("\n".join(f"- {plain(sentence)}" for sentence in sentences))


def tar_bytes(launch: Launch) -> bytes:
    """Bytes of a tar archive of the launch files; the same for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file_name, file_text in launch.files.items():
            member, contents = tarfile.TarInfo(file_name), file_text.encode()
            member.size, member.mode = len(contents), 0o755
            archive.addfile(member, io.BytesIO(contents))
    return buffer.getvalue()
