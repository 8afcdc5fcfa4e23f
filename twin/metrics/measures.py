"""How numbers are shown: three figures with a unit that suits their size."""

import math
from typing import Literal

from twin.scenario import words

Kind = Literal["time", "share", "count", "rate", "bytes"]
NOTHING = "–"
numbered = words.numbered


def amount(value: float | None, kind: Kind, unit: str = "") -> str:
    """A number as text with its unit: three figures, thousands separated; a dash for none.

    >>> amount(0.0841, "time"), amount(1942.7, "rate", "tokens/s per NPU"), amount(0.5634, "share")
    ('84.1 ms', '1,943 tokens/s per NPU', '56.3 %')
    >>> amount(1, "count", "changes"), amount(0, "count", "changes")
    ('1 change', '0 changes')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if kind == "time":
        return seconds(value)
    if kind == "share":
        return f"{three_figures(100 * value)} %"
    if kind == "bytes":
        return _bytes_text(value, unit or "B")
    digits = f"{value:,.0f}" if kind == "count" and value == round(value) else three_figures(value)
    return f"{digits} {unit.removesuffix('s') if digits == '1' else unit}".rstrip()


def seconds(value: float) -> str:
    """A duration as text, in the unit that suits its size.

    >>> seconds(0), seconds(2.6e-5), seconds(0.0499), seconds(1.234), seconds(7200)
    ('0 s', '26.0 µs', '49.9 ms', '1.23 s', '7,200 s')
    """
    magnitude_s = abs(value)
    if magnitude_s == 0 or magnitude_s >= 0.9995:  # what would round to 1,000 ms is 1.00 s
        return f"{three_figures(value)} s"
    if magnitude_s >= 0.9995e-3:
        return f"{three_figures(value * 1e3)} ms"
    return f"{three_figures(value * 1e6)} µs"


def three_figures(value: float) -> str:
    """A number as text: three significant figures (four below 10,000), no exponent; zero is '0'.

    >>> three_figures(1942.7), three_figures(153_733.0)
    ('1,943', '154,000')
    """
    magnitude = abs(value)
    if magnitude == 0:
        return "0"
    if magnitude >= 9_999.5:
        return f"{round(value, 2 - math.floor(math.log10(magnitude))):,.0f}"
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    if magnitude >= 0.01:
        return f"{value:.2f}"
    return f"{value:.2g}" if magnitude >= 1e-4 else "≈ 0"


def _bytes_text(value: float, unit: str) -> str:
    """A number of bytes, or of another unit, as text with a decimal prefix."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{three_figures(value / factor)} {prefix}{unit}"
    return f"{three_figures(value)} {unit}"
