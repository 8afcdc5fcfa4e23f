"""Popularity over time, a function of (scenario seed, time): `popularity.log_loads` plus drift (a
stationary normal process whose autocorrelation integrates to `drift_s`), shifts (every
`shift_every_s` a share of the experts change places) and topics (each class adds an offset)."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from twin.experts import popularity
from twin.experts.popularity import Floats
from twin.facts import Facts
from twin.kernels.rng import apply, normals, stream_key, uniforms
from twin.scenario import Experts

Keys = NDArray[np.uint64]
Bytes = NDArray[np.int8]

KNOT = math.pi**2 / 8.0  # knots apart, in drift_s: then the autocorrelation integrates to drift_s
WINDOW_POINTS = 4  # moments of a window that a measurement is the mean of
NO_SESSION = -1


@dataclass(frozen=True, eq=False)
class Process:
    """Popularity of an instance's experts over time, made by `start_process`, read by `chances_at`.
    base f8[layers, experts]: long-run log loads. offset f8[topics, layers, experts]: added by each
    topic class. correlation: between two tokens of one request, for `hot_factors`."""

    experts: Experts
    base: Floats
    offset: Floats
    top_k: int
    correlation: float
    drift_sd: float
    shift_share: float
    swing: float
    seed: int

    @property
    def topics(self) -> int:
        """Number of topic classes."""
        return int(self.offset.shape[0])

    @property
    def changes(self) -> bool:
        """Whether experts' chances depend on time when the mix of topics is constant."""
        return self.experts.drift_s > 0.0 or self.experts.shift_every_s > 0.0


@dataclass(frozen=True, slots=True)
class Routed:
    """A model's routed experts with a scenario's settings of them."""

    experts: Experts
    routed_experts: int
    layers: int
    top_k: int
    facts: Facts
    seed: int
    groups: int = 1  # of the router, for `experts.group_limited` and `eplb_groups`
    top_groups: int = 1  # that a token reaches at most

    @property
    def limits(self) -> tuple[int, int]:
        """(groups, most groups that a token reaches); (1, 1) if its choice is not limited."""
        return (self.groups, self.top_groups) if self.experts.group_limited else (1, 1)


def start_process(routed: Routed, counts: Floats | None = None) -> Process:
    """The popularity process of a scenario. counts f8[layers, experts]: if imported. Raises
    ExpertsError for fewer experts than a token picks, or counts that do not fit the model."""
    return _cached_process(routed) if counts is None else _draw_process(routed, counts)


def _draw_process(routed: Routed, counts: Floats | None = None) -> Process:
    """A scenario's popularity process, drawn anew. counts f8[layers, experts]: if imported."""
    experts, facts, seed = routed.experts, routed.facts, routed.seed
    layers, routed_experts, top_k = routed.layers, routed.routed_experts, routed.top_k
    if not min(1, routed_experts) <= top_k <= routed_experts:
        message = f"top_k = {top_k} must be from 1 to {routed_experts} routed experts"
        raise popularity.ExpertsError(message)
    skew = popularity.log_scale(experts)
    # Counts are of the very time that is simulated: without drift they are the popularity.
    is_constant = experts.popularity == "imported" and experts.drift_s == 0.0
    log_load = popularity.log_loads(experts, routed_experts, layers, facts, seed, counts)
    topic_offset = np.zeros((experts.topics, layers, routed_experts))
    if experts.topics > 1:
        topic_log_sd = skew * facts.si("experts.topic.class_log_sd")
        for topic in range(experts.topics):
            layer_keys = _keys(seed, f"experts/topic/{topic}", layers)
            topic_offset[topic] = _normal_rows(layer_keys, 0, topic_log_sd, routed_experts)
    return Process(
        experts, log_load, topic_offset, top_k, popularity.topic_correlation(experts, facts),
        drift_sd=0.0 if is_constant else skew * facts.si("experts.drift.log_sd"),
        shift_share=facts.si("experts.shift.share") if skew > 0.0 else 0.0,
        swing=facts.si("experts.topic.swing"), seed=seed,
    )  # fmt: skip


# Runs that a plan or a sweep makes one after the other share experts, and what was drawn of them.
_cached_process = lru_cache(maxsize=8)(_draw_process)


def long_run_chances(process: Process) -> Floats:
    """Chance that a token picks each expert in the long run, f8[layers, experts]: without drift,
    with an even mix of topics. Experts are first placed by these."""
    mix = np.full(process.topics, 1.0 / process.topics)
    return _chances(process.base, np.zeros_like(process.base), process.offset, mix, process.top_k)


def chances_at(process: Process, t_s: float, mix: Floats | None = None) -> Floats:
    """Chance that a token picks each expert at time t_s, f8[layers, experts]; the sum of a layer is
    top_k. mix f8[topics]: weights of the topic classes among the tokens; None: `mix_at(process,
    t_s)`. Equal calls share the array: do not write it."""
    if t_s < 0:
        raise popularity.ExpertsError(f"t_s = {t_s:g}: popularity begins at 0 s")
    class_weights = mix_at(process, t_s) if mix is None else np.asarray(mix, np.float64)
    if class_weights.shape != (process.topics,) or class_weights.sum() <= 0:
        raise popularity.ExpertsError(
            f"mix has shape {class_weights.shape}: give {process.topics} weights with a sum above 0"
        )
    topic_shares = class_weights / class_weights.sum()
    return _chances_of_mix(process, t_s if process.changes else 0.0, tuple(topic_shares.tolist()))


@lru_cache(maxsize=8)
def _chances_of_mix(process: Process, t_s: float, mix: tuple[float, ...]) -> Floats:
    """Chance that a token picks each expert at t_s, f8[layers, experts]; mix: topics' shares."""
    drift, log_load = _drift_at(process, t_s), _shifted_loads(process, t_s)
    return _chances(log_load, drift, process.offset, np.array(mix), process.top_k)


def mix_at(process: Process, t_s: float) -> Floats:
    """Topic class weights f8[topics] at t_s, sum 1; class k peaks at k / topics of a period."""
    if process.topics == 1:
        return np.ones(1)
    topic_weights = _topic_weights(process, np.array([t_s]))[:, 0]
    return topic_weights / topic_weights.sum()


def _topic_weights(process: Process, t_s: Floats) -> Floats:
    """Weights f8[topics, n], of any sum, of the topic classes at times `t_s` f8[n]."""
    peak_phase = np.arange(process.topics)[:, None] / process.topics
    phase = 2.0 * math.pi * (t_s / process.experts.mix_period_s - peak_phase)
    return apply(math.exp, process.swing * apply(math.cos, phase))


def topics_of(
    process: Process, arrival_s: Floats, session: NDArray[np.integer], seed: int
) -> Bytes:
    """Topic class of each request, i1[n], drawn from the mix at its arrival (arrival_s f8[n]). All
    requests of a session have the class of its earliest arrival. session i4[n]: -1 for none."""
    request_count = arrival_s.size
    if process.topics == 1 or request_count == 0:
        return np.zeros(request_count, np.int8)
    first_row = np.arange(request_count)
    in_session = np.flatnonzero(session != NO_SESSION)
    if in_session.size:
        turn_rows = in_session[np.lexsort((in_session, arrival_s[in_session], session[in_session]))]
        is_first_turn = np.concatenate(([True], np.diff(session[turn_rows]) != 0))
        first_row[turn_rows] = turn_rows[is_first_turn][np.cumsum(is_first_turn) - 1]
    weight = _topic_weights(process, arrival_s[first_row].astype(np.float64))
    draw = uniforms(stream_key(seed, "experts/topic_of"), first_row) * np.cumsum(weight, axis=0)[-1]
    topic_class = np.zeros(request_count, np.int8)
    for topic in range(process.topics - 1):
        is_later_topic = (topic_class == topic) & (draw >= weight[topic])
        draw -= np.where(is_later_topic, weight[topic], 0.0)
        topic_class += is_later_topic
    return topic_class


def measured_load(
    process: Process, t_s: float, window_s: float, mix: Floats | None = None
) -> Floats:
    """Load as a balancer measures it at t_s: mean of the last window_s seconds, f8[layers,
    experts]; a layer's sum is top_k. mix f8[topics]: weights of topics; None: the traffic's."""
    window_begin_s = max(0.0, t_s - window_s)
    point_count = WINDOW_POINTS if process.changes or (process.topics > 1 and mix is None) else 1
    chance_sum = np.zeros_like(process.base)
    for point in range(point_count):
        point_s = window_begin_s + (t_s - window_begin_s) * (point + 0.5) / point_count
        chance_sum += chances_at(process, point_s, mix)
    return chance_sum / point_count


def _keys(seed: int, name: str, layers: int) -> Keys:
    """Keys u8[layers] of each layer's random stream with this name."""
    return np.array([stream_key(seed, f"{name}/{layer}") for layer in range(layers)], np.uint64)


def _shift_number(process: Process, t_s: float) -> int:
    """Number of popularity shifts from the start up to `t_s`; 0 without shifts."""
    shift_every_s = process.experts.shift_every_s
    return int(t_s // shift_every_s) if shift_every_s > 0.0 else 0


def _drift_at(process: Process, t_s: float) -> Floats:
    """Drift of the log loads at time t_s, f8[layers, experts], without the offsets of topics."""
    layers = process.base.shape[0]
    shift_number = _shift_number(process, t_s)
    stream_name = "experts/drift" if shift_number == 0 else f"experts/drift/after/{shift_number}"
    keys = _keys(process.seed, stream_name, layers)
    experts = process.base.shape[1]
    if process.drift_sd == 0.0:
        return np.zeros_like(process.base)
    if process.experts.drift_s <= 0.0:
        return _normal_rows(keys, 0, process.drift_sd, experts)
    knots_passed = t_s / (process.experts.drift_s * KNOT)
    knot_before = math.floor(knots_passed)
    angle = 0.5 * math.pi * (knots_passed - knot_before)
    noise_before = math.cos(angle) * _normal_rows(keys, knot_before * experts, 1.0, experts)
    noise_after = math.sin(angle) * _normal_rows(keys, (knot_before + 1) * experts, 1.0, experts)
    return process.drift_sd * (noise_before + noise_after)


def _shifted_loads(process: Process, t_s: float) -> Floats:
    """Long-run log loads f8[layers, experts] after the last shift, in which a share of each layer's
    experts took each other's loads in turn."""
    shift_number, log_load = _shift_number(process, t_s), process.base
    if shift_number == 0 or process.shift_share == 0.0:
        return log_load
    layers, experts = log_load.shape
    order_draws = uniforms(_keys(process.seed, f"experts/shift/{shift_number}", layers)[:, None],
                     np.arange(experts))  # fmt: skip
    expert_order = np.argsort(order_draws, axis=1, kind="mergesort")
    moved_experts = expert_order[:, : round(process.shift_share * experts)]
    shifted_load, layer_column = log_load.copy(), np.arange(layers)[:, None]
    shifted_load[layer_column, moved_experts] = log_load[
        layer_column, np.roll(moved_experts, -1, axis=1)
    ]
    return shifted_load


def _normal_rows(keys: Keys, first: int, sd: float, experts: int) -> Floats:
    """Normal numbers times `sd`, f8[layers, experts]: of each stream those from `first` on."""
    return sd * normals(keys[:, None], np.arange(first, first + experts))


def _chances(base: Floats, drift: Floats, offset: Floats, mix: Floats, top_k: int) -> Floats:
    """Chance that a token picks each expert, f8[layers, experts]: mean over topics, weighted by
    `mix` f8[topics]. Log loads are the sum of base and drift f8[layers, experts] and of a topic's
    row of offset f8[topics, layers, experts]."""
    mean_chance = np.zeros_like(base)
    for topic in np.flatnonzero(mix):
        topic_load = apply(math.exp, base + drift + offset[topic])
        mean_chance += mix[topic] * popularity.to_chances(topic_load, float(top_k))
    return mean_chance
