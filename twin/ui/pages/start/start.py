"""What this is, one obvious Run, presets to begin with, and the latest runs."""

from functools import partial

import streamlit as st

from twin.hooks import draw_sections
from twin.metrics.measures import numbered
from twin.scenario import scenario_digest
from twin.ui import live, runs, session, words
from twin.ui.link import go_to, link_page
from twin.ui.pages.plan import requested
from twin.ui.pages.run import explained
from twin.ui.pages.start import parts
from twin.ui.pages.sweep import points
from twin.ui.show import draw_choice, plain
from twin.ui.toolbar import draw_changes, draw_draft_link, draw_run_button, open_run, refusal

RECENT = 5

# 1) Gather.
presets = session.preset_list()
draft = session.draft()

# 2) What this is, and the draft with its Run.
st.title("Supernode twin", anchor=False)
st.markdown(
    "Watch a CloudMatrix384 supernode serve DeepSeek-R1, request by request, "
    "and see why it is as fast as it is."
)
draw_sections("start.top")

with st.container(border=True):
    about_column, machine_column = st.columns([4, 5], gap="large")
    with about_column:
        named_draft = session.named_draft()
        st.subheader(plain(named_draft.name), anchor=False, help=plain(draft.source) or None)
        st.markdown(plain(named_draft.question) or "No question written down yet.")
        with st.container(key="tour-verdict"):
            simulated = live.draw_strip(draft)
        with st.container(key="tour-controls"):
            parts.draw_sliders(draft)
        with st.container(horizontal=True, vertical_alignment="center", key="tour-run"):
            draw_run_button()
            draw_draft_link("")
            draw_changes()
        with st.container(
            horizontal=True, vertical_alignment="center", gap="small", key="tour-questions"
        ):
            button = partial(st.button, type="tertiary", disabled=bool(refusal()))
            if button(
                "What should I deploy?", "what-to-deploy", icon=":material/travel_explore:",
                help="Searches deployments of this machine for this traffic, and ranks them.",
            ):  # fmt: skip
                st.session_state[requested.NOW] = True
                go_to("plan")
            if button("Where does it break?", "where-it-breaks", icon=":material/ssid_chart:"):
                st.session_state[points.NOW] = True
                go_to("sweep", {"over": parts.break_point_axis(draft).text})
            if button(
                "Why not faster?", "why-not-faster", "Simulates this and names what takes time.",
                icon=":material/help:",
            ):  # fmt: skip
                st.session_state[explained.NOW] = scenario_digest(named_draft)
                open_run(named_draft)
            reason = ""
            if button(
                "Fail a node", "fail-a-node", icon=":material/bolt:",
                help="Simulates this with a node that fails while it serves.",
            ) and not (reason := parts.add_node_failure(draft)):  # fmt: skip
                open_run(session.named_draft())
            idle = words.idle_npus(draft)
            if idle and button(
                f"Use the {numbered(idle, 'idle NPU')}", "use-idle", icon=":material/add_circle:",
                help="Gives them to the pool that is full first; the list of changes undoes it.",
            ) and not (reason := parts.use_idle_npus(draft)):  # fmt: skip
                st.rerun()
            if reason:
                st.toast(plain(reason), icon=":material/error:")
            link_page("workload", "Edit everything", icon=":material/tune:")
    with machine_column, st.container(key="tour-machine"):
        picture_place = st.empty()
        with picture_place.container():
            plays_stored = parts.draw_picture(draft)

# 3) Presets.
st.subheader("Presets", anchor=False)
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    shelf = draw_choice("Presets", parts.SHELVES, "shelf", bind="query-params", wrap=True)
    search_text = st.text_input(
        "Search the presets", key="preset-search", type="search", live="100ms",
        placeholder="Search: prefix, H800, fault", label_visibility="collapsed", width=260,
    )  # fmt: skip
chosen = parts.find_presets(presets, parts.SHELVES[shelf], search_text or "")
if not chosen:
    st.markdown("No preset says that. Clear the search to see all of them.")
parts.draw_cards(chosen)

# 4) Recent runs.
st.subheader("Recent runs", anchor=False)
recent_runs = runs.latest_runs(RECENT)
if not recent_runs:
    st.caption("None yet: press Run above, and it will be listed here.")
runs.draw_links("run", recent_runs)

# 5) The second answer: the draft simulated, on the picture too where no stored run plays there.
live_run = live.draw_answer(simulated, draft)
if live_run and not plays_stored:
    parts.play_live(picture_place, draft, live_run)
