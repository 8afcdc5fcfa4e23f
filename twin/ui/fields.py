"""Labels, values, choices and tooltips of declared fields of a scenario; draws nothing."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from twin.facts import Facts
from twin.hardware.imported import find_machine
from twin.lab.library import load_facts, terms_in
from twin.metrics.measures import numbered
from twin.scenario import (
    FORMS,
    KINDS,
    Fault,
    Model,
    NodeKind,
    Scenario,
    ScenarioField,
    field_info,
    fields,
    form_groups,
    unmet_condition,
    value_of,
)
from twin.scenario import words as scenario_words
from twin.ui.show import plain

IMPORTED = re.compile("[0-9a-f]{64}")  # the digest of an imported machine
# Fields of the machine that have an effect on an imported one, too; others stand in its file.
OF_IMPORTED = {f"supernode.{n}" for n in ("machine", "chip", "ub_routing", "rdma_routing", "edits")}
CHOSEN = re.compile(r"\b([a-z][a-z_.]*) = '?([a-z0-9]+(?:_[a-z0-9]+)*)'?")
CODE = re.compile(r"`([a-z_.]+)`")  # a field's path or last name in a help
CHIPS = "supernode.kinds.0.chip"
ROWS_SHOWN = 3  # of a list
NAME = re.compile(r"(?<![\w.'\"])[a-z0-9]+(?:_[a-z0-9]+)+\b(?!\.\w)")  # of a field, not quoted


def field_of(path: str) -> ScenarioField:
    """Declaration of a field; raises KeyError for an unknown path."""
    field = field_info(path)
    if field is None:
        raise KeyError(path)
    return field


def form_paths() -> list[str]:
    """Dotted paths of all scenario fields that a form shows, in the order of the forms."""
    return [path for form in FORMS for paths in form_groups(form).values() for path in paths]


def choice_label(path: str, option: str, facts: Facts | None = None) -> str:
    """Label of an option: 'sp_tp_sp' -> 'SP-TP-SP'. With facts, a name of a file in data/ gets the
    title stated there."""
    if path == "supernode.machine" and IMPORTED.fullmatch(option):
        machine = find_machine(option)
        return f"Imported: {machine.name if machine else option[:8]}"
    title_key = f"{field_of(path).files}.{option}.title"
    if facts is not None and title_key in facts:
        return str(facts[title_key].value)
    return scenario_words.choice_label(path, option)


def options(path: str, facts: Facts) -> list[str] | None:
    """Options of a field: as declared, or names in the facts. None: the field takes any value."""
    field = field_of(path)
    if field.closed:
        return list(field.options)
    if not field.files:
        return None
    file_names = facts.names(field.files)
    return [default for default in [field.default] if default not in file_names] + file_names


def text_of(value: Any, path: str = "") -> str:
    """A field's value as text for people, without its unit. path: of the field, for its labels.

    >>> text_of(16384), text_of(0.05), text_of(True), text_of("deepseek-v3-2", "deployment.model")
    ('16,384', '0.05', 'on', 'DeepSeek-V3.2 685B')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"
    if path in LISTS:
        return rows_in_words(path, value)
    if path == "supernode.machine" or (value and (field := field_info(path)) and field.files):
        return choice_label(path, str(value), load_facts())
    return scenario_words.choice_label(path, value) if value else "none"


def change_line(path: str, before: str, now: str) -> str:
    """A changed field as a line of Markdown. before, now: its old and its new value, as text."""
    field = field_of(path)
    return f"{field.label}: :gray[{before}] → **{now}** {field.unit_after_label}".rstrip()


def tooltip(path: str) -> str:
    """Tooltip of a field: its meaning, bounds, default and source, and the terms in its label."""
    field = field_of(path)
    bounds_text = f"{field.low:,.9g} to {field.high:,.9g}. " if field.low is not None else ""
    source_text = f" ({field.source})" if field.source else ""
    default_text = f"{bounds_text}Default {text_of(field.default, path)}{source_text}."
    help_text = with_labels(f"{field.help}\n\n{default_text}" if field.help else default_text)
    return with_glossary(field.label, help_text)


def with_labels(text: str) -> str:
    """The text with each field in backticks replaced by its label.

    >>> with_labels("As `deployment.prefill.chip` says; each has a `workload`.")
    'As *Chip of prefill* says; each has a `workload`.'
    """

    def name_of(match: re.Match[str]) -> str:
        """Label of the field in backticks, in italics; other words in backticks stay."""
        field = field_info(match.group(1))
        label = field.label if field else _labels_by_name().get(match.group(1))
        return f"*{plain(label)}*" if label else match.group()

    return CODE.sub(name_of, text)


@lru_cache(maxsize=1024)
def with_glossary(name: str, text: str = "") -> str:
    """Tooltip of the label `name`: `text`, and what the glossary says of the label's terms.

    >>> print(with_glossary("Nodes in use", "Of all."))
    Of all.
    <BLANKLINE>
    node: Server; on CloudMatrix384 8 NPUs, 4 CPUs and one L1 switch of each sub-plane.
    """
    meanings = "  \n".join(f"{term.name}: {with_labels(term.meaning)}" for term in terms_in(name))
    return "\n\n".join(filter(None, (text, meanings)))


def sentence(refusal: str, file: str = "") -> str:
    """A refusal as a Markdown sentence in which labels replace the names of fields. Quoted text
    stays unchanged, also the name of a file (`file`) with which the refusal may begin.

    >>> sentence("conv.jsonl: line 2 is not JSON", "conv.jsonl")
    'conv.jsonl: line 2 is not JSON.'
    """
    text = scenario_words.with_labels_of_fields(CHOSEN.sub(_with_option_label, refusal))
    if file and refusal.startswith(file):
        text = file[0] + text[len(file[0].upper()) :]
    return plain(NAME.sub(lambda match: _labels_by_name().get(match.group(), match.group()), text))


def _with_option_label(match: re.Match[str]) -> str:
    """The matched `path = option` with the option's label: `deployment.mode = Prefill only`."""
    path, option = match.groups()
    field = field_info(path)
    if field is None or option not in field.options:
        return match.group()
    return f"{path} = {scenario_words.choice_label(path, option)}"


@cache
def _labels_by_name() -> dict[str, str]:
    """Labels of fields by the last part of their path, if it has a "_" and is unique."""
    paths = [path for path in fields() if "[]" not in path]
    name_counts = Counter(path.rpartition(".")[2] for path in paths)
    return {
        name: field_of(path).label
        for path in paths
        if name_counts[name := path.rpartition(".")[2]] == 1 and "_" in name
    }


def why_idle(path: str, scenario: Scenario) -> str:
    """Why a field has no effect with the scenario's other values; '' if it has an effect."""
    if scenario.supernode.imported and path.startswith("supernode.") and path not in OF_IMPORTED:
        return "the imported machine has its own"
    condition = unmet_condition(path, scenario)
    return scenario_words.idle_reason(condition) if condition else ""


def rows_in_words(path: str, rows: Sequence[Any], row_limit: int = ROWS_SHOWN) -> str:
    """The first `row_limit` rows of a scenario's list as text; 'none' without rows. path: of the
    list, a key of LISTS. rows: as dicts or pydantic models.

    >>> rows_in_words("tenants", [{"name": "chat", "share": 1.0}, {"name": "batch", "share": 4.0}])
    'chat, 1 part of the sessions; batch, 4 parts of the sessions'
    """
    _, text_of_row = LISTS[path]
    row_texts = [text_of_row(dict(row)) for row in rows[:row_limit]]
    if rows[row_limit:]:
        row_texts.append(f"{len(rows) - row_limit:,} more")
    return "; ".join(row_texts) or "none"


def _fault_text(row: dict[str, Any]) -> str:
    """A fault as text: element, effect, begin and duration. row: fields of a Fault by name."""
    fault = Fault.model_validate(row)
    effect_text = KINDS[fault.kind].says(fault)
    duration_text = f" for {fault.duration_s:g} s" if fault.duration_s else ""
    preposition = "at" if effect_text == "fails" else "from"
    return f"{_element_text(row)} {effect_text} {preposition} {fault.at_s:g} s{duration_text}"


def _edit_text(row: dict[str, Any]) -> str:
    """An edit of the fabric as text: element and change. row: fields of an Edit by name."""
    if row.get("add", "nothing") == "switch":
        return f"{row['element']}: a switch that is added"
    if row.get("add") == "link":
        return f"{_element_text(row)}: a link of {row['gb_per_s']:g} GB/s that is added"
    if row.get("links_out"):
        return f"{_element_text(row)}: {numbered(row['links_out'], 'link')} out"
    factors = row.get("capacity_factor"), row.get("latency_factor")
    return f"{_element_text(row)}: {edit_effect(*factors)}"


def _piece_text(row: dict[str, Any]) -> str:
    """A piece of a load profile (`row`) as text: its begin, and the factors that are not 1."""
    factors = ((name, row.get(name, 1.0)) for name in ("rate", "input", "output"))
    factor_texts = [f"{name} ×{factor:,.4g}" for name, factor in factors if factor != 1.0]
    return f"from {row['at_s']:g} s {', '.join(factor_texts) or 'as the profile says'}"


def _model_text(row: dict[str, Any]) -> str:
    """A further model as text: its name and load. row: fields of a Model by name."""
    model = Model.model_validate(row)
    workload = model.workload
    name = model.name or text_of(model.deployment.model, "deployment.model")
    if workload.arrivals == "closed_loop":
        return f"{name}, {workload.concurrency:,} in flight"
    return f"{name}, {workload.rate_req_per_s:,.6g} req/s"


def _kind_text(row: dict[str, Any]) -> str:
    """A further kind of nodes as text: number and chip. row: fields of a NodeKind by name."""
    kind = NodeKind.model_validate(row)
    return f"{numbered(kind.nodes, 'node')} of {choice_label(CHIPS, kind.chip, load_facts())}"


def _element_text(row: dict[str, Any]) -> str:
    """Element of a fault or edit as text; both ends if it is a link. row: fields by name."""
    return f"{row['element']} – {row['to']}" if row.get("to") else str(row["element"])


# What each list is called, and one row of it in words; those that name a run come first.
LISTS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "faults": ("Faults", _fault_text),
    "supernode.kinds": ("Further kinds of nodes", _kind_text),
    "supernode.edits": ("Fabric edits", _edit_text),
    "deployment.seats": ("Seats", "{role} {index} on {element}".format_map),
    "models": ("Further models", _model_text),
    "tenants": ("Tenants", lambda row: f"{row['name']}, {row['share']:,.4g} "
                f"part{'s' if row['share'] != 1 else ''} of the sessions"),
    "elastic.schedule": (
        "Instances", "from {at_s:g} s {prefill} prefill and {decode} decode".format_map,
    ),
    "workload.profile.pieces": ("Rate by piece", _piece_text),
}  # fmt: skip


def list_sentences(scenario: Scenario) -> list[str]:
    """Sentences on the lists of a scenario that have rows: faults, edits, seats and others."""
    titled_lists = ((path, title, value_of(scenario, path)) for path, (title, _) in LISTS.items())
    return [f"{title}: {rows_in_words(path, rows)}" for path, title, rows in titled_lists if rows]


def edit_effect(capacity: float | None, latency: float | None) -> str:
    """Effect of an edit as text: 'off', '50 % of capacity', 'latency ×2'. capacity, latency:
    factors on the values as built; None: unchanged."""
    if capacity == 0.0:
        return "off"
    factor_texts = []
    if capacity is not None and capacity != 1.0:
        factor_texts.append(f"{100 * capacity:,.4g} % of capacity")
    if latency is not None and latency != 1.0:
        factor_texts.append(f"latency ×{latency:,.4g}")
    return ", ".join(factor_texts) or "as built"
