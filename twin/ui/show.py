"""What every page shows alike: frame, charts, small pictures, text of other people, files."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from twin.metrics.measures import seconds
from twin.model.timeline import Timeline
from twin.ui.charts import Chart, layer, operator_times, pace_sentence

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n")

MIME = {  # by the ending of a file's name
    "csv": "text/csv", "html": "text/html", "json": "application/json", "gz": "application/gzip",
    "parquet": "application/vnd.apache.parquet", "toml": "application/toml",
    "tar": "application/x-tar", "graphml": "application/graphml+xml",
}  # fmt: skip
NO_WIDTH = "\u2060"  # word joiner: nothing to see, and no place to break a line
_MARKS = re.compile(r"[\\`*_\[\]<>$|~#!&]|:(?=\w)|^[-+](?= )")
# Addresses, and names of icons and emoji: all three are looked for after backslashes are gone.
_READ_LATER = re.compile(r"https?(?=:)|www(?=\.)|@(?=\w)|:(?=[a-z+-][\w+/-]*:)", re.IGNORECASE)

_HERE = Path(__file__).parent
_JS = {n: (_HERE / f"{n}.js").read_text("utf-8") for n in ("modebar", "drawer", "drawn")}
_modebar, _drawer = (st.components.v2.component(n, js=_JS[n]) for n in ("modebar", "drawer"))
_drawn = st.components.v2.component("drawn", html='<div class="drawn"></div>', js=_JS["drawn"],
                                    css=(_HERE / "drawn.css").read_text("utf-8"))  # fmt: skip


def draw_frame(page: str, search: tuple[int, str] = (0, "")) -> None:
    """Draw what all pages have: styles, tools of charts, the drawer of phones. search: (number of
    searches for a field so far, key of the widget that was found)."""
    st.html(_HERE / "page.css")
    search_count, key = search
    css_class = f"st-key-{re.sub(r'[^a-zA-Z0-9_-]', '-', key)}"
    with st.container(key="drawer"):
        _drawer(data={"page": page, "times": search_count, "found": css_class}, key="drawer-page")
        _modebar(key="modebar-tools")


def draw_markup(markup: str, key: str) -> None:
    """Draw HTML made by the twin, replaced in place; all text in it must be escaped."""
    _drawn(data={"markup": markup}, key=key)


def plot(chart: Chart, key: str) -> None:
    """Draw a chart and its caption; at the pointer a bar offers zoom and downloads."""
    image_options = {"format": "png", "filename": f"twin-{key}", "scale": 2}
    st.plotly_chart(
        chart.figure, alt=chart.alt, key=key,
        config={"displayModeBar": "hover", "toImageButtonOptions": image_options,
                "modeBarButtonsToRemove": ["autoScale2d"]},
    )  # fmt: skip
    if chart.reads:
        st.caption(chart.reads)


def draw_pass_times(
    plan: Timeline | None, rows: Sequence[tuple[str, str, float]], took_s: float, pass_name: str,
    key: str = "", columns: int = 1,
) -> None:  # fmt: skip
    """Draw charts of a mean iteration or batch (`pass_name`) of `took_s` seconds: one layer on both
    streams, if `plan` has it, and the seconds of each operator. rows: (stream, operator, busy
    seconds); key: end of the charts' keys; columns: of the page, side by side."""
    st.markdown(pace_sentence(plan, rows))
    containers = st.columns(columns, gap="large") if plan else [st.container()]
    with containers[0]:
        if plan is not None:
            st.markdown(f"**One of {plan.layers} layers, on both streams**")
            layer_s = took_s * (plan.end - plan.begin) / plan.layers
            plot(layer(plan, layer_s), f"layer{key}")
    with containers[-1]:
        if plan is not None:
            st.markdown(f"**At work in the whole {pass_name}**")
        plot(operator_times(rows, pass_name), f"operators{key}")


def plot_all(pictures: Iterable[tuple[str, Chart, str]]) -> None:
    """Draw charts in two columns; a caption of several charts is drawn once, below. pictures:
    (title, chart, key of the widget)."""
    columns, chart_rows = st.columns(2, gap="large"), list(pictures)
    caption_counts = Counter(chart.reads for _, chart, _ in chart_rows)
    for number, (title, chart, key) in enumerate(chart_rows):
        with columns[number % 2]:
            st.subheader(title, anchor=False)
            plot(chart if caption_counts[chart.reads] == 1 else chart._replace(reads=""), key)
    for caption in (text for text, uses in caption_counts.items() if text and uses > 1):
        st.caption(caption)


def draw_choice(label: str, options: Iterable[str], key: str, **look: Any) -> str:
    """Draw a choice among options in a row; returns the chosen one, initially the first. look:
    further arguments of Streamlit's widget."""
    names = list(options)
    return st.segmented_control(
        label, names, default=names[0], required=True, label_visibility="collapsed", key=key, **look
    )


def slo_margin(value_s: float, limit_s: float) -> dict[str, Any]:
    """Arguments of `st.metric` for a time in s, with its distance from the SLO (limit_s) below."""
    excess_s = value_s - limit_s
    side_word, colour = ("over", "inverse") if excess_s > 0 else ("under", "normal")
    delta_text = f"{seconds(abs(excess_s))} {side_word} the SLO of {seconds(limit_s)}"
    return {"delta": delta_text, "delta_color": colour, "delta_arrow": "off"}


def draw_download(
    label: str, make: Callable[[], str | bytes], name: str, key: str, **look: Any
) -> None:
    """Draw a button that downloads a file called `name`. make: returns the file's content. look:
    further arguments of the button."""
    options = {"icon": ":material/download:", "on_click": "ignore", "key": key}
    st.download_button(label, make, name, MIME[name.rpartition(".")[2]], **options | look)


def is_dark() -> bool:
    """Whether the visitor's page is dark."""
    return st.context.theme.type == "dark"


def plain(text: str) -> str:
    """Text of a visitor or a file, escaped for Markdown so that it is shown as it was typed.

    Addresses and names of icons cannot be escaped: a character of no width is put into them.

    >>> print(plain("50 % *off*"))
    50 % \\*off\\*
    >>> plain(":material/home:")
    ':\\u2060material/home:'
    """
    text = _READ_LATER.sub(lambda begins: begins.group() + NO_WIDTH, text.replace("\n", " "))
    return _MARKS.sub(r"\\\g<0>", text)


def file_name(name: str, ending: str = "", fallback: str = "twin") -> str:
    """A file's name made of a title; fallback: for titles without letters and digits.

    >>> file_name("Quick start: 2 nodes", ".toml"), file_name("*", "-fabric.json")
    ('quick-start-2-nodes.toml', 'twin-fabric.json')
    """
    return (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or fallback) + ending


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV, safe to open in a spreadsheet: text that it would take for a formula is quoted.

    >>> csv_text([("name", "value"), ("=1+1", -2.5)])
    "name,value\\r\\n'=1+1,-2.5\\r\\n"
    """
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerows(map(_safe_cell, row) for row in rows)
    return buffer.getvalue()


def table_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of a table (at least one) as CSV; its first line has the names of the columns.

    >>> table_csv([{"name": "a", "value": 1}, {"name": "b", "value": 2}])
    'name,value\\r\\na,1\\r\\nb,2\\r\\n'
    """
    return csv_text([list(rows[0]), *(list(row.values()) for row in rows)])


def _safe_cell(value: Any) -> Any:
    """A value for a CSV; text that a spreadsheet would take for a formula gets a quote in front."""
    cell_text = str(value) if isinstance(value, str | list | dict) else ""
    return f"'{cell_text}" if cell_text.startswith(FORMULA_SIGNS) else value


def json_text(value: object) -> str:
    """A value as JSON for people to read; NaN and infinity are refused."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
