"""The pages of the dashboard, each declared once: those of this package and those of extras."""

import pkgutil
from importlib import import_module
from pathlib import Path

from twin.hooks import Page, hooks_of
from twin.lab.share import links

FIRST, BUILD, RESULTS, BOTH = "start", "Build", "Results", "Compare and sweep"
LIBRARY = "Library and reference"  # a group is never called as one of its pages

PAGES = {
    name: Page(name, f"{__name__}.{name}", title, icon, about, section)
    for name, title, icon, section, about in (
        ("start", "Start", "home", "", "What this is, presets to begin with, recent runs."),
        ("supernode", "Supernode", "hub", BUILD,
         "The machine: nodes, chips and network planes."),
        ("workload", "Workload", "stacked_line_chart", BUILD,
         "When requests come, how long they are, and what they share."),
        ("deployment", "Deployment", "dns", BUILD,
         "Which instances serve, how they batch, and who decides what goes where."),
        ("plan", "Plan", "travel_explore", "",
         "What to deploy for this machine and traffic: priced by formula, proved by simulation."),
        (links.RUN_PAGE, "Run", "play_circle", RESULTS, "A run while it runs, and its results."),
        ("playback", "Playback", "movie", RESULTS,
         "A finished run over time: links, instances, faults."),
        ("experts", "Experts", "balance", RESULTS,
         "Expert load of a run, balancing, and what it costs."),
        (links.COMPARE_PAGE, "Compare", "compare_arrows", BOTH, "Two to six runs side by side."),
        ("sweep", "Sweep", "ssid_chart", BOTH,
         "One or two fields over a range: where the SLO breaks, throughput against latency."),
        ("library", "Library", "folder_open", LIBRARY,
         "Scenarios and runs that are stored here."),
        ("glossary", "Glossary", "dictionary", LIBRARY,
         "What the terms of these pages mean, one by one."),
    )
} | hooks_of(Page)  # fmt: skip
# The navigation, by what people do; '' stands open, the others are menus.
SECTIONS = {
    section: tuple(page.name for page in PAGES.values() if page.section == section)
    for section in dict.fromkeys(page.section for page in PAGES.values())
}


def load_pages() -> None:
    """Import the modules of all pages except their scripts."""
    for name, page in PAGES.items():
        for module in pkgutil.iter_modules([str(Path(page.script).parent)], f"{page.code}."):
            if module.name != f"{page.code}.{name}":
                import_module(module.name)
