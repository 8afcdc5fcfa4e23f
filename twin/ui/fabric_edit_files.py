"""The whole fabric as a file: node-link JSON and GraphML, out and in again."""

from __future__ import annotations

import streamlit as st

from twin.hardware.fabric import Fabric


def files(fabric: Fabric) -> None:
    """Downloads of the fabric, and an upload that replaces the draft's machine."""
    st.info(str(fabric))
