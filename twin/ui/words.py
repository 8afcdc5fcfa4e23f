"""A scenario in a few words: what the machine, the traffic and the split are.

Short facts for cards, tiles and the bar above the forms, each with its unit. Draws nothing.
"""

from __future__ import annotations

from twin.spec import Scenario, npus_used, pools
from twin.ui.fields import choice_label


def machine(s: Scenario) -> str:
    """How much of the supernode serves: '256 of 384 NPUs'."""
    return f"{npus_used(s):,} of {s.supernode.npus:,} NPUs"


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


def brief(s: Scenario) -> str:
    """One line for a card: traffic, lengths, split."""
    return " · ".join((traffic(s), lengths(s), f"{split(s)[1]} NPUs"))


def duration(seconds: float) -> str:
    """A simulated time in the unit a person would use.

    >>> duration(45), duration(120), duration(5400), duration(86_400)
    ('45 s', '2 min', '90 min', '24 h')
    """
    for unit_s, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit_s or seconds == unit_s:
            return f"{seconds / unit_s:,.3g} {unit}"
    return f"{seconds:,.4g} s"
