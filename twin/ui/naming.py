"""What a varied scenario is called: its preset's name and its first change. Draws nothing.

Else every run of a preset that somebody varies has one name in every list. The name is made of the
difference and not typed into the draft, so it follows every later change; and a scenario that
arrives under such a name, by a link or from a run, is taken apart into preset and difference again.
"""

from __future__ import annotations

from collections.abc import Iterable

from twin.lab.compare import changed
from twin.scenario import Scenario, field_unit
from twin.ui import listed, words
from twin.ui.fields import field_name, label, show

WORDS = ("name", "question", "source")
BETWEEN = " · "  # a preset's name and the change
NAME_MOST = 80


def named(draft: Scenario, origin: Scenario) -> Scenario:
    """The draft under a name that says its first change, where it still has its origin's name."""
    counted = {path: value for path, value in changed(origin, draft).items() if path not in WORDS}
    if draft.name != origin.name or not counted:
        return draft
    path = min(counted, key=_weight)
    new = counted[path]
    if path.startswith("workload.") and draft.workload.arrivals == "trace":
        change = words.traffic(draft)
    elif path in listed.LISTS:
        change = listed.told(path, new, 1)
    else:
        unit = f" {field_unit(path)}" if label(path) != field_name(path) else ""
        change = f"{field_name(path)} {show(new, path)}{unit}"
    more = f" +{len(counted) - 1}" if len(counted) > 1 else ""
    new_name = f"{draft.name}{BETWEEN}{change}"[: NAME_MOST - len(more)] + more
    return draft.model_copy(update={"name": new_name})


def taken_apart(scenario: Scenario, presets: Iterable[Scenario]) -> tuple[Scenario, Scenario]:
    """A scenario as a draft, and what its difference is told against: a preset, else itself."""
    for preset in presets:
        if scenario.name.startswith(preset.name + BETWEEN):
            draft = scenario.model_copy(update={"name": preset.name})
            if named(draft, preset) == scenario:
                return draft, preset
    return scenario, scenario


def _weight(path: str) -> int:
    """Which of several changes names a run: what breaks, an edit, any field, and last its time."""
    if path in listed.LISTS:
        return listed.LISTS.index(path)
    return 2 if "." in path else 3
