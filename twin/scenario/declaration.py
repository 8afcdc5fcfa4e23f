"""How a field is declared: unit, bounds, a sentence of help and the source of its default."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

PAPER = "arXiv 2506.12708v2"

DIGEST = r"^([0-9a-f]{64})?$"
PRINTABLE = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"  # tabs and line ends are welcome


class SpecError(ValueError):
    """A scenario that cannot be: one sentence naming what, where and what would be right."""


def quantity(
    default: float,
    unit: str,
    help: str,  # noqa: A002 - the word a form uses for it
    *,
    low: float,
    high: float,
    source: str = "",
) -> Any:
    """A number with a unit, inclusive bounds, a sentence of help and the source of its default."""
    return Field(
        default,
        ge=low,
        le=high,
        description=help,
        json_schema_extra={"unit": unit, "source": source},
    )


def choice(default: Any, help: str, *, source: str = "") -> Any:  # noqa: A002
    """A switch or a name: no unit, one sentence of help and the source of its default."""
    return Field(default, description=help, json_schema_extra={"unit": "", "source": source})


def element_name(help: str, *, needed: bool = True) -> Any:  # noqa: A002
    """Name of an element of the machine, as people type it; empty where it is not needed."""
    return Field(
        ... if needed else "",
        min_length=int(needed),
        max_length=60,
        pattern=PRINTABLE,
        description=help,
        json_schema_extra={"unit": "", "source": ""},
    )


def rows(help: str, *, most: int) -> Any:  # noqa: A002
    """A list of tables, empty by default: at most `most` of them, one sentence of help."""
    return Field(
        (), max_length=most, description=help, json_schema_extra={"unit": "", "source": ""}
    )


class Section(BaseModel):
    """Base of every section: frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
