"""State that Python owns and compiled code borrows: columns declared once, arrays in both worlds.

A subclass of `Columns` declares what it holds, a line each:

    class Queue(Columns):
        "One row per instance."
        head = i4("instances", "First request that waits.", fill=-1, by="router")
        budget = number(int, "Tokens of one batch.")

`Queue({"instances": 4}, budget=8)` has plain numpy arrays of these shapes as attributes. Compiled
code that is handed a `Queue` reads the same arrays by the same names. It gets no more than an
address, of a block with the address and shape of every column: nothing is copied, and nothing
counts references (counting, atomic as it is, took half of a run's time when state was a numba
structref). So whoever owns the object keeps it alive while compiled code runs; a column may be
replaced by another array of its type between two calls, but not during one. This module knows
nothing about what is held."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

T = TypeVar("T", int, float, np.uint64)  # the last: keys of random streams
C = TypeVar("C", bound="Columns")
CODES = {int: "i8", float: "f8", np.uint64: "u8"}


@dataclass(frozen=True, slots=True)
class Column:
    """Declaration of a column, a number or a nested group, as written in its class."""

    dtype: np.dtype[Any] | None  # None: a nested group
    shape: tuple[str, ...]  # symbols, or figures; () is a number
    meaning: str
    unit: str = ""
    by: tuple[str, ...] = ()  # modules of the engine that write it once the run has begun
    fill: float | None = None  # None: it is given, not filled
    group: type[Columns] | None = None
    name: str = ""
    place: int = 0  # of its address or value in the block
    of: Callable[[Any], Any] | None = None  # a number: its value for what a group is computed from


def column(
    dtype: str | np.dtype[Any], shape: str, meaning: str, unit: str = "", *, by: str = "",
    fill: float | None = 0,
) -> np.ndarray:  # fmt: skip
    """Declare an array that compiled code shares, typed as that array. shape: sizes, named or as
    numbers, separated by commas; meaning, unit: for the docs; by: modules that write it, separated
    by commas; fill: first value of every element, None: the owner passes the array."""
    declaration: Any = Column(
        np.dtype(dtype), _split_commas(shape), meaning, unit, _split_commas(by), fill
    )
    return declaration


f4, f8, i1, i2, i4, i8 = (partial(column, code) for code in ("f4", "f8", "i1", "i2", "i4", "i8"))


def number(
    kind: type[T], meaning: str, of: Callable[[Any], T | bool] | None = None, *, unit: str = ""
) -> T:
    """Declare a number of type `kind` (int, float, key) that never changes: given at the start, or
    computed by `of` from the source of `Columns.computed_from`."""
    declaration: Any = Column(np.dtype(CODES[kind]), (), meaning, unit, of=of)
    return declaration


def group(kind: type[C]) -> C:
    """Declare a nested group of columns, of class `kind`."""
    declaration: Any = Column(None, (), kind.__doc__ or "", group=kind)
    return declaration


def _split_commas(text: str) -> tuple[str, ...]:
    """Parts of a text between commas, without spaces."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


class Columns:
    """A group of columns; see the module."""

    declared: ClassVar[dict[str, Column]] = {}

    def __init_subclass__(cls) -> None:
        """Number the declared columns, and remove the declarations from the class."""
        super().__init_subclass__()
        columns_by_name, next_word = {}, 0
        for name, value in list(vars(cls).items()):
            if isinstance(value, Column):
                columns_by_name[name] = replace(value, name=name, place=next_word)
                next_word += 1 + len(value.shape)
                delattr(cls, name)
        cls.declared = columns_by_name

    def __init__(self, sizes: Mapping[str, int] | None = None, /, **values: Any) -> None:
        """sizes: length of each named axis; values: columns and numbers that are not filled."""
        word_count = sum(1 + len(column.shape) for column in self.declared.values())
        vars(self)["block"] = np.zeros(max(word_count, 1), np.uint64)
        for name, column in self.declared.items():
            value = values.pop(name, None)
            if value is None:
                fill, dtype = column.fill, column.dtype
                if fill is None or dtype is None:
                    raise TypeError(f"{type(self).__name__}.{name} is not given")
                shape = [_axis_length(symbol, sizes or {}) for symbol in column.shape]
                # Zeros come with the memory, page by page when they are first touched.
                value = np.full(shape, fill, dtype) if fill else np.zeros(shape, dtype)
            setattr(self, name, value)
        if values:
            raise TypeError(f"{type(self).__name__} declares no {', '.join(values)}")

    @classmethod
    def computed_from(cls, source: Any) -> Self:
        """A group whose declared numbers are computed from `source`."""
        columns = cls.declared.items()
        return cls(**{name: column.of(source) for name, column in columns if column.of is not None})

    @property
    def address(self) -> int:
        """Address of the block (address and shape of every column) that compiled code reads."""
        return int(vars(self)["block"].ctypes.data)

    def __setattr__(self, name: str, value: Any) -> None:
        """Bind a column to an array, a number to a value, or a nested group to an object."""
        column = self.declared[name]
        block = vars(self)["block"]
        if column.group is not None:
            block[column.place] = value.address
        elif not column.shape:
            assert column.dtype is not None
            converted = column.dtype.type(value)
            value = converted if column.dtype.kind == "u" else converted.item()
            block[column.place : column.place + 1].view(column.dtype)[0] = value
        else:
            value = np.ascontiguousarray(value, column.dtype)
            if value.ndim != len(column.shape):
                raise TypeError(f"{name} has {value.ndim} dimensions, not {len(column.shape)}")
            block[column.place] = value.ctypes.data
            block[column.place + 1 : column.place + 1 + value.ndim] = value.shape
        vars(self)[name] = value

    def assign(self, **values: Any) -> Self:
        """Replace columns or numbers by name; returns the group itself."""
        for name, value in values.items():
            setattr(self, name, value)
        return self


def _axis_length(symbol: str, sizes: Mapping[str, int]) -> int:
    """Length of an axis: `symbol` is a number, a key of `sizes`, or a sum of these."""
    symbols = [term.strip() for term in symbol.split("+")]
    return sum(int(term) if term.isdigit() else sizes[term] for term in symbols)
