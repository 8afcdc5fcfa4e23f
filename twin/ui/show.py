"""What every page shows in the same way: a chart, and text that somebody else typed."""

from __future__ import annotations

import re

import streamlit as st

from twin.ui.charts import Chart

NO_WIDTH = "\u2060"  # word joiner: nothing to see, and no place to break a line
_MARKS = re.compile(r"[\\`*_\[\]<>$|~#!&]|:(?=\w)|^[-+](?= )")
_ADDRESS = re.compile(r"https?(?=:)|www(?=\.)|@(?=\w)", re.IGNORECASE)


def plot(chart: Chart, key: str) -> None:
    """A chart with its sentence, without the toolbar that covers it."""
    st.plotly_chart(chart.figure, alt=chart.alt, key=key, config={"displayModeBar": False})


def plain(text: str) -> str:
    """Text of a visitor or a file where Markdown is read: shown as it was typed.

    Addresses, which Markdown turns into links by itself, are broken by a mark of no width.

    >>> print(plain("50 % *off*"))
    50 % \\*off\\*
    """
    text = _ADDRESS.sub(lambda begins: begins.group() + NO_WIDTH, text.replace("\n", " "))
    return _MARKS.sub(r"\\\g<0>", text)


def file_name(name: str, ending: str) -> str:
    """A file's name made of what somebody called the thing.

    >>> file_name("Quick start: 2 nodes", ".toml"), file_name("*", "-fabric.json")
    ('quick-start-2-nodes.toml', 'twin-fabric.json')
    """
    return (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "twin") + ending
