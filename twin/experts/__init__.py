"""Which experts get the tokens, where they sit, and how uneven that makes the dies: computed, none
a fitted factor on time. Loads are shares of the mean."""

from twin.experts.imbalance import Imbalance, first_slots, imbalance
from twin.experts.load import EMPTY, by_node, die_load, hot_factors, hottest_by_layer
from twin.experts.placement import choose_layers, copies, moves, place, replicas
from twin.experts.popularity import ExpertsError, topic_correlation
from twin.experts.process import Process, Routed, long_run, measured, mix_at, now, start, topics_of
