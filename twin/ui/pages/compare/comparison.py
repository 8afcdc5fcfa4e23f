"""Runs side by side as words: rows of tables, and files to keep. Every run has a letter
(`lettered`), so that two of one name stay apart and colour is never the only sign. Draws
nothing."""

from collections.abc import Sequence
from typing import TypeGuard

from twin.lab.sweep.compare import Comparison, MetricRow
from twin.lab.sweep.compare import change as changed
from twin.metrics.measures import NOTHING
from twin.metrics.registry import METRICS, metric_of, shown
from twin.scenario import Scenario
from twin.ui.charts.compare import Difference
from twin.ui.fields import label, show, why_idle
from twin.ui.show import csv_text, json_text, plain

LETTERS = "ABCDEF"
NAME_CHARS = 32  # of a run's name at the head of a column or in a legend
# Words about a scenario change no result; a trace is told by its name.
WORDS = ("name", "question", "source", "workload.trace.digest")

# What a choice of figures shows: the group of a metric; '': headlines or all.
GROUPS = {"Headlines": "", "Times": "times", "TTFT by part": "ttft parts", "Use": "use", "All": ""}

FEW = 2  # differences told in a sentence
TOLD_CHARS = 26  # of a field's change in a picture
LEADING = ("slo_attainment", "goodput_req_per_s", "ttft_s_p99", "tpot_s_p99",
           "tokens_per_s_per_npu")  # fmt: skip

Cells = dict[str, str]


def lettered(names: Sequence[str]) -> list[str]:
    """What each run is called on the page: its letter and its scenario's name, cut if long."""
    cut = [n if len(n) <= NAME_CHARS else f"{n[: NAME_CHARS - 1].rstrip()}…" for n in names]
    return [f"{letter} · {name}" for letter, name in zip(LETTERS, cut, strict=False)]


def input_table(compared: Comparison, scenarios: Sequence[Scenario]) -> list[Cells]:
    """One row per field in which the scenarios differ and that matters in one of them; bold: it
    differs from the baseline; a dash: it does nothing there."""
    table = []
    for row in compared.inputs:
        idle = [bool(why_idle(row.path, scenario)) for scenario in scenarios]
        if row.path in WORDS or all(idle):
            continue
        base = row.values[compared.baseline]
        cells = {"Field": _field(row.path)}
        for name, value, nothing in zip(compared.names, row.values, idle, strict=True):
            text = NOTHING if nothing else plain(show(value, row.path))
            cells[plain(name)] = text if value == base or nothing else f"**{text}**"
        table.append(cells)
    return table


def _field(path: str) -> str:
    return "Trace" if path == "workload.trace.name" else label(path)


def asked_otherwise(compared: Comparison, scenarios: Sequence[Scenario]) -> list[Difference]:
    """Every field that matters and differs from the baseline's, of every other run."""
    rows = []
    for row in compared.inputs:
        if row.path in WORDS:
            continue
        base = row.values[compared.baseline]
        for run, i in enumerate(_others(compared)):
            value = row.values[i]
            idle = all(why_idle(row.path, scenarios[k]) for k in (i, compared.baseline))
            if value == base or idle:
                continue
            change = value / base - 1.0 if _is_number(value) and _is_number(base) and base else 0.0
            told = f"{show(base, row.path)} → {show(value, row.path)}"
            text = told if len(told) <= TOLD_CHARS else f"{told[: TOLD_CHARS - 1].rstrip()}…"
            rows.append(Difference(_field(row.path), run, change, text, told))
    return rows


def came_out_otherwise(compared: Comparison) -> list[Difference]:
    """Every headline figure that is not the same as the baseline's, of every other run."""
    rows = []
    for row in chosen(compared.metrics, "Headlines"):
        base, kind = row.values[compared.baseline], metric_of(row.name).kind
        for run, i in enumerate(_others(compared)):
            value = row.values[i]
            if value is None or base is None or row.verdicts[i] == "same":
                continue
            whole = 1.0 if kind == "share" else base
            change = (value - base) / whole if whole else 0.0
            text = changed(row.name, value, base)[0]
            told = f"{shown(row.name, base)} → {shown(row.name, value)}"
            name = metric_of(row.name).label
            rows.append(Difference(name, run, change, text, told, row.verdicts[i]))
    return rows


def conclusion(compared: Comparison, scenarios: Sequence[Scenario]) -> str:
    """What a comparison says, in one sentence."""
    came, others = came_out_otherwise(compared), _others(compared)
    if len(others) > 1:
        return _leaders(compared)
    asked = [f"{row.label} {row.told}" for row in asked_otherwise(compared, scenarios)]
    told = f"With {' and '.join(asked)}" if 0 < len(asked) <= FEW else f"With {len(asked)} changes"
    parts = []
    # A lower attainment of the SLO comes before whatever is gained.
    falls = any(row.label == METRICS[LEADING[0]].label and row.standing == "worse" for row in came)
    for standing in ("worse", "better") if falls else ("better", "worse"):
        rows = sorted((row for row in came if row.standing == standing), key=_weight)
        listed = ", ".join(f"{row.label} {row.text}" for row in rows[:FEW])
        more = f" and {len(rows) - FEW} more" if len(rows) > FEW else ""
        parts.append(f"{standing} in {listed}{more}" if rows else f"{standing} in nothing")
    letter = LETTERS[others[0]]
    return f"{told if asked else 'With the same question'}, {letter} is {'; '.join(parts)}."


def _weight(row: Difference) -> tuple[int, float]:
    """What is told first: what the SLO is about, then what changes most."""
    labels = [METRICS[name].label for name in LEADING]
    return labels.index(row.label) if row.label in labels else len(labels), -abs(row.change)


def _leaders(compared: Comparison) -> str:
    """Which of several runs is best in what."""
    best: dict[str, list[str]] = {}
    for row in compared.metrics:
        known = [(value, i) for i, value in enumerate(row.values) if value is not None]
        if row.name not in LEADING or len({value for value, _ in known}) < 2:
            continue
        top = max(known) if row.better == "higher" else min(known)
        if all(v == "same" for i, v in enumerate(row.verdicts) if i != compared.baseline):
            continue
        best.setdefault(LETTERS[top[1]], []).append(metric_of(row.name).label)
    if not best:
        return "These runs come to the same."
    return "Best: " + "; ".join(f"{run} in {' and '.join(best[run])}" for run in sorted(best)) + "."


def _others(compared: Comparison) -> list[int]:
    return [i for i in range(len(compared.runs)) if i != compared.baseline]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def metric_table(compared: Comparison, group: str) -> list[Cells]:
    """One row per figure: each run's with its unit, and how it stands against the baseline."""
    table = []
    for row in chosen(compared.metrics, group):
        base, cells = row.values[compared.baseline], {"Figure": metric_of(row.name).label}
        for i, value in enumerate(row.values):
            text = shown(row.name, value)
            if i != compared.baseline and value is not None and base is not None:
                text = f"{text}  \n{change(row.name, value, base, row.verdicts[i])}"
            cells[plain(compared.names[i])] = text
        table.append(cells)
    return table


def meanings(compared: Comparison, group: str) -> str:
    """What each figure of a group counts and over what, as a list in Markdown; each once."""
    labels_by_help: dict[str, list[str]] = {}
    for row in chosen(compared.metrics, group):
        described = metric_of(row.name)
        if described.help:
            labels_by_help.setdefault(described.help, []).append(described.label)
    lines = (f"- **{', '.join(labels)}**: {text}" for text, labels in labels_by_help.items())
    return "\n".join(lines)


def chosen(rows: Sequence[MetricRow], group: str) -> list[MetricRow]:
    """The figures of a group, in the order of their declaration."""
    order = list(METRICS)
    known = sorted(rows, key=lambda row: (*order, row.name).index(row.name))
    if group == "Headlines":
        return [row for row in known if "comparison" in metric_of(row.name).places]
    return [row for row in known if GROUPS[group] in ("", metric_of(row.name).group)]


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
