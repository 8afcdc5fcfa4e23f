"""Edits of a fabric as a person makes them: by element, or by link, and taken back again.

Pure: names and edits in, edits out. `Inventory` knows which elements a fabric has; `change` and
`restore` give the new tuple of edits. An element has at most one edit, so what was said last about
it holds; the order of first mention is kept. It knows neither the draft (`fabric_editor`), nor how
a person says it (`fabric_edit_words`), nor what an edit does to a link (`twin.hardware`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from twin.hardware.fabric import Fabric
from twin.hardware.names import element_names, members
from twin.scenario import Edit

MOST = 2000  # edits a scenario may hold

KINDS = {  # what may be typed, without a plural's s -> the kind as in the names of elements
    "die": "die", "nic": "NIC", "npu": "NPU", "cpu": "CPU", "l1": "L1", "l2": "L2",
    "qingtian": "Qingtian", "node": "node", "sub plane": "sub-plane", "subplane": "sub-plane",
    "plane": "sub-plane", "supernode": "supernode",
}  # fmt: skip
GROUPED = ("die", "L1", "L2", "NPU", "node", "sub-plane")  # kinds that examples name


class EditError(ValueError):
    """A change that cannot be: one sentence for the person who asked."""


@dataclass(frozen=True)
class Inventory:
    """The elements of a fabric by name: single chips and the groups people speak of."""

    names: tuple[str, ...]

    @staticmethod
    def of(fabric: Fabric) -> Inventory:
        """Every vertex in the fabric's order, then the groups of them, each by its name."""
        groups = [name for name in element_names(fabric) if name not in fabric]
        return Inventory((*fabric, *groups))

    @cached_property
    def by_kind(self) -> dict[str, dict[tuple[str, ...], str]]:
        """Kind -> numbers as typed -> name; an L2 chip's begin with its supernode."""
        found: dict[str, dict[tuple[str, ...], str]] = {}
        for name in self.names:
            kind, _, rest = name.partition(" ")
            numbers = tuple(re.split("[.:]", rest))
            if kind == "L2" and ":" not in rest:
                numbers = ("0", *numbers)
            found.setdefault(kind, {})[numbers] = name
        return found

    @cached_property
    def exact(self) -> dict[str, str]:
        """Names by their plain spelling."""
        return {plain(name): name for name in self.names}

    def expand(self, typed: str) -> list[str]:
        """Names that something typed stands for: 'L2 3.*', 'node 4-7', 'npu-20-1'.

        Raises EditError when it names nothing that there is.
        """
        if plain(typed) in self.exact:
            return [self.exact[plain(typed)]]
        kind, numbers = _read(typed)
        listed = self.by_kind.get(kind, {})
        if not listed:
            raise EditError(f"no element is named “{typed.strip()}”: {self._examples()}")
        wanted = _numbers(numbers, 2 if kind == "L2" else len(next(iter(listed))))
        if kind == "L2" and len(wanted) == 2:
            wanted = ["*", *wanted]
        found = [name for n, name in listed.items() if _fit(n, wanted)]
        if not found:
            first, last = next(iter(listed.values())), list(listed.values())[-1]
            raise EditError(f"“{typed.strip()}” is not in this machine: it has {first} to {last}")
        return found

    def every(self, names: str) -> list[str]:
        """Names of a list: 'NPU 20.1, NPU 20.2 and node 3'; each once, in the order typed.

        Numbers without a kind belong to the kind named before them: 'node 3, 5'.
        """
        found: dict[str, None] = {}
        kind = ""
        for part in re.split(r"[,;]|\band\b", names):
            typed = part.strip()
            if typed[:1].isdigit() or typed[:1] == "*":
                typed = f"{kind} {typed}"
            if typed:
                found |= dict.fromkeys(self.expand(typed))
                kind = _read(typed)[0]
        return list(found)

    def _examples(self) -> str:
        last = [list(of.values())[-1] for kind, of in self.by_kind.items() if kind in GROUPED]
        return f"try {', '.join(last)}"


def plain(name: str) -> str:
    """A name in the one spelling that all its spellings share: 'npu 20 1'."""
    return " ".join(re.sub(r"[._-]", " ", name.lower()).split())


def _read(typed: str) -> tuple[str, str]:
    """Kind and numbers of something typed; the kind is '' where there is no such kind."""
    plain = " ".join(typed.lower().replace("-plane", " plane").replace("_", " ").split())
    match = re.fullmatch(r"((?:sub ?)?[a-z]+?(?:(?<=l)[12])?)[ .-]*([\d*][\d*.: -]*)?", plain)
    if not match:
        return "", ""
    return KINDS.get(match[1]) or KINDS.get(match[1].removesuffix("s"), ""), match[2] or "*"


def _numbers(typed: str, count: int) -> list[str]:
    """'3.*' -> ['3', '*']; numbers left out at the end stand for all: 'die 20.1', 'L1 20'."""
    parts = [p for p in re.split(r"[.: ]+", typed.strip(" .-")) if p]
    return parts + ["*"] * (count - len(parts))


def _fit(numbers: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(numbers) == len(wanted) and all(map(_within, numbers, wanted))


def _within(number: str, wanted: str) -> bool:
    low, _, high = wanted.partition("-")
    if wanted == "*" or not (low.isdigit() and (high or low).isdigit()):
        return wanted == "*"
    return number.isdigit() and int(low) <= int(number) <= int(high or low)


def change(
    edits: Sequence[Edit],
    names: Iterable[str | tuple[str, str]],
    *,
    capacity: float | None = None,
    latency: float | None = None,
) -> tuple[Edit, ...]:
    """The edits with elements, or links (two ends), set to a share of capacity or latency as built.

    What is not given stays as it was; an edit that no longer changes anything goes.
    """
    kept = {_key(e): e for e in edits}
    for name in names:
        element, to = (name, "") if isinstance(name, str) else name
        here, back = (plain(element), plain(to)), (plain(to), plain(element))
        old = kept.get(here) or kept.get(back) or Edit(element=element, to=to)
        if to:
            kept.pop(back, None)
        new = {
            "element": element,
            "to": to,
            "capacity_factor": old.capacity_factor if capacity is None else capacity,
            "latency_factor": old.latency_factor if latency is None else latency,
        }
        kept[here] = Edit(**new)
    left = tuple(e for e in kept.values() if (e.capacity_factor, e.latency_factor) != (1.0, 1.0))
    if len(left) > MOST:
        raise EditError(f"{len(left):,} edits are more than the {MOST:,} a scenario may hold")
    return left


def restore(
    edits: Sequence[Edit], names: Iterable[str], fabric: Fabric
) -> tuple[tuple[Edit, ...], list[Edit]]:
    """The edits without those at the named elements or within them; and the wider ones that stay.

    A chip inside a node that is edited as a whole stays as the node is: only its own edits go.
    """
    wanted = {vertex for name in names for vertex in members(fabric, name)}
    kept, wider = [], []
    for edit in edits:
        ends = [set(members(fabric, end)) for end in (edit.element, edit.to) if end]
        if any(end <= wanted for end in ends):
            continue
        kept.append(edit)
        if not edit.to and ends[0] & wanted:
            wider.append(edit)
    return tuple(kept), wider


def _key(edit: Edit) -> tuple[str, str]:
    return plain(edit.element), plain(edit.to)


def effect(capacity: float | None, latency: float | None) -> str:
    """What an edit does, for people: 'off', '50 % of capacity', 'latency ×2'."""
    said = []
    if capacity == 0.0:
        return "off"
    if capacity is not None and capacity != 1.0:
        said.append(f"{100 * capacity:,.4g} % of capacity")
    if latency is not None and latency != 1.0:
        said.append(f"latency ×{latency:,.4g}")
    return ", ".join(said) or "as built"
