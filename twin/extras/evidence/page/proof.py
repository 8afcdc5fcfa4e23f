"""Published rows next to the twin as words and tables, from dicts of `lab.evidence.evidence`."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from twin.facts import Facts
from twin.lab.evidence.judge import HONEST
from twin.lab.evidence.rows import KINDS, Beyond, Row, error_limits
from twin.metrics.measures import three_figures
from twin.scenario import field_unit
from twin.scenario.words import unit_after
from twin.ui.fields import field_name, text_of
from twin.ui.show import plain

MARKS = {
    "a": "read in the primary source",
    "b": "from a secondary source",
    "c": "recalled, not looked up again",
    "d": "arithmetic on figures of the primary source",
    "e": "an assumption of this project",
    "f": "fitted (data/calibration.toml, or the file's own note)",
    "m": "measured by this project on public data",
}
UNITS = {"us": "µs", "ratio": "× (ratio)", "B": "B/token"}
VALUE_CHARS = 48  # of a fact that is a list or a text
FARTHEST, MISSING = 5, 3  # rows in the first screen
_FIELD = re.compile(r"^[\w.*]+(?: = \w+)?(?::\s*|$)")  # the field that a reason begins with

Rows = Sequence[Mapping[str, Any]]


def sorted_by_regime(rows: Rows) -> list[dict[str, Any]]:
    """Rows by regime, in the order in which regimes first come."""
    regimes = [row["regime"] for row in rows]
    return [dict(row) for row in sorted(rows, key=lambda row: regimes.index(row["regime"]))]


def accepted_errors() -> str:
    """Largest accepted errors by group of rows, in words: '±12 % on CloudMatrix384, ...'."""
    texts = [f"±{100 * bar:.0f} % on {group}" for group, bar in error_limits().worst.items()]
    texts.append(f"±{100 * error_limits().exchange:.0f} % for dispatch and combine over EP degree")
    return ", ".join(texts)


def unit_text(row: Mapping[str, Any]) -> str:
    """The unit of a row with its basis: 'µs (die)'."""
    text = UNITS.get(row["unit"], row["unit"])
    basis = row.get("basis", "")
    if row["unit"] in ("ratio", "B") or basis in ("", "model") or f"/{basis}" in text:
        return text
    return f"{text}, per {basis}" if "tokens/s" in text else f"{text} ({basis})"


def reason_of(row: Mapping[str, Any]) -> str:
    """Sentence on a row: its bar if the error exceeds it, the reason for its kind, its note."""
    if row["outside"]:
        reason = row["note"] or "the reason is not known yet"
        return f"Outside its bar of {100 * row['bar']:.0f} %: {reason}"
    if row["because"]:
        return f"{row['kind'].capitalize()}: {row['because']}. {row['note']}".strip()
    return row["note"]


def other_answers(row: Mapping[str, Any]) -> str:
    """Errors of other simulators on a row, in words: 'msmodeling +8 %'."""
    return ", ".join(f"{name} {100 * error:+.0f} %" for name, error in row["others"])


def kind_in_words(row: Mapping[str, Any]) -> str:
    """Kind of a row, its reason, and its first error, from before it was seen, if any."""
    text = row["because"] or KINDS[row["kind"]]
    if row["first_error"] is not None:
        text += f"; first error {100 * row['first_error']:+.1f} % at {row['first_commit'][:7]}"
    return f"{row['kind']}: {text}"


def band_text(row: Mapping[str, Any]) -> str:
    """The range (%) of a row's error expected by other systems: '−48 to +61'; '' without one."""
    if row["band"] is None:
        return ""
    low, high, is_inside = row["band"]
    ends_text = f"{100 * low:+.0f} to {100 * high:+.0f}".replace("-", "−")
    return f"\u26a0 {ends_text}" if is_inside is False else ends_text


def band_in_words(row: Mapping[str, Any]) -> str:
    """The range of a row's error expected by other systems, as a sentence; '' without one."""
    if not (text := band_text(row)):
        return ""
    inside, ends_text = row["band"][2], text.removeprefix("\u26a0 ")
    first_text = (
        "" if inside is None else f"; its first error lies {'within' if inside else 'outside'}"
    )
    return (
        f"As if nothing of {row['system']} were known, four of five errors of such a row are "
        f"expected within {ends_text} %{first_text}."
    )


def row_table(rows: Rows, links: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows as the page's table; errors in percent; links: addresses of scenarios by row id."""
    return [
        {
            # First, since a phone shows one column and a half.
            "Error, %": 100 * row["error"], "Quantity": row["quantity"],
            "Published": float(row["published"]), "Twin": float(f"{row['twin']:.4g}"),
            "Unit (basis)": unit_text(row),
            "Bar": f"\u26a0 over {100 * row['bar']:.0f} %" if row["outside"] else "within",
            "First error, %": None if row["first_error"] is None else 100 * row["first_error"],
            "Band, %": band_text(row), "Kind": row["kind"], "Others": other_answers(row),
            "Regime": row["regime"], "System": row["system"], "Note": reason_of(row),
            "Source": row["source"], "Mark": row["mark"], "Scenario": links.get(row["id"], ""),
        }
        for row in rows
    ]  # fmt: skip


def worst_id(rows: Rows) -> str:
    """Id of the row with the largest absolute error in the first row's group."""
    group_rows = [row for row in rows if row["group"] == rows[0]["group"] and row["kind"] in HONEST]
    return str(max(group_rows or rows, key=lambda row: abs(row["error"]))["id"])


def farthest_rows(rows: Rows) -> list[Mapping[str, Any]]:
    """The FARTHEST judged rows with the largest absolute errors, largest first."""
    judged_rows = [row for row in rows if row["kind"] in HONEST]
    return sorted(judged_rows, key=lambda row: -abs(row["error"]))[:FARTHEST]


def missing_in_words(rows: Sequence[Beyond]) -> str:
    """The most frequent reasons why published results have no scenario, as a list in Markdown."""
    reasons = [_FIELD.sub("", part.strip()) for row in rows for part in row.missing.split(";")]
    most_common = Counter(filter(None, reasons)).most_common(MISSING)
    lines = [f"- {plain(why)} ({count} published results)" for why, count in most_common]
    return "\n".join([*lines, f"- {len(rows)} in all, under *Beyond the twin*"])


def differences(row: Row) -> list[str]:
    """Fields of the row's scenario with their values, in words, and its sizes."""
    field_texts = []
    for path, value in row.scenario.items():
        label = field_name(path)
        unit = unit_after(label, field_unit(path))
        field_texts.append(f"{label}: {text_of(value, path)} {unit}".rstrip())
    sizes = (f"{k.replace('_', ' ')}: {shorten(v)}" for k, v in row.args.items() if k != "weight")
    return [*field_texts, *sizes]


def fact_table(facts: Facts, words: str = "", marks: Sequence[str] = ()) -> list[dict[str, str]]:
    """Displayed rows (text by column) of facts that contain all of `words`, in any case, and have
    one of these marks of certainty (letters, as "a": read in the primary source); empty: any."""
    rows = (
        {"Fact": name, "Value": shorten(fact.value), "Unit": UNITS.get(fact.unit, fact.unit),
         "Mark": fact.mark, "Source": fact.source, "Note": fact.note}
        for name, fact in facts.items() if not marks or fact.mark in marks
    )  # fmt: skip
    parts = words.lower().split()
    return [row for row in rows if all(word in " ".join(row.values()).lower() for word in parts)]


def shorten(value: Any) -> str:
    """A fact's value as text of at most VALUE_CHARS characters."""
    if isinstance(value, list | tuple):
        text = f"{len(value)} values: " + ", ".join(shorten(item) for item in value[:6])
    else:
        text = value if isinstance(value, str) else f"{value:,.6g}"
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 1] + "…"


def figure_text(row: Mapping[str, Any], key: str) -> str:
    """The figure `key` of a row with its unit for a tile, without the suffix '/NPU' or the like."""
    text = three_figures(row[key]) if row["unit"] != "B" else f"{row[key]:,.0f}"
    if row["unit"] == "ratio":
        return f"× {text}"
    return f"{text} {UNITS.get(row['unit'], row['unit']).removesuffix(unit_suffix(row))}"


def unit_suffix(row: Mapping[str, Any]) -> str:
    """'/NPU' where a rate is given per die, NPU or card, else ''."""
    suffix = f"/{row['basis']}"
    return suffix if row["unit"].endswith(suffix) else ""


@lru_cache(maxsize=4)
def mark_counts(facts: Facts) -> dict[str, int]:
    """The marks in use, each with how many facts have it; shared, so never changed."""
    counts = Counter(fact.mark for fact in facts.values())
    return {mark: counts[mark] for mark in MARKS if counts[mark]}
