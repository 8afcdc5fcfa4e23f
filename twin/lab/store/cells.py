"""Types of columns, checked in archives and at every read; an invalid value reads as empty, and the
seal over the row reports it."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import JSON, Double, TypeDecorator

from twin.metrics.registry import METRICS

SECONDS_MAX = 9e9  # since 1970: the year 2255; nanoseconds in 64 bits end in 2262
FIGURE_MAX = float(1 << 63)


class Cell(TypeDecorator[Any]):
    """A JSON column of one type; wrong: function that returns a value's fault, '' if none."""

    impl, cache_ok = JSON, True

    def __init__(
        self,
        empty: type[dict[str, Any]] | type[list[Any]],
        wrong: Callable[[Any], str] = lambda _: "",
    ) -> None:
        super().__init__()
        self.empty, self._wrong = empty, wrong

    def wrong(self, value: Any) -> str:
        """Fault of a value, '' if it has none."""
        if not isinstance(value, self.empty):
            return "is no table" if self.empty is dict else "is no list"
        return self._wrong(value)

    def process_result_value(self, value: Any, _dialect: Any) -> Any:
        """The value, or an empty one of the right type."""
        return self.empty() if self.wrong(value) else value


class Seconds(TypeDecorator[float]):
    """A time of day (Unix seconds), a duration or a share."""

    impl, cache_ok = Double, True

    def wrong(self, value: Any) -> str:
        """Fault of a value, '' if it has none."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        sound = number and 0 <= value < SECONDS_MAX
        return "" if sound else f"is no time from 0 to {SECONDS_MAX:g} s"

    def process_result_value(self, value: Any, _dialect: Any) -> float | None:
        """The value; 0 if it is invalid."""
        return value if value is None or not self.wrong(value) else 0.0


def wrong_figures(summary: dict[str, Any]) -> str:
    """Fault of a summary: figures must be numbers or null; only states and words are text."""
    for key, value in summary.items():
        metric = METRICS.get(key)
        number = isinstance(value, (int, float)) and abs(value) < FIGURE_MAX  # nor NaN
        text = isinstance(value, str) and (metric is None or metric.unit == "state")
        if not (number or text or value is None):
            return f"has no figure for {key}"
    return ""


def wrong_checks(checks: list[Any]) -> str:
    """Fault of a result's checks, '' if they have none."""
    types = {"id": str, "statement": str, "ok": bool, "detail": str}
    for check in checks:
        row = {"detail": "", **check} if isinstance(check, dict) else {}
        if not all(isinstance(row.get(key), type_) for key, type_ in types.items()):
            return f"has a check without {', '.join(types)}"
    return ""


def wrong_notes(notes: list[Any]) -> str:
    """Fault of a result's notes, '' if they have none."""
    return "" if all(isinstance(note, str) for note in notes) else "has a note that is no text"
