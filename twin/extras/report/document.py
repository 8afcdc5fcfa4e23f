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


def tag(name: str, /, *inside: Part, cls: str = "", **attributes: str | float) -> Element:
    """An element with attributes and contents; `_` in a name of an attribute stands for `-`."""
    element = Element(name, {"class": cls} if cls else {})
    for key, value in attributes.items():
        element.set(key.replace("_", "-"), value if isinstance(value, str) else f"{value:.6g}")
    for part in inside:
        if isinstance(part, Element):
            element.append(part)
        elif len(element):
            element[-1].tail = (element[-1].tail or "") + part
        else:
            element.text = (element.text or "") + part
    return element


def page(title: str, *body: Part) -> str:
    """The whole HTML file."""
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
    heads: Sequence[str], rows: Iterable[Sequence[Part]], right: Sequence[int] = (),
    wide: Sequence[int] = (),
) -> Part:  # fmt: skip
    """A table that scrolls if it is too wide; right: columns of numbers; wide: of sentences."""

    def cell(kind: str, k: int, part: Part) -> Element:
        """A cell of column k, of the class for numbers or sentences where the column is one of
        them."""
        return tag(kind, part, cls="n" if k in right else "t" if k in wide else "")

    body = [tag("tr", *(cell("td", k, part) for k, part in enumerate(row))) for row in rows]
    head_row = tag("tr", *(cell("th", k, head) for k, head in enumerate(heads)))
    return tag("div", tag("table", tag("thead", head_row), tag("tbody", *body)), cls="scroll")


def tiles(pairs: Iterable[tuple[str, str, str]]) -> Part:
    """Figures in large type: (label, value, text below it)."""
    return tag(
        "div",
        *(tag("div", tag("span", label, cls="soft"), tag("b", value), tag("span", more, cls="soft"))
          for label, value, more in pairs), cls="tiles",
    )  # fmt: skip


def bars(rows: Sequence[tuple[str, float, str]]) -> Part:
    """Shares as bars: (label, value, value in words), relative to the largest."""
    most = max((value for _, value, _ in rows), default=0.0) or 1.0
    body = [
        tag("tr", tag("td", label), tag("td", value_text, cls="n"),
            tag("td", tag("div", cls="bar", style=f"width:{100 * max(value, 0.0) / most:.1f}%"),
                cls="wide"))
        for label, value, value_text in rows
    ]  # fmt: skip
    return tag("div", tag("table", tag("tbody", *body)), cls="scroll")


def folded(summary: str, *inside: Part) -> Part:
    """A section that is closed until it is clicked."""
    return tag("details", tag("summary", summary), *inside)


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a chart by x: connected, or marked, each with a number and a text."""

    name: str
    points: Sequence[Point]
    colour: int = 0  # 0 to 3, which the style has
    joined: bool = True
    marked: bool = False
    labels: Sequence[str] = ()
    texts: Sequence[str] = ()


def plot(
    title: str, series: Sequence[Series], x: str, y: str, *, limit: float | None = None,
    y_most: float | None = None,
) -> Part:  # fmt: skip
    """A chart with its title and key; limit: an x drawn as a line."""
    with_points = [s for s in series if s.points]
    if not with_points:
        return tag("figure", tag("p", f"{title}: nothing to draw.", cls="soft"))
    xs = [p[0] for s in with_points for p in s.points] + ([limit] if limit is not None else [])
    ys = [p[1] for s in with_points for p in s.points]
    xticks, yticks = ticks(min(xs), max(xs)), ticks(0.0, y_most or max(ys))
    x0, x1 = min(xticks[0], *xs), max(xticks[-1], *xs)
    y1 = max(yticks[-1], y_most or max(ys))

    def at(px: float, py: float) -> Point:
        """Place on the drawing of a point of the chart."""
        right, up = WIDE - LEFT - RIGHT, HIGH - TOP - BOTTOM
        return LEFT + right * (px - x0) / (x1 - x0), TOP + up * (1.0 - py / y1)

    drawing: list[Part] = []
    for value in yticks:  # grid lines and numbers of y, numbers of x, and the title of x
        (a, b), (c, d) = at(xticks[0], value), (WIDE - RIGHT, at(xticks[0], value)[1])
        drawing.append(tag("line", cls="grid", x1=a, y1=b, x2=c, y2=d))
        drawing.append(tag("text", _figure(value), x=a - 6, y=b + 4, text_anchor="end"))
    for value in xticks:
        a, b = at(value, 0.0)
        drawing.append(tag("text", _figure(value), x=a, y=b + 17, text_anchor="middle"))
    middle = (LEFT + WIDE - RIGHT) / 2
    drawing.append(tag("text", x, x=middle, y=HIGH - 6, text_anchor="middle"))
    if limit is not None:
        (a, b), (c, d) = at(limit, 0.0), at(limit, y1)
        drawing.append(tag("line", cls="limit", x1=a, y1=b, x2=c, y2=d))
    for s in with_points:
        drawing += _drawn(s, [at(*p) for p in s.points])
    svg = tag("svg", tag("title", title), *drawing, viewBox=f"0 0 {WIDE:g} {HIGH:g}", role="img")
    key = [tag("span", tag("span", cls=f"key k{s.colour}"), s.name, cls="whole")
           for s in with_points if s.name]  # fmt: skip
    key += [tag("span", " – – limit", cls="bad whole")] if limit is not None else []
    return tag("figure", tag("figcaption", tag("b", f"{title} ({y})"), " ", *key), svg)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about `TICKS` of them.

    >>> ticks(0.0, 930.0), ticks(3.1, 4.2)
    ([0.0, 250.0, 500.0, 750.0, 1000.0], [3.0, 3.25, 3.5, 3.75, 4.0, 4.25])"""
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / (TICKS - 1)))
    step = next(s * power for s in (1.0, 2.0, 2.5, 5.0, 10.0) if s * power * (TICKS - 0.5) >= span)
    first, last = math.floor(low / step + 1e-9), math.ceil((low + span) / step - 1e-9)
    return [k * step for k in range(first, max(last, first + 1) + 1)]


def _drawn(s: Series, places: Sequence[Point]) -> Iterable[Part]:
    """A series as a line, as points, or both; places: of its points on the drawing."""
    if s.joined:
        yield tag("polyline", cls=f"s{s.colour}",
                  points=" ".join(f"{a:.1f},{b:.1f}" for a, b in places))  # fmt: skip
    for k, (a, b) in enumerate(places if s.marked else ()):
        text = s.texts[k] if s.texts else ""
        yield tag("circle", tag("title", text), cls=f"f{s.colour}", cx=a, cy=b, r=4.5)
        if s.labels and s.labels[k]:
            yield tag("text", s.labels[k], cls="rank", x=a, y=b - 8, text_anchor="middle")


def _figure(value: float) -> str:
    """A number of an axis, short: 12,500 as 12.5k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    return f"{value:g}" if abs(value) >= 1e-2 or not value else three_figures(value)
