"""What every page shows in the same way: a chart, text that somebody else typed, files to keep."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from twin.ui.charts import Chart

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n")

NO_WIDTH = "\u2060"  # word joiner: nothing to see, and no place to break a line
_MARKS = re.compile(r"[\\`*_\[\]<>$|~#!&]|:(?=\w)|^[-+](?= )")
# Addresses, and names of icons and emoji: all three are looked for after backslashes are gone.
_READ_LATER = re.compile(r"https?(?=:)|www(?=\.)|@(?=\w)|:(?=[a-z+-][\w+/-]*:)", re.IGNORECASE)


_modebar = st.components.v2.component(
    "modebar", js=Path(__file__).with_name("modebar.js").read_text("utf-8")
)


def chart_tools() -> None:
    """Give the bar of every chart on the page SVG and CSV; once a page."""
    with st.container(key="modebar"):
        st.html("<style>.st-key-modebar { display: none }</style>")
        _modebar(key="modebar-tools")


def plot(chart: Chart, key: str) -> None:
    """A chart with its sentence; a bar to zoom and to take it away shows under the pointer."""
    image = {"format": "png", "filename": f"twin-{key}", "scale": 2}
    st.plotly_chart(
        chart.figure, alt=chart.alt, key=key,
        config={"displayModeBar": "hover", "toImageButtonOptions": image,
                "modeBarButtonsToRemove": ["autoScale2d"]},
    )  # fmt: skip


def plain(text: str) -> str:
    """Text of a visitor or a file where Markdown is read: shown as it was typed.

    Addresses and names of icons, which no backslash keeps, are broken by a mark of no width.

    >>> print(plain("50 % *off*"))
    50 % \\*off\\*
    >>> plain(":material/home:")
    ':\\u2060material/home:'
    """
    text = _READ_LATER.sub(lambda begins: begins.group() + NO_WIDTH, text.replace("\n", " "))
    return _MARKS.sub(r"\\\g<0>", text)


def file_name(name: str, ending: str) -> str:
    """A file's name made of what somebody called the thing.

    >>> file_name("Quick start: 2 nodes", ".toml"), file_name("*", "-fabric.json")
    ('quick-start-2-nodes.toml', 'twin-fabric.json')
    """
    return (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "twin") + ending


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV, safe to open in a spreadsheet: text that it would take for a formula is quoted.

    >>> csv_text([("name", "value"), ("=1+1", -2.5)])
    "name,value\\r\\n'=1+1,-2.5\\r\\n"
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(map(_safe, row) for row in rows)
    return out.getvalue()


def _safe(value: Any) -> Any:
    text = str(value) if isinstance(value, str | list | dict) else ""
    return f"'{text}" if text.startswith(FORMULA_SIGNS) else value


def json_text(value: object) -> str:
    """A value as JSON for people to read; NaN and infinity are refused."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
