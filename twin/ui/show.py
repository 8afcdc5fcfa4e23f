"""What every page shows in the same way: a chart, and text that somebody else typed."""

from __future__ import annotations

import re

import streamlit as st

from twin.ui.charts import Chart


def plot(chart: Chart, key: str) -> None:
    """A chart with its sentence, without the toolbar that covers it."""
    st.plotly_chart(chart.figure, alt=chart.alt, key=key, config={"displayModeBar": False})


def plain(text: str) -> str:
    """Text of a visitor or a file where Markdown is read: shown as it was typed.

    >>> print(plain("50 % *off*"))
    50 % \\*off\\*
    """
    return "".join(f"\\{c}" if c in "\\`*_[]<>$:|~#" else c for c in text.replace("\n", " "))


def file_name(name: str, ending: str) -> str:
    """A file's name made of what somebody called the thing.

    >>> file_name("Quick start: 2 nodes", ".toml"), file_name("*", "-fabric.json")
    ('quick-start-2-nodes.toml', 'twin-fabric.json')
    """
    return (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "twin") + ending
