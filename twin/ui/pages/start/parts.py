"""The draft's answer at a glance: the fields that change it most, and the machine; the presets as
cards, by the question they ask: a picture, the answer, and what to do with it."""

import inspect
import logging
import time
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any
from zipfile import BadZipFile

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from twin import outlook as load
from twin.facts import FactError
from twin.hardware.chip import HardwareError
from twin.hardware.imported import npus_of
from twin.hardware.network import Network
from twin.lab.share import shipped
from twin.lab.share.shipped import Shipped, find_shipped
from twin.lab.sweep import sweep
from twin.metrics.measures import numbered
from twin.scenario import Scenario, pools, scenario_digest, sharing_pool
from twin.steady import Priced
from twin.ui import forms, formulas, live, runs, session, theme, words
from twin.ui.fabric_message import built, draw_fabric, machine_text
from twin.ui.fields import field_of, sentence, why_idle
from twin.ui.forms.faults import typical_faults
from twin.ui.link import go_to, link_page
from twin.ui.pages.playback import player
from twin.ui.pages.supernode.editor import fabric_of
from twin.ui.pages.sweep.points import default_axis
from twin.ui.show import draw_markup, plain
from twin.ui.toolbar import open_run

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
Named = tuple[str, Scenario]
# What a visitor asks, and parts of the keys of the presets that answer it.
SHELVES = {
    "Begin here": (
        "quickstart", "deepseek-service", "mooncake-like-conversation", "r1-reasoning",
        "memory-pool-reuse", "colocated-contrast",
    ),
    "Is it right?": (
        "paper", "slides", "xdeepserve", "a3-", "best-practices", "h100", "h800", "nvl72-decode",
    ),
    "Other machines": (
        "wires", "supernode", "two-l2", "unified", "scale-up", "ub-mesh", "rack", "kv-over",
        "mixed-chips",
    ),
    "What breaks it?": ("fault", "fails", "half-sub-plane", "bottleneck"),
    "Real traffic": (
        "service", "-day", "mooncake", "r1-reasoning", "xdeepserve-production", "agentic",
        "tenants",
    ),
    "Experts and reuse": (
        "canary", "experts", "memory-pool", "colocated", "on-decode", "offload", "sparse", "dense",
        "eight-models", "million-tokens",
    ),
    "All": ("",),
}  # fmt: skip
CARD_FIGURES = 3  # of a run, on a card
CELLS, ROW = 96, 24  # of a card's picture: nodes at most, and nodes in a row

# Summaries of the runs that came with the project, by the digest of their scenario; never changed.
shipped_summaries = st.cache_resource(show_spinner=False, max_entries=1)(shipped.shipped_summaries)


def break_point_axis(draft: Scenario) -> sweep.Axis:
    """Axis of a sweep over rate, concurrency or replay speed, around where the SLO breaks."""
    outlook = formulas.outlook(draft)
    if draft.workload.arrivals == "closed_loop":
        return default_axis("workload.concurrency")
    if draft.workload.arrivals == "trace":
        return default_axis("workload.trace.rate_multiplier")
    if isinstance(outlook, str) or not outlook.slo_req_per_s:
        return default_axis("workload.rate_req_per_s")
    low_req_per_s, high_req_per_s = (
        float(f"{outlook.slo_req_per_s * multiple:.2g}") for multiple in BREAKS
    )
    return sweep.spaced_axis("workload.rate_req_per_s", low_req_per_s, high_req_per_s, BREAK_POINTS)


def draw_sliders(draft: Scenario) -> None:
    """Draw a slider for each field of STOPS that has an effect, and why its value is refused."""
    for path, stops in STOPS.items():
        if why_idle(path, draft):
            continue
        current_value = session.widget_value(path)
        stop_values = sorted({type(current_value)(stop) for stop in stops} | {current_value})
        options = {"format_func": lambda v: f"{v:,g}"} | forms.edit_arguments(path)
        st.select_slider(field_of(path).title, stop_values, current_value, **options)
        if refusal := session.latest_refusal(path):
            forms.draw_refusal(refusal)


@st.cache_resource(show_spinner=False, max_entries=20)
def _shipped_run(digest: str, _draft: Scenario) -> Shipped | None:
    """Shipped run of a scenario, None if there is none. digest: of the scenario, for the cache."""
    return find_shipped(_draft)


def prepare_first_page() -> None:
    """Load, compute and compile what the first page needs before its first visitor arrives. Opens
    no store: a database that does not answer must not keep the server from starting."""
    inspect.stack()  # Streamlit asks at its first element, and Python then looks at every module
    try:
        draft, facts = session.initial_draft(), session.facts()
        load.outlook(Priced(draft, facts))
        machine_text(built(fabric_of(draft.supernode)))
        if shipped_run := _shipped_run(scenario_digest(draft), draft):
            player.shipped_film(draft, shipped_run, shipped_run.scenario)
    except (FactError, ValueError, OSError, BadZipFile) as error:
        log.warning("the first page was not made ready: %s", error)


def add_node_failure(draft: Scenario) -> str:
    """Add the failure of a node to the draft's faults; returns '' or why it is impossible."""
    placement, reason = formulas.place_instances(draft)
    if reason:
        return reason
    fabric = fabric_of(draft.supernode)
    node_faults = typical_faults(draft, fabric, placement.instances).get("A node")
    if not node_faults:
        return "This machine has no node that could fail."
    old_faults = [fault.model_dump() for fault in draft.faults]
    new_faults = [fault for fault in node_faults if fault not in old_faults]
    return session.propose({"faults": old_faults + new_faults})


def use_idle_npus(draft: Scenario) -> str:
    """Give idle NPUs to the pool that limits the draft; returns '' or why it is impossible."""
    outlook = formulas.outlook(formulas.without_faults(draft))
    if isinstance(outlook, str):
        return sentence(outlook)
    pool_sizes = {role: (instances, npus) for role, instances, npus in pools(draft)}
    role = outlook.limit if outlook.limit in pool_sizes else next(reversed(pool_sizes))
    (instances, npus), idle_npus = pool_sizes[role], words.idle_npus(draft)
    npus_per_node = draft.supernode.npus_per_node
    if role == "decode" and (more_npus := idle_npus // instances // npus_per_node * npus_per_node):
        return session.propose({"deployment.decode.npus_per_instance": npus + more_npus})
    if idle_npus < npus:
        needed_text, idle_text = numbered(npus, "NPU"), numbered(idle_npus, "NPU")
        return f"No {role} instance of {needed_text} fits into {idle_text}."
    return session.propose({f"deployment.{role}.instances": instances + idle_npus // npus})


def _play_stored(draft: Scenario, fabric: Network) -> bool:
    """Play back a stored or shipped run of exactly this scenario; returns whether there is one."""
    digest = scenario_digest(draft)
    run = session.store().runs.latest_runs([digest]).get(digest)
    if run and run.summary and not player.missing_tables(run.id):
        player.draw_without_controls(run.id, player.film_of_run(run.id, run, draft), fabric)
        link_page("run", f"A run of {words.age_text(time.time() - run.queued_s)}", {"run": run.id})
        return True
    if (shipped_run := _shipped_run(digest, draft)) is None:
        return False
    film = player.shipped_film(draft, shipped_run, shipped_run.scenario)
    player.draw_without_controls(shipped_run.key, film, fabric)
    stale_text = ". Newer ones replace it." if shipped_run.stale else "."
    st.caption(f"A run that came with the project, made by engine {shipped_run.engine}{stale_text}")
    return True


def play_live(place: DeltaGenerator, draft: Scenario, run: str) -> None:
    """Draw the live run of the draft (its id) in `place`, instead of the machine without a run."""
    if not (tables := live.tables(run)):
        return
    live_run = Shipped(run, scenario_digest(draft), "", "", {}, tables)
    film = player.shipped_film(draft, live_run, run)
    with place.container():
        player.draw_without_controls(run, film, fabric_of(draft.supernode))


def draw_picture(draft: Scenario) -> bool:
    """Draw the machine with its instances, playing a stored run if there is one. Returns whether a
    live run must not replace the picture: a stored run plays, or no machine can be drawn."""
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
    npus_text = numbered(npus_of(draft.supernode), "NPU")
    if not draft.supernode.imported:
        npus_text += f" in {numbered(draft.supernode.all_nodes, 'node')}"
    draw_fabric(fabric, title=npus_text, instances=placement.instances, key="start-picture")
    return False


def find_presets(presets: Iterable[Named], shelf: Iterable[str], search_text: str) -> list[Named]:
    """Presets on a shelf: their key contains one of the texts in `shelf`. With a `search_text`
    instead all presets that contain each of its words."""
    shelf, search_words = tuple(shelf), search_text.lower().split()
    if not search_words:
        return [preset for preset in presets if any(word in preset[0] for word in shelf)]

    def text(key: str, s: Scenario) -> str:
        """Text of a preset in which a search looks, in small letters."""
        return f"{key} {s.name} {s.question} {s.source}".lower()

    return [preset for preset in presets if all(word in text(*preset) for word in search_words)]


def draw_card(key: str, scenario: Scenario, summary: Mapping[str, Any]) -> None:
    """Draw one preset: its question, its answer (from a summary), Run and Edit."""
    title = plain(scenario.name)
    st.markdown(f"**{title}**")
    st.markdown(plain(scenario.question))
    draw_markup(picture_svg(scenario), f"card-{key}")
    if figure_texts := runs.headlines(summary, "card")[:CARD_FIGURES]:
        st.markdown(f":small[:material/speed: {', '.join(figure_texts)}]")
    st.caption(words.card_line(scenario))
    st.space("stretch")
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Run", icon=":material/play_arrow:", key=f"run-{key}", help=f"Run “{title}”"):
            session.start_from(scenario)
            open_run(scenario)
        st.space("stretch")
        if st.button(
            "Edit", icon=":material/tune:", key=f"edit-{key}", type="tertiary",
            help=f"Edit a copy of “{title}”",
        ):  # fmt: skip
            session.start_from(scenario)
            go_to("workload")
        st.caption("Source", help=plain(scenario.source), width="content")


def picture_svg(s: Scenario) -> str:
    """NPUs by role as rows of coloured nodes, as SVG: prefill, decode, idle."""
    npus_by_role = [(role, instances * npus) for role, instances, npus in pools(s)]
    if sharing_pool(s):
        (_, prefill_npus), (_, npus) = npus_by_role
        npus_by_role = [("colocated", prefill_npus), ("decode", npus - prefill_npus)]
    used_npus = sum(npus for _, npus in npus_by_role)
    npus_by_role.append(("idle", max(npus_of(s.supernode) - used_npus, 0)))
    role_ends = list(accumulate(npus for _, npus in npus_by_role))
    cell_count, cells_svg = min(CELLS, -(-role_ends[-1] // s.supernode.npus_per_node)), ""
    for cell in range(cell_count):
        role = npus_by_role[bisect(role_ends, (cell + 0.5) * role_ends[-1] / cell_count)][0]
        colour = theme.ROLE.get(role)
        fill_svg = f'fill="{colour}"' if colour else 'fill="currentColor" fill-opacity=".18"'
        x, y = 10 * (cell % ROW), 12 * (cell // ROW)
        cells_svg += f'<rect x="{x}" y="{y}" width="8" height="10" rx="1" {fill_svg}/>'
    counts_text = ", ".join(f"{npus:,} {role}" for role, npus in npus_by_role if npus)
    width, height = 10 * ROW - 2, 12 * -(-cell_count // ROW) - 2
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="NPUs: {escape(counts_text)}">'
        f"{cells_svg}</svg>"
    )


def draw_cards(presets: Sequence[Named]) -> None:
    """Draw presets as cards, each with its latest or its shipped result."""
    digests = {key: scenario_digest(scenario) for key, scenario in presets}
    latest_runs = session.store().runs.latest_runs([*digests.values()])
    with st.grid(3, min_column_width=290, gap="medium"):
        for key, scenario in presets:
            run = latest_runs.get(digests[key])
            with st.container(border=True, height="stretch"):
                summary = run.summary if run else shipped_summaries().get(digests[key], {})
                draw_card(key, scenario, summary)
