"""Records of numbers: a field each with its meaning, its unit, and what changes it. A frozen
dataclass of numbers and other records for plain Python; compiled code reads the same names in a
numpy record (`dtype_of`, `numbers`), which is what a state column holds."""

from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache, partial
from typing import Any, Literal, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
R = TypeVar("R", bound="Record")
Scale = Literal["", "computed", "carried", "copied", "started"]
SCALES: tuple[Scale, ...] = ("computed", "carried", "copied")


@dataclass(frozen=True, slots=True)
class Coefficient:
    """The declaration of one number."""

    meaning: str
    unit: str
    cause: str  # of an iteration's time, as people name it
    # Stretched by a slow die (computed), crowded links (carried; to host memory: copied), nothing;
    # started: of a kernel or an exchange, whatever die or link.
    scale: Scale
    name: str = ""  # dotted, from the outermost record


class Record:
    """Base of all records."""

    __slots__ = ()


@dataclass_transform(frozen_default=True)
def record(kind: type[T]) -> type[T]:
    """Make a class of `computed`, `carried`, `given` and `part` fields a frozen record."""
    return dataclass(frozen=True, slots=True)(kind)


def given(meaning: str, unit: str = "", cause: str = "", scale: Scale = "") -> Any:
    """Declare a field with a number that neither slow dies nor busy links change, unless it has a
    `scale`. meaning, unit, cause: as of Coefficient."""
    return field(default=0.0, metadata={"about": Coefficient(meaning, unit, cause, scale)})


def _seconds_field(scale: Scale, meaning: str, cause: str = "") -> Any:
    """Declare a field in seconds; scale: whether slow dies or busy links stretch it."""
    return given(meaning, "s", cause, scale)


computed, carried, copied = (partial(_seconds_field, scale) for scale in SCALES)
started = partial(_seconds_field, "started")


def part(kind: type[R]) -> R:
    """Declare a dataclass field that holds a record of a kind."""
    default_record: Any = field(default=kind())
    return default_record


def parts(kind: type[R], count: int) -> tuple[R, ...]:
    """Declare a dataclass field that holds a tuple of `count` records of a kind."""
    default_records: Any = field(default=(kind(),) * count)
    return default_records


def walk(whole: Record, prefix: str = "") -> Iterator[tuple[Coefficient, float]]:
    """Yield (declaration, value) of a record's numbers in storage order; prefix: of their names."""
    for declared in _fields(type(whole)):  # type: ignore[arg-type]
        field_value = getattr(whole, declared.name)
        dotted_name = prefix + declared.name
        if isinstance(field_value, tuple):
            for index, inner_record in enumerate(field_value):
                yield from walk(inner_record, f"{dotted_name}[{index}].")
        elif isinstance(field_value, Record):
            yield from walk(field_value, f"{dotted_name}.")
        else:
            yield replace(_declaration(declared), name=dotted_name), field_value


def _declaration(declared: Field[Any]) -> Coefficient:
    """Declaration of the number in a dataclass field (`declared`)."""
    coefficient: Coefficient = declared.metadata["about"]
    return coefficient


def map_numbers(whole: R, value_of: Callable[[Coefficient, float], float]) -> R:
    """A copy of the record, each number replaced by value_of(its declaration, the number)."""

    def mapped_value(declared: Field[Any]) -> Any:
        """New value of a field: the number replaced, or each number of its records."""
        field_value = getattr(whole, declared.name)
        if isinstance(field_value, tuple):
            return tuple(map_numbers(inner, value_of) for inner in field_value)
        if isinstance(field_value, Record):
            return map_numbers(field_value, value_of)
        return value_of(_declaration(declared), field_value)

    return type(whole)(*map(mapped_value, _fields(type(whole))))  # type: ignore[arg-type]


def scale_computed(whole: R, factor: float) -> R:
    """A copy of the record with all its `computed` numbers multiplied by a factor."""
    return map_numbers(whole, lambda c, v: v * factor if c.scale == "computed" else v)


def at_speed(whole: R, speed: float) -> R:
    """A copy of the record for a die that computes at `speed` (1: rated). Every exchange is a
    barrier, so one slow die (a straggler) slows all dies."""
    return map_numbers(whole, lambda c, v: v / speed if c.scale == "computed" else v)


def slowed_kernels(whole: R, slowdown: float) -> R:
    """A copy of the record in which kernels and exchanges take `slowdown` times as long."""
    if slowdown == 1.0:
        return whole
    kernel_scales = ("computed", "carried", "started")  # not the host, nor copies to its memory
    return map_numbers(whole, lambda c, v: v * slowdown if c.scale in kernel_scales else v)


def without_cause(whole: R, cause: str) -> R:
    """A copy of the record whose coefficients with a `cause` of time are all 0."""
    return map_numbers(whole, lambda c, v: 0.0 if c.cause == cause else v)


def numbers(whole: Record) -> NDArray[np.float64]:
    """The numbers of a record, f8[N]; seen through `dtype_of` it is a record of one row."""
    return np.array([*_values(whole)], np.float64)


def _values(whole: Record) -> Iterator[float]:
    """Yield all numbers of a record in storage order; faster than `walk`."""
    for declared in _fields(type(whole)):  # type: ignore[arg-type]
        field_value = getattr(whole, declared.name)
        if isinstance(field_value, tuple | Record):
            for inner_record in field_value if isinstance(field_value, tuple) else (field_value,):
                yield from _values(inner_record)
        else:
            yield field_value


@cache
def _fields(kind: type[Record]) -> tuple[Field[Any], ...]:
    """The fields of a kind of record, in the order in which they are stored."""
    return fields(kind)  # type: ignore[arg-type]


@cache
def scale_indices(kind: Any, scale: Scale) -> NDArray[np.int64]:
    """Indices i8[N], in storage order, of a record's numbers that have this scale."""
    return np.array([i for i, (c, _) in enumerate(walk(kind())) if c.scale == scale], np.int64)


def row_of(whole: Record) -> Any:
    """The record as compiled code reads it: a numpy record with fields of the same names."""
    return numbers(whole).view(dtype_of(type(whole)))[0]  # type: ignore[arg-type]


@cache
def dtype_of(kind: Any) -> np.dtype[Any]:
    """The numpy type that holds the numbers of records of a kind, by the same names."""
    columns: list[tuple[Any, ...]] = []
    for declared in fields(kind):
        default: Any = declared.default
        records = default if isinstance(default, tuple) else (default,)
        record_type: Any = type(records[0])
        column_type = dtype_of(record_type) if issubclass(record_type, Record) else np.float64
        column_shape = [(len(default),)] if isinstance(default, tuple) else []
        columns.append((declared.name, column_type, *column_shape))
    # As scalars of this type plain Python reads fields as attributes, as compiled code does.
    return np.dtype((np.record, np.dtype(columns, align=True)))
