"""Findings of what happened: faults, experts that were moved, traffic that shared links."""

from __future__ import annotations

import polars as pl

from twin.metrics.finding import Finding, Remedy, Seen, Tables, finding
from twin.metrics.measures import amount, seconds
from twin.metrics.registry import shown
from twin.metrics.resilience import Dip, resilience
from twin.scenario import Scenario

FELT = 1.02  # an exchange slowed by less is as good as alone
TOLD = 3  # dips that get a finding of their own; the worst ones
CLASSES = {  # traffic classes as people name them
    "experts": "dispatch and combine of other instances",
    "attention": "attention's exchange",
    "kv_hand_off": "the KV hand-off",
    "pool_read": "reads from the memory pool",
    "pool_write": "writes to the memory pool",
    "weights": "expert weights on the move",
    "ssd_read": "reads from the SSD tier",
    "ssd_write": "writes to the SSD tier",
}


@finding("fault")
def faults(seen: Seen) -> list[Finding]:
    """What each fault cost, the worst first, and what would have made it shorter."""
    dips = resilience(seen.tables, seen.scenario.slo.ttft_s, seen.slo_tpot_s)
    worst = sorted(dips, key=lambda d: (-_weight(d), d.at_s))[:TOLD]
    findings = [seen.remedied(_weight(d), d.what, _shorter(d, seen.scenario)) for d in worst]
    if len(dips) > TOLD:
        down = seconds(seen.known("down_s"))
        what = f"{len(dips):,} faults in all; instances were out of service for {down}."
        findings.append(Finding(0.05, what))
    return findings


def _weight(dip: Dip) -> float:
    """How much of the run's answer a fault explains: its depth, and whether it was made good."""
    before, lowest = dip.before_tokens_per_s, dip.lowest_tokens_per_s
    if dip.recovery_s == 0.0 and not dip.lost:
        return 0.12
    depth = 1 - lowest / before if before and lowest is not None else 0.5
    open_end = 0.15 if dip.recovery_s is None else 0.0
    return min(0.98, 0.45 + 0.35 * max(0.0, depth) + open_end)


def _shorter(dip: Dip, scenario: Scenario) -> list[Remedy]:
    """What would have made a dip shorter or kept requests, the cheapest first."""
    r = scenario.recovery
    remedies = (
        (dip.down and r.policy == "restart", Remedy(
            "Recovering in place takes seconds where a new start takes more than a minute.",
            "recovery.policy", "in_place")),
        (dip.recovery_s is None and not r.spares, Remedy(
            "A spare NPU would take the place of the failed one.", "recovery.spares", True)),
        (dip.lost, Remedy(
            "More retries would give fewer requests up.",
            "recovery.retries", min(100, 2 * r.retries + 1))),
        (dip.down and r.policy == "in_place", Remedy(
            "Going on at once with fewer dies trades some speed for the time out of service.",
            "recovery.policy", "shrink")),
        (dip.recovery_s and r.detection_s > 0.25 * dip.recovery_s, Remedy(
            "A fault that is noticed sooner is over sooner.",
            "recovery.detection_s", 0.25 * r.detection_s)),
    )  # fmt: skip
    return [remedy for helps, remedy in remedies if helps]


@finding("moves")
def moved(seen: Seen) -> Finding | None:
    """How often experts were moved, what of it went over the wire, and what the last one did."""
    events = seen.tables.get("events")
    if events is None:
        return None
    moves = events.filter(pl.col("kind") == "rebalance").sort("t_s", maintain_order=True)
    if not moves.height:
        return None
    times = "once" if moves.height == 1 else f"{moves.height:,} times"
    sent = float(moves["bytes"].fill_null(0.0).sum())
    what = f"Experts were moved {times}, {shown('moved_bytes', sent)} in all"
    took = (moves["end_s"].cast(pl.Float64) - moves["t_s"]).drop_nulls().mean()
    if isinstance(took, float) and took > 0:
        what += f", in {seconds(took)} each"
    detail = moves["detail"][-1]
    what += f"; the last time: {detail}." if detail else "."
    if seen.scenario.experts.balancing.swap != "stall":
        return Finding(0.15, what)
    sentence = "Moving experts in the background does not stop their instance."
    return seen.remedied(
        0.35, what, [Remedy(sentence, "experts.balancing.swap", "background")]
    )  # fmt: skip


@finding("contention")
def contended(seen: Seen) -> Finding | None:
    """Expert exchange that waits for other traffic on the same ports, pool by pool."""
    worst: tuple[float, float, float, str] | None = None  # cost, mean, peak, role
    for role in ("decode", "colocated", "prefill"):
        slowed = seen.busy_mean(role, "contention")
        if slowed is None or slowed[0] < FELT:
            continue
        share = seen.operator_shares("prefill" if role == "prefill" else "decode")
        exchange = share.get("dispatch", 0.0) + share.get("combine", 0.0)
        cost = exchange * (1 - 1 / slowed[0])
        if worst is None or cost > worst[0]:
            worst = (cost, *slowed, role)
    if worst is None:
        return None
    cost, mean, peak, role = worst
    unit = "batch" if role == "prefill" else "iteration"
    plane, other = _beside(seen.tables, role)
    waits = f"wait for {CLASSES.get(other, other)} on the same ports" if other else "share ports"
    on = f" of the {plane.upper()} plane" if plane else ""
    what = f"Dispatch and combine of {role} {waits}{on}: {mean:.2f}x on the wire"
    what += f", {peak:.2f}x in the worst window" if peak > 1.05 * mean else ""
    what += f", at most {amount(cost, 'share')} of a {role} {unit}."
    return seen.remedied(min(0.8, 0.15 + 2.0 * cost), what, _apart(plane, other))


def _beside(tables: Tables, role: str) -> tuple[str, str]:
    """The plane that carries most of a role's expert exchange, and what else is heaviest on it."""
    traffic = tables.get("traffic")
    if traffic is None or not traffic.height:
        return "", ""
    experts = (pl.col("traffic") == "experts") & (pl.col("role") == role)
    own = traffic.filter(experts).group_by("plane").agg(pl.col("bytes").sum())
    if not own.height:
        return "", ""
    plane = str(own.sort(["bytes", "plane"], descending=[True, False])["plane"][0])
    rest = traffic.filter((pl.col("plane") == plane) & (pl.col("traffic") != "experts"))
    sums = rest.group_by("traffic").agg(pl.col("bytes").sum())
    if not sums.height:
        return plane, "experts"
    return plane, str(sums.sort(["bytes", "traffic"], descending=[True, False])["traffic"][0])


def _apart(plane: str, other: str) -> list[Remedy]:
    """What would take the other traffic off the plane."""
    if other == "kv_hand_off":
        to = "rdma" if plane == "ub" else "ub"
        return [Remedy(f"The KV hand-off over the {to.upper()} plane would leave these ports "
                       "alone.", "deployment.kv_transfer_plane", to)]  # fmt: skip
    if other in ("pool_read", "pool_write"):
        to = "vpc" if plane == "ub" else "ub"
        return [Remedy(f"The memory pool over the {to.upper()} plane would leave these ports "
                       "alone, for longer reads.", "memory_pool.plane", to)]  # fmt: skip
    if other == "weights":
        return [Remedy("Moving experts less often would leave these ports alone.",
                       "experts.balancing.policy", "threshold")]  # fmt: skip
    return []
