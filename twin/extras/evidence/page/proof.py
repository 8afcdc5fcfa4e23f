"""Published rows next to the twin: as words and tables, from dicts of `lab.evidence.evidence`; as a
closed loop that fills every slot; and the slides' table of machines."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.lab.evidence.judge import HONEST
from twin.lab.evidence.rows import KINDS, Row, error_limits, scenario_of
from twin.lab.library import RECORD, published_table
from twin.lab.machines import supernode_of
from twin.metrics.measures import three_figures
from twin.scenario import Scenario, pools
from twin.ui.fields import field_of, text_of
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

# What the slide prints, of the whole machine and of one accelerator.
LINES = {
    "accelerators": "Accelerators",
    "peak_pflops": "Dense FP16 peak, all, PFLOPS",
    "memory_tb_per_s": "Memory bandwidth, all, TB/s",
    "memory_tb_per_s_each": "Memory bandwidth, each, TB/s",
    "interconnect_tb_per_s": "Scale-up links, both directions, all, TB/s",
    "interconnect_tb_per_s_each": "Scale-up links, both directions, each, TB/s",
}

Rows = Sequence[Mapping[str, Any]]


def sorted_by_regime(rows: Rows) -> list[dict[str, Any]]:
    """Rows sorted by regime; regimes are in the order of their first rows."""
    regimes = [row["regime"] for row in rows]
    return [dict(row) for row in sorted(rows, key=lambda row: regimes.index(row["regime"]))]


def accepted_errors_text() -> str:
    """Largest accepted errors by group of rows, in words: '±12 % on CloudMatrix384, ...'."""
    limits = [f"±{100 * bound:.0f} % on {group}" for group, bound in error_limits().worst.items()]
    limits.append(f"±{100 * error_limits().exchange:.0f} % for dispatch and combine over EP degree")
    return ", ".join(limits)


def unit_text(row: Mapping[str, Any]) -> str:
    """Unit of a row and what its figure refers to: 'µs (die)', 'tokens/s, per NPU'."""
    unit = UNITS.get(row["unit"], row["unit"])
    basis = row.get("basis", "")
    if row["unit"] in ("ratio", "B") or basis in ("", "model") or f"/{basis}" in unit:
        return unit
    return f"{unit}, per {basis}" if "tokens/s" in unit else f"{unit} ({basis})"


def reason_text(row: Mapping[str, Any]) -> str:
    """Text on a row: if its error exceeds its bar, the reason from its note; otherwise why it is of
    its kind, if that is stated, and its note."""
    if row["outside"]:
        reason = row["note"] or "the reason is not known yet"
        return f"Outside its bar of {100 * row['bar']:.0f} %: {reason}"
    if row["because"]:
        return f"{row['kind'].capitalize()}: {row['because']}. {row['note']}".strip()
    return row["note"]


def other_answers_text(row: Mapping[str, Any]) -> str:
    """Errors of other simulators on a row, in words: 'msmodeling +8 %'."""
    return ", ".join(f"{simulator} {100 * error:+.0f} %" for simulator, error in row["others"])


def kind_in_words(row: Mapping[str, Any]) -> str:
    """Kind of a row with its reason and, if it has one, its first error, as text."""
    reason = row["because"] or KINDS[row["kind"]]
    if row["first_error"] is not None:
        reason += f"; first error {100 * row['first_error']:+.1f} % at {row['first_commit'][:7]}"
    return f"{row['kind']}: {reason}"


def band_text(row: Mapping[str, Any]) -> str:
    """Range (%) in which a row's error is expected from errors of other systems, '−48 to +61', with
    a warning sign if its first error is outside; '' without one."""
    if row["band"] is None:
        return ""
    low_error, high_error, is_inside = row["band"]
    ends_text = f"{100 * low_error:+.0f} to {100 * high_error:+.0f}".replace("-", "−")
    return f"\u26a0 {ends_text}" if is_inside is False else ends_text


def band_in_words(row: Mapping[str, Any]) -> str:
    """Sentence on the range (%) in which a row's error is expected; '' without such a range."""
    if not (percent_text := band_text(row)):
        return ""
    is_inside, first_error_text = row["band"][2], ""
    ends_text = percent_text.removeprefix("\u26a0 ")
    if is_inside is not None:
        first_error_text = f"; its first error lies {'within' if is_inside else 'outside'}"
    return (
        f"As if nothing of {row['system']} were known, four of five errors of such a row are "
        f"expected within {ends_text} %{first_error_text}."
    )


def row_table(rows: Rows, links: Mapping[str, str]) -> list[dict[str, Any]]:
    """Judged rows as rows of the page's table; links: addresses of scenarios by row id."""
    return [
        {
            # First, since a phone shows one column and a half.
            "Error, %": 100 * row["error"], "Quantity": row["quantity"],
            "Published": float(row["published"]), "Twin": float(f"{row['twin']:.4g}"),
            "Unit (basis)": unit_text(row),
            "Bar": f"\u26a0 over {100 * row['bar']:.0f} %" if row["outside"] else "within",
            "First error, %": None if row["first_error"] is None else 100 * row["first_error"],
            "Band, %": band_text(row), "Kind": row["kind"], "Others": other_answers_text(row),
            "Regime": row["regime"], "System": row["system"], "Note": reason_text(row),
            "Source": row["source"], "Mark": row["mark"], "Scenario": links.get(row["id"], ""),
        }
        for row in rows
    ]  # fmt: skip


def farthest_rows(rows: Rows) -> list[Mapping[str, Any]]:
    """Rows of the kinds in HONEST (unseen and seen), the largest absolute error first."""
    return sorted((r for r in rows if r["kind"] in HONEST), key=lambda r: -abs(r["error"]))


def missing_in_words(rows: Sequence[Mapping[str, str]]) -> str:
    """Markdown list of the most frequent reasons why published results have no scenario."""
    reasons = [_FIELD.sub("", text.strip()) for row in rows for text in row["missing"].split(";")]
    most_common = Counter(filter(None, reasons)).most_common(MISSING)
    lines = [f"- {plain(reason)} ({count} published results)" for reason, count in most_common]
    return "\n".join([*lines, f"- {len(rows)} in all, under *Beyond the twin*"])


def setting_texts(row: Row) -> list[str]:
    """Texts 'label: value' of the fields of a row's scenario, and of its operator's sizes."""
    field_texts = []
    for path, value in row.scenario.items():
        field, value_text = field_of(path), text_of(value, path)
        field_texts.append(f"{field.label}: {value_text} {field.unit_after_label}".rstrip())
    operator_sizes = {name: size for name, size in row.args.items() if name != "weight"}
    sizes = (f"{name.replace('_', ' ')}: {shorten(n)}" for name, n in operator_sizes.items())
    return [*field_texts, *sizes]


def fact_table(facts: Facts, words: str = "", marks: Sequence[str] = ()) -> list[dict[str, str]]:
    """Rows (text by column) of the facts whose texts contain all of `words`, in any case, and that
    have one of these `marks` of certainty, as in MARKS; empty: any."""
    rows = (
        {"Fact": fact_name, "Value": shorten(fact.value), "Unit": UNITS.get(fact.unit, fact.unit),
         "Mark": fact.mark, "Source": fact.source, "Note": fact.note}
        for fact_name, fact in facts.items() if not marks or fact.mark in marks
    )  # fmt: skip
    lower_words = words.lower().split()
    return [row for row in rows if all(w in " ".join(row.values()).lower() for w in lower_words)]


def shorten(value: Any) -> str:
    """A fact's value as text of at most VALUE_CHARS characters."""
    if isinstance(value, list | tuple):
        short_text = f"{len(value)} values: " + ", ".join(shorten(item) for item in value[:6])
    else:
        short_text = value if isinstance(value, str) else f"{value:,.6g}"
    return short_text if len(short_text) <= VALUE_CHARS else short_text[: VALUE_CHARS - 1] + "…"


def figure_text(row: Mapping[str, Any], key: str) -> str:
    """The figure `key` of a row with its unit, without a suffix like '/NPU', for a tile."""
    figure = three_figures(row[key]) if row["unit"] != "B" else f"{row[key]:,.0f}"
    if row["unit"] == "ratio":
        return f"× {figure}"
    return f"{figure} {UNITS.get(row['unit'], row['unit']).removesuffix(unit_suffix(row))}"


def unit_suffix(row: Mapping[str, Any]) -> str:
    """'/NPU' where a rate is given per die, NPU or card, else ''."""
    suffix = f"/{row['basis']}"
    return suffix if row["unit"].endswith(suffix) else ""


@lru_cache(maxsize=4)
def mark_counts(facts: Facts) -> dict[str, int]:
    """Number of facts by mark of certainty, for marks in use; callers must not change it."""
    count_of = Counter(fact.mark for fact in facts.values())
    return {mark: count_of[mark] for mark in MARKS if count_of[mark]}


def machine_figures(entry: dict[str, Any], facts: Facts) -> dict[str, float]:
    """Figures by keys of LINES of a machine as sold; entry: its table in record/slides.toml."""
    supernode = supernode_of(entry["machine"], facts)
    chip, npus = load_chip(facts, supernode.chip), supernode.npus
    dies = npus * chip.dies_per_npu
    link_bytes_per_s = 2.0 * supernode.sub_planes * supernode.ub_link_gb_per_s * 1e9 * dies
    hbm_bytes_per_s = dies * chip.hbm_bytes_per_s
    return {
        "accelerators": float(npus), "peak_pflops": dies * chip.peak("fp16") / 1e15,
        "memory_tb_per_s": hbm_bytes_per_s / 1e12,
        "memory_tb_per_s_each": hbm_bytes_per_s / npus / 1e12,
        "interconnect_tb_per_s": link_bytes_per_s / 1e12,
        "interconnect_tb_per_s_each": link_bytes_per_s / npus / 1e12,
    }  # fmt: skip


def slide_table(facts: Facts) -> list[dict[str, str]]:
    """Rows of the slide's table by column: each figure as printed and as computed from data/."""
    entries = published_table(RECORD / "slides.toml")["machine"]
    all_figures = [machine_figures(entry, facts) for entry in entries]
    rows = []
    for key, label in LINES.items():
        table_row = {"Figure": label}
        for entry, figures in zip(entries, all_figures, strict=True):
            table_row[f"{entry['name']}, printed"] = f"{entry[key]:,g}"
            table_row[f"{entry['name']}, from data/"] = f"{float(f'{figures[key]:.4g}'):,g}"
        rows.append(table_row)
    return rows


def closed_loop_scenario(row: Row) -> Scenario | None:
    """Scenario of a row's configuration as a closed loop with clients for every slot; None for a
    row of an operator or of one size, which cannot run."""
    pool = row.measure.split(".")[0]
    if pool not in ("decode", "prefill"):
        return None
    hit_share, s = float(row.args.get("hit_share", 0.0)), scenario_of(row.scenario)
    input_tokens, output_tokens = s.workload.input_tokens, s.workload.output_tokens
    loop_fields: dict[str, Any]
    if pool == "decode":  # as many clients as slots, for three turnovers of each slot
        batch_per_npu = s.deployment.decode.batch_per_npu
        reply_s = 1e-3 * s.slo.tpot_ms * output_tokens
        npus = sum(count * npus_each for role, count, npus_each in pools(s) if role != "prefill")
        title = f"decode, batch {batch_per_npu}, {input_tokens:,} → {output_tokens:,} tokens"
        loop_fields = {"workload.concurrency": batch_per_npu * npus,
                       "warmup_s": max(25.0, round(reply_s)),
                       "horizon_s": max(80.0, round(3.2 * reply_s))}  # fmt: skip
    else:  # twice the requests that fill every batch, with reuse from a popular prefix if stated
        prefill, uncached_tokens = s.deployment.prefill, max(1.0, (1.0 - hit_share) * input_tokens)
        batch_tokens = prefill.tokens_per_npu * prefill.npus_per_instance * prefill.instances
        title = f"prefill, {input_tokens:,}-token prompts"
        loop_fields = {"workload.concurrency": max(1, round(2 * batch_tokens / uncached_tokens)),
                       "warmup_s": 20.0, "memory_pool.enabled": hit_share > 0}  # fmt: skip
        if hit_share:
            loop_fields |= {"workload.prefix": "shared", "workload.shared_fraction": hit_share}
    return scenario_of({
        **row.scenario,
        "name": f"{row.system}: {title}"[:120],  # of one configuration: its rows share one run
        "question": "Does the full simulation reproduce what was published of this configuration?",
        "source": row.source[:600],
        "workload.arrivals": "closed_loop",
        "start": "empty",  # all clients of a benchmark begin at once
        **loop_fields,
    })  # fmt: skip
