"""Why a run is as fast as it is: what binds, where the time went, what would fix it.

Each rule looks at the summary and the tables of one run and may state a finding, with the scenario
fields that would try its cure. Nothing is run here and nothing promised: a bound is arithmetic on
the run at hand, never a forecast.
"""

from __future__ import annotations

from twin.metrics import reasons_events, reasons_machine, reasons_requests
from twin.metrics.finding import Finding, Rule, Summary, Tables, ttft_parts
from twin.scenario import Scenario

__all__ = ["RULES", "Finding", "explain", "ttft_parts"]

RULES: tuple[Rule, ...] = (
    reasons_requests.overloaded,
    reasons_requests.slo_missed,
    reasons_requests.rejections,
    reasons_requests.front_end_waits,
    reasons_requests.ttft_largest,
    reasons_machine.prefill_time,
    reasons_machine.decode_time,
    reasons_machine.slots,
    reasons_machine.experts_uneven,
    reasons_machine.kv_full,
    reasons_machine.pools_balanced,
    reasons_machine.busiest_link,
    reasons_machine.pool_hits,
    reasons_events.faults,
    reasons_events.moved,
    reasons_events.contended,
)


def explain(scenario: Scenario, summary: Summary, tables: Tables) -> list[Finding]:
    """Findings of one run, the weightiest first; never empty for a run that served a request."""
    found = [finding for rule in RULES for finding in rule(scenario, summary, tables)]
    return sorted(found, key=lambda f: (-f.weight, f.topic, f.what))
