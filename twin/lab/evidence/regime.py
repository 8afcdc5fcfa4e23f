"""How far off the twin is where a figure stands: the error of the published rows near it.

Near are unseen and seen rows of the same quantity on the same chip; where there is none, on chips
of the same family; where there is none either, nothing was published near, and that is said.
The errors are those that `python -m twin evidence --write` kept last (`make docs` does): whoever
asks for one figure need not wait for all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli_w

from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.lab.evidence.judge import HONEST, Judged
from twin.lab.evidence.rows import Row, load_published, rows_digest, scenario_of
from twin.lab.files import write_text
from twin.lab.library import RECORD, published_table
from twin.scenario import Scenario, pools

ERRORS = RECORD / "errors.toml"
# Quantity -> measures of rows that say something about it; none for what nobody has published.
QUANTITIES = {
    "TPOT": ("decode.tpot", "decode.iteration", "finite.burst.tpot"),
    "decode throughput": ("decode.throughput", "decode.slo", "finite.drain.throughput",
                          "finite.burst.throughput"),
    "prefill throughput": ("prefill.throughput", "prefill.batch"),
    "TTFT": (),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Near:
    """The errors of the rows near a figure, as fractions; no rows: nothing was published near."""

    quantity: str
    where: str
    rows: int
    mean: float
    worst: float
    stale: bool  # whether the errors were kept with other facts or rows

    @property
    def sentence(self) -> str:
        """'TPOT: 9 % off on average, 43 % at worst (13 published rows on Ascend 910C).'"""
        quantity = self.quantity[:1].upper() + self.quantity[1:]
        if not self.rows:
            return f"{quantity}: no row was published near it."
        rows = "1 published row" if self.rows == 1 else f"{self.rows} published rows"
        return (
            f"{quantity}: {100 * self.mean:.0f} % off on average, {100 * self.worst:.0f} % at "
            f"worst ({rows} on {self.where}{', with earlier facts' if self.stale else ''})."
        )


def near(scenario: Scenario, facts: Facts) -> list[Near]:
    """The error of the regime of every headline figure that this deployment has."""
    roles = {role for role, *_ in pools(scenario)}
    quantities = []
    if roles & {"decode", "colocated"}:
        quantities += ["TPOT", "decode throughput"]
    if roles & {"prefill", "colocated"}:
        quantities += ["prefill throughput"]
    if len(roles) > 1 or "colocated" in roles:
        quantities += ["TTFT"]
    return [_near(quantity, scenario.supernode.chip, facts) for quantity in quantities]


@lru_cache(maxsize=64)
def _near(quantity: str, chip: str, facts: Facts) -> Near:
    rows = [
        row
        for row in load_published()
        if row.kind in HONEST and row.measure in QUANTITIES[quantity] and row.against is None
    ]
    same = [row for row in rows if _chip(row) == chip]
    where = load_chip(facts, chip).title
    if not same:
        family = chip.startswith("ascend")
        same = [row for row in rows if _chip(row).startswith("ascend") == family]
        where = "other Ascend chips" if family else "other NVIDIA chips"
    kept = kept_errors()
    errors = [abs(kept["error"][row.id]) for row in same if row.id in kept["error"]]
    if not errors:
        return Near(quantity, "", 0, 0.0, 0.0, False)
    stale = (kept["facts"], kept["rows"]) != (facts.digest, rows_digest(load_published()))
    return Near(quantity, where, len(errors), sum(errors) / len(errors), max(errors), stale)


@lru_cache(maxsize=1)
def kept_errors() -> dict[str, Any]:
    """The errors that were kept last, with the digests of facts and rows behind them."""
    return published_table(ERRORS)


def write_errors(facts: Facts, answers: Judged, path: Path = ERRORS) -> None:
    """Keep the errors of unseen and seen rows; raises NotWritten."""
    table = {
        "facts": facts.digest,
        "rows": rows_digest(load_published()),
        "error": {
            row["id"]: round(row["judged_error"], 4)
            for row in answers
            if row["kind"] in HONEST and row["judged_error"] is not None
        },
    }
    head = "# Errors of rows that no fit helped: made by `python -m twin evidence --write`.\n\n"
    write_text(path, head + tomli_w.dumps(table))


def _chip(row: Row) -> str:
    return scenario_of(row.scenario).supernode.chip


def near_each(scenarios: Mapping[str, Scenario], facts: Facts) -> list[str]:
    """The error of the regime of several deployments by name; told once where they share it."""
    told: dict[str, list[str]] = {}
    for name, scenario in scenarios.items():
        text = " ".join(each.sentence for each in near(scenario, facts))
        told.setdefault(text, []).append(name)
    if len(told) == 1:
        return list(told)
    return [f"{', '.join(names)}: {text}" for text, names in told.items()]
