"""Fields of a scenario by dotted path, from which forms, docs, commands and messages derive."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from twin.scenario.declaration import FORMS, When, help_by_field
from twin.scenario.scenario import Scenario

ACRONYMS = {name: name.upper() for name in ("ub", "rdma", "vpc", "int8", "bf16", "fp8", "fp4")}


@dataclass(frozen=True, slots=True)
class ScenarioField:
    """Declaration of a field, with what it inherits from its sections. `faults[].at_s` is the path
    of a field that each row of the list `faults` has."""

    path: str
    kind: type  # bool, int, float, str, or tuple for a list of tables
    default: Any  # None where a value is required
    required: bool
    label: str
    unit: str
    help: str
    source: str
    group: str  # '' for a field of no form
    conditions: tuple[When, ...]  # all must hold for it to have an effect
    options: dict[str, str]  # names it accepts with their labels; of an open list, some labels
    closed: bool  # whether it accepts no other names than these
    files: str  # folder or table of data/ whose names it accepts, '' for none
    low: float | None
    high: float | None
    chars_max: int | None  # of a text; rows of a list
    step: float  # of its widget's buttons, 0: by its size
    since: int
    also: str  # other words by which people look for it

    @property
    def form(self) -> str:
        """Name of the form (of FORMS) that has the field, '' for none."""
        return next((form for form, groups in FORMS.items() if self.group in groups), "")

    @property
    def unit_after_label(self) -> str:
        """The unit to write after the label: '' if the label says it ("NPUs per instance")."""
        unit_pattern = rf"\b{re.escape(self.unit)}\b"
        is_in_label = not self.unit or re.search(unit_pattern, self.label, re.IGNORECASE)
        return "" if is_in_label else self.unit

    @property
    def title(self) -> str:
        """The label with its unit, unless the label says it: 'Request rate (req/s)'."""
        return f"{self.label} ({self.unit_after_label})" if self.unit_after_label else self.label

    def accepted_text(self) -> str:
        """What the field accepts, as text: its names, a range with both ends, or its type."""
        if self.closed:
            return ", ".join(self.options)
        if self.low is not None and self.high is not None:
            return f"{value_text(self.low)} to {value_text(self.high)}"
        return "true or false" if self.kind is bool else "text"


@cache
def fields(section: type[BaseModel] = Scenario) -> dict[str, ScenarioField]:
    """Every field of a scenario, or of another section, by dotted path, in order of declaration."""
    return {field.path: field for field in _fields_of(section, "", "", (), 1)}


def field_info(path: str) -> ScenarioField | None:
    """Declaration of the field at a dotted path, in which rows of lists have numbers
    (`faults.0.at_s`); None if there is no such field.

    >>> field_info("supernode.nodes").unit, field_info("faults.3.at_s").path, field_info("none")
    ('nodes', 'faults[].at_s', None)
    """
    declared_path = re.sub(r"\.\d+(?=\.|\Z)", "[]", path)
    if declared_path not in fields():  # a section that each model has is declared once
        declared_path = declared_path.removeprefix("models[].")
    return fields().get(declared_path)


def field_unit(path: str) -> str:
    """Unit of a field by dotted path, '' when it has none."""
    field = field_info(path)
    return field.unit if field else ""


def form_groups(form: str) -> dict[str, list[str]]:
    """Groups of a form (a key of FORMS), each with the paths of its fields."""
    return {group: [f.path for f in fields().values() if f.group == group] for group in FORMS[form]}


def value_of(scenario: BaseModel, path: str) -> Any:
    """Value of a scenario's field by dotted path, with numbers for rows: `faults.0.at_s`."""
    value: Any = scenario
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, tuple) else getattr(value, key)
    return value


def values_by_path(scenario: Scenario) -> dict[str, Any]:
    """Every value of a scenario by dotted path, in order of declaration; a list is one value."""
    plain_values = scenario.model_dump(mode="json")
    paths = (path for path in fields() if "[]" not in path)
    return {path: value_at(plain_values, path) for path in paths}


def value_at(values: Any, path: str) -> Any:
    """Value at a dotted path of nested dicts, such as a scenario as plain values."""
    for key in path.split("."):
        values = values[key]
    return values


def unmet_condition(path: str, scenario: Scenario) -> When | None:
    """The first condition of the field at `path` that the scenario does not meet. None if it meets
    all, so that the field has an effect."""
    field = field_info(path)
    conditions = field.conditions if field else ()
    return next((condition for condition in conditions if not condition.holds(scenario)), None)


def value_text(value: Any) -> str:
    """A default or a bound of a field as text; an empty list is 'empty'.

    >>> value_text(True), value_text(16384), value_text(0.05)
    ('true', '16,384', '0.05')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if value == ():
        return "empty"
    return f"{value:,.10g}" if isinstance(value, float | int) else str(value)


def _fields_of(
    model: type[BaseModel], prefix: str, group: str, conditions: tuple[When, ...], since: int
) -> Iterator[ScenarioField]:
    """Yield the fields of a model and of its sections. prefix: what precedes their paths, "" or
    such as "a."; group, conditions, since: inherited by the fields from the sections around them.
    Sections of a row of a list are skipped: its fields are declared in the scenario's own
    sections."""
    for name, info in model.model_fields.items():
        metadata: Any = info.json_schema_extra
        field_group = group if metadata["group"] is None else metadata["group"]
        all_conditions = (*conditions, *metadata["applies"])
        since_schema, path = max(since, metadata["since"]), f"{prefix}{name}"
        field_type, is_list = info.annotation, get_origin(info.annotation) is tuple
        if isinstance(field_type, type) and issubclass(field_type, BaseModel):
            if not prefix.endswith("[]."):
                yield from _fields_of(
                    field_type, f"{path}.", field_group, all_conditions, since_schema
                )
            continue
        help_text = info.description or help_by_field(model).get(name) or f"{metadata['label']}."
        yield _declared_field(path, info, help_text, field_group, all_conditions, since_schema)
        if is_list:  # a list of tables: [[faults]] in a file
            yield from _fields_of(get_args(field_type)[0], f"{path}[].", "", all_conditions, since)


def _declared_field(
    path: str, info: FieldInfo, help_text: str, group: str, conditions: tuple[When, ...], since: int
) -> ScenarioField:
    """Declaration of the field at `path`. help_text: its help, which may end with its source in
    brackets; group, conditions, since: as declared, or inherited from its sections."""
    metadata: Any = info.json_schema_extra
    help_and_source = re.fullmatch(r"(.*?)(?: \[(.*)\])?", help_text)
    assert help_and_source is not None
    limit_of = {type(limit).__name__: limit for limit in info.metadata}
    is_literal = get_origin(info.annotation) is Literal
    label_of = metadata["options"]() if callable(metadata["options"]) else metadata["options"]
    option_names = get_args(info.annotation) if is_literal else tuple(label_of)
    options = {name: label_of.get(name) or option_label(name) for name in option_names}
    field_type: Any = tuple if get_origin(info.annotation) is tuple else info.annotation
    return ScenarioField(
        path=path, kind=str if is_literal else field_type, required=info.is_required(),
        default=None if info.is_required() else info.default, help=help_and_source[1],
        source=help_and_source[2] or "", group=group, conditions=conditions, options=options,
        closed=is_literal or metadata["closed"], since=since,
        low=limit_of["Ge"].ge if "Ge" in limit_of else None,
        high=limit_of["Le"].le if "Le" in limit_of else None,
        chars_max=limit_of["MaxLen"].max_length if "MaxLen" in limit_of else None,
        **{name: metadata[name] for name in ("label", "unit", "files", "step", "also")},
    )  # fmt: skip


def option_label(name: str) -> str:
    """Label of an option for which its field states none: 'round_robin' -> 'Round robin'."""
    return ACRONYMS.get(name) or name.replace("_", " ").replace("-", " ").capitalize()
