"""Formulas' answers to a scenario, cached by its canonical form: a value, or why none."""

import threading
from collections.abc import Callable
from typing import Any

import streamlit as st

from twin import outlook as load
from twin import steady
from twin.facts import FactError
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.hardware.network import Network
from twin.hardware.placement import Placement, place_models
from twin.lab.explain.streams import full_load_timelines
from twin.lab.kinds import TRACE
from twin.lab.runs.budget import require_known_names
from twin.scenario import Recovery, Scenario, json_text
from twin.ui import session
from twin.ui.fields import sentence
from twin.workload import offered as offer
from twin.workload.requests import TraceTable

# Formulas share one interpreter: twenty at once would each take twenty times as long, and starve
# the server's connections. With two more places, short ones pass one that is long.
_PLACES = threading.BoundedSemaphore(3)
Answer = Callable[[Scenario], Any]


def cached_formula(
    name: str, compute: Answer, lacking: Answer, *, spinner: str | bool = False, entries: int = 200
) -> Answer:
    """Make a cached function of a scenario. It returns the answer of `compute`, or a sentence on
    why there is none. name: of the cache. lacking: returns a sentence if a file that the scenario
    names is missing, otherwise ''. entries: number of answers that are cached."""

    def cached(key: str, _scenario: Scenario) -> Any:
        """The answer, or the sentence why there is none; `key` identifies the scenario in the
        cache."""
        return answer_or_reason(lambda: compute(_scenario))

    cached.__qualname__ = name  # Streamlit tells functions apart by name and source
    cached_answer = st.cache_resource(show_spinner=spinner, max_entries=entries)(cached)
    return lambda scenario: lacking(scenario) or cached_answer(json_text(scenario), scenario)


def answer_or_reason(compute: Callable[[], Any]) -> Any:
    """The answer of `compute`, or the sentence of its error; three at most compute at once."""
    try:
        with _PLACES:
            return compute()
    except (ValueError, FactError) as error:
        return str(error)


def _missing_trace_text(s: Scenario) -> str:
    """Sentence on the trace that a scenario replays and that is not stored here; otherwise ''."""
    return session.store().traces.missing_text(s)


def missing_file_text(s: Scenario) -> str:
    """Sentence on a file that a scenario names and that is not stored here; '' if all are."""
    return session.store().missing_text(s)


def _formula_inputs(s: Scenario) -> steady.Priced:
    """The inputs of formulas for a scenario, with its stored trace and routing counts."""
    return steady.Priced(s, session.facts(), *files_of(s))


# What the traffic demands, by a sample of its requests (Offered).
offered = cached_formula(
    "offered", lambda s: offer.offered_load(s, session.facts(), replayed_trace(s)),
    _missing_trace_text, spinner="Drawing a sample of the requests",
)  # fmt: skip
# What the deployment sustains (Prediction).
capacity = cached_formula(
    "capacity", lambda s: steady.predict_with_advice(_formula_inputs(s)), missing_file_text,
    spinner="Working out the steady state",
)  # fmt: skip
# Offered requests/s (None: a closed loop), and the share of them that KV space has room for.
load_and_room = cached_formula("load and room", lambda s: (
    (priced := _formula_inputs(s)).all_requests.rate_req_per_s, priced.room.admitted_share
), missing_file_text)  # fmt: skip
# One layer on its two streams by phase, where it runs in microbatches (dict[str, Timeline]).
layers = cached_formula("layers", lambda s: full_load_timelines(
    s, session.facts(), *files_of(s)), missing_file_text)  # fmt: skip
# How the deployment fares under its load (Outlook).
outlook = cached_formula("outlook", lambda s: load.outlook(
    _formula_inputs(s)), missing_file_text, entries=500)  # fmt: skip
# (horizon_s, warmup_s) that fit the lives of its requests.
times = cached_formula(
    "times", lambda s: load.run_and_warmup_s(steady.Priced(s, session.facts())), lambda s: ""
)
# Which batch meets the SLO's TPOT, or that none does and why, as one sentence.
bound = cached_formula("bound", lambda s: steady.largest_batch(
    _formula_inputs(s), 1e-3 * s.slo.tpot_ms).sentence, missing_file_text)  # fmt: skip


def why_impossible(scenario: Scenario) -> str:
    """Sentence on why a scenario cannot be run, '' if it can: it names something that does not
    exist, or formulas find no answer, for example because a model does not fit."""
    unknown_text = answer_or_reason(lambda: require_known_names(scenario, session.facts()))
    reason_or_outlook = unknown_text or outlook(without_faults(scenario))
    return reason_or_outlook if isinstance(reason_or_outlook, str) else ""


def without_faults(scenario: Scenario) -> Scenario:
    """The scenario without faults, which formulas do not read."""
    return scenario.model_copy(update={"faults": (), "recovery": Recovery()})


def place_instances(scenario: Scenario, fabric: Network | None = None) -> tuple[Placement, str]:
    """(placement of the instances, ''), or (an empty placement, the reason) if it is impossible.
    fabric: None for that of the scenario."""
    try:
        network = fabric or build_fabric(scenario.supernode, session.facts())
        return place_models(scenario, network), ""
    except HardwareError as error:
        return Placement((), ()), sentence(str(error))


@st.cache_resource(show_spinner=False, max_entries=2)
def _stored_trace(digest: str) -> TraceTable:
    """A stored trace by its digest."""
    return session.store().traces.load(digest)


def replayed_trace(scenario: Scenario) -> TraceTable | None:
    """The table of the trace that a scenario replays; None without one."""
    trace_reference = TRACE.named(scenario)
    return _stored_trace(trace_reference.digest) if trace_reference else None


def files_of(scenario: Scenario) -> tuple[TraceTable | None, Any]:
    """(trace, routing counts f8[layers, experts]) that a scenario uses; None where it uses none."""
    counts_table = session.store().counts.value_of(scenario)
    return replayed_trace(scenario), counts_table.counts if counts_table else None
