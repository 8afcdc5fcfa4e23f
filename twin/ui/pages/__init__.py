"""The pages of the dashboard, each declared once in `PAGES`. A page is a package of this one whose
script bears the page's address as its name: there Streamlit and its `AppTest` look for it."""

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from twin.lab.share import links


@dataclass(frozen=True, slots=True)
class Page:
    """One page: `name` is its address and the name of its package and script."""

    name: str
    title: str
    icon: str  # of Material Symbols
    about: str  # one sentence: the tooltip of the navigation, and what forms say below the title

    @property
    def script(self) -> str:
        """Path of its script, wherever the package is installed."""
        return str(Path(__file__).parent / self.name / f"{self.name}.py")


_ENTRIES = (
    Page("start", "Start", "home", "What this is, presets to begin with, recent runs."),
    Page(
        "supernode", "Supernode", "hub", "The machine: nodes, chips and the three network planes."
    ),
    Page(
        "workload", "Workload", "stacked_line_chart",
        "When requests come, how long they are, and what they share.",
    ),
    Page(
        "deployment", "Deployment", "dns",
        "Which instances serve, how they batch, and who decides what goes where.",
    ),
    Page(links.RUN_PAGE, "Run", "play_circle", "A run while it runs, and its results."),
    Page("playback", "Playback", "movie", "A finished run over time: links, instances, faults."),
    Page("experts", "Experts", "balance", "Expert load of a run, balancing, and what it costs."),
    Page(links.COMPARE_PAGE, "Compare", "compare_arrows", "Two to six runs side by side."),
    Page(
        "sweep", "Sweep", "ssid_chart",
        "One or two fields over a range: where the SLO breaks, throughput against latency.",
    ),
    Page("evidence", "Evidence", "fact_check", "How far the twin is from what was measured."),
    Page("library", "Library", "folder_open", "Every scenario and run that is kept here."),
    Page("glossary", "Glossary", "dictionary", "What the terms of these pages mean, one by one."),
)  # fmt: skip
PAGES = {page.name: page for page in _ENTRIES}
FIRST, BUILD = "start", "Build"
# The navigation, by what people do; '' stands open, the others are menus.
SECTIONS = {
    "": ("start",),
    BUILD: ("supernode", "workload", "deployment"),
    "Results": (links.RUN_PAGE, "playback", "experts"),
    "Compare and sweep": (links.COMPARE_PAGE, "sweep"),
    "Evidence and library": ("evidence", "library", "glossary"),
}


def load_pages() -> None:
    """Import what the pages are made of: all but their scripts, which draw."""
    for name, page in PAGES.items():
        package = f"{__name__}.{name}"
        for module in pkgutil.iter_modules([str(Path(page.script).parent)], f"{package}."):
            if module.name != f"{package}.{name}":
                import_module(module.name)
