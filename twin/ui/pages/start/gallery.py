"""The presets as cards, by the question they ask: a picture, the answer, and what to do with it."""

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any

import streamlit as st

from twin.hardware.imported import npus_of
from twin.lab.share import shipped
from twin.scenario import Scenario, pools, scenario_digest, sharing
from twin.ui import runs, session, theme, words
from twin.ui.link import go_to
from twin.ui.show import draw_markup, plain
from twin.ui.toolbar import open_run

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


def find_presets(presets: Iterable[Named], shelf: Iterable[str], sought: str) -> list[Named]:
    """Presets of a shelf; with a search text, all that contain every word."""
    shelf, search_words = tuple(shelf), sought.lower().split()
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
    if figures := runs.headlines(summary, "card")[:CARD_FIGURES]:
        st.markdown(f":small[:material/speed: {', '.join(figures)}]")
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
    if sharing(s):
        (_, instances_over), (_, npus) = npus_by_role
        npus_by_role = [("colocated", instances_over), ("decode", npus - instances_over)]
    used_npus = sum(npus for _, npus in npus_by_role)
    npus_by_role.append(("idle", max(npus_of(s.supernode) - used_npus, 0)))
    role_ends = list(accumulate(npus for _, npus in npus_by_role))
    cell_count, cells_svg = min(CELLS, -(-role_ends[-1] // s.supernode.npus_per_node)), ""
    for cell in range(cell_count):
        role = npus_by_role[bisect(role_ends, (cell + 0.5) * role_ends[-1] / cell_count)][0]
        colour = theme.ROLE.get(role)
        fill = f'fill="{colour}"' if colour else 'fill="currentColor" fill-opacity=".18"'
        x, y = 10 * (cell % ROW), 12 * (cell // ROW)
        cells_svg += f'<rect x="{x}" y="{y}" width="8" height="10" rx="1" {fill}/>'
    counts_text = ", ".join(f"{npus:,} {role}" for role, npus in npus_by_role if npus)
    width, height = 10 * ROW - 2, 12 * -(-cell_count // ROW) - 2
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="NPUs: {escape(counts_text)}">'
        f"{cells_svg}</svg>"
    )


def draw_cards(presets: Sequence[Named]) -> None:
    """Draw presets, each with its latest or its shipped result."""
    digests = {key: scenario_digest(scenario) for key, scenario in presets}
    latest_runs = session.store().runs.latest_runs([*digests.values()])
    with st.grid(3, min_column_width=290, gap="medium"):
        for key, scenario in presets:
            run = latest_runs.get(digests[key])
            with st.container(border=True, height="stretch"):
                summary = run.summary if run else shipped_summaries().get(digests[key], {})
                draw_card(key, scenario, summary)
