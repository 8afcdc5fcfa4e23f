"""Facts, presets, scenario files and the glossary: the only module that opens files of `data/`,
`scenarios/` and `docs/CONCEPTS.md`."""

import os
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import tomli_w

from twin.facts import FactError, Facts, facts_from_tables
from twin.lab.files import decode_text, printable, read_bytes, read_text, toml_table
from twin.scenario import Scenario, SpecError, field_unit, parse_scenario

SHARE = Path(__file__).resolve().parents[1] / "share"  # of an installed twin: see pyproject.toml
ROOT = SHARE if SHARE.is_dir() else Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
SCENARIOS = ROOT / "scenarios"
# What is stored between starts: of a clone inside of it, of an installed twin in the user's home.
STORED = (
    DATA
    if ROOT is not SHARE
    else Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "twin"
)
CALIBRATION_VARIABLE = "TWIN_CALIBRATION"  # a private copy of the fitted constants
PUBLISHED, CALIBRATION = DATA / "published.toml", DATA / "calibration.toml"
RECORD = DATA / "record"  # what is known of the twin's own errors
NOT_FACTS = {PUBLISHED.stem, RECORD.stem}  # measured rows: read by `published_table`
FIRST_PRESET = "quickstart"
SCENARIO_BYTES_MAX = 256 * 1024  # of a file, or of what a link unpacks to
FACTS_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Preset:
    """A scenario that comes with the twin: one question per file."""

    key: str  # the file's name without .toml
    scenario: Scenario


def load_facts(folder: Path = DATA) -> Facts:
    """Facts of a folder, read once: `chips/ascend-910c.toml` is `chips.ascend-910c.*`. The file
    that TWIN_CALIBRATION names replaces fitted constants. Raises FactError."""
    return _facts_of(folder, os.environ.get(CALIBRATION_VARIABLE, ""))


def facts_environment() -> dict[str, str]:
    """Environment variables for a process in another folder to read the same facts."""
    path_text = os.environ.get(CALIBRATION_VARIABLE, "")
    return {CALIBRATION_VARIABLE: str(Path(path_text).resolve())} if path_text else {}


@lru_cache(maxsize=4)
def _facts_of(folder: Path, calibration: str) -> Facts:
    """Facts of a folder with the constants of a calibration file ('': none); cached."""
    tables: dict[str, Any] = {}
    for fact_path in sorted(folder.rglob("*.toml")):
        *folder_names, file_stem = fact_path.relative_to(folder).with_suffix("").parts
        if NOT_FACTS & {file_stem, *folder_names}:
            continue
        parent_table = tables
        for folder_name in folder_names:
            parent_table = parent_table.setdefault(folder_name, {})
        parent_table[file_stem] = _fact_table(fact_path, str(fact_path))
    if calibration:
        tables["calibration"] = _with_private_constants(Path(calibration), tables["calibration"])
    return facts_from_tables(tables)


def published_table(path: Path = PUBLISHED) -> dict[str, Any]:
    """The TOML table of published rows or of a record; raises FactError for a broken file."""
    return _fact_table(path, path.name)


def _fact_table(path: Path, name: str) -> dict[str, Any]:
    """The TOML table of a file of facts; name: in error messages. Raises FactError."""
    return toml_table(read_text(path, FACTS_BYTES_MAX, FactError, "TOML file"), name, FactError)


def _with_private_constants(path: Path, fitted: dict[str, Any]) -> dict[str, Any]:
    """Tables of fitted constants (`fitted`) with the values of a private file. Raises FactError."""
    subject = f"{CALIBRATION_VARIABLE} = {path}"
    try:
        private_table = _fact_table(path, path.name)
    except FactError as error:
        raise FactError(f"{CALIBRATION_VARIABLE}: {error}") from None
    for name, constant in private_table.items():
        if name not in fitted:
            problem_text = f"{subject}: {printable(name)} is no constant"
            raise FactError(f"{problem_text}: take some of {', '.join(fitted)}")
        lowest, highest, unit = (fitted[name][bound] for bound in ("low", "high", "unit"))
        constant_value = constant.get("value") if isinstance(constant, dict) else None
        if isinstance(constant_value, bool) or not isinstance(constant_value, int | float):
            raise FactError(f"{subject}: {name} has no value that is a number")
        if not lowest <= constant_value <= highest or constant.get("unit") != unit:
            raise FactError(f"{subject}: {name} must be {lowest:g} to {highest:g} in unit {unit!r}")
    return fitted | private_table


@lru_cache(maxsize=4)
def presets(folder: Path = SCENARIOS) -> tuple[Preset, ...]:
    """All presets: the quick start first, then by key. Raises SpecError for a broken file."""
    preset_paths = sorted(folder.glob("*.toml"), key=lambda p: (p.stem != FIRST_PRESET, p.stem))
    return tuple(Preset(path.stem, load_scenario_file(path)) for path in preset_paths)


def preset(key: str) -> Scenario | None:
    """The scenario of a preset; None: no preset has that key."""
    path = next((path for path in SCENARIOS.glob("*.toml") if path.stem == key), None)
    return load_scenario_file(path) if path else None


def load_scenario_file(path: Path) -> Scenario:
    """The scenario of a TOML file; raises SpecError with one sentence that names the file."""
    return scenario_from_toml(read_bytes(path, SCENARIO_BYTES_MAX, SpecError), path.name)


def scenario_from_toml(data: bytes, name: str = "the scenario") -> Scenario:
    """The scenario of a TOML text of at most 256 KiB; name: in errors, which are SpecErrors."""
    toml_text = decode_text(data, name, SCENARIO_BYTES_MAX, SpecError, "scenario")
    name = printable(name)
    scenario_table = toml_table(toml_text, name, SpecError)  # names the file itself
    try:
        return parse_scenario(scenario_table)
    except SpecError as error:
        raise SpecError(f"{name}: {error}") from None


def scenario_to_toml(scenario: Scenario) -> str:
    """The scenario as TOML, every field with its unit: reading it back gives an equal scenario."""
    toml_lines, section_prefix = [], ""
    # Not splitlines: it also splits at characters that may stand inside a string.
    for toml_line in tomli_w.dumps(scenario.model_dump(mode="json")).split("\n"):
        if toml_line.startswith("["):
            section_prefix = toml_line.strip("[]") + "."
        field_name, equals, _ = toml_line.partition(" = ")
        unit = field_unit(section_prefix + field_name) if equals else ""
        toml_lines.append(f"{toml_line}  # {unit}" if unit else toml_line)
    return "\n".join(toml_lines)


@dataclass(frozen=True, slots=True)
class Term:
    """One term: its meaning, its unit and the words that it replaces."""

    name: str
    meaning: str
    unit: str
    instead_of: tuple[str, ...]


@cache
def terms() -> dict[str, Term]:
    """Every term of the glossary by name, in the order of the page."""
    glossary_rows = re.findall(
        r"^\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$",
        (ROOT / "docs" / "CONCEPTS.md").read_text("utf-8").partition("## Glossary")[2],
        re.MULTILINE,
    )
    row_cells = [[cell.strip() for cell in row] for row in glossary_rows[2:]]  # after head and line
    return {
        name: Term(name, meaning, unit, tuple(word.strip() for word in synonyms.split(",") if word))
        for name, meaning, unit, synonyms in row_cells
    }


def terms_in(text: str) -> list[Term]:
    """Terms of the glossary in a text, in order of appearance; of two that overlap the longer."""
    longest_names_first = sorted(terms(), key=len, reverse=True)
    pattern = rf"\b({'|'.join(map(re.escape, longest_names_first))})s?\b"
    term_by_lower_name = {name.lower(): term for name, term in terms().items()}
    matched_names = (match[1].lower() for match in re.finditer(pattern, text, re.IGNORECASE))
    return [term_by_lower_name[name] for name in dict.fromkeys(matched_names)]
