"""Runs side by side as words: rows of tables, and files to keep.

Every run has a letter, so that two runs of one name stay apart and colour is never the only sign;
a `Comparison` here has runs named by `lettered`. Draws nothing, and knows nothing about the store
or addresses.
"""

from __future__ import annotations

from collections.abc import Sequence

from twin.lab.compare import Comparison, MetricRow
from twin.lab.compare import change as changed
from twin.metrics.measures import NOTHING
from twin.metrics.registry import METRICS, metric_of, shown
from twin.scenario import Scenario
from twin.ui.fields import label, show, why_idle
from twin.ui.show import csv_text, json_text, plain

LETTERS = "ABCDEF"
NAME_CHARS = 32  # of a run's name at the head of a column or in a legend
# Words about a scenario change no result; a trace is told by its name.
WORDS = ("name", "question", "source", "workload.trace.digest")
LABELS_HERE = {"workload.trace.name": "Trace"}

# What a choice of figures shows: the group of a metric; '': headlines or all.
GROUPS = {"Headlines": "", "Times": "times", "TTFT by part": "ttft parts", "Use": "use", "All": ""}

Cells = dict[str, str]


def lettered(names: Sequence[str]) -> list[str]:
    """What each run is called on the page: its letter and its scenario's name, cut if long."""
    cut = [n if len(n) <= NAME_CHARS else f"{n[: NAME_CHARS - 1].rstrip()}…" for n in names]
    return [f"{letter} · {name}" for letter, name in zip(LETTERS, cut, strict=False)]


def input_table(compared: Comparison, scenarios: Sequence[Scenario]) -> list[Cells]:
    """One row per field in which the scenarios differ and that matters in one of them.

    What differs from the baseline is bold; a dash says that the field does nothing there.
    """
    heads = [plain(title) for title in compared.names]
    table = []
    for row in compared.inputs:
        idle = [bool(why_idle(row.path, scenario)) for scenario in scenarios]
        if row.path in WORDS or all(idle):
            continue
        base = row.values[compared.baseline]
        cells = {"Field": LABELS_HERE.get(row.path) or label(row.path)}
        for head, value, nothing in zip(heads, row.values, idle, strict=True):
            text = NOTHING if nothing else plain(show(value, row.path))
            cells[head] = text if value == base or nothing else f"**{text}**"
        table.append(cells)
    return table


def metric_table(compared: Comparison, group: str) -> list[Cells]:
    """One row per figure: each run's with its unit, and how it stands against the baseline."""
    heads = [plain(title) for title in compared.names]
    return [_metric_row(row, heads, compared.baseline) for row in chosen(compared.metrics, group)]


def meanings(compared: Comparison, group: str) -> str:
    """What each figure of a group counts and over what, as a list in Markdown; each once."""
    labels_by_help: dict[str, list[str]] = {}
    for row in chosen(compared.metrics, group):
        described = metric_of(row.name)
        if described.help:
            labels_by_help.setdefault(described.help, []).append(described.label)
    return "\n".join(
        f"- **{', '.join(labels)}**: {text}" for text, labels in labels_by_help.items()
    )


def chosen(rows: Sequence[MetricRow], group: str) -> list[MetricRow]:
    """The figures of a group, in the order of their declaration."""
    order = {key: i for i, key in enumerate(METRICS)}
    known = sorted(rows, key=lambda row: order.get(row.name, len(order)))
    if group == "Headlines":
        return [row for row in known if "comparison" in metric_of(row.name).places]
    return [row for row in known if GROUPS[group] in ("", metric_of(row.name).group)]


def _metric_row(row: MetricRow, heads: Sequence[str], baseline: int) -> Cells:
    cells = {"Figure": metric_of(row.name).label}
    base = row.values[baseline]
    for i, value in enumerate(row.values):
        text = shown(row.name, value)
        if i != baseline and value is not None and base is not None:
            text = f"{text}  \n{change(row.name, value, base, row.verdicts[i])}"
        cells[heads[i]] = text
    return cells


def change(name: str, value: float, base: float, verdict: str = "") -> str:
    """How a figure stands against the baseline's, coloured and in words.

    verdict: of its row; a figure that only spare NPUs made "different" is no worse.

    >>> change("ttft_s_p50", 0.9, 1.0), change("slo_attainment", 0.8, 0.9)
    (':green[−10.0 %, better]', ':red[−10.0 points, worse]')
    """
    text, standing = changed(name, value, base)
    standing = "" if verdict == "different" else standing
    colour = {"better": "green", "worse": "red"}.get(standing, "gray")
    return f":{colour}[{text}{f', {standing}' if standing not in ('', 'same') else ''}]"


# Files to keep.


def as_csv(compared: Comparison) -> str:
    """Inputs that differ and every figure, one row each, a column a run; SI units."""
    inputs = [("input", row.path, row.unit, *row.values) for row in compared.inputs]
    figures = [("figure", row.name, _unit(row.name), *row.values) for row in compared.metrics]
    heads = [("kind", "name", "unit", *compared.names), ("run", "id", "", *compared.runs)]
    return csv_text([*heads, *inputs, *figures])


def _unit(name: str) -> str:
    """The unit of a figure as it is stored: a share is of one."""
    described = metric_of(name)
    return "of 1" if described.kind == "share" else described.unit


def as_json(compared: Comparison) -> str:
    """The comparison as one JSON object; SI units, shares of one."""
    body = {
        "runs": [
            {"id": run, "label": name, "baseline": i == compared.baseline}
            for i, (run, name) in enumerate(zip(compared.runs, compared.names, strict=True))
        ],
        "notes": compared.notes,
        "inputs": [
            {"path": row.path, "unit": row.unit, "values": row.values} for row in compared.inputs
        ],
        "figures": [
            {
                "name": row.name, "unit": _unit(row.name), "better": metric_of(row.name).better,
                "values": row.values, "deltas": row.deltas, "ratios": row.ratios,
            }
            for row in compared.metrics
        ],
    }  # fmt: skip
    return json_text(body)
