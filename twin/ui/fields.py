"""Fields of a scenario on the screen, from the declarations in `twin.scenario`: labels, values,
choices, tooltips. Draws nothing."""

import re
from collections import Counter
from functools import cache, lru_cache
from typing import Any

from twin.facts import Facts
from twin.lab.library import terms_in
from twin.scenario import (
    FORMS,
    Scenario,
    ScenarioField,
    field_info,
    field_unit,
    fields,
    form_groups,
    unmet,
)
from twin.scenario import words as scenario_words
from twin.ui import listed
from twin.ui.show import plain

IMPORTED = re.compile("[0-9a-f]{64}")  # the digest of an imported machine
CHOSEN = re.compile(r"\b([a-z][a-z_.]*) = '?([a-z0-9]+(?:_[a-z0-9]+)*)'?")
NAME = re.compile(r"(?<![\w.'\"])[a-z0-9]+(?:_[a-z0-9]+)+\b(?!\.\w)")  # of a field, not quoted


def declared(path: str) -> ScenarioField:
    """The declaration of a field that exists."""
    known = field_info(path)
    if known is None:
        raise KeyError(path)
    return known


def formed() -> list[str]:
    """Paths of all fields that stand in a form, in their order."""
    return [p for form in FORMS for group in form_groups(form).values() for p in group]


def field_name(path: str) -> str:
    """A field's label without its unit: 'Request rate'."""
    return declared(path).label


def label(path: str) -> str:
    """A field's label with its unit: 'Request rate (req/s)'."""
    return scenario_words.titled(declared(path))


def choice_label(path: str, option: str, facts: Facts | None = None) -> str:
    """One option of a field: 'sp_tp_sp' -> 'SP-TP-SP'; a file by its own title."""
    if path == "supernode.machine" and IMPORTED.fullmatch(option):
        return f"Imported: {option[:8]}"
    title = f"{declared(path).files}.{option}.title"
    if facts is not None and title in facts:
        return str(facts[title].value)
    return scenario_words.choice_label(path, option)


def options(path: str, facts: Facts) -> list[str] | None:
    """What a choice may be: as declared, or the names in the facts; None for no choice."""
    known = declared(path)
    if known.closed:
        return list(known.options)
    if not known.files:
        return None
    names = facts.names(known.files)
    return [default for default in [known.default] if default not in names] + names


def show(value: Any, path: str = "") -> str:
    """A field's value for people, without its unit.

    >>> show(16384), show(0.05), show(True)
    ('16,384', '0.05', 'on')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"
    if path in listed.LISTS:
        return listed.told(path, value)
    if path == "supernode.machine":
        return choice_label(path, str(value))
    return scenario_words.choice_label(path, value) if value else "none"


def told_change(path: str, before: str, now: str) -> str:
    """A change of a field as a line of Markdown, of values that are shown already."""
    return f"{field_name(path)}: :gray[{before}] → **{now}** {field_unit(path)}".rstrip()


def tooltip(path: str) -> str:
    """What the field means, its bounds, its default and its source, and its label's terms."""
    known = declared(path)
    span = f"{known.low:,.9g} to {known.high:,.9g}. " if known.low is not None else ""
    source = f" ({known.source})" if known.source else ""
    default = f"{span}Default {show(known.default, path)}{source}."
    return glossed(known.label, f"{known.help}\n\n{default}" if known.help else default)


@lru_cache(maxsize=1024)
def glossed(name: str, says: str = "") -> str:
    """A tooltip: what it says itself, and the glossary's meaning of the terms in a label.

    >>> glossed("Nodes in use", "Of all.")
    'Of all.\\n\\nnode: Server with 8 NPUs, 4 CPUs and the L1 switches of each sub-plane.'
    """
    meanings = "  \n".join(f"{term.name}: {term.meaning}" for term in terms_in(name))
    return "\n\n".join(filter(None, (says, meanings)))


def sentence(refusal: str) -> str:
    """A refusal for people: fields and choices by their labels, one full sentence, as Markdown;
    what it quotes of a file or a link is shown as it was typed."""
    told = scenario_words.labelled(CHOSEN.sub(_chosen, refusal))
    return plain(NAME.sub(lambda name: _leaves().get(name.group(), name.group()), told))


def _chosen(match: re.Match[str]) -> str:
    """`deployment.mode = 'prefill_only'` with the option's label."""
    path, option = match.groups()
    known = field_info(path)
    if known is None or option not in known.options:
        return match.group()
    return f"{path} = {scenario_words.choice_label(path, option)}"


@cache
def _leaves() -> dict[str, str]:
    """Labels of the fields whose last name no other field has, by that name."""
    paths = [path for path in fields() if "[]" not in path]
    names = Counter(path.rpartition(".")[2] for path in paths)
    return {
        name: declared(path).label
        for path in paths
        if names[name := path.rpartition(".")[2]] == 1 and "_" in name
    }


def why_idle(path: str, scenario: Scenario) -> str:
    """Why a field has no effect with the scenario's other choices; '' when it has one."""
    condition = unmet(path, scenario)
    return scenario_words.idle_reason(condition) if condition else ""
