"""What the form says of the fields of experts: their groups, names, choices, and when they apply.

Read by `fields`, which has the same for all the rest. Plain data.
"""

from __future__ import annotations

from collections.abc import Callable

from twin.scenario import Scenario

EXPERTS = (
    "experts.popularity",
    "experts.skew",
    "experts.power_law_alpha",
    "experts.placement",
    "experts.redundant",
    "experts.group_limited",
    "experts.drift_s",
    "experts.shift_every_s",
    "experts.topics",
    "experts.mix_period_s",
)
BALANCING = tuple(
    f"experts.balancing.{name}"
    for name in (
        "policy",
        "interval_s",
        "window_s",
        "threshold",
        "layers",
        "swap",
        "move_gb_per_s",
    )
)
ELSEWHERE = ("experts.counts.name", "experts.counts.digest")  # an upload fills them in

HELP = {
    "experts.skew": "Strength of the skew: scales the log of each expert's popularity, whichever "
    "popularity is chosen, but for all experts alike; 1 leaves it as it is, 0 makes it even.",
}
LABELS = {
    "experts.popularity": "Expert popularity",
    "experts.skew": "Strength of the skew",
    "experts.power_law_alpha": "Exponent of the power law",
    "experts.placement": "Expert placement",
    "experts.redundant": "Redundant experts",
    "experts.group_limited": "Tokens keep to a few groups",
    "experts.drift_s": "Popularity forgets within",
    "experts.shift_every_s": "Sudden shift every",
    "experts.topics": "Topics of requests",
    "experts.mix_period_s": "Mix of topics goes round in",
    "experts.balancing.policy": "Rebalance",
    "experts.balancing.interval_s": "Time between decisions",
    "experts.balancing.window_s": "Load is measured over",
    "experts.balancing.threshold": "Hottest die that sets it off",
    "experts.balancing.layers": "Layers a decision may change",
    "experts.balancing.swap": "Weights move",
    "experts.balancing.move_gb_per_s": "A die receives at most",
    "experts.counts": "a file of counts",
}
CHOICES_OF = {
    "experts.popularity": {
        "uniform": "All alike",
        "skewed": "As in DeepSeek-V3",
        "power_law": "Power law",
        "imported": "From a file",
    },
    "experts.placement": {
        "round_robin": "In order, whatever the load",
        "eplb": "EPLB over all dies",
        "eplb_groups": "EPLB, groups to nodes",
        "greedy": "Hottest first, greedily",
        "topology": "Copies spread over nodes",
        "perfect": "Perfectly even (ideal)",
    },
    "experts.balancing.policy": {
        "none": "Never",
        "periodic": "Every interval",
        "threshold": "When the hottest die is too hot",
        "layer_budget": "Every interval, worst layers only",
        "oracle": "Perfectly, for nothing (ideal)",
    },
    "experts.balancing.swap": {"background": "Beside the serving", "stall": "While it stands"},
}
STEPS = {"experts.redundant": 8, "experts.topics": 1, "experts.balancing.layers": 1}


def _varies(s: Scenario) -> bool:
    return s.experts.popularity != "uniform"


def _moves(s: Scenario) -> bool:
    return s.experts.balancing.policy not in ("none", "oracle")


_UNIFORM = "all experts are alike"
_NEVER = "nothing is rebalanced"
APPLIES: dict[str, tuple[Callable[[Scenario], bool], str]] = {
    "experts.skew": (_varies, _UNIFORM),
    "experts.power_law_alpha": (lambda s: s.experts.popularity == "power_law", "power law only"),
    "experts.drift_s": (_varies, _UNIFORM),
    "experts.shift_every_s": (_varies, _UNIFORM),
    "experts.topics": (_varies, _UNIFORM),
    "experts.mix_period_s": (lambda s: _varies(s) and s.experts.topics > 1, "one topic"),
    "experts.balancing": (
        lambda s: s.experts.placement != "perfect",
        "the placement is perfectly even",
    ),
    "experts.balancing.interval_s": (_moves, _NEVER),
    "experts.balancing.window_s": (_moves, _NEVER),
    "experts.balancing.threshold": (
        lambda s: s.experts.balancing.policy == "threshold",
        "rebalancing above a threshold only",
    ),
    "experts.balancing.layers": (
        lambda s: s.experts.balancing.policy == "layer_budget",
        "rebalancing of the worst layers only",
    ),
    "experts.balancing.swap": (_moves, _NEVER),
    "experts.balancing.move_gb_per_s": (
        lambda s: _moves(s) and s.experts.balancing.swap == "background",
        "nothing moves beside the serving",
    ),
}
