"""A scenario in a few words: what the machine, the traffic and the split are.

Short facts for cards, tiles and the bar above the forms, each with its unit. Draws nothing.
"""

from __future__ import annotations

import time
from typing import Any

from twin.lab.store import RunRow
from twin.metrics.registry import placed, shown
from twin.scenario import Scenario, npus_used, pools
from twin.ui.fields import choice_label


def machine(s: Scenario) -> str:
    """How much of the supernode serves: '256 of 384 NPUs'."""
    if s.supernode.imported:  # only its graph knows how many it has
        return npus(npus_used(s))
    return f"{npus_used(s):,} of {npus(s.supernode.npus)}"


def npus(count: int) -> str:
    """A number of NPUs.

    >>> npus(1), npus(1536)
    ('1 NPU', '1,536 NPUs')
    """
    return f"{count:,} NPU{'s' if count != 1 else ''}"


def traffic(s: Scenario) -> str:
    """How fast requests come: '60 req/s', '832 in flight', or the trace's name."""
    w = s.workload
    if w.arrivals == "trace":
        return w.trace.name or "a recorded trace"
    if w.arrivals == "closed_loop":
        return f"{w.concurrency:,} in flight"
    return f"{w.rate_req_per_s:,.6g} req/s"


def lengths(s: Scenario) -> str:
    """How long requests are: '4,096 → 512 tokens', or the distribution's name."""
    w = s.workload
    if w.arrivals == "trace":
        return "as recorded"
    if w.lengths == "fixed":
        return f"{w.input_tokens:,} → {w.output_tokens:,} tokens"
    return choice_label("workload.lengths", w.lengths)


def split(s: Scenario) -> tuple[str, str]:
    """The pools' NPUs as a tile's label and value: 'Prefill : decode NPUs', '96 : 160'."""
    roles = " : ".join(role for role, _, _ in pools(s))
    return f"{roles.capitalize()} NPUs", " : ".join(f"{n * npus:,}" for _, n, npus in pools(s))


def _split(s: Scenario) -> str:
    counts = [n * each for _, n, each in pools(s)]
    return npus(counts[0]) if len(counts) == 1 else f"{split(s)[1]} NPUs"


def brief(s: Scenario) -> str:
    """One line for a card: traffic, lengths, split."""
    return " · ".join((traffic(s), lengths(s), _split(s)))


def duration(seconds: float) -> str:
    """A simulated time in the unit a person would use.

    >>> duration(45), duration(120), duration(5400), duration(86_400)
    ('45 s', '2 min', '90 min', '24 h')
    """
    for unit_s, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit_s or seconds == unit_s:
            return f"{seconds / unit_s:,.3g} {unit}"
    return f"{seconds:,.4g} s"


STATE_ICONS = {
    "queued": ":material/schedule:",
    "running": ":material/progress_activity:",
    "done": ":material/check_circle:",
    "failed": ":material/error:",
    "cancelled": ":material/do_not_disturb_on:",
    "interrupted": ":material/power_off:",
}


def run_line(run: RunRow) -> tuple[str, str]:
    """A run in a list: its icon, and one line of when, how far or what came out."""
    when = ago(time.time() - run.queued_s)
    if run.state == "running":
        return STATE_ICONS[run.state], f"{run.progress:.0%} done · started {when}"
    if run.damaged:
        return ":material/broken_image:", f"damaged: restore a backup · {when}"
    if run.state != "done":
        return STATE_ICONS.get(run.state, ""), f"{run.state} · {when}"
    return STATE_ICONS["done"], " · ".join([*headlines(run.summary), when])


def headlines(summary: dict[str, Any]) -> list[str]:
    """The figures a run is remembered by, those that it has, each with its unit."""
    return [
        f"{_in_a_line(m.short or m.label)} {shown(m.key, summary[m.key])}"
        for m in placed("line")
        if summary.get(m.key)
    ]


def _in_a_line(label: str) -> str:
    """A label inside a sentence: 'decode', but 'TTFT p50'."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def ago(seconds: float) -> str:
    """How long ago, roughly.

    >>> ago(20), ago(150), ago(7300), ago(200_000)
    ('just now', '2 min ago', '2 h ago', '2 days ago')
    """
    for unit_s, unit in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit_s:
            return f"{int(seconds // unit_s)} {unit} ago".replace("1 days", "1 day")
    return "just now"
