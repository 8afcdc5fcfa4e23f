"""Why a run is as fast as it is: its bottleneck, where the time went, what would help.

Each rule looks at the summary and the tables of one run and may state a finding, with the scenario
fields that would try its cure. Nothing is run and nothing forecast here: a bound is arithmetic on
the run at hand.
"""

from __future__ import annotations

from twin.metrics import findings_events, findings_machine, findings_requests
from twin.metrics.finding import RULES, Finding, Seen, Summary, Tables, ttft_parts
from twin.scenario import Scenario

__all__ = ["Finding", "explain", "findings_events", "findings_machine", "findings_requests",
           "ttft_parts"]  # fmt: skip


def explain(scenario: Scenario, summary: Summary, tables: Tables) -> list[Finding]:
    """Findings of one run, the weightiest first; never empty for a run that served a request."""
    seen = Seen(scenario, summary, tables)
    findings = [finding for topic in RULES for finding in seen.findings(topic)]
    return sorted(findings, key=lambda f: (-f.weight, f.topic, f.what))
