"""How a field is declared: default, unit, bounds, label, group, condition, source, help."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

DIGEST = r"^([0-9a-f]{64})?$"
PRINTABLE = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"  # tabs and line ends are welcome

# The forms, and the groups of fields in each. A field of no group is in no form: words about the
# scenario, what an upload fills in, and lists that have an editor of their own.
FORMS: dict[str, tuple[str, ...]] = {
    "workload": (
        "Traffic", "Shared prefixes", "Clients", "SLO", "Power and price", "Time and seed",
    ),
    "deployment": (
        "Pools", "Batching", "Routing", "Admission", "Memory pool", "Elasticity", "Experts",
        "Balancing", "Precision", "Optimisations", "Faults",
    ),
    "supernode": ("Machine", "Planes"),
}  # fmt: skip

# Labels of names, or what gives them on request: entries of a registry may be added.
Names = Mapping[str, str] | Callable[[], Mapping[str, str]]


class SpecError(ValueError):
    """A scenario that cannot be: one sentence naming what, where and what would be right."""


class When(NamedTuple):
    """A condition on another field: it has one of these values or, negated, none of them."""

    path: str
    values: tuple[Any, ...]
    negated: bool = False

    def holds(self, scenario: BaseModel) -> bool:
        """Whether the condition on the field at `path` holds in a scenario."""
        return (attrgetter(self.path)(scenario) in self.values) != self.negated


def when(path: str, *values: Any) -> When:
    """Condition under which a field has an effect: the field at `path` has one of `values`."""
    return When(path, values)


def unless(path: str, *values: Any) -> When:
    """Condition under which a field has an effect: the field at `path` has none of `values`."""
    return When(path, values, negated=True)


def quantity(
    default: float, unit: str, label: str, bounds: tuple[float, float], **about: Any
) -> Any:
    """A field that holds a number, with unit, label and inclusive bounds (lowest, highest); about:
    further metadata, such as the step of its widget."""
    low, high = bounds
    return Field(default, ge=low, le=high, json_schema_extra=_metadata(label, unit=unit, **about))


def choice(default: Any, label: str, **about: Any) -> Any:
    """A field that holds a bool or one of several names. Among `about`: `options`, the labels by
    name, or a function that returns them; `files`, the folder of data/ whose files are further
    names; `closed`, whether all other names are refused."""
    return Field(default, json_schema_extra=_metadata(label, **about))


def text(
    default: Any, label: str, *, pattern: str = PRINTABLE, most: int | None = None,
    least: int | None = None, **about: Any,
) -> Any:  # fmt: skip
    """A field for text that a person writes: `least` to `most` characters that match a pattern."""
    metadata = _metadata(label, **about)
    limits: Any = {"min_length": least, "max_length": most, "pattern": pattern}
    return Field(default, json_schema_extra=metadata, **limits)


def element_name(label: str, *, needed: bool = True, **about: Any) -> Any:
    """A field that holds the name of an element of the machine, or also "" unless `needed`."""
    return text(... if needed else "", label, least=int(needed), most=60, **about)


def rows(label: str, *, most: int, **about: Any) -> Any:
    """A field that holds a list of tables: empty by default, of at most `most` rows, in no form."""
    return Field((), max_length=most, json_schema_extra=_metadata(label, group="", **about))


def section(model: type[Section], **about: Any) -> Any:
    """A field that holds a section; its default is the section with all defaults. about: group and
    conditions, which the fields of the section inherit."""
    # Defaults need no validator, and so none is built for them.
    return Field(model.model_construct(), json_schema_extra=_metadata("", **about))


def _metadata(
    label: str, *, unit: str = "", group: str | None = None, applies: When | tuple[When, ...] = (),
    options: Names | None = None, closed: bool = False, files: str = "", step: float = 0,
    since: int = 1, also: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Metadata of a field for pydantic's schema.
    group: None means the group of its section, '' that the field is in no form. applies: conditions
    that must all hold for it to have an effect. closed: whether only `options` are allowed. files:
    data folder or table whose names it takes. step: change by a click on its widget. since: number
    of the first schema that has the field. also: synonyms for the search."""
    conditions = (applies,) if isinstance(applies, When) else applies
    return {
        "label": label, "unit": unit, "group": group, "applies": conditions, "also": also,
        "options": options or {}, "closed": closed, "files": files, "step": step, "since": since,
    }  # fmt: skip


def broken_rules(*rules: tuple[Any, str]) -> list[str]:
    """Sentences of the broken rules. A rule is a pair (whether it is broken, its sentence)."""
    return [sentence for is_wrong, sentence in rules if is_wrong]


class Section(BaseModel):
    """Base of sections: frozen, no unknown keys, no NaN or infinity; below a field: its help."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True
    )  # its validator is built when first used: a section's own is seldom needed

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_switch(cls, value: Any, info: ValidationInfo) -> Any:
        """Returns the value unchanged. Raises ValueError for a bool in a field of numbers, which
        pydantic would read as 1 or 0."""
        field_type = cls.model_fields[str(info.field_name)].annotation
        if type(value) is bool and field_type in (int, float):
            raise ValueError("should be a number")
        return value


@cache
def help_by_field(section: type[BaseModel]) -> dict[str, str]:
    """Help of each field of a section, by the field's name: the string that follows its declaration
    in the source."""
    (class_node,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(class_node, ast.ClassDef)
    return {
        field_node.target.id: " ".join(text_node.value.value.split())
        for field_node, text_node in pairwise(class_node.body)
        if isinstance(field_node, ast.AnnAssign) and isinstance(field_node.target, ast.Name)
        and isinstance(text_node, ast.Expr) and isinstance(text_node.value, ast.Constant)
        and isinstance(text_node.value.value, str)
    }  # fmt: skip
