"""An HTML file with tables and SVG charts, without script; a tree, so text is never markup."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

from twin.metrics.measures import three_figures

Part = Element | str
Point = tuple[float, float]

WIDE, HIGH = 520.0, 300.0  # of a chart, in its own units
LEFT, RIGHT, TOP, BOTTOM = 52.0, 24.0, 12.0, 44.0
TICKS = 5
STYLE = Path(__file__).with_suffix(".css").read_text("utf-8").strip()


def tag(name: str, /, *contents: Part, cls: str = "", **attributes: str | float) -> Element:
    """An HTML or SVG element of class `cls` with attributes (`_` means `-`) and contents."""
    element = Element(name, {"class": cls} if cls else {})
    for field, value in attributes.items():
        element.set(field.replace("_", "-"), value if isinstance(value, str) else f"{value:.6g}")
    for content in contents:
        if isinstance(content, Element):
            element.append(content)
        elif len(element):
            element[-1].tail = (element[-1].tail or "") + content
        else:
            element.text = (element.text or "") + content
    return element


def page(title: str, *body: Part) -> str:
    """The text of a whole HTML file with this title and body."""
    head = tag(
        "head", tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        # Nothing is loaded and nothing runs, whatever came into it.
        tag("meta", **{"http-equiv": "Content-Security-Policy",
                       "content": "default-src 'none'; style-src 'unsafe-inline'"}),
        tag("title", title), tag("style", STYLE),
    )  # fmt: skip
    document = tag("html", head, tag("body", tag("h1", title), *body), lang="en")
    return "<!doctype html>\n" + tostring(document, encoding="unicode", method="html") + "\n"


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Part]], numbers: Sequence[int] = (),
    texts: Sequence[int] = (),
) -> Part:  # fmt: skip
    """An HTML table that scrolls if it is too wide; numbers, texts: indices of columns with numbers
    and with sentences."""

    def cell(tag_name: str, k: int, part: Part) -> Element:
        """HTML element ("td" or "th") of a cell of column k, in the style of the column's kind."""
        return tag(tag_name, part, cls="n" if k in numbers else "t" if k in texts else "")

    body_rows = [
        tag("tr", *(cell("td", k, content) for k, content in enumerate(row))) for row in rows
    ]
    head_row = tag("tr", *(cell("th", k, head) for k, head in enumerate(heads)))
    return tag("div", tag("table", tag("thead", head_row), tag("tbody", *body_rows)), cls="scroll")


def tiles(figures: Iterable[tuple[str, str, str]]) -> Part:
    """An HTML block of figures in large type; figures: (label, value as text, text below it)."""
    return tag(
        "div",
        *(tag("div", tag("span", label, cls="soft"), tag("b", value), tag("span", note, cls="soft"))
          for label, value, note in figures), cls="tiles",
    )  # fmt: skip


def bars(rows: Sequence[tuple[str, float, str]]) -> Part:
    """An HTML table with a bar as long as the value of each row; rows: (label, value, its text)."""
    longest_value = max((value for _, value, _ in rows), default=0.0) or 1.0
    table_rows = [
        tag("tr", tag("td", label), tag("td", value_text, cls="n"),
            tag("td", tag("div", cls="bar",
                          style=f"width:{100 * max(value, 0.0) / longest_value:.1f}%"), cls="wide"))
        for label, value, value_text in rows
    ]  # fmt: skip
    return tag("div", tag("table", tag("tbody", *table_rows)), cls="scroll")


def fold(summary: str, *contents: Part) -> Part:
    """An HTML section with the title `summary`, whose contents show once it is clicked."""
    return tag("details", tag("summary", summary), *contents)


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a chart: joined by a line, or marked, with a label and a hover text each."""

    name: str
    points: Sequence[Point]
    colour: int = 0  # 0 to 3, which the style has
    joined: bool = True
    marked: bool = False
    labels: Sequence[str] = ()
    texts: Sequence[str] = ()


def plot(
    title: str, series: Sequence[Series], x_title: str, y_title: str, *, limit: float | None = None,
    y_most: float | None = None,
) -> Part:  # fmt: skip
    """An SVG chart with a title and a legend; limit: the x at which a line is drawn (None: no
    line); y_most: end of the y axis, by default the largest y."""
    curves = [curve for curve in series if curve.points]
    if not curves:
        return tag("figure", tag("p", f"{title}: nothing to draw.", cls="soft"))
    points = [point for curve in curves for point in curve.points]
    x_values = [x for x, _ in points] + ([limit] if limit is not None else [])
    y_values = [y for _, y in points]
    x_ticks, y_ticks = ticks(min(x_values), max(x_values)), ticks(0.0, y_most or max(y_values))
    x_low, x_high = min(x_ticks[0], *x_values), max(x_ticks[-1], *x_values)
    y_high = max(y_ticks[-1], y_most or max(y_values))

    def place_of(px: float, py: float) -> Point:
        """Place on the drawing, in its own units, of the point (px, py) of the chart."""
        width, height = WIDE - LEFT - RIGHT, HIGH - TOP - BOTTOM
        return LEFT + width * (px - x_low) / (x_high - x_low), TOP + height * (1.0 - py / y_high)

    shapes: list[Part] = []
    for tick in y_ticks:  # grid lines and numbers of y, numbers of x, and the title of x
        axis_x, tick_y = place_of(x_ticks[0], tick)
        shapes.append(tag("line", cls="grid", x1=axis_x, y1=tick_y, x2=WIDE - RIGHT, y2=tick_y))
        shapes.append(tag("text", _tick_text(tick), x=axis_x - 6, y=tick_y + 4, text_anchor="end"))
    for tick in x_ticks:
        tick_x, axis_y = place_of(tick, 0.0)
        shapes.append(tag("text", _tick_text(tick), x=tick_x, y=axis_y + 17, text_anchor="middle"))
    middle_x = (LEFT + WIDE - RIGHT) / 2
    shapes.append(tag("text", x_title, x=middle_x, y=HIGH - 6, text_anchor="middle"))
    if limit is not None:
        (limit_x, bottom_y), (_, top_y) = place_of(limit, 0.0), place_of(limit, y_high)
        shapes.append(tag("line", cls="limit", x1=limit_x, y1=bottom_y, x2=limit_x, y2=top_y))
    for curve in curves:
        shapes += _series_elements(curve, [place_of(*point) for point in curve.points])
    drawing = tag("svg", tag("title", title), *shapes, viewBox=f"0 0 {WIDE:g} {HIGH:g}", role="img")
    legend = [tag("span", tag("span", cls=f"key k{curve.colour}"), curve.name, cls="whole")
           for curve in curves if curve.name]  # fmt: skip
    legend += [tag("span", " – – limit", cls="bad whole")] if limit is not None else []
    return tag("figure", tag("figcaption", tag("b", f"{title} ({y_title})"), " ", *legend), drawing)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about `TICKS` of them.

    >>> ticks(0.0, 930.0), ticks(3.1, 4.2)
    ([0.0, 250.0, 500.0, 750.0, 1000.0], [3.0, 3.25, 3.5, 3.75, 4.0, 4.25])"""
    span = (high - low) or abs(high) or 1.0
    scale = 10.0 ** math.floor(math.log10(span / (TICKS - 1)))
    steps = [factor * scale for factor in (1.0, 2.0, 2.5, 5.0, 10.0)]
    step = next(step for step in steps if step * (TICKS - 0.5) >= span)
    first_step, last_step = math.floor(low / step + 1e-9), math.ceil((low + span) / step - 1e-9)
    return [k * step for k in range(first_step, max(last_step, first_step + 1) + 1)]


def _series_elements(series: Series, places: Sequence[Point]) -> Iterable[Part]:
    """Yield a series as SVG: a line, points, or both; places: (x, y) of its points in the SVG."""
    if series.joined:
        yield tag("polyline", cls=f"s{series.colour}",
                  points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places))  # fmt: skip
    for index, (x, y) in enumerate(places if series.marked else ()):
        hover_text = series.texts[index] if series.texts else ""
        yield tag("circle", tag("title", hover_text), cls=f"f{series.colour}", cx=x, cy=y, r=4.5)
        if series.labels and series.labels[index]:
            yield tag("text", series.labels[index], cls="rank", x=x, y=y - 8, text_anchor="middle")


def _tick_text(value: float) -> str:
    """The text of a number on an axis, shortened: 12.5k for 12,500."""
    for threshold, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= threshold:
            return f"{value / (1e3 if suffix == 'k' else threshold):g}{suffix}"
    return f"{value:g}" if abs(value) >= 1e-2 or not value else three_figures(value)
