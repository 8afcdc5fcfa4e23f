"""Popularity of experts as a table of log loads: all alike; log-logistic with the layer's own scale
(the shape of DeepSeek-V3); a power law; imported counts. `skew` scales all but the first."""

import math

import numpy as np
from numpy.typing import NDArray

from twin.facts import Facts
from twin.kernels.rng import apply, stream_key, uniforms
from twin.scenario import Experts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_SHARE = 1e-3  # of a layer's mean count, for an expert that was never counted
SKEWED, POWER_LAW = 0, 1  # shapes of `fill_ranked_loads`


class ExpertsError(ValueError):
    """Experts that cannot be placed or counted; one sentence says why."""


def topic_correlation(experts: Experts, facts: Facts) -> float:
    """Correlation between two tokens of one request that they pick the same expert. It scales with
    the square of `skew`, as the variance of log popularity does; 0 when uniform."""
    skew = log_scale(experts)
    return min(1.0, facts.si("experts.topic.correlation") * skew * skew)


def log_scale(experts: Experts) -> float:
    """Factor of the logarithms of popularity, drift and topics: `skew`; 0 when uniform."""
    return 0.0 if experts.popularity == "uniform" else experts.skew


def log_loads(
    experts: Experts, routed_experts: int, layers: int, facts: Facts, seed: int,
    counts: Floats | None,
) -> Floats:  # fmt: skip
    """Log of each expert's long-run load, f8[layers, experts], up to a constant per layer. counts:
    only for imported popularity. The power law is NVIDIA's (aiconfigurator, collector/helper.py
    `sample_power_law`): density x**-alpha from 1 to a largest load, at mid-rank quantiles."""
    skew = log_scale(experts)
    log_load = np.zeros((layers, routed_experts))
    if experts.popularity == "imported":
        checked_counts = _check_counts(counts, layers, routed_experts, experts.counts.name)
        mean_counts = np.add.accumulate(checked_counts, axis=1)[:, -1:] / routed_experts
        return skew * apply(math.log, np.maximum(checked_counts / mean_counts, LEAST_SHARE))
    layer_scales = [float(number) for number in facts["experts.popularity.layer_scale"].value]
    alpha, load_span = experts.power_law_alpha, facts.si("experts.popularity.power_law_span")
    for layer in range(layers):
        order_key = stream_key(seed, f"experts/order/{layer}")
        if experts.popularity == "power_law":
            fill_ranked_loads(POWER_LAW, skew, alpha, load_span, order_key, log_load[layer])
        else:
            layer_scale = skew * layer_scales[layer * len(layer_scales) // layers]
            fill_ranked_loads(SKEWED, layer_scale, 0.0, 0.0, order_key, log_load[layer])
    return log_load


def _check_counts(counts: Floats | None, layers: int, routed_experts: int, name: str) -> Floats:
    """Counts as an array f8[layers, experts]; ExpertsError if invalid or unfit for the model."""
    subject = f"the expert counts {name}" if name else "the imported expert counts"
    if counts is None:
        raise ExpertsError(f"{subject} are not here: import their file first")
    if counts.shape != (layers, routed_experts):
        size_text = " x ".join(str(length) for length in counts.shape)
        raise ExpertsError(
            f"{subject} hold {size_text} layers x experts, but the model has {layers} MoE layers x "
            f"{routed_experts} routed experts: import counts of this model"
        )
    if not np.isfinite(counts).all() or (counts < 0).any() or (counts.sum(axis=1) <= 0).any():
        raise ExpertsError(
            f"{subject} must be finite and not negative, with some above 0 in every layer"
        )
    return np.ascontiguousarray(counts, np.float64)


def fill_ranked_loads(shape: int, scale: float, alpha: float, span: float, order_key: np.uint64,
               out: Floats) -> None:  # fmt: skip
    """Fill out f8[experts] with log loads at mid-rank quantiles, times `scale`, in an order drawn
    by a key. shape SKEWED: logistic; POWER_LAW: log of loads of density x**-alpha on [1, span]."""
    expert_order = np.argsort(uniforms(order_key, np.arange(out.size)), kind="mergesort")
    quantile = (np.arange(out.size) + 0.5) / out.size
    if shape == SKEWED:
        out[expert_order] = scale * apply(math.log, quantile / (1.0 - quantile))
    elif abs(1.0 - alpha) < 1e-9:
        out[expert_order] = scale * quantile * math.log(span)
    else:
        exponent = 1.0 - alpha
        scaled_power = 1.0 + quantile * (math.pow(span, exponent) - 1.0)
        out[expert_order] = scale * apply(math.log, scaled_power) / exponent


def to_chances(load: Floats, top_k: float) -> Floats:
    """Each row of load f8[layers, experts] scaled to chances of at most 1 whose sum is top_k."""
    load = load.copy()
    is_certain = np.zeros(load.shape, np.bool_)
    last_certain_count = np.full(load.shape[0], -1)
    while True:
        free_load = np.add.accumulate(np.where(is_certain, 0.0, load), axis=1)[:, -1]
        certain_count = is_certain.sum(axis=1)
        needs_scaling = (certain_count != last_certain_count) & (free_load > 0.0)
        if not needs_scaling.any():
            return np.where(is_certain, 1.0, load)
        picks_left = top_k - certain_count
        layer_scale = np.divide(picks_left, free_load, np.ones(free_load.size), where=needs_scaling)
        load = np.where(is_certain, 1.0, load * layer_scale[:, None])
        last_certain_count = np.where(needs_scaling, certain_count, last_certain_count)
        is_certain |= (load >= 1.0) & needs_scaling[:, None]
