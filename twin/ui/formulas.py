"""What the formulas say of a scenario, kept by its canonical form: a value, or the one sentence why
there is none."""

import threading
from collections.abc import Callable
from typing import Any

import streamlit as st

from twin import outlook as load
from twin import steady
from twin.facts import FactError
from twin.hardware.chip import HardwareError
from twin.hardware.network import Wiring
from twin.hardware.placement import Placement, place
from twin.lab.kinds import TRACE
from twin.lab.sweep import break_even
from twin.lab.sweep.hit_curve import HitCurve
from twin.lab.sweep.hit_curve import hit_curve as lab_hit_curve
from twin.model.predict import Prediction
from twin.model.timeline import Timeline
from twin.scenario import Recovery, Scenario, canonical
from twin.ui import session
from twin.ui.fields import sentence
from twin.workload import offered as offer
from twin.workload.requests import TraceTable

# Formulas share one interpreter: twenty at once would each take twenty times as long, and starve
# the server's connections. With two places besides one that is long, short ones pass it.
_PLACES = threading.BoundedSemaphore(3)


def offered(scenario: Scenario) -> offer.Offered | str:
    """What the scenario's traffic asks for, or one sentence why that cannot be said."""
    return session.store().traces.lacking(scenario) or _offered(canonical(scenario), scenario)


@st.cache_resource(show_spinner="Drawing a sample of the requests", max_entries=200)
def _offered(key: str, _scenario: Scenario) -> offer.Offered | str:
    return _or_why(lambda: offer.offered(_scenario, session.facts(), _replayed(_scenario)))


def hit_curve(scenario: Scenario) -> HitCurve | str:
    """Hit ratio against the size of the memory pool, or one sentence why it cannot be said."""
    return session.store().lacking(scenario) or _hit_curve(canonical(scenario), scenario)


@st.cache_resource(show_spinner="Following the blocks of every prompt", max_entries=20)
def _hit_curve(key: str, _scenario: Scenario) -> HitCurve | str:
    return _or_why(lambda: lab_hit_curve(_scenario, session.facts(), _replayed(_scenario)))


def reads(scenario: Scenario) -> list[break_even.Read] | str:
    """What reading cached KV takes beside computing it, or one sentence why it cannot be said."""
    return session.store().lacking(scenario) or _reads(canonical(scenario), scenario)


@st.cache_resource(show_spinner=False, max_entries=200)
def _reads(key: str, _scenario: Scenario) -> list[break_even.Read] | str:
    return _or_why(lambda: break_even.reads(_scenario, session.facts(), *_files(_scenario)))


def capacity(scenario: Scenario) -> Prediction | str:
    """What the deployment sustains by formula, or one sentence why it cannot be."""
    return session.store().lacking(scenario) or _capacity(canonical(scenario), scenario)


@st.cache_resource(show_spinner="Working out the steady state", max_entries=200)
def _capacity(key: str, _scenario: Scenario) -> Prediction | str:
    return _or_why(lambda: steady.capacity(_scenario, session.facts(), *_files(_scenario)))


@st.cache_resource(show_spinner=False, max_entries=200)
def layers(key: str, _scenario: Scenario) -> dict[str, Timeline]:
    """By phase: one layer on its two streams, of a scenario whose `capacity` is known."""
    from twin.lab.explain.streams import full_plans

    return full_plans(_scenario, session.facts(), *_files(_scenario))


def whole(scenario: Scenario) -> Scenario:
    """Formulas know a whole machine: an edit of what breaks need not find their answers again."""
    return scenario.model_copy(update={"faults": (), "recovery": Recovery()})


def outlook(scenario: Scenario) -> load.Outlook | str:
    """How the deployment fares under its load, or one sentence why it cannot be."""
    return session.store().lacking(scenario) or _outlook(canonical(scenario), scenario)


@st.cache_resource(show_spinner=False, max_entries=500)
def _outlook(key: str, _scenario: Scenario) -> load.Outlook | str:
    return _or_why(lambda: load.outlook(_scenario, session.facts(), *_files(_scenario)))


def times(scenario: Scenario) -> tuple[float, float] | str:
    """(horizon_s, warmup_s) that fit the lives of its requests, or why that is not known."""
    return _times(canonical(scenario), scenario)


@st.cache_data(show_spinner=False, max_entries=200)
def _times(key: str, _scenario: Scenario) -> tuple[float, float] | str:
    return _or_why(lambda: load.times(_scenario, session.facts()))


def bound(scenario: Scenario) -> str:
    """Which batch keeps the SLO's TPOT by formula, or that none does and why."""
    return session.store().lacking(scenario) or _bound(canonical(scenario), scenario)


@st.cache_data(show_spinner=False, max_entries=200)
def _bound(key: str, _scenario: Scenario) -> str:
    tpot_s, files = 1e-3 * _scenario.slo.tpot_ms, _files(_scenario)
    best = _or_why(lambda: steady.largest_batch(_scenario, session.facts(), tpot_s, *files))
    return best if isinstance(best, str) else str(best.sentence)


def seated(scenario: Scenario, fabric: Wiring) -> tuple[Placement, str]:
    """Who sits where; where nobody can, an empty placement and why."""
    try:
        return place(scenario, fabric), ""
    except HardwareError as error:
        return Placement((), ()), sentence(str(error))


def _or_why(ask: Callable[[], Any]) -> Any:
    """The answer, or the one sentence why there is none."""
    try:
        with _PLACES:
            return ask()
    except (ValueError, FactError) as error:
        return str(error)


@st.cache_resource(show_spinner=False, max_entries=2)
def _trace(digest: str) -> TraceTable:
    return session.store().traces.load(digest)


def _replayed(scenario: Scenario) -> TraceTable | None:
    """The trace a scenario replays, None where it replays none."""
    used = TRACE.named(scenario)
    return _trace(used.digest) if used else None


def _files(scenario: Scenario) -> tuple[TraceTable | None, Any]:
    """The trace and the routing counts f8[layers, experts] that a scenario uses, None for none."""
    table = session.store().counts.of(scenario)
    return _replayed(scenario), table.counts if table else None
