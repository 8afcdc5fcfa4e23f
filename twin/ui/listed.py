"""Lists in a scenario as words: what breaks, what was edited, who sits where. Draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twin.scenario import KINDS, Fault, Scenario
from twin.ui.pages.supernode.edits import effect

SHOWN = 3  # rows told one by one
LISTS = ("faults", "supernode.edits", "deployment.seats", "elastic.schedule")


def told(path: str, rows: Sequence[Any], most: int = SHOWN) -> str:
    """Rows of one of `LISTS`, models or dicts, in words; 'none' when there are none.

    >>> told("faults", [{"element": "node 31", "kind": "fail", "at_s": 106.0, "to": ""}])
    'node 31 fails at 106 s'
    >>> told("supernode.edits", [])
    'none'
    """
    one = dict(zip(LISTS, (fault, edit, seat, step), strict=True))[path]
    sentences = [one(dict(row)) for row in rows[:most]]
    if rows[most:]:
        sentences.append(f"{len(rows) - most:,} more")
    return "; ".join(sentences) or "none"


def fault(row: dict[str, Any]) -> str:
    """One fault: what, how and when."""
    broken = Fault.model_validate(row)
    does = KINDS[broken.kind].says(broken)
    lasts = f" for {broken.duration_s:g} s" if broken.duration_s else ""
    begins = "at" if does == "fails" else "from"
    return f"{_named(row)} {does} {begins} {broken.at_s:g} s{lasts}"


def edit(row: dict[str, Any]) -> str:
    """One edit of the fabric: where, and what is left."""
    if row.get("add", "nothing") == "switch":
        return f"{row['element']}: a switch that is added"
    if row.get("add") == "link":
        return f"{_named(row)}: a link of {row['gb_per_s']:g} GB/s that is added"
    if row.get("links_out"):
        return f"{_named(row)}: {row['links_out']} links out"
    return f"{_named(row)}: {effect(row.get('capacity_factor'), row.get('latency_factor'))}"


def seat(row: dict[str, Any]) -> str:
    """One seat: who, and where.

    >>> seat({"role": "decode", "index": 0, "element": "node 20"})
    'decode 0 on node 20'
    """
    return f"{row['role']} {row['index']} on {row['element']}"


def step(row: dict[str, Any]) -> str:
    """One row of a schedule.

    >>> step({"at_s": 600.0, "prefill": 2, "decode": 3})
    'from 600 s 2 prefill and 3 decode'
    """
    return f"from {row['at_s']:g} s {row['prefill']} prefill and {row['decode']} decode"


def _named(row: dict[str, Any]) -> str:
    return f"{row['element']} – {row['to']}" if row.get("to") else str(row["element"])


def of(scenario: Scenario, most: int = SHOWN) -> list[str]:
    """What breaks in a scenario and what was edited in its fabric, a sentence each; often none."""
    sentences = []
    if scenario.faults:
        sentences.append(f"Faults: {told('faults', scenario.faults, most)}")
    if scenario.supernode.edits:
        sentences.append(f"Fabric edits: {told('supernode.edits', scenario.supernode.edits, most)}")
    if scenario.deployment.seats:
        sentences.append(f"Seats: {told('deployment.seats', scenario.deployment.seats, most)}")
    if scenario.elastic.schedule:
        schedule = told("elastic.schedule", scenario.elastic.schedule, most)
        sentences.append(f"Instances: {schedule}")
    return sentences
