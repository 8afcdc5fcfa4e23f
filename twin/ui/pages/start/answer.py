"""The draft's answer at a glance: the fields that change it most, and the machine."""

import inspect
import logging
import time
from zipfile import BadZipFile

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from twin import outlook as load
from twin.facts import FactError
from twin.hardware.chip import HardwareError
from twin.hardware.imported import npus_of
from twin.hardware.network import Network
from twin.lab.share.shipped import Shipped, find_shipped
from twin.lab.sweep import sweep
from twin.metrics.measures import numbered
from twin.scenario import Scenario, pools, scenario_digest
from twin.steady import Priced
from twin.ui import forms, formulas, live, session, words
from twin.ui.fabric_message import built, draw_fabric, machine_text
from twin.ui.fields import label, sentence, why_idle
from twin.ui.forms.faults import typical_faults
from twin.ui.link import link_page
from twin.ui.pages.playback import player
from twin.ui.pages.supernode.editor import fabric_of
from twin.ui.pages.sweep.points import default_axis

log = logging.getLogger(__name__)

BREAKS, BREAK_POINTS = (0.4, 1.3), 9  # of the load that keeps the SLO by formula: where to look
# What moves the answer most, each with the values its slider stops at.
STOPS = {
    "workload.rate_req_per_s": (
        1, 2, 5, *range(10, 100, 10), *range(100, 225, 25), 250, 300, 400, 600,
    ),
    "workload.concurrency": (16, 64, 256, 832, 1024, 2048, 4096, 8192, 12_672, 16_384, 32_768),
    "workload.input_tokens": (
        256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 16_384, 32_768, 65_536, 131_072,
    ),
    "workload.output_tokens": (64, 128, 256, 512, 1024, 1536, 2048, 4096, 8192),
    "workload.shared_fraction": (0, 0.25, 0.5, 0.75, 0.9),
    "slo.ttft_s": (0.3, 0.5, 1, 2, 3, 5, 10, 20, 30),
    "slo.tpot_ms": (10, 15, 20, 25, 30, 40, 50, 75, 100, 200),
}  # fmt: skip


def break_point_axis(draft: Scenario) -> sweep.Axis:
    """Axis of a sweep over rate, concurrency or replay speed, around where the SLO breaks."""
    outlook = formulas.outlook(draft)
    if draft.workload.arrivals == "closed_loop":
        return default_axis("workload.concurrency")
    if draft.workload.arrivals == "trace":
        return default_axis("workload.trace.rate_multiplier")
    if isinstance(outlook, str) or not outlook.slo_req_per_s:
        return default_axis("workload.rate_req_per_s")
    low, high = (float(f"{outlook.slo_req_per_s * multiple:.2g}") for multiple in BREAKS)
    return sweep.spaced_axis("workload.rate_req_per_s", low, high, BREAK_POINTS)


def draw_sliders(draft: Scenario) -> None:
    """Draw a slider for each field of STOPS that has an effect, and why its value is refused."""
    for path, stops in STOPS.items():
        if why_idle(path, draft):
            continue
        value = session.value(path)
        stop_values = sorted({type(value)(option) for option in stops} | {value})
        options = {"format_func": lambda v: f"{v:,g}"} | forms.edit_arguments(path)
        st.select_slider(label(path), stop_values, value, **options)
        if refusal := session.latest_refusal(path):
            forms.draw_problem(refusal)


@st.cache_resource(show_spinner=False, max_entries=20)
def _shipped_run(digest: str, _draft: Scenario) -> Shipped | None:
    """Shipped run of a scenario, None without one; cached by digest."""
    return find_shipped(_draft)


def prepare_first_page() -> None:
    """Compute the first page's answers before its first visitor arrives."""
    inspect.stack()  # Streamlit asks at its first element, and Python then looks at every module
    try:
        draft, facts = session.initial_draft(), session.facts()
        load.outlook(Priced(draft, facts))
        machine_text(built(fabric_of(draft.supernode)))
        if shipped_run := _shipped_run(scenario_digest(draft), draft):
            player.shipped_film(draft, shipped_run, shipped_run.scenario)
    except (FactError, ValueError, OSError, BadZipFile) as error:
        log.warning("the first page was not made ready: %s", error)


def fail_a_node(draft: Scenario) -> str:
    """Add the failure of a node of the last decode instance; returns '' or why it is impossible."""
    placement, reason = formulas.place_instances(draft)
    if reason:
        return reason
    fabric = fabric_of(draft.supernode)
    node_faults = typical_faults(draft, fabric, placement.instances).get("A node")
    if not node_faults:
        return "This machine has no node that could fail."
    faults = [fault.model_dump() for fault in draft.faults]
    new_faults = [fault for fault in node_faults if fault not in faults]
    return session.propose({"faults": faults + new_faults})


def use_idle_npus(draft: Scenario) -> str:
    """Give idle NPUs to the limiting pool; returns '' or why it is impossible."""
    outlook = formulas.outlook(formulas.without_faults(draft))
    if isinstance(outlook, str):
        return sentence(outlook)
    pool_sizes = {role: (count, npus) for role, count, npus in pools(draft)}
    role = outlook.limit if outlook.limit in pool_sizes else next(reversed(pool_sizes))
    (count, npus), idle_npus = pool_sizes[role], words.idle_npus(draft)
    npus_per_node = draft.supernode.npus_per_node
    if role == "decode" and (more_npus := idle_npus // count // npus_per_node * npus_per_node):
        return session.propose({"deployment.decode.npus_per_instance": npus + more_npus})
    if idle_npus < npus:
        needed_text, idle_text = numbered(npus, "NPU"), numbered(idle_npus, "NPU")
        return f"No {role} instance of {needed_text} fits into {idle_text}."
    return session.propose({f"deployment.{role}.instances": count + idle_npus // npus})


def _play_stored(draft: Scenario, fabric: Network) -> bool:
    """Draw a stored run of exactly this scenario on the machine; returns False without one."""
    digest = scenario_digest(draft)
    row = session.store().runs.latest_runs([digest]).get(digest)
    if row and row.summary and not player.missing_tables(row.id):
        player.draw_without_controls(row.id, player.film_of_run(row.id, row, draft), fabric)
        link_page("run", f"A run of {words.age_text(time.time() - row.queued_s)}", {"run": row.id})
        return True
    if (shipped_run := _shipped_run(digest, draft)) is None:
        return False
    film = player.shipped_film(draft, shipped_run, shipped_run.scenario)
    player.draw_without_controls(shipped_run.key, film, fabric)
    stale_text = ". Newer ones replace it." if shipped_run.stale else "."
    st.caption(f"A run that came with the project, made by engine {shipped_run.engine}{stale_text}")
    return True


def play_live(place: DeltaGenerator, draft: Scenario, run: str) -> None:
    """Draw the live run of the draft on the machine, replacing the machine at rest."""
    if not (tables := live.tables(run)):
        return
    live_run = Shipped(run, scenario_digest(draft), "", "", {}, tables)
    film = player.shipped_film(draft, live_run, run)
    with place.container():
        player.draw_without_controls(run, film, fabric_of(draft.supernode))


def draw_picture(draft: Scenario) -> bool:
    """Draw the machine with its instances, or why there is none; returns whether it plays a run."""
    try:
        fabric = fabric_of(draft.supernode)
    except HardwareError as error:
        st.error(sentence(str(error)), icon=":material/device_hub:")
        return True
    if _play_stored(draft, fabric):
        return True
    placement, reason = formulas.place_instances(draft, fabric)
    if reason:
        st.error(reason, icon=":material/event_seat:")
    title = numbered(npus_of(draft.supernode), "NPU")
    if not draft.supernode.imported:
        title += f" in {numbered(draft.supernode.all_nodes, 'node')}"
    draw_fabric(fabric, title=title, instances=placement.instances, key="start-picture")
    return False
