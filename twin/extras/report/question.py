"""What a report says of its question: the fields of a scenario that differ from the defaults."""

from collections.abc import Iterator
from typing import Any

from twin.extras.report.document import Part, folded, table, tag
from twin.scenario import Scenario, field_info, scenario_digest

NAMES = ("name", "question", "source")


def fields_of(scenario: Scenario) -> Part:
    """A scenario in full, folded: whoever has the defaults of this version has the scenario."""
    rows = []
    for path, value in stated(scenario.model_dump(mode="json", exclude_defaults=True)):
        known = field_info(path)
        unit = f" {known.unit}" if known and known.unit else ""
        rows.append((path, known.label if known else "", f"{value}{unit}"))
    return tag(
        "div",
        *([tag("p", scenario.question)] if scenario.question else []),
        *([tag("p", "Source: ", scenario.source, cls="soft")] if scenario.source else []),
        folded(f"{len(rows)} fields that differ from the defaults",
               table(("Field", "", "Value"), rows)),
        tag("p", f"Scenario {scenario_digest(scenario)[:16]}, seed {scenario.seed}.", cls="soft"),
    )  # fmt: skip


def stated(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Fields by dotted path with their values; a scenario's names are left out.

    >>> list(stated({"name": "x", "slo": {"ttft_s": 1.0}, "faults": [1]}))
    [('slo.ttft_s', 1.0), ('faults', [1])]
    """
    for key, value in values.items():
        path = f"{above}{key}"
        if isinstance(value, dict):
            yield from stated(value, f"{path}.")
        elif path not in NAMES:
            yield path, value
