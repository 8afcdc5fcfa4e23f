"""Which experts get the tokens, where they sit, and how uneven that makes the dies.

Mechanisms, each computed, none a fitted factor on time:
- popularity (`popularity`): each layer's long-run load over its experts;
- time (`process`): drift, sudden shifts, topics that follow the traffic's mix;
- placement (`placement`): which slot holds which expert, by the load measured before;
- sampling (`load`, `peak`): a finite batch is a finite draw, and the tokens of one request pick
  alike, so a batch of few long prompts is less even than as many independent tokens;
- groups (`groups`): a router limited to groups picks experts together.
`imbalance` is the answer for one typical moment. All of it knows loads in shares of the mean,
never in seconds, and not when a rebalance happens.
"""

from twin.experts.imbalance import Imbalance, imbalance
from twin.experts.load import (
    EMPTY,
    die_load,
    hot_factors,
    hottest_by_layer,
)
from twin.experts.placement import choose_layers, copies, moves, place, replicas
from twin.experts.popularity import ExpertsError, topic_correlation
from twin.experts.process import (
    Process,
    long_run,
    measured,
    mix_at,
    now,
    start,
    topics_of,
)

__all__ = [
    "EMPTY",
    "ExpertsError",
    "Imbalance",
    "Process",
    "choose_layers",
    "copies",
    "die_load",
    "hot_factors",
    "hottest_by_layer",
    "imbalance",
    "long_run",
    "measured",
    "mix_at",
    "moves",
    "now",
    "place",
    "replicas",
    "start",
    "topic_correlation",
    "topics_of",
]
