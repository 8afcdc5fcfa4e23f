"""A change to a fabric in a person's words: "sub-plane 3 at half speed", "L2 3.* off".

`parse` says which elements are meant and what becomes of them, or in one sentence why that cannot
be told. It changes nothing; that is `edits`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from twin.hardware.fabric import Fabric
from twin.ui.pages.supernode.edits import effect
from twin.ui.pages.supernode.elements import EditError, every

EXAMPLES = "L2 3.* off; NPU 20.1, 20.2 latency x2; L1 20.3 – L2 3.12 at 25 %; restore node 7"

WORDS = {"half": 0.5, "a half": 0.5, "a quarter": 0.25, "quarter": 0.25, "a third": 1 / 3,
         "double": 2.0, "twice": 2.0, "full": 1.0, "a tenth": 0.1}  # fmt: skip
OFF = r"\b(?:off|out|down|dead|disabled?|removed?|broken|failed)\b"
ON = r"\b(?:restored?|on|as built|back|repaired|enabled?)\b"
SHARE = (
    rf"\b(?:at|to|with|=)?\s*(?:({'|'.join(sorted(WORDS, key=len, reverse=True))})\b"
    r"|([\d.]+)\s*(%|x\b))\s*(?:of\s+)?(?:its\s+|the\s+)?(?:speed|capacity|bandwidth|rate)?"
)
DELAY = (
    r"\b(?:with\s+|at\s+)?(?:latency\s*(?:x|×|\*|at|to|=)*\s*([\d.]+)\s*(?:x|×)?"
    r"|([\d.]+)\s*(?:x|×)\s*(?:the\s+)?latency|(?:(double|twice|half)\s+(?:the\s+)?latency))"
)


@dataclass(frozen=True)
class Wish:
    """A change in words, understood: what, and how much; `restored` when it is taken back."""

    names: tuple[str | tuple[str, str], ...]
    capacity: float | None = None
    latency: float | None = None
    restored: bool = False

    def told(self) -> str:
        """For people: '16 elements (L2 3.0 to L2 3.15): off'."""
        shown = [" – ".join(n) if isinstance(n, tuple) else n for n in self.names]
        what = " and ".join(shown)
        if len(shown) > 2:
            what = f"{len(shown)} elements, {shown[0]} to {shown[-1]}"
        if self.restored:
            return f"{what}: as built"
        return f"{what}: {effect(self.capacity, self.latency)}"


def parse(typed: str, built: Fabric) -> Wish:
    """Read a change in words; raises EditError with one sentence and an example."""
    text = f" {typed.strip()} "
    latency = capacity = None
    if match := re.search(DELAY, text, re.IGNORECASE):
        word = (match[3] or "").lower()
        latency = WORDS[word] if word else _number(match[1] or match[2])
        text = _without(text, match)
    restored = off = False
    if match := re.search(OFF, text, re.IGNORECASE):
        off, capacity, text = True, 0.0, _without(text, match)
    elif match := re.search(SHARE, text, re.IGNORECASE):
        word = (match[1] or "").lower()
        capacity = WORDS[word] if word else _number(match[2]) / (100 if match[3] == "%" else 1)
        text = _without(text, match)
    elif latency is None and (match := re.search(ON, text, re.IGNORECASE)):
        restored, text = True, _without(text, match)
    rest = re.sub(r"(?i)\b(all of|all|every|set|make|link|links|the|at|to be)\b", " ", text).strip(
        " ,:;."
    )
    if not rest:
        raise EditError(f"say what to change and how, for example: {EXAMPLES}")
    if not (restored or off) and capacity is None and latency is None:
        raise EditError(f"say what becomes of “{rest}”: off, restored, at 50 %, or latency x2")
    if capacity is not None and not 0 <= capacity <= 100:
        raise EditError(f"{capacity:.0%} of capacity is out of range: take 0 to 10,000 %")
    if latency is not None and not 0.01 <= latency <= 1000:
        raise EditError(f"latency x{latency:g} is out of range: take 0.01 to 1,000")
    return Wish(_ends(rest, built), capacity, latency, restored)


def _without(text: str, match: re.Match[str]) -> str:
    return f"{text[: match.start()]} , {text[match.end() :]}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise EditError(f"“{text}” is not a number") from None


def _ends(rest: str, built: Fabric) -> tuple[str | tuple[str, str], ...]:
    """Elements, or the links between two lists of them: 'L1 20.3 – L2 3.12'."""
    two = re.split(r"\s+(?:-|–|to|and its link to)\s+(?=[A-Za-z])", rest)
    if len(two) == 2:
        return tuple((a, b) for a in every(built, two[0]) for b in every(built, two[1]))
    return tuple(every(built, rest))
