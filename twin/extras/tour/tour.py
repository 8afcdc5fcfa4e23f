"""The optional tour of the first page, five steps; the browser remembers who saw it."""

from pathlib import Path

import streamlit as st

_HTML, _CSS, _JS = (
    Path(__file__).with_suffix(f".{kind}").read_text("utf-8") for kind in ("html", "css", "js")
)
_tour = st.components.v2.component("tour", html=_HTML, css=_CSS, js=_JS)


# Title and text of each step, by the key of the container that it describes.
STEPS = {
    "tour-machine": (
        "The machine, serving",
        "This is the supernode: nodes of eight NPUs in their racks. Colours tell prefill from "
        "decode, grey stands idle, and a stored run plays on it. Click a node to see how full "
        "its links are.",
    ),
    "tour-verdict": (
        "The answer in one sentence",
        "How long an output token takes (TPOT), how much traffic keeps its objective (SLO), and "
        "what stands idle. A chip says whether a formula or a simulation gave the figures.",
    ),
    "tour-controls": (
        "What moves it most",
        "Traffic, prompt length and the TPOT objective. Move a slider: the formula answers at "
        "once, and a full simulation follows in the same place.",
    ),
    "tour-questions": (
        "What to deploy, why, and what if",
        "Each press answers one question by simulation: which deployment serves this traffic, at "
        "which load the SLO breaks, what takes the time and would help, what a failed node costs.",
    ),
    "tour-run": (
        "Keep it, compare it, send it",
        "Run keeps the result in the library, where runs are named and compared. Copy link gives "
        "an address that opens exactly this scenario in any twin.",
    ),
}


def draw_tour() -> None:
    """Draw the button that starts the tour, highlighted in a browser that has not seen it yet."""
    with st.container(key="tour"):
        steps = [{"target": k, "title": title, "text": text} for k, (title, text) in STEPS.items()]
        _tour(data={"steps": steps}, key="tour-steps")
