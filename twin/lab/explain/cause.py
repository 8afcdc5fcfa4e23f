"""What an entry for a cause is, and the register of all.

An entry is a function of a `View` under `@cause`: it yields changes, or nothing where the cause is
none for this run. A change is fields by dotted path with new values. `doable` ones are what an
operator can do; the others only show what is there to gain. Whether any of it is true is not said
here: `explain` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from twin.lab.explain.view import Settings, View
from twin.scenario import Scenario, SpecError, field_info, read, with_overrides

FAULT, CAUSE, DEMAND = 0, 1, 2  # what breaks; what limits; what is asked for
WAITS = 0.2  # of the mean TTFT: from here on a queue is looked into


@dataclass(frozen=True)
class Change:
    """Fields of a scenario with other values, which would remove a cause."""

    settings: Settings
    doable: bool = True
    named: str = ""  # what is removed, where the cause is of several things
    promise: float = 0.0  # score that the run's record leaves to gain, where no formula says it


Found = Iterator[Change]


@dataclass(frozen=True)
class Cause:
    """A cause of time: what it is called, what to do about it, and the changes to try."""

    key: str
    label: str
    advice: str  # imperative, for the one who operates the machine
    changes: Callable[[View], Found]
    kind: int = CAUSE


CAUSES: dict[str, Cause] = {}


def cause(
    key: str, label: str, advice: str, kind: int = CAUSE
) -> Callable[[Callable[[View], Found]], Callable[[View], Found]]:
    """Register what looks into a cause."""

    def register(changes: Callable[[View], Found]) -> Callable[[View], Found]:
        CAUSES[key] = Cause(key, label, advice, changes, kind)
        return changes

    return register


def possible(s: Scenario, settings: Settings) -> bool:
    """Whether the scenario may have these settings, and does not have them already."""
    for path, value in settings.items():
        if "." in path and field_info(path) is None:
            return False
        if read(s, path) != value:
            break
    else:
        return False
    try:
        with_overrides(s, settings)
    except SpecError:
        return False
    return True
