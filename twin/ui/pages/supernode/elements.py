"""Elements of a fabric as a person types them: lists, ranges and '*' -> names that there are.

One name is read by `twin.hardware.names`; this adds what stands for several.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from twin.hardware.fabric import Fabric
from twin.hardware.names import element_names

KINDS = {"plane": "sub-plane", "subplane": "sub-plane"}  # typed -> as in the names
EXAMPLES = ("die", "L1", "L2", "NPU", "node", "sub-plane")
PATTERN = re.compile(r"([a-z]+(?:[ -]plane)?[12]?)[ .-]*([\d*][\d*.: -]*)?")


class EditError(ValueError):
    """A change that cannot be: one sentence for the person who asked."""


def plain(name: str) -> str:
    """A name in the one spelling that all its spellings share: 'npu 20 1'."""
    return " ".join(re.sub(r"[._-]", " ", name.lower()).split())


def every(built: Fabric, typed: str) -> list[str]:
    """Names of a list: 'NPU 20.1, 20.2 and nodes 3-5'; each once, in the order typed.

    Numbers without a kind belong to the kind named before them. Raises EditError when one of them
    names nothing that there is.
    """
    found: dict[str, None] = {}
    kind = ""
    for part in filter(None, (part.strip() for part in re.split(r"[,;]|\band\b", typed))):
        one = f"{kind} {part}" if part[0] in "0123456789*" else part
        found |= dict.fromkeys(expand(built, one))
        kind = one.rpartition(" ")[0] or one
    return list(found)


def expand(built: Fabric, typed: str) -> list[str]:
    """Names that something typed stands for: 'L2 3.*', 'node 4-7', 'npu-20-1', 'die 20.1'.

    Numbers left out at the end stand for all. Raises EditError when there is no such element.
    """
    if plain(typed) in _spelled(built):
        return [_spelled(built)[plain(typed)]]
    match = PATTERN.fullmatch(" ".join(typed.lower().replace("_", " ").split()))
    word = match[1].replace(" ", "-") if match else ""
    word = KINDS.get(word.removesuffix("s"), word)
    listed = _of_kind(built).get(word) or _of_kind(built).get(word.removesuffix("s"), [])
    if not match or not listed:
        last = [names[-1] for names in _of_kind(built).values() if names[0].split()[0] in EXAMPLES]
        raise EditError(f"no element is named “{typed.strip()}”: try {', '.join(last)}")
    wanted = match[2] or "*"
    found = [name for name in listed if _fits(name, wanted)]
    if not found:
        raise EditError(
            f"“{typed.strip()}” is not in this machine: it has {listed[0]} to {listed[-1]}"
        )
    return found


@lru_cache(maxsize=8)
def _spelled(built: Fabric) -> dict[str, str]:
    return {plain(name): name for name in element_names(built)}


@lru_cache(maxsize=8)
def _of_kind(built: Fabric) -> dict[str, list[str]]:
    """Kind -> its names; a chip of a further supernode counts, a group of one only whole."""
    found: dict[str, list[str]] = {}
    for name in [*built, *(n for n in element_names(built) if n not in built and ":" not in n)]:
        found.setdefault(name.split()[0].lower(), []).append(name)
    return found


def _fits(name: str, wanted: str) -> bool:
    """Whether a name has the numbers: 'L2 1:3.12' has '3.*', and '1:3.*', but not '0:3.*'."""
    typed = name.partition(" ")[2]
    if ":" not in wanted:
        typed = typed.rpartition(":")[2]
    elif ":" not in typed:
        typed = f"0:{typed}"
    numbers = re.split("[.:]", typed)
    asked: Sequence[str] = [part for part in re.split(r"[.: ]+", wanted.strip(" .-")) if part]
    asked = [*asked, *["*"] * (len(numbers) - len(asked))]
    return len(numbers) == len(asked) and all(map(_within, numbers, asked))


def _within(number: str, asked: str) -> bool:
    low, _, high = asked.partition("-")
    if asked == "*" or not (low.isdigit() and (high or low).isdigit()):
        return asked == "*"
    return number.isdigit() and int(low) <= int(number) <= int(high or low)
