"""How well the twin ranks: Kendall's tau with each published sweep of layouts of one machine."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import kendalltau

from twin.lab.evidence.rows import Row, load_published
from twin.scenario import fields

LEAST = 3  # rows of a sweep
# What a deployment chooses; all else is the machine, the model, the traffic and the software.
LAYOUT = ("supernode.nodes", "deployment.mode", "deployment.prefill", "deployment.decode",
          "deployment.colocated", "experts.redundant", "experts.placement")  # fmt: skip
SERVED = ("decode.throughput", "decode.tpot", "prefill.throughput", "prefill.requests")


@dataclass(frozen=True, slots=True)
class Ranking:
    """A published sweep and the twin's order of it."""

    system: str
    measure: str
    rows: tuple[str, ...]
    differ: tuple[str, ...]  # labels of the fields
    tau: float  # Kendall's tau b: 1 the same order, -1 the reverse


def rankings(twin: Mapping[str, float], published: Sequence[Row] | None = None) -> list[Ranking]:
    """The twin's order of each published sweep of three rows or more; twin: its answers by row."""
    sweeps: dict[str, list[Row]] = {}
    for row in load_published() if published is None else published:
        if row.measure in SERVED and row.against is None and row.kind != "derived":
            settings = {key: value for key, value in row.scenario.items() if not _is_choice(key)}
            keys = [row.system, row.measure, row.unit, settings, dict(row.facts), dict(row.args)]
            sweeps.setdefault(json.dumps(keys, sort_keys=True), []).append(row)
    results = []
    for rows in sweeps.values():
        if len(rows) < LEAST:
            continue
        tau = kendall_tau([row.value for row in rows], [twin[row.id] for row in rows])
        if tau is not None:
            paths = sorted({key for row in rows for key in row.scenario if _is_choice(key)})
            labels = tuple(fields()[path].label for path in paths
                           if len({str(row.scenario.get(path)) for row in rows}) > 1)  # fmt: skip
            names = tuple(row.id for row in rows)
            results.append(Ranking(rows[0].system, rows[0].measure, names, labels, tau))
    return sorted(results, key=lambda r: (-len(r.rows), r.system, r.measure))


def _is_choice(path: str) -> bool:
    """Whether a field is one that a deployment chooses."""
    return any(path == layout_path or path.startswith(f"{layout_path}.") for layout_path in LAYOUT)


def kendall_tau(figures: Sequence[float], other_figures: Sequence[float]) -> float | None:
    """Kendall's tau b of two lists of figures; None if one has only ties."""
    tau = float(kendalltau(figures, other_figures).statistic)
    return None if math.isnan(tau) else tau


def ranking_table(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The published sweeps with Kendall's tau, as rows of a table; answers: the judged rows."""
    return [
        {"Published sweep": f"{ranking.system}, {ranking.measure.replace('.', ' ')}",
         "What differs": ", ".join(ranking.differ), "Points": str(len(ranking.rows)),
         "Kendall's tau": f"{ranking.tau:+.2f}"}
        for ranking in rankings({row["id"]: row["twin"] for row in answers})
    ]  # fmt: skip


def made_table(
    rows: Sequence[Mapping[str, Any]], table: Callable[[list[dict[str, str]]], str]
) -> str:
    """The table of published sweeps for the documents; table: makes it of rows."""
    return table(ranking_table(rows))
