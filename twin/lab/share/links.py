"""Addresses: the only module that knows links. A run's link opens that run; a scenario is in the
link or named by digest. Nothing in a link is trusted."""

import base64
import binascii
import re
import string
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlencode

from twin.hardware.chip import HardwareError
from twin.hardware.imported import ImportedMachine, find_machine, make_available
from twin.hardware.machine_file import machine_text
from twin.lab.library import SCENARIO_BYTES_MAX
from twin.lab.machines import read_machine, save_linked_machine
from twin.lab.store import RunRow, Store, StoreError, UnknownId
from twin.lab.sweep.compare import RUNS_MAX, RUNS_MIN
from twin.scenario import Scenario, SpecError, json_text, scenario_digest, scenario_from_canonical

RUN, RUNS, BASELINE = "run", "runs", "baseline"  # names of query parameters
SCENARIO, PORTABLE = "scenario", "s"
QUESTIONS = "asked"  # the questions of the runs of a link, for a twin that does not have them
RUN_PAGE, COMPARE_PAGE = "run", "compare"
LINK_CHARS_MAX = 8000  # of a scenario inside a link
COMPARED_MIN, COMPARED_MAX = RUNS_MIN, RUNS_MAX

Hold: TypeAlias = "Callable[[ImportedMachine], object]"  # keeps a machine for a session

RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{21,63}")
DIGEST = re.compile(r"[0-9a-f]{64}")
# What a sentence may put behind a link; no id, digest or base64url text ends with it.
PUNCTUATION = (
    string.whitespace + "".join(set(string.punctuation) - set("-_")) + "’”»›…、。，）】』」"
)


class ShareError(ValueError):
    """A link that cannot be made or opened: one sentence that says why."""


@dataclass(frozen=True, slots=True)
class NotHere:
    """Part of a link that this twin does not store; `message` is for the visitor."""

    message: str


# Making links, from the host on.


def run_url(run: str, scenario: Scenario | None = None) -> str:
    """The address of a run (id), with its scenario inside if it fits."""
    return _url(RUN_PAGE, {RUN: run} | _scenario_parameter([scenario] if scenario else []))


def compare_url(runs: Sequence[str], baseline: str = "", scenarios: Sequence[Scenario] = ()) -> str:
    """The address of two to six compared runs, baseline first, scenarios inside if they fit."""
    query_fields = {RUNS: ",".join(runs)} | ({BASELINE: baseline} if baseline else {})
    return _url(COMPARE_PAGE, query_fields | _scenario_parameter(scenarios))


def _scenario_parameter(scenarios: Sequence[Scenario]) -> dict[str, str]:
    """The query parameter that holds scenarios; empty if they do not fit in a link."""
    try:
        packed_scenarios = ",".join(pack_scenario(scenario) for scenario in scenarios)
    except ShareError:  # the link still opens here
        return {}
    return {QUESTIONS: packed_scenarios} if 0 < len(packed_scenarios) <= LINK_CHARS_MAX else {}


def linked_scenarios(query: Mapping[str, str], hold: Hold) -> list[Scenario]:
    """Scenarios inside a link, in order; `hold` receives their machines. Raises ShareError."""
    scenario_texts = [text for text in query.get(QUESTIONS, "")[:LINK_CHARS_MAX].split(",") if text]
    return [_unpack_scenario(text, hold) for text in scenario_texts[:COMPARED_MAX]]


def scenario_link(scenario: Scenario, page: str = "") -> str:
    """An address with the scenario inside, which any twin can open. Raises ShareError."""
    return _url(page, {PORTABLE: pack_scenario(scenario)})


def draft_url(scenario: Scenario, page: str = "") -> str:
    """The address of a draft with its scenario inside or, if that is too long, with its digest,
    which `share_scenario` has to store."""
    try:
        return scenario_link(scenario, page)
    except ShareError:
        return _url(page, {SCENARIO: scenario_digest(scenario)})


def contains_scenario(url: str) -> bool:
    """Whether an address contains a whole scenario, so that any twin can open it."""
    return f"?{PORTABLE}=" in url


def share_scenario(store: Store, scenario: Scenario) -> str:
    """Store a scenario permanently; returns its short address in this twin."""
    save_linked_machine(store, scenario)
    stored_digest = store.scenarios.save(scenario)
    store.scenarios.publish(stored_digest)
    return _url("", {SCENARIO: stored_digest})


# Opening links. A query is the parameters of an address by name.


def scenario_query(query: Mapping[str, str]) -> str:
    """Query 'name=value' of an address that contains or names a scenario; '' if there is none."""
    for parameter in (PORTABLE, SCENARIO):
        if query.get(parameter):
            return f"{parameter}={query[parameter]}"
    return ""


def open_scenario(query: Mapping[str, str], store: Store, hold: Hold) -> Scenario:
    """The scenario of an address; `hold` receives a machine inside it. Raises ShareError."""
    if query.get(PORTABLE):
        return _unpack_scenario(query[PORTABLE], hold)
    digest = _without_punctuation(query.get(SCENARIO, ""))
    if not DIGEST.fullmatch(digest):
        raise ShareError("this link names no scenario: its id must be 64 characters of 0-9 and a-f")
    try:
        return store.scenarios.load(digest)
    except UnknownId:
        raise ShareError(_absence_text(SCENARIO, digest)) from None
    except StoreError as error:
        raise ShareError(str(error)) from None


def open_run(query: Mapping[str, str], store: Store) -> RunRow | NotHere | None:
    """The run that an address names, or why it cannot be shown; None if it names none."""
    run_id = _without_punctuation(query.get(RUN, ""))
    return _find_run(run_id, store, query) if run_id else None


def open_runs(query: Mapping[str, str], store: Store) -> list[RunRow | NotHere]:
    """The runs of a comparison's address, each once, baseline first. Raises ShareError."""
    run_texts = _without_punctuation(query.get(RUNS, "")[:LINK_CHARS_MAX]).split(",")
    run_ids = list(dict.fromkeys(filter(None, run_texts)))
    if len(run_ids) > COMPARED_MAX:
        raise ShareError(f"this link compares {len(run_ids)} runs: at most {COMPARED_MAX} can be")
    baseline = _without_punctuation(query.get(BASELINE, ""))
    if baseline in run_ids:
        run_ids.remove(baseline)
        run_ids.insert(0, baseline)
    return [_find_run(run_id, store, query) for run_id in run_ids]


def pack_scenario(scenario: Scenario) -> str:
    """The scenario as text for a link: canonical JSON, zlib, base64url. Raises ShareError."""
    # An imported machine stands behind its scenario; a recipe, or an unknown one, does not.
    machine = find_machine(scenario.supernode.machine) if scenario.supernode.imported else None
    packed = pack_text(json_text(scenario) + (f"\n{machine_text(machine)}" if machine else ""))
    packed = packed if len(packed) <= LINK_CHARS_MAX else pack_text(json_text(scenario))
    if len(packed) > LINK_CHARS_MAX:
        raise ShareError(
            f"this scenario takes {len(packed):,} characters, a link holds {LINK_CHARS_MAX:,}: "
            "shorten its texts, or send it as a TOML file"
        )
    return packed


def pack_text(text: str) -> str:
    """Text for a link: zlib, base64url."""
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def _unpack_scenario(text: str, hold: Hold) -> Scenario:
    """The scenario in a link's text; `hold` receives a machine inside it. Raises ShareError."""
    scenario_text, _, machine_text = unpack_text(text).partition("\n")
    try:
        scenario = scenario_from_canonical(scenario_text)
    except SpecError as error:
        raise ShareError(f"this link holds no scenario this twin can run: {error}") from None
    if machine_text and scenario.supernode.imported:
        try:
            machine = read_machine(machine_text.encode(), "from a link")
        except HardwareError as error:
            raise ShareError(f"the machine inside this link cannot be read: {error}") from None
        if machine.digest == scenario.supernode.machine:
            hold(machine)
            make_available(machine)
    return scenario


def _without_punctuation(text: str) -> str:
    """A text without punctuation at its end; unchanged if it is nothing else."""
    return text.rstrip(PUNCTUATION) or text


def unpack_text(text: str) -> str:
    """The text inside a link. Raises ShareError if it is damaged or too long."""
    if len(text) > LINK_CHARS_MAX:
        raise ShareError(f"this link is longer than the {LINK_CHARS_MAX:,} characters of any")
    text = _without_punctuation(text)
    try:
        raw_bytes = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        inflater = zlib.decompressobj()
        text_bytes = inflater.decompress(raw_bytes, SCENARIO_BYTES_MAX)
    except (binascii.Error, ValueError, zlib.error):
        raise ShareError("this link is damaged: copy it again, whole") from None
    if inflater.unconsumed_tail:
        raise ShareError(
            f"this link unpacks to more than {SCENARIO_BYTES_MAX // 1024} KiB: no link here does"
        )
    if not inflater.eof:
        raise ShareError("this link is cut off: copy it again, whole")
    try:
        return text_bytes.decode()
    except UnicodeDecodeError:
        raise ShareError("this link holds no text: copy it again, whole") from None


def _find_run(run: str, store: Store, query: Mapping[str, str]) -> RunRow | NotHere:
    """A run by id, or why it cannot be shown; query: of its link, maybe with the scenario."""
    if not RUN_ID.fullmatch(run):
        return NotHere("this is no run's id: copy the link again, whole")
    try:
        run_row = store.runs.get(run)
    except StoreError as error:
        return NotHere(str(error))
    if run_row is None and query.get(QUESTIONS):  # it can be run here
        return NotHere(f"no run here has the id {run}: another twin stored it, or it was deleted")
    return run_row if run_row is not None else NotHere(_absence_text(RUN, run))


def _absence_text(kind: str, name: str) -> str:
    """Sentence that this twin does not store a run or a scenario (`kind`) of a name."""
    return (
        f"no {kind} here has the id {name}: a link opens only in the twin that stored it, and it "
        "may have been deleted; ask for the scenario as a portable link or TOML file"
    )


def _url(page: str, query: Mapping[str, str]) -> str:
    """Path and query of an address as text."""
    return f"/{page}?{urlencode(query, safe=',')}"
