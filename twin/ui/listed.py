"""Lists in a scenario as words: what breaks, what was edited, who sits where. Draws nothing."""

from collections.abc import Callable, Sequence
from typing import Any

from twin.scenario import KINDS, Fault, Scenario, read
from twin.ui.pages.supernode.edits import effect

SHOWN = 3  # rows told one by one


def told(path: str, rows: Sequence[Any], most: int = SHOWN) -> str:
    """Rows of one of `LISTS`, models or dicts, in words; 'none' when there are none.

    >>> told("faults", [{"element": "node 31", "kind": "fail", "at_s": 106.0, "to": ""}])
    'node 31 fails at 106 s'
    >>> told("deployment.seats", [{"role": "decode", "index": 0, "element": "node 20"}])
    'decode 0 on node 20'
    >>> told("elastic.schedule", [{"at_s": 600.0, "prefill": 2, "decode": 3}])
    'from 600 s 2 prefill and 3 decode'
    >>> told("supernode.edits", [])
    'none'
    """
    _, one = LISTS[path]
    sentences = [one(dict(row)) for row in rows[:most]]
    if rows[most:]:
        sentences.append(f"{len(rows) - most:,} more")
    return "; ".join(sentences) or "none"


def _fault(row: dict[str, Any]) -> str:
    """One fault: what, how and when."""
    broken = Fault.model_validate(row)
    does = KINDS[broken.kind].says(broken)
    lasts = f" for {broken.duration_s:g} s" if broken.duration_s else ""
    begins = "at" if does == "fails" else "from"
    return f"{_named(row)} {does} {begins} {broken.at_s:g} s{lasts}"


def _edit(row: dict[str, Any]) -> str:
    """One edit of the fabric: where, and what is left."""
    if row.get("add", "nothing") == "switch":
        return f"{row['element']}: a switch that is added"
    if row.get("add") == "link":
        return f"{_named(row)}: a link of {row['gb_per_s']:g} GB/s that is added"
    if row.get("links_out"):
        return f"{_named(row)}: {row['links_out']} links out"
    return f"{_named(row)}: {effect(row.get('capacity_factor'), row.get('latency_factor'))}"


def _named(row: dict[str, Any]) -> str:
    return f"{row['element']} – {row['to']}" if row.get("to") else str(row["element"])


# What each list is called, and how one row of it is told; those that name a run come first.
LISTS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "faults": ("Faults", _fault),
    "supernode.edits": ("Fabric edits", _edit),
    "deployment.seats": ("Seats", "{role} {index} on {element}".format_map),
    "elastic.schedule": (
        "Instances", "from {at_s:g} s {prefill} prefill and {decode} decode".format_map,
    ),
}  # fmt: skip


def of(scenario: Scenario) -> list[str]:
    """What breaks in a scenario and what was edited in it, a sentence each; often none."""
    lists = ((path, head, read(scenario, path)) for path, (head, _) in LISTS.items())
    return [f"{head}: {told(path, rows)}" for path, head, rows in lists if rows]
