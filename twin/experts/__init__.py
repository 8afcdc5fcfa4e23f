"""Which experts get the tokens, where they sit, and how uneven that makes the dies: computed, none
a fitted factor on time. Loads are shares of the mean."""

from twin.experts.imbalance import Imbalance, first_slots, imbalance
from twin.experts.load import EMPTY, die_load, hot_factors, hottest_by_layer, slots_by_node
from twin.experts.placement import choose_layers, copy_counts, place, received_experts, replicas
from twin.experts.popularity import ExpertsError, topic_correlation
from twin.experts.process import (
    Process,
    Routed,
    chances_at,
    long_run_chances,
    measured_load,
    mix_at,
    start_process,
    topics_of,
)
