"""What is known: figures from the world as a flat, frozen mapping from a dotted name to a `Fact`
with value, unit, source and mark: a read in the primary source, b a secondary one, c recalled, d
arithmetic on (a), e assumed, m measured, f fitted or chosen (`saw`: to which published rows)."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

SI = {  # factors to seconds, bytes, FLOP, bytes/s, FLOP/s; names without one are counts
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9,
    "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1024.0, "GiB": 1024.0**3,
    "GB/s": 1e9, "TB/s": 1e12, "Gbps": 1e9 / 8,
    "TFLOPS": 1e12, "TOPS": 1e12, "GFLOPS": 1e9,
    "%": 0.01,
}  # fmt: skip
MARKS = "abcdefm"
FIGURE_MAX = 1e300


class FactError(KeyError):
    """A fact that is missing or malformed, with its dotted name."""

    def __str__(self) -> str:
        """The error's sentence, without the quotes that KeyError puts around it."""
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure: value as published, its unit, its source, and its mark of certainty."""

    value: Any
    unit: str
    source: str
    mark: str
    note: str = ""
    saw: tuple[str, ...] = ()  # published rows in sight of which it was chosen or fitted

    @property
    def si(self) -> float:
        """The value in SI units (s, bytes, bytes/s, FLOP/s); a count stays a count."""
        return float(self.value) * SI.get(self.unit, 1.0)

    @property
    def list_si(self) -> tuple[float, ...]:
        """The values of a list in SI units."""
        return tuple(float(value) * SI.get(self.unit, 1.0) for value in self.value)


class Facts(Mapping[str, Fact]):
    """All facts by dotted name, as `chips.ascend-910c.hbm_bandwidth`. Immutable; two are equal when
    they say the same, by a digest of their content without notes."""

    def __init__(self, by_name: Mapping[str, Fact]) -> None:
        """by_name: the facts by dotted name."""
        self._by_name = dict(sorted(by_name.items()))
        self._names = list(self._by_name)
        self._below: dict[str, Facts] = {}  # parts requested before, with their digests

    @cached_property
    def digest(self) -> str:
        """SHA-256 over name, value, unit, source and mark of every fact."""
        contents = {
            name: [fact.value, fact.unit, fact.source, fact.mark]
            for name, fact in self._by_name.items()
        }
        return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Whether the other facts have the same digest."""
        return isinstance(other, Facts) and (self is other or self.digest == other.digest)

    def __hash__(self) -> int:
        """Hash of the digest."""
        return hash(self.digest)

    def __getitem__(self, name: str) -> Fact:
        """The fact of a dotted name; raises FactError if there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise FactError(f"no fact is named {name}: add it to data/") from None

    def __contains__(self, name: object) -> bool:
        """Whether there is a fact of this dotted name."""
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        """Dotted names of all facts, sorted."""
        return iter(self._by_name)

    def __len__(self) -> int:
        """Number of facts."""
        return len(self._by_name)

    def si(self, name: str, default: float | None = None) -> float:
        """The fact's SI value, or `default` if there is none; FactError if it is not one number."""
        if default is not None and name not in self:
            return default
        fact = self[name]
        if isinstance(fact.value, tuple) or not _is_figure(fact.value):
            raise FactError(f"fact {name} must be one number")
        return fact.si

    def word(self, name: str, default: str) -> str:
        """The fact's value as text, or `default` if there is no such fact."""
        return str(self[name].value) if name in self else default

    def count(self, name: str) -> int:
        """The fact's value as a count; raises FactError where it is not one, from 0 to 2^31."""
        number = self.si(name)
        if not 0 <= number < 1 << 31 or number != int(number):
            raise FactError(f"fact {name} is {number:g}: it must be a count")
        return int(number)

    def group(self, prefix: str) -> dict[str, Fact]:
        """All facts below a dotted prefix, keyed by the part of their name after it."""
        return {name[len(prefix) + 1 :]: fact for name, fact in self.subset(prefix).items()}

    def names(self, prefix: str) -> list[str]:
        """First parts of the names below a prefix, sorted: names('chips') lists chips."""
        return sorted({name.split(".", 1)[0] for name in self.group(prefix)})

    def subset(self, prefix: str) -> Facts:
        """The facts below a dotted prefix under their full names; equal calls return one object."""
        if prefix not in self._below:
            name_bounds = f"{prefix}.", f"{prefix}/"  # a slash comes right after a dot
            names = self._names[
                slice(*(bisect_left(self._names, name_bound) for name_bound in name_bounds))
            ]
            self._below[prefix] = Facts({name: self._by_name[name] for name in names})
        return self._below[prefix]

    def replaced(self, changes: Mapping[str, Any]) -> Facts:
        """A copy of these facts with some replaced: by a `Fact`, or by a value that keeps unit,
        source and mark of certainty. Raises FactError for a value of an unknown fact."""
        if not changes:
            return self
        new_facts = {
            name: value if isinstance(value, Fact) else replace(self[name], value=_as_tuples(value))
            for name, value in changes.items()
        }
        return Facts(self._by_name | new_facts)


def facts_from_tables(tables: Mapping[str, Any]) -> Facts:
    """Facts from nested tables {file stem: {...}}, each named by its keys, joined with dots."""
    return Facts(dict(_named_facts("", tables)))


def _named_facts(path: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Fact]]:
    """Yield (dotted name, fact) of every table that has a `value`, at any depth. path: dotted name
    of `table`, '' of the top. Raises FactError for a fact without unit, source or a known mark, and
    for one that has a unit but whose value is not a finite number or a list of such numbers."""
    if "value" in table:
        for name in ("unit", "source", "mark"):
            if name not in table:
                raise FactError(f"fact {path} has no {name}")
        texts = [table.get(name, "") for name in ("unit", "source", "mark", "note")]
        saw = table.get("saw", [])
        if not isinstance(saw, list) or not all(isinstance(text, str) for text in texts + saw):
            raise FactError(f"fact {path}: unit, source, mark, note and what it saw must be text")
        unit, source, mark, note = texts
        if len(mark) != 1 or mark not in MARKS:
            raise FactError(f"fact {path} has mark {mark[:40]!r}, not one of {MARKS}")
        if unit and not _is_figure(table["value"]):
            unit_text = unit if unit.isprintable() else ascii(unit)
            raise FactError(
                f"fact {path} is {str(table['value'])[:40]!r} in {unit_text[:20]}: it must be a "
                "finite number, or a list of them"
            )
        yield path, Fact(_as_tuples(table["value"]), unit, source, mark, note, tuple(saw))
        return
    for name, subtable in table.items():
        if isinstance(subtable, Mapping):
            if not name.isprintable():
                raise FactError(f"the name of a fact, {ascii(name)[:40]}, must be printable text")
            yield from _named_facts(f"{path}.{name}" if path else name, subtable)


def _as_tuples(value: Any) -> Any:
    """Returns the value with all its lists as tuples, so that facts cannot change in place."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


def _is_figure(value: Any) -> bool:
    """Whether a value is a number or a list of numbers, at any depth."""
    if isinstance(value, list):
        return all(_is_figure(item) for item in value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < FIGURE_MAX  # nor NaN
