"""Canonical text, digest, and how older texts are read. The text holds the schema's number and what
differs from defaults, so a new field (with `since`) renames no scenario. A changed default raises
`SCHEMA_VERSION`, and `BEFORE` has the old one. And a scenario from plain values, as files, links,
the command line and forms bring them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from twin.scenario.declaration import SpecError
from twin.scenario.fields import fields, value_of
from twin.scenario.scenario import Scenario
from twin.scenario.words import no_field_sentence, problem_sentence, quoted

SCHEMA_VERSION = 4
# What a text of an older schema means where it says nothing, by the schema that changed it. Schema
# 1 stated every field, with the defaults that schema 2 still has.
BEFORE: dict[int, dict[str, Any]] = {3: {"start": "empty"}, 4: {"workload.turns": "timed"}}

Fields = dict[str, Any]


def json_text(s: Scenario) -> str:
    """The scenario as canonical JSON with sorted keys: equal scenarios give equal text."""
    return _schema_text(SCHEMA_VERSION, s.model_dump(mode="json", exclude_defaults=True))


def scenario_digest(s: Scenario) -> str:
    """SHA-256 (hex) of the canonical form: the scenario's id."""
    return hashlib.sha256(json_text(s).encode()).hexdigest()


def legacy_digests(s: Scenario) -> tuple[str, ...]:
    """SHA-256 ids that the scenario has under older schemas, oldest schema first. Schemas that
    cannot express the scenario are left out."""
    digests = []
    for schema in range(1, SCHEMA_VERSION):
        later_schemas = (number for number in BEFORE if number > schema)
        old_defaults = {path: old for later in later_schemas for path, old in BEFORE[later].items()}
        newer_paths = [path for path, field in fields().items() if field.since > schema]
        if any(_differs_from_default(s, path, old_defaults) for path in newer_paths):
            continue
        plain_values = s.model_dump(mode="json", exclude_defaults=schema > 1)
        for path in newer_paths:
            _drop_field(plain_values, path.split("."))
        for path in old_defaults.keys() - newer_paths if schema > 1 else ():
            _drop_field(plain_values, path.split("."))
            if value_of(s, path) != old_defaults[path]:
                _add_missing_field(plain_values, path, value_of(s, path))
        digests.append(hashlib.sha256(_schema_text(schema, plain_values).encode()).hexdigest())
    return tuple(digests)


def scenario_from_canonical(text: str) -> Scenario:
    """The scenario of a canonical text of this or an older schema; raises SpecError."""
    try:
        body = json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_table_of_distinct_keys
        )
    except SpecError:
        raise
    except (ValueError, RecursionError) as error:  # ValueError: also a number of too many digits
        raise SpecError(f"the scenario is not valid JSON: {error}") from None
    if not isinstance(body, dict) or set(body) != {"schema", "scenario"}:
        raise SpecError("the scenario's JSON must hold exactly 'schema' and 'scenario'")
    schema, plain_fields = body["schema"], body["scenario"]
    if isinstance(schema, float):  # 4.0 would be in the range
        raise SpecError("the scenario's schema should be a whole number without a decimal point")
    if isinstance(schema, bool) or schema not in range(1, SCHEMA_VERSION + 1):
        raise SpecError(
            f"the scenario is of schema {quoted(schema)}, this twin knows 1 to {SCHEMA_VERSION}: "
            "update the twin"
        )
    if not isinstance(plain_fields, dict):
        raise SpecError("the scenario's JSON must hold fields below 'scenario'")
    for since_schema, old_defaults in BEFORE.items():
        for path, value in old_defaults.items() if since_schema > schema else ():
            _add_missing_field(plain_fields, path, value)
    return parse_scenario(plain_fields)


def _schema_text(schema: int, values: Fields) -> str:
    """JSON text of a schema's number and a scenario's fields, as plain values, with sorted keys."""
    body = {"schema": schema, "scenario": values}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _differs_from_default(s: Scenario, path: str, old_defaults: Mapping[str, Any]) -> bool:
    """Whether any value at the path differs from its default. In the path [] stands for all rows of
    a list. old_defaults: by path, defaults of an older schema, which replace those of today."""
    *parents, leaf = path.split(".")
    tables: list[Any] = [s]
    for section in parents:
        field_name = section.removesuffix("[]")
        values = [getattr(table, field_name) for table in tables]
        tables = [row for rows in values for row in rows] if section.endswith("[]") else values
    return any(
        getattr(table, leaf) != old_defaults.get(path, type(table).model_fields[leaf].default)
        for table in tables
    )


def _add_missing_field(values: Fields, path: str, value: Any) -> None:
    """Write `value` at a dotted path of nested values, unless there is a value already. If there is
    no table where the path needs one, nothing is written: validation refuses such values later."""
    *parents, name = path.split(".")
    for section in parents:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            return
    values.setdefault(name, value)


def _drop_field(values: Any, keys: list[str]) -> None:
    """Remove a field from nested values. keys: its path, divided at the dots; in a list, whose
    key ends with [], the field is removed from every row."""
    first_key, *other_keys = keys
    name = first_key.removesuffix("[]")
    if not other_keys:
        values.pop(name, None)
        return
    # Rows may be gone with their list, when that is newer too.
    for table in values.get(name, ()) if first_key.endswith("[]") else [values.get(name, {})]:
        _drop_field(table, other_keys)
        # A section that schema 1 did not have.
        if not table and name in values and not first_key.endswith("[]"):
            del values[name]


def _refuse_constant(name: str) -> float:
    """Raise SpecError for a JSON constant (NaN, Infinity) that is not a finite number."""
    raise SpecError(f"the scenario holds {name}, which is not a finite number")


def _table_of_distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs of a JSON object as a dict; raises SpecError where a key comes twice."""
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise SpecError(f"the scenario says {quoted(key)} twice")
        table[key] = value
    return table


def parse_scenario(data: dict[str, Any]) -> Scenario:
    """A scenario from nested plain values; raises SpecError with one sentence."""
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise SpecError(problem_sentence(error)) from None


def with_overrides(s: Scenario, settings: dict[str, Any]) -> Scenario:
    """Copy of a scenario with some fields replaced. settings: new value by dotted path, such as
    `models.0.slo.ttft_s`. Raises SpecError."""
    plain_fields = s.model_dump(mode="json")
    for path, value in settings.items():
        *parents, name = path.split(".")
        table: Any = plain_fields
        try:
            for key in parents:  # of a section, or the number of a row
                table = table[int(key) if key.isdigit() else key]
            table[name]  # only a field that there is can be replaced
        except (LookupError, TypeError, ValueError):
            raise SpecError(no_field_sentence(path)) from None
        table[name] = value
    return parse_scenario(plain_fields)
