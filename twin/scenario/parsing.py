"""A scenario from plain values, as files, links, the command line and forms bring them."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from twin.scenario.declaration import SpecError
from twin.scenario.scenario import Scenario
from twin.scenario.words import explain, no_field


def parse_scenario(data: dict[str, Any]) -> Scenario:
    """A scenario from nested plain values; raises SpecError with one sentence."""
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise SpecError(explain(error)) from None


def with_overrides(s: Scenario, settings: dict[str, Any]) -> Scenario:
    """A scenario with fields replaced by dotted path, in rows by number (`models.0.slo.ttft_s`);
    raises SpecError on an unknown path."""
    data = s.model_dump(mode="json")
    for path, value in settings.items():
        *parents, leaf = path.split(".")
        table: Any = data
        for part in parents:
            if isinstance(table, list):  # a row, by its number
                table = table[int(part)] if part.isdigit() and int(part) < len(table) else None
            else:
                table = table.get(part)
            if not isinstance(table, dict | list):
                raise SpecError(no_field(path))
        if not isinstance(table, dict):
            raise SpecError(no_field(path))
        if leaf not in table:
            raise SpecError(no_field(path))
        table[leaf] = value
    return parse_scenario(data)
