"""Who gets the tokens, where experts sit, and how their load is balanced."""

from typing import Literal

from twin.scenario.declaration import DIGEST, Section, choice, quantity, section, text, unless, when

SKEWED = unless("experts.popularity", "uniform")
REBALANCED = unless("experts.balancing.policy", "none", "oracle")


class Counts(Section):
    """Imported routing counts, named by the digest of their content."""

    name: str = choice("", "Routing counts", group="")
    """File name the counts were read from, for people."""
    digest: str = text("", "Digest of routing counts", pattern=DIGEST, group="")
    """SHA-256 of the canonical table of counts; empty: none."""


class Balancing(Section):
    """Rebalancing of experts while the instances serve."""

    policy: Literal["none", "periodic", "threshold", "layer_budget", "oracle"] = choice(
        "none", "Rebalancing policy", options={
            "none": "Never",
            "periodic": "Every interval",
            "threshold": "Above an imbalance threshold",
            "layer_budget": "Every interval, worst layers only",
            "oracle": "Perfect at no cost (ideal)",
        },
    )  # fmt: skip
    """Never; every interval; when the hottest die passes the threshold; every interval but only
    the worst layers; or perfect balance at every moment, for nothing."""
    interval_s: float = quantity(60.0, "s", "Decision interval", (0.1, 86_400), applies=REBALANCED)
    """Time between two decisions. [arXiv 2508.02520v6 4.5 (collected every minute)]"""
    window_s: float = quantity(60.0, "s", "Load window", (0.1, 86_400), applies=REBALANCED)
    """Time over which the load is measured."""
    threshold: float = quantity(
        1.3, "x", "Imbalance threshold", (1, 100),
        applies=when("experts.balancing.policy", "threshold"),
    )  # fmt: skip
    """Measured load of the hottest die over the mean at which a rebalance begins."""
    layers: int = quantity(
        8, "layers", "Layers per decision", (1, 200), step=1,
        applies=when("experts.balancing.policy", "layer_budget"),
    )  # fmt: skip
    """Layers that one decision may change."""
    swap: Literal["background", "stall"] = choice(
        "background", "Weight swap",
        options={"background": "In the background", "stall": "Instance stalls"}, applies=REBALANCED,
    )  # fmt: skip
    """Weights move beside the serving traffic into spare slots and are swapped in, or the instance
    stands still while they move. [arXiv 2508.02520v6 4.5 (asynchronous)]"""
    move_gb_per_s: float = quantity(
        10.0, "GB/s", "Weight transfer rate per die", (0.01, 1000),
        applies=(REBALANCED, when("experts.balancing.swap", "background")),
    )  # fmt: skip
    """Most that one die receives of moved weights when they move in the background. [assumption]"""


class Experts(Section):
    """Who gets the tokens, and where experts sit."""

    popularity: Literal["uniform", "skewed", "power_law", "imported"] = choice(
        "skewed", "Expert popularity",
        options={"skewed": "As in DeepSeek-V3", "imported": "From a file"},
    )  # fmt: skip
    """Expert popularity: all alike; the shape of DeepSeek-V3 (flat early, heavy late layers); one
    power law for every layer; or imported counts."""
    skew: float = quantity(1.0, "", "Popularity skew", (0, 3), applies=SKEWED)
    """Scales the log of each expert's popularity; 1 leaves the popularity as it is, 0 makes it
    uniform. [workloads.md 3]"""
    power_law_alpha: float = quantity(
        1.01, "", "Power-law exponent", (0, 4), applies=when("experts.popularity", "power_law")
    )
    """Exponent of the power law. [NVIDIA aiconfigurator sdk/models/deepseek.py]"""
    counts: Counts = section(Counts, applies=when("experts.popularity", "imported"))
    placement: Literal[
        "round_robin", "eplb", "eplb_groups", "greedy", "topology", "perfect"
    ] = choice(
        "eplb", "Expert placement", options={
            "round_robin": "In order, whatever the load", "eplb": "EPLB, global",
            "eplb_groups": "EPLB, hierarchical", "greedy": "Hottest first, greedily",
            "topology": "Copies spread over nodes", "perfect": "Perfectly even (ideal)",
        },  # fmt: skip
    )  # fmt: skip
    """Logical experts to dies: in order; load balanced over all dies (EPLB, global) or group by
    group over nodes (EPLB, hierarchical); hottest copied and packed greedily; copies spread over
    nodes; or the ideal even load. [arXiv 2506.12708v2 4.1]"""
    redundant: int = quantity(32, "experts", "Redundant experts", (0, 1024), step=8, also="EPLB")
    """Redundant routed experts of an instance. [arXiv 2506.12708v2 4.1]"""
    group_limited: bool = choice(False, "Group-limited routing")
    """Routing limited to groups: a token's experts lie in at most as many groups (nodes) as the
    model's router allows. [arXiv 2412.19437 2.1.2]"""
    drift_s: float = quantity(0.0, "s", "Popularity correlation time", (0, 604_800), applies=SKEWED)
    """Time in which popularity forgets its past; 0: it stays as it is during the run."""
    shift_every_s: float = quantity(0.0, "s", "Shift interval", (0, 604_800), applies=SKEWED)
    """Time between sudden shifts of popularity; 0: none."""
    topics: int = quantity(1, "topics", "Request topics", (1, 16), step=1, applies=SKEWED)
    """Topic classes of requests, each with a popularity of its own; their mix follows the
    traffic."""
    mix_period_s: float = quantity(
        3600.0, "s", "Topic mix period", (1, 604_800), applies=(SKEWED, unless("experts.topics", 1))
    )
    """Time in which the traffic's mix of topics goes round once."""
    balancing: Balancing = section(
        Balancing, group="Balancing", applies=unless("experts.placement", "perfect")
    )
