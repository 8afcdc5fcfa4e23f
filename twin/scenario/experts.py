"""Who gets the tokens, where experts sit, and how their load is balanced."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from twin.scenario.declaration import DIGEST, PAPER, Section, choice, quantity


class Counts(Section):
    """Imported routing counts, named by the digest of their content."""

    name: str = choice("", "File name the counts were read from, for people.")
    digest: str = Field(
        "",
        pattern=DIGEST,
        description="SHA-256 of the canonical table of counts; empty: none.",
        json_schema_extra={"unit": "", "source": ""},
    )


class Balancing(Section):
    """Rebalancing of experts while the instances serve."""

    policy: Literal["none", "periodic", "threshold", "layer_budget", "oracle"] = choice(
        "none",
        "Never; every interval; when the hottest die passes the threshold; every interval but "
        "only the worst layers; or perfect balance at every moment, for nothing.",
    )
    interval_s: float = quantity(
        60.0,
        "s",
        "Time between two decisions.",
        low=0.1,
        high=86_400,
        source="arXiv 2508.02520v6 4.5 (collected every minute)",
    )
    window_s: float = quantity(
        60.0, "s", "Time over which the load is measured.", low=0.1, high=86_400
    )
    threshold: float = quantity(
        1.3,
        "x",
        "Measured load of the hottest die over the mean at which a rebalance begins "
        "(policy = threshold).",
        low=1,
        high=100,
    )
    layers: int = quantity(
        8, "layers", "Layers that one decision may change (policy = layer_budget).", low=1, high=200
    )
    swap: Literal["background", "stall"] = choice(
        "background",
        "Weights move beside the serving traffic into spare slots and are swapped in, or the "
        "instance stands still while they move.",
        source="arXiv 2508.02520v6 4.5 (asynchronous)",
    )
    move_gb_per_s: float = quantity(
        10.0,
        "GB/s",
        "Most that one die receives of moved weights when they move in the background.",
        low=0.01,
        high=1000,
        source="assumption",
    )


class Experts(Section):
    """Who gets the tokens, and where experts sit."""

    popularity: Literal["uniform", "skewed", "power_law", "imported"] = choice(
        "skewed",
        "Expert popularity: all alike; the shape of DeepSeek-V3 (flat early, heavy late layers); "
        "one power law for every layer; or imported counts.",
    )
    skew: float = quantity(
        1.0,
        "",
        "Strength of the skew: scales the log of each expert's popularity, whatever its shape "
        "(but uniform); 1 leaves the shape as it is, 0 makes all alike.",
        low=0,
        high=3,
        source="workloads.md 3",
    )
    power_law_alpha: float = quantity(
        1.01,
        "",
        "Exponent of the power law (popularity = power_law).",
        low=0,
        high=4,
        source="NVIDIA aiconfigurator sdk/models/deepseek.py",
    )
    counts: Counts = Counts()
    topics: int = quantity(
        1,
        "topics",
        "Topic classes of requests, each with a popularity of its own; their mix follows the "
        "traffic.",
        low=1,
        high=16,
    )
    mix_period_s: float = quantity(
        3600.0,
        "s",
        "Time in which the traffic's mix of topics goes round once (topics > 1).",
        low=1,
        high=604_800,
    )
    drift_s: float = quantity(
        0.0,
        "s",
        "Time in which popularity forgets its past (correlation time); 0: it stays as it is "
        "during the run.",
        low=0,
        high=604_800,
    )
    shift_every_s: float = quantity(
        0.0, "s", "Time between sudden shifts of popularity; 0: none.", low=0, high=604_800
    )
    group_limited: bool = choice(
        False,
        "Routing limited to groups: a token's experts lie in at most as many groups (nodes) as "
        "the model's router allows.",
        source="arXiv 2412.19437 2.1.2",
    )
    redundant: int = quantity(
        32,
        "experts",
        "Redundant routed experts of an instance.",
        low=0,
        high=1024,
        source=f"{PAPER} 4.1",
    )
    placement: Literal["round_robin", "eplb", "eplb_groups", "greedy", "topology", "perfect"] = (
        choice(
            "eplb",
            "Logical experts to dies: in order; load balanced over all dies (EPLB, global) or "
            "group by group over nodes (EPLB, hierarchical); hottest copied and packed greedily; "
            "copies spread over nodes; or the ideal even load.",
            source=f"{PAPER} 4.1",
        )
    )
    balancing: Balancing = Balancing()
