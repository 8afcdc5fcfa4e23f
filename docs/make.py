"""The made parts of the documents: what stands between `<!-- made: NAME -->` and `<!-- end -->`.

`make docs` makes them from declarations, and tests/test_docs.py compares the committed pages with
what this module says now. It knows nothing about the words around them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from os.path import commonprefix
from pathlib import Path
from typing import Any

from twin.__main__ import COMMANDS, load_command
from twin.hardware.chip import load_chip
from twin.hooks import Command, Hook, MadePart, TraceFormat, extras, hooks_of
from twin.lab.evidence.judge import evidence, score_table, write_errors
from twin.lab.evidence.rows import UNJUDGED
from twin.lab.library import ROOT, load_facts, preset, presets
from twin.lab.share.shipped import current_evidence, shipped_summaries
from twin.lab.traces.reader import FORMATS
from twin.metrics.measures import seconds
from twin.metrics.operators import OPERATORS
from twin.metrics.registry import METRICS
from twin.model.roofline import load_machine
from twin.model.shape import load_shape
from twin.scenario import KINDS, fields, scenario_digest, with_overrides
from twin.scenario.fields import value_text
from twin.scenario.words import condition_text
from twin.steady import predict_steady

FIRST = (
    "quickstart",
    "paper-decode-50ms-4k",
    "colocated-contrast",
    "fault-node",
    "experts-shift-balanced",
)


def field_table() -> str:
    """The fields of a scenario: name, default, unit, what it accepts, what it is, source."""
    rows = [
        "| field | default | unit | accepts | what it is | has an effect where | source |",
        "|---|---|---|---|---|---|---|",
    ]
    for path, known in fields().items():
        if known.kind is tuple:  # its rows stand below it
            continue
        rows.append(
            _row(
                f"`{path}`",
                "required" if known.required else value_text(known.default),
                known.unit,
                known.accepted_text(),
                f"{known.label}: {known.help}",
                "; ".join(condition_text(condition) for condition in known.conditions),
                known.source,
            )
        )
    return "\n".join(rows)


def metric_table() -> str:
    """The figures of a run: key, unit, which way is better, what each is."""
    rows = ["| figure | called | unit | better | what it is |", "|---|---|---|---|---|"]
    return "\n".join(
        rows + [_row(f"`{m.key}`", m.tile, m.unit, m.better, m.help) for m in METRICS.values()]
    )


def fault_table() -> str:
    """The kinds of fault: what each does, and the fields that only it has."""
    rows = ["| kind | called | what it does | fields of its own |", "|---|---|---|---|"]
    return "\n".join(
        rows
        + [
            _row(f"`{k.name}`", k.label, k.help, ", ".join(f"`{name}`" for name in k.uses))
            for k in KINDS.values()
        ]
    )


def operator_table() -> str:
    """What an iteration's or a batch's time is booked to."""
    rows = ["| operator | called | in | stands in | counts as | what it is |",
            "|---|---|---|---|---|---|"]  # fmt: skip
    return "\n".join(
        rows
        + [
            _row(f"`{o.name}`", o.label, ", ".join(o.phases), o.place, o.family, o.meaning)
            for o in OPERATORS.values()
        ]
    )


OFFLOADED = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
LENT = (0.25, 0.5, 0.75)


def offload_table() -> str:
    """What decode gives with a share of its attention offloaded, by model, context and plane."""
    heads = ["model", "prompt", "over", *(f"{x:.0%}" for x in OFFLOADED), "16 + 48 NPUs"]
    rows = [_row(*heads), "|" + "---|" * len(heads)]
    for (model, drafts, plane), prompt in product(
        (("qwen3-235b", 0, "rdma"), ("deepseek-r1", 1, "rdma"), ("deepseek-r1", 1, "ub")),
        (4096, 16_384),
    ):
        served = {
            "deployment.model": model, "deployment.decode.mtp_draft_tokens": drafts,
            "deployment.kv_transfer_plane": plane, "workload.input_tokens": prompt,
        }  # fmt: skip
        moved = {"deployment.prefill.npus_per_instance": 16,
                 "deployment.decode.npus_per_instance": 48}  # fmt: skip
        cells = [_decodes(served | {SHARE: x}) for x in OFFLOADED]
        title = load_shape(load_facts(), model).title
        rows.append(_row(title, f"{prompt:,}", plane.upper(), *cells,
                         _decodes(served | moved | {SHARE: 0.0})))  # fmt: skip
    return "\n".join(rows)


SHARE = "deployment.decode.attention_offload"


def _decodes(fields: dict[str, Any]) -> str:
    """Tokens/s of decode with all slots taken, and its TPOT, in the preset of attention offload."""
    found = preset("attention-offload")
    assert found is not None
    changed = with_overrides(found, fields)
    decode = predict_steady(changed, load_facts()).decode
    assert decode is not None
    npus = changed.deployment.decode.npus_per_instance
    return f"{decode.tokens_per_s_per_npu * npus / 1e3:.1f} ({decode.tpot_s * 1e3:.0f} ms)"


def lent_table() -> str:
    """What a share of a prefill die's cores draws of its HBM, and what is left of prefill."""
    rows = ["| cores lent | HBM bandwidth that they draw | prefill, tokens/s per NPU |",
            "|---|---|---|"]  # fmt: skip
    found = preset("attention-offload")
    assert found is not None
    machine = load_machine(load_facts(), load_chip(load_facts(), found.supernode.chip))
    for lent in (0.0, *LENT):
        settings = {"deployment.prefill.lent_cores": lent} if lent else {SHARE: 0.0}
        prefill = predict_steady(with_overrides(found, settings), load_facts()).prefill
        assert prefill is not None
        rows.append(
            _row(
                f"{lent:.0%}",
                f"{machine.drawn_share(lent):.0%}",
                f"{prefill.tokens_per_s_per_npu:,.0f}",
            )
        )
    return "\n".join(rows)


def offload_runs() -> str:
    """The pair of presets that differ in attention offload alone, as they ran."""
    rows = ["| preset | TTFT p50 | TTFT p99 | TPOT, mean | within the SLO | preemptions |",
            "|---|---|---|---|---|---|"]  # fmt: skip
    known = shipped_summaries()
    for key in ("attention-offload-contrast", "attention-offload"):
        found = preset(key)
        assert found is not None
        run = known[scenario_digest(found)]
        rows.append(
            _row(f"`{key}`", seconds(run["ttft_s_p50"]), seconds(run["ttft_s_p99"]),
                 f"{run['tpot_s_mean'] * 1e3:.0f} ms", f"{run['goodput_req_per_s']:.1f} req/s",
                 f"{run['preemptions']:,.0f}")
        )  # fmt: skip
    return "\n".join(rows)


def trace_table(extra: str = "") -> str:
    """The formats of recorded request streams that the core or an extra reads."""
    rows = ["| format | written as | tells, apart from lengths |", "|---|---|---|"]
    own = _of(extra, TraceFormat, FORMATS)
    return "\n".join(rows + [_row(f.title, f.shape, f.tells) for f in own.values()])


def _of(extra: str, kind: type[Hook], named: Mapping[str, Any]) -> dict[str, Any]:
    """What an extra brings of all that is named; without an extra, what none brings."""
    brought = {hook.name for hook in extras()[extra]} if extra else set(hooks_of(kind))
    return {name: it for name, it in named.items() if (name in brought) == bool(extra)}


def preset_table(keys: Sequence[str] = ()) -> str:
    """The presets by key, all or some of them, each with the question it asks."""
    questions = {preset.key: preset.scenario.question for preset in presets()}
    rows = ["| preset | the question it asks |", "|---|---|"]
    return "\n".join(rows + [_row(f"`{key}`", questions[key]) for key in keys or questions])


def command_list(extra: str = "") -> str:
    """The commands of the core or of an extra, with their help, arguments and options."""
    text = []
    commands: list[tuple[str, Any]] = [
        (name, load_command(name)) for name in _of(extra, Command, COMMANDS)
    ]
    while commands:
        name, command = commands.pop(0)
        if inner := getattr(command, "commands", None):
            commands = [(f"{name} {one}", it) for one, it in inner.items()] + commands
            continue
        given = [p.name.upper() for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option"]
        text += [f"### {' '.join([name, *given])}", "", command.help, ""]
        rows = [f"- `{' '.join([p.opts[0], p.metavar or '']).strip()}`: {p.help}" for p in options]
        text += [*rows, ""] if rows else []
    return "\n".join(text[:-1])


AS_RUN = ", as its benchmark runs"  # of a row that simulates a benchmark from its first request
UNLISTED = ("derived", *UNJUDGED)  # kinds of rows that only the Evidence page lists
UNSAID = ("ms", "tokens/s/NPU", "tokens/s/GPU")  # units that the words above the tables give
PLACE = re.compile(r"(?:'[^']*'|(?!: |; ).)*")  # of a source: without what it says there
SAID = re.compile(r"(.*(: |, )|\S+/\S+ (\S+/)*|arXiv \S+ )")  # of a source: to a sign, a folder
SIGNS = ("", "†", "‡", "§")  # of the kinds in a table, the most frequent first
NAMED = re.compile(r".{10,}, ")  # of what was measured: more than a quantity alone
ENDED = re.compile(r"(?<=\S)(, | on ).{8,}$")  # how it was measured: on so many, in which layout


def evidence_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table for each system: its published rows with the twin's answers and their errors, but for
    rows of the kinds `UNLISTED`, which say nothing of their own."""
    text = []
    for scores in score_table(rows, "system"):
        system = scores.pop("rows of")
        own = [row for row in rows if row["system"] == system and row["kind"] not in UNLISTED]
        own.sort(key=_setting)
        kinds = [kind for kind, _ in Counter(row["kind"] for row in own).most_common()]
        signs = dict(zip(kinds, SIGNS, strict=False))
        said = "; ".join(f"{kind}{signs.get(kind, '')} {score}"
                         for kind, score in scores.items() if score)  # fmt: skip
        if own:
            text += [f"### {system}", "", f"{_capital(said)}.", "", *_of_system(own, signs), ""]
    return "\n".join(text)


def _setting(row: Mapping[str, Any]) -> tuple[list[tuple[int, str]], str]:
    """A row's place among those of its system: by what follows the quantity, numbers by size."""
    quantity, _, setting = row["quantity"].replace(AS_RUN, "").partition(", ")
    parts = re.findall(r"\d[\d,]*|\D+", setting)
    return [(int(x.replace(",", "")), "") if x[0].isdigit() else (-1, x) for x in parts], quantity


def _capital(words: str) -> str:
    return re.sub("[a-z]", lambda first: first[0].upper(), words, count=1)


def _of_system(rows: Sequence[Mapping[str, Any]], signs: Mapping[str, str]) -> list[str]:
    """The rows of one system; sources and reasons have numbers, explained below the table, and
    `signs` say their kinds. A column without a word is left out, and so are notes that are the
    same in every row."""
    noted = {row["id"]: [PLACE.findall(row["source"])[0], "; ".join(f"{name} {100 * x:+.0f} %"
                         for name, x in row["others"])] for row in rows}  # fmt: skip
    notes = sorted({note for own in noted.values() for note in own if note})
    lines = []
    whats = _short([row["quantity"].replace(AS_RUN, r"\*") for row in rows], NAMED, ENDED)
    for row, what in zip(rows, whats, strict=True):
        refs = [str(notes.index(note) + 1) for note in noted[row["id"]] if note]
        first, now = row["first_error"], _percent(row["error"])
        lines.append({
            "what": what,
            "published": f"{row['published']:,.4g} {'' if row['unit'] in UNSAID else row['unit']}",
            "error, %": now,
            "first": "" if first is None else "=" if _percent(first) == now else _percent(first),
            "notes": ", ".join(refs) + signs[row["kind"]],
        })  # fmt: skip
    empty = [head for head in lines[0] if not any(line[head] for line in lines)]
    if len({line["notes"] for line in lines}) == 1:
        empty.append("notes")
    table = _table([{head: it for head, it in line.items() if head not in empty} for line in lines])
    return [table, "", *(f"{n}. {note}" for n, note in enumerate(_short(notes, SAID), 1))]


def _percent(error: float) -> str:
    percent = 100 * error
    return f"{percent:+.1f}" if abs(percent) < 9.95 else f"{percent:+.0f}"


def _short(
    texts: Sequence[str], shared: re.Pattern[str], ending: re.Pattern[str] | None = None
) -> list[str]:
    """Texts in which a dash repeats the beginning of the text above, as far as `shared` matches,
    and an ellipsis its end, from where `ending` matches."""
    lines = []
    for above, text in zip(["", *texts], texts, strict=False):
        same = shared.match(commonprefix([above, text]))
        own = text[same.end() :] if same else text
        alike = commonprefix([above[::-1], own[::-1]])[::-1]
        end = ending.search(alike) if ending else None
        own = own[: len(own) - len(alike) + end.start()] + " …" if end else own
        lines.append(f"— {own}" if same else own)
    return lines


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of one form as a Markdown table, without the bars at its sides."""
    heads = list(rows[0])
    lines = [" | ".join(heads), "|".join(["---"] * len(heads))]
    return "\n".join(lines + [" | ".join(row.values()).rstrip() for row in rows])


def paths(root: Path = ROOT) -> list[Path]:
    """Files that `pages` makes."""
    files = (root / "README.md", *(root / "scenarios").glob("*.md"), *(root / "docs").rglob("*.md"))
    return [*sorted(files), *(_page_of(extra, root) for extra in extras())]


def _page_of(extra: str, root: Path) -> Path:
    return root / "twin" / "extras" / extra / "README.md"


def pages(root: Path = ROOT) -> dict[Path, str]:
    """Every page that holds made parts, with those parts as they should be now."""
    rows = current_evidence(load_facts())["rows"]
    made = {
        "fields": field_table(),
        "first_presets": preset_table(FIRST),
        "presets": preset_table(),
        "metrics": metric_table(),
        "operators": operator_table(),
        "traces": trace_table(),
        "offload": offload_table(),
        "lent": lent_table(),
        "offload_runs": offload_runs(),
        "faults": fault_table(),
        "commands": command_list(),
        "evidence": evidence_table(rows),
    }
    made |= {name: part.load()(rows, _table) for name, part in hooks_of(MadePart).items()}
    own = {
        _page_of(extra, root): {"commands": command_list(extra), "traces": trace_table(extra)}
        for extra in extras()
    }
    return {
        path: _filled(path.read_text("utf-8"), made | own.get(path, {})) for path in paths(root)
    }


def _filled(text: str, made: Mapping[str, str]) -> str:
    """Text with everything between `<!-- made: NAME -->` and `<!-- end -->` made anew."""

    def anew(match: re.Match[str]) -> str:
        part = made.get(match[2])  # a part of an extra stays as it is without its folder
        return match[0] if part is None else f"{match[1]}\n{part}\n{match[3]}"

    return re.sub(r"(<!-- made: (\w+) -->)\n.*?(<!-- end -->)", anew, text, flags=re.DOTALL)


def _row(*cells: object) -> str:
    """One row of a Markdown table."""
    return "| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in cells) + " |"


if __name__ == "__main__":
    write_errors(load_facts(), evidence(load_facts()))
    for page, text in pages().items():
        page.write_text(text, "utf-8")
