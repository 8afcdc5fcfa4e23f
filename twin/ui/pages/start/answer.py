"""The draft's answer at a glance: a verdict by formula, the fields that move it, the machine."""

from __future__ import annotations

import time

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import Fabric
from twin.lab import sweep
from twin.lab.shipped import TABLES, Shipped, shipped
from twin.metrics.measures import amount, seconds
from twin.scenario import Recovery, Scenario, npus_used, scenario_digest
from twin.steady import Outlook
from twin.ui import forms, formulas, live, session, words
from twin.ui.fabric_view import fabric_picture
from twin.ui.fields import label, sentence, tooltip, why_idle
from twin.ui.link import page_link
from twin.ui.pages.playback import player
from twin.ui.pages.supernode.editor import fabric_of
from twin.ui.pages.sweep.points import usual
from twin.ui.seated import seated

BREAKS, BREAK_POINTS = (0.4, 1.3), 9  # of the load that keeps the SLO by formula: where to look
# What moves the answer most, each with the values its slider stops at.
STOPS = {
    "workload.rate_req_per_s": (1, 2, 5, 10, 20, 50, *range(75, 225, 25), 250, 300, 400, 600),
    "workload.concurrency": (16, 64, 256, 832, 1024, 2048, 4096, 8192, 12_672, 16_384, 32_768),
    "workload.input_tokens": (256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536),
    "slo.tpot_ms": (10, 15, 20, 25, 30, 40, 50, 75, 100, 200),
}


def verdict(draft: Scenario) -> None:
    """One sentence with three numbers: how fast, how much more, what is idle."""
    if forms.refused():
        return
    # The formulas know a whole machine: an edit of what breaks need not find them again.
    found = formulas.outlook(draft.model_copy(update={"faults": (), "recovery": Recovery()}))
    if isinstance(found, str):
        st.markdown(f":red[:material/error: {sentence(found)}]")
        return
    st.markdown(f"### {_speed(found)}; {_room(draft, found)}; {_idle(draft)}.")


def _speed(found: Outlook) -> str:
    if found.tpot_s is None:
        return "Prompts only"
    load = "" if found.rate_req_per_s is None else f" at {_rate(found.rate_req_per_s)}"
    return f"**{seconds(found.tpot_s)} a token**{load}"


def _room(draft: Scenario, found: Outlook) -> str:
    if not found.slo_req_per_s:
        return f":red[**no batch keeps its SLO of {draft.slo.tpot_ms:g} ms**]"
    rate, most = found.rate_req_per_s, _rate(found.slo_req_per_s)
    if rate is not None and rate > found.slo_req_per_s:
        return f":red[**too much load**]: its SLO holds up to **{most}** ({found.limit} is full)"
    return f"holds its SLO up to **{most}**"


def _idle(draft: Scenario) -> str:
    idle = draft.supernode.npus - npus_used(draft)
    return f"**{words.npus(idle)} idle**" if idle else "no NPU idle"


def _rate(value: float) -> str:
    return amount(value, "rate", "req/s")


def break_point(draft: Scenario) -> sweep.Axis:
    """The load over a range in which the SLO breaks, by formula: of a rate, callers or haste."""
    expected = formulas.outlook(draft)
    if draft.workload.arrivals == "closed_loop":
        return usual("workload.concurrency")
    if draft.workload.arrivals == "trace":
        return usual("workload.trace.rate_multiplier")
    if isinstance(expected, str) or not expected.slo_req_per_s:
        return usual("workload.rate_req_per_s")
    low, high = (float(f"{expected.slo_req_per_s * by:.2g}") for by in BREAKS)
    return sweep.between("workload.rate_req_per_s", low, high, BREAK_POINTS)


def controls(draft: Scenario) -> None:
    """The fields that move the verdict most, as sliders; a value of one's own is a stop too."""
    for path, stops in STOPS.items():
        if why_idle(path, draft):
            continue
        value = session.value(path)
        kind = type(value)
        st.select_slider(
            label(path),
            sorted({kind(stop) for stop in stops} | {value}),
            value,
            format_func=lambda v: f"{v:,g}",
            key=session.field_key(path),
            help=tooltip(path),
            on_change=session.edit,
            args=(path,),
        )
        if refusal := session.refusal(path):
            st.markdown(f":small[:red[:material/error: {sentence(refusal)}]]")


def _played(draft: Scenario, fabric: Fabric) -> bool:
    """A stored run of exactly this question playing on the machine; False where there is none."""
    latest = (
        session.store().runs.search(states=["done"], scenario=scenario_digest(draft), limit=1).rows
    )
    if latest and latest[0].summary and not player.missing(latest[0].id):
        row = latest[0]
        player.brief(row.id, player.film(row.id, row, draft), fabric)
        page_link("run", f"A run of {words.ago(time.time() - row.queued_s)}", {"run": row.id})
        return True
    came = shipped(draft)
    if came is None:
        return False
    player.brief(came.key, player.shipped_film(draft, came, came.scenario), fabric)
    by = f"A run that came with the project, made by engine {came.engine}."
    st.caption(f"{by} Newer ones replace it." if came.stale else by)
    return True


def play_live(place: DeltaGenerator, draft: Scenario, run: str) -> None:
    """The live run of the draft on the machine, in place of the machine at rest."""
    tables = live.tables(run, TABLES)
    came = Shipped(run, scenario_digest(draft), "", "", {}, tables)
    with place.container():
        player.brief(run, player.shipped_film(draft, came, run), fabric_of(draft.supernode))


def picture(draft: Scenario) -> bool:
    """The machine with the instances on it, or why there is none; whether a run plays on it."""
    try:
        fabric = fabric_of(draft.supernode)
    except HardwareError as error:
        st.error(sentence(str(error)), icon=":material/device_hub:")
        return True
    if _played(draft, fabric):
        return True
    placed, no_place = seated(draft, fabric)
    if no_place:
        st.error(no_place, icon=":material/event_seat:")
    title = f"{words.npus(draft.supernode.npus)} in {draft.supernode.all_nodes:,} nodes"
    fabric_picture(fabric, title=title, instances=placed.instances, key="start-picture")
    return False
